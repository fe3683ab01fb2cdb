from __future__ import annotations

from fractions import Fraction

import mpmath
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from confide.mechanisms.enclosure import LazyUniform, central_normal, exp_minus, pi
from confide.mechanisms.parameters import float_up, root_up
from confide.mechanisms.stream import EntropyError, seeded_stream

rationals = st.one_of(
    st.fractions(min_value=0, max_value=60, max_denominator=10**12),
    st.floats(min_value=0, max_value=1e9).map(Fraction),
    st.floats(min_value=0, max_value=1e-12).map(Fraction),
)
precisions = st.sampled_from([8, 64, 95, 127, 300, 900])


def real(x: Fraction) -> mpmath.mpf:
    return mpmath.mpf(x.numerator) / x.denominator


@settings(max_examples=300, deadline=None)
@given(rationals, precisions)
def test_exp_is_enclosed(y: Fraction, bits: int) -> None:
    with mpmath.workprec(bits + 100 + max(0, int(1.5 * float(min(y, 10**4))))):
        value = mpmath.exp(-real(y)) * mpmath.mpf(2) ** bits
        low, high = exp_minus(y, bits)
        assert low <= value <= high
        assert high - low <= 2


@settings(max_examples=300, deadline=None)
@given(rationals, precisions)
def test_central_normal_is_enclosed(b: Fraction, bits: int) -> None:
    with mpmath.workprec(bits + 200):
        value = (1 - mpmath.erfc(real(b) / mpmath.sqrt(2))) * mpmath.mpf(2) ** bits
        low, high = central_normal(b, bits)
        assert low <= value * (1 + mpmath.mpf(2) ** -(bits + 60))
        assert value <= high
        assert high - low <= 2


@pytest.mark.parametrize("bits", [10, 64, 333, 2000])
def test_pi_is_enclosed(bits: int) -> None:
    with mpmath.workprec(bits + 50):
        low, high = pi(bits)
        assert low <= mpmath.pi * 2**bits <= high
        assert high - low <= 2


def test_lazy_uniform_reveals_bits_only_when_they_matter(fake) -> None:
    third = lambda bits: ((1 << bits) // 3, (1 << bits) // 3 + 1)  # noqa: E731
    source = fake(then=seeded_stream(1))
    assert LazyUniform(0, 64, source).below(third)
    assert not LazyUniform(1 << 63, 64, source).below(third)
    assert source.drawn == 0
    prefix = (1 << 64) // 3
    digits = 0x5555_5555_5555_5555
    assert LazyUniform(prefix, 64, fake([digits - 1])).below(third)
    assert not LazyUniform(prefix, 64, fake([digits + 1])).below(third)


def test_lazy_uniform_ends_on_a_broken_stream(fake) -> None:
    tiny = lambda bits: (0, 1)  # noqa: E731
    with pytest.raises(EntropyError):
        LazyUniform(0, 64, fake(then=0)).below(tiny)


def test_decisions_agree_with_the_bits_they_reveal() -> None:
    source = seeded_stream(5)
    x = lambda bits: exp_minus(Fraction(1), bits)  # noqa: E731
    low, _ = x(600)
    for offset in (-2, -1, 0, 1, 2):
        u = LazyUniform((low >> 536) + offset, 64, source)
        below = u.below(x)
        assert below == ((u.prefix << 600 >> u.bits) < low)


@settings(max_examples=200, deadline=None)
@given(st.fractions(min_value=0, max_value=10**30))
def test_root_and_float_are_rounded_up(x: Fraction) -> None:
    root = root_up(x)
    assert root * root >= x
    assert root * root <= x * (1 + Fraction(1, 2**60))
    assert Fraction(float_up(x)) >= x
