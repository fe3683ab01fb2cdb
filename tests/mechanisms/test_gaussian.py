from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from confide.errors import ParameterError
from confide.mechanisms.enclosure import LazyUniform, central_normal
from confide.mechanisms.gaussian import exact_magnitude, rounded_gaussian
from confide.mechanisms.stream import EntropyError, seeded_stream


def pmf(ratio: float, reach: int) -> dict[int, float]:
    """P(round(ratio Z) = k), from complementary errors so that tails keep their digits."""

    def above(x: float) -> float:
        return 0.5 * math.erfc(x / ratio / math.sqrt(2))

    inner = {k: above(k - 0.5) - above(k + 0.5) for k in range(1, reach + 1)}
    return {0: 1 - 2 * above(0.5), **inner, **{-k: p for k, p in inner.items()}}


@pytest.mark.parametrize("ratio", [0.15, 0.4, 1.0, 2.7, 40.0])
def test_law_is_the_rounded_normal(ratio: float, p_value) -> None:
    draws = rounded_gaussian(ratio, 1.0, 400_000, stream=seeded_stream(int(ratio * 100)))
    assert p_value(draws, pmf(ratio, int(8 * ratio) + 8)) > 1e-6


def test_only_the_ratio_of_sigma_and_step_matters() -> None:
    a = rounded_gaussian(3.0, 2.0**-10, 1000, stream=seeded_stream(1))
    b = rounded_gaussian(Fraction(3, 1024), Fraction(1, 2**20), 1000, stream=seeded_stream(1))
    assert np.array_equal(a, b)


@pytest.mark.parametrize("exponent", [20, 40, 46])
def test_fine_grid_is_normal_with_uniform_low_bits(exponent: int, p_value) -> None:
    n = 200_000 if exponent < 46 else 4_000
    draws = rounded_gaussian(2.0**exponent, 1.0, n, stream=seeded_stream(exponent))
    low = draws & 63
    assert p_value(low, dict.fromkeys(range(64), 1 / 64)) > 1e-6
    ranks = np.floor(128 * np.array([0.5 * math.erfc(-z / math.sqrt(2)) for z in draws / 2.0**exponent]))
    assert p_value(ranks.astype(np.int64), dict.fromkeys(range(128), 1 / 128)) > 1e-6


def test_moments() -> None:
    z = rounded_gaussian(2.0**20, 1.0, 10**6, stream=seeded_stream(9)) / 2.0**20
    n = z.size
    assert abs(z.mean()) < 6 / math.sqrt(n)
    assert abs((z**2).mean() - 1) < 6 * math.sqrt(2 / n)
    assert abs((z**3).mean()) < 6 * math.sqrt(15 / n)
    assert abs((z**4).mean() - 3) < 6 * math.sqrt(96 / n)
    assert abs(np.corrcoef(z[:-1], z[1:])[0, 1]) < 6 / math.sqrt(n)


@pytest.mark.parametrize("ratio", [Fraction(1, 7), Fraction(1000, 3), Fraction(2**30), Fraction(2**41)])
def test_every_draw_is_the_correct_rounding(ratio: Fraction, fake) -> None:
    """Against exact arithmetic on the same bits, without the table."""
    n = 1024
    words = seeded_stream(3).bits(n).tolist()
    for i, zeros in enumerate(range(9, 32, 2)):  # leading zeros, refilled from the spare words
        words[50 * i] = words[50 * i] >> zeros | 1 << (63 - zeros)
    rest = seeded_stream(4)
    draws = rounded_gaussian(ratio, 1, n, stream=fake(words, then=rest))
    spare = seeded_stream(4).bits(n // 128 + 8).tolist()
    for word, draw in zip(words, draws.tolist(), strict=True):
        prefix, bits = word >> 1, 63
        zeros = 63 - prefix.bit_length()
        assert zeros < 32
        if zeros >= 8:
            prefix, bits = prefix << zeros | spare.pop(0) >> (64 - zeros), 63 + zeros
        magnitude = exact_magnitude(ratio, LazyUniform(prefix, bits, seeded_stream(5)))
        assert draw == (-magnitude if word & 1 else magnitude)


@settings(max_examples=60, deadline=None)
@given(
    k=st.integers(0, 100),
    ratio=st.sampled_from([Fraction(40), Fraction(2**33), Fraction(10, 3)]),
    sign=st.booleans(),
)
def test_words_beside_a_rounding_boundary(fake, k: int, ratio: Fraction, sign: bool) -> None:
    """V a hair above or below P(|Z| > (k + 1/2) / ratio): the 64th to 190th bits decide, correctly."""
    boundary = Fraction(2 * k + 1, 2) / ratio
    if boundary > 3:
        return
    low, high = central_normal(boundary, 253)
    for v, expected in (((1 << 253) - high - 5, k + 1), ((1 << 253) - low + 5, k)):
        word = (v >> 190) << 1 | sign
        zeros = 63 - (v >> 190).bit_length()
        later = [v >> 126 & ((1 << 64) - 1), v >> 62 & ((1 << 64) - 1), (v << 2) & ((1 << 64) - 1)]
        if zeros >= 8:
            return  # these bits would go through the spare words: see the test above
        stream = fake([word, *[7] * 8, *later], then=0)
        draw = int(rounded_gaussian(ratio, 1, 1, stream=stream)[0])
        assert draw == (-expected if sign else expected)


def test_far_tail_is_exact(fake) -> None:
    """126 leading zero bits: |Z| about 13, beyond any 63-bit uniform."""
    words = [0, *[0] * 8, 1, 1 << 63]
    draw = int(rounded_gaussian(1000.0, 1.0, 1, stream=fake(words, then=0))[0])
    v = 1.5 * 2.0**-127  # 63 zeros, then 63 zeros, a one and a half
    z = draw / 1000
    assert math.erfc((z + 0.0005) / math.sqrt(2)) <= v * (1 + 1e-9)
    assert math.erfc((z - 0.0005) / math.sqrt(2)) >= v


def test_extreme_bits_end_in_a_draw_or_a_clear_error(fake, pattern: int) -> None:
    for ratio in (0.1, 1.0, 2.0**20, 2.0**50):
        try:
            draws = rounded_gaussian(ratio, 1.0, 50, stream=fake(then=pattern))
        except EntropyError:
            assert pattern == 0
        else:
            assert np.all(np.abs(draws) <= 76 * ratio + 1)


def test_one_word_of_zeros_is_a_draw(fake) -> None:
    draws = rounded_gaussian(5.0, 1.0, 3, stream=fake([0, 0, 1], then=seeded_stream(1)))
    assert np.all(np.abs(draws[:2]) > 5 * 9)  # V below 2^-63


@pytest.mark.parametrize("name", ["sigma", "step"])
@pytest.mark.parametrize("bad", [0, -1.0, math.nan, math.inf, True, "1", None])
def test_bad_parameters_are_refused(name: str, bad) -> None:
    with pytest.raises(ParameterError, match=name):
        rounded_gaussian(**{"sigma": 1.0, "step": 1.0, name: bad}, size=1)


def test_overflow_is_refused_from_public_parameters() -> None:
    with pytest.raises(ParameterError, match="step"):
        rounded_gaussian(2.0**51, 1.0, 0)
    assert rounded_gaussian(2.0**50, 1.0, 0).size == 0


@pytest.mark.parametrize("bad", [-1, 1.5, (2, -1), True, "3"])
def test_bad_sizes_are_refused(bad) -> None:
    with pytest.raises(ParameterError, match="size"):
        rounded_gaussian(1.0, 1.0, bad)


def test_sizes_and_types() -> None:
    draws = rounded_gaussian(1.0, 1.0, (3, 4), stream=seeded_stream(1))
    assert draws.shape == (3, 4)
    assert draws.dtype == np.int64
    assert rounded_gaussian(1e-300, 1.0, 100).any() == False  # noqa: E712
    assert rounded_gaussian(5e-324, 1.0, 10).any() == False  # noqa: E712


def test_blocks_are_seamless() -> None:
    z = rounded_gaussian(2.0**20, 1.0, 100_001, stream=seeded_stream(2)) / 2.0**20
    assert abs(z[-1000:].std() - 1) < 0.2
    assert len(np.unique(z)) > 90_000
