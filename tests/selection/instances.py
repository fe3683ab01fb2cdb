"""Random instances that go to the corners: correlated, duplicate, constant, tiny, with and without the ball."""

from __future__ import annotations

import numpy as np

from confide.selection import SubsetProblem

LOSSES = ("squared", "hinge", "huber", "logistic", "quantile")
CLASSES = ("hinge", "logistic")


def table(rng: np.random.Generator, n: int, p: int, rho: float = 0.0, odd: bool = False):
    """Return X, y within +-0.5; `odd` puts in a duplicate, a zero and a constant column."""
    common = rng.standard_normal((n, 1))
    X = np.clip(np.sqrt(1 - rho) * rng.standard_normal((n, p)) + np.sqrt(rho) * common, -0.5, 0.5)
    if odd and p > 4:
        X[:, 1] = X[:, 0]
        X[:, 2] = 0.0
        X[:, 3] = 0.5
    beta = np.where(rng.random(p) < 0.3, rng.normal(size=p), 0.0)
    y = np.clip(X @ beta + 0.2 * rng.standard_normal(n), -0.5, 0.5)
    return X, y


def problem(X, y, size, loss="squared", radius=None, ridge=None) -> SubsetProblem:
    if loss in CLASSES:
        return SubsetProblem(X, np.where(y > 0, 1, -1), size, loss, radius, ridge, feature_bound=0.5)
    return SubsetProblem(X, y, size, loss, radius, ridge, feature_bound=0.5, target_bound=0.5)


def random_problem(seed: int, loss: str | None = None, most: int = 14) -> SubsetProblem:
    """Return instance `seed` of the suite: p <= 14."""
    rng = np.random.default_rng(1000 + seed)
    loss = LOSSES[seed % 5] if loss is None else loss
    n = int(rng.choice([0, 1, 2, 10, 100, 400, 1500], p=[0.02, 0.05, 0.08, 0.15, 0.3, 0.3, 0.1]))
    p = int(rng.integers(1, most + 1))
    size = int(rng.integers(1, min(p, 5) + 1))
    X, y = table(rng, n, p, float(rng.choice([0.0, 0.5, 0.9])), odd=bool(rng.random() < 0.4))
    ridge = float(rng.choice([0.0, 0.1, 1.0, 100.0]))
    radius = rng.choice([None, 0.05, 0.3, 3.0])
    return problem(X, y, size, loss, None if radius is None else float(radius), ridge)


def epsilon_of(seed: int) -> float:
    return float(np.random.default_rng(seed).choice([0.3, 1.0, 4.0]))
