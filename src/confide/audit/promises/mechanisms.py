"""Claims of `confide.mechanisms`: noise, coins, choices and the sparse vector, on inputs one unit apart."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np

from confide.audit.exact import nearly
from confide.audit.registry import Floats, Kind, Law, Pair, promise
from confide.mechanisms import (
    RandomStream,
    SparseVector,
    Statistic,
    bernoulli_exp,
    bernoulli_log,
    discrete_gaussian,
    discrete_laplace,
    gaussian_release,
    laplace_release,
    rounded_gaussian,
    sparse_vector,
    split_epoch,
    stable_threshold,
    weighted_choice,
)
from confide.mechanisms.enclosure import exp_minus
from confide.privacy import gaussian_epsilon, round_up, zcdp_epsilon

_BITS = 320
_REACH = 60
#: Half of the window of a Gaussian's law, in deviations; rounded ones are seen to half of that.
_FAR_OUT = 30
_DELTA = Fraction(1, 1000)
UNIT = (Pair("0 against 1", 0, 1), Pair("far from 0", 2**40, 2**40 + 1))


def vectorised(draw: Callable[[Any, Any, RandomStream], Any]) -> dict[str, Any]:
    """Return `run` and `outputs` of a draw (table, size, stream)."""
    return {"run": lambda table, stream: draw(table, 1, stream), "outputs": draw}


def _exp(amount: Fraction) -> tuple[Fraction, Fraction]:
    low, high = exp_minus(amount, _BITS)
    return Fraction(low, 1 << _BITS), Fraction(high, 1 << _BITS)


def laplace_law(epsilon: Fraction) -> Callable[[Any], Law]:
    """Return the law of value + discrete Laplace of scale 1 / epsilon: a window, and its two tails."""
    (a, b), reach = _exp(epsilon), math.ceil(_REACH / epsilon)

    def mass(distance: int, share: Fraction, more: Fraction) -> tuple[Fraction, Fraction]:
        low, high = _exp(epsilon * distance)
        return low * share / (1 + b), high * more / (1 + a)

    def law(value: int) -> Law:
        offset = value & 1  # neighbours have one window
        centre = value - offset
        table: dict[Any, tuple[Fraction, Fraction]] = {
            float(centre + k): mass(abs(k - offset), 1 - b, 1 - a) for k in range(-reach, reach + 1)
        }
        one = Fraction(1)
        return table | {
            "below": mass(reach + 1 + offset, one, one),
            "above": mass(reach + 1 - offset, one, one),
        }

    return law


def gaussian_law(sigma: Fraction) -> Callable[[Any], Law]:
    """Return the law of value + discrete Gaussian; what lies outside the window is one lump."""
    reach = math.ceil(_FAR_OUT * sigma)
    weights = [_exp(Fraction(k * k) / (2 * sigma * sigma)) for k in range(reach + 1)]
    low, high = (
        w[0][0] + 2 * sum((x[i] for x in w[1:]), Fraction(0)) for i, w in ((0, weights), (1, weights))
    )
    high += Fraction(1, 1 << 200)  # more than the tail beyond 30 sigma, below 2 sigma e^-450

    def law(value: int) -> Law:
        table: dict[Any, tuple[Fraction, Fraction]] = {
            float(value + k): (weights[abs(k)][0] / high, weights[abs(k)][1] / low)
            for k in range(-reach, reach + 1)
        }
        return table | {"beyond": (Fraction(0), Fraction(1, 1 << 200))}

    return law


def rounded_law(sigma: float) -> Callable[[Any], Law]:
    """Return the law of value + round(Z): differences of the normal distribution function."""
    from scipy.special import ndtr

    def law(value: int) -> Law:
        far = np.arange(math.ceil(_FAR_OUT / 2 * sigma))
        mass = ndtr(-(far - 0.5) / sigma) - ndtr(-(far + 0.5) / sigma)
        table = {float(value + k): float(mass[abs(k)]) for k in range(1 - far.size, far.size)}
        return nearly(table, 1e-10) | {
            "beyond": (Fraction(0), round_up(2 * float(ndtr(-(far.size - 1) / sigma))))
        }

    return law


# What follows is called by its name each time: a recording may have put another function there.
def _noise(draw: Callable[..., Any], scale: Any) -> dict[str, Any]:
    return vectorised(lambda value, size, stream: value + draw(scale, size, stream=stream))


def _released(release: Callable[..., Any], amount: Any, **more: Any) -> dict[str, Any]:
    def draw(value: Floats, size: int, stream: RandomStream) -> Any:
        units = np.tile(np.asarray(value, dtype=np.int64), (size, 1))
        statistic = Statistic(units, 0.25, 1.0, "audit")
        return release(statistic, amount, stream=stream, **more)

    return vectorised(draw)


def _first_below(queries: list[int], stream: RandomStream) -> list[int]:
    return [sum(sparse_vector(1, _DELTA, stream=stream).above_many(queries))]


def _first_belows(queries: list[int], count: int, stream: RandomStream) -> Floats:
    """Return so many runs of `_first_below`, whose public threshold and split are found once."""
    epochs = (
        SparseVector(_BAR, *split_epoch(1), stream=stream.child(str(i))).above_many(queries)
        for i in range(count)
    )
    return np.array([sum(told) for told in epochs], dtype=np.float64)


def _above(e2: Fraction) -> Callable[[int], tuple[Fraction, Fraction]]:
    """Return what encloses P(N > y) of a query's own noise."""
    a, a_up = _exp(e2 / 2)

    def above(y: int) -> tuple[Fraction, Fraction]:
        low, high = _exp(e2 / 2 * (y + 1 if y >= 0 else -y))
        low, high = low / (1 + a_up), high / (1 + a)
        return (low, high) if y >= 0 else (1 - high, 1 - low)

    return above


def lasting_law(threshold: int, e1: Fraction, e2: Fraction) -> Callable[[Any], Law]:
    """Return the law of whether all of many equal queries are above; what ends before is one lump."""
    (b, b_up), above = _exp(e1), _above(e2)

    def law(queries: list[int]) -> Law:
        low = high = Fraction(0)
        for r in range(-_REACH - threshold, _REACH + threshold + 1):
            least, most = above(threshold + r - queries[0])
            p, q = _exp(e1 * abs(r))
            low += _trim(p * (1 - b_up) / (1 + b_up)) * _trim(_trim(least) ** len(queries))
            most = _trim((_trim(most) + _GRAIN) ** len(queries)) + _GRAIN
            high += (_trim(q * (1 - b) / (1 + b)) + _GRAIN) * most
        high += _exp(e1 * (_REACH + threshold + 1))[1] * 2
        return {
            float(len(queries)): (_trim(low), _trim(high) + _GRAIN),
            "ends": (Fraction(0), 1 - _trim(low)),
        }

    return law


def sparse_law(threshold: int, e1: Fraction, e2: Fraction) -> Callable[[Any], Law]:
    """Return the law of the number of answers above: P(R = r) times factors of the queries' own noise."""
    (b, b_up), above = _exp(e1), _above(e2)

    def law(queries: list[int]) -> Law:
        found = {float(i): [Fraction(0), Fraction(0)] for i in range(len(queries) + 1)}
        for r in range(-_REACH - threshold, _REACH + threshold + 1):
            low, high = _exp(e1 * abs(r))
            low, high = low * (1 - b_up) / (1 + b_up), high * (1 - b) / (1 + b)
            for i, k in enumerate(queries):
                least, most = above(threshold + r - k)
                found[float(i)][0] += _trim(low * (1 - most))
                found[float(i)][1] += _trim(high * (1 - least)) + _GRAIN
                low, high = _trim(low * least), _trim(high * most) + _GRAIN
            found[float(len(queries))][0] += low
            found[float(len(queries))][1] += high
        far = _exp(e1 * (_REACH + threshold + 1))[1] * 2
        table: dict[Any, tuple[Fraction, Fraction]] = {i: (p, q) for i, (p, q) in found.items()}
        return table | {"beyond": (Fraction(0), far)}

    return law


_GRAIN = Fraction(1, 1 << _BITS)


def _trim(value: Fraction) -> Fraction:
    return Fraction((value.numerator << _BITS) // value.denominator, 1 << _BITS)


SCORES = (
    Pair("all scores move", [0, -1, 1], [1, 0, 0]),
    Pair("tie", [0, 0, 0], [1, -1, 0]),
    Pair("far apart", [0, -800, -1600], [-1, -799, -1601]),
)


def softmax(scores: list[int], factor: Fraction) -> Law:
    """Return the law of a choice by the logarithms factor * scores."""
    top = max(scores)
    known = {score: _exp(factor * (top - score)) for score in set(scores)}
    weights = [known[score] for score in scores]
    low, high = (sum((w[i] for w in weights), Fraction(0)) for i in (0, 1))
    return {float(i): (w[0] / high, w[1] / low) for i, w in enumerate(weights)}


def _coin(gamma: Fraction) -> Law:
    low, high = _exp(gamma)
    return {1.0: (low, high), 0.0: (1 - high, 1 - low)}


def mechanism(name: str, epsilon: Any, delta: Any, proof: str, pairs: Any, **how: Any) -> None:
    """Register one mechanism of the room."""
    covers = (f"confide.mechanisms.{name}", *how.pop("covers", ()))
    kind = how.pop("kind", Kind.MECHANISM)
    promise(
        f"mechanisms.{name}",
        kind,
        epsilon,
        delta,
        "replace_one",
        proof,
        lambda: pairs,
        covers=covers,
        replayed=False,
        **how,
    )


_HALF = Fraction(1, 2)
mechanism(
    "discrete_laplace", _HALF, 0, "Ghosh, Roughgarden & Sundararajan 2009; confide.mechanisms.discrete", UNIT,
    law=laplace_law(_HALF), covers=("event:discrete_laplace",),
    **_noise(lambda *a, **how: discrete_laplace(*a, **how), 2),
)  # fmt: skip
mechanism(
    "discrete_gaussian", zcdp_epsilon(Fraction(1, 8), _DELTA), _DELTA,
    "Canonne, Kamath & Steinke 2020, theorem 4; confide.privacy.zcdp", UNIT,
    law=gaussian_law(Fraction(2)), covers=("event:discrete_gaussian",),
    **_noise(lambda *a, **how: discrete_gaussian(*a, **how), 2),
)  # fmt: skip
mechanism(
    "rounded_gaussian", round_up(gaussian_epsilon(2.0, _DELTA)), _DELTA,
    "Balle & Wang 2018, theorem 8, then rounding (post-processing); confide.mechanisms.gaussian", UNIT,
    law=rounded_law(2.0), covers=("event:gaussian",),
    **vectorised(lambda value, size, stream: value + rounded_gaussian(2.0, 1.0, size, stream=stream)),
)  # fmt: skip
mechanism(
    "bernoulli_exp", Fraction(1, 5), 0, "ratios of both outcomes; confide.mechanisms.discrete",
    (Pair("1 against 1.2", Fraction(1), Fraction(6, 5)),), law=_coin,
    **vectorised(lambda gamma, size, stream: bernoulli_exp(gamma, size, stream=stream)),
)  # fmt: skip
mechanism(
    "bernoulli_log", Fraction(1, 5), 0, "ratios of both outcomes; confide.mechanisms.discrete",
    (Pair("1 against 1.2", Fraction(1), Fraction(1.2)),), law=_coin,
    **vectorised(lambda gamma, size, stream: bernoulli_log(np.full(size, -float(gamma)), stream=stream)),
)  # fmt: skip
mechanism(
    "weighted_choice", 1, 0, "McSherry & Talwar 2007, theorem 6; confide.mechanisms.choice", SCORES,
    law=lambda scores: softmax(scores, Fraction(1, 2)),
    covers=("event:exponential", "event:pure"),
    **vectorised(
        lambda scores, size, stream: weighted_choice(
            log_weights=[Fraction(score, 2) for score in scores], size=size, stream=stream
        )
    ),
)  # fmt: skip
_BAR = stable_threshold(_DELTA, *split_epoch(1))
mechanism(
    "sparse_vector", 1, 0, "Dwork & Roth 2014, theorem 3.23; confide.mechanisms.above_threshold",
    (
        Pair("the last distance falls, the others rise", [_BAR] * 9, [_BAR + 1] * 8 + [_BAR - 1]),
        Pair("all distances fall", [12, 13, 12, 3], [11, 12, 11, 2]),
        Pair("around the threshold", [9, 8, 9, 8], [8, 9, 8, 9]),
    ),
    law=sparse_law(_BAR, *split_epoch(1)), run=_first_below,
    outputs=_first_belows, covers=("confide.mechanisms.SparseVector", "event:sparse_vector"), draws=40_000,
    quick=1_500,
)  # fmt: skip
_FAR = (Pair("one coordinate", [0, 0], [4, 0]), Pair("near 2^61", [2**61 - 8, 0], [2**61 - 4, 0]))
mechanism(
    "laplace_release", 1, 0, "Ghosh, Roughgarden & Sundararajan 2009 on the grid; confide.mechanisms.grid",
    _FAR,
    kind=Kind.RELEASE, covers=("event:laplace",),
    **_released(lambda *a, **how: laplace_release(*a, **how), 1, l1_sensitivity=1.0),
)  # fmt: skip
mechanism(
    "gaussian_release", round_up(gaussian_epsilon(2.0, _DELTA)), _DELTA,
    "Balle & Wang 2018, theorem 8, then rounding; confide.mechanisms.grid", _FAR,
    kind=Kind.RELEASE, **_released(lambda *a, **how: gaussian_release(*a, **how), 2),
)  # fmt: skip
