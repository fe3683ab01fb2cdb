"""Selection on tables where a record moves the scores by all that M allows: tight, and broken by half of M."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from confide.audit import claims, exact, replay
from confide.audit.blackbox import fit
from confide.audit.finding import Verdict
from confide.audit.promises import selection
from confide.audit.promises.selection import apart, leanings
from confide.mechanisms import seeded_stream
from confide.selection import estimator, request
from confide.selection.losses import Loss

CLAIMS = claims("selection.extremes")
LOSSES = ("squared", "huber", "quantile", "hinge", "logistic")


@pytest.mark.parametrize("claim", CLAIMS, ids=lambda claim: claim.name)
def test_every_mechanism_and_loss_spends_nearly_all_of_epsilon(claim):
    for pair in claim.pairs():
        spent = exact.measured(claim.law(pair.here), claim.law(pair.there), Fraction(0))
        assert (0.6 if "3 a person" in pair.name else 0.95) < spent <= 1, pair.name


@pytest.mark.parametrize("claim", CLAIMS, ids=lambda claim: claim.name)
@pytest.mark.parametrize("loss", LOSSES)
def test_half_of_the_range_of_one_loss_is_caught(claim, loss, monkeypatch):
    true = Loss.record_range

    def half(one, *bounds):
        return true(one, *bounds) / (2 if one.name == loss else 1)

    monkeypatch.setattr(Loss, "record_range", half)
    pairs = list(claim.pairs())
    assert exact.check(claim, pairs, search=False).verdict is Verdict.BROKEN
    others = [pair for pair in pairs if loss not in pair.name]
    assert exact.check(claim, others, search=False).verdict is Verdict.HOLDS


@pytest.mark.parametrize("claim", CLAIMS, ids=lambda claim: claim.name)
def test_a_row_of_a_person_that_takes_the_whole_budget_is_caught(claim, monkeypatch):
    true = request.make_request

    def whole(**named):
        return true(**{**named, "rows_per_unit": 1})

    for module in (request, estimator):
        if hasattr(module, "make_request"):
            monkeypatch.setattr(module, "make_request", whole)
    persons = [pair for pair in claim.pairs() if "3 a person" in pair.name]
    assert exact.check(claim, persons, search=False).verdict is Verdict.BROKEN
    assert replay.check(claim, persons[:1]).verdict is Verdict.BROKEN


@pytest.mark.parametrize("turn", [("top_r", "hinge"), ("permute_and_flip", "quantile"), None])
def test_one_mechanism_of_one_loss_that_draws_by_another_law_is_caught(turn, monkeypatch):
    (claim,) = claims("selection.turns")
    true = selection.draw

    def sharper(problem, mechanism, epsilon, *args, **named):
        share = 2 if (mechanism, problem.loss.name) == turn else 1
        return true(problem, mechanism, share * epsilon, *args, **named)

    monkeypatch.setattr(selection, "draw", sharper)
    found = fit(claim, next(iter(claim.pairs())), claim.draws, seeded_stream(1))
    assert (found.p_value < 1e-6) is (turn is not None)


@pytest.mark.parametrize("adjacency", ["replace_one", "add_remove_one"])
def test_only_the_rows_of_one_person_differ(adjacency):
    for loss in LOSSES:
        for count in (1, 3):
            here, there = apart(loss, count, adjacency)
            kept = slice(0 if adjacency == "add_remove_one" else count, None)
            np.testing.assert_array_equal(here.X[kept], there.X[count:])
            np.testing.assert_array_equal(here.y[kept], there.y[count:])
    assert len(leanings(adjacency)) == 5 * 5
