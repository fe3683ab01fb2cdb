"""Rows until the true support is drawn 95 % of the time, on the paper's generator, with the default settings.

    python benchmarks/selection_recovery.py [--seeds 20] [--draws 400]

Public code of arXiv 2510.22062 on the same tables (design page): top-R needs 3,950 rows (p = 100) and 5,800
(p = 1,000), mistakes 3,600 and 4,350.
"""

from __future__ import annotations

import argparse
import math

import numpy as np

from _common import header, write
from confide.mechanisms import os_stream
from confide.selection import SubsetProblem
from confide.selection.draws import make_envelope, sample
from confide.selection.exponent import exponent
from confide.selection.flips import flip


def paper_table(n: int, p: int, s: int, rho: float, seed: int, snr: float = 5.0, bound: float = 0.5):
    """Return X, y, support: rows N(0, rho^|i-j|), coefficients 1/sqrt(s) at 1, 3, 5, ..., clipped to +-bound."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, p))
    for j in range(1, p):
        X[:, j] = rho * X[:, j - 1] + math.sqrt(1 - rho * rho) * X[:, j]
    support = np.arange(1, 2 * s, 2)
    beta = np.full(s, 1 / math.sqrt(s))
    power = beta @ (rho ** np.abs(support[:, None] - support)) @ beta
    y = X[:, support] @ beta + rng.standard_normal(n) * math.sqrt(power / snr)
    return np.clip(X, -bound, bound, out=X), np.clip(y, -bound, bound), tuple(support.tolist())


def recovery(n, p, mechanism, *, seeds, draws, s=5, rho=0.1, epsilon=1.0, radius=None, ridge=None) -> float:
    """Return the share of draws that are the true support."""
    shares = []
    for seed in range(seeds):
        X, y, truth = paper_table(n, p, s, rho, seed)
        problem = SubsetProblem(X, y, s, radius=radius, ridge=ridge, feature_bound=0.5, target_bound=0.5)
        envelope = make_envelope(problem, exponent(problem, mechanism, epsilon, "replace_one"))
        drawer = flip if mechanism == "permute_and_flip" else sample
        drawn = drawer(envelope, draws, os_stream())
        shares.append(sum(support == truth for support in drawn) / draws)
    return float(np.mean(shares))


def main() -> None:
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--seeds", type=int, default=20)
    arguments.add_argument("--draws", type=int, default=400)
    options = arguments.parse_args()
    common = {"seeds": options.seeds, "draws": options.draws}
    few = {"seeds": min(5, options.seeds), "draws": options.draws}
    lines = [
        "# Recovery of the true support", "", header("confide"), "",
        f"s = 5, SNR 5, correlation 0.1^|i-j|, b = 0.5, epsilon = 1, REPLACE_ONE; {options.seeds} tables, "
        f"{options.draws} draws each; share of draws that are the true support. Default radius and ridge.", "",
        "| p | n | exponential | permute_and_flip |", "|---|---|---|---|",
    ]  # fmt: skip
    for p, rows in ((100, (1000, 1250, 1400, 1550, 2000)), (1000, (1500, 1800, 2000, 2200, 2500))):
        for n in rows:
            values = [recovery(n, p, name, **common) for name in ("exponential", "permute_and_flip")]
            lines.append(f"| {p} | {n:,} | {values[0]:.3f} | {values[1]:.3f} |")
            print(lines[-1], flush=True)
    lines += [
        "", "## Radius and ridge: why the defaults", "",
        "Five tables, exponential, p = 100; n where the default is not certain. Radius in units of the default "
        "b_y / (b_x sqrt(s)), ridge in units of 4 b_x^2.", "",
        "| rho | n | radius | ridge | recovery |", "|---|---|---|---|---|",
    ]  # fmt: skip
    for rho, n in ((0.1, 1000), (0.5, 1000), (0.8, 1500)):
        for r, lam in (
            (0.1, 1),
            (0.25, 1),
            (0.5, 1),
            (0.7, 1),
            (1, 1),
            (1.4, 1),
            (2, 1),
            (1, 0),
            (1, 10),
            (1, 100),
        ):
            value = recovery(n, 100, "exponential", rho=rho, radius=r / math.sqrt(5), ridge=float(lam), **few)
            lines.append(f"| {rho} | {n:,} | {r} | {lam} | {value:.3f} |")
            print(lines[-1], flush=True)
    write("selection_recovery", "\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
