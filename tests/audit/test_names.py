"""Every name of neighbours that a page can show stands in its glossary."""

from __future__ import annotations

import re
from functools import cache
from html import escape
from pathlib import Path

import numpy as np
import pytest

from confide.audit import Audit, Finding, Verdict, amounts, answers, claims, fuzz, neighbours, options, sweep
from confide.audit.guarantees import read
from confide.audit.names import CHANGES, PARTS, change, glossary, meaning
from confide.audit.page import page

DOCS = Path(__file__).resolve().parents[2] / "docs"


@cache
def of_claims() -> dict[str, str]:
    """Return the names of all pairs of all claims and members of their families, with one that has each."""
    return {
        pair.name: one.name
        for claim in claims()
        for one in (claim, *options.variants(claim))
        for pair in (*one.pairs(), *one.beside())
    }


@cache
def of_layers() -> frozenset[str]:
    """Return names that layers give to pairs of their own."""
    (claim,) = claims("training.closed_form.spectral")
    climbed = neighbours.climb(neighbours.table(6, 2), "replace_one", lambda pair: 0.0, steps=1)
    cells = [cell.what for cell in sweep.cells(claim)] + ["column 3"]
    swept = [
        f"{what} {value:.6g}, after 3 others" for what in cells for value in (0.5, -1e308, np.nan, np.inf)
    ]
    sized = [
        pair.name
        for claim in claims()
        for one in (*amounts.members(claim), *answers.amounts(claim))
        for pair in one.pairs()
    ]
    return frozenset((climbed.name, *swept, *sized, fuzz.fuzzed(claim, 1)[0].name, "128000 planted rows"))


def test_every_name_that_a_claim_or_a_member_can_show_is_explained():
    unknown = {name: whose for name, whose in of_claims().items() if meaning(name) is None}
    assert unknown == {}, "add what they mean to confide.audit.names"


def test_every_name_that_a_layer_gives_is_explained():
    assert {name for name in of_layers() if meaning(name) is None} == set()


def test_every_name_of_the_last_audit_is_explained():
    shown = {found["pair"] for found in read(DOCS)["findings"]} - {""}
    assert {name for name in shown if meaning(name) is None} == set()


@pytest.mark.parametrize(
    "name", ["", "sign", "sign flip, label", "sign flip 2", "label kept", "poisoned: ", "+1"]
)
def test_other_names_are_not(name):
    assert meaning(name) is None


def test_every_entry_explains_some_names_and_no_other_entry_does():
    """One that nothing needs would rot, and of two that both fit the second is never told."""
    made = {change(name) for name in (*of_claims(), *of_layers())}
    fits = {name: [one.shown for one in CHANGES if re.fullmatch(one.pattern, name)] for name in made}
    assert {name: found for name, found in fits.items() if len(found) != 1} == {}
    assert {one.shown for one in CHANGES} == {found[0] for found in fits.values()}


def test_every_part_is_of_some_name():
    for part in PARTS:
        words = re.sub(r"\d", "[0-9]", re.escape(part.strip("…")))
        assert any(re.search(words, name) for name in of_claims()), part


def test_the_page_has_the_glossary():
    text = page(Audit((Finding("labels.rounding", "exact", Verdict.HOLDS, 0.2),), True, 1.0))
    told = glossary()
    assert len(told) == len(CHANGES) + len(PARTS)
    place = text.index("<h3>Names of neighbours</h3>")
    for name, meant in told.items():
        assert f"<dt>{escape(name)}</dt>" in text[place:]
        assert meant.endswith(".")
