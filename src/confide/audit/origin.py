"""Where the results of an audit come from: the code, the machine and the day."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from typing import Any, Self

import numpy as np

#: Date and machine.
Place = tuple[str, str]


def now() -> str:
    """Return the time, UTC."""
    return datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")


def machine() -> str:
    """Return what kind of machine this is; its name is not in it."""
    return f"{platform.system()} {platform.machine()}, {os.cpu_count()} processors"


@dataclass(frozen=True)
class Origin:
    """What was attacked, with what and when.

    Parameters
    ----------
    date : str
        When the first result was begun, UTC.
    version, sources : str
        Of Confide; the SHA-256 of all its Python files.
    seed : int or None
        None for randomness of the operating system.
    python, numpy, machine : str
        No name of a host or a person is in them. The machine is that of the first result.
    last : str
        When the last result ended, UTC; empty where no audit told.
    resumed : tuple of str
        Other machines, in order, that went on with it.
    """

    date: str
    version: str
    sources: str
    seed: int | None
    python: str
    numpy: str
    machine: str
    last: str = ""
    resumed: tuple[str, ...] = ()

    @classmethod
    def here(cls, header: Mapping[str, Any]) -> Self:
        """Return the origin of what starts now; version, sources and seed are those of a state's header."""
        return cls(
            now(),
            header["version"],
            header["sources"],
            header["seed"],
            f"{platform.python_implementation()} {platform.python_version()}",
            np.__version__,
            machine(),
        )

    def over(self, first: Place, others: Iterable[Place]) -> Self:
        """Return the origin of an audit that began at a time and place, and whose results ended at these."""
        places = list(others)
        last = max((date for date, _ in places), default=first[0])
        resumed = (where for _, where in places if where != first[1])
        return replace(
            self, date=first[0], machine=first[1], last=last, resumed=tuple(dict.fromkeys(resumed))
        )

    @property
    def told(self) -> str:
        """When, and on which machines."""
        until = f" to {self.last}" if self.last not in ("", self.date) else ""
        others = f" (resumed on {'; '.join(self.resumed)})" if self.resumed else ""
        return f"{self.date}{until}, on {self.machine}{others}"

    def to_dict(self) -> dict[str, Any]:
        """Return plain values."""
        return asdict(self)
