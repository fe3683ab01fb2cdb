"""Where the results of an audit come from: the code, the machine and the day."""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any, Self

import numpy as np


@dataclass(frozen=True)
class Origin:
    """What was attacked, with what and when.

    Parameters
    ----------
    date : str
        When the audit began or went on, UTC.
    version, sources : str
        Of Confide; the SHA-256 of all its Python files.
    seed : int or None
        None for randomness of the operating system.
    python, numpy, machine : str
        No name of a host or a person is in them.
    """

    date: str
    version: str
    sources: str
    seed: int | None
    python: str
    numpy: str
    machine: str

    @classmethod
    def here(cls, header: Mapping[str, Any]) -> Self:
        """Return the origin of what starts now; version, sources and seed are those of a state's header."""
        return cls(
            datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
            header["version"],
            header["sources"],
            header["seed"],
            f"{platform.python_implementation()} {platform.python_version()}",
            np.__version__,
            f"{platform.system()} {platform.machine()}, {os.cpu_count()} processors",
        )

    def to_dict(self) -> dict[str, Any]:
        """Return plain values."""
        return asdict(self)
