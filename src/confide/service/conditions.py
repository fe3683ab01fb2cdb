"""What the guarantee rests on beyond one answer: all other charges of the ledger, and answers that were late.

The total covers everything that the chain has paid for, so it rests on the assumptions of every charge in it,
of other rooms and of earlier configurations too. And an answer that left late in the past stays late: the
ledger's store remembers it over restarts.

========================================  ==================================================================
edge case                                 what happens
========================================  ==================================================================
another process charges                   read at the next question; entries that were read are not again
the store was restored from a copy        the entry read last is not in the chain: all of it is read anew
an overrun, then a restart                named for ever, with the number of all and the day of the first
many overruns                             written once a second; a killed process loses a second's count
a store of a version that did not count   "1 answer" and its day, until the next
the store fails as an overrun is written  named by this process; written at the next overrun
========================================  ==================================================================
"""

from __future__ import annotations

import json
import logging
import threading
from typing import TYPE_CHECKING, Any, NamedTuple

from confide.errors import ConfideError
from confide.ledger import chain
from confide.ledger.chain import Mark

if TYPE_CHECKING:
    from confide.ledger.handle import Parts

_log = logging.getLogger("confide.service")

#: Entries of one look at the store: nobody waits for more.
CHUNK = 2000
_ENTRIES = (
    "SELECT sequence, kind, body, hash FROM confide_entry "
    "WHERE dataset_id = ? AND sequence > ? ORDER BY sequence LIMIT ?"
)
_HASH = "SELECT hash FROM confide_entry WHERE dataset_id = ? AND sequence = ?"
_LATE = "SELECT since FROM confide_service_late WHERE dataset_id = ?"
_NOTE = (
    "INSERT INTO confide_service_late (dataset_id, since) VALUES (?, ?) ON CONFLICT (dataset_id) DO NOTHING"
)
_COUNT = (
    "INSERT INTO confide_service_overrun (dataset_id, answers) VALUES (?, ?) ON CONFLICT (dataset_id) "
    "DO UPDATE SET answers = confide_service_overrun.answers + excluded.answers"
)
_COUNTED = "SELECT answers FROM confide_service_overrun WHERE dataset_id = ?"
#: Seconds between two notes of overruns in the store.
BETWEEN = 1.0
_START = Mark(0, chain.GENESIS)


class Conditions:
    """The assumptions of all charges in a ledger's chain. Shared by threads."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._lock = threading.Lock()
        self._forget()

    def _forget(self) -> None:
        self._read = _START
        self._names: dict[str, None] = {}
        self._seen: set[str] = set()

    def names(self) -> tuple[str, ...]:
        """Return the assumptions, in order of their first charge.

        Raises
        ------
        LedgerError
            If the store cannot be read.
        """
        with self._lock:
            while self._more():
                pass
            return tuple(self._names)

    def _more(self) -> bool:
        """Read the next entries; return whether there may be others."""
        store, number = self._parts.store, self._parts.dataset.id
        with store.reading() as connection:
            if self._read != _START:
                row = store.row(connection, _HASH, (number, self._read.sequence))
                if row is None or row[0] != self._read.hash:
                    self._forget()
            rows = store.rows(connection, _ENTRIES, (number, self._read.sequence, CHUNK))
        for sequence, kind, body, hash_ in rows:
            if kind in chain.SPENDING:
                self._add(body)
            self._read = Mark(sequence, hash_)
        return len(rows) == CHUNK

    def _add(self, body: str) -> None:
        # Charges of one kind have one text of guarantee: a million answers are parsed once.
        terms = body[body.find('"guarantee":') : body.rfind(',"kind":')]
        if terms not in self._seen:
            self._seen.add(terms)
            fields: Any = json.loads(body)
            self._names.update(dict.fromkeys(fields["guarantee"]["assumptions"]))


class Late(NamedTuple):
    """Answers that left after their time on the public schedule: how many, and the time of the first."""

    answers: int
    since: str


class Lateness:
    """How many answers of this ledger's services ever left after their time. Shared by threads."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._lock = threading.Lock()
        self._saving = threading.Lock()  #: from a note in the store until it is not ours any more
        self._writer: threading.Thread | None = None
        self._closing = threading.Event()
        self._unwritten = 0
        self._first = ""

    def note(self) -> None:
        """Note an overrun; returns at once, the store is told by a thread."""
        with self._lock:
            self._first = self._first or chain.now()
            self._unwritten += 1
            if self._writer is None:
                # No daemon: a process that ends waits for it.
                self._writer = threading.Thread(target=self._write, name="confide-late")
                self._writer.start()

    def _write(self) -> None:
        while True:
            with self._lock:
                count = self._unwritten
                if not count:
                    self._writer = None
                    return
            with self._saving:
                written = self._add(count)
                with self._lock:
                    self._unwritten -= count if written else 0
                    self._writer = self._writer if written else None
            if not written:
                return
            self._closing.wait(BETWEEN)  # overruns come in crowds, where the store is slow already

    def _add(self, count: int) -> bool:
        """Write `count` more; return whether that went well."""
        store, number = self._parts.store, self._parts.dataset.id
        try:
            with store.writing() as connection:
                store.execute(connection, _NOTE, (number, self._first))
                store.execute(connection, _COUNT, (number, count))
        except ConfideError:
            _log.warning("the store could not note an overrun of the schedule; it is noted at the next")
            return False
        return True

    def ever(self) -> Late | None:
        """Return how many did, in this process or before; None where none did.

        Raises
        ------
        LedgerError
            If the store cannot be read.
        """
        store, number = self._parts.store, self._parts.dataset.id
        with self._saving, store.reading() as connection:
            pending = self._unwritten
            since = store.row(connection, _LATE, (number,))
            counted = store.row(connection, _COUNTED, (number,))
        answers = pending + (0 if counted is None else counted[0])
        if since is None and not pending:
            return None
        # A store of a version that did not count knows only that there was one.
        return Late(max(1, answers), self._first if since is None else since[0])

    def close(self) -> None:
        """Write what is noted, and wait for it."""
        self._closing.set()
        writer = self._writer
        if writer is not None:
            writer.join()
