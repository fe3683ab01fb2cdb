"""X'X and X'y as scores see them, by rows on demand: the very numbers of `SubsetProblem.centred_scores`."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from confide.selection.kernels import gram_of_pairs
from confide.selection.problem import SubsetProblem

Floats = npt.NDArray[np.float64]
Columns = npt.NDArray[np.int64]

#: Cells and columns that are read at once.
_BLOCK = 1 << 23
_WIDTH = 2048
#: Products of cells up to which all rows are computed at once.
_SMALL = 1 << 29
#: Products of cells past which bounds are content with single precision.
_DOUBLE = 1 << 34
_FIRST_ROOM = 64


class Products:
    """Rows of X'X, computed when they are first asked for.

    Parameters
    ----------
    problem : SubsetProblem

    Attributes
    ----------
    rows : float64 array [room, p]
    slot : int64 array [p]
        Row of a column, -1 where it is not there yet.
    diagonal, c : float64 array [p]
        Of X'X; X'y. Within rounding at first, and the numbers of scores from the first row on.
    """

    def __init__(self, problem: SubsetProblem) -> None:
        self.problem = problem
        p = problem.p
        self.rows = np.empty((min(p, _FIRST_ROOM), p))
        self.slot = np.full(p, -1, dtype=np.int64)
        self.count = 0
        # For guesses, until the first rows are asked for.
        self.diagonal, self.c = problem.columns.squares.copy(), problem.products.copy()
        self._exact = False

    @property
    def whole(self) -> bool:
        """Whether all rows are there."""
        return bool(np.all(self.slot >= 0))

    def _blocks(self, beside: int = 0) -> list[Columns]:
        """Return the columns in parts that are read at once, with `beside` others."""
        p, n = self.problem.p, max(self.problem.n, 1)
        width = max(1, min(p, _WIDTH, _BLOCK // n - beside))
        return [np.arange(start, min(start + width, p)) for start in range(0, p, width)]

    def ensure(self, columns: Columns) -> None:
        """Compute the rows named that are not there yet."""
        problem, p = self.problem, self.problem.p
        missing = np.unique(columns[self.slot[columns] < 0])
        if missing.size == 0:
            return
        if p <= _WIDTH and p * p * problem.n <= _SMALL:
            missing = np.flatnonzero(self.slot < 0)
        if self.count + missing.size > self.rows.shape[0]:
            room = min(p, max(self.count + missing.size, 2 * self.rows.shape[0]))
            grown = np.empty((room, p))
            grown[: self.count] = self.rows[: self.count]
            self.rows = grown
        places = self.count + np.arange(missing.size)
        for block in self._blocks(missing.size):
            used = np.union1d(block, missing)
            first, second = np.searchsorted(used, missing), np.searchsorted(used, block)
            pairs = np.stack([np.repeat(first, block.size), np.tile(second, missing.size)], axis=1)
            pairs.sort(axis=1)
            if not self._exact:
                pairs = np.concatenate([pairs, np.stack([second, second], axis=1)])
            G, c = np.full((used.size, used.size), np.nan), np.empty(used.size)
            gram_of_pairs(problem.columns.take(used), problem.y, pairs, G, c)
            self.rows[places[:, None], block] = G[first[:, None], second]
            own = np.diagonal(G)
            self.diagonal[used] = np.where(np.isnan(own), self.diagonal[used], own)
            self.c[used] = c
        self._exact = True
        # In this order, so that an interrupt loses rows at most.
        self.count += missing.size
        self.slot[missing] = places

    def near(self, columns: Columns) -> Floats:
        """Return the rows named as BLAS computes them, [k, p]: for guesses."""
        columns = np.asarray(columns, dtype=np.int64)
        if columns.size == 0 or np.all(self.slot[columns] >= 0):
            return self.rows[self.slot[columns]]
        return np.ascontiguousarray(self.problem.columns.correlations(self.problem.columns.take(columns)).T)

    def largest_entries(self, ridge: float, most: int, patience: Callable[[], bool]) -> Floats | None:
        """Return the `most` largest scaled entries of each column, largest first, [p, most].

        abs(G_ij) / sqrt(K_ii K_jj) over i, K = G + ridge. For bounds: by BLAS, in single precision where
        there are many products, and with what rounding can be added. None where `patience` ends.
        """
        problem, p = self.problem, self.problem.p
        single = p * p * problem.n > _DOUBLE
        kind, unit = (np.float32, 2.0**-24) if single else (np.float64, 2.0**-53)
        scale = 1 / np.sqrt(self.diagonal + ridge)
        top = np.zeros((p, most))
        if most == 0:
            return top
        for i, block in enumerate(self._blocks()):
            first = (problem.columns.take(block) * scale[block]).astype(kind)
            for other in self._blocks()[: i + 1]:
                if not patience():
                    return None
                if other[0] == block[0]:
                    scaled = np.abs(first.T @ first)
                    np.fill_diagonal(scaled, 0.0)
                else:
                    second = (problem.columns.take(other) * scale[other]).astype(kind)
                    scaled = np.abs(first.T @ second)
                    top[other] = _merge(top[other], scaled.T)
                top[block] = _merge(top[block], scaled)
        # Sums of n products in any order (Higham 2002, 3.5), relative to the norms of both columns.
        return top + 2 * (problem.n + 256) * unit

    def spread(self, size: int) -> Floats:
        """Return theta diag(G), theta the least eigenvalue of the scaled X'X, [p]."""
        from scipy.linalg import eigh

        scale = np.sqrt(self.diagonal)
        keep = np.flatnonzero(scale > 0)
        h = np.zeros(self.problem.p)
        if keep.size:
            G = self.rows[self.slot] if self.whole else self.problem.columns.gram()
            R = G[np.ix_(keep, keep)] / np.outer(scale[keep], scale[keep])
            theta = float(eigh(R, eigvals_only=True, subset_by_index=(0, 0))[0])
            theta -= 64 * keep.size * (keep.size + size + self.problem.n) * 2.0**-53
            h[keep] = max(0.0, theta) * self.diagonal[keep] * (1 - 1e-9)
        return h


def _merge(top: Floats, scaled: npt.NDArray[np.floating]) -> Floats:
    """Return the largest of `top` [k, most] and of the rows of `scaled`, largest first."""
    most = top.shape[1]
    if scaled.shape[1] > most:
        scaled = np.partition(scaled, scaled.shape[1] - most, axis=1)[:, -most:]
    both = np.concatenate([top, scaled.astype(np.float64)], axis=1)
    return np.ascontiguousarray(-np.sort(-both, axis=1)[:, :most])
