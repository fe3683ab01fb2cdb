"""Real numbers as intervals of integers, and uniforms that reveal their bits on demand.

The fast kernels decide almost every draw; where a draw lies too close to a boundary for their proven error,
the boundary (a value of exp or erf at a rational) is enclosed here to any precision in Python integers and
more bits of the uniform are drawn, until the two are apart. No floating point takes part.

An enclosure with `bits` fractional bits of a real x is a pair (lo, hi) of integers with
lo <= x * 2^bits <= hi. Functions here are called with the precision that the bits drawn so far deserve.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from functools import lru_cache

from confide.mechanisms.stream import RandomStream, broken_stream

Enclosure = tuple[int, int]

#: A uniform never reveals more bits than this. With real entropy the limit is reached with probability below
#: 2^-4000; it turns a broken stream (all zeros) into an error instead of an endless loop. It also bounds
#: every draw: no standard normal here exceeds sqrt(2 ln 2 * 4096) < 76, no unit exponential 2840.
MOST_BITS = 4096


class LazyUniform:
    """A uniform U on [0, 1) of which the first bits are known, and more are drawn when a decision needs them.

    Parameters
    ----------
    prefix, bits : int
        U lies in [prefix, prefix + 1] / 2^bits.
    source : RandomStream
        Where further bits come from.
    """

    __slots__ = ("bits", "prefix", "source")

    def __init__(self, prefix: int, bits: int, source: RandomStream) -> None:
        self.prefix = prefix
        self.bits = bits
        self.source = source

    def below(self, enclose: Callable[[int], Enclosure]) -> bool:
        """Decide U < x exactly; ``enclose(bits)`` encloses x, and x is not a multiple of 2^-4096."""
        while True:
            low, high = enclose(self.bits + 32)
            if (self.prefix + 1) << 32 <= low:
                return True
            if self.prefix << 32 >= high:
                return False
            self.extend()

    def extend(self) -> None:
        """Reveal 64 more bits."""
        if self.bits >= MOST_BITS:
            raise broken_stream()
        self.prefix = self.prefix << 64 | int(self.source.bits(1)[0])
        self.bits += 64


def scale(value: Fraction, bits: int) -> int:
    """Return floor(value * 2^bits)."""
    return (value.numerator << bits) // value.denominator


def divide_up(a: int, b: int) -> int:
    """Return ceil(a / b) for b > 0."""
    return -(-a // b)


def exp_minus(y: Fraction, bits: int) -> Enclosure:
    """Enclose exp(-y) for a rational y >= 0, with `bits` fractional bits, a few units wide at most."""
    if y == 0:
        return 1 << bits, 1 << bits
    if y > bits:  # exp(-y) < 2^-bits
        return 0, 1
    halvings = max(0, math.ceil(y).bit_length()) + 8
    work = bits + halvings + 16
    low, high = _exp_minus(scale(y, work), work, halvings)
    drop = work - bits
    # y was rounded down by less than a unit of `work`, which lowers exp(-y) by less than that.
    return max(0, (low - 1) >> drop), divide_up(high, 1 << drop)


def _exp_minus(y: int, work: int, halvings: int) -> Enclosure:
    """Enclose exp(-y / 2^work): Taylor's positive series of exp(y / 2^halvings), inverted, then squared."""
    small = y >> halvings  # rounded down by < 1 unit, undone in `low` below
    one = 1 << work
    total, term, n = one, one, 0
    while term:
        n += 1
        term = (term * small >> work) // n
        total += term
    # A term's error is at most 2 units of its own two floors and 1/256 of its predecessor's: below 3. After
    # the first zero no new floor adds, and the rest is that error going down as the ratios do: below 1.
    low, high = (one << work) // (total + 3 * n + 4), divide_up(one << work, total)
    low -= 2  # for the rounding of `small`: exp(-y / 2^halvings) falls by less than one unit
    for _ in range(halvings):
        low = low * low >> work
        high = divide_up(high * high, one)
    return low, min(high, one)


@lru_cache(maxsize=64)
def pi(bits: int) -> Enclosure:
    """Enclose pi by Machin's formula, 16 arctan(1/5) - 4 arctan(1/239)."""
    work = bits + 16
    five, other = _arctan_inverse(5, work), _arctan_inverse(239, work)
    low, high = 16 * five[0] - 4 * other[1], 16 * five[1] - 4 * other[0]
    return low >> 16, divide_up(high, 1 << 16)


def _arctan_inverse(m: int, work: int) -> Enclosure:
    power, total, n, sign = (1 << work) // m, 0, 1, 1
    while power:
        total += sign * (power // n)
        power //= m * m
        n += 2
        sign = -sign
    return total - n, total + n  # fewer than n terms, each wrong by less than two units; tail below one


def central_normal(b: Fraction, bits: int) -> Enclosure:
    """Enclose P(|Z| <= b), Z standard normal, for a rational b >= 0.

    By the series of positive terms sqrt(2/pi) exp(-b^2/2) sum_n b^(2n+1) / (1 * 3 * 5 ... (2n+1))
    (Abramowitz & Stegun 26.2.11); P(|Z| > b) <= exp(-b^2/2) settles the far tail.
    """
    one = 1 << bits
    half_square = b * b / 2
    if half_square > bits:
        return one - 1, one
    growth = int(half_square * 3 / 2) + 2  # log2 exp(b^2/2), rounded up: the sum grows as its inverse
    work = bits + growth + 24
    unit = 1 << work
    x = scale(b, work)  # rounded down: P grows by less than one unit of `work` when that is undone
    square = x * x >> work
    total, term, n = 0, x, 0
    while term:
        total += term
        term = (term * square >> work) // (2 * n + 3)
        n += 1
    # The two floors of each term, below 2 units, are carried on by the ratios that follow; the sum of their
    # products is at most sum b^2k / (1 * 3 ... (2k+1)) <= exp(b^2/2) <= 2^growth, the terms after the first
    # zero included. Rounding `square` by a unit moves the sum S by at most S/2 <= 0.63 exp(b^2/2) units.
    slack = (2 * n + 4) << growth
    low_e, high_e = exp_minus(Fraction(square, 2 * unit), work)
    low_e = max(0, low_e - 1)  # `square` was rounded down
    low_pi, high_pi = pi(work)
    low_root = math.isqrt((2 * unit * unit * unit) // high_pi)  # sqrt(2 / pi) in units of `work`
    high_root = math.isqrt(divide_up(2 * unit * unit * unit, low_pi)) + 1
    low = ((total * low_e >> work) * low_root) >> work
    high = divide_up(divide_up((total + slack) * high_e, unit) * high_root, unit) + 1
    drop = work - bits
    return low >> drop, min(one, divide_up(high, 1 << drop))
