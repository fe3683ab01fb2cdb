"""What an audit keeps in a file: each result as it ends, from which another run goes on.

==================================  ====================================================================
edge case                           what happens
==================================  ====================================================================
another audit holds the file        refused, by an advisory lock on the file itself: it ends with the
                                    process that holds it, however that ends
no file, or an empty one            begun
of another audit, or no state       refused, and left as it is
a last line that was cut off        left out, and cut off the file
a damaged line                      refused, and named
a cell on two lines                 refused, and named: one line each, or two audits wrote at once
the file is removed meanwhile       the audit ends as without; another one begins a file of its own
==================================  ====================================================================
"""

from __future__ import annotations

import fcntl
import json
import math
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any, BinaryIO

import confide
from confide.audit.finding import Finding
from confide.audit.origin import Place
from confide.audit.registry import Claim
from confide.audit.standing import contradicts
from confide.errors import ParameterError


@dataclass(frozen=True)
class Cell:
    """One claim under one layer, on one pair."""

    claim: str
    layer: str
    pair: int = 0

    def __str__(self) -> str:
        """Return it for people."""
        return f"{self.claim}: {self.layer}, pair {self.pair}"


@dataclass(frozen=True, eq=False)
class State:
    """Results of an audit.

    Parameters
    ----------
    begun : (date, machine)
        When the first run began, and where.
    done : dict
        Cell -> what was found; None where its layer has nothing to say.
    places : list of (date, machine)
        When each of them ended, and where.
    file : binary file, optional
        Where they are kept.
    """

    begun: Place
    done: dict[Cell, Finding | None]
    places: list[Place]
    file: BinaryIO | None = None

    def add(self, cell: Cell, found: Finding | None, place: Place) -> None:
        """Keep one result."""
        self.done[cell] = found
        self.places.append(place)
        if self.file is not None:
            told = None if found is None else found.to_dict()
            line = {"cell": vars(cell), "finding": told, "date": place[0], "machine": place[1]}
            self.file.write(f"{json.dumps(line)}\n".encode())
            self.file.flush()


def heading(chosen: Sequence[Claim], *, full: bool, seed: int | None) -> dict[str, Any]:
    """Return what two runs must share for one to go on with the results of the other."""
    return {
        "format": 3,
        "mode": "full" if full else "quick",
        "version": confide.__version__,
        "sources": sources(),
        "seed": seed,
        "claims": [claim.name for claim in chosen],
    }


def sources(package: Path | None = None) -> str:
    """Return the SHA-256 of all Python files of a package, Confide by default: names and content, in order.

    A result tells of the code that was attacked, so none may outlive an edit.
    """
    root, whole = package or Path(confide.__file__).parent, sha256()
    for path in sorted(root.rglob("*.py")):
        content = path.read_bytes()
        whole.update(f"{path.relative_to(root).as_posix()} {len(content)}\n".encode() + content)
    return whole.hexdigest()


@contextmanager
def holding(
    path: Path | None, header: dict[str, Any], chosen: Sequence[Claim], begun: Place
) -> Iterator[State]:
    """Hold the state of an audit inside the block; without a path it is kept in memory alone.

    Parameters
    ----------
    path : path, optional
    header : dict
        `heading` of this audit.
    chosen : sequence of Claim
    begun : (date, machine)
        Of a state that begins here.

    Raises
    ------
    ParameterError
        If the file cannot be written, is held by another audit, is that of another one, or is damaged.
    """
    if path is None:
        yield State(begun, {}, [])
        return
    with _held(path) as file:
        yield _read(path, file, header, chosen, begun)


def _held(path: Path) -> BinaryIO:
    """Open a file, made where there is none, that nobody else holds; closed, it is let go."""
    try:
        file = os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666), "r+b")
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            file.close()
            raise
    except BlockingIOError:
        raise ParameterError(
            f"The state {path} is in use: another audit writes to it.",
            "Wait until that one has ended, or name another file.",
        ) from None
    except OSError as error:
        raise ParameterError(
            f"The state cannot be kept in {path}: {error.strerror}.",
            "Name a file in a folder that exists and can be written to.",
        ) from None
    return file


def _read(path: Path, file: BinaryIO, header: dict[str, Any], chosen: Sequence[Claim], begun: Place) -> State:
    """Return what a file holds, which then ends with a whole line."""
    content = file.read()
    if not content:
        file.write(f"{json.dumps({**header, 'date': begun[0], 'machine': begun[1]})}\n".encode())
        file.flush()
        return State(begun, {}, [], file)
    first, *lines = _text(content).split("\n")
    start = _same(path, first, header)
    promised = {claim.name: claim for claim in chosen}
    rows, numbers = list[tuple[Cell, Finding | None, Place]](), dict[Cell, int]()
    for number, line in enumerate(lines[:-1], start=2):
        rows.append(_parse(path, number, line, promised))
        _once(path, rows[-1][0], number, numbers)
    _close(file, content)
    return State(start, {cell: found for cell, found, _ in rows}, [place for _, _, place in rows], file)


def _text(content: bytes) -> str:
    try:
        return content.decode()
    except UnicodeDecodeError:
        return "\n"  # no text, so no state either


def _once(path: Path, cell: Cell, number: int, numbers: dict[Cell, int]) -> None:
    """Refuse a cell that stands on an earlier line: which of two results holds, nobody knows."""
    if (earlier := numbers.setdefault(cell, number)) != number:
        raise ParameterError(
            f"Line {number} of the state {path} has a cell again that is on line {earlier}: {cell}.",
            "Remove the file to attack anew: two audits may have written to it at once.",
        )


def _close(file: BinaryIO, content: bytes) -> None:
    """Let a file end with its last whole line; a first one alone gets its end."""
    if content.endswith(b"\n"):
        return
    if whole := content.rfind(b"\n") + 1:
        file.truncate(whole)
        file.seek(whole)
    else:
        file.write(b"\n")
        file.flush()


def _parse(
    path: Path, number: int, line: str, promised: dict[str, Claim]
) -> tuple[Cell, Finding | None, Place]:
    try:
        row = json.loads(line)
        cell, told, place = Cell(**row["cell"]), row["finding"], _place(row)
        found = None if told is None else Finding.from_dict(told)
        if found is not None:
            told = found.measured + found.p_value + found.seconds + found.moved
            math.isnan(told + found.guesses + found.canaries)  # numbers, or a TypeError
            if contradicts(found, promised[cell.claim]):
                raise ValueError
        hash(cell)
    except (ValueError, TypeError, KeyError, AttributeError):
        raise ParameterError(
            f"Line {number} of the state {path} is damaged.", "Remove the line, or the file to attack anew."
        ) from None
    return cell, found, place


def _place(row: dict[str, Any]) -> Place:
    date, where = row["date"], row["machine"]
    return date + "", where + ""  # texts, or a TypeError


def _same(path: Path, first: str, header: dict[str, Any]) -> Place:
    """Refuse the state of another audit, and say what is other; return where it began."""
    place = "", ""
    try:
        told = json.loads(first)
        other = ", ".join(key for key, value in header.items() if told.get(key) != value)
        place = place if other else _place(told)
    except (ValueError, AttributeError, TypeError, KeyError):
        other = "its first line"
    if other:
        raise ParameterError(
            f"The file {path} is not the state of this {header['mode']} audit; what differs: {other}.",
            "Name another file, or remove it to attack anew.",
        )
    return place
