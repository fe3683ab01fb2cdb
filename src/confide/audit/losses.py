"""What mechanisms cost together, from below: by code of the audit's own, apart from `confide.privacy`.

A `Cost` is a pair of distributions that some neighbouring inputs of a mechanism reach. `delta` encloses the
privacy profile of the adaptive composition of such pairs from below, so that a sum that passes a claim does
so whatever the errors of the computation.

===========================  =====================================================================
mechanism                    pair
===========================  =====================================================================
Gaussian, mu = shift/sigma   N(0, 1) and N(mu, 1)
pure epsilon                 randomised response, e^epsilon to 1 (Kairouz, Oh & Viswanath 2015)
(epsilon, delta)             the same with probability 1 - delta, else told outright (the same)
Poisson-sampled Gaussian     (1 - q) N(0, 1) + q N(+-mu/2, 1) where a row is replaced;
                             (1 - q) N(0, 1) + q N(mu, 1) against N(0, 1), both ways, where it goes
===========================  =====================================================================

Lemma. Let each pair be replaced by an image of it (outcomes put together in cells), the losses log(p/q) of
the image be rounded down to a grid, and mass be dropped where the sum of losses is low. Then the excess
sum max(0, p - e^epsilon q) of the composition does not grow.
Proof. An image is post-processing, of each step by itself. Excess is the mean under P of
max(0, 1 - e^(epsilon - loss)), which grows with the loss and is not negative.

Sums are fast Fourier convolutions in double precision, whose error `ERROR` bounds with room. Beside a delta
that is smaller it hides everything: there masses are multiplied by e^(tilt loss) before they are convolved,
which makes what is rare under P frequent, and the error of each cell is summed up as it arises (`exceeds`).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from confide.privacy.event import COMPOSED, GROUP, Event

Floats = NDArray[np.float64]

#: What a delta may be too large by: convolutions of at most 2^10 masses, and the normal law.
ERROR = 1e-11
#: Deltas below this one are composed by tilted masses too, and the tilts that are tried.
_SMALL, _TILTS = 1e-8, tuple(2.0**i for i in range(8))
#: Relative error of a delta in double precision, of a term of the normal law's, and of a Fourier transform of
#: 2^18 masses in the Euclidean norm (some u log2(2^18), with room).
_ROUNDING, _TERM, _TRANSFORM = 1e-9, 1e-12, 1e-14
#: Grid of losses, and its reach on both sides.
_STEP, _REACH = 2.0**-12, 16.0
_CELLS = round(2 * _REACH / _STEP) + 1
#: Cells of a sampled Gaussian, in deviations.
_WIDTH, _OUTER = 2.0**-9, 12.0


class Kind(Enum):
    """Which pair."""

    GAUSSIAN = "gaussian"
    PURE = "pure"
    APPROXIMATE = "approximate"
    REPLACED = "sampled, a row replaced"
    ADDED = "sampled, a row added"


@dataclass(frozen=True)
class Cost:
    """One pair: mu of a Gaussian, epsilon and delta, or mu and the sampling probability."""

    kind: Kind
    size: float
    rest: float = 0.0


def gaussian(multiplier: Any) -> Cost:
    """Return the cost of Gaussian noise of so many sensitivities."""
    return Cost(Kind.GAUSSIAN, math.inf if multiplier == 0 else 1 / float(multiplier))


def pure(epsilon: Any) -> Cost:
    """Return the cost of pure epsilon."""
    return Cost(Kind.PURE, float(epsilon))


def approximate(epsilon: Any, delta: Any) -> Cost:
    """Return the cost of (epsilon, delta)."""
    return pure(epsilon) if delta == 0 else Cost(Kind.APPROXIMATE, float(epsilon), float(delta))


def sampled(multiplier: Any, probability: float, *, added: bool) -> Cost:
    """Return the cost of Gaussian noise on a Poisson sample; the multiplier is of the whole sensitivity."""
    if probability >= 1:
        return gaussian(multiplier)
    return Cost(Kind.ADDED if added else Kind.REPLACED, gaussian(multiplier).size, float(probability))


#: Events of pure epsilon, and of a pair.
_PURE = ("pure", "laplace", "discrete_laplace", "exponential", "permute_and_flip", "top_r", "mistakes",
         "randomized_response", "smooth_cauchy")  # fmt: skip
_PAIRS = ("approximate", "response", "sparse_vector", "smooth_laplace", "propose_test_release")


def of_event(event: Event) -> tuple[Cost, ...] | None:
    """Return what an event says was run; None where a part of it has no pair here (random stopping)."""
    if event.mechanism == COMPOSED:
        parts = [of_event(part) for part in event.parts]
        known = [part for part in parts if part is not None]
        return None if len(known) < len(parts) else tuple(c for p in known for c in p) * event.count
    if event.mechanism == GROUP:
        inner = of_event(Event.sequence(event.parts))
        plain = inner is not None and all(cost.kind in (Kind.GAUSSIAN, Kind.PURE) for cost in inner)
        size = event["size"]
        if inner is None or not plain or not isinstance(size, int):
            return None
        return tuple(Cost(cost.kind, cost.size * size) for cost in inner) * event.count
    return None if (cost := _primitive(event)) is None else (cost,) * event.count


def _primitive(event: Event) -> Cost | None:
    def amount(name: str, default: Any = None) -> float:
        numerator, _, denominator = str(event.get(name, default)).partition("/")
        return float(numerator) / float(denominator or 1)

    if event.mechanism == "gaussian":
        return gaussian(amount("noise_multiplier"))
    if event.mechanism == "poisson_gaussian":
        added = event["adjacency"] == "add_remove_one"  # else the multiplier is of one row's longest, half
        multiplier = amount("noise_multiplier") / (1 if added else 2)
        return sampled(multiplier, amount("sampling_probability"), added=added)
    if event.mechanism in _PURE:
        return pure(amount("epsilon"))
    return approximate(amount("epsilon"), amount("delta", 0)) if event.mechanism in _PAIRS else None


def delta(costs: Iterable[Cost], epsilon: float) -> float:
    """Return at most the delta(epsilon) of the composition of the pairs, but for `ERROR`.

    Parameters
    ----------
    costs : iterable of Cost
    epsilon : float
        At least 0.
    """
    whole = _merged(costs)
    gaussians = [cost for cost in whole if cost.kind is Kind.GAUSSIAN]
    if any(math.isinf(cost.size) for cost in gaussians):
        return 1.0
    if sum(c.size for c in whole if c.kind is Kind.PURE) <= epsilon and not any(
        c.kind is not Kind.PURE for c in whole
    ):
        return 0.0
    if len(gaussians) == len(whole):
        return _normal(gaussians[0].size, epsilon) if whole else 0.0
    return max(_excess(losses, epsilon) for losses in _composed(whole))


def exceeds(costs: Iterable[Cost], epsilon: float, slack: float) -> bool:
    """Return whether the composition's delta(epsilon) is more than `slack`, whatever errors were made.

    Parameters
    ----------
    costs : iterable of Cost
    epsilon : float
        At least 0.
    slack : float
        A delta, as small as it may be; above 0.
    """
    whole, most = _merged(costs), slack * (1 + _ROUNDING)
    if delta(whole, epsilon) > most + ERROR:
        return True
    if slack >= _SMALL or not whole:
        return False
    if len(whole) == 1 and whole[0].kind is Kind.GAUSSIAN:
        return _normal(whole[0].size, epsilon, error=_TERM) > most
    return max(_tilted(whole, direction, epsilon) for direction in (0, 1)) > most


def error(costs: Iterable[Cost]) -> float:
    """Return at most how far `delta` lies below the composition's.

    Losses are lowered by a step of the grid at most, and by what the ratio varies within a cell of a normal
    law; the derivative of delta(epsilon) is P(loss > epsilon) or less in size, so at most 1.
    """
    whole = _merged(costs)
    if all(cost.kind is Kind.GAUSSIAN for cost in whole):
        return ERROR
    normal = (cost.size for cost in whole if cost.kind not in (Kind.PURE, Kind.APPROXIMATE))
    return ERROR + len(whole) * _STEP + _WIDTH * sum(normal)


def alike(one: Iterable[Cost], other: Iterable[Cost]) -> bool:
    """Return whether two compositions are of the same pairs, up to rounding."""
    told, said = _merged(one), _merged(other)
    return [cost.kind for cost in told] == [cost.kind for cost in said] and all(
        math.isclose(a.size, b.size, rel_tol=1e-9) and math.isclose(a.rest, b.rest, rel_tol=1e-9)
        for a, b in zip(told, said, strict=True)
    )


def epsilon(costs: Sequence[Cost], slack: float) -> float:
    """Return at most the least epsilon at which the composition has a delta of `slack`; infinite past 15."""
    whole = tuple(costs)
    if slack == 0:
        other = any(cost.kind is not Kind.PURE and cost.size > 0 for cost in whole)
        return math.inf if other else sum(cost.size for cost in whole)
    low, high = 0.0, 15.0
    if exceeds(whole, high, slack):
        return math.inf
    for _ in range(32):
        middle = (low + high) / 2
        low, high = (middle, high) if exceeds(whole, middle, slack) else (low, middle)
    return low


def _merged(costs: Iterable[Cost]) -> tuple[Cost, ...]:
    """Return the costs in one order, the Gaussians as one: their mu add up in squares."""
    others = [cost for cost in costs if cost.size > 0 or cost.rest > 0]
    squares = sum(cost.size**2 for cost in others if cost.kind is Kind.GAUSSIAN)
    others = [cost for cost in others if cost.kind is not Kind.GAUSSIAN]
    if squares:
        others.append(Cost(Kind.GAUSSIAN, math.sqrt(squares)))
    return tuple(sorted(others, key=lambda cost: (cost.kind.value, cost.size, cost.rest)))


def _normal(mu: float, epsilon: float, *, error: float = 0.0) -> float:
    """Return delta(epsilon) of N(0, 1) and N(mu, 1) (Balle & Wang 2018, theorem 5), less errors of terms."""
    from scipy.special import log_ndtr, ndtr

    if math.isinf(mu):
        return 1.0
    near, far = mu / 2 - epsilon / mu, -mu / 2 - epsilon / mu
    return max(0.0, float(ndtr(near) * (1 - error) - math.exp(epsilon + log_ndtr(far))))


@dataclass(frozen=True, eq=False)
class _Losses:
    """Masses of losses on the grid from -reach to +reach, and of an infinite loss."""

    masses: Floats
    infinite: float = 0.0

    def plus(self, other: _Losses) -> _Losses:
        """Return the law of the sum."""
        from scipy.signal import fftconvolve

        summed = np.maximum(fftconvolve(self.masses, other.masses), 0.0)
        middle = _CELLS // 2
        kept = summed[middle : middle + _CELLS].copy()  # what lies below is dropped
        kept[-1] += summed[middle + _CELLS :].sum()
        return _Losses(kept, self.infinite + other.infinite - self.infinite * other.infinite)


def _excess(losses: _Losses, epsilon: float) -> float:
    gain = np.maximum(0.0, -np.expm1(np.minimum(epsilon - _grid(), 0.0)))
    return float(losses.masses @ gain) + losses.infinite


@lru_cache(maxsize=512)
def _composed(costs: tuple[Cost, ...]) -> tuple[_Losses, ...]:
    """Return the composition, one law a direction."""
    found = []
    for direction in (0, 1):
        total = None
        for cost, count in Counter(costs).items():
            part = _times(_losses(cost)[direction], count)
            total = part if total is None else total.plus(part)
        assert total is not None
        found.append(total)
    return tuple(found)


def _times(losses: _Losses, count: int) -> _Losses:
    half = _times(losses, count // 2) if count > 1 else None
    if half is None:
        return losses
    return half.plus(half).plus(losses) if count % 2 else half.plus(half)


@lru_cache(maxsize=512)
def _losses(cost: Cost) -> tuple[_Losses, _Losses]:
    if cost.kind in (Kind.PURE, Kind.APPROXIMATE):
        lie = 1 / (1 + math.exp(min(cost.size, 700.0)))
        told = _on_grid(
            np.array([1 - lie, lie]) * (1 - cost.rest), np.array([cost.size, -cost.size]), cost.rest
        )
        return told, told
    edges = np.arange(-_OUTER, _OUTER + min(cost.size, _OUTER) + _WIDTH, _WIDTH)
    if cost.kind is Kind.GAUSSIAN:
        told = _image(_cells(edges, 0.0), _cells(edges, cost.size))
        return told, told
    still = _cells(edges, 0.0)
    if cost.kind is Kind.ADDED:
        mixed = (1 - cost.rest) * still + cost.rest * _cells(edges, cost.size)
        return _image(mixed, still), _image(still, mixed)
    up, down = ((1 - cost.rest) * still + cost.rest * _cells(edges, sign * cost.size / 2) for sign in (1, -1))
    return _image(up, down), _image(down, up)


def _cells(edges: Floats, mean: float) -> Floats:
    """Return the masses of N(mean, 1) between the edges and beyond both ends."""
    from scipy.special import ndtr

    below = np.concatenate([[0.0], ndtr(edges - mean), [1.0]])
    above = np.concatenate([[1.0], ndtr(mean - edges), [0.0]])
    return np.where(below[:-1] < 0.5, np.diff(below), -np.diff(above))


def _image(p: Floats, q: Floats) -> _Losses:
    kept = (p > 1e-300) & (q > 1e-300)
    return _on_grid(p[kept], np.log(p[kept] / q[kept]), 0.0)


def _on_grid(masses: Floats, losses: Floats, infinite: float) -> _Losses:
    place = np.floor(losses / _STEP).astype(np.int64) + _CELLS // 2
    held = np.zeros(_CELLS)
    np.add.at(held, np.minimum(place[place >= 0], _CELLS - 1), masses[place >= 0])
    return _Losses(held, infinite)


@dataclass(frozen=True, eq=False)
class _Tilted:
    """Losses whose masses were multiplied by e^(tilt loss - log_mass), so that they sum to 1 or less.

    Each mass is right within `error`. Losses beyond the grid are dropped on both sides: excess does not grow.
    """

    masses: Floats
    log_mass: float
    error: float = 0.0

    def plus(self, other: _Tilted) -> _Tilted:
        """Return the law of the sum.

        An error of a mass is added to as many masses as the other law has, which sum to 1. What a convolution
        adds: of both transforms, by Cauchy and Parseval, and of the transform back.
        """
        from scipy.signal import fftconvolve

        summed = np.maximum(fftconvolve(self.masses, other.masses), 0.0)
        one, two, both = (float(np.linalg.norm(v)) for v in (self.masses, other.masses, summed))
        fresh = _TRANSFORM * (2 * one * two + both)
        middle = _CELLS // 2
        kept = summed[middle : middle + _CELLS].copy()
        return _Tilted(kept, self.log_mass + other.log_mass, self.error + other.error + fresh)


def _power(part: _Tilted, count: int) -> _Tilted:
    if count == 1:
        return part
    half = _power(part, count // 2)
    return half.plus(half).plus(part) if count % 2 else half.plus(half)


@lru_cache(maxsize=64)
def _tilt(cost: Cost, direction: int, tilt: float) -> _Tilted:
    logs = tilt * _grid()
    with np.errstate(divide="ignore"):
        logs = logs + np.log(_losses(cost)[direction].masses)
    top = float(logs.max())
    if top == -math.inf:
        return _Tilted(np.zeros(_CELLS), 0.0)
    log_mass = top + math.log(float(np.exp(logs - top).sum()))
    return _Tilted(np.exp(logs - log_mass), log_mass)


@lru_cache(maxsize=64)
def _tilted_sum(costs: tuple[Cost, ...], direction: int, tilt: float) -> _Tilted:
    parts = [_power(_tilt(cost, direction, tilt), count) for cost, count in Counter(costs).items()]
    total = parts[0]
    for part in parts[1:]:
        total = total.plus(part)
    return total


def _tilted(costs: tuple[Cost, ...], direction: int, epsilon: float) -> float:
    """Return less than the excess of a direction, by the tilt that makes losses of epsilon the most frequent.

    That is the least of log_mass - tilt epsilon, Chernoff's bound.
    """

    def bound(tilt: float) -> float:
        return math.fsum(_tilt(cost, direction, tilt).log_mass for cost in costs) - tilt * epsilon

    tilt = min(_TILTS, key=bound)
    total, grid = _tilted_sum(costs, direction, tilt), _grid()
    above = grid > epsilon
    weights = np.exp(total.log_mass - tilt * grid[above]) * -np.expm1(epsilon - grid[above])
    infinite = -math.expm1(math.fsum(math.log1p(-_losses(cost)[direction].infinite) for cost in costs))
    return float(np.maximum(total.masses[above] - total.error, 0.0) @ weights) + infinite


def _grid() -> Floats:
    return np.arange(-(_CELLS // 2), _CELLS // 2 + 1, dtype=np.float64) * _STEP
