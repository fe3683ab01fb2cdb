"""The best of a random number of runs, from below: against the library's bound, and against exact laws."""

from __future__ import annotations

from fractions import Fraction

import pytest

from confide.audit import audit, best, claims, losses
from confide.audit.exact import measured
from confide.audit.finding import Verdict
from confide.privacy.random_stopping import Stopping, gaussian_profile, stopping

SHAPES = ["0", "1", "-1/2"]


@pytest.mark.parametrize("eta", SHAPES)
@pytest.mark.parametrize("mu", [0.1, 0.5, 1.5])
def test_gaussian_runs_cost_no_more_than_the_bound_and_a_good_part_of_it(eta, mu):
    law = stopping(5, Fraction(eta))
    for epsilon in (0.5, 2.0, 4.0):
        told = best.delta(losses.gaussian(1 / mu), float(law.eta), float(law.gamma), epsilon)
        assert told <= law.delta(epsilon, gaussian_profile(mu)) + best.ERROR
    one = losses.delta([losses.gaussian(1 / mu)], 2 * mu)
    assert best.delta(losses.gaussian(1 / mu), float(law.eta), float(law.gamma), 2 * mu) > 1.3 * one


def test_one_run_costs_itself():
    for cost in (losses.gaussian(2), losses.pure(1), losses.approximate(1, 0.01)):
        assert best.delta(cost, 0.0, 1.0, 0.5) == pytest.approx(losses.delta([cost], 0.5), abs=2e-3)


@pytest.mark.parametrize("eta", SHAPES)
def test_pure_runs_cost_what_is_said(eta):
    law = stopping(3, Fraction(eta))
    total, shape = float(law.pure(Fraction(1, 2))), (float(law.eta), float(law.gamma))
    assert best.delta(losses.pure(0.5), *shape, total) < best.ERROR
    assert best.delta(losses.pure(0.5), *shape, 0.99 * total) > 1e-6


@pytest.mark.parametrize("name", ["tune.random_stopping", "tune.random_stopping.heavy"])
def test_the_exact_law_measures_nearly_all_that_is_claimed(name):
    (claim,) = (claim for claim in claims("tune") if claim.name == name)
    (pair,) = claim.pairs()
    assert claim.law is not None
    share = measured(claim.law(pair.here), claim.law(pair.there), claim.delta) / float(claim.epsilon)
    assert 0.995 < share <= 1


@pytest.mark.parametrize("name", ["tune.random_stopping.geometric", "tune.number_of_runs.heavy", "tune.tune"])
def test_a_law_of_another_mean_than_it_says_is_never_drawn_from(name, monkeypatch):
    monkeypatch.setattr(Stopping, "mean", property(lambda law: 1.0))
    found = audit(name)
    assert found.findings
    assert {one.verdict for one in found.findings} == {Verdict.BROKEN}
