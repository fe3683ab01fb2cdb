"""The solver of strongly convex ERM: it ends by Newton's method, for any ridge and any table."""

import itertools

import numpy as np
import pytest

from confide.prediction import erm_solver
from confide.prediction.erm_solver import (
    BinaryObjective,
    SoftmaxObjective,
    accuracy,
    least_along,
    minimise,
    norm,
)

from .test_erm import LOSSES, problem  # isort: skip


def hard_tables():
    """Rows in general position, separable, random labels, duplicates, few dimensions, single cells."""
    for n, m in ((30, 3), (200, 6), (200, 40)):
        rng = np.random.default_rng(n + m)
        X = rng.normal(size=(n, m))
        low = rng.normal(size=(n, 2)) @ rng.normal(size=(2, m))
        coins = np.where(rng.random(n) < 0.5, 1.0, -1.0)
        for rows in (
            X,
            X[np.arange(n) // 20],
            X * 10.0 ** -rng.uniform(0, 8, (1, m)),
            low,
            np.eye(m)[np.arange(n) % m],
        ):
            short = rows / np.maximum(1, np.linalg.norm(rows, axis=1, keepdims=True))
            for y in (coins, np.where(rows[:, 0] > 0, 1.0, -1.0), np.ones(n)):
                yield short, y


@pytest.mark.parametrize("ridge", [1e-12, 1e-9, 1e-6, 2e-3, 1.0])
@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: loss.name)
def test_newton_needs_no_descent(loss, ridge, monkeypatch):
    """Audited: with a small ridge the hinge fell into a descent of ridge / n steps: 13 s, or for ever."""
    monkeypatch.setattr(erm_solver, "descend", None)
    monkeypatch.setattr(erm_solver, "_NEWTON", 300)
    for X, y in hard_tables():
        (n, m), objective = X.shape, BinaryObjective(X, y, loss, ridge)
        a = accuracy(n, m, ridge, at_zero=loss.at_zero, slope=1, curvature=loss.curvature, shift=2)
        w = minimise(objective, a)
        assert norm(objective.gradient(w)) + a.gradient_error <= a.tolerance * ridge
        assert norm(w) <= a.weights


def test_softmax_needs_no_descent(monkeypatch):
    monkeypatch.setattr(erm_solver, "descend", None)
    for X, y in itertools.islice(hard_tables(), 0, None, 2):
        labels = (y > 0).astype(np.int64) + (X[:, -1] > 0)
        for ridge in (1e-6, 1e-2):
            a = accuracy(
                y.size, 3 * X.shape[1], ridge, at_zero=np.log(3), slope=2**0.5, curvature=0.5, shift=3
            )
            objective = SoftmaxObjective(X, labels, 3, ridge)
            w = minimise(objective, a)
            assert norm(objective.gradient(w)) + a.gradient_error <= a.tolerance * ridge


@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: loss.name)
def test_the_line_search_finds_the_least_value(loss):
    X, y = problem(80)
    rng = np.random.default_rng(0)
    objective = BinaryObjective(X, y, loss, 0.3)
    labels = (y > 0).astype(np.int64)
    several = SoftmaxObjective(X, labels, 2, 0.3)
    for scale in (1e-6, 1.0, 1e6):
        for made, size in ((objective, 4), (several, 8)):
            w = rng.normal(size=size)
            step = -made.gradient(w) * scale
            slope = made.along(w, step)
            h = 1e-6 / scale
            between = (made.value(w + h * step) - made.value(w - h * step)) / (2 * h)
            assert slope(0.0) == pytest.approx(between, rel=1e-4)
            t = least_along(slope)
            assert abs(slope(t)) <= 1e-9 * abs(slope(0.0))
            for other in (0.0, t / 2, 0.99 * t, 1.01 * t, 2 * t):
                assert made.value(w + t * step) <= made.value(w + other * step) + 1e-12
    assert least_along(lambda t: 1.0) == 0.0
    assert least_along(lambda t: t - 3e20) == pytest.approx(3e20)
