"""Budgets, charges and their exact arithmetic; nothing here touches a store.

A budget is a vector of limits and a charge is a vector of the same length: (epsilon, delta) for the basic
accountant, (rho,) for zCDP. Components are added as exact rationals and compared without tolerance.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from confide.errors import (
    BudgetError,
    ParameterError,
    RefusedError,
)
from confide.privacy.adjacency import Adjacency
from confide.privacy.exact import RESOLUTION, Amount, exact, show

#: A finite amount, or ``math.inf`` on a ledger that was opened as non-private.
Quantity = Fraction | float
Vector = tuple[Quantity, ...]

ACCOUNTANTS = ("basic", "zcdp")

_LARGEST = Fraction(10) ** 30
_GRID = 10**RESOLUTION
_WIDEST = 10 ** (2 * RESOLUTION)


@dataclass(frozen=True)
class Spending:
    """An amount of privacy: what was spent, what is left, or what one charge costs.

    Attributes
    ----------
    epsilon, delta : Fraction or float
        Exact; ``math.inf`` only on a non-private ledger. Under zCDP, epsilon is what `rho` amounts to at
        the budget's delta, rounded up.
    rho : Fraction, float or None
        The zCDP amount; None under the basic accountant.
    """

    epsilon: Quantity
    delta: Quantity
    rho: Quantity | None = None

    def __str__(self) -> str:
        text = f"epsilon = {show(self.epsilon)}, delta = {show(self.delta)}"
        return text if self.rho is None else f"rho = {show(self.rho)} ({text})"

    def to_dict(self) -> dict[str, str]:
        """Return exact text ("1/10", "inf") by component."""
        result = {"epsilon": text(self.epsilon), "delta": text(self.delta)}
        if self.rho is not None:
            result["rho"] = text(self.rho)
        return result


def text(value: Quantity) -> str:
    """Return an amount as exact text."""
    if isinstance(value, float):
        return str(value)
    below = value.denominator
    return str(value.numerator) if below == 1 else f"{value.numerator}/{below}"


def parse(value: str) -> Quantity:
    """Return the amount that `text` wrote."""
    return math.inf if value == "inf" else Fraction(value)


def add(total: Quantity, amount: Quantity) -> Quantity:
    """Return ``total + amount``, exactly.

    Where charges with unrelated denominators would let the sum's denominator grow past 10^120, the sum is
    rounded up to the grid of 10^-60: the balance stays short and is never too small.
    """
    if not isinstance(total, Fraction) or not isinstance(amount, Fraction):
        return math.inf
    result = total + amount
    if result.denominator > _WIDEST:
        return Fraction(-((-result.numerator * _GRID) // result.denominator), _GRID)
    return result


def amount(value: Amount, name: str) -> Fraction:
    """Return `value` as an exact amount that a ledger can hold: at most 10^30."""
    result = exact(value, name)
    if result > _LARGEST:
        raise ParameterError(
            f"The '{name}' parameter is larger than 10^30.",
            "Pass a smaller amount, or open a non-private ledger.",
        )
    return result


@dataclass(frozen=True)
class Budget:
    """What one dataset may spend in all, and in which currency.

    Attributes
    ----------
    epsilon, delta : Fraction or float
        Limits; both ``math.inf`` on a non-private ledger.
    adjacency : Adjacency
        The neighbouring relation that the limits are stated for.
    accountant : str
        ``"basic"``: epsilon and delta add up, a filter even where mechanisms *and* amounts are chosen
        adaptively (Rogers et al. 2016). ``"zcdp"``: rho adds up, within `rho`; refusing once the running
        sum of adaptively chosen rho would pass a limit fixed in advance is a valid filter (Feldman & Zrnic
        2021, whose Renyi filter holds at every order alpha with the limit alpha rho, hence for zCDP; see
        also Whitehouse et al. 2023).
    unit : str
        ``"row"`` or ``"person"``: what one neighbour differs in.
    nonprivate : bool
        Whether infinite charges are recorded rather than refused.
    rho : Fraction, float or None
        Under zCDP, the limit that (epsilon, delta) converts to, rounded down.
    """

    epsilon: Quantity
    delta: Quantity
    adjacency: Adjacency
    accountant: str = "basic"
    unit: str = "row"
    nonprivate: bool = False
    rho: Quantity | None = None

    @classmethod
    def of(
        cls,
        epsilon: Amount,
        delta: Amount = 0,
        adjacency: Adjacency | str | None = None,
        accountant: str = "basic",
        unit: str = "row",
        nonprivate: bool = False,
    ) -> Budget:
        """Validate the owner's parameters.

        Raises
        ------
        ParameterError
            For an epsilon of 0, a delta of 1 or more, NaN, negative, infinite (without `nonprivate`) or
            boolean amounts, an unknown accountant, unit or adjacency.
        """
        if adjacency is None:
            raise ParameterError(
                "The 'adjacency' of the ledger is missing.", "State which tables count as neighbours."
            )
        if accountant not in ACCOUNTANTS:
            raise ParameterError(f"The 'accountant' parameter is {accountant!r}.", "Pass 'basic' or 'zcdp'.")
        if not isinstance(unit, str) or not re.fullmatch(r"\w[\w -]{0,39}", unit):
            raise ParameterError(
                f"The 'unit' parameter is {unit!r:.80}.",
                "Pass what the schema calls one unit: 'row', 'person', 'person-year' and the like.",
            )
        relation = Adjacency.parse(adjacency)
        infinite = isinstance(epsilon, float) and epsilon == math.inf
        if nonprivate is not True and nonprivate is not False:
            raise ParameterError(f"The 'nonprivate' parameter is {nonprivate!r:.80}.", "Pass True or False.")
        if infinite != nonprivate:
            raise ParameterError(
                "The 'epsilon' of the ledger is infinite."
                if infinite
                else "The ledger is marked non-private and has a finite 'epsilon'.",
                "An unlimited ledger needs both epsilon=math.inf and nonprivate=True.",
            )
        if infinite:
            rho = math.inf if accountant == "zcdp" else None
            return cls(math.inf, math.inf, relation, accountant, unit, True, rho)
        limit, fraction = _limits(epsilon, delta)
        return cls(limit, fraction, relation, accountant, unit, False, _rho(accountant, limit, fraction))

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the components of a charge."""
        return ("rho",) if self.accountant == "zcdp" else ("epsilon", "delta")

    @property
    def limit(self) -> Vector:
        """The limits, one a component."""
        return self.vector(self.epsilon, self.delta, self.rho)

    def vector(self, epsilon: Quantity, delta: Quantity, rho: Quantity | None) -> Vector:
        """Return the components that this accountant adds up."""
        if self.accountant == "zcdp":
            return (math.inf if rho is None else rho,)
        return (epsilon, delta)

    def sub_limit(self, epsilon: Amount, delta: Amount) -> Vector:
        """Return the limits of an analyst's account, in the currency of this budget."""
        if isinstance(epsilon, float) and epsilon == math.inf and self.nonprivate:
            return tuple(math.inf for _ in self.names)
        limit, fraction = _limits(epsilon, delta)
        return self.vector(limit, fraction, _rho(self.accountant, limit, fraction))

    def spending(self, vector: Vector) -> Spending:
        """Return a vector in the words of epsilon and delta."""
        if self.accountant == "basic":
            return Spending(vector[0], vector[1])
        (rho,) = vector
        if not isinstance(rho, Fraction):
            return Spending(math.inf, self.delta, rho)
        if rho == 0:
            return Spending(Fraction(0), self.delta, rho)
        if not isinstance(self.delta, Fraction):
            return Spending(math.inf, self.delta, rho)
        from confide.privacy import zcdp_epsilon

        return Spending(zcdp_epsilon(rho, self.delta), self.delta, rho)

    def to_dict(self) -> dict[str, Any]:
        """Return plain values; amounts as exact text."""
        result: dict[str, Any] = {
            "epsilon": text(self.epsilon),
            "delta": text(self.delta),
            "adjacency": self.adjacency.value,
            "accountant": self.accountant,
            "unit": self.unit,
            "nonprivate": self.nonprivate,
        }
        if self.rho is not None:
            result["rho"] = text(self.rho)
        return result

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Budget:
        """Rebuild a budget from `to_dict`; the stored rho stays, whatever later versions compute."""
        return cls(
            parse(data["epsilon"]),
            parse(data["delta"]),
            Adjacency.parse(data["adjacency"]),
            data["accountant"],
            data["unit"],
            data["nonprivate"],
            parse(data["rho"]) if "rho" in data else None,
        )

    def __str__(self) -> str:
        limit = "without limit (non-private)" if self.nonprivate else str(Spending(self.epsilon, self.delta))
        return f"{limit}, {self.adjacency.value}, per {self.unit}, accountant {self.accountant}"

    def same_terms(self, other: Budget) -> bool:
        """Whether the owner stated the same terms (rho follows from them)."""
        mine, theirs = self.to_dict(), other.to_dict()
        return {**mine, "rho": None} == {**theirs, "rho": None}


def _limits(epsilon: Amount, delta: Amount) -> tuple[Fraction, Fraction]:
    limit, fraction = amount(epsilon, "epsilon"), amount(delta, "delta")
    if limit == 0:
        raise ParameterError("The 'epsilon' of a budget is 0.", "Pass a positive number.")
    if fraction >= 1:
        raise ParameterError(f"The 'delta' of a budget is {show(fraction)}.", "Pass a number below 1.")
    return limit, fraction


def _rho(accountant: str, epsilon: Fraction, delta: Fraction) -> Fraction | None:
    if accountant == "basic":
        return None
    if delta == 0:
        raise ParameterError(
            "The 'delta' of a zCDP budget is 0.", "Pass a positive delta, or use accountant='basic'."
        )
    from confide.privacy import zcdp_budget

    return zcdp_budget(epsilon, delta)


def _exceeds(total: Quantity, limit: Quantity) -> bool:
    if isinstance(total, Fraction) and isinstance(limit, Fraction):
        # As Fraction's own comparison, at a third of its time: it is asked for each charge of a group.
        return total.numerator * limit.denominator > limit.numerator * total.denominator
    return total > limit


def fits(spent: Vector, asked: Vector, limit: Vector) -> Vector | None:
    """Return the new total if ``spent + asked <= limit`` in every component, else None."""
    result = []
    for have, more, most in zip(spent, asked, limit):
        total = add(have, more) if more else have
        if _exceeds(total, most):
            return None
        result.append(total)
    return tuple(result)


def left(spent: Vector, limit: Vector) -> Vector:
    """Return ``limit - spent``, at least 0, in every component."""
    result: list[Quantity] = []
    for have, most in zip(spent, limit):
        if isinstance(have, Fraction) and isinstance(most, Fraction):
            result.append(max(most - have, Fraction(0)))
        else:
            result.append(
                most if isinstance(have, Fraction) else Fraction(0) if most != math.inf else math.inf
            )
    return tuple(result)


def zero(budget: Budget) -> Vector:
    """Return the empty charge."""
    return tuple(Fraction(0) for _ in budget.names)


def refusal(budget: Budget, owner: str, spent: Vector, asked: Vector, limit: Vector) -> BudgetError:
    """Return the error of a charge that does not fit: spent, asked, limit."""

    def words(vector: Vector) -> str:
        return ", ".join(f"{name} = {show(value)}" for name, value in zip(budget.names, vector))

    rest = left(spent, limit)
    exhausted = any(not most and more for most, more in zip(rest, asked))
    return BudgetError(
        f"The charge does not fit {owner}: spent {words(spent)}; asked {words(asked)}; limit {words(limit)}.",
        "Nothing is left for such a charge, and what was spent stays spent."
        if exhausted
        else f"Ask for at most what is left: {words(rest)}.",
        spent=budget.spending(spent),
        asked=budget.spending(asked),
        limit=budget.spending(limit),
    )


def unknown_analyst(name: str) -> RefusedError:
    """Return the error of a charge to an account that was never granted."""
    return RefusedError(
        f"There is no account for analyst {name!r:.80}.",
        "Grant one first: `confide ledger grant NAME --epsilon ...`.",
    )
