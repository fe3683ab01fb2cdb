"""Which tables count as neighbours. A guarantee without this is not a guarantee."""

from __future__ import annotations

from enum import Enum

from confide.errors import ParameterError


class Adjacency(Enum):
    """Neighbouring relation between two tables.

    ========================  ==========================================================================
    ``ADD_REMOVE_ONE``        one unit (row, or person) is added or removed; the number of rows is secret
    ``REPLACE_ONE``           one unit is replaced by another; the number of rows is public
    ``REPLACE_PRIVATE_PART``  the private columns and the label of one unit change; its public columns,
                              and the number of rows, are public (semi-sensitive features)
    ``REPLACE_LABEL``         the label of one unit changes; everything else is public (label DP)
    ========================  ==========================================================================
    """

    ADD_REMOVE_ONE = "add_remove_one"
    REPLACE_ONE = "replace_one"
    REPLACE_PRIVATE_PART = "replace_private_part"
    REPLACE_LABEL = "replace_label"

    @classmethod
    def parse(cls, value: Adjacency | str) -> Adjacency:
        """Return the member for an enum member or its lower-case name.

        Raises
        ------
        ParameterError
            If `value` names no relation.
        """
        if isinstance(value, cls):
            return value
        if isinstance(value, str):
            try:
                return cls(value.lower())
            except ValueError:
                pass
        names = ", ".join(repr(member.value) for member in cls)
        raise ParameterError(f"The 'adjacency' parameter is {value!r}.", f"Pass one of {names}.")

    @property
    def sentence(self) -> str:
        """What may differ between two neighbouring tables, in words."""
        return _SENTENCES[self]

    def implies(self, weaker: Adjacency) -> bool:
        """Whether a guarantee under ``self`` is one under `weaker` at face value.

        REPLACE_ONE > REPLACE_PRIVATE_PART > REPLACE_LABEL: every pair of neighbours of the weaker relation
        is one of the stronger. ADD_REMOVE_ONE implies itself alone at face value; on the replacement
        relations it counts twice (see `Guarantee.under`).
        """
        return weaker in _IMPLIED[self]


_SENTENCES = {
    Adjacency.ADD_REMOVE_ONE: "adding or removing one {unit}",
    Adjacency.REPLACE_ONE: "replacing one {unit} by any other",
    Adjacency.REPLACE_PRIVATE_PART: "changing the private columns and the label of one {unit}",
    Adjacency.REPLACE_LABEL: "changing the label of one {unit}",
}

_IMPLIED = {
    Adjacency.ADD_REMOVE_ONE: {Adjacency.ADD_REMOVE_ONE},
    Adjacency.REPLACE_ONE: {Adjacency.REPLACE_ONE, Adjacency.REPLACE_PRIVATE_PART, Adjacency.REPLACE_LABEL},
    Adjacency.REPLACE_PRIVATE_PART: {Adjacency.REPLACE_PRIVATE_PART, Adjacency.REPLACE_LABEL},
    Adjacency.REPLACE_LABEL: {Adjacency.REPLACE_LABEL},
}
