"""Other people's text and altered objects: what is charged is what is asked, and all of it can be printed."""

from __future__ import annotations

import json
from fractions import Fraction

import pytest
from typer.testing import CliRunner

from confide.cli.ledger import app
from confide.errors import ParameterError
from confide.ledger import Request
from confide.ledger.pricing import Pricer
from confide.privacy.event import Event

UGLY = ("\x1b[2J\x1b]0;title\x07", "a\nb", "a\rb", "\0", "\x9b2J", "\u202egnp.exe", "\ud800", "\u2028")


def call(*arguments, status=0):
    result = CliRunner().invoke(app, [str(part) for part in arguments], env={"COLUMNS": "200"})
    assert result.exit_code == status, result.output
    return result.output


@pytest.mark.parametrize("text", UGLY)
def test_text_that_a_terminal_obeys_is_refused_before_it_is_written(ledger, guarantee, text):
    ledger.grant("ann", 1)
    before = ledger.export()
    plain = Event.of("pure", epsilon=0.1)
    for act in (
        lambda: ledger.reserve(guarantee(), label=text),
        lambda: ledger.reserve(guarantee(), analyst=text),
        lambda: ledger.reserve(guarantee(), key=text),
        lambda: ledger.grant(text, 1),
        lambda: ledger.reserve(guarantee(event=Event.of(text))),
        lambda: ledger.reserve(guarantee(event=Event.of("pure", epsilon=0.1, note=text))),
        lambda: ledger.reserve(guarantee(event=Event("pure", ((text, 1),)))),
        lambda: ledger.reserve(guarantee(event=Event.sequence([plain, Event.of(text)]))),
        lambda: ledger.reserve(guarantee(assumptions=(text,)), accept=(text,)),
        lambda: ledger.charge(guarantee(), label=text),
        lambda: ledger.charge_many([Request(guarantee(), label=text)]),
    ):
        with pytest.raises(ParameterError, match=r"\S") as refused:
            act()
        assert refused.value.remedy
        assert str(refused.value).isprintable() or "\n" in str(refused.value)
        assert text not in str(refused.value)
    assert ledger.export() == before


@pytest.mark.parametrize(
    "text", ["[/nope]", "[red]x[/red]", "[link=file:///x]y", ":smile:", "back\\", "\\[", "[/"]
)
def test_markup_is_shown_as_it_is_written(url, open_ledger, guarantee, text):
    ledger = open_ledger(url)
    ledger.grant(text, 1)
    ledger.reserve(guarantee(event=Event.of(text)), label=text, analyst=text)
    shown = call("show", "--ledger", ledger.handle, "--verify")
    assert shown.count(text) >= 4  # account, label, mechanism, analyst
    (charge,) = json.loads(call("show", "--json", "--ledger", ledger.handle))["charges"]
    assert [charge[name] for name in ("label", "mechanism", "analyst")] == [text] * 3


def test_old_entries_with_control_letters_can_be_shown(url, open_ledger, guarantee, monkeypatch):
    """Written before they were refused, or past the library: kept in the chain, and harmless in a terminal."""
    ledger = open_ledger(url)
    with monkeypatch.context() as past:
        for module in ("pricing", "records"):
            past.setattr(f"confide.ledger.{module}.public_text", lambda *arguments: None)
        for text in UGLY:
            ledger.reserve(guarantee("0.001", event=Event.of("[/nope]" + text)), label="[/]" + text)
    assert ledger.verify().entries == 1 + len(UGLY)
    shown = call("show", "--ledger", ledger.handle, "--verify")
    assert "[/nope]" in shown
    for text in (shown, call("export", "--ledger", ledger.handle, "--format", "csv")):
        for line in text.split("\n"):
            assert line.isprintable()
    for text in (
        call("show", "--json", "--ledger", ledger.handle),
        call("export", "--ledger", ledger.handle),
    ):
        assert text.isascii()
    labels = [
        charge["label"] for charge in json.loads(call("show", "--json", "--ledger", ledger.handle))["charges"]
    ]
    assert labels == ["[/]" + text for text in UGLY]


def test_show_without_a_name_lists_the_datasets(url, open_ledger):
    assert "no ledgers" in call("show", "--ledger", url, status=5)
    for name in ("visits", "[nope]", "caf\u00e9"):
        open_ledger(url, dataset=name)
    assert call("show", "--ledger", url).splitlines()[:3] == ["[nope]", "caf\u00e9", "visits"]
    assert json.loads(call("show", "--ledger", url, "--json"))["datasets"] == [
        "[nope]",
        "caf\u00e9",
        "visits",
    ]
    assert "names no dataset to verify" in call("show", "--ledger", url, "--verify", status=2)


# -- a guarantee that was altered after it was charged


def test_the_same_object_with_another_epsilon_is_charged_anew(url, open_ledger, guarantee):
    ledger = open_ledger(url, epsilon=100, delta="0.5")
    charge = guarantee(1, event=Event.sequence([Event.of("pure", epsilon=1)]))
    ledger.reserve(charge)
    object.__setattr__(charge, "epsilon", Fraction(50))
    ledger.reserve(charge)
    assert ledger.total().epsilon == 51
    charge.epsilon._numerator = 10  # not even a Fraction's own parts are trusted
    ledger.reserve(charge)
    assert ledger.total().epsilon == 61
    for field, value, error in (
        ("epsilon", -5.0, ParameterError),
        ("unit", "person", Exception),
        ("adjacency", "replace_label", Exception),
    ):
        before = getattr(charge, field)
        object.__setattr__(charge, field, value)
        with pytest.raises(error):
            ledger.reserve(charge)
        object.__setattr__(charge, field, before)
    assert ledger.total().epsilon == 61


def test_the_cache_of_prices_is_keyed_by_value(ledger, guarantee):
    price = Pricer(ledger.budget, ("a", "b"))
    plain = price(guarantee(0.1))
    for other in (
        guarantee(0.2),
        guarantee(0.1, "1e-7"),
        guarantee(0.1, adjacency="add_remove_one"),
        guarantee(0.1, event=Event.of("pure", epsilon=0.2)),
        guarantee(0.1, event=Event.of("pure", epsilon=0.1, count=2)),
        guarantee(0.1, assumptions=("a",)),
    ):
        assert price(other) == Pricer(ledger.budget, ("a", "b"))(other) != plain
    # 1, 1.0 and True are equal and not the same text in the chain.
    texts = {price(guarantee(0.1, event=Event.of("x", flag=flag))).terms for flag in (1, 1.0, True)}
    assert len(texts) == 3
    # Deep inside: the count of a part of a part.
    part = Event.of("pure", epsilon=0.1)
    charge = guarantee(0.1, event=Event.sequence([Event.sequence([part])]))
    first = price(charge)
    assert price(charge) is first
    object.__setattr__(part, "count", 7)
    assert '"count":7' in price(charge).terms
    object.__setattr__(charge, "assumptions", ("b",))
    assert price(charge).accepted == ("b",)
