"""Classifiers under label DP, and of secret rows, untuned: error and log loss on held-out rows.

    python benchmarks/training_classifier.py [--runs 5] [--sets breast digits] [--quick]

Labels: breast cancer, wine and digits (scikit-learn); wages above 500 dollars (CPS1988), any medical spending
(RandHIE), more than 120 bikes in the hour (bikeshare), clicks (Open Bandit, 60,000 impressions). 70 % of the
rows train. No method is tuned. `least squares` is PrivateRegressor (its default) on -1 and 1 with a logistic
link whose two numbers match the fit's own moments; `prior response` is randomised response with a released
prior and scikit-learn's LogisticRegression(C=0.1). Results: results/training_classifier.csv and .md.
"""

from __future__ import annotations

import argparse
import csv
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from scipy.optimize import minimize
from sklearn import datasets
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import training_data
from confide.training import PrivateClassifier, PrivateLabelClassifier, PrivateRegressor

OUT = Path(__file__).parent / "results"
DELTA, EPSILONS = 1e-6, (0.25, 0.5, 1.0, 2.0, 4.0)
CUTS = {"cps1988": np.log(500), "randhie": 1e-9, "bikeshare": 120, "openbandit": 0.5}
SETS = ("breast", "wine", "digits", *CUTS)
Floats = np.ndarray
Predict = Callable[[Floats], Floats]


def load(name: str) -> tuple[Floats, Floats]:
    """Return columns and numbers of classes."""
    if name in CUTS:
        data = training_data.load(name)
        return data.X, (data.y > CUTS[name]).astype(int)
    loader = {
        "breast": datasets.load_breast_cancer,
        "wine": datasets.load_wine,
        "digits": datasets.load_digits,
    }
    X, y = loader[name](return_X_y=True)
    return X, y


def ours(**options: Any) -> Callable[..., Predict]:
    def fit(X: Floats, y: Floats, K: int, epsilon: float) -> Predict:
        return PrivateClassifier(epsilon, DELTA, classes=range(K), **options).fit(X, y).predict_proba

    return fit


def secret(**options: object) -> Callable[..., Predict]:
    """Return a fit of secret rows whose bounds are the columns' ranges, taken as declared."""

    def fit(X: Floats, y: Floats, K: int, epsilon: float) -> Predict:
        bounds = X.min(axis=0), np.maximum(X.max(axis=0), X.min(axis=0) + 1e-9)
        return ours(adjacency="replace_one", feature_bounds=bounds, **options)(X, y, K, epsilon)

    return fit


def least_squares(X: Floats, y: Floats, K: int, epsilon: float) -> Predict:
    model = PrivateRegressor(epsilon, DELTA, target_bounds=(-1, 1)).fit(X, 2 * y - 1)
    g = X @ model.coef_ + model.intercept_
    rows = np.stack([np.ones(len(g)), g], axis=1)
    target = (rows.sum(axis=0) + rows.T @ np.clip(g, -1, 1)) / 2

    def loss(t: Floats) -> tuple[float, Floats]:
        z = rows @ t
        p = 0.5 * (1 + np.tanh(z / 2))
        return float(np.logaddexp(0, z).sum() - t @ target + 1e-3 * t[1] ** 2) / len(g), (
            rows.T @ p - target + [0, 2e-3 * t[1]]
        ) / len(g)

    a, b = minimize(loss, np.zeros(2), jac=True, method="L-BFGS-B").x

    def predict(Z: Floats) -> Floats:
        p = 0.5 * (1 + np.tanh((a + b * (Z @ model.coef_ + model.intercept_)) / 2))
        return np.stack([1 - p, p], axis=1)

    return predict


def prior_response(X: Floats, y: Floats, K: int, epsilon: float) -> Predict:
    learner = make_pipeline(StandardScaler(), LogisticRegression(C=0.1, max_iter=500))
    return PrivateLabelClassifier(learner, epsilon, classes=list(range(K))).fit(X, y).predict_proba


def exact(X: Floats, y: Floats, K: int, epsilon: float) -> Predict:
    return make_pipeline(StandardScaler(), LogisticRegression(max_iter=500)).fit(X, y).predict_proba


METHODS: dict[str, tuple[Callable[..., Predict], str]] = {
    "no privacy": (exact, ""),
    "default": (ours(), "label DP"),
    "closed_form": (ours(engine="closed_form"), "label DP"),
    "randomized_response": (ours(engine="randomized_response"), "label DP"),
    "least squares": (least_squares, "label DP"),
    "dpsgd": (ours(engine="dpsgd"), "label DP"),
    "dpsgd power 1/2": (ours(engine="dpsgd", conditioning=("power", 0.5)), "label DP"),
    "prior response": (prior_response, "label DP"),
    "secret rows: dpsgd": (secret(engine="dpsgd"), "replace one"),
    "secret rows: objective": (secret(engine="objective"), "replace one"),
}


def cell(name: str, method: str, epsilon: float, seed: int) -> dict[str, object]:
    X, y = load(name)
    K = int(y.max()) + 1
    order = np.random.default_rng(seed).permutation(len(X))
    train, test = order[: int(0.7 * len(X))], order[int(0.7 * len(X)) :]
    start = time.process_time()
    p = METHODS[method][0](X[train], y[train], K, epsilon)(X[test])
    cost = time.process_time() - start
    own = np.maximum(p[np.arange(len(test)), y[test]], 1e-6)
    row = {"set": name, "method": method, "epsilon": epsilon, "seed": seed}
    error = float(np.mean(p.argmax(axis=1) != y[test]))
    return {**row, "error": error, "log_loss": float(-np.log(own).mean()), "cpu": cost}


def report(rows: list[dict[str, object]]) -> str:
    lines = ["# Untuned classifiers", "", __doc__.split("\n\n")[2].strip(), ""]
    for name in dict.fromkeys(str(row["set"]) for row in rows):
        mine = [row for row in rows if row["set"] == name]
        epsilons = sorted({float(str(row["epsilon"])) for row in mine})
        lines += [f"## {name}", "", "Error / log loss, mean of "
                  f"{len({row['seed'] for row in mine})} runs.", ""]  # fmt: skip
        lines += ["| method | " + " | ".join(f"eps {e:g}" for e in epsilons) + " |"]
        lines += ["|---" * (len(epsilons) + 1) + "|"]
        for method in METHODS:
            cells = []
            for e in epsilons:
                found = [
                    (r["error"], r["log_loss"]) for r in mine if r["method"] == method and r["epsilon"] == e
                ]
                cells.append("{:.4f} / {:.4f}".format(*np.mean(found, axis=0)) if found else "")
            if any(cells):
                lines.append(f"| {method} | " + " | ".join(cells) + " |")
        lines.append("")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--sets", nargs="+", default=SETS)
    parser.add_argument("--quick", action="store_true")
    asked = parser.parse_args()
    warnings.filterwarnings("ignore")
    rows: list[dict[str, object]] = []
    for name in asked.sets:
        classes = int(load(name)[1].max()) + 1
        for method in METHODS:
            if classes > 2 and method in ("least squares", "secret rows: objective"):
                continue
            for epsilon in EPSILONS[::2] if asked.quick else EPSILONS:
                rows += [cell(name, method, epsilon, seed) for seed in range(asked.runs)]
        print(name, flush=True)
    if asked.quick:
        print(report(rows))
        return
    OUT.mkdir(exist_ok=True)
    with (OUT / "training_classifier.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    (OUT / "training_classifier.md").write_text(report(rows) + "\n")


if __name__ == "__main__":
    main()
