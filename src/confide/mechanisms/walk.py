"""Numba helpers for draws among weighted things: full-exponent uniforms, proven exp, and a tree of sums.

Other rooms build their own walks from these (bits arrive as an array from a stream object). Accuracy is
relative at every outcome: walks go by ratios of positive sums, never by differences of prefix sums, and a
uniform has 53 significant bits however small it is (pitfalls F47, F48).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit, uint64

from confide.mechanisms.kernels import exp_fixed, leading_zeros

_LN2_HIGH = float.fromhex("0x1.62e42fefa0000p-1")  # 37 bits of ln 2: its product with k < 1024 is exact
_LN2_LOW = float.fromhex("0x1.cf79abc9e3b3ap-40")
_INVERSE_LN2 = 1.4426950408889634

#: exp_negative(d) is within this relative distance of exp(-d), for the double d and 0 <= d <= 700.
EXP_ERROR = 2.0**-51
#: Band around a node's ratio inside which `tree_walk` leaves the decision to exact arithmetic: above
#: 2 (2^-51 + 700 * 2^-53) + 2 * 40 * 2^-53 + 2^-50, for trees of depth 40 or less.
_BAND = 2.0**-41
#: Beyond this gap a weight is not computed, and below that sum no ratio is trusted: exp(-700) against
#: exp(-600) cannot matter to `_BAND`.
_FAR_GAP = 700.0
_LEAST_SUM = 1e-260


@njit(cache=True, nogil=True)
def full_exponent_uniform(words: Any, position: int) -> Any:
    """Return (u, next position): a uniform on (0, 1), rounded down to 53 significant bits at any exponent.

    For every double p >= 2^-1000, u < p happens with probability exactly p (rounding down keeps the event
    U < p, since p is a point of the grid). So a test against a computed probability adds no error of its own,
    however small the probability is.

    Parameters
    ----------
    words : uint64 array
        From a stream; one word a uniform, two with probability 2^-11.
    position : int
        Next unread word.

    Returns
    -------
    u : float
        2^-1022 stands for everything below 2^-1000. -1.0 where the words ran out: draw more, *append* them
        and begin again at the same position (dropping the words read so far would bias towards large u).
    position : int
        After the words that were read; unchanged where they ran out.
    """
    start = position
    exponent = 0
    while position < words.size:
        word = words[position]
        position += 1
        if word == uint64(0):
            exponent += 64
            if exponent > 1000:
                return 2.0**-1022, position
            continue
        zeros = leading_zeros(word)
        mantissa = word << zeros
        if zeros > uint64(11):
            if position == words.size:
                break
            mantissa |= words[position] >> (uint64(64) - zeros)
            position += 1
        exponent += np.int64(zeros)
        if exponent > 1000:
            return 2.0**-1022, position
        return np.float64(mantissa >> uint64(11)) * 2.0**-53 * 2.0**-exponent, position
    return -1.0, start


@njit(cache=True, nogil=True)
def exp_negative(gap: float, tables: Any) -> float:
    """Return exp(-gap) for 0 <= gap <= 700 within a relative `EXP_ERROR`; 0 beyond.

    gap = k ln 2 + f, f in [0, 0.7): the first subtraction is exact (Sterbenz), the second is wrong by at most
    2^-54, the floor to 2^-56 and `exp_fixed` add 2^-56 + 2^-59; exp(-f) > 0.49. One rounding to double.
    """
    if not gap <= _FAR_GAP:
        return 0.0
    k = np.floor(gap * _INVERSE_LN2)
    f = (gap - k * _LN2_HIGH) - k * _LN2_LOW
    if f < 0.0:
        k -= 1.0
        f = (gap - k * _LN2_HIGH) - k * _LN2_LOW
    mantissa = exp_fixed(uint64(f * 2.0**56), tables)
    return np.float64(mantissa) * 2.0**-63 * 2.0**-k


@njit(cache=True, nogil=True)
def weight_tree(gaps: Any, tables: Any, tree: Any) -> None:
    """Fill a binary tree of sums of exp(-gap): node i has children 2i and 2i + 1, leaf j is size + j."""
    size = tree.size // 2
    for j in range(size):
        tree[size + j] = exp_negative(gaps[j], tables) if j < gaps.size else 0.0
    for node in range(size - 1, 0, -1):
        tree[node] = tree[2 * node] + tree[2 * node + 1]


@njit(cache=True, nogil=True)
def tree_walk(words: Any, tree: Any, out: Any, doubtful: Any) -> Any:
    """Walk from the root to a leaf by ratios of sums, one word a level; return how many are undecided."""
    size = tree.size // 2
    depth = words.shape[1]
    doubts = 0
    for i in range(words.shape[0]):
        node = 1
        doubt = False
        for level in range(depth):
            left = tree[2 * node]
            total = left + tree[2 * node + 1]
            ratio = left / total if total > _LEAST_SUM else 0.5
            u = np.float64(words[i, level]) * 2.0**-64
            doubt |= total <= _LEAST_SUM or abs(u - ratio) <= _BAND
            node = 2 * node + (0 if u < ratio else 1)
        out[i] = node - size
        doubtful[doubts] = i
        doubts += np.int64(doubt)
    return doubts
