"""A tighter domain for many steps: an l2 ball around the trained model, for a convex loss.

Boxes forget that gradient descent on a convex loss contracts; after a few dozen steps they certify nothing. A
ball does not forget.

Setting: logistic loss (one logit) or softmax (one logit a class), logits Theta a with a = (x, 1), rows
shortened to |x| <= B (public), gradients clipped by norm at c, weight decay lambda, fixed or hashed batches;
momentum as in `ball_momentum`. Norms of models are Euclidean (Frobenius). A batch of n rows has the divisor
b: n itself under replacement, public under add/remove.

**Clipping keeps convexity.** One logit: a row's gradient (sigma(z) - y) a, scaled to norm <= c, is psi(z) a
with psi(z) = sigma(z) - y cut to [-c/|a|, c/|a|]: psi is nondecreasing in z and 1/4-Lipschitz. Softmax: a
scaled gradient (p - e_y) a' is no gradient of a convex function, so c must not bind: c >= sqrt(2) sqrt(B^2 +
1) is required, the largest norm there is. The derivative of p in the logits lies between 0 and 1/2.

**One step contracts.** For the same rows, two models and rate r, the difference u of the models becomes (I -
r (H + lambda I)) u with H symmetric and 0 <= H <= N L I, N = n/b, L = (B^2 + 1)/4 (softmax: /2): the sum over
the batch of slopes times a a', over b (the mean value theorem along the segment between the models). Its norm
grows at most by q(N) = max(|1 - r lambda|, r (N L + lambda) - 1).

**Between neighbours.** E and E' differ by one change, in batch s, whose part in a step is at most 2 c' r/b_s
(replacement) or c' r/b_s (a row more or less), with c' the smaller of c and the largest norm there is. Where
no batch s of either has more than n_s + j rows (replacement: n_s), their computed models differ by at most
the last of

    d_0 = 0,    d_{t+1} = q_t(N_t) d_t + 2 e_t + [step t visits batch s] (2) c' r_t/b_s

with N_t = (n + j)/b for the batch that step t visits (replacement: N = 1) and e_t the rounding of a step
(below); and by at most delta_j, the largest over s. All are increasing in the sizes n + j, bit for bit,
because sums and products of numbers >= 0 are.

**Distance.** Let delta_j(D) be that bound with the batch sizes n_s of D, and rho_k = delta_1 + ... +
delta_k. A query is certified at level k where w rho_k |a| + 2 k e_z < m: m is the computed gap between the
winning logit and its closest rival (one logit: |z|), w = 1, or sqrt(2) for a gap (a difference of two rows
of the model), and e_z bounds the rounding of m. k is the largest certified level, at most k_max.

*Sound.* On a path D = D_0, ..., D_k of neighbours, D_{j-1} and D_j have at most n_s + j rows in batch s, so
their models differ by at most delta_j(D): all in all by rho_k, m moves by less than m, and the winner stays.

*1-Lipschitz.* Let D' be a neighbour and D certified at k + 1. Sizes of D' are at most n_s + 1, so
delta_j(D') <= delta_{j+1}(D). The gap of D' to each rival is at least m - w delta_1(D) |a| - 2 e_z > w
(delta_2(D) + ... + delta_{k+1}(D)) |a| + 2 k e_z >= w rho_k(D') |a| + 2 k e_z: D' is certified at k, for the
same class.

**Rounding.** u = 2^-53, M = inputs + 1. |theta| <= R with R_0 = |init|, R_{t+1} = |1 - r lambda| R_t + r N
c' + e_t. A dot product of M terms errs by at most 1.01 M u |theta| |a|, a difference of two by (2.02 M + 2)
u R |a| <= 4 M u R |a|. A residual is a convex combination of that, plus its own roundings, below (classes +
2) 2^-50 (the exponential has a relative error below 2^-50). A row's scale errs by a relative (M + 8) u, its
entries by half a step h of the grid: in norm, e_row = |a| (4 M u R |a| + (classes + 2) 2^-50) + 2 (M + 8) u
c + sqrt(size) h. Sums over rows are exact; e_t = r N (e_row + 8 u c) + 8 u (1 + r lambda) R, doubled to pay
for second orders and for the rounding of these bounds. e_z = 4 M u R |a|.

The sums rho_k are exact: each delta_j + 8 M u R is rounded up to a multiple of a public step g (2^-30 of a
public lower bound of it) and 2^12 g added, which pays for the comparison: a level's k_max 2^40 g at most,
below 2^60 g, times a relative 2^-50, twice. A delta_j past 2^40 g, or not finite, ends the levels there:
delta_{j+1} of every neighbour is past it too.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from confide.errors import DataError, ParameterError, UnsupportedError
from confide.mechanisms import row_squares
from confide.prediction.intervals.ball_momentum import momentum_moves
from confide.prediction.intervals.batches import Batches
from confide.prediction.intervals.hyperparameters import Hyperparameters
from confide.prediction.intervals.network import Floats, Ints, Network, apply_map, blocks, matrix
from confide.prediction.intervals.training import Plan, decisions
from confide.privacy import Adjacency

_U = 2.0**-53
#: Most levels: their exact sums stay below 2^60 steps.
_LEVELS = 1 << 20
#: A level's distance, in steps of its grid: at least, at most, and what a comparison may err by.
_FINE, _COARSE, _SLACK = 30, 2.0**40, 4096


@dataclass(frozen=True, eq=False)
class BallTraining:
    """Certificate for logistic or softmax regression by gradient descent with rows clipped by norm.

    Its distances do not shrink with the number of steps where decay contracts, and only in proportion to the
    sum of the rates where it does not. One change lies in one batch, so an epoch of mini-batches costs no
    more than one step. The proofs are in `confide.prediction.intervals.ball`.

    Parameters
    ----------
    inputs : int
        Columns, after `features`.
    hyperparameters : Hyperparameters or mapping
        ``clip_by="norm"``. Momentum under replacement alone; it costs a factor of about 1 + momentum, and
        more where rate/(1 - momentum) times the smoothness (B^2 + 1)/4 (softmax: /2) is not far below 1.
    feature_norm : float
        B > 0, public: longer rows, and queries, are shortened to it (after `features`).
    adjacency : Adjacency or str
    batches : int, FixedBatches or HashedBatches, optional
        None is one full batch; ``HashedBatches(count, divisor)`` under add/remove: a batch's sum is divided
        by a public number. A step that expands, r (rows/divisor L + lambda) > 2, is certified but costs much:
        choose the rate for more rows than you expect.
    init : array-like, shape [parameters], optional
        Public: weights [class, inputs] and then biases; None is 0.
    progress : bool
    classes : int
        2 is one logit; more need a clip of at least sqrt(2) sqrt(B^2 + 1), which never binds.
    k_max : int
        A distance above it is reported as `k_max` (1-Lipschitz still).
    features : callable, optional
        A frozen public map of rows [256, any] -> [256, inputs], for training rows and queries alike, such as
        a hidden layer drawn from a public seed. It must give a row the same bits wherever it stands and
        whatever the other rows are.

    Raises
    ------
    UnsupportedError
        With momentum under add/remove, a clip by value (the clipped loss is not convex) or, for softmax, a
        clip that may bind.

    Notes
    -----
    ==========================================  ===========================================================
    edge case                                   what happens
    ==========================================  ===========================================================
    a training cell or label that is unusable   gradient 0 for its row; it counts as a row
    a bound that is not finite                  that level and all above it certify nothing
    a logit, or a gap, of exactly 0             the first class, distance 0
    a query cell that is not finite             DataError: queries are the analyst's
    no rows (add/remove)                        decay alone moves the model
    ==========================================  ===========================================================
    """

    inputs: int
    hyperparameters: Any
    feature_norm: float
    adjacency: Adjacency | str = Adjacency.REPLACE_ONE
    batches: Batches | int | None = None
    init: Any = None
    progress: bool = False
    classes: int = 2
    k_max: int = 4096
    features: Callable[[Floats], Any] | None = None
    plan: Plan = field(init=False, repr=False)

    def __post_init__(self) -> None:
        _whole("classes", self.classes, 2, 1 << 16)
        _whole("k_max", self.k_max, 0, _LEVELS)
        network = Network((self.inputs, 1 if self.classes == 2 else int(self.classes)))
        init = np.zeros(network.size) if self.init is None else self.init
        plan = Plan.of(network, init, self.hyperparameters, self.adjacency, self.batches, "step", None)
        settings: Hyperparameters = plan.settings
        added = plan.adjacency is Adjacency.ADD_REMOVE_ONE
        if (settings.momentum and added) or settings.clip_by != "norm":
            raise UnsupportedError(
                f"The ball with momentum {settings.momentum} and a clip by {settings.clip_by} under "
                f"{plan.adjacency.value}.",
                "Pass momentum=0 or a replacement relation, and clip_by='norm'; or use IntervalTraining.",
            )
        if not 0 < float(self.feature_norm) < 1e50:
            raise ParameterError(
                f"The 'feature_norm' is {self.feature_norm!r:.80}.", "Pass a positive number."
            )
        if self.classes > 2 and settings.clip < _loose(self._longest):
            raise UnsupportedError(
                f"Softmax with a clip of {settings.clip!r}, which may bind: the loss is not convex then.",
                f"Pass a clip of at least {_loose(self._longest):.6g}, or a smaller feature_norm.",
            )
        object.__setattr__(self, "adjacency", plan.adjacency)
        object.__setattr__(self, "plan", plan)

    @property
    def _longest(self) -> float:
        """The largest norm of a row's gradient without a clip."""
        return math.sqrt(self.feature_norm**2 + 1) * (1.0 if self.classes == 2 else math.sqrt(2))

    @np.errstate(all="ignore")  # no setting of the process turns a private cell into an exception
    def fit(self, X: Any, y: Any, *, ids: Any = None) -> CertifiedLinear:
        """Train on rows X [rows, inputs] and classes y [rows] (0 ... classes - 1).

        Raises
        ------
        DataError
            If the shapes do not fit, or there are more batches than rows.
        """
        held = self.plan.batches_of(self.shortened(X), y, ids, None)
        found = self.plan.intervals(held, (0,), self.progress)
        reach = self.reach([batch.divisor for batch in held], [batch.rows.count for batch in held])
        return CertifiedLinear(self, found.nominal, reach)

    def mapped(self, X: Any) -> Any:
        """Apply the frozen map in blocks of one size, so that a row's place in the table does not matter."""
        return apply_map(self.features, X, self.inputs)

    def shortened(self, X: Any) -> Floats:
        """Return mapped rows of norm at most B as computed, a little less as real numbers."""
        rows = matrix(self.mapped(X), self.inputs)
        usable: Any = np.isfinite(rows).all(axis=1)
        rows = np.where(usable[:, None], rows, 0.0)
        # In units of the largest cell, so that squares neither overflow nor vanish.
        most = np.maximum(np.abs(rows), 1e-300).max(axis=1)[:, None]
        unit = rows / most
        length = np.sqrt(row_squares(unit))[:, None]  # of a row by itself, whatever the layout
        with np.errstate(all="ignore"):
            short = np.where(length > self.feature_norm / most, unit * (self.feature_norm / length), rows)
        # 2^-30 is more than the rounding of the norm of a million inputs.
        short = short * (1 - 2.0**-30)
        short[~usable] = np.nan
        return short

    def reach(self, divisors: Sequence[float], rows: Sequence[int]) -> Floats:
        """Bound how far the model of any table within k changes lies, for k = 1 ... k_max: increasing.

        Parameters
        ----------
        divisors : sequence of float
            Of each batch.
        rows : sequence of int
            Of each batch; not looked at under replacement, where the bound is public.

        Returns
        -------
        ndarray, shape [k_max]
            rho_k; inf where nothing is certified.
        """
        if self.plan.adjacency is Adjacency.ADD_REMOVE_ONE:
            counts = np.array(rows)[:, None] + np.arange(1, self.k_max + 1)
            loads = np.column_stack([np.zeros(len(rows)), counts / np.array(divisors)[:, None]])
        else:
            loads = np.ones((len(rows), 1))
        delta = self.moves(divisors, loads)
        step = 2.0 ** (math.frexp(max(delta[0], 1e-270) if delta[0] < 1e270 else 1e270)[1] - 1 - _FINE)
        with np.errstate(all="ignore"):
            steps = np.ceil((delta if len(delta) == 1 else delta[1:]) / step) + _SLACK
        good = np.logical_and.accumulate(np.broadcast_to(steps <= _COARSE, self.k_max))
        exact = np.cumsum(np.where(good, steps, 0).astype(np.int64))
        return np.where(good, exact * step, np.inf)

    def moves(self, divisors: Sequence[float], loads: Floats) -> Floats:
        """Bound the distance between the models of neighbours, rounding of logits included: delta.

        Parameters
        ----------
        divisors : sequence of float
            Of each batch.
        loads : ndarray, shape [batch, level]
            N: the most rows that a batch has, over its divisor.

        Returns
        -------
        ndarray, shape [level]
        """
        settings, M = self.plan.settings, self.inputs + 1
        clip, grid = settings.grid
        replaced = self.plan.adjacency is not Adjacency.ADD_REMOVE_ONE
        a = math.sqrt(self.feature_norm**2 + 1)
        longest = min(clip, self._longest * (1 + 8 * _U))
        smooth, decay = a * a / (4 if self.classes == 2 else 2), settings.weight_decay
        start = float(np.linalg.norm(self.plan.init)) * (1 + 2 * M * _U)
        size = self.plan.network.size
        # e_row of a model of norm R: the first plus the second times R.
        error = (a * (self.classes + 2) * 2.0**-50 + 2 * (M + 8) * _U * clip + math.sqrt(size) * grid,
                 4 * M * _U * a * a)  # fmt: skip
        if settings.momentum:
            found, norm = momentum_moves(
                settings, divisors, longest=longest, smooth=smooth, start=start, row_error=error
            )
            return np.array([found + 8 * M * _U * norm])
        R = np.full(loads.shape[1], start)
        moved = np.zeros_like(loads)
        with np.errstate(all="ignore"):
            for step in range(settings.epochs * len(divisors)):
                rate, batch = settings.rate(step), step % len(divisors)
                N, kept = loads[batch], abs(1 - rate * decay)
                e_row = error[0] + error[1] * R
                e = 2 * (rate * N * (e_row + 8 * _U * clip) + 8 * _U * (1 + rate * decay) * R)
                q = np.maximum(kept, rate * (smooth * N + decay) - 1) * (1 + 16 * _U)
                moved = q * moved + 2 * e
                moved[batch] += (2 if replaced else 1) * longest * rate / divisors[batch]
                R = (kept * R + rate * N * longest + e) * (1 + 16 * _U)
            delta = moved.max(axis=0) * (1 + 2.0**-40) + 8 * M * _U * R
        return np.where(np.isnan(delta), np.inf, delta)


class CertifiedLinear:
    """A trained linear classifier with its distances: private data, no release.

    Attributes
    ----------
    nominal : ndarray, shape [parameters]
        The trained model.
    reach : ndarray, shape [k_max]
        Largest distance between the models of tables within 1 ... k_max changes; private under add/remove.
    """

    def __init__(self, certificate: BallTraining, nominal: Floats, reach: Floats) -> None:
        self.certificate = certificate
        self.nominal = nominal
        self.reach = reach

    def state(self) -> dict[str, Any]:
        """Return what `from_state` takes (`confide.prediction.states`)."""
        return {"certificate": self.certificate, "nominal": self.nominal, "reach": self.reach}

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> CertifiedLinear:
        """Rebuild a model."""
        return cls(state["certificate"], state["nominal"], state["reach"])

    def check_queries(self, X: Any) -> None:
        """Refuse queries with a cell that is not finite, or of another width."""
        self._queries(X)

    def _queries(self, X: Any) -> Floats:
        rows = self.certificate.shortened(X)
        if not np.isfinite(rows).all():
            raise DataError("A query has a cell that is not a finite number.", "Impute it before asking.")
        return rows

    def stability(self, X: Any) -> tuple[Ints, Ints]:
        """Return the class and the stability distance of each query X [query, inputs]; neither is private."""
        network, rows = self.certificate.plan.network, self._queries(X)
        queries = blocks(rows, np.zeros(len(rows), dtype=np.int64))
        theta = network.inward(self.nominal)[None]
        decided, logits = decisions(network, theta, theta, queries)
        winner, z = decided[0], logits[0, 0]
        labels = np.maximum(winner, 0)
        lengths = np.sqrt(np.sum(rows**2, axis=1) + 1) * (1 + 2.0**-30)
        with np.errstate(all="ignore"):
            if network.outputs == 1:
                ratio = np.abs(z[:, 0]) / lengths
            else:
                gaps = np.take_along_axis(z, labels[:, None], axis=1) - z
                np.put_along_axis(gaps, labels[:, None], np.inf, axis=1)
                ratio = gaps.min(axis=1) / (lengths * (math.sqrt(2) * (1 + 2.0**-30)))
        ratio = np.where(np.isfinite(ratio) & (winner >= 0), ratio, 0.0)
        return labels, np.searchsorted(self.reach, ratio, side="left").astype(np.int64)

    def predict(self, X: Any) -> Ints:
        """Return the trained model's classes; not private."""
        return self.stability(X)[0]


def _loose(norm: float) -> float:
    """Return a clip that a gradient of this norm never reaches, as computed."""
    return norm * (1 + 2.0**-30)


def _whole(name: str, value: Any, least: int, most: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or not least <= value <= most:
        raise ParameterError(
            f"The '{name}' parameter is {value!r:.80}.", f"Pass a whole number from {least} to {most}."
        )
