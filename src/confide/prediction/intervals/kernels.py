"""Interval propagation of rows and queries, in operations that rounding keeps monotone.

Why boxes stay nested without any widening. A floating-point sum, product, quotient or root is the exact one
rounded, and rounding is monotone: where the exact operation is monotone in an argument, so is the rounded
one. Every number below is computed from bounds by such operations in an order that depends on the network's
shape alone (no fast-math, no blocked matrix product whose order of summation depends on a row's place), the
exponential is monotone by construction, and sums over rows are exact: each term is rounded (monotonely) to a
grid and summed in integers. So for boxes B inside B', every bound computed from B lies inside the one from
B', bit for bit: the public bound e on what one step's rounding may break is 0.

Arrays are laid out [unit, row]: the innermost loop runs over rows. A layer's weights are [out, in + 1], the
bias last; layer inputs carry a row of ones for it.

=========================================  ===================================================================
edge case of a row                         what happens
=========================================  ===================================================================
a cell or label that is not usable         gradient exactly 0 in every box; it still counts as a row
overflow or NaN in the forward, backward   at level 0 (a point) gradient 0, above [-clip, clip] for every
pass or norm                               parameter: a box inside another overflows only where the other does
=========================================  ===================================================================
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import njit

#: exp is tabulated at multiples of 1/64 in [-40, 40]; beyond, a residual differs from 0 or 1 by under 5e-18.
REACH = 40.0
CELLS = 64
EXPONENTIALS = np.array([math.exp(m / CELLS - REACH) for m in range(int(2 * REACH * CELLS) + 2)])
EXPONENTIALS.setflags(write=False)


@njit(cache=True, error_model="numpy", nogil=True)
def monotone_exp(z: Any, table: Any) -> Any:
    """Return exp(z), z cut to [-40, 40], within 2e-16 of relative error and monotone in z bit for bit.

    Inside a cell [c, c + 1/64) it is v + v p(z - c) with p a polynomial of positive coefficients in Horner
    form, cut to the values at both ends of the cell: a chain of monotone operations on z - c >= 0. Across
    cells the cuts meet.
    """
    z = z if z > -40.0 else -40.0  # NaN too
    z = z if z < 40.0 else 40.0
    m = math.floor(z * 64.0)  # exact, and so is z - m / 64
    t = z - m / 64.0
    p = t * (1 + t * (0.5 + t * (1 / 6 + t * (1 / 24 + t * (1 / 120 + t / 720)))))
    low, high = table[m + 2560], table[m + 2561]
    value = low + low * p
    return low if value < low else (high if value > high else value)


@njit(cache=True, error_model="numpy", nogil=True)
def first_layer(W_lower: Any, W_upper: Any, X: Any, lower: Any, upper: Any, rows: Any) -> None:
    """Bound W x for points x: X [in + 1, rows] -> lower, upper [out, rows]."""
    for o in range(W_lower.shape[0]):
        lower[o, :rows] = 0.0
        upper[o, :rows] = 0.0
        for i in range(W_lower.shape[1]):
            wl, wu = W_lower[o, i], W_upper[o, i]
            for r in range(rows):
                a, b = wl * X[i, r], wu * X[i, r]
                lower[o, r] += a if a < b else b
                upper[o, r] += b if a < b else a


@njit(cache=True, error_model="numpy", nogil=True)
def later_layer(
    W_lower: Any, W_upper: Any, A_lower: Any, A_upper: Any, lower: Any, upper: Any, rows: Any
) -> None:
    """Bound W a for a >= 0 in a box: A [in + 1, rows] -> lower, upper [out, rows]."""
    for o in range(W_lower.shape[0]):
        lower[o, :rows] = 0.0
        upper[o, :rows] = 0.0
        for i in range(W_lower.shape[1]):
            wl, wu = W_lower[o, i], W_upper[o, i]
            for r in range(rows):
                lower[o, r] += wl * (A_lower[i, r] if wl >= 0 else A_upper[i, r])
                upper[o, r] += wu * (A_upper[i, r] if wu >= 0 else A_lower[i, r])


@njit(cache=True, error_model="numpy", nogil=True)
def residuals(z_lower: Any, z_upper: Any, codes: Any, table: Any, lower: Any, upper: Any) -> None:
    """Bound the loss gradient in the logits: probability minus target. Codes below 0: exactly 0.

    One output: 1/(1 + exp(-z)). Several: p_c = 1/(1 + sum_j exp(z_j - z_c)), least at the lower end of z_c
    and the upper ends of the others. Both are chains of monotone operations.
    """
    outputs = z_lower.shape[0]
    for r in range(codes.shape[0]):
        code = codes[r]
        for c in range(outputs):
            if code < 0:
                lower[c, r] = upper[c, r] = 0.0
                continue
            low = high = 1.0
            if outputs == 1:
                low += monotone_exp(-z_lower[0, r], table)
                high += monotone_exp(-z_upper[0, r], table)
            for j in range(outputs):
                if j != c:
                    low += monotone_exp(z_upper[j, r] - z_lower[c, r], table)
                    high += monotone_exp(z_lower[j, r] - z_upper[c, r], table)
            target = (1.0 if code == 1 else 0.0) if outputs == 1 else (1.0 if code == c else 0.0)
            lower[c, r] = 1.0 / low - target
            upper[c, r] = 1.0 / high - target


@njit(cache=True, error_model="numpy", nogil=True)
def backward(W_lower: Any, W_upper: Any, d_lower: Any, d_upper: Any, z_lower: Any, z_upper: Any,
             lower: Any, upper: Any, rows: Any) -> None:  # fmt: skip
    """Bound (W' d) * [z > 0]: d [out, rows], z [in, rows] -> lower, upper [in, rows]."""
    for i in range(z_lower.shape[0]):
        lower[i, :rows] = 0.0
        upper[i, :rows] = 0.0
        for o in range(W_lower.shape[0]):
            wl, wu = W_lower[o, i], W_upper[o, i]
            for r in range(rows):
                a, b = wl * d_lower[o, r], wl * d_upper[o, r]
                c, d = wu * d_lower[o, r], wu * d_upper[o, r]
                lower[i, r] += min(min(a, b), min(c, d))
                upper[i, r] += max(max(a, b), max(c, d))
        for r in range(rows):
            if not z_lower[i, r] > 0:  # the unit may be off, or is
                on = z_upper[i, r] > 0
                lower[i, r] = lower[i, r] if on and lower[i, r] < 0 else 0.0
                upper[i, r] = upper[i, r] if on and upper[i, r] > 0 else 0.0


@njit(cache=True, error_model="numpy", nogil=True)
def add_squares(lower: Any, upper: Any, units: Any, rows: Any, low: Any, high: Any) -> None:
    """Add to low, high [rows] the bounds of the squared norm over the first `units` rows of a box."""
    for i in range(units):
        for r in range(rows):
            a, b = abs(lower[i, r]), abs(upper[i, r])
            small, large = (a, b) if a < b else (b, a)
            if lower[i, r] < 0 and upper[i, r] > 0:
                small = 0.0
            low[r] += small * small
            high[r] += large * large


@njit(cache=True, error_model="numpy", nogil=True)
def row_products(d_lower: Any, d_upper: Any, a_lower: Any, a_upper: Any, s_lower: Any, s_upper: Any,
                 clip: Any, magic: Any, lower: Any, upper: Any) -> None:  # fmt: skip
    """Bound one parameter's gradient d * a * s of each row, clipped and on the grid, in lower, upper [rows].

    a is a point of any sign or a box of numbers >= 0 (a_lower <= a_upper); s in [0, 1] comes from the norm
    clip. Adding and taking away `magic` = 1.5 * 2^52 steps of the grid rounds to it.
    """
    for r in range(d_lower.shape[0]):
        dl, du, al, au = d_lower[r], d_upper[r], a_lower[r], a_upper[r]
        # Four corners. For al = au the middle two repeat.
        low = min(min(dl * al, dl * au), min(du * al, du * au))
        high = max(max(dl * al, dl * au), max(du * al, du * au))
        low *= s_lower[r] if low >= 0 else s_upper[r]
        high *= s_upper[r] if high >= 0 else s_lower[r]
        low = min(max(low, -clip), clip)
        high = min(max(high, -clip), clip)
        lower[r] = (low + magic) - magic
        upper[r] = (high + magic) - magic


@njit(cache=True, error_model="numpy", nogil=True)
def point_products(d_lower: Any, d_upper: Any, a: Any, clip: Any, magic: Any, lower: Any, upper: Any) -> None:
    """Do what `row_products` does for points a and no norm clip: the loop where most time goes."""
    for r in range(d_lower.shape[0]):
        low, high = d_lower[r] * a[r], d_upper[r] * a[r]
        small = low if low < high else high
        large = high if low < high else low
        small = small if small > -clip else -clip
        large = large if large > -clip else -clip
        small = small if small < clip else clip
        large = large if large < clip else clip
        lower[r] = (small + magic) - magic
        upper[r] = (large + magic) - magic


@njit(cache=True, error_model="numpy", nogil=True, fastmath={"reassoc", "nsz"})
def exact_sum(values: Any) -> Any:
    """Sum grid values whose partial sums are exact in any order (the only reason fast-math is allowed)."""
    total = 0.0
    for r in range(values.shape[0]):
        total += values[r]
    return total


@njit(cache=True, error_model="numpy", nogil=True)
def keep_largest(values: Any, sign: Any, heap: Any) -> None:
    """Keep the largest of sign * values in `heap`, a heap with its least element first."""
    size = heap.shape[0]
    floor = heap[0]
    above = 0
    for r in range(values.shape[0]):
        above += sign * values[r] > floor
    if above == 0:
        return
    for r in range(values.shape[0]):
        value = sign * values[r]
        if value > heap[0]:
            place, child = 0, 1
            while child < size:
                if child + 1 < size and heap[child + 1] < heap[child]:
                    child += 1
                if heap[child] >= value:
                    break
                heap[place] = heap[child]
                place, child = child, 2 * child + 1
            heap[place] = value


@njit(cache=True, error_model="numpy", nogil=True)
def forward(dims: Any, W_lower: Any, W_upper: Any, X: Any, A: Any, Z: Any, rows: Any) -> None:
    """Run the network over X [in + 1, rows]: pre-activations into Z [2, units, rows], activations into A.

    Layer l's pre-activations lie at units sum(dims[1..l]); its activations likewise in A, each layer with its
    row of ones behind (so at + l).
    """
    start = place = 0
    for layer in range(dims.shape[0] - 1):
        n_in, n_out = dims[layer], dims[layer + 1]
        size = n_out * (n_in + 1)
        wl = W_lower[start : start + size].reshape(n_out, n_in + 1)
        wu = W_upper[start : start + size].reshape(n_out, n_in + 1)
        zl, zu = Z[0, place : place + n_out], Z[1, place : place + n_out]
        if layer == 0:
            first_layer(wl, wu, X, zl, zu, rows)
        else:
            at = place - n_in + layer - 1
            later_layer(wl, wu, A[0, at : at + n_in + 1], A[1, at : at + n_in + 1], zl, zu, rows)
        at = place + layer
        for o in range(n_out):
            for r in range(rows):
                A[0, at + o, r] = zl[o, r] if zl[o, r] > 0 else 0.0
                A[1, at + o, r] = zu[o, r] if zu[o, r] > 0 else 0.0
        A[:, at + n_out, :rows] = 1.0
        start += size
        place += n_out


@njit(cache=True, error_model="numpy", nogil=True)
def mark_bad(values: Any, rows: Any, bad: Any) -> None:
    """Set bad [rows] where a bound in values [2, units, rows] is not finite."""
    for side in range(2):
        for unit in range(values.shape[1]):
            for r in range(rows):
                bad[r] |= not math.isfinite(values[side, unit, r])


@njit(cache=True, error_model="numpy", nogil=True)
def gradient_sums(dims: Any, W_lower: Any, W_upper: Any, X: Any, codes: Any, table: Any, point: Any,
                  clip: Any, by_norm: Any, step: Any, totals: Any, heaps: Any) -> None:  # fmt: skip
    """Sum the bounds of all rows' clipped gradients over one box, and keep the largest of them.

    Parameters
    ----------
    dims : ndarray of int64, shape [layers + 1]
        Units of each layer, inputs first.
    W_lower, W_upper : ndarray, shape [parameters]
        The box.
    X : ndarray, shape [blocks, in + 1, chunk]
        Rows in blocks of at most 2^14, so that partial sums stay below 2^53 steps; the last unit is one, and
        all units of an unusable row are zero.
    codes : ndarray of int64, shape [rows]
        Class of each row, -1 for an unusable one.
    point : bool
        Level 0, where a row that overflows has gradient 0.
    clip, step : float
        A multiple of the grid's step, at most 2^38 steps; the step, a power of two.
    by_norm : bool
    totals : ndarray of int64, shape [2, parameters]
        Sums of lower and upper bounds in steps, added to.
    heaps : ndarray, shape [2, parameters, cap]
        The `cap` largest lower bounds, and negated smallest upper bounds; -inf at the start.
    """
    units, layers, chunk = dims[1:].sum(), dims.shape[0] - 1, X.shape[2]
    magic = 1.5 * 2.0**52 * step
    Z, D = np.empty((2, units, chunk)), np.empty((2, units, chunk))
    A = np.empty((2, units + layers, chunk))
    low, high = np.empty(chunk), np.empty(chunk)
    scale, layer_squares = np.ones((2, chunk)), np.empty((4, chunk))
    for block in range(X.shape[0]):
        begin = block * chunk
        rows = min(chunk, codes.shape[0] - begin)
        x, code = X[block], codes[begin : begin + rows]
        forward(dims, W_lower, W_upper, x, A, Z, rows)
        residuals(Z[0, units - dims[-1] :], Z[1, units - dims[-1] :], code, table,
                  D[0, units - dims[-1] :], D[1, units - dims[-1] :])  # fmt: skip
        place, start = units - dims[-1], W_lower.shape[0]
        for layer in range(layers - 1, 0, -1):
            n_in, n_out = dims[layer], dims[layer + 1]
            start -= n_out * (n_in + 1)
            wl = W_lower[start : start + n_out * (n_in + 1)].reshape(n_out, n_in + 1)
            wu = W_upper[start : start + n_out * (n_in + 1)].reshape(n_out, n_in + 1)
            before = place - n_in
            backward(wl, wu, D[0, place : place + n_out], D[1, place : place + n_out], Z[0, before:place],
                     Z[1, before:place], D[0, before:place], D[1, before:place], rows)  # fmt: skip
            place = before
        bad = np.zeros(rows, dtype=np.bool_)
        mark_bad(Z, rows, bad)
        mark_bad(D, rows, bad)
        if by_norm:
            norm_scales(dims, x, A, D, rows, clip, layer_squares, scale, bad)
        broken = np.nonzero(bad & (code >= 0))[0]
        start = place = 0
        for layer in range(layers):
            n_in, n_out = dims[layer], dims[layer + 1]
            for o in range(n_out):
                dl, du = D[0, place + o, :rows], D[1, place + o, :rows]
                for i in range(n_in + 1):
                    if layer == 0 and not by_norm:
                        point_products(dl, du, x[i, :rows], clip, magic, low, high)
                    elif layer == 0:
                        row_products(
                            dl, du, x[i, :rows], x[i, :rows], scale[0], scale[1], clip, magic, low, high
                        )
                    else:
                        at = place - n_in + layer - 1 + i
                        row_products(
                            dl,
                            du,
                            A[0, at, :rows],
                            A[1, at, :rows],
                            scale[0],
                            scale[1],
                            clip,
                            magic,
                            low,
                            high,
                        )
                    for r in broken:
                        low[r] = 0.0 if point else -clip
                        high[r] = 0.0 if point else clip
                    w = start + o * (n_in + 1) + i
                    totals[0, w] += int(exact_sum(low[:rows]) / step)
                    totals[1, w] += int(exact_sum(high[:rows]) / step)
                    if heaps.shape[2]:
                        keep_largest(low[:rows], 1.0, heaps[0, w])
                        keep_largest(high[:rows], -1.0, heaps[1, w])
            start += n_out * (n_in + 1)
            place += n_out


@njit(cache=True, error_model="numpy", nogil=True)
def norm_scales(dims: Any, X: Any, A: Any, D: Any, rows: Any, clip: Any, squares: Any, scale: Any,
                bad: Any) -> None:  # fmt: skip
    """Bound min(1, clip / norm) of each row's gradient: scale [2, rows].

    A layer's gradient is d a', so its squared norm is |d|^2 |a|^2, each factor bounded in its box.
    """
    squares[2:] = 0.0
    place = 0
    for layer in range(dims.shape[0] - 1):
        n_in, n_out = dims[layer], dims[layer + 1]
        squares[:2] = 0.0
        add_squares(D[0, place:], D[1, place:], n_out, rows, squares[0], squares[1])
        d_low, d_high = squares[0].copy(), squares[1].copy()
        squares[:2] = 0.0
        if layer == 0:
            add_squares(X, X, n_in + 1, rows, squares[0], squares[1])
        else:
            at = place - n_in + layer - 1
            add_squares(A[0, at:], A[1, at:], n_in + 1, rows, squares[0], squares[1])
        squares[2] += d_low * squares[0]
        squares[3] += d_high * squares[1]
        place += n_out
    for r in range(rows):
        bad[r] |= not math.isfinite(squares[3, r])
        low, high = math.sqrt(squares[2, r]), math.sqrt(squares[3, r])
        scale[0, r] = clip / high if high > clip else 1.0
        scale[1, r] = clip / low if low > clip else 1.0


@njit(cache=True, error_model="numpy", nogil=True)
def decide(dims: Any, W_lower: Any, W_upper: Any, X: Any, classes: Any, logits: Any) -> None:
    """Find the class that wins everywhere in a box, or -1: X [blocks, in + 1, chunk] -> classes [rows].

    One output: 1 where the logit is above 0, 0 where it is at most 0. Several: a wins over b where
    sum_i (w_a - w_b)_i a_i > 0, or >= 0 and a < b; the difference of two output rows is taken before the
    product, since both meet the same activations. Logits [2, outputs, rows] get their own bounds.
    """
    units, layers, outputs, chunk = dims[1:].sum(), dims.shape[0] - 1, dims[-1], X.shape[2]
    Z = np.empty((2, units, chunk))
    A = np.empty((2, units + layers, chunk))
    gap_lower, gap_upper = np.empty((1, chunk)), np.empty((1, chunk))
    n_in = dims[-2]
    start = W_lower.shape[0] - outputs * (n_in + 1)
    wl = W_lower[start:].reshape(outputs, n_in + 1)
    wu = W_upper[start:].reshape(outputs, n_in + 1)
    for block in range(X.shape[0]):
        begin = block * chunk
        rows = min(chunk, classes.shape[0] - begin)
        x = X[block]
        forward(dims, W_lower, W_upper, x, A, Z, rows)
        bad = np.zeros(rows, dtype=np.bool_)
        mark_bad(Z, rows, bad)
        z_lower, z_upper = Z[0, units - outputs :], Z[1, units - outputs :]
        logits[0, :, begin : begin + rows] = z_lower[:, :rows]
        logits[1, :, begin : begin + rows] = z_upper[:, :rows]
        out = classes[begin : begin + rows]
        out[:] = -1
        if outputs == 1:
            for r in range(rows):
                if not bad[r]:
                    out[r] = 1 if z_lower[0, r] > 0 else (0 if z_upper[0, r] <= 0 else -1)
            continue
        wins = np.ones((outputs, rows), dtype=np.bool_)
        at = units - outputs - n_in + layers - 2
        for a in range(outputs):
            for b in range(a + 1, outputs):
                dl, du = (wl[a] - wu[b]).reshape(1, n_in + 1), (wu[a] - wl[b]).reshape(1, n_in + 1)
                if layers == 1:
                    first_layer(dl, du, x, gap_lower, gap_upper, rows)
                else:
                    later_layer(dl, du, A[0, at:], A[1, at:], gap_lower, gap_upper, rows)
                for r in range(rows):
                    wins[a, r] &= gap_lower[0, r] >= 0
                    wins[b, r] &= gap_upper[0, r] < 0
        for a in range(outputs):
            for r in range(rows):
                if wins[a, r] and not bad[r]:
                    out[r] = a
