"""Names that a room loads on first use, so that importing the room stays cheap."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def lazy(room: str, where: Mapping[str, str]) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return the ``__getattr__`` and ``__dir__`` of a package.

    Parameters
    ----------
    room : str
        The package's ``__name__``.
    where : mapping
        Public name -> submodule that defines it.
    """

    def load(name: str) -> Any:
        if name not in where:
            raise AttributeError(f"module {room!r} has no attribute {name!r}")
        value = getattr(import_module(f"{room}.{where[name]}"), name)
        setattr(sys.modules[room], name, value)
        return value

    def listing() -> list[str]:
        return sorted({*vars(sys.modules[room]), *where})

    return load, listing
