"""The sparse vector over a store: an epoch is paid when it opens, and its secret moves on with each request.

Each analyst has epochs of its own, so that an account bounds what its analyst learns from its answers, and
nobody can see in what it pays whether another's query was unstable. But what the total has spent counts all
epochs, and how many there were depends on the table, by way of which queries were unstable. That is a
function of answers that the total paid for, so it is within the total; it is within no account. Who sees the
total sees it: owner and monitor, and an analyst whose account covers what the total refuses. Where the limits
add up to the total at most there is no such analyst (`Service.overbooked`).

The secret state (threshold noise, threshold, count) is kept with the ledger's secrets: its keyed hash stands
in the chain, exports and listings leave it out. A row says which entry pays for the open epoch of an analyst
and which entry kept its state last.

An epoch belongs to a *place*: a random name in a file beside the counters, locked by the process that uses
it. A restarted process takes the same place and goes on with its epochs; a second one finds it locked and
gets another, whose epochs are its own. Beside the place lies a witness: the last entry of the chain that
carried an answer of this place. It is written before an answer leaves. A chain that does not hold it was
restored from a backup; the epochs in it may have ended since, so all of the place are dropped, and their
secrets overwritten. Another worker may have told what ended our epoch, after a crash of ours before the
witness was written: so the chain must hold the witnesses of all workers in the folder.

==============================================  ========================================================
event                                           what becomes of the epoch
==============================================  ========================================================
restart of the process                          goes on
a second worker; another host; no state folder  opens and pays its own
a backup restored, counter deleted by the owner dropped; the next new query pays another
secret missing, damaged or not the last kept    as above
crash between commit and answer                 goes on; the request id gives the answer that was stored
witness lost                                    as for a backup
crash before the witness, its answer told by    as for a backup: the other worker's witness shows it
another worker, then a backup restored
the witness cannot be written                   all witnesses of the folder are removed: as above
an unstable query                               ended; the next new query pays another
the budget refuses an epoch within a request    the rows before it are answered, the others unanswered
the same, where unstable rows are answered      refused as a whole before anything is drawn: it must cover
                                                every epoch that may open and every row that may be unstable
an unstable row that is answered (``then``)     ends its epoch as any; epoch and answer are charged apart, in
                                                the transaction that writes both; noise is drawn for all rows
==============================================  ========================================================
"""

from __future__ import annotations

import fcntl
import json
import os
import secrets
import threading
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from confide.errors import BudgetError, LedgerError, ParameterError
from confide.ledger import chain
from confide.ledger.budget import add
from confide.ledger.chain import Mark
from confide.ledger.counter import Counter
from confide.ledger.operations import Keep
from confide.ledger.session import Dataset, Session
from confide.mechanisms.above_threshold import SparseVector, split_epoch, stable_threshold
from confide.mechanisms.stream import RandomStream
from confide.service.answering import UNANSWERED, UNSTABLE, Asked, Drawing, Told, drawing
from confide.service.cache import Shelf
from confide.service.config import ServiceConfig
from confide.service.terms import Terms, check

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from confide.ledger.store import Store

#: Distances past this one say nothing more, and cannot overflow with their noise.
_FAR = 1 << 61
_EPOCH = (
    "SELECT sequence, hash, kept FROM confide_service_epoch "
    "WHERE dataset_id = ? AND release = ? AND place = ? AND analyst = ?"
)
_SECRET = "SELECT secret FROM confide_secret WHERE dataset_id = ? AND sequence = ?"
_ENTRY = "SELECT hash FROM confide_entry WHERE dataset_id = ? AND sequence = ?"
_KEPT = "SELECT body FROM confide_entry WHERE dataset_id = ? AND sequence = ?"
_SET = (
    "INSERT INTO confide_service_epoch (dataset_id, release, place, analyst, sequence, hash, kept) "
    "VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT (dataset_id, release, place, analyst) "
    "DO UPDATE SET sequence = excluded.sequence, hash = excluded.hash, kept = excluded.kept"
)
_DROPPED = "SELECT sequence, hash FROM confide_service_epoch WHERE dataset_id = ? AND place = ?"
_DROP = "DELETE FROM confide_service_epoch WHERE dataset_id = ? AND place = ?"
_PLACES = 1024


class Sight(NamedTuple):
    """A view of the store that writes nothing, and the head of the chain in it."""

    store: Store
    connection: Connection
    dataset: Dataset
    start: Mark


class Place:
    """Whose epochs are ours: see the module.

    Parameters
    ----------
    directory : Path or None
        Of the ledger's counters. None: every process is a new place, and its epochs end with it.
    ledger_id : str

    Attributes
    ----------
    name : str
        Random; of this process alone while it lives.
    """

    def __init__(self, directory: Path | None, ledger_id: str) -> None:
        self._directory, self._ledger_id = directory, ledger_id
        self._lock = threading.Lock()
        self._take()

    def _take(self) -> None:
        self._pid = os.getpid()
        self._witness: Counter | None = None
        self._checked = False
        self._pending: Mark | None = None
        self._file: Any = None
        self.name = secrets.token_hex(16)
        if self._directory is None:
            return
        with suppress(OSError):
            self._directory.mkdir(parents=True, exist_ok=True, mode=0o700)
            for number in range(_PLACES):
                stem = f"{self._ledger_id}.worker{number}"
                if self._lock_file(self._directory / f"{stem}.place"):
                    self._witness = Counter(self._directory, stem)
                    return

    def _lock_file(self, path: Path) -> bool:
        """Take a place if nobody has it; read its name, or write ours."""
        file = os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600), "r+")
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            file.close()
            return False
        known = file.read(64).strip()
        if len(known) == 32 and known.isalnum():
            self.name = known
        else:
            file.seek(0)
            file.truncate()
            file.write(self.name)
            file.flush()
        self._file = file
        return True

    def enter(self, session: Session) -> str:
        """Return the place's name; at a process's first transaction drop epochs of another history."""
        with self._lock:
            if self._pid != os.getpid():  # a fork has its parent's lock, but is another worker
                self._file = None
                self._take()
            self._checked = self._checked or self._told(session)
            if not self._checked and (Place, self.name) not in session.shelf:
                session.shelf[(Place, self.name)] = True
                whole = self._whole(session)
                if not whole:  # of another history: what comes is witnessed anew, by every worker
                    self._remove_witnesses()
                if not whole or self._witness is None or self._witness.read() is None:
                    self._drop(session)
            return self.name

    def keeps(self, sight: Sight) -> bool:
        """Return whether `enter` would go on with the epochs of this place; changes nothing."""
        with self._lock:
            if self._pid != os.getpid():
                return False
            if self._checked or self._told(sight):
                return True
            return self._whole(sight) and self._witness is not None and self._witness.read() is not None

    def _told(self, session: Session | Sight) -> bool:
        """Whether the chain holds what this process left in it."""
        return self._pending is not None and _holds(session, self._pending)

    def _whole(self, session: Session | Sight) -> bool:
        """Whether the chain holds what any worker of this folder has told."""
        marks = []
        for path in self._witnesses():
            counter = Counter(path.parent, path.name.removesuffix(".counter"))
            marks.append(counter.read())
            counter.close()
        return all(mark is not None and _holds(session, mark) for mark in marks)

    def _witnesses(self) -> list[Path]:
        if self._directory is None:
            return []
        return sorted(self._directory.glob(f"{self._ledger_id}.worker*.counter"))

    def _remove_witnesses(self) -> None:
        for path in self._witnesses():
            with suppress(OSError):
                path.unlink()

    def _drop(self, session: Session) -> None:
        """Forget the epochs of this place, and their secrets."""
        store, connection, place = session.store, session.connection, (session.dataset.id, self.name)
        for sequence, hash_ in store.rows(connection, _DROPPED, place):
            with suppress(LedgerError):  # an entry that is not there has no secret that could be used
                Keep(sequence, hash_, b"").apply(session)
        store.execute(connection, _DROP, place)

    def leave(self, session: Session) -> Mark:
        """Return the head of the chain as it is now: once it is committed, so is what `enter` decided."""
        mark = Mark(session.sequence, session.hash)
        if session.sequence > session.start.sequence:
            self._pending = mark
        return mark

    def witness(self, mark: Mark) -> None:
        """Note, before an answer leaves, an entry that the chain must hold from now on."""
        if self._witness is None:
            return
        if not self._witness.advance(mark):
            # No process must take up what this one, or another one's answer told here, went on with.
            self._remove_witnesses()

    def close(self) -> None:
        """Give the place up."""
        with self._lock:
            if self._witness is not None:
                self._witness.close()
            if self._file is not None and self._pid == os.getpid():
                self._file.close()
                self._file = None


def _holds(session: Session | Sight, mark: Mark) -> bool:
    if mark == session.start:
        return True
    row = session.store.row(session.connection, _ENTRY, (session.dataset.id, mark.sequence))
    return row is not None and row[0] == mark.hash


@dataclass(slots=True, eq=False)
class Epoch:
    """An analyst's open epoch inside a session: its state, and the entry that pays for it."""

    vector: SparseVector
    paid: Mark | None  #: None: opened in this request, not yet written


@dataclass(slots=True, eq=False)
class AskStable(Asked):
    """A request answered by the sparse vector."""

    place: Place
    threshold: int
    then: Drawing | None  #: answers unstable rows

    def decide(self, session: Session) -> tuple[Told, Mark]:
        """See `Asked`; also return the entry to witness."""
        shelf, before = self.begin(session)
        place = self.place.enter(session)
        if before is not None:
            return before, self.place.leave(session)
        name, terms = self.analyst.name, self.terms
        new: dict[bytes, int] = {}
        for row, query in enumerate(self.queries):  # names are this analyst's own: told is told to it
            if query not in new and shelf.told(query) is None:
                new[query] = row
        epochs = _Epochs(self, session, shelf, place)
        if new:
            epochs.begin(len(new))
        instead = [UNSTABLE] * len(self.queries)
        if self.then is not None:  # for all rows, whichever are unstable
            with drawing():
                instead = self.then.draw(self.labels, self.k, self.stream).tolist()
        answers = epochs.answer([int(self.k[row]) for row in new.values()])
        for (query, row), stable in zip(new.items(), answers, strict=False):
            shelf.tell(query, name, int(self.labels[row]) if stable else instead[row])
        known = [shelf.told(query) for query in self.queries]
        values = np.array([UNANSWERED if item is None else item[1] for item in known], dtype=np.int64)
        cost = terms.own(0).vector
        for _ in range(epochs.opened):
            cost = tuple(map(add, cost, terms.own(1).vector))
        unstable = answers.count(False)
        if self.then is not None and unstable:
            cost = tuple(map(add, cost, terms.charge_unstable(session, name, unstable)))
        told = self.finish(session, shelf, values, cost, epochs.opened, len(answers))
        return told, self.place.leave(session)


class _Epochs:
    """The epochs of one request."""

    def __init__(self, ask: AskStable, session: Session, shelf: Shelf, place: str) -> None:
        self.ask, self.session, self.shelf, self.place = ask, session, shelf, place
        self.opened = 0
        self._epoch: Epoch | None = None

    def begin(self, count: int) -> None:
        """Take up the open epoch; where unstable rows are answered, see that the worst case is covered.

        Raises
        ------
        BudgetError
            If the account or the total does not cover the most that `count` new rows may cost.
        """
        self._epoch = self._resume()
        ask, held = self.ask, self._epoch is not None
        if ask.then is None:
            return
        most = ask.terms.config.epochs
        worst = ask.terms.worst(min(most, count - held), min(most + held, count))
        check(self.session, ask.analyst.name, worst, worst, "may cost")

    def answer(self, distances: list[int]) -> list[bool]:
        """Answer queries in order, as far as epochs last.

        Raises
        ------
        BudgetError
            If no epoch is open and none can be paid: before anything is drawn.
        """
        told: list[bool] = []
        epoch = self._epoch
        while len(told) < len(distances):
            payment = None
            if epoch is None:
                if self.opened == self.ask.terms.config.epochs:
                    break
                try:
                    payment = self.ask.terms.charge(self.session, self.shelf, self.ask.analyst.name, 1, 1)
                except BudgetError:
                    if not told:
                        raise
                    break
                epoch = Epoch(self._open(), None)
                self.opened += 1
            with drawing():
                rest = [min(k, _FAR) for k in distances[len(told) :]]
                told += epoch.vector.above_many(rest)
            self._keep(epoch, payment)
            if not epoch.vector.open:
                epoch = None
        return told

    def _open(self) -> SparseVector:
        ask = self.ask
        with drawing():
            return SparseVector(ask.threshold, *split_epoch(ask.terms.config.epsilon), stream=ask.stream)

    def _keep(self, epoch: Epoch, payment: Any) -> None:
        """Write the state with the charge that opens the epoch, or as an entry of its own."""
        session, state = self.session, epoch.vector.to_bytes()
        if payment is not None:
            paid = payment.apply(session, self.shelf, state)
        else:
            assert epoch.paid is not None
            paid = epoch.paid
            Keep(paid.sequence, paid.hash, state).apply(session)
        kept = Mark(session.sequence, session.hash)
        row = (self.ask.terms.names.release, self.place, self.ask.analyst.name)
        session.shelf[(Epoch, *row)] = Epoch(epoch.vector, paid) if epoch.vector.open else None
        values = (session.dataset.id, *row, paid.sequence, paid.hash, kept.sequence)
        session.statements.append((_SET, values))

    def _resume(self) -> Epoch | None:
        """Return the open epoch of this analyst at this place, if its state is the last one kept."""
        session, ask = self.session, self.ask
        row = (ask.terms.names.release, self.place, ask.analyst.name)
        if (Epoch, *row) in session.shelf:
            return session.shelf[(Epoch, *row)]
        store, number = session.store, session.dataset.id
        found = store.row(session.connection, _EPOCH, (number, *row))
        if found is None:
            return None
        paid = Mark(found[0], found[1])
        secret = store.row(session.connection, _SECRET, (number, paid.sequence))
        kept = session.entry("sequence", found[2])
        if secret is None or kept is None or kept[1].get("of", kept[0]) != paid.sequence:
            return None
        mac = kept[1].get("secret")
        vector = _taken_up(
            session.dataset, ask.terms, ask.threshold, ask.stream, paid.sequence, secret[0], mac
        )
        return None if vector is None else Epoch(vector, paid)


def _taken_up(
    dataset: Dataset,
    terms: Terms,
    threshold: int,
    stream: RandomStream,
    paid: int,
    secret: bytes,
    mac: object,
) -> SparseVector | None:
    """Return the open epoch that a secret is the state of; None where it was changed, or has ended."""
    state = bytes(secret)
    if mac != chain.secret_mac(dataset.tag_key, paid, state):
        return None
    try:
        vector = SparseVector.from_bytes(state, stream=stream)
    except ParameterError:
        return None
    same = vector.threshold == threshold and vector.epsilon == terms.config.epsilon
    return vector if vector.open and same else None


def held(sight: Sight, terms: Terms, place: Place, threshold: int, analyst: str) -> bool:
    """Return whether the next question of an analyst, asked here, would be asked in an open epoch."""
    store, connection, dataset, _ = sight
    if not place.keeps(sight):
        return False
    found = store.row(connection, _EPOCH, (dataset.id, terms.names.release, place.name, analyst))
    if found is None:
        return False
    secret = store.row(connection, _SECRET, (dataset.id, found[0]))
    entry = store.row(connection, _KEPT, (dataset.id, found[2]))
    if secret is None or entry is None:
        return False
    fields = json.loads(entry[0])
    if fields.get("of", found[2]) != found[0]:
        return False
    mac = fields.get("secret")
    return _taken_up(dataset, terms, threshold, stream_of(), found[0], secret[0], mac) is not None


def threshold_of(config: ServiceConfig) -> int:
    """Return the public threshold of an epoch."""
    return stable_threshold(config.delta, *split_epoch(config.epsilon))


def stream_of() -> RandomStream:
    """Return the operating system's stream: the only one that a service draws from."""
    from confide.mechanisms.stream import os_stream

    return os_stream()
