"""What a label privatiser takes and hands back."""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from confide.mechanisms import RandomStream, Statistic, laplace_release
from confide.privacy import Event
from confide.training.labels.channel import Channel

Floats = npt.NDArray[np.float64]
Codes = npt.NDArray[np.int64]


@dataclass(frozen=True)
class PrivateLabels:
    """Labels that are private each by itself, and what was released beside them.

    Attributes
    ----------
    values : array [n]
        Numbers, or members of the public classes.
    counts : float64 array [k] or None
        The prior over the public values or classes that was used: given, or released and projected to
        counts that add up to n.
    response : object
        `Bins`, the tuple of classes that are told apart, or None.
    channel : Channel or None
        What the response was drawn from.
    """

    values: Any
    counts: Floats | None = field(default=None)
    response: Any = field(default=None)
    channel: Channel | None = field(default=None)


class Privatizer(Protocol):
    """A label privatiser: frozen, built from public parameters alone, all of them checked.

    `release` makes each label private by itself, so that under REPLACE_LABEL, where one label of the table
    changes, the whole output has the privacy of `event`. Under REPLACE_PRIVATE_PART too, as long as nothing
    but the label of the private part is used.
    """

    @property
    def numeric(self) -> bool:
        """Whether labels are read as numbers; else as they are."""
        ...

    @property
    def event(self) -> Event:
        """What `release` runs, known before any label is read."""
        ...

    @property
    def amounts(self) -> tuple[Fraction, Fraction]:
        """(epsilon, delta) of one release."""
        ...

    def plain(self, y: Any) -> Any:
        """Return the labels as they enter, cleaned and bounded: not private."""
        ...

    def release(self, y: Any, stream: RandomStream) -> PrivateLabels:
        """Return private labels for cells [n] of secret ones. Never raises or warns for what a cell holds."""
        ...


@dataclass(frozen=True)
class LabelRange:
    """Declared bounds of a numeric label.

    Missing labels sit in the middle, those outside at an end: the map works on each label alone.
    """

    lower: float
    upper: float

    @property
    def middle(self) -> float:
        """Middle of the range."""
        return self.lower / 2 + self.upper / 2

    @property
    def half(self) -> float:
        """Half of the range: one unit of a normalised label."""
        return (self.upper - self.lower) / 2

    def bounded(self, y: npt.ArrayLike) -> Floats:
        """Return labels within the bounds, float64 [n]."""
        values = np.asarray(y, dtype=np.float64).reshape(-1)
        with np.errstate(all="ignore"):
            return np.clip(np.where(np.isnan(values), self.middle, values), self.lower, self.upper)

    def normalised(self, y: npt.ArrayLike) -> Floats:
        """Return labels in [-1, 1], exactly within them."""
        return np.clip((self.bounded(y) - self.middle) / self.half, -1.0, 1.0)

    def restored(self, t: npt.ArrayLike) -> Floats:
        """Return normalised labels in their unit again; beyond the bounds where t is beyond +-1."""
        return self.middle + self.half * np.asarray(t, dtype=np.float64)


def count_statistic(codes: Codes, size: int) -> Statistic:
    """Return the histogram of codes 0 .. size - 1 (others are not counted) with its L2 sensitivity, sqrt 2.

    One replaced label takes 1 from a cell and adds 1 to another: L1 distance 2, and 1 if it leaves the cells.
    """
    inside = codes[(codes >= 0) & (codes < size)]
    return Statistic(np.bincount(inside, minlength=size).astype(np.int64), 1.0, 2**0.5, "label counts")


def released_counts(codes: Codes, size: int, epsilon: Fraction, stream: RandomStream) -> Floats:
    """Release the histogram with discrete Laplace noise of scale 2 / epsilon, projected to sum to n.

    n, the number of codes, is public under replacement. The projection is Euclidean, onto counts >= 0 of sum
    n: post-processing that takes noise out of empty cells without adding mass to them on average.
    """
    noisy = laplace_release(
        count_statistic(codes, size), epsilon, l1_sensitivity=2, stream=stream.child("label counts")
    )
    return onto_simplex(noisy, float(codes.size))


def onto_simplex(values: Floats, total: float) -> Floats:
    """Return the closest point >= 0 with sum `total` (Held, Wolfe & Crowder 1974); uniform for total 0."""
    if total <= 0:
        return np.ones_like(values)
    ordered = np.sort(values)[::-1]
    excess = (np.cumsum(ordered) - total) / np.arange(1, values.size + 1)
    threshold = excess[np.flatnonzero(ordered > excess)[-1]]
    return np.maximum(values - threshold, 0.0)
