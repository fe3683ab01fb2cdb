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

import os
import tempfile
from pathlib import Path

for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "NUMBA_NUM_THREADS"):
    os.environ.setdefault(name, "1")

from _common import RESULTS
from _resume import complete, options

STUDIES = ("linear", "turning", "mlp")


def main() -> None:
    chosen = options(__doc__, "--only", STUDIES)
    folder = Path(tempfile.mkdtemp()) if chosen.quick else RESULTS
    path = folder / "training_paper.csv"
    if not chosen.figures:
        measure(path, chosen)
    from _training_paper_figures import draw_all
    from _training_paper_report import report

    draw_all(path, folder)
    report(path, folder)
    print(f"written to {folder if chosen.quick else 'benchmarks/results'}")


def measure(path: Path, chosen) -> None:
    """Run what the CSV does not have yet, one table and epsilon after the other."""
    from _training_paper_cells import COLUMNS, KEYS, plan, run

    tasks = [task for task in plan(chosen.quick) if task.first.study in chosen.only]
    complete(path, tasks, COLUMNS, KEYS, run, chosen, together=lambda task: task.table, name="tables")


if __name__ == "__main__":
    main()
