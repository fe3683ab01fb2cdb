"""One member of a family: a claim on other tables, with other amounts or under another relation."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from confide.audit.registry import Pair, Run


@dataclass(frozen=True)
class Variant:
    """A run beside those of a claim: replayed, and held against what it charges itself.

    Parameters
    ----------
    name : str
        What is other: ``"six columns"``, ``"epsilon 8"``.
    run : function (table, stream) -> array
    pairs : function () -> iterable of Pair, optional
        Its neighbours, the worst first; those of the claim by default.
    adjacency : str, optional
        Its relation; the claim's by default.
    epsilon : float, optional
        Its amount; the claim's by default. Charges of one question may not be above it.
    delta : float, optional
        Likewise.
    """

    name: str
    run: Run = field(repr=False)
    pairs: Callable[[], Iterable[Pair]] | None = field(default=None, repr=False)
    adjacency: str | None = None
    epsilon: float | None = None
    delta: float | None = None


#: Claim -> its variants.
Families = dict[str, tuple[Variant, ...]]
