"""The dynamic programme against golden cases, enumeration of partitions, and its edge-case table."""

from __future__ import annotations

import itertools
import json
import math
from pathlib import Path

import numpy as np
import pytest

from confide.errors import ParameterError
from confide.training import rr_on_bins

CASES = json.loads((Path(__file__).parents[2] / "golden" / "training" / "rr_bins.json").read_text())


def loss_of(ends, outputs, prior, values, epsilon):
    """Expected squared error of randomised response on given bins, straight from the definition."""
    q, d = math.exp(-epsilon), len(outputs)
    total = 0.0
    for j, (left, right) in enumerate(itertools.pairwise(ends)):
        for i in range(left, right):
            own = (values[i] - outputs[j]) ** 2
            rest = sum((values[i] - z) ** 2 for k, z in enumerate(outputs) if k != j)
            total += prior[i] * (own + q * rest) / (1 + q * (d - 1))
    return total


def best_outputs(ends, prior, values, epsilon):
    q, mean = math.exp(-epsilon), prior @ values
    outputs = []
    for left, right in itertools.pairwise(ends):
        inside = slice(left, right)
        weight = (1 - q) * prior[inside].sum() + q
        outputs.append(((1 - q) * prior[inside] @ values[inside] + q * mean) / weight)
    return outputs


def by_enumeration(counts, values, epsilon):
    prior = np.asarray(counts, float) / np.sum(counts)
    values, k = np.asarray(values, float), len(values)
    best = math.inf
    for size in range(k):
        for cuts in itertools.combinations(range(1, k), size):
            ends = (0, *cuts, k)
            best = min(
                best, loss_of(ends, best_outputs(ends, prior, values, epsilon), prior, values, epsilon)
            )
    return best


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case['hist']}-{case['eps']}")
def test_golden(case):
    found = rr_on_bins(case["hist"], case["values"], case["eps"])
    assert found.loss == pytest.approx(case["loss"], rel=1e-10)
    assert found.loss == pytest.approx(case["brute_loss"], rel=1e-10)
    if case["lp_loss_any_eps_dp_mechanism_output_grid"] is not None:
        assert found.loss == pytest.approx(case["lp_loss_any_eps_dp_mechanism_output_grid"], rel=1e-9)
    assert [(b.start, b.end) for b in found.bins] == [tuple(b[:2]) for b in case["bins"]]
    np.testing.assert_allclose([b.output for b in found.bins], [b[2] for b in case["bins"]], rtol=1e-9)


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("epsilon", [0.1, 1, 3, 6])
def test_no_partition_is_better(seed, epsilon):
    rng = np.random.default_rng(seed)
    k = int(rng.integers(2, 10))
    counts = rng.gamma(0.5, size=k) * (rng.random(k) < 0.8) + np.eye(k)[0] * 1e-3
    values = np.cumsum(rng.gamma(0.7, size=k)) * 10.0 ** rng.integers(-3, 4)
    found = rr_on_bins(counts, values, epsilon)
    assert found.loss == pytest.approx(by_enumeration(counts, values, epsilon), rel=1e-9)
    ends = [0, *(b.end for b in found.bins)]
    prior = counts / counts.sum()
    outputs = [b.output for b in found.bins]
    assert found.loss == pytest.approx(loss_of(ends, outputs, prior, values, epsilon), rel=1e-9)
    assert all(a <= b + 1e-9 * abs(b) for a, b in itertools.pairwise(outputs))


def test_far_values_lose_no_digits():
    counts, values = [3, 1, 1, 4], np.array([0.0, 1.0, 2.0, 3.0])
    near = rr_on_bins(counts, values, 2)
    far = rr_on_bins(counts, values * 1e150 + 1e151, 2)
    assert [b[:2] for b in far.bins] == [b[:2] for b in near.bins]
    assert far.loss == pytest.approx(near.loss * 1e300, rel=1e-9)


def test_epsilon_zero_is_the_mean():
    found = rr_on_bins([1, 3], [0.0, 4.0], 0)
    assert [tuple(b) for b in found.bins] == [(0, 2, 3.0)]
    assert found.loss == pytest.approx(3.0)


@pytest.mark.parametrize("epsilon", [800, 1e6])
def test_huge_epsilon_tells_all_values_apart(epsilon):
    found = rr_on_bins([1, 2, 3], [0.0, 1.0, 5.0], epsilon)
    assert [b[:2] for b in found.bins] == [(0, 1), (1, 2), (2, 3)]
    np.testing.assert_allclose([b.output for b in found.bins], [0, 1, 5], atol=1e-12)
    assert found.loss == pytest.approx(0, abs=1e-12)


def test_one_value_and_no_counts():
    assert [tuple(b) for b in rr_on_bins([7], [2.5], 1).bins] == [(0, 1, 2.5)]
    assert rr_on_bins([0, 0, 0], [0.0, 1.0, 2.0], 1) == rr_on_bins([1, 1, 1], [0.0, 1.0, 2.0], 1)


@pytest.mark.parametrize("epsilon", [0.5, 4, 900])
def test_values_of_count_zero_belong_to_a_bin(epsilon):
    found = rr_on_bins([0, 1, 0, 0, 1, 0], np.arange(6.0), epsilon)
    assert [b.start for b in found.bins] + [6] == [0] + [b.end for b in found.bins]
    assert found.codes().shape == (6,)
    assert np.isfinite(found.means([0, 1, 0, 0, 1, 0], np.arange(6.0))).all()


@pytest.mark.parametrize(
    ("counts", "values"),
    [
        ([], []),
        ([1, 2], [1.0]),
        ([1, -1], [0.0, 1.0]),
        ([1, np.nan], [0.0, 1.0]),
        ([1, np.inf], [0.0, 1.0]),
        ([1, 1], [1.0, 1.0]),
        ([1, 1], [2.0, 1.0]),
        ([1, 1], [0.0, np.inf]),
        ([1, 1], [-1e308, 1e308]),
        (["a", "b"], [0.0, 1.0]),
        ([[1, 1]], [[0.0, 1.0]]),
    ],
)
def test_a_prior_that_is_none(counts, values):
    with pytest.raises(ParameterError):
        rr_on_bins(counts, values, 1)
    with pytest.raises(ParameterError, match="epsilon"):
        rr_on_bins([1, 1], [0.0, 1.0], -1)


def test_thousands_of_values():
    rng = np.random.default_rng(0)
    values = np.sort(rng.gamma(2.0, size=3000))
    found = rr_on_bins(np.ones(3000), values, 3)
    # Local optimality: no bin border can be moved by one value.
    prior = np.full(3000, 1 / 3000)
    ends = [0, *(b.end for b in found.bins)]

    def loss(ends):
        outputs = np.array(best_outputs(ends, prior, values, 3.0))
        errors = (values[:, None] - outputs) ** 2
        own = np.repeat(np.arange(len(outputs)), np.diff(ends))
        q = math.exp(-3.0)
        picked = errors[np.arange(3000), own]
        return float(prior @ ((1 - q) * picked + q * errors.sum(axis=1))) / (1 + q * (len(outputs) - 1))

    assert found.loss == pytest.approx(loss(ends), rel=1e-9)
    for j in range(1, len(ends) - 1):
        for move in (-1, 1):
            moved = [*ends[:j], ends[j] + move, *ends[j + 1 :]]
            assert loss(moved) >= found.loss * (1 - 1e-12)
