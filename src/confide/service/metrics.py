"""Counters of the service, summed over its workers, as Prometheus text.

What may be counted: that requests came, of which route and with which class of status, and overruns of the
schedule. Never an answer, a label of an answer, a cache hit or k. The public part, without a key, is
constants of the configuration alone: how many others ask, and whether they were refused, is not for other
analysts. The keys of the owner and of the monitor show the counters too, and what is spent and left in all:
under the sparse vector that counts unstable rows of all analysts, which the total covers and no account does.

Each worker owns one file of 8-byte counts in a folder of the service; whoever is asked adds all files up.
A worker that ended leaves its counts behind, so a sum never falls.
"""

from __future__ import annotations

import mmap
import os
import struct
import tempfile
import threading
from collections.abc import Mapping
from pathlib import Path

#: What text of this kind is called.
MEDIA_TYPE = "text/plain; version=0.0.4; charset=utf-8"
ROUTES = ("predict", "budget", "guarantee", "health", "ready", "metrics", "page", "other")
CLASSES = ("2xx", "4xx", "5xx")
#: Rows of requests that fit the schema; overruns of the schedule; requests refused though they fit; late
#: answers to who has no key, which are no overruns.
ROWS, OVERRUNS, REFUSED, STRANGERS = "rows", "overruns", "refused", "strangers"
_NAMES = (*(f"{route} {code}" for route in ROUTES for code in CLASSES), ROWS, OVERRUNS, REFUSED, STRANGERS)
_PLACE = {name: place for place, name in enumerate(_NAMES)}
_COUNT = struct.Struct("<q")


class Counters:
    """Counts of one worker, and the sums of all that share its folder.

    Parameters
    ----------
    folder : path, optional
        Shared by the workers of a service; default: one of its own, as for one worker.
    """

    def __init__(self, folder: str | os.PathLike[str] | None = None) -> None:
        self._own = tempfile.TemporaryDirectory(prefix="confide-counts-") if folder is None else None
        self.folder = Path(self._own.name if self._own is not None else os.fspath(folder or ""))
        size = _COUNT.size * len(_NAMES)
        handle, _ = tempfile.mkstemp(".counts", f"{os.getpid()}-", self.folder)
        try:
            os.ftruncate(handle, size)
            self._map = mmap.mmap(handle, size)
        finally:
            os.close(handle)
        self._lock = threading.Lock()

    def add(self, name: str, count: int = 1) -> None:
        """Count."""
        place = _PLACE[name] * _COUNT.size
        with self._lock:
            _COUNT.pack_into(self._map, place, _COUNT.unpack_from(self._map, place)[0] + count)

    def request(self, route: str, status: int) -> None:
        """Count one request by what it asked for and by the class of its status."""
        code = "2xx" if status < 400 else "4xx" if status < 500 else "5xx"
        self.add(f"{route if route in ROUTES else 'other'} {code}")

    def sums(self) -> dict[str, int]:
        """Return the counts of all workers."""
        totals = [0] * len(_NAMES)
        for path in self.folder.glob("*.counts"):
            held = path.read_bytes()
            if len(held) == _COUNT.size * len(_NAMES):
                for place, (count,) in enumerate(_COUNT.iter_unpack(held)):
                    totals[place] += count
        return dict(zip(_NAMES, totals))


def exposition(
    facts: Mapping[str, str], constants: Mapping[str, float], counts: Mapping[str, int] | None
) -> str:
    """Return Prometheus text.

    Parameters
    ----------
    facts : mapping
        Labels of ``confide_info``: public words of the configuration.
    constants : mapping
        Name -> public number of the configuration.
    counts : mapping, optional
        What `Counters.sums` returned; None: not shown.
    """
    labels = ",".join(f'{key}="{_escaped(value)}"' for key, value in sorted(facts.items()))
    lines = [
        "# HELP confide_info What is served; public.",
        "# TYPE confide_info gauge",
        f"confide_info{{{labels}}} 1",
    ]
    for name, value in constants.items():
        lines += [
            f"# HELP confide_{name} {_MEANING[name]}",
            f"# TYPE confide_{name} gauge",
            f"confide_{name} {float(value)!r}",
        ]
    if counts is not None:
        lines += [
            "# HELP confide_requests_total Requests by route and class of status.",
            "# TYPE confide_requests_total counter",
        ]
        for route in ROUTES:
            lines += [
                f'confide_requests_total{{route="{route}",status="{code}"}} {counts[f"{route} {code}"]}'
                for code in CLASSES
            ]
        lines += [
            "# HELP confide_rows_total Rows of well-formed requests.",
            "# TYPE confide_rows_total counter",
            f"confide_rows_total {counts[ROWS]}",
            "# HELP confide_schedule_overruns_total Answers that left after their public time.",
            "# TYPE confide_schedule_overruns_total counter",
            f"confide_schedule_overruns_total {counts[OVERRUNS]}",
            "# HELP confide_schedule_late_without_key_total Late answers to requests without a known key.",
            "# TYPE confide_schedule_late_without_key_total counter",
            f"confide_schedule_late_without_key_total {counts[STRANGERS]}",
            "# HELP confide_refused_total Well-formed requests that were refused.",
            "# TYPE confide_refused_total counter",
            f"confide_refused_total {counts[REFUSED]}",
        ]
    return "\n".join(lines) + "\n"


_MEANING = {
    "answer_epsilon": "Epsilon of one answer, or of one epoch of sparse_vector.",
    "answer_delta": "Delta of one answer, or of one epoch of sparse_vector.",
    "schedule_step_seconds": "Step of the public answer schedule.",
    "schedule_row_seconds": "Time granted to each row.",
    "start_time_seconds": "When the service started, since the epoch of Unix.",
    "total_epsilon_spent": "Epsilon that the ledger has spent in all.",
    "total_epsilon_left": "Epsilon that is left of the ledger's total; under zCDP, of what is left of rho.",
    "total_delta_spent": "Delta that the ledger has spent in all; under zCDP the one its epsilons are for.",
    "total_rho_spent": "Rho that the ledger has spent in all.",
    "total_rho_left": "Rho that is left of the ledger's total.",
}


def _escaped(value: str) -> str:
    return value.replace("\\", r"\\").replace('"', r"\"").replace("\n", " ")
