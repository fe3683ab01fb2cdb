"""Record and replay: what noise is added to moves by at most its declared sensitivity; the audit's verdict."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from scipy.stats import beta

from confide.mechanisms import os_stream, seeded_stream
from confide.training.labels.additive import GaussianLabels, LaplaceLabels, label_statistic
from confide.training.labels.binned import BinnedLabels
from confide.training.labels.labels import LabelRange, count_statistic, onto_simplex, released_counts
from confide.training.labels.llp import Bags
from confide.training.labels.randomized_response import RandomizedResponse
from confide.training.labels.rounding import RoundedLabels

RANGE = LabelRange(-2.0, 10.0)
EXTREMES = [-2.0, 10.0, 3.9999, 1e6, -1e6, 1e308, -1e308, np.nan, np.inf, -np.inf, 5e-324]


def neighbours(n=30):
    rng = np.random.default_rng(0)
    base = rng.uniform(-2, 10, n)
    for row in (0, n - 1):
        for old in EXTREMES:
            for new in EXTREMES:
                first, second = base.copy(), base.copy()
                first[row], second[row] = old, new
                yield first, second


def test_labels_move_by_their_sensitivity_at_most():
    step = 2.0**-20
    moves = []
    for first, second in neighbours():
        a, b = label_statistic(RANGE, first, step), label_statistic(RANGE, second, step)
        assert a.sensitivity == b.sensitivity
        difference = (a.value - b.value) * step
        moves.append(np.abs(difference).sum())  # one coordinate: L1 is L2
    assert max(moves) <= a.sensitivity
    assert max(moves) > 0.99 * a.sensitivity


@pytest.mark.parametrize("weights", ["gaussian", "sign"])
@pytest.mark.parametrize("size", [1, 7, 30])
def test_bag_sums_move_by_their_sensitivity_at_most(weights, size):
    step = 2.0**-20
    bags = Bags.of(30, size, weights, 3)
    assert np.abs(bags.weight).max() <= bags.cap
    counts = np.bincount(bags.bag)
    assert counts.max() == min(size, 30)
    assert counts.sum() == 30
    moves = []
    for first, second in neighbours():
        a = bags.statistic(RANGE.normalised(first), step)
        b = bags.statistic(RANGE.normalised(second), step)
        moves.append(np.linalg.norm((a.value - b.value) * step))
    assert max(moves) <= a.sensitivity
    if weights == "sign":
        assert max(moves) > 0.99 * a.sensitivity


def test_counts_move_by_their_sensitivity_at_most():
    cells = tuple(np.linspace(-2, 10, 7).tolist())
    method = BinnedLabels(RANGE, Fraction(1), cells, Fraction(1, 10), None, True)
    moves = []
    for first, second in neighbours():
        a, b = (count_statistic(method.codes(y), 7) for y in (first, second))
        assert a.value.sum() == b.value.sum() == 30
        moves.append((np.abs(a.value - b.value).sum(), np.linalg.norm(a.value - b.value)))
    assert max(moves) == (2, math.sqrt(2))
    assert a.sensitivity >= math.sqrt(2)


def test_the_projection_is_the_closest_point():
    rng = np.random.default_rng(0)
    for _ in range(50):
        values = rng.normal(size=6) * 10
        point = onto_simplex(values, 20.0)
        assert point.min() >= 0
        assert point.sum() == pytest.approx(20)
        # Optimality: the residual is one constant on the support, and no larger off it.
        gap = values - point
        assert np.ptp(gap[point > 0]) == pytest.approx(0, abs=1e-9)
        assert gap[point == 0].max(initial=-np.inf) <= gap[point > 0].max() + 1e-9
    np.testing.assert_array_equal(onto_simplex(np.array([-1.0, 2.0]), 0.0), [1, 1])


def test_released_counts_have_noise_of_their_scale():
    codes = np.repeat(np.arange(4), 10_000)
    draws = np.array([released_counts(codes, 4, Fraction(1, 2), seeded_stream(s)) for s in range(400)])
    # Discrete Laplace of scale 4 has variance 32 (close to 2 scale^2); the projection takes 1/4 of it away.
    assert draws.var(axis=0).mean() == pytest.approx(32 * 0.75, rel=0.2)


METHODS = {
    "rr_on_bins": lambda e: BinnedLabels(RANGE, e, (0.0, 4.0, 8.0), Fraction(0), (3.0, 1.0, 1.0), True),
    "rounding": lambda e: RoundedLabels(RANGE, e),
    "laplace": lambda e: LaplaceLabels(RANGE, e),
    "gaussian": lambda e: GaussianLabels(RANGE, e, Fraction(1, 100)),
    "randomized_response": lambda e: RandomizedResponse((-2.0, 4.0, 10.0), e, Fraction(0), (1.0, 1.0, 1.0)),
}
DRAWS = 100_000


def bound(a, b, point, delta, tail):
    """Lower confidence bound on epsilon from how often each sample lies above `point`."""
    n, hits, alarms = len(a), int((b > point).sum()), int((a > point).sum())
    low = beta.ppf(tail, hits, n - hits + 1) if hits else 0.0
    high = beta.ppf(1 - tail, alarms + 1, n - alarms) if alarms < n else 1.0
    return math.log((low - delta) / high) if low > delta else 0.0


def found_epsilon(first, second, delta, tail=1e-5):
    """Lower bound on epsilon from the best threshold, chosen on one half of the draws, either direction."""
    half, best = DRAWS // 2, 0.0
    for a, b in ((first, second), (second, first), (-first, -second), (-second, -first)):
        points = np.unique(np.quantile(np.concatenate([a[:half], b[:half]]), np.linspace(0, 0.99, 99)))
        points = np.append(points - 1e-9, points + 1e-9)
        chosen = max(points, key=lambda point: bound(a[:half], b[:half], point, delta, tail))
        best = max(best, bound(a[half:], b[half:], chosen, delta, tail))
    return best


@pytest.mark.parametrize("name", METHODS)
def test_no_threshold_beats_the_claim(name):
    def pair(epsilon):
        method = METHODS[name](epsilon)
        return [method.release(np.full(DRAWS, v), os_stream()).values.astype(float) for v in (-2.0, 10.0)]

    delta = 0.01 if name == "gaussian" else 0.0
    claimed = Fraction(1)
    found = found_epsilon(*pair(claimed), delta)
    assert found <= 1
    assert found > 0.4  # the audit sees a good part of what there is
    assert found_epsilon(*pair(Fraction(3, 2)), delta) > (1 if delta == 0 else 0.8)
