"""Exact discrete noise: Bernoulli(exp(-gamma)), discrete Laplace and discrete Gaussian on the integers.

The laws of Canonne, Kamath & Steinke, "The Discrete Gaussian for Differential Privacy" (NeurIPS 2020).
Every outcome is decided by comparing integers: 64-bit uniforms against exact floors of probabilities, and
where the words tie (or lie inside the proven error of a fixed-point product) against enclosures of any
precision. Scales are the exact rationals that the arguments are. Draws are made in batches, and a draw of a
large value takes the same steps as one of a small value (pitfall K02); where draws are rejected, their
number is independent of the values that are kept.
"""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
from numpy.typing import ArrayLike, NDArray

from confide.errors import ParameterError
from confide.mechanisms.enclosure import LazyUniform, exp_minus
from confide.mechanisms.parameters import Number, Size, bounded, rational, shape_of
from confide.mechanisms.stream import RandomStream, Words, broken_stream
from confide.mechanisms.stream import stream as as_stream
from confide.mechanisms.tables import Geometric, exact_floor, exp_tables, geometric

_BLOCK = 1 << 14
#: Batches without one accepted proposal before the stream counts as broken (each has 64 proposals or more).
_BARREN = 256


def bernoulli_exp(gamma: Number, size: Size, *, stream: RandomStream | None = None) -> NDArray[np.bool_]:
    """Draw independent Bernoulli variables that are True with probability exp(-gamma), exactly.

    Parameters
    ----------
    gamma : number
        >= 0; a float is the exact rational that it is.
    size : int or tuple of int
    stream : RandomStream, optional

    Returns
    -------
    bool array of shape `size`

    Raises
    ------
    ParameterError
        If gamma is negative, NaN or infinite.

    Notes
    -----
    ============================  =====================================================================
    edge case                     what happens
    ============================  =====================================================================
    gamma = 0                     all True
    gamma = 1e300                 False, unless thousands of bits are zero (exact: more bits are drawn)
    gamma below 2^-64             False with its exact probability
    negative, NaN, infinite       ParameterError
    a word equal to the floor     more bits decide
    ============================  =====================================================================
    """
    y = rational(gamma, "gamma")
    shape = shape_of(size)
    if y == 0:
        return np.ones(shape, dtype=np.bool_)
    source = as_stream(stream)
    threshold = exact_floor(lambda bits: exp_minus(y, bits), 64) if y < 64 else 0
    words = source.bits(math.prod(shape))
    result = words < np.uint64(threshold)
    for i in np.flatnonzero(words == np.uint64(threshold)):
        result[i] = LazyUniform(int(words[i]), 64, source).below(lambda bits: exp_minus(y, bits))
    return result.reshape(shape)


def bernoulli_log(log_p: ArrayLike, *, stream: RandomStream | None = None) -> NDArray[np.bool_]:
    """Decide for each element whether a uniform lies below exp(log_p), exactly: an acceptance test.

    Parameters
    ----------
    log_p : float array
        Logarithms of probabilities, <= 0; -inf is never accepted, 0 always. Each float is the exact rational
        that it is: probabilities far below 2^-53, or as far below 1, are met exactly.
    stream : RandomStream, optional

    Returns
    -------
    bool array of the shape of `log_p`

    Raises
    ------
    ParameterError
        If an element is NaN or above 0 (a bound above a score raises, never clips).
    """
    from confide.mechanisms.kernels import accept_exp

    array = np.asarray(log_p, dtype=np.float64)
    if not np.all(array <= 0):
        raise ParameterError("The 'log_p' parameter holds NaN or a value above 0.", "Pass logarithms <= 0.")
    source = as_stream(stream)
    gammas = np.ascontiguousarray(-array.reshape(-1))
    words = source.bits(gammas.size)
    result = np.empty(gammas.size, dtype=np.bool_)
    doubtful = np.empty(gammas.size, dtype=np.int64)
    for i in doubtful[: accept_exp(words, gammas, exp_tables(), result, doubtful)].tolist():
        result[i] = _accept(float(gammas[i]), int(words[i]) >> 1, source)
    return result.reshape(array.shape)


def _accept(gamma: float, prefix: int, source: RandomStream) -> bool:
    if gamma == 0 or math.isinf(gamma):
        return gamma == 0
    y = Fraction(gamma)
    return LazyUniform(prefix, 63, source).below(lambda bits: exp_minus(y, bits))


def discrete_laplace(scale: Number, size: Size, *, stream: RandomStream | None = None) -> NDArray[np.int64]:
    """Draw integers with P(x) = (1 - q) / (1 + q) q^|x|, q = exp(-1 / scale), exactly.

    Added to an integer of sensitivity D it is (D / scale)-DP under the adjacency of that sensitivity.

    Parameters
    ----------
    scale : number
        > 0, at most 2^50; a float is the exact rational that it is.
    size : int or tuple of int
    stream : RandomStream, optional

    Returns
    -------
    int64 array of shape `size`

    Raises
    ------
    ParameterError
        If `scale` is not a finite number in (0, 2^50].

    Notes
    -----
    The difference of two independent geometric variables, so nothing is rejected; each is drawn by its
    digits, which are independent (`confide.mechanisms.tables.Geometric`): all draws take the same steps.

    ============================  =====================================================================
    edge case                     what happens
    ============================  =====================================================================
    scale = 1e-300                zeros, unless thousands of bits are zero
    scale above 2^50              ParameterError: int64 could overflow
    0, negative, NaN, infinite    ParameterError
    words all zeros or ones       for one draw: exact; for ever: zeros, or EntropyError
    ============================  =====================================================================
    """
    law = geometric(bounded(rational(scale, "scale", positive=True), "scale"))
    shape = shape_of(size)
    source = as_stream(stream)
    out = np.empty(math.prod(shape), dtype=np.int64)
    for start in range(0, out.size, _BLOCK):
        count = min(_BLOCK, out.size - start)
        pair = _geometric(law, source.bits(2 * count * law.levels).reshape(2 * count, law.levels), source)
        out[start : start + count] = pair[:count] - pair[count:]
    return out.reshape(shape)


def _geometric(law: Geometric, words: Words, source: RandomStream) -> NDArray[np.int64]:
    from confide.mechanisms.kernels import geometric_digits, warm

    out = np.empty(words.shape[0], dtype=np.int64)
    doubtful = np.empty(words.shape[0], dtype=np.int64)
    warm(law.thresholds)
    count = geometric_digits(words, law.thresholds, law.shift, out, doubtful)
    for i in doubtful[:count].tolist():
        out[i] = law.exact([LazyUniform(int(word), 64, source) for word in words[i, : law.levels]])
    return out


def discrete_gaussian(sigma: Number, size: Size, *, stream: RandomStream | None = None) -> NDArray[np.int64]:
    """Draw integers with P(x) proportional to exp(-x^2 / (2 sigma^2)), exactly.

    Added to integers of L2 sensitivity D it is D^2 / (2 sigma^2)-zCDP (Canonne, Kamath & Steinke 2020,
    theorem 4). Use it with zCDP accounting only: it does not inherit the calibration of the continuous
    Gaussian, which `rounded_gaussian` does.

    Parameters
    ----------
    sigma : number
        > 0, at most 2^50; a float is the exact rational that it is.
    size : int or tuple of int
    stream : RandomStream, optional

    Returns
    -------
    int64 array of shape `size`

    Raises
    ------
    ParameterError
        If `sigma` is not a finite number in (0, 2^50].

    Notes
    -----
    Their algorithm 3: a discrete Laplace of scale t = floor(sigma) + 1, accepted with probability
    exp(-(|y| - sigma^2 / t)^2 / (2 sigma^2)); about 0.76 are. The number of rejected proposals is independent
    of the values kept, and all proposals take the same steps.

    ============================  =====================================================================
    edge case                     what happens
    ============================  =====================================================================
    sigma = 1e-300                zeros
    sigma above 2^50              ParameterError: int64 could overflow
    0, negative, NaN, infinite    ParameterError
    words all zeros or ones       for one draw: exact; for ever: EntropyError
    ============================  =====================================================================
    """
    width = bounded(rational(sigma, "sigma", positive=True), "sigma")
    shape = shape_of(size)
    source = as_stream(stream)
    law = geometric(Fraction(math.floor(width) + 1))
    out = np.empty(math.prod(shape), dtype=np.int64)
    done, barren = 0, 0
    while done < out.size:
        wanted = out.size - done
        proposals = min(_BLOCK, int(wanted * (1.4 if width >= 1 else 3.3)) + 64)
        kept = _propose(width, law, source, proposals)[:wanted]
        out[done : done + kept.size] = kept
        done += kept.size
        barren = 0 if kept.size else barren + 1
        if barren > _BARREN:
            raise broken_stream()
    return out.reshape(shape)


def _propose(width: Fraction, law: Geometric, source: RandomStream, count: int) -> NDArray[np.int64]:
    from confide.mechanisms.kernels import accept_gaussian, warm

    words = source.bits(count * (law.levels + 1)).reshape(count, law.levels + 1)
    magnitudes = _geometric(law, words, source)
    signs = np.empty(count, dtype=np.int8)
    doubtful = np.empty(count, dtype=np.int64)
    inverse, shift, offset = _fixed_point(width)
    warm(exp_tables())
    undecided = accept_gaussian(
        words, magnitudes, law.levels, inverse, shift, offset, exp_tables(), signs, doubtful
    )
    for i in doubtful[:undecided].tolist():
        word = int(words[i, law.levels])
        magnitude = int(magnitudes[i])
        gamma = (magnitude - width * width / law.scale) ** 2 / (2 * width * width)
        u = LazyUniform(word >> 1, 63, source)
        accepted = gamma == 0 or u.below(lambda bits, y=gamma: exp_minus(y, bits))
        negative = bool(word & 1)
        signs[i] = 0 if not accepted or (negative and magnitude == 0) else (-1 if negative else 1)
    return (magnitudes * signs)[signs != 0]


def _fixed_point(width: Fraction) -> tuple[np.uint64, int, np.uint64]:
    """Return kappa = 1 / (sqrt 2 sigma) and c = sigma / (sqrt 2 t) as the kernel wants them, rounded down."""

    def root_down(square: Fraction, shift: int) -> int:
        return math.isqrt((square.numerator << (2 * shift)) // square.denominator)

    square = 1 / (2 * width * width)
    t = math.floor(width) + 1
    offset = root_down(width * width / (2 * t * t), 58)
    shift = 0
    while (inverse := root_down(square, 58 + shift)).bit_length() < 64:
        shift += 1
    if inverse.bit_length() > 64:  # kappa >= 64
        inverse = (1 << 64) - 1
    return np.uint64(inverse), shift, np.uint64(offset)
