"""A monotone counter outside the store, which shows that a store was rolled back.

Whoever restores an old copy of the store gives spent budget back. So the last place seen in the chain
(sequence number and hash) is also kept in a small file elsewhere: in the folder named by ``counter=``, by
``CONFIDE_LEDGER_COUNTER``, or else under the user's state folder (``XDG_STATE_HOME``). It is advanced
*after* each commit and before the caller may go on, and compared inside each writing transaction:

=====================================  ==================================================================
store against counter                  meaning
=====================================  ==================================================================
same place                             in order
store ahead, chain holds the place     in order: a process died between commit and counter, or another
                                       machine wrote
store behind, or another hash there    rolled back or replaced: every charge is refused
no counter file                        nothing to compare with; the first commit begins one
store absent, counter file there       the store was removed: creating it anew is refused
counter removed under a process        made anew at its next commit, from the place it wrote
=====================================  ==================================================================

The counter never runs ahead of a healthy store, since the store's commit is durable before it is
advanced. The file is written at each commit, which outlives a killed process; it is forced to disk at
most once a second, so a *power failure* may set it back by about that second of entries (or, after the
last burst, by the kernel's write-back time): a rollback to within that window goes unseen. Someone who
can write both store and counter is not kept out. Where no counter can be kept, or the last advance of it
failed, the ledger names ``"rollback undetected"`` in its `assumptions`.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import threading
import time
import zlib
from contextlib import suppress
from pathlib import Path

from confide.ledger.chain import Mark

ENVIRONMENT = "CONFIDE_LEDGER_COUNTER"
UNDETECTED = "rollback undetected"

_SLOT = 128
_SYNC_SECONDS = 1.0
_TRIES = 3


def default_directory() -> Path | None:
    """Return the folder for counters, or None where ``CONFIDE_LEDGER_COUNTER`` is ``"off"``."""
    named = os.environ.get(ENVIRONMENT)
    if named:
        return None if named.lower() == "off" else Path(named)
    base = os.environ.get("XDG_STATE_HOME")
    try:
        return (Path(base) if base else Path.home() / ".local" / "state") / "confide" / "ledger"
    except RuntimeError:  # no home
        return None


class Counter:
    """The counter of one ledger in one folder.

    Two slots are written in turn, each with a checksum, so that a torn write leaves the other one. A file
    lock keeps processes from setting each other back.

    Parameters
    ----------
    directory : Path
        Where the file lies; made when absent.
    ledger_id : str
        Random identity of the ledger.

    Attributes
    ----------
    failed : bool
        Whether the last `advance` failed: a rollback to before it would go unseen.
    begun : bool
        Whether an `advance` had to make the file (anew); for the caller to reset.
    """

    def __init__(self, directory: Path, ledger_id: str) -> None:
        self.path = directory / f"{ledger_id}.counter"
        self._descriptor: int | None = None
        self._synced = float("-inf")
        self._lock = threading.Lock()
        self.failed = self.begun = False

    def read(self) -> Mark | None:
        """Return the place last recorded, or None where there is no counter yet."""
        with self._lock:
            try:
                return _best(os.pread(self._open(os.O_RDWR), 2 * _SLOT, 0))[0]
            except OSError:
                return None

    def advance(self, mark: Mark) -> bool:
        """Record `mark` unless a later one is recorded; return whether the counter is usable."""
        with self._lock:
            try:
                self.failed = not any(self._write(mark) for _ in range(_TRIES))
            except OSError:
                self.failed = True
            return not self.failed

    def _write(self, mark: Mark) -> bool:
        """Record `mark`; return False where the file was removed or replaced before we had its lock."""
        descriptor = self._descriptor
        if descriptor is None:
            descriptor = self._open(os.O_RDWR | os.O_CREAT)
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        try:
            if not self._current(descriptor):
                self._descriptor = None
                return False
            best, slot = _best(os.pread(descriptor, 2 * _SLOT, 0))
            if best is None or mark.sequence > best.sequence:
                record = _record(mark)
                if os.pwrite(descriptor, record, _SLOT * (1 - slot)) != len(record):
                    raise OSError("a short write")
                self.begun |= best is None
        finally:
            if self._descriptor is None:
                os.close(descriptor)  # also lets go of its lock
            else:
                fcntl.flock(descriptor, fcntl.LOCK_UN)
        if best is None or time.monotonic() - self._synced >= _SYNC_SECONDS:
            os.fdatasync(descriptor)
            self._synced = time.monotonic()
        return True

    def _open(self, flags: int) -> int:
        """Return a descriptor of the file that has our name *now*.

        A file removed or replaced under us would take our marks and show them to nobody.
        """
        if self._descriptor is not None and not self._current(self._descriptor):
            os.close(self._descriptor)
            self._descriptor = None
        if self._descriptor is None:
            if flags & os.O_CREAT:
                self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            self._descriptor = os.open(self.path, flags | os.O_CLOEXEC, 0o600)
        return self._descriptor

    def _current(self, descriptor: int) -> bool:
        try:
            there, held = os.stat(self.path), os.fstat(descriptor)
        except OSError:
            return False
        return (there.st_ino, there.st_dev) == (held.st_ino, held.st_dev)

    def close(self) -> None:
        """Force the counter to disk and let go of the file (before a fork, for one)."""
        with self._lock:
            if self._descriptor is not None:
                with suppress(OSError):
                    os.fdatasync(self._descriptor)
                os.close(self._descriptor)
                self._descriptor = None


def usable(directory: Path | None) -> bool:
    """Whether counters can be kept in `directory`: it, or the nearest folder above it, is writable."""
    if directory is None:
        return False
    place = directory
    while not place.exists():
        if place.parent == place:
            return False
        place = place.parent
    return place.is_dir() and os.access(place, os.W_OK | os.X_OK)


def place_file(directory: Path, location: str, dataset: str) -> Path:
    """Return the file that says which ledger lies at a location."""
    return directory / f"{hashlib.sha256(f'{location}#{dataset}'.encode()).hexdigest()[:32]}.place"


def remember_place(directory: Path, location: str, dataset: str, ledger_id: str) -> None:
    """Note that the ledger `ledger_id` lies at `location`, so that its removal shows."""
    path = place_file(directory, location, dataset)
    with suppress(OSError):
        if path.exists() and path.read_text() == ledger_id:
            return
        directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        draft = path.with_suffix(f".{os.getpid()}")
        draft.touch(0o600)
        draft.write_text(ledger_id)
        os.replace(draft, path)


def expected_at(directory: Path, location: str, dataset: str) -> tuple[Path, int] | None:
    """Return the place file and the number of entries of a ledger that must lie at `location`."""
    path = place_file(directory, location, dataset)
    try:
        ledger_id = path.read_text()
    except OSError:
        return None
    counter = Counter(directory, ledger_id)
    try:
        mark = counter.read()
    finally:
        counter.close()
    return None if mark is None else (path, mark.sequence)


def _record(mark: Mark) -> bytes:
    text = f"{mark.sequence} {mark.hash}"
    return f"{text} {zlib.crc32(text.encode()):08x}".encode().ljust(_SLOT - 1) + b"\n"


def _best(raw: bytes) -> tuple[Mark | None, int]:
    """Return the later of the two valid slots and its number (slot 1 where there is none)."""
    best: Mark | None = None
    where = 1
    for slot in (0, 1):
        parts = raw[slot * _SLOT : (slot + 1) * _SLOT].split()
        if len(parts) == 3 and b"%08x" % zlib.crc32(parts[0] + b" " + parts[1]) == parts[2]:
            mark = Mark(int(parts[0]), parts[1].decode())
            if best is None or mark.sequence > best.sequence:
                best, where = mark, slot
    return best, where
