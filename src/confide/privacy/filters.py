"""Filters: adaptively chosen mechanisms under a total that is fixed in advance.

A filter may be asked before each mechanism, whose parameters may depend on all earlier answers. Every
sequence that it admits is (epsilon, delta)-DP. Basic sums are filters (Rogers et al. 2016); so are sums of
rho for zCDP and of Renyi divergences at one order fixed in advance (Feldman & Zrnic 2021, theorem 4.3 and
corollary 4.5); over several orders it is enough that one order stays within its own budget (Lecuyer 2021,
theorem 1).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Self

import numpy as np

from confide.errors import BudgetError
from confide.privacy.accountants import RDPAccountant, ZCDPAccountant
from confide.privacy.event import Event
from confide.privacy.exact import Amount, exact, show
from confide.privacy.zcdp import order_epsilon, zcdp_budget


@dataclass(frozen=True)
class ZCDPFilter:
    """Admit events while the exact sum of rho stays within the rho that (epsilon, delta) allows.

    Parameters
    ----------
    epsilon, delta : amount
        The total, fixed in advance; delta > 0.
    """

    epsilon: Amount
    delta: Amount
    accountant: ZCDPAccountant = field(default_factory=ZCDPAccountant)

    @property
    def limit(self) -> Fraction:
        """The total rho."""
        return zcdp_budget(self.epsilon, self.delta)

    def admits(self, event: Event, count: int = 1) -> bool:
        """Whether `event` may be run next; changes nothing."""
        return self.accountant.compose(event, count).rho <= self.limit

    def spend(self, event: Event, count: int = 1) -> Self:
        """Return the filter after `event`.

        Raises
        ------
        BudgetError
            If it does not fit; names spent, asked and limit in rho.
        """
        after = self.accountant.compose(event, count)
        if after.rho > self.limit:
            spent, asked = self.accountant.rho, after.rho - self.accountant.rho
            raise BudgetError(
                f"The event asks for rho = {show(asked)} where {show(spent)} of {show(self.limit)} is spent.",
                "Ask for less, or open a larger budget.",
                spent=spent,
                asked=asked,
                limit=self.limit,
            )
        return type(self)(self.epsilon, self.delta, after)


@dataclass(frozen=True)
class RDPFilter:
    """Admit events while at least one order stays within its own Renyi budget.

    The budget of order alpha is the largest divergence that converts to (epsilon, delta).
    """

    epsilon: Amount
    delta: Amount
    accountant: RDPAccountant = field(default_factory=RDPAccountant)

    def _room(self, accountant: RDPAccountant) -> float:
        """Return the largest slack over the orders; admitted while >= 0."""
        orders, totals = accountant.divergences()
        number = math.nextafter(float(exact(self.delta, "delta")), 0.0)
        total = float(exact(self.epsilon, "epsilon")) * (1.0 - 1e-13)
        limits = np.array([total - self._conversion(float(a), number) for a in orders])
        return float(np.max(np.where(limits > 0, limits - totals, -np.inf)))

    @staticmethod
    def _conversion(order: float, delta: float) -> float:
        # order_epsilon is the divergence plus a constant of the order, clipped at 0: take it at a large one.
        return order_epsilon(1e3, order, delta) - 1e3

    def admits(self, event: Event, count: int = 1) -> bool:
        """Whether `event` may be run next; changes nothing."""
        return self._room(self.accountant.compose(event, count)) >= 0.0

    def spend(self, event: Event, count: int = 1) -> Self:
        """Return the filter after `event`; BudgetError if it does not fit."""
        after = self.accountant.compose(event, count)
        if self._room(after) < 0.0:
            spent, asked = self.accountant.epsilon(self.delta), after.epsilon(self.delta)
            raise BudgetError(
                f"With this event epsilon would be {show(asked)} at delta = {self.delta}, after "
                f"{show(spent)}; the limit is {show(exact(self.epsilon))}.",
                "Ask for less, or open a larger budget.",
                spent=spent,
                asked=asked,
                limit=exact(self.epsilon),
            )
        return type(self)(self.epsilon, self.delta, after)
