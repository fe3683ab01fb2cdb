"""Rows of prediction_paper.csv by their key."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

from _prediction_paper_cells import KEYS, SETS
from _resume import read

CERTIFICATES = {
    "boxes": "boxes, one step",
    "boxes random start": "boxes, one step, random start",
    "boxes mlp": "boxes, 16 hidden units, two steps",
    "ball": "ball",
    "erm": "strongly convex ERM",
    "votes": "nearest neighbours",
    "teachers": "teachers",
}
RELEASE_NAMES = {
    "response": "response",
    "sparse_vector": "sparse vector",
    "ptr": "propose-test-release",
    "cauchy": "Cauchy (paper)",
    "laplace": "Laplace (paper)",
    "global": "randomised response",
}


@dataclass(frozen=True)
class Row:
    """What a cell measured; NaN where it has no number."""

    fields: dict[str, str]

    def number(self, name: str) -> float:
        text = self.fields.get(name, "")
        return float(text) if text else math.nan

    @property
    def accuracy(self) -> float:
        return self.number("accuracy")

    @property
    def error(self) -> float:
        return self.number("error")

    @property
    def nominal(self) -> float:
        return self.number("nominal")

    @property
    def quantiles(self) -> list[float]:
        """Of k, at the shares of `_prediction_paper_cells.SHARES`."""
        text = self.fields.get("quantiles", "")
        return [float(part) for part in text.split(";")] if text else []

    @property
    def median(self) -> float:
        return self.quantiles[4] if self.quantiles else math.nan

    def __str__(self) -> str:
        return f"{self.accuracy:.4f} ± {self.error:.4f}" if math.isfinite(self.accuracy) else "not there"


class Table:
    """All rows."""

    def __init__(self, path: Path) -> None:
        self.rows = {tuple(row[key] for key in KEYS): Row(row) for row in read(path, KEYS)}

    def get(
        self, study: str, data: str, certificate: str, release: str, epsilon: float, queries: int = 1,
        members: int = 1, epochs: int | None = None,
    ) -> Row:  # fmt: skip
        """Return a row; without numbers where there is none. The sparse vector has ten epochs."""
        if epochs is None:
            epochs = 10 if release == "sparse_vector" else 0
        key = (study, data, certificate, members, release, epsilon, queries, epochs)
        return self.rows.get(tuple(map(str, key)), Row({}))

    def trained(self, data: str, method: str, epsilon: float = math.inf) -> Row:
        return self.get("trained", data, "none", method, epsilon, 0)

    def sets(self, study: str) -> list[str]:
        found = {
            key[1] for key, row in self.rows.items() if key[0] == study and row.fields["status"] == "done"
        }
        return [name for name in SETS if name in found]

    def certificates(self, study: str, data: str) -> list[str]:
        found = {key[2] for key in self.rows if key[:2] == (study, data)}
        return [name for name in CERTIFICATES if name in found]

    def lost(self) -> list[tuple[tuple[str, ...], str]]:
        return [
            (key, row.fields["status"]) for key, row in self.rows.items() if row.fields["status"] != "done"
        ]

    def best(self, study: str, data: str, release: str, epsilon: float, queries: int = 1) -> tuple[str, Row]:
        """Return the certificate of the highest accuracy, seen in hindsight."""
        cases = [(name, self.get(study, data, name, release, epsilon, queries)) for name in CERTIFICATES]
        known = [case for case in cases if math.isfinite(case[1].accuracy)]
        return max(known, key=lambda case: case[1].accuracy, default=("none", Row({})))
