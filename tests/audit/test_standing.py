"""How a claim stands: what decided it, and whether anything was measured."""

from __future__ import annotations

import math

import pytest

from confide.audit import Finding, Verdict, claims
from confide.audit.standing import How, Standing, Tried, standings

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
