"""The curvature version of the strongly convex certificate: flat directions move far, curved ones hardly.

Notation: rows x_r of norm at most 1, z_r = w.x_r the logits of the w that was computed on D, g_j and s_j the
changes and radii of `confide.prediction.erm_steps`, with no g_j below a public g_0; rho = g_0 / Lambda, so
that s_j >= j rho; c(u) the largest over centres of the least curvature of the loss on an interval of
half-width u; and for j = 1, 2, ...

    H_j = Lambda I + sum_r (least curvature on [z_r - s_j ||x_r||, z_r + s_j ||x_r||]) x_r x_r' - R_j I,
    R_j = sum_{i <= j} max_{t <= 1} t^2 c(i rho t),
    beta_j(x) = g_j sqrt(x' H_j^-1 x) / sqrt(max(Lambda, least eigenvalue of H_j)) + 2 tau ||x||.

A distance k is certified while beta_1(x) + ... + beta_k(x) < margin of x. (The form with k beta_k is weaker,
since beta grows, and so is one g for all.)

R_j < Lambda, so H_j is positive definite. max_t t^2 c(i rho t) falls in i, so R_j is below the integral of
max_t t^2 c(s rho t) over s > 0. Logistic: c(u) = e^-u / (1 + e^-u)^2 and u^2 c(u) <= 0.44 give 0.67 / rho.
Huber hinge of width h: c = 1 / (2h) up to u < h gives 1 / rho. And rho is at least 0.75 / Lambda for the
logistic loss and 1 / Lambda for the hinge.

*Sound.* Let D = D_0, D_1, ..., D_j be a path of neighbours with j <= k, F_i their objectives, w_i their
optima. ||w_i - w_{i-1}|| <= g_i / Lambda, so the segment from w_{i-1} to w_i lies within s_i of the computed
w. Let B be the mean Hessian of F_{i-1} on that segment. A row common to D and D_{i-1} has curvature there at
least as in H_i. D lost at most i - 1 rows, each of which takes at most max_t t^2 c(s_i t) <= max_t t^2 c(i
rho t) times I out of the sum, and (i - 1) of these are below R_i. So B >= H_i. With q = grad F_i - grad
F_{i-1} at w_i, ||q|| <= g_i: B (w_i - w_{i-1}) = -q, and by Cauchy-Schwarz

    |x.(w_i - w_{i-1})| <= sqrt(x' B^-1 x) sqrt(q' B^-1 q)
                        <= sqrt(x' H_i^-1 x) g_i / sqrt(max(Lambda, least eigenvalue of H_i)),

as B >= Lambda I too. (||B^-1 x|| itself is not monotone in B, and raising small eigenvalues of H_i to Lambda
would not be sound.) Sum over i; the computed points lie tau from the optima.

*1-Lipschitz.* Let D' be a neighbour of D. s_i(D') + ||w' - w|| <= s_{i+1}(D), so for a common row the
interval of level i on D' lies inside that of level i + 1 on D, and its least curvature is at least as large.
The one row that D has and D' lacks takes at most max_t t^2 c((i + 1) rho t) = R_{i+1} - R_i. So H_i(D') >=
H_{i+1}(D), g_i(D') <= g_{i+1}(D), and beta_i(D') <= beta_{i+1}(D). If k + 1 is certified on D, then on D'
beta_1 + ... + beta_k <= sum_{i=2}^{k+1} beta_i(D) < margin(D) - beta_1(D) <= margin(D'), since one change
moves the logit by at most beta_1(D), and the class is the same. So k is certified on D'.

*Rounding.* The computed beta_i is within a relative eta of the real one, eta public (`relative_error`).
Level i is widened by ((1 + eta) / (1 - eta))^(i + 1): then computed beta_i(D') <= computed beta_{i+1}(D)
with the widening, and the level still bounds the real one. The radii have 4 e more a step, e the public
bound on the rounding of a logit, and a millionth, which keeps intervals nested. The margin's rounding, 2 e
||x||, is paid at each level.

Where rows keep their cells and the curvature does not depend on the label (REPLACE_LABEL with the logistic
loss), no row is lost and R_j = 0.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from confide.prediction.erm_losses import BinaryLoss
from confide.prediction.erm_solver import BLOCK, UNIT, Accuracy, compensated
from confide.prediction.erm_steps import Steps

Floats = NDArray[np.float64]

#: No curvature version where the public relative error is above this.
_COARSEST = 1e-2
_MEMORY = 1 << 24
#: Numbers that `Levels.steady` holds at a time.
_BLOCK = 1 << 18


@dataclass(frozen=True, eq=False)
class Levels:
    """The matrices of all levels.

    Attributes
    ----------
    factors : float array [K, m, m]
        Inverse Cholesky factors: x' H_j^-1 x = ||factor_j x||^2.
    scales : float array [K]
        g_j / sqrt(max(Lambda, eig H_j)), widened.
    extra : float
        2 tau + 2 e, for a query of norm 1.
    """

    factors: Floats
    scales: Floats
    extra: float

    def distances(self, queries: Floats, margin: Floats) -> NDArray[np.int64]:
        """Return the certified distance of each `enlarged` query, at most K.

        Its norm is at least 1/2, or it is 0 with margin 0, and ||factor_j x||^2 >= ||x||^2 / ||H_j||, far
        above what a double holds: nothing here underflows to 0.
        """
        from confide.prediction.erm import lengths

        flat = self.extra * lengths(queries)
        total = np.zeros(margin.size)
        k = np.zeros(margin.size, dtype=np.int64)
        alive = np.arange(margin.size)
        for factor, scale in zip(self.factors, self.scales, strict=True):
            if alive.size == 0:
                break
            image = queries[alive] @ factor.T
            total[alive] += scale * np.sqrt(np.einsum("ij,ij->i", image, image)) + flat[alive]
            alive = alive[total[alive] < margin[alive]]
            k[alive] += 1
        return k

    def steady(self, queries: Floats, margin: Floats) -> NDArray[np.int64]:
        """Return the distances of `distances` after all levels of all queries: the work does not tell k.

        Sums over levels are the same ones; products are formed in another order, within the public error.
        """
        from confide.prediction.erm import lengths

        flat = self.extra * lengths(queries)
        count, m = self.factors.shape[:2]
        stacked = self.factors.reshape(count * m, m)
        k = np.empty(margin.size, dtype=np.int64)
        size = max(1, _BLOCK // (count * m))
        for start in range(0, margin.size, size):
            part = slice(start, start + size)
            images = (stacked @ queries[part].T).reshape(count, m, -1)
            np.square(images, out=images)
            moved = self.scales[:, None] * np.sqrt(images.sum(axis=1)) + flat[part]
            # Sums grow with the level, so that those below the margin are the first ones.
            k[part] = np.count_nonzero(np.cumsum(moved, axis=0) < margin[part], axis=0)
        return k


def relative_error(rows: int, columns: int, ridge: float, curvature: float, least: float) -> float:
    """Return eta: a public bound on the relative error of a computed beta, for at most `rows` rows.

    Parameters
    ----------
    rows, columns : int
    ridge, curvature : float
    least : float
        Lower bound on the least eigenvalue of every H_j: Lambda - R_K.

    Notes
    -----
    H_j is formed with an error of at most n c ((BLOCK + 32) u) in norm (block products, compensated sum,
    curvatures of relative error 16 u), factored with a backward error of at most 4 m^2 u ||H|| (Higham 2002,
    theorem 10.3), inverted by a triangular solve with as much again; ||H|| <= Lambda + n c. Divided by the
    least eigenvalue they bound the relative error of x' H^-1 x and of the eigenvalue. Doubled for room.
    """
    size = ridge + rows * curvature
    formed = rows * curvature * (BLOCK + 32) * UNIT
    factored = 12.0 * columns * columns * UNIT * size
    return max(1e-11, 2.0 * (formed + factored) / max(least, 1e-300))


def curvature_levels(
    rows: Floats,
    signs: Floats,
    w: Floats,
    loss: BinaryLoss,
    ridge: float,
    steps: Steps,
    least: float,
    precision: Accuracy,
    limit: int,
    count: int,
    *,
    keeps_rows: bool = False,
) -> Levels | None:
    """Return the matrices of levels 1 ... count.

    Parameters
    ----------
    rows : float array [n, m]
        Norm at most 1.
    signs : float array [n]
        Labels, -1 or +1.
    w : float array [m]
    loss : BinaryLoss
    ridge : float
    steps : Steps
        With no change below `least`.
    least : float
        g_0, public.
    precision : Accuracy
    limit : int
        Public bound on n.
    count : int
        Fewer levels where they would take more than 2^24 numbers.
    keeps_rows : bool
        No change takes a row away or alters its curvature.

    Returns
    -------
    Levels or None
        None where the public error bound is too large: a decision from public numbers.
    """
    m = rows.shape[1]
    count = min(count, steps.totals.size, max(1, _MEMORY // (m * m)))
    lost = np.zeros(count) if keeps_rows else _lost(loss, least / ridge, count)
    eta = relative_error(limit, m, ridge, loss.curvature, ridge - lost[-1])
    if eta > _COARSEST:
        return None
    sums = _sums(rows, signs, rows @ w, loss, steps.totals[:count])
    factors = np.empty_like(sums)
    scales = np.empty(count)
    growth = (1.0 + eta) / (1.0 - eta)
    for j in range(count):
        matrix = sums[j]
        matrix[np.diag_indices(m)] += ridge - lost[j]
        factors[j] = np.linalg.inv(np.linalg.cholesky(matrix))
        smallest = max(ridge, float(np.linalg.eigvalsh(matrix)[0]))
        scales[j] = steps.changes[j] / np.sqrt(smallest) * growth ** (j + 2)
    return Levels(factors, scales, (2.0 * precision.tolerance + 2.0 * precision.logit_error) * (1.0 + 1e-6))


def _lost(loss: BinaryLoss, rho: float, count: int) -> Floats:
    """Return upper bounds of R_1 ... R_count.

    max_{t <= 1} t^2 c(s t), s = i rho, on a grid of t: on [t, t + d] it is at most (t + d)^2 c(s t).
    """
    s = rho * np.arange(1, count + 1)[:, None]
    t = np.linspace(0.0, 1.0, 4001)
    # Beyond t = 40 / s the logistic curvature is nil: a finer grid where it matters.
    reach = np.minimum(1.0, 40.0 / s)
    low, high = t[:-1] * reach, t[1:] * reach
    inside = (high * high * loss.most_least_bend(s * low)).max(axis=1)
    beyond = np.where(reach[:, 0] < 1.0, loss.most_least_bend(np.full(count, 40.0)), 0.0)
    return np.cumsum(np.maximum(inside, beyond)) * (1.0 + 1e-9)


def _sums(rows: Floats, signs: Floats, z: Floats, loss: BinaryLoss, radii: Floats) -> Floats:
    """Return sum_r (least curvature at level j) x_r x_r', [count, m, m]."""
    (n, m), count = rows.shape, radii.size
    total, carry = np.zeros((count, m, m)), np.zeros((count, m, m))
    length = np.sqrt(np.sum(rows * rows, axis=1)) * (1.0 + 2.0**-32)
    for start in range(0, n, BLOCK):
        part = slice(start, start + BLOCK)
        block = rows[part]
        for j in range(count):
            bend = loss.least_bend(z[part], signs[part], radii[j] * length[part])
            compensated(total[j], carry[j], (block * bend[:, None]).T @ block)
    return total + carry
