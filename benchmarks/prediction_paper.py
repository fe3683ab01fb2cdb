"""Private answers on ten sets: accuracy by epsilon and by the number of answers, with every claim checked.

    python benchmarks/prediction_paper.py [--jobs 2] [--sets blobs ...] [--quick] [--retry] [--figures]

Rows are appended to benchmarks/results/prediction_paper.csv as they are done; run again, it goes on where it
stopped (delete the file to begin anew). What takes longer than its limit is recorded as such; --retry tries
that again. --quick is a smoke run into a temporary folder; --figures draws from the CSV and measures nothing.
Distances are kept under benchmarks/.cache.

REPLACE_ONE. Accuracies are expectations over the noise: from the distance k of each held-out row and the
probabilities of its answer, no answer is drawn; the sparse vector's thresholds and lengths of epochs are drawn
200 times. Each run (five; twenty of breast, ten of digits, three above 5,000 rows and of boxes as steps are
added) has a public split of its own, 20 % held out (of which at most 2,000 are asked) and at most 20,000 rows,
the first of a public permutation. Settings are fixed rules of public numbers; a certificate's one knob is
chosen on a public synthetic set of the same shape, by the release's own expected accuracy there
(`_prediction_paper_models.py`): no set chose anything. A total is (epsilon, 1e-5): pure answers leave all delta
to the exact composition; `laplace`, `ptr` and the epochs of the sparse vector take half of it themselves. The
sparse vector pays for ten epochs; an unstable query, and each one after the last epoch, is answered by a public
fallback, a class at random. DP-SGD and objective perturbation are PrivateClassifier on the same rows at the
same total, untuned; their model answers any number of queries.
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


def main() -> None:
    from _prediction_paper_cells import SETS

    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--jobs", type=int, default=2)
    arguments.add_argument("--sets", nargs="+", choices=SETS, default=SETS)
    arguments.add_argument("--quick", action="store_true")
    arguments.add_argument("--retry", action="store_true")
    arguments.add_argument("--figures", action="store_true")
    options = arguments.parse_args()
    folder = Path(tempfile.mkdtemp()) if options.quick else RESULTS
    path = folder / "prediction_paper.csv"
    if not options.figures:
        measure(path, options)
    from _prediction_paper_figures import draw_all
    from _prediction_paper_report import report

    draw_all(path, folder)
    report(path, folder)
    print(f"written to {folder if options.quick else 'benchmarks/results'}")


def measure(path: Path, options) -> None:
    """Run what the CSV does not have yet, one set after the other."""
    from joblib import Parallel, delayed

    from _prediction_paper_cells import COLUMNS, KEYS, plan

    tasks = [task for task in plan(options.quick) if task.first.data in options.sets]
    begin(path, COLUMNS)
    known = finished(path, KEYS, retry=options.retry)
    missing = [task for task in tasks if any(cell.key not in known for cell in task.cells)]
    left = sum(task.cost for task in missing)
    print(f"{sum(len(task.cells) for task in tasks)} cells in {len(tasks)} tasks; {len(tasks) - len(missing)} tasks are "
          f"done. Estimate for the rest: {left / options.jobs / 60:.1f} min with {options.jobs} jobs.", flush=True)  # fmt: skip
    bundles = [
        list(group) for _, group in groupby(missing, key=lambda t: (t.first.data, t.first.certificate))
    ]
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
            f"{number} of {len(bundles)} bundles, {passed:.0f} s, about {max(rest, 0):.0f} s left", flush=True
        )


def run_bundle(bundle, path: Path, quick: bool) -> float:
    """Run tasks of one set and certificate, write a row for each cell, return the estimate that they had."""
    sys.path.insert(0, str(Path(__file__).parent))
    from _prediction_paper_cells import COLUMNS, run

    for task in bundle:
        append(path, COLUMNS, run(task, quick))
    return sum(task.cost for task in bundle)


if __name__ == "__main__":
    main()
