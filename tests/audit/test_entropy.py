"""Where noise comes from: what a library that breaks its streams shows, and what a sound one never does."""

from __future__ import annotations

import inspect
import math
import os
import random
import secrets
import time
from fractions import Fraction
from importlib import import_module
from types import FunctionType, SimpleNamespace

import numpy as np
import pytest

from confide.audit import claims, entropy, generators
from confide.audit import run as running
from confide.audit.finding import Verdict
from confide.audit.museum.piece import claim
from confide.audit.options import variants
from confide.audit.registry import Pair
from confide.errors import DataError
from confide.mechanisms import (
    Statistic,
    bernoulli_exp,
    discrete,
    discrete_gaussian,
    discrete_laplace,
    gaussian,
    grid,
    laplace_release,
    rounded_gaussian,
    seeded_stream,
    weighted_choice,
)
from confide.mechanisms import stream as streams
from confide.mechanisms.choice import uniform_integers

PAIR = (Pair("0 against 1", 0, 1),)
OTHERS = "alike on other random words"
REPEAT = "does not repeat itself"


def named(name):
    (made,) = (one for one in claims(name) if one.name == name)
    return made


def told(run, pairs=PAIR, **how):
    return entropy.check(claim("test", 1, 0, "replace_one", pairs, run, quick=how.pop("quick", 0), **how))


def broken(run, **how):
    found = told(run, **how)
    assert found.verdict is Verdict.BROKEN, found
    return found.note


def released(value, stream, *, name="value"):
    return laplace_release(
        Statistic(np.full(8, value * 2**20), 2.0**-20, 1.0, name), 1, l1_sensitivity=8.0, stream=stream
    )


@pytest.mark.parametrize("name", [one.name for one in claims()])
def test_every_claim_draws_from_the_operating_system(name):
    found = entropy.check(named(name))
    assert (found is None) == (name == "ledger.balances"), "that one draws nothing"
    assert found is None or found.verdict is Verdict.HOLDS, found.note
    assert found is None or found.tried >= 3


@pytest.mark.slow
@pytest.mark.parametrize("made", [v for one in claims() for v in variants(one)], ids=lambda v: v.name)
def test_every_option_draws_from_the_operating_system(made):
    found = entropy.check(made)
    if found is None:  # a point law, or a price alone
        told = entropy.faults(made, 2)
        assert told is None or not (told.drew or told.found)
    else:
        assert found.verdict is Verdict.HOLDS, found.note


def test_a_sound_release_holds():
    assert told(released).verdict is Verdict.HOLDS


# Libraries that are broken ------------------------------------------------------------------------


def _asked(count):
    return np.frombuffer(streams.os.urandom(8 * count), dtype=np.uint64)


def _once():
    """Seeded by the operating system, once."""
    generator = np.random.Philox(int.from_bytes(os.urandom(16), "little"))
    return lambda count: np.asarray(generator.random_raw(count), dtype=np.uint64)


def _kept():
    """The first words of each length, for ever."""
    memory = {}
    return lambda count: memory.setdefault(count, _asked(count))


def _late():
    """Fresh words at first; from the third time on those of the first."""
    memory = {}

    def bits(count):
        seen = memory.setdefault(count, [])
        seen.append(_asked(count))
        return seen[-1] if len(seen) < 3 else seen[0]

    return bits


def _clock():
    return lambda count: np.asarray(np.random.Philox(time.time_ns()).random_raw(count), dtype=np.uint64)


def _half():
    return lambda count: np.resize(_asked(-(-count // 2)), count)


def _grown():
    """Sound, but for its longer answers."""
    return lambda count: _asked(count) if count < 50_000 else np.resize(_asked(50_000), count)


def _turned():
    return lambda count: _asked(count)[::-1]


def _secretly():
    return lambda count: np.frombuffer(secrets.token_bytes(8 * count), dtype=np.uint64)


@pytest.mark.parametrize(
    "make", [_once, _kept, _late, _clock, _half, _grown, _turned, _secretly], ids=lambda f: f.__name__
)
@pytest.mark.parametrize(
    "name", ["mechanisms.gaussian_release", "labels.rounding", "training.boosted_adassp.replace_one"]
)
def test_a_stream_that_is_not_the_systems_is_found(monkeypatch, name, make):
    bits = make()
    monkeypatch.setattr(streams.OsStream, "bits", lambda self, count: bits(count))
    found = entropy.check(named(name))
    assert found.verdict is Verdict.BROKEN
    assert "other words than the operating system gave" in found.note


@pytest.mark.parametrize(
    "child", [lambda self, name: seeded_stream(1), lambda self, name: Wrapped(np.random.Philox(1).random_raw)]
)
def test_a_child_that_is_not_the_systems_is_found(monkeypatch, child):
    monkeypatch.setattr(streams.OsStream, "child", child)
    assert entropy.check(named("training.objective")).verdict is Verdict.BROKEN
    assert not entropy._itself()


def test_a_source_in_the_place_of_the_systems_is_found(monkeypatch):
    assert entropy.of_the_system()
    with monkeypatch.context() as patch:
        patch.setattr(streams, "os", SimpleNamespace(urandom=random.Random(1).randbytes))
        assert not entropy.of_the_system()
        found = entropy.check(named("labels.laplace"))
        assert (found.verdict, found.note) == (
            Verdict.BROKEN,
            "certified streams do not read the operating system's generator",
        )
    monkeypatch.setattr(os, "urandom", random.Random(1).randbytes)
    assert not entropy.of_the_system()


def test_an_engine_that_always_draws_from_one_seed_is_found(monkeypatch):
    from confide.training import least_squares

    plain = least_squares.gaussian_answer
    monkeypatch.setattr(
        least_squares, "gaussian_answer", lambda multiplier, stream: plain(multiplier, seeded_stream(1))
    )
    found = entropy.check(named("training.adassp.replace_one"))
    assert (found.verdict, found.note) == (Verdict.BROKEN, "an unseeded run draws from a seed")


def test_an_option_that_draws_from_a_seed_is_found(monkeypatch):
    made = named("training.adassp.replace_one")
    wrong = claim("wrong", 1, 0, "replace_one", PAIR, lambda value, stream: released(value, seeded_stream(1)))
    found = entropy.check(made, [wrong])
    assert found.verdict is Verdict.BROKEN
    assert found.note == "museum.wrong: an unseeded run draws from a seed"


def test_no_state_means_a_seed(monkeypatch):
    from confide.training import least_squares

    monkeypatch.setattr(least_squares, "random_stream", lambda random_state=None: seeded_stream(1))
    assert entropy.check(named("training.noisy_statistics.add_remove_one")).verdict is Verdict.BROKEN


@pytest.mark.parametrize("name", ["mechanisms.discrete_laplace", "labels.laplace", "training.objective"])
def test_a_sampler_that_reads_words_and_draws_from_a_seed_is_found(monkeypatch, name):
    """What it answers is the same on other words, though all its words are the operating system's."""
    plain = discrete._geometric

    def geometric(law, words, source):
        return plain(law, np.random.Philox(1).random_raw(words.size).reshape(words.shape), source)

    monkeypatch.setattr(discrete, "_geometric", geometric)
    note = entropy.check(named(name)).note
    assert OTHERS in note


def _box_noise(plan, stream):
    size, step = plan.shape.size, 2.0**-46  # globals are those of the module that it is put in
    normals = rounded_gaussian(1, step, 2 * (size + 1), stream=stream.child("norm")) * step
    return plan.scale * math.fsum(normals * normals) / 2 * np.random.default_rng(3).uniform(-1, 1, size)


def test_a_function_that_makes_a_generator_of_its_own_is_found(monkeypatch):
    """The direction of the noise is fixed, and all that a recorded sampler draws is right."""
    from confide.training import objective

    monkeypatch.setattr(objective, "box_noise", FunctionType(_box_noise.__code__, vars(objective)))
    found = entropy.check(named("training.objective"))
    assert (found.verdict, found.note) == (
        Verdict.BROKEN,
        "confide.training.objective._box_noise makes a generator of its own",
    )


@pytest.mark.parametrize("maker", generators._MAKERS)
def test_who_makes_a_generator_is_seen(maker):
    plain = getattr(np.random, maker)
    with generators.watching() as made:
        drawn = getattr(np.random, maker)(5)
        if isinstance(plain, type):
            assert isinstance(drawn, plain)
            assert isinstance(drawn, getattr(np.random, maker))
        assert not isinstance(3, getattr(np.random, maker))
    assert getattr(np.random, maker) is plain
    assert made == {(__name__, "test_who_makes_a_generator_is_seen")}


def test_who_may_make_a_generator_is_there():
    """Each entry names a function that makes one: a list that outlives its reasons hides others."""
    for module, function in generators.PUBLIC:
        text = inspect.getsource(import_module(module))
        body = next(
            part for part in text.split("def ") if part.startswith(f"{function}(") and "np.random." in part
        )
        assert any(maker in body for maker in generators._MAKERS)
    others = {("confide.audit.x", "f"), ("sklearn.utils", "g"), *generators.PUBLIC}
    assert generators.strangers(others) == []
    assert generators.strangers({*others, ("confide.tune.scoring", "f")}) == ["confide.tune.scoring.f"]


# Runs that are broken -----------------------------------------------------------------------------


def _fixed(value, stream):
    return value + np.random.default_rng(1).normal(size=3)


def _numpys(value, stream):
    return released(value, stream) + np.random.normal(size=8)  # noqa: NPY002


def _pythons(value, stream):
    return released(value, stream) + random.gauss(0, 1)


def _clocked(value, stream):
    return released(value, stream) + np.random.default_rng(time.time_ns()).normal(size=8)


def _elsewhere(value, stream):
    return released(value, stream) + secrets.randbelow(2**62)


def _by_time(value, stream):
    return released(value, seeded_stream(time.time_ns()))


@pytest.mark.parametrize(
    ("run", "note"),
    [
        (_fixed, "reads no random word, and answers otherwise on a neighbour"),
        (_numpys, "numpy's or Python's own generator is used"),
        (_pythons, "numpy's or Python's own generator is used"),
        (_clocked, REPEAT),
        (_elsewhere, REPEAT),
        (_by_time, "draws from a seed"),
    ],
)
def test_a_run_with_other_noise_is_found(run, note):
    assert note in broken(run)


def test_a_claim_that_draws_nothing_has_no_noise_to_try():
    """It is not held by a layer that could not have broken it; a difference would still break it."""
    assert told(lambda value, stream: np.zeros(8)) is None
    assert told(_fixed).verdict is Verdict.BROKEN
    assert entropy.check(named("ledger.balances")) is None
    drawn = claim("drawn", 1, 0, "replace_one", PAIR, released)
    still = claim("still", 1, 0, "replace_one", PAIR, lambda value, stream: np.zeros(8))
    assert entropy.check(still, [drawn]).verdict is Verdict.HOLDS


class Wrapped:
    """A stream of somebody's own."""

    certified = True

    def __init__(self, bits):
        self.bits = bits

    def child(self, name):
        return self


def test_a_draw_that_reads_no_word_or_too_few_is_found():
    def shared(value, stream):
        return released(value, Wrapped(lambda count: np.resize(stream.bits(1), count)))

    def foreign(value, stream):
        return released(value, Wrapped(np.random.Philox(7).random_raw))

    for run in (shared, foreign):
        assert "fewer than its law needs" in broken(run)


def test_coordinates_that_repeat_are_found(monkeypatch):
    def run(value, stream):
        statistic = Statistic(np.full(20, value), 2.0**-20, 1.0, "value")
        return grid.gaussian_release(statistic, 2, stream=stream)

    plain = gaussian._fill

    def tiled(ratio, source, out):
        plain(ratio, source, out)
        out[:] = np.resize(out[:5].copy(), out.size)

    assert told(run).verdict is Verdict.HOLDS
    monkeypatch.setattr(gaussian, "_fill", tiled)
    assert broken(run) == "coordinates of one draw repeat each other"


@pytest.mark.parametrize(
    ("n", "bits", "period", "judged"),
    [
        (20, 440.0, 5, True),
        (20, 440.0, 1, True),
        (20, 440.0, 16, True),
        (20, 440.0, 17, False),
        (20, 80.0, 1, False),
        (1, 99.0, 1, False),
    ],
)
def test_coordinates_are_judged_where_that_is_next_to_impossible(n, bits, period, judged):
    """With 22 bits a coordinate: 4 of them that repeat have 88, and log2 20 more than 80 are asked for."""
    answer = np.resize(np.arange(period), n)
    assert entropy.Draw("rounded_gaussian", bits, 99, answer).periodic is judged
    assert not entropy.Draw("rounded_gaussian", bits, 99, np.arange(n)).periodic


def test_noise_that_is_used_twice_is_found():
    def run(value, stream):
        first = {}  # words are read, and not used the second time
        source = Wrapped(lambda count: first.setdefault(count, stream.bits(count)))
        return [gaussian.rounded_gaussian(2.0, 2.0**-20, 8, stream=source) for _ in range(2)]

    assert broken(run) == "two draws of one run answer alike"


def test_many_runs_at_once_may_not_repeat():
    def outputs(value, count, stream):
        stream.bits(count)
        return np.random.Philox(1).random_raw(count) % 2

    def run(value, stream):
        return outputs(value, 1, stream)

    law = {0.0: (Fraction(1, 2), Fraction(1, 2)), 1.0: (Fraction(1, 2), Fraction(1, 2))}
    note = broken(run, outputs=outputs, law=lambda value: law, quick=1000)
    assert note == "81 runs answer alike on other random words"


# What holds ---------------------------------------------------------------------------------------


def test_edge_a_table_that_ends_in_an_error_is_left_for_the_next():
    def run(value, stream):
        if value == 0:
            raise DataError("No.", "Yes.")
        return released(value, stream)

    nothing = Pair("0 against 0", 0, 0)
    assert told(run, (nothing, *PAIR)).verdict is Verdict.HOLDS
    assert told(run, (nothing,)) is None


def test_edge_a_law_that_is_a_point_needs_no_word():
    def run(value, stream):
        return weighted_choice([1], stream=stream) + bernoulli_exp(0, 3, stream=stream)

    found = told(run)
    assert (found.verdict, found.tried) == (Verdict.HOLDS, 3)


def test_edge_a_draw_by_no_known_sampler_is_judged_by_its_words():
    assert told(lambda value, stream: [float(stream.bits(1)[0])]).verdict is Verdict.HOLDS


def test_edge_an_audit_with_a_seed_tries_unseeded_runs(monkeypatch):
    plain, certified = entropy.os_stream, []
    monkeypatch.setattr(entropy, "os_stream", lambda: certified.append(True) or plain())
    found = running.audit("labels.laplace", seed=3)
    assert certified
    assert found.broken == ()


def test_edge_a_rehearsal_on_public_cells_may_be_seeded():
    """`tune` rehearses from a seed: nothing of that is counted, and what is fitted after it is."""
    seen = entropy.unseeded(named("tune.tune"), next(iter(named("tune.tune").pairs())).here)
    assert seen.tap.seeded == 0
    assert all(draw.words for draw in seen.draws if draw.bits)


def test_the_generators_of_others_are_left_as_they_were():
    np.random.seed(5)  # noqa: NPY002
    random.seed(5)
    expected = np.random.RandomState(5).normal(), random.Random(5).random()
    assert told(released).verdict is Verdict.HOLDS
    assert (np.random.normal(), random.random()) == expected  # noqa: NPY002
    assert streams.os is os
    assert streams.OsStream.bits.__module__ == streams.__name__


def test_a_run_repeats_itself_on_recorded_words():
    made = claim("test", 1, 0, "replace_one", PAIR, released)
    first = entropy.unseeded(made, 0)
    again = entropy.unseeded(made, 0, recorded=bytes(first.tap.read))
    np.testing.assert_array_equal(first.outcome.output, again.outcome.output)
    assert first.tap.read == again.tap.read
    other = entropy.unseeded(made, 0)
    assert not np.array_equal(first.outcome.output, other.outcome.output)


def _likeliest(name, arguments):
    """Return the probability of the likeliest answer, by its law written down anew."""
    if name == "rounded_gaussian":
        return math.erf(float(arguments["step"]) / arguments["sigma"] / 2 / math.sqrt(2)) ** arguments["size"]
    if name == "discrete_gaussian":
        weights = [math.exp(-k * k / 2 / arguments["sigma"] ** 2) for k in range(-200, 201)]
        return (1 / sum(weights)) ** arguments["size"]
    if name == "discrete_laplace":
        q = math.exp(-1 / arguments["scale"])
        return ((1 - q) / (1 + q)) ** arguments["size"]
    if name == "bernoulli_exp":
        return max(math.exp(-arguments["gamma"]), 1 - math.exp(-arguments["gamma"])) ** arguments["size"]
    if name == "uniform_integers":
        return (1 / arguments["total"]) ** arguments["count"]
    weights = arguments["weights"] or [math.exp(w) for w in arguments["log_weights"]]
    return (max(weights) / sum(weights)) ** (arguments["size"] or 1)


@pytest.mark.parametrize(
    ("sampler", "given"),
    [
        (rounded_gaussian, {"sigma": 2.0, "step": 0.25, "size": 3}),
        (rounded_gaussian, {"sigma": 0.1, "step": 1.0, "size": 3}),
        (rounded_gaussian, {"sigma": 0.5, "step": 1.0, "size": 1}),
        (discrete_gaussian, {"sigma": 3, "size": 2}),
        (discrete_gaussian, {"sigma": Fraction(1, 3), "size": 2}),
        (discrete_laplace, {"scale": 7, "size": 4}),
        (discrete_laplace, {"scale": Fraction(1, 9), "size": 4}),
        (bernoulli_exp, {"gamma": 0.25, "size": 5}),
        (bernoulli_exp, {"gamma": 2, "size": 5}),
        (uniform_integers, {"total": 10, "count": 3}),
        (weighted_choice, {"weights": [1, 2.5, Fraction(1, 2)], "log_weights": None, "size": 4}),
        (weighted_choice, {"weights": None, "log_weights": [0.0, -1.0, -math.inf, -900.0], "size": None}),
    ],
)
def test_no_answer_is_likelier_than_the_bits_say(sampler, given):
    bits = entropy._CHANCES[sampler.__name__](given)
    chance = _likeliest(sampler.__name__, given)
    assert 2.0**-bits >= chance * (1 - 1e-9)
    assert 2.0**-bits <= 1
    assert bits >= 0.45 * -math.log2(chance) - 2  # and no bound that judges nothing
