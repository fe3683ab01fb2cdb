"""Linear models with public and private columns: one noisy statistic, then algebra (semi-sensitive features).

`confide.training.semi_problem` says what is released and proves its sensitivity. From it, and from the
public A = sum w u u', the fit is built in the order of Frisch, Waugh and Lovell, so that noise which rules
one part does not spoil the others:

    theta  of the label on the public coordinates        } A^-1 times released columns, each shrunk by its
    Gamma  of each private column on the same            } known noise (`confide.training.shrinkage`)
    S, v   second moments of the private residuals z - Gamma'u, and of them with the label's t - theta'u
    slope  of the private columns: S^-1 v, with the eigenvalues of S floored at the norm of its noise, shrunk
    model  t = (theta - Gamma slope)'u + slope'z

S and v hold for whatever Gamma and theta are (S = G - Gamma'P - P'Gamma + Gamma'A Gamma, P = sum w u z'),
so their shrinkage biases neither; what the noise of Gamma adds to S in the mean is known and taken back.
Where the private columns drown in noise the slope shrinks to 0 and what stays is the fit on public columns.
Everything after the release is post-processing, and no branch depends on private cells.
"""

from __future__ import annotations

import math
from collections.abc import Generator
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

from confide.errors import DataError
from confide.mechanisms import RandomStream, Statistic, round_toward_zero
from confide.mechanisms.stream import stream as random_stream
from confide.privacy import Event, gaussian_sigma
from confide.schema import loose
from confide.training.closed_form import _residual_variance
from confide.training.coefficients import check_budget
from confide.training.design import Source
from confide.training.inputs import number_labels
from confide.training.problem import LinearProblem, check_bounds
from confide.training.release import drive, gaussian_answer
from confide.training.semi_problem import PrivateColumns, SemiPlan, plan_release, private_bounds
from confide.training.shrinkage import Posterior, shrink

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class SemiSensitiveFit:
    """A private linear fit on public and private columns, in the units of the data.

    Attributes
    ----------
    intercept : float
    public : ndarray of shape (p,)
    private : ndarray of shape (q,)
    bounds : (float, float)
        Of the label; predictions are clipped to them.
    columns : PrivateColumns
        How private cells of new rows are read: clipped to their bounds, missing ones in the middle.
    epsilon, delta : Fraction
        What was spent, under REPLACE_PRIVATE_PART.
    event : Event
    facts : dict
        Public: rows, rank, weights, sensitivity, noise multiplier, ``private_columns`` (0 where they are left
        out because their noise would cost more than they bring); and ``effective``, the expected number of
        directions that the noise has left, a function of the release.
    """

    intercept: float
    public: Floats
    private: Floats
    bounds: tuple[float, float]
    columns: PrivateColumns = field(repr=False)
    epsilon: Fraction
    delta: Fraction
    event: Event
    facts: dict[str, float]

    def predict(self, public: Any, private: Any) -> Floats:
        """Return predictions, shape (n,), from both parts of new rows; free, but rows are not protected."""
        z = self.columns.normalised(private) * self.columns.half + self.columns.middle
        with np.errstate(over="ignore", invalid="ignore"):
            raw = np.asarray(public @ self.public).ravel() + z @ self.private + self.intercept
        middle = self.bounds[0] / 2 + self.bounds[1] / 2
        return np.clip(np.where(np.isnan(raw), middle, raw), *self.bounds)


@dataclass(frozen=True)
class SemiSolution:
    """What one release tells, in public coordinates (U'U = I) and half-ranges.

    Attributes
    ----------
    public : ndarray of shape (k,)
        theta - Gamma slope: coefficients of u, of the label about its middle.
    private : ndarray of shape (q,)
        slope: coefficients of z.
    residual_variance : float
        Of the label about its fit on public columns, estimated from the release.
    effective : float
    """

    public: Floats
    private: Floats
    residual_variance: float
    effective: float


def solve(
    problem: LinearProblem, private: PrivateColumns, plan: SemiPlan, *, shrinkage: bool = True
) -> Generator[Statistic, Floats, SemiSolution]:
    """Yield the one statistic, be sent its private answer, and return the solution.

    Parameters
    ----------
    problem, private
        Labels and private cells are read here, once.
    plan : SemiPlan
    shrinkage : bool
        Whether to shrink by the known noise; eigenvalues are floored in any case.
    """
    step, c = plan.step, plan.weights.label
    k, q = step.basis.size, len(private.names) if plan.weights.columns else 0
    upper = np.triu_indices(q + 1)
    scale = plan.weights.inner * plan.share * np.where(upper[0] == upper[1], 1.0, math.sqrt(2.0))
    total = np.zeros(k * (q + 1) + scale.size, dtype=np.int64)
    parts = zip(problem.source.blocks(), private.blocks(), problem.label_blocks(), strict=True)
    for block, z, t in parts:
        if not z.shape[0] == t.shape[0] == block.shape[0]:
            raise DataError(
                "Public rows, private rows and labels differ in number.", "Pass one of each for every row."
            )
        f, w = step.plan.rows(step.basis.coordinates(block))
        s = np.column_stack([z[:, :q], c * t])
        with np.errstate(all="ignore"):
            inner = (s * w[:, None]).T @ s
            sums = np.concatenate([(f.T @ s).ravel(), inner[upper] * scale])
        total += round_toward_zero(sums, plan.grid)
    answer = yield Statistic(total, plan.grid, plan.sensitivity, "semi_sensitive")
    shaped = answer[: k * (q + 1)].reshape(k, q + 1)
    cross = np.asarray(np.linalg.solve(step.plan.factor.T, shaped), dtype=np.float64)
    moments = np.zeros((q + 1, q + 1))
    moments[upper] = answer[k * (q + 1) :] / scale
    moments.T[upper] = moments[upper]
    cross[:, q] /= c
    moments[q] /= c
    moments[:, q] /= c
    solution = _Fit(plan, cross, moments, shrinkage).solution()
    left_out = np.zeros(len(private.names) - q)
    return replace(solution, private=np.concatenate([solution.private, left_out]))


class _Fit:
    """Post-processing: `cross` is L^-T times the released cross terms, `moments` the inner block."""

    def __init__(self, plan: SemiPlan, cross: Floats, moments: Floats, shrinkage: bool) -> None:
        self.plan, self.cross, self.moments = plan, cross, moments
        self.q = cross.shape[1] - 1
        self.A = plan.step.A
        self.sigma = plan.deviation
        #: Deviation of an entry off the diagonal of the private second moments.
        self.entry = self.sigma / (math.sqrt(2.0) * plan.weights.inner * plan.share)
        factor = plan.step.plan.factor
        root = np.linalg.inv(factor)
        self.released = np.asarray(root.T @ root)  # M^-1: covariance of a released column, per sigma^2
        inverse = np.linalg.inv(factor.T @ self.A)
        self.noise = np.asarray(self.sigma**2 * (inverse @ inverse.T))
        self.shrinkage = shrinkage and self.sigma > 0

    def solution(self) -> SemiSolution:
        c, q = self.plan.weights.label, self.q
        plain = np.asarray(np.linalg.solve(self.A, self.cross), dtype=np.float64)
        noise = self.noise / c**2
        deviation = math.sqrt(2.0) * self.entry / c**2
        variance = _residual_variance(
            self.plan.step, plain[:, q], noise, float(self.moments[q, q]), deviation, 0.0
        )
        inverse = np.linalg.inv(self.A)
        sampling = variance * (inverse @ self.plan.step.B @ inverse.T)
        label = self._shrunk(plain[:, q], noise + sampling)
        theta = label.mean
        if q == 0:
            return SemiSolution(theta, np.zeros(0), variance, label.effective)
        columns = [self._shrunk(plain[:, j], self.noise) for j in range(q)]
        Gamma = np.column_stack([column.mean for column in columns])
        P, b = self.cross[:, :q], self.cross[:, q]
        S = self.moments[:q, :q] - Gamma.T @ P - P.T @ Gamma + Gamma.T @ self.A @ Gamma
        S = (S + S.T) / 2 + np.diag([self._lost(column) for column in columns])
        v = self.moments[:q, q] - Gamma.T @ b - P.T @ theta + Gamma.T @ self.A @ theta
        slope, effective = self._slope(S, v, Gamma, theta, variance)
        return SemiSolution(theta - Gamma @ slope, slope, variance, label.effective + effective)

    def _shrunk(self, estimate: Floats, noise: Floats) -> Posterior:
        basis = self.plan.step.basis
        if not self.shrinkage:
            return Posterior(estimate, noise, float(estimate.size))
        return shrink(estimate, noise, basis.singular_values, float(basis.n), fixed=1)

    def _lost(self, column: Posterior) -> float:
        """Return what the noise N of one column of Gamma takes from its diagonal entry of S, in the mean.

        Gamma = W (truth + e), W N = V the posterior covariance: -2 e'W'A e + e'W'A W e has the mean
        -2 tr(A V) + tr(N^-1 V A V).
        """
        if self.sigma == 0:
            return 0.0
        image = self.A @ column.covariance
        return 2 * float(np.trace(image)) - float(
            np.sum(np.linalg.solve(self.noise, column.covariance).T * image)
        )

    def _slope(
        self, S: Floats, v: Floats, Gamma: Floats, theta: Floats, variance: float
    ) -> tuple[Floats, float]:
        """Return coefficients of the private columns and how many directions of them the noise has left."""
        values, vectors = np.linalg.eigh(S)
        values, vectors = values[::-1], vectors[:, ::-1]
        n = self.plan.step.basis.n
        floor = max(2.0 * math.sqrt(self.q) * self.entry, 1e-9 * n)
        held = np.maximum(values, floor)
        root = np.sqrt(held)
        estimate = (vectors.T @ v) / root
        if not self.shrinkage:
            # Without noise a direction that is not there has no coefficient.
            slope = vectors @ (np.where(values > 1e-9 * n, estimate, 0.0) / root)
            return slope, float(self.q)
        c = self.plan.weights.label
        own = (self.entry / c) ** 2 + self.sigma**2 * float(theta @ self.released @ theta)
        noise = own * np.eye(self.q) + (self.sigma / c) ** 2 * (Gamma.T @ self.released @ Gamma)
        white = vectors / root
        # The error of S enters times the slope: its size is that of the unshrunk one, or what the label
        # allows.
        length = min(float(np.sum((white @ estimate) ** 2)), n * variance / float(held.min()))
        noise = noise + self.entry**2 * length * np.eye(self.q)
        covariance = white.T @ noise @ white + variance * np.eye(self.q)
        shrunk = shrink(estimate, (covariance + covariance.T) / 2, root, float(n), fixed=0)
        return white @ shrunk.mean, shrunk.effective


def fit_semi_sensitive(
    public: Any,
    private: Any,
    y: npt.ArrayLike,
    epsilon: Any,
    delta: Any,
    *,
    private_bounds: Any = (-1.0, 1.0),
    target_bounds: Any,
    private_norm: float | None = None,
    rows_per_unit: int = 1,
    shrinkage: bool = True,
    random_state: int | RandomStream | None = None,
) -> SemiSensitiveFit:
    """Fit least squares on public and private columns under REPLACE_PRIVATE_PART. Charges nothing.

    Parameters
    ----------
    public : array or CSR matrix of shape (n, p)
        Public columns; p may be 0. They cost nothing and are protected by nothing.
    private : array of shape (n, q)
        Private columns; q may be 0. NaN is the middle of the bounds.
    y : array of shape (n,)
    epsilon, delta : amount
        0 < delta < 1.
    private_bounds : pair of scalars or arrays of shape (q,)
        Declared.
    target_bounds : (float, float)
        Declared.
    private_norm : float, optional
        Public L2 bound to which private rows, in half-widths of their bounds, are shortened. sqrt(q), which
        shortens none, by default.
    rows_per_unit : int
        Most rows of one privacy unit: a declared bound.
    shrinkage : bool
    random_state : None, int or RandomStream
        None draws from the operating system, the only state that carries a guarantee.

    Returns
    -------
    SemiSensitiveFit

    Raises
    ------
    ParameterError, UnsupportedError, DataError
        Before a private cell is read.
    """
    epsilon, delta = check_budget(epsilon, delta)
    problem, columns = array_problem(
        public, private, y, private_bounds, target_bounds, private_norm, rows_per_unit
    )
    multiplier = gaussian_sigma(epsilon, delta, 1.0)
    plan = plan_release(problem, columns, multiplier)
    answer = gaussian_answer(multiplier, random_stream(random_state))
    solution = drive(solve(problem, columns, plan, shrinkage=shrinkage), answer)
    return assemble(problem, columns, plan, solution, epsilon, delta)


def array_problem(
    public: Any,
    private: Any,
    y: Any,
    bounds: Any,
    target_bounds: Any,
    norm: float | None = None,
    rows_per_unit: int = 1,
) -> tuple[LinearProblem, PrivateColumns]:
    """Return the problem of arrays; shapes are checked, private cells and labels are not looked at."""
    public = public if hasattr(public, "tocsr") else np.asarray(public, dtype=np.float64)
    cells = np.asarray(loose.matrix_of(private))
    n = public.shape[0] if public.ndim == 2 else -1
    if n < 1 or cells.ndim != 2 or cells.shape[0] != n:
        raise DataError(
            f"Public and private have shapes {public.shape} and {cells.shape}.",
            "Pass (n, p) and (n, q) with n >= 1.",
        )
    loose.check_numeric(cells, "private")
    labels = number_labels(y, n)
    lower, upper = private_bounds(bounds, cells.shape[1])
    low, high = check_bounds(target_bounds)
    names = tuple(f"x{i}" for i in range(public.shape[1]))
    secret = tuple(f"z{i}" for i in range(cells.shape[1]))
    columns = PrivateColumns(
        lambda: iter([loose.numbers(cells)]), secret, lower, upper, math.inf if norm is None else float(norm)
    )
    source = Source(lambda: iter([public]), names)
    problem = LinearProblem(source, lambda: iter([labels()]), low, high, None, True, int(rows_per_unit))
    return problem, columns


def assemble(
    problem: LinearProblem,
    private: PrivateColumns,
    plan: SemiPlan,
    solution: SemiSolution,
    epsilon: Fraction,
    delta: Fraction,
) -> SemiSensitiveFit:
    """Turn a solution in public coordinates into coefficients of the columns."""
    J = plan.step.basis.to_coefficients()
    values = problem.half * (J @ solution.public)
    slope = problem.half * solution.private / private.half
    # t is in half-ranges about the middle of the label's bounds, z about that of its own.
    intercept = float(values[0]) + problem.middle - float(slope @ private.middle)
    facts = {
        "rows": float(plan.step.basis.n),
        "rank": float(plan.step.basis.size),
        "label_weight": plan.weights.label,
        "inner_weight": plan.weights.inner,
        "sensitivity": plan.sensitivity,
        "noise_multiplier": plan.noise_multiplier,
        "private_columns": float(len(private.names) if plan.weights.columns else 0),
        "effective": solution.effective,
    }
    event = Event.of("gaussian", noise_multiplier=plan.noise_multiplier)
    return SemiSensitiveFit(
        intercept,
        values[1:],
        slope,
        (problem.lower, problem.upper),
        private.without_rows(),  # a model is handed on, and must not hold the table
        epsilon,
        delta,
        event,
        facts,
    )
