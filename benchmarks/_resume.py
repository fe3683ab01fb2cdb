"""Cells of a benchmark in a CSV: a run goes on where an earlier one stopped, and no cell can end it."""

from __future__ import annotations

import argparse
import csv
import io
import os
import signal
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import groupby
from pathlib import Path
from typing import Any


class OutOfTimeError(Exception):
    pass


@contextmanager
def deadline(seconds: float) -> Iterator[None]:
    """Interrupt the main thread after so many seconds of CPU time (kernels: at their next return)."""

    def stop(*_):
        raise OutOfTimeError

    before = signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


def begin(path: Path, columns: Sequence[str]) -> None:
    """Make the CSV, or close a last line that was cut off."""
    if not path.exists():
        path.write_text(",".join(columns) + "\n", encoding="utf-8")
    elif not path.read_bytes().endswith(b"\n"):
        with path.open("a", encoding="utf-8") as file:
            file.write("\n")


def append(path: Path, columns: Sequence[str], rows: Iterable[dict[str, Any]]) -> None:
    """Add rows in one write, which the system does not interleave with another process's."""
    text = io.StringIO()
    csv.DictWriter(text, columns, restval="", lineterminator="\n").writerows(rows)
    handle = os.open(path, os.O_WRONLY | os.O_APPEND)
    try:
        os.write(handle, text.getvalue().encode())
    finally:
        os.close(handle)


def read(path: Path, keys: Sequence[str]) -> list[dict[str, str]]:
    """Return the complete rows of the CSV; of equal keys the last one counts."""
    if not path.exists():
        return []
    with path.open(encoding="utf-8", newline="") as file:
        rows = [row for row in csv.DictReader(file) if row.get("status") and None not in row]
    return list({tuple(row[key] for key in keys): row for row in rows}.values())


def finished(path: Path, keys: Sequence[str], *, retry: bool) -> set[tuple[str, ...]]:
    """Return the keys of the rows; to `retry`, of those with a number."""
    rows = [row for row in read(path, keys) if row["status"] == "done" or not retry]
    return {tuple(row[key] for key in keys) for row in rows}


def options(description: str, flag: str, choices: Sequence[str]) -> argparse.Namespace:
    """Read the command line of a benchmark that resumes; `flag` limits it to some of its choices."""
    arguments = argparse.ArgumentParser(description=description.splitlines()[0])
    arguments.add_argument("--jobs", type=int, default=2)
    arguments.add_argument(flag, nargs="+", choices=choices, default=choices)
    arguments.add_argument("--quick", action="store_true")
    arguments.add_argument("--retry", action="store_true")
    arguments.add_argument("--figures", action="store_true")
    return arguments.parse_args()


def complete(
    path: Path,
    tasks: Sequence[Any],
    columns: Sequence[str],
    keys: Sequence[str],
    run: Callable[[Any, bool], Iterable[dict[str, Any]]],
    chosen: Any,
    *,
    together: Callable[[Any], Any],
    name: str,
) -> None:
    """Run what the CSV does not have yet: tasks with `cells` and a `cost` in seconds, bundle by bundle.

    Neighbouring tasks with an equal `together` make a bundle, which one process runs; `name` is what people
    call bundles. Rows are written as tasks end.
    """
    from joblib import Parallel, delayed

    begin(path, columns)
    known = finished(path, keys, retry=chosen.retry)
    missing = [task for task in tasks if any(cell.key not in known for cell in task.cells)]
    left = sum(task.cost for task in missing)
    cells = sum(len(task.cells) for task in tasks)
    print(f"{cells} cells in {len(tasks)} tasks; {len(tasks) - len(missing)} tasks are done. Estimate for the "
          f"rest: {left / chosen.jobs / 60:.1f} min with {chosen.jobs} jobs.", flush=True)  # fmt: skip
    bundles = [list(group) for _, group in groupby(missing, key=together)]
    # The long ones first, so that no core idles at the end.
    bundles.sort(key=lambda bundle: -sum(task.cost for task in bundle))
    start, done = time.perf_counter(), 0.0
    work = Parallel(
        n_jobs=chosen.jobs, return_as="generator_unordered", batch_size=1, pre_dispatch="2*n_jobs"
    )
    jobs = (delayed(run_bundle)(bundle, path, columns, run, chosen.quick) for bundle in bundles)
    for number, spent in enumerate(work(jobs), 1):
        done += spent
        passed = time.perf_counter() - start
        rest = passed * (left - done) / max(done, 1e-9)
        print(
            f"{number} of {len(bundles)} {name}, {passed:.0f} s, about {max(rest, 0):.0f} s left", flush=True
        )


def run_bundle(
    bundle: Sequence[Any], path: Path, columns: Sequence[str], run: Callable, quick: bool
) -> float:
    """Run tasks, write a row for each cell, return the estimate that they had."""
    for task in bundle:
        append(path, columns, run(task, quick))
    return sum(task.cost for task in bundle)
