"""Coins of rows: those of two tables agree but for the row that comes, and what hides behind them is seen."""

from __future__ import annotations

from itertools import islice

import numpy as np
import pytest

from confide.audit import coins, replay
from confide.audit.finding import Verdict
from confide.audit.museum.piece import claim
from confide.audit.registry import Pair
from confide.mechanisms import choice
from confide.training.sgd import batches


def test_a_row_more_changes_no_other_coin():
    few, many = (list(islice(coins.batches(n, 2.0, 1), 50)) for n in (8, 9))
    assert all(np.array_equal(one, other[other < 8]) for one, other in zip(few, many, strict=True))
    assert 0 < sum(8 in other for other in many) < 50


def test_coins_have_the_rate_of_the_batches():
    scale = batches.rate_of(3, 12)[0]
    drawn = sum(batch.size for batch in islice(coins.batches(12, scale, 0), 2000))
    assert drawn / 2000 == pytest.approx(3, abs=0.2)


@pytest.mark.parametrize(
    ("size", "told"), [(3, [1, 0, 1]), (2, [1, 0]), (5, [1, 0, 1, 1, 0]), (None, [1, 0, 1])]
)
def test_answers_are_extended_by_places(size, told):
    assert np.array_equal(coins.extended(np.array([1, 0, 1]), size, 2), told)


def _sides(n, stream):
    return np.asarray(choice.weighted_choice([1, 3], size=n, stream=stream))[:4]


def _weighed(n, stream):
    return np.asarray(choice.weighted_choice([1, n - 7], size=n, stream=stream))[:4]


def _more(n, stream):
    return np.asarray(choice.weighted_choice([1, 3], size=2 * n, stream=stream))[:4]


def _some(n, stream):
    return choice.weighted_choice([10, 10 + n], size=40, stream=stream)


@pytest.mark.parametrize(
    ("run", "adjacency", "holds"),
    [
        (_sides, "add_remove_one", True),
        (_sides, "replace_one", False),
        (_weighed, "add_remove_one", False),
        (_more, "add_remove_one", False),
        (_some, "add_remove_one", False),
    ],
)
def test_a_draw_for_each_row_may_have_one_more_where_a_row_comes(run, adjacency, holds):
    made = claim("coins", 1, 0, adjacency, (Pair("a row comes", 8, 9),), run)
    found = replay.check(made, made.pairs())
    assert found is not None
    assert (found.verdict is Verdict.HOLDS) == holds, found.note
