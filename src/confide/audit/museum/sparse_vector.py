"""Variants of the sparse vector technique that are known to be wrong.

Lyu, Su & Li (2017), and Chen & Machanavajjhala (2015), catalogue such. Each asks whether
k_i + nu_i > theta + rho; right is: rho once an epoch, nu_i for each query, one bit told, and the epoch ends
with the first "below".
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np

from confide.audit.exact import nearly
from confide.audit.museum.piece import Piece, claim, vectorised
from confide.audit.registry import Claim, Floats, Law, Pair
from confide.mechanisms import RandomStream, discrete_laplace, split_epoch

_E1, _E2 = split_epoch(1)
_THRESHOLD = 10
_REACH = 60
#: Relative error of the laws below: sums of at most 121 products in doubles, and what lies beyond `_REACH`.
_ERROR = 1e-6
Queries = list[int]


def _above(y: Any, scale: Fraction = 2 / _E2) -> Any:
    """Return P(nu > y), nu discrete Laplace of a scale, 2 / e2 where it is right; 0 stands for no noise."""
    if scale == 0:
        return (np.asarray(y) < 0).astype(np.float64)
    q = math.exp(-1 / float(scale))
    tail = q ** (np.abs(np.where(np.asarray(y) >= 0, y, -1 - np.asarray(y))) + 1) / (1 + q)
    return np.where(np.asarray(y) >= 0, tail, 1 - tail)


def _bars() -> tuple[Any, Any]:
    """Return values of rho and their probabilities."""
    rho = np.arange(-_REACH, _REACH + 1)
    q = math.exp(-float(_E1))
    return rho, q ** np.abs(rho) * (1 - q) / (1 + q)


_STILL = (np.zeros(1, dtype=np.int64), np.ones(1))


def _noise(scale: Fraction, shape: Any, stream: RandomStream) -> Any:
    return discrete_laplace(scale, shape, stream=stream) if scale else np.zeros(shape, dtype=np.int64)


def _run(
    told: Callable[[Any, Any], Any],
    *,
    threshold_noise: bool = True,
    fresh: bool = True,
    scale: Fraction = 2 / _E2,
) -> dict[str, Any]:
    """Return `run` and `outputs` of a variant; `told` makes outputs of (noisy values, which are above)."""

    def draw(queries: Queries, size: int, stream: RandomStream) -> Floats:
        shape = (size, len(queries) if fresh else 1)
        noise = _noise(scale, shape, stream.child("queries"))
        rho = _noise(1 / _E1, (size, 1), stream.child("threshold")) if threshold_noise else 0
        noisy = np.array(queries) + noise
        return np.asarray(told(noisy, noisy > _THRESHOLD + rho), dtype=np.float64)

    return vectorised(draw)


def _until(noisy: Any, above: Any) -> Any:
    """Return how many are above before the first below."""
    return np.cumprod(above, axis=1).sum(axis=1)


def _until_law(queries: Queries, bars: tuple[Any, Any], scale: Fraction = 2 / _E2) -> Law:
    rho, left = bars
    table = {}
    for i, k in enumerate(queries):
        up = _above(_THRESHOLD + rho - k, scale)
        table[float(i)] = float((left * (1 - up)).sum())
        left = left * up
    return nearly({**table, float(len(queries)): float(left.sum())}, _ERROR)


_EQUAL = (
    Pair("all queries move alike", [_THRESHOLD + 1] * 9, [_THRESHOLD] * 9),
    Pair("far above", [_THRESHOLD + 8] * 7, [_THRESHOLD + 7] * 7),
)


def _epoch(name: str, *, threshold_noise: bool) -> Claim:
    bars = _bars() if threshold_noise else _STILL
    return claim(
        name, 1, 0, "replace_one", _EQUAL, law=lambda queries: _until_law(queries, bars), replayed=False,
        quick=200_000, **_run(_until, threshold_noise=threshold_noise),
    )  # fmt: skip


_LAST = (
    Pair(
        "the last query falls, the others rise",
        [_THRESHOLD] * 6, [_THRESHOLD + 1] * 5 + [_THRESHOLD - 1],
    ),
)  # fmt: skip


def _scaled(name: str, scale: Fraction) -> Claim:
    """Return an epoch whose queries get noise of a scale, 0 for none."""
    return claim(
        name, 1, 0, "replace_one", _LAST, law=lambda queries: _until_law(queries, _bars(), scale),
        replayed=False, quick=200_000, **_run(_until, scale=scale),
    )  # fmt: skip


_APART = (Pair("two queries move apart", [_THRESHOLD] * 2, [_THRESHOLD + 1, _THRESHOLD - 1]),)


def _shared_law(queries: Queries) -> Law:
    """Return the law of the number above before the first below, with one nu for all of them."""
    nu = np.arange(-4 * _REACH, 4 * _REACH + 1)
    mass = _above(nu - 1) - _above(nu)
    rho, chance = _bars()
    table = {float(i): 0.0 for i in range(len(queries) + 1)}
    for bar, p in zip(rho, chance, strict=True):
        above = np.array(queries)[None, :] + nu[:, None] > _THRESHOLD + bar
        count = np.cumprod(above, axis=1).sum(axis=1)
        for i in range(len(queries) + 1):
            table[float(i)] += float(p * mass[count == i].sum())
    return nearly(table, _ERROR)


def _reused(*, fresh: bool) -> Claim:
    law = (lambda queries: _until_law(queries, _bars())) if fresh else _shared_law
    return claim(
        "sparse_vector.reused_noise",
        1,
        0,
        "replace_one",
        _APART,
        law=law,
        replayed=False,
        **_run(_until, fresh=fresh),
    )


_MANY = 24
_HIGH = (Pair("far above the threshold", [_THRESHOLD + 50] * _MANY, [_THRESHOLD + 49] * _MANY),)


def _valued(noisy: Any, above: Any) -> Any:
    """Return the mean of the noisy values that are told: those above, before the first below."""
    kept = np.cumprod(above, axis=1)
    return (noisy * kept).sum(axis=1) / np.maximum(1, kept.sum(axis=1))


def _valued_law(queries: Queries) -> Law:
    """Return the law of how many told values exceed theta + 50; almost surely all queries are told."""
    up = float(_above(_THRESHOLD + 50 - queries[0]))
    n = len(queries)
    return nearly({float(i): math.comb(n, i) * up**i * (1 - up) ** (n - i) for i in range(n + 1)}, _ERROR)


def _values(*, told: bool) -> Claim:
    how = _run(_valued if told else _until)
    law = _valued_law if told else lambda queries: _until_law(queries, _bars())
    return claim(
        "sparse_vector.value",
        1,
        0,
        "replace_one",
        _HIGH,
        law=law,
        fits=False,
        replayed=False,
        quick=100_000,
        **how,
    )


_HALF = 20
_SPLIT = (
    Pair(
        "half move up, half down",
        [_THRESHOLD] * 2 * _HALF,
        [_THRESHOLD + 1] * _HALF + [_THRESHOLD - 1] * _HALF,
    ),
)  # fmt: skip


def _balance(noisy: Any, above: Any) -> Any:
    """Return how many more of the first half are above than of the second, all answered."""
    return above[:, :_HALF].sum(axis=1) - above[:, _HALF:].sum(axis=1).astype(np.int64)


def _balance_law(queries: Queries) -> Law:
    from scipy.stats import binom

    rho, chance = _bars()
    counts, total = np.arange(_HALF + 1), np.zeros(2 * _HALF + 1)
    for bar, p in zip(rho, chance, strict=True):
        first, second = (
            binom.pmf(counts, _HALF, float(_above(_THRESHOLD + bar - k))) for k in (queries[0], queries[-1])
        )
        total += p * np.convolve(first, second[::-1])
    return nearly({float(i - _HALF): float(x) for i, x in enumerate(total)}, _ERROR)


def _answered(*, reset: bool) -> Claim:
    law = (lambda queries: _until_law(queries, _bars())) if reset else _balance_law
    return claim(
        "sparse_vector.no_reset", 1, 0, "replace_one", _SPLIT, law=law, replayed=False, quick=100_000,
        **_run(_until if reset else _balance),
    )  # fmt: skip


PIECES = (
    Piece(
        "sparse_vector.no_threshold_noise",
        "The threshold gets no noise: each answer above costs e2 / 2, and any number of them is told.",
        lambda: _epoch("sparse_vector.no_threshold_noise", threshold_noise=False),
        lambda: _epoch("sparse_vector", threshold_noise=True),
        ("exact", "black box"),
    ),
    Piece(
        "sparse_vector.no_query_noise",
        "Queries get no noise, only the threshold: answers of two sorts order them exactly.",
        lambda: _scaled("sparse_vector.no_query_noise", Fraction(0)),
        lambda: _scaled("sparse_vector", 2 / _E2),
        ("exact", "black box"),
    ),
    Piece(
        "sparse_vector.half_query_noise",
        "Noise of scale 1 / e2 for queries that need 2 / e2, as they may move either way.",
        lambda: _scaled("sparse_vector.half_query_noise", 1 / _E2),
        lambda: _scaled("sparse_vector", 2 / _E2),
        ("exact", "black box"),
    ),
    Piece(
        "sparse_vector.reused_noise",
        "One number is the noise of all queries: it says nothing of their order, which is told exactly.",
        lambda: _reused(fresh=False), lambda: _reused(fresh=True),
        ("exact", "black box"),
    ),
    Piece(
        "sparse_vector.value",
        "The noisy value is told with each answer above, with the noise that it was compared with.",
        lambda: _values(told=True), lambda: _values(told=False),
        ("exact", "black box"),
    ),
    Piece(
        "sparse_vector.no_reset",
        "Queries go on after the first answer below, against the same noisy threshold, for one charge.",
        lambda: _answered(reset=False), lambda: _answered(reset=True),
        ("exact", "black box"),
    ),
)  # fmt: skip
