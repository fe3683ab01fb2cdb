"""The page: how claims stand, layer by layer, what is not seen, and where it comes from."""

from __future__ import annotations

import math
import re

import pytest

from confide.audit import Finding, Verdict, claims, registry
from confide.audit import page as page_module
from confide.audit import run as running
from confide.audit.legend import LEGEND, TERMS, UNSEEN
from confide.audit.origin import Origin
from confide.audit.page import page
from confide.audit.run import LAYERS, LEVEL, Audit
from confide.audit.state import heading
from confide.privacy import Adjacency

HOLDS, BROKEN = Verdict.HOLDS, Verdict.BROKEN


def told() -> tuple[Finding, ...]:
    return (
        Finding("prediction.votes", "exact", HOLDS, 1.0, "a pair"),
        Finding("prediction.votes", "poisoning", HOLDS, tried=24, note="24 tables; closest call: 2"),
        Finding("prediction.votes", "run time", HOLDS, pair="a pair", tried=9,
                note="CPU time 1.01 times as long on the neighbour (0.90 to 1.20); reported, not judged"),
    )  # fmt: skip


def text_of(*findings: Finding) -> str:
    return page(Audit(findings, False, 1.0))


def row(text: str, table: str, claim: str) -> list[str]:
    """Return the cells of a claim's row, without tags."""
    whole = text[text.index(f'class="stack {table}"') :]
    start = whole.index(f'scope="row">{claim.replace(".", ".<wbr>").replace("_", "_<wbr>")}<')
    cells = whole[start : whole.index("</tr>", start)].split("<td")[1:]
    return [re.sub("<[^>]*>", "", f"<td{cell}") for cell in cells]


def test_a_bar_a_claim_and_nothing_from_outside():
    text = text_of(
        Finding("labels.rounding", "exact", BROKEN, math.inf, "ends <b>"),
        Finding("labels.laplace", "black box", HOLDS, 0.5, p_value=0.3),
        Finding("labels.gaussian", "replay", HOLDS),
    )
    assert text.count('role="img"') == 3
    assert "labels.laplace: measured 0.5 of 1 claimed" in text
    assert "labels.rounding: measured infinite of 1 claimed" in text
    assert "labels.gaussian: measured nothing of 1 claimed" in text
    assert "ends &lt;b&gt;" in text
    assert "prefers-color-scheme:dark" in text
    assert 'lang="en"' in text
    assert not re.search(r"src=|href=\"[^#]|url\(|@import|<script", text)
    assert set(re.findall(r'href="#(\w+)"', text)) == set(re.findall(r'<section id="(\w+)"', text))


def test_the_headline_counts_what_was_measured_and_what_was_not():
    text = text_of(
        Finding("labels.laplace", "black box", HOLDS, 0.5, p_value=0.3),
        Finding("labels.gaussian", "black box", HOLDS, 0.5, p_value=0.3),
        Finding("labels.rounding", "black box", HOLDS, 0.0, p_value=1.0),
        Finding("labels.rounding", "replay", HOLDS),
    )
    assert (
        "2 hold and a part of the claim was measured; 1 holds with nothing measured, and rests on its proof, "
        "and on layers that look for one counter-example." in text
    )
    assert "<dt>hold, nothing measured</dt><dd>1<small>rest on proof, and on layers that look" in text
    assert "Quick: few runs. For a sign-off run <code>--full</code>." in text
    assert "Quick" not in page(Audit(told(), True, 1.0))
    assert row(text, "standing", "labels.laplace")[1:5] == [
        "1", "0.5", "holds: measured 50% of the claim", "black box",
    ]  # fmt: skip
    assert row(text, "standing", "labels.rounding")[1:5] == [
        "1", "0", "holds: nothing measured, rests on its proof and on replay", "",
    ]  # fmt: skip


def test_a_broken_claim_is_told_with_what_decided():
    text = text_of(
        Finding("labels.rounding", "exact", HOLDS, 0.25),
        Finding("labels.rounding", "replay", BROKEN, pair="ends", note="moved by 2 <b>"),
        Finding("confide.tune.novel", "registry", BROKEN),
    )
    reason = (
        "broken by replay, on &#x27;ends&#x27;: moved by 2 &lt;b&gt; (not by its bound: the largest, 0.25"
    )
    assert text.count(reason) == 2
    assert "No attack broke" not in text
    assert "nothing attacks them: confide.<wbr>tune.<wbr>novel." in text
    assert "<dt>attacks</dt><dd>2<" in text
    alone = text_of(*told(), Finding("confide.tune.novel", "registry", BROKEN))
    assert "<strong>Broken" not in alone
    assert "nothing attacks them: confide.<wbr>tune.<wbr>novel." in alone


def test_every_layer_is_explained_and_counted():
    text = text_of(*told(), Finding("labels.rounding", "exact", BROKEN, 2.0))
    for layer in LAYERS:
        assert row(text, "legend", layer)[0] == LEGEND[layer].sentence.replace("'", "&#x27;")
    assert row(text, "legend", "exact")[1:] == ["1", "0", "1", "0"]
    assert row(text, "legend", "poisoning")[1:] == ["1", "0", "0", "1"]
    assert row(text, "legend", "run time")[1:] == ["reported, not judged", "0", "0", "1"]
    expected = dict.fromkeys(LAYERS, "does not apply")
    voted = expected | {"exact": "held", "poisoning": "held", "run time": "reported"}
    voted["support"] = "not in a quick audit"
    assert row(text, "matrix", "prediction.votes") == list(voted.values())
    assert row(text, "matrix", "labels.rounding") == list((expected | {"exact": "broken"}).values())


def test_what_could_not_break_a_claim_is_not_called_held():
    text = text_of(
        Finding("labels.rounding", "black box", HOLDS, 0.0, tried=8, p_value=1.0),
        Finding("labels.rounding", "replay", HOLDS, moved=0.0),
    )
    told = dict(zip(LAYERS, row(text, "matrix", "labels.rounding"), strict=True))
    assert (told["black box"], told["replay"]) == ("too weak", "nothing moved")
    for layer in ("black box", "replay"):
        assert row(text, "legend", layer)[1:] == ["0", "1", "0", "0"]
    assert "Too weak: so few runs cannot break the claim" in text


def test_a_layer_of_tomorrow_is_shown(monkeypatch):
    monkeypatch.setitem(running.LAYERS, "of tomorrow", lambda claim, effort: None)
    text = text_of(*told(), Finding("prediction.votes", "of tomorrow", HOLDS))
    assert row(text, "legend", "of tomorrow")[1:] == ["1", "0", "0", "0"]
    assert row(text, "matrix", "prediction.votes")[-1] == "held"
    assert 'content:"of tomorrow: "' in text


def test_what_is_not_seen_and_where_it_comes_from():
    made = Origin(
        "2026-01-02 03:04 UTC", "9.8", "ab" * 32, None, "CPython 3.99", "7.6", "Odd cpu, 5 processors"
    )
    found = Finding("labels.rounding", "exact", HOLDS, 0.2, seconds=1234.4)
    text = page(Audit((found,), True, 77.0, kept=tuple(range(12)), origin=made, cells=5))
    for name in UNSEEN:
        assert f"<dt>{name}</dt>" in text
    for shown in (
        *(told for name, told in vars(made).items() if name != "resumed"),
        "operating system",
        "77 s of this run",
        "1,234 s of CPU",
        f"{LEVEL:g}",
    ):
        assert shown is None or str(shown) in text
    assert "12 results are from an earlier run" in text
    assert "<dd>5 cells, a claim by a layer on a pair; in 4 nothing to try</dd>" in text
    assert f"<dt>attacked</dt><dd>{made.date}, on Odd cpu, 5 processors</dd>" in text
    seeded = page(Audit((found,), True, 77.0, origin=Origin(**vars(made) | {"seed": 5})))
    assert "seed 5" in seeded
    assert "earlier run" not in seeded


def test_an_origin_names_no_host(monkeypatch):
    monkeypatch.setattr("platform.node", lambda: "zq-host")
    header = heading(claims("labels.rounding"), full=False, seed=4)
    made = Origin.here(header).to_dict()
    assert (made["seed"], made["sources"]) == (4, header["sources"])
    assert "zq-host" not in str(made)
    assert re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d UTC", made["date"])


def test_poisoning_and_run_times_stand_apart():
    text = text_of(*told())
    assert row(text, "poisoned", "prediction.votes") == ["24", "", "2", "holds"]
    assert "(0.90 to 1.20)" in text
    assert text.count("<details><summary>") == 3
    assert text.count('<details class="narrow"><summary>') == 1
    plain = text_of(told()[0])
    assert "Certified distances" not in plain
    assert "Run time of each claim" not in plain


@pytest.mark.parametrize("broken", [False, True])
def test_tables_have_captions_headers_and_words_beside_colour(broken):
    more = (Finding("labels.rounding", "exact", BROKEN, 2.0, "ends"),) if broken else ()
    text = text_of(*told(), *more)
    assert text.count("<table>") == text.count("<caption>") == 6
    assert text.count('scope="row"') == 2 * (1 + broken) + len(LAYERS) + 1 + 1 + 1 + broken
    assert text.count('class="broken">broken') == 3 * broken


def test_attacks_are_counted_alike_everywhere():
    text = text_of(*told(), Finding("confide.tune.novel", "registry", BROKEN))
    assert "<dt>attacks</dt><dd>1<small>by 1 layer; 1 poisoning; 1 run time<" in text
    assert "<summary>Show 1 attack</summary>" in text


def test_each_claim_names_its_proof():
    text = text_of(*told())
    (claim,) = claims("prediction.votes")
    shown = text.partition('<small class="proof">')[2].partition("</small>")[0]
    assert shown == claim.proof.replace(".", ".<wbr>")
    assert page_module._name("the proof. confide.a_b, .c <") == (
        "the proof. confide.<wbr>a_<wbr>b, .<wbr>c &lt;"
    )


def test_a_part_of_an_audit_says_so():
    found, whole = Finding("labels.rounding", "exact", HOLDS, 0.25), len(claims())
    text = page(Audit((found,), False, 1.0, asked="rr_on_bins"))
    assert f"<title>Audit of rr_on_bins: 1 of {whole} claims, quick</title>" in text
    assert f"<strong>A part of an audit: </strong>it says nothing of {whole - 1} other claims. " in text
    assert f"{registry.beside('rr_on_bins')}.</p>" in text
    alone = page(Audit((found,), False, 1.0, asked="labels.rounding"))
    assert f"it says nothing of {whole - 1} other claims. </p>" in alone
    every = tuple(Finding(claim.name, "exact", HOLDS, 0.0) for claim in claims())
    text = page(Audit(every, True, 1.0))
    assert f"<title>Audit of {whole} claims, full</title>" in text
    assert "A part of an audit" not in text


def test_layers_are_counted_among_the_attacks():
    found = [Finding("labels.rounding", layer, HOLDS) for layer in ("exact", "replay", "exact", "run time")]
    assert "<dt>attacks</dt><dd>3<small>by 2 layers; 1 run time<" in text_of(*found)


def test_what_a_quick_audit_leaves_out_is_not_said_to_be_impossible():
    found = tuple(Finding(name, "replay", HOLDS) for name in ("training.rounds", "labels.rounding"))
    for full, told in ((False, "not in a quick audit"), (True, "does not apply")):
        text, place = page(Audit(found, full, 1.0)), list(LAYERS).index("support")
        assert row(text, "matrix", "training.rounds")[place] == told
        assert row(text, "matrix", "labels.rounding")[place] == "does not apply"
        count = "2" if full else "1, and 1 not in a quick audit"
        assert row(text, "legend", "support")[1:] == ["0", "0", "0", count]


def test_words_are_explained():
    text = text_of(*told())
    for term in ("Epsilon", "Delta", "Neighbours", "p-value", "Sensitivity", "Holm", "Exact law"):
        assert f"<dt>{term}</dt>" in text
    assert "docs/how-to/audit.md" in text
    terms = TERMS["Neighbours"].lower()
    assert all(relation.value.replace("add_", "add_or_").replace("_", " ") in terms for relation in Adjacency)


def test_closest_calls_have_a_column():
    note = "24 tables; answers certified for 0 to 5 changes"
    text = text_of(
        Finding("prediction.votes", "poisoning", HOLDS, tried=24, note=note),
        Finding("prediction.erm", "poisoning", HOLDS, tried=24,
                note=f"{note}; closest call: 4 changes turned one certified for 3"),
        Finding("prediction.erm.replace_label", "poisoning", BROKEN, tried=24, note="3 changes turn query 1"),
    )  # fmt: skip
    assert row(text, "poisoned", "prediction.votes") == ["24", "0 to 5 changes", "none turned", "holds"]
    assert row(text, "poisoned", "prediction.erm")[2] == "4 changes turned one certified for 3"
    assert row(text, "poisoned", "prediction.erm.replace_label")[1:] == [
        "",
        "3 changes turn query 1",
        "broken",
    ]
