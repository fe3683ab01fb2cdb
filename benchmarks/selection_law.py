"""Draws against the enumerated law: chi-square on golden and random instances, privacy ratios, draws a second.

python benchmarks/selection_law.py [--instances 200] [--draws 100000] [--pairs 1000]
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

import numpy as np

from _common import header, write
from confide.selection import draw, law

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests" / "selection"))

from instances import epsilon_of, random_problem
from test_draws import agreement
from test_law import worst_ratio
from test_scores import GOLDEN, load

MECHANISMS = ("exponential", "permute_and_flip")


def golden_lines(draws: int) -> list[str]:
    shared = ROOT.parent / "shared" / "cases"
    folder = shared if (shared / "README.md").exists() else ROOT / "tests" / "golden"
    lines = ["| instance | mechanism | epsilon | P(best) | p-value |", "|---" * 5 + "|"]
    for name in GOLDEN:
        if not (folder / "selection" / f"{name}.npz").exists():
            continue
        _, problem = load(folder, name)
        for mechanism in MECHANISMS:
            for eps in (1, 5):
                wanted = law(problem, mechanism, eps, "replace_one")
                drawn = draw(problem, mechanism, eps, "replace_one", size=draws)
                value = agreement(wanted, drawn)
                lines.append(f"| {name} | {mechanism} | {eps} | {max(wanted.values()):.4f} | {value:.3f} |")
                print(lines[-1], flush=True)
    return lines


def random_lines(count: int, draws: int) -> list[str]:
    lines = [
        "| mechanism | draws | smallest p-value | mean | below 0.05 | draws a second |",
        "|---" * 6 + "|",
    ]
    for mechanism in MECHANISMS:
        values, seconds = [], 0.0
        for seed in range(count):
            problem, eps = random_problem(seed), epsilon_of(seed)
            adjacency = ("add_remove_one", "replace_one")[seed % 2]
            start = time.perf_counter()
            drawn = draw(problem, mechanism, eps, adjacency, size=draws)
            seconds += time.perf_counter() - start
            values.append(agreement(law(problem, mechanism, eps, adjacency), drawn))
        inner = np.array([value for value in values if value < 1])
        lines.append(
            f"| {mechanism} | {count} x {draws:,} | {min(values):.2g} | {inner.mean():.3f} | "
            f"{np.mean(inner < 0.05):.3f} | {count * draws / seconds:,.0f} |"
        )
        print(lines[-1], flush=True)
    return lines


def privacy_lines(pairs: int) -> list[str]:
    lines = ["| adjacency | mechanism | pairs | largest log-ratio / epsilon |", "|---" * 4 + "|"]
    for adjacency in ("add_remove_one", "replace_one"):
        for mechanism in MECHANISMS:
            worst = max(worst_ratio(seed, adjacency, mechanism) for seed in range(pairs))
            lines.append(f"| {adjacency} | {mechanism} | {pairs:,} | {worst:.10f} |")
            print(lines[-1], flush=True)
    return lines


def main() -> None:
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--instances", type=int, default=200)
    arguments.add_argument("--draws", type=int, default=100_000)
    arguments.add_argument("--pairs", type=int, default=1000)
    options = arguments.parse_args()
    draw(random_problem(0), "permute_and_flip", 1, "replace_one", size=10)  # compile
    text = [
        "# The law of the draws", "", header("confide"), "", "Bits of the operating system.", "",
        "## Golden instances", "", f"{options.draws:,} draws each.", "", *golden_lines(options.draws), "",
        "## Random instances, p <= 14, every loss", "",
        "Correlated, duplicate, zero and constant columns, 0 to 1,500 rows, lambda 0 to 100, ball active or not. "
        "P-values of 1 (one cell holds everything) are left out of mean and share. Time includes everything that "
        "`draw` does: bounds, splitting, scores.", "", *random_lines(options.instances, options.draws), "",
        "## Neighbours", "", "Extreme records, ties, every loss; must be at most 1 + 1e-9.", "",
        *privacy_lines(options.pairs),
    ]  # fmt: skip
    write("selection_law", "\n".join(text) + "\n")


if __name__ == "__main__":
    main()
