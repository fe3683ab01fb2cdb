"""What a private linear fit asks: public rows, a bounded secret label, who may differ, and by how much.

Scale. Labels enter as t = clip((clip(y, lo, hi) - middle) / (R/2), -1, 1), R = hi - lo: exactly within
[-1, 1] in floating point, whatever their scale, so that no square of a label overflows or vanishes. The map
is public and works on each label alone; what follows is about t, whose range is 2.

Sensitivity (proof). Let the released vector be b = sum_i f_i t_i with f_i public. Under REPLACE_LABEL, and
under REPLACE_PRIVATE_PART when only public columns are used, neighbouring tables share n and every f_i; one
unit g changes the labels of its rows only, each by at most 2. Hence

    ||b - b'|| <= sum_{i in g} ||f_i|| |t_i - t_i'| <= 2 max_g sum_{i in g} ||f_i||,

a public number: 2, not 1 (the old and the new label may sit at both ends).

The second moment is free (proof). Append q = sum_i 2 kappa_i t_i^2. If a label moves by 2 x, 0 <= x <= 1,
then |t_i^2 - t_i'^2| = |t_i + t_i'| 2 x <= 4 (1 - x) x, so one row moves (b, q) by at most
2 (||f_i||^2 x^2 + 16 kappa_i^2 x^2 (1 - x)^2)^(1/2). That is 2 ||f_i|| or less for every x if
16 kappa_i^2 x^2 (1 - x) / (1 + x) <= ||f_i||^2, whose left side peaks at the golden ratio
x = (sqrt 5 - 1)/2 with value 16 kappa_i^2 x^5: kappa_i <= 0.8325 ||f_i|| costs nothing at all. (A label that
changes most in b changes least in its square.) Longer kappa_i act like a row of length kappa_i / 0.8325, so
a row counts max(||f_i||, kappa_i / 0.83). With kappa_i = 0.83 w_i that is at most 1, as ||f_i|| is, and q
gives the residual variance of the weighted fit.

Without an intercept the labels are centred all the same: sum_i f_i y_i is (R/2) b + middle * sum_i f_i, whose
second part is public, so bounds far from 0 cost neither accuracy nor room on the grid.

Under ADD_REMOVE_ONE and REPLACE_ONE the f_i themselves would be secret: refused.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from confide.errors import DataError, ParameterError, UnsupportedError
from confide.privacy import Adjacency
from confide.schema import loose
from confide.training.choice import Plan
from confide.training.design import BLOCK, Basis, Source

Floats = npt.NDArray[np.float64]
Codes = npt.NDArray[np.int64]

#: Weight of the second moment relative to a row's length; 0.8325 is the largest that costs nothing.
KAPPA = 0.83
#: For units of several rows, whose lengths add up: a quarter, so that short rows stay short.
_SEVERAL = 0.25

SUPPORTED = (Adjacency.REPLACE_LABEL, Adjacency.REPLACE_PRIVATE_PART)
_UNIT_ROUNDOFF = 2.0**-53
#: Label ranges whose squares, times any sensible variance, are normal doubles.
_SMALLEST_RANGE, _LARGEST_RANGE = 1e-140, 1e140
#: A range must span this many neighbouring doubles at its far end: then the middle is the middle.
_RESOLUTION = 2.0**20


@dataclass(frozen=True)
class LinearProblem:
    """A public design with a secret label in declared bounds.

    Attributes
    ----------
    source : Source
        Public rows.
    labels : callable
        Yields the secret labels, shape [any] or [any, 1], in the order of the rows. Only a solver calls it.
        Lists and arrays of objects are read cell by cell: text, say, is a missing label.
    lower, upper : float
        Declared label bounds; labels outside are clipped, missing ones are imputed by the middle.
    ids : callable, optional
        Yields the public unit of each row as integers >= 0; None where a row is a unit.
    intercept : bool
    rows_per_unit : int
        Without ids: a declared public bound on the rows of one unit (1: a row is a unit).
    """

    source: Source
    labels: Callable[[], Iterator[npt.ArrayLike]]
    lower: float
    upper: float
    ids: Callable[[], Iterator[Codes]] | None = None
    intercept: bool = True
    rows_per_unit: int = 1

    def __post_init__(self) -> None:
        check_bounds((self.lower, self.upper))

    @property
    def middle(self) -> float:
        """Middle of the bounds, which missing labels are imputed by."""
        return self.lower / 2 + self.upper / 2

    @property
    def centre(self) -> float:
        """What a model's constant stands at before the fit: the middle, or 0 where there is no intercept."""
        return self.middle if self.intercept else 0.0

    @property
    def half(self) -> float:
        """R/2: one unit of a normalised label."""
        return (self.upper - self.lower) / 2

    def normalised(self, labels: npt.ArrayLike) -> Floats:
        """Return t in [-1, 1], shape [any]; NaN is the middle (0), infinities the bounds. Never warns.

        Cells of lists and of arrays of objects that are no numbers count as NaN; none of them raises.

        Raises
        ------
        ValueError, DataError
            From the shape and the declared type of a block.
        """
        y = np.asarray(loose.vector_of(labels))
        loose.check_numeric(y, "A block of labels")
        y = np.asarray(loose.real(y), dtype=np.float64)
        y = y.reshape(y.shape[0], math.prod(y.shape[1:]))
        if y.shape[1] != 1:
            raise DataError(
                f"The label has {y.shape[1]} columns.", "Pass one label a row: shape (n,) or (n, 1)."
            )
        with np.errstate(all="ignore"):
            y = np.where(np.isnan(y[:, 0]), self.middle, y[:, 0])
            return np.clip((np.clip(y, self.lower, self.upper) - self.middle) / self.half, -1.0, 1.0)

    def label_blocks(self) -> Iterator[Floats]:
        """Yield normalised labels in the blocks of `Source.blocks`."""
        for labels in self.labels():
            y = self.normalised(labels)
            for start in range(0, y.shape[0], BLOCK):
                yield y[start : start + BLOCK]


@dataclass(frozen=True)
class PublicStep:
    """One linear release as far as it is public.

    Attributes
    ----------
    basis, plan
        Where rows lie and how they are released.
    A, B : ndarray of shape (k, k)
        sum w_i u_i u_i' and sum w_i^2 u_i u_i'.
    mean_row : ndarray of shape (k,)
        sum w_i u_i.
    mass : float
        sum w_i.
    kappa : float
        Weight of the second moment: kappa_i = kappa w_i.
    reach : float
        Largest sum of max(||f_i||, kappa_i / 0.83) over the rows of a unit: the sensitivity per unit of R.
    rounding : float
        L2 bound on the floating-point error of the block sums that hold one unit's rows, for labels in
        [-1, 1].
    extent : float
        Bound on the absolute value of every coordinate of the released sum, and of every partial sum over
        blocks, for labels in [-1, 1]: the sum over blocks of their largest absolute column sum.
    touched : int
        Largest number of blocks that hold rows of one unit.
    """

    basis: Basis
    plan: Plan
    A: Floats
    B: Floats
    mean_row: Floats
    mass: float
    kappa: float
    reach: float
    rounding: float
    extent: float
    touched: int


def public_step(problem: LinearProblem, basis: Basis, plan: Plan) -> PublicStep:
    """Read the public rows once more and measure the release: moments, reach, extent and rounding bound.

    Raises
    ------
    DataError
        If a public row has no finite coordinates (entries of extreme size), or ids do not match the rows.
    """
    k = basis.size
    A, B, mean_row, mass = np.zeros((k, k)), np.zeros((k, k)), np.zeros(k), 0.0
    absolute = extent = 0.0
    share = 1.0 if problem.ids is None and problem.rows_per_unit == 1 else _SEVERAL
    longest, per_unit, touched_by = 0.0, np.zeros(0), np.zeros(0, dtype=np.int64)
    codes = _id_blocks(problem) if problem.ids is not None else None
    for block in problem.source.blocks():
        u = basis.coordinates(block)
        f, w = plan.rows(u)
        weighted = u * w[:, None]
        A += weighted.T @ u
        B += weighted.T @ weighted
        mean_row += w @ u
        mass += float(w.sum())
        norms = np.maximum(np.sqrt(np.einsum("ij,ij->i", f, f)), share * w)
        # A NaN would be lost in the maximum below, and with it the sensitivity of its row.
        if not (np.isfinite(norms).all() and np.isfinite(f).all()):
            raise DataError(
                "A public row has coordinates that are not finite.", "Rescale the public columns."
            )
        longest = max(longest, float(norms.max(initial=0.0)))
        # gamma_b sum_i |f_ij| bounds the error of a b-term dot product in any order (Higham 2002, 3.5).
        # The second moment has terms of at most 2 kappa w_i, and a few products more. What underflows in a
        # product is below 2^-1073 and lost in the margins of `gamma` and `reach`.
        gamma = (block.shape[0] + 8) * _UNIT_ROUNDOFF / (1 - (block.shape[0] + 8) * _UNIT_ROUNDOFF)
        sums = np.append(np.abs(f).sum(axis=0), 2 * KAPPA * w.sum())
        absolute = max(absolute, gamma * float(np.linalg.norm(sums)))
        extent += (1 + gamma) * float(sums.max())
        if codes is not None:
            ids = next(codes, np.zeros(0, dtype=np.int64))
            if ids.shape[0] != block.shape[0] or (ids < 0).any():
                raise DataError(
                    "The ids do not match the public rows.", "Pass one integer >= 0 for each row."
                )
            size = int(ids.max(initial=-1)) + 1
            per_unit, touched_by = _grow(per_unit, size), _grow(touched_by, size)
            np.add.at(per_unit, ids, norms)
            touched_by[np.unique(ids)] += 1
    touched = problem.rows_per_unit
    longest *= problem.rows_per_unit
    if codes is not None:
        longest, touched = float(per_unit.max(initial=0.0)), int(touched_by.max(initial=1))
    # The factor covers the rounding of the norms, and of f itself when the rows are computed again.
    # A design of zeros releases a constant: any positive sensitivity is true of it.
    reach = longest * (1.0 + 1e-9) or 1.0
    if not all(np.isfinite(part).all() for part in (A, B, mean_row, mass, reach, absolute, extent)):
        raise DataError("The sums of the public rows are not finite.", "Rescale the public columns.")
    return PublicStep(
        basis,
        plan,
        A,
        B,
        mean_row,
        mass,
        KAPPA * share,
        reach,
        absolute * touched,
        extent * (1.0 + 1e-9),
        touched,
    )


def _number(value: object) -> float:
    if isinstance(value, str | bytes):
        raise TypeError
    return float(value)  # type: ignore[arg-type]


def check_bounds(bounds: object) -> tuple[float, float]:
    """Return label bounds as finite floats lo < hi.

    Raises
    ------
    ParameterError
        Bounds are never read from the data: without them nothing is fitted. Also for a range outside
        [1e-140, 1e140], whose square is no ordinary number, and for a range of fewer than 2^20 neighbouring
        doubles, in which labels cannot be told apart.
    """
    remedy = "Pass a pair (lo, hi) of finite numbers with lo < hi, from knowledge and not from the data."
    try:
        if isinstance(bounds, str | bytes | set | frozenset | Mapping):  # digits, or without an order
            raise TypeError
        low, high = (_number(value) for value in bounds)  # type: ignore[union-attr]
    except (TypeError, ValueError):
        raise ParameterError(f"The label bounds are {bounds!r:.80}.", remedy) from None
    if not (math.isfinite(low) and math.isfinite(high) and low < high and math.isfinite(high - low)):
        raise ParameterError(f"The label bounds are ({low!r}, {high!r}).", remedy)
    if not _SMALLEST_RANGE <= high - low <= _LARGEST_RANGE:
        raise ParameterError(
            f"The label bounds ({low!r}, {high!r}) span {high - low!r}, outside [1e-140, 1e140].",
            "Measure the label in another unit.",
        )
    if high - low < _RESOLUTION * float(np.spacing(max(abs(low), abs(high)))):
        raise ParameterError(
            f"The label bounds ({low!r}, {high!r}) are too close together for their size.",
            "Subtract a public constant from the label and from its bounds.",
        )
    return low, high


def check_adjacency(value: Adjacency | str, private_columns: tuple[str, ...]) -> Adjacency:
    """Return a relation under which public columns alone are used for free.

    Raises
    ------
    UnsupportedError
        For relations that change public columns, and for REPLACE_LABEL beside private columns.
    """
    adjacency = Adjacency.parse(value)
    if adjacency not in SUPPORTED:
        raise UnsupportedError(
            f"The linear engines have no proof under {adjacency.value!r}: they use public columns.",
            "Pass adjacency='replace_label', or 'replace_private_part' where some columns are private.",
        )
    if private_columns and adjacency is Adjacency.REPLACE_LABEL:
        raise UnsupportedError(
            f"The columns {', '.join(private_columns[:5])} are private; 'replace_label' protects labels.",
            "Pass adjacency='replace_private_part' (they are then left out), or declare them public.",
        )
    return adjacency


def _id_blocks(problem: LinearProblem) -> Iterator[Codes]:
    assert problem.ids is not None
    for codes in problem.ids():
        codes = np.asarray(codes, dtype=np.int64)
        for start in range(0, codes.shape[0], BLOCK):
            yield codes[start : start + BLOCK]


def _grow(values: npt.NDArray, size: int) -> npt.NDArray:
    if values.size >= size:
        return values
    # Doubling keeps a stream of new ids linear in time.
    grown = np.zeros(max(size, 2 * values.size), dtype=values.dtype)
    grown[: values.size] = values
    return grown
