"""Engine `rounds`, untuned, against Cond-DP and DP-SGD tuned on the test set, `closed_form` and the private mean.

Run: ``python benchmarks/rounds.py [SET ...]``. Cells are kept in benchmarks/.cache and resumed; delete
``rounds-*.json`` there to measure anew. The linear baselines are written out here (full batch, momentum-free
descent and Adam, standardised or whitened rows, a constant column): 2 designs x (3 step counts x 4 rates + 2
step counts of Adam x 4 rates) x 4 clips x (last or averaged iterate), best cell on the test labels.
"""

from __future__ import annotations

import json
import os
import sys
import time
import warnings
from pathlib import Path

for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(variable, "1")

import numpy as np

from _common import header, write
from confide.privacy import gaussian_sigma
from confide.training import PrivateRegressor
from training_data import load, names

EPSILONS = (0.25, 0.5, 1.0, 2.0, 4.0)
DELTA = 1e-6
SEEDS, TUNING_SEEDS = 5, 3
#: Rows of a training part: the grid of the baselines has to end on a laptop. All methods see the same rows.
ROWS = 12_000
#: Sets on which no constant of the engine was set. Those of `rounds_spread` and of the clip's floor and skew were
#: set on wage, diamonds, bikeshare, california, diabetes and the synthetic sets; others on HousePrices, SLID wages,
#: Ames and flights with the departure delay too, which are not in this table.
UNSEEN = ("loans",)
CACHE = Path(__file__).parent / ".cache"


def parts(name):
    """Return training rows and labels, test rows and labels, labels in half-ranges about the middle."""
    data = load(name)
    train, test = data.split(seed=0)
    rows = np.random.default_rng(5).permutation(len(train.y))[:ROWS]
    low, high = data.bounds

    def scale(y):
        return (np.asarray(y) - (low + high) / 2) / ((high - low) / 2)

    held = slice(0, 8000)
    return train.X[rows], scale(train.y[rows]), test.X[held], scale(test.y[held])


def design(X, Z, whiten):
    """Standardise, and whiten, by public columns; return both parts with a constant, and the curvature."""
    centre, spread = X.mean(axis=0), X.std(axis=0)
    spread[spread < 1e-12] = 1.0
    X, Z = (X - centre) / spread, (Z - centre) / spread
    values, V = np.linalg.eigh(X.T @ X / len(X))
    keep = values > 1e-7 * values.max()
    values, V = values[keep], V[:, keep]
    if whiten:
        V = V / np.sqrt(values)
        X, Z = X @ V, Z @ V
    X, Z = (np.column_stack([np.ones(len(M)), M]) for M in (X, Z))
    return X, Z, 1.0 if whiten else max(float(values.max()), 1.0)


def descend(X, t, Z, target, sigma, steps, rates, clips, top, adam, seeds):
    """Return test MSE of noisy full-batch descent, (last or average) x rates x clips, mean over seeds.

    Replacing a label moves a sum of gradients clipped at c by 2c at most: noise 2 c sigma sqrt(steps).
    """
    n, k = X.shape
    grid = [(rate, clip) for rate in rates for clip in clips for _ in range(seeds)]
    rate, clip = (np.array(column) for column in zip(*grid, strict=True))
    limit = clip[None, :] / np.linalg.norm(X, axis=1)[:, None]
    rng = np.random.default_rng(1)
    W, average = np.zeros((k, len(grid))), np.zeros((k, len(grid)))
    first, second = np.zeros_like(W), np.zeros_like(W)
    for step in range(1, steps + 1):
        R = X @ W
        R -= t[:, None]
        np.clip(R, -limit, limit, out=R)
        g = (X.T @ R + 2 * clip * sigma * np.sqrt(steps) * rng.normal(size=W.shape)) / n
        if adam:
            first, second = 0.9 * first + 0.1 * g, 0.99 * second + 0.01 * g * g
            W = W - rate * (first / (1 - 0.9**step)) / (np.sqrt(second / (1 - 0.99**step)) + 1e-8)
        else:
            W = W - rate / top * g
        if step > steps // 2:
            average += W / (steps - steps // 2)
    errors = [((np.clip(Z @ M, -1, 1) - target[:, None]) ** 2).mean(axis=0) for M in (W, average)]
    return np.array(errors).reshape(2, len(rates) * len(clips), seeds).mean(axis=2)


def tuned(X, t, Z, target, sigma, whiten):
    A, B, top = design(X, Z, whiten)
    spread = float(t.std())
    clips = spread * np.sqrt(A.shape[1]) * np.array([0.1, 0.3, 1.0, 3.0])
    plain = [(steps, (0.1, 0.3, 1.0, 2.5), False) for steps in (3, 10, 40)]
    adam = [(steps, spread * np.array([0.005, 0.02, 0.08, 0.2]), True) for steps in (20, 80)]
    return min(
        float(descend(A, t, B, target, sigma, steps, rates, clips, top, kind, TUNING_SEEDS).min())
        for steps, rates, kind in plain + adam
    )


def untuned(X, t, Z, target, sigma):
    """Cond-DP as one would start: 30 steps of rate 1, the last iterate, clip for residuals of an eighth of R."""
    A, B, top = design(X, Z, True)
    clip = 0.25 * np.sqrt(A.shape[1])
    return float(descend(A, t, B, target, sigma, 30, (1.0,), (clip,), top, False, SEEDS)[0, 0])


def private(X, t, Z, target, epsilon, **options):
    errors, start = [], time.process_time()
    for seed in range(SEEDS):
        model = PrivateRegressor(epsilon, DELTA, target_bounds=(-1, 1), random_state=seed, **options)
        errors.append(float(np.mean((model.fit(X, t).predict(Z) - target) ** 2)))
    return errors, (time.process_time() - start) / SEEDS


def cell(name, method, epsilon):
    """Return errors over the variance about the training mean."""
    X, t, Z, target = parts(name)
    variance = float(np.mean((target - t.mean()) ** 2))
    sigma = gaussian_sigma(epsilon, DELTA, 1.0)
    if method in ("rounds", "closed_form"):
        errors, seconds = private(X, t, Z, target, epsilon, engine=method)
    elif method == "mean":
        draws = t.mean() + 2 * sigma / len(t) * np.random.default_rng(0).normal(size=200)
        errors, seconds = [float(np.mean([np.mean((m - target) ** 2) for m in draws]))], 0.0
    elif method == "untuned":
        errors, seconds = [untuned(X, t, Z, target, sigma)], 0.0
    else:
        errors, seconds = [tuned(X, t, Z, target, sigma, method == "Cond-DP")], 0.0
    return {
        "errors": [value / variance for value in errors],
        "seconds": seconds,
        "rows": len(t),
        "columns": X.shape[1],
    }


METHODS = ("rounds", "closed_form", "mean", "untuned", "Cond-DP", "DP-SGD")


def measure(name):
    """Return all cells of a set; those of the baselines, which no edit of the library changes, are kept."""
    path = CACHE / f"rounds-{name}.json"
    kept = json.loads(path.read_text()) if path.exists() else {}
    for epsilon in EPSILONS:
        for method in METHODS:
            key = f"{method} {epsilon:g}"
            if key not in kept:
                kept[key] = cell(name, method, epsilon)
                path.write_text(json.dumps(kept))
    return kept


def value(cells, method, epsilon):
    return float(np.mean(cells[f"{method} {epsilon:g}"]["errors"]))


def table(found):
    lines = [
        "| set | rows | columns | eps | rounds | tuned | ratio | closed_form | ratio | untuned Cond-DP | ratio "
        "| private mean | ratio | CPU s |",
        "|---|---|---|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for name, cells in found.items():
        for epsilon in EPSILONS:
            own = value(cells, "rounds", epsilon)
            best = min(value(cells, "Cond-DP", epsilon), value(cells, "DP-SGD", epsilon))
            whole, plain, mean = (value(cells, m, epsilon) for m in ("closed_form", "untuned", "mean"))
            info = cells[f"rounds {epsilon:g}"]
            star = " *" if name in UNSEEN else ""
            lines.append(
                f"| {name}{star} | {info['rows']} | {info['columns']} | {epsilon:g} | {own:.4f} | {best:.4f} "
                f"| {own / best:.3f} | {whole:.4f} | {own / whole:.3f} | {plain:.4f} | {own / plain:.3f} "
                f"| {mean:.3f} | {own / mean:.3f} | {info['seconds']:.2f} |"
            )
    return "\n".join(lines)


def summary(found):
    lines = [
        "| eps | sets | within 1.15 of tuned | within 1.05 | median ratio to tuned | mean ratio to closed_form "
        "| largest | mean ratio to untuned Cond-DP | largest ratio to the private mean |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for title, chosen in (
        ("all", found),
        ("unseen", {k: v for k, v in found.items() if k in UNSEEN}),
    ):
        for epsilon in EPSILONS if chosen else ():
            rows = []
            for cells in chosen.values():
                own = value(cells, "rounds", epsilon)
                best = min(value(cells, "Cond-DP", epsilon), value(cells, "DP-SGD", epsilon))
                rows.append(
                    [
                        own / best,
                        *(own / value(cells, m, epsilon) for m in ("closed_form", "untuned", "mean")),
                    ]
                )
            ratio, whole, plain, mean = np.array(rows).T
            lines.append(
                f"| {epsilon:g} | {len(rows)} {title} | {(ratio <= 1.15).sum()} | {(ratio <= 1.05).sum()} "
                f"| {np.median(ratio):.3f} | {whole.mean():.3f} | {whole.max():.3f} | {plain.mean():.3f} | {mean.max():.3f} |"
            )
    return "\n".join(lines)


def speed():
    lines = ["| n | d | fit, CPU s | closed_form, CPU s |", "|---|---|---|---|"]
    for n, d in ((10_000, 50), (50_000, 100)):
        rng = np.random.default_rng(n)
        X = rng.normal(size=(n, d))
        t = np.clip(X @ rng.normal(size=d) / np.sqrt(d) / 4 + 0.1 * rng.normal(size=n), -1, 1)
        times = []
        for engine in ("rounds", "closed_form"):
            best = np.inf
            for _ in range(3):
                start = time.process_time()
                PrivateRegressor(1, DELTA, target_bounds=(-1, 1), engine=engine).fit(X, t)
                best = min(best, time.process_time() - start)
            times.append(best)
        lines.append(f"| {n} | {d} | {times[0]:.2f} | {times[1]:.2f} |")
    return "\n".join(lines)


def main() -> None:
    warnings.simplefilter("ignore")
    CACHE.mkdir(exist_ok=True)
    chosen = sys.argv[1:] or [name for name in names() if name != "openbandit"]
    found = {name: measure(name) for name in chosen}
    text = [
        "# Engine `rounds`",
        header("scikit-learn"),
        f"Test MSE over the variance about the training mean, label DP, delta = {DELTA:g}, {SEEDS} noise seeds "
        f"({TUNING_SEEDS} in the grid of the tuned baselines, whose best cell is taken on the test labels), at most "
        f"{ROWS:,} training rows. Everything of Confide is at its defaults. * marks sets on which no constant was "
        "set or checked before.",
        "## Summary",
        summary(found),
        "## Sets",
        table(found),
        "## Time",
        speed(),
    ]
    if len(sys.argv) > 1:
        print("\n\n".join(text))
    else:
        write("rounds", "\n\n".join(text) + "\n")


if __name__ == "__main__":
    main()
