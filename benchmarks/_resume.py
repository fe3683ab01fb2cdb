"""Cells of a benchmark in a CSV: a run goes on where an earlier one stopped, and no cell can end it."""

from __future__ import annotations

import csv
import io
import os
import signal
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
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
