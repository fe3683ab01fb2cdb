"""One of finitely many things, by weights that are integers, rationals, or given by their logarithms.

Both samplers are exact for the weights they are given: a choice over integers is a uniform integer, a choice
over log-weights walks a tree of sums, each step of which is settled in exact arithmetic wherever the proven
error of the fast computation could matter. So an outcome of probability 2^-1000 is drawn with that
probability, and no error of the draw itself has to be paid for in epsilon.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Sequence
from fractions import Fraction
from itertools import accumulate
from typing import Any, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray

from confide.errors import ParameterError
from confide.mechanisms.enclosure import Enclosure, LazyUniform, divide_up, exp_minus
from confide.mechanisms.parameters import Size, rational, shape_of
from confide.mechanisms.stream import RandomStream, broken_stream
from confide.mechanisms.stream import stream as as_stream
from confide.mechanisms.tables import exp_tables

_BLOCK = 1 << 12
#: Consecutive rejections of a uniform integer (each of probability below 1/2) before the stream is broken.
_REJECTIONS = 4096


def choice_error(count: int) -> Fraction:
    """Return kappa: `weighted_choice` among `count` things draws from the given weights times exp(+-kappa).

    Zero: the draw is exact. It is a function so that callers add ``choice_cost(choice_error(n) + theirs)``,
    where their own part is the error with which they computed the weights.
    """
    if count < 1:
        raise ParameterError(f"The 'count' parameter is {count!r}.", "Pass the number of things, >= 1.")
    return Fraction(0)


def choice_cost(kappa: Fraction | int) -> Fraction:
    """Return the epsilon that weights within exp(+-kappa) of the intended ones cost: 4 kappa.

    With computed weights v_i in w_i exp(+-kappa), the probability v_i / sum v lies within exp(+-2 kappa) of
    w_i / sum w. That holds on both neighbouring tables, so their ratio grows by exp(4 kappa) at most; 4 is
    approached when the errors of i and of the rest have opposite signs on both tables.
    """
    return 4 * Fraction(kappa)


@overload
def weighted_choice(
    weights: Sequence[Any] | ArrayLike | None = ...,
    *,
    log_weights: Sequence[Any] | ArrayLike | None = ...,
    size: None = ...,
    stream: RandomStream | None = ...,
) -> int: ...


@overload
def weighted_choice(
    weights: Sequence[Any] | ArrayLike | None = ...,
    *,
    log_weights: Sequence[Any] | ArrayLike | None = ...,
    size: Size,
    stream: RandomStream | None = ...,
) -> NDArray[np.int64]: ...


def weighted_choice(
    weights: Sequence[Any] | ArrayLike | None = None,
    *,
    log_weights: Sequence[Any] | ArrayLike | None = None,
    size: Size | None = None,
    stream: RandomStream | None = None,
) -> int | NDArray[np.int64]:
    """Draw positions 0 .. n-1 with probabilities proportional to the weights, exactly.

    Parameters
    ----------
    weights : sequence of int, Fraction or float, optional
        >= 0, not all 0; integers of any length. Floats are the exact rationals that they are.
    log_weights : float array or sequence of Fraction or int [n], optional
        Natural logarithms; -inf is never chosen. Floats are the exact rationals that they are: the law is
        softmax of exactly these numbers. Give this or `weights`.
    size : int or tuple of int, optional
        None: one int.
    stream : RandomStream, optional

    Returns
    -------
    int, or int64 array of shape `size`

    Raises
    ------
    ParameterError
        If both or none are given, there are no weights, all are zero (all logarithms -inf), or one is NaN,
        negative (+inf). The message does not depend on where.

    Notes
    -----
    A draw over log-weights takes ceil(log2 n) steps and words whatever its outcome, after one pass over the
    weights. It enters exact arithmetic with probability below log2(n) 2^-40, or on the way to an outcome of
    probability below e^-590.

    ============================  =====================================================================
    edge case                     what happens
    ============================  =====================================================================
    scores 0, -800, -1600         drawn with those odds; no underflow, no NaN (pitfall F47)
    scores around -1e12           as the differences say
    equal scores                  uniform
    -inf, weight 0                never chosen
    one thing                     0, without drawing bits
    all -inf, all 0, NaN, empty   ParameterError
    integers beyond 2^63          exact
    words all zeros or ones       a valid outcome, or EntropyError if it never ends
    ============================  =====================================================================
    """
    if (weights is None) == (log_weights is None):
        raise ParameterError(
            "Exactly one of 'weights' and 'log_weights' is needed.", "Pass one of them, by its name."
        )
    shape = () if size is None else shape_of(size)
    count = math.prod(shape)
    source = as_stream(stream)
    if weights is not None:
        drawn = _by_integers(integer_weights(weights), count, source)
    else:
        drawn = _by_logarithms(_logarithms(log_weights), count, source)
    return int(drawn[0]) if size is None else drawn.reshape(shape)


def integer_weights(weights: Sequence[Any] | ArrayLike) -> list[int]:
    """Return integers in the exact proportions of `weights` (int, Fraction or float, >= 0)."""
    given: Any = weights.tolist() if isinstance(weights, np.ndarray) else weights
    try:
        values = [rational(weight, "weights") for weight in given]
    except (ParameterError, TypeError):  # without the value: weights are computed from private data
        raise ParameterError(
            "The 'weights' hold a value that is no finite number >= 0.", "Pass integers, fractions or floats."
        ) from None
    common = math.lcm(*(v.denominator for v in values))
    result = [v.numerator * (common // v.denominator) for v in values]
    if not any(result):
        raise ParameterError("The 'weights' are empty or all zero.", "Pass at least one positive weight.")
    return result


def _by_integers(weights: list[int], count: int, source: RandomStream) -> NDArray[np.int64]:
    ends = list(accumulate(weights))
    draws = uniform_integers(ends[-1], count, source)
    if isinstance(draws, np.ndarray):
        return np.searchsorted(np.array(ends, dtype=np.uint64), draws, side="right").astype(np.int64)
    return np.array([bisect_right(ends, draw) for draw in draws], dtype=np.int64)


def uniform_integers(total: int, count: int, source: RandomStream) -> NDArray[np.uint64] | list[int]:
    """Draw uniform integers below `total` >= 1, exactly; a list where `total` is above 2^63.

    By rejection of equally likely bit strings: how many are rejected is independent of what is kept.
    """
    bits = (total - 1).bit_length()
    if bits == 0:
        return np.zeros(count, dtype=np.uint64)
    if bits <= 63:
        result = np.empty(count, dtype=np.uint64)
        done = rounds = 0
        while done < count:
            candidates = source.bits(2 * (count - done) + 16) >> np.uint64(64 - bits)
            kept = candidates[candidates < np.uint64(total)][: count - done]
            result[done : done + kept.size] = kept
            done += kept.size
            rounds = 0 if kept.size else rounds + 1
            if rounds > _REJECTIONS // 16:
                raise broken_stream()
        return result
    words = -(-bits // 64)
    draws: list[int] = []
    for _ in range(count):
        for _ in range(_REJECTIONS):
            value = int.from_bytes(source.bits(words).tobytes(), "little") >> (64 * words - bits)
            if value < total:
                draws.append(value)
                break
        else:
            raise broken_stream()
    return draws


def _logarithms(log_weights: Any) -> NDArray[np.float64] | list[Fraction | None]:
    """Return the logarithms as doubles, or as exact rationals (None: -inf) where they are not all floats."""
    array = np.asarray(log_weights)
    if array.ndim != 1 or array.size == 0:
        raise ParameterError("The 'log_weights' are not a non-empty list.", "Pass one number for each thing.")
    if array.dtype.kind == "f" and array.dtype.itemsize <= 8:
        doubles = array.astype(np.float64)
        largest = doubles.max()  # NaN if any is
        if not (-math.inf < largest < math.inf):
            raise ParameterError(
                "The 'log_weights' are all -inf, or hold NaN or +inf.", "Pass at least one finite logarithm."
            )
        return doubles
    exact: list[Fraction | None] = []
    for value in array.tolist():
        if isinstance(value, float) and value == -math.inf:
            exact.append(None)
            continue
        try:
            exact.append(Fraction(value))
        except (TypeError, ValueError, OverflowError):
            raise ParameterError(
                "The 'log_weights' hold a value that is no finite number.",
                "Pass floats, integers or fractions.",
            ) from None
    if all(value is None for value in exact):
        raise ParameterError(
            "The 'log_weights' are all -inf, or hold NaN or +inf.", "Pass at least one finite logarithm."
        )
    return exact


def _by_logarithms(
    logarithms: NDArray[np.float64] | list[Fraction | None], count: int, source: RandomStream
) -> NDArray[np.int64]:
    from confide.mechanisms.walk import tree_walk, weight_tree

    if isinstance(logarithms, np.ndarray):
        with np.errstate(over="ignore"):
            gaps = logarithms.max() - logarithms
    else:
        top = max(value for value in logarithms if value is not None)
        gaps = np.array([math.inf if v is None else _as_gap(top - v) for v in logarithms], dtype=np.float64)
    depth = (gaps.size - 1).bit_length()
    out = np.zeros(count, dtype=np.int64)
    if depth == 0:
        return out
    tree = np.empty(2 << depth, dtype=np.float64)
    weight_tree(gaps, exp_tables(), tree)
    for start in range(0, count, _BLOCK):
        block = out[start : start + _BLOCK]
        words = source.bits(block.size * depth).reshape(block.size, depth)
        doubtful = np.empty(block.size, dtype=np.int64)
        for i in doubtful[: tree_walk(words, tree, block, doubtful)].tolist():
            block[i] = _exact_walk(logarithms, depth, [LazyUniform(int(w), 64, source) for w in words[i]])
    return out


def _as_gap(gap: Fraction) -> float:
    return float(gap) if gap < 10**6 else math.inf


def _exact_walk(
    logarithms: NDArray[np.float64] | list[Fraction | None], depth: int, uniforms: list[LazyUniform]
) -> int:
    """Walk the same tree with exact decisions: left when u < L / (L + R)."""
    values: list[Fraction | None] = (
        [Fraction(v) if v > -math.inf else None for v in logarithms.tolist()]
        if isinstance(logarithms, np.ndarray)
        else logarithms
    )
    start = 0
    for level, u in enumerate(uniforms):
        half = 1 << (depth - level - 1)
        left = [v for v in values[start : start + half] if v is not None]
        right = [v for v in values[start + half : start + 2 * half] if v is not None]
        if not left or (right and not u.below(_share(left, right))):
            start += half
    return start


def _share(chosen: list[Fraction], others: list[Fraction]) -> Callable[[int], Enclosure]:
    """Return the enclosure of sum exp(chosen) / sum exp(chosen and others)."""
    top = max(max(chosen), max(others, default=max(chosen)))
    guard = (len(chosen) + len(others)).bit_length() + 8

    def enclose(bits: int) -> Enclosure:
        work = bits + guard
        ours = [exp_minus(top - value, work) for value in chosen]
        rest = [exp_minus(top - value, work) for value in others]
        low, high = sum(e[0] for e in ours), sum(e[1] for e in ours)
        rest_low, rest_high = sum(e[0] for e in rest), sum(e[1] for e in rest)
        return (low << bits) // max(1, low + rest_high), divide_up(high << bits, max(1, high + rest_low))

    return enclose


def choice_probabilities(
    log_weights: Sequence[Any] | ArrayLike, *, bits: int = 128
) -> list[tuple[Fraction, Fraction]]:
    """Enclose the law of ``weighted_choice(log_weights=...)``: for each thing, lower and upper bound.

    Parameters
    ----------
    log_weights : as for `weighted_choice`
    bits : int
        Absolute precision: bounds are a few 2^-bits apart.

    Returns
    -------
    list of (Fraction, Fraction) [n]
    """
    logarithms = _logarithms(log_weights)
    values = [
        None if v is None or v == -math.inf else Fraction(v)
        for v in (logarithms.tolist() if isinstance(logarithms, np.ndarray) else logarithms)
    ]
    finite = [value for value in values if value is not None]
    guard = len(finite).bit_length() + 8
    top = max(finite)
    weights = [(0, 0) if v is None else exp_minus(top - v, bits + guard) for v in values]
    low, high = sum(w[0] for w in weights), sum(w[1] for w in weights)
    return [(Fraction(w[0], high), Fraction(w[1], low)) for w in weights]
