"""How far one change moves a model trained with momentum on a convex loss: the ball's radius, replacement.

Notation and setting of `ball`: u is the difference of two models, p that of their velocities, beta the
momentum. For the same rows both moves are linear in (u, p), with the symmetric G = H + lambda I, lambda I <=
G <= (L + lambda) I:

    p' = beta p + G u,    u' = (I - r G) u - r beta p    (Nesterov: (I - r (1 + beta) G) u - r beta^2 p)

**Norm.** A step with momentum need not shrink |u|. Measure (u, p) by y = (u - kappa p, s p) instead, with
kappa = r beta/(1 - beta) (Nesterov: r beta^2/(1 - beta)), for which u - kappa p stays where G = 0, and some
s > 0. With T the 2 x 2 matrix of that change, (T0 before the step, T1 after it: rates may differ), the step
is T1 M(G) inverse(T0). In the basis of the eigenvectors of G it falls into 2 x 2 blocks T1 M(g) inverse(T0),
g an eigenvalue, whatever the basis is. So |y| grows at most by q = the largest spectral norm of a block over
lambda <= g <= L + lambda. M is affine in g and a norm is convex: the largest is at one of the ends.

**Radius.** A replaced row adds at most w = 2 c'/b to p and -r w (Nesterov: -r (1 + beta) w) to u at once, so
to |y| at most w times sqrt((r + kappa)^2 + s^2) (Nesterov: r (1 + beta) + kappa). With e the rounding of a
step, d_{t+1} = q_t d_t + 2 e_t + [batch s] that; at the end |u| <= sqrt(1 + (kappa/s)^2) |y|. Any s gives a
bound; the least over a public grid of s is taken.

**Rounding.** As in `ball`: a batch's mean gradient errs by at most e_g = e_row + 8 u c; |v| <= V with V' =
beta V + c' + lambda R, |theta| <= R with R' = |1 - r lambda| R + r (beta V + c') + e (Nesterov: |1 - r (1 +
beta) lambda| R + r ((1 + beta) c' + beta^2 V) + e). The new v errs by e_p = e_g + 8 u (V + c + lambda R),
the new theta by e_u = 2 r e_g + 8 u ((1 + 2 r lambda) R + 2 r (V + c)), doubled as there; in y by at most (1
+ kappa + s)(e_u + e_p).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from confide.prediction.intervals.hyperparameters import Hyperparameters
from confide.prediction.intervals.network import Floats

_U = 2.0**-53
#: Candidates for s, in units of r/(1 - beta).
_SCALES = 2.0 ** np.arange(-6, 6.01, 0.25)


def momentum_moves(
    settings: Hyperparameters,
    divisors: Sequence[float],
    *,
    longest: float,
    smooth: float,
    start: float,
    row_error: tuple[float, float],
) -> tuple[float, float]:
    """Bound the distance between the models of neighbours, and their norm: both public.

    Parameters
    ----------
    settings : Hyperparameters
    divisors : sequence of float
        Rows of each batch.
    longest : float
        c', the largest norm of a row's clipped gradient.
    smooth : float
        L.
    start : float
        Norm of the first model.
    row_error : (float, float)
        e_row of a model of norm R is the first plus the second times R.
    """
    beta, decay, clip = settings.momentum, settings.weight_decay, settings.clip
    ahead = beta if settings.nesterov else 0.0  # Nesterov looks one velocity ahead
    moved = np.zeros((len(divisors), len(_SCALES)))
    R, V = start, 0.0
    steps = settings.epochs * len(divisors)
    kappa, s = _coordinates(settings, 0)
    with np.errstate(all="ignore"):
        for step in range(steps):
            rate, batch = settings.rate(step), step % len(divisors)
            e_g = row_error[0] + row_error[1] * R + 8 * _U * clip
            e_p = 2 * (e_g + 8 * _U * (V + clip + decay * R))
            e_u = 2 * (2 * rate * e_g + 8 * _U * ((1 + 2 * rate * decay) * R + 2 * rate * (V + clip)))
            kappa_1, s_1 = _coordinates(settings, step + 1)
            q = np.zeros(len(_SCALES))
            for g in (decay, smooth + decay):
                M = (1 - rate * (1 + ahead) * g, -rate * beta * (ahead if ahead else 1.0), g, beta)
                q = np.maximum(q, _norm(*_changed(M, kappa, s, kappa_1, s_1)))
            moved = q * (1 + 2.0**-40) * moved + 2 * (1 + kappa_1 + s_1) * (e_u + e_p)
            moved[batch] += 2 * longest / divisors[batch] * np.hypot(rate * (1 + ahead) + kappa_1, s_1)
            kept = abs(1 - rate * (1 + ahead) * decay)
            pushed = (1 + ahead) * longest + beta * (ahead if ahead else 1.0) * V
            R, V = ((kept * R + rate * pushed + e_u) * (1 + 2.0**-40),
                    (beta * V + longest + decay * R + e_p) * (1 + 2.0**-40))  # fmt: skip
            kappa, s = kappa_1, s_1
        found = moved.max(axis=0) * np.hypot(1.0, kappa / s) if steps else np.zeros(1)
    return float(np.fmin.reduce(np.append(found, math.inf))) * (1 + 2.0**-40), R


def _coordinates(settings: Hyperparameters, step: int) -> tuple[float, Floats]:
    """Return kappa and the candidates for s at a step."""
    beta = settings.momentum
    pace = settings.rate(step) / (1 - beta)
    return pace * beta * (beta if settings.nesterov else 1.0), pace * _SCALES


def _changed(
    M: tuple[float, float, float, float], kappa: float, s: Floats, kappa_1: float, s_1: Floats
) -> tuple[Floats, Floats, Floats, Floats]:
    """Return T1 M inverse(T0) for M = (a, b, c, d) by rows; T = [[1, -kappa], [0, s]]."""
    a, b, c, d = M
    top, bottom = (a - kappa_1 * c, b - kappa_1 * d), (s_1 * c, s_1 * d)
    return (
        top[0] + 0 * s,
        (top[0] * kappa + top[1]) / s,
        bottom[0],
        (bottom[0] * kappa + bottom[1]) / s,
    )


def _norm(a: Floats, b: Floats, c: Floats, d: Floats) -> Floats:
    """Return the spectral norms of 2 x 2 matrices."""
    # Half the sum of the lengths of two vectors; no cancellation.
    return (np.hypot(a + d, b - c) + np.hypot(a - d, b + c)) / 2
