"""What one transaction knows and writes of the service's tables: read at its start, written at its end.

All requests that wait together are one group. A `Shelf` reads what they need in a few statements, holds what
they decide, in order, and writes it before the ledger's commit: one fsync for all of them.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from operator import add
from typing import TYPE_CHECKING, Any, NamedTuple

from confide.ledger.session import Session
from confide.service.tables import COUNTS

if TYPE_CHECKING:
    from confide.service.answering import Ask

#: Lengths of IN lists: few, so that statements stay prepared; a list is filled up with its last element.
_LENGTHS = (1, 8, 64, 256)
_REQUEST = (
    "SELECT request, content, answers, cost FROM confide_service_request WHERE dataset_id = ? AND request IN "
)
_QUERY = (
    "SELECT query, analyst, answer FROM confide_service_query "
    "WHERE dataset_id = ? AND (analyst = ? OR first = 1) AND query IN "
)
_KEY = "SELECT prefix FROM confide_service_key WHERE revoked IS NULL AND dataset_id = ? AND prefix IN "
_BLOCK = (
    "SELECT analyst, size, slack, answers_left FROM confide_service_block "
    "WHERE dataset_id = ? AND release = ? AND analyst IN "
)
_NEW_QUERY = (
    "INSERT INTO confide_service_query (dataset_id, query, analyst, first, answer) VALUES (?, ?, ?, ?, ?)"
)
_NEW_REQUEST = (
    "INSERT INTO confide_service_request (dataset_id, request, analyst, content, answers, cost) "
    "VALUES (?, ?, ?, ?, ?, ?)"
)
_SET_BLOCK = (
    "INSERT INTO confide_service_block (dataset_id, release, analyst, size, slack, answers_left) "
    "VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT (dataset_id, release, analyst, size, slack) "
    "DO UPDATE SET answers_left = excluded.answers_left"
)


_SET_MOMENT = (
    "INSERT INTO confide_service_moment (dataset_id, moment, spent) VALUES (?, ?, ?) "
    "ON CONFLICT (dataset_id, moment) DO UPDATE SET spent = excluded.spent"
)
_ADD_COUNTS = (
    f"INSERT INTO confide_service_account (dataset_id, analyst, {', '.join(COUNTS)}) "
    f"VALUES (?, ?{', ?' * len(COUNTS)}) ON CONFLICT (dataset_id, analyst) DO UPDATE SET "
    + ", ".join(f"{name} = confide_service_account.{name} + excluded.{name}" for name in COUNTS)
)
#: Seconds of a moment of the owner's history.
MOMENT = 600


class Record(NamedTuple):
    """A request that was answered: names of what it asked, answers as stored, and its cost as stored."""

    content: bytes
    answers: bytes
    cost: str


class Shelf:
    """The service's part of one session of the ledger."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.requests: dict[bytes, Record] = {}
        self.prefixes: set[str] = set()
        #: Answers by query: who was told, and the answer. All who were told were told the same.
        self._told: dict[bytes, tuple[set[str], int]] = {}
        self._blocks: dict[tuple[bytes, str, int, str], int] = {}
        self._new_queries: list[tuple] = []
        self._new_requests: list[tuple] = []
        self._new_blocks: set[tuple[bytes, str, int, str]] = set()
        self._counts: dict[str, list[int]] = {}
        session.at_end.append(self._write)

    @staticmethod
    def of(session: Session) -> Shelf:
        """Return the session's shelf."""
        if Shelf not in session.shelf:
            session.shelf[Shelf] = Shelf(session)
        return session.shelf[Shelf]

    def load(self, asks: Sequence[Ask]) -> None:
        """Read what a group of requests needs."""
        for row in self._rows(_KEY, (), {ask.analyst.prefix for ask in asks}):
            self.prefixes.add(row[0])
        for row in self._rows(_REQUEST, (), {ask.name for ask in asks}):
            self.requests[bytes(row[0])] = Record(bytes(row[1]), bytes(row[2]), row[3])
        by_analyst: dict[str, set[bytes]] = {}
        for ask in asks:
            by_analyst.setdefault(ask.analyst.name, set()).update(ask.queries)
        for analyst, queries in by_analyst.items():
            for row in self._rows(_QUERY, (analyst,), queries):
                self._told.setdefault(bytes(row[0]), (set(), row[2]))[0].add(row[1])
        for release in {ask.terms.names.release for ask in asks if ask.terms.blocks}:
            for row in self._rows(_BLOCK, (release,), {"", *by_analyst}):
                self._blocks[(release, row[0], row[1], row[2])] = row[3]

    def told(self, query: bytes) -> tuple[set[str], int] | None:
        """Return who was told the answer to a query, as far as this group is concerned, and the answer."""
        return self._told.get(query)

    def tell(self, query: bytes, analyst: str, answer: int) -> None:
        """Write that an analyst is told an answer."""
        known = self._told.get(query)
        first = known is None
        if known is None:
            known = self._told[query] = (set(), answer)
        known[0].add(analyst)
        self._new_queries.append((self.session.dataset.id, query, analyst, int(first), answer))

    def left(self, block: tuple[bytes, str, int, str]) -> int:
        """Return what is left of the open block of (release, analyst or '', size, slack)."""
        return self._blocks.get(block, 0)

    def set_left(self, block: tuple[bytes, str, int, str], left: int) -> None:
        """Write what is left of it."""
        self._blocks[block] = left
        self._new_blocks.add(block)

    def answer(self, name: bytes, record: Record, analyst: str, rows: tuple[int, int, int]) -> None:
        """Write an answered request; `rows` asked, paid and drawn."""
        self.requests[name] = record
        self._new_requests.append((self.session.dataset.id, name, analyst, *record))
        self.count(analyst, (1, *rows, 0))

    def count(self, analyst: str, more: tuple[int, ...]) -> None:
        """Add to an account's counts (`COUNTS`)."""
        known = self._counts.setdefault(analyst, [0] * len(COUNTS))
        known[:] = map(add, known, more)

    def _rows(self, sql: str, before: tuple, wanted: Iterable[Any]) -> Iterable[Any]:
        store, connection, number = self.session.store, self.session.connection, self.session.dataset.id
        values = list(wanted)
        for start in range(0, len(values), _LENGTHS[-1]):
            part = values[start : start + _LENGTHS[-1]]
            length = next(most for most in _LENGTHS if most >= len(part))
            part += part[-1:] * (length - len(part))
            statement = f"{sql}({', '.join('?' * length)})"
            yield from store.rows(connection, statement, (number, *before, *part))

    def _write(self) -> None:
        store, connection = self.session.store, self.session.connection
        self._new_queries.sort()  # neighbours in the index, written together
        for sql, rows in ((_NEW_QUERY, self._new_queries), (_NEW_REQUEST, self._new_requests)):
            if rows:
                store.execute(connection, sql, rows[0] if len(rows) == 1 else rows)
        number = self.session.dataset.id
        for block in sorted(self._new_blocks):
            store.execute(connection, _SET_BLOCK, (number, *block, self._blocks[block]))
        for analyst, counts in sorted(self._counts.items()):
            store.execute(connection, _ADD_COUNTS, (number, analyst, *counts))
        if self._new_queries:
            moment = int(time.time() // MOMENT)
            store.execute(connection, _SET_MOMENT, (number, moment, self.session.words))
