"""Sparse vector: any number of stable answers for one charge, until the first unstable one.

An epoch compares integer queries of sensitivity 1 with a noisy threshold and says "above" as long as they
lie above it. The first "below" ends the epoch. The whole sequence of answers is (e1 + e2)-DP, however many
"above" it holds: Dwork & Roth 2014, theorem 3.23, and Lyu, Su & Li 2017, algorithm 1, for the mirrored test
(queries -k, threshold -theta, which halts at the first *above*). Their proof moves the threshold noise by 1
and the noise of the one halting query by 2; on integers with discrete Laplace noise these moves are exact,
at a cost of e^e1 and e^(2 e2 / 2).
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterable
from fractions import Fraction
from typing import NoReturn

import numpy as np

from confide.errors import ParameterError, UnsupportedError
from confide.mechanisms.discrete import discrete_laplace
from confide.mechanisms.enclosure import divide_up, exp_minus
from confide.mechanisms.stream import RandomStream, is_certified
from confide.mechanisms.stream import stream as as_stream
from confide.privacy.exact import Amount, exact

#: e1 : e2 = 1 : 2^(2/3), the split of least variance (Lyu, Su & Li 2017, section 4.2), as e1 / (e1 + e2).
_SHARE = Fraction(38648, 100000)
#: Thresholds are searched up to this one.
_MOST = 1 << 40
_FORMAT = 1


def split_epoch(epsilon: Amount) -> tuple[Fraction, Fraction]:
    """Return (e1, e2), which add up to `epsilon` exactly, near 1 : 2^(2/3)."""
    total = _positive(epsilon, "epsilon")
    e1 = total * _SHARE
    return e1, total - e1


def false_stable(threshold: int, e1: Amount, e2: Amount) -> Fraction:
    """Return delta_0 = P(N - R > threshold), N ~ Lap(2/e2), R ~ Lap(1/e1) discrete, rounded up.

    The probability that an epoch answers "above" at its query of value 0 where it should halt: that query's
    noise N and the threshold's R decide alone, whatever was asked before.

    Parameters
    ----------
    threshold : int
        theta, >= 0.
    e1, e2 : amounts
        > 0.

    Returns
    -------
    Fraction
        At least delta_0, and within a relative 2^-60 of it.

    Notes
    -----
    With a = exp(-e2/2), b = exp(-e1), m = theta + 1, P(R >= y) = b^y / (1 + b) for y >= 1, and a sum over N,
    delta_0 = (1-a)/(1+a) [ b^m ab / ((1-ab)(1+b)) + sum_{x=0}^{m-1} a^x b^(m-x) / (1+b)
    + a^m / (1-a) - a^m b / ((1-ab)(1+b)) ],
    evaluated in outward-rounded fixed-point integers.
    """
    whole = _threshold(threshold)
    rate_r, rate_n = _positive(e1, "e1"), _positive(e2, "e2") / 2
    m = whole + 1
    # The tail is about exp(-m min(rates)): carry 128 bits below that, and below 1 - a and 1 - ab.
    depth = int(2 * m * min(rate_r, rate_n)) + 4 * max(1, int(1 / rate_r), int(1 / rate_n)).bit_length()
    bits = depth + 128 + 2 * m.bit_length()
    one = 1 << bits
    a_low, a = exp_minus(rate_n, bits)
    _, b = exp_minus(rate_r, bits)
    b_low = exp_minus(rate_r, bits)[0]
    a_m = exp_minus(rate_n * m, bits)
    b_m = exp_minus(rate_r * m, bits)

    def up(x: int, y: int) -> int:
        return divide_up(x * y, one)

    mixed = _mixed_sum(rate_n, rate_r, m, bits)
    gap_ab = one - up(a, b)  # lower bound of 1 - ab
    gap_ab_high = one - (a_low * b_low >> bits)
    below_zero = divide_up(up(b_m[1], up(a, b)) * one, _down(gap_ab, one + b_low, bits))
    beyond = divide_up(a_m[1] * one, one - a)
    correction = ((a_m[0] * b_low) // divide_up(gap_ab_high * (one + b), one)) if a_m[0] else 0
    total = below_zero + divide_up(mixed * one, one + b_low) + beyond - correction
    normaliser = divide_up((one - a_low) * one, one + a_low)
    return min(Fraction(1), Fraction(up(total, normaliser), one))


def _down(x: int, y: int, bits: int) -> int:
    """Return the product of two fixed-point numbers, rounded down."""
    return x * y >> bits


def _mixed_sum(rate_n: Fraction, rate_r: Fraction, m: int, bits: int) -> int:
    """Bound sum_{x=0}^{m-1} a^x b^(m-x) from above, closed form where the ratio is not too near 1.

    With c the larger of a, b and d the quotient of the smaller by the larger: c^m d (1 - d^m) / (1 - d) if b
    is the smaller, c^m (1 - d^m) / (1 - d) if a is, m c^m if they are equal.
    """
    one = 1 << bits
    larger, gap = min(rate_n, rate_r), abs(rate_n - rate_r)
    c_m = exp_minus(larger * m, bits)[1]
    if gap == 0:
        return m * c_m
    d_low, d = exp_minus(gap, bits)
    d_m = exp_minus(gap * m, bits)[0]
    if d >= one or (one - d_low) << 64 < one:  # so near 1 that the quotient is 0/0: each term is below 1
        series = m * one
    else:
        series = divide_up((one - d_m) * one, one - d)
    if rate_r > rate_n:
        series = divide_up(series * d, one)
    return divide_up(c_m * series, one)


def stable_threshold(delta: Amount, e1: Amount, e2: Amount) -> int:
    """Return the smallest theta whose `false_stable` is at most `delta`.

    Raises
    ------
    ParameterError
        If `delta` is 0 or at least 1, or no threshold below 2^40 will do.
    """
    target = exact(delta, "delta")
    if not 0 < target < 1:
        raise ParameterError(f"The 'delta' parameter is {delta!r}.", "Pass a number between 0 and 1.")
    high = 1
    while false_stable(high, e1, e2) > target:
        high *= 2
        if high > _MOST:
            raise ParameterError("No threshold below 2^40 reaches this delta.", "Spend a larger epsilon.")
    low = -1
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if false_stable(middle, e1, e2) <= target else (middle, high)
    return high


class SparseVector:
    """One epoch: is k + Lap(2/e2) > threshold + rho? Until the first no; rho ~ Lap(1/e1) is drawn once.

    Parameters
    ----------
    threshold : int
        theta, public, >= 0.
    e1, e2 : amounts
        > 0. Charge e1 + e2 when the epoch opens, whatever is asked of it.
    stream : RandomStream, optional

    Attributes
    ----------
    epsilon : Fraction
        e1 + e2: the cost of the whole epoch.
    open : bool
        Whether it still answers; becomes False with the first "below", which the caller publishes anyway.

    Notes
    -----
    The state (rho) is a secret. `to_bytes` and `from_bytes` carry it to a store whose access is no wider than
    that to the private data; copying and pickling are refused: two epochs of one rho cost more than one.

    =====================================  =============================================================
    edge case                              what happens
    =====================================  =============================================================
    asked after it closed                  UnsupportedError: open (and pay) another epoch
    asked by several threads               one after another: one "below" in all, then UnsupportedError
    query not an integer, NaN, bool        ParameterError without the value
    copy, deepcopy, pickle                 TypeError
    bytes of another format, or damaged    ParameterError
    e1, e2 of zero, NaN, infinite          ParameterError
    =====================================  =============================================================
    """

    __slots__ = ("_answered", "_e1", "_e2", "_lock", "_open", "_rho", "_stream", "_threshold")

    def __init__(self, threshold: int, e1: Amount, e2: Amount, *, stream: RandomStream | None = None) -> None:
        self._threshold = _threshold(threshold)
        self._e1 = _positive(e1, "e1")
        self._e2 = _positive(e2, "e2")
        self._stream = as_stream(stream)
        self._lock = threading.Lock()
        self._rho = int(discrete_laplace(1 / self._e1, 1, stream=self._stream)[0])
        self._open = True
        self._answered = 0

    @property
    def epsilon(self) -> Fraction:
        """e1 + e2."""
        return self._e1 + self._e2

    @property
    def threshold(self) -> int:
        """The public threshold."""
        return self._threshold

    @property
    def open(self) -> bool:
        """Whether the epoch still answers."""
        return self._open

    @property
    def answered(self) -> int:
        """How many answers were given."""
        return self._answered

    @property
    def certified(self) -> bool:
        """Whether the noise is certified entropy."""
        return is_certified(self._stream)

    def above(self, query: int) -> bool:
        """Answer one query of sensitivity 1; False closes the epoch."""
        return self.above_many([query])[0]

    def above_many(self, queries: Iterable[int]) -> list[bool]:
        """Answer queries in order, up to and including the first False, which closes the epoch.

        The noise of all of them is drawn first, so the time does not depend on where it stops.
        """
        values = list(queries)
        if any(isinstance(q, bool | np.bool_) or not isinstance(q, int | np.integer) for q in values):
            raise ParameterError(
                "A query of the sparse vector is no integer.", "Pass integers of sensitivity 1."
            )
        # Checked, drawn and closed in one piece: two threads that both found the epoch open would be given
        # two "below" for the price of one.
        with self._lock:
            if not self._open:
                raise UnsupportedError(
                    "This epoch of the sparse vector is closed.", "Open another one, which is charged anew."
                )
            noise = discrete_laplace(2 / self._e2, len(values), stream=self._stream).tolist()
            bar = self._threshold + self._rho
            answers: list[bool] = []
            for query, extra in zip(values, noise, strict=True):
                answers.append(int(query) + extra > bar)
                if not answers[-1]:
                    self._open = False
                    break
            self._answered += len(answers)
            return answers

    def to_bytes(self) -> bytes:
        """Return the state, rho included: a secret."""
        with self._lock:  # `open` and `answered` of one moment
            state = {
                "format": _FORMAT,
                "threshold": self._threshold,
                "e1": str(self._e1),
                "e2": str(self._e2),
                "rho": self._rho,
                "open": self._open,
                "answered": self._answered,
                "certified": self.certified,
            }
        return json.dumps(state, sort_keys=True).encode()

    @classmethod
    def from_bytes(cls, data: bytes, *, stream: RandomStream | None = None) -> SparseVector:
        """Continue an epoch from `to_bytes`. The caller sees to it that only one process does.

        Raises
        ------
        ParameterError
            If the bytes are no state of this format (never quoting them: they are secret), or were drawn from
            a seeded stream and `stream` is the certified one.
        """
        bad = ParameterError("The stored state of the sparse vector is not readable.", "Open another epoch.")
        result = cls.__new__(cls)
        source = as_stream(stream)
        try:
            state = json.loads(data)
            if state["format"] != _FORMAT or not isinstance(state["open"], bool):
                raise bad
            result._threshold = _threshold(state["threshold"])
            result._e1 = _positive(state["e1"], "e1")
            result._e2 = _positive(state["e2"], "e2")
            result._rho, result._answered = int(state["rho"]), int(state["answered"])
            result._open, result._stream = state["open"], source
            result._lock = threading.Lock()
            seeded = not state["certified"]
        except (KeyError, TypeError, ValueError):
            raise bad from None
        if seeded and is_certified(source):
            raise ParameterError(
                "The stored epoch was opened with a seeded stream.",
                "Continue it with a seeded stream, in tests.",
            )
        return result

    def __repr__(self) -> str:
        return f"SparseVector(threshold={self._threshold}, epsilon={self.epsilon}, open={self._open})"

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        raise TypeError(
            "a SparseVector holds a secret that must not exist twice: use to_bytes for its one store"
        )

    def __copy__(self) -> NoReturn:
        self.__reduce_ex__(4)

    def __deepcopy__(self, memo: object) -> NoReturn:
        self.__reduce_ex__(4)


def sparse_vector(
    epsilon: Amount, delta: Amount, *, threshold: int | None = None, stream: RandomStream | None = None
) -> SparseVector:
    """Open an epoch of total cost `epsilon` whose `false_stable` is at most `delta`.

    Parameters
    ----------
    epsilon : amount
        e1 + e2, split by `split_epoch`.
    delta : amount
        delta_0: bound on a wrong "above" at an unstable query (of value 0).
    threshold : int, optional
        At least the one that `delta` asks for, which is the default.
    stream : RandomStream, optional

    Returns
    -------
    SparseVector
    """
    e1, e2 = split_epoch(epsilon)
    least = stable_threshold(delta, e1, e2)
    if threshold is not None and _threshold(threshold) < least:
        raise ParameterError(
            f"The 'threshold' parameter is {threshold}, below the {least} that this delta needs.",
            f"Pass at least {least}, or leave it out.",
        )
    return SparseVector(least if threshold is None else threshold, e1, e2, stream=stream)


def _positive(value: Amount, name: str) -> Fraction:
    amount = exact(value, name)
    if amount == 0:
        raise ParameterError(f"The '{name}' parameter is 0.", "Pass a positive number.")
    return amount


def _threshold(value: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < 0:
        raise ParameterError(f"The 'threshold' parameter is {value!r}.", "Pass an integer >= 0.")
    return int(value)
