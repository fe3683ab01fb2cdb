"""The page of all guarantees, from audits of this version and of earlier ones."""

from __future__ import annotations

from typing import Any

import pytest

from confide.audit import Finding, Verdict, claims
from confide.audit.guarantees import layers, text
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


def rows(page: str, name: str) -> list[str]:
    return [line for line in page.splitlines() if line.startswith(f"| `{name}` |")]


def test_measured_and_nothing_measured_are_told_apart():
    page = text(measured(origin=ORIGIN))
    assert "Broken: 1; hold, a part of the claim measured: 1; hold, nothing measured: 1." in _flat(page)
    assert rows(page, "labels.rounding")[0] == (
        "| `labels.rounding` | 1 | replace label | holds: measured 0.3999 (39%) |"
    )
    assert rows(page, "labels.laplace") == [
        "| `labels.laplace` | 1 | replace label | holds: nothing measured, rests on its proof and on replay |",
        "| `labels.laplace` | Ghosh et al. 2009; confide.training.labels.additive | black box, replay |",
        "| `labels.laplace` | 1.01 (0.90 to 1.20) |",
    ]
    assert rows(page, "labels.gaussian")[0] == (
        "| `labels.gaussian` | 1, 0.001 | replace label | broken by replay: moved \\| by 2 "
        "(not by its bound: the largest, 0.5 by exact, is not above the claim) |"
    )
    assert rows(page, "labels.rr_on_bins") == [
        "| `labels.rr_on_bins` | 1 | replace label | not attacked yet |",
        "| `labels.rr_on_bins` | Ghazi et al. 2022, theorem 3; confide.training.labels.binned | none yet |",
        "| `labels.rr_on_bins` | not measured |",
    ]


def test_every_claim_and_every_layer_has_its_lines():
    page = text(measured(origin=ORIGIN))
    assert all(len(rows(page, claim.name)) == 3 for claim in claims())
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
    assert rows(page, "labels.rounding") == rows(text(measured(origin=ORIGIN)), "labels.rounding")


def test_without_an_audit_nothing_is_claimed_to_be_measured():
    page = text({})
    assert "Measured by" not in page
    assert page.count("| not attacked yet |") == page.count("| none yet |") == len(claims())


def test_layers_that_judge_are_attacks():
    (claim,) = claims("labels.laplace")
    assert layers(claim, [found.to_dict() for found in FINDINGS]) == ["black box", "replay"]


def _flat(page: str) -> str:
    return " ".join(page.split())
