"""The guarantee that travels with every released value."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any

from confide.errors import AdjacencyError, ParameterError
from confide.privacy.adjacency import Adjacency
from confide.privacy.event import Event
from confide.privacy.exact import Amount, exact, round_up, show

#: Marks of results that carry no guarantee at all; a ledger never records them as private.
SEEDED = "seeded"
UNRECORDED = "unrecorded"
NONPRIVATE = "nonprivate"
#: Mark of a guarantee that holds where no neighbour of the table has another best support
#: (`confide.selection.gap`); a ledger refuses it unless it accepts it by name.
GAP_CONDITION = "gap condition"
#: What the names of this house's assumptions mean, and where more stands.
MEANINGS = {
    GAP_CONDITION: (
        "no single unit of the table can change which support is best",
        "docs/how-to/selection-mechanisms.md",
    ),
    "public data": ("nothing in the table is secret", "docs/tutorials/variable-selection.md"),
    "the chain has mixed": (
        "so many steps of the chain reach its limit law, which nobody has proved",
        "docs/how-to/compare-baselines.md",
    ),
}


def glossed(name: str) -> str:
    """Return the name of an assumption, with its meaning in brackets where the house knows it."""
    return f"{name} ({MEANINGS[name][0]})" if name in MEANINGS else name


@dataclass(frozen=True, eq=True)
class Guarantee:
    """(epsilon, delta)-differential privacy of one release, for one neighbouring relation.

    Parameters
    ----------
    epsilon, delta : amount
        Kept as exact rationals; floats mean their shortest decimal. ``math.inf`` only for a release that
        is marked ``"nonprivate"`` in `assumptions`.
    adjacency : Adjacency or str
        Which tables count as neighbours.
    unit : str
        What one unit is: ``"row"``, or ``"person"`` where the schema names an id column.
    event : Event
        What was run.
    assumptions : tuple of str
        Empty for an unconditional guarantee. Otherwise each names what the proof needs and does not have.
    declaration : str
        Hash of who declared which columns public (`confide.schema`), or empty.

    Notes
    -----
    A mechanism M has the guarantee if for all neighbouring tables D, D' and all sets S of outputs
    P(M(D) in S) <= e^epsilon P(M(D') in S) + delta. Comparison (``<=``, ``<``) across relations or units is
    refused: the numbers mean different things.
    """

    epsilon: Fraction | float
    delta: Fraction
    adjacency: Adjacency
    unit: str
    event: Event
    assumptions: tuple[str, ...] = field(default=())
    declaration: str = ""

    def __init__(
        self,
        epsilon: Amount,
        delta: Amount,
        adjacency: Adjacency | str,
        unit: str,
        event: Event,
        assumptions: tuple[str, ...] = (),
        declaration: str = "",
    ) -> None:
        assumptions = tuple(sorted(set(assumptions)))
        if isinstance(epsilon, float) and epsilon == math.inf:
            if NONPRIVATE not in assumptions:
                raise ParameterError(
                    "The 'epsilon' of a guarantee is infinite.",
                    f"Only a release marked {NONPRIVATE!r} in its assumptions has an infinite epsilon.",
                )
            amount: Fraction | float = math.inf
        else:
            amount = exact(epsilon, "epsilon")
        fraction = exact(delta, "delta")
        if fraction > 1:
            raise ParameterError(f"The 'delta' of a guarantee is {show(fraction)}.", "Pass at most 1.")
        set_ = object.__setattr__
        set_(self, "epsilon", amount)
        set_(self, "delta", fraction)
        set_(self, "adjacency", Adjacency.parse(adjacency))
        set_(self, "unit", str(unit))
        set_(self, "event", event)
        set_(self, "assumptions", assumptions)
        set_(self, "declaration", str(declaration))

    @property
    def unconditional(self) -> bool:
        """Whether the guarantee rests on no assumption."""
        return not self.assumptions

    def __str__(self) -> str:
        what = self.adjacency.sentence.format(unit=self.unit)
        if self.epsilon == math.inf:
            return f"No privacy: this release was made without noise ({what} may be visible in it)."
        delta = f" and delta = {show(self.delta)}" if self.delta else ""
        text = (
            f"Differentially private with epsilon = {show(self.epsilon)}{delta}: {what} changes the "
            f"probability of any outcome by at most a factor e^{show(self.epsilon)}"
            + (f" plus {show(self.delta)}" if self.delta else "")
        )
        if not self.assumptions:
            return f"{text}."
        return f"{text}, assuming: {', '.join(map(glossed, self.assumptions))}."

    def assuming(self, *names: str) -> Guarantee:
        """Return the same guarantee with further assumptions."""
        return replace_guarantee(self, assumptions=self.assumptions + names)

    def under(self, adjacency: Adjacency | str) -> Guarantee:
        """Return what this guarantee says about another neighbouring relation.

        At face value where every pair of neighbours of `adjacency` is one of ours (`Adjacency.implies`).
        From ADD_REMOVE_ONE to a replacement relation, a removal and an addition: 2 epsilon and
        (1 + e^epsilon) delta, rounded up.

        Raises
        ------
        AdjacencyError
            Where it says nothing.
        """
        target = Adjacency.parse(adjacency)
        if self.adjacency.implies(target):
            return replace_guarantee(self, adjacency=target)
        if self.adjacency is Adjacency.ADD_REMOVE_ONE:
            doubled = group_amounts(self.epsilon, self.delta, 2)
            # The event carries the two steps too, for accountants that price events.
            return replace_guarantee(
                self, epsilon=doubled[0], delta=doubled[1], adjacency=target, event=self.event.group(2)
            )
        raise AdjacencyError(
            f"A guarantee under {self.adjacency.value!r} says nothing about {target.value!r}.",
            f"Ask for a mechanism under {target.value!r}, or for a weaker relation.",
        )

    def _comparable(self, other: object) -> Guarantee:
        if not isinstance(other, Guarantee):
            raise TypeError(f"a Guarantee cannot be compared with {type(other).__name__}")
        if other.adjacency is not self.adjacency or other.unit != self.unit:
            raise AdjacencyError(
                f"Guarantees under {self.adjacency.value!r} per {self.unit} and {other.adjacency.value!r} "
                f"per {other.unit} are not comparable.",
                "Convert one of them first, with Guarantee.under or confide.privacy.group.",
            )
        return other

    def __le__(self, other: object) -> bool:
        that = self._comparable(other)
        return self.epsilon <= that.epsilon and self.delta <= that.delta

    def __lt__(self, other: object) -> bool:
        that = self._comparable(other)
        return self <= that and (self.epsilon, self.delta) != (that.epsilon, that.delta)

    def __ge__(self, other: object) -> bool:
        return self._comparable(other) <= self

    def __gt__(self, other: object) -> bool:
        return self._comparable(other) < self

    def to_dict(self) -> dict[str, Any]:
        """Return plain values; amounts as exact text ("1/10")."""
        return {
            "epsilon": "inf" if self.epsilon == math.inf else str(self.epsilon),
            "delta": str(self.delta),
            "adjacency": self.adjacency.value,
            "unit": self.unit,
            "event": self.event.to_dict(),
            "assumptions": list(self.assumptions),
            "declaration": self.declaration,
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Guarantee:
        """Rebuild a guarantee from `to_dict`."""
        epsilon = data["epsilon"]
        return cls(
            math.inf if epsilon == "inf" else epsilon,
            data["delta"],
            data["adjacency"],
            data["unit"],
            Event.from_dict(data["event"]),
            tuple(data.get("assumptions", ())),
            data.get("declaration", ""),
        )

    def to_json(self) -> str:
        """Return canonical JSON text."""
        return json.dumps(self.to_dict(), sort_keys=True, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> Guarantee:
        """Rebuild a guarantee from `to_json`."""
        return cls.from_dict(json.loads(text))


def replace_guarantee(guarantee: Guarantee, **changes: Any) -> Guarantee:
    """Return `guarantee` with some fields changed, validated again."""
    return replace(guarantee, **changes)


def group_amounts(epsilon: Fraction | float, delta: Fraction, size: int) -> tuple[Fraction | float, Fraction]:
    """Return (epsilon, delta) for tables that differ in `size` units, rounded up.

    size * epsilon, and delta * (1 + e^epsilon + ... + e^((size-1) epsilon)), at most 1.
    """
    if not isinstance(size, int) or isinstance(size, bool) or size < 1:
        raise ParameterError(f"The 'size' of a group is {size!r}.", "Pass an integer >= 1.")
    if not isinstance(epsilon, Fraction):
        return math.inf, delta
    total = epsilon * size
    if delta == 0 or size == 1:
        return total, delta
    exponent = float(epsilon) * (size - 1)
    if exponent > 700 or size > 10**6:
        return total, Fraction(1)
    # Each term is correct to a few ulp; 1e-12 relative covers a million of them.
    terms = math.fsum(math.exp(float(epsilon) * i) for i in range(size))
    return total, min(Fraction(1), delta * round_up(terms * (1 + 1e-12)))


def group(guarantee: Guarantee, size: int, unit: str = "group") -> Guarantee:
    """Return what a guarantee per unit says about `size` units together (group privacy).

    Source: Dwork & Roth 2014, theorem 2.2, with the geometric sum for delta kept exact.
    """
    epsilon, delta = group_amounts(guarantee.epsilon, guarantee.delta, size)
    return replace_guarantee(
        guarantee, epsilon=epsilon, delta=delta, unit=unit, event=guarantee.event.group(size)
    )
