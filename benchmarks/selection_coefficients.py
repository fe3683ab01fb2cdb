"""Coefficients after a selection: which method, which loss, and how to split epsilon.

Run: python benchmarks/selection_coefficients.py

Errors are on held-out rows, in units of the variance of the label (regression) or as error rate (classes);
means over draws of noise and, for the simulated data, of tables. Bounds of real tables are declared here (our
assumption), not read from the rows. Supports of the first part are fixed beforehand, as a public support.
"""

from __future__ import annotations

import math
import os
import time
import warnings

for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"):
    os.environ.setdefault(name, "1")

import numpy as np
from sklearn.datasets import load_breast_cancer, load_diabetes
from sklearn.linear_model import LinearRegression, LogisticRegression

import confide
from _common import header, write
from confide.errors import UncertifiedWarning
from confide.privacy import gaussian_sigma

EPSILONS = (1, 2, 5)
SPLITS = (0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8)
DELTA = 1e-6
REGRESSIONS = (
    ("least squares, Laplace", {"coefficients": "sufficient_statistics"}, 0),
    ("least squares, Gaussian", {"coefficients": "sufficient_statistics"}, DELTA),
    ("squared in a ball, pure", {"coefficients": "objective", "coefficient_loss": "squared"}, 0),
    ("huber 1/2, pure", {"coefficient_loss": ("huber", 0.5)}, 0),
    ("huber 1/4, pure", {"coefficient_loss": ("huber", 0.25)}, 0),
    ("huber 1/10, pure", {"coefficient_loss": ("huber", 0.1)}, 0),
    ("median, pure", {"coefficient_loss": "quantile"}, 0),
)
CLASSIFICATIONS = (
    ("least squares, Laplace", {"coefficients": "sufficient_statistics"}, 0),
    ("least squares, Gaussian", {"coefficients": "sufficient_statistics"}, DELTA),
    ("logistic, pure", {"coefficient_loss": "logistic"}, 0),
    ("hinge, pure", {"coefficient_loss": "hinge"}, 0),
)


def simulated(seed, n=3000, p=40, size=5, correlation=0.5, classes=False):
    """Correlated columns that fill a third of their bounds, five of them with coefficients of +-1."""
    rng = np.random.default_rng(seed)
    Z = math.sqrt(1 - correlation) * rng.normal(size=(n + 4000, p))
    Z += math.sqrt(correlation) * rng.normal(size=(n + 4000, 1))
    chosen = rng.choice(p, size, replace=False)
    signal = Z[:, chosen] @ rng.choice([-1.0, 1.0], size)
    signal /= signal.std()
    noise = rng.normal(size=len(Z))
    y = np.where(2.5 * signal + rng.logistic(size=len(Z)) > 0, 1, 0) if classes else signal + noise
    return Z[:n], y[:n], Z[n:], y[n:], {"feature_bounds": (-3, 3), "target_bounds": (-5, 5)}, chosen


def split_rows(X, y, seed, share=0.25):
    order = np.random.default_rng(seed).permutation(len(y))
    cut = int(share * len(y))
    return X[order[cut:]], y[order[cut:]], X[order[:cut]], y[order[:cut]]


def wages(seed):
    from confide.selection.front import centred_label, encoded, feature_columns

    table = confide.Table.read(*confide.data.cps1988())
    features = feature_columns(table.schema)
    X, y = encoded(table, features), centred_label(table, table.schema.label)
    X = X.toarray() if hasattr(X, "toarray") else X
    half = table.schema.label.half_width
    bounds = {"feature_bounds": (-1, 1), "target_bounds": (-half, half)}
    return (*split_rows(X, y, seed), bounds, (0, 1, 10, 11))


def diabetes(seed):
    X, y = load_diabetes(return_X_y=True)
    return (*split_rows(X, y, seed), {"feature_bounds": (-0.15, 0.15), "target_bounds": (25, 350)}, (2, 3, 8))


def cancer(seed):
    X, y = load_breast_cancer(return_X_y=True)
    tops = np.array([30, 40, 200, 2000, 0.2, 0.4, 0.5, 0.2, 0.4, 0.1, 3, 5, 25, 250, 0.03, 0.15, 0.4, 0.06, 0.08,
                     0.03, 40, 50, 260, 3000, 0.25, 1.2, 1.3, 0.3, 0.7, 0.25])  # fmt: skip
    return (*split_rows(X, y, seed), {"feature_bounds": (np.zeros(30), tops)}, (7, 20, 21, 24, 27))


def refit(X, y, Xt, yt, support, classes):
    """Return the held-out error of a fit without privacy on the support."""
    model = LogisticRegression(C=1e4, max_iter=5000) if classes else LinearRegression()
    columns = list(support)
    scale = np.abs(X[:, columns]).max(axis=0)
    predictions = model.fit(X[:, columns] / scale, y).predict(Xt[:, columns] / scale)
    return error(predictions, yt, classes)


def error(predictions, y, classes):
    return float(np.mean(predictions != y)) if classes else float(np.mean((predictions - y) ** 2) / np.var(y))


def private(data, classes, size, epsilon, delta, **options):
    X, y, Xt, yt, bounds, _ = data
    kind = confide.SparseClassifier if classes else confide.SparseRegressor
    if classes:
        bounds = {"feature_bounds": bounds["feature_bounds"], "classes": (0, 1)}
    model = kind(size, epsilon, delta, **bounds, **options).fit(X, y)
    return error(model.predict(Xt), yt, classes)


def methods(lines, title, source, classes, draws):
    asked = CLASSIFICATIONS if classes else REGRESSIONS
    lines += [f"\n{title}\n", "| coefficients | " + " | ".join(f"eps {e}" for e in EPSILONS) + " |"]
    lines.append("|---" * (len(EPSILONS) + 1) + "|")
    tables = [source(seed) for seed in range(draws)]
    base = np.mean([refit(*data[:4], data[5], classes) for data in tables])
    lines.append(f"| without privacy | {base:.3f} | | |")
    for name, options, delta in asked:
        cells = []
        for epsilon in EPSILONS:
            errors = [
                private(d, classes, len(d[5]), epsilon, delta, support=list(d[5]), **options) for d in tables
            ]
            cells.append(f"{np.mean(errors):.3f}")
        lines.append(f"| {name} | " + " | ".join(cells) + " |")


def splits(lines, title, source, classes, size, draws):
    lines += [f"\n{title}\n", "| epsilon | " + " | ".join(map(str, SPLITS)) + " |"]
    lines.append("|---" * (len(SPLITS) + 1) + "|")
    tables = [source(seed) for seed in range(draws)]
    regret = np.zeros(len(SPLITS))
    for epsilon in (0.5, 1, 2, 5):
        cells = []
        for split in SPLITS:
            errors = [private(d, classes, size, epsilon, 0, split=split) for d in tables]
            cells.append(np.mean(errors))
        best = min(cells)
        regret += (np.array(cells) / best - 1) / 4
        lines.append(
            f"| {epsilon} | " + " | ".join(f"**{c:.3f}**" if c == best else f"{c:.3f}" for c in cells) + " |"
        )
    best = regret.min()
    lines.append(
        "| over the best | "
        + " | ".join(f"**{r:+.1%}**" if r == best else f"{r:+.1%}" for r in regret)
        + " |"
    )


def ridge_of_adassp(lines):
    """The ridge from the released matrix, against a separately released least eigenvalue (Wang 2018)."""
    rng = np.random.default_rng(0)
    lines += ["\nRidge of the noisy least squares (delta = 1e-6; least eigenvalue from the released matrix, "
              "or released with a tenth or a third of the squared budget)\n",
              "| n | columns | correlation | epsilon | from the matrix | a tenth | a third |", "|---" * 7 + "|"]  # fmt: skip
    for n, size, correlation in ((1000, 5, 0.0), (5000, 5, 0.8), (5000, 20, 0.3), (50000, 20, 0.3)):
        for epsilon in (0.5, 2):
            mu, total = 1 / gaussian_sigma(epsilon, DELTA), np.zeros(3)
            for _ in range(20):
                Z = math.sqrt(1 - correlation) * rng.normal(size=(n + 1000, size))
                Z += math.sqrt(correlation) * rng.normal(size=(n + 1000, 1))
                A = np.column_stack([np.ones(len(Z)), np.clip(0.4 * Z, -1, 1)])
                f = A[:, 1:] @ rng.choice([-1.0, 1.0], size)
                y = f + f.std() * rng.normal(size=len(f))
                y = np.clip(y / (3 * y.std()), -1, 1)
                for k, share in enumerate((0.0, 0.1, 1 / 3)):
                    total[k] += _adassp(rng, A, y, n, mu, share) / 20
            cells = " | ".join(f"{value:.3f}" for value in total)
            lines.append(f"| {n} | {size} | {correlation} | {epsilon} | {cells} |")


def _adassp(rng, A, y, n, mu, share):
    m = A.shape[1]
    c = math.sqrt(0.6 * m)
    sigma = math.sqrt(2) * (m + c * c) / (mu * math.sqrt(1 - share))
    w = np.column_stack([A[:n], c * y[:n]])
    noise = np.triu(rng.normal(size=(m + 1, m + 1)) * sigma)
    noise = noise + np.triu(noise, 1).T
    noise[~np.eye(m + 1, dtype=bool)] /= math.sqrt(2)
    G = w.T @ w + noise
    G[0, 0] = n
    norm = math.sqrt(2 * m) * sigma
    if share:
        spread = m / (mu * math.sqrt(share))
        least = np.linalg.eigvalsh(A[:n].T @ A[:n])[0] + spread * rng.normal()
        ridge = max(0.0, norm - max(least - spread, 0.0))
    else:
        ridge = max(0.0, norm - np.linalg.eigvalsh(G[:m, :m])[0])
    theta = np.linalg.solve(G[:m, :m] + ridge * np.eye(m), G[:m, m] / c)
    return min(5.0, np.mean((np.clip(A[n:] @ theta, -1, 1) - y[n:]) ** 2) / np.var(y[n:]))


def main() -> None:
    warnings.simplefilter("ignore", UncertifiedWarning)
    start = time.process_time()
    lines = ["# Coefficients after a selection", "", header("scikit-learn"), "", "## Which method", ""]
    lines.append("A public support, all of epsilon for the coefficients, replace_one.")
    methods(lines, "Simulated, n = 3,000, 5 columns, correlation 0.5", simulated, False, 40)
    methods(lines, "CPS 1988, log wage, n = 21,117, 4 columns", wages, False, 20)
    methods(lines, "Diabetes, n = 332, 3 columns", diabetes, False, 100)
    methods(lines, "Simulated classes, n = 3,000, 5 columns", lambda s: simulated(s, classes=True), True, 40)
    methods(lines, "Breast cancer, n = 427, 5 columns", cancer, True, 100)
    ridge_of_adassp(lines)
    lines += [
        "",
        "## Which split",
        "",
        "Part of epsilon that selects; the defaults otherwise, delta = 0. Last rows: mean excess over the best of a row.",
    ]
    splits(lines, "Simulated, n = 3,000, p = 40, s = 5", simulated, False, 5, 40)
    splits(lines, "CPS 1988, n = 21,117, p = 12, s = 4", wages, False, 4, 30)
    splits(lines, "Diabetes, n = 332, p = 10, s = 3", diabetes, False, 3, 100)
    splits(lines, "Breast cancer, n = 427, p = 30, s = 5", cancer, True, 5, 100)
    lines.append(f"\n{time.process_time() - start:.0f} s of CPU.\n")
    write("selection_coefficients", "\n".join(lines))


if __name__ == "__main__":
    main()
