"""The figures of arXiv 2510.22062 with Confide's mechanisms and the baselines, as CSV and PNG.

    python benchmarks/selection_paper.py [--jobs 2] [--only recovery prediction ...] [--quick] [--retry] [--figures]

Rows are appended to benchmarks/results/selection_paper.csv as they are done; run again, it goes on where it
stopped (delete the file to begin anew). What takes longer than its limit is recorded as such; --retry tries
that again. --quick is a smoke run into a temporary folder; --figures draws from the CSV and measures nothing. Synthetic data of the paper: rows N(0, 0.1^|i-j|), five coefficients of
1/sqrt(5), SNR 5, clipped to +-0.5, REPLACE_ONE.
"""

from __future__ import annotations

import argparse
import csv
import io
import os
import sys
import tempfile
import time
from itertools import groupby
from pathlib import Path

for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "NUMBA_NUM_THREADS"):
    os.environ.setdefault(name, "1")

from _common import RESULTS

STUDIES = ("recovery", "prediction", "hinge", "correlation", "top", "ridge", "bound")
#: CPU seconds of one task, roughly, for the estimate: by mechanism and p (a list that is not proven takes its
#: limit).
COST = {
    ("top_r", 50): 4, ("mistakes", 50): 4, ("top_r", 100): 1, ("markov_chain", 100): 2.5,
    ("markov_chain_published", 100): 2.5, ("exponential", 1_000): 2, ("permute_and_flip", 1_000): 2,
    ("top_r", 1_000): 10, ("mistakes", 1_000): 5, ("best_subset", 1_000): 2, ("markov_chain", 1_000): 10,
    ("markov_chain_published", 1_000): 10, ("exponential", 10_000): 2, ("permute_and_flip", 10_000): 2,
    ("top_r", 10_000): 20, ("mistakes", 10_000): 20, ("best_subset", 10_000): 20, ("markov_chain", 10_000): 30,
    ("markov_chain_published", 10_000): 30, ("lasso_votes", 10_000): 1, ("pipeline", 100): 1,
}  # fmt: skip


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--jobs", type=int, default=2)
    arguments.add_argument("--only", nargs="+", choices=STUDIES, default=STUDIES)
    arguments.add_argument("--quick", action="store_true")
    arguments.add_argument("--retry", action="store_true")
    arguments.add_argument("--figures", action="store_true")
    options = arguments.parse_args()
    folder = Path(tempfile.mkdtemp()) if options.quick else RESULTS
    path = folder / "selection_paper.csv"
    if not options.figures:
        measure(path, options)
    from _selection_paper_figures import draw_all

    draw_all(path, folder)


def measure(path: Path, options) -> None:
    """Run what the CSV does not have yet, one table after the other."""
    from joblib import Parallel, delayed

    from _selection_paper_cells import KEYS, VALUES, plan

    jobs = options.jobs
    tasks = [task for task in plan(options.quick) if task.first.study in options.only]
    finished = finished_keys(path, options.retry)
    missing = [task for task in tasks if any(cell.key not in finished for cell in task.cells)]
    if not path.exists():
        path.write_text(",".join([*KEYS, *VALUES]) + "\n", encoding="utf-8")
    cells = sum(len(task.cells) for task in tasks)
    left = sum(map(cost, missing))
    print(f"{cells} cells in {len(tasks)} tasks; {len(tasks) - len(missing)} tasks are done. Estimate for the "
          f"rest: {left / jobs / 60:.1f} min with {jobs} jobs.", flush=True)  # fmt: skip
    bundles = [list(group) for _, group in groupby(missing, key=lambda task: (task.first.study, task.table))]
    # The long ones first, so that no core idles at the end.
    bundles.sort(key=lambda bundle: -sum(map(cost, bundle)))
    start, done = time.perf_counter(), 0.0
    work = Parallel(n_jobs=jobs, return_as="generator_unordered", batch_size=1, pre_dispatch="2*n_jobs")
    for number, spent in enumerate(
        work(delayed(run_bundle)(bundle, str(path), options.retry) for bundle in bundles), 1
    ):
        done += spent
        passed = time.perf_counter() - start
        if number % 10 == 0 or number == len(bundles):
            rest = passed * (left - done) / max(done, 1e-9)
            print(
                f"{number} of {len(bundles)} tables, {passed:.0f} s, about {max(rest, 0):.0f} s left",
                flush=True,
            )


def cost(task) -> float:
    return COST.get((task.first.mechanism, task.first.p), 0.3)


def run_bundle(bundle, path: str, retry: bool = False) -> float:
    """Run the tasks of one table, write a row for each cell, return the estimate that they had."""
    sys.path.insert(0, str(Path(__file__).parent))
    from _selection_paper_cells import run

    for task in bundle:
        earlier = {} if retry else failed_families(Path(path))
        if task.first.family in earlier:
            append(path, [skipped(cell, earlier[task.first.family]) for cell in task.cells])
        else:
            append(path, run(task))
    return sum(map(cost, bundle))


def skipped(cell, reason: str) -> dict[str, object]:
    from dataclasses import asdict

    return {**asdict(cell), "status": f"not run: another table was {reason}"}


def append(path: str, rows) -> None:
    """Add rows in one write, which the system does not interleave with another process's."""
    from _selection_paper_cells import KEYS, VALUES

    text = io.StringIO()
    csv.DictWriter(text, [*KEYS, *VALUES], restval="", lineterminator="\n").writerows(rows)
    handle = os.open(path, os.O_WRONLY | os.O_APPEND)
    try:
        os.write(handle, text.getvalue().encode())
    finally:
        os.close(handle)


def read(path: Path) -> list[dict[str, str]]:
    """Return the complete rows of the CSV; a row that was cut off is left out."""
    if not path.exists():
        return []
    with path.open(encoding="utf-8", newline="") as file:
        return [row for row in csv.DictReader(file) if row.get("status") and None not in row]


def finished_keys(path: Path, retry: bool) -> set[tuple[str, ...]]:
    """Return the keys of the rows (to `retry`: of those with a number); close a last line that was cut off."""
    from _selection_paper_cells import KEYS

    if path.exists() and not path.read_bytes().endswith(b"\n"):
        with path.open("a", encoding="utf-8") as file:
            file.write("\n")
    rows = [row for row in read(path) if row["status"] == "done" or not retry]
    return {tuple(row[key] for key in KEYS) for row in rows}


def failed_families(path: Path) -> dict[tuple[str, ...], str]:
    """Return what did not finish on some table, with its status."""
    from _selection_paper_cells import KEYS

    names = [key for key in KEYS if key not in ("seed", "epsilon")]
    return {
        tuple(row[key] for key in names): row["status"]
        for row in read(path)
        if row["status"].startswith("not finished")
    }


if __name__ == "__main__":
    main()
