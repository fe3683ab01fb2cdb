"""`HybridTraining`: boxes met with a second domain, a box plus an l2 ball, for a network with a hidden layer.

A row clipped by norm moves the model by at most clip in l2. A box must grant that to every parameter at
once, sqrt(parameters) times too much in norm; a ball does not, but forgets which coordinate moves. Here each
level k carries both: a box B as in `descent`, and S = V + {u: |u| <= rho} with a box V. Changed rows feed
the ball of S, the uncertainty of unchanged rows feeds V. Bounds of a row are taken over the meet of B and S.

Setting: layers (d, h, 1), logistic loss, gradients clipped by norm at c, weight decay lambda, no momentum;
fixed or hashed batches with divisor b (see `descent`). a = (x, 1); h_V(d) is the largest d . v over V.

**Order.** S' below S means h_V'(d) + rho' |d| <= h_V(d) + rho |d| for all d, and rho' <= rho. Then S' lies
in S, and V' in V + {|u| <= rho - rho'}: convex sets with such support functions.

**What is read off S, and why it is nested.** For S' below S:

- a coordinate, or a pre-activation w . a of a hidden unit: support functions, h_V(a) + rho |a|. - the logit
f: max over V of f, plus rho K, with K^2 = W^2 |a|^2 + A^2, W the largest norm of the last layer's weights
and A that of the hidden activations (with their 1), both over S. K is a Lipschitz constant of f along
segments in S: |df| <= sum_h |w_h| |du_h| |a| + |activations| |du_last|. A v' in V' is v + u with v in V, |u|
<= rho - rho', and the segment lies in S, so f(v') <= f(v) + (rho - rho') K; K' <= K because W and A are
maxima over sets; add rho' K'. Interval propagation gives the exact maximum over V: hidden units share no
parameters, each enters by a monotone function, and max over a product of boxes is the product of the ends.

**A row's part.** Over the meet, interval propagation bounds its clipped gradient, on the grid, by a box G in
[-c, c]. If its farthest corner is within s c of 0 (`spread` s > 1) its part is Z = G, else Z = the ball of
radius c around 0. Either way Z lies in the ball of radius s c, is larger for a larger meet, and holds the
row's computed gradient g (or 0), |g| <= c + sqrt(size) of a grid step. With n rows,

    T = (sum of Z over all rows + {|u| <= k x c})/b,    V + ball: S_{t+1} = (1 - r lambda) S_t - r T

with x = 1 + s under replacement and s under add/remove, rounded up to a multiple of 2^-20 and 2^-20 more.

*Nesting.* D, D' differ in a row of this batch; level k of D', level k + 1 of D; by induction B' in B and S'
below S. For common rows Z' lies in Z, and the radius in Z' is at most that in Z. A row of D' alone has
support at most s c |d| and radius at most c; a row of D alone has support at least -(c + sqrt(size) step)|d|
and radius at least 0. (1 more in k)(x c) pays for both, so T' lies in T, with a smaller radius. Without the
changed row in the batch the same holds with equal k. Sums and scaling keep the order. B nests as `descent`
proves, from nested row bounds.

**1-Lipschitz and sound.** Level 0 is the trained model: V is that point, rho = 0. The class is certified at
level k if all models of the meet have it; nested, so 1-Lipschitz and sound as in `descent`.

**Rounding.** u = 2^-53. What comes from B and from row bounds is nested bit for bit. S is nested as real
numbers, so what is computed from it is widened at level k by (2k + 1) e, e a bound on its rounding error: if
level k of D' is (2k + 1) e wider than computed, it is at most (2k + 2) e wider than exact, hence than level
k + 1 of D exact, and so within (2k + 3) e of that as computed. Every model in S has norm at most R, with R_0
= |init| and R_{t+1} = |1 - r lambda| R_t + r c ((s + 1) N + k x/b), N = n/b, 2^-20 of it more. Then e = 4 u
R for a coordinate, 4 (d + 5) u R |a| for a pre-activation, 8 (d + h + 9) u R (1 + R) |a| for a logit (|a| >=
1), and 32 u R in norm for a step of S, whose rho gets 4 k e. Under add/remove n + k stands for n: it is no
smaller at level k + 1 of a neighbour. Rows longer than 1e60 are read off B alone; a level with R beyond 1e60
is lost, and all above it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from confide.errors import DataError, ParameterError, UnsupportedError
from confide.prediction.intervals.batches import Batches
from confide.prediction.intervals.descent import Batch, largest_sums
from confide.prediction.intervals.hyperparameters import Hyperparameters
from confide.prediction.intervals.network import (
    Floats,
    Ints,
    Network,
    Rows,
    apply_map,
    blocks,
    matrix,
)
from confide.prediction.intervals.training import Plan
from confide.privacy import Adjacency

_U = 2.0**-53
_FAR = 1e60


@dataclass(frozen=True, eq=False)
class HybridTraining:
    """Certificate for a network with one hidden layer: tighter than boxes wherever rows are clipped by norm.

    Never looser than `IntervalTraining` at the same settings, at two to three times its work: twice the
    distances after two or three steps, none either after many. Where the clip is free to choose, boxes with a
    clip by value certify more; for many steps use `BallTraining` behind a hidden layer from a public seed.
    The proofs are in `confide.prediction.intervals.hybrid`.

    Parameters
    ----------
    layers : sequence of int
        (features, hidden, 1).
    hyperparameters : Hyperparameters or mapping
        ``clip_by="norm"`` and no momentum.
    k_max : int
        Largest k that is searched; a distance above it is reported as `k_max`.
    adjacency : Adjacency or str
    init : array-like, shape [parameters], optional
        Public start; None draws one from `training_seed`.
    batches : int, FixedBatches or HashedBatches, optional
        As in `train_intervals`; at most k changed rows in each batch.
    features : callable, optional
        As in `IntervalTraining`.
    spread : float
        In [1.01, 64]: a row whose gradient bounds reach beyond spread * clip counts as a ball. Smaller costs
        less for each changed row, larger keeps more rows precise.
    training_seed : int
        Public.

    Raises
    ------
    UnsupportedError
        For other layers, momentum or a clip by value.

    Notes
    -----
    ==========================================  ===========================================================
    edge case                                   what happens
    ==========================================  ===========================================================
    a training cell or label that is unusable   gradient 0 for its row; it counts as a row
    a row that overflows                        at level 0 gradient 0, above it any within the clip
    a row longer than 1e60                      bounded by the box alone
    a bound that is not finite                  that level and all above it certify nothing, for good
    a logit of exactly 0                        class 0
    a query cell that is not finite             DataError: queries are the analyst's
    ==========================================  ===========================================================
    """

    layers: Sequence[int]
    hyperparameters: Hyperparameters | Mapping[str, Any]
    k_max: int
    adjacency: Adjacency | str = Adjacency.REPLACE_ONE
    init: Any = None
    batches: Batches | int | None = None
    features: Callable[[Floats], Any] | None = None
    spread: float = 2.0
    training_seed: int = 0
    plan: Plan = field(init=False, repr=False)

    def __post_init__(self) -> None:
        k_max = self.k_max
        if isinstance(k_max, bool) or not isinstance(k_max, int | np.integer) or not 0 <= k_max < 1 << 20:
            raise ParameterError(f"The 'k_max' parameter is {k_max!r:.80}.", "Pass a whole number >= 0.")
        if not 1.01 <= float(self.spread) <= 64:
            raise ParameterError(f"The 'spread' is {self.spread!r:.80}.", "Pass a number in [1.01, 64].")
        network = Network(tuple(self.layers))
        if len(network.layers) != 3 or network.outputs != 1:
            raise UnsupportedError(
                f"The hybrid domain for layers {network.layers}.",
                "Pass (features, hidden, 1), or use IntervalTraining.",
            )
        init = network.initial(self.training_seed) if self.init is None else self.init
        plan = Plan.of(network, init, self.hyperparameters, self.adjacency, self.batches, "step", None)
        settings: Hyperparameters = plan.settings
        if settings.momentum or settings.clip_by != "norm":
            raise UnsupportedError(
                f"The hybrid domain with momentum {settings.momentum} and a clip by {settings.clip_by}.",
                "Pass momentum=0 and clip_by='norm', or use IntervalTraining.",
            )
        object.__setattr__(self, "adjacency", plan.adjacency)
        object.__setattr__(self, "plan", plan)

    @property
    def classes(self) -> int:
        """Number of classes."""
        return 2

    def mapped(self, X: Any) -> Any:
        """Apply the frozen map in blocks of one size, so that a row's place in the table does not matter."""
        return apply_map(self.features, X, self.plan.network.layers[0])

    @np.errstate(all="ignore")  # no setting of the process turns a private cell into an exception
    def fit(self, X: Any, y: Any, *, ids: Any = None) -> CertifiedHybrid:
        """Train the model and all levels on rows X [rows, features] and classes y [rows] (0 or 1).

        Raises
        ------
        DataError
            If the shapes do not fit each other or the network.
        """
        held = self.plan.batches_of(self.mapped(X), y, ids, None)
        training = _Training(self, held)
        start = self.plan.network.inward(self.plan.init)
        levels = [Level(start, start, start, start, 0.0, training.norms[k]) for k in range(self.k_max + 1)]
        for step in range(self.plan.settings.epochs * len(held)):
            levels = training.step(levels, step)
        return CertifiedHybrid(self, levels)


@dataclass(frozen=True)
class Level:
    """B [lower, upper], V [v_lower, v_upper], rho, and a bound on the norm of every model in S."""

    lower: Floats
    upper: Floats
    v_lower: Floats
    v_upper: Floats
    rho: float
    norm: float

    @property
    def sound(self) -> bool:
        """Whether all bounds are finite and in order."""
        ends = (self.lower, self.upper, self.v_lower, self.v_upper)
        return (
            all(np.isfinite(values).all() for values in ends)
            and bool((self.lower <= self.upper).all() and (self.v_lower <= self.v_upper).all())
            and self.norm <= _FAR
        )

    def slacks(self, k: int, network: Network) -> Floats:
        """Return what bounds from S are widened by: see `hybrid_kernels.hybrid_bounds`."""
        d, h, _ = network.layers
        R = self.norm
        e = np.array([4 * R, 4 * (d + 5) * R, 8 * (d + h + 9) * R * (1 + R)])
        return (2 * k + 1) * _U * e


class _Training:
    """Steps of all levels on the batches of one table."""

    def __init__(self, certificate: HybridTraining, held: list[Batch]) -> None:
        self.plan = certificate.plan
        self.network, self.settings = certificate.plan.network, certificate.plan.settings
        self.held = held
        self.lengths = [row_lengths(batch.rows) for batch in held]
        self.spread = float(certificate.spread)
        self.replaced = certificate.plan.adjacency is not Adjacency.ADD_REMOVE_ONE
        cost = self.spread + self.replaced
        self.cost = (math.ceil(cost * 2**20) + 1) / 2**20
        start = float(np.linalg.norm(certificate.plan.init)) * (1 + 2.0**-20)
        self.norms = [start] * (certificate.k_max + 1)

    def step(self, levels: list[Level], step: int) -> list[Level]:
        """Take step number `step` in every level; those after a lost one are gone."""
        out: list[Level] = []
        for k, level in enumerate(levels):
            with np.errstate(all="ignore"):
                out.append(self._step(level, k, step))
            if not out[-1].sound:
                return out[:-1]
        return out

    def _step(self, level: Level, k: int, step: int) -> Level:
        settings, number = self.settings, step % len(self.held)
        batch, lengths = self.held[number], self.lengths[number]
        clip, grid = settings.grid
        rate, b, rows = settings.rate(step), batch.divisor, batch.rows.count
        factor = 1 - rate * settings.weight_decay
        changed = min(k, rows) if self.replaced else k
        totals, kept = np.zeros((2, self.network.size), np.int64), np.zeros((2, self.network.size), np.int64)
        heaps = np.full((2, self.network.size, changed if self.replaced else 0), -np.inf)
        beyond = self._sums(level, k, batch.rows, lengths, totals, kept, heaps)
        loss = np.zeros((2, 1, self.network.size), dtype=np.int64)
        if heaps.shape[2]:
            largest_sums(heaps, grid, np.array([changed]), loss)
        loss = loss[:, 0] + changed * int(clip / grid)
        lower, upper = _scaled(factor, level.lower, level.upper)
        v_lower, v_upper = _scaled(factor, level.v_lower, level.v_upper)
        load = (1.0 if self.replaced else (rows + k) / b, k * self.cost / b)
        norm = abs(factor) * level.norm + rate * clip * ((self.spread + 1) * load[0] + load[1])
        norm *= 1 + 2.0**-20
        rho = abs(factor) * level.rho + rate * (clip * (k * self.cost + beyond) / b)
        return Level(
            lower - rate * ((totals[1] + loss[1]) * grid / b),
            upper - rate * ((totals[0] - loss[0]) * grid / b),
            v_lower - rate * (kept[1] * grid / b),
            v_upper - rate * (kept[0] * grid / b),
            rho + 4 * k * (32 * _U * norm),
            norm,
        )

    def _sums(
        self, level: Level, k: int, rows: Rows, lengths: Floats, totals: Ints, kept: Ints, heaps: Floats
    ) -> int:
        from confide.prediction.intervals.hybrid_kernels import hybrid_sums
        from confide.prediction.intervals.kernels import EXPONENTIALS

        clip, grid = self.settings.grid
        return hybrid_sums(
            self.network.dims, level.lower, level.upper, level.v_lower, level.v_upper, level.rho,
            level.slacks(k, self.network), rows.X, lengths, rows.codes, EXPONENTIALS, k == 0, clip,
            (self.spread * clip) ** 2 if k else np.inf, grid, totals, kept, heaps,
        )  # fmt: skip


class CertifiedHybrid:
    """A trained network with its levels: private data, no release.

    Attributes
    ----------
    nominal : ndarray, shape [parameters]
        The trained model.
    levels : list of Level
        Of k = 0, 1, ..., as far as none is lost.
    """

    def __init__(self, certificate: HybridTraining, levels: list[Level]) -> None:
        self.certificate = certificate
        self.levels = levels
        network = certificate.plan.network
        lost = np.full(network.size, np.nan)
        self.nominal = network.outward(levels[0].lower if levels else lost)

    def stability(self, X: Any) -> tuple[Ints, Ints]:
        """Return the class and the stability distance of each query [query, features]; neither is private."""
        from confide.prediction.intervals.hybrid_kernels import hybrid_decide

        queries, network = self._queries(X), self.certificate.plan.network
        lengths = row_lengths(queries)
        decided = np.full((self.certificate.k_max + 1, queries.count), -1, dtype=np.int64)
        with np.errstate(all="ignore"):
            for k, level in enumerate(self.levels):
                hybrid_decide(
                    network.dims, level.lower, level.upper, level.v_lower, level.v_upper, level.rho,
                    level.slacks(k, network), queries.X, lengths, decided[k],
                )  # fmt: skip
        labels = np.maximum(decided[0], 0)
        return labels, np.cumprod(decided[1:] == labels, axis=0).sum(axis=0).astype(np.int64)

    def predict(self, X: Any) -> Ints:
        """Return the trained model's classes; not private."""
        return self.stability(X)[0]

    def check_queries(self, X: Any) -> None:
        """Refuse queries with a cell that is not finite, or of another width."""
        self._queries(X)

    def _queries(self, X: Any) -> Rows:
        values = matrix(self.certificate.mapped(X), self.certificate.plan.network.layers[0])
        if not np.isfinite(values).all():
            raise DataError("A query has a cell that is not a finite number.", "Impute it before asking.")
        return blocks(values, np.zeros(len(values), dtype=np.int64))

    def state(self) -> dict[str, Any]:
        """Return what `from_state` takes (`confide.prediction.states`)."""
        return {"certificate": self.certificate, "levels": self.levels}

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> CertifiedHybrid:
        """Rebuild a model."""
        return cls(state["certificate"], state["levels"])


def row_lengths(rows: Rows) -> Floats:
    """Return a little more than the norm of each row in blocks, with its 1; inf beyond 1e60."""
    with np.errstate(all="ignore"):
        # One row after another in a fixed order: the same bits wherever a row stands.
        total = np.zeros_like(rows.X[:, 0])
        for unit in range(rows.X.shape[1]):
            total = total + rows.X[:, unit] ** 2
        lengths = np.sqrt(total) * (1 + 2.0**-30)
    return np.where(lengths <= _FAR, lengths, np.inf)


def _scaled(factor: float, lower: Floats, upper: Floats) -> tuple[Floats, Floats]:
    ends = (lower, upper) if factor >= 0 else (upper, lower)
    return factor * ends[0], factor * ends[1]
