"""Draws have the law that `law` says, for every loss and in every corner; and nothing large overflows."""

from __future__ import annotations

import itertools
import math
import pickle
from types import SimpleNamespace

import numpy as np
import pytest
from instances import LOSSES, epsilon_of, problem, random_problem, table
from scipy.stats import chisquare

from confide.audit.entropy import Tap, tapped
from confide.audit.family.selection import far
from confide.errors import ParameterError
from confide.mechanisms import seeded_stream
from confide.selection import SubsetProblem, draw, envelope, law
from confide.selection.draws import make_envelope, sample
from confide.selection.envelope import EnvelopeError
from confide.selection.exponent import exponent
from confide.selection.flips import Floor


def agreement(probabilities, drawn):
    """Return the chi-square p-value, cells of expectation below 8 pooled; 1 where one cell has everything."""
    index = {support: i for i, support in enumerate(probabilities)}
    expected = np.array(list(probabilities.values())) * len(drawn)
    counts = np.bincount([index[support] for support in drawn], minlength=len(index))
    large = expected >= 8
    cells = [(c, e) for c, e in zip(counts[large], expected[large])]
    rest = (counts[~large].sum(), expected[~large].sum())
    if rest[1] >= 8:
        cells.append(rest)
    elif rest[0] > rest[1] + 6 * math.sqrt(rest[1]) + 6:  # too few for a cell: a Poisson tail
        return 0.0
    if len(cells) < 2:
        return 1.0
    observed, wanted = np.array(cells, dtype=float).T
    return float(chisquare(observed, wanted * observed.sum() / wanted.sum()).pvalue)


def check(seed, mechanism, draws):
    made, eps = random_problem(seed), epsilon_of(seed)
    adjacency = ("add_remove_one", "replace_one")[seed % 2]
    drawn = draw(made, mechanism, eps, adjacency, random_state=seed, size=draws)
    return agreement(law(made, mechanism, eps, adjacency), drawn)


@pytest.mark.parametrize("mechanism", ["exponential", "permute_and_flip"])
@pytest.mark.parametrize("seed", range(20))
def test_draws_have_the_law(seed, mechanism):
    assert check(seed, mechanism, 20_000) > 1e-5


@pytest.mark.slow
@pytest.mark.parametrize("mechanism", ["exponential", "permute_and_flip"])
def test_draws_have_the_law_on_200_instances(mechanism):
    values = np.array([check(seed, mechanism, 100_000) for seed in range(200)])
    assert values.min() > 1e-5
    inner = values[values < 1]
    assert 0.4 < inner.mean() < 0.6


def test_the_test_notices_a_wrong_law():
    made = random_problem(2)
    drawn = draw(made, "exponential", 1.0, "replace_one", random_state=1, size=20_000)
    assert agreement(law(made, "exponential", 1.3, "replace_one"), drawn) < 1e-5


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("splits", [0, 3, 40])
def test_the_partition_changes_time_never_the_law(seed, splits):
    made, eps = random_problem(100 + seed, most=9), 2.0
    envelope = make_envelope(made, exponent(made, "exponential", eps, "replace_one"))
    envelope.split(splits)
    drawn = []
    while len(drawn) < 6000:  # rejection from this very partition
        supports, log_bounds, _ = envelope.propose(20_000, source := seeded_stream(seed + 7 * len(drawn)))
        logs, _ = envelope.log_acceptance(supports, log_bounds)
        if np.exp(logs).mean() < 1e-3:
            pytest.skip("hardly anything is accepted from so few buckets")
        from confide.mechanisms import bernoulli_log

        drawn += map(tuple, supports[bernoulli_log(logs, stream=source.child("coins"))].tolist())
    assert agreement(law(made, "exponential", eps, "replace_one"), drawn) > 1e-5


@pytest.mark.parametrize("seed", range(10))
def test_the_floor_is_below_every_score_and_ends_at_the_best(seed):
    from confide.selection.enumeration import all_supports

    made = random_problem(200 + seed)
    envelope = make_envelope(made, exponent(made, "permute_and_flip", 1.0, "replace_one"))
    least = made.centred_scores(all_supports(made)).min()
    floor = Floor(envelope)
    before = floor.value
    assert before <= least <= floor.best
    lifted = floor.lift(before + (least - before) / 2)
    assert before + (least - before) / 2 <= lifted <= least
    assert floor.lift(math.inf) == floor.best == least


@pytest.mark.parametrize("late", [1e-9, 0.05, 1.0, 20.0])
def test_when_the_floor_is_lifted_does_not_change_permute_and_flip(late, monkeypatch):
    import confide.selection.flips as flips

    monkeypatch.setattr(flips, "_LATE", late)
    for seed in (0, 2, 6, 9):
        made = random_problem(300 + seed, most=8)
        wanted = law(made, "permute_and_flip", 2.0, "add_remove_one")
        drawn = draw(made, "permute_and_flip", 2.0, "add_remove_one", random_state=seed, size=6000)
        assert agreement(wanted, drawn) > 1e-5


def test_a_bound_above_a_score_raises():
    made = random_problem(3, loss="squared")
    envelope = make_envelope(made, 1.0)
    for bucket in envelope.buckets:
        bucket.bound.base += 1e-3 + 10 * made.record_range
    with pytest.raises(EnvelopeError):
        sample(envelope, 50, seeded_stream(0))


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("mechanism", ["exponential", "permute_and_flip"])
def test_no_rows_is_uniform(loss, mechanism):
    made = problem(np.zeros((0, 6)), np.zeros(0), 2, loss)
    drawn = draw(made, mechanism, 3.0, "add_remove_one", random_state=0, size=6000)
    assert agreement(dict.fromkeys(law(made, mechanism, 3.0, "add_remove_one"), 1 / 15), drawn) > 1e-5


@pytest.mark.parametrize("mechanism", ["exponential", "permute_and_flip"])
def test_ties_are_uniform(mechanism):
    x = np.linspace(-0.5, 0.5, 30)
    made = problem(np.stack([x] * 5, axis=1), x, 2)
    drawn = draw(made, mechanism, 5.0, "replace_one", random_state=0, size=5000)
    assert chisquare(np.unique(drawn, axis=0, return_counts=True)[1]).pvalue > 1e-5


@pytest.mark.parametrize("loss", LOSSES)
def test_s_equals_p_and_p_equals_one(loss):
    X, y = table(np.random.default_rng(0), 30, 3)
    for mechanism in ("exponential", "permute_and_flip"):
        assert draw(problem(X, y, 3, loss), mechanism, 1, "replace_one", size=2) == [(0, 1, 2)] * 2
        assert draw(problem(X[:, :1], y, 1, loss), mechanism, 1, "replace_one") == [(0,)]


@pytest.mark.parametrize(("p", "size"), [(200, 10), (1000, 10), (90, 20)])
def test_more_supports_than_int64(p, size):
    # C(200, 10) > 2^53, C(1000, 10) > 2^63; without any signal the law is nearly uniform over all of them.
    assert math.comb(p, size) > 2**53
    rng = np.random.default_rng(0)
    made = problem(rng.uniform(-0.5, 0.5, (5, p)), np.zeros(5), size)
    drawn = draw(made, "exponential", 0.1, "replace_one", random_state=1, size=300)
    assert all(len(set(support)) == size and support == tuple(sorted(support)) for support in drawn)
    assert len(set(drawn)) == 300
    counts = np.bincount(np.array(drawn).ravel(), minlength=p).reshape(10, -1).sum(axis=1)
    assert chisquare(counts).pvalue > 1e-5


@pytest.mark.parametrize("loss", LOSSES)
def test_a_strong_signal_is_found_in_a_wide_table(loss):
    rng = np.random.default_rng(0)
    X = np.clip(rng.standard_normal((2000, 300)), -0.5, 0.5)
    y = np.clip(X[:, 7] + X[:, 100] + X[:, 299], -0.5, 0.5)
    made = problem(X, y, 3, loss)
    for mechanism in ("exponential", "permute_and_flip"):
        assert set(draw(made, mechanism, 10.0, "replace_one", random_state=0, size=5)) == {(7, 100, 299)}


def test_float32_and_memory_maps_are_drawn_from(tmp_path):
    X, y = table(np.random.default_rng(5), 200, 12)
    np.save(tmp_path / "x.npy", X.astype(np.float32))
    mapped = problem(np.load(tmp_path / "x.npy", mmap_mode="r"), y, 3)
    dense = problem(X.astype(np.float32), y, 3)
    assert law(mapped, "exponential", 1, "replace_one") == law(dense, "exponential", 1, "replace_one")
    assert agreement(law(dense, "exponential", 1, "replace_one"),
                     draw(mapped, "exponential", 1, "replace_one", random_state=0, size=5000)) > 1e-5  # fmt: skip


def test_random_state():
    made = random_problem(0)
    first = draw(made, "exponential", 1, "replace_one", random_state=5, size=20)
    assert first == draw(made, "exponential", 1, "replace_one", random_state=5, size=20)
    assert first != draw(made, "exponential", 1, "replace_one", random_state=6, size=20)
    assert draw(made, "exponential", 1, "replace_one", size=0) == []
    for bad in (-1, 1.5, True):
        with pytest.raises(ParameterError, match="size"):
            draw(made, "exponential", 1, "replace_one", size=bad)
    with pytest.raises(ParameterError):
        draw(made, "exponential", 1, "replace_one", random_state=np.random.default_rng(0))  # type: ignore[arg-type]


def test_problems_pickle():
    made = random_problem(4)
    again = pickle.loads(pickle.dumps(made))
    assert isinstance(again, SubsetProblem)
    assert law(again, "exponential", 1, "replace_one") == law(made, "exponential", 1, "replace_one")


@pytest.mark.parametrize("seed", [3, None])
@pytest.mark.parametrize("mechanism", ["exponential", "permute_and_flip"])
def test_the_same_words_draw_one_result_however_busy_the_machine_is(mechanism, seed, monkeypatch):
    made = far("replace_private_part", 3, few=300, many=600).here
    asked = SubsetProblem(made.X, made.y, 3, feature_bound=1.0, target_bound=1.0)
    found, words = [], b""
    for pace in (0.0, 1e-6, 1.0, 1e3):
        clock = itertools.accumulate(itertools.repeat(pace))
        monkeypatch.setattr(envelope, "time", SimpleNamespace(perf_counter=lambda clock=clock: next(clock)))
        with tapped(Tap(words)) as tap:
            found.append(draw(asked, mechanism, 1, "replace_one", random_state=seed, size=40))
        assert bool(tap.read) is (seed is None)
        assert not words or bytes(tap.read) == words
        words = bytes(tap.read)
    assert found[0] == found[1] == found[2] == found[3]
