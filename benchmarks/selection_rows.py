"""Rows a column that a selection needs at epsilon = 1, for the true support half and 9 in 10 of the time.

    python benchmarks/selection_rows.py

A clean signal: s of p columns carry it with equal weights that fit the default norm ball, and a little noise. The
probability is that of the law itself (`confide.selection.law`, by enumeration), averaged over three tables.
"""

from __future__ import annotations

import numpy as np

from confide.selection import SubsetProblem, law

TABLES = 3
ROWS = np.unique(np.round(np.geomspace(100, 12_000, 25)).astype(int))


def uniform(rng: np.random.Generator, n: int, p: int, s: int) -> tuple[np.ndarray, np.ndarray]:
    """Cells fill their bounds."""
    X = rng.uniform(-1, 1, (n, p))
    return X, X[:, :s].sum(axis=1) / s + 0.1 * rng.normal(size=n)


def loose(rng: np.random.Generator, n: int, p: int, s: int) -> tuple[np.ndarray, np.ndarray]:
    """Cells fill a third of their bounds, as the markers of the tutorial do."""
    X = np.clip(rng.normal(0, 0.3, (n, p)), -1, 1)
    return X, np.clip(0.8 * X[:, :s].sum(axis=1) + 0.16 * rng.normal(size=n), -1, 1)


def recovery(make: object, n: int, p: int, s: int) -> float:
    """Return P(true support) at epsilon = 1, mean over tables."""
    found = []
    for seed in range(TABLES):
        X, y = make(np.random.default_rng(seed), n, p, s)  # type: ignore[operator]
        problem = SubsetProblem(X, y, s, feature_bound=1, target_bound=1)
        found.append(law(problem, "exponential", 1, "replace_one")[tuple(range(s))])
    return float(np.mean(found))


def main() -> None:
    """Print rows a column for each case."""
    print("table    p   s   half the time   9 in 10")
    for make in (uniform, loose):
        for p, s in ((30, 1), (30, 2), (30, 3), (20, 4)):
            curve = [(int(n), recovery(make, int(n), p, s)) for n in ROWS]
            half, most = (next(n for n, value in curve if value >= level) / s for level in (0.5, 0.9))
            print(f"{make.__name__:8s} {p}  {s}   {half:8.0f}        {most:8.0f}", flush=True)


if __name__ == "__main__":
    main()
