"""What the guarantee rests on beyond one answer: other charges of the ledger, and late answers of the past."""

from __future__ import annotations

from confide.errors import LedgerError
from confide.ledger import Ledger
from confide.ledger.store import Store
from confide.privacy import Adjacency, Event, Guarantee
from confide.service import conditions
from confide.service.conditions import Conditions, Lateness
from confide.service.schedule import late


def _guarantee(*assumptions):
    return Guarantee(1, 0, Adjacency.REPLACE_ONE, "row", Event("selection", {}), assumptions)


def test_the_guarantee_names_the_assumptions_of_every_charge_of_the_ledger(bench, rows):
    bench.open(accept=("gap condition", "entry boundary"))
    service = bench.serve()
    service.answer(bench.analyst(service), rows.one, "a")
    assert "gap condition" not in service.guarantee().assumptions
    for name in ("gap condition", "entry boundary"):
        bench.ledger.charge(_guarantee(name), label='x","guarantee":{"assumptions":["made up"]},"kind":"y')
    promise = service.guarantee()
    assert promise.assumptions[-2:] == ("gap condition", "entry boundary")
    assert set(promise.total.assumptions) == set(promise.assumptions)
    assert "gap condition" in promise.sentence
    assert "made up" not in promise.assumptions
    bench.restart()
    assert set(bench.serve().guarantee().assumptions) == set(promise.assumptions)


def test_entries_are_read_once_and_in_pieces(local, monkeypatch):
    local.open(accept=("gap condition",))
    for _ in range(7):
        local.ledger.charge(_guarantee())
    local.ledger.charge(_guarantee("gap condition"))
    monkeypatch.setattr(conditions, "CHUNK", 3)
    held = Conditions(local.ledger.parts())
    store, read = Store.at(local.ledger._url), []
    real = Store.rows

    def rows(self, connection, sql, parameters=()):
        found = real(self, connection, sql, parameters)
        if "FROM confide_entry" in sql:
            read.append(len(found))
        return found

    monkeypatch.setattr(Store, "rows", rows)
    assert held.names() == ("gap condition",)
    assert read == [3, 3, 3, 0]
    local.ledger.charge(_guarantee())
    read.clear()
    assert held.names() == ("gap condition",)
    assert read == [1]
    assert store is Store.at(local.ledger._url)


def test_a_chain_that_was_replaced_is_read_anew(local):
    local.open(accept=("gap condition",))
    local.ledger.charge(_guarantee("gap condition"))
    held = Conditions(local.ledger.parts())
    assert held.names() == ("gap condition",)
    held._read = held._read._replace(hash="0" * 64)  # as of another history
    held._names = {"of another history": None}
    assert held.names() == ("gap condition",)


def test_overruns_are_counted_after_a_restart_and_by_other_processes(bench):
    bench.open()
    service, other = bench.serve(), bench.serve()
    assert service.guarantee().late == ""
    for number in (1, 2):
        service.overran()
        promise = service.guarantee()
        assert promise.late in promise.assumptions
        assert promise.late in promise.total.assumptions
        assert promise.late in promise.sentence
        assert promise.late.startswith(f"{number} answer{'s' * (number > 1)} since 20")
    service.close()
    assert other.guarantee().late == promise.late
    other.overran()
    other.close()
    bench.restart()
    assert bench.serve().guarantee().late == promise.late.replace("2 answers", "3 answers", 1)


def test_an_overrun_of_another_dataset_is_not_named(local):
    local.open()
    service = local.serve()
    service.overran()
    service.close()
    local.ledger = Ledger.open(local.url, dataset="others", epsilon=1, adjacency="replace_one")
    assert local.serve().guarantee().late == ""


def test_a_store_of_a_version_that_did_not_count_names_one(local):
    local.open()
    local.serve()
    store = Store.at(local.ledger._url)
    with store.writing() as connection:
        store.execute(connection, "DROP TABLE confide_service_overrun")
        store.execute(
            connection,
            "INSERT INTO confide_service_late (dataset_id, since) VALUES (1, '2026-01-02T03:04:05+00:00')",
        )
    assert local.serve().guarantee().late == late(1, "2026-01-02")


def test_an_overrun_that_could_not_be_written_is_written_at_the_next(local, monkeypatch, caplog):
    local.open()
    local.serve()
    held = Lateness(local.ledger.parts())

    def broken(self):
        raise LedgerError("SECRET", "SECRET")

    with monkeypatch.context() as patch:
        patch.setattr(Store, "writing", broken)
        held.note()
        held.close()
    assert "could not note" in caplog.text
    assert "SECRET" not in caplog.text
    assert held.ever()
    assert not Lateness(local.ledger.parts()).ever()
    held.note()
    held.close()
    assert Lateness(local.ledger.parts()).ever()


def test_a_crowd_of_overruns_is_written_in_few_transactions(local, monkeypatch):
    local.open()
    local.serve()
    held, written = Lateness(local.ledger.parts()), []
    real = held._add
    monkeypatch.setattr(held, "_add", lambda count: written.append(count) or real(count))
    for _ in range(50):
        held.note()
    assert held.ever().answers >= 50
    held.close()
    assert sum(written) == 50
    assert len(written) <= 3
    assert held.ever().answers == Lateness(local.ledger.parts()).ever().answers == 50
