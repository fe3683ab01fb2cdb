"""The normal quantile as a table of polynomials, with an error bound that a test proves.

For V in (0, 1), the function is z(V) with P(|Z| > z) = V, so that |Z| = z(V) for a uniform V. The interval
[2^-LEVELS, 1) is cut into binades [2^-(level+1), 2^-level) and each of them into PIECES equal parts; on each
part z is a polynomial of degree 7 in t in [-1, 1), the position inside the part. Every bit pattern of V
takes the same steps, far tails included: no logarithm, no root, no branch on the magnitude.

The proof of `QUANTILE_ERROR` (tests/mechanisms/test_quantile.py) covers every part by interval arithmetic:
all derivatives of z are explicit, z = Q(p) with p = V/2 and d^n Q/dp^n = P_n(z) / phi(z)^n up to sign, where
P_1 = 1 and P_(n+1) = P_n' + n z P_n. Hence a Taylor polynomial of z with Lagrange's remainder on each part,
from which the stored polynomial differs by little; the rounding of Horner's scheme is bounded a priori.
"""

from __future__ import annotations

from functools import lru_cache
from importlib.resources import files
from io import BytesIO
from typing import Any

import numpy as np
from numpy.typing import NDArray

#: Binades of V in the table. A V below 2^-32 (|Z| above 6.3) is left to exact arithmetic.
LEVELS = 32
#: Equal parts of each binade.
PIECES = 32
#: Coefficients of each polynomial.
TERMS = 8
#: Proven: |computed z - z(V)| is below this for every real V that shares the bits which the kernel used.
QUANTILE_ERROR = 2.0**-49


@lru_cache(maxsize=1)
def table() -> NDArray[np.float64]:
    """Return the coefficients, [LEVELS * PIECES, TERMS], constant term first, read-only."""
    data = files("confide.mechanisms").joinpath("quantile_table.npy").read_bytes()
    coefficients = np.load(BytesIO(data), allow_pickle=False)
    coefficients.setflags(write=False)
    return coefficients


def piece_bounds(row: int) -> tuple[int, int, int]:
    """Return integers (a, b, e): part `row` is the interval [a, b] / 2^e of V."""
    level, piece = divmod(row, PIECES)
    return PIECES + piece, PIECES + piece + 1, level + 1 + PIECES.bit_length() - 1


def build_row(row: int) -> list[float]:
    """Compute the coefficients of part `row` (needs mpmath, of the dev extra; the table is shipped).

    Taylor's polynomial of order 20 at the middle, in 60 digits, economised: its Chebyshev expansion on the
    part, cut at degree 7, is within a few per cent of the best polynomial of that degree.
    """
    import mpmath

    with mpmath.workdps(60):
        low, high, exponent = piece_bounds(row)
        middle = mpmath.mpf(low + high) / 2 ** (exponent + 2)  # p = V / 2
        half = mpmath.mpf(high - low) / 2 ** (exponent + 2)
        z = mpmath.sqrt(2) * mpmath.erfinv(1 - 2 * middle)
        density = mpmath.npdf(z)
        taylor, polynomial, factor = [z], [mpmath.mpf(1)], mpmath.mpf(1)
        for n in range(1, 21):
            factor *= -half / density / n
            taylor.append(factor * sum(c * z**power for power, c in enumerate(polynomial)))
            polynomial = next_polynomial(polynomial, n)
        chebyshev = to_chebyshev(taylor)[:TERMS]
        return [float(c) for c in from_chebyshev(chebyshev)]


def next_polynomial(polynomial: list[Any], n: int) -> list[Any]:
    """Return P_(n+1) = P_n' + n z P_n as coefficients, constant term first."""
    result = [0 * polynomial[0]] + [n * c for c in polynomial]
    for power in range(1, len(polynomial)):
        result[power - 1] = result[power - 1] + power * polynomial[power]
    return result


def to_chebyshev(monomials: list[Any]) -> list[Any]:
    """Return the Chebyshev coefficients of a polynomial (any number type with +, *, /2)."""
    result: list[Any] = []
    for coefficient in reversed(
        monomials
    ):  # Horner: result * t + coefficient, t T_n = (T_(n+1) + T_|n-1|) / 2
        shifted = [0 * coefficient] * (len(result) + 1)
        for n, value in enumerate(result):
            if n == 0:
                shifted[1] = shifted[1] + value
            else:
                shifted[n - 1] = shifted[n - 1] + value / 2
                shifted[n + 1] = shifted[n + 1] + value / 2
        shifted[0] = shifted[0] + coefficient
        result = shifted
    return result


def from_chebyshev(chebyshev: list[Any]) -> list[Any]:
    """Return the monomial coefficients of a Chebyshev expansion."""
    size = len(chebyshev)
    result = [0 * chebyshev[0]] * size
    before, current = [1] + [0] * (size - 1), [0, 1] + [0] * (size - 2)
    for n, value in enumerate(chebyshev):
        basis = before if n == 0 else current
        result = [r + value * b for r, b in zip(result, basis, strict=True)]
        if n >= 1:
            shifted = [0, *current[:-1]]
            before, current = current, [2 * s - b for s, b in zip(shifted, before, strict=True)]
    return result


def build_table() -> NDArray[np.float64]:
    """Compute the whole table anew (a minute; needs mpmath)."""
    return np.array([build_row(row) for row in range(LEVELS * PIECES)])
