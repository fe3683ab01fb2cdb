"""No bound lies above a true score: every bucket of random partitions, by enumeration; every loss."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from instances import LOSSES, random_problem

from confide.mechanisms import seeded_stream
from confide.selection.columns import Columns
from confide.selection.draws import make_bounder, make_envelope
from confide.selection.exponent import exponent
from confide.selection.gram import Gram


def members(problem, bucket):
    taken = {*bucket.pinned, *bucket.excluded}
    free = [j for j in range(problem.p) if j not in taken]
    for T in combinations(free, bucket.left):
        yield T, tuple(sorted((*bucket.pinned, *T)))


@pytest.mark.parametrize("seed", range(40))
def test_bounds_are_below_scores_and_buckets_partition(seed):
    problem = random_problem(seed, most=10)
    eta = exponent(problem, "exponential", 2.0, "add_remove_one")
    envelope = make_envelope(problem, eta)
    envelope.split(12)
    seen = []
    for bucket in envelope.buckets:
        for T, support in members(problem, bucket):
            seen.append(support)
            score = problem.centred_score(support)
            bound = bucket.bound.base - sum(bucket.bound.logs[j] for j in T) / eta
            assert bound <= score
            # A bound that misses by the whole range of scores would be vacuous.
            assert bound >= score - problem.record_range * (problem.n + 1) * 10 - 1e-6
    assert len(seen) == len(set(seen)) == len(list(combinations(range(problem.p), problem.size)))


@pytest.mark.parametrize("loss", LOSSES)
def test_weights_add_up_to_the_members(loss):
    problem = random_problem(7, loss=loss, most=9)
    eta = exponent(problem, "exponential", 1.0, "replace_one")
    envelope = make_envelope(problem, eta)
    envelope.split(5)
    for bucket in envelope.buckets:
        terms = [
            -eta * (bucket.bound.base - envelope.reference) + sum(bucket.bound.logs[j] for j in T)
            for T, _ in members(problem, bucket)
        ]
        assert bucket.log_weight == pytest.approx(np.logaddexp.reduce(terms), rel=1e-9, abs=1e-9)


def test_the_bound_touches_at_the_support_it_is_linearised_at():
    # One strong support: all mass there, so that the root bucket's bound is nearly its score.
    rng = np.random.default_rng(3)
    X = np.clip(rng.standard_normal((4000, 8)), -0.5, 0.5)
    from confide.selection import SubsetProblem

    problem = SubsetProblem(X, X[:, 2] + X[:, 5], 2, feature_bound=0.5, target_bound=0.5)
    eta = exponent(problem, "exponential", 20.0, "replace_one")
    bound = make_bounder(problem, eta).bound(np.zeros(0, dtype=np.int64), np.ones(8, dtype=bool), 2, None)
    gap = eta * (problem.centred_score((2, 5)) - bound.base) + bound.logs[2] + bound.logs[5]
    assert 0 <= gap < 0.1


@pytest.mark.parametrize("loss", LOSSES)
def test_splitting_does_not_lower_acceptance_for_long(loss):
    problem = random_problem(11, loss=loss)
    envelope = make_envelope(problem, exponent(problem, "exponential", 4.0, "add_remove_one"))
    share = envelope.refine(seeded_stream(0), acceptance=0.9, seconds=20)
    assert share >= 0.9


@pytest.mark.parametrize("loss", LOSSES)
def test_log_weights_stay_as_small_as_epsilon_pays_for(loss, monkeypatch):
    import confide.selection.bounds as bounds
    import confide.selection.certificate as certificate

    for module in (bounds, certificate):
        monkeypatch.setattr(module, "LARGEST", 0.5)
    problem = random_problem(7, loss=loss, most=9)
    eta = exponent(problem, "exponential", 5.0, "replace_one")
    envelope = make_envelope(problem, eta)
    envelope.split(5)
    for bucket in envelope.buckets:
        if bucket.left:
            assert bucket.bound.logs.max() <= 0.5 * eta * problem.record_range
        for T, support in members(problem, bucket):
            assert bucket.bound.base - sum(bucket.bound.logs[j] for j in T) / eta <= problem.centred_score(
                support
            )


def test_curvature_of_sets_wider_than_the_sums_that_are_kept():
    # Equal negative correlations: every row of a set adds to Gershgorin's sum, at any width.
    p = 100
    matrix = np.eye(p) - (np.ones((p, p)) - np.eye(p)) / p
    X = np.linalg.cholesky(matrix).T
    columns = Columns(X, 1.0)
    columns.measure(np.zeros(p))
    gram = Gram(columns)
    assert gram.theta(2) > 0.5
    for width in (2, 64, 65, 100):
        block = matrix[:width, :width]
        assert 0 <= gram.theta(width) <= np.linalg.eigvalsh(block)[0] + 1e-12
