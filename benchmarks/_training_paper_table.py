"""Means of the runs of training_paper.py, from its CSV alone."""

from __future__ import annotations

import csv
import math
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from _resume import read
from _training_paper_cells import KEYS

Name = tuple[str, str, str, str, float]


@dataclass(frozen=True)
class Result:
    """Test errors of the runs of one method on one set at one epsilon."""

    errors: tuple[float, ...]
    status: str
    row: dict[str, str]

    @property
    def mean(self) -> float:
        return float(np.mean(self.errors)) if self.errors else math.nan

    @property
    def deviation(self) -> float:
        return float(np.std(self.errors, ddof=1)) if len(self.errors) > 1 else math.nan


class Table:
    """All results, by study, set, method, parameters and epsilon."""

    def __init__(self, path: Path) -> None:
        grouped: dict[Name, list[dict[str, str]]] = {}
        for row in read(path, KEYS):
            name = (row["study"], row["data"], row["method"], row["parameters"], float(row["epsilon"]))
            grouped.setdefault(name, []).append(row)
        self.results = {name: _result(rows) for name, rows in grouped.items()}

    def get(self, study: str, data: str, method: str, parameters: str, epsilon: float) -> Result:
        return self.results.get((study, data, method, parameters, epsilon), Result((), "not there", {}))

    def mean(self, study: str, data: str, method: str, parameters: str, epsilon: float) -> float:
        return self.get(study, data, method, parameters, epsilon).mean

    def ratio(self, above: Name, below: Name) -> tuple[float, float]:
        """Return the ratio of two means, and the standard error that its paired runs give it."""
        a, b = (np.array(self.get(*name).errors) for name in (above, below))
        if not a.size or not b.size:
            return math.nan, math.nan
        value = float(a.mean() / b.mean())
        if a.size != b.size or a.size < 2:
            return value, math.nan
        return value, float(np.std(a - value * b, ddof=1) / b.mean() / math.sqrt(a.size))

    def names(self, study: str, place: int) -> list:
        """Return the values of a field of the names, in the order of the plan."""
        found = {name[place] for name in self.results if name[0] == study}
        return sorted(found, key=_order) if place == 1 else sorted(found)

    def write(self, path: Path) -> None:
        """Write means and deviations."""
        with path.open("w", encoding="utf-8", newline="") as file:
            out = csv.writer(file, lineterminator="\n")
            out.writerow(
                ["study", "data", "method", "parameters", "epsilon", "mean", "deviation", "runs", "status"]
            )
            for name, found in sorted(
                self.results.items(), key=lambda item: (item[0][0], _order(item[0][1]), item[0])
            ):
                numbers = [
                    f"{value:.6g}" if value == value else "" for value in (found.mean, found.deviation)
                ]
                out.writerow([*name, *numbers, len(found.errors), found.status])


def _result(rows: list[dict[str, str]]) -> Result:
    errors = tuple(float(row["mse"]) for row in rows if row["status"] == "done")
    lost = [row["status"] for row in rows if row["status"] != "done"]
    return Result(errors, lost[0] if lost else "done", rows[0])


def _order(name: str) -> tuple:
    from _training_paper_cells import SHAPES

    order = list(SHAPES)
    return (order.index(name), 0.0) if name in order else (len(order), float(name))


def best(values: Iterable[float]) -> float:
    """Return the least finite value; NaN if there is none."""
    known = [value for value in values if value == value]
    return min(known, default=math.nan)
