"""Words for people: a sentence for each layer, and numbers that hide no violation."""

from __future__ import annotations

import math
from fractions import Fraction
from pathlib import Path

import pytest

from confide.audit.legend import LEGEND, UNSEEN, both, down, held, judged, many, passes, up
from confide.audit.run import LAYERS

DOCS = Path(__file__).resolve().parents[2] / "docs"


def test_every_layer_has_its_sentence():
    assert not set(LAYERS) - set(LEGEND), "add what it tries and shows to confide.audit.legend.LEGEND"
    for told in LEGEND.values():
        assert told.sentence.endswith(".")
        assert told.sentence.count(".") == 1
        assert told.sentence[0].isupper()


def test_the_manual_has_a_row_a_layer():
    page = (DOCS / "how-to" / "audit.md").read_text(encoding="utf-8")
    assert [layer for layer in LAYERS if f"\n| {layer} | " not in page] == []


def test_only_what_no_claim_is_about_is_not_judged():
    assert [layer for layer in LAYERS if not judged(layer)] == ["run time"]
    assert judged("a layer without a legend")


def test_the_manual_names_what_is_not_seen():
    page = (DOCS / "how-to" / "audit.md").read_text(encoding="utf-8")
    seen = page[page.index("## What the audit cannot see") :]
    assert [name for name in UNSEEN if f"**{name}.**" not in seen] == []


@pytest.mark.parametrize(
    ("value", "higher", "lower"),
    [
        (Fraction(1), "1", "1"),
        (Fraction(1, 3), "0.3334", "0.3333"),
        (Fraction("1.54609612691"), "1.547", "1.546"),
        (Fraction("0.00001234567"), "1.235e-05", "1.234e-05"),
        (Fraction(0), "0", "0"),
        (0.4999999999995, "0.5", "0.4999"),
        (99999.0, "1e+05", "9.999e+04"),
        (math.inf, "infinite", "infinite"),
        (math.nan, "", ""),
    ],
)
def test_claims_are_rounded_up_and_bounds_down(value, higher, lower):
    assert up(value) == higher
    assert down(float(value)) == lower


@pytest.mark.parametrize(
    ("claimed", "measured", "shown"),
    [
        (Fraction(1), 0.99999999, ("1", "0.9999")),
        (Fraction(1), 1.0, ("1", "1")),
        (Fraction(1), 1.00001, ("1", "1.00001")),
        (Fraction("1.00001"), 1.00002, ("1.00001", "1.00002")),
        (Fraction("1.00001"), 1.3, ("1.001", "1.3")),
        (Fraction(1), math.nextafter(1, 2), ("1", "1.0000000000000002")),
        (Fraction(1, 2), math.inf, ("0.5", "infinite")),
        (Fraction(1, 2), math.nan, ("0.5", "")),
    ],
)
def test_a_bound_above_its_claim_is_seen_above_it(claimed, measured, shown):
    assert both(claimed, measured) == shown
    assert passes(measured, claimed) == (measured > claimed)
    if passes(measured, claimed):
        assert float(shown[1].replace("infinite", "inf")) > float(shown[0])


def test_one_of_a_kind_is_told_in_the_singular():
    assert [many(n, "claim") for n in (0, 1, 2, 1234)] == ["0 claims", "1 claim", "2 claims", "1,234 claims"]
    assert many(2, "process", "processes") == "2 processes"
    assert held(1, 0) == "1 holds and a part of the claim was measured; 0 hold with nothing measured."
    assert held(0, 1).endswith("; 1 holds with nothing measured, and rests on its proof, and on layers that "
                               "look for one counter-example.")  # fmt: skip
    assert "2 hold with nothing measured, and rest on their proofs, and on layers" in held(3, 2)
