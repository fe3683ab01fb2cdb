"""Look-ups stay look-ups: no statement of a request scans what was written before (PostgreSQL plans early)."""

from __future__ import annotations

import pytest

from confide.ledger import session
from confide.ledger.store import Store
from confide.service import cache


@pytest.mark.parametrize("length", [1, 8, 256])
@pytest.mark.parametrize(
    ("sql", "before", "column"),
    [(cache._QUERY, ("ann",), "query"), (cache._REQUEST, (), "request")],
    ids=["queries", "requests"],
)
def test_names_are_found_by_the_index(bench, rows, length, sql, before, column):
    service = bench.open(epsilon=100).serve()
    service.answer(bench.analyst(service, epsilon=100), rows.all, "r")
    store = Store.at(bench.ledger._url)
    statement = f"{sql}({', '.join('?' * length)})"
    names = [bytes([number % 256, 1]) * 8 for number in range(length)]
    assert f"{column}=" in condition(store, statement, (1, *before, *names))


def test_request_keys_of_the_ledger_are_found_by_the_index(bench):
    bench.open()
    store = Store.at(bench.ledger._url)
    keys = [f"key{number}" for number in range(session._KEYS)]
    assert "request=" in condition(store, session._KNOWN, (*keys, 1))


def condition(store, statement, parameters):
    """Return the words of the plan that say what the index is searched for."""
    explain = "EXPLAIN QUERY PLAN " if store.sqlite else "EXPLAIN "
    with store.reading() as connection:
        plan = [str(row[-1]) for row in store.rows(connection, explain + statement, parameters)]
    mark = "SEARCH" if store.sqlite else "Index Cond:"
    return "".join(line for line in plan if mark in line).replace(" ", "")
