"""Analytic Gaussian calibration against golden multipliers and against 60-digit arithmetic."""

import json
import math

import mpmath
import pytest

from confide.errors import ParameterError
from confide.privacy import gaussian_delta, gaussian_epsilon, gaussian_sigma, noise_multiplier

mpmath.mp.dps = 60
EPSILONS = [0.001, 0.01, 0.1, 0.5, 1, 2, 5, 10, 30, 100]
DELTAS = [0.1, 1e-3, 1e-6, 1e-10, 1e-15]


def true_delta(epsilon, multiplier):
    mu = 1 / mpmath.mpf(multiplier)
    eps = mpmath.mpf(epsilon)
    tail = lambda x: mpmath.erfc(x / mpmath.sqrt(2)) / 2  # noqa: E731
    return tail(eps / mu - mu / 2) - mpmath.exp(eps) * tail(eps / mu + mu / 2)


@pytest.mark.parametrize("epsilon", EPSILONS)
@pytest.mark.parametrize("delta", DELTAS)
def test_sigma_is_safe_and_within_1e_9_of_the_optimum(epsilon, delta):
    sigma = gaussian_sigma(epsilon, delta)
    assert true_delta(epsilon, sigma) <= mpmath.mpf(delta)
    assert true_delta(epsilon, sigma * (1 - 1e-9)) > mpmath.mpf(delta)


@pytest.mark.parametrize("epsilon", EPSILONS)
@pytest.mark.parametrize("multiplier", [0.01, 0.1, 0.5, 1, 3, 50, 1e4])
def test_the_curve_is_an_upper_bound_and_tight(epsilon, multiplier):
    ours, truth = mpmath.mpf(gaussian_delta(epsilon, multiplier)), true_delta(epsilon, multiplier)
    assert ours >= truth
    assert ours <= truth * (1 + mpmath.mpf("1e-8")) + mpmath.mpf("1e-300")


def test_golden_multipliers(golden):
    cases = json.loads((golden / "training" / "index.json").read_text())
    for case in cases["gaussian"]:
        sigma = gaussian_sigma(case["eps"], case["delta"])
        assert sigma == pytest.approx(case["sigma_over_sens"], rel=1e-9)
        assert sigma <= case["classical"]


@pytest.mark.parametrize("index", range(9))
def test_golden_dpsgd_multipliers(golden, index):
    case = json.loads((golden / "training" / "index.json").read_text())["dpsgd"][index]
    for adjacency, key in [("add_remove_one", "add_remove"), ("replace_one", "replace_one")]:
        ours = noise_multiplier(
            case["eps"], case["delta"], steps=case["T"], sampling_probability=case["q"], adjacency=adjacency
        )
        ratio = ours / case[f"{key}_mult_of_clip"]
        assert 0.99 <= ratio <= 1 + 1e-6


def test_epsilon_inverts_sigma_and_never_undershoots():
    for epsilon in EPSILONS:
        sigma = gaussian_sigma(epsilon, 1e-6, 2.5)
        assert gaussian_epsilon(sigma, 1e-6, 2.5) == pytest.approx(epsilon, rel=1e-9)
        assert true_delta(gaussian_epsilon(sigma, 1e-6, 2.5), sigma / 2.5) <= mpmath.mpf("1e-6")


@pytest.mark.parametrize(
    ("multiplier", "delta", "expected"), [(1.0, 0.5, 0.0), (math.inf, 1e-6, 0.0), (0.0, 1e-6, math.inf)]
)
def test_edge_cases_of_epsilon(multiplier, delta, expected):
    # F10: zero is right where delta is at least the total variation (0.383 at multiplier 1).
    assert gaussian_epsilon(multiplier, delta) == expected


def test_sensitivity_scales_and_zero_sensitivity_needs_no_noise():
    assert gaussian_sigma(1, 1e-6, 3.0) == pytest.approx(3 * gaussian_sigma(1, 1e-6), rel=1e-14)
    assert gaussian_sigma(1, 1e-6, 0.0) == 0.0
    assert gaussian_epsilon(0.0, 1e-6, 0.0) == 0.0


@pytest.mark.parametrize(
    ("arguments", "name"),
    [((0, 1e-6), "epsilon"), ((-1, 1e-6), "epsilon"), ((math.nan, 1e-6), "epsilon"), ((math.inf, 1e-6), "epsilon"),
     ((1, 0), "delta"), ((1, 1), "delta"), ((1, math.nan), "delta"), ((1, 1e-6, -1.0), "sensitivity"),
     ((1, 1e-6, math.inf), "sensitivity"), ((1, 1e-6, math.nan), "sensitivity")],
)  # fmt: skip
def test_bad_parameters_are_named(arguments, name):
    with pytest.raises(ParameterError, match=f"'{name}'"):
        gaussian_sigma(*arguments)
