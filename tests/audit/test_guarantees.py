"""The page of all guarantees, from audits of this version and of earlier ones."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from confide.audit import Finding, Verdict, claims
from confide.audit.guarantees import ABOUT, layers, rooms, text
from confide.audit.legend import LEGEND
from confide.audit.origin import Origin
from confide.audit.run import LAYERS, Audit

HOLDS, BROKEN = Verdict.HOLDS, Verdict.BROKEN
ORIGIN = Origin(
    "2026-01-02 03:04 UTC", "9.8", "ab" * 32, None, "CPython 3.99", "7.6", "Odd cpu, 5 processors"
)
FINDINGS = (
    Finding("labels.rounding", "exact", HOLDS, 0.39999),
    Finding("labels.laplace", "black box", HOLDS, 0.0, p_value=1.0),
    Finding("labels.laplace", "replay", HOLDS),
    Finding("labels.laplace", "run time", HOLDS, note="CPU time 1.01 times as long (0.90 to 1.20); reported"),
    Finding("labels.gaussian", "exact", HOLDS, 0.5),
    Finding("labels.gaussian", "replay", BROKEN, note="moved | by 2"),
)


def measured(*, origin: Origin | None) -> dict[str, Any]:
    return Audit(FINDINGS, True, 1.0, origin=origin).to_dict()


def row(page: str, name: str) -> list[str]:
    """Return the cells of the one row of a claim, but for its link; names as they are read."""
    (line,) = (line for line in page.splitlines() if line.startswith(f'| <a id="{name}" href="#{name}">'))
    first, *others = line.replace("<wbr>", "").strip("| ").split(" | ")
    called, _, proof = first.partition("</a><br>")
    assert called.endswith(f"<code>{name}</code>")
    return [proof, *others]


def test_a_claim_is_told_in_one_row():
    page = text(measured(origin=ORIGIN))
    assert "Broken: 1; hold, a part of the claim measured: 1; hold, nothing measured: 1." in _flat(page)
    assert row(page, "labels.rounding") == [
        "mechanism: Duchi, Jordan & Wainwright 2018, one dimension; confide.training.labels.rounding",
        "epsilon 1, replace label",
        "exact",
        "holds: measured 0.3999 (39%) by exact; time not measured",
    ]
    assert row(page, "labels.laplace") == [
        "mechanism: Ghosh et al. 2009; confide.training.labels.additive",
        "epsilon 1, replace label",
        "black box, replay",
        "holds: nothing measured, rests on its proof and on replay; time 1.01 (0.90 to 1.20)",
    ]
    assert row(page, "labels.gaussian")[1:] == [
        "epsilon 1, delta 0.001, replace label",
        "exact, replay",
        "broken by replay: moved \\| by 2 "
        "(not by its bound: the largest, 0.5 by exact, is not above the claim); time not measured",
    ]
    assert row(page, "labels.rr_on_bins")[1:] == [
        "epsilon 1, replace label",
        "none yet",
        "not attacked yet",
    ]


def test_lines_of_narrow_columns_end_within_names_after_a_dot_or_an_underscore():
    page = text({})
    assert "<code>labels.<wbr>rr_<wbr>on_<wbr>bins</code>" in page
    assert "theorem 3; confide.<wbr>training.<wbr>labels.<wbr>binned" in page
    assert "theorem 3.23;" in page


def test_claims_stand_in_their_rooms_and_each_room_says_what_it_is_about():
    page = text({})
    assert set(rooms()) == set(ABOUT)
    places = [page.index(f"\n## {room.capitalize()}\n\n{ABOUT[room]}\n") for room in rooms()]
    assert places == sorted(places)
    ends = [*places[1:], len(page)]
    for room, start, end in zip(rooms(), places, ends, strict=True):
        inside = [claim.name for claim in claims() if f'id="{claim.name}"' in page[start:end]]
        assert inside == [claim.name for claim in claims() if claim.name.startswith(f"{room}.")]


def test_notes_are_reached_from_their_claims():
    page = text({})
    for claim in claims():
        marks = re.findall(r"\(#(note-\d+)\)", row(page, claim.name)[0])
        assert len(marks) == bool(claim.note)
        for mark in marks:
            (line,) = (line for line in page.splitlines() if f'<a id="{mark}">' in line)
            assert line.endswith(f": {claim.note}")


def test_poisoning_leads_to_its_closest_call():
    found = Finding("prediction.votes", "poisoning", HOLDS, note="24 tables; closest call: 2")
    page = text(Audit((found,), True, 1.0).to_dict())
    assert row(page, "prediction.votes")[2] == "[poisoning](#certified-distances-under-poisoning)"
    assert "## Certified distances under poisoning\n" in page
    assert "- `prediction.votes`: 24 tables; closest call: 2\n" in page


def test_every_claim_and_every_layer_has_its_lines():
    page = text(measured(origin=ORIGIN))
    assert all(len(row(page, claim.name)) == 4 for claim in claims())
    for layer in LAYERS:
        assert f"| {layer} | {LEGEND[layer].sentence} |" in page
    tried = {
        layer: page.partition(f"| {layer} | {LEGEND[layer].sentence} | ")[2].splitlines()[0]
        for layer in LAYERS
    }
    assert tried["exact"] == "2 | 1 |"
    assert tried["run time"] == "1, not judged | 2 |"
    assert tried["support"] == "not tried yet |  |"


def test_an_origin_is_told_where_there_is_one():
    page = _flat(text(measured(origin=ORIGIN)))
    told = (
        "2026-01-02 03:04 UTC, Confide 9.8 (SHA-256 of the sources `"
        + "ab" * 32
        + "`), CPython 3.99, NumPy 7.6"
    )
    assert told in page
    assert "the operating system's randomness" in page


@pytest.mark.parametrize("older", [{"origin"}, {"origin", "level"}])
def test_an_audit_of_an_earlier_version_is_read(older):
    data = {key: value for key, value in measured(origin=None).items() if key not in older}
    data["claims"] = [
        {k: v for k, v in row.items() if k not in ("told", "broken_by")} for row in data["claims"]
    ]
    page = text(data)
    assert "Measured by a full audit of 3 claims. Broken: 1;" in _flat(page)
    assert "SHA-256" not in page
    assert row(page, "labels.rounding") == row(text(measured(origin=ORIGIN)), "labels.rounding")


def test_without_an_audit_nothing_is_claimed_to_be_measured():
    page = text({})
    assert "Measured by" not in page
    assert page.count("| none yet | not attacked yet |") == len(claims())


def test_claims_that_were_attacked_later_are_counted_once_and_apart():
    """The first audit is told with its own claims, and the counts are of all, as they were attacked last."""
    later = {
        "claims": ["labels.gaussian"],
        "why": "A fault of the audit was mended",
        "origin": ORIGIN.to_dict(),
    }
    page = _flat(text({**measured(origin=ORIGIN), "later": later}))
    head = page[page.index("Measured by") : page.index("Claims are rounded")]
    assert head.startswith("Measured by a full audit of 2 claims, 2026-01-02 03:04 UTC, Confide 9.8 ")
    told = f"(2026-01-02 03:04 UTC, sources `{'ab' * 32}`). A fault of the audit was mended."
    assert (
        f"Measured later, by an audit of it alone: `labels.gaussian` {told} Of all 3 claims, as attacked"
        in head
    )
    assert "last: broken: 1; hold, a part of the claim measured: 1; hold, nothing measured: 1." in head
    more = later | {"claims": ["labels.gaussian", "labels.laplace"]}
    page = _flat(text({**measured(origin=ORIGIN), "later": more}))
    assert "a full audit of 1 claim, " in page
    assert "each by an audit of it alone: `labels.gaussian`, `labels.laplace` (" in page


def test_results_are_of_the_sources_that_are_told():
    told = "are of these sources and of no others; `confide audit --list` tells the hash of those that are installed."
    assert told in _flat(text(measured(origin=ORIGIN)))
    for without in ({}, measured(origin=None)):
        assert "of no others" not in text(without)


def test_layers_that_judge_are_attacks():
    (claim,) = claims("labels.laplace")
    assert layers(claim, [found.to_dict() for found in FINDINGS]) == ["black box", "replay"]


def _flat(page: str) -> str:
    return " ".join(page.split())


def test_the_site_has_a_style_for_each_class():
    root = Path(__file__).resolve().parents[2]
    style = (root / "docs" / "stylesheets" / "guarantees.css").read_text()
    classes = {
        name for names in re.findall(r'<div class="([^"]+)" markdown>', text({})) for name in names.split()
    }
    assert classes == set(re.findall(r"\.md-typeset \.([a-z]+)", style))
    site = (root / "mkdocs.yml").read_text()
    assert "stylesheets/guarantees.css" in site
    assert "- md_in_html" in site
