"""The audit must call every piece of the museum broken, and no correct sibling."""

import math
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from confide.audit import museum
from confide.audit.finding import Verdict, judge
from confide.errors import DataError
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
        "sparse_vector.no_reset", "sparse_vector.no_query_noise", "sparse_vector.half_query_noise",
        "paper_condition", "leaks.message", "leaks.exception", "leaks.warning", "leaks.charge",
        "leaks.more_calls", "leaks.free_check", "leaks.a_few_labels",
        "seeds.fixed", "seeds.clock", "seeds.twice",
        "prices.steps", "prices.whole_twice", "prices.cheap_event",
    } == set(NAMES)  # fmt: skip


def test_most_pieces_are_caught_by_two_layers():
    """The others tell by a text or a charge alone, which one layer compares; noise by the clock has its law,
    and what an event says shows in no output.
    """
    once = {piece.name for piece in PIECES if len(piece.caught_by) < 2}
    assert once == {
        "leaks.warning",
        "leaks.a_few_labels",
        "leaks.charge",
        "seeds.clock",
        "prices.cheap_event",
    }
    assert all(piece.caught_by for piece in PIECES)


def test_the_condition_of_the_paper_holds_where_its_piece_is_broken():
    from confide.audit.museum import selection
    from confide.selection import gap_condition

    for pair in selection._paper().pairs():
        for rows in (pair.here, pair.there):
            check = gap_condition(selection._problem(rows), diagnostics="public data")
            assert (check.paper, check.holds) == (True, False)


@pytest.mark.parametrize("piece", [p for p in PIECES if p.name.startswith("leaks.")], ids=lambda p: p.name)
def test_outputs_of_a_leak_have_the_law_of_its_sibling(piece):
    """Where a leak has a result it is the real one: nothing that reads results alone can see it."""
    broken, sibling = piece.broken(), piece.sibling()
    for pair in broken.pairs():
        try:
            told = broken.run(pair.there, seeded_stream(5))
        except DataError:
            continue
        np.testing.assert_array_equal(told, sibling.run(pair.there, seeded_stream(5)))


def test_what_is_shown_of_a_piece():
    (piece,) = (piece for piece in PIECES if piece.name == "leaks.charge")
    shown = museum.show(piece, seeded_stream(0))
    assert shown.right
    assert math.isnan(shown.measured)
    assert shown.to_dict()["caught_by"] == ["side channels"]
    assert not replace(shown, caught=("replay",)).right
    assert not replace(shown, accused=("support",)).right


@pytest.mark.parametrize("piece", PIECES, ids=NAMES)
def test_every_named_layer_catches_the_piece(piece):
    found = attacked(piece)
    assert set(piece.caught_by) <= set(museum.catchers(found))


@pytest.mark.parametrize(
    "piece", [p for p in PIECES if {"exact", "black box"} & set(p.caught_by)], ids=lambda p: p.name
)
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


def test_the_table_of_the_how_to_page_is_of_these_pieces():
    page = (Path(__file__).resolve().parents[2] / "docs" / "how-to" / "audit.md").read_text()
    for piece in PIECES:
        (row,) = (line for line in page.splitlines() if line.startswith(f"| `{piece.name}` |"))
        assert all(layer in row for layer in piece.caught_by)
