"""Tables drawn by hypothesis, of any length and with any cells, under replay and the side channels."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from confide.audit import claims, replay, sides
from confide.audit.finding import Verdict
from confide.audit.fuzz import EXTREMES
from confide.audit.neighbours import Rows
from confide.audit.registry import Pair
from confide.privacy import Adjacency

#: Claims whose runs take tables of any length, with the labels that they know.
NAMES = {
    "training.closed_form.spectral": None,
    "training.rounds": None,
    "training.adassp.replace_one": None,
    "training.adassp.add_remove_one": None,
    "training.noisy_statistics.add_remove_one": None,
    "training.dpsgd.secret": None,
    "training.objective": None,
    "training.closed_form.classes": "codes",
    "selection.exponential.replace_one": None,
    "selection.exponential.add_remove_one": None,
    "prediction.erm": "signs",
    "prediction.votes": "signs",
}
WITHIN = st.floats(-1, 1)
ANY = st.one_of(WITHIN, st.sampled_from(EXTREMES), st.floats())


@st.composite
def neighbours(draw, claim, labels):
    """Return neighbours under the claim's relation, of the width of its tables."""
    own = next(iter(claim.pairs())).here
    model, rest = (own[0], own[1:]) if isinstance(own, tuple) else (own, ())
    p, n = model.X.shape[1], draw(st.integers(3, 7))
    known = {"codes": [0.0, 1.0], "signs": [-1.0, 1.0]}.get(labels)
    label = WITHIN if known is None else st.sampled_from(known)
    public = claim.adjacency is Adjacency.REPLACE_LABEL

    def row(cells, least=p):
        return draw(st.lists(cells, min_size=least, max_size=least))

    base = Rows(np.array([row(WITHIN) for _ in range(n)]), np.array([draw(label) for _ in range(n)]))
    wild = [(np.array(row(ANY)), draw(st.one_of(label, ANY))) for _ in range(2)]
    if claim.adjacency is Adjacency.ADD_REMOVE_ONE:
        tables = [base, base.added(*wild[0])]
    else:
        tables = [base.replaced(base.X[0] if public else cells, y) for cells, y in wild]
    return Pair("drawn", *((table, *rest) if rest else table for table in tables))


@pytest.mark.parametrize("name", NAMES)
def test_drawn_neighbours_are_told_apart_by_nothing_but_noise(name):
    (claim,) = (claim for claim in claims() if claim.name == name)

    @settings(max_examples=6, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
    @given(pair=neighbours(claim, NAMES[name]))
    def holds(pair):
        for found in (replay.check(claim, [pair]), sides.check(claim, [pair])):
            assert found.verdict is Verdict.HOLDS, found.note

    holds()
