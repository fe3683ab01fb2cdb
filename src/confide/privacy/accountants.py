"""Accountants: what a multiset of events costs, each by its own calculus.

An accountant is immutable: `compose` returns a new one, every question is pure (F08). It keeps the multiset
of primitive events, so that n single runs, one n-fold event and nested n-fold events are the same state,
and order cannot matter.

=================== ======================================== ==============================================
accountant          adds                                     adaptive choice of parameters
=================== ======================================== ==============================================
`BasicAccountant`   exact (epsilon, delta)                   yes: a filter by itself
`ZCDPAccountant`    exact rho                                yes, through `ZCDPFilter`
`RDPAccountant`     Renyi divergences at integer orders      yes, through `RDPFilter`
`PLDAccountant`     privacy loss distributions               no: parameters fixed in advance (calibration)
=================== ======================================== ==============================================
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections import Counter
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Self

import numpy as np

from confide.errors import UnsupportedError
from confide.privacy.event import Event
from confide.privacy.exact import Amount, exact, round_up
from confide.privacy.gaussian import gaussian_epsilon
from confide.privacy.losses import Loss, loss, primitives, total_loss
from confide.privacy.zcdp import order_epsilon, zcdp_epsilon

#: Finest and coarsest grids of a privacy loss distribution, and the number of points it may hold (F15).
_FINEST, _POINTS = 1e-6, 2**20
#: Round-off of delta that is allowed for a release, where loss distributions are composed by transforms: a
#: power of a number errs by its exponent times 2^-53. Beside tilted transforms 0.8 of that was measured.
_ROUND_OFF = Fraction(1, 2**49)
#: Least delta that transforms answer for.
_LEAST_DELTA = Fraction(1, 10**10)
_ORDERS = np.unique(np.concatenate([np.arange(2, 65), np.round(np.geomspace(65, 10**6, 60))]))


@dataclass(frozen=True)
class Accountant(ABC):
    """Base: a multiset of primitive events. Subclasses say what an event needs and how losses add."""

    events: tuple[tuple[Event, int], ...] = field(default=())

    def compose(self, event: Event, count: int = 1) -> Self:
        """Return an accountant that also holds `count` runs of `event`.

        Raises
        ------
        UnsupportedError
            If this calculus has no bound for a part of `event`; the message names the part.
        """
        totals = Counter(dict(self.events))
        for primitive, number in primitives(event, count):
            if not self._supports(loss(primitive)):
                raise UnsupportedError(
                    f"{type(self).__name__} has no bound for the mechanism {primitive.mechanism!r}"
                    f" with {dict(primitive.parameters)}.",
                    "Use another accountant, or a mechanism that it knows.",
                )
            totals[primitive] += number
        ordered = sorted(totals.items(), key=lambda item: item[0].to_json())
        return type(self)(tuple(ordered))

    @abstractmethod
    def _supports(self, cost: Loss) -> bool:
        """Whether `cost` has what this calculus adds."""

    @abstractmethod
    def _epsilon(self, delta: Fraction) -> Fraction | float:
        """Return the total epsilon at `delta`, rounded up."""

    def epsilon(self, delta: Amount = 0) -> Fraction | float:
        """Return the total epsilon at `delta`, an exact rational rounded up; ``math.inf`` without a bound.

        Pure: asking twice gives the same answer. Never negative.
        """
        if not self.events:
            return Fraction(0)
        return self._epsilon(exact(delta, "delta"))


@dataclass(frozen=True)
class BasicAccountant(Accountant):
    """Exact sums of epsilon and delta (basic composition, valid for adaptive choices)."""

    def _supports(self, cost: Loss) -> bool:
        return cost.approximate is not None

    @property
    def spent(self) -> tuple[Fraction, Fraction]:
        """Total (epsilon, delta)."""
        pairs = [
            (loss(event).approximate or (Fraction(0), Fraction(0)), count) for event, count in self.events
        ]
        total_epsilon = sum((pair[0] * count for pair, count in pairs), Fraction(0))
        return total_epsilon, sum((pair[1] * count for pair, count in pairs), Fraction(0))

    def _epsilon(self, delta: Fraction) -> Fraction | float:
        total, used = self.spent
        return total if used <= delta else math.inf


@dataclass(frozen=True)
class ZCDPAccountant(Accountant):
    """Exact sums of rho."""

    def _supports(self, cost: Loss) -> bool:
        return cost.rho is not None

    @property
    def rho(self) -> Fraction:
        """Total rho, exact."""
        return sum(((loss(event).rho or Fraction(0)) * count for event, count in self.events), Fraction(0))

    def _epsilon(self, delta: Fraction) -> Fraction | float:
        return zcdp_epsilon(self.rho, delta) if delta else math.inf


@dataclass(frozen=True)
class RDPAccountant(Accountant):
    """Sums of Renyi divergences at integer orders 2 ... 10^6 (log-spaced past 64: F11)."""

    def _supports(self, cost: Loss) -> bool:
        return cost.renyi is not None

    def divergences(self) -> tuple[np.ndarray, np.ndarray]:
        """Return (orders, total Renyi divergences), both of shape (number of orders,)."""
        total = np.zeros(len(_ORDERS))
        for event, count in self.events:
            renyi = loss(event).renyi
            assert renyi is not None  # checked by compose
            total += count * renyi(_ORDERS.astype(float))
        return _ORDERS.astype(float), total * (1.0 + 1e-13)

    def _epsilon(self, delta: Fraction) -> Fraction | float:
        if delta == 0:
            return math.inf
        orders, totals = self.divergences()
        number = math.nextafter(float(delta), 0.0)
        best = min(order_epsilon(float(t), float(a), number) for a, t in zip(orders, totals, strict=True))
        return round_up(best * (1.0 + 1e-13)) if math.isfinite(best) else math.inf


def usable_delta(delta: Fraction, releases: int) -> Fraction | None:
    """Return delta less the round-off of composing so many loss distributions; None where little is left."""
    room = releases * _ROUND_OFF
    return None if delta < max(_LEAST_DELTA, 2 * room) else delta - room


@dataclass(frozen=True)
class PLDAccountant(Accountant):
    """Privacy loss distributions through dp-accounting; exact (Balle-Wang) where all is Gaussian.

    The grid is pessimistic and bounded by public parameters in size (2^20 points), so that neither time nor
    memory can run away (F15). Composition by Fourier transforms rounds, so it answers for `usable_delta`;
    where there is none, the answer is that of Renyi divergences or of exact sums, if the events have them,
    and infinite elsewhere.
    """

    def _supports(self, cost: Loss) -> bool:
        return cost.distribution is not None

    def _gaussian_only(self) -> Fraction | None:
        total = Fraction(0)
        for event, count in self.events:
            squared = loss(event).mu_squared
            if squared is None:
                return None
            total += squared * count
        return total

    def interval(self) -> float:
        """Return the grid interval: fine for small losses, coarse enough for the largest."""
        losses = [(loss(event), count) for event, count in self.events]
        smallest = min((item.span for item, _ in losses if item.span > 0), default=1.0)
        mean = sum(item.moments[0] * count for item, count in losses)
        variance = sum(item.moments[1] * count for item, count in losses)
        total = 2.0 * max(item.span for item, _ in losses) + mean + 12.0 * math.sqrt(variance)
        return max(min(1e-4, smallest / 200.0), _FINEST, total / _POINTS)

    def distribution(self) -> object:
        """Return the composed loss distribution of dp-accounting."""
        from dp_accounting.pld import privacy_loss_distribution

        interval = self.interval()
        result = privacy_loss_distribution.identity(interval)
        for event, count in self.events:
            build = loss(event).distribution
            assert build is not None  # checked by compose
            result = result.compose(build(interval, count))
        return result

    def _epsilon(self, delta: Fraction) -> Fraction | float:
        squared = self._gaussian_only()
        if squared is not None:
            if delta == 0:
                return math.inf if squared else Fraction(0)
            mu = math.sqrt(float(squared)) * (1.0 + 4e-16)
            return round_up(gaussian_epsilon(1.0 / mu * (1.0 - 4e-16), delta))
        if delta == 0:
            return BasicAccountant(self.events)._epsilon(delta) if self._all_pure() else math.inf
        usable = usable_delta(delta, sum(count for _, count in self.events))
        if usable is None:
            return self._without_transforms(delta)
        value = self.distribution().get_epsilon_for_delta(float(usable))  # type: ignore[attr-defined]
        if not math.isfinite(value):
            return math.inf
        bound = round_up(max(0.0, value) * (1.0 + 1e-10))
        return min(bound, BasicAccountant(self.events)._epsilon(Fraction(0))) if self._all_pure() else bound

    def _without_transforms(self, delta: Fraction) -> Fraction | float:
        held = [loss(event) for event, _ in self.events]
        others = (RDPAccountant(self.events), BasicAccountant(self.events))
        fit = [other for other in others if all(other._supports(cost) for cost in held)]
        return min((other._epsilon(delta) for other in fit), default=math.inf)

    def _all_pure(self) -> bool:
        return all(loss(event).pure is not None for event, _ in self.events)


def zcdp_cost(event: Event) -> Fraction | None:
    """Return the exact zCDP cost of an event, or None where a part of it has none."""
    return total_loss(event, "rho")


def pure_cost(event: Event) -> Fraction | None:
    """Return the exact pure epsilon of an event, or None where a part of it has none."""
    return total_loss(event, "pure")
