"""Members of the families of selection: each holds, and each branch that it takes is seen where it breaks."""

from __future__ import annotations

import sys

import numpy as np
import pytest

from confide.audit import claims, family, price, replay
from confide.audit.finding import Verdict
from confide.privacy import Adjacency
from confide.selection.columns import Columns
from confide.selection.losses import Loss
from confide.selection.wide import Bounds

VARIANTS = {
    v.name: v
    for claim in claims()
    if claim.name.partition(".")[0] == "selection"
    for v in family.variants(claim)
}
#: Of what is declared, the worst record moves an input by more than half: twice as much shows.
NEAR = 0.51
#: Neighbours that try something else: blocks, texts (`test_sides`) and files (`test_family_files`).
FREE = (
    "LassoVotes(blocks=2)",
    "[text, ",
    "[rows are counted, ",
    "[Parquet in chunks, ",
    "[a matrix in a file]",
    "[all at the upper end, ",
    "[an earlier table, ",
)
#: No draw at all: the law itself is shown (`test_family_drawn`).
SHOWN = "[an earlier table, "


def found(variant):
    """Return the first pair's verdict by replay, and by price."""
    pair = next(iter(variant.pairs()))
    told = replay.replay(variant, pair, 1)
    charged, shown = price.price(variant, pair.here, 1)
    return told, shown, [*(f.what for f in replay.faults(variant, told)), *price.dishonest(variant, charged)]


@pytest.mark.parametrize("name", VARIANTS)
def test_a_member_holds_and_a_record_moves_more_than_half_of_what_is_declared(name):
    variant = VARIANTS[name]
    told, shown, faults = found(variant)
    assert told.recorded.error == shown.error == ""
    assert not faults
    assert told.recorded.calls or SHOWN in name
    if not any(mark in name for mark in FREE):
        assert replay.shares(variant, told) > NEAR


def everywhere(patch, true, other):
    """Put a function in the place of another wherever it is held."""
    for module in [m for name, m in sys.modules.items() if name.startswith("confide.") and m is not None]:
        for key, value in list(vars(module).items()):
            if value is true:
                patch.setattr(module, key, other)


def exponents(change):
    """Return a break of the exponent: a factor by (problem, mechanism, epsilon, relation)."""

    def apply(patch):
        from confide.selection.exponent import exponent as true

        def exponent(problem, mechanism, epsilon, adjacency):
            eta = true(problem, mechanism, epsilon, adjacency)
            relation = Adjacency.parse(adjacency)
            return eta * (2 if change(problem, mechanism, float(epsilon), relation) else 1)

        everywhere(patch, true, exponent)

    return apply


def ranges(change):
    """Return a break of the range of one record's loss."""

    def apply(patch):
        true = Loss.record_range
        patch.setattr(
            Loss,
            "record_range",
            lambda loss, b, a: true(loss, b, a) / (2 if change(loss, b, a) else 1),
        )

    return apply


def cells(change):
    """Return a break of clipping: cells of some kinds of matrix are read as they are."""

    def apply(patch):
        true = Columns._cells

        def read(columns, block):
            if not change(columns):
                return true(columns, block)
            return np.nan_to_num(np.array(block, dtype=np.float64), nan=0.0, posinf=1e300, neginf=-1e300)

        patch.setattr(Columns, "_cells", read)

    return apply


def scaled(change):
    """Return a break of bounds by column or of labels: values are scaled and not clipped."""

    def apply(patch):
        true = Bounds.scale

        def scale(bounds, given, columns):
            values = np.nan_to_num(np.array(given, dtype=np.float64))
            if not change(bounds, values):
                return true(bounds, given, columns)
            half, middle = (
                side if bounds.scalar else side[columns] for side in (bounds.half_width, bounds.middle)
            )
            return np.clip((values - middle) / half, -50.0, 50.0)

        patch.setattr(Bounds, "scale", scale)

    return apply


def uncapped(patch):
    """Let rows count that a person has beyond the cap."""
    from confide.selection import request

    true = request.make_request

    def made(**given):
        return true(**{**given, "rows_per_unit": 1})

    everywhere(patch, true, made)


def widths(change):
    """Return a break of W, the width of the gap condition."""

    def apply(patch):
        from confide.selection import gap

        true = gap.width
        patch.setattr(
            gap, "width", lambda problem, relation: true(problem, relation) / (2 if change(problem) else 1)
        )

    return apply


def peeled(patch):
    """Give each column of a peeling all of epsilon."""
    from confide.selection.baselines.peeling import peeling_exponent as true

    everywhere(patch, true, lambda epsilon, size, *rest: true(epsilon, 1, *rest))


def one_block(patch):
    """Count votes of few blocks twice."""
    from confide.selection.baselines.votes import LassoVotes

    true = LassoVotes.scores
    patch.setattr(LassoVotes, "scores", lambda votes, problem: 2 * true(votes, problem))


REPLACE_LABEL, PRIVATE = Adjacency.REPLACE_LABEL, Adjacency.REPLACE_PRIVATE_PART
#: Break -> (claim, how, what the name of the member that sees it has).
BREAKS = {
    "the factor of replaced labels": (
        "extremes.replace_one",
        exponents(lambda p, m, e, r: r is REPLACE_LABEL),
        "replace_label",
    ),
    "the factor of private parts": (
        "extremes.replace_one",
        exponents(lambda p, m, e, r: r is PRIVATE),
        "replace_private_part",
    ),
    "three columns": ("extremes.replace_one", exponents(lambda p, m, e, r: p.size == 3), "size 3"),
    "three columns, a row more": (
        "extremes.replace_one",
        exponents(lambda p, m, e, r: p.size == 3 and r is Adjacency.ADD_REMOVE_ONE),
        "add_remove_one, size 3",
    ),
    "a small epsilon": ("extremes.replace_one", exponents(lambda p, m, e, r: e < 0.2), "epsilon 0.1"),
    "a large epsilon": ("extremes.replace_one", exponents(lambda p, m, e, r: e > 4), "epsilon 8"),
    "a high level": ("extremes.replace_one", ranges(lambda loss, b, a: loss.shape == 0.9), "quantile(0.9)"),
    "a low level": ("extremes.replace_one", ranges(lambda loss, b, a: loss.shape == 0.2), "quantile(0.2)"),
    "a narrow parabola": ("extremes.replace_one", ranges(lambda loss, b, a: loss.shape == 0.1), "huber(0.1)"),
    "a small ball": ("extremes.replace_one", ranges(lambda loss, b, a: a < b), "radius 0.3"),
    "a large ball": (
        "extremes.replace_one",
        ranges(lambda loss, b, a: a > b and not loss.labels),
        "radius 3",
    ),
    "columns in order": (
        "extremes.replace_one",
        cells(lambda c: not c.sparse and c.X.flags.f_contiguous),
        "columns in order",
    ),
    "32 bits": ("extremes.replace_one", cells(lambda c: c.X.dtype == np.float32), "32 bits"),
    "sparse": ("extremes.replace_one", cells(lambda c: c.sparse), "sparse"),
    "integers": ("extremes.replace_one", cells(lambda c: c.X.dtype.kind == "i"), "integers"),
    "strided": (
        "extremes.replace_one",
        cells(lambda c: not c.sparse and not c.X.flags.c_contiguous and not c.X.flags.f_contiguous),
        "strided",
    ),
    "many rows": ("extremes.replace_one", cells(lambda c: c.n > 1000), "1,201 rows"),
    "bounds of columns": ("extremes.replace_one", scaled(lambda b, v: not b.scalar), "bounds of columns"),
    "persons of a table": ("SubsetSelector", uncapped, "ids"),
    "persons of permute and flip": (
        "SubsetSelector",
        uncapped,
        "10 rows a person, replace_label, permute_and_flip",
    ),
    "the gap of classes": ("gap_condition", widths(lambda p: p.loss.labels), "logistic"),
    "the gap of a level": ("gap_condition", widths(lambda p: p.loss.shape == 0.9), "0.9 quantile"),
    "the gap of a parabola": ("gap_condition", widths(lambda p: p.loss.name == "huber"), "huber"),
    "a share a column": ("screening", peeled, "size 3"),
    "votes": ("lasso_votes", one_block, "blocks=5"),
}


@pytest.mark.parametrize("name", BREAKS)
def test_a_break_is_seen(name, monkeypatch):
    claim, apply, where = BREAKS[name]
    members = [v for v in VARIANTS.values() if v.name.startswith(f"selection.{claim}[") and where in v.name]
    apply(monkeypatch)
    assert any(found(variant)[2] for variant in members), [v.name for v in members]


def test_a_check_of_a_claim_runs_its_family():
    (claim,) = (c for c in claims() if c.name == "selection.screening")
    told = price.check(claim, [], family.variants(claim))
    assert told.verdict is Verdict.HOLDS
    assert told.tried == 6
