"""Branch and bound for the squared loss: which node comes next, and the last two columns. Kernels."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import njit

from confide.selection.kernels import solve_definite
from confide.selection.search_bounds import INFLATE, enter, low_of, need_of, pin, prepare, rounding
from confide.selection.search_state import (
    ASKED,
    BALL,
    FLOOR,
    HEAP,
    LEAST,
    LEVEL,
    LIMIT,
    NODES,
    RADIUS,
    RIDGE,
    ROOT,
    SMALL,
    SPARE,
    WORK,
    State,
    offer,
    pop,
    push,
    save,
)

#: Free columns from which children wait in the heap; below, they are searched at once.
_WAIT = 3


@njit(cache=True, nogil=True, error_model="numpy")
def _rules_out(st: State, S: Any, L: float) -> bool:
    """Return whether a support is above the limit by its bound at a multiplier near its own, from L on."""
    s = S.size
    H = np.empty((s, s))
    beta = np.empty(s)
    part = np.empty(s)
    ridge, radius = st.numbers[RIDGE], st.numbers[RADIUS]
    for _ in range(3):
        for x in range(s):
            part[x] = st.c[S[x]]
            row = st.slot[S[x]]
            for z in range(x):
                H[x, z] = st.G[row, S[z]] if row >= 0 else st.G[st.slot[S[z]], S[x]]
            H[x, x] = st.diagonal[S[x]] + L
        if not solve_definite(H, part, beta):
            return False
        value = 0.0
        square = 0.0
        for x in range(s):
            value += part[x] * beta[x] / 2
            square += beta[x] * beta[x]
        nu = max(L - ridge, 0.0)
        if -value * INFLATE - nu * radius * radius / 2 - rounding(st, L, value) >= st.numbers[LIMIT]:
            return True
        if not square > 0.0:
            return False
        # Newton on 1 / ||beta|| = 1 / radius.
        pull = 0.0
        for x in range(s):
            v = beta[x]
            for z in range(x):
                v -= H[x, z] * part[z]
            part[x] = v / H[x, x]
            pull += part[x] * part[x]
        step = (math.sqrt(square) / radius - 1.0) * square / pull
        if not -np.inf < step < np.inf:
            return False
        L = max(L + step, st.numbers[SMALL], ridge + nu / 4)
    return False


@njit(cache=True, nogil=True, error_model="numpy")
def _keep(st: State, last: int, more: int) -> None:
    """Score the pinned columns with `last` (none if negative) and `more`; keep it if it is among the best."""
    s = st.pins.size
    S = np.empty(s, dtype=np.int64)
    known = s - 1 if last < 0 else s - 2
    S[:known] = st.pins[:known]
    if last >= 0:
        S[s - 2] = last
    S[s - 1] = more
    numbers = st.numbers
    if st.counts[BALL]:
        if _rules_out(st, S, st.ridge[known]):
            return
    elif numbers[LEAST] > numbers[RIDGE] and _rules_out(st, S, max(numbers[SMALL], numbers[RIDGE])):
        return
    offer(st, S)


@njit(cache=True, nogil=True, error_model="numpy")
def _one(st: State, level: int) -> None:
    """Score the supports of a node with one column left that pass."""
    for k in range(st.length[level]):
        if st.gain[level, k] < need_of(st, level):
            break
        _keep(st, -1, st.at[level, k])
    st.counts[WORK] += st.length[level]


@njit(cache=True, nogil=True, error_model="numpy")
def _pairs(st: State, level: int) -> None:
    """Score the supports of a node with two columns left that pass, by their exact gain at L."""
    at, u, d, gain, V = st.at[level], st.u[level], st.d[level], st.gain[level], st.V[level]
    L = st.ridge[level]
    need = need_of(st, level)
    mixed = st.wanted[level, 0] == 1 and st.wanted[level, 1] == 1
    stop = st.length[level]
    last = st.first[level] if mixed else stop
    for a in range(last):
        start = st.first[level] if mixed else a + 1
        if start >= stop or gain[a] + gain[start] < need:
            break
        own = u[a] * u[a] / (2 * d[a])
        inverse = 1.0 / d[a]
        row = st.G[st.slot[at[a]]]
        done = start
        for b in range(start, stop):
            if gain[a] + gain[b] < need:
                break
            done = b
            g = row[at[b]]
            for x in range(level):
                g -= V[x, a] * V[x, b]
            f = g * inverse
            rest = max(d[b] - g * f, L)
            v = u[b] - f * u[a]
            if not own + v * v / (2 * rest) < need:
                _keep(st, at[a], at[b])
                need = need_of(st, level)
        st.counts[WORK] += (done - start + 1) * (level + 4)
        if st.counts[BALL] and a + 1 < last and st.counts[SPARE] > 0:
            # What is left may have another multiplier of the ball.
            rest = a + 1 if mixed else a + 2
            other = st.first[level] if mixed else a + 1
            if rest < stop:
                low = low_of(st, level, gain[a + 1] + gain[other if mixed else rest])
                if low < st.numbers[LIMIT]:
                    save(st, level, low, a + 1)
            return


@njit(cache=True, nogil=True, error_model="numpy")
def _missing(st: State, level: int) -> bool:
    """Return whether rows of X'X are missing that `_pairs` reads, and name them."""
    gain = st.gain[level]
    need = need_of(st, level)
    mixed = st.wanted[level, 0] == 1 and st.wanted[level, 1] == 1
    stop = st.length[level]
    count = 0
    for a in range(st.first[level] if mixed else stop):
        other = st.first[level] if mixed else a + 1
        if other >= stop or gain[a] + gain[other] < need:
            break
        if st.slot[st.at[level, a]] < 0:
            st.asked[count] = st.at[level, a]
            count += 1
        if st.counts[BALL] and st.counts[SPARE] > 0:
            # One row at a visit.
            break
    st.counts[ASKED] = count
    return count > 0


@njit(cache=True, nogil=True, error_model="numpy")
def _next(st: State, level: int) -> int:
    """Return the next entry to pin of a level's list, -1 where none passes."""
    first = st.wanted[level, 0] > 0
    wanted = st.wanted[level, 0] if first else st.wanted[level, 1]
    stop = st.first[level] if first else st.length[level]
    k = st.place[level]
    if k + wanted > stop:
        return -1
    total = 0.0
    for i in range(k, k + wanted):
        total += st.gain[level, i]
    if first:
        for i in range(stop, stop + st.wanted[level, 1]):
            total += st.gain[level, i]
    if total < need_of(st, level):
        return -1
    st.place[level] = k + 1
    return k


@njit(cache=True, nogil=True, error_model="numpy")
def advance(st: State, budget: int) -> bool:
    """Search until about `budget` operations are done or rows are asked for; return whether it is over."""
    s = st.pins.size
    counts = st.counts
    counts[ASKED] = 0
    end = counts[WORK] + budget
    while counts[WORK] < end:
        level = counts[LEVEL]
        fresh = level < 0
        k = slot = 0
        if fresh:
            if counts[HEAP] == 0 or st.heap_low[0] >= st.numbers[LIMIT]:
                return True
            st.numbers[ROOT] = st.heap_low[0]
            slot = pop(st)
            low = enter(st, slot)
            up = st.node_count[slot]
        else:
            k = _next(st, level)
            if k < 0:
                counts[LEVEL] = level - 1 if level > counts[FLOOR] else -1
                continue
            up = level + 1
            if st.slot[st.at[level, k]] < 0 and s - up > 0:
                st.asked[0] = st.at[level, k]
                counts[ASKED] = 1
                st.place[level] = k
                return False
            pin(st, level, k)
            low = prepare(st, up)
        counts[NODES] += 1
        if low < np.inf and s - up == 2 and _missing(st, up):
            if fresh:
                push(st, st.numbers[ROOT], slot)
            else:
                st.place[level] = k
            return False
        if fresh:
            st.spare[counts[SPARE]] = slot
            counts[SPARE] += 1
        if low == np.inf:
            continue
        if s - up == 1:
            _one(st, up)
        elif s - up == 2:
            _pairs(st, up)
        elif fresh:
            counts[LEVEL] = up
            counts[FLOOR] = up
        elif s - up < _WAIT or not save(st, up, low, 0):
            counts[LEVEL] = up
    return False
