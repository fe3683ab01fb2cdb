"""The noise against its law: no false alarm, and what a small change of the noise shows."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest

from confide.audit import claims, noise
from confide.audit.finding import Verdict
from confide.mechanisms import (
    discrete_gaussian,
    discrete_laplace,
    grid,
    rounded_gaussian,
    seeded_stream,
)
from confide.training import objective
from confide.training.sgd import release

#: Below every level that Holm's rule compares a p-value of a whole audit with.
LEVEL = 1e-3 / 1000
RELEASES = (
    "mechanisms.gaussian_release",
    "mechanisms.laplace_release",
    "training.adassp.replace_one",
    "training.noisy_statistics.replace_one",
    "training.dpsgd.linear",
    "labels.LabelPrivatizer",
)


def found(name, *, full=False):
    (claim,) = (c for c in claims() if c.name == name)
    return noise.check(claim, next(iter(claim.pairs())), seeded_stream(5), full=full)


def scaled(monkeypatch, share):
    """Multiply the scale of all noise in private copies of the draws."""
    share = Fraction(share)

    def normal(sigma, step, size, *, stream=None):
        return rounded_gaussian(Fraction(sigma) * share, step, size, stream=stream)

    def laplace(scale, size, *, stream=None):
        return discrete_laplace(Fraction(scale) * share, size, stream=stream)

    for module in (grid, release, objective):
        monkeypatch.setattr(module, "rounded_gaussian", normal)
    monkeypatch.setattr(grid, "discrete_laplace", laplace)


@pytest.mark.parametrize("name", [*RELEASES, "training.objective", "training.objective.gaussian"])
def test_true_noise_has_its_law(name):
    assert found(name).p_value > 1e-3


@pytest.mark.parametrize("name", RELEASES)
def test_noise_of_nineteen_twentieths_is_caught_in_a_quick_audit(name, monkeypatch):
    scaled(monkeypatch, "0.95")
    assert found(name).p_value < LEVEL


@pytest.mark.parametrize("name", ["training.objective", "training.objective.gaussian"])
def test_nine_tenths_of_the_noise_of_an_objective_are_caught_in_a_quick_audit(name, monkeypatch):
    scaled(monkeypatch, "0.9")
    assert found(name).p_value < LEVEL


@pytest.mark.parametrize("name", RELEASES)
def test_noise_of_ninety_nine_hundredths_is_caught_in_a_full_audit(name, monkeypatch):
    scaled(monkeypatch, "0.99")
    assert found(name, full=True).p_value < LEVEL


def _one_for_all(value, count, stream):
    return np.repeat(rounded_gaussian(1000, 1, 1, stream=stream), count)


def _twice(value, count, stream):
    return np.tile(rounded_gaussian(1000, 1, count // 2, stream=stream), 2)


def _cut_off(value, count, stream):
    return np.clip(rounded_gaussian(1000, 1, count, stream=stream), -3000, 3000)


def _shifted(value, count, stream):
    return rounded_gaussian(1000, 1, count, stream=stream) + 50


def _uniform(value, count, stream):
    return (stream.bits(count) % np.uint64(3464)).astype(np.int64) - 1732


def _true(value, count, stream):
    return rounded_gaussian(1000, 1, count, stream=stream)


@pytest.mark.parametrize(
    ("draw", "wrong"),
    [
        (_one_for_all, True),
        (_twice, True),
        (_cut_off, True),
        (_shifted, True),
        (_uniform, True),
        (_true, False),
    ],
)
def test_what_the_statistics_see(draw, wrong):
    rng = np.random.default_rng(0)
    units = draw(0, 40_000, seeded_stream(2))
    told = noise.p_value(noise.spread(units, noise.gaussian(1000.0), rng))
    assert (told < LEVEL) is wrong


@pytest.mark.parametrize("draw", ["laplace", "gaussian", "narrow", "discrete gaussian"])
def test_p_values_are_no_smaller_than_uniform_ones(draw):
    rng, made = np.random.default_rng(1), []
    for i in range(150):
        child = seeded_stream(i)
        if draw == "laplace":
            numbers = noise.spread(discrete_laplace(3, 300, stream=child), noise.laplace(3.0), rng)
        elif draw == "discrete gaussian":
            units = discrete_gaussian(2, 300, stream=child)
            numbers = noise.spread(units, noise.discrete_gaussian(2.0), rng)
        else:
            sigma = 0.2 if draw == "narrow" else 1e6
            units = rounded_gaussian(Fraction(sigma), 1, 300, stream=child)
            numbers = noise.spread(units, noise.gaussian(sigma), rng)
        made.append(noise.p_value(numbers))
    assert np.mean(np.array(made) <= 0.1) <= 0.2
    assert min(made) > 1e-4


@pytest.mark.parametrize(
    ("above", "mass"),
    [
        (noise.laplace(2.5), lambda k: math.tanh(0.2) * math.exp(-k / 2.5)),
        (noise.gaussian(2.0), lambda k: (math.erf((k + 0.5) / 8**0.5) - math.erf((k - 0.5) / 8**0.5)) / 2),
        (
            noise.discrete_gaussian(2.0),
            lambda k: math.exp(-k * k / 8) / sum(math.exp(-j * j / 8) for j in range(-60, 61)),
        ),
    ],
)
def test_laws(above, mass):
    k = np.arange(1, 12)
    np.testing.assert_allclose(above(k) - above(k + 1), [mass(int(j)) for j in k], rtol=1e-9)
    assert 1 - 2 * above(np.array([1]))[0] == pytest.approx(mass(0))


def test_bounds_of_the_gamma_law_contain_it():
    from scipy.special import gammainc, gammaincc

    for shape in (1.0, 50.0, 5000.0):
        for total in shape * np.array([0.3, 0.9, 1.1, 2.0]):
            exact = 2 * min(gammainc(shape, total), gammaincc(shape, total))
            assert noise._gamma(float(total), shape) >= min(1.0, exact)


def test_massarts_constant_against_exact_laws():
    from scipy.stats import kstwo

    for count in (1, 10, 1000):
        for most in (0.05, 0.2, 0.6):
            values = np.linspace(0, 1 - most, count)
            steps = np.arange(count + 1) / count
            largest = max((steps[1:] - values).max(), (values - steps[:-1]).max())
            assert noise.uniform_p_value(values) >= min(1.0, kstwo.sf(largest, count)) - 1e-12


def test_a_sequence_that_ends_early_is_filled_up():
    rng = np.random.default_rng(0)
    short = noise.spread(np.array([0, 3, -2]), noise.laplace(2.0), rng)
    whole = short.first(1000, rng)
    assert whole.tail.size == 1000
    np.testing.assert_array_equal(whole.tail[:3], short.tail)
    assert noise.p_value(whole) > 1e-3
    assert short.first(2, rng).sign.size == 2


def test_noise_that_depends_on_the_dimension_is_not_hidden_by_copies(monkeypatch):
    def less(statistic, multiplier, *, stream=None):
        share = Fraction(1) if statistic.value.size > 1000 else Fraction(1, 2)
        return grid_release(statistic, Fraction(multiplier) * share, stream=stream)

    grid_release = grid.gaussian_release
    (claim,) = (c for c in claims() if c.name == "training.adassp.replace_one")
    pair = next(iter(claim.pairs()))
    monkeypatch.setattr(grid, "gaussian_release", less)
    assert noise.check(claim, pair, seeded_stream(1), full=False).p_value < LEVEL


def test_steps_that_use_noise_twice_are_caught(monkeypatch):
    true = release.rounded_gaussian

    def same(sigma, step, size, *, stream=None):
        return np.tile(true(sigma, step, (1, size[1]), stream=stream), (size[0], 1))

    monkeypatch.setattr(release, "rounded_gaussian", same)
    assert found("training.dpsgd.linear").p_value < LEVEL


def test_inputs_whose_answers_round_the_noise_are_left_out():
    call = noise.Call(
        next(m for m in noise_mechanisms() if m.name == "gaussian_release"),
        ("v", 1.0, 1.0, (2,), Fraction(2), None),
        np.array([2**60, 3]),
        np.array([2.0**60, 4.0]),
    )
    assert noise.added(call, np.random.default_rng(0)).tail.size == 1


def noise_mechanisms():
    from confide.audit.recorded import MECHANISMS

    return MECHANISMS


def test_a_claim_without_such_noise_has_nothing_to_tell():
    assert found("mechanisms.weighted_choice") is None
    told = found("mechanisms.gaussian_release")
    assert (told.layer, told.verdict) == ("noise", Verdict.HOLDS)


def test_scales_are_those_of_the_releases():
    assert noise._scale(("v", 0.25, 1.0, (3,), Fraction(1, 2), None)) == 2 * math.ceil(4 * 3**0.5)
    assert noise._scale(("v", 0.25, 1.0, (3,), Fraction(1, 2), Fraction(2))) == 16.0
