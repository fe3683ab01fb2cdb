"""Numba kernels of the samplers: integers in, integers out, and a list of the draws they leave undecided.

A kernel decides a draw only where its proven error cannot matter; the indices of the others are returned,
and `confide.mechanisms` settles them in exact arithmetic from the same bits and fresh ones. Kernels take
their random bits as arrays, hold no state and never read a clock or a generator.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import njit, types, uint64
from numba.extending import intrinsic

_LOW_57 = np.uint64((1 << 57) - 1)
_HALF_PIECE = np.int64(1 << 56)
_UNIT_PIECE = 2.0**-56
#: Below so many leading zeros the known bits of V are enough; above, a spare word refills them.
_REFILL = 8


def _leading_zeros(typingctx: Any, word: Any) -> Any:
    """Count the leading zero bits of a uint64 (64 for zero)."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.ctlz(args[0], ir.Constant(ir.IntType(1), 0))

    return types.uint64(types.uint64), codegen


leading_zeros: Any = intrinsic(_leading_zeros)


def _multiply_high(typingctx: Any, a: Any, b: Any) -> Any:
    """Return the high 64 bits of the 128-bit product of two uint64."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        wide = ir.IntType(128)
        product = builder.mul(builder.zext(args[0], wide), builder.zext(args[1], wide))
        return builder.trunc(builder.lshr(product, ir.Constant(wide, 64)), ir.IntType(64))

    return types.uint64(types.uint64, types.uint64), codegen


multiply_high: Any = intrinsic(_multiply_high)


@njit(cache=True, nogil=True)
def warm(table: Any) -> Any:
    """Read every cache line of a contiguous table of 8-byte numbers, so that no draw is slower for its part.

    Rows of large values are rarely used; without this, a miss shows in the time of a single draw. Called
    before a kernel, not inside it: there it cost the compiler's best code for the loop (26 to 41 ms a 10^6).
    """
    flat = table.reshape(-1)
    total = flat[0]
    for i in range(8, flat.size, 8):
        total += flat[i]
    return total


@njit(cache=True, nogil=True)
def rounded_normals(
    words: Any,
    spare: Any,
    coefficients: Any,
    ratio: float,
    slack: float,
    out: Any,
    doubtful: Any,
    spares: Any,
) -> Any:
    """Round ratio * Z to integers, one word a draw; return how many draws are left undecided.

    Parameters
    ----------
    words : uint64 array [n]
        Bit 0 is the sign, the other 63 are the first bits of V.
    spare : uint64 array [m]
        Refill the bits of V that leading zeros shift out, in order of need.
    coefficients : float64 array [1024, 8]
    ratio, slack : float
        sigma / step, and a bound on the error of ratio * z other than 2^-51 relative.
    out : int64 array [n]
        Filled.
    doubtful, spares : int64 arrays [n]
        Index of each undecided draw, and of the spare word it has used (-1: none).
    """
    used = 0
    doubts = 0
    for i in range(words.size):
        word = words[i]
        v = word >> uint64(1)
        zeros = leading_zeros(v) - uint64(1)
        spare_index = -1
        decided = zeros < uint64(32)
        if decided:
            v = v << zeros
            if zeros >= uint64(_REFILL):
                if used < spare.size:
                    v |= spare[used] >> (uint64(64) - zeros)
                    spare_index = used
                    used += 1
                else:
                    decided = False
            row = (zeros << uint64(5)) | ((v >> uint64(57)) & uint64(31))
            t = np.float64(np.int64(v & _LOW_57) - _HALF_PIECE) * _UNIT_PIECE
            c = coefficients[row]
            z = c[0] + t * (c[1] + t * (c[2] + t * (c[3] + t * (c[4] + t * (c[5] + t * (c[6] + t * c[7]))))))
            x = ratio * z
            nearest = np.floor(x + 0.5)
            decided &= 0.5 - abs(x - nearest) > slack + x * 2.0**-51
            k = np.int64(nearest)
            out[i] = -k if word & uint64(1) else k
        if not decided:
            doubtful[doubts] = i
            spares[doubts] = spare_index
            doubts += 1
    return doubts


@njit(cache=True, nogil=True)
def geometric_digits(words: Any, tables: Any, shift: int, out: Any, doubtful: Any) -> Any:
    """Draw integers digit by digit, each by inversion against 64-bit thresholds, in constant time.

    Parameters
    ----------
    words : uint64 array [n, levels + extra]
        One word a digit, lowest digit first; further columns are not read.
    tables : uint64 array [levels, 2^shift]
        floor(2^64 P(digit <= d)), the last entry 2^64 - 1.
    shift : int
    out, doubtful : int64 arrays [n]
        A draw is undecided when a word equals a threshold.
    """
    levels, width = tables.shape
    doubts = 0
    for i in range(words.shape[0]):
        total = np.int64(0)
        tie = False
        for level in range(levels):
            word = words[i, level]
            place = 0
            half = width >> 1
            while half:  # branch-free bisection: the same steps for every outcome
                place += half * np.int64(tables[level, place + half - 1] < word)
                half >>= 1
            tie |= tables[level, place] == word
            total |= np.int64(place) << (shift * level)
        out[i] = total
        doubtful[doubts] = i
        doubts += np.int64(tie)
    return doubts


@njit(cache=True, nogil=True, inline="always")
def exp_fixed(gamma: Any, tables: Any) -> Any:
    """Return 2^63 exp(-gamma / 2^56) for a uint64 gamma, at most 16 units too small, never too large.

    A product of eight table entries, one a byte; `tables[i, b]` = floor(2^63 exp(-b 2^(8i - 56))). Each
    entry and each product is rounded down: 15 floors of less than one unit, all factors at most one.
    """
    result = tables[0, gamma & uint64(255)]
    for i in range(1, 8):
        factor = tables[i, (gamma >> uint64(8 * i)) & uint64(255)]
        high = multiply_high(result, factor)
        low = result * factor
        result = (high << uint64(1)) | (low >> uint64(63))
    return result


#: Units of 2^-63 by which a probability of `accept_gaussian` can be wrong; the proof is in its docstring.
_ACCEPT_ERROR = np.uint64(256)
_FAR = np.uint64(1 << 62)


@njit(cache=True, nogil=True)
def accept_gaussian(
    words: Any,
    proposals: Any,
    known: int,
    inverse: Any,
    shift: int,
    offset: Any,
    tables: Any,
    out: Any,
    doubtful: Any,
) -> Any:
    """Decide for each proposal g >= 0 whether to accept it with probability exp(-x^2), x = |g kappa - c|.

    Parameters
    ----------
    words : uint64 array [n, known + 1]
        The last word of a row: bit 0 is the sign, the others the first 63 bits of the uniform.
    proposals : int64 array [n]
        Below 2^62.
    known : int
        Column of the acceptance word.
    inverse, shift : uint64, int
        kappa 2^58 = inverse 2^-shift, rounded down, inverse in [2^63, 2^64), shift in [0, 63]; for
        kappa >= 64 the pair (2^64 - 1, 0), which counts every g >= 1 as far.
    offset : uint64
        floor(c 2^58).
    tables : uint64 array [8, 256]
    out, doubtful : int8 array, int64 array [n]
        1 accepted positive, -1 accepted negative, 0 rejected.

    Notes
    -----
    x is wrong by less than 2^-57: half of that from `inverse` (x < 16, so 17 * 2^-63), the rest from two
    floors of 2^-58. So exp(-x^2), whose slope is at most 0.86, is wrong by less than 0.86 * 2^-57 + 2^-56
    (the floor of x^2) + 16 * 2^-63 < 200 * 2^-63. Where g kappa >= 16, x > 15 and it is below 2^-320.
    """
    doubts = 0
    for i in range(proposals.size):
        g = uint64(proposals[i])
        word = words[i, known]
        uniform = word >> uint64(1)
        high = multiply_high(g, inverse)
        low = g * inverse
        if shift > 0:
            far = high >> uint64(shift) != uint64(0)
            product = (high << uint64(64 - shift)) | (low >> uint64(shift))
        else:
            far = high != uint64(0)
            product = low
        x = product - offset if product > offset else offset - product
        far |= product >= _FAR
        probability = uint64(0)
        if not far:
            square_high = multiply_high(x, x)
            square = (square_high << uint64(4)) | ((x * x) >> uint64(60))
            probability = exp_fixed(square, tables)
        accepted = uniform < probability
        gap = probability - uniform if accepted else uniform - probability
        doubt = gap <= _ACCEPT_ERROR
        negative = word & uint64(1)
        # Zero has one sign only, or it would be drawn twice as often.
        if not accepted or (negative and g == uint64(0)):
            out[i] = 0
        else:
            out[i] = -1 if negative else 1
        doubtful[doubts] = i
        doubts += np.int64(doubt)
    return doubts


@njit(cache=True, nogil=True)
def accept_exp(words: Any, gammas: Any, tables: Any, out: Any, doubtful: Any) -> Any:
    """Decide U < exp(-gamma) for float64 gammas >= 0 with the first 63 bits of U.

    The floor of gamma to 2^-56 is worth 2^7 units of 2^-63 at most, `exp_fixed` 16: undecided within 160.
    """
    doubts = 0
    for i in range(gammas.size):
        uniform = words[i] >> uint64(1)
        gamma = gammas[i]
        probability = uint64(0)
        if gamma < 255.0:
            probability = exp_fixed(uint64(gamma * 2.0**56), tables)
        accepted = uniform < probability
        gap = probability - uniform if accepted else uniform - probability
        out[i] = accepted
        doubtful[doubts] = i
        doubts += np.int64(gap <= uint64(160))
    return doubts
