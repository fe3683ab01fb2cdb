"""`charged`: reserve, bind, compute, settle, in this order; and what `check_schema` refuses before a charge."""

from __future__ import annotations

import json

import pytest

from confide.errors import BudgetError, LedgerError
from confide.ledger import charged
from confide.schema import Schema, Table

COLUMNS = {
    "x": {"role": "public", "lower": 0, "upper": 1},
    "y": {"role": "label", "lower": 0, "upper": 1},
}


def table(y=(0.0, 1.0, 0.5), **columns):
    frame = {"x": [0.1, 0.2, 0.3], "y": list(y)}
    schema = Schema.from_dict({"table": {}, "columns": COLUMNS | columns})
    frame |= {name: [0.5] * 3 for name in columns if name not in frame}
    return Table.from_frame(frame, schema)


SECRET = {"x": {"role": "private", "lower": 0, "upper": 1}}


def kinds(ledger):
    return [json.loads(entry["body"])["kind"] for entry in json.loads(ledger.export())["entries"]]


def test_the_order(ledger, guarantee):
    rows = table()
    with charged(ledger, guarantee(0.1), table=rows, label="fit") as reservation:
        assert kinds(ledger) == ["created", "reserved", "version"]
        assert (reservation.label, reservation.settled, reservation.version) == ("fit", False, None)
        assert ledger.show()["charges"][0]["status"] == "reserved"
    assert kinds(ledger) == ["created", "reserved", "version", "settled"]
    (charge,) = ledger.show()["charges"]
    assert (charge["status"], charge["version"]) == ("settled", 1)
    assert ledger.verify().entries == 4


def test_the_tag_is_read_after_the_charge_is_durable(ledger, guarantee, monkeypatch):
    """The content tag reads private cells: where the charge is refused it is never computed."""
    rows = table()
    seen = []
    original = Table.content_tag

    def watched(self, key):
        seen.append(kinds(ledger))
        return original(self, key)

    monkeypatch.setattr(Table, "content_tag", watched)
    with pytest.raises(BudgetError), charged(ledger, guarantee(2), table=rows):
        raise AssertionError("the block ran")
    assert seen == []
    with charged(ledger, guarantee(0.1), table=rows):
        pass
    assert seen == [["created", "reserved"]]


@pytest.mark.parametrize("error", [ValueError("private"), KeyboardInterrupt()])
def test_an_exception_leaves_the_charge_unsettled(ledger, guarantee, error):
    with pytest.raises(type(error)) as raised, charged(ledger, guarantee(0.3), table=table()):
        raise error
    assert raised.value is error
    assert ledger.total().epsilon * 10 == 3
    assert [charge["status"] for charge in ledger.show()["charges"]] == ["reserved"]
    assert kinds(ledger) == ["created", "reserved", "version"]


def test_no_ledger_charges_nothing(guarantee):
    with charged(None, guarantee(0.1), table=table()) as reservation:
        assert reservation is None
    with pytest.raises(ZeroDivisionError), charged(None, guarantee(0.1)):
        raise ZeroDivisionError


def test_a_handle_an_analyst_and_no_table(ledger, guarantee):
    ledger.grant("ann", 0.5)
    with charged(ledger.handle, guarantee(0.1), analyst="ann", label="without a table") as reservation:
        assert reservation.analyst == "ann"
    assert kinds(ledger) == ["created", "granted", "reserved", "settled"]
    assert ledger.account("ann").spent.epsilon * 10 == 1


def test_a_table_with_other_secrets_is_refused_before_the_charge(ledger, guarantee):
    rows, other = table(), table(**SECRET)
    ledger.check_schema(other.schema.secrets)  # bound to nothing yet: anything goes
    with charged(ledger, guarantee(0.1), table=rows):
        pass
    before = ledger.export()
    ledger.check_schema(rows.schema.secrets)
    with pytest.raises(LedgerError, match="declared with schema"):
        ledger.check_schema(other.schema.secrets)
    with (
        pytest.raises(LedgerError, match="declared with schema"),
        charged(ledger, guarantee(0.1), table=other),
    ):
        raise AssertionError("the block ran")
    assert ledger.export() == before
    assert ledger.total().epsilon * 10 == 1


def test_a_schema_bound_in_between_leaves_the_charge(ledger, guarantee, monkeypatch):
    """Another process bound other secrets between check and charge: refused, and the charge stays."""
    other = table(**SECRET)
    monkeypatch.setattr(type(ledger), "check_schema", lambda self, digest: self.bind("f" * 64, "tag"))
    with (
        pytest.raises(LedgerError, match="declared with schema"),
        charged(ledger, guarantee(0.1), table=other),
    ):
        raise AssertionError("the block ran")
    assert ledger.total().epsilon * 10 == 1


def test_a_charge_names_the_version_bound_last(url, ledger, open_ledger, guarantee):
    assert ledger.reserve(guarantee("0.01")).version is None
    first, second = table(), table(y=(1.0, 1.0, 1.0))
    for rows in (first, second, first):
        with charged(ledger, guarantee("0.01"), table=rows):
            pass
    # Each names its own, though the last went back to content that had been seen before.
    assert [charge["version"] for charge in ledger.show()["charges"]] == [None, 1, 2, 1]
    assert ledger.reserve(guarantee("0.01")).version == 1  # bound last by this handle
    assert ledger.reserve(guarantee("0.01"), version=2).version == 2
    fresh = open_ledger(url)
    assert fresh.reserve(guarantee("0.01")).version == 2  # the newest of all
    assert fresh.charge(guarantee("0.01")).version == 2
    assert [charge["version"] for charge in ledger.show()["charges"]] == [None, 1, 2, 1, 1, 2, 2, 2]
    again = fresh.reserve(guarantee("0.01"), key="k")
    assert fresh.reserve(guarantee("0.01"), key="k").version == again.version == 2
    assert ledger.verify()


def test_settling_with_a_malformed_version(ledger, guarantee):
    from confide.errors import ParameterError

    done = ledger.reserve(guarantee())
    for bad in (0, True, "1"):
        with pytest.raises(ParameterError):
            ledger.settle(done, version=bad)
    assert ledger.show()["charges"][0]["status"] == "reserved"
