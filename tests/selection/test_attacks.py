"""Regressions of an audit: one record that used to decide a score, an exception, or a law."""

from __future__ import annotations

import itertools
import math
import time
import warnings

import numpy as np
import pytest
from test_draws import agreement

from confide.errors import ParameterError, UnsupportedError
from confide.ledger import Ledger
from confide.selection import (
    SubsetProblem,
    SubsetSelector,
    best_by_mistakes,
    best_supports,
    draw,
    law,
    search_squared,
)
from confide.selection import bounds as bounding
from confide.selection import problem as asking
from confide.selection.enumeration import all_supports
from confide.selection.exponent import MECHANISMS
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


# One record that made a search, a draw or a score raise, after the charge; now the same path as without it.


def alone(n, p, cells, target=0.0):
    """Return zeros but for some cells of row 0 and y_0."""
    X, y = np.zeros((n, p)), np.zeros(n)
    X[0, : len(cells)], y[0] = cells, target
    return X, y


def beside_one(n, p, cells, columns=(0,)):
    """Return columns of ones beside some cells of row 0; y is 1."""
    X = np.zeros((n, p))
    X[:, list(columns)] = 1.0
    for place, cell in cells.items():
        X[0, place] = cell
    return X, np.ones(n)


def tiny_among_noise():
    X, y = np.random.default_rng(0).uniform(-1, 1, (20, 4)), np.random.default_rng(1).uniform(-2, 2, 20)
    X[:, 0], X[0, 0], y[0] = 0.0, 5e-324, 1.0
    return X, y


def near_copies(n, p, seed=0):
    rng = np.random.default_rng(seed)
    z = rng.normal(size=(n, 1))
    return np.clip(z + 1e-9 * rng.normal(size=(n, p)), -1, 1), 1e-9 * rng.uniform(-1, 1, n)


SINGLE = -np.array([0.631, 0.7374, 0.6716, 0.8762, 0.6226, 0.1046], dtype=np.float32).astype(float)
#: Table, size, and what is not a default.
TABLES = {
    "scores of 1e-318": (beside_one(100, 4, {1: 0.0, 2: 10**-158.4, 3: 10**-158.4}, (0, 1)), 2, {}),
    "products of 1e-160": (alone(20, 5, [6.738847082333678e-78] * 5, 1.4369998768868076e-83), 1, {}),
    "five tiny cells": (
        alone(20, 5, [2.87e-70, 7.37e-79, 4.65e-80, 7.41e-71, 2.82e-46], 3.529932688565271e-114), 4, {}),
    "an ordinary row": (alone(20, 6, SINGLE, 2.2865e-14), 4, {"ridge": 0.0}),
    "near copies": (near_copies(50, 8), 5, {"ridge": 0.0}),
    "a subnormal cell": (tiny_among_noise(), 1, {"ridge": 0.0, "target_bound": 2.0}),
    "a subnormal cell, hinge": (beside_one(5, 2, {1: 5e-324}), 1, {"ridge": 0.0, "loss": "hinge"}),
    "a vanishing pull": (alone(30, 4, [4.36e-161] * 3, 1.0), 2, {"ridge": 1e-9, "radius": 0.00707}),
    "cells of 1e-148": (alone(5, 5, [0.0, 0.0, -4.92e-148], 9.06e-137), 3, {"ridge": 0.0}),
    "opposite cells, logistic": (
        beside_one(5, 6, {4: 1.75e-158, 5: -1.75e-158}, ()), 1, {"ridge": 0.0, "loss": "logistic"}),
}  # fmt: skip


def made(name, cells=1.0):
    (X, y), size, options = TABLES[name]
    options = {"feature_bound": 1.0, "target_bound": 1.0, **options}
    if options.get("loss") in ("hinge", "logistic"):
        del options["target_bound"]
    tiny = np.abs(X) < 1e-30
    return SubsetProblem(np.where(tiny, X * cells, X), y, size, **options)


@pytest.mark.parametrize("scale", [1.0, 1e20, 1e60, 1e100, 1e130, 1e140])
@pytest.mark.parametrize("name", TABLES)
@pytest.mark.filterwarnings("error")
def test_no_cell_makes_a_search_or_a_draw_raise(name, scale):
    ask = made(name, scale)
    supports = all_supports(ask)
    scores = ask.centred_scores(supports)
    for count in (1, 2 + (ask.p - ask.size) * ask.size):
        found = best_supports(ask, count)
        assert found.certified
        assert np.array_equal(found.scores, np.sort(scores)[:count] + ask.origin)
    levels = best_by_mistakes(ask)
    mistakes = ask.size - np.isin(supports, levels.columns[0]).sum(axis=1)
    assert levels.certified
    assert levels.scores.tolist() == [
        scores[mistakes == t].min() + ask.origin for t in range(len(levels.scores))
    ]
    for mechanism, epsilon in itertools.product(MECHANISMS, (0.01, 1.0, 1e5)):
        drawn = draw(ask, mechanism, epsilon, "replace_one", random_state=0, size=4)
        assert len(drawn) == 4


@pytest.mark.parametrize("name", ["scores of 1e-318", "cells of 1e-148", "a subnormal cell, hinge"])
def test_a_cell_below_2_100th_of_its_bound_is_0(name):
    with_it, without = made(name), made(name, 0.0)
    supports = all_supports(with_it)
    assert np.array_equal(with_it.centred_scores(supports), without.centred_scores(supports))


def test_cells_count_as_0_in_every_layout():
    from scipy.sparse import csr_matrix

    from confide.selection import bounded

    X = np.array([[2.0**-100, 2.0**-101], [-(2.0**-102), 5e-324], [0.5, np.inf], [np.nan, -0.25]])
    want = np.array([[2.0**-100, 0.0], [0.0, 0.0], [0.5, 1.0], [0.0, -0.25]])
    sources = [
        X,
        np.asfortranarray(X),
        np.repeat(X, 2, axis=1)[:, ::2],
        csr_matrix(X),
        bounded(X, (-1, 1))[0],
    ]
    sources.append(bounded(X, ([-1.0, -1.0], [1.0, 1.0]))[0])
    for source in sources:
        ask = SubsetProblem(source, np.array([1e-300, -1e-31, 1e-30, 1.0]), 1, **B)
        assert np.array_equal(ask.columns.take([0, 1]), want)
        assert np.array_equal(ask.columns.correlations(np.eye(4)).T, want)
        assert ask.y.tolist() == [0.0, 0.0, 1e-30, 1.0]


@pytest.mark.filterwarnings("error")
def test_a_cell_beyond_float64_is_clipped():
    X = np.zeros((4, 3), dtype=np.longdouble)
    X[0, 0], X[1, 1] = np.longdouble("1e4000"), np.longdouble("1e-4000")
    y = X[:, 0].copy()
    ask = SubsetProblem(X, y, 1, **B)
    assert ask.y.tolist() == [1.0, 0.0, 0.0, 0.0]
    assert ask.columns.take([0, 1]).sum() == 1.0


TIES = {
    "zero columns": lambda rng, z: (np.zeros((500, 60)), rng.uniform(-1, 1, 500)),
    "zeros": lambda rng, z: (np.zeros((500, 60)), np.zeros(500)),
    "y = 0": lambda rng, z: (rng.uniform(-1, 1, (500, 60)), np.zeros(500)),
    "equal columns": lambda rng, z: (np.repeat(z, 60, axis=1), z[:, 0]),
    "opposite columns": lambda rng, z: (np.repeat(z, 60, axis=1) * np.resize([1, -1], 60), z[:, 0]),
    "one of each": lambda rng, z: (np.eye(60)[rng.integers(0, 60, 500)], rng.choice([-1.0, 1.0], 500)),
}


@pytest.mark.parametrize("ridge", [4.0, 0.0])
@pytest.mark.parametrize("name", TIES)
def test_ties_are_not_visited(name, ridge):
    rng = np.random.default_rng(0)
    X, y = TIES[name](rng, rng.uniform(-1, 1, (500, 1)))
    start = time.process_time()
    found = best_supports(SubsetProblem(X, y, 5, ridge=ridge, **B), 2 + 55 * 5)
    assert found.certified
    assert len(np.unique(found.columns, axis=0)) == 277
    assert time.process_time() - start < 10  # a fraction of a second; all of them took hours


def nasty(rng, n, p):
    kind = int(rng.integers(6))
    X = rng.normal(size=(n, p))
    if kind == 0:
        X = rng.choice([-1.0, 1.0, 0.0], size=(n, p))
    elif kind == 1:
        X *= 10.0 ** rng.integers(-170, 1, size=p)
    elif kind == 2:
        X = np.repeat(X[:, : max(1, p // 2)], 3, axis=1)[:, :p]
    elif kind == 3:
        X = X * 10.0 ** rng.uniform(-9, 0) + rng.normal(size=(n, 1))
    elif kind == 4:
        X = rng.choice([1e308, -1e308, np.nan, np.inf, 5e-324, 1e6, 0, 1, -1], size=(n, p))
    else:
        X = np.eye(n, p) * 10.0 ** rng.uniform(-8, 0)
    y = (rng.normal(size=n), rng.choice([-1.0, 1.0], n), np.zeros(n), 1e-9 * rng.normal(size=n))
    return X, y[int(rng.integers(4))]


@pytest.mark.parametrize("seed", range(150))
@pytest.mark.filterwarnings("error")
def test_certified_means_the_best_of_all_scores(seed):
    rng = np.random.default_rng([seed, 11])
    p, n = int(rng.integers(1, 10)), int(rng.choice([0, 1, 2, 5, 40]))
    size = int(rng.integers(1, min(p, 5) + 1))
    X, y = nasty(rng, n, p)
    radius = float(10.0 ** rng.choice([0.0, rng.uniform(-8, 8)])) / math.sqrt(size)
    ridge = float(rng.choice([0.0, 0.0, 4.0, 1e-10, 1e6, 2.0**-59]))
    ask = SubsetProblem(X, y, size, "squared", radius, ridge, **B)
    scores = np.sort(ask.centred_scores(all_supports(ask)))
    for count in {1, 2, len(scores) // 2 + 1, len(scores)}:
        found = best_supports(ask, count)
        assert found.certified
        assert np.array_equal(found.scores, scores[:count] + ask.origin)


def test_a_bound_above_a_score_starts_the_search_anew(monkeypatch):
    rng = np.random.default_rng(3)
    X = rng.uniform(-1, 1, (50, 9))
    ask = SubsetProblem(X, X[:, 0] / 2 + rng.uniform(-0.5, 0.5, 50), 3, **B)
    scores = np.sort(ask.centred_scores(all_supports(ask)))
    asked, state = [], search_squared.SquaredSearch._state

    def wrong_at_first(self, *arguments):
        *rest, lowest, slack, watch = arguments
        asked.append(slack)
        raised = 1e3 if len(asked) == 1 else 0.0
        return state(self, *rest, lowest + raised, slack - raised, watch)

    monkeypatch.setattr(search_squared.SquaredSearch, "_state", wrong_at_first)
    found = best_supports(ask, 20)
    assert np.array_equal(found.scores, scores[:20] + ask.origin)
    assert found.certified
    assert asked == [ask.rounding, ask.rounding * 2.0**20]


@pytest.mark.parametrize("mechanism", ["exponential", "permute_and_flip"])
def test_a_bound_above_a_score_starts_the_draw_anew(mechanism, monkeypatch):
    rng = np.random.default_rng(4)
    X = rng.uniform(-1, 1, (30, 6))
    ask = SubsetProblem(X, X[:, 0] / 2 + rng.uniform(-0.5, 0.5, 30), 2, **B)
    margin, tries = bounding.QuadraticBounder._margin, set()

    def wrong_at_first(self, *arguments):
        tries.add(self.allowance)
        raised = 10 * ask.record_range if self.allowance < 1e-9 else 0.0
        return margin(self, *arguments) - raised

    monkeypatch.setattr(bounding.QuadraticBounder, "_margin", wrong_at_first)
    drawn = draw(ask, mechanism, 5.0, "replace_one", random_state=0, size=4000)
    assert len(tries) == 2
    assert agreement(law(ask, mechanism, 5.0, "replace_one"), drawn) > 1e-5


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_more_rows_than_are_covered_show_nowhere_where_they_are_secret(mechanism, monkeypatch):
    monkeypatch.setattr(asking, "MAX_ROWS", 5)
    for n in (5, 6):
        ask = SubsetProblem(np.ones((n, 3)), np.ones(n), 2, **B)
        assert draw(ask, mechanism, 1.0, "add_remove_one", random_state=0, size=1)
    with pytest.raises(UnsupportedError, match="6 rows"):
        draw(ask, mechanism, 1.0, "replace_one", random_state=0, size=1)


def test_fits_take_the_same_path_and_cost_the_same(tmp_path):
    """The front door on the tables of the audit, beside the same tables without the record."""
    for name, mechanism in itertools.product(("scores of 1e-318", "products of 1e-160"), MECHANISMS[:3]):
        (X, y), size, _ = TABLES[name]
        for k, (cells, target) in enumerate(((X, y), (np.where(X < 1e-30, 0.0, X), np.where(y < 1, 0.0, y)))):
            book = f"sqlite:///{tmp_path}/{name.replace(' ', '-')}-{mechanism}-{k}.db"
            ledger = Ledger.open(book, dataset="t", epsilon=2, adjacency="replace_one")
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                SubsetSelector(
                    size, 1, mechanism=mechanism, feature_bounds=(-1, 1), target_bounds=(-1, 1), ledger=ledger
                ).fit(cells, target)
            assert ledger.total().epsilon == 1
