"""Rules learned on outputs: they find what there is, never more, and their p-values are valid."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from scipy.stats import beta

from confide.audit import Finding, Verdict, blackbox, claims
from confide.audit.blackbox import (
    Counts,
    Guesses,
    Tried,
    attack,
    clopper_pearson,
    law_p_value,
    one_run_bound,
)
from confide.audit.exact import certain
from confide.audit.finding import judge
from confide.audit.registry import Pair
from confide.mechanisms import discrete, rounded_gaussian, seeded_stream
from confide.training.sgd import release

#: A p-value that Holm rejects among the attacks of any audit: 0.001 over a thousand.
LEVEL = 1e-6


@pytest.mark.parametrize("hits", [0, 1, 37, 99, 100])
def test_bounds_of_a_rate(hits):
    low, high = clopper_pearson(hits, 100, 1e-3)
    assert low == pytest.approx(beta.ppf(1e-3, hits, 101 - hits) if hits else 0.0)
    assert high == pytest.approx(beta.ppf(1 - 1e-3, hits + 1, 100 - hits) if hits < 100 else 1.0)


def test_a_bound_and_its_p_value_agree():
    counts = Counts(700, 100, 1000)
    bound = counts.epsilon(0.0, 1e-6)
    assert 1 < bound < math.log(7)
    assert counts.p_value(bound, 0.0) == pytest.approx(1e-6, rel=1e-2)
    assert counts.p_value(math.log(7), 0.0) > 0.4
    assert counts.epsilon(0.8, 1e-6) == 0.0


@pytest.mark.parametrize("kind", ["shift", "spread", "cells", "second coordinate"])
def test_differences_are_found(kind):
    rng = np.random.default_rng(0)
    here, there = rng.laplace(size=(20_000, 2)), rng.laplace(size=(20_000, 2))
    if kind == "shift":
        there[:, 0] += 1.0
    elif kind == "spread":
        there *= 3.0
    elif kind == "cells":
        here, there = rng.integers(0, 3, (20_000, 1)), np.minimum(rng.integers(0, 4, (20_000, 1)), 2)
    else:
        there[:, 1] -= 1.0
    assert attack(here.astype(float), there.astype(float), 0.0).epsilon(0.0, 1e-6) > 0.2


def test_noise_that_is_too_small_is_convicted():
    (claim,) = claims("mechanisms.discrete_laplace")
    pair = next(iter(claim.pairs()))
    less = replace(claim, epsilon=claim.epsilon * Fraction(7, 10))
    for stated, broken in ((claim, False), (less, True)):
        found = blackbox.check(stated, pair, 400_000, seeded_stream(3), full=False, error=1e-5)
        assert (judge([found], 1e-3)[0].verdict is Verdict.BROKEN) is broken


def test_no_false_alarm_where_tables_are_equal():
    """p-values of the black box are no smaller than uniform ones, whatever rule was learned."""
    values = []
    for seed in range(60):
        rng = np.random.default_rng(seed)
        counts = attack(rng.normal(size=(400, 3)), rng.normal(size=(400, 3)), 0.0)
        values.append(counts.p_value(0.0, 0.0))
    assert np.mean(np.array(values) <= 0.1) <= 0.25
    assert min(values) > 1e-4


def revealing(kind, chance, *, delta=0, epsilon=1):
    """Return a claim whose runs tell the table `here` with this probability; tight but for it."""

    def outputs(side, count, stream):
        rng = np.random.default_rng(int(stream.bits(1)[0] >> np.uint64(2)))
        told = (rng.random(count) < chance) & (side == 0)
        if kind == "cells":
            turned = rng.random(count) >= math.e / (1 + math.e)
            return np.where(told, 7.0, (turned != side).astype(float))[:, None]
        rows = rng.laplace(side, 1 / float(epsilon), (count, 1))
        rows[told] = {"far": 1e9, "a value": 0.123456, "nothing": math.nan}[kind]
        return rows

    return replace(CLAIM, epsilon=Fraction(epsilon), delta=Fraction(delta), outputs=outputs, law=None)


CLAIM = claims("mechanisms.discrete_laplace")[0]
SIDES = Pair("sides", 0, 1)


def p_value(claim, count, seed=0):
    return blackbox.check(claim, SIDES, count, seeded_stream(seed), full=False, error=1e-6).p_value


@pytest.mark.parametrize("delta", [0, Fraction(1, 1000)])
@pytest.mark.parametrize("kind", ["far", "a value", "nothing", "cells"])
def test_what_is_rare_on_one_table_and_never_on_the_other_is_found(kind, delta):
    """One run of a hundred, in a quick audit."""
    assert p_value(revealing(kind, 0.01, delta=delta), 20_000) < 1e-6
    assert p_value(revealing(kind, 0.0, delta=delta), 20_000) > 1e-2


@pytest.mark.parametrize("kind", ["far", "a value", "cells"])
def test_in_a_full_audit_it_may_be_rarer(kind):
    assert p_value(revealing(kind, 0.002, delta=Fraction(1, 1000)), 400_000) < 1e-10


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "count"), [("cells", 300), ("far", 300), ("cells", 2000)])
def test_tight_claims_are_accused_as_seldom_as_the_p_value_says(kind, count):
    claim = revealing(kind, 0.0)
    values = np.array([p_value(claim, count, seed) for seed in range(2000)])
    for level in (0.1, 0.01, 0.001):
        assert (values <= level).sum() <= 2000 * level + 4 * math.sqrt(2000 * level) + 1


@pytest.mark.parametrize("count", [2, 3, 4, 7])
@pytest.mark.parametrize("columns", [1, 30])
def test_a_few_runs_are_enough_to_guess(count, columns):
    """What is too slow to draw often is attacked all the same, and never accused for it."""

    def outputs(side, times, stream):
        return np.random.default_rng(side).normal(size=(times, columns))

    assert p_value(replace(CLAIM, outputs=outputs, law=None), count) > 1e-3


def test_rules_share_the_error():
    """Of three rules the best alone decides, at its share of the error; the first has most of it."""
    good, idle = Guesses(1400, 300, 20_000), Guesses(0, 0, 20_000)
    alone = good.p_value(1.0, 0.0)
    assert Tried((good,)).p_value(1.0, 0.0) == alone
    assert Tried((good, idle, idle)).p_value(1.0, 0.0) == pytest.approx(alone / 0.8)
    assert Tried((idle, idle, good)).p_value(1.0, 0.0) == pytest.approx(alone / 0.1)
    assert Tried((idle, good)).epsilon(0.0, 1e-3) == pytest.approx(good.epsilon(0.0, 2e-4))


def test_holm():
    def found(p):
        return Finding("c", "black box", Verdict.HOLDS, p_value=p)

    proof = Finding("d", "exact", Verdict.BROKEN)
    told = judge([found(0.02), found(0.0001), found(0.03), proof], 0.05)
    assert [f.verdict is Verdict.BROKEN for f in told] == [True, True, True, True]
    told = judge([found(0.03), found(0.0001), found(0.03)], 0.05)
    assert [f.verdict is Verdict.BROKEN for f in told] == [False, True, False]


def test_draws_are_held_against_the_law():
    law = certain({0.0: Fraction(1, 2), 1.0: Fraction(1, 2)})
    assert law_p_value(law, Counter({0.0: 5000, 1.0: 5000}), 10_000) == 1.0
    assert law_p_value(law, Counter({0.0: 5400, 1.0: 4600}), 10_000) < 1e-10
    assert law_p_value(law, Counter({0.0: 4999, 1.0: 5000, 7.0: 1}), 10_000) == 0.0


@pytest.mark.parametrize("name", ["mechanisms.discrete_laplace", "mechanisms.discrete_gaussian"])
@pytest.mark.parametrize(("share", "full"), [(5, False), (20, True)])
def test_code_that_draws_from_another_law_is_caught(name, share, full, monkeypatch):
    """A broken kernel: one magnitude in `share` is one too large."""
    true = discrete._geometric

    def wide(law, words, source):
        drawn = true(law, words, source)
        drawn[::share] += 1
        return drawn

    (claim,) = claims(name)
    pair, count = next(iter(claim.pairs())), claim.draws if full else claim.quick
    assert blackbox.fit(claim, pair, count, seeded_stream(0)).p_value > 1e-3
    monkeypatch.setattr(discrete, "_geometric", wide)
    assert blackbox.fit(claim, pair, count, seeded_stream(0)).p_value < LEVEL


@pytest.mark.parametrize(("delta", "error"), [(0.0, 1e-2), (0.0, 1e-4), (0.01, 1e-2)])
def test_a_bound_from_guesses_errs_as_seldom_as_it_says(delta, error):
    """On the worst law that the claim allows: p = e^epsilon q + delta, both sides drawn by coins."""
    rng, runs, q = np.random.default_rng(1), 2000, 0.1
    p = math.e * q + delta
    found = rng.multinomial(runs, [p / 2, q / 2, 1 - (p + q) / 2], size=3000)
    above = [Guesses(int(r), int(w), runs).epsilon(delta, error) > 1 for r, w, _ in found]
    assert np.mean(above) <= error + 4 * math.sqrt(error / 3000)


def test_guesses_tell_more_than_two_separate_bounds():
    assert Guesses(1000, 400, 20_000).epsilon(0.0, 1e-6) > Counts(1000, 400, 10_000).epsilon(0.0, 1e-6) > 0
    assert Guesses(5, 0, 2000).epsilon(0.01, 1e-6) == 0.0  # delta excuses them
    assert Guesses(1000, 400, 20_000).p_value(1.0, 0.0) > 0.4
    assert Guesses(1400, 300, 20_000).p_value(1.0, 0.0) < 1e-6


def test_guesses_of_one_run():
    chance = math.exp(1) / (1 + math.exp(1))
    right = int(16_000 * chance)
    assert one_run_bound(right, 16_000, 64, 2000, 0.0, 0.4) < 1.0
    assert one_run_bound(right + 400, 16_000, 64, 2000, 0.0, 1e-6) > 1.0
    bounds = [one_run_bound(right, 16_000, 64, 2000, delta, 1e-6) for delta in (0.0, 1e-4, 1e-3, 0.1)]
    assert bounds == sorted(bounds, reverse=True)
    assert bounds[2] > 0.5
    assert bounds[3] == 0.0


def test_failures_of_whole_trainings_are_excused():
    """A run that tells every label with probability 2 m delta, and nothing otherwise: (0, delta)-DP for all."""
    rng, runs, canaries, delta, error = np.random.default_rng(2), 200, 16, 1e-3, 1e-2
    bad = 0
    for _ in range(400):
        open_books = rng.binomial(runs, canaries * delta)
        right = open_books * canaries + rng.binomial((runs - open_books) * canaries, 0.5)
        bad += one_run_bound(int(right), runs * canaries, canaries, runs, delta, error) > 0
    assert bad <= 400 * error + 4 * math.sqrt(400 * error)


def test_one_run_convicts_a_model_that_tells_its_canaries():
    (claim,) = claims("training.randomized_response")

    def open_book(stream):
        bits = np.where(stream.bits(64) >> np.uint64(63), 1, -1)
        return bits, bits

    found = blackbox.one_run(replace(claim, one_run=open_book), seeded_stream(0), repeats=3, error=1e-5)
    assert found.measured > 2
    assert found.p_value < 1e-6


@pytest.mark.filterwarnings("ignore:The .delta. parameter")
def test_one_run_convicts_steps_with_an_eighth_of_their_noise_in_a_quick_audit(monkeypatch):
    def little(sigma, step, size, *, stream=None):
        return rounded_gaussian(Fraction(sigma) / 8, step, size, stream=stream)

    (claim,) = claims("training.dpsgd.linear")
    sound = blackbox.one_run(claim, seeded_stream(3), repeats=20, error=LEVEL)
    monkeypatch.setattr(release, "rounded_gaussian", little)
    broken = blackbox.one_run(claim, seeded_stream(3), repeats=20, error=LEVEL)
    assert sound.p_value > 1e-3
    assert broken.measured > float(claim.epsilon)
    assert broken.p_value < LEVEL
