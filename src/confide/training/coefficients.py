"""Coefficients of a linear model whose columns are all secret: bounded rows, and what comes back.

Under REPLACE_ONE and ADD_REMOVE_ONE a whole row is secret, so a mechanism may use nothing of X but its
declared bounds (and n, under REPLACE_ONE). The room's engine ``closed_form`` builds its sensitivity from the
public rows themselves: on secret rows that is no bound at all, and it is refused here by name.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from numbers import Real
from typing import Any

import numpy as np
import numpy.typing as npt

from confide.errors import DataError, ParameterError, UnsupportedError
from confide.mechanisms import RandomStream, row_squares
from confide.mechanisms.stream import is_certified
from confide.privacy import SEEDED, UNRECORDED, Adjacency, Event, Guarantee, exact
from confide.schema import loose

Floats = npt.NDArray[np.float64]

#: Rows of a table at most; under ADD_REMOVE_ONE, where n is secret, a public precondition.
MAX_ROWS = 1 << 24
#: Columns at most: the statistics of d columns are d (d + 1) / 2 numbers.
MAX_COLUMNS = 512
#: Numbers of a block of rows.
_BLOCK = 1 << 21
#: Past this the curve of Gaussian noise leaves the range of a double.
_LARGEST_EPSILON = 10**100
#: What the declared bounds of cells and targets may be.
_BOUNDS = (1e-100, 1e100)
#: The engines of this house whose privacy rests on public rows.
_PUBLIC_ROWS = ("closed_form", "rounds")


@dataclass(frozen=True)
class Coefficients:
    """Private coefficients of x -> intercept + x'coefficients, in the unit of the declared bounds.

    Attributes
    ----------
    intercept : float
        0 where none was asked for.
    coefficients : ndarray of shape (d,)
    method : str
        ``"sufficient_statistics"`` or ``"objective"``.
    loss : str
    epsilon, delta : Fraction
        What was spent.
    event : Event
    facts : tuple of (str, float)
        Public facts: deviations of the noise, sensitivities, ridge, all in units of the bounds, that is for
        cells and targets in [-1, 1].
    covariance : ndarray of shape (m, m), optional
        Of the privacy noise in (intercept, coefficients), to first order; None where it is not known.
        In units of the declared bounds; intercept first where there is one.
    guarantee : Guarantee, optional
        Of a fit on its own, which is charged nowhere: ``"unrecorded"``, and ``"seeded"`` where its noise is
        for tests. None within a larger release, whose guarantee covers it.
    """

    intercept: float
    coefficients: Floats
    method: str
    loss: str
    epsilon: Fraction
    delta: Fraction
    event: Event
    facts: tuple[tuple[str, float], ...]
    covariance: Floats | None = None
    guarantee: Guarantee | None = None

    def guaranteed(self, shape: Shape, stream: RandomStream) -> Coefficients:
        """Return the same with the guarantee of a fit that nobody charged, drawn from `stream`."""
        marks = (UNRECORDED,) if is_certified(stream) else (UNRECORDED, SEEDED)
        many = shape.rows_per_unit > 1
        if many:
            marks += (f"at most {shape.rows_per_unit} rows a person",)
        unit = "person" if many else "row"
        told = Guarantee(self.epsilon, self.delta, shape.relation, unit, self.event, marks)
        return replace(self, guarantee=told)

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, fit for JSON."""
        told = {} if self.guarantee is None else {"guarantee": self.guarantee.to_dict()}
        return told | {
            "method": self.method,
            "loss": self.loss,
            "epsilon": str(self.epsilon),
            "delta": str(self.delta),
            "intercept": self.intercept,
            "coefficients": self.coefficients.tolist(),
            "facts": dict(self.facts),
        }


@dataclass(frozen=True)
class Shape:
    """What is public about the rows of a fit.

    Attributes
    ----------
    columns : int
        d.
    relation : Adjacency
    rows_per_unit : int
        Most rows of one privacy unit.
    intercept : bool
        Whether a column of ones joins the d columns.
    row_norm : float
        Rows (without the one) are shortened to this L2 norm, in units of the feature bound; sqrt(d), which
        shortens none, by default.
    """

    columns: int
    relation: Adjacency
    rows_per_unit: int = 1
    intercept: bool = True
    row_norm: float = math.inf

    @property
    def size(self) -> int:
        """m, coefficients with the intercept."""
        return self.columns + int(self.intercept)

    @property
    def norm_squared(self) -> float:
        """B^2, bound on the squared norm of a row with its one, rounded up."""
        own = min(self.row_norm * self.row_norm, float(self.columns))
        return (own + float(self.intercept)) * (1 + 1e-12)

    @property
    def rows_are_public(self) -> bool:
        """Whether neighbouring tables share their number of rows."""
        return self.relation is not Adjacency.ADD_REMOVE_ONE


def make_shape(
    columns: Any,
    adjacency: Adjacency | str,
    *,
    rows_per_unit: Any = 1,
    intercept: bool = True,
    row_norm: Any = None,
) -> Shape:
    """Return a validated shape.

    Raises
    ------
    ParameterError, UnsupportedError
    """
    if not _is_count(columns) or not _is_count(rows_per_unit):
        raise ParameterError(
            f"A fit of {columns!r:.80} columns with {rows_per_unit!r:.80} rows a unit is asked.",
            "Pass integers >= 1.",
        )
    if columns > MAX_COLUMNS:
        raise UnsupportedError(
            f"A fit of {columns} columns is asked; the statistics serve {MAX_COLUMNS}.",
            "Select fewer columns.",
        )
    norm = math.inf if row_norm is None else number(row_norm, "row_norm", 1e-6, math.inf)
    if not isinstance(intercept, bool | np.bool_):
        raise ParameterError(f"The intercept is asked for by {intercept!r:.80}.", "Pass True or False.")
    return Shape(int(columns), Adjacency.parse(adjacency), int(rows_per_unit), bool(intercept), norm)


def number(value: Any, name: str, least: float, most: float) -> float:
    """Return a parameter that is a number from `least` to `most`; no text and no truth value is one.

    Raises
    ------
    ParameterError
    """
    if not isinstance(value, Real) or isinstance(value, bool) or not least <= float(value) <= most:
        raise ParameterError(
            f"The '{name}' parameter is {value!r:.80}.", f"Pass a number in [{least:g}, {most:g}]."
        )
    return float(value)


def own_norm(row_norm: Any, feature_bound: Any) -> float | None:
    """Return a row norm in units of the feature bound, both checked; None where none is given.

    Raises
    ------
    ParameterError
    """
    bound = number(feature_bound, "feature_bound", *_BOUNDS)
    if row_norm is None:
        return None
    return number(row_norm, "row_norm", 1e-100, math.inf) / bound


def check_method(method: Any, known: tuple[str, ...]) -> str:
    """Return the name of a method for secret columns.

    Raises
    ------
    UnsupportedError
        For an engine that needs public rows: by name, and why.
    ParameterError
        For any other name.
    """
    if isinstance(method, str) and method in known:
        return method
    if method in _PUBLIC_ROWS:
        raise UnsupportedError(
            f"The engine {method!r} is not private here: it reads the columns as public, and every cell of a "
            "row is secret after a selection.",
            f"Pass one of {', '.join(map(repr, known))}.",
        )
    raise ParameterError(
        f"The 'coefficients' parameter is {method!r:.80}.", f"Pass one of {', '.join(map(repr, known))}."
    )


def check_budget(epsilon: Any, delta: Any) -> tuple[Fraction, Fraction]:
    """Return 0 < epsilon <= 1e100 and 0 <= delta < 1, exact.

    Raises
    ------
    ParameterError
    """
    amount, share = exact(epsilon, "epsilon"), exact(delta, "delta")
    if amount == 0:
        raise ParameterError("The 'epsilon' parameter is 0.", "Pass a positive epsilon.")
    if amount > _LARGEST_EPSILON:
        raise ParameterError(
            f"The 'epsilon' parameter is {epsilon!r:.80}.",
            "Pass a number that means something: at most 1e100.",
        )
    if share >= 1:
        raise ParameterError(f"The 'delta' parameter is {delta!r}.", "Pass 0 <= delta < 1.")
    return amount, share


def check_rows(shape: Shape, rows: int, most: int = MAX_ROWS) -> None:
    """Refuse more rows than the proofs cover; where n is public, before any charge.

    Raises
    ------
    UnsupportedError
    """
    if shape.rows_are_public and rows > most:
        raise UnsupportedError(
            f"The table has {rows:,} rows; the proofs cover {most:,}.", "Take fewer rows by a public rule."
        )


@dataclass(frozen=True, eq=False)
class Rows:
    """Secret rows with their bounds enforced: whatever a cell holds, what is read lies within them.

    Parameters
    ----------
    X : array of shape (n, d)
        Of numbers, or of objects (`confide.schema.loose`): those that hold no number count as NaN.
    y : array of shape (n,)
    shape : Shape
    feature_bound, target_bound : float
        > 0. Cells become clip(x / bound, -1, 1), NaN becomes 0, the middle.

    Raises
    ------
    DataError, ValueError
        From shapes and types alone.
    """

    X: Any
    y: Any
    shape: Shape
    feature_bound: float = 1.0
    target_bound: float = 1.0

    def __post_init__(self) -> None:
        if getattr(self.X, "ndim", 0) != 2 or self.X.shape[1] != self.shape.columns:
            raise DataError(
                f"X has shape {np.shape(self.X)}.", f"Pass an array of shape (n, {self.shape.columns})."
            )
        if np.shape(self.y) != (self.X.shape[0],):
            raise DataError(
                f"y has shape {np.shape(self.y)}.",
                f"Pass ({self.X.shape[0]},): one target for each row of X.",
            )
        loose.check_numeric(self.X)
        loose.check_numeric(np.asarray(self.y), "y")
        number(self.feature_bound, "feature_bound", *_BOUNDS)
        number(self.target_bound, "target_bound", *_BOUNDS)

    @property
    def n(self) -> int:
        """Number of rows."""
        return int(self.X.shape[0])

    def blocks(self, width: int) -> Iterator[tuple[Floats, Floats]]:
        """Yield (rows [k, m] with the one first, targets [k]) in blocks of about 2^21 / `width` rows.

        A row depends on nothing but itself, bit for bit (`confide.mechanisms.rowwise`). Its norm is at most
        sqrt(`Shape.norm_squared`).
        """
        height = max(1, _BLOCK // width)
        for start in range(0, self.n, height):
            cells = _unit(self.X[start : start + height], self.feature_bound)
            if self.shape.row_norm < math.sqrt(self.shape.columns):
                norms = np.sqrt(row_squares(cells))
                # A margin for the rounding of the norms and of the product.
                cells *= np.minimum(1.0, self.shape.row_norm / np.maximum(norms, 1e-300))[:, None] * (
                    1 - 2.0**-42
                )
            if self.shape.intercept:
                cells = np.column_stack([np.ones(cells.shape[0]), cells])
            yield cells, _unit(self.y[start : start + height], self.target_bound)


def _unit(values: Any, bound: float) -> Floats:
    with np.errstate(all="ignore"):
        cells = loose.numbers(np.asarray(values)) / bound
    np.nan_to_num(cells, copy=False, nan=0.0, posinf=1.0, neginf=-1.0)
    return np.clip(cells, -1.0, 1.0, out=cells)


def rescaled(
    shape: Shape, theta: Floats, covariance: Floats | None, feature_bound: float, target_bound: float
) -> tuple[float, Floats, Floats | None]:
    """Return intercept, coefficients and covariance in units of the data from those of [-1, 1]."""
    scale = np.full(shape.size, target_bound / feature_bound)
    if shape.intercept:
        scale[0] = target_bound
    values = theta * scale
    moved = None if covariance is None else covariance * np.outer(scale, scale)
    if shape.intercept:
        return float(values[0]), values[1:], moved
    return 0.0, values, moved


def _is_count(value: Any) -> bool:
    return isinstance(value, int | np.integer) and not isinstance(value, bool) and bool(value >= 1)
