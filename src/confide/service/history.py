"""What the total had spent after each minute: read from the ledger's chain, each entry once a process."""

from __future__ import annotations

import json
import threading
from datetime import UTC, datetime
from fractions import Fraction
from typing import TYPE_CHECKING

from confide.ledger import chain
from confide.ledger.budget import Vector, add, parse

if TYPE_CHECKING:
    from confide.ledger import Ledger

_NEW = (
    "SELECT sequence, kind, body FROM confide_entry WHERE dataset_id = ? AND sequence > ? ORDER BY sequence"
)


class History:
    """The course of a ledger's total.

    Parameters
    ----------
    ledger : Ledger
    """

    def __init__(self, ledger: Ledger) -> None:
        self._parts = ledger.parts()
        self._lock = threading.Lock()
        self._last = 0
        self._total: Vector = tuple(Fraction(0) for _ in self._parts.dataset.budget.names)
        #: Minute, as the chain writes it -> the total after its last charge.
        self._minutes: dict[str, Vector] = {}

    def read(self) -> tuple[tuple[datetime, float], ...]:
        """Return (time, epsilon spent), in order; epsilon is a float, for a picture."""
        store, dataset = self._parts.store, self._parts.dataset
        budget = dataset.budget
        with self._lock:
            with store.reading() as connection:
                result = store.execute(connection, _NEW, (dataset.id, self._last))
                while rows := result.fetchmany(1000):
                    for sequence, kind, body in rows:
                        self._last = sequence
                        if kind in chain.SPENDING:
                            self._add(json.loads(body))
            return tuple(
                (datetime.fromisoformat(minute).replace(tzinfo=UTC), float(budget.spending(total).epsilon))
                for minute, total in self._minutes.items()
            )

    def _add(self, fields: dict) -> None:
        spent = (parse(fields["charge"][name]) for name in self._parts.dataset.budget.names)
        self._total = tuple(map(add, self._total, spent))
        self._minutes[fields["time"][:16]] = self._total
