"""How long a release takes, against one X.T @ v in the same process; acceptance over the design page's grid.

python benchmarks/selection_speed.py [--quick]
"""

from __future__ import annotations

import argparse
import time

import numpy as np

from _common import header, write
from confide.mechanisms import os_stream
from confide.selection import SubsetProblem, draw
from confide.selection.draws import make_envelope, sample
from confide.selection.exponent import exponent
from selection_recovery import paper_table


def problem_of(n, p, s, rho, ridge=None, seed=0) -> SubsetProblem:
    X, y, _ = paper_table(n, p, s, rho, seed)
    return SubsetProblem(X, y, s, ridge=ridge, feature_bound=0.5, target_bound=0.5)


def warm_up() -> float:
    start = time.perf_counter()
    draw(problem_of(300, 60, 3, 0.8), "exponential", 1, "replace_one", size=50)
    draw(problem_of(300, 60, 3, 0.8), "permute_and_flip", 1, "replace_one", size=5)
    return time.perf_counter() - start


def releases() -> list[str]:
    lines = ["| p | n | s | X.T @ v | first release | in X.T @ v | CPU time | 1,000 more |", "|---" * 8 + "|"]
    for p, n, s in ((100, 3000, 5), (1000, 4000, 5), (10_000, 4000, 5), (100_000, 2000, 5)):
        X, y, _ = paper_table(n, p, s, 0.1, 0)
        once = min(_seconds(np.dot, X.T, y) for _ in range(5))
        start, cpu = time.perf_counter(), time.process_time()
        problem = SubsetProblem(X, y, s, feature_bound=0.5, target_bound=0.5)
        draw(problem, "exponential", 1, "replace_one")
        wall, cpu = time.perf_counter() - start, time.process_time() - cpu
        more = _seconds(draw, problem, "exponential", 1, "replace_one", size=1000)
        lines.append(
            f"| {p:,} | {n:,} | {s} | {once * 1e3:.1f} ms | {wall * 1e3:.0f} ms | {wall / once:.1f} "
            f"| {cpu:.2f} s | {more:.2f} s |"
        )
        print(lines[-1], flush=True)
    return lines


def _seconds(run, *arguments, **options) -> float:
    start = time.perf_counter()
    run(*arguments, **options)
    return time.perf_counter() - start


def open_target() -> str:
    problem = problem_of(3000, 200, 10, 0.5)
    envelope = make_envelope(problem, exponent(problem, "exponential", 1, "replace_one"))
    start = time.perf_counter()
    share = envelope.refine(os_stream(), acceptance=0.2, seconds=10)
    return (
        f"p = 200, s = 10, rho = .5, n = 3,000: acceptance {share:.2f} after {time.perf_counter() - start:.2f} s, "
        f"{len(envelope.buckets)} buckets (target: 0.2 within 10 s; design page: .035)."
    )


def grid(n: int, quick: bool) -> list[str]:
    lines = ["| p | s | rho | lambda | one draw | buckets | acceptance |", "|---" * 7 + "|"]
    slowest = 0.0
    for p in (100, 200) if quick else (100, 200, 1000):
        for s in (3, 5, 10, 20):
            for rho in (0.1, 0.5, 0.8, 0.9):
                for ridge in (0.1, 1.0, 100.0):
                    problem = problem_of(n, p, s, rho, ridge)
                    start = time.perf_counter()
                    envelope = make_envelope(problem, exponent(problem, "exponential", 1, "replace_one"))
                    sample(envelope, 1, os_stream())
                    took = time.perf_counter() - start
                    slowest = max(slowest, took)
                    share = envelope.acceptance(200, os_stream())
                    lines.append(
                        f"| {p} | {s} | {rho} | {ridge:g} | {took:.2f} s | {len(envelope.buckets)} | {share:.2g} |"
                    )
                    print(lines[-1], flush=True)
    return [f"Slowest cell: {slowest:.1f} s (limit 60 s).", "", *lines]


def main() -> None:
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--quick", action="store_true", help="leave out p = 1,000 from the grid")
    options = arguments.parse_args()
    compiled = warm_up()
    text = [
        "# Speed of one private selection", "", header("confide"), "",
        f"Squared loss, epsilon = 1, REPLACE_ONE, default radius and ridge, the paper's generator at rho = 0.1; "
        f"after one warm-up ({compiled:.1f} s, compilation or its cache included).", "", *releases(),
        "", "## The open target", "", open_target(), "",
        "## Acceptance", "",
        "n = 3,000, lambda as given, default radius. A draw stops splitting when proposing is cheaper, so that a "
        "small acceptance here means that one draw was quicker that way.", "", *grid(3000, options.quick),
    ]  # fmt: skip
    write("selection_speed", "\n".join(text) + "\n")


if __name__ == "__main__":
    np.seterr(all="ignore")
    main()
