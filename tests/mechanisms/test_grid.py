from __future__ import annotations

import math
import random
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from confide.errors import ParameterError
from confide.mechanisms.gaussian import rounded_gaussian
from confide.mechanisms.grid import (
    LARGEST_VALUE,
    Statistic,
    gaussian_release,
    grid_step,
    grid_sum,
    laplace_release,
    noise_deviation,
    padded_sensitivity,
    round_toward_zero,
    saturated_sum,
    sum_error,
)
from confide.mechanisms.stream import seeded_stream

values = st.floats(-100, 100)
steps = st.integers(-20, 3).map(lambda e: 2.0**e)


def exact_norm_squared(x) -> Fraction:
    return sum((Fraction(v) ** 2 for v in np.ravel(x).tolist()), Fraction(0))


@settings(max_examples=300, deadline=None)
@given(arrays(np.float64, 5, elements=values), arrays(np.float64, 5, elements=values), steps)
def test_rounding_keeps_norms_and_pads_differences(x, y, step: float) -> None:
    a, b = round_toward_zero(x, step), round_toward_zero(y, step)
    unit = Fraction(step)
    assert exact_norm_squared(a) * unit**2 <= exact_norm_squared(x)
    real = exact_norm_squared(
        [Fraction(u) - Fraction(v) for u, v in zip(x.tolist(), y.tolist(), strict=True)]
    )
    on_grid = exact_norm_squared(a - b) * unit**2
    difference = math.sqrt(real) * (1 + 1e-12)
    assert on_grid <= Fraction(padded_sensitivity(difference, step, 5)) ** 2
    taxi = sum(abs(Fraction(u) - Fraction(v)) for u, v in zip(x.tolist(), y.tolist(), strict=True))
    assert int(np.abs(a - b).sum()) * unit <= Fraction(padded_sensitivity(taxi, step, 5, norm=1))


def test_padding_is_attained_up_to_the_last_bit() -> None:
    """The bound is tight: opposite sides of an integer in each coordinate move the difference by nearly h."""
    x, y = np.array([1.0, 1.0]), np.array([1.0, 1.0]) - 1e-9
    moved = np.linalg.norm(round_toward_zero(x, 1.0) - round_toward_zero(y, 1.0))
    assert moved == pytest.approx(math.sqrt(2))
    assert padded_sensitivity(2e-9, 1.0, 2) >= moved


def test_rounding_edge_cases() -> None:
    extreme = np.array([np.nan, np.inf, -np.inf, 1e308, -0.0, 5e-324, -1.9, 1.9])
    got = round_toward_zero(extreme, 1.0)
    assert got.tolist() == [0, LARGEST_VALUE, -LARGEST_VALUE, LARGEST_VALUE, 0, 0, -1, 1]
    assert round_toward_zero(extreme, 2.0**-900).dtype == np.int64
    assert round_toward_zero(3.75, 0.5).item() == 7


@pytest.mark.parametrize("bad", [0.0, -1.0, 0.3, 3.0, math.inf, math.nan, "1", None, 2.0**-1050])
def test_steps_must_be_powers_of_two(bad) -> None:
    with pytest.raises(ParameterError, match="step"):
        round_toward_zero([1.0], bad)


@settings(max_examples=60, deadline=None)
@given(arrays(np.float64, (12, 3), elements=values), st.permutations(range(12)))
def test_sum_does_not_depend_on_the_order_of_rows(rows, order) -> None:
    step = 2.0**-30
    assert np.array_equal(grid_sum(rows, step, 100, rows=12), grid_sum(rows[list(order)], step, 100, rows=12))


def test_float32_order_of_summation_does_not_matter() -> None:
    """K04: 2^24, 1, 1, 1 in float32 sum to 2^24 or 2^24 + 4 by order; here to 2^24 + 3."""
    rows = np.array([[2.0**24], [1], [1], [1]], dtype=np.float32)
    assert grid_sum(rows, 1.0, 2.0**24, rows=4).tolist() == [2**24 + 3]
    assert grid_sum(rows[::-1], 1.0, 2.0**24, rows=4).tolist() == [2**24 + 3]


@settings(max_examples=100, deadline=None)
@given(arrays(np.float64, (6, 4), elements=st.floats(-1, 1)), st.integers(0, 5), steps)
def test_one_row_moves_a_sum_by_its_padded_bound(rows, index: int, step: float) -> None:
    other = rows.copy()
    other[index] = -rows[::-1][index]
    moved = grid_sum(rows, step, 1, rows=6) - grid_sum(other, step, 1, rows=6)
    bound = 2 * math.sqrt(4)  # each row has norm sqrt(4) at most
    assert np.linalg.norm(moved) * step <= padded_sensitivity(bound, step, 4)
    removed = grid_sum(np.delete(rows, index, axis=0), step, 1, rows=6)
    alone = grid_sum(rows, step, 1, rows=6) - removed
    assert np.linalg.norm(alone) * step <= math.sqrt(4)  # norm bounds stay: no padding


def test_overflow_is_refused_from_public_quantities_alone() -> None:
    tiny = 2.0**-50
    for table in (np.zeros((2, 1)), np.ones((2, 1))):
        with pytest.raises(ParameterError, match="64-bit"):
            grid_sum(table, tiny, 10.0, rows=10**6)
    with pytest.raises(ParameterError, match="one number"):
        grid_sum(np.float64(1), 1.0, 1.0, rows=2)


@pytest.mark.parametrize("n", [0, 1, 2, 3, 9, 10])
def test_no_number_of_rows_is_told(n: int) -> None:
    """Past the declared rows all rows are summed, and a sum stays within its range: a row moves it by 2^60."""
    rows = np.full((n, 2), 2.0**60) * [1, -1]
    top = min(n << 60, 1 << 61)
    assert grid_sum(rows, 1.0, 2.0**60, rows=2).tolist() == [top, -top]


def test_a_saturated_sum_is_the_clipped_exact_sum() -> None:
    rng, most = random.Random(0), 1 << 61
    ends = [most, -most, most - 1, 1 - most, 0, 1, -1, 1 << 32, -(1 << 32)]
    for _ in range(2000):
        terms = [rng.choice([*ends, rng.randint(-most, most)]) for _ in range(rng.randint(0, 12))]
        found = saturated_sum((np.array([term], dtype=np.int64) for term in terms), (1,))
        assert found[0] == max(-most, min(most, sum(terms)))


def test_outlying_rows_are_clipped_to_the_public_bound() -> None:
    rows = np.array([[1e308, np.nan, -np.inf], [0.5, 0.5, 0.5]])
    assert grid_sum(rows, 0.25, 1.0, rows=2).tolist() == [6, 2, -2]


@pytest.mark.parametrize("sigma", [1e-200, 0.003, 1.0, 17.3, 1e9])
@pytest.mark.parametrize("dimension", [1, 7, 10_000])
@pytest.mark.parametrize("multiplier", [0.1, 1, 50, 5000])
def test_step_costs_less_than_a_thousandth_of_the_variance(sigma, dimension, multiplier) -> None:
    step = grid_step(sigma, dimension, noise_multiplier=multiplier)
    assert math.frexp(step)[0] == 0.5
    difference = sigma / multiplier
    padded = padded_sensitivity(difference, step, dimension)
    deviation = noise_deviation(padded, multiplier)
    growth = (deviation / sigma) ** 2 + (step / sigma) ** 2 / 12
    assert 1 < growth < 1.001
    assert deviation / step < 2.0**50  # and the sampler accepts it
    assert 2**24 * step * math.sqrt(dimension) <= sigma / 64 * (1 + 1e-9)  # rounding 2^24 rows toward zero


def test_step_is_not_finer_than_needed() -> None:
    assert grid_step(1.0, 1, rows=1) == 2.0**-20
    assert grid_step(1.0, 4, rows=1) == 2.0**-21
    assert grid_step(1.5, 1, rows=1) == 2.0**-20


@pytest.mark.parametrize(
    "bad", [{"sigma": 0}, {"sigma": math.nan}, {"dimension": 0}, {"rows": 0}, {"sigma": 1e-310}]
)
def test_step_refuses_bad_parameters(bad) -> None:
    with pytest.raises(ParameterError):
        grid_step(**{"sigma": 1.0, "dimension": 1, **bad})


@settings(max_examples=200, deadline=None)
@given(
    st.floats(0, 1e6), st.integers(-60, 10), st.integers(1, 10**6), st.floats(0, 1.0), st.sampled_from([1, 2])
)
def test_padded_sensitivity_is_rounded_up(difference, exponent, dimension, error, norm) -> None:
    step = Fraction(2) ** exponent
    got = Fraction(padded_sensitivity(difference, float(step), dimension, error, norm=norm))
    rest = got - Fraction(difference) - 2 * Fraction(error)
    wanted = step * dimension if norm == 1 else step
    scale = 1 if norm == 1 else dimension
    assert rest >= 0
    assert (rest >= wanted) if norm == 1 else (rest**2 >= wanted**2 * scale)
    assert float(got) <= (difference + 2 * error + float(step) * dimension ** (1 / norm)) * (1 + 1e-12)


@settings(max_examples=100, deadline=None)
@given(arrays(np.float64, (40, 2), elements=st.floats(-1, 1)))
def test_float_sums_are_within_their_public_error(products) -> None:
    left, right = products[:, 0], products[:, 1]
    exact = sum((Fraction(a) * Fraction(b) for a, b in products.tolist()), Fraction(0))
    assert abs(Fraction(float(left @ right)) - exact) <= Fraction(sum_error(40, 1.0))
    assert abs(Fraction(float(np.sum(left))) - sum(map(Fraction, left.tolist()), Fraction(0))) <= Fraction(
        sum_error(40, 1.0)
    )


def test_sum_error_is_about_n_u_n_c() -> None:
    assert sum_error(1000, 2.0) == pytest.approx(1000 * 2.0**-53 * 1000 * 2.0, rel=1e-10)
    assert sum_error(1000, 2.0, dimension=9) == pytest.approx(3 * sum_error(1000, 2.0), rel=1e-10)
    # The bound is needed: a sum that stagnates comes near n^2 u c / 2.
    big = [1.0] + [2.0**-53] * 1000
    total = 0.0
    for x in big:
        total += x
    assert Fraction(total) != sum(map(Fraction, big))
    with pytest.raises(ParameterError, match="terms"):
        sum_error(2**53, 1.0)


def statistic(value=(0,), step=1.0, sensitivity=1.0) -> Statistic:
    return Statistic(np.array(value, dtype=np.int64), step, sensitivity, "test")


def test_statistic_is_frozen_and_checked() -> None:
    s = statistic((1, 2))
    with pytest.raises(ValueError, match="read-only"):
        s.value[0] = 3
    with pytest.raises(AttributeError):
        s.step = 2.0  # type: ignore[misc]
    with pytest.raises(ParameterError, match="float64"):
        Statistic(np.array([1.5]), 1.0, 1.0, "x")
    for bad in ({"step": 0.3}, {"sensitivity": 0.0}, {"sensitivity": math.nan}, {"sensitivity": -1}):
        with pytest.raises(ParameterError):
            statistic(**bad)
    edge = statistic((np.iinfo(np.int64).max, np.iinfo(np.int64).min))
    assert edge.value.tolist() == [LARGEST_VALUE, -LARGEST_VALUE]


def test_release_is_value_plus_noise_on_the_grid() -> None:
    s = Statistic(np.array([[5, -7], [0, 1]]), 2.0**-4, 3.0, "table")
    released = gaussian_release(s, 2.0, stream=seeded_stream(1))
    noise = rounded_gaussian(6.0, 2.0**-4, (2, 2), stream=seeded_stream(1))
    assert np.array_equal(released, (s.value + noise) / 16)
    assert released.dtype == np.float64


def test_release_at_the_edge_does_not_overflow() -> None:
    edge = statistic((LARGEST_VALUE, -LARGEST_VALUE))
    released = gaussian_release(edge, 2.0**49, stream=seeded_stream(1))
    assert np.all(np.abs(released) > 2.0**60)
    assert np.sign(released).tolist() == [1, -1]


@pytest.mark.parametrize("bad", [0, -1, math.nan, math.inf])
def test_release_without_noise_is_refused(bad) -> None:
    with pytest.raises(ParameterError):
        gaussian_release(statistic(), bad)
    with pytest.raises(ParameterError):
        laplace_release(statistic(), bad)


@settings(max_examples=100, deadline=None)
@given(st.floats(1e-6, 1e6), st.floats(1e-3, 1e3))
def test_deviation_is_rounded_up(sensitivity: float, multiplier: float) -> None:
    sigma = Fraction(noise_deviation(sensitivity, multiplier))
    product = Fraction(sensitivity) * Fraction(multiplier)
    assert product <= sigma <= product * (1 + Fraction(1, 2**52))


@pytest.mark.parametrize("pair", [(0.0, 1.0), (0.0, 2.0**20), (1.0, 1 / 3)])
@pytest.mark.parametrize("release", ["gaussian", "laplace"])
def test_reachable_outputs_do_not_tell_true_values_apart(pair, release: str) -> None:
    """K01, K03: every output is a grid point, and all low bits are reached from both true values."""
    step = 2.0**-6
    outputs = []
    for seed, value in enumerate(pair):
        s = Statistic(np.full(100_000, round_toward_zero(value, step)), step, 1.0, "value")
        if release == "gaussian":
            released = gaussian_release(s, 8.0, stream=seeded_stream(seed))
        else:
            released = laplace_release(s, 0.125, l1_sensitivity=1.0, stream=seeded_stream(seed))
        units = released / step
        assert np.array_equal(units, np.rint(units))
        outputs.append(units.astype(np.int64))
    low_bits = [set((units & 255).tolist()) for units in outputs]
    assert low_bits[0] == low_bits[1] == set(range(256))
    if abs(pair[0] - pair[1]) <= 1:  # within three deviations of either value no grid point is left out
        reach = int(8 / step)
        near = [set(units[np.abs(units) < reach].tolist()) for units in outputs]
        assert near[0] == near[1] == set(range(-reach + 1, reach))


def test_laplace_release_has_the_scale_of_its_integer_sensitivity(p_value) -> None:
    n = 200_000
    s = Statistic(np.zeros(n, dtype=np.int64), 0.5, 1.0, "zeros")
    released = laplace_release(s, 0.5, l1_sensitivity=1.2, stream=seeded_stream(3))
    units = (released * 2).astype(np.int64)
    scale = 3 / 0.5  # ceil(1.2 / 0.5) = 3 units
    q = math.exp(-1 / scale)
    assert p_value(units, {k: (1 - q) / (1 + q) * q ** abs(k) for k in range(-200, 201)}) > 1e-6
    # By default the L1 sensitivity is sqrt(d) times the L2 one.
    four = Statistic(np.zeros(4, dtype=np.int64), 1.0, 3.0, "four")
    default = laplace_release(four, 1, stream=seeded_stream(1))
    assert np.array_equal(default, laplace_release(four, 1, l1_sensitivity=6, stream=seeded_stream(1)))
