from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest

from confide.errors import ParameterError
from confide.mechanisms.discrete import bernoulli_exp, bernoulli_log, discrete_gaussian, discrete_laplace
from confide.mechanisms.enclosure import exp_minus
from confide.mechanisms.stream import EntropyError, seeded_stream
from confide.mechanisms.tables import exp_tables, geometric

ONES = (1 << 64) - 1


def laplace_pmf(scale: float, reach: int) -> dict[int, float]:
    q = math.exp(-1 / scale)
    return {k: (1 - q) / (1 + q) * math.exp(-abs(k) / scale) for k in range(-reach, reach + 1)}


def gaussian_pmf(sigma: float, reach: int) -> dict[int, float]:
    weights = {k: math.exp(-k * k / (2 * sigma * sigma)) for k in range(-reach, reach + 1)}
    total = math.fsum(weights.values())
    return {k: w / total for k, w in weights.items()}


@pytest.mark.parametrize("scale", [0.2, 0.9, 3.0, 11.5, 150.0])
def test_laplace_law(scale: float, p_value) -> None:
    draws = discrete_laplace(scale, 300_000, stream=seeded_stream(int(10 * scale)))
    assert p_value(draws, laplace_pmf(scale, int(40 * scale) + 40)) > 1e-6


@pytest.mark.parametrize("sigma", [0.3, 0.5, 1.0, 1.7, 8.0, 75.5])
def test_gaussian_law(sigma: float, p_value) -> None:
    draws = discrete_gaussian(sigma, 300_000, stream=seeded_stream(int(10 * sigma)))
    assert p_value(draws, gaussian_pmf(sigma, int(12 * sigma) + 12)) > 1e-6


@pytest.mark.parametrize("scale", [2.0**20, 2.0**50])
def test_large_scales_have_the_continuous_shape_and_uniform_low_bits(scale: float, p_value) -> None:
    laplace = discrete_laplace(scale, 100_000, stream=seeded_stream(1))
    gaussian = discrete_gaussian(scale, 100_000, stream=seeded_stream(2))
    for draws in (laplace, gaussian):
        assert p_value(draws & 63, dict.fromkeys(range(64), 1 / 64)) > 1e-6
    z = gaussian / scale
    ranks = np.floor(64 * np.array([0.5 * math.erfc(-x / math.sqrt(2)) for x in z])).astype(np.int64)
    assert p_value(ranks, dict.fromkeys(range(64), 1 / 64)) > 1e-6
    x = laplace / scale
    ranks = np.floor(64 * np.where(x < 0, np.exp(x) / 2, 1 - np.exp(-x) / 2)).astype(np.int64)
    assert p_value(ranks, dict.fromkeys(range(64), 1 / 64)) > 1e-6


@pytest.mark.parametrize("gamma", [Fraction(1, 10**6), 0.1, 1.0, 5.5])
def test_bernoulli_exp_law(gamma, p_value) -> None:
    draws = bernoulli_exp(gamma, 400_000, stream=seeded_stream(1)).astype(np.int64)
    p = math.exp(-gamma)
    assert p_value(draws, {0: -math.expm1(-gamma), 1: p}) > 1e-6
    logs = bernoulli_log(np.full(400_000, -float(gamma)), stream=seeded_stream(2)).astype(np.int64)
    assert p_value(logs, {0: -math.expm1(-gamma), 1: p}) > 1e-6


@pytest.mark.parametrize("gamma", [Fraction(1, 3), 1e-30, 30.0, 100.0])
def test_bernoulli_exp_decides_ties_by_further_bits(gamma, fake) -> None:
    y = Fraction(gamma)
    low, _ = exp_minus(y, 256)
    words = [low >> shift & ONES for shift in (192, 128, 64, 0)]
    below = [*words[:3], max(0, words[3] - 2)]
    above = [*words[:3], words[3] + 2]
    assert bool(bernoulli_exp(gamma, 1, stream=fake(below))[0])
    assert not bool(bernoulli_exp(gamma, 1, stream=fake(above))[0])


@pytest.mark.parametrize("gamma", [Fraction(1, 4), 2.0**-70, 3.0, 120.0, 300.0])
def test_bernoulli_log_decides_ties_by_further_bits(gamma, fake) -> None:
    low, _ = exp_minus(Fraction(gamma), 575)
    words = [(low >> 512) << 1, *[low >> shift & ONES for shift in range(448, -1, -64)]]
    for step, expected in ((-2, True), (2, False)):
        shifted = [*words[:-1], words[-1] + step]
        assert bool(bernoulli_log([-float(gamma)], stream=fake(shifted))[0]) is expected


def test_bernoulli_edge_cases() -> None:
    assert bernoulli_exp(0, 100).all()
    assert not bernoulli_exp(1e300, 100).any()
    assert bernoulli_exp(5e-324, 100).all()
    assert bernoulli_exp(Fraction(1, 10**5000), 10).all()
    assert not bernoulli_exp(Fraction(10**5000), 10).any()
    assert bernoulli_exp(1.0, (2, 3)).shape == (2, 3)
    assert bernoulli_log([0.0] * 50).all()
    assert not bernoulli_log([-math.inf] * 50).any()
    assert bernoulli_log(np.zeros((2, 0))).shape == (2, 0)
    for bad in (-1.0, math.nan, math.inf):
        with pytest.raises(ParameterError, match="gamma"):
            bernoulli_exp(bad, 1)
    for bad in (1e-300, math.nan, math.inf):
        with pytest.raises(ParameterError, match="log_p"):
            bernoulli_log([-1.0, bad])


def test_exp_tables_are_exact_floors() -> None:
    import mpmath

    tables = exp_tables()
    with mpmath.workprec(300):
        for byte in range(8):
            for b in (0, 1, 2, 77, 255):
                exact = mpmath.floor(2**63 * mpmath.exp(-mpmath.mpf(b) * mpmath.mpf(2) ** (8 * byte - 56)))
                assert int(tables[byte, b]) == int(exact)


@pytest.mark.parametrize("scale", [Fraction(1, 3), Fraction(9, 2), Fraction(2**22 + 1, 3), Fraction(2**50)])
def test_digit_thresholds_are_exact_floors(scale: Fraction) -> None:
    import mpmath

    law = geometric(scale)
    base = 1 << law.shift
    assert law.thresholds.shape == (law.levels, base)
    with mpmath.workprec(6000):
        assert mpmath.exp(-(mpmath.mpf(base) ** law.levels) * scale.denominator / scale.numerator) < 2.0**-64
        for level in range(law.levels):
            y = mpmath.mpf(base) ** level * scale.denominator / scale.numerator
            whole = 1 if level == law.levels - 1 else -mpmath.expm1(-base * y)
            for digit in {0, 1, base // 2, base - 2} - {base - 1}:
                exact = mpmath.floor(2**64 * -mpmath.expm1(-(digit + 1) * y) / whole)
                assert int(law.thresholds[level, digit]) == int(exact)
            assert int(law.thresholds[level, base - 1]) == ONES


def test_digits_on_a_threshold_are_settled_by_further_bits(fake) -> None:
    scale = Fraction(3)
    law = geometric(scale)
    assert law.levels == 1
    threshold = int(law.thresholds[0, 4])  # floor of 2^64 P(G <= 4)
    next_word = ((1 << 128) - exp_minus(Fraction(5, 3), 128)[1]) & ONES
    other = [1 << 62]  # the second geometric variable
    second = int(np.searchsorted(law.thresholds[0], 1 << 62))
    for step, digit in ((-5, 4), (5, 5)):
        draw = int(discrete_laplace(scale, 1, stream=fake([threshold, *other, next_word + step]))[0])
        assert draw == digit - second


def test_the_last_digit_is_unbounded(fake) -> None:
    """100 leading ones: P(G >= g) = 2^-100, far beyond the table."""
    law = geometric(Fraction(3))
    assert law.levels == 1
    words = [
        ONES,
        0,
        ONES << 28 & ONES,
        0,
    ]  # first variable, second variable (0), then more bits of the first
    draw = int(discrete_laplace(3, 1, stream=fake(words))[0])
    assert draw == math.floor(3 * 100 * math.log(2))


@pytest.mark.parametrize("sampler", [discrete_laplace, discrete_gaussian])
@pytest.mark.parametrize("scale", [1e-300, 0.1, 1.0, 3.7, 2.0**30, 2.0**50])
def test_extreme_bits(sampler, scale: float, fake, pattern: int) -> None:
    try:
        draws = sampler(scale, 40, stream=fake(then=pattern))
    except EntropyError:
        pass
    else:
        assert np.all(np.abs(draws) <= 2840 * (scale + 1))
    few = sampler(scale, 40, stream=fake([pattern] * 7, then=seeded_stream(1)))
    assert few.shape == (40,)


@pytest.mark.parametrize("sampler", [discrete_laplace, discrete_gaussian])
def test_bad_scales_are_refused(sampler) -> None:
    for bad in (0, -1, math.nan, math.inf, True, "2"):
        with pytest.raises(ParameterError):
            sampler(bad, 1)
    with pytest.raises(ParameterError, match="2\\^50"):
        sampler(2.0**50 * 1.01, 1)
    assert sampler(1.0, 0).size == 0
    assert sampler(1.0, (2, 3)).shape == (2, 3)
    assert not sampler(1e-300, 100).any()


def test_acceptance_agrees_with_exact_arithmetic(fake) -> None:
    """The fixed-point acceptance of the discrete Gaussian against rationals, on the same bits."""
    from confide.mechanisms.discrete import _fixed_point
    from confide.mechanisms.kernels import accept_gaussian

    rng = np.random.default_rng(1)
    for sigma in (Fraction(0.02), Fraction(1, 2), Fraction(5), Fraction(2**20 + 1, 3), Fraction(2.0**50)):
        t = math.floor(sigma) + 1
        n = 300
        magnitudes = np.floor(float(sigma) * rng.exponential(3, n)).astype(np.int64)
        words = seeded_stream(8).bits(n).reshape(n, 1)
        signs, doubtful = np.empty(n, np.int8), np.empty(n, np.int64)
        inverse, shift, offset = _fixed_point(sigma)
        doubts = accept_gaussian(words, magnitudes, 0, inverse, shift, offset, exp_tables(), signs, doubtful)
        assert doubts == 0
        for g, word, sign in zip(magnitudes.tolist(), words[:, 0].tolist(), signs.tolist(), strict=True):
            low, high = exp_minus((g - sigma * sigma / t) ** 2 / (2 * sigma * sigma), 100)
            accepted = (word >> 1) << 37 < low
            assert accepted == ((word >> 1) << 37 < high)
            negative = word & 1
            assert sign == (0 if not accepted or (negative and g == 0) else (-1 if negative else 1))


def test_minus_zero_is_rejected_on_the_exact_path_too(fake) -> None:
    thresholds = geometric(Fraction(2)).thresholds[0]
    low, _ = exp_minus(Fraction(1, 8), 63)  # sigma = 1, t = 2, g = 0: the word ties, and zeros follow
    one = (int(thresholds[0]) + int(thresholds[1])) // 2
    words = [0, low << 1 | 1, one, 0, *[0] * 126]
    assert discrete_gaussian(1, 1, stream=fake(words)).tolist() == [1]
    plus_zero = [0, low << 1, one, 0, *[0] * 126]
    assert discrete_gaussian(1, 1, stream=fake(plus_zero)).tolist() == [0]


def test_doubtful_acceptances_are_few_but_found() -> None:
    """A word equal to the computed probability lies inside the band, whatever the rounding."""
    from confide.mechanisms.discrete import _fixed_point
    from confide.mechanisms.kernels import accept_gaussian

    sigma = Fraction(100)
    g = np.arange(0, 400, dtype=np.int64)
    words = np.empty((g.size, 1), dtype=np.uint64)
    for i in range(g.size):
        low, _ = exp_minus((i - sigma * sigma / 101) ** 2 / (2 * sigma * sigma), 63)
        words[i, 0] = min(low, (1 << 63) - 1) << 1
    words.setflags(write=False)
    signs, doubtful = np.empty(g.size, np.int8), np.empty(g.size, np.int64)
    assert accept_gaussian(words, g, 0, *_fixed_point(sigma), exp_tables(), signs, doubtful) == g.size


def test_opendp_draws_from_the_same_laws(p_value) -> None:
    dp = pytest.importorskip("opendp.prelude", reason="opendp, the oracle of the dev extra, is not installed")
    dp.enable_features("contrib")
    domain = dp.vector_domain(dp.atom_domain(T="i64"), 40_000)
    zeros = [0] * 40_000
    laplace = dp.m.make_laplace(domain, dp.l1_distance(T="i64"), scale=4.5)
    gaussian = dp.m.make_gaussian(domain, dp.l2_distance(T=float), scale=3.25)
    assert p_value(np.array(laplace(zeros)), laplace_pmf(4.5, 300)) > 1e-6
    assert p_value(np.array(gaussian(zeros)), gaussian_pmf(3.25, 60)) > 1e-6
    ours_laplace = discrete_laplace(4.5, 40_000, stream=seeded_stream(1))
    ours_gaussian = discrete_gaussian(3.25, 40_000, stream=seeded_stream(1))
    assert p_value(ours_laplace, laplace_pmf(4.5, 300)) > 1e-6
    assert p_value(ours_gaussian, gaussian_pmf(3.25, 60)) > 1e-6
    # Its privacy map for one unit of L1 distance is our cost: 1 / scale.
    assert laplace.map(d_in=1) == pytest.approx(1 / 4.5, rel=1e-12)
