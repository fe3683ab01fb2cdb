"""The exact channel behind the finite privatisers: k-ary randomised response with integer probabilities.

With integers a >= b >= 1 and T = a + (k - 1) b, output j is drawn with probability a/T if j is the row's own,
b/T otherwise. Every ratio of two probabilities of one output is a/b, b/a or 1, and b is the integer above
a e^-epsilon, decided in exact arithmetic: a/b <= e^epsilon holds as a statement about integers (pitfall F56).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import numpy.typing as npt

from confide.errors import ParameterError
from confide.mechanisms import RandomStream, weighted_choice
from confide.mechanisms.enclosure import exp_minus
from confide.privacy.exact import Amount, exact

Codes = npt.NDArray[np.int64]

#: a: so large that b loses nothing that matters, so small that T of a thousand outputs fits 63 bits.
_OWN = 1 << 52


@dataclass(frozen=True)
class Channel:
    """k-ary randomised response with exact integer probabilities.

    Attributes
    ----------
    size : int
        Number k of outputs.
    own, other : int
        a and b.

    Notes
    -----
    =======================  ======================================================================
    edge case                what happens
    =======================  ======================================================================
    epsilon = 0              a = b: the output is uniform, whatever the label
    epsilon above 36         b = 1: more private than asked (probability 2^-52 to lie, an output)
    one output               that one, always
    code -1 (no own output)  uniform; its ratio to any other code is within [b/a, a/b] too
    =======================  ======================================================================

    For a code without an own output, 1/k against a/T and b/T: k b <= T <= k a gives both
    (a/T) / (1/k) = k a / T <= a/b and (1/k) / (b/T) = T / (k b) <= a/b.
    """

    size: int
    own: int
    other: int

    @classmethod
    def of(cls, size: int, epsilon: Amount) -> Channel:
        """Return the channel of `size` outputs with own/other <= e^epsilon, as close as 52 bits allow.

        Raises
        ------
        ParameterError
        """
        if isinstance(size, bool) or not isinstance(size, int | np.integer) or size < 1:
            raise ParameterError(f"The size of a channel is {size!r}.", "Pass an integer >= 1.")
        amount = exact(epsilon, "epsilon")
        if amount >= 64:
            return cls(int(size), _OWN, 1)
        # exp_minus encloses e^-epsilon 2^52 between integers: its upper end is at or above the real number.
        return cls(int(size), _OWN, min(_OWN, max(1, exp_minus(amount, 52)[1])))

    @property
    def total(self) -> int:
        """T: the common denominator."""
        return self.own + (self.size - 1) * self.other

    @property
    def lie(self) -> float:
        """The ratio q = b/a, about e^-epsilon."""
        return self.other / self.own

    def probability(self, code: int, output: int) -> Fraction:
        """Return the exact probability of `output` for a row whose own output is `code` (-1: none)."""
        if code < 0:
            return Fraction(1, self.size)
        return Fraction(self.own if code == output else self.other, self.total)

    def draw(self, codes: npt.ArrayLike, stream: RandomStream) -> Codes:
        """Draw one output a row.

        Parameters
        ----------
        codes : int array [n]
            Own output of each row, in -1 .. k - 1; -1: none.
        stream : RandomStream

        Returns
        -------
        int64 array [n]

        Notes
        -----
        An offset from the own output is drawn, 0 with weight a and each other with weight b; and a uniform
        output. Both are drawn for every row, so that nothing depends on the codes but the last selection.
        """
        own = np.asarray(codes, dtype=np.int64)
        weights = [self.own] + [self.other] * (self.size - 1)
        offset = weighted_choice(weights, size=own.size, stream=stream.child("offset"))
        uniform = weighted_choice([1] * self.size, size=own.size, stream=stream.child("uniform"))
        return np.where(own < 0, uniform, (own + offset) % self.size)

    def unbiased(self, targets: npt.ArrayLike) -> npt.NDArray[np.float64]:
        """Return outputs z [k] whose mean is targets[j] for a row with own output j: the inverse channel.

        Notes
        -----
        With q = b/a and D = T/a = 1 + q (k - 1), the mean of z for own output j is
        ((1 - q) z_j + q sum z) / D. Summing over j gives sum z = sum t, hence z = (D t - q sum t) / (1 - q).
        Where a = b nothing can be inverted: every output is the mean of the targets.
        """
        values = np.asarray(targets, dtype=np.float64)
        if self.own == self.other:
            return np.full(values.shape, values.mean())
        q = self.lie
        # Around the mean m: z - m = (D / (1 - q)) (t - m), without cancellation of large sums.
        middle = values.mean()
        return middle + (1.0 + q * (self.size - 1)) / (1.0 - q) * (values - middle)


def split_share(epsilon: Fraction, share: Fraction) -> tuple[Fraction, Fraction]:
    """Return (first, rest) with first about share * epsilon, and first + rest = epsilon exactly."""
    scale = 10**50
    first = Fraction(math.floor(epsilon * share * scale), scale)
    return first, epsilon - first
