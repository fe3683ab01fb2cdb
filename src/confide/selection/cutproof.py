"""Proof by our own search that no support but the listed ones lies below a score, from cuts alone.

The solver of the master proposes; this proves. A depth-first walk over the supports, columns in a fixed
order: with the columns chosen so far fixed and `rest` to come from position m on, every completion is at
least

    max over cuts k of  C_k - sum of w_kj over the chosen - sum of the `rest` largest w_kj from position m on,

and is left out if that is at least the threshold. Supports that no cut lifts to the threshold are handed
back, to be scored. Nothing but sums of size + 1 doubles is computed, and `Pool.arrays` has paid for them.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from numba import njit

Floats = npt.NDArray[np.float64]
Supports = npt.NDArray[np.int64]

_LEAVES = 512


@njit(cache=True, nogil=True, error_model="numpy")
def top_sums(W: Any, start: int, stop: int, number: int) -> Any:
    """Return T[m - start, r, k]: the sum of the r largest of W[m:stop, k]; W is [p, K]."""
    K = W.shape[1]
    T = np.zeros((stop - start + 1, number + 1, K))
    top = np.zeros((number + 1, K))
    for m in range(stop - 1, start - 1, -1):
        for k in range(K):
            x = W[m, k]
            for r in range(number):
                if x > top[r, k]:
                    x, top[r, k] = top[r, k], x
            total = 0.0
            for r in range(number):
                total += top[r, k]
                T[m - start, r + 1, k] = total
    return T


@njit(cache=True, nogil=True, error_model="numpy")
def walk(
    C: Any, W: Any, first: int, a: int, TA: Any, TB: Any, threshold: float, chosen: Any, depth: int,
    budget: int, leaves: Any,
) -> Any:  # fmt: skip
    """Walk on from (chosen, depth); return (depth, leaves found), depth -1 when the walk has ended.

    Parameters
    ----------
    C : float64 array [K]
    W : float64 array [p, K]
        In the order of the walk; `a` columns come from positions below `first`, the others from above.
    TA, TB : float64 arrays
        `top_sums` of the two groups.
    threshold : float
    chosen : int64 array [size]
        Positions; the entry at `depth` is the next one to try. Changed in place.
    depth : int
    budget : int
        Nodes after which to return.
    leaves : int64 array [m, size]
        Filled with the supports below the threshold, as positions; returns when it is full.
    """
    p, K = W.shape
    size = chosen.size
    b = size - a
    sums = np.empty((size + 1, K))
    sums[0] = C
    for d in range(depth):
        for k in range(K):
            sums[d + 1, k] = sums[d, k] - W[chosen[d], k]
    hint = np.zeros(size + 1, dtype=np.int64)
    found = 0
    for _ in range(budget):
        if depth < 0 or found == leaves.shape[0]:
            break
        m = chosen[depth]
        early = depth < a
        rest = a - depth if early else size - depth
        over = m > (first if early else p) - rest
        if not over:
            k = hint[depth]
            for i in range(K + 1):
                if i:
                    k = i - 1
                left = TA[m, rest, k] + TB[0, b, k] if early else TB[m - first, rest, k]
                if sums[depth, k] - left >= threshold:
                    hint[depth] = k
                    over = True
                    break
        if over:
            depth -= 1
            if depth >= 0:
                chosen[depth] += 1
            continue
        largest = -np.inf
        for k in range(K):
            x = sums[depth, k] - W[m, k]
            sums[depth + 1, k] = x
            largest = max(largest, x)
        if depth + 1 == size:
            if largest < threshold:
                for j in range(size):
                    leaves[found, j] = chosen[j]
                found += 1
            chosen[depth] += 1
            continue
        depth += 1
        chosen[depth] = first if depth == a else m + 1
    return depth, found


class Walk:
    """One proof: all supports with `number` columns from each of two groups.

    Parameters
    ----------
    groups : list of (int64 array, int)
        Columns and how many of them; the second group may be the only one with columns.
    order : float64 array [p]
        Larger first, within each group.
    """

    def __init__(self, groups: list[tuple[Supports, int]], order: Floats) -> None:
        (A, self.a), (B, self.b) = groups
        self.first = A.size
        self.columns = np.concatenate(
            [A[np.argsort(-order[A], kind="stable")], B[np.argsort(-order[B], kind="stable")]]
        )
        self.chosen = np.zeros(self.a + self.b, dtype=np.int64)
        self.chosen[0] = 0 if self.a else self.first
        self.depth = 0
        self.leaves = np.empty((_LEAVES, self.chosen.size), dtype=np.int64)

    def load(self, C: Floats, W: Floats) -> None:
        """Take the cuts to walk with; a later call may bring better ones."""
        self.C, self.W = C, np.ascontiguousarray(W[:, self.columns].T)
        self.TA = top_sums(self.W, 0, self.first, self.a)
        self.TB = top_sums(self.W, self.first, self.columns.size, self.b)

    def go(self, threshold: float, budget: int) -> Supports:
        """Walk on; return supports that the cuts leave below `threshold`, sorted rows."""
        self.depth, found = walk(
            self.C, self.W, self.first, self.a, self.TA, self.TB, threshold, self.chosen, self.depth, budget,
            self.leaves,
        )  # fmt: skip
        return np.sort(self.columns[self.leaves[:found]], axis=1)

    @property
    def ended(self) -> bool:
        """Whether every support was seen or left out."""
        return self.depth < 0
