"""The chain, its guards, verification, and opening."""

from __future__ import annotations

import csv
import hashlib
import io
import json
import os
import stat

import pytest

from confide.errors import LedgerError, OutOfReachError, ParameterError
from confide.ledger import Ledger
from confide.ledger.store import Store


def tamper(ledger, *statements, drop_guards=True):
    """Write past the ledger, as somebody with the store in hands could."""
    store = ledger._store
    with store.writing() as connection:
        if drop_guards and store.sqlite:
            for verb in ("update", "delete"):
                store.execute(connection, f"DROP TRIGGER confide_entry_no_{verb}")
        elif drop_guards:
            store.execute(connection, "ALTER TABLE confide_entry DISABLE TRIGGER confide_entry_guard")
        for statement in statements:
            store.execute(connection, statement)
        if drop_guards and store.sqlite:
            from confide.ledger.tables import guards

            for sql in guards(True):
                if "entry_no_update" in sql or "entry_no_delete" in sql:
                    store.execute(connection, sql)
        elif drop_guards:
            store.execute(connection, "ALTER TABLE confide_entry ENABLE TRIGGER confide_entry_guard")


@pytest.fixture
def used(ledger, guarantee):
    ledger.grant("ann", 0.5)
    ledger.settle(ledger.reserve(guarantee(0.2), label="first", key="k"), b"secret")
    ledger.reserve(guarantee(0.1), analyst="ann", label="second")
    ledger.charge(guarantee(0.1), secret=b"answer")
    ledger.bind("d" * 64, "tag")
    return ledger


def test_a_whole_chain_verifies(used):
    verified = used.verify()
    assert verified.entries == 7
    assert verified.assumptions == ()


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE confide_entry SET body = replace(body, 'first', 'other') WHERE sequence = 3",
        "UPDATE confide_entry SET hash = replace(hash, 'a', 'b') WHERE sequence = 3",
        "UPDATE confide_entry SET request = NULL WHERE sequence = 3",
        "UPDATE confide_entry SET settles = 5 WHERE sequence = 4",
        "UPDATE confide_entry SET analyst = 'ann' WHERE sequence = 3",
        "UPDATE confide_entry SET analyst = NULL WHERE sequence = 5",
        "UPDATE confide_entry SET kind = 'reserved' WHERE sequence = 6",
        "DELETE FROM confide_entry WHERE sequence = 5",
        "DELETE FROM confide_entry WHERE sequence = 1",
        "DELETE FROM confide_entry WHERE sequence = 7",
        "UPDATE confide_entry SET sequence = 99 WHERE sequence = 7",
        "UPDATE confide_head SET spent = '0 0'",
        "UPDATE confide_head SET sequence = 6",
        "DELETE FROM confide_head",
        "UPDATE confide_account SET spent = '0 0'",
        "UPDATE confide_account SET allowed = '100 0'",
        "DELETE FROM confide_account",
        "DELETE FROM confide_version",
        "DELETE FROM confide_secret WHERE sequence = 3",
        "UPDATE confide_secret SET sequence = 5 WHERE sequence = 3",
        "UPDATE confide_entry SET body = 'no json' WHERE sequence = 2",
        "UPDATE confide_entry SET body = '[]' WHERE sequence = 2",
        "UPDATE confide_entry SET body = replace(body, '\"kind\"', ' \"kind\"') WHERE sequence = 2",
    ],
)
def test_any_change_is_found(used, statement):
    tamper(used, statement)
    with pytest.raises(LedgerError):
        used.verify()


def test_a_rewritten_chain_without_its_tail_is_found_by_the_counter(used):
    """Tail, balances, accounts and secrets cut together: the chain alone could not show it."""
    entries = json.loads(used.export())["entries"]
    tamper(
        used,
        "DELETE FROM confide_entry WHERE sequence > 5",
        "DELETE FROM confide_secret WHERE sequence > 5",
        "DELETE FROM confide_version",
        f"UPDATE confide_head SET sequence = 5, hash = '{entries[4]['hash']}', spent = '3/10 0'",
    )
    with pytest.raises(LedgerError, match="rolled back"):
        used.verify()
    used._store.marks.clear()
    assert Ledger.from_handle(used.handle, counter=False).verify().assumptions == ("rollback undetected",)


def test_missing_guards_are_found(used):
    if used._store.sqlite:
        tamper(used, "DROP TRIGGER confide_entry_no_delete", drop_guards=False)
    else:
        tamper(used, "ALTER TABLE confide_entry DISABLE TRIGGER confide_entry_guard", drop_guards=False)
    with pytest.raises(LedgerError, match="triggers"):
        used.verify()


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE confide_entry SET kind = 'reserved'",
        "DELETE FROM confide_entry",
        "DELETE FROM confide_entry WHERE sequence = 3",
        "UPDATE confide_dataset SET budget = '{}'",
        "DELETE FROM confide_dataset",
        "INSERT INTO confide_entry (dataset_id, sequence, kind, body, hash) VALUES (1, 3, 'x', 'x', 'x')",
    ],
)
def test_the_store_itself_refuses_changes(used, statement):
    before = used.export()
    with pytest.raises(LedgerError, match=r"append-only|duplicate key"):
        tamper(used, statement, drop_guards=False)
    assert used.export() == before
    assert used.verify()


def test_a_sqlite_row_cannot_be_replaced_either(sqlite_url, open_ledger, guarantee):
    import sqlite3

    ledger = open_ledger(sqlite_url)
    ledger.reserve(guarantee())
    Store.at(sqlite_url).close()
    # Another program, with SQLite's defaults.
    with (
        sqlite3.connect(sqlite_url.removeprefix("sqlite:///")) as other,
        pytest.raises(sqlite3.Error, match="append"),
    ):
        other.execute("INSERT OR REPLACE INTO confide_entry VALUES (1, 2, 'x', NULL, NULL, NULL, 'x', 'x')")
    other.close()
    assert ledger.verify()


def test_an_export_verifies_by_itself(used):
    previous = "0" * 64
    entries = json.loads(used.export())["entries"]
    for number, entry in enumerate(entries, start=1):
        fields = json.loads(entry["body"])
        assert (fields["sequence"], fields["previous"]) == (number, previous)
        previous = hashlib.sha256(entry["body"].encode()).hexdigest()
        assert entry["hash"] == previous
    assert [json.loads(entry["body"])["kind"] for entry in entries] == [
        "created",
        "granted",
        "reserved",
        "settled",
        "reserved",
        "charged",
        "version",
    ]
    with pytest.raises(ParameterError):
        used.export("xml")


def test_no_secret_leaves_by_show_or_export(used):
    for text in (used.export(), used.export("csv"), json.dumps(used.show())):
        for form in (b"secret", b"answer"):
            assert form.hex() not in text
            assert hashlib.sha256(form).hexdigest() not in text  # guessable secrets: the hash is keyed
        assert used.tag_key.hex() not in text


def test_csv_has_a_line_an_entry_and_no_formula(used, guarantee):
    used.reserve(guarantee(0.1), label='=cmd("x")')
    lines = list(csv.DictReader(io.StringIO(used.export("csv"))))
    assert [line["kind"] for line in lines][2:4] == ["reserved", "settled"]
    assert (lines[2]["epsilon"], lines[2]["label"], lines[3]["settles"]) == ("1/5", "first", "3")
    assert lines[-1]["label"].startswith("'=")


# -- opening


def test_opening_again_is_the_same_ledger(url, ledger, open_ledger, guarantee):
    ledger.reserve(guarantee(0.5))
    again = open_ledger(url, epsilon=1.0, delta="1/1000000")
    assert again == ledger
    assert again.total() == ledger.total()
    assert again.show()["entries"] == 2


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"epsilon": 2}, "epsilon = 2"),
        ({"delta": 0}, "delta = 0"),
        ({"adjacency": "replace_label"}, "replace_label"),
        ({"accountant": "zcdp"}, "zcdp"),
        ({"unit": "person"}, "person"),
        ({"epsilon": float("inf"), "nonprivate": True}, "non-private"),
    ],
)
def test_another_budget_under_the_same_name_is_refused_with_both(url, ledger, open_ledger, change, word):
    before = ledger.export()
    with pytest.raises(
        LedgerError, match="was opened with: epsilon = 1, delta = 1e-06, replace_one"
    ) as refused:
        open_ledger(url, **change)
    assert word in str(refused.value).split("Asked:")[1]
    assert ledger.export() == before


def test_datasets_of_one_store_are_apart(url, open_ledger, guarantee):
    first, second = open_ledger(url), open_ledger(url, dataset="other", epsilon=2)
    first.reserve(guarantee(0.5))
    second.reserve(guarantee(1.5))
    assert (first.total().epsilon, second.total().epsilon) == (0.5, 1.5)
    assert first.verify().entries == second.verify().entries == 2


def test_open_without_creating(url, open_ledger):
    with pytest.raises(LedgerError, match="no ledger of dataset"):
        open_ledger(url, create=False)
    with pytest.raises(LedgerError, match="no ledger of dataset"):
        Ledger.open(url, dataset="visits", create=False)
    with pytest.raises(ParameterError, match="epsilon"):
        Ledger.open(url, dataset="visits")
    open_ledger(url)
    assert Ledger.open(url, dataset="visits", create=False).budget.epsilon == 1


def test_many_processes_may_create_at_once(url, open_ledger):
    pids = []
    for _ in range(8):
        pid = os.fork()
        if pid == 0:
            try:
                open_ledger(url)
                os._exit(0)
            finally:
                os._exit(1)
        pids.append(pid)
    assert [os.waitpid(pid, 0)[1] for pid in pids] == [0] * 8
    assert open_ledger(url).verify().entries == 1


def test_a_sqlite_store_is_for_its_owner_alone(sqlite_url, open_ledger, guarantee, tmp_path):
    open_ledger(sqlite_url).reserve(guarantee())
    for file in tmp_path.glob("ledger.db*"):
        assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_sqlite_is_durable(sqlite_url, open_ledger):
    store = open_ledger(sqlite_url)._store
    with store.reading() as connection:
        assert store.row(connection, "PRAGMA journal_mode")[0] == "wal"
        assert store.row(connection, "PRAGMA synchronous")[0] == 2


def test_a_missing_folder_and_a_file_that_is_no_store(tmp_path, open_ledger):
    with pytest.raises(LedgerError, match="does not exist"):
        open_ledger(f"sqlite:///{tmp_path / 'none' / 'ledger.db'}")
    wrong = tmp_path / "wrong.db"
    wrong.write_bytes(b"this is no database at all, but long enough to look at" * 100)
    with pytest.raises(LedgerError, match="failed"):
        open_ledger(f"sqlite:///{wrong}")


def test_an_unreachable_postgres_says_so_without_the_password():
    with pytest.raises(OutOfReachError) as refused:
        Ledger.from_handle("postgresql://ann:s3cret@127.0.0.1:9/confide?connect_timeout=2#visits")
    assert "s3cret" not in str(refused.value)


def test_a_connection_that_the_server_ends_is_out_of_reach_and_made_anew(url, ledger, guarantee):
    store = ledger._store
    if store.sqlite:
        pytest.skip("a file has no server")
    ledger.reserve(guarantee(0.1))
    with store.reading() as connection:
        (mine,) = store.row(connection, "SELECT pg_backend_pid()")
    import psycopg

    plain = store.url.set(drivername="postgresql").render_as_string(hide_password=False)
    with psycopg.connect(plain) as other:
        other.execute("SELECT pg_terminate_backend(%s)", (mine,))
    with pytest.raises(OutOfReachError):
        ledger.reserve(guarantee(0.1))
    ledger.reserve(guarantee(0.1))
    assert ledger.verify().entries == 3


def test_what_keeps_sqlite_away_is_told_apart_from_damage(sqlite_url, open_ledger, guarantee, monkeypatch):
    import sqlite3

    from confide.ledger import store as module

    ledger = open_ledger(sqlite_url)
    monkeypatch.setattr(module, "PATIENCE_SECONDS", 0.05)
    ledger._store.close()
    ledger._store._engine = None
    path = sqlite_url.removeprefix("sqlite:///").partition("#")[0]
    other = sqlite3.connect(path)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(OutOfReachError, match="locked"):
        ledger.reserve(guarantee(0.1))
    other.rollback()
    ledger.reserve(guarantee(0.1))
    other.execute("DROP TABLE confide_head")
    other.close()
    with pytest.raises(LedgerError) as damaged:
        ledger.reserve(guarantee(0.1))
    assert not isinstance(damaged.value, OutOfReachError)


def test_a_store_of_another_layout_is_refused(ledger, open_ledger, url):
    store = ledger._store
    with store.writing() as connection:
        store.execute(connection, "UPDATE confide_layout SET layout = 99")
    with pytest.raises(LedgerError, match="layout 99"):
        open_ledger(url)


def test_a_failed_write_charges_nobody_and_heals(ledger, guarantee, monkeypatch):
    from confide.ledger.session import Session

    original = Session.flush

    def broken(self):
        original(self)
        raise RuntimeError("power")

    monkeypatch.setattr(Session, "flush", broken)
    with pytest.raises(RuntimeError):
        ledger.reserve(guarantee(0.5))
    monkeypatch.undo()
    assert ledger.total().epsilon == 0
    ledger.reserve(guarantee(0.5))
    assert ledger.verify().entries == 2
