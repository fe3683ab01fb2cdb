"""Creating the ledger of a dataset in a store, and listing those it holds."""

from __future__ import annotations

import secrets
from pathlib import Path
from typing import TYPE_CHECKING

from confide.errors import LedgerError
from confide.ledger import chain
from confide.ledger import counter as counters
from confide.ledger.budget import Budget, zero
from confide.ledger.names import parts_of
from confide.ledger.reading import dataset_names, find_dataset
from confide.ledger.session import write_vector

if TYPE_CHECKING:
    from confide.ledger.session import Dataset
    from confide.ledger.store import Store


def create(store: Store, name: str, budget: Budget, directory: Path | None) -> Dataset:
    """Create the ledger of a dataset, or return the one that another process just created.

    Raises
    ------
    LedgerError
        If the counter knows of a ledger at this place that is gone.
    """
    expected = None if directory is None else counters.expected_at(directory, store.location, name)
    if expected is not None and expected[1] > 1:
        raise LedgerError(
            f"The store {store.location} no longer holds the ledger of dataset {name!r}, whose {expected[1]} "
            "entries were seen before.",
            f"Restore it. To begin anew with nothing spent, on purpose, delete {expected[0]}.",
        )
    store.prepare()
    with store.writing() as connection:
        if not store.sqlite:
            store.execute(connection, "LOCK TABLE confide_head IN EXCLUSIVE MODE")
        found = find_dataset(store, connection, name)
        if found is not None:
            return found
        ledger_id, tag_key = secrets.token_hex(16), secrets.token_bytes(32)
        terms = chain.canonical(budget.to_dict())
        (number,) = store.row(connection, "SELECT COALESCE(MAX(id), 0) + 1 FROM confide_dataset")
        nothing = write_vector(zero(budget))
        fields = {"budget": budget.to_dict(), "dataset": name, "ledger_id": ledger_id}
        fields |= {"account": None, "spent": nothing}
        body = chain.entry_body(chain.CREATED, 1, chain.GENESIS, fields)
        hash_ = chain.digest(body)
        store.execute(
            connection,
            "INSERT INTO confide_dataset (id, name, ledger_id, budget, tag_key) VALUES (?, ?, ?, ?, ?)",
            (number, name, ledger_id, terms, tag_key),
        )
        store.execute(
            connection,
            "INSERT INTO confide_entry (dataset_id, sequence, kind, body, hash) VALUES (?, 1, ?, ?, ?)",
            (number, chain.CREATED, body, hash_),
        )
        store.execute(
            connection,
            "INSERT INTO confide_head (dataset_id, sequence, hash, spent) VALUES (?, 1, ?, ?)",
            (number, hash_, nothing),
        )
        found = find_dataset(store, connection, name)
    assert found is not None
    # The file itself must say which ledger it is: renamed or copied without its log it would otherwise look
    # like an empty store, in which the same dataset could be given a second budget.
    store.checkpoint()
    if directory is not None:
        store.counter(directory, found.ledger_id).advance(chain.Mark(1, hash_))
    return found


def datasets(url: str) -> tuple[str, ...]:
    """Return the names of the datasets of a store (`Ledger.datasets`)."""
    from confide.ledger.store import Store

    store = Store.at(parts_of(url)[0])
    if not store.exists():
        raise LedgerError(
            f"There are no ledgers in {store.location}.", "Check the place, or use `confide ledger create`."
        )
    with store.reading() as connection:
        return dataset_names(store, connection)
