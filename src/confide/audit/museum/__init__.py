"""Variants known to be broken, each of which the audit must catch: a test of the audit itself.

None of it is registered, exported or used: `pieces` is for the audit and its tests. The layers named by
`Piece.caught_by` must call the variant broken, and none may call its correct sibling broken.
"""

from __future__ import annotations

from importlib import import_module

from confide.audit.museum.piece import LEVEL, Piece, attack, catchers

_ROOMS = ("noise", "selection", "prediction", "training", "sparse_vector")

__all__ = ["LEVEL", "Piece", "attack", "catchers", "pieces"]


def pieces() -> tuple[Piece, ...]:
    """Return every piece."""
    return tuple(piece for room in _ROOMS for piece in import_module(f"{__name__}.{room}").PIECES)
