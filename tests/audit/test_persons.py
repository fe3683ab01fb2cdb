"""Persons of several rows: every family holds, comes close to what it declares, and fails where rows are lost."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from confide.audit import claims, fuzz, persons, price, replay
from confide.audit.finding import Verdict
from confide.audit.neighbours import Rows
from confide.audit.options import check
from confide.audit.persons import ROWS, several
from confide.audit.registry import Pair
from confide.privacy import Adjacency
from confide.training import boosting, least_squares
from confide.training import problem as problems
from confide.training.sgd.sensitivity import Accounting

VARIANTS = {v.name: v for claim in claims() for v in persons.variants(claim)}
#: Of what is declared, one row moves an input by a third: more shows that all rows count. The noise of an
#: objective is held against a density, not a distance, and is far from it on these rows.
NEAR = 0.7


def tried(variant, pairs):
    told = [replay.replay(variant, pair) for pair in pairs]
    return [f for one in told for f in replay.faults(variant, one)], max(
        replay.shares(variant, one) for one in told
    )


@pytest.mark.parametrize("name", VARIANTS)
def test_all_rows_of_a_person_move_inputs_by_what_is_declared_and_no_further(name):
    made = VARIANTS[name]
    found, share = tried(made, list(made.pairs())[:3])
    assert not found, found
    assert share > (1 / ROWS if "objective" in name or "logistic" in name else NEAR)


@pytest.mark.slow
@pytest.mark.parametrize("name", VARIANTS)
def test_all_rows_of_a_fuzzed_person(name):
    made = VARIANTS[name]
    pairs = [several(pair, made.adjacency) for pair in fuzz.fuzzed(made, 30, seed=7)]
    found, _ = tried(made, [*made.pairs(), *pairs])
    assert not found, found


def _of_one_row(make):
    def made(shape, *args, **named):
        return make(replace(shape, rows_per_unit=1), *args, **named)

    return made


def _least_squares(patch):
    patch.setattr(least_squares, "make_plan", _of_one_row(least_squares.make_plan))


def _boosting(patch):
    patch.setattr(boosting, "make_plan", _of_one_row(boosting.make_plan))


def _sums(patch):
    true = problems.public_step

    def step(problem, *args):
        return true(replace(problem, rows_per_unit=1, ids=None), *args)

    for module in (problems, *_users("public_step")):
        patch.setattr(module, "public_step", step)


def _steps(patch):
    true = Accounting.difference
    patch.setattr(Accounting, "difference", lambda a, *args: true(replace(a, rows_per_unit=1), *args))


def _users(name):
    import sys

    held = getattr(problems, name)
    return [m for m in list(sys.modules.values()) if vars(m).get(name) is held and m is not problems]


BROKEN = [
    ("training.adassp.replace_one", _least_squares),
    ("training.adassp.add_remove_one", _least_squares),
    ("training.noisy_statistics.add_remove_one", _least_squares),
    ("training.boosted_adassp.replace_one", _boosting),
    ("training.closed_form.spectral", _sums),
    ("training.rounds", _sums),
    ("training.closed_form.classes", _sums),
    ("training.dpsgd.linear", _steps),
    ("training.dpsgd.secret", _steps),
]


@pytest.mark.parametrize(("name", "spoil"), BROKEN, ids=lambda x: x if isinstance(x, str) else x.__name__)
def test_rows_of_a_person_that_are_lost_are_caught_in_a_quick_audit(name, spoil, monkeypatch):
    (claim,) = (c for c in claims() if c.name == name)
    first = [next(iter(claim.pairs()))]
    spoil(monkeypatch)
    found = check(claim, first, first)
    assert found.verdict is Verdict.BROKEN
    assert f"{ROWS} rows a person" in found.note


@pytest.mark.parametrize("name", ["training.adassp.replace_one", "training.adassp.add_remove_one"])
def test_noise_that_is_not_scaled_by_the_rows_of_a_person_is_caught_by_price(name, monkeypatch):
    (claim,) = (c for c in claims() if c.name == name)
    first = [next(iter(claim.pairs()))]
    assert price.check(claim, first, persons.variants(claim)).verdict is Verdict.HOLDS
    true = least_squares.make_plan

    def narrow(shape, *amounts):
        plan = true(shape, *amounts)
        return replace(plan, multiplier=plan.multiplier / shape.rows_per_unit)

    monkeypatch.setattr(least_squares, "make_plan", narrow)
    found = price.check(claim, first, persons.variants(claim))
    assert found.verdict is Verdict.BROKEN
    assert f"{ROWS} rows a person" in found.note


def test_the_row_that_differs_is_there_several_times():
    base = Rows(np.arange(8.0).reshape(4, 2), np.arange(4.0))
    X, y = base.X.copy(), base.y.copy()
    X[2], y[2] = np.nan, 9.0
    pair = several(Pair("third", base, Rows(X, y)), Adjacency.REPLACE_ONE)
    assert pair.here.y.tolist() == [2, 2, 2, 0, 1, 3]
    assert pair.there.y.tolist() == [9, 9, 9, 0, 1, 3]
    assert np.isnan(pair.there.X[:3]).all()
    added = several(Pair("added", base, base.added(np.ones(2), 5.0)), Adjacency.ADD_REMOVE_ONE)
    assert added.here is base
    assert added.there.y.tolist() == [0, 1, 2, 3, 5, 5, 5]
    alike = several(Pair("alike", base, base), Adjacency.REPLACE_ONE)
    assert alike.here.y.tolist() == [0, 0, 0, 1, 2, 3]
