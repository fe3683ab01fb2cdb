"""How long interval training takes, how much memory, and what the budget for an epoch narrows.

python benchmarks/prediction_speed.py [--rows 6000] [--full] [--jobs 2]

The network of 768-100-1 runs on `--rows` rows and is extrapolated to 36,000, all 36,000 with `--full`. The work
grows with the rows, apart from keeping the largest terms, whose share falls: the estimate is from above.
"""

from __future__ import annotations

import argparse
import resource
import time

import numpy as np

from _common import header, write
from confide.prediction import FixedBatches, HashedBatches, train_intervals
from confide.prediction.intervals import Network

ROWS, FULL = 6000, 36_000


def blobs(rows: int, columns: int, seed: int = 0):
    rng = np.random.default_rng(seed)
    y = rng.integers(2, size=rows)
    return rng.standard_normal((rows, columns)) + 1.2 * np.where(y, 1, -1)[:, None] / np.sqrt(columns), y


def timed(run, *arguments, **options):
    wall, cpu = time.perf_counter(), time.process_time()
    result = run(*arguments, **options)
    return result, time.perf_counter() - wall, time.process_time() - cpu


def warm_up() -> float:
    X, y = blobs(20, 3)
    start = time.perf_counter()
    for layers in ([3, 2], [3, 4, 1]):
        init = Network(tuple(layers)).initial(0)
        boxes = train_intervals(
            X, y, layers, init, {"learning_rate": 1, "clip": 0.1}, range(3), "replace_one"
        )
        boxes.stability(X)
    return time.perf_counter() - start


def every_level() -> list[str]:
    lines = ["| adjacency | steps | training, wall | CPU | 10,000 queries, CPU |", "|---" * 5 + "|"]
    X, y = blobs(5000, 6)
    init = Network((6, 2)).initial(0)
    Q = np.random.default_rng(1).standard_normal((10_000, 6))
    for adjacency, batches in (("replace_one", None), ("add_remove_one", HashedBatches(1, 5000))):
        for epochs in (1, 4):
            settings = {"learning_rate": 2.0, "clip": 0.06, "learning_rate_decay": 0.6, "epochs": epochs}
            boxes, wall, cpu = timed(
                train_intervals, X, y, [6, 2], init, settings, range(200), adjacency, batches
            )
            _, _, asked = timed(boxes.stability, Q)
            lines.append(f"| {adjacency} | {epochs} | {wall:.3f} s | {cpu:.3f} s | {asked:.2f} s |")
    return lines


def network(rows: int, jobs: int) -> list[str]:
    X, y = blobs(rows, 768)
    net = Network((768, 100, 1))
    init = net.initial(0)
    settings = {"learning_rate": 0.1, "clip": 0.05, "epochs": 3}
    lines = ["| rows | k | adjacency | wall | CPU | CPU for 36,000 rows | peak memory |", "|---" * 7 + "|"]
    for adjacency, batches in (("replace_one", None), ("add_remove_one", HashedBatches(1, rows))):
        _, wall, cpu = timed(
            train_intervals, X, y, net, init, settings, range(1, 31), adjacency, batches, n_jobs=jobs
        )
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
        lines.append(
            f"| {rows:,} | 1 to 30 | {adjacency} | {wall:.0f} s | {cpu:.0f} s | {cpu * FULL / rows:.0f} s "
            f"| {peak:.2f} GB |"
        )
        print(lines[-1], flush=True)
    return lines


def budgets() -> list[str]:
    lines = ["| batches | k | width, epoch / step | seconds, step | seconds, epoch |", "|---" * 5 + "|"]
    X, y = blobs(1500, 6)
    init = Network((6, 2)).initial(0)
    for count in (3, 10):
        for k in (5, 30):
            widths, seconds = [], []
            for budget in ("step", "epoch"):
                settings = {"learning_rate": 0.5, "clip": 0.06, "epochs": 2}
                boxes, _, cpu = timed(
                    train_intervals, X, y, [6, 2], init, settings, [k], "replace_one", FixedBatches(count),
                    budget=budget,
                )  # fmt: skip
                widths.append(float((boxes.upper - boxes.lower).mean()))
                seconds.append(cpu)
            lines.append(
                f"| {count} | {k} | {widths[1] / widths[0]:.3f} | {seconds[0]:.2f} | {seconds[1]:.2f} |"
            )
    return lines


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=ROWS)
    parser.add_argument("--full", action="store_true")
    parser.add_argument("--jobs", type=int, default=2)
    arguments = parser.parse_args()
    compiled = warm_up()
    text = ["# Interval training: speed\n", header("joblib"),
            f"First call, compiling or loading kernels: {compiled:.1f} s.\n",
            "## All 200 values of k, 5,000 rows of 6 features, linear, two logits (limit: 0.5 s for one step)\n",
            *every_level(), "\n## Budget for an epoch against one for each step (linear, 1,500 rows, 2 epochs)\n",
            *budgets(), "\n## 768-100-1, 3 full-batch steps, 30 values of k (limit: 5 minutes, 2 GB on two cores)\n",
            *network(FULL if arguments.full else arguments.rows, arguments.jobs), ""]  # fmt: skip
    write("prediction_speed", "\n".join(text))


if __name__ == "__main__":
    main()
