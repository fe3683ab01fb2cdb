"""What the page shows, as plain values; made from the service's own records in `confide.service.views`."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime

from confide.ledger import Spending
from confide.service.problems import FieldError


@dataclass(frozen=True)
class Account:
    """One line of the budget.

    Attributes
    ----------
    name : str
    limit, spent, left : Spending
        As the ledger says them: under zCDP, epsilons of limit, spent and left do not add up.
    answered, refused : int
        Rows, and requests.
    state : str
        Of the key: ``active``, ``revoked`` or empty.
    """

    name: str
    limit: Spending
    spent: Spending
    left: Spending
    answered: int = 0
    refused: int = 0
    state: str = ""


@dataclass(frozen=True)
class Overview:
    """The moving part of the page.

    Attributes
    ----------
    total : Account
        Of the model.
    accounts : tuple of Account
    history : tuple of (datetime, epsilon)
        The total after each charge, or after the last of each stretch of time.
    """

    total: Account
    accounts: tuple[Account, ...]
    history: tuple[tuple[datetime, float], ...] = ()


@dataclass(frozen=True)
class Standing:
    """The part that stays: what is served under which guarantee.

    Attributes
    ----------
    model : str
    sentence : str
        The guarantee, of all answers together.
    answer : str
        The guarantee of one answer.
    assumptions : tuple of str
    price : str
        What one question costs the owner's account.
    short : str
        The total in a few words, before the sentence.
    """

    model: str
    sentence: str
    answer: str
    assumptions: tuple[str, ...]
    price: str
    short: str = ""


@dataclass(frozen=True)
class Outcome:
    """What became of the form.

    Attributes
    ----------
    answer : str or None
    unstable : bool
        Whether the service gave no class.
    cost, left : str
        Of the owner's account.
    notes : tuple of str
    problem, remedy : str
        Why there is no answer; empty where there is one.
    errors : tuple of FieldError
    cells : dict
        Cells that fit, to fill the form with; none of those at fault.
    """

    answer: str | None = None
    unstable: bool = False
    cost: str = ""
    left: str = ""
    notes: tuple[str, ...] = ()
    problem: str = ""
    remedy: str = ""
    errors: tuple[FieldError, ...] = ()
    cells: dict[str, str] = field(default_factory=dict)
