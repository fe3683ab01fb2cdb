"""Good supports quickly, for the squared loss: greedy, then swaps of one column while they gain."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numba import njit

from confide.selection.ranking import Floats

Columns = np.ndarray
_SWAPS = 50


@njit(cache=True, nogil=True, error_model="numpy")
def _explain(
    rows: Any, diagonal: Any, c: Any, L: float, members: Any, skip: int, u: Any, d: Any, V: Any
) -> float:
    """Fill what is left of all columns given `members` but one: u and d; return the value.

    Row x of `rows` is X'X at members[x].
    """
    p = c.size
    for j in range(p):
        u[j] = c[j]
        d[j] = diagonal[j] + L
    value = 0.0
    for x in range(members.size):
        if x == skip:
            continue
        i = members[x]
        row = V[x]
        row[:] = rows[x]
        for z in range(x):
            if z == skip:
                continue
            f = V[z, i]
            other = V[z]
            for j in range(p):
                row[j] -= f * other[j]
        pivot = math.sqrt(max(d[i], L))
        y = u[i] / pivot
        value -= y * y / 2
        inverse = 1.0 / pivot
        for j in range(p):
            row[j] *= inverse
            u[j] -= row[j] * y
            d[j] = max(d[j] - row[j] * row[j], L)
    return value


@njit(cache=True, nogil=True, error_model="numpy")
def _gains(rows: Any, diagonal: Any, c: Any, L: float, members: Any, out: Any) -> None:
    """Fill what each column would gain if it joined."""
    p = c.size
    u, d, V = np.empty(p), np.empty(p), np.empty((members.size, p))
    _explain(rows, diagonal, c, L, members, -1, u, d, V)
    for j in range(p):
        out[j] = u[j] * u[j] / (2 * d[j])


@njit(cache=True, nogil=True, error_model="numpy")
def _neighbours(rows: Any, diagonal: Any, c: Any, L: float, S: Any, group: Any, values: Any) -> float:
    """Fill values[x, j], the value at L with column j in place of S[x] (infinite where j may not)."""
    p, s = c.size, S.size
    u, d, V = np.empty(p), np.empty(p), np.empty((s, p))
    for x in range(s):
        base = _explain(rows, diagonal, c, L, S, x, u, d, V)
        for j in range(p):
            values[x, j] = base - u[j] * u[j] / (2 * d[j]) if group[j] == group[S[x]] else np.inf
        for z in range(s):
            values[x, S[z]] = np.inf
    return _explain(rows, diagonal, c, L, S, -1, u, d, V)


def greedy(
    rows: Callable[[Columns], Floats], diagonal: Floats, c: Floats, L: float, group: Columns, wanted: Columns
) -> Columns:
    """Return a support built by largest gains, wanted[g] columns of each group g.

    Parameters
    ----------
    rows : callable
        Rows of X'X at columns.
    """
    left = wanted.copy()
    S = np.empty(0, dtype=np.int64)
    gains = np.empty(c.size)
    while left.any():
        _gains(rows(S), diagonal, c, L, S, gains)
        gains[S] = -1.0
        gains[left[group] == 0] = -1.0
        best = int(np.argmax(gains))
        S = np.append(S, best)
        left[group[best]] -= 1
    return S


def climb(
    rows: Callable[[Columns], Floats], diagonal: Floats, c: Floats, L: float, group: Columns, S: Columns
) -> tuple[Columns, Floats]:
    """Return S after swaps within groups that gain, and the values of its neighbours [s, p]."""
    S = S.copy()
    values = np.empty((S.size, c.size))
    for _ in range(_SWAPS):
        now = _neighbours(rows(S), diagonal, c, L, S, group, values)
        place, column = np.unravel_index(int(np.argmin(values)), values.shape)
        if not values[place, column] < now - 1e-12 * abs(now):
            break
        S[place] = column
    return S, values
