"""Kernels of `confide.prediction.intervals.hybrid`: one hidden layer, one logit, two domains that meet.

Arrays are laid out as in `kernels`, whose monotone operations these are made of. B is a box of parameters; S
a box (`S_lower`, `S_upper`) plus a ball of radius rho. What comes from S is widened by a slack, so that it
is nested across neighbours as computed (see `hybrid`); what comes from B and from bounds that are nested
stays nested.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import njit

from confide.prediction.intervals.kernels import (
    backward,
    exact_sum,
    first_layer,
    keep_largest,
    later_layer,
    mark_bad,
    norm_scales,
    residuals,
    row_products,
)


@njit(cache=True, error_model="numpy", nogil=True)
def hybrid_bounds(n_in: Any, hidden: Any, B_lower: Any, B_upper: Any, S_lower: Any, S_upper: Any, rho: Any,
                  slacks: Any, X: Any, lengths: Any, rows: Any, Z: Any, A: Any, W: Any) -> None:  # fmt: skip
    """Bound pre-activations, activations and the last layer's weights over the meet of B and S.

    Parameters
    ----------
    slacks : ndarray, shape [3]
        What bounds from S are widened by: coordinates; pre-activations and the logit, a unit of row length.
    X : ndarray, shape [n_in + 1, chunk]
    lengths : ndarray, shape [chunk]
        At least the norm of each row; inf for a row that is left to B alone.
    Z : ndarray, shape [2, hidden + 1, chunk]
        Written: pre-activations and, last, the logit.
    A : ndarray, shape [2, hidden + 3, chunk]
        Written: activations and their row of ones; then room for the logit, as `norm_scales` reads it.
    W : ndarray, shape [2, 1, hidden + 1]
        Written: the last layer.
    """
    size, chunk = hidden * (n_in + 1), X.shape[1]
    first = (hidden, n_in + 1)
    S, T = np.empty((2, hidden, chunk)), np.ones((2, hidden + 1, chunk))
    first_layer(S_lower[:size].reshape(first), S_upper[:size].reshape(first), X, S[0], S[1], rows)
    first_layer(B_lower[:size].reshape(first), B_upper[:size].reshape(first), X, Z[0], Z[1], rows)
    last = (1, hidden + 1)
    largest = np.ones(rows)  # the most that the squared norm of the activations is, over S
    for o in range(hidden):
        for r in range(rows):
            low, high = S[0, o, r], S[1, o, r]
            T[0, o, r] = low if low > 0 else 0.0
            T[1, o, r] = high if high > 0 else 0.0
            wide = (rho + slacks[1]) * lengths[r]
            low, high = low - wide, high + wide
            if high > 0:
                largest[r] += high * high
            Z[0, o, r] = low if low > Z[0, o, r] else Z[0, o, r]
            Z[1, o, r] = high if high < Z[1, o, r] else Z[1, o, r]
            A[0, o, r] = Z[0, o, r] if Z[0, o, r] > 0 else 0.0
            A[1, o, r] = Z[1, o, r] if Z[1, o, r] > 0 else 0.0
    A[:, hidden, :rows] = 1.0
    norm = 0.0
    for i in range(hidden + 1):
        low, high = S_lower[size + i], S_upper[size + i]
        if i < hidden:
            norm += max(low * low, high * high)
        low, high = low - (rho + slacks[0]), high + (rho + slacks[0])
        W[0, 0, i] = low if low > B_lower[size + i] else B_lower[size + i]
        W[1, 0, i] = high if high < B_upper[size + i] else B_upper[size + i]
    norm = math.sqrt(norm) + rho
    later_layer(W[0], W[1], A[0], A[1], Z[0, hidden:], Z[1, hidden:], rows)
    joint = np.empty((2, 1, chunk))
    later_layer(
        S_lower[size:].reshape(last), S_upper[size:].reshape(last), T[0], T[1], joint[0], joint[1], rows
    )
    for r in range(rows):
        along = norm * lengths[r]
        wide = rho * math.sqrt(along * along + largest[r]) + slacks[2] * lengths[r]
        low, high = joint[0, 0, r] - wide, joint[1, 0, r] + wide
        Z[0, hidden, r] = low if low > Z[0, hidden, r] else Z[0, hidden, r]
        Z[1, hidden, r] = high if high < Z[1, hidden, r] else Z[1, hidden, r]


@njit(cache=True, error_model="numpy", nogil=True)
def hybrid_sums(dims: Any, B_lower: Any, B_upper: Any, S_lower: Any, S_upper: Any, rho: Any, slacks: Any,
                X: Any, lengths: Any, codes: Any, table: Any, point: Any, clip: Any, limit: Any, step: Any,
                totals: Any, kept: Any, heaps: Any) -> Any:  # fmt: skip
    """Sum the bounds of all rows' clipped gradients over the meet of B and S.

    Parameters are those of `kernels.gradient_sums` and of `hybrid_bounds`, and

    lengths : ndarray, shape [blocks, chunk]
    limit : float
        The largest squared norm that the bounds of a row in `kept` may reach.
    totals, kept : ndarray of int64, shape [2, parameters]
        Sums over all rows, and over those within the limit, added to.

    Returns
    -------
    int
        Rows beyond the limit.
    """
    n_in, hidden, chunk = dims[0], dims[1], X.shape[2]
    size, magic = B_lower.shape[0], 1.5 * 2.0**52 * step
    Z, D = np.empty((2, hidden + 1, chunk)), np.empty((2, hidden + 1, chunk))
    A, W = np.empty((2, hidden + 3, chunk)), np.empty((2, 1, hidden + 1))
    scale, squares = np.ones((2, chunk)), np.empty((4, chunk))
    G = np.empty((2, size, chunk))
    beyond = 0
    for block in range(X.shape[0]):
        begin = block * chunk
        rows = min(chunk, codes.shape[0] - begin)
        x, code = X[block], codes[begin : begin + rows]
        hybrid_bounds(
            n_in, hidden, B_lower, B_upper, S_lower, S_upper, rho, slacks, x, lengths[block], rows, Z, A, W
        )
        residuals(Z[0, hidden:], Z[1, hidden:], code, table, D[0, hidden:], D[1, hidden:])
        backward(W[0, :, :hidden], W[1, :, :hidden], D[0, hidden:], D[1, hidden:],
                 Z[0, :hidden], Z[1, :hidden], D[0, :hidden], D[1, :hidden], rows)  # fmt: skip
        bad = np.zeros(rows, dtype=np.bool_)
        mark_bad(Z, rows, bad)
        mark_bad(D, rows, bad)
        norm_scales(dims, x, A, D, rows, clip, squares, scale, bad)
        far = np.zeros(rows)
        w = 0
        for layer in range(2):
            for o in range(hidden if layer == 0 else 1):
                dl, du = D[0, layer * hidden + o, :rows], D[1, layer * hidden + o, :rows]
                for i in range((n_in if layer == 0 else hidden) + 1):
                    al = x[i, :rows] if layer == 0 else A[0, i, :rows]
                    au = x[i, :rows] if layer == 0 else A[1, i, :rows]
                    row_products(dl, du, al, au, scale[0], scale[1], clip, magic, G[0, w], G[1, w])
                    for r in range(rows):
                        if bad[r] and code[r] >= 0:
                            G[0, w, r] = 0.0 if point else -clip
                            G[1, w, r] = 0.0 if point else clip
                        most = max(-G[0, w, r], G[1, w, r])
                        far[r] += most * most
                    totals[0, w] += int(exact_sum(G[0, w, :rows]) / step)
                    totals[1, w] += int(exact_sum(G[1, w, :rows]) / step)
                    if heaps.shape[2]:
                        keep_largest(G[0, w, :rows], 1.0, heaps[0, w])
                        keep_largest(G[1, w, :rows], -1.0, heaps[1, w])
                    w += 1
        for r in range(rows):
            if not far[r] <= limit:
                beyond += 1
                G[:, :, r] = 0.0
        for w in range(size):
            kept[0, w] += int(exact_sum(G[0, w, :rows]) / step)
            kept[1, w] += int(exact_sum(G[1, w, :rows]) / step)
    return beyond


@njit(cache=True, error_model="numpy", nogil=True)
def hybrid_decide(dims: Any, B_lower: Any, B_upper: Any, S_lower: Any, S_upper: Any, rho: Any, slacks: Any,
                  X: Any, lengths: Any, classes: Any) -> None:  # fmt: skip
    """Find the class of all models in the meet, or -1: X [blocks, in + 1, chunk] -> classes [rows]."""
    n_in, hidden, chunk = dims[0], dims[1], X.shape[2]
    Z, A, W = np.empty((2, hidden + 1, chunk)), np.empty((2, hidden + 3, chunk)), np.empty((2, 1, hidden + 1))
    for block in range(X.shape[0]):
        begin = block * chunk
        rows = min(chunk, classes.shape[0] - begin)
        hybrid_bounds(n_in, hidden, B_lower, B_upper, S_lower, S_upper, rho, slacks, X[block], lengths[block],
                      rows, Z, A, W)  # fmt: skip
        bad = np.zeros(rows, dtype=np.bool_)
        mark_bad(Z, rows, bad)
        for r in range(rows):
            found = 1 if Z[0, hidden, r] > 0 else (0 if Z[1, hidden, r] <= 0 else -1)
            classes[begin + r] = -1 if bad[r] else found
