"""Regressions of an audit: one record that used to decide a score, an exception, or a law."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from confide.errors import ParameterError, UnsupportedError
from confide.ledger import Ledger
from confide.selection import SubsetProblem, SubsetSelector, draw, law
from confide.selection.losses import loss_of

B = {"feature_bound": 1.0, "target_bound": 1.0}


@pytest.mark.parametrize("cell", [1e-60, 1e-100, 1e-150, 1e-200, 5e-324])
@pytest.mark.parametrize("loss", ["squared", "huber", "quantile", "hinge", "logistic"])
def test_a_tiny_cell_in_an_empty_column_moves_no_score(cell, loss):
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (300, 6))
    X[:, 5] = 0.0
    y = np.clip(X[:, 0] + 0.3 * rng.normal(size=300), -1, 1)
    other = X.copy()
    other[7, 5] = cell
    bounds = {"feature_bound": 1.0} if loss in ("hinge", "logistic") else B
    here, there = (SubsetProblem(A, y, 2, loss, ridge=0.0, **bounds) for A in (X, other))
    for support in itertools.combinations(range(6), 2):
        assert abs(here.centred_score(support) - there.centred_score(support)) <= here.tau
    ratios = [
        abs(math.log(p / q))
        for p, q in zip(law(here, "exponential", 1, "replace_one").values(),
                        law(there, "exponential", 1, "replace_one").values(), strict=True)
    ]  # fmt: skip
    assert max(ratios) <= 1e-3
    assert draw(there, "exponential", 1, "replace_one", random_state=0, size=3)


@pytest.mark.parametrize("scale", [1e-30, 1e-20, 1.0, 1e20, 1e30])
@pytest.mark.parametrize("loss", ["squared", "quantile", "hinge"])
def test_scores_do_not_depend_on_the_unit_of_the_columns(scale, loss):
    rng = np.random.default_rng(1)
    X = rng.uniform(-1, 1, (200, 4))
    y = np.sign(X[:, 0] - X[:, 1])
    bounds = {} if loss == "hinge" else {"target_bound": 1.0}
    one = SubsetProblem(X, y, 2, loss, feature_bound=1.0, **bounds)
    problem = SubsetProblem(X * scale, y, 2, loss, feature_bound=scale, **bounds)
    for support in itertools.combinations(range(4), 2):
        assert problem.centred_score(support) == pytest.approx(one.centred_score(support), abs=one.tau)


@pytest.mark.parametrize(
    "change",
    [{"feature_bound": 1e-40}, {"feature_bound": 1e40}, {"target_bound": 1e-40}, {"ridge": 1e-30},
     {"radius": 1e-20}, {"radius": 1e20}, {"loss": "huber", "radius": 1e-5}],
)  # fmt: skip
def test_parameters_at_which_doubles_give_out_are_refused(change):
    options = {"loss": "squared", **B, **change}
    with pytest.raises(ParameterError, match=r"(P|p)ass"):
        SubsetProblem(np.zeros((0, 3)), np.zeros(0), 2, **options)


@pytest.mark.parametrize("seed", range(40))
def test_flat_faces_and_near_duplicates_stay_far_inside_tau(seed):
    """Binary tables, classes, no ridge: Newton's system is singular at the solution."""
    rng = np.random.default_rng(seed)
    n, s = int(rng.choice([63, 300])), int(rng.choice([2, 3, 5]))
    kind = seed % 4
    if kind < 2:
        X = np.where(rng.random((n, s)) < rng.choice([0.02, 0.05, 0.2]), 1.0, -1.0 if kind else 0.0)
    else:
        X = rng.uniform(-1, 1, (n, 1)) + 10.0 ** -rng.integers(3, 12) * rng.uniform(-1, 1, (n, s))
        X = np.clip(X, -1, 1)
    y = np.where(rng.random(n) < rng.choice([0.05, 0.3, 0.5]), 1.0, -1.0)
    for loss, bounds in (
        ("hinge", {}),
        ("quantile", {"target_bound": 1.0}),
        ("huber", {"target_bound": 1.0}),
        ("logistic", {}),
    ):
        for reach in (1.0, 4.0, 16.0 if loss == "logistic" else 100.0):
            problem = SubsetProblem(X, y, s, loss, reach / math.sqrt(s), 0.0, feature_bound=1.0, **bounds)
            problem.centred_score(tuple(range(s)))
            assert problem.missed <= 0.26


def test_record_range_of_huber_does_not_cancel():
    for width, b, a in itertools.product((0.1, 0.5, 1.0, 3.0), (1.0,), (1e-3, 0.3, 0.5, 0.9, 1.0, 5.0)):
        loss = loss_of("huber")
        loss = type(loss)(**{**loss.__dict__, "shape": width})
        z = np.linspace(-a, a, 20_001)
        values = loss.value(np.full_like(z, b), z)
        assert loss.record_range(b, a) == pytest.approx(values.max() - values.min(), rel=1e-6)


def test_too_many_rows_are_refused_before_the_charge(tmp_path):
    ledger = Ledger.open(f"sqlite:///{tmp_path}/l.db", dataset="t", epsilon=2, adjacency="replace_one")
    selector = SubsetSelector(1, 1, feature_bounds=(-1, 1), target_bounds=(-1, 1), ledger=ledger)
    with pytest.raises(UnsupportedError, match="rows"):
        selector.fit(np.zeros((2**20 + 1, 1), dtype=np.float32), np.zeros(2**20 + 1))
    assert ledger.total().epsilon == 0
