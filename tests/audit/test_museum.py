"""The audit must call every piece of the museum broken, and no correct sibling."""

import math
from functools import cache

import pytest

from confide.audit import museum
from confide.audit.finding import Verdict, judge
from confide.mechanisms import seeded_stream

PIECES = museum.pieces()
NAMES = [piece.name for piece in PIECES]


def stream(piece, run=0):
    return seeded_stream(run).child(piece.name)


@cache
def attacked(piece):
    return museum.attack(piece.broken(), stream(piece))


def test_the_museum_is_complete():
    assert {
        "mistakes_without_gap", "best_of_bucket", "coarse_grid", "unrepaired_ensemble", "naive_many_classes",
        "half_sensitivity", "broadcast_loss", "textbook_laplace", "unit_bounds", "float_gaussian",
        "sparse_vector.no_threshold_noise", "sparse_vector.reused_noise", "sparse_vector.value",
        "sparse_vector.no_reset",
    } == set(NAMES)  # fmt: skip
    assert all(len(piece.caught_by) >= 2 for piece in PIECES)


@pytest.mark.parametrize("piece", PIECES, ids=NAMES)
def test_every_named_layer_catches_the_piece(piece):
    found = attacked(piece)
    assert set(piece.caught_by) <= set(museum.catchers(found))


@pytest.mark.parametrize("piece", PIECES, ids=NAMES)
def test_a_measured_bound_of_a_caught_piece_exceeds_the_claim(piece):
    found = attacked(piece)
    bounds = [found[layer].measured for layer in museum.catchers(found)]
    assert max(bound for bound in bounds if not math.isnan(bound)) > piece.broken().epsilon


@pytest.mark.parametrize("piece", PIECES, ids=NAMES)
def test_no_layer_calls_the_sibling_broken(piece):
    assert museum.catchers(museum.attack(piece.sibling(), stream(piece))) == ()


@pytest.mark.slow
def test_no_sibling_is_called_broken_in_twenty_runs():
    """At the level of a whole audit: of all siblings in all runs together (Holm)."""
    findings = []
    for run in range(20):
        for piece in PIECES:
            findings += museum.attack(piece.sibling(), stream(piece, run + 2), seed=1000 * run).values()
    assert [f for f in judge(findings, 1e-3) if f.verdict is Verdict.BROKEN] == []
