"""Strongly convex empirical risk: how far one changed row can move a logit, without retraining."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from confide.errors import ParameterError, UnsupportedError
from confide.prediction.certificate import Labels, table
from confide.prediction.erm_curvature import Levels, curvature_levels
from confide.prediction.erm_losses import BinaryLoss, binary_loss, softmax_steepest
from confide.prediction.erm_solver import (
    Accuracy,
    BinaryObjective,
    SoftmaxObjective,
    accuracy,
    minimise,
    norm,
)
from confide.prediction.erm_steps import Steps, steps_of
from confide.prediction.laws import class_count, whole
from confide.prediction.rows import Floats, UnitRows, enlarged, number, unit_rows
from confide.privacy import Adjacency

#: Names of the losses: for two classes, for more.
LOSSES = ("logistic", "huber_hinge", "softmax")
#: The curvature version takes no change of the gradient below this share of the largest.
_LEAST_SHARE = 0.75
#: Rows whose rounding errors are covered at least, where their number is secret.
_COVERED = 1 << 24


@dataclass(frozen=True)
class StronglyConvexERM:
    """Minimise sum_i loss(w; x_i, y_i) + Lambda / 2 ||w||^2 over rows of the unit ball.

    Parameters
    ----------
    ridge : float
        Lambda > 0, public: of the *sum* of losses. A mean over a secret number of rows has no such bound.
    classes : int
    feature_bounds : pair of scalars or arrays [p]
        Public.
    loss : {None, "logistic", "huber_hinge", "softmax"}
        None: logistic for two classes, softmax for more.
    feature_norm, constant : float, optional
        See `confide.prediction.rows.unit_rows`.
    adjacency : Adjacency or str
    max_rows : int
        Under ADD_REMOVE_ONE: rounding errors cover so many rows, and 2^24 at least. n is secret there, and
        nothing compares it with this number; that no table has more rows than are covered is a public
        precondition. The replacement relations use the number of rows, which is public.
    curvature_levels : int
        Largest distance that the curvature version certifies (two classes); 0 leaves it out. It costs
        n p^2 a level, once.

    Notes
    -----
    *Sensitivity.* Rows have norm at most 1, the constant included, and the loss has a slope within [-1, 1] in
    the logit, so one change of the table changes the gradient of the objective, at any w, by at most G: 2
    for a replacement, 1 for an addition or removal, and for a changed label the loss's own constant (1 for
    logistic). The objective is Lambda-strongly convex: its optimum moves by at most G / Lambda. The solver
    returns a point within a public tau of it, so the logit that is computed for x moves by at most
    (G / Lambda + 2 tau) ||x||, and twice its rounding error. For softmax the gradient in the C logits has
    norm at most sqrt 2, the weights move by sqrt 2 G / Lambda in the Frobenius norm, and the difference of
    two logits by sqrt 2 times that: 2 G / Lambda.

    Slopes are smaller where the weights are: `confide.prediction.erm_steps` has radii s_1 < s_2 < ... with
    s_k <= k (G / Lambda + 2 tau). *k* is the largest integer with s_k ||x|| < margin (|logit|; for softmax
    with sqrt 2 s_k, and the least difference to another logit).

    *Sound*: after j <= k changes the computed weights lie within s_j, so each logit moves by less than the
    margin. *1-Lipschitz*: s_k(D') <= s_{k+1}(D) - s_1(D) for neighbours D, D', and the margin moves by at
    most s_1(D) ||x|| where the class stays. Where it turns, soundness on both tables says that both k are 0.

    *Small queries.* Class and k depend on the direction of x alone, so `FittedERM.stability` first multiplies
    each query by a power of two, without rounding, that brings its norm to at least 1/2 (`enlarged`). Then
    nothing in the chain is lost below the smallest double: the m products of a logit lose 2^-1075 each, below
    2^-1000 together, and the promised bound e ||x|| on a logit's error is above 2^-54 whatever the weights
    are, since the public W is at least 1. (With the query as it came, the computed ||x|| and with it all
    radii were 0 below 1e-162, and k as large as it gets, on both of two neighbours of different classes.)

    Persons of several rows: `confide.prediction.Persons` divides k, which gives no less than one step for all
    rows of a person would.

    The curvature version (`confide.prediction.erm_curvature`) has its own proofs; the larger of two sound and
    1-Lipschitz distances is one.

    ====================================  =============================================================
    edge case                             what happens
    ====================================  =============================================================
    no rows, one class only               the same path; no rows: class 0, k = 0
    logit of exactly 0                    class 0, k = 0
    query of norm 0                       k = 0
    query with cells of 1e-170            as the same query times 2^600
    subnormal query                       0 where `feature_norm` is far above it, else as above
    NaN, infinite cells                   `UnitRows`
    more rows than `max_rows`             the same path; covered up to 2^24 rows whatever was declared
    ridge so small that rounding rules    k small: tau and e are public and grow
    ====================================  =============================================================
    """

    ridge: float
    classes: int = 2
    feature_bounds: Any = (-1.0, 1.0)
    loss: str | None = None
    feature_norm: float | None = None
    constant: float | None = None
    adjacency: Adjacency = field(default=Adjacency.REPLACE_ONE)
    max_rows: int = 1 << 24
    curvature_levels: int = 128

    def __post_init__(self) -> None:
        set_ = object.__setattr__
        ridge = number(self.ridge, "ridge")
        if not 1e-12 <= ridge <= 1e18:
            raise ParameterError(
                f"The 'ridge' parameter is {self.ridge!r}.", "Pass a number in [1e-12, 1e18]."
            )
        set_(self, "ridge", ridge)
        set_(self, "classes", class_count(self.classes))
        set_(self, "adjacency", Adjacency.parse(self.adjacency))
        set_(self, "max_rows", whole(self.max_rows, "max_rows", 1))
        set_(self, "curvature_levels", whole(self.curvature_levels, "curvature_levels"))
        loss = self.loss or ("logistic" if self.classes == 2 else "softmax")
        if loss not in LOSSES:
            raise UnsupportedError(
                f"The 'loss' parameter is {self.loss!r}.", f"Pass one of {', '.join(map(repr, LOSSES))}."
            )
        if loss != "softmax" and self.classes != 2:
            raise UnsupportedError(f"The loss {loss!r} is for two classes.", "Use loss='softmax'.")
        set_(self, "loss", loss)

    @property
    def gradient_shift(self) -> float:
        """Largest change of the gradient from one change of the table (times sqrt 2 for softmax): g."""
        if self.adjacency is Adjacency.ADD_REMOVE_ONE:
            return 1.0
        if self.adjacency is Adjacency.REPLACE_LABEL:
            return 1.0 if self.loss == "softmax" else binary_loss(str(self.loss)).relabelled
        return 2.0

    @np.errstate(all="ignore")  # no setting of the process turns a private cell into an exception
    def fit(self, X: ArrayLike, y: ArrayLike, *, ids: Any = None) -> FittedERM:
        """Minimise; ids play no part."""
        cells, labels = table(X, y, self.classes)
        shape = unit_rows(
            self.feature_bounds, cells.shape[1], feature_norm=self.feature_norm, constant=self.constant
        )
        secret = self.adjacency is Adjacency.ADD_REMOVE_ONE
        limit = max(self.max_rows, _COVERED) if secret else max(1, cells.shape[0])
        rows = shape(cells)
        if self.loss == "softmax":
            return self._fit_softmax(rows, labels, shape, limit)
        return self._fit_binary(rows, labels, shape, limit)

    def _fit_binary(self, rows: Floats, labels: Labels, shape: UnitRows, limit: int) -> FittedERM:
        loss, g = binary_loss(str(self.loss)), self.gradient_shift
        precision = accuracy(limit, rows.shape[1], self.ridge, at_zero=loss.at_zero, slope=1.0,
                             curvature=loss.curvature, shift=g)  # fmt: skip
        signs = np.where(labels == 1, 1.0, -1.0)
        w = minimise(BinaryObjective(rows, signs, loss, self.ridge), precision)
        steps = steps_of(self.change, norm(w), self.ridge, precision)
        levels = self._levels(rows, signs, w, loss, limit, precision)
        return FittedERM(self, shape, w[None, :], steps, precision, levels)

    def _levels(
        self, rows: Floats, signs: Floats, w: Floats, loss: BinaryLoss, limit: int, precision: Accuracy
    ) -> Levels | None:
        if self.curvature_levels == 0:
            return None
        keeps_rows = self.adjacency is Adjacency.REPLACE_LABEL and loss.label_free
        least = max(_LEAST_SHARE * self.gradient_shift, self.change(0.0))
        steps = steps_of(self.change, norm(w), self.ridge, precision, least=least)
        return curvature_levels(
            rows, signs, w, loss, self.ridge, steps, least, precision, limit, self.curvature_levels,
            keeps_rows=keeps_rows,
        )  # fmt: skip

    def _fit_softmax(self, rows: Floats, labels: Labels, shape: UnitRows, limit: int) -> FittedERM:
        g = math.sqrt(2.0) * self.gradient_shift
        precision = accuracy(limit, rows.shape[1] * self.classes, self.ridge, at_zero=math.log(self.classes),
                             slope=math.sqrt(2.0), curvature=0.5, shift=g)  # fmt: skip
        w = minimise(SoftmaxObjective(rows, labels, self.classes, self.ridge), precision)
        steps = steps_of(self.change, norm(w), self.ridge, precision)
        return FittedERM(self, shape, w.reshape(self.classes, -1), steps, precision, None)

    def change(self, u: float) -> float:
        """Return F(u): the largest change of the gradient at weights of norm at most u (`erm_steps`)."""
        softmax = self.loss == "softmax"
        if self.adjacency is Adjacency.REPLACE_LABEL:
            return self.gradient_shift * (math.sqrt(2.0) if softmax else 1.0)
        slope = softmax_steepest(u, self.classes) if softmax else binary_loss(str(self.loss)).steepest(u)
        return self.gradient_shift * slope * (1.0 + 1e-12)


@dataclass(frozen=True, eq=False)
class FittedERM:
    """A fitted linear classifier with its distances.

    Attributes
    ----------
    certificate : StronglyConvexERM
    rows : UnitRows
    weights : float array [1, m] or [C, m]
        Secret.
    steps : Steps
        Secret.
    precision : Accuracy
        Public.
    levels : Levels or None
        Of the curvature version; secret.
    """

    certificate: StronglyConvexERM
    rows: UnitRows
    weights: Floats = field(repr=False)
    steps: Steps = field(repr=False)
    precision: Accuracy
    levels: Levels | None = field(repr=False)

    @np.errstate(all="ignore")
    def stability(self, X: ArrayLike) -> tuple[Labels, Labels]:
        """See `confide.prediction.certificate.Certified`."""
        queries, labels, margin = self._decided(X)
        k = self.plain(queries, margin)
        if self.levels is not None:
            k = np.maximum(k, self.levels.distances(queries, margin))
        return labels, k

    @np.errstate(all="ignore")
    def steady(self, X: ArrayLike) -> tuple[Labels, Labels]:
        """See `confide.prediction.certificate.steady`."""
        queries, labels, margin = self._decided(X)
        k = self.plain(queries, margin)
        if self.levels is not None:
            k = np.maximum(k, self.levels.steady(queries, margin))
        return labels, k

    def _decided(self, X: ArrayLike) -> tuple[Floats, Labels, Floats]:
        queries = enlarged(self.rows(X))[0]
        logits = queries @ self.weights.T
        if logits.shape[1] == 1:
            labels = (logits[:, 0] > 0).astype(np.int64)
            margin = np.abs(logits[:, 0])
        else:
            labels = np.argmax(logits, axis=1).astype(np.int64)
            ordered = np.partition(logits, -2, axis=1)
            margin = ordered[:, -1] - ordered[:, -2]
        return queries, labels, margin

    def plain(self, queries: Floats, margin: Floats) -> Labels:
        """Return the distances without the curvature version, for `enlarged` queries."""
        length = lengths(queries)
        ratio = np.where(length > 0.25, margin, 0.0) / np.maximum(length, 0.25)  # below: a query of zeros
        if self.weights.shape[0] == 1:
            return self.steps.distances(ratio)
        return self.steps.distances(ratio, math.sqrt(2.0), 2.0 * self.precision.logit_error)


def lengths(queries: Floats) -> Floats:
    """Return the norms of rows, rounded up; of `enlarged` rows, where cells may be tiny."""
    return np.sqrt(np.sum(queries * queries, axis=1)) * (1.0 + 2.0**-32)
