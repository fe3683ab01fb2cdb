"""What subset selection asks: rows in declared bounds, a loss, a norm ball; and what one record can change.

    F_S = min over beta, supp(beta) in S, ||beta||_2 <= radius
          of  sum_i loss(y_i, x_i'beta) + (ridge / 2) ||beta||^2

Sensitivity (proof). On the ball |x_i'beta| <= a = b_x radius sqrt(size) for every support, so adding a record
(x, y) to the sum adds a function of beta with values in [m(y), m(y) + M], m(y) the least loss of y and
M = `Loss.record_range`; hence it raises every F_S - sum m(y_i) by a number in [0, M]. Replacing a record
changes it by a number in [-M, M]. The sum of m(y_i) is the same for every support and cancels.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt

from confide.errors import DataError, ParameterError, UnsupportedError
from confide.schema import loose
from confide.selection.columns import Columns, flush
from confide.selection.losses import Loss, loss_of

Floats = npt.NDArray[np.float64]

#: Scores are multiples of a public step, a power of two in (half of this, this] times M: computed scores that
#: differ by rounding alone are exact ties, and a bound decides them (`SubsetProblem.on_grid`).
_STEP = {"squared": 2.0**-25}
_STEP_OTHER = 2.0**-22
#: Duality gap over M at which solvers of the losses without a closed form stop.
_GAP = 2.0**-22
#: tau / M at least: the range of computed less true scores (`most_rows`). Public: the exponent of a law may
#: depend on declared numbers alone.
_TAU = {"squared": 2.0**-24}
_TAU_OTHER = 2.0**-20
_UNIT = 2.0**-53
#: Bounds, radius and ridge outside these public ranges are refused: inside, no intermediate result of the
#: kernels leaves the range of doubles, whatever the cells are.
_SCALE = 2.0**100
_LEAST_REACH = {"squared": 2.0**-30}
_LEAST_REACH_OTHER = 2.0**-10
_LARGEST_REACH = {"squared": 2.0**30, "logistic": 2.0**4}
_LARGEST_REACH_OTHER = 2.0**10
_LEAST_RIDGE = 2.0**-60
#: Rows at most, whatever the size; `most_rows` may be fewer.
MAX_ROWS = 1 << 20
#: Columns that are selected at most.
MAX_SIZE = 64
_ITERATIONS = 200


def most_rows(size: int) -> int:
    """Return the rows up to which rounding fits into tau, for supports of `size` columns: 2^20 up to size 24.

    Where the number of rows is public it is checked before the charge (`check_rows`). Where it is secret
    (ADD_REMOVE_ONE), that no table has more rows is a public precondition: nothing looks whether it holds,
    since an exception after the charge would tell. The draw goes on; its epsilon grows by 2^-23 of itself at
    most for each further `most_rows` of rows (squared loss; 2^-18 for the others).

    Proof for the squared loss. Inner products of columns are within DOT_ERROR n b_x^2 of the true ones,
    those with y within DOT_ERROR n b_x b_y (`kernels.dot`, 36 units). With ||beta||_1 <= a / b_x they
    move the value by 36 units of n (a^2 / 2 + a b_y), and its own evaluation (the ridge's part, at most n
    a b_y, included) by size + 4 more. M >= a^2 / 2 + a b_y where a >= b_y, and M >= 4/3 of it below. As much
    again is left for the solver: its beta minimises the form of a matrix that the rotations of
    `kernels.eigen` perturb by a few sqrt(size) units of its Frobenius norm (Higham 2002, 19.3), at most n
    size b_x^2, on a ball of radius^2 = a^2 / (size b_x^2) that its rounding leaves by as many units. So a
    computed value lies within delta = 2 (40 + size) n M 2^-53 of the true F, and the score, rounded up to
    a step of at most 2^-25 M, in [F - delta, F + delta + 2^-25 M], a range of at most tau = 2^-24 M for
    2 delta <= 2^-25 M: n <= 2^26 / (40 + size). The shift by delta is the same for every support.

    The other losses sum differences loss(y, z) - loss(y, 0), at most M each, in compensated sums of 64
    terms (66 units of n M); z is off by size units of a and the ridge's part by size + 4. A loss is at most
    (1 + b_y / a) M and three roundings, twice: 4 (1 + b_y / a) units. So is the certificate. delta is the sum
    of these, tau at least the gap, the step and 3 delta at the largest n (`SubsetProblem.rounding`).
    """
    return min(MAX_ROWS, 2**26 // (40 + size))


def check_size(size: int) -> None:
    """Refuse more columns than the rounding proof covers.

    Raises
    ------
    UnsupportedError
    """
    if size > MAX_SIZE:
        raise UnsupportedError(
            f"A selection of {size} columns is asked; the rounding proof covers {MAX_SIZE} columns.",
            "Select fewer columns.",
        )


def check_rows(size: int, rows: int) -> None:
    """Refuse more columns or rows than the rounding proof covers: for a public n, before any charge.

    Raises
    ------
    UnsupportedError
    """
    check_size(size)
    if rows > most_rows(size):
        raise UnsupportedError(
            f"X has {rows:,} rows; for {size} columns the rounding proof covers {most_rows(size):,}.",
            "Select fewer columns, or fewer rows by a public rule.",
        )


def _units(loss: str, size: int, ratio: float) -> float:
    """Return delta over n M, in units of 2^-53; ratio is b_y / a. See `most_rows`."""
    return 2.0 * (40 + size) if loss == "squared" else 72.0 + 2 * size + 4 * (1 + ratio)


class SubsetProblem:
    """Which `size` of the columns of X explain y best, within a norm ball.

    Parameters
    ----------
    X : array [n, p]
        float32 or float64 in C or F order, a memory map, integers, or CSR. Read where it lies: clipped to
        +-feature_bound on the way, never rescaled, never copied whole. NaN counts as 0. Or a source from
        `confide.selection.bounded`.
    y : array [n]
        Clipped to +-target_bound; NaN and numbers below 2^-100 target_bound count as 0, as cells of X do. For
        hinge and logistic a class: positive is +1, all else -1.
    size : int
        s, between 1 and p.
    loss : str or Loss
        "squared", "hinge", "huber", "logistic", "quantile", or one of `confide.selection.losses`.
    radius : float, optional
        r > 0, public. Default b_y / (b_x sqrt(size)): a = b_y, the kink of M, for every loss (b_y = 1 for
        classes).
    ridge : float, optional
        lambda >= 0, public. Default 4 b_x^2.
    feature_bound : float
        b_x > 0, declared.
    target_bound : float, optional
        b_y > 0, declared; 1 for hinge and logistic, and needed otherwise.

    Attributes
    ----------
    n, p, size, loss, radius, ridge, feature_bound, target_bound
    reach : float
        a, the largest absolute value of x'beta: abs(x'beta).
    record_range : float
        M.
    step : float
        q: centred scores are multiples of it; a power of two.
    rounding : float
        delta: before it was rounded up to a multiple of q, a score was at least true F_S - delta.
    tolerance : float
        Duality gap that a score's solver stops at.
    tau : float
        Certified: true F_S - delta <= `score` <= true F_S - delta + tau.

    Raises
    ------
    ParameterError
        size, radius, ridge or bounds outside their domain, or M = 0.
    DataError
        X and y do not fit together.

    Notes
    -----
    ==============================  ===================================================================
    edge case                       what happens
    ==============================  ===================================================================
    size = 0, size > p              ParameterError
    radius <= 0, bounds <= 0, NaN   ParameterError
    bounds outside [1e-30, 1e30]    ParameterError, as for a outside [2^-10, 2^10] b_y (squared: 2^-30 to
                                    2^30, logistic: up to 2^4) and 0 < ridge < 2^-60 b_x^2: there doubles
                                    give out
    cells below 2^-100 b_x          0: what is left has normal doubles for products
    flat optimal faces, near ties   the score stays within tau, on the grid; no exception depends on them
    more than `most_rows` rows      the front doors refuse them where n is public; here nothing tells
    size = p                        one support
    n = 0                           every score is 0
    zero, constant, equal columns   ordinary candidates; equal columns have equal scores
    ridge = 0, collinear columns    the least norm solution, inside the ball
    cells beyond the bounds, NaN    clipped, 0; no message depends on them
    text, None, lists, complex      in a list or an array of objects that cell is NaN; an array of them is
                                    refused by its type
    ==============================  ===================================================================
    """

    def __init__(
        self,
        X: Any,
        y: npt.ArrayLike,
        size: int,
        loss: str | Loss = "squared",
        radius: float | None = None,
        ridge: float | None = None,
        *,
        feature_bound: float,
        target_bound: float | None = None,
    ) -> None:
        self.loss = loss_of(loss)
        self.feature_bound = _positive(feature_bound, "feature_bound")
        if target_bound is None and self.loss.labels:
            target_bound = 1.0
        self.target_bound = _positive(target_bound, "target_bound")
        if self.loss.labels and self.target_bound != 1.0:
            raise ParameterError(
                f"The 'target_bound' parameter is {target_bound!r} with loss {self.loss.name!r}.",
                "Leave it out: classes are -1 and +1.",
            )
        if isinstance(size, bool) or not isinstance(size, int | np.integer) or size < 1:
            raise ParameterError(f"The 'size' parameter is {size!r:.80}.", "Pass an integer >= 1.")
        self.size = int(size)
        self.loss = self.loss.fitted_to(self.target_bound)
        b_x, b_y = self.feature_bound, self.target_bound
        self.radius = _positive(b_y / (b_x * math.sqrt(self.size)) if radius is None else radius, "radius")
        self.ridge = 4 * b_x * b_x if ridge is None else float(ridge)
        if not 0 <= self.ridge < math.inf:
            raise ParameterError(f"The 'ridge' parameter is {ridge!r}.", "Pass a number >= 0.")
        # Rounded up by a few units, so that computed norms and products stay below it.
        self.reach = b_x * self.radius * math.sqrt(self.size) * (1 + 1e-14)
        self.record_range = self.loss.record_range(b_y, self.reach) * (1 + 1e-14)
        if not 0 < self.record_range < math.inf:
            raise ParameterError(
                f"One record can change a score by {self.record_range!r}.",
                "Pass bounds and a radius for which it is positive and finite.",
            )
        self._check_scale()
        name, M = self.loss.name, self.record_range
        self.step = 2.0 ** (math.frexp(M)[1] - 1) * _STEP.get(name, _STEP_OTHER)
        self.tolerance = _GAP * M
        delta = _units(name, self.size, b_y / self.reach) * _UNIT * M
        spread = 0.0 if name == "squared" else _GAP + _STEP_OTHER + 3 * delta / M * most_rows(self.size)
        self.tau = max(_TAU.get(name, _TAU_OTHER), spread) * M
        #: Largest gap of a score so far over tau: a function of the data, for tests.
        self.missed = 0.0

        self.columns = X if isinstance(X, Columns) else Columns(X, b_x)
        if self.columns.bound != b_x:
            raise ParameterError(
                f"The 'feature_bound' parameter is {b_x!r}, and the source reads cells within "
                f"{self.columns.bound!r}.",
                "Pass the bound that `bounded` returned.",
            )
        self.n, self.p = self.columns.n, self.columns.p
        if self.size > self.p:
            raise ParameterError(f"The 'size' parameter is {size!r}, of {self.p} columns.", "Pass at most p.")
        check_size(self.size)
        self.rounding = delta * max(self.n, 1)
        # Lists cell by cell: one text must not make text of them. Objects without a number are NaN.
        target = np.asarray(loose.vector_of(y))
        target = loose.numbers(target) if target.dtype.kind == "O" else target
        if target.shape != (self.n,) or target.dtype.kind not in "fiub":
            raise DataError(
                f"y has shape {target.shape} and type {target.dtype}.",
                "Pass one number for each row of X.",
            )
        with np.errstate(over="ignore", under="ignore"):  # a wider type than float64
            self.y = self._clip(target.astype(np.float64))
        #: X'y of the first pass: for bounds, not for scores.
        self.products = self.columns.measure(self.y)
        #: sum loss(y_i, 0): the part that `score` adds to the centred scores of the kernels.
        self.origin = float(math.fsum(self.loss.value(self.y, np.zeros(self.n))))
        self._scores: dict[tuple[int, ...], float] = {}

    def _check_scale(self) -> None:
        """Refuse public parameters with which the kernels could over- or underflow."""
        b_x, b_y, a = self.feature_bound, self.target_bound, self.reach
        for name, bound in (("feature_bound", b_x), ("target_bound", b_y)):
            if not 1 / _SCALE <= bound <= _SCALE:
                raise ParameterError(
                    f"The '{name}' parameter is {bound!r}.",
                    "Rescale the data: pass a bound in [1e-30, 1e30].",
                )
        least = _LEAST_REACH.get(self.loss.name, _LEAST_REACH_OTHER)
        largest = _LARGEST_REACH.get(self.loss.name, _LARGEST_REACH_OTHER)
        if not least * b_y <= a <= largest * b_y * (1 + 1e-9):
            raise ParameterError(
                f"The 'radius' parameter is {self.radius!r}: predictions reach {a / b_y:.3g} times the bound "
                "of the target.",
                f"Pass one for which they reach between {least:.3g} and {largest:.3g} times.",
            )
        if self.ridge and not _LEAST_RIDGE <= self.ridge / (b_x * b_x) <= _SCALE:
            raise ParameterError(
                f"The 'ridge' parameter is {self.ridge!r}.",
                f"Pass 0, or between {_LEAST_RIDGE:.3g} and {_SCALE:.3g} times feature_bound^2.",
            )

    def _clip(self, y: Floats) -> Floats:
        if self.loss.labels:
            return np.where(y > 0, 1.0, -1.0)
        b = self.target_bound
        return flush(np.clip(np.nan_to_num(y, nan=0.0, posinf=b, neginf=-b), -b, b), b)

    def score(self, support: Iterable[int]) -> float:
        """Return F_S, with the part in y alone: certified within tau, but for the rounding of that part.

        Parameters
        ----------
        support : iterable of int
            `size` distinct column numbers.
        """
        return self.centred_score(self.check_support(support)) + self.origin

    def check_support(self, support: Iterable[int]) -> tuple[int, ...]:
        """Return the support as a sorted tuple.

        Raises
        ------
        ParameterError
            Unless it names `size` distinct columns.
        """
        columns = tuple(sorted(int(j) for j in support))
        if len(set(columns)) != self.size or columns[0] < 0 or columns[-1] >= self.p:
            raise ParameterError(
                f"The support is {columns!r:.80}.", f"Pass {self.size} distinct columns below {self.p}."
            )
        return columns

    def centred_score(self, support: tuple[int, ...]) -> float:
        """Return F_S - sum loss(y_i, 0) for a sorted support, on the grid; computed once, at most 0."""
        known = self._scores.get(support)
        if known is None:
            known = float(self.centred_scores(np.array([support], dtype=np.int64))[0])
            if len(self._scores) > 1 << 18:
                self._scores.clear()
            self._scores[support] = known
        return known

    def known_scores(self, supports: npt.NDArray[np.int64]) -> Floats:
        """Return `centred_score` of the sorted rows of `supports`, the new ones computed together, [m]."""
        keys = list(map(tuple, supports.tolist()))
        new = [i for i, key in enumerate(keys) if key not in self._scores]
        if len(self._scores) + len(new) > 1 << 18:
            self._scores.clear()
            new = list(range(len(keys)))
        if new:
            values = self.centred_scores(supports[new]).tolist()
            self._scores.update(zip((keys[i] for i in new), values, strict=True))
        return np.array([self._scores[key] for key in keys])

    def centred_scores(self, supports: npt.NDArray[np.int64]) -> Floats:
        """Return F_S - sum loss(y_i, 0), on the grid, for the rows of `supports` [m, size]."""
        return self.on_grid(self._values(supports))

    def on_grid(self, values: Any) -> Any:
        """Return values rounded up to multiples of `step`: what a score is, and a bound on scores may be.

        A lower bound on the value of a support, rounded up, is one on its score. So a support that is proven
        to have a value above T - step has a score of at least T, for T on the grid (`limit`). Exact: a score
        is below 2^48 steps.
        """
        return np.ceil(values / self.step) * self.step + 0.0

    def limit(self, score: float) -> float:
        """Return the least double that proves, as a lower bound on a value, a score of at least `score`."""
        return math.nextafter(score - self.step, math.inf)

    def _values(self, supports: npt.NDArray[np.int64]) -> Floats:
        """Return values, not on the grid, [m]."""
        out = np.empty(supports.shape[0])
        if self.loss.name == "squared":
            from confide.selection.kernels import gram_of_pairs, squared_scores

            used, places = np.unique(supports, return_inverse=True)
            places = places.reshape(supports.shape)
            if used.size <= max(2 * self.size, 1024) and self.n * used.size <= 1 << 27:
                pairs, c = np.full((used.size, used.size), np.nan), np.empty(used.size)
                gram_of_pairs(self.columns.take(used), self.y, places, pairs, c)
                squared_scores(pairs, c, places, self.ridge, self.radius, out)
                return out
            half = supports.shape[0] // 2
            out[:half] = self._values(supports[:half])
            out[half:] = self._values(supports[half:])
            return out
        for i, support in enumerate(supports):
            out[i] = self._solve(support)
        return out

    def _solve(self, support: npt.NDArray[np.int64]) -> float:
        from confide.selection.interior import solve_ball

        ridge, beta, alpha = np.full(self.size, self.ridge), np.zeros(self.size), np.zeros(self.n)
        A = self.columns.take(support)
        value, gap = solve_ball(
            A, self.y, self.loss.code, self.loss.shape, ridge, self.radius,
            self.tolerance, _ITERATIONS, beta, alpha,
        )  # fmt: skip
        if not gap <= self.tolerance:
            gap = min(gap, self._polished(A, ridge, value, beta, alpha))
        # A gap above tau has not been seen inside the ranges of `_check_scale`. An exception here would tell
        # tables apart with certainty, after the charge; the best feasible value is an upper bound all the
        # same, and is used.
        self.missed = max(self.missed, gap / self.tau)
        return min(value, 0.0)

    def _polished(self, A: Floats, ridge: Floats, value: float, beta: Floats, alpha: Floats) -> float:
        """Return the gap of `value` after the multipliers were repaired.

        Where the optimal face is flat, Newton's system is singular at the solution: the value is exact, but
        multipliers keep an error of 1e-5 or so along directions that only they see. Those near a wall go to
        it, the others take up what is left of A'alpha by least squares; any multipliers inside their boxes
        are a valid certificate.
        """
        from confide.selection.interior import ball_conjugate, fit_values

        low, high = self.loss.box(self.y)
        z, products = np.zeros(self.n), np.zeros(self.size)
        length = float(np.linalg.norm(beta))
        best = math.inf
        for snap in (1e-9, 1e-7, 1e-5, 1e-3):
            near = snap * (high - low)
            fixed = np.where(alpha - low <= near, low, np.where(high - alpha <= near, high, alpha))
            inside = (fixed > low) & (fixed < high)
            for _ in range(4):
                _, dual = fit_values(
                    A, self.y, self.loss.code, self.loss.shape, ridge, beta, fixed, z, products
                )
                best = min(best, value - (dual - ball_conjugate(products, ridge, self.radius)))
                if best <= self.tolerance or not inside.any():
                    break
                # At the optimum A'alpha = (ridge + nu) beta; nu from its projection, 0 inside the ball.
                excess = products - ridge * beta
                nu = 0.0
                if length >= self.radius * (1 - 1e-9):
                    nu = max(0.0, float(excess @ beta) / length**2)
                step, *_ = np.linalg.lstsq(A[inside].T, nu * beta - excess, rcond=1e-12)
                fixed[inside] = np.clip(fixed[inside] + step, low[inside], high[inside])
        return best


def _positive(value: Any, name: str) -> float:
    number = float(value) if isinstance(value, int | float | np.number) and value is not True else math.nan
    if not 0 < number < math.inf:
        raise ParameterError(
            f"The '{name}' parameter is {value!r:.80}.",
            "Pass a positive number, from knowledge and not from the data.",
        )
    return number
