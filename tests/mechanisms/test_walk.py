from __future__ import annotations

import math

import mpmath
import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from confide.mechanisms.kernels import exp_fixed
from confide.mechanisms.stream import seeded_stream
from confide.mechanisms.tables import exp_tables
from confide.mechanisms.walk import EXP_ERROR, exp_negative, full_exponent_uniform, tree_walk, weight_tree

ONES = (1 << 64) - 1


@settings(max_examples=300, deadline=None)
@given(st.one_of(st.floats(0, 700), st.floats(0, 1e-3), st.integers(0, 1000).map(lambda k: k * math.log(2))))
def test_exp_is_within_its_error(gap: float) -> None:
    if gap > 700:
        return
    with mpmath.workprec(200):
        exact = mpmath.exp(-mpmath.mpf(gap))
        assert abs(mpmath.mpf(exp_negative(gap, exp_tables())) / exact - 1) <= EXP_ERROR


def test_exp_edge_cases() -> None:
    assert exp_negative(0.0, exp_tables()) == 1.0
    for far in (700.1, 1e300, math.inf, math.nan):
        assert exp_negative(far, exp_tables()) == 0.0


@settings(max_examples=300, deadline=None)
@given(st.integers(0, ONES))
def test_fixed_point_exp_is_at_most_sixteen_units_low(gamma: int) -> None:
    with mpmath.workprec(300):
        exact = 2**63 * mpmath.exp(-mpmath.mpf(gamma) / 2**56)
        value = int(exp_fixed(np.uint64(gamma), exp_tables()))
        assert exact - 16 <= value <= exact


def test_uniform_is_uniform_and_has_53_bits_at_any_exponent() -> None:
    words = seeded_stream(1).bits(200_000)
    draws, position = [], 0
    while True:
        u, position = full_exponent_uniform(words, position)
        if u < 0:
            break
        draws.append(u)
    u = np.array(draws)
    assert abs(u.mean() - 0.5) < 6 / math.sqrt(12 * u.size)
    for level in range(1, 12):
        expected = u.size * 2.0**-level
        assert abs((u < 2.0**-level).sum() - expected) < 6 * math.sqrt(expected)
    small = u[u < 2.0**-8]
    odd = [int(x * 2.0 ** (53 - math.frexp(x)[1])) & 1 for x in small.tolist()]
    assert abs(np.mean(odd) - 0.5) < 6 * 0.5 / math.sqrt(small.size)  # the last bit lives in small draws too


def words_of(*values: int) -> np.ndarray:
    array = np.array(values, dtype=np.uint64)
    array.setflags(write=False)
    return array


def test_uniform_is_rounded_down() -> None:
    assert full_exponent_uniform(words_of(ONES), 0) == (1 - 2.0**-53, 1)
    assert full_exponent_uniform(words_of(1 << 63), 0) == (0.5, 1)
    assert full_exponent_uniform(words_of(1, ONES), 0) == (2.0**-64 * (2 - 2.0**-52), 2)
    assert full_exponent_uniform(words_of(0, 0, 1 << 63), 0) == (2.0**-129, 3)


def test_uniform_says_when_the_words_run_out() -> None:
    assert full_exponent_uniform(words_of(), 0) == (-1.0, 0)
    assert full_exponent_uniform(words_of(5, 0), 1) == (-1.0, 1)
    assert full_exponent_uniform(words_of(ONES, 1), 1) == (-1.0, 1)


def test_uniform_ends_on_zeros_for_ever() -> None:
    u, position = full_exponent_uniform(words_of(*[0] * 40), 0)
    assert u == 2.0**-1022
    assert position <= 17


def test_tree_holds_sums_and_leaves_ties_to_exact_arithmetic() -> None:
    gaps = np.array([0.0, 1.0, math.inf])
    tree = np.empty(8)
    weight_tree(gaps, exp_tables(), tree)
    assert tree[1] == tree[2] + tree[3]
    assert tree[6] == tree[7] == 0.0
    ratio = tree[2] / tree[1]
    words = np.array([[int(ratio * 2**64) if ratio < 1 else ONES, 0], [0, 0]], dtype=np.uint64)
    words.setflags(write=False)
    out, doubtful = np.empty(2, np.int64), np.empty(2, np.int64)
    assert tree_walk(words, tree, out, doubtful) == 1
    assert doubtful[0] == 0
    assert out[1] == 0
