"""Writing: what happens inside one transaction on one dataset's chain.

A `Session` holds the locked head of the chain, decides operations one after the other in memory and
writes all of their entries at once. Operations of threads that wait for the same dataset are joined into
one transaction by whichever thread gets the lock (`run`), so that durability costs one commit a group and
not one a charge. Each operation is accepted or refused by itself, in order; a refusal writes nothing.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Sequence
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from confide.errors import ConfideError, LedgerError
from confide.ledger import chain
from confide.ledger.budget import Budget, Vector, parse, text
from confide.ledger.chain import Mark
from confide.ledger.counter import remember_place

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from confide.ledger.counter import Counter
    from confide.ledger.store import Store

#: At most this many operations share a transaction.
GROUP = 1000

_UNKNOWN = -1
_HEAD = "SELECT sequence, hash, spent FROM confide_head WHERE dataset_id = ?"
_INSERT = (
    "INSERT INTO confide_entry (dataset_id, sequence, kind, request, settles, analyst, body, hash) "
    "VALUES (?, ?, ?, ?, ?, ?, ?, ?)"
)
_HASH = "SELECT hash FROM confide_entry WHERE dataset_id = ? AND sequence = ?"
_KEYS = 200
# One index look-up a key: PostgreSQL plans "request IN (...)" on a small table as a scan of the whole
# dataset, and goes on with that plan when the table has grown.
_KNOWN = (
    f"SELECT column1 FROM (VALUES {', '.join(['(?)'] * _KEYS)}) AS keys WHERE "
    "(SELECT sequence FROM confide_entry WHERE dataset_id = ? AND request = column1) IS NOT NULL"
)
_LAST = "SELECT body, hash FROM confide_entry WHERE dataset_id = ? AND sequence = ?"
_ACCOUNT = (
    "SELECT body, hash FROM confide_entry WHERE dataset_id = ? AND analyst = ? ORDER BY sequence DESC LIMIT 1"
)
_BODY = "SELECT sequence, body, hash FROM confide_entry WHERE dataset_id = ? AND "


class Dataset(NamedTuple):
    """The immutable row of one dataset in a store."""

    id: int
    name: str
    ledger_id: str
    budget: Budget
    tag_key: bytes


class Account:
    """An analyst's limits and spending, inside a session."""

    __slots__ = ("allowed", "new", "spent")

    def __init__(self, allowed: Vector, spent: Vector, new: bool = False) -> None:
        self.allowed, self.spent, self.new = allowed, spent, new

    def words(self) -> tuple[str, str]:
        """Return limit and spending as stored."""
        return write_vector(self.allowed), write_vector(self.spent)


class Known:
    """The balances at one place of a chain, as its entries state them."""

    __slots__ = ("accounts", "mark", "spent", "version")

    def __init__(self, mark: Mark, spent: str) -> None:
        self.mark, self.spent = mark, spent
        self.accounts: dict[str, tuple[str, str]] = {}
        self.version = _UNKNOWN


class Operation(Protocol):
    """Something that appends to the chain, or raises a `ConfideError` before it changed the session.

    A kind of operation may have a static method ``gather(session, operations)``: called once a transaction,
    before any of them is applied, to read for all of them at once.
    """

    def apply(self, session: Session) -> Any:
        """Decide; append entries; return the caller's result."""
        ...


def write_vector(vector: Vector) -> str:
    """Return a balance as stored text."""
    return " ".join(map(text, vector))


def read_vector(stored: str) -> Vector:
    """Return the balance that `write_vector` wrote."""
    return tuple(parse(part) for part in stored.split())


class Session:
    """One transaction on one dataset: the head is locked from construction to the end."""

    def __init__(
        self, store: Store, connection: Connection, dataset: Dataset, directory: Path | None
    ) -> None:
        self.store, self.connection, self.dataset = store, connection, dataset
        row = store.row(connection, _HEAD if store.sqlite else f"{_HEAD} FOR UPDATE", (dataset.id,))
        if row is None:
            raise LedgerError(f"The balance of dataset {dataset.name!r} is missing.", "Restore the store.")
        self.start = Mark(row[0], row[1])
        self.sequence, self.hash = self.start
        self.spent, self.words = read_vector(row[2]), row[2]
        self.time = chain.now()
        self.counter = None if directory is None else store.counter(directory, dataset.ledger_id)
        check_seen(store, connection, dataset, self.start, seen_before(store, dataset, self.counter))
        known = store.known.get(dataset.ledger_id)
        if known is None or known.mark != self.start:  # others wrote: ask the chain
            known = Known(self.start, stated_total(store, connection, dataset, self.start))
        if known.spent != self.words:
            raise unbalanced(dataset)
        self._known = known
        self._accounts: dict[str, Account] = {}
        self._touched: set[str] = set()
        self._rows: list[tuple] = []
        self._versions: list[tuple[str, str]] | None = None
        self.requests: dict[str, int] = {}
        self._unused: set[str] = set()
        self.settled: dict[int, int] = {}
        self.secrets: list[tuple[int, int, bytes]] = []
        self.statements: list[tuple[str, tuple]] = []
        #: What operations of a room above share within this transaction, by a key of its own.
        self.shelf: dict[Any, Any] = {}
        #: Called before the commit: writes of a room above to tables of its own, all or none with ours.
        self.at_end: list[Callable[[], None]] = []

    def append(
        self, kind: str, fields: dict[str, Any], *, settles: int | None = None, analyst: str | None = None
    ) -> Mark:
        """Append an entry of any kind; `analyst` is whose account it changed."""
        account = None
        if analyst is not None:
            account = dict(zip(("allowed", "spent"), self._accounts[analyst].words()))
        fields = {**fields, "account": account, "spent": self.words}
        body = chain.entry_body(kind, self.sequence + 1, self.hash, fields)
        return self.append_body(kind, body, None, settles, analyst)

    def append_body(
        self,
        kind: str,
        body: str,
        request: str | None,
        settles: int | None = None,
        analyst: str | None = None,
    ) -> Mark:
        """Append an entry whose canonical body holds the next sequence number and our hash."""
        self.sequence += 1
        self.hash = sha256(body.encode("ascii")).hexdigest()
        self._rows.append((self.dataset.id, self.sequence, kind, request, settles, analyst, body, self.hash))
        if settles is not None:
            self.settled[settles] = self.sequence
        return Mark(self.sequence, self.hash)

    def account(self, name: str) -> Account | None:
        """Return an analyst's account, or None."""
        found = self._accounts.get(name)
        if found is None:
            row = self.store.row(
                self.connection,
                "SELECT allowed, spent FROM confide_account WHERE dataset_id = ? AND name = ?",
                (self.dataset.id, name),
            )
            stored = None if row is None else (row[0], row[1])
            stated = self._known.accounts.get(name)
            if stated is None:
                stated = stated_account(self.store, self.connection, self.dataset, name)
            if stored != stated:
                raise unbalanced(self.dataset, name)
            if stored is None:
                return None
            found = self._accounts[name] = Account(read_vector(stored[0]), read_vector(stored[1]))
        return found

    def set_account(self, name: str, account: Account) -> None:
        """Store an account at the end of the session."""
        self._accounts[name] = account
        self._touched.add(name)

    def versions(self) -> list[tuple[str, str]]:
        """Return (schema digest, content tag) of each version, in order; grows with the session."""
        if self._versions is None:
            self._known.version = _UNKNOWN
            sql = "SELECT schema_digest, tag FROM confide_version WHERE dataset_id = ? ORDER BY version"
            rows = self.store.rows(self.connection, sql, (self.dataset.id,))
            self._versions = [(row[0], row[1]) for row in rows]
        return self._versions

    def last_version(self) -> int | None:
        """Return the number of the newest version of the data, or None where none was bound."""
        if self._versions is not None:
            return len(self._versions) or None
        if self._known.version == _UNKNOWN:
            sql = "SELECT COALESCE(MAX(version), 0) FROM confide_version WHERE dataset_id = ?"
            self._known.version = self.store.row(self.connection, sql, (self.dataset.id,))[0]
        return self._known.version or None

    def remember(self) -> None:
        """Keep the balances of this session, once it is committed, for the next one."""
        known = self._known
        known.mark, known.spent = Mark(self.sequence, self.hash), self.words
        if self._accounts:
            known.accounts.update((name, account.words()) for name, account in self._accounts.items())
        self.store.known[self.dataset.ledger_id] = known

    def entry(self, where: str, value: Any) -> tuple[int, dict[str, Any], str] | None:
        """Return (sequence, fields, hash) of the entry whose column `where` is `value`, if any."""
        if where == "request" and value in self._unused and value not in self.requests:
            return None
        written = {"request": self.requests, "settles": self.settled}.get(where, {value: value})
        sequence = written.get(value)
        if sequence is not None and sequence > self.start.sequence:
            if sequence > self.sequence:
                return None
            row = self._rows[sequence - self.start.sequence - 1]
            return sequence, json.loads(row[-2]), row[-1]
        row = self.store.row(self.connection, f"{_BODY}{where} = ?", (self.dataset.id, value))
        return None if row is None else (row[0], json.loads(row[1]), row[2])

    def look_up(self, requests: Sequence[str]) -> None:
        """Ask once which request keys of a group are new, and not one by one."""
        for start in range(0, len(requests), _KEYS):
            keys = list(requests[start : start + _KEYS])
            keys += keys[-1:] * (_KEYS - len(keys))  # one statement for all lengths: it stays prepared
            rows = self.store.rows(self.connection, _KNOWN, (*keys, self.dataset.id))
            self._unused.update(set(keys) - {row[0] for row in rows})

    def flush(self) -> None:
        """Write everything; the commit follows."""
        for write in self.at_end:
            write()
        if not self._rows:
            return
        store, connection = self.store, self.connection
        store.execute(connection, _INSERT, self._rows[0] if len(self._rows) == 1 else self._rows)
        store.execute(
            connection,
            "UPDATE confide_head SET sequence = ?, hash = ?, spent = ? WHERE dataset_id = ?",
            (self.sequence, self.hash, self.words, self.dataset.id),
        )
        for name in sorted(self._touched):
            account = self._accounts[name]
            values = (*account.words(), self.dataset.id, name)
            if account.new:
                sql = "INSERT INTO confide_account (allowed, spent, dataset_id, name) VALUES (?, ?, ?, ?)"
            else:
                sql = "UPDATE confide_account SET allowed = ?, spent = ? WHERE dataset_id = ? AND name = ?"
            store.execute(connection, sql, values)
        if self.secrets:
            sql = "INSERT INTO confide_secret (dataset_id, sequence, secret) VALUES (?, ?, ?)"
            store.execute(connection, sql, self.secrets[0] if len(self.secrets) == 1 else self.secrets)
        for sql, values in self.statements:
            store.execute(connection, sql, values)


def seen_before(store: Store, dataset: Dataset, counter: Counter | None) -> list[Mark]:
    """Return the places of the chain that this process and the counter have seen.

    A reader must ask *before* its view of the store begins, or another process may commit and advance the
    counter in between; a writer asks once it holds the head.
    """
    marks = (store.marks.get(dataset.ledger_id), None if counter is None else counter.read())
    return [mark for mark in marks if mark is not None]


def check_seen(
    store: Store, connection: Connection, dataset: Dataset, held: Mark, seen: Sequence[Mark]
) -> None:
    """Refuse a chain (whose head is `held`) that lacks a place seen before: `confide.ledger.counter`."""
    for mark in seen:
        if mark == held:
            continue
        if mark.sequence < held.sequence:
            row = store.row(connection, _HASH, (dataset.id, mark.sequence))
            if row is not None and row[0] == mark.hash:
                continue
        raise LedgerError(
            f"The store {store.location} was rolled back or replaced: its chain of dataset {dataset.name!r} "
            f"ends at entry {held.sequence} and does not hold entry {mark.sequence}, which was seen before.",
            "Restore the newer store. To go on with this one, in the knowledge that what it lacks counts as "
            f"unspent, stop all processes and delete "
            f"{dataset.ledger_id}.counter in the folder of counters (CONFIDE_LEDGER_COUNTER).",
        )


def stated_total(store: Store, connection: Connection, dataset: Dataset, head: Mark) -> str:
    """Return what the last entry says was spent in all, as stored text."""
    row = store.row(connection, _LAST, (dataset.id, head.sequence))
    if row is None or row[1] != head.hash:
        raise unbalanced(dataset)
    return _stated(dataset, row)["spent"]


def stated_account(
    store: Store, connection: Connection, dataset: Dataset, name: str
) -> tuple[str, str] | None:
    """Return limit and spending of an account as its last entry states them, or None where there is none."""
    row = store.row(connection, _ACCOUNT, (dataset.id, name))
    if row is None:
        return None
    fields = _stated(dataset, row)
    if fields["analyst"] != name:
        raise unbalanced(dataset, name)
    return fields["account"]["allowed"], fields["account"]["spent"]


def _stated(dataset: Dataset, row: Any) -> dict[str, Any]:
    if chain.digest(row[0]) != row[1]:
        raise unbalanced(dataset)
    return json.loads(row[0])


def unbalanced(dataset: Dataset, analyst: str | None = None) -> LedgerError:
    """Return the error of a stored balance that the chain does not state."""
    whose = "" if analyst is None else f" (analyst {analyst!r})"
    return LedgerError(
        f"The balances of dataset {dataset.name!r}{whose} differ from what its last entry states: the store "
        "was changed past the ledger.",
        "Restore the store; `confide ledger export` shows the entries, which are what counts.",
    )


class _Job:
    __slots__ = ("done", "error", "operation", "result")

    def __init__(self, operation: Operation) -> None:
        self.operation = operation
        self.result: Any = None
        self.error: BaseException | None = None
        self.done = False


def run_all(
    store: Store, dataset: Dataset, directory: Path | None, operations: Sequence[Operation]
) -> list[Any]:
    """Apply `operations` in order in one durable transaction; return results, or the refusals themselves.

    Raises
    ------
    LedgerError
        If the transaction as a whole failed.
    """
    jobs = [_Job(operation) for operation in operations]
    with store.lock:
        failure = _commit(store, dataset, directory, jobs)
    if failure is not None:
        raise failure
    return [job.result if job.error is None else job.error for job in jobs]


def run(store: Store, dataset: Dataset, directory: Path | None, operation: Operation) -> Any:
    """Apply one operation durably, together with those that other threads wait for."""
    job = _Job(operation)
    queue = store.queues.setdefault(dataset.id, deque())
    queue.append(job)
    with store.lock:
        while not job.done:
            batch = []
            while queue and len(batch) < GROUP:
                batch.append(queue.popleft())
            if not batch:  # forked in between: the queue of the child begins empty
                batch = [job]
            _commit(store, dataset, directory, batch)
    if job.error is not None:
        raise job.error
    return job.result


def _commit(
    store: Store, dataset: Dataset, directory: Path | None, jobs: Sequence[_Job]
) -> ConfideError | None:
    try:
        with store.writing() as connection:
            session = Session(store, connection, dataset, directory)
            if len(jobs) > 1:
                keys = (getattr(job.operation, "request", None) for job in jobs)
                session.look_up([key for key in keys if key is not None])
            _gather(session, [job.operation for job in jobs])
            for job in jobs:
                try:
                    job.result = job.operation.apply(session)
                except ConfideError as error:
                    job.error = error
            session.flush()
    except BaseException as error:
        # The outcome may be unknown (an interrupted commit): nobody may go on as if it were charged.
        for job in jobs:
            job.error = error if isinstance(error, ConfideError) else _unknown(store, error)
            job.done = True
        if not isinstance(error, ConfideError):
            raise
        return error
    mark = Mark(session.sequence, session.hash)
    store.marks[dataset.ledger_id] = mark
    session.remember()
    if mark != session.start and session.counter is not None and directory is not None:
        # The charge is durable whatever becomes of its counter; a failure shows in `Ledger.assumptions`.
        session.counter.advance(mark)
        if session.counter.begun:
            session.counter.begun = False
            remember_place(directory, store.location, dataset.name, dataset.ledger_id)
    for job in jobs:
        job.done = True
    return None


def _gather(session: Session, operations: Sequence[Operation]) -> None:
    """Let each kind of operation that has a `gather` read for all of its kind at once."""
    for kind in dict.fromkeys(map(type, operations)):
        gather = getattr(kind, "gather", None)
        if gather is not None:
            gather(session, [operation for operation in operations if type(operation) is kind])


def _unknown(store: Store, error: BaseException) -> LedgerError:
    return LedgerError(
        f"A write to {store.location} was interrupted ({type(error).__name__}).",
        "It may or may not be charged; ask again, and see `confide ledger show`.",
    )
