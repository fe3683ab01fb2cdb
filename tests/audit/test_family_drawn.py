"""Samplers that are walked: their law is the one that is told, and a law at two lengths of a table is one."""

from __future__ import annotations

import math

import numpy as np
import pytest

from confide.audit.family import selection_drawn, selection_earlier
from confide.audit.family.selection import far
from confide.audit.family.selection_drawn import realised
from confide.mechanisms import weighted_choice
from confide.mechanisms.choice import uniform_integers
from confide.selection import SubsetProblem, draw, law
from confide.selection.baselines import LassoVotes, baseline, baseline_law


def _problem(size):
    rows = far("replace_one", size, few=20, many=40).here
    return SubsetProblem(rows.X, rows.y, size, ridge=0.0, feature_bound=1.0, target_bound=1.0)


@pytest.mark.parametrize("method", ["enumeration", "screening", LassoVotes(blocks=5)])
@pytest.mark.parametrize("size", [1, 2])
def test_a_sampler_realises_the_law_that_is_told(method, size):
    def sampler(problem, stream):
        return baseline(problem, method, 1, "replace_one", random_state=stream).supports[0]

    told = baseline_law(_problem(size), method, 1, "replace_one")
    assert realised(sampler, _problem(size)) == pytest.approx(told, rel=1e-9)


@pytest.mark.parametrize("top", [1, 2, 7, 10])
def test_lists_and_tails_realise_the_law_that_is_told(top):
    def sampler(problem, stream):
        return draw(problem, "top_r", 1, "replace_one", top=top, random_state=stream)[0]

    told = law(_problem(2), "top_r", 1, "replace_one", top=top)
    assert realised(sampler, _problem(2)) == pytest.approx(told, rel=1e-9)


def test_every_path_is_taken_once_and_what_has_no_weight_is_not():
    seen = []

    def sampler(problem, stream):
        first = selection_drawn.weighted_choice([0, 1, 3], stream=stream)
        logs = np.array([-math.inf, 0.0, math.log(2)]) if first == 1 else np.zeros(1)
        (second,) = selection_drawn.weighted_choice(log_weights=logs, size=1, stream=stream)
        third = draws.uniform_integers(2, 1, stream)[0] if second == 2 else 0
        seen.append((first, int(second), int(third)))
        return seen[-1]

    from confide.selection import listed as draws

    assert (selection_drawn.weighted_choice, draws.uniform_integers) == (weighted_choice, uniform_integers)
    told = realised(sampler, _problem(1))
    assert told == pytest.approx({(1, 1, 0): 1 / 12, (1, 2, 0): 1 / 12, (1, 2, 1): 1 / 12, (2, 0, 0): 3 / 4})
    assert len(seen) == len(told)


@pytest.mark.parametrize("variant", selection_earlier.FAMILIES["selection.extremes.replace_one"])
def test_a_law_is_the_same_at_lengths_that_no_table_had(variant):
    pair = selection_earlier.far("replace_one")
    first = next(selection_earlier._LENGTHS)
    for rows in (pair.here, pair.there):
        assert not variant.run(rows, None).any()
    assert next(selection_earlier._LENGTHS) == first + 5
