"""Radius and ridge from declared bounds alone: which multiples of the defaults find the true support.

Run: python benchmarks/selection_defaults.py [--quick]
Exact probabilities by enumeration (`confide.selection.law`), so that no figure here is noisy but for the data.
"""

from __future__ import annotations

import os
import sys
import time

for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"):
    os.environ.setdefault(name, "1")

import numpy as np

from _common import header, write
from confide.selection import SubsetProblem, law

P, SIZE, EPSILON = 10, 3, 1
TRUE = (1, 4, 7)
RADII = (0.25, 0.5, 0.7, 1.0, 1.4, 2.0, 2.8, 4.0, 5.6, 8.0, 16.0)
RIDGES = (0.0, 1.0, 4.0, 16.0, 64.0, 256.0)
#: Standard deviation of cells and of the target, where the declared bounds are +-1.
WIDTHS = {"x, y fill": (0.5, 0.5), "y loose": (0.5, 0.15), "x loose": (0.15, 0.5), "both loose": (0.15, 0.15)}
#: Default of a / b_y.
DEFAULT = {"squared": 1.0, "huber": 1.0, "quantile": 1.0, "logistic": 4.0, "hinge": 4.0}
RHOS = (0.1, 0.5, 0.8)
#: Signs and sizes of the coefficients: with correlation the second makes marginal screening wrong.
BETAS = ((1.0, 1.0, 1.0), (1.0, -1.0, 0.7))


def table(n: int, rho: float, beta, widths, seed: int):
    """Return X, y with |.| <= 1 declared, of the given widths; signal-to-noise ratio 5."""
    rng = np.random.default_rng(seed)
    X = np.sqrt(1 - rho) * rng.standard_normal((n, P)) + np.sqrt(rho) * rng.standard_normal((n, 1))
    signal = X[:, TRUE] @ np.array(beta)
    y = signal + rng.normal(size=n) * signal.std() / np.sqrt(5)
    return np.clip(widths[0] * X, -1, 1), np.clip(widths[1] * y / y.std(), -1, 1)


def chance(data, loss: str, radius: float, ridge: float) -> float:
    """Return P(true support) for a multiple of the default radius and a ridge per b_x^2."""
    X, y = data
    target = None if loss in ("hinge", "logistic") else 1.0
    y = y if target else np.where(y > 0, 1.0, -1.0)
    problem = SubsetProblem(
        X, y, SIZE, loss, radius / np.sqrt(SIZE), ridge, feature_bound=1.0, target_bound=target
    )
    return law(problem, "exponential", EPSILON, "replace_one")[TRUE]


def sweep(loss: str, ns, seeds, base: float):
    """Return mean P(true) of each radius and of each ridge (at the radius `base`), by widths."""
    radii = {(r, w): [] for r in RADII for w in WIDTHS}
    ridges = {(g, w): [] for g in RIDGES for w in WIDTHS}
    for widths in WIDTHS:
        for rho in RHOS:
            for beta in BETAS:
                for n in ns:
                    for seed in range(seeds):
                        data = table(n, rho, beta, WIDTHS[widths], seed)
                        for r in RADII:
                            radii[r, widths].append(chance(data, loss, r, 4.0))
                        for g in RIDGES:
                            ridges[g, widths].append(chance(data, loss, base, g))
    return radii, ridges


def show(title: str, values, keys, default) -> list[str]:
    lines = [f"| {title} | {' | '.join(WIDTHS)} | mean | worst case |", "|---|" + "---|" * (len(WIDTHS) + 2)]
    best = {}
    for widths in WIDTHS:
        best[widths] = np.max([values[key, widths] for key in keys], axis=0)
    for key in keys:
        means = [np.mean(values[key, widths]) for widths in WIDTHS]
        regret = max(np.max(best[widths] - values[key, widths]) for widths in WIDTHS)
        name = f"**{key:g}**" if key == default else f"{key:g}"
        lines.append(
            f"| {name} | {' | '.join(f'{m:.3f}' for m in means)} | {np.mean(means):.3f} | -{regret:.2f} |"
        )
    return [*lines, ""]


def main() -> None:
    quick = "--quick" in sys.argv
    lines = [
        "# Radius and ridge of a selection, from declared bounds alone",
        "",
        header(),
        "",
        f"P(true support), exponential mechanism, epsilon = {EPSILON}, REPLACE_ONE, {SIZE} of {P} columns, by "
        "enumeration. Declared bounds are +-1 for cells and target. Columns of the tables: how much of its bounds "
        "the data fill (standard deviation 0.5, or 0.15 where loose). Each figure is a mean over correlations "
        f"{RHOS}, two patterns of coefficients (equal; unequal with one sign turned), n and seeds. `worst case` is "
        "the largest loss of P against the best row of the same table in any one of those settings.",
        "",
        "The radius is given in units of b_y / (b_x sqrt(s)) (b_y = 1 for classes), that is as a / b_y; the ridge "
        "in units of b_x^2. Defaults in bold.",
        "",
    ]
    for loss in ("squared", "huber", "quantile", "logistic", "hinge"):
        start = time.perf_counter()
        slow = loss != "squared"
        ns, seeds = (
            ((2000,), 1) if quick else ((1000, 3000) if slow else (500, 1000, 2000, 4000), 1 if slow else 3)
        )
        base = DEFAULT[loss]
        radii, ridges = sweep(loss, ns, seeds, base)
        print(loss, time.perf_counter() - start, file=sys.stderr, flush=True)
        lines += [f"## {loss}, n in {ns}", ""]
        lines += show("radius", radii, RADII, base)
        lines += show("ridge", ridges, RIDGES, 4.0)
    write("selection_defaults" + ("_quick" if quick else ""), "\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
