"""The law of an answer: a function of the certified class and the stability distance alone, drawn exactly.

Every release of this room that is no sparse vector is a `Release`: given the certified class a and the
distance k of a query it answers a with a probability that grows with k, and each other class alike. The
privacy of all of them rests on one property of (class, k), which the certificates prove: on neighbouring
tables k differs by at most 1, and the classes differ only where both k are 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Protocol, Self, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike, NDArray

from confide.errors import ParameterError
from confide.mechanisms.choice import uniform_integers
from confide.mechanisms.stream import RandomStream
from confide.mechanisms.stream import stream as as_stream
from confide.privacy import Event
from confide.privacy.exact import Amount, exact, show

Labels = NDArray[np.int64]
#: A law lists at most this many distances; larger ones count as the last, which keeps them 1-Lipschitz.
LEVELS = 1 << 16


class Probabilities(np.ndarray):
    """Probability of the certified class at k = 0, 1, ...: an array with another one attached.

    Attributes
    ----------
    wrong : float array of the same shape
        Probability of each other class, computed without cancellation.
    """

    wrong: NDArray[np.float64]

    def __new__(cls, certified: Sequence[float], wrong: Sequence[float]) -> Self:
        """Attach `wrong` to the probabilities of the certified class."""
        result = np.asarray(certified, dtype=np.float64).view(cls)
        result.wrong = np.asarray(wrong, dtype=np.float64)
        return result

    def __array_finalize__(self, parent: Any) -> None:
        """Keep `wrong` where the shape stays: arithmetic and slices lose it."""
        attached = getattr(parent, "wrong", None)
        if attached is not None and np.shape(attached) == self.shape:
            self.wrong = attached


@runtime_checkable
class Release(Protocol):
    """How a query is answered.

    Attributes
    ----------
    event : Event
        One answer.
    epsilon, delta : Fraction
        Its cost, at every k.
    classes : int
    """

    @property
    def event(self) -> Event:
        """What one answer is on a ledger."""
        ...

    @property
    def epsilon(self) -> Fraction:
        """Epsilon of one answer."""
        ...

    @property
    def delta(self) -> Fraction:
        """Delta of one answer."""
        ...

    @property
    def classes(self) -> int:
        """Number of classes."""
        ...

    def probabilities(self, k_max: int) -> Probabilities:
        """Return the probability of the certified class at each k = 0 ... k_max, with `.wrong`."""
        ...

    def draw(self, labels: ArrayLike, k: ArrayLike, *, stream: RandomStream | None = None) -> Labels:
        """Draw one answer a query.

        Parameters
        ----------
        labels : int array [q]
            Certified classes, 0 ... classes - 1.
        k : int array [q]
            Stability distances, >= 0.
        stream : RandomStream, optional

        Returns
        -------
        int64 array [q]
        """
        ...


@dataclass(frozen=True, repr=False)
class Law:
    """A release whose law is a table of integers.

    Attributes
    ----------
    event : Event
    epsilon, delta : Fraction
    classes : int
    bits : int
    units : tuple of int
        Probability of each other class at k = 0, 1, ... in units of 2^-bits, falling; the last holds for all
        larger k.
    """

    event: Event
    epsilon: Fraction
    delta: Fraction
    classes: int
    bits: int
    units: tuple[int, ...]

    def wrong(self, k: int) -> Fraction:
        """Return the probability of each other class at distance k, exactly."""
        return Fraction(self.units[min(k, len(self.units) - 1)], 1 << self.bits)

    def probabilities(self, k_max: int) -> Probabilities:
        """See `Release`; correctly rounded."""
        levels = np.minimum(np.arange(whole(k_max, "k_max") + 1), len(self.units) - 1).tolist()
        one = 1 << self.bits
        wrong = [unit / one for unit in self.units]
        certified = [(one - (self.classes - 1) * unit) / one for unit in self.units]
        return Probabilities([certified[k] for k in levels], [wrong[k] for k in levels])

    def draw(self, labels: ArrayLike, k: ArrayLike, *, stream: RandomStream | None = None) -> Labels:
        """See `Release`; one uniform integer of `bits` bits a query, whatever its k."""
        chosen, distances = checked(labels, k, self.classes)
        levels = np.minimum(distances, len(self.units) - 1).tolist()
        numbers = uniform_integers(1 << self.bits, chosen.size, as_stream(stream))
        out = np.empty(chosen.size, dtype=np.int64)
        for i, (label, level, number) in enumerate(zip(chosen.tolist(), levels, numbers, strict=True)):
            unit = self.units[level]
            other = int(number) // unit if unit else self.classes
            out[i] = label if other >= self.classes - 1 else other + (other >= label)
        return out

    def __repr__(self) -> str:
        return (
            f"Law({self.event.mechanism}, epsilon={self.epsilon}, delta={self.delta}, classes={self.classes})"
        )


def checked(labels: ArrayLike, k: ArrayLike, classes: int) -> tuple[Labels, Labels]:
    """Return classes and distances as integers [q]; the messages name no value."""
    chosen, distances = np.atleast_1d(np.asarray(labels)), np.atleast_1d(np.asarray(k))
    whole_numbers = chosen.dtype.kind in "iu" and distances.dtype.kind in "iu"
    if not whole_numbers and chosen.size:
        raise ParameterError("The classes or distances are no integers.", "Pass what 'stability' returns.")
    if chosen.ndim != 1 or chosen.shape != distances.shape:
        raise ParameterError(
            f"The classes have shape {chosen.shape} and the distances {distances.shape}.",
            "Pass one of each a query.",
        )
    if chosen.size and not (chosen.min() >= 0 and chosen.max() < classes and distances.min() >= 0):
        raise ParameterError(
            "The classes or distances lie outside their domain.", "Pass what 'stability' returns."
        )
    return chosen.astype(np.int64), distances.astype(np.int64)


def whole(value: Any, name: str, least: int = 0) -> int:
    """Return an integer parameter >= `least`."""
    if isinstance(value, bool | np.bool_) or not isinstance(value, int | np.integer) or value < least:
        raise ParameterError(f"The '{name}' parameter is {value!r:.80}.", f"Pass an integer >= {least}.")
    return int(value)


def class_count(classes: Any) -> int:
    """Return the number of classes, 2 ... 2^16."""
    number = whole(classes, "classes", 2)
    if number > 1 << 16:
        raise ParameterError(f"The 'classes' parameter is {number}.", "Pass at most 65536 classes.")
    return number


def _said(value: object) -> str:
    """Return what was passed, an exact amount as people write it."""
    return show(value) if isinstance(value, Fraction) else f"{value!r:.80}"


def positive_epsilon(epsilon: Amount) -> Fraction:
    """Return the epsilon of an answer: exact, in (0, 1000]."""
    value = _amount(epsilon)
    if value is None or not 0 < value <= 1000:
        raise ParameterError(f"The 'epsilon' parameter is {_said(epsilon)}.", "Pass a number in (0, 1000].")
    return value


def small_delta(delta: Amount, *, positive: bool = False, name: str = "delta") -> Fraction:
    """Return the delta of an answer, or what else is called `name`: exact, in [0, 1) or (0, 1)."""
    value = _amount(delta)
    if value is None or value >= 1 or (positive and value == 0):
        lower = "0 <" if positive else "0 <="
        raise ParameterError(f"The '{name}' parameter is {_said(delta)}.", f"Pass {lower} {name} < 1.")
    return value


def _amount(value: Amount) -> Fraction | None:
    """Return an exact amount, or None for what is none: the caller says which it takes."""
    try:
        return exact(value)
    except ParameterError:
        return None
