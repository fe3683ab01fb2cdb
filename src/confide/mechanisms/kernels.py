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


@intrinsic
def leading_zeros(typingctx: Any, word: Any) -> Any:
    """Count the leading zero bits of a uint64 (64 for zero)."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.ctlz(args[0], ir.Constant(ir.IntType(1), 0))

    return types.uint64(types.uint64), codegen


@intrinsic
def multiply_high(typingctx: Any, a: Any, b: Any) -> Any:
    """Return the high 64 bits of the 128-bit product of two uint64."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        wide = ir.IntType(128)
        product = builder.mul(builder.zext(args[0], wide), builder.zext(args[1], wide))
        return builder.trunc(builder.lshr(product, ir.Constant(wide, 64)), ir.IntType(64))

    return types.uint64(types.uint64, types.uint64), codegen


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
) -> int:
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
