"""Which rows enter a step: all of them, or each independently with one probability (Poisson).

The gaps between drawn rows of an endless sequence of coin flips are geometric, so b rows cost b draws and
not n. P(gap >= g) = (1 - q)^g = exp(-g / scale) is drawn exactly by its digits (`confide.mechanisms.tables`),
the scale is the rational that a double is, and q is *defined* as 1 - exp(-1 / scale). Cut into pieces of n
flips, the sequence gives each step its own independent batch; fixed-size, shuffled or weighted sampling do
not exist here (pitfalls F23, F24, F26).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from fractions import Fraction
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from confide.errors import ParameterError
from confide.mechanisms import RandomStream
from confide.mechanisms.enclosure import LazyUniform, divide_up, exp_minus
from confide.mechanisms.tables import Geometric, geometric

Places = npt.NDArray[np.int64]
#: Gaps drawn at once.
_DRAWS = 1 << 14
#: Digits of at most so many bits are looked up in one table.
_ONE_DIGIT = 14
#: Below this rate the gaps' digits would pass 2^50; nobody trains so.
_LEAST_RATE = 1e-9


def rate_of(batch_size: Any, rows: int) -> tuple[float, float]:
    """Return (scale of the gaps, sampling probability rounded up) of a batch size among `rows` public rows.

    ``(0.0, 1.0)`` for full batches: no batch size, or one of at least the number of rows.

    ==============================  ===================================================================
    edge case                       what happens
    ==============================  ===================================================================
    None; batch_size >= rows        full batches
    batch_size below 1              an expected size: most batches are empty, noise is added all the same
    0, negative, NaN, below 1e-9 n  ParameterError
    ==============================  ===================================================================
    """
    if batch_size is None:
        return 0.0, 1.0
    real = isinstance(batch_size, int | float | np.integer | np.floating) and not isinstance(batch_size, bool)
    if not real or not _LEAST_RATE * rows <= batch_size < math.inf:
        raise ParameterError(
            f"The 'batch_size' parameter is {batch_size!r:.80}.",
            "Pass None for full batches, or a positive expected number of rows.",
        )
    if batch_size >= rows:
        return 0.0, 1.0
    scale = -1.0 / math.log1p(-float(batch_size) / rows)
    # The rate of that scale, a few ulp up: what is accounted is never less than what is drawn.
    return scale, min(-math.expm1(-1.0 / scale) * (1 + 8e-16), 1.0 - 2.0**-53)


def poisson_batches(rows: int, scale: float, stream: RandomStream) -> Iterator[Places]:
    """Yield batches for ever: sorted places in [0, rows), each there with probability 1 - exp(-1 / scale).

    Parameters
    ----------
    rows : int
        n >= 0.
    scale : float
        From `rate_of`.
    stream : RandomStream
    """
    law = gap_law(scale)
    held = np.empty(0, dtype=np.int64)
    end = -1  # the last drawn row of the endless sequence, counted from the start of the next batch
    while True:
        parts = [held]
        while end < rows:
            # As many as one batch is likely to need, at most what is drawn at once.
            flips = end + np.cumsum(_gaps(law, _DRAWS, stream) + 1)
            end = int(flips[-1])
            parts.append(flips)
        places = np.concatenate(parts) if len(parts) > 1 else held
        cut = int(np.searchsorted(places, rows))
        yield places[:cut]
        held = places[cut:] - rows
        end -= rows


@lru_cache(maxsize=16)
def gap_law(scale: float) -> Geometric:
    """Return the law of gaps; in one digit, and so one word a draw, where that table is short."""
    exact = Fraction(scale)
    law = geometric(exact)
    shift = max(1, int(45 * exact + 1).bit_length())
    if shift > _ONE_DIGIT or law.levels == 1:
        return law
    bits = 320
    one = 1 << bits
    low, high = exp_minus(1 / exact, bits)
    below, above = one, one
    table = np.empty((1, 1 << shift), dtype=np.uint64)
    for g in range((1 << shift) - 1):
        # floor(2^64 P(gap <= g)), P = 1 - exp(-(g + 1) / scale), between two rational bounds.
        below, above = below * low >> bits, divide_up(above * high, one)
        least, most = ((one - above) << 64) // one, ((one - below) << 64) // one
        if least != most:  # too near an integer for so many bits
            return law
        table[0, g] = least
    table[0, -1] = (1 << 64) - 1
    table.setflags(write=False)
    return Geometric(exact, shift, table)


def _gaps(law: Any, count: int, stream: RandomStream) -> Places:
    from confide.mechanisms.kernels import geometric_digits, warm

    words = stream.bits(count * law.levels).reshape(count, law.levels)
    out = np.empty(count, dtype=np.int64)
    doubtful = np.empty(count, dtype=np.int64)
    warm(law.thresholds)
    for i in doubtful[: geometric_digits(words, law.thresholds, law.shift, out, doubtful)].tolist():
        out[i] = law.exact([LazyUniform(int(word), 64, stream) for word in words[i]])
    return out
