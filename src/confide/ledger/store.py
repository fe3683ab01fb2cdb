"""The durable store under a ledger: one engine, one connection and one lock a process.

SQLite (write-ahead log, ``synchronous=FULL``, ``BEGIN IMMEDIATE``) and PostgreSQL (row lock on the
dataset's head, ``synchronous_commit=on``) run the same statements, written once below. The connection is
closed before a fork, so that a child never inherits one, and opened again on need on either side.
"""

from __future__ import annotations

import atexit
import fcntl
import os
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from confide.errors import LedgerError, OutOfReachError, ParameterError, UnsupportedError
from confide.ledger.chain import Mark
from confide.ledger.counter import Counter
from confide.ledger.tables import LAYOUT, guard_names, guards, tables

if TYPE_CHECKING:
    from sqlalchemy import URL, Connection, Engine

PATIENCE_SECONDS = 60
_BLOCK = 100
#: Codes of SQLite: no permission, busy, locked, no memory, read-only, a failed read or write, full, no file.
_AWAY = (3, 5, 6, 7, 8, 10, 13, 14)
_ADVISORY_LOCK = 0x436F6E66696465  # "Confide": serialises creation of the tables on PostgreSQL


class Store:
    """One store, shared by all handles of this process on the same URL (`Store.at`).

    Attributes
    ----------
    location : str
        The URL without password, with an absolute path: names the store in messages and counters.
    lock : threading.RLock
        Held during every transaction: a process uses one connection.
    marks : dict of str to Mark
        Last place of each ledger that this process has seen; a store behind it was rolled back.
    """

    def __init__(self, url: URL) -> None:
        self.url = url
        self.sqlite = url.get_backend_name() == "sqlite"
        self.location = without_password(url).render_as_string()
        self.lock = threading.RLock()
        self.marks: dict[str, Mark] = {}
        #: Balances as this process last wrote them, by ledger id (`confide.ledger.session.Known`).
        self.known: dict[str, Any] = {}
        #: Keys as far as this process has read a chain, by ledger id (`confide.ledger.keys`).
        self.keys: dict[str, Any] = {}
        self._counters: dict[tuple[Path, str], Counter] = {}
        self._engine: Engine | None = None
        self._connection: Connection | None = None
        self._driver: Any = None
        self._queue: int | None = None
        self._opened: tuple[int, int] | None = None
        self._pid = os.getpid()
        self._translated: dict[str, str] = {}
        #: Operations that threads of this process wait for, by dataset (`confide.ledger.session`).
        self.queues: dict[int, deque[Any]] = {}

    @staticmethod
    def at(url: str | URL) -> Store:
        """Return this process's store for `url`.

        Raises
        ------
        ParameterError, UnsupportedError
            If `url` names no SQLite file and no PostgreSQL database.
        """
        parsed = normal_url(url)
        key = parsed.render_as_string(hide_password=False)
        with _REGISTRY_LOCK:
            store = _STORES.get(key)
            if store is None and parsed.password is None:
                # Unpickled handles carry no password: use the one this process was given, if any.
                matching = (known for known in _STORES.values() if without_password(known.url) == parsed)
                store = next(matching, None)
            if store is None:
                store = _STORES[key] = Store(parsed)
            if store not in _RECENT:
                _RECENT.append(store)
            return store

    def counter(self, directory: Path, ledger_id: str) -> Counter:
        """Return this process's counter of one ledger."""
        key = (directory, ledger_id)
        if key not in self._counters:
            self._counters[key] = Counter(directory, ledger_id)
        return self._counters[key]

    def execute(self, connection: Connection, sql: str, parameters: Any = ()) -> Any:
        """Run one statement, written with ``?`` for its parameters (a list of tuples: many times).

        Goes to the driver inside SQLAlchemy's connection: four statements a charge through SQLAlchemy's
        result objects would take as long as the durable commit itself.
        """
        if isinstance(parameters, list):
            cursor = self._driver.cursor()
            rest = parameters if self.sqlite else self._insert_blocks(cursor, sql, parameters)
            cursor.executemany(self._dialect(sql), rest)
            return cursor
        return self._driver.execute(self._dialect(sql), parameters)

    def _insert_blocks(self, cursor: Any, sql: str, rows: list[tuple]) -> list[tuple]:
        """Insert full blocks of rows by one statement each, for a server; return the rows that are left."""
        before, _, values = sql.rpartition("VALUES ")
        block = f"{before}VALUES {', '.join([values] * _BLOCK)}"
        full = len(rows) - len(rows) % _BLOCK
        for start in range(0, full, _BLOCK):
            cursor.execute(
                self._dialect(block), [part for row in rows[start : start + _BLOCK] for part in row]
            )
        return rows[full:]

    def rows(self, connection: Connection, sql: str, parameters: tuple = ()) -> Sequence[Any]:
        """Return all rows of a query."""
        return self.execute(connection, sql, parameters).fetchall()

    def row(self, connection: Connection, sql: str, parameters: tuple = ()) -> Any:
        """Return the first row of a query, or None."""
        return self.execute(connection, sql, parameters).fetchone()

    def _dialect(self, sql: str) -> str:
        if self.sqlite:
            return sql
        translated = self._translated.get(sql)
        if translated is None:
            translated = self._translated[sql] = sql.replace("?", "%s")
        return translated

    @contextmanager
    def writing(self) -> Iterator[Connection]:
        """Open a transaction that excludes other writers; durable when the block ends."""
        with self.lock:
            connection = self._connect()
            with self._turn():
                try:
                    if self.sqlite:  # the PostgreSQL driver begins by itself
                        self._driver.execute("BEGIN IMMEDIATE")
                    yield connection
                    self._driver.commit()
                except BaseException as error:
                    self._abandon(connection, error)
                    raise

    @contextmanager
    def _turn(self) -> Iterator[None]:
        """Wait for this process's turn on a SQLite store.

        SQLite excludes other writers by itself, but a waiting process polls, with pauses of up to 100 ms:
        four busy processes reach a sixth of the rate of one. A file lock wakes the next at once. Where the
        file cannot be had, SQLite's own lock still holds. A killed process gives up its turn; a stopped
        one (SIGSTOP) keeps the others waiting.
        """
        if self.sqlite and self._queue is None:
            with suppress(OSError):
                self._queue = os.open(
                    f"{self.url.database}-queue", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600
                )
        queue = self._queue
        if queue is None:
            yield
            return
        fcntl.flock(queue, fcntl.LOCK_EX)
        try:
            yield
        finally:
            if self._queue == queue:
                fcntl.flock(queue, fcntl.LOCK_UN)

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """Open a read-only view of one moment."""
        with self.lock:
            connection = self._connect()
            try:
                repeatable = "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY"
                self.execute(connection, "BEGIN" if self.sqlite else repeatable)
                yield connection
                self._driver.rollback()
            except BaseException as error:
                self._abandon(connection, error)
                raise

    def _abandon(self, connection: Connection, error: BaseException) -> None:
        from sqlalchemy.exc import SQLAlchemyError

        with suppress(Exception):
            self._driver.rollback()
        if isinstance(error, (SQLAlchemyError, connection.dialect.loaded_dbapi.Error)):
            self.close()
            raise self._failure(error) from None

    def _failure(self, error: Exception) -> LedgerError:
        cause = getattr(error, "orig", None) or error
        reason = str(cause).strip().splitlines()[0]
        kind = OutOfReachError if _away(cause) else LedgerError
        return kind(
            f"The ledger's store {self.location} failed: {reason}.",
            "Check the location, its permissions, free space and, for PostgreSQL, the server and the "
            "password (PGPASSWORD or a password file reach worker processes too). Whatever was acknowledged "
            "is charged.",
        )

    def _connect(self) -> Connection:
        if self._pid != os.getpid():
            self.adopt()
        file = self._file() if self.sqlite else None
        if file != self._opened:
            # Removed or replaced under us: an open descriptor would go on writing to the old file.
            self.close()
            self._opened = file
        if self._connection is None:
            from sqlalchemy.exc import SQLAlchemyError

            try:
                self._engine = self._engine or _engine(self.url, self.sqlite)
                self._connection = self._engine.connect()
                self._driver = self._connection.connection.dbapi_connection
            except SQLAlchemyError as error:
                raise self._failure(error) from None
        return self._connection

    def _file(self) -> tuple[int, int]:
        try:
            found = os.stat(str(self.url.database))
        except OSError:
            # Open before, it was there: a disk that is away, a file that is being restored.
            kind = LedgerError if self._opened is None else OutOfReachError
            raise kind(
                f"The ledger's store {self.location} is missing or out of reach.",
                "Restore it; create a new one only if none was ever there.",
            ) from None
        if found.st_nlink > 1:
            # Its write-ahead log is found by name: under a second name SQLite would miss what it holds.
            raise LedgerError(
                f"The ledger's store {self.location} has a second name (a hard link), under which its budget "
                "could be spent again.",
                "Remove the other name; a symbolic link is fine, and so is a backup made by copying.",
            )
        return found.st_dev, found.st_ino

    def checkpoint(self) -> None:
        """Move what a SQLite store's log holds into its file, as far as other connections let us."""
        if self.sqlite:
            with self.lock, suppress(Exception):
                self._connect()
                self._driver.execute("PRAGMA wal_checkpoint(FULL)").fetchall()

    def adopt(self) -> None:
        """Begin afresh in a forked child, without touching what belongs to the parent."""
        _LEAKED.append((self._engine, self._connection, self._counters, self.queues))
        self._engine = self._connection = self._driver = self._queue = None
        self._counters, self.queues = {}, {}
        self._pid = os.getpid()

    def close(self) -> None:
        """Close the connection and the counters; the next use opens them again."""
        with self.lock:
            if self._connection is not None and self._pid == os.getpid():
                with suppress(Exception):
                    self._connection.close()
                self._connection = self._driver = None
            if self._queue is not None and self._pid == os.getpid():
                os.close(self._queue)  # also gives up the turn
                self._queue = None
            for counter in self._counters.values():
                counter.close()

    def __del__(self) -> None:
        if self._pid == os.getpid():
            with suppress(Exception):
                self.close()

    def exists(self) -> bool:
        """Whether the store holds ledgers at all; creates nothing."""
        if self.sqlite and not Path(str(self.url.database)).is_file():
            return False
        with self.reading() as connection:
            return self._has_layout(connection)

    def _has_layout(self, connection: Connection) -> bool:
        from sqlalchemy import inspect

        if not inspect(connection).has_table("confide_layout"):
            return False
        found = self.row(connection, "SELECT layout FROM confide_layout")[0]
        if found != LAYOUT:
            raise LedgerError(
                f"The store {self.location} has layout {found}; this version of Confide "
                f"reads layout {LAYOUT}.",
                "Use the version of Confide that wrote it.",
            )
        return True

    def prepare(self) -> None:
        """Create file, tables and triggers where they are absent."""
        if self.sqlite:
            path = Path(str(self.url.database))
            if not path.parent.is_dir():
                raise LedgerError(f"The folder of {self.location} does not exist.", "Create it first.")
            with suppress(FileExistsError, PermissionError):
                # Secret mechanism state lies in it: nobody else may read it, nor its log (same mode).
                os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
        if self.exists():
            return
        with self.writing() as connection:
            if not self.sqlite:
                self.execute(connection, "SELECT pg_advisory_xact_lock(?)", (_ADVISORY_LOCK,))
            if self._has_layout(connection):
                return
            tables().create_all(connection)
            for statement in guards(self.sqlite):
                connection.exec_driver_sql(statement)
            self.execute(connection, "INSERT INTO confide_layout (layout) VALUES (?)", (LAYOUT,))

    def guarded(self, connection: Connection) -> bool:
        """Whether the triggers that refuse changes of entries are all there."""
        names = (
            "SELECT name FROM sqlite_master WHERE type = 'trigger'"
            if self.sqlite
            else "SELECT tgname FROM pg_trigger WHERE NOT tgisinternal AND tgenabled = 'O' AND tgrelid IN "
            "('confide_entry'::regclass, 'confide_dataset'::regclass)"
        )
        found = {row[0] for row in self.rows(connection, names)}
        return set(guard_names(self.sqlite)) <= found

    def __repr__(self) -> str:
        return f"<Store {self.location}>"


def normal_url(url: str | URL) -> URL:
    """Return the URL with an absolute path (SQLite) or the psycopg driver (PostgreSQL)."""
    from sqlalchemy import make_url
    from sqlalchemy.exc import ArgumentError

    advice = "Write sqlite:///path/to/ledger.db or postgresql://user@host/database."
    if isinstance(url, str) and url.startswith("postgres://"):
        url = "postgresql" + url.removeprefix("postgres")
    try:
        parsed = make_url(url)
    except (ArgumentError, ValueError, TypeError):
        raise ParameterError("The ledger's URL is malformed.", advice) from None
    backend = parsed.get_backend_name()
    if backend == "sqlite":
        if parsed.host:
            raise ParameterError(
                f"The ledger's URL names a host, {parsed.host!r:.80}, and SQLite has none.",
                "Write three slashes: sqlite:///ledger.db.",
            )
        if not parsed.database or parsed.database == ":memory:" or parsed.database.startswith("file:"):
            raise UnsupportedError("An in-memory ledger would not outlive a crash.", advice)
        return parsed.set(
            drivername="sqlite", database=str(Path(parsed.database).absolute().resolve()), query={}
        )
    if backend == "postgresql":
        hidden = parsed.query.get("password")
        if isinstance(hidden, str):
            parsed = parsed.set(password=hidden).difference_update_query(["password"])
        return parsed.set(drivername="postgresql+psycopg")
    raise UnsupportedError(f"A ledger cannot lie in {backend!r}.", advice)


def without_password(url: URL) -> URL:
    """Return the URL without any password (`URL.set` takes None for "no change")."""
    from sqlalchemy import URL

    query = {name: value for name, value in url.query.items() if "password" not in name.lower()}
    return URL.create(url.drivername, url.username, None, url.host, url.port, url.database, query)


def _away(cause: BaseException) -> bool:
    """Return whether a driver's error tells that the store cannot be had now; else it may be damaged."""
    code = getattr(cause, "sqlite_errorcode", None)
    if code is not None:
        return code & 0xFF in _AWAY
    # psycopg: no connection, one that was lost, a server that stops or has no room (classes 08, 53, 57).
    kinds = {base.__name__ for base in type(cause).__mro__}
    return type(cause).__module__.startswith("psycopg") and "OperationalError" in kinds


def _engine(url: URL, sqlite: bool) -> Engine:
    from sqlalchemy import create_engine, event
    from sqlalchemy.pool import NullPool

    if not sqlite:
        try:
            import psycopg  # noqa: F401
        except ImportError:
            raise UnsupportedError(
                "The PostgreSQL driver psycopg is not installed.", "Run: pip install 'confide[postgres]'."
            ) from None
        engine = create_engine(url, poolclass=NullPool)
        on_connect: Callable[[Any, Any], None] = _durable_postgres
    else:
        # Another thread may use the connection after this one, never at the same time: `Store.lock`.
        arguments = {"check_same_thread": False, "timeout": PATIENCE_SECONDS, "isolation_level": None}
        engine = create_engine(url, poolclass=NullPool, connect_args=arguments)
        on_connect = _durable_sqlite
    event.listen(engine, "connect", on_connect)
    return engine


def _durable_sqlite(connection: Any, _record: Any) -> None:
    # Two processes that turn a new file into WAL mode at once meet an error instead of waiting.
    for attempt in range(100):
        try:
            if connection.execute("PRAGMA journal_mode").fetchone()[0] != "wal":
                connection.execute("PRAGMA journal_mode = WAL")
            break
        except Exception as error:
            if attempt == 99 or "locked" not in str(error):
                raise
            time.sleep(0.05)
    connection.execute("PRAGMA synchronous = FULL")
    # Names of queries are hashes, so each new one dirties another page: with SQLite's defaults (2 MB, 1,000
    # pages) pages leave the cache before they are full, and are moved to the file after every few commits.
    connection.execute("PRAGMA cache_size = -65536")
    connection.execute("PRAGMA wal_autocheckpoint = 8000")
    connection.execute("PRAGMA recursive_triggers = ON")


def _durable_postgres(connection: Any, _record: Any) -> None:
    with connection.cursor() as cursor:
        cursor.execute("SET synchronous_commit = 'on'")
        cursor.execute(f"SET lock_timeout = '{PATIENCE_SECONDS}s'")
        # Statements stay prepared with the plan of a nearly empty table: let that be the index already.
        cursor.execute("SET enable_seqscan = off")
        cursor.execute("SET enable_bitmapscan = off")
    connection.commit()


_STORES: weakref.WeakValueDictionary[str, Store] = weakref.WeakValueDictionary()
_RECENT: deque[Store] = deque(maxlen=8)  #: kept open, for callers that name a store by its URL each time
_REGISTRY_LOCK = threading.Lock()
_LEAKED: list[Any] = []
_HELD: list[Store] = []


def _before_fork() -> None:
    # With every lock held no transaction is open anywhere, so all connections can be closed: a child then
    # inherits none (closing an inherited SQLite connection could damage the parent's).
    _REGISTRY_LOCK.acquire()
    _HELD[:] = list(_STORES.values())
    for store in _HELD:
        store.lock.acquire()
        store.close()


def _after_fork_in_parent() -> None:
    for store in _HELD:
        store.lock.release()
    _HELD.clear()
    _REGISTRY_LOCK.release()


def _after_fork_in_child() -> None:
    global _REGISTRY_LOCK
    for store in _HELD:
        store.lock = threading.RLock()
        store.adopt()
    _HELD.clear()
    _REGISTRY_LOCK = threading.Lock()


def close_all() -> None:
    """Close the connections of all stores of this process; the next use opens them again."""
    for store in list(_STORES.values()):
        store.close()


# Before the drivers are torn down, and while their connections can still say goodbye.
atexit.register(close_all)
os.register_at_fork(
    before=_before_fork, after_in_parent=_after_fork_in_parent, after_in_child=_after_fork_in_child
)
