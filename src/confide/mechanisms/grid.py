"""Releases on a public grid, so that floating point cannot leak (pitfalls K01 to K04).

Values enter a release as integers: multiples of a public step h, a power of two. Where rows are at hand,
each row's contribution is rounded toward zero and the integers are summed, which is exact and does not
depend on the order of rows. Where they are not (matrix products), the float64 sum is rounded once, and a
public bound on its error is added to the sensitivity. The noise is an integer too, so an output is an
integer plus an integer, whatever the data were.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import ArrayLike, NDArray

from confide.errors import ParameterError
from confide.mechanisms.discrete import discrete_laplace
from confide.mechanisms.gaussian import rounded_gaussian
from confide.mechanisms.parameters import Number, float_up, rational, root_up
from confide.mechanisms.stream import RandomStream
from confide.privacy.exact import Amount, exact

#: Grid values are kept within +-2^61 units: twice that, and any noise, fit int64.
LARGEST_VALUE = 1 << 61
_LOW = (1 << 32) - 1


def grid_step(sigma: Number, dimension: int, *, noise_multiplier: Number = 1, rows: int = 1 << 24) -> float:
    """Return a public step so fine that the grid costs less than 0.1 % of the noise variance.

    Parameters
    ----------
    sigma : number
        Deviation of the noise, > 0.
    dimension : int
        Coordinates of the statistic, >= 1.
    noise_multiplier : number
        sigma / sensitivity. The padding h sqrt(d) is charged relative to the sensitivity, so much noise needs
        a finer grid; the default serves multipliers up to 400.
    rows : int
        Public: rounding toward zero shrinks a sum by less than h a row, and the step keeps
        rows * h below sigma / (64 sqrt(d)).

    Returns
    -------
    float
        A power of two h with h <= sigma / sqrt(d) * min(2^-20, 2^-12 / noise_multiplier, 1 / (64 rows)).

    Notes
    -----
    Variance grows by (1 + h sqrt(d) / D)^2 from the padding, at most 1 + 5e-4, and by h^2 / (12 sigma^2)
    < 1e-13 from rounding.

    ============================================  =====================================================
    edge case                                     what happens
    ============================================  =====================================================
    sigma 0, NaN, infinite; dimension or rows 0   ParameterError
    sigma so small that h would be subnormal      ParameterError
    ============================================  =====================================================
    """
    _positive_integer(dimension, "dimension")
    _positive_integer(rows, "rows")
    width = rational(sigma, "sigma", positive=True)
    multiplier = rational(noise_multiplier, "noise_multiplier", positive=True)
    share = min(Fraction(1, 2**20), 1 / (4096 * multiplier), Fraction(1, 64 * rows))
    target = width * share / root_up(Fraction(dimension))
    exponent = target.numerator.bit_length() - target.denominator.bit_length()
    if Fraction(2) ** exponent > target:
        exponent -= 1
    if not -1000 < exponent < 1000:
        raise ParameterError(
            f"The 'sigma' parameter {sigma!r} leaves no step that a double can hold.", "Rescale the data."
        )
    return 2.0**exponent


def check_step(step: float) -> float:
    """Return `step` if it is a power of two between 2^-1000 and 2^1000: then division by it is exact."""
    if not (isinstance(step, float | int) and 0 < step < math.inf and math.frexp(step)[0] == 0.5):
        raise ParameterError(
            f"The 'step' parameter is {step!r}.", "Pass a power of two, as grid_step returns."
        )
    if not -1000 <= math.frexp(step)[1] <= 1001:
        raise ParameterError(
            f"The 'step' parameter is {step!r}.", "Rescale the data: the step is too extreme."
        )
    return float(step)


def round_toward_zero(values: ArrayLike, step: float) -> NDArray[np.int64]:
    """Return trunc(value / step) as integers.

    Parameters
    ----------
    values : float array of any shape
    step : float
        A power of two.

    Returns
    -------
    int64 array of the same shape

    Raises
    ------
    ParameterError
        If `step` is no power of two. Never because of a value: neighbouring tables take the same path.

    Notes
    -----
    |trunc(x)| <= |x|, so every bound on a norm stays. |trunc(x) - trunc(y)| <= |x - y| + 1 in units of the
    step (the two fractional parts that are cut differ by less than 1 in the bad direction), so an L2 bound D
    on a difference in d coordinates becomes D + h sqrt(d), an L1 bound D + h d.

    ===============================  ==================================================================
    edge case                        what happens
    ===============================  ==================================================================
    NaN                              0
    +-infinity, beyond 2^61 steps    +-2^61 (clipping moves no two values further apart)
    -0.0, subnormal                  0
    step not a power of two          ParameterError
    ===============================  ==================================================================
    """
    width = check_step(step)
    array = np.asarray(values, dtype=np.float64)
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        scaled = np.nan_to_num(array / width, nan=0.0, posinf=math.inf, neginf=-math.inf)
        limit = float(LARGEST_VALUE)
        return np.trunc(np.clip(scaled, -limit, limit)).astype(np.int64)


def grid_sum(contributions: ArrayLike, step: float, bound: Number, *, rows: int) -> NDArray[np.int64]:
    """Round each row's contribution toward zero to the grid and sum over rows, in integers.

    Parameters
    ----------
    contributions : float array [n, ...]
        One row a unit; each coordinate is clipped to +-`bound`.
    step : float
        A power of two.
    bound : number
        Public bound on the absolute value of a coordinate of a row.
    rows : int
        Public: sums of so many rows are kept whole. n may be secret, so nothing compares it with this number.

    Returns
    -------
    int64 array [...]
        The same for every order of the rows.

    Raises
    ------
    ParameterError
        If rows * bound / step is above 2^61: public quantities alone decide.

    Notes
    -----
    ===============================  ==================================================================
    edge case                        what happens
    ===============================  ==================================================================
    more rows than `rows`            all are summed; a sum beyond +-2^61 stays there (`saturated_sum`), so
                                     one row moves it by its own bound at most, for every n
    no rows                          0
    ===============================  ==================================================================
    """
    _positive_integer(rows, "rows")
    limit = rational(bound, "bound", positive=True)
    width = check_step(step)
    if rows * (limit / Fraction(width)) > LARGEST_VALUE:
        raise ParameterError(
            f"A sum of {rows} rows within {float(limit):.6g} leaves 64-bit integers at step {width:.6g}.",
            "Choose a coarser step, or declare a smaller bound or fewer rows.",
        )
    array = np.asarray(contributions, dtype=np.float64)
    if array.ndim == 0:
        raise ParameterError("The contributions are one number.", "Pass an array with one row a unit.")
    top = math.floor(limit / Fraction(width))
    values = np.clip(round_toward_zero(array, width), -top, top)
    return _joined((values & _LOW).sum(axis=0, dtype=np.int64), (values >> 32).sum(axis=0, dtype=np.int64))


def saturated_sum(terms: Iterable[NDArray[np.int64]], shape: tuple[int, ...]) -> NDArray[np.int64]:
    """Return the sum of integer arrays, kept within +-2^61.

    Parameters
    ----------
    terms : iterable of fewer than 2^31 int64 arrays of one shape
    shape : tuple of int
        That shape.

    Notes
    -----
    The sum is exact before it is clipped: halves of 32 bits are added apart, since int64 would wrap around at
    some number of terms. So one term more, or another one, moves the result by no more than itself.
    """
    low = high = np.zeros(shape, dtype=np.int64)
    for term in terms:
        low, high = low + (term & _LOW), high + (term >> 32)
    return _joined(low, high)


def _joined(low: NDArray[np.int64], high: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return 2^32 high + low within +-2^61, for 0 <= low < 2^63."""
    high, low = high + (low >> 32), low & _LOW
    edge = LARGEST_VALUE >> 32
    inside = np.clip(high, -edge, edge) * (1 << 32) + np.where(high < -edge, 0, low)
    return np.minimum(inside, LARGEST_VALUE)


def sum_error(terms: int, bound: Number, *, dimension: int = 1) -> float:
    """Return a public bound on the L2 error of `dimension` float64 sums of products, rounded up.

    Parameters
    ----------
    terms : int
        Public bound on the number n of terms of each sum.
    bound : number
        Public bound c on the absolute value of a term (of the product, for an inner product).
    dimension : int
        Number d of sums.

    Returns
    -------
    float
        sqrt(d) gamma_n n c, gamma_n = n u / (1 - n u), u = 2^-53.

    Notes
    -----
    Higham, Accuracy and Stability of Numerical Algorithms (2nd ed. 2002), section 3.1, eq. (3.5): however the
    terms are ordered or blocked, with or without fused multiply-add,
    |fl(x'y) - x'y| <= gamma_n |x|'|y|. Underflow is covered by adding n 2^-1074 to each sum.
    """
    _positive_integer(terms, "terms")
    _positive_integer(dimension, "dimension")
    magnitude = rational(bound, "bound")
    unit = Fraction(terms, 2**53)
    if unit >= Fraction(1, 2):
        raise ParameterError(f"The 'terms' parameter is {terms}.", "Sum in blocks of fewer terms.")
    error = unit / (1 - unit) * terms * magnitude + Fraction(terms, 2**1074)
    return float_up(root_up(Fraction(dimension)) * error)


def padded_sensitivity(
    difference: Number, step: float, dimension: int, rounding_error: Number = 0.0, *, norm: int = 2
) -> float:
    """Return the sensitivity on the grid, D + 2e + h sqrt(d), rounded up.

    Parameters
    ----------
    difference : number
        D: bound on the norm of the difference of the real-valued statistic on neighbouring tables.
    step : float
        h: a power of two.
    dimension : int
        d: number of coordinates.
    rounding_error : number
        e: bound on the norm of the computed statistic minus the real one (`sum_error`). 0 where rows are
        rounded and summed as integers.
    norm : {1, 2}
        1 for Laplace noise: D + 2e + h d.

    Notes
    -----
    The computed float statistics of neighbours differ by at most D + 2e, and rounding toward zero adds at
    most h a coordinate (`round_toward_zero`). Where each row is rounded: one row differs, with D its bound.
    """
    _positive_integer(dimension, "dimension")
    if norm not in (1, 2):
        raise ParameterError(f"The 'norm' parameter is {norm!r}.", "Pass 1 or 2.")
    width = Fraction(check_step(step))
    total = rational(difference, "difference") + 2 * rational(rounding_error, "rounding_error")
    return float_up(total + width * (dimension if norm == 1 else root_up(Fraction(dimension))))


@dataclass(frozen=True, eq=False)
class Statistic:
    """A statistic on the grid with its sensitivity: what a solver yields and what noise is added to.

    Parameters
    ----------
    value : int64 array of any shape
        Units of `step`. Kept within +-2^61 by clipping.
    step : float
        A power of two.
    sensitivity : float
        L2 bound on the difference between neighbouring tables, padding included (`padded_sensitivity`).
    name : str
        For the record of what was released.
    """

    value: NDArray[np.int64]
    step: float
    sensitivity: float
    name: str

    def __post_init__(self) -> None:
        array = np.asarray(self.value)
        if array.dtype.kind not in "iu":
            raise ParameterError(
                f"The value of a statistic has type {array.dtype}.", "Round it with round_toward_zero."
            )
        # Clipping is 1-Lipschitz in each coordinate: the sensitivity stays, and no value raises.
        clipped = np.clip(array, -LARGEST_VALUE, LARGEST_VALUE).astype(np.int64)
        clipped.setflags(write=False)
        object.__setattr__(self, "value", clipped)
        object.__setattr__(self, "step", check_step(self.step))
        object.__setattr__(
            self, "sensitivity", float_up(rational(self.sensitivity, "sensitivity", positive=True))
        )
        object.__setattr__(self, "name", str(self.name))


def noise_deviation(sensitivity: Number, noise_multiplier: Number) -> float:
    """Return noise_multiplier * sensitivity, rounded up: the deviation of the Gaussian that is added."""
    product = rational(sensitivity, "sensitivity", positive=True) * rational(
        noise_multiplier, "noise_multiplier", positive=True
    )
    return float_up(product)


def gaussian_release(
    statistic: Statistic, noise_multiplier: Number, *, stream: RandomStream | None = None
) -> NDArray[np.float64]:
    """Release a statistic with exactly rounded Gaussian noise.

    Parameters
    ----------
    statistic : Statistic
    noise_multiplier : number
        sigma / sensitivity, > 0.
    stream : RandomStream, optional

    Returns
    -------
    float64 array of the shape of the statistic
        step * (value + round(Z / step)), Z ~ N(0, sigma^2) independent, sigma = `noise_deviation`.

    Raises
    ------
    ParameterError
        If the multiplier is not a finite number > 0, or sigma / step is above 2^50.

    Notes
    -----
    Equal to rounding (value * step + Z) to the grid, so it is post-processing of the Gaussian mechanism:
    Event.of("gaussian", noise_multiplier=...), with any accounting for the continuous Gaussian.

    ===============================  ==================================================================
    edge case                        what happens
    ===============================  ==================================================================
    multiplier 0                     ParameterError: without noise nothing is private
    values of +-2^61                 no overflow: the noise is below 2^57
    value integers beyond 2^53       rounded to double after the noise, which is post-processing
    same stream seed on neighbours   the exact difference shows: a seeded stream is not certified
    ===============================  ==================================================================
    """
    sigma = noise_deviation(statistic.sensitivity, noise_multiplier)
    noise = rounded_gaussian(sigma, statistic.step, statistic.value.shape, stream=stream)
    return (statistic.value + noise).astype(np.float64) * statistic.step


def laplace_release(
    statistic: Statistic,
    epsilon: Amount,
    *,
    l1_sensitivity: Number | None = None,
    stream: RandomStream | None = None,
) -> NDArray[np.float64]:
    """Release a statistic with discrete Laplace noise on its grid: pure epsilon-DP.

    Parameters
    ----------
    statistic : Statistic
    epsilon : amount
        > 0; a float means its shortest decimal.
    l1_sensitivity : number, optional
        L1 bound on the difference between neighbours, padding included (``padded_sensitivity(norm=1)``). By
        default sqrt(d) times the L2 sensitivity of the statistic, rounded up.
    stream : RandomStream, optional

    Returns
    -------
    float64 array of the shape of the statistic
        step * (value + discrete Laplace of scale ceil(l1_sensitivity / step) / epsilon), independent.

    Notes
    -----
    On integers of L1 sensitivity D the discrete Laplace of scale D / epsilon is epsilon-DP (Ghosh,
    Roughgarden & Sundararajan 2009): the probabilities of an output differ by e^epsilon at most.
    D and the scale are exact rationals.
    """
    budget = exact(epsilon, "epsilon")
    if budget == 0:
        raise ParameterError("The 'epsilon' parameter is 0.", "Pass a positive epsilon.")
    if l1_sensitivity is None:
        spread = root_up(Fraction(max(1, statistic.value.size))) * Fraction(statistic.sensitivity)
    else:
        spread = rational(l1_sensitivity, "l1_sensitivity", positive=True)
    units = math.ceil(spread / Fraction(statistic.step))
    noise = discrete_laplace(units / budget, statistic.value.shape, stream=stream)
    return (statistic.value + noise).astype(np.float64) * statistic.step


def _positive_integer(value: int, name: str) -> None:
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < 1:
        raise ParameterError(f"The '{name}' parameter is {value!r}.", "Pass an integer >= 1.")
