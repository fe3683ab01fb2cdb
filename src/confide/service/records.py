"""What the service hands back, and why it refuses: facts of the asker's own account alone."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from confide.errors import BudgetError, DataError, Failure, LedgerError, RefusedError
from confide.ledger import Spending
from confide.privacy import Guarantee

ANSWERED, UNSTABLE, UNANSWERED = "answered", "unstable", "unanswered"
#: Name and account of the owner, whose key is apart.
OWNER = "owner"
#: Name of the key of a monitor, which may read /metrics and nothing else: it has no account.
METRICS = "metrics"


@dataclass(frozen=True)
class Analyst:
    """Who asks: what a valid key stands for.

    Attributes
    ----------
    name : str
        Of the account.
    prefix : str
        Public part of the key; tells keys apart after a rotation.
    owner : bool
        Whether it is the owner's key.
    monitor : bool
        Whether it is the key of a monitor: for the counters alone.
    """

    name: str
    prefix: str
    owner: bool = False
    monitor: bool = False


@dataclass(frozen=True)
class Answers:
    """Answers of one request.

    Attributes
    ----------
    values : tuple
        A class a row; None where `states` is not "answered".
    states : tuple of str
        "answered"; "unstable" or "unanswered" under the sparse vector.
    cost : Spending
        What the request cost the asker's account when it was first answered.
    left : Spending
        What the account has left now.
    replayed : bool
        Whether the request had been answered before: nothing was charged now.
    """

    values: tuple[Any, ...]
    states: tuple[str, ...]
    cost: Spending
    left: Spending
    replayed: bool = False


@dataclass(frozen=True)
class BudgetView:
    """An analyst's own account, and nothing of anybody else's.

    Attributes
    ----------
    name : str
    limit, spent, left : Spending
    answers : int or None
        New queries (epochs under the sparse vector) that the account alone still allows; None: no limit. 0
        where `total_exhausted`.
    total_exhausted : bool
        Whether the total refuses one new question that the account covers (in an epoch that is open here, if
        there is one): what a free refusal would show, and no amount of the total.
    """

    name: str
    limit: Spending
    spent: Spending
    left: Spending
    answers: int | None
    total_exhausted: bool = False


@dataclass(frozen=True)
class AccountLine:
    """One account, for the owner.

    Attributes
    ----------
    name : str
    limit, spent : Spending
    requests : int
        Answered.
    answered, paid, drawn : int
        Rows: asked in answered requests, new to the analyst, new to all. Of the sparse vector: `paid` counts
        epochs, `drawn` rows.
    refused : int
        Requests that the account, the total or a used request id refused.
    state : str
        Of the key: "active", "revoked" or empty.
    left : Spending
        As the ledger says it: under zCDP what is left of rho, and what that alone amounts to.
    """

    name: str
    limit: Spending
    spent: Spending
    requests: int = 0
    answered: int = 0
    paid: int = 0
    drawn: int = 0
    refused: int = 0
    state: str = ""
    left: Spending | None = None


@dataclass(frozen=True)
class Overview:
    """Everything, for the owner.

    Attributes
    ----------
    total : AccountLine
        Of the dataset, with the sums of all accounts' counts.
    accounts : tuple of AccountLine
    history : tuple of (datetime, float)
        Epsilon spent in all at the beginning and the end of each ten minutes in which the service charged;
        oldest first.
    """

    total: AccountLine
    accounts: tuple[AccountLine, ...]
    history: tuple[tuple[datetime, float], ...]

    @property
    def answered(self) -> int:
        """Rows answered."""
        return self.total.answered

    @property
    def refused(self) -> int:
        """Requests refused."""
        return self.total.refused


@dataclass(frozen=True)
class Promise:
    """What the service guarantees.

    Attributes
    ----------
    answer : Guarantee
        Of one answer, or of one epoch.
    total : Guarantee
        Of all answers to all analysts together.
    sentence : str
    assumptions : tuple of str
    late : str
        What is assumed of answers that left late, one of `assumptions`; empty where none did.
    """

    answer: Guarantee
    total: Guarantee
    sentence: str
    assumptions: tuple[str, ...]
    late: str = ""


class RequestReused(RefusedError):
    """The request id was used for other rows (HTTP 409); what was stored is not told."""


class RequestOfAnotherModel(RequestReused):
    """The request id was answered by another model, or under other settings of an answer (HTTP 409)."""


class TooManyRequests(RefusedError):
    """The analyst's rate is exceeded (HTTP 429); ``retry_after`` seconds."""

    def __init__(self, retry_after: float) -> None:
        super().__init__("Too many requests.", f"Ask again in {retry_after:.3f} seconds.")
        self.retry_after = retry_after


class UnknownKeys(TooManyRequests):
    """Too many keys were asked for that nobody has, and this is another one (HTTP 429)."""


class RandomBitsFailed(LedgerError):
    """Noise could not be drawn; nothing of the transaction was charged (HTTP 503)."""

    failure = Failure.ENTROPY


class KeyRevoked(RefusedError):
    """The key was revoked or rotated while the request was on its way (HTTP 401)."""


class TotalExhausted(BudgetError):
    """The model's total does not cover the request. How much is left of it is the owner's to know."""


class RowError(DataError):
    """Rows that do not fit the declaration (HTTP 422).

    Attributes
    ----------
    faults : tuple of (row number, field, what is wrong)
        Never a value that was sent.
    """

    def __init__(self, faults: tuple[tuple[int, str, str], ...]) -> None:
        place, name, what = faults[0]
        super().__init__(
            f"Row {place}, field {name!r:.80}: {what}.", "Send the fields of the declared schema."
        )
        self.faults = faults
