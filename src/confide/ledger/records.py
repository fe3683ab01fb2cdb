"""What a ledger hands back, and what it is asked: plain frozen records."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

from confide.errors import ParameterError
from confide.ledger.budget import Spending
from confide.ledger.names import name_of, one_spelling, public_text, secret_of, version_of
from confide.privacy.guarantee import Guarantee


@dataclass(frozen=True)
class Reservation:
    """A durable charge. Run the mechanism once, then settle.

    Attributes
    ----------
    dataset : str
        Whose budget was charged.
    sequence, hash : int, str
        Place of the entry in the chain.
    guarantee : Guarantee
        What was charged for.
    analyst, label, key
        As given to `Ledger.reserve`.
    version : int or None
        The version of the data that the entry names: given, or else bound last.
    settled : bool
        Whether the outcome was kept when this object was made.
    replayed : bool
        Whether the request key had been charged before, so that nothing was charged now. A replayed
        reservation pays for the *first* run only: answer from ``ledger.secret(reservation)``, or, where
        there is none, ask again under a new key.
    """

    dataset: str
    sequence: int
    hash: str
    guarantee: Guarantee
    analyst: str | None = None
    label: str = ""
    key: str | None = None
    version: int | None = None
    settled: bool = False
    replayed: bool = False

    @property
    def id(self) -> str:
        """Short name: sequence number and the start of the hash."""
        return f"{self.sequence}-{self.hash[:16]}"


@dataclass(frozen=True)
class Request:
    """One charge of `Ledger.charge_many`; the fields are the parameters of `Ledger.charge`."""

    guarantee: Guarantee
    analyst: str | None = None
    label: str = ""
    key: str | None = None
    secret: bytes | None = None
    accept: Iterable[str] = ()
    version: int | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "analyst", one_spelling(self.analyst))

    def check(self) -> None:
        """Raise `ParameterError` where a field is outside its domain."""
        if self.analyst is not None:
            name_of(self.analyst, "analyst")
        if self.key is not None:
            name_of(self.key, "key")
        public_text(self.label, "The 'label' of a charge")
        version_of(self.version)
        if self.secret is not None:
            secret_of(self.secret)


@dataclass(frozen=True)
class Update:
    """New secret state of a settled reservation, in a group of `Ledger.charge_many`."""

    reservation: Reservation
    secret: bytes

    def check(self) -> None:
        """Raise `ParameterError` where a field is outside its domain."""
        if not isinstance(self.reservation, Reservation):
            raise ParameterError(
                f"The reservation is a {type(self.reservation).__name__}.", "Pass what `reserve` returned."
            )
        secret_of(self.secret)


@dataclass(frozen=True)
class Preview:
    """What a charge would do.

    Attributes
    ----------
    fits : bool
        Whether it would be accepted now.
    cost : Spending or None
        What it would cost under the ledger's adjacency; None where it has no cost there.
    remaining : Spending or None
        What would be left of the budget; None if it does not fit.
    reason : str
        Why not, or empty.
    """

    fits: bool
    cost: Spending | None
    remaining: Spending | None
    reason: str = ""

    def __bool__(self) -> bool:
        return self.fits


@dataclass(frozen=True)
class AccountState:
    """An analyst's account: limit, spent, remaining (what the account has left, whatever the total has)."""

    name: str
    limit: Spending
    spent: Spending
    remaining: Spending

    def to_dict(self) -> dict[str, Any]:
        """Return plain values."""
        return {
            "analyst": self.name,
            "limit": self.limit.to_dict(),
            "spent": self.spent.to_dict(),
            "remaining": self.remaining.to_dict(),
        }


class Verification(NamedTuple):
    """A chain that was verified: number of entries, hash of the last, and what could not be checked.

    `older_keys` are valid keys, by holder and public part, that were given before keys had entries.
    """

    entries: int
    head: str
    assumptions: tuple[str, ...]
    older_keys: tuple[str, ...] = ()
