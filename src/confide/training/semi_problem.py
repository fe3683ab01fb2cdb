"""Semi-sensitive linear problems: public rows u_i, private rows z_i and a private label, one joint statistic.

Rows. f_i = w_i L' u_i is public with ||f_i|| <= 1 (`confide.training.choice`), u_i holds the intercept. The
secret part of a row is s_i = (z_i, c t_i): z_i the private columns in [-1, 1], shortened to ||z_i|| <= Z,
t_i in [-1, 1] the label, c a public weight, so ||s_i|| <= S = (Z^2 + c^2)^(1/2). The release is

    sum_i f_i s_i'   (k numbers for each private column and for the label)
    sum_i w_i s_i s_i', times kappa, entries above the diagonal times sqrt 2 (its norm is Frobenius' then)

which with the public A = sum_i w_i u_i u_i' are all moments of a weighted least-squares fit. What does not
involve a private cell is not in it: the public block is free.

Sensitivity (proof). Under REPLACE_PRIVATE_PART one row changes s to r, with f and w <= 1 fixed. With
a = ||s||, b = ||r||, x = s'r, and ||f|| <= 1, the square of the change is at most

    h = ||s - r||^2 + kappa^2 ||s s' - r r'||_F^2 = a^2 + b^2 - 2 x + kappa^2 (a^4 + b^4 - 2 x^2), |x| <= a b.

In x it is a concave parabola with its peak at x = -1 / (2 kappa^2).
(1) a b <= 1 / (2 kappa^2): x = -a b is best, h = (a + b)^2 + kappa^2 (a^2 - b^2)^2. It grows in each of a
and b:
    dh/db / 2 = a + b - 2 kappa^2 b (a^2 - b^2) >= (a + b) (1 - 2 kappa^2 a b + 2 kappa^2 b^2) >= 0.
(2) otherwise h = a^2 + b^2 + kappa^2 (a^4 + b^4) + 1 / (2 kappa^2), which grows in both.
h is continuous between the two, so a = b = S is the worst, and with e = kappa^2 S^2

    D^2 = 4 S^2                        for e <= 1/2: the square of the secret part costs nothing at all,
    D^2 = S^2 (2 + 2 e + 1 / (2 e))    beyond.

Both are attained for q >= 1 (r = -s, and a pair at the angle whose cosine is -1 / (2 e)). Without private
columns s is a number, x = +-a b, and the golden ratio of `confide.training.problem` allows kappa = 1.66 / c
at D = 2 c: the statistic is then that of the engine ``closed_form``. With the intercept as the only public
column, f = 1 and kappa = 2^(-1/2), D = 1 + S^2: up to the factor sqrt 2 this is AdaSSP's matrix with lemma
2 of `confide.training.least_squares`.

Units of several rows: one row moves the statistic by at most max(||f_i||, share w_i) D, the inner block
weighted by share w_i, and a unit by the sum over its rows (`PublicStep.reach`).

=================================  ===================================================================
edge case                          what happens
=================================  ===================================================================
no private columns                 the statistic of ``closed_form``
no public columns                  the intercept alone is public: the statistic of AdaSSP
private cells of 1e308, inf, NaN   clipped, clipped, the middle of the bounds
labels likewise                    the same
collinear, constant private cols   finite coefficients: directions below the noise are floored, then shrunk
several rows a unit                sums per id, or a declared bound on rows
=================================  ===================================================================
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from confide.errors import DataError, ParameterError, UnsupportedError
from confide.mechanisms import grid_step, padded_sensitivity
from confide.schema import loose
from confide.training.choice import choose
from confide.training.design import BLOCK, Basis, public_basis
from confide.training.problem import KAPPA, LinearProblem, PublicStep, public_step

Floats = npt.NDArray[np.float64]

#: Private columns at most: their products are q (q + 1) / 2 numbers.
MAX_PRIVATE = 256
_WIDEST = 2.0**50
#: Prior of the public choice of weights, in units of half-ranges: variance of the label that columns explain,
#: the private columns' part of it, and the variance of a private column about its fit on the public ones.
_SIGNAL, _PRIVATE, _SPREAD = 4.0 / 162.0, 0.25, 0.15


def _no_rows() -> Iterator[Floats]:
    return iter(())


@dataclass(frozen=True)
class PrivateColumns:
    """Private columns with their bounds enforced: whatever a cell holds, what is read lies within them.

    Attributes
    ----------
    read : callable
        Yields matrices of shape (any, q) in the order of the public rows. Only a solver calls it.
    names : tuple of str
        Length q, which may be 0.
    lower, upper : ndarray of shape (q,)
        Declared bounds.
    norm : float
        Z: rows, in half-widths about the middle of the bounds, are shortened to this L2 norm.
    """

    read: Callable[[], Iterator[npt.ArrayLike]]
    names: tuple[str, ...]
    lower: Floats
    upper: Floats
    norm: float = math.inf

    def __post_init__(self) -> None:
        if len(self.names) > MAX_PRIVATE:
            raise UnsupportedError(
                f"{len(self.names)} private columns are asked; the statistics serve {MAX_PRIVATE}.",
                "Declare fewer private columns.",
            )
        with np.errstate(all="ignore"):
            width = self.upper - self.lower
        ordinary = np.isfinite(self.lower) & np.isfinite(self.upper) & (width >= 1e-140) & (width <= 1e140)
        if (
            self.lower.shape != (len(self.names),)
            or self.upper.shape != self.lower.shape
            or not ordinary.all()
        ):
            raise ParameterError(
                "The bounds of the private columns are not finite pairs lo < hi of ordinary width.",
                "Pass one pair for each private column, from knowledge and not from the data.",
            )
        if not self.norm > 1e-6:
            raise ParameterError(
                f"The 'private_norm' parameter is {self.norm!r}.", "Pass a positive number, or None."
            )

    @property
    def reach(self) -> float:
        """Z as it holds: never above sqrt(q), rounded up."""
        return min(self.norm, math.sqrt(len(self.names))) * (1 + 1e-12)

    @property
    def middle(self) -> Floats:
        """Middle of the bounds."""
        return self.lower / 2 + self.upper / 2

    @property
    def half(self) -> Floats:
        """Half-width of the bounds."""
        return self.upper / 2 - self.lower / 2

    def normalised(self, cells: npt.ArrayLike) -> Floats:
        """Return rows z, shape (any, q), within [-1, 1] and of norm at most `reach`. Never warns.

        Cells of lists and of arrays of objects that are no numbers count as NaN; none of them raises.

        Raises
        ------
        ValueError, DataError
            From the shape and the declared type of a block.
        """
        with np.errstate(all="ignore"):
            z = np.asarray(loose.matrix_of(cells))
            loose.check_numeric(z, "A block of private rows")
            z = np.asarray(loose.real(z), dtype=np.float64)
            if z.ndim != 2 or z.shape[1] != len(self.names):
                raise DataError(
                    f"A block of private rows has shape {z.shape}.",
                    f"Pass {len(self.names)} columns, as the public rows have theirs.",
                )
            z = np.where(np.isnan(z), self.middle, z)
            z = np.clip((np.clip(z, self.lower, self.upper) - self.middle) / self.half, -1.0, 1.0)
            if self.norm < math.sqrt(len(self.names)):
                norms = np.sqrt(np.einsum("ij,ij->i", z, z))
                # A margin for the rounding of the norms and of the product.
                z *= np.minimum(1.0, self.norm / np.maximum(norms, 1e-300))[:, None] * (1 - 2.0**-42)
        return z

    def without_rows(self) -> PrivateColumns:
        """Return the same bounds for the rows that a model is asked: nothing of the table is held."""
        return replace(self, read=_no_rows)

    def blocks(self) -> Iterator[Floats]:
        """Yield normalised rows in the blocks of `Source.blocks`."""
        for cells in self.read():
            z = self.normalised(cells)
            for start in range(0, z.shape[0], BLOCK):
                yield z[start : start + BLOCK]


@dataclass(frozen=True)
class Weights:
    """Public weights of the parts of one release, and what they make one row move it by.

    Attributes
    ----------
    label : float
        c.
    inner : float
        kappa.
    sensitivity : float
        D, before several rows of a unit and the grid.
    columns : bool
        Whether private columns take part.
    """

    label: float
    inner: float
    sensitivity: float
    columns: bool


def joint_sensitivity(norm: float, inner: float) -> float:
    """Return D for secret parts of norm at most S and inner weight kappa, q >= 1 (the proof is above)."""
    e = (inner * norm) ** 2
    return 2.0 * norm if e <= 0.5 else norm * math.sqrt(2.0 + 2.0 * e + 0.5 / e)


def make_weights(label: float, excess: float, reach: float) -> Weights:
    """Return weights for c = `label`, e = kappa^2 S^2 = `excess`, and Z = `reach` (0: no private column)."""
    if reach == 0:
        return Weights(label, 2.0 * KAPPA / label, 2.0 * label, False)
    norm = math.hypot(reach, label) * (1 + 1e-12)
    inner = math.sqrt(excess) / norm
    return Weights(label, inner, joint_sensitivity(norm, inner) * (1 + 1e-12), True)


def choose_weights(basis: Basis, columns: int, reach: float, noise_multiplier: float) -> Weights:
    """Choose c and kappa by the expected error under a fixed prior, from public quantities alone.

    Where private columns would cost the others more than they bring, they are left out: `Weights.inner` is
    then that of a release without them (`Weights.columns`).

    Parameters
    ----------
    basis : Basis
        Of the public columns.
    columns : int
        q.
    reach : float
        Z.
    noise_multiplier : float
    """
    alone = make_weights(1.0, 0.5, 0.0)
    if columns == 0:
        return alone
    multiplier = max(noise_multiplier, 1e-9)
    lost = basis.n * _SIGNAL * _PRIVATE
    best, chosen = _public_error(basis, multiplier * alone.sensitivity) + lost, alone
    for ratio in 2.0 ** np.arange(-2.0, 3.01, 0.25):
        for excess in 2.0 ** np.arange(-1.0, 6.01, 0.25):
            weights = make_weights(float(ratio) * reach, float(excess), reach)
            sigma = multiplier * weights.sensitivity
            error = _public_error(basis, sigma / weights.label)
            error += _private_error(weights, sigma, basis, columns)
            if error < best:
                best, chosen = error, weights
    return chosen


def _public_error(basis: Basis, sigma: float) -> float:
    """Squared error over all rows in the intercept and the public directions, after shrinkage.

    Each of k directions carries noise of variance sigma^2 k / n (rows of length 1 spread evenly), and the
    signal lies evenly in all of them, or as the squares of the singular values: the mean of both.
    """
    n, k, steep = basis.n, basis.size, basis.singular_values**2
    noise = sigma**2 * k / n
    error = n / 3.0 * noise / (n / 3.0 + noise)
    if steep.size:
        for shape in (np.full(steep.size, 1.0 / steep.size), steep / steep.sum()):
            prior = n * _SIGNAL * (1.0 - _PRIVATE) * shape
            error += 0.5 * float(np.sum(prior * noise / (prior + noise)))
    return error


def _private_error(weights: Weights, sigma: float, basis: Basis, q: int) -> float:
    """Return the same for the private columns, and for what their slopes add to the public ones."""
    n, k = basis.n, basis.size
    prior = n * _SIGNAL * _PRIVATE / q
    slope = prior / (n * _SPREAD)
    entry = (sigma / (math.sqrt(2.0) * weights.inner)) ** 2
    noise = entry * (1.0 / weights.label**2 + (q + 1) * slope) / (n * _SPREAD) + sigma**2 * slope * k**2 / n
    return q * prior * noise / (prior + noise)


@dataclass(frozen=True)
class SemiPlan:
    """All that is public about one release.

    Attributes
    ----------
    step : PublicStep
    weights : Weights
    noise_multiplier : float
        0 for a fit without noise.
    grid : float
        Step of the grid, a power of two.
    sensitivity : float
        L2, with padding and with the rows of a unit.
    """

    step: PublicStep
    weights: Weights
    noise_multiplier: float
    grid: float
    sensitivity: float

    @property
    def share(self) -> float:
        """What w_i counts for in the inner block: less than 1 where units have several rows."""
        return self.step.kappa / KAPPA

    @property
    def deviation(self) -> float:
        """Deviation of the noise in each released number."""
        return self.noise_multiplier * self.sensitivity


def plan_release(
    problem: LinearProblem,
    private: PrivateColumns,
    noise_multiplier: float,
    *,
    conditioning: str = "optimal",
    leverage: float | None = None,
    power: float = 0.5,
    rho: float = 0.1,
) -> SemiPlan:
    """Read the public rows and fix weights, geometry, grid and noise: what can be refused is refused here.

    Parameters
    ----------
    problem : LinearProblem
        With an intercept. Its labels are not read.
    private : PrivateColumns
        Its cells are not read.
    noise_multiplier : float
    conditioning, leverage, power, rho
        See `confide.training.choice.choose`.

    Raises
    ------
    ParameterError, DataError
    """
    if not problem.intercept:
        raise UnsupportedError(
            "The fit with private columns is asked without an intercept.", "Pass fit_intercept=True."
        )
    basis = public_basis(problem.source, intercept=True)
    q = len(private.names)
    weights = choose_weights(basis, q, private.reach if q else 0.0, noise_multiplier)
    q = q if weights.columns else 0
    noise = noise_multiplier * weights.sensitivity / (2.0 * weights.label)
    plan = choose(basis, noise, kind=conditioning, leverage=leverage, p=power, rho=rho)
    step = public_step(problem, basis, plan)
    tops = np.append(np.full(q, min(1.0, private.reach or 1.0)), weights.label)
    numbers = basis.size * (q + 1) + (q + 1) * (q + 2) // 2
    dimension = numbers * step.touched**2
    total = float(np.linalg.norm(tops)) + math.sqrt(2.0) * weights.inner * float(tops @ tops)
    # `PublicStep.rounding` and `extent` speak of labels within 1 and of a second moment of weight 2 * KAPPA.
    rounding = step.rounding * 1.1 * total
    extent = step.extent * max(1.0, float(tops.max()), weights.inner * float(tops.max()) ** 2)
    reach = weights.sensitivity * step.reach
    if noise_multiplier > 0:
        grid = grid_step(
            noise_multiplier * reach,
            dimension,
            noise_multiplier=noise_multiplier,
            rows=1 + basis.n // 256,
        )
        grid = max(grid, _power_above(extent / 2.0**60))
    else:
        grid = _power_above(extent / 2.0**53)
    bound = padded_sensitivity(reach, grid, dimension, rounding)
    if not noise_multiplier * bound * (1 + 1e-9) <= _WIDEST * grid:
        raise ParameterError(
            f"Noise of {noise_multiplier:.6g} times the sensitivity has no grid that doubles can hold.",
            "Pass a larger epsilon.",
        )
    return SemiPlan(step, weights, noise_multiplier, grid, bound)


def _power_above(value: float) -> float:
    return 2.0 ** math.ceil(math.log2(max(value, 2.0**-900)))


def private_bounds(bounds: Any, columns: int) -> tuple[Floats, Floats]:
    """Return (lower, upper), each of shape (columns,), from a pair of scalars or of arrays.

    Raises
    ------
    ParameterError
    """
    try:
        low, high = bounds
        lower, upper = (np.broadcast_to(np.asarray(end, dtype=float), columns).copy() for end in (low, high))
    except (TypeError, ValueError):
        raise ParameterError(
            f"The 'private_bounds' parameter is {bounds!r:.80}.",
            "Pass a pair (lo, hi) of numbers, or of arrays with one number for each private column.",
        ) from None
    return lower, upper
