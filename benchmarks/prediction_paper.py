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

import os
import tempfile
from pathlib import Path

for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "NUMBA_NUM_THREADS"):
    os.environ.setdefault(name, "1")

from _common import RESULTS
from _resume import complete, options


def main() -> None:
    from _prediction_paper_cells import SETS

    chosen = options(__doc__, "--sets", SETS)
    folder = Path(tempfile.mkdtemp()) if chosen.quick else RESULTS
    path = folder / "prediction_paper.csv"
    if not chosen.figures:
        measure(path, chosen)
    from _prediction_paper_figures import draw_all
    from _prediction_paper_report import report

    draw_all(path, folder)
    report(path, folder)
    print(f"written to {folder if chosen.quick else 'benchmarks/results'}")


def measure(path: Path, chosen) -> None:
    """Run what the CSV does not have yet, one set after the other."""
    from _prediction_paper_cells import COLUMNS, KEYS, plan, run

    tasks = [task for task in plan(chosen.quick) if task.first.data in chosen.sets]
    complete(
        path,
        tasks,
        COLUMNS,
        KEYS,
        run,
        chosen,
        together=lambda task: (task.first.data, task.first.certificate),
        name="bundles",
    )


if __name__ == "__main__":
    main()
