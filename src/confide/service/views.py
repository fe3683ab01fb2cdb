"""What is read of a service: an account for its analyst, everything for the owner. Nothing here writes."""

from __future__ import annotations

import time
from fractions import Fraction
from typing import Any

from confide.ledger.budget import Quantity, left, unknown_analyst
from confide.ledger.handle import Parts
from confide.ledger.reading import accounts, balance
from confide.service.records import BudgetView
from confide.service.terms import Terms

_BLOCK = (
    "SELECT answers_left FROM confide_service_block "
    "WHERE dataset_id = ? AND release = ? AND analyst = ? AND size = ? AND slack = ?"
)
_COUNTS = (
    "SELECT analyst, COUNT(*), SUM(rows_asked), SUM(rows_paid), SUM(rows_drawn) "
    "FROM confide_service_request WHERE dataset_id = ? GROUP BY analyst ORDER BY analyst"
)
_HOURS = (
    "SELECT hour, analyst, COUNT(*), SUM(rows_asked), SUM(rows_paid), SUM(rows_drawn) "
    "FROM confide_service_request WHERE dataset_id = ? AND hour >= ? "
    "GROUP BY hour, analyst ORDER BY hour, analyst"
)
_KEYS = "SELECT name FROM confide_service_key WHERE dataset_id = ? AND revoked IS NULL"
_COLUMNS = ("requests", "rows", "paid", "drawn")


def view(parts: Parts, terms: Terms, name: str) -> BudgetView:
    """Return an analyst's own account.

    Raises
    ------
    RefusedError
        If there is none.
    """
    store, dataset = parts.store, parts.dataset
    config = terms.config
    with store.reading() as connection:
        found = accounts(store, connection, dataset).get(name)
        row = None
        if terms.blocks:
            slack = str(config.slack)
            place = (dataset.id, terms.names.release, name, config.analyst_block, slack)
            row = store.row(connection, _BLOCK, place)
    if found is None:
        raise unknown_analyst(name)
    limit, spent = found
    rest = left(spent, limit)
    budget = dataset.budget
    blocks = [_times(part, each) for part, each in zip(rest, terms.own(1).vector) if each]
    count = None
    if blocks and None not in blocks:
        count = min(whole for whole in blocks if whole is not None) * config.analyst_block
        count += 0 if row is None else row[0]
    return BudgetView(name, budget.spending(limit), budget.spending(spent), budget.spending(rest), count)


def _times(rest: Quantity, each: Quantity) -> int | None:
    """Return how often `each` fits; None without limit."""
    if isinstance(rest, Fraction) and isinstance(each, Fraction):
        return rest // each
    return None


def overview(parts: Parts, hours: int) -> dict[str, Any]:
    """Return everything, for the owner: plain values; amounts as exact text.

    ``budget``, ``spent``, ``left``: of the total. ``analysts``: a list of name, limit, spent, left, whether
    there is a key, and counts of requests, rows asked, paid (new to the analyst) and drawn (new to all).
    ``history``: the same counts by hour ("time", seconds since 1970) and analyst, for the last `hours`.
    """
    store, dataset = parts.store, parts.dataset
    budget = dataset.budget
    since = int(time.time() // 3600) - hours + 1
    with store.reading() as connection:
        spent = balance(store, connection, dataset)[1]
        listed = accounts(store, connection, dataset)
        counts = {row[0]: row[1:] for row in store.rows(connection, _COUNTS, (dataset.id,))}
        history = store.rows(connection, _HOURS, (dataset.id, since))
        keys = {row[0] for row in store.rows(connection, _KEYS, (dataset.id,))}
    return {
        "dataset": dataset.name,
        "budget": budget.to_dict(),
        "spent": budget.spending(spent).to_dict(),
        "left": budget.spending(left(spent, budget.limit)).to_dict(),
        "analysts": [
            {
                "name": name,
                "limit": budget.spending(limit).to_dict(),
                "spent": budget.spending(used).to_dict(),
                "left": budget.spending(left(used, limit)).to_dict(),
                "key": name in keys,
                **_counted(counts.get(name, (0, 0, 0, 0))),
            }
            for name, (limit, used) in listed.items()
        ],
        "history": [{"time": row[0] * 3600, "analyst": row[1], **_counted(row[2:])} for row in history],
    }


def _counted(row: Any) -> dict[str, int]:
    return {name: int(value) for name, value in zip(_COLUMNS, row, strict=True)}
