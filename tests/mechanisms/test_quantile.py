"""The proof of QUANTILE_ERROR over the whole table, by interval arithmetic."""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import pairwise

import mpmath
import numpy as np
import pytest
from mpmath import iv

from confide.mechanisms.enclosure import central_normal
from confide.mechanisms.kernels import rounded_normals
from confide.mechanisms.quantile import (
    LEVELS,
    PIECES,
    QUANTILE_ERROR,
    TERMS,
    build_row,
    next_polynomial,
    piece_bounds,
    table,
    to_chebyshev,
)

ORDER = 16
UNIT = 2.0**-53


def interval(x: Fraction | float):
    fraction = Fraction(x)
    return iv.mpf(fraction.numerator) / iv.mpf(fraction.denominator)


def tail(z: Fraction, bits: int = 160) -> tuple[Fraction, Fraction]:
    """Enclose V = P(|Z| > z)."""
    low, high = central_normal(z, bits) if z else (0, 0)
    return 1 - Fraction(high, 1 << bits), 1 - Fraction(low, 1 << bits)


def density(z):
    return iv.exp(-z * z / 2) / iv.sqrt(2 * iv.pi)


def magnitude(x) -> float:
    """Upper bound of |x| for an interval x."""
    return max(abs(float(mpmath.mpf(x.a))), abs(float(mpmath.mpf(x.b)))) * (1 + 1e-12)


def polynomials() -> list[list[int]]:
    result, polynomial = [], [1]
    for n in range(1, ORDER + 1):
        result.append(polynomial)
        polynomial = next_polynomial(polynomial, n)
    return result


DERIVATIVES = polynomials()


def proven_error(row: int, coefficients: list[float]) -> float:
    """Bound |computed z - z(V)| over all V of part `row` and all roundings of the kernel."""
    low, high, exponent = piece_bounds(row)
    start = Fraction(coefficients[0])
    middle_v = Fraction(low + high, 2 ** (exponent + 1))
    half = interval(Fraction(high - low, 2 ** (exponent + 2)))  # of p = V / 2

    # z at the middle, by one step of interval Newton from the stored constant term.
    radius = Fraction(1, 10**12)
    near = iv.mpf([float(start - 2 * radius), float(start + 2 * radius)])
    tail_low, tail_high = tail(start)
    gap = iv.mpf([interval(tail_low - middle_v).a, interval(tail_high - middle_v).b])
    centre = interval(start) + gap / (2 * density(near))
    assert near.a < centre.a <= centre.b < near.b  # so the root of V(z) = middle_v lies in `centre`

    # The range of z over the part, checked at both ends.
    reach = Fraction(abs(coefficients[1])) * Fraction(11, 10)
    least, most = max(Fraction(0), start - reach), start + reach
    assert tail(least)[0] >= Fraction(high, 2**exponent)
    assert tail(most)[1] <= Fraction(low, 2**exponent)
    whole = iv.mpf([interval(least).a, interval(most).b])

    # Taylor at the middle, Lagrange's remainder over the part.
    def taylor(z, n: int):
        factor = (-half / density(z)) ** n / math.factorial(n)
        return factor * iv.mpf(horner(DERIVATIVES[n - 1], z))

    differences = [interval(coefficients[0]) - centre]
    for n in range(1, ORDER):
        stored = interval(coefficients[n]) if n < TERMS else iv.mpf(0)
        differences.append(stored - taylor(centre, n))
    approximation = sum(magnitude(c) for c in to_chebyshev(differences)) + magnitude(taylor(whole, ORDER))

    # Horner (2i + 1 roundings for the term of degree i), t rounded to a double and known to 2^-49.
    rounding = sum((2 * i + 1) * UNIT / (1 - (2 * i + 1) * UNIT) * abs(c) for i, c in enumerate(coefficients))
    position = (2.0**-54 + 2.0**-49) * magnitude(half / density(whole))
    return (approximation + rounding + position) * (1 + 1e-9)


def horner(polynomial: list[int], z):
    result = iv.mpf(0)
    for coefficient in reversed(polynomial):
        result = result * z + coefficient
    return result


def test_the_error_bound_is_proven_on_every_part_of_the_domain() -> None:
    iv.prec = 130
    worst = 0.0
    for row, coefficients in enumerate(table().tolist()):
        worst = max(worst, proven_error(row, coefficients))
    assert worst < QUANTILE_ERROR
    assert worst > QUANTILE_ERROR / 4  # the bound is not idle


def test_the_parts_cover_the_domain() -> None:
    assert table().shape == (LEVELS * PIECES, TERMS)
    ends = sorted(
        (Fraction(a, 2**e), Fraction(b, 2**e)) for a, b, e in map(piece_bounds, range(LEVELS * PIECES))
    )
    assert ends[0][0] == Fraction(1, 2**LEVELS)
    assert ends[-1][1] == 1
    assert all(left[1] == right[0] for left, right in pairwise(ends))


def test_a_damaged_coefficient_is_noticed() -> None:
    iv.prec = 130
    coefficients = table()[100].tolist()
    coefficients[2] += 1e-14
    assert proven_error(100, coefficients) > QUANTILE_ERROR


@pytest.mark.parametrize("row", [0, 1, 31, 32, 500, 1023])
def test_the_shipped_table_is_what_the_generator_makes(row: int) -> None:
    assert build_row(row) == table()[row].tolist()


def test_the_kernel_evaluates_the_part_that_the_bits_name() -> None:
    """Words at the ends, near the middle and at random of every part, against mpmath's erfcinv."""
    rng = np.random.default_rng(1)
    words, exact = [], []
    with mpmath.workdps(40):
        for row in range(0, LEVELS * PIECES, 7):
            low, high, exponent = piece_bounds(row)
            first, last = low << (63 - exponent), (high << (63 - exponent)) - 1
            inner = [first + int(f * (last - first)) for f in (0.5, *rng.random(2))]
            for v in (first, last, *inner):
                sign = int(rng.integers(2))
                words.append(v << 1 | sign)
                middle = (mpmath.mpf(v) + 0.5) / 2**63
                exact.append((-1) ** sign * mpmath.sqrt(2) * mpmath.erfinv(1 - middle))
        words_array = np.array(words, dtype=np.uint64)
        ratio = 2.0**44
        out = np.empty(words_array.size, dtype=np.int64)
        scratch = np.empty_like(out), np.empty_like(out)
        spare = np.full(words_array.size, 1 << 63, dtype=np.uint64)  # the middle of what is unknown
        for array in (words_array, spare):
            array.setflags(write=False)
        rounded_normals(words_array, spare, table(), ratio, 0.0, out, *scratch)
        for k, z in zip(out.tolist(), exact, strict=True):
            assert abs(k / ratio - z) <= QUANTILE_ERROR + 2.0**-44
