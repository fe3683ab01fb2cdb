"""What the guarantee rests on beyond one answer: all other charges of the ledger, and answers that were late.

The total covers everything that the chain has paid for, so it rests on the assumptions of every charge in it,
of other rooms and of earlier configurations too. And an answer that left late in the past stays late: the
ledger's store remembers it over restarts.

========================================  ==================================================================
edge case                                 what happens
========================================  ==================================================================
another process charges                   read at the next question; entries that were read are not again
the store was restored from a copy        the entry read last is not in the chain: all of it is read anew
an overrun, then a restart                named for ever; one row of the store
the store fails as an overrun is written  named by this process; written at the next overrun
========================================  ==================================================================
"""

from __future__ import annotations

import json
import logging
import threading
from typing import TYPE_CHECKING, Any

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
_LATE = "SELECT 1 FROM confide_service_late WHERE dataset_id = ?"
_NOTE = (
    "INSERT INTO confide_service_late (dataset_id, since) VALUES (?, ?) ON CONFLICT (dataset_id) DO NOTHING"
)
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


class Lateness:
    """Whether an answer of this ledger's services ever left after its time. Shared by threads."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._lock = threading.Lock()
        self._writer: threading.Thread | None = None
        self._late = self._written = False

    def note(self) -> None:
        """Note an overrun; returns at once, the store is told by a thread."""
        with self._lock:
            self._late = True
            busy = self._writer is not None and self._writer.is_alive()
            if self._written or busy:
                return
            # No daemon: a process that ends waits for it.
            self._writer = threading.Thread(target=self._write, name="confide-late")
            self._writer.start()

    def _write(self) -> None:
        store, number = self._parts.store, self._parts.dataset.id
        try:
            with store.writing() as connection:
                store.execute(connection, _NOTE, (number, chain.now()))
            self._written = True
        except ConfideError:
            _log.warning("the store could not note an overrun of the schedule; it is noted at the next")

    def ever(self) -> bool:
        """Return whether one did, in this process or before.

        Raises
        ------
        LedgerError
            If the store cannot be read.
        """
        if not self._late:
            store, number = self._parts.store, self._parts.dataset.id
            with store.reading() as connection:
                found = store.row(connection, _LATE, (number,)) is not None
            self._late |= found
            self._written |= found
        return self._late

    def close(self) -> None:
        """Wait for what is being written."""
        writer = self._writer
        if writer is not None:
            writer.join()
