"""The exact law of one perturbed coefficient: right, tight, and over the claim where noise is left out."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from scipy.stats import ks_2samp

from confide.audit import claims, exact, replay
from confide.audit.blackbox import law_p_value
from confide.audit.finding import Verdict
from confide.audit.minimisers import LOSSES, Column, ends, repeated
from confide.audit.recorded import _cost
from confide.mechanisms import seeded_stream
from confide.privacy import gaussian_sigma
from confide.training import objective
from confide.training.coefficients import make_shape

COLUMNS = [c for c in claims() if ".one_column." in c.name]
true_plan = objective.make_plan


def by_name(name):
    (claim,) = (c for c in claims() if c.name == name)
    return claim


def fresh(claim):
    """Return the claim with plans that are made anew."""
    column = Column(float(claim.delta), claim.adjacency.value)
    return replace(claim, run=column.run, law=column.law, outputs=column.cells, pairs=column.pairs)


def half(*args, **named):
    plan = true_plan(*args, **named)
    return replace(plan, scale=plan.scale / 2)


def unpaid(*args, **named):
    """Spend on the noise what the determinant costs too."""
    plan = true_plan(*args, **named)
    each = float(plan.epsilon) / plan.shape.rows_per_unit
    paid = math.log1p(plan.loss.curvature * plan.shape.norm_squared / plan.ridge)
    left = each * (1 - 1 / 64) - paid
    if plan.pure:
        return replace(plan, scale=plan.scale * left / (left + paid))
    delta = plan.delta / 256
    share = gaussian_sigma(left + paid, delta, 1.0) / gaussian_sigma(left, delta, 1.0)
    return replace(plan, scale=plan.scale * share)


@pytest.mark.parametrize("claim", COLUMNS, ids=lambda claim: claim.name)
def test_the_law_keeps_the_claim(claim):
    found = exact.check(claim, claim.pairs(), search=False)
    assert found.verdict is Verdict.HOLDS
    assert found.measured > (0.6 if claim.delta else 0.96)


@pytest.mark.parametrize("claim", COLUMNS, ids=lambda claim: claim.name)
def test_half_of_the_noise_breaks_the_claim(claim, monkeypatch):
    monkeypatch.setattr(objective, "make_plan", half)
    found = exact.check(fresh(claim), claim.pairs(), search=False)
    assert found.verdict is Verdict.BROKEN


@pytest.mark.parametrize("claim", [c for c in COLUMNS if c.delta == 0], ids=lambda claim: claim.name)
def test_a_determinant_that_nobody_pays_for_breaks_the_pure_claim(claim, monkeypatch):
    monkeypatch.setattr(objective, "make_plan", unpaid)
    found = exact.check(fresh(claim), claim.pairs(), search=False)
    assert found.verdict is Verdict.BROKEN


@pytest.mark.parametrize("name", ["training.objective", "training.objective.gaussian"])
@pytest.mark.parametrize("spoiled", [half, unpaid])
def test_replay_sums_anew_what_a_plan_costs(name, spoiled, monkeypatch):
    """The Gaussian noise has room in one dimension: what is not paid for breaks its proof, not its law."""
    claim = by_name(name)
    pair = list(claim.pairs())[:2]
    assert replay.check(claim, pair).verdict is Verdict.HOLDS
    monkeypatch.setattr(objective, "make_plan", spoiled)
    assert replay.check(claim, pair).verdict is Verdict.BROKEN


@pytest.mark.parametrize("delta", [0, 0.001, 1e-6])
@pytest.mark.parametrize("epsilon", [0.1, 1, 5])
@pytest.mark.parametrize("adjacency", ["replace_one", "add_remove_one"])
def test_every_plan_spends_what_it_has_and_no_more(delta, epsilon, adjacency):
    for loss in LOSSES:
        for size, count in ((1, 1), (3, 1), (2, 3)):
            shape = make_shape(size, adjacency, rows_per_unit=count)
            plan = true_plan(shape, epsilon, delta, loss)
            assert 1 - 1e-8 < _cost(plan) <= 1
            assert _cost(replace(plan, scale=plan.scale * 0.999)) > 1
            steep = replace(plan.loss, slope=plan.loss.slope * 0.9)
            assert _cost(replace(plan, loss=steep)) > 1
            bent = replace(plan.loss, curvature=plan.loss.curvature * 0.9)
            assert _cost(replace(plan, loss=bent)) > 1


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("delta", [0.0, 0.001])
def test_draws_have_the_law(loss, delta):
    column = Column(delta, "replace_one")
    pair = next(p for p in column.pairs() if p.name.startswith(loss))
    rows = column.cells(pair.there, 500, seeded_stream(3))
    assert law_p_value(column.law(pair.there), Counter(rows.tolist()), 500) > 1e-3


@pytest.mark.parametrize("delta", [0.0, 0.001])
def test_draws_of_half_of_the_noise_have_another_law(delta, monkeypatch):
    column = Column(delta, "replace_one")
    pair = column.pairs()[0]
    law = column.law(pair.here)
    monkeypatch.setattr(objective, "make_plan", half)
    rows = Column(delta, "replace_one").cells(pair.here, 1500, seeded_stream(3))
    assert law_p_value(law, Counter(rows.tolist()), 1500) < 1e-6


def test_kinks_are_ends_of_cells():
    for loss, kinks in (("huber", (-0.5, 0.5)), ("quantile", (-0.875, 0.875)), ("hinge", (-0.5, 0.5))):
        plan = true_plan(make_shape(1, "replace_one", intercept=False), 1, 0, loss)
        for kink in kinks:
            assert np.abs(ends(plan) - kink).min() < 1e-12


def test_a_release_that_is_repeated_has_the_law_of_runs():
    claim = by_name("training.objective.gaussian")
    first = next(iter(claim.pairs()))
    rows = repeated(claim.run)(first.here, 300, seeded_stream(1))
    assert rows.shape == (300, 2)
    whole = np.array([claim.run(first.here, seeded_stream(i)) for i in range(300)])
    ratios = whole / whole[:, :1]  # the coefficient times public points; the first is 1, clipped
    assert np.abs(ratios - ratios[0]).max() < 1e-6
    assert ks_2samp(np.abs(rows[:, 1]), np.abs(whole[:, 0])).pvalue > 1e-3


def test_the_cost_of_a_fraction_of_delta_is_told():
    plan = true_plan(make_shape(1, "replace_one"), 1, Fraction(1, 1000), "huber")
    assert _cost(replace(plan, delta=Fraction(1, 2000))) == pytest.approx(2, rel=1e-6)
