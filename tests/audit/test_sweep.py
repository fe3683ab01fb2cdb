"""A secret cell through all its values: what only some values show, and that no claim shows it."""

from __future__ import annotations

import logging
import warnings
from dataclasses import replace
from functools import lru_cache
from itertools import pairwise

import numpy as np
import pytest

from confide.audit import claims, sweep
from confide.audit import run as running
from confide.audit.finding import Finding, Verdict
from confide.audit.museum.piece import claim
from confide.audit.neighbours import pairs, table
from confide.audit.options import variants
from confide.audit.registry import Pair
from confide.errors import DataError
from confide.ledger import charging
from confide.mechanisms import Statistic, grid
from confide.privacy import Adjacency, Event, Guarantee

BASE = table(12, 2)
RELATIONS = ("replace_label", "replace_one", "replace_private_part", "add_remove_one")
#: As a quick audit, without a clock.
WHOLE = sweep.Reach(40, 9, 58, -1.0)
FULL = replace(sweep.FULL, floor=10**6)


def released(stream, value=0):
    return grid.laplace_release(Statistic(np.array([value]), 1.0, 1.0, "value"), 1, stream=stream)


def of_rows(say, relation="replace_one", base=BASE):
    def run(rows, stream):
        told = released(stream, len(rows.y) % 2)
        say(rows)
        return told

    return claim("test", 1, 0, relation, pairs(base, relation), run)


def warn(condition):
    if condition:
        warnings.warn("Some labels are odd.", UserWarning, stacklevel=2)


@pytest.mark.parametrize("name", [c.name for c in claims()])
def test_every_claim_holds(name):
    (made,) = (c for c in claims(name) if c.name == name)
    found = sweep.check(made, sweep.QUICK, seed=3)
    assert found is None or found.verdict is Verdict.HOLDS, found


@pytest.mark.slow
@pytest.mark.parametrize("made", [v for c in claims() for v in variants(c)], ids=lambda v: v.name)
def test_every_option_holds(made):
    found = sweep.check(made, WHOLE, seed=3)
    assert found is None or found.verdict is Verdict.HOLDS, found


def test_what_is_swept():
    """Claims on tables; a claim on distances, scores or numbers has no label to sweep."""
    none = {c.name for c in claims() if not (c.replayed and sweep.cells(c))}
    assert {c.name for c in claims() if not (c.replayed and c.fuzzed)} <= none
    rooms = ("mechanisms.", "prediction.", "selection.", "tune.", "ledger.", "training.poisson_batches")
    assert all(name.startswith(rooms) for name in none)


LABELS = {
    "above": lambda rows: (rows.y > 0.73).any(),
    "below": lambda rows: (rows.y < -0.73).any(),
    "all above": lambda rows: (rows.y > 0.73).all(),
    "mean": lambda rows: rows.y.mean() > 0.3,
    "a window": lambda rows: (np.abs(rows.y - 0.31) < 0.1).any(),
    "an end": lambda rows: (rows.y == 1).any(),
    "zero is special": lambda rows: (np.sign(rows.y) == 1).any(),
    "missing": lambda rows: np.isnan(rows.y).any(),
    "infinite": lambda rows: np.isinf(rows.y).any(),
    "far": lambda rows: (rows.y > 1e3).any(),
}


@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("name", LABELS)
def test_a_warning_about_labels_is_found_by_a_quick_sweep(name, relation):
    if (name, relation) == ("all above", "add_remove_one"):
        pytest.skip("rows that come leave the others where they are")
    made = of_rows(lambda rows: warn(LABELS[name](rows)), relation)
    found = sweep.check(made, WHOLE)
    assert found.verdict is Verdict.BROKEN
    assert found.note.startswith("a warning, a log line or printed text differs: ")


@pytest.mark.parametrize("relation", ["replace_label", "replace_one"])
def test_a_warning_about_a_hundredth_of_the_labels_is_found_by_a_full_sweep(relation):
    made = of_rows(lambda rows: warn((np.abs(rows.y - 0.73) < 0.01).any()), relation)
    found = sweep.check(made, FULL)
    assert found.verdict is Verdict.BROKEN
    assert 0.72 < float(found.pair.split()[1].rstrip(",")) < 0.74


def test_a_warning_where_one_label_alone_is_odd_is_found_by_a_full_sweep():
    made = of_rows(lambda rows: warn((np.abs(rows.y - 0.73) < 0.01).sum() == 1 and (rows.y < 0).sum() == 11))
    assert sweep.check(made, FULL).verdict is Verdict.BROKEN


@pytest.mark.parametrize("relation", RELATIONS[1:])
@pytest.mark.parametrize(
    "odd", [lambda rows: (rows.X[:, 1] > 0.73).any(), lambda rows: (rows.X[:, 0] > 0.73).all()]
)
def test_a_warning_about_cells_is_found_where_they_are_secret(odd, relation):
    if relation == "add_remove_one":
        odd = LABELS["above"]
    assert sweep.check(of_rows(lambda rows: warn(odd(rows)), relation), WHOLE).verdict is Verdict.BROKEN


def test_a_warning_about_public_cells_is_none_of_it():
    made = of_rows(lambda rows: warn((rows.X > 0.73).any()), "replace_label")
    assert sweep.check(made, WHOLE).verdict is Verdict.HOLDS


def _refuse(rows):
    if (rows.y > 0.73).any():
        raise DataError("No.", "Yes.")


def _print(rows):
    if (rows.y > 0.73).any():
        print("odd")


def _log(rows):
    logging.getLogger("confide.test").warning("%d odd", (rows.y > 0.73).sum())


def _charge(rows):
    if (rows.y > 0.73).any():
        event = Event.of("pure", epsilon="1")
        with charging.charged(None, Guarantee(1, 0, Adjacency.REPLACE_ONE, "row", event, ("unrecorded",))):
            pass


@pytest.mark.parametrize(
    ("say", "what"),
    [
        (_refuse, "an exception or its message differs"),
        (_print, "a warning, a log line or printed text differs"),
        (_log, "a warning, a log line or printed text differs"),
        (_charge, "the charge differs"),
    ],
)
def test_all_that_shows_is_compared(say, what):
    found = sweep.check(of_rows(say), WHOLE)
    assert found.verdict is Verdict.BROKEN
    assert found.note.startswith(what)


def test_calls_and_types_are_compared():
    def run(rows, stream):
        told = released(stream)
        return told if (rows.y < 0.73).all() else [*told, *released(stream.child("more"))]

    found = sweep.check(claim("test", 1, 0, "replace_one", pairs(BASE, "replace_one"), run), WHOLE)
    assert found.verdict is Verdict.BROKEN


def test_what_follows_an_answer_may_say_so():
    def run(rows, stream):
        told = released(stream, int((rows.y > 0.73).sum()))
        warn(told[0] > 2)
        return told

    made = claim("test", 1, 0, "replace_one", pairs(BASE, "replace_one"), run)
    assert all(sweep.check(made, WHOLE, seed=seed).verdict is Verdict.HOLDS for seed in range(3))


def _remembered(say):
    """Return a claim whose model is fitted once a table, as those of `confide.prediction`."""

    @lru_cache(maxsize=4)
    def fitted(cells, labels):
        say(np.frombuffer(labels))

    def run(rows, stream):
        fitted(rows.X.tobytes(), rows.y.tobytes())
        return released(stream)

    return claim("test", 1, 0, "replace_one", pairs(BASE, "replace_one"), run)


def test_a_warning_of_a_fit_that_is_remembered_is_found():
    assert sweep.check(_remembered(lambda y: warn((y > 0.73).any())), WHOLE).verdict is Verdict.BROKEN


def test_a_warning_of_every_fit_is_none():
    made = _remembered(lambda y: warn(True))
    for seed in (0, 0, 1):
        assert sweep.check(made, WHOLE, seed=seed).verdict is Verdict.HOLDS


def test_a_difference_that_neighbours_do_not_repeat_is_no_fault():
    """What a run says by a memory of its own, such as once an hour, convicts nobody."""
    calls = []

    def say(rows):
        calls.append(1)
        warn(len(calls) in (5, 9, 12))

    assert sweep.check(of_rows(say), replace(WHOLE, count=10)).verdict is Verdict.HOLDS


# What holds ---------------------------------------------------------------------------------------


def test_edge_a_single_label_is_a_table():
    def run(label, stream):
        warn(0.6 < label < 0.7)
        return released(stream)

    own = (Pair("ends", -1.0, 3.0), Pair("missing", np.nan, 3.0))
    made = claim("test", 1, 0, "replace_label", own, run)
    found = sweep.check(made, FULL)
    assert found.verdict is Verdict.BROKEN
    assert sweep.cells(made)[0].ends == (-1.0, 3.0)


@pytest.mark.parametrize("relation", RELATIONS)
def test_edge_rungs_are_neighbours(relation):
    made = of_rows(lambda rows: None, relation)
    for cell in sweep.cells(made):
        ladder = cell.ladder(cell.fresh(), (0.5, -0.5, np.nan))
        assert len(ladder) == 4
        for one, other in pairwise(ladder):
            if relation == "add_remove_one":
                np.testing.assert_array_equal(one.X, other.X[:-1])
                np.testing.assert_array_equal(one.y, other.y[:-1])
                continue
            cells = [np.column_stack([rows.X, rows.y]) for rows in (one, other)]
            moved = ~((cells[0] == cells[1]) | (np.isnan(cells[0]) & np.isnan(cells[1])))
            assert moved.any(axis=1).sum() == 1
            assert relation != "replace_label" or not moved[:, :-1].any()


def test_edge_tables_are_never_built_twice():
    made = of_rows(lambda rows: None)
    for cell in sweep.cells(made):
        seen = [cell.fresh().X.tobytes() for _ in range(3)]
        assert len(set(seen)) == 3
        assert np.abs(cell.fresh().X).max() <= 1


def test_edge_a_table_that_comes_with_something_keeps_it():
    def run(asked, stream):
        rows, query = asked
        assert query == 7
        warn((rows.y > 0.73).any())
        return released(stream)

    own = [Pair(pair.name, (pair.here, 7), (pair.there, 7)) for pair in pairs(BASE, "replace_one")]
    assert sweep.check(claim("test", 1, 0, "replace_one", own, run), WHOLE).verdict is Verdict.BROKEN


def test_edge_classes_are_swept_between_them():
    classes = table(12, 2, classes=True)
    made = of_rows(lambda rows: warn((np.abs(rows.y) < 0.5).any()), base=classes)
    assert sweep.check(made, WHOLE).verdict is Verdict.BROKEN


def test_edge_other_tables_are_not_swept():
    def made(own, **how):
        return claim("test", 1, 0, "replace_one", own, lambda told, stream: released(stream), **how)

    assert sweep.check(made((Pair("numbers", 0, 1),)), WHOLE) is None
    assert sweep.check(made((Pair("a label that is not all", 0.0, 1.0),)), WHOLE) is None
    assert sweep.check(made(pairs(BASE, "replace_one"), fuzzed=False), WHOLE) is None
    assert sweep.check(made(pairs(BASE, "replace_one"), replayed=False), WHOLE) is None


def test_edge_a_slow_run_is_swept_to_the_floor():
    asked = []
    made = of_rows(lambda rows: asked.append(rows), base=table(3, 2))
    found = sweep.check(made, sweep.Reach(40, 1, 9, -1.0))
    assert found.tried == 2 * 9
    assert len(asked) == 2 * (2 + 3)  # of two cells: two tables to begin with, and three ladders of three


def test_values_cover_the_bounds():
    (cell,) = (c for c in sweep.cells(of_rows(lambda rows: None)) if c.what == "label")
    low, high = cell.ends
    told = list(sweep.values(cell, 400, np.random.default_rng(1)))
    grid = sorted(v for values in told[:34] for v in values)
    assert (grid[0], grid[-1], len(grid)) == (low, high, 402)
    assert np.diff(grid).max() <= 2 * (high - low) / 400
    assert sum(len(values) == 1 for values in told) == 402
    others = [
        sorted(v for values in list(sweep.values(cell, 400, np.random.default_rng(s)))[:34] for v in values)
        for s in (1, 2)
    ]
    assert others[0] == grid != others[1]


def test_options_are_swept_too():
    made = of_rows(lambda rows: None)
    wrong = replace(of_rows(lambda rows: warn((rows.y > 0.73).any())), name="wrong")
    found = sweep.check(made, WHOLE, [made, wrong])
    assert found.verdict is Verdict.BROKEN
    assert found.note.startswith("wrong: a warning")


def test_a_sweep_is_a_part_of_the_side_channels():
    held = Finding("a", "side channels", Verdict.HOLDS, tried=3, note="all alike")
    swept = Finding("a", "side channels", Verdict.HOLDS, tried=40, note="40 values")
    broken = Finding("a", "side channels", Verdict.BROKEN, pair="label 0.73", tried=4, note="a warning")
    assert sweep.joined(held, None) == held
    assert sweep.joined(held, swept) == replace(held, tried=43, note="all alike; 40 values")
    assert sweep.joined(held, broken) == replace(broken, tried=7)
    assert sweep.joined(broken, swept).note == "a warning"
    assert sweep.joined(broken, swept).verdict is Verdict.BROKEN


def test_an_audit_sweeps(monkeypatch):
    """The seed of the values is the audit's; without one they are other values each time."""
    seeds, plain = [], sweep.check

    def seen(*a, seed, **how):
        seeds[-1].append(seed)
        return plain(*a, seed=seed, **how)

    monkeypatch.setattr(sweep, "check", seen)
    for seed in (1, 1, None, None):
        seeds.append([])
        assert running.audit("labels.rounding", seed=seed).broken == ()
    assert seeds[0] == seeds[1]
    assert not set(seeds[0]) & set(seeds[2])
    assert not set(seeds[2]) & set(seeds[3])
