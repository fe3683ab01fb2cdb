"""Integer tables of exp for the kernels, exact floors, computed once a process and scale."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from confide.mechanisms.enclosure import Enclosure, LazyUniform, divide_up, exp_minus


def exact_floor(enclose: Callable[[int], Enclosure], bits: int) -> int:
    """Return floor(x 2^bits) for an irrational x in (0, 1) that ``enclose(precision)`` encloses."""
    extra = 64
    while True:
        low, high = enclose(bits + extra)
        high = min(high, (1 << (bits + extra)) - 1)  # x < 1, however near: no endless search there
        if low >> extra == high >> extra:
            return low >> extra
        extra *= 2


def _powers(y: Fraction, count: int, bits: int) -> list[Enclosure]:
    """Enclose exp(-y), exp(-2y), ... exp(-count y)."""
    low, high = exp_minus(y, bits)
    one = 1 << bits
    powers = [(low, high)]
    for _ in range(count - 1):
        powers.append((powers[-1][0] * low >> bits, divide_up(powers[-1][1] * high, one)))
    return powers


@lru_cache(maxsize=1)
def exp_tables() -> NDArray[np.uint64]:
    """Return floor(2^63 exp(-b 2^(8i - 56))) for byte i = 0 .. 7 of a fixed-point number, [8, 256]."""
    result = np.empty((8, 256), dtype=np.uint64)
    for byte in range(8):
        result[byte, 0] = 1 << 63
        for b, power in enumerate(_powers(Fraction(2) ** (8 * byte - 56), 255, 192), start=1):
            low, high = power[0] >> 129, power[1] >> 129
            result[byte, b] = (
                low if low == high else exact_floor(_exp_of(Fraction(b) * 2 ** (8 * byte) / 2**56), 63)
            )
    result.setflags(write=False)
    return result


def _exp_of(y: Fraction) -> Callable[[int], Enclosure]:
    return lambda bits: exp_minus(y, bits)


@dataclass(frozen=True)
class Geometric:
    """How to draw G with P(G >= g) = exp(-g / scale): its digits in base 2^shift are independent.

    For G = g_0 + g_1 B + g_2 B^2 + ..., exp(-G / scale) is a product over the digits; so digit i is a
    geometric variable of ratio exp(-B^i / scale) cut at B, and the last one is not cut. A digit costs a word.

    Attributes
    ----------
    scale : Fraction
    shift : int
        log2 of the base B.
    thresholds : uint64 array [levels, B]
        floor(2^64 P(digit <= d)); the last entry of a level is 2^64 - 1.
    """

    scale: Fraction
    shift: int
    thresholds: NDArray[np.uint64]

    @property
    def levels(self) -> int:
        """Words that a draw takes."""
        return self.thresholds.shape[0]

    def exact(self, words: list[LazyUniform]) -> int:
        """Return G from the uniforms of its digits, in exact arithmetic."""
        return sum(self._digit(level, u) << (self.shift * level) for level, u in enumerate(words))

    def _digit(self, level: int, u: LazyUniform) -> int:
        low, high, reach = -1, (1 << self.shift) - 1, 1
        if level == self.levels - 1:
            high = 0
            while not u.below(self._cumulative(level, high)):
                low, high, reach = high, high + 2 * reach, 2 * reach
        while high - low > 1:  # u < P(digit <= high) holds, u < P(digit <= low) does not
            middle = (low + high) // 2
            low, high = (low, middle) if u.below(self._cumulative(level, middle)) else (middle, high)
        return high

    def _cumulative(self, level: int, digit: int) -> Callable[[int], Enclosure]:
        """Return the enclosure of P(digit of `level` <= `digit`)."""
        y = Fraction(1 << (self.shift * level)) / self.scale
        cut = None if level == self.levels - 1 else 1 << self.shift

        def enclose(bits: int) -> Enclosure:
            work = bits + 128  # y >= 2^-50 and so 1 - exp(-y) > 2^-51: the quotient keeps `bits` bits
            one = 1 << work
            low, high = exp_minus((digit + 1) * y, work)
            if cut is None:
                return (one - high) >> 128, divide_up(one - low, 1 << 128)
            whole_low, whole_high = exp_minus(cut * y, work)
            return ((one - high) << bits) // (one - whole_low), divide_up(
                (one - low) << bits, one - whole_high
            )

        return enclose


@lru_cache(maxsize=64)
def geometric(scale: Fraction) -> Geometric:
    """Return the tables for P(G >= g) = exp(-g / scale), 0 < scale <= 2^50; milliseconds the first time."""
    # The last digit is uncut: its last threshold must be 2^64 - 1, so exp(-B^levels / scale) < 2^-64.
    total = max(1, int(45 * scale + 1).bit_length())
    levels = -(-total // 10)
    shift = -(-total // levels)
    width = 1 << shift
    result = np.empty((levels, width), dtype=np.uint64)
    bits = 384
    one = 1 << bits
    for level in range(levels):
        y = Fraction(1 << (shift * level)) / scale
        powers = _powers(y, width, bits)
        whole = (0, 0) if level == levels - 1 else powers[-1]
        for digit, power in enumerate(powers[:-1]):
            low = ((one - power[1]) << 64) // (one - whole[0])
            high = ((one - power[0]) << 64) // (one - whole[1])
            if low != min(high, (1 << 64) - 1):
                low = exact_floor(Geometric(scale, shift, result)._cumulative(level, digit), 64)
            result[level, digit] = low
        result[level, width - 1] = (1 << 64) - 1
    result.setflags(write=False)
    return Geometric(scale, shift, result)
