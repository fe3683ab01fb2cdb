"""Least squares on secret columns, from noisy sufficient statistics: AdaSSP, and its pure variant.

Rows. Each row is read as u = (1, x), |x_j| <= 1, ||u|| <= B, with its target |t| <= 1 (`Rows` enforces it),
and w = (u, c t) for a public weight c. The release is one noisy copy of sum_i w_i w_i', a symmetric matrix:
it holds X'X, c X'y and c^2 y'y. Everything after it is post-processing.

Gaussian noise, (epsilon, delta) (Wang, "Revisiting differentially private linear regression", UAI 2018,
algorithm 2, with two changes below). What is released is svec(sum w w'): diagonal entries as they are and
entries above the diagonal times sqrt 2, so that the L2 norm of svec is the Frobenius norm of the matrix.

    Lemma 1. ||w w'||_F = ||w||^2 <= W^2 = B^2 + c^2: adding or removing a row moves svec by at most W^2.
    Lemma 2. ||w w' - v v'||_F <= sqrt 2 W^2: replacing a row moves svec by at most that.
    Proof.   ||w w' - v v'||_F^2 = ||w||^4 + ||v||^4 - 2 (w'v)^2 <= 2 W^4.

Lemma 2 is attained (w orthogonal to v), and one joint release is better than one each for X'X and X'y:
replacing a row cannot move both by the most at once. With c^2 = tau B^2 the deviations are, per mu = 1 /
noise multiplier, sqrt 2 B^2 (1 + tau) on the diagonal of X'X and B (1 + tau) / sqrt tau on X'y, where the
shares of a separate release would give the first with 2 B (1 + tau) / sqrt(2 tau + tau^2) for the second:
1.15 to 1.41 times as much for tau <= 1. y'y comes with it for nothing.

Ridge. Wang adds lambda = max(0, (bound on ||noise||) - lambda_min), from a released lambda_min (which a row
moves by at most B^2 under both relations: adding u u' raises it by 0 to ||u||^2, by Weyl, and a replacement
is two such steps from the same point). Here lambda_min is read from the released matrix instead, which costs
nothing: lambda = max(0, s - lambda_min(noisy X'X)), s = 2 sqrt(m) times the deviation of an entry off the
diagonal, the norm of the noise matrix. With a separate release of a tenth or a third of the budget the error
was larger in nearly all simulated cases (benchmarks/selection_coefficients.py). The matrix that is solved is
never singular: its least eigenvalue is at least s > 0, and at least what float64 can tell from 0.

Laplace noise, pure epsilon. Entries on and above the diagonal, those with the target times c, y'y left out.
Let d columns move, m = d + 1 with the one.

    Lemma 3. Adding or removing a row moves them by at most m (m - 1) / 2 + c m + d in L1, and by 1 more for
    the number of rows. Proof. Every product is within +-1, every square within [0, 1].
    Lemma 4. Replacing a row moves them by at most max over k <= d of 2 (k (m - k) + c max(k, m - k)) + d.
    Proof. A square moves by at most 1. For the products, |w_i w_j - v_i v_j| is convex in each coordinate of
    w and of v, so that their weighted sum is greatest at corners of the box, where v differs from w by k
    flips of sign among columns, and the target flips or not; a pair moves by 2 where exactly one of it flips:
    k (m - k) pairs of columns, and k or m - k pairs with the target. (The one never flips.)

For 5 columns that is 29 at c = 1 where the sum of the ranges is 47.

Grid. Each row's vector is rounded toward zero to a public step h and summed in integers, so an output is an
integer plus an integer. A computed product is within 3 units of rounding of the true one; sensitivities carry
2^-40 for that, and h sqrt(k), h k for the rounding (`confide.mechanisms.round_toward_zero`).

===================================  ===================================================================
edge case                            what happens
===================================  ===================================================================
cells of 1e308, infinite, NaN        clipped, clipped, 0; no message, no other path
n = 0, n = 1, constant columns       finite coefficients: the ridge keeps the matrix regular
more rows than 2^24                  UnsupportedError where n is public, else a public precondition
several rows a unit                  sensitivities times their number
delta = 0                            Laplace; `adassp` refuses it
REPLACE_LABEL, REPLACE_PRIVATE_PART  special cases of REPLACE_ONE, with its noise
epsilon of 1e6                       a coarser grid, paid for by its padding
epsilon of 1e18, equal columns       a ridge of the rounding's size: `ridged_inverse`
objects, text in a list              what holds no number is 0; text by type, complex: refused by the type
===================================  ===================================================================
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

from confide.errors import ParameterError, UnsupportedError
from confide.mechanisms import (
    RandomStream,
    Statistic,
    grid_step,
    laplace_release,
    padded_sensitivity,
    round_toward_zero,
)
from confide.mechanisms.stream import stream as random_stream
from confide.privacy import Adjacency, Event, gaussian_sigma
from confide.schema import loose
from confide.training.coefficients import (
    MAX_ROWS,
    Coefficients,
    Floats,
    Rows,
    Shape,
    check_budget,
    check_rows,
    make_shape,
    own_norm,
    rescaled,
)
from confide.training.release import Answer, drive, gaussian_answer

METHOD = "sufficient_statistics"
#: c^2 / B^2 of the Gaussian release. The noise of X'y is least at 1, that of X'X at 0.
_TAU = 0.6
_WIDEST = 2.0**49


@dataclass(frozen=True)
class Plan:
    """What is public about the one release.

    Attributes
    ----------
    shape : Shape
    epsilon, delta : Fraction
        Of a unit.
    event : Event
    multiplier : float
        Noise deviation over L2 sensitivity; 0 with Laplace noise.
    weight : float
        c, of the target.
    step : float
        Of the grid.
    sensitivity : float
        L2 with Gaussian, L1 with Laplace noise; padding and rows of a unit included.
    """

    shape: Shape
    epsilon: Fraction
    delta: Fraction
    event: Event
    multiplier: float
    weight: float
    step: float
    sensitivity: float

    @property
    def pure(self) -> bool:
        """Whether the noise is Laplace."""
        return self.multiplier == 0

    @property
    def deviation(self) -> float:
        """Deviation of the noise in one released number."""
        return self.multiplier * self.sensitivity if self.multiplier else self._laplace_deviation()

    @property
    def spread(self) -> float:
        """Deviation of the noise in X'y: what plans are compared by."""
        return self.deviation / self.weight / (1.0 if self.pure else math.sqrt(2.0))

    def _laplace_deviation(self) -> float:
        return math.sqrt(2.0) * self.sensitivity / float(self.epsilon)


def make_plan(shape: Shape, epsilon: Any, delta: Any) -> Plan:
    """Fix grid, sensitivity and noise of a release: what can be refused is refused here, before any charge.

    Parameters
    ----------
    shape : Shape
    epsilon, delta : amount
        delta = 0 means Laplace noise and pure epsilon.

    Raises
    ------
    ParameterError
    """
    amount, share = check_budget(epsilon, delta)
    m = shape.size
    entries = m * (m + 1) // 2 + m
    replaced = shape.rows_are_public
    if share == 0:
        weight = max(1.0, m / 3.0)
        reach = l1_sensitivity(shape.columns, m, weight, replaced)
        spread = reach * shape.rows_per_unit / float(amount)
        step = noise_step(spread, entries, 1.0, reach)
        bound = padded_sensitivity(reach * (1 + 2.0**-40), step, entries, norm=1) * shape.rows_per_unit
        event = Event.of("discrete_laplace", epsilon=str(amount))
        plan = Plan(shape, amount, share, event, 0.0, weight, step, bound * (1 + 1e-12))
    else:
        entries += 1
        multiplier = gaussian_sigma(amount, share, 1.0)
        weight = math.sqrt(_TAU * shape.norm_squared)
        whole = shape.norm_squared + weight * weight
        reach = whole * (math.sqrt(2.0) * (1 + 1e-12) if replaced else 1.0)
        step = noise_step(multiplier * reach * shape.rows_per_unit, entries, multiplier, whole)
        bound = padded_sensitivity(reach * (1 + 2.0**-40), step, entries) * shape.rows_per_unit
        event = Event.of("gaussian", noise_multiplier=multiplier)
        plan = Plan(shape, amount, share, event, multiplier, weight, step, bound * (1 + 1e-12))
    if not plan.deviation < _WIDEST * plan.step:
        raise ParameterError(
            f"The 'epsilon' parameter is {epsilon!r}: its noise has no grid that 64-bit integers can hold.",
            "Pass a larger epsilon.",
        )
    return plan


def l1_sensitivity(columns: int, size: int, weight: float, replaced: bool) -> float:
    """Return the bound of lemma 3 or 4: L1, for one row, before the grid.

    Parameters
    ----------
    columns, size : int
        d, and m = d + 1 with an intercept, else d.
    weight : float
        c.
    replaced : bool
        Whether a row is replaced; else added or removed.
    """
    d, m, c = columns, size, weight
    if not replaced:
        return m * (m - 1) / 2 + c * m + d + (m - d)
    return max(2 * (k * (m - k) + c * max(k, m - k)) for k in range(d + 1)) + d


def noise_step(deviation: float, entries: int, multiplier: float, largest: float) -> float:
    """Return a power of two: fine against the noise, and coarse enough for a sum of 2^24 rows in int64."""
    fine = grid_step(deviation, entries, noise_multiplier=max(1.0, multiplier), rows=MAX_ROWS)
    return max(fine, 2.0 ** math.ceil(math.log2(largest * MAX_ROWS) - 60))


def solve(rows: Rows, plan: Plan) -> Generator[Statistic, Floats, Coefficients]:
    """Yield the one statistic, be sent its private answer, and return the coefficients.

    Parameters
    ----------
    rows : Rows
        Its cells are read here, once, in blocks.
    plan : Plan
    """
    m = plan.shape.size
    places = np.triu_indices(m + 1)
    scale = np.where(places[0] == places[1], 1.0, 1.0 if plan.pure else math.sqrt(2.0))
    kept = np.ones(scale.size, dtype=bool)
    if plan.pure:
        kept[-1] = False  # y'y
    places, scale = (places[0][kept], places[1][kept]), scale[kept]
    total = np.zeros(scale.size, dtype=np.int64)
    for cells, targets in rows.blocks(scale.size):
        w = np.column_stack([cells, plan.weight * targets])
        products = w[:, places[0]] * w[:, places[1]] * scale
        total += round_toward_zero(products, plan.step).sum(axis=0, dtype=np.int64)
    answer = yield Statistic(total, plan.step, plan.sensitivity, METHOD)
    return _coefficients(rows, plan, places, answer / scale)


def _coefficients(rows: Rows, plan: Plan, places: Any, answer: Floats) -> Coefficients:
    """Solve the noisy normal equations: post-processing of `answer` and of what is public."""
    shape, m = plan.shape, plan.shape.size
    full = np.zeros((m + 1, m + 1))
    full[places] = answer
    full.T[places] = answer
    if shape.intercept and shape.rows_are_public:
        full[0, 0] = rows.n
    gram, moments = full[:m, :m], full[:m, m] / plan.weight
    off = plan.deviation / (1.0 if plan.pure else math.sqrt(2.0))
    inverse, ridge = ridged_inverse(gram, 2.0 * math.sqrt(m) * off, plan.step)
    theta = np.asarray(inverse @ moments)
    # The noise of the right-hand side less that of the matrix times theta, of independent entries.
    variance = (off / plan.weight) ** 2 + off**2 * float(theta @ theta)
    noise = np.asarray(variance * (inverse @ inverse.T))
    intercept, values, covariance = rescaled(shape, theta, noise, rows.feature_bound, rows.target_bound)
    facts = {
        "ridge": ridge,
        "noise_gram": off,
        "noise_moments": off / plan.weight,
        "sensitivity": plan.sensitivity,
        "weight": plan.weight,
        "step": plan.step,
        "row_norm": math.sqrt(shape.norm_squared),
    }
    if not plan.pure:
        facts["target_square"] = float(full[m, m]) / plan.weight**2
    return Coefficients(
        intercept,
        values,
        METHOD,
        "squared",
        plan.epsilon,
        plan.delta,
        plan.event,
        tuple(facts.items()),
        covariance,
    )


def ridged_inverse(gram: Floats, least: float, step: float) -> tuple[Floats, float]:
    """Return (gram + ridge I)^-1 and the ridge that makes its least eigenvalue `least`, if it is below.

    Parameters
    ----------
    gram : ndarray of shape (m, m)
        Symmetric, finite: released.
    least : float
        > 0.
    step : float
        Of the grid that `gram` lies on.

    Notes
    -----
    By eigenvalues, so that nothing can raise: an eigenvalue is known to the rounding of the largest and of
    the grid, and a `least` below that (an epsilon past 10^15) is taken as that.
    """
    values, vectors = np.linalg.eigh(gram)
    unit = float(np.finfo(np.float64).eps)
    floor = max(least, step, 4 * values.size * unit * float(np.abs(values).max()))
    ridge = max(0.0, floor - float(values[0]))
    return np.asarray((vectors / np.maximum(values + ridge, floor)) @ vectors.T), ridge


def release(rows: Rows, plan: Plan, *, stream: RandomStream | None = None) -> Coefficients:
    """Return private coefficients; the caller has charged `plan.event`.

    Parameters
    ----------
    rows : Rows
    plan : Plan
    stream : RandomStream, optional
        None: the operating system's.
    """
    return drive(solve(rows, plan), answers(plan, random_stream(stream)))


def answers(plan: Plan, stream: RandomStream) -> Answer:
    """Return what answers the statistic of `solve` with the noise of the plan."""
    if plan.pure:
        return lambda statistic: laplace_release(
            statistic, plan.epsilon, l1_sensitivity=statistic.sensitivity, stream=stream.child(statistic.name)
        )
    return gaussian_answer(plan.multiplier, stream)


def adassp(
    X: Any,
    y: npt.ArrayLike,
    epsilon: Any,
    delta: Any,
    adjacency: Adjacency | str,
    *,
    feature_bound: float = 1.0,
    target_bound: float = 1.0,
    row_norm: float | None = None,
    intercept: bool = True,
    rows_per_unit: int = 1,
    random_state: int | RandomStream | None = None,
) -> Coefficients:
    """Fit least squares on secret rows under (epsilon, delta)-DP, by one noisy Gram matrix. Charges nothing.

    Parameters
    ----------
    X : array or list of rows of shape (n, d)
        Cells are clipped to +-feature_bound; NaN, and an object that holds no number, is 0.
    y : array or list of shape (n,)
        Clipped to +-target_bound, likewise.
    epsilon, delta : amount
        0 < delta < 1; `noisy_statistics` serves delta = 0.
    adjacency : Adjacency or str
        Every relation: all of a row is protected.
    feature_bound, target_bound : float
        Declared, > 0.
    row_norm : float, optional
        Public L2 bound in the unit of X to which rows are shortened. Less noise where it is below
        sqrt(d) feature_bound.
    intercept : bool
        Join a column of ones.
    rows_per_unit : int
        Most rows that one privacy unit has.
    random_state : None, int or RandomStream
        None draws from the operating system, the only state that carries a guarantee.

    Returns
    -------
    Coefficients
        With the covariance of the noise in them, and a guarantee that is marked ``"unrecorded"``, and
        ``"seeded"`` with a `random_state`.

    Raises
    ------
    ParameterError, UnsupportedError, DataError, ValueError
        Before a cell is read.
    """
    if check_budget(epsilon, delta)[1] == 0:
        raise UnsupportedError(
            "The 'delta' parameter is 0, and Gaussian noise needs a positive one.",
            "Pass 0 < delta < 1, or use noisy_statistics.",
        )
    return _fit(
        X, y, epsilon, delta, adjacency, feature_bound, target_bound, row_norm, intercept, rows_per_unit,
        random_state,
    )  # fmt: skip


def noisy_statistics(
    X: Any,
    y: npt.ArrayLike,
    epsilon: Any,
    adjacency: Adjacency | str,
    *,
    feature_bound: float = 1.0,
    target_bound: float = 1.0,
    intercept: bool = True,
    rows_per_unit: int = 1,
    random_state: int | RandomStream | None = None,
) -> Coefficients:
    """Fit least squares on secret rows under pure epsilon-DP, by Laplace noise. Charges nothing.

    Parameters, returns and errors are those of `adassp`.
    """
    return _fit(
        X, y, epsilon, 0, adjacency, feature_bound, target_bound, None, intercept, rows_per_unit, random_state
    )


def _fit(
    X: Any,
    y: npt.ArrayLike,
    epsilon: Any,
    delta: Any,
    adjacency: Adjacency | str,
    feature_bound: float,
    target_bound: float,
    row_norm: float | None,
    intercept: bool,
    rows_per_unit: int,
    random_state: Any,
) -> Coefficients:
    return fit_secret_rows(
        X, y, adjacency, lambda shape: make_plan(shape, epsilon, delta), release, feature_bound, target_bound,
        row_norm, intercept, rows_per_unit, random_state,
    )  # fmt: skip


def fit_secret_rows(
    X: Any,
    y: npt.ArrayLike,
    adjacency: Adjacency | str,
    plan_of: Callable[[Any], Any],
    release_by: Callable[..., Coefficients],
    feature_bound: float,
    target_bound: float,
    row_norm: float | None,
    intercept: bool,
    rows_per_unit: int,
    random_state: Any,
) -> Coefficients:
    """Plan from what is public, then read the rows and release; shared with `boosting`.

    Parameters
    ----------
    plan_of : callable
        Plan of a shape.
    release_by : callable
        Coefficients of (rows, plan, stream=).
    """
    cells, targets = np.asarray(loose.matrix_of(X)), np.asarray(loose.vector_of(y))
    shape = make_shape(
        cells.shape[-1] if cells.ndim else 0, adjacency, rows_per_unit=rows_per_unit, intercept=intercept,
        row_norm=own_norm(row_norm, feature_bound),
    )  # fmt: skip
    plan = plan_of(shape)
    rows = Rows(cells, targets, shape, feature_bound, target_bound)
    check_rows(shape, rows.n)
    stream = random_stream(random_state)
    return release_by(rows, plan, stream=stream).guaranteed(shape, stream)
