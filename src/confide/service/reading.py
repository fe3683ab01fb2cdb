"""What is read of a service: an account for its analyst, everything for the owner. Nothing here writes."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from confide.ledger.budget import Budget, Quantity, Vector, add, left, unknown_analyst, zero
from confide.ledger.chain import Mark
from confide.ledger.handle import Parts
from confide.ledger.reading import accounts, balance
from confide.ledger.session import check_seen, read_vector, seen_before
from confide.service.cache import MOMENT
from confide.service.epochs import Sight
from confide.service.records import AccountLine, Analyst, BudgetView, KeyRevoked, Overview
from confide.service.tables import COUNTS
from confide.service.terms import Terms

if TYPE_CHECKING:
    from sqlalchemy import Connection

_BLOCK = (
    "SELECT answers_left FROM confide_service_block "
    "WHERE dataset_id = ? AND release = ? AND analyst = ? AND size = ? AND slack = ?"
)
_COUNTS = f"SELECT analyst, {', '.join(COUNTS)} FROM confide_service_account WHERE dataset_id = ?"
_HISTORY = (
    "SELECT moment, spent FROM confide_service_moment WHERE dataset_id = ? ORDER BY moment DESC LIMIT ?"
)
_FIRST = "SELECT body FROM confide_entry WHERE dataset_id = ? AND sequence = 1"
_VALID = "SELECT 1 FROM confide_service_key WHERE dataset_id = ? AND prefix = ? AND revoked IS NULL"
_KEYS = "SELECT name, revoked FROM confide_service_key WHERE dataset_id = ?"


def view(
    parts: Parts, terms: Terms, analyst: Analyst, held: Callable[[Sight], bool] | None = None
) -> BudgetView:
    """Return an analyst's own account; `held` says whether an epoch of the analyst is open.

    Raises
    ------
    KeyRevoked
        If the key that was shown is not valid any more.
    RefusedError
        If there is no account.
    LedgerError
        If the store cannot be read, or was rolled back.
    """
    store, dataset, name = parts.store, parts.dataset, analyst.name
    config, seen = terms.config, _seen(parts)
    with store.reading() as connection:
        mark, total = _balance(parts, connection, seen)
        if store.row(connection, _VALID, (dataset.id, analyst.prefix)) is None:
            raise KeyRevoked("The key is not valid.", "Use the newest key.")
        found = accounts(store, connection, dataset).get(name)
        rests = [0, 0]
        epoch = held is not None and held(Sight(store, connection, dataset, mark))
        if terms.blocks:
            for at, (whose, size) in enumerate(((name, config.analyst_block), ("", config.block))):
                place = (dataset.id, terms.names.release, whose, size, str(config.slack))
                row = store.row(connection, _BLOCK, place)
                rests[at] = 0 if row is None else row[0]
    if found is None:
        raise unknown_analyst(name)
    limit, spent = found
    rest = left(spent, limit)
    budget = dataset.budget
    count = _whole(rest, terms.each, config.analyst_block, rests[0])
    # However much the account holds: the limit of the total is public.
    most = _whole(budget.limit, terms.needed, config.block)
    if count is not None and most is not None:
        count = min(count, most)
    exhausted = terms.exhausted(found, total, (rests[0], rests[1]), epoch)
    return BudgetView(
        name,
        budget.spending(limit),
        budget.spending(spent),
        budget.spending(rest),
        0 if exhausted else count,
        exhausted,
    )


def _seen(parts: Parts) -> list[Mark]:
    """Return the places of the chain that were seen: before the view of the store begins."""
    store, dataset, directory = parts.store, parts.dataset, parts.directory
    counter = None if directory is None else store.counter(directory, dataset.ledger_id)
    return seen_before(store, dataset, counter)


def _balance(parts: Parts, connection: Connection, seen: Sequence[Mark]) -> tuple[Mark, Vector]:
    """Return the head of the chain and the total spent, of a store that was not rolled back."""
    mark, spent = balance(parts.store, connection, parts.dataset)
    check_seen(parts.store, connection, parts.dataset, mark, seen)
    return mark, spent


def _whole(rest: Vector, each: Vector, size: int, more: int = 0) -> int | None:
    """Return for how many answers `rest` pays, in blocks of `size` at `each`, and `more`; None: no limit."""
    times = [_times(part, one) for part, one in zip(rest, each) if one]
    if not times or None in times:
        return None
    return min(whole for whole in times if whole is not None) * size + more


def _times(rest: Quantity, each: Quantity) -> int | None:
    """Return how often `each` fits; None without limit."""
    if isinstance(rest, Fraction) and isinstance(each, Fraction):
        return rest // each
    return None


def booked(parts: Parts) -> Vector:
    """Return what the total would have to cover if every account were spent to its limit.

    Limits, or what was spent where a limit was lowered below it; and what the total paid to no account: of
    what was charged to it, the part that accounts did not pay.
    """
    store, dataset = parts.store, parts.dataset
    with store.reading() as connection:
        total = balance(store, connection, dataset)[1]
        listed = accounts(store, connection, dataset).values()
    paid = most = zero(dataset.budget)
    for limit, spent in listed:
        paid = tuple(map(add, paid, spent))
        most = tuple(map(add, most, map(max, limit, spent)))
    return tuple(map(add, most, left(paid, total)))


def overview(parts: Parts, points: int) -> Overview:
    """Return everything, for the owner.

    Raises
    ------
    LedgerError
        If the store cannot be read, or was rolled back.
    """
    store, dataset = parts.store, parts.dataset
    budget, number = dataset.budget, dataset.id
    seen = _seen(parts)
    with store.reading() as connection:
        spent = _balance(parts, connection, seen)[1]
        listed = accounts(store, connection, dataset)
        counts: dict[str, Any] = {
            row[0]: tuple(map(int, row[1:])) for row in store.rows(connection, _COUNTS, (number,))
        }
        moments = store.rows(connection, _HISTORY, (number, points + 1))
        (first,) = store.row(connection, _FIRST, (number,))
        keys: dict[str, str] = {}
        for name, revoked in store.rows(connection, _KEYS, (number,)):
            if revoked is None or name not in keys:
                keys[name] = "active" if revoked is None else "revoked"
    begun = datetime.fromisoformat(json.loads(first)["time"])
    nothing: Any = (0,) * len(COUNTS)
    lines = tuple(
        replace(
            AccountLine(name, budget.spending(limit), budget.spending(used), *counts.get(name, nothing)),
            left=budget.spending(left(used, limit)),
            state=keys.get(name, ""),
        )
        for name, (limit, used) in listed.items()
    )
    sums: Any = [sum(column) for column in zip(nothing, *counts.values(), strict=True)]
    total = replace(
        AccountLine(dataset.name, budget.spending(budget.limit), budget.spending(spent), *sums),
        left=budget.spending(left(spent, budget.limit)),
    )
    history = _history(moments[::-1], points, begun, dataset.budget)
    return Overview(total, lines, history)


def _history(
    moments: Sequence[Any], points: int, begun: datetime, budget: Budget
) -> tuple[tuple[datetime, float], ...]:
    """Return the total at the ends of moments in which it rose, and at their beginnings.

    A moment's total is known at its end alone: between the two it rose somehow. The first begins with nothing
    spent, or where there are more than `points` with what the one before them ended with.
    """
    now, spent = datetime.now(UTC), 0.0
    history: list[tuple[datetime, float]] = []
    for place, (moment, words) in enumerate(moments):
        start = max(datetime.fromtimestamp(moment * MOMENT, UTC), begun)
        end = max(start, min(datetime.fromtimestamp((moment + 1) * MOMENT, UTC), now))
        before, spent = spent, float(budget.spending(read_vector(words)).epsilon)
        if place == 0 and len(moments) > points:
            continue
        if not history or history[-1][0] < start:
            history.append((start, before))
        history.append((end, spent))
    return tuple(history)
