"""How a claim stands: what decided it, and whether anything was measured."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from confide.audit import Finding, Verdict, blackbox, claims, options, page, registry, replay, run, sides
from confide.audit.finding import judge
from confide.audit.standing import LEVEL, How, Standing, Tried, least, standings
from confide.mechanisms import seeded_stream

HOLDS, BROKEN = Verdict.HOLDS, Verdict.BROKEN


def standing(*findings: tuple) -> Standing:
    (claim,) = claims("labels.rounding")  # epsilon = 1
    return Standing(claim, tuple(Finding(claim.name, *found) for found in findings))


@pytest.mark.parametrize(
    ("findings", "how", "told"),
    [
        ([("exact", HOLDS, 0.5)], How.MEASURED, "holds: measured 50% of the claim"),
        ([("exact", HOLDS, 0.99999)], How.MEASURED, "holds: measured 99% of the claim"),
        ([("support", HOLDS, 0.001)], How.MEASURED, "holds: measured less than 1% of the claim"),
        (
            [("exact", HOLDS, 0.0), ("replay", HOLDS), ("support", HOLDS, 0.0, "", 9, 0.4)],
            How.UNMEASURED,
            "holds: nothing measured, rests on its proof and on exact, replay",
        ),
        (
            [("black box", HOLDS, 0.0, "", 9, 1.0), ("run time", HOLDS)],
            How.UNMEASURED,
            "holds: nothing measured, rests on its proof alone",
        ),
        (
            [("exact", BROKEN, 2.0, "ends")],
            How.BROKEN,
            "broken by exact, on 'ends': its bound is above the claim",
        ),
        (
            [("exact", HOLDS, 0.39), ("replay", BROKEN, math.nan, "ends", 3, math.nan, 0.0, "moved by 2")],
            How.BROKEN,
            "broken by replay, on 'ends': moved by 2 "
            "(not by its bound: the largest, 0.39 by exact, is not above the claim)",
        ),
        ([("poisoning", BROKEN)], How.BROKEN, "broken by poisoning: a counter-example"),
        (
            [("black box", BROKEN, 0.97, "tie", 9, 1e-6)],
            How.BROKEN,
            "broken by black box, on 'tie': p-value 1e-06 "
            "(not by its bound: the largest, 0.97 by black box, is not above the claim)",
        ),
    ],
)
def test_a_claim_stands_as_its_findings_say(findings, how, told):
    one = standing(*findings)
    assert one.how is how
    assert str(one) == told
    assert one.verdict is (BROKEN if how is How.BROKEN else HOLDS)
    assert one.to_dict()["told"] == told


@pytest.mark.parametrize(
    ("measured", "told"),
    [(0.0, "0%"), (math.nan, "0%"), (0.5, "more than 100%"), (math.inf, "more than 100%")],
)
def test_a_claim_that_nothing_at_all_is_told_stands_too(measured, told):
    (claim,) = claims("labels.rounding")
    one = Standing(replace(claim, epsilon=Fraction(0)), (Finding(claim.name, "exact", HOLDS, measured),))
    assert one.share == told
    assert 'class="claimed"' in page._bar(one)


def test_an_audit_of_a_claim_of_epsilon_0_ends(monkeypatch):
    (claim,) = claims("mechanisms.bernoulli_exp")
    monkeypatch.setitem(registry._CLAIMS, claim.name, replace(claim, epsilon=Fraction(0)))
    found = run.audit(claim.name, seed=0)
    assert [one.how for one in standings(found.findings)] == [How.BROKEN]
    assert "broken by exact" in page.page(found)
    assert found.to_dict()["broken"] == [claim.name]


def test_a_bound_above_the_claim_decides_before_proofs_and_p_values():
    chance = ("black box", BROKEN, 0.9, "", 9, 1e-9)
    less = ("law of draws", BROKEN, math.nan, "", 9, 1e-12)
    proof, above, most = ("replay", BROKEN), ("support", BROKEN, 1.1), ("exact", BROKEN, 1.2)
    for findings, layer in (
        ((chance, less), "law of draws"),
        ((chance, less, proof), "replay"),
        ((chance, less, proof, above), "support"),
        ((chance, above, proof, most), "exact"),
    ):
        decided = standing(*findings).decisive
        assert decided is not None
        assert decided.layer == layer
        assert standing(*findings).to_dict()["broken_by"] == layer


def test_one_pair_of_many_breaks_a_layer():
    one = standing(
        ("black box", HOLDS, 0.2, "", 9, 0.5), ("black box", BROKEN, 1.2, "", 9, 0.0), ("replay", HOLDS),
        ("run time", HOLDS),
    )  # fmt: skip
    told = {layer: one.tried(layer) for layer in ("black box", "replay", "run time", "exact")}
    assert told == {
        "black box": Tried.BROKEN, "replay": Tried.HELD, "run time": Tried.REPORTED, "exact": Tried.NOTHING,
    }  # fmt: skip


def test_standings_are_in_the_order_of_the_registry_and_of_claims_alone():
    last, first = claims("labels")[-1].name, claims("labels")[0].name
    findings = [Finding(name, "exact", HOLDS, 0.1) for name in (last, "confide.novel", first, last)]
    assert [(one.claim.name, len(one.findings)) for one in standings(findings)] == [(first, 1), (last, 2)]


def test_a_perfect_attack_gives_the_ceiling_of_its_runs():
    """The outputs tell the table: every guess is right, and so are the counts of the half that is counted."""
    (claim,) = claims("labels.rounding")
    pair = next(iter(claim.pairs()))
    told = replace(
        claim,
        outputs=lambda table, count, stream: np.full((count, 1), float(table == pair.here)),
        one_run=lambda stream: (bits := np.array([1, -1, 1, -1]), bits * [1, 1, 0, 0]),
    )
    for count in (2, 9, 40, 999, 1001):
        for found in (
            blackbox.check(told, pair, count, seeded_stream(1), full=False, error=1e-6),
            sides.support(told, pair, count, seeded_stream(1), error=1e-6),
            blackbox.one_run(told, seeded_stream(1), repeats=count, error=1e-6),
        ):
            assert found is not None
            most = blackbox.ceiling(found, 0.0, 1e-6)
            assert found.measured <= most
            assert found.measured == pytest.approx(most, abs=0.1), found.layer
            assert blackbox.ceiling(found, 0.01, 1e-6) <= most


@pytest.mark.parametrize("layer", ["exact", "replay", "law of draws"])
def test_what_counts_no_guesses_has_no_ceiling(layer):
    assert blackbox.ceiling(Finding("a", layer, HOLDS, tried=1), 0.0, 1e-6) == math.inf
    assert blackbox.ceiling(Finding("a", "one run", HOLDS, tried=1), 0.0, 1e-6) == math.inf


@pytest.mark.parametrize("layer", ["black box", "support", "one run"])
def test_so_few_runs_are_too_weak(layer):
    few, many = (
        standing((layer, HOLDS, 0.0, "", n, 1.0, 0.0, "", math.nan, n * (layer == "one run"), 1))
        for n in (8, 800)
    )
    assert few.tried(layer) is Tried.WEAK
    assert many.tried(layer) is Tried.HELD
    both = Standing(few.claim, (*few.findings, *many.findings), LEVEL)
    assert both.tried(layer) is Tried.HELD
    assert replace(many, error=1e-200).tried(layer) is Tried.WEAK


def test_the_least_error_is_where_one_more_is_broken():
    rng = np.random.default_rng(0)
    for _ in range(300):
        chances = 10 ** rng.uniform(-7, -1, 5)
        findings = judge([Finding("a", "black box", HOLDS, p_value=p) for p in chances], LEVEL)
        holding = [i for i, found in enumerate(findings) if found.verdict is HOLDS]
        if not holding:
            continue
        for share, verdict in ((0.999, BROKEN), (1.001, HOLDS)):
            other = list(findings)
            other[holding[0]] = replace(other[holding[0]], p_value=share * least(findings))
            assert judge(other, LEVEL)[holding[0]].verdict is verdict
    assert least([Finding("a", "exact", HOLDS)]) == LEVEL


def test_a_replay_in_which_nothing_moved_is_no_ground():
    still = Finding("labels.rounding", "replay", HOLDS, moved=0.0)
    (claim,) = claims("labels.rounding")
    one = Standing(claim, (still, Finding(claim.name, "price", HOLDS)))
    assert one.tried("replay") is Tried.STILL
    assert str(one) == "holds: nothing measured, rests on its proof and on price"
    moved = Standing(claim, (replace(still, moved=0.5),))
    assert moved.tried("replay") is Tried.HELD
    assert str(moved) == "holds: nothing measured, rests on its proof and on replay"
    assert Standing(claim, (replace(still, verdict=BROKEN),)).tried("replay") is Tried.BROKEN


def test_replay_tells_how_far_inputs_moved():
    (claim,) = claims("labels.laplace")
    pair = next(iter(claim.pairs()))
    far, still = (replay.check(claim, [one]) for one in (pair, replace(pair, there=pair.here)))
    assert far is not None
    assert still is not None
    assert far.moved > 0.9
    assert still.moved == 0
    assert "by up to 0 times what is declared" in still.note
    (family,) = claims("labels.rounding")
    at = next(iter(family.pairs()))
    found = options.check(family, [replace(at, there=at.here)], [at])
    assert found is not None
    assert found.moved > 0, "an option of the family has an input that moves"


def test_findings_of_earlier_versions_are_read():
    found = Finding("a", "one run", HOLDS, moved=0.0, guesses=3, canaries=4)
    data = json.loads(json.dumps(found.to_dict()))
    assert Finding.from_dict(data).to_dict() == found.to_dict()
    for name in ("moved", "guesses", "canaries"):
        del data[name]
    old = Finding.from_dict(data)
    assert math.isnan(old.moved)
    assert (old.guesses, old.canaries) == (0, 0)
    assert math.isnan(Finding.from_dict(Finding("a", "exact", HOLDS).to_dict()).moved)
