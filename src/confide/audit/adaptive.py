"""Filters, accountants and ledgers under charges that are chosen one after the other.

Each strategy is a function of what was admitted before: the largest charge that still fits, small ones first,
turning from one to the other. Whatever is admitted is held against sums of the audit's own: exact amounts,
exact rho, and Renyi divergences of each charge in closed form. So every answer is known, but where what is
left is `_NEAR` nothing; and what was admitted in all may not cost more than the total, from below.

===========================  =========================================  ==============================
charge                       Renyi divergence of order a                rho
===========================  =========================================  ==============================
Gaussian, mu = 1/multiplier  a mu^2 / 2                                 mu^2 / 2
pure epsilon                 randomised response's: that of p and 1-p   epsilon^2 / 2
Poisson-sampled Gaussian     of the mixture against N(0, 1), a whole    none
===========================  =========================================  ==============================

For a whole order a the last one is log(sum of C(a, k) (1-q)^(a-k) q^k e^(k(k-1) mu^2/2)) / (a-1) (Mironov,
Talwar & Zhang 2019, section 3.3).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cache, cached_property
from typing import Any

import numpy as np

from confide.audit import losses
from confide.audit.losses import Cost, Kind
from confide.audit.registry import Floats
from confide.errors import BudgetError
from confide.privacy import Event, PLDAccountant, RDPAccountant, RDPFilter, ZCDPAccountant, ZCDPFilter

#: Orders of divergences: the best one for the totals below is far from both ends.
ORDERS = np.arange(2.0, 65.0)
#: The total, and the share of it within which an answer of computed sums may be either.
EPSILON, DELTA, _NEAR = 2.0, 1e-6, 1e-6
_MOST = 60


@dataclass(frozen=True)
class Charge:
    """What is asked for: an event, its cost from below, and its rho where it has one."""

    event: Event
    cost: Cost
    rho: Fraction | None = None

    @cached_property
    def renyi(self) -> Floats:
        """Divergences at `ORDERS`."""
        from scipy.special import gammaln, logsumexp

        size, a = self.cost.size, ORDERS
        if self.cost.kind is Kind.GAUSSIAN:
            return a * size**2 / 2
        if self.cost.kind is Kind.PURE:
            p, q = -math.log1p(math.exp(-size)), -math.log1p(math.exp(size))
            return np.logaddexp(a * p + (1 - a) * q, a * q + (1 - a) * p) / (a - 1)
        rate, found = self.cost.rest, []
        for order in a.tolist():
            k = np.arange(order + 1)
            ways = gammaln(order + 1) - gammaln(k + 1) - gammaln(order - k + 1)
            chance = (order - k) * math.log1p(-rate) + k * math.log(rate)
            total: Any = logsumexp(ways + chance + k * (k - 1) * size**2 / 2)
            found.append(float(total) / (order - 1))
        return np.array(found)


def gaussian(multiplier: int) -> Charge:
    """Return a Gaussian."""
    event = Event.of("gaussian", noise_multiplier=multiplier)
    return Charge(event, losses.gaussian(multiplier), Fraction(1, 2 * multiplier**2))


def pure(epsilon: str) -> Charge:
    """Return a charge of pure epsilon."""
    amount = Fraction(epsilon)
    return Charge(Event.of("pure", epsilon=epsilon), losses.pure(amount), amount**2 / 2)


def sampled(multiplier: int, probability: str) -> Charge:
    """Return a Gaussian on a Poisson sample, of rows that come and go."""
    event = Event.of(
        "poisson_gaussian", noise_multiplier=multiplier, sampling_probability=probability,
        adjacency="add_remove_one",
    )  # fmt: skip
    return Charge(event, losses.sampled(multiplier, float(Fraction(probability)), added=True))


#: Charges, large ones first.
SMOOTH = (gaussian(4), pure("1/5"), gaussian(8), pure("1/12"), gaussian(20), gaussian(60))
ALL = (gaussian(4), sampled(2, "1/8"), pure("1/5"), gaussian(9), sampled(3, "1/20"), gaussian(40))

#: What was admitted of all that was asked -> the next charge's place; None to end.
Strategy = Callable[[Sequence[bool]], int | None]


def largest(told: Sequence[bool]) -> int:
    """Ask for the largest that was not refused yet."""
    return told.count(False)


def small_first(told: Sequence[bool]) -> int:
    """Ask for small ones, then for the largest that fits."""
    return -1 if len(told) < 12 else told.count(False)


def turning(told: Sequence[bool]) -> int | None:
    """Ask by how many were admitted, and go on after many a refusal."""
    return None if told.count(False) == 14 else 5 * told.count(True) + told.count(False)


STRATEGIES: tuple[Strategy, ...] = (largest, small_first, turning)


def walked(
    menu: Sequence[Any], strategy: Strategy, ask: Callable[[Any], bool], room: Callable[[list[Any]], Any]
) -> tuple[bool, list[Any]]:
    """Ask for charges as a strategy says.

    Parameters
    ----------
    menu : sequence
    strategy : function
        Places beyond the menu end it, but for one that turns; at the latest `_MOST` charges do.
    ask : function (charge) -> bool
        Whether it was admitted, which spends it.
    room : function (charges) -> number
        What would be left of the total, in shares of it; below 0 more than all.

    Returns
    -------
    wrong : bool
        Whether one was admitted that does not fit, or refused that does.
    held : list
        Those admitted.
    """
    held: list[Any] = []
    told: list[bool] = []
    wrong = False
    while len(told) < _MOST and (place := strategy(told)) is not None:
        if strategy is not turning and place >= len(menu):
            break
        charge = menu[place % len(menu)]
        left = room([*held, charge])
        admitted = ask(charge)
        # An exact sum has no error.
        if isinstance(left, Fraction) or abs(left) > _NEAR:
            wrong |= admitted is not (left >= 0)
        told.append(admitted)
        held += [charge] * admitted
    return wrong or not 2 <= len(held) < len(told), held


class _Asked:
    """A filter that is asked and spent from; what it says before must be what it does."""

    def __init__(self, filtered: Any) -> None:
        self.filter, self.agrees = filtered, True

    def __call__(self, charge: Charge) -> bool:
        said = self.filter.admits(charge.event)
        try:
            self.filter = self.filter.spend(charge.event)
        except BudgetError:
            self.agrees &= not said
            return False
        self.agrees &= said
        return True


@cache
def rho_of(epsilon: float, delta: float) -> float:
    """Return the rho that converts to (epsilon, delta): Canonne, Kamath & Steinke 2020, proposition 12."""
    from scipy.optimize import brentq, minimize_scalar

    def logarithm(rho: float) -> float:
        def at(log_excess: float) -> float:
            more = math.exp(log_excess)  # order less 1
            return more * ((1 + more) * rho - epsilon) - log_excess - (1 + more) * math.log1p(1 / more)

        least: Any = minimize_scalar(at, bounds=(-5, 12), method="bounded", options={"xatol": 1e-9})
        return float(least.fun)

    root: Any = brentq(lambda rho: logarithm(rho) - math.log(delta), 1e-6, epsilon)
    return float(root)


def left_of_rho(held: list[Charge]) -> float:
    """Return what is left of the rho of the total."""
    spent = sum((charge.rho or Fraction(0) for charge in held), Fraction(0))
    return 1 - float(spent) / rho_of(EPSILON, DELTA)


def left_of_orders(held: list[Charge]) -> float:
    """Return what is left at the best order: of the divergence that converts to the total.

    Canonne, Kamath & Steinke 2020, proposition 12: epsilon = R + log(1 - 1/a) - log(a delta) / (a - 1).
    """
    limits = EPSILON - np.log1p(-1 / ORDERS) + np.log(ORDERS * DELTA) / (ORDERS - 1)
    spent = np.sum([charge.renyi for charge in held], axis=0)
    return float(np.max(np.where(limits > 0, limits - spent, -np.inf)) / EPSILON)


def filters() -> Iterator[bool]:
    """Yield whether a filter is wrong, a strategy each."""
    kinds = ((ZCDPFilter, SMOOTH, left_of_rho), (RDPFilter, ALL, left_of_orders))
    for make, menu, room in kinds:
        for strategy in STRATEGIES:
            ask = _Asked(make(EPSILON, Fraction(DELTA)))
            wrong, held = walked(menu, strategy, ask, room)
            yield wrong or not ask.agrees or losses.exceeds((c.cost for c in held), EPSILON, DELTA)


def accountants() -> Iterator[bool]:
    """Yield whether an accountant loses a charge of a sequence, which is told to it one by one."""
    rho, renyi = ZCDPAccountant(), RDPAccountant()
    known, total, wrong = Fraction(0), np.zeros(ORDERS.size), [False, False]
    for charge in (*SMOOTH, *SMOOTH[:2], *ALL):
        renyi, total = renyi.compose(charge.event), total + charge.renyi
        if charge.rho is not None:
            rho, known = rho.compose(charge.event), known + charge.rho
            wrong[0] |= rho.rho != known
        wrong[1] |= not np.allclose(renyi.divergences()[1][: ORDERS.size], total, rtol=1e-9)
    yield from wrong
    for menu in (SMOOTH[:3], ALL[:4]):
        held, told = PLDAccountant(), list[Cost]()
        for charge in menu:
            held, told = held.compose(charge.event), [*told, charge.cost]
        yield losses.exceeds(told, float(held.epsilon(DELTA)), DELTA)
