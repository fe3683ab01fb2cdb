"""Elementary symmetric polynomials of exponentials: weights of buckets, marginals, and exact walks.

e_t(x) is the sum over all t-subsets T of the product of x_j over T. With x_j = exp(l_j) it is the weight of a
bucket whose members have additive log-weights. All sums here are of positive numbers, in log domain wherever
their range could leave the doubles; walks go by ratios of such sums, so that every subset is reached with
small relative error whatever its probability.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import njit

from confide.mechanisms.walk import full_exponent_uniform

#: Nats between the largest log-weight and the product of the t largest beyond which log domain is used.
_SAFE = 400.0


@njit(cache=True, nogil=True)
def log_symmetric(logs: Any, t: int, work: Any) -> float:
    """Return log e_t of exp(logs), or NaN where plain doubles are not safe (see `log_symmetric_tree`).

    `work` is a float64 array of t + 1. Terms that underflow are below exp(-300) of the sum.
    """
    if t == 0:
        return 0.0
    if t > logs.size:
        return -np.inf
    top = logs[0]
    for j in range(logs.size):
        top = max(top, logs[j])
    for k in range(t + 1):
        work[k] = 0.0
    work[0] = 1.0
    for j in range(logs.size):
        gap = logs[j] - top
        if gap < -700.0:
            continue
        x = math.exp(gap)
        for k in range(t, 0, -1):
            work[k] += x * work[k - 1]
    # Safe: what underflowed has a factor below exp(-700), times at most C(p, t) < exp(14 t) terms.
    if not (work[t] > math.exp(-_SAFE) and work[t] < 1e300):
        return np.nan
    return t * top + math.log(work[t])


@njit(cache=True, nogil=True)
def fill_tree(logs: Any, t: int, tree: Any) -> None:
    """Fill tree[node, k] = log e_k of the leaves below node; root 1, children 2i, 2i + 1, leaf j at size + j.

    `tree` has shape [2 size, t + 1], size a power of two >= logs.size.
    """
    size = tree.shape[0] // 2
    for j in range(size):
        tree[size + j, 0] = 0.0
        for k in range(1, t + 1):
            tree[size + j, k] = -np.inf
        if j < logs.size and t > 0:
            tree[size + j, 1] = logs[j]
    for node in range(size - 1, 0, -1):
        for k in range(t + 1):
            top = -np.inf
            for i in range(k + 1):
                top = max(top, tree[2 * node, i] + tree[2 * node + 1, k - i])
            if top == -np.inf:
                tree[node, k] = -np.inf
                continue
            total = 0.0
            for i in range(k + 1):
                total += math.exp(tree[2 * node, i] + tree[2 * node + 1, k - i] - top)
            tree[node, k] = top + math.log(total)


@njit(cache=True, nogil=True)
def walk_tree(tree: Any, t: int, words: Any, position: int, out: Any) -> int:
    """Draw a t-subset with probability proportional to its product.

    Returns the next position, or -1 where the words run out. At each node, the number that goes left is
    chosen by ratios of sums of positive terms.
    """
    size = tree.shape[0] // 2
    nodes = np.empty(2 * t + 2, dtype=np.int64)
    counts = np.empty(2 * t + 2, dtype=np.int64)
    values = np.empty(t + 1)
    after = np.empty(t + 2)
    depth = 0
    found = 0
    nodes[0] = 1
    counts[0] = t
    if t > 0:
        depth = 1
    while depth > 0:
        depth -= 1
        node = nodes[depth]
        k = counts[depth]
        if node >= size:
            out[found] = node - size
            found += 1
            continue
        best = 0
        for i in range(k + 1):
            term = tree[2 * node, i] + tree[2 * node + 1, k - i] - tree[node, k]
            values[i] = math.exp(term) if term > -np.inf else 0.0
            if values[i] > values[best]:
                best = i
        # One number at a time, the likeliest last: P(i | none before) = value / what remains, a sum of
        # positive terms; so every comparison u < p has p with full relative accuracy.
        after[k + 1] = values[best]
        for i in range(k, -1, -1):
            after[i] = after[i + 1] + (values[i] if i != best else 0.0)
        left = best
        for i in range(k + 1):
            if i == best or values[i] == 0.0:
                continue
            u, position = full_exponent_uniform(words, position)
            if u < 0.0:
                return -1
            if u * after[i] < values[i]:
                left = i
                break
        if k - left > 0:
            nodes[depth] = 2 * node + 1
            counts[depth] = k - left
            depth += 1
        if left > 0:
            nodes[depth] = 2 * node
            counts[depth] = left
            depth += 1
    return position


@njit(cache=True, nogil=True)
def marginals(logs: Any, t: int, chosen: Any, out: Any) -> float:
    """Fill out[i] = P(chosen[i] in T) under the t-subset law of exp(logs); return log e_t (approximate).

    For proposals only: underflow is harmless. `chosen` are distinct positions (few); the polynomial of the
    others is computed once, then prefixes and suffixes over the chosen.
    """
    m = chosen.size
    top = -np.inf
    for j in range(logs.size):
        top = max(top, logs[j])
    picked = np.zeros(logs.size, dtype=np.bool_)
    for i in range(m):
        picked[chosen[i]] = True
    prefix = np.zeros((m + 1, t + 1))
    prefix[0, 0] = 1.0
    for j in range(logs.size):
        gap = logs[j] - top
        if not picked[j] and gap > -600.0:
            x = math.exp(gap)
            for k in range(t, 0, -1):
                prefix[0, k] += x * prefix[0, k - 1]
    for i in range(m):
        x = math.exp(logs[chosen[i]] - top)
        for k in range(t + 1):
            prefix[i + 1, k] = prefix[i, k] + (x * prefix[i, k - 1] if k > 0 else 0.0)
    suffix = np.zeros(t + 1)
    suffix[0] = 1.0
    total = prefix[m, t]
    for i in range(m - 1, -1, -1):
        x = math.exp(logs[chosen[i]] - top)
        value = 0.0
        for k in range(t):
            value += prefix[i, k] * suffix[t - 1 - k]
        out[i] = min(1.0, x * value / total) if total > 0.0 else 0.0
        for k in range(t, 0, -1):
            suffix[k] += x * suffix[k - 1]
    return t * top + math.log(total) if total > 0.0 else -np.inf


@njit(cache=True, nogil=True)
def walk_many(tree: Any, t: int, words: Any, position: int, out: Any, done: int) -> Any:
    """Fill rows of `out` from row `done` on, until the words run out; return (rows filled, next position)."""
    while done < out.shape[0]:
        after = walk_tree(tree, t, words, position, out[done])
        if after < 0:
            break
        position = after
        done += 1
    return done, position
