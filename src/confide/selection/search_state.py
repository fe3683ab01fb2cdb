"""What the squared loss's search keeps: nodes in a heap, the path, and the best supports. Kernels."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import njit

from confide.selection.kernels import ball_quadratic, quadratic_value

# Places in `numbers` and `counts`.
#
# BEAT is the score to beat, on the grid of STEP; LIMIT the least bound that proves a score of BEAT or more
# (`SubsetProblem.limit`); SLACK what every bound is lowered by; LEAST and SMALL ridges that pivots survive.
LIMIT, RIDGE, RADIUS, LEAST, LENGTH, LARGEST, ROOT, SCALE, BEAT, STEP, SLACK, SMALL = range(12)
HEAP, SPARE, LEVEL, FLOOR, FOUND, NODES, WORK, BALL, ASKED = range(9)


class State(NamedTuple):
    """All arrays of one search; p columns, supports of s, room for m nodes and R supports."""

    G: Any  # [k, p] rows of X'X
    slot: Any  # int64 [p] row of a column, -1 where it is not there yet
    diagonal: Any  # [p]
    c: Any  # [p] X'y
    asked: Any  # int64 [p] columns whose rows are needed to go on
    group: Any  # uint8 [p]: 1 where a column is marked, whose quota comes first
    sums: Any  # [p, s] sums of the k largest scaled products of a column with others
    spread: Any  # [p] h: G - diag(h) is positive semidefinite
    numbers: Any  # [12]
    counts: Any  # int64 [9]
    quota: Any  # int64 [2] wanted of the marked, of the others
    # The heap and its nodes.
    heap_low: Any  # [m]
    heap_slot: Any  # int64 [m]
    spare: Any  # int64 [m] slots that are free
    node_pins: Any  # int64 [m, s]
    node_count: Any  # int64 [m]
    node_list: Any  # uint64 [m, words] bits of the columns that may join
    node_nu: Any  # [m]
    # The path: level l has l pinned columns.
    pins: Any  # int64 [s]
    at: Any  # int64 [s + 1, p]
    u: Any  # [s + 1, p]
    d: Any  # [s + 1, p]
    gain: Any  # [s + 1, p] w
    V: Any  # [s + 1, s, p]
    first: Any  # int64 [s + 1] marked columns in the list, which come first
    length: Any  # int64 [s + 1]
    place: Any  # int64 [s + 1] next child
    wanted: Any  # int64 [s + 1, 2]
    base: Any  # [s + 1]
    ridge: Any  # [s + 1] L
    scratch: Any  # [4, p]
    order: Any  # int64 [p]
    # The best supports: a heap with the worst on top.
    best: Any  # [R]
    best_columns: Any  # int64 [R, s]


@njit(cache=True, nogil=True, error_model="numpy")
def _score(
    G: Any, slot: Any, diagonal: Any, c: Any, S: Any, ridge: float, radius: float, step: float
) -> float:
    """Return the score of a sorted support: the operations of `SubsetProblem.centred_scores`."""
    s = S.size
    block = np.empty((s, s))
    part = np.empty(s)
    beta = np.empty(s)
    for x in range(s):
        part[x] = c[S[x]]
        row = slot[S[x]]
        for z in range(s):
            if x == z:
                block[x, x] = diagonal[S[x]]
            else:
                block[x, z] = G[row, S[z]] if row >= 0 else G[slot[S[z]], S[x]]
    ball_quadratic(block, part, ridge, radius, beta)
    return np.ceil(quadratic_value(block, part, ridge, beta) / step) * step + 0.0


@njit(cache=True, nogil=True, error_model="numpy")
def scores_of(
    G: Any,
    slot: Any,
    diagonal: Any,
    c: Any,
    supports: Any,
    ridge: float,
    radius: float,
    step: float,
    out: Any,
) -> None:
    """Fill out[i] with the score of sorted row i; all of its columns but one must have rows in G."""
    for i in range(supports.shape[0]):
        out[i] = _score(G, slot, diagonal, c, supports[i], ridge, radius, step)


@njit(cache=True, nogil=True, error_model="numpy")
def offer(st: State, S: Any) -> None:
    """Score a support; keep it where it is below the score to beat."""
    S.sort()
    numbers = st.numbers
    score = _score(st.G, st.slot, st.diagonal, st.c, S, numbers[RIDGE], numbers[RADIUS], numbers[STEP])
    if not score < numbers[BEAT]:
        return
    room = st.best.size
    count = st.counts[FOUND]
    if count < room:
        i = count
        st.counts[FOUND] = count + 1
        while i > 0 and st.best[(i - 1) // 2] < score:
            st.best[i] = st.best[(i - 1) // 2]
            st.best_columns[i] = st.best_columns[(i - 1) // 2]
            i = (i - 1) // 2
    else:
        i = 0
        while True:
            child = 2 * i + 1
            if child >= room:
                break
            if child + 1 < room and st.best[child + 1] > st.best[child]:
                child += 1
            if st.best[child] <= score:
                break
            st.best[i] = st.best[child]
            st.best_columns[i] = st.best_columns[child]
            i = child
    st.best[i] = score
    st.best_columns[i] = S
    if st.counts[FOUND] == room and st.best[0] < numbers[BEAT]:
        # All places are taken: only a lower score gets in.
        numbers[BEAT] = st.best[0]
        numbers[LIMIT] = np.nextafter(numbers[BEAT] - numbers[STEP], np.inf)


@njit(cache=True, nogil=True, error_model="numpy")
def push(st: State, low: float, slot: int) -> None:
    """Put a node into the heap."""
    i = st.counts[HEAP]
    st.counts[HEAP] += 1
    while i > 0 and st.heap_low[(i - 1) // 2] > low:
        st.heap_low[i] = st.heap_low[(i - 1) // 2]
        st.heap_slot[i] = st.heap_slot[(i - 1) // 2]
        i = (i - 1) // 2
    st.heap_low[i] = low
    st.heap_slot[i] = slot


@njit(cache=True, nogil=True, error_model="numpy")
def pop(st: State) -> int:
    """Take the node of least bound out of the heap; return its slot."""
    slot = st.heap_slot[0]
    st.counts[HEAP] -= 1
    n = st.counts[HEAP]
    low = st.heap_low[n]
    last = st.heap_slot[n]
    i = 0
    while True:
        child = 2 * i + 1
        if child >= n:
            break
        if child + 1 < n and st.heap_low[child + 1] < st.heap_low[child]:
            child += 1
        if st.heap_low[child] >= low:
            break
        st.heap_low[i] = st.heap_low[child]
        st.heap_slot[i] = st.heap_slot[child]
        i = child
    st.heap_low[i] = low
    st.heap_slot[i] = last
    return slot


@njit(cache=True, nogil=True, error_model="numpy")
def save(st: State, level: int, low: float, start: int) -> bool:
    """Put the node at a level of the path, its list from `start` on, into the heap; False without room."""
    if st.counts[SPARE] == 0:
        return False
    st.counts[SPARE] -= 1
    slot = st.spare[st.counts[SPARE]]
    st.node_count[slot] = level
    st.node_pins[slot, :level] = st.pins[:level]
    st.node_nu[slot] = st.ridge[level] - st.numbers[RIDGE]
    st.node_list[slot, :] = np.uint64(0)
    for k in range(start, st.length[level]):
        j = st.at[level, k]
        st.node_list[slot, j >> 6] |= np.uint64(1) << np.uint64(j & 63)
    # What holds for all of the subtree that is searched holds for its parts.
    push(st, max(low, st.numbers[ROOT]), slot)
    return True
