"""A balance edited past the ledger buys nothing: every charge compares it with what the last entry states."""

from __future__ import annotations

import json
from fractions import Fraction

import pytest

from confide.errors import BudgetError, LedgerError
from confide.ledger import Request
from confide.ledger.store import Store


@pytest.fixture(params=["running", "fresh"])
def edited(request, ledger, guarantee):
    """Return a function that edits a ledger with everything spent but 0.1, of ann's 0.5 too."""
    ledger.grant("ann", 0.5)
    ledger.grant("bob", 1)
    ledger.reserve(guarantee(0.4), analyst="ann")
    ledger.settle(ledger.reserve(guarantee(0.5)))
    store = Store.at(ledger._url)

    def edit(*statements):
        with store.writing() as connection:
            for statement in statements:
                store.execute(connection, statement)
        if request.param == "fresh":  # as in another process, which remembers nothing
            store.known.clear()
            store.marks.clear()
        return ledger

    return edit


def refused(ledger, guarantee, analyst=None):
    """Check that nobody is served from the edited balance, and that nothing is written."""
    before = ledger.export()
    charge = guarantee(0.1)
    for act in (
        lambda: ledger.reserve(charge, analyst=analyst),
        lambda: ledger.charge(charge, analyst=analyst),
        lambda: ledger.grant(analyst or "bob", 1),
        ledger.verify,
    ):
        with pytest.raises(LedgerError, match="balances") as error:
            act()
        assert not isinstance(error.value, BudgetError)
    preview = ledger.preview(charge, analyst=analyst)
    assert not preview
    assert "balances" in preview.reason
    assert ledger.export() == before


def test_an_unedited_ledger_goes_on(edited, guarantee):
    ledger = edited()
    with pytest.raises(BudgetError):
        ledger.reserve(guarantee(0.2))
    ledger.reserve(guarantee(0.1), analyst="ann")
    assert ledger.verify().entries == 7


@pytest.mark.parametrize("spent", ["0 0", "1/10 0", "9/10 1/1000000000", "-100 0"])
def test_an_edited_total(edited, guarantee, spent):
    ledger = edited(f"UPDATE confide_head SET spent = '{spent}'")
    refused(ledger, guarantee)
    with pytest.raises(LedgerError, match="balances"):
        ledger.charge_many([Request(guarantee("0.01"))] * 3)
    for read in (ledger.total, ledger.remaining):
        with pytest.raises(LedgerError, match="balances"):
            read()
    assert "balances" in ledger.show()["refused"]  # shown all the same, as a rolled-back store is
    assert len(json.loads(ledger.export())["entries"]) == 6


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE confide_account SET spent = '0 0' WHERE name = 'ann'",
        "UPDATE confide_account SET allowed = '1 0' WHERE name = 'ann'",
        "UPDATE confide_account SET name = 'ann' WHERE name = 'bob'",
        "INSERT INTO confide_account (dataset_id, name, allowed, spent) VALUES (1, 'eve', '1 0', '0 0')",
    ],
)
def test_an_edited_account(edited, guarantee, statement):
    first = ["DELETE FROM confide_account WHERE name = 'ann'"] if "SET name" in statement else []
    ledger = edited(*first, statement)
    refused(ledger, guarantee, "eve" if "eve" in statement else "ann")


def test_a_removed_account_is_not_granted_anew(edited, guarantee):
    ledger = edited("DELETE FROM confide_account WHERE name = 'ann'")
    for act in (lambda: ledger.grant("ann", 0.5), lambda: ledger.reserve(guarantee(0.1), analyst="ann")):
        with pytest.raises(LedgerError, match="balances"):
            act()


def test_entries_state_the_running_totals(ledger, guarantee):
    ledger.grant("ann", 0.5)
    first = ledger.reserve(guarantee(0.2), analyst="ann")
    ledger.settle(first)
    ledger.charge_many([Request(guarantee("0.1"), "ann", key="k"), Request(guarantee("0.1"))])
    ledger.grant("ann", "0.4")
    ledger.bind("d" * 64, "tag")
    bodies = [json.loads(entry["body"]) for entry in json.loads(ledger.export())["entries"]]
    spent = [Fraction(body["spent"].split()[0]) * 10 for body in bodies]
    assert spent == [0, 0, 2, 2, 3, 4, 4, 4]
    stated = [body["account"] and (body["account"]["allowed"], body["account"]["spent"]) for body in bodies]
    ann = ("1/2 0", "0 0"), ("1/2 0", "1/5 0"), ("1/2 0", "3/10 0"), ("2/5 0", "3/10 0")
    assert stated == [None, ann[0], ann[1], None, ann[2], None, ann[3], None]
    assert ledger.verify().entries == 8


def test_entries_that_state_other_totals_are_found(ledger, guarantee, monkeypatch):
    """A chain whose hashes fit, written by something else than the ledger."""
    from confide.ledger import operations

    ledger.reserve(guarantee(0.1))
    original = operations.write_vector
    with monkeypatch.context() as wrong:
        wrong.setattr(operations, "write_vector", lambda total: original([part / 2 for part in total]))
        ledger.reserve(guarantee(0.1))
    with pytest.raises(LedgerError, match=r"Entry 3 .* other balances"):
        ledger.verify()
