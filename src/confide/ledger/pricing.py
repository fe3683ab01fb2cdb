"""What a guarantee costs on a ledger, and whether the ledger takes it at all."""

from __future__ import annotations

import math
from collections.abc import Iterable
from fractions import Fraction
from typing import Any, NamedTuple

from confide.errors import AdjacencyError, AssumptionError, ParameterError, RefusedError, UnsupportedError
from confide.ledger import chain
from confide.ledger.budget import Budget, Quantity, Vector, amount, text
from confide.ledger.names import LONGEST_NAME, accept_of, public_text
from confide.privacy.adjacency import Adjacency
from confide.privacy.event import Event
from confide.privacy.exact import show
from confide.privacy.guarantee import MEANINGS, NONPRIVATE, SEEDED, UNRECORDED, Guarantee

#: Assumptions that no owner can accept: such a release has no guarantee to record.
NEVER_ACCEPTED = (SEEDED, UNRECORDED)

_CACHED = 256


class Pricer:
    """Prices on one budget, remembered for guarantees that come again.

    Parameters
    ----------
    budget : Budget
    accept : tuple of str
        Assumptions accepted for every charge.
    """

    def __init__(self, budget: Budget, accept: tuple[str, ...]) -> None:
        self.budget, self.accept = budget, accept
        self._known: dict[tuple[int, ...], tuple[list[Any], tuple[str, ...], Price]] = {}

    def __call__(self, guarantee: Guarantee, accept: Iterable[str] = ()) -> Price:
        """Return `price` with the accepted assumptions of both."""
        accept = self.accept if accept == () else (*self.accept, *accept_of(accept))
        leaves = _leaves(guarantee)
        if leaves is None:
            return price(guarantee, self.budget, accept)
        key = tuple(map(id, leaves))
        known = self._known.get(key)
        if known is not None and known[1] == accept:
            return known[2]
        priced = price(guarantee, self.budget, accept)
        if len(self._known) >= _CACHED:
            self._known.clear()
        self._known[key] = (leaves, accept, priced)
        return priced


def _leaves(guarantee: Guarantee) -> list[Any] | None:
    """Return the values that decide a price, all of them immutable; None for one that is not to be cached.

    A cache keeps them alive, so the same addresses are the same values, however the guarantee that held them
    was altered since. (Equality would mix 1 and True, and hashing a Fraction takes a group commit's time.)
    """
    if type(guarantee) is not Guarantee:
        return None
    epsilon, delta = guarantee.epsilon, guarantee.delta
    if type(epsilon) is not Fraction or type(delta) is not Fraction:
        return None
    leaves = [
        epsilon.numerator,
        epsilon.denominator,
        delta.numerator,
        delta.denominator,
        guarantee.adjacency,
        guarantee.unit,
        guarantee.declaration,
        *guarantee.assumptions,
    ]
    events = [guarantee.event]
    for event in events:
        if type(event) is not Event:
            return None
        leaves += (None, event.mechanism, event.count, event.parts)
        for parameter in event.parameters:
            leaves += parameter
        if event.parts:
            events += event.parts
    return leaves


class Price(NamedTuple):
    """What a guarantee costs on one ledger."""

    vector: Vector
    accepted: tuple[str, ...]  #: names of the assumptions that were accepted
    terms: str  #: canonical JSON of charge and guarantee, the middle of an entry's body


def price(guarantee: Guarantee, budget: Budget, accept: Iterable[str] = ()) -> Price:
    """Return what `guarantee` costs under `budget`, or refuse; reads nothing but its arguments.

    =============================================  =========================================================
    charge stated under                            cost on the ledger
    =============================================  =========================================================
    the ledger's adjacency, or one that implies it  face value
    ADD_REMOVE_ONE, on a replacement ledger        2 epsilon, (1 + e^epsilon) delta; 4 rho under zCDP
                                                   (group privacy, Bun & Steinke 2016)
    any other adjacency                            `AdjacencyError`
    another unit ("person" on "row" included)      `RefusedError`: adding a row to a person is not adding a
                                                   person, and a changed id touches two
    epsilon = delta = 0                            0: recorded, harmless
    infinite epsilon                               refused unless the ledger is non-private
    assumption "seeded" or "unrecorded"            `AssumptionError`, always
    any other assumption                           `AssumptionError` unless named in `accept`
    zCDP ledger, event without a zCDP cost         `UnsupportedError`
    =============================================  =========================================================
    """
    if not isinstance(guarantee, Guarantee):
        raise ParameterError(
            f"The charge is a {type(guarantee).__name__}.", "Pass a confide.privacy.Guarantee."
        )
    _check_text(guarantee)
    infinite = isinstance(guarantee.epsilon, float) and guarantee.epsilon == math.inf
    # The fields were validated at construction; a charge is checked again, since it outlives its maker.
    if not infinite:
        amount(guarantee.epsilon, "epsilon")
    amount(guarantee.delta, "delta")
    if guarantee.unit != budget.unit:
        raise RefusedError(
            f"The charge is stated per {guarantee.unit} and the ledger per {budget.unit}.",
            f"Create another ledger (confide ledger create --unit {guarantee.unit} ..., in Python "
            f"unit={guarantee.unit!r}), or charge per {budget.unit}.",
        )
    accepted = _accepted(guarantee, budget, accept)
    if infinite and not budget.nonprivate:
        raise RefusedError(
            "The charge has an infinite epsilon.",
            "Only a ledger opened with epsilon=math.inf and nonprivate=True records it.",
        )
    converted = guarantee.under(budget.adjacency)
    if budget.accountant == "basic":
        vector: Vector = (converted.epsilon, converted.delta)
    else:
        vector = (_zcdp(guarantee, budget),)
    charge = {name: text(value) for name, value in zip(budget.names, vector)}
    terms = f'"charge":{chain.canonical(charge)},"guarantee":{chain.canonical(guarantee.to_dict())}'
    return Price(vector, accepted, terms)


def _check_text(guarantee: Guarantee) -> None:
    """Refuse a description that could not be printed: entries are kept for ever."""
    for name in guarantee.assumptions:
        public_text(name, "An assumption of the guarantee")
    public_text(guarantee.declaration, "The declaration of the guarantee")
    events = [guarantee.event]
    for event in events:
        public_text(event.mechanism, "The event's mechanism", LONGEST_NAME)
        for name, value in event.parameters:
            public_text(name, "The name of an event's parameter", LONGEST_NAME)
            if isinstance(value, str):
                public_text(value, f"The event's parameter {name!r}")
        events += event.parts


def _accepted(guarantee: Guarantee, budget: Budget, accept: Iterable[str]) -> tuple[str, ...]:
    allowed = set(accept) | ({NONPRIVATE} if budget.nonprivate else set())
    hopeless = [name for name in guarantee.assumptions if name in NEVER_ACCEPTED]
    if hopeless:
        raise AssumptionError(
            f"The guarantee is marked {hopeless[0]!r}: the release has no guarantee to record.",
            "Run it with random_state=None and with the ledger.",
        )
    if NONPRIVATE in guarantee.assumptions and not budget.nonprivate:
        raise AssumptionError(
            f"The guarantee is marked {NONPRIVATE!r}.",
            "Only a ledger opened with epsilon=math.inf and nonprivate=True records it.",
        )
    missing = [name for name in guarantee.assumptions if name not in allowed]
    if missing:
        names = ", ".join(repr(name) for name in missing)
        options = " ".join(f'--accept "{name}"' for name in missing)
        raise AssumptionError(
            f"The guarantee assumes {names}{_meant(missing)}.",
            f"Accept by name with accept=({names},) where the ledger is opened, on the command line with "
            f"{options}; or choose another method.",
        )
    return tuple(name for name in guarantee.assumptions if name in allowed)


def _meant(names: list[str]) -> str:
    """Return what assumptions mean and where that stands, for those that this house makes."""
    told = [f"{MEANINGS[name][0]}: {MEANINGS[name][1]}" for name in names if name in MEANINGS]
    return f" ({'; '.join(told)})" if told else ""


def _unpriced(event: Event) -> str:
    """Return the first part of an event without a zCDP cost, with its delta if it has one."""
    from confide.privacy.accountants import zcdp_cost
    from confide.privacy.losses import primitives

    part = next((part for part, _ in primitives(event) if zcdp_cost(part) is None), event)
    delta = part.get("delta")
    told = "" if delta in (None, "0", 0) else f", whose own delta is {delta}"
    return f"the mechanism {part.mechanism!r}{told}"


def _zcdp(guarantee: Guarantee, budget: Budget) -> Quantity:
    from confide.privacy import zcdp_cost

    rho = math.inf if guarantee.epsilon == math.inf else zcdp_cost(guarantee.event)
    if rho is None:
        raise UnsupportedError(
            f"No zCDP cost is known for {_unpriced(guarantee.event)}.",
            "Use a Gaussian mechanism or one with delta = 0, or a ledger with accountant='basic'.",
        )
    if rho == math.inf:
        if not budget.nonprivate:
            raise RefusedError(
                "The charge has an infinite rho.", "Only a ledger opened with nonprivate=True records it."
            )
        return math.inf
    cost = amount(rho, "rho")
    if cost == 0 and guarantee.epsilon > 0:
        raise ParameterError(
            f"The event {guarantee.event.mechanism!r} costs nothing, its guarantee states epsilon = "
            f"{show(guarantee.epsilon)}.",
            "Describe what was run: a zCDP ledger charges the event.",
        )
    if guarantee.adjacency.implies(budget.adjacency):
        return cost
    if guarantee.adjacency is Adjacency.ADD_REMOVE_ONE:
        return 4 * cost
    raise AdjacencyError(f"A guarantee under {guarantee.adjacency.value!r} does not fit.", "")
