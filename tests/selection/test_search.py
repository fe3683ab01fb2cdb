"""Proven lists: equal to enumeration on random instances, golden orders, edge cases, limits."""

from __future__ import annotations

import numpy as np
import pytest
from instances import random_problem

from confide.selection import best_by_mistakes, best_supports
from confide.selection.enumeration import all_supports


def check_list(made, supports, scores, count):
    found = best_supports(made, count)
    m = min(count, len(scores))
    assert found.certified
    assert found.gap == 0
    assert np.array_equal(found.scores, np.sort(scores)[:m] + made.origin)
    assert np.array_equal(made.centred_scores(found.columns) + made.origin, found.scores)
    assert len(np.unique(found.columns, axis=0)) == m
    assert np.all(np.diff(found.columns, axis=1) > 0)
    return found


def check_levels(made, supports, scores):
    found = best_by_mistakes(made)
    assert found.certified
    mistakes = made.size - np.isin(supports, found.columns[0]).sum(axis=1)
    for t in range(min(made.size, made.p - made.size) + 1):
        assert found.scores[t] == scores[mistakes == t].min() + made.origin
        assert (~np.isin(found.columns[t], found.columns[0])).sum() == t
    assert found.scores.size == min(made.size, made.p - made.size) + 1


@pytest.mark.parametrize("seed", range(60))
def test_lists_equal_enumeration(seed):
    made = random_problem(seed, most=9)
    supports = all_supports(made)
    scores = made.centred_scores(supports)
    for count in (1, 3, 2 + (made.p - made.size) * made.size):
        check_list(made, supports, scores, count)
    check_levels(made, supports, scores)
