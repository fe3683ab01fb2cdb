"""Training methods on fifteen data sets: test error by epsilon, with every claim of the sources checked.

    python benchmarks/training_paper.py [--jobs 2] [--only linear turning mlp] [--quick] [--retry] [--figures]

Rows are appended to benchmarks/results/training_paper.csv as they are done; run again, it goes on where it
stopped (delete the file to begin anew). What takes longer than its limit is recorded as such; --retry tries
that again. --quick is a smoke run into a temporary folder; --figures draws from the CSV and measures nothing.

delta = 1e-6, REPLACE_LABEL (AdaSSP: REPLACE_ONE, so marked), five runs: each has a public split of its own, and
noise of its own. A set has at most 25,000 rows, the first of a public permutation; a fifth is for testing.
"tuned" means: the parameters with the least error on the test rows of the first two splits, which no one may
do with private data; it is the strongest form of a method, not one that can be had for this epsilon.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from itertools import groupby
from pathlib import Path

for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "NUMBA_NUM_THREADS"):
    os.environ.setdefault(name, "1")

from _common import RESULTS
from _resume import append, begin, finished

STUDIES = ("linear", "turning", "mlp")


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--jobs", type=int, default=2)
    arguments.add_argument("--only", nargs="+", choices=STUDIES, default=STUDIES)
    arguments.add_argument("--quick", action="store_true")
    arguments.add_argument("--retry", action="store_true")
    arguments.add_argument("--figures", action="store_true")
    options = arguments.parse_args()
    folder = Path(tempfile.mkdtemp()) if options.quick else RESULTS
    path = folder / "training_paper.csv"
    if not options.figures:
        measure(path, options)
    from _training_paper_figures import draw_all
    from _training_paper_report import report

    draw_all(path, folder)
    report(path, folder)
    print(f"written to {folder if options.quick else 'benchmarks/results'}")


def measure(path: Path, options) -> None:
    """Run what the CSV does not have yet, one table and epsilon after the other."""
    from joblib import Parallel, delayed

    from _training_paper_cells import COLUMNS, KEYS, plan

    tasks = [task for task in plan(options.quick) if task.first.study in options.only]
    begin(path, COLUMNS)
    known = finished(path, KEYS, retry=options.retry)
    missing = [task for task in tasks if any(cell.key not in known for cell in task.cells)]
    left = sum(task.cost for task in missing)
    cells = sum(len(task.cells) for task in tasks)
    print(f"{cells} cells in {len(tasks)} tasks; {len(tasks) - len(missing)} tasks are done. Estimate for the "
          f"rest: {left / options.jobs / 60:.1f} min with {options.jobs} jobs.", flush=True)  # fmt: skip
    bundles = [list(group) for _, group in groupby(missing, key=lambda task: task.table)]
    # The long ones first, so that no core idles at the end.
    bundles.sort(key=lambda bundle: -sum(task.cost for task in bundle))
    start, done = time.perf_counter(), 0.0
    work = Parallel(
        n_jobs=options.jobs, return_as="generator_unordered", batch_size=1, pre_dispatch="2*n_jobs"
    )
    for number, spent in enumerate(
        work(delayed(run_bundle)(bundle, path, options.quick) for bundle in bundles), 1
    ):
        done += spent
        passed = time.perf_counter() - start
        rest = passed * (left - done) / max(done, 1e-9)
        print(
            f"{number} of {len(bundles)} tables, {passed:.0f} s, about {max(rest, 0):.0f} s left", flush=True
        )


def run_bundle(bundle, path: Path, quick: bool) -> float:
    """Run the tasks of one table, write a row for each cell, return the estimate that they had."""
    sys.path.insert(0, str(Path(__file__).parent))
    from _training_paper_cells import COLUMNS, run

    for task in bundle:
        append(path, COLUMNS, run(task, quick))
    return sum(task.cost for task in bundle)


if __name__ == "__main__":
    main()
