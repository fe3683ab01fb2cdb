"""A tighter domain for many steps: an l2 ball around the trained model, for a convex loss.

Boxes forget that gradient descent on a convex loss contracts; after a few dozen steps they certify nothing. A
ball does not forget.

Setting: logistic loss, one logit z = theta . a with a = (x, 1), rows shortened to |x| <= B (public), REPLACE,
fixed batches, gradients clipped by norm at c, weight decay lambda, no momentum.

**Clipping keeps convexity.** A row's gradient (sigma(z) - y) a, scaled to norm <= c, is psi(z) a with psi(z)
= sigma(z) - y cut to [-c/|a|, c/|a|]: psi is nondecreasing in z and 1/4-Lipschitz.

**One step.** For the same batch, two models and rate r: psi(z) - psi(z') = s (z - z') with s in [0, 1/4], so
the difference u of the models becomes (I - r (H + lambda I)) u with 0 <= H <= L I, L = (B^2 + 1)/4 (the
batch's mean of s a a'). Its norm grows at most by q = max(|1 - r lambda|, |1 - r (L + lambda)|). A replaced
row adds at most 2 c r/b in a batch of b rows (c at most sqrt(B^2 + 1)). Each computed step lies within e of
the exact one (below), for both tables. So the computed models of neighbours whose row lies in batch s differ
by at most the last of

    D_0 = 0,    D_{t+1} = q_t D_t + 2 e_t + [step t visits batch s] 2 c r_t/b_s

and by at most rho = the largest over s, a public number. The computed logit of a query moves at most
step(x) = rho |a| + 2 e_z, public too.

**Distance.** k = the largest whole number below 2^20 with k step(x) < |z|. *1-Lipschitz*: |z| moves at most
step(x), and with it k by at most 1. *Sound*: k changes move z by at most k step(x) < |z|, so its sign stays.

**Rounding.** u = 2^-53. |theta| <= R with R_0 = |init|, R_{t+1} = |1 - r lambda| R_t + r c + e_t, the bound
on steps. A dot product of m = inputs + 1 terms errs by at most 1.01 m u |theta| |a|. So a row's residual errs
by at most a quarter of that + 2^-50 (the exponential has a relative error below 2^-50), its scale by a
relative (m + 8) u, its entries by half a step h of the grid: in norm, e_row = |a| (m u R |a| + 2^-50) + 2 (m
+ 8) u c + sqrt(m) h, where the factors 1 and 2 in place of 1/4 and 1.01 pay for second orders. The mean over
rows is exact up to one rounding; e_t = r (e_row + 8 u c) + 8 u (1 + r lambda) R. A further factor 2 pays for
the rounding of these bounds themselves.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from confide.errors import DataError, ParameterError, UnsupportedError
from confide.prediction.intervals.batches import FixedBatches
from confide.prediction.intervals.hyperparameters import Hyperparameters
from confide.prediction.intervals.network import Floats, Ints, Network, blocks, matrix
from confide.prediction.intervals.training import Plan, decisions
from confide.privacy import Adjacency

_U = 2.0**-53
#: Larger distances are reported as one less.
_MOST = 2.0**20


@dataclass(frozen=True, eq=False)
class BallTraining:
    """Certificate for logistic regression by gradient descent with rows clipped by norm.

    Its distances do not shrink with the number of steps where decay contracts, and only in proportion to the
    sum of the rates where it does not. The proofs are in `confide.prediction.intervals.ball`.

    Parameters
    ----------
    inputs : int
    hyperparameters : Hyperparameters or mapping
        ``clip_by="norm"`` and no momentum.
    feature_norm : float
        B > 0, public: longer rows, and queries, are shortened to it.
    adjacency : Adjacency or str
        A replacement relation.
    batches : int or FixedBatches, optional
    init : array-like, shape [inputs + 1], optional
        Public; None is 0.
    progress : bool

    Raises
    ------
    UnsupportedError
        Under ADD_REMOVE_ONE (the number of rows over a public divisor bounds nothing), with momentum (a step
        is no contraction) or with a clip by value (the clipped loss is not convex).
    """

    inputs: int
    hyperparameters: Any
    feature_norm: float
    adjacency: Adjacency | str = Adjacency.REPLACE_ONE
    batches: FixedBatches | int | None = None
    init: Any = None
    progress: bool = False
    plan: Plan = field(init=False, repr=False)

    def __post_init__(self) -> None:
        network = Network((self.inputs, 1))
        init = np.zeros(network.size) if self.init is None else self.init
        plan = Plan.of(network, init, self.hyperparameters, self.adjacency, self.batches, "step", None)
        settings: Hyperparameters = plan.settings
        if plan.adjacency is Adjacency.ADD_REMOVE_ONE:
            raise UnsupportedError("The ball under add/remove has no proof.", "Use IntervalTraining.")
        if settings.momentum or settings.clip_by != "norm":
            raise UnsupportedError(
                f"The ball with momentum {settings.momentum} and a clip by {settings.clip_by}.",
                "Pass momentum=0 and clip_by='norm', or use IntervalTraining.",
            )
        if not 0 < float(self.feature_norm) < 1e50:
            raise ParameterError(
                f"The 'feature_norm' is {self.feature_norm!r:.80}.", "Pass a positive number."
            )
        object.__setattr__(self, "adjacency", plan.adjacency)
        object.__setattr__(self, "plan", plan)

    @property
    def classes(self) -> int:
        """Number of classes."""
        return 2

    def fit(self, X: Any, y: Any, *, ids: Any = None) -> CertifiedLinear:
        """Train on rows X [rows, inputs] and classes y [rows] (0 or 1).

        Raises
        ------
        DataError
            If the shapes do not fit, or there are more batches than rows.
        """
        held = self.plan.batches_of(self.shortened(X), y, ids, None)
        found = self.plan.intervals(held, (0,), self.progress)
        return CertifiedLinear(self, found.nominal, *self.motion([batch.divisor for batch in held]))

    def shortened(self, X: Any) -> Floats:
        """Return rows of norm at most B as computed, a little less as real numbers."""
        rows = matrix(X, self.inputs)
        usable: Any = np.isfinite(rows).all(axis=1)
        rows = np.where(usable[:, None], rows, 0.0)
        # In units of the largest cell, so that squares neither overflow nor vanish.
        most = np.maximum(np.abs(rows), 1e-300).max(axis=1)[:, None]
        unit = rows / most
        length = np.sqrt(np.sum(unit * unit, axis=1))[:, None]
        with np.errstate(all="ignore"):
            short = np.where(length > self.feature_norm / most, unit * (self.feature_norm / length), rows)
        # 2^-30 is more than the rounding of the norm of a million inputs.
        short = short * (1 - 2.0**-30)
        short[~usable] = np.nan
        return short

    def motion(self, sizes: Sequence[float]) -> tuple[float, float]:
        """Bound how far one change moves the model, and the model's norm: public.

        Parameters
        ----------
        sizes : sequence of float
            Rows of each batch.
        """
        settings, m = self.plan.settings, self.inputs + 1
        clip, grid = settings.grid
        a = math.sqrt(self.feature_norm**2 + 1)
        longest = min(clip, a * (1 + 8 * _U))  # of a row's gradient
        smooth, decay = a * a / 4, settings.weight_decay
        R = float(np.linalg.norm(self.plan.init)) * (1 + m * _U)
        moved = np.zeros(len(sizes))
        for step in range(settings.epochs * len(sizes)):
            rate, batch = settings.rate(step), step % len(sizes)
            e_row = a * (m * _U * R * a + 2.0**-50) + 2 * (m + 8) * _U * clip + math.sqrt(m) * grid
            e = 2 * (rate * (e_row + 8 * _U * clip) + 8 * _U * (1 + rate * decay) * R)
            q = max(abs(1 - rate * decay), abs(1 - rate * (smooth + decay))) * (1 + 16 * _U)
            moved = q * moved + 2 * e
            moved[batch] += 2 * longest * rate / sizes[batch]
            R = (abs(1 - rate * decay) * R + rate * longest + e) * (1 + 16 * _U)
        return float(moved.max()) * (1 + 2.0**-40), R


class CertifiedLinear:
    """A trained logistic regression with its distances: private data, no release.

    Attributes
    ----------
    nominal : ndarray, shape [inputs + 1]
        The trained model.
    radius : float
        Largest distance between the models of neighbouring tables; public.
    """

    def __init__(self, certificate: BallTraining, nominal: Floats, radius: float, norm: float) -> None:
        self.certificate = certificate
        self.nominal = nominal
        self.radius = radius
        self._norm = norm

    def stability(self, X: Any) -> tuple[Ints, Ints]:
        """Return the class and the stability distance of each query X [query, inputs]; neither is private."""
        certificate = self.certificate
        if not np.isfinite(matrix(X, certificate.inputs)).all():
            raise DataError("A query has a cell that is not a finite number.", "Impute it before asking.")
        rows = certificate.shortened(X)
        queries = blocks(rows, np.zeros(len(rows), dtype=np.int64))
        theta = certificate.plan.network.inward(self.nominal)[None]
        decided, logits = decisions(certificate.plan.network, theta, theta, queries)
        z = logits[0, 0, :, 0]
        lengths = np.sqrt(np.sum(rows**2, axis=1) + 1) * (1 + 2.0**-30)
        m = certificate.inputs + 1
        step = (self.radius + 4 * m * _U * self._norm) * lengths * (1 + 2.0**-30)
        with np.errstate(all="ignore"):
            # Soundness needs no slack: |z| <= k step never rounds above k. For 1-Lipschitz, 2^-30 of a step
            # is more than half an ulp of any k up to the cap.
            k = np.ceil(np.minimum(np.abs(z) / step, _MOST)) - 1
        k = np.where(np.isfinite(k) & (decided[0] >= 0), np.maximum(k, 0), 0)
        return np.where(decided[0] == 1, 1, 0).astype(np.int64), k.astype(np.int64)

    def predict(self, X: Any) -> Ints:
        """Return the trained model's classes; not private."""
        return self.stability(X)[0]
