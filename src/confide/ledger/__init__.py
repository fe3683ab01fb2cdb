"""Budgets, reservations and their durable store: one dataset, one budget, refused before it leaks.

>>> ledger = Ledger.open("sqlite:///ledger.db", dataset="visits", epsilon=3, delta=1e-6,
...                      adjacency="replace_private_part")  # doctest: +SKIP
>>> reservation = ledger.reserve(guarantee)  # durable, before any private value is read  # doctest: +SKIP
>>> ledger.settle(reservation)  # doctest: +SKIP
"""

from confide.ledger.budget import Budget, Spending
from confide.ledger.ledger import Ledger, resolve
from confide.ledger.records import AccountState, Preview, Request, Reservation, Verification

__all__ = [
    "AccountState",
    "Budget",
    "Ledger",
    "Preview",
    "Request",
    "Reservation",
    "Spending",
    "Verification",
    "resolve",
]
