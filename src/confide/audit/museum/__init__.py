"""Variants known to be broken, each of which the audit must catch: a test of the audit itself.

None of it is registered, exported or used: `pieces` is for the audit and its tests. The layers named by
`Piece.caught_by` must call the variant broken, and none may call its correct sibling broken. `tour` shows
all of them (``confide audit --museum``).
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module

from confide.audit.museum.piece import LEVEL, Piece, Shown, attack, catchers, show
from confide.mechanisms import os_stream, seeded_stream

_ROOMS = ("noise", "selection", "prediction", "training", "sparse_vector", "seeds", "leaks", "prices")

__all__ = ["LEVEL", "Piece", "Shown", "attack", "catchers", "pieces", "show", "tour"]


def pieces() -> tuple[Piece, ...]:
    """Return every piece."""
    return tuple(piece for room in _ROOMS for piece in import_module(f"{__name__}.{room}").PIECES)


def tour(seed: int | None = None) -> Iterator[Shown]:
    """Attack every piece and its sibling, one after the other.

    Parameters
    ----------
    seed : int, optional
        None draws from the operating system.
    """
    source = os_stream() if seed is None else seeded_stream(seed)
    for piece in pieces():
        yield show(piece, source.child(piece.name))
