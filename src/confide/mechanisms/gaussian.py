"""The exactly rounded Gaussian: integers round(Z / step), Z exactly normal.

Rounding is post-processing, and on a grid round(f + Z) = f + round(Z): a release of grid values with this
noise has the privacy of the continuous Gaussian mechanism verbatim, so every calibration for it (Balle &
Wang 2018, GDP, PLD) holds without a correction. It also has no holes: every integer is reachable from every
input, and no bit pattern of the output tells inputs apart (pitfalls K01, K03).
"""

from __future__ import annotations

import math
from fractions import Fraction
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from confide.mechanisms.enclosure import Enclosure, LazyUniform, central_normal
from confide.mechanisms.parameters import Number, Size, bounded, rational, shape_of
from confide.mechanisms.quantile import QUANTILE_ERROR, table
from confide.mechanisms.stream import RandomStream
from confide.mechanisms.stream import stream as as_stream

#: Draws a block: bits, coefficients and results stay in the cache of one core.
_BLOCK = 1 << 15


def rounded_gaussian(
    sigma: Number, step: Number, size: Size, *, stream: RandomStream | None = None
) -> NDArray[np.int64]:
    """Draw round(Z / step) for independent Z ~ N(0, sigma^2), correctly rounded.

    Parameters
    ----------
    sigma, step : number
        Standard deviation of Z and width of the grid, in the same unit; floats are taken as the exact
        rationals they are. sigma / step at most 2^50.
    size : int or tuple of int
        Shape of the result.
    stream : RandomStream, optional
        None: the operating system's.

    Returns
    -------
    int64 array of shape `size`
        Multiples of `step`. P(k) = Phi((k + 1/2) step / sigma) - Phi((k - 1/2) step / sigma), exactly, for
        every k that a 4096-bit uniform can tell (|Z| / sigma < 75).

    Raises
    ------
    ParameterError
        If sigma or step is not a finite number > 0, or sigma / step is above 2^50.

    Notes
    -----
    A 63-bit uniform and a sign give |Z| by a table of polynomials (`confide.mechanisms.quantile`); if the
    proven error touches a rounding boundary, both are compared in exact arithmetic with as many further
    bits as it takes. All normal draws take the same steps; the exact path, some 10^-4 s, is entered with
    probability about sigma/step 2^-48, and for |Z| > 6.2 sigma (probability 2^-32).

    ======================================  ============================================================
    edge case                               what happens
    ======================================  ============================================================
    sigma much smaller than step            zeros, and non-zero values with their exact probability
    sigma / step above 2^50                 ParameterError: int64 could overflow
    sigma or step 0, NaN, infinite, < 0     ParameterError
    size 0                                  an empty array
    bits all zero for one draw              more bits: the tail is exact beyond 2^-63
    bits all zero for ever                  EntropyError after 4096 of them
    bits all one, or alternating            ordinary draws
    ======================================  ============================================================
    """
    ratio = bounded(rational(sigma, "sigma", positive=True) / rational(step, "step", positive=True), "sigma")
    shape = shape_of(size)
    source = as_stream(stream)
    out = np.empty(math.prod(shape), dtype=np.int64)
    for start in range(0, out.size, _BLOCK):
        _fill(ratio, source, out[start : start + _BLOCK])
    return out.reshape(shape)


def _fill(ratio: Fraction, source: RandomStream, out: NDArray[np.int64]) -> None:
    from confide.mechanisms.kernels import rounded_normals, warm

    words = source.bits(out.size)
    spare = source.bits(out.size // 128 + 8)  # twice what 2^-8 of the draws need
    doubtful = np.empty(out.size, dtype=np.int64)
    spares = np.empty(out.size, dtype=np.int64)
    near = float(ratio)
    # The table's error, the rounding of the ratio and the product (relative 2^-52, inside the kernel's 2^-51
    # of x), and a constant for the subtraction; 0.1 % on top covers the rounding of this line itself.
    slack = near * QUANTILE_ERROR * 1.001 + 2.0**-60
    warm(table())
    count = rounded_normals(words, spare, table(), near, slack, out, doubtful, spares)
    for i, spare_index in zip(doubtful[:count].tolist(), spares[:count].tolist()):
        word = int(words[i])
        prefix, bits = word >> 1, 63
        if spare_index >= 0:  # continue from the bits that the kernel has seen
            zeros = 63 - prefix.bit_length()
            prefix, bits = prefix << zeros | int(spare[spare_index]) >> (64 - zeros), 63 + zeros
        magnitude = exact_magnitude(ratio, LazyUniform(prefix, bits, source))
        out[i] = -magnitude if word & 1 else magnitude


def exact_magnitude(ratio: Fraction, v: LazyUniform) -> int:
    """Return round(ratio |Z|) where P(|Z| > z) = V, in exact arithmetic.

    It is the least k >= 0 with |Z| < (k + 1/2) / ratio, that is with V >= P(|Z| > (k + 1/2) / ratio).
    """

    def within(k: int) -> bool:
        bound = Fraction(2 * k + 1, 2) / ratio

        def tail(bits: int) -> Enclosure:
            low, high = central_normal(bound, bits)
            return (1 << bits) - high, (1 << bits) - low

        return not v.below(tail)

    while v.prefix.bit_length() < 48:  # enough digits of V for a good guess; all zeros for ever ends here
        v.extend()
    guess = max(0, math.floor(ratio * Fraction(_estimate(v)) + Fraction(1, 2)))
    reach = 1
    if within(guess):
        low, high = guess - 1, guess
        while low >= 0 and within(low):
            low, high, reach = low - 2 * reach, low, 2 * reach
        low = max(low, -1)
    else:
        low, high = guess, guess + 1
        while not within(high):
            low, high, reach = high, high + 2 * reach, 2 * reach
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if within(middle) else (middle, high)
    return high


def _estimate(v: LazyUniform) -> float:
    """Return |Z| to some digits: where the search starts, which decides nothing."""
    exponent = v.prefix.bit_length() - v.bits
    if exponent > -900:
        p = (v.prefix + 0.5) / 2 / 2**v.bits if v.bits < 900 else math.ldexp(1.5, exponent - 2)
        return max(0.0, -NormalDist().inv_cdf(min(p, 0.5)))
    surprise = 2 * math.log(2) * -exponent
    return math.sqrt(surprise - math.log(surprise * math.pi / 2))
