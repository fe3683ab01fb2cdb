"""Budgets, reservations and their durable store: one dataset, one budget, refused before it leaks.

>>> ledger = Ledger.open("sqlite:///ledger.db", dataset="visits", epsilon=3, delta=1e-6,
...                      adjacency="replace_private_part")  # doctest: +SKIP
>>> reservation = ledger.reserve(guarantee)  # durable, before any private value is read  # doctest: +SKIP
>>> ledger.settle(reservation)  # doctest: +SKIP

How it is built, from the bottom:

==================  ===================================================================================
`budget`            limits, exact sums, what does not fit
`pricing`           what a guarantee costs here: adjacency, unit, assumptions, accountant
`chain`             canonical entries, each with the hash of the one before
`counter`           a mark outside the store that shows a restored backup
`tables`, `store`   SQLite or PostgreSQL: one connection a process, append-only tables
`session`           one transaction; charges that wait together share a commit
`operations`        charge, settle, keep, grant, bind: each decided inside a session
`reading`           balances, listings, exports, verification: never writes
`handle`, `ledger`  what callers hold
`handle.Parts`      a room above decides, and writes its own tables, inside these transactions
`charging`          reserve, bind, compute, settle: how the systems spend
==================  ===================================================================================

What a caller may rely on:

=========================================  =============================================================
event                                      outcome
=========================================  =============================================================
`reserve` returned                         the charge is on disk; no crash takes it back
`reserve` raised a `RefusedError`          nothing was written
`reserve` raised another `LedgerError`     the outcome may be unknown: do not read, ask again
a process dies between reserve and settle  the charge stays, shown as "reserved"
the same request key again                 the first reservation, ``replayed``; nothing more is charged
a backup is restored                       every charge is refused (or "rollback undetected" is named)
two handles, threads, processes, hosts     one budget: the store serialises them
=========================================  =============================================================
"""

from confide.ledger.budget import Budget, Spending
from confide.ledger.charging import charged, rehearse
from confide.ledger.ledger import Ledger, resolve
from confide.ledger.records import AccountState, Preview, Request, Reservation, Update, Verification

__all__ = [
    "AccountState",
    "Budget",
    "Ledger",
    "Preview",
    "Request",
    "Reservation",
    "Spending",
    "Update",
    "Verification",
    "charged",
    "rehearse",
    "resolve",
]
