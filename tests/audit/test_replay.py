"""The gray box: what it must see, what it must leave alone, and that every claim and option holds under it."""

import logging
import re
import time
from dataclasses import replace
from itertools import islice

import numpy as np
import pytest

from confide.audit import claims, fuzz, replay, sides
from confide.audit.finding import Verdict
from confide.audit.museum.piece import claim
from confide.audit.neighbours import Rows
from confide.audit.options import check, variants
from confide.audit.recorded import MECHANISMS
from confide.audit.registry import Pair
from confide.errors import ParameterError
from confide.mechanisms import Statistic, choice, grid, seeded_stream
from confide.privacy import Adjacency

ALL = [c for c in claims() if c.replayed]
OPTIONS = [v for c in ALL for v in variants(c)]
PAIR = (Pair("0 against 1", 0, 1),)


def released(value, stream, *, sensitivity=1.0, step=1.0, name="value"):
    statistic = Statistic(np.array([value]), step, sensitivity, name)
    return grid.gaussian_release(statistic, 2, stream=stream.child(name))


def verdict(run, pairs=PAIR, **how):
    made = claim("test", 1, 0, "replace_one", pairs, run, **how)
    return replay.check(made, pairs), sides.check(made, pairs)


@pytest.mark.parametrize("name", [c.name for c in ALL])
def test_every_claim_holds_under_replay_and_on_the_side(name):
    (made,) = (c for c in ALL if c.name == name)
    pairs = [*islice(made.pairs(), 2), *fuzz.fuzzed(made, 2, seed=1)]
    for found in (replay.check(made, pairs), sides.check(made, pairs[-2:])):
        assert found.verdict is Verdict.HOLDS, found.note
        assert "error" not in found.note


#: Members that show a price, or a law, and draw nothing.
SILENT = ("steps, priced]", "[an earlier table, ")


@pytest.mark.parametrize("name", [v.name for v in OPTIONS])
def test_every_option_holds_under_replay(name):
    (made,) = (v for v in OPTIONS if v.name == name)
    found = replay.check(made, fuzz.fuzzed(made, 1, seed=2) or islice(made.pairs(), 1))
    assert found.verdict is Verdict.HOLDS, found.note
    assert "error" not in found.note
    assert "up to 0 calls" not in found.note or any(word in name for word in SILENT)


@pytest.mark.slow
@pytest.mark.parametrize("name", [*(c.name for c in ALL), *(v.name for v in OPTIONS if v.fuzzed)])
def test_many_fuzzed_tables(name):
    (made,) = (c for c in (*ALL, *OPTIONS) if c.name == name)
    pairs = [*made.pairs(), *fuzz.fuzzed(made, 60, seed=3)]
    for found in (replay.check(made, pairs), sides.check(made, pairs[:40])):
        assert found.verdict is Verdict.HOLDS, found.note


def test_a_release_within_its_sensitivity_holds():
    for found in verdict(lambda value, stream: released(value, stream)):
        assert found.verdict is Verdict.HOLDS


def _branching(value, stream):
    return [released(0, stream, name=str(i)) for i in range(1 + value)]


def _refusing(value, stream):
    if value:
        raise ParameterError("No.", "Yes.")
    return released(0, stream)


@pytest.mark.parametrize(
    ("run", "word"),
    [
        (lambda value, stream: released(2 * value, stream), "moves by 2"),
        (lambda value, stream: released(value, stream, sensitivity=1.0 + value), "public parameters"),
        (lambda value, stream: released(0, stream, step=2.0**value), "public parameters"),
        (lambda value, stream: released(0, stream) + value, "result differs"),
        (lambda value, stream: np.full(1 + value, released(0, stream)[0]), "result differs"),
        (lambda value, stream: choice.weighted_choice([1, 1 + 9 * value], stream=stream), "moves by"),
        (lambda value, stream: choice.weighted_choice([1, value], stream=stream), "moves by inf"),
        (_branching, "sequence"),
        (_refusing, "sequence"),
    ],
)
def test_what_replay_must_see(run, word):
    found, _ = verdict(run)
    assert found.verdict is Verdict.BROKEN
    assert word in found.note


def _raising(value, stream):
    raise ParameterError(f"The value is {value}.", "Pass another.")


def _warning(value, stream):
    import warnings

    if value:
        warnings.warn("a rare value", UserWarning, stacklevel=1)
    return released(0, stream)


def _logging(value, stream):
    logging.getLogger("confide.test").warning("value %s", value)
    return released(0, stream)


def _printing(value, stream):
    print(value)
    return released(0, stream)


def _other_grid(value, stream):
    return grid.gaussian_release(Statistic(np.array([0]), 1.0 + value, 2.0, "value"), 2, stream=stream)


@pytest.mark.parametrize(
    ("run", "word"),
    [
        (_raising, "message"),
        (_warning, "warning"),
        (_logging, "log line"),
        (_printing, "printed"),
        (_branching, "number of mechanism calls"),
        (_other_grid, "grid differs"),
        (lambda value, stream: released(0, stream).astype([np.float64, np.float32][value]), "dtype"),
        (lambda value, stream: released(0, stream).reshape([(1,), (1, 1)][value]), "shape"),
    ],
)
def test_what_the_side_channels_must_see(run, word):
    _, found = verdict(run)
    assert found.verdict is Verdict.BROKEN
    assert word in found.note


def test_a_charge_that_differs_is_seen():
    from confide.ledger import charging
    from confide.privacy import UNRECORDED, Event, Guarantee

    def run(value, stream):
        event = Event.of("pure", epsilon=str(1 + value))
        amount = Guarantee(1 + value, 0, Adjacency.REPLACE_ONE, "row", event, (UNRECORDED,))
        with charging.charged(None, amount):
            return released(0, stream)

    _, found = verdict(run)
    assert (found.verdict, found.note) == (Verdict.BROKEN, "the charge differs")


def test_a_value_off_its_grid_is_seen():
    call = replay.Call(MECHANISMS[0], ("value", 0.25, 1.0), np.array([1]), np.array([0.75, -2.0]))
    assert sides.on_grid(call)
    assert not sides.on_grid(replace(call, output=np.array([0.7])))


def test_functions_are_put_back_and_calls_inside_a_mechanism_are_its_own():
    before = grid.gaussian_release
    made = claim("test", 1, 0, "replace_one", PAIR, lambda value, stream: released(value, stream))
    told = replay.replay(made, PAIR[0])
    assert grid.gaussian_release is before
    # rounded_gaussian is inside.
    assert [c.mechanism.name for c in told.recorded.calls] == ["gaussian_release"]
    np.testing.assert_array_equal(told.recorded.output, told.there.output)


def test_a_run_that_fails_puts_functions_back():
    before = grid.gaussian_release
    made = claim("test", 1, 0, "replace_one", PAIR, _raising)
    assert replay.replay(made, PAIR[0]).there.error == "ParameterError: The value is 1. Pass another."
    assert grid.gaussian_release is before


@pytest.mark.parametrize("adjacency", list(Adjacency))
def test_fuzzed_tables_are_neighbours(adjacency):
    rng = np.random.default_rng(0)
    base = Rows(rng.uniform(-1, 1, (7, 3)), np.array([0.0, 1, 0, 1, 1, 0, 1]))
    made = claim("test", 1, 0, adjacency, [Pair("base", base, base)], lambda rows, stream: 0)
    pairs = fuzz.fuzzed(made, 50)
    wild = np.concatenate([np.ravel(part) for p in pairs for part in (p.there.X, p.there.y)])
    assert np.isnan(wild).any()
    assert (np.abs(wild) > 1e300).any()
    for pair in pairs:
        here, there = pair.here, pair.there
        if adjacency is Adjacency.ADD_REMOVE_ONE:
            assert there.y.size == here.y.size + 1
            there = Rows(there.X[:-1], there.y[:-1])
        same = [np.array_equal(a, b, equal_nan=True) for a, b in zip(here.X, there.X, strict=True)]
        labels = (here.y == there.y) | (np.isnan(here.y) & np.isnan(there.y))
        assert (~(np.array(same) & labels)).sum() <= (adjacency is not Adjacency.ADD_REMOVE_ONE)
        if adjacency is Adjacency.REPLACE_LABEL:
            np.testing.assert_array_equal(here.X, base.X)
            np.testing.assert_array_equal(there.X, base.X)


def test_a_family_is_as_good_as_its_worst_option(monkeypatch):
    made = next(c for c in ALL if c.name == "training.rounds")
    first = next(iter(made.pairs()))
    whole = check(made, [first], [first])
    assert whole.tried == 1 + len(variants(made))
    assert whole.verdict is Verdict.HOLDS
    assert whole.claim == made.name

    def leaking(options):
        return lambda rows, stream: rows.y

    monkeypatch.setitem(families(), "training.rounds", (leaking, ({"leak": True},)))
    found = check(made, [first], [first])
    assert found.verdict is Verdict.BROKEN
    assert found.note.startswith("training.rounds[leak=True]: the result differs")


def families():
    from confide.audit import options

    return options._FAMILIES


def test_claims_on_other_things_are_not_fuzzed():
    made = claim("test", 1, 0, "replace_one", PAIR, lambda value, stream: 0)
    assert fuzz.fuzzed(made, 5) == []


def test_last_bits():
    values = [1.0, 1.5, 3.0, -0.25, 1 + 2**-52, 5e-324, 0.0, -0.0, np.nan, np.inf]
    expected = [0, -1, 0, -2, -52, -1074, 2000, 2000, 3000, 3000]
    np.testing.assert_array_equal(sides.last_bits(values), expected)


def test_a_public_grid_gives_the_support_test_nothing():
    made = claim("test", 1, 0, "replace_one", PAIR, lambda value, stream: released(value, stream))
    found = sides.support(made, PAIR[0], 400, seeded_stream(0), error=1e-6)
    assert found.p_value > 1e-3


def test_the_pace_of_neighbours_is_measured_and_not_judged():
    def run(value, stream):
        end = time.process_time() + 0.002 * (1 + value)
        while time.process_time() < end:
            pass
        if value:
            raise ParameterError("No.", "Yes.")
        return released(0, stream)

    made = claim("test", 1, 0, "replace_one", PAIR, run)
    found = sides.pace(made, PAIR[0], 15)
    assert (found.layer, found.verdict, found.tried) == ("run time", Verdict.HOLDS, 15)
    low, high = re.search(r"[(]([0-9.]+) to ([0-9.]+)[)]", found.note).groups()
    assert 1.2 < float(low) <= float(high)
    assert sides.pace(made, PAIR[0], 100, limit=0.0).tried == 9


def test_the_interval_of_a_median_misses_it_with_a_probability_below_its_level():
    from scipy.stats import binom

    for count in (9, 15, 101):
        low, _, high = sides.median([float(i) for i in range(count)])
        outside = binom.cdf(int(low), count, 0.5) + binom.sf(int(high), count, 0.5)
        assert outside <= 0.004
        assert count - 1 - high == low
        wider = binom.cdf(int(low) + 1, count, 0.5)
        assert wider > 0.002  # the next one in would be too narrow


def test_last_bits_of_a_value_that_one_table_never_has():
    rng = np.random.default_rng(0)
    here, there = (rng.choice([0.0, -1.0], (4000, 1)) for _ in range(2))
    there[rng.random(4000) < 0.05] = -3.0
    counts = sides._tell(here, there, 0.0)
    assert counts.alarms == 0
    assert counts.hits > 5
    assert counts.runs == 2000
