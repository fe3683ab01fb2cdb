"""``confide ledger``."""

from __future__ import annotations

import csv
import io
import json
from fractions import Fraction

import pytest
from typer.testing import CliRunner

from confide.cli.ledger import app
from confide.errors import BudgetError
from confide.ledger import Ledger


@pytest.fixture
def handle(url):
    return url + "#visits"


def call(*arguments, status=0, **environment):
    result = CliRunner().invoke(app, [str(part) for part in arguments], env={"COLUMNS": "200", **environment})
    assert result.exit_code == status, result.output
    return result.output


def create(handle, *more, status=0):
    terms = ("--epsilon", "3", "--delta", "1e-6", "--adjacency", "replace_private_part")
    return call("create", "--ledger", handle, *terms, *more, status=status)


def test_from_create_to_export(handle, guarantee, tmp_path):
    shown = create(handle)
    assert "replace_private_part" in shown
    assert "ann: limit epsilon = 0.5" in call("grant", "ann", "--ledger", handle, "--epsilon", "0.5")
    ledger = Ledger.from_handle(handle)
    first = ledger.reserve(guarantee(0.1), analyst="ann", label="wages [bold]")
    ledger.reserve(guarantee(0.2))
    ledger.settle(first, b"hidden")
    text = call("show", "--ledger", handle, "--verify")
    for words in ("wages", "[bold]", "settled", "reserved", "ann", "Verified: 6 entries"):
        assert words in text
    assert "hidden" not in text
    state = json.loads(call("show", "--json", "--verify", CONFIDE_LEDGER=handle))
    assert state["verified"]
    assert state["spent"] == {"epsilon": "3/10", "delta": "0"}
    assert [charge["status"] for charge in state["charges"]] == ["settled", "reserved"]
    lines = list(csv.DictReader(io.StringIO(call("export", "--ledger", handle, "--format", "csv"))))
    assert [line["kind"] for line in lines] == [
        "created",
        "granted",
        "key",
        "reserved",
        "reserved",
        "settled",
    ]
    target = tmp_path / "out.json"
    call("export", "--ledger", handle, "--output", target)
    assert json.loads(target.read_text()) == json.loads(call("export", "--ledger", handle))


def test_a_long_list_is_cut_for_people_and_whole_for_machines(handle, guarantee):
    create(handle)
    ledger = Ledger.from_handle(handle)
    charge = guarantee("0.001")
    for i in range(60):
        ledger.reserve(charge, label=f"label-{i}.")
    text = call("show", "--ledger", handle)
    assert "label-10." in text
    assert "label-9." not in text
    assert "and 10 earlier" in text
    assert "label-9." in call("show", "--ledger", handle, "--all")
    assert len(json.loads(call("show", "--ledger", handle, "--json"))["charges"]) == 60


def test_creating_twice_is_harmless_and_with_other_terms_refused(handle):
    create(handle)
    create(handle)
    assert "was opened with" in create(handle, "--unit", "person", status=5)


def test_exit_codes_and_errors_for_machines(handle, url):
    assert "no ledger of dataset" in call("show", "--ledger", handle, status=5)
    assert "negative" in call(
        "create", "--ledger", handle, "--epsilon", "-1", "--adjacency", "replace_one", status=2
    )
    create(handle)
    report = json.loads(call("show", "--json", "--ledger", url + "#other", status=5))
    assert report["error"]["code"] == "ledger"
    assert "create" in report["error"]["remedy"]
    assert "pdf" in call("export", "--ledger", handle, "--format", "pdf", status=2)
    call("show", status=2)


def test_verify_fails_on_a_damaged_store(handle, guarantee):
    create(handle)
    ledger = Ledger.from_handle(handle)
    ledger.reserve(guarantee())
    store = ledger._store
    with store.writing() as connection:
        store.execute(connection, "UPDATE confide_head SET spent = '0 0'")
    assert "balances" in call("show", "--verify", "--ledger", handle, status=5)
    assert (
        json.loads(call("show", "--verify", "--json", "--ledger", handle, status=5))["error"]["code"]
        == "ledger"
    )


def test_a_zcdp_ledger_without_counter(handle, guarantee):
    create(handle, "--accountant", "zcdp")
    ledger = Ledger.from_handle(handle)
    from confide.privacy.event import Event

    ledger.reserve(guarantee(1, event=Event.of("gaussian", noise_multiplier=10.0)))
    state = json.loads(call("show", "--json", "--ledger", handle))
    assert Fraction(state["spent"]["rho"]) == Fraction(1, 200)
    text = call("show", "--ledger", handle, CONFIDE_LEDGER_COUNTER="off")
    assert "rollback undetected" in text


def test_conditional_charges_are_marked(handle, guarantee):
    create(handle)
    ledger = Ledger.from_handle(handle, accept=("gap condition", "timing is padded"))
    ledger.reserve(guarantee(0.1), label="plain")
    ledger.reserve(guarantee(0.1, assumptions=("gap condition",)), label="list")
    ledger.reserve(guarantee(0.1, assumptions=("gap condition", "timing is padded")))
    text = call("show", "--ledger", handle)
    assert "list [assuming: gap condition]" in text
    assert "plain [" not in text
    assert "Conditional: 2 charges rest on an assumption: gap condition (no single unit of the" in text
    assert "1 charge rests on an assumption: timing is padded." in text
    state = json.loads(call("show", "--json", "--ledger", handle))
    assert [charge["assumptions"] for charge in state["charges"]] == [
        [],
        ["gap condition"],
        ["gap condition", "timing is padded"],
    ]
    assert set(state["assumptions"]) >= {"gap condition", "timing is padded"}
    lines = list(csv.DictReader(io.StringIO(call("export", "--ledger", handle, "--format", "csv"))))
    assert [line["assumptions"] for line in lines] == [
        "",
        "",
        "gap condition",
        "gap condition; timing is padded",
    ]
    assert ledger.verify().entries == 4


def test_nothing_left_is_said_as_such(handle, guarantee):
    create(handle)
    ledger = Ledger.from_handle(handle)
    ledger.reserve(guarantee(2.5))
    with pytest.raises(BudgetError, match=r"at most what is left: epsilon = 0\.5"):
        ledger.reserve(guarantee(1))
    ledger.reserve(guarantee(0.5))
    with pytest.raises(BudgetError, match="Nothing is left") as info:
        ledger.reserve(guarantee(1))
    assert "Ask for" not in str(info.value)


def test_another_budget_has_a_heading_of_its_own(tmp_path):
    from confide.cli.app import app

    handle = f"sqlite:///{tmp_path}/l.db#visits"
    base = ["ledger", "create", "--ledger", handle, "--adjacency", "replace_label", "--epsilon"]
    assert CliRunner().invoke(app, [*base, "1"]).exit_code == 0
    other = CliRunner().invoke(app, [*base, "2"])
    assert other.exit_code == 5
    assert other.stderr.startswith("The ledger exists with another budget")
    assert "damaged" not in other.stderr
