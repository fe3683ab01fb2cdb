"""Columns of X'X on demand, and how far small blocks of it stay above a diagonal."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from confide.selection.columns import Columns

Floats = npt.NDArray[np.float64]

#: Columns up to which the whole X'X is kept: never more cells than X has where p <= n.
_WHOLE = 2048
#: Columns that are computed at least in one pass, when one is needed and the matrix is small.
_FIRST_ROOM = 32


class Gram:
    """X'X by columns: one pass over X for each new column (many at once), kept.

    Attributes
    ----------
    diagonal : float64 array [p]
    rows : float64 array [room, p]
        Row `slot[j]` holds X'x_j.
    """

    def __init__(self, columns: Columns) -> None:
        self.columns = columns
        self.diagonal = columns.squares
        self.slot = np.full(columns.p, -1, dtype=np.int64)
        self.rows = np.empty((min(columns.p, _FIRST_ROOM), columns.p))
        self.count = 0
        self._theta: Floats | None = None
        self._smallest = 0.0
        #: Whether Gershgorin's sums stop before the widest set.
        self._cut = False
        self._inverses: dict[float, Floats | None] = {}

    @property
    def whole(self) -> bool:
        """Whether all of X'X is small enough to be kept."""
        return self.columns.p <= min(_WHOLE, max(self.columns.n, 256))

    def ensure(self, wanted: Iterable[int]) -> None:
        """Compute the columns named that are not there yet, in one pass."""
        missing = [j for j in dict.fromkeys(int(j) for j in wanted) if self.slot[j] < 0]
        if not missing:
            return
        if self.whole and (self.count + len(missing) > 64 or self.columns.p <= 256):
            self.fill()
            return
        block = self.columns.correlations(self.columns.take(missing))
        self._room(self.count + len(missing))
        self.rows[self.count : self.count + len(missing)] = block.T
        self.slot[missing] = np.arange(self.count, self.count + len(missing))
        self.count += len(missing)

    def fill(self) -> None:
        """Compute all of it."""
        if self.count < self.columns.p:
            self.rows = self.columns.gram()
            self.slot = np.arange(self.columns.p)
            self.count = self.columns.p

    def _room(self, needed: int) -> None:
        if needed > self.rows.shape[0]:
            grown = np.empty((min(self.columns.p, max(needed, 2 * self.rows.shape[0])), self.columns.p))
            grown[: self.count] = self.rows[: self.count]
            self.rows = grown

    def theta(self, width: int) -> float:
        """Return theta >= 0 with G_SS above theta diag(G_SS) for every set S of at most `width` columns.

        The larger of two bounds on the smallest eigenvalue of the scaled block: that of the whole scaled
        matrix (interlacing), and Gershgorin's, one minus the `width` - 1 largest entries of a row. Zero
        columns are left out: they weaken nothing. Zero where X'X is not kept whole.
        """
        if not self.whole:
            return 0.0
        if self._theta is None:
            self._measure()
        assert self._theta is not None
        if width > self._theta.size and self._cut:
            return self._smallest
        return max(self._smallest, float(self._theta[min(width, self._theta.size) - 1]))

    def _measure(self) -> None:
        self.fill()
        scale = np.sqrt(self.diagonal)
        keep = np.flatnonzero(scale > 0)
        self._theta = np.zeros(1)
        if keep.size == 0:
            return
        R = self.rows[np.ix_(keep, keep)] / np.outer(scale[keep], scale[keep])
        np.fill_diagonal(R, 1.0)
        # Rounding of X'X and of the eigenvalue itself, generously.
        loss = 4 * keep.size * (self.columns.n + keep.size) * 2.0**-53
        from scipy.linalg import eigh

        self._smallest = max(0.0, float(eigh(R, eigvals_only=True, subset_by_index=(0, 0))[0]) - loss)
        most = min(keep.size, 64)
        self._cut = keep.size > most
        off = np.abs(R)
        np.fill_diagonal(off, 0.0)
        top = -np.partition(-off, most - 1, axis=1)[:, :most] if keep.size > most else off
        sums = np.cumsum(-np.sort(-top, axis=1), axis=1).max(axis=0)
        self._theta = np.maximum(0.0, 1 - np.concatenate([[0.0], sums])[:most] - loss)

    def inverse(self, sigma: float) -> Floats | None:
        """Return (G + sigma I)^-1 within 1e-7 of its norm, kept; None where that is not certain."""
        if sigma not in self._inverses:
            self.fill()
            p = self.columns.p
            largest = float(np.abs(self.rows).sum(axis=1).max(initial=0.0)) + sigma
            # An inverse by Cholesky: error below 16 p^2 units times the condition number (Higham 2002, 14.3).
            if largest / sigma * 16 * p * p * 2.0**-53 > 1e-7:
                self._inverses[sigma] = None
            else:
                from scipy.linalg import cho_factor, cho_solve

                shifted = self.rows + sigma * np.eye(p)
                self._inverses[sigma] = cho_solve(cho_factor(shifted, lower=True), np.eye(p))
        return self._inverses[sigma]

    def cover(self, sigma: float, chosen: npt.NDArray[np.int64]) -> Floats | None:
        """Return e >= 0 on the columns `chosen` with G + sigma I above diag(e), 0 elsewhere; None if unknown.

        By Schur complements, diag(e) on A lies below G + sigma I if and only if it lies below the inverse
        of the block P_AA, P = (G + sigma I)^-1. So curvature is taken from all columns, sigma each, and
        given to the few that matter: e_j = psi / P_jj, psi the inverse of the largest eigenvalue of the
        scaled block.
        """
        P = self.inverse(sigma)
        if P is None or chosen.size == 0:
            return None
        block = P[np.ix_(chosen, chosen)]
        own = np.diagonal(block)
        scale = np.sqrt(own)
        largest = float(np.linalg.eigvalsh(block / np.outer(scale, scale))[-1])
        # The error of P is at most 1e-7 / sigma, seen against P_jj.
        error = chosen.size * 2e-7 / (sigma * float(own.min()))
        return 1 / (own * (largest + error)) * (1 - 1e-9)
