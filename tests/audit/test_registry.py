"""Every public mechanism, release, engine and estimator has a claim, and docs/guarantees.md lists them all."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from confide.audit import claims, register
from confide.audit.exempt import EXEMPT, missing, promised
from confide.audit.guarantees import layers, read, text
from confide.errors import ParameterError
from confide.mechanisms import seeded_stream

DOCS = Path(__file__).resolve().parents[2] / "docs"


def test_nothing_public_is_without_a_claim():
    assert missing() == []


def test_what_is_left_out_exists_and_says_why():
    assert set(EXEMPT) <= set(promised())
    assert all(EXEMPT.values())


def test_covered_names_exist():
    names = set(promised())
    unknown = {name for claim in claims() for name in claim.covers if name not in names}
    assert not unknown


@pytest.mark.parametrize("claim", claims(), ids=lambda claim: claim.name)
def test_claims_run_on_their_first_pair(claim):
    pairs = list(claim.pairs())
    assert pairs
    one = np.ravel(claim.run(pairs[0].here, seeded_stream(1)))
    other = np.ravel(claim.run(pairs[0].there, seeded_stream(1)))
    assert one.shape == other.shape
    assert np.isfinite(one).all()
    if claim.law is not None:
        total = [sum(p[i] for p in claim.law(pairs[0].here).values()) for i in (0, 1)]
        assert total[0] <= 1 <= total[1]
        assert float(total[1] - total[0]) < 1e-6


def test_names():
    assert [claim.name for claim in claims("selection.mistakes")] == ["selection.mistakes"]
    assert {claim.name.partition(".")[0] for claim in claims("labels")} == {"labels"}
    assert any(claim.name == "training.adassp.replace_one" for claim in claims("confide.training.adassp"))
    with pytest.raises(ParameterError, match="nothing_here"):
        claims("nothing_here")
    with pytest.raises(ParameterError, match="twice"):
        register(claims()[0])


def test_the_page_of_guarantees_is_current():
    assert (DOCS / "guarantees.md").read_text() == text(read(DOCS)), "python -m confide.audit.guarantees docs"


def test_measured_bounds_of_the_page_are_of_these_claims():
    measured = json.loads((DOCS / "audit.json").read_text())
    assert {row["claim"] for row in measured["claims"]} <= {claim.name for claim in claims()}
    assert measured["broken"] == []


def test_every_claim_was_attacked_by_two_layers():
    found = read(DOCS)["findings"]
    few = {claim.name: layers(claim, found) for claim in claims() if len(layers(claim, found)) < 2}
    assert not few


def test_the_page_has_run_times_and_closest_calls():
    page = (DOCS / "guarantees.md").read_text()
    assert "not measured" not in page
    assert "none yet" not in page
    assert page.count("closest call") + page.count("answers certified for") >= 10


def test_epochs_of_one_object_have_the_law_of_epochs_of_their_own():
    """Also where an epoch stays open, which would go on with the next queries."""
    from collections import Counter

    from confide.audit.blackbox import law_p_value

    (claim,) = claims("prediction.sparse_vector")
    far = [(0, 60), (1, 60)], [(0, 15), (1, 15), (0, 14)]
    for distances in far:
        rows = claim.sample(distances, 800, seeded_stream(2))
        found = Counter(map(tuple, rows.tolist()))
        assert law_p_value(claim.law(distances), found, 800) > 1e-4
    assert len(found) == 4
