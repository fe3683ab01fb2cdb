"""Bounds of nodes for the squared loss: kernels. See `search_squared` for what they rest on.

A node is a set of pinned columns and a list of columns that may join them. On the path from a node down,
level l keeps for its list the residual correlations u, the Schur diagonals d of K = G + L I and the rows V of
the Cholesky factor, so that pinning one more column costs one pass over the list.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import njit

from confide.selection.search_state import (
    BALL,
    LARGEST,
    LEAST,
    LENGTH,
    LIMIT,
    RADIUS,
    RIDGE,
    SCALE,
    SLACK,
    WORK,
    State,
)

#: Relative inflation of gains: covers the rounding of a few dozen operations.
INFLATE = 1 + 1e-12
#: 64 units, times the operations of a column: rounding of Cholesky's factor (`search_squared`).
_UNITS = 64 * 2.0**-53


@njit(cache=True, nogil=True, error_model="numpy")
def rounding(st: State, L: float, value: float) -> float:
    """Return what a bound whose gains add up to `value` is lowered by, for what rounding can move."""
    s = st.pins.size
    ridge = st.numbers[RIDGE]
    nu = L - ridge
    own = 4e-15 * value + _UNITS * nu * st.numbers[RADIUS] ** 2
    if value == 0.0 and nu == 0.0:
        return st.numbers[SLACK]
    top = st.numbers[LARGEST] + L
    reach = st.numbers[RADIUS] * math.sqrt(s * top)
    loss = _UNITS * (s + 8) * reach * (reach + st.numbers[LENGTH])
    if nu == 0.0:
        loss = min(loss, _UNITS * (s + 8) * s * top / ridge * value)
    return loss + own + st.numbers[SLACK]


@njit(cache=True, nogil=True, error_model="numpy")
def low_of(st: State, level: int, gains: float) -> float:
    """Return the bound of supports whose gains add up to at most `gains`."""
    L = st.ridge[level]
    top = st.base[level] - gains * INFLATE
    if top == -np.inf:
        return -np.inf
    return top - (L - st.numbers[RIDGE]) * st.numbers[RADIUS] ** 2 / 2 - rounding(st, L, -top)


@njit(cache=True, nogil=True, error_model="numpy")
def need_of(st: State, level: int) -> float:
    """Return the sum of gains below which `low_of` is above the limit."""
    limit = st.numbers[LIMIT]
    if limit == np.inf:
        return -np.inf
    L = st.ridge[level]
    need = st.base[level] - (L - st.numbers[RIDGE]) * st.numbers[RADIUS] ** 2 / 2 - limit
    if need <= 0.0:
        return -np.inf
    return need * (1 - 1e-11) - rounding(st, L, need - st.base[level])


@njit(cache=True, nogil=True, error_model="numpy")
def _tops(gain: Any, start: int, stop: int, wanted: int, room: Any) -> Any:
    """Return the sum of the `wanted` largest gains in a range, and the least of them."""
    if wanted == 0:
        return 0.0, np.inf
    if stop - start < wanted:
        return -np.inf, np.inf
    count = 0
    for k in range(start, stop):
        g = gain[k]
        if count < wanted:
            i = count
            count += 1
        elif g > room[wanted - 1]:
            i = wanted - 1
        else:
            continue
        while i > 0 and room[i - 1] < g:
            room[i] = room[i - 1]
            i -= 1
        room[i] = g
    total = 0.0
    for i in range(wanted):
        total += room[i]
    return total, room[wanted - 1]


@njit(cache=True, nogil=True, error_model="numpy")
def prepare(st: State, level: int) -> float:
    """Fill the gains of a level's list, drop what cannot join, sort; return the bound of the node.

    Infinite where no support passes the limit.
    """
    s = st.pins.size
    t = s - level
    L = st.ridge[level]
    at, u, d, gain = st.at[level], st.u[level], st.d[level], st.gain[level]
    exact, one, two, room = st.scratch[0], st.scratch[1], st.scratch[2], st.scratch[3]
    wants_first, wants_rest = st.wanted[level, 0], st.wanted[level, 1]
    need = need_of(st, level)
    low = -np.inf
    for _ in range(3):
        n, split = st.length[level], st.first[level]
        st.counts[WORK] += n * (4 + level)
        largest = 1.0
        for k in range(n):
            K = st.diagonal[at[k]] + L
            largest = max(largest, K / d[k])
            exact[k] = u[k] * u[k] / (2 * d[k])
        chosen = exact
        if t > 1:
            stretch = math.sqrt(largest)
            twist = math.sqrt(largest - 1.0)
            slack = 1e-12 + _UNITS * (s + 8) * t * largest
            # Scaled entries at the least L, seen at L.
            least, most = st.numbers[LEAST], st.numbers[LARGEST]
            stretch *= math.sqrt((most + least) / (most + L))
            for k in range(n):
                j = at[k]
                ratio = (st.diagonal[j] + L) / d[k]
                miss = math.sqrt((st.diagonal[j] + least) / d[k]) * stretch * st.sums[j, t - 1] + slack
                miss += (t - 1) * math.sqrt(max(ratio - 1.0, 0.0)) * twist
                square = u[k] * u[k] / 2
                if square == 0.0:
                    one[k] = 0.0
                    two[k] = 0.0
                    continue
                one[k] = square / (d[k] * (1.0 - miss)) if miss < 1.0 else np.inf
                two[k] = square / (L + st.spread[j])
            chosen = one
            a, _ = _tops(one, 0, split, wants_first, room)
            b, _ = _tops(one, split, n, wants_rest, room)
            x, _ = _tops(two, 0, split, wants_first, room)
            y, _ = _tops(two, split, n, wants_rest, room)
            if x + y < a + b:
                chosen = two
        total_first, least_first = _tops(chosen, 0, split, wants_first, room)
        total_rest, least_rest = _tops(chosen, split, n, wants_rest, room)
        total = total_first + total_rest
        if total == -np.inf:
            return np.inf
        low = low_of(st, level, total)
        if low >= st.numbers[LIMIT]:
            return np.inf
        # A column outside the top of its group needs to stand in for the least of them.
        m = 0
        for k in range(n):
            least = least_first if k < split else least_rest
            if total == np.inf or chosen[k] >= least or total - least + chosen[k] >= need:
                if m != k:
                    at[m] = at[k]
                    u[m] = u[k]
                    d[m] = d[k]
                    for x in range(level):
                        st.V[level, x, m] = st.V[level, x, k]
                gain[m] = chosen[k]
                m += 1
            if k == split - 1:
                st.first[level] = m
        if split == 0:
            st.first[level] = 0
        st.length[level] = m
        if t == 1 or m > 0.8 * n:
            break
    _sort(st, level, 0, st.first[level])
    _sort(st, level, st.first[level], st.length[level])
    return low


@njit(cache=True, nogil=True, error_model="numpy")
def _sort(st: State, level: int, start: int, stop: int) -> None:
    """Sort a part of a level's list by gain, largest first."""
    n = stop - start
    if n < 2:
        return
    at, u, d, gain = st.at[level], st.u[level], st.d[level], st.gain[level]
    order = np.argsort(-gain[start:stop])
    moved = st.scratch[0]
    whole = st.order
    for k in range(n):
        whole[k] = at[start + order[k]]
    at[start:stop] = whole[:n]
    for k in range(n):
        moved[k] = u[start + order[k]]
    u[start:stop] = moved[:n]
    for k in range(n):
        moved[k] = d[start + order[k]]
    d[start:stop] = moved[:n]
    for k in range(n):
        moved[k] = gain[start + order[k]]
    gain[start:stop] = moved[:n]
    for x in range(level):
        row = st.V[level, x]
        for k in range(n):
            moved[k] = row[start + order[k]]
        row[start:stop] = moved[:n]


@njit(cache=True, nogil=True, error_model="numpy")
def pin(st: State, level: int, k: int) -> None:
    """Pin entry k of a level's list: fill the next level from the entries behind it that may join."""
    at, u, d = st.at[level], st.u[level], st.d[level]
    j = at[k]
    st.pins[level] = j
    pivot = math.sqrt(d[k])
    y = u[k] / pivot
    L = st.ridge[level]
    up = level + 1
    is_first = k < st.first[level]
    st.wanted[up, 0] = st.wanted[level, 0] - (1 if is_first else 0)
    st.wanted[up, 1] = st.wanted[level, 1] - (0 if is_first else 1)
    st.ridge[up] = L
    st.base[up] = st.base[level] - y * y / 2
    start = k + 1
    if is_first and st.wanted[up, 0] == 0:
        start = st.first[level]
    stop = st.first[level] if st.wanted[up, 1] == 0 and is_first else st.length[level]
    m = max(stop - start, 0)
    st.first[up] = max(st.first[level] - start, 0)
    st.length[up] = m
    row = st.scratch[0]
    V = st.V[level]
    G = st.G[st.slot[j]]
    for i in range(m):
        row[i] = G[at[start + i]]
    for x in range(level):
        f = V[x, k]
        for i in range(m):
            row[i] -= f * V[x, start + i]
            st.V[up, x, i] = V[x, start + i]
    inverse = 1.0 / pivot
    for i in range(m):
        v = row[i] * inverse
        st.V[up, level, i] = v
        st.at[up, i] = at[start + i]
        st.u[up, i] = u[start + i] - v * y
        st.d[up, i] = max(d[start + i] - v * v, L)
    st.place[up] = 0


@njit(cache=True, nogil=True, error_model="numpy")
def _load(st: State, slot: int, nu: float) -> float:
    """Fill the level of a node from its bits, at a multiplier; return as `prepare`."""
    p = st.c.size
    count = st.node_count[slot]
    L = st.numbers[RIDGE] + nu
    # Pinned columns first, one after the other; what is left of the list are the bits.
    m = 0
    bits = st.node_list[slot]
    marked = 0
    for group in (1, 0):
        for j in range(p):
            if st.group[j] == group and (bits[j >> 6] >> np.uint64(j & 63)) & np.uint64(1):
                st.at[count, m] = j
                m += 1
        if group == 1:
            marked = m
    first, rest = st.quota[0], st.quota[1]
    for k in range(m):
        j = st.at[count, k]
        st.u[count, k] = st.c[j]
        st.d[count, k] = st.diagonal[j] + L
    F = np.zeros((count, count))
    y = np.zeros(count)
    base = 0.0
    for x in range(count):
        i = st.node_pins[slot, x]
        st.pins[x] = i
        if st.group[i] == 1:
            first -= 1
        else:
            rest -= 1
        pivot = st.diagonal[i] + L
        part = st.c[i]
        for z in range(x):
            h = st.node_pins[slot, z]
            f = st.G[st.slot[h], i]
            for w in range(z):
                f -= F[z, w] * F[x, w]
            f /= F[z, z]
            F[x, z] = f
            pivot -= f * f
            part -= f * y[z]
        F[x, x] = math.sqrt(max(pivot, L))
        y[x] = part / F[x, x]
        base -= y[x] * y[x] / 2
        row = st.V[count, x]
        G = st.G[st.slot[i]]
        for k in range(m):
            row[k] = G[st.at[count, k]]
        for z in range(x):
            f = F[x, z]
            other = st.V[count, z]
            for k in range(m):
                row[k] -= f * other[k]
        inverse = 1.0 / F[x, x]
        for k in range(m):
            row[k] *= inverse
            st.u[count, k] -= row[k] * y[x]
            st.d[count, k] -= row[k] * row[k]
    for k in range(m):
        st.d[count, k] = max(st.d[count, k], L)
    st.counts[WORK] += m * (count * count // 2 + 2)
    level = count
    st.base[level] = base
    st.ridge[level] = L
    st.wanted[level, 0] = first
    st.wanted[level, 1] = rest
    if first == 0:
        # Marked columns may not join any more: the list has none (`pin`), but for the root.
        m = _drop(st, level, 0, marked, m)
        marked = 0
    if rest == 0:
        m = marked
    st.first[level] = marked
    st.length[level] = m
    st.place[level] = 0
    return prepare(st, level)


@njit(cache=True, nogil=True, error_model="numpy")
def _drop(st: State, level: int, start: int, stop: int, m: int) -> int:
    """Take a range out of a level's list; return the new length."""
    gap = stop - start
    if gap > 0:
        for k in range(stop, m):
            st.at[level, k - gap] = st.at[level, k]
            st.u[level, k - gap] = st.u[level, k]
            st.d[level, k - gap] = st.d[level, k]
            for x in range(level):
                st.V[level, x, k - gap] = st.V[level, x, k]
    return m - gap


@njit(cache=True, nogil=True, error_model="numpy")
def enter(st: State, slot: int) -> float:
    """Load a node at the best multiplier of the ball that a few steps find; return its bound."""
    nu = st.node_nu[slot]
    low = _load(st, slot, nu)
    if st.counts[BALL] == 0 or low == np.inf:
        return low
    ridge, least, scale = st.numbers[RIDGE], st.numbers[LEAST], st.numbers[SCALE]
    used = nu
    for factor in (1.3, 1 / 1.3):
        moved = False
        for _ in range(6):
            L = max((ridge + nu + scale) * factor - scale, least)
            if L - ridge == nu:
                break
            used = L - ridge
            trial = _load(st, slot, used)
            if not trial > low:
                break
            nu, low, moved = used, trial, True
            if low == np.inf:
                return low
        if moved:
            break
    return low if used == nu else _load(st, slot, nu)
