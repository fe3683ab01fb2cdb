"""Strongly convex empirical risk: how far one changed row can move a logit, without retraining."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from confide.errors import DataError, ParameterError, UnsupportedError
from confide.prediction.certificate import Labels, table
from confide.prediction.erm_curvature import Levels, curvature_levels
from confide.prediction.erm_losses import BinaryLoss, binary_loss
from confide.prediction.erm_solver import Accuracy, BinaryObjective, SoftmaxObjective, accuracy, minimise
from confide.prediction.laws import class_count, whole
from confide.prediction.rows import Floats, UnitRows, number, unit_rows
from confide.privacy import Adjacency

#: Names of the losses: for two classes, for more.
LOSSES = ("logistic", "huber_hinge", "softmax")


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
        Public bound on the number of rows under ADD_REMOVE_ONE, for the rounding errors. The replacement
        relations use the number of rows, which is public.
    curvature_levels : int
        Largest distance that the curvature version certifies (two classes); 0 leaves it out. It costs
        n p^2 a level, once.

    Notes
    -----
    *Sensitivity.* Rows have norm at most 1, the constant included, and the loss has a slope within [-1, 1] in
    the logit, so one change of the table changes the gradient of the objective, at any w, by at most g: 2
    for a replacement, 1 for an addition or removal, and for a changed label the loss's own constant (1 for
    logistic). The objective is Lambda-strongly convex: its optimum moves by at most g / Lambda. The solver
    returns a point within a public tau of it, so the logit that is computed for x moves by at most
    (g / Lambda + 2 tau) ||x||, plus twice its rounding error e ||x||; call that r. For softmax the gradient
    in the C logits has norm at most sqrt 2, the weights move by sqrt 2 g / Lambda in the Frobenius norm, and
    the difference of two logits by sqrt 2 times that: 2 g / Lambda.

    *k* is the largest integer with k r < margin (|logit|; for softmax, the difference to the second).

    *Sound*: after j <= k changes the optimum lies within j g / Lambda, what is computed within 2 tau more,
    so the margin moves by at most j r < margin. *1-Lipschitz*: between neighbours with one class the margin
    moves by at most r, and ceil(margin / r) - 1 by at most 1. With two classes the margins of both are at
    most r (their logits lie on both sides of 0, within r), and both k are 0. For softmax the least gap
    replaces the margin, and each gap moves by at most r.

    The curvature version (`confide.prediction.erm_curvature`) has its own proofs; the larger of two sound and
    1-Lipschitz distances is one.

    ====================================  =============================================================
    edge case                             what happens
    ====================================  =============================================================
    no rows, one class only               the same path; no rows: class 0, k = 0
    logit of exactly 0                    class 0, k = 0
    query of norm 0                       k = 0
    NaN, infinite cells                   `UnitRows`
    more rows than `max_rows`             DataError, as for every sum on a public grid of the house
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

    def fit(self, X: ArrayLike, y: ArrayLike, *, ids: Any = None) -> FittedERM:
        """Minimise; ids play no part."""
        cells, labels = table(X, y, self.classes)
        shape = unit_rows(
            self.feature_bounds, cells.shape[1], feature_norm=self.feature_norm, constant=self.constant
        )
        limit = self.max_rows if self.adjacency is Adjacency.ADD_REMOVE_ONE else max(1, cells.shape[0])
        if cells.shape[0] > limit:
            raise DataError(
                f"The table has more rows than the declared {limit}.", "Declare a larger 'max_rows'."
            )
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
        shift = moves(g, self.ridge, precision)
        levels = self._levels(rows, signs, w, loss, limit, precision)
        return FittedERM(self, shape, w[None, :], shift, precision, levels)

    def _levels(
        self, rows: Floats, signs: Floats, w: Floats, loss: BinaryLoss, limit: int, precision: Accuracy
    ) -> Levels | None:
        if self.curvature_levels == 0:
            return None
        keeps_rows = self.adjacency is Adjacency.REPLACE_LABEL and loss.label_free
        return curvature_levels(
            rows, signs, w, loss, self.ridge, self.gradient_shift, precision, limit, self.curvature_levels,
            keeps_rows=keeps_rows,
        )  # fmt: skip

    def _fit_softmax(self, rows: Floats, labels: Labels, shape: UnitRows, limit: int) -> FittedERM:
        g = math.sqrt(2.0) * self.gradient_shift
        precision = accuracy(limit, rows.shape[1] * self.classes, self.ridge, at_zero=math.log(self.classes),
                             slope=math.sqrt(2.0), curvature=0.5, shift=g)  # fmt: skip
        w = minimise(SoftmaxObjective(rows, labels, self.classes, self.ridge), precision)
        shift = math.sqrt(2.0) * moves(g, self.ridge, precision) + 2.0 * precision.logit_error
        return FittedERM(self, shape, w.reshape(self.classes, -1), shift, precision, None)


def moves(g: float, ridge: float, precision: Accuracy) -> float:
    """Return (g / Lambda + 2 tau + 2 e), rounded up by a millionth.

    The millionth pays for the rounding of quotients up to k = 2^30, so that k is 1-Lipschitz as computed.
    """
    return (g / ridge + 2.0 * precision.tolerance + 2.0 * precision.logit_error) * (1.0 + 1e-6)


@dataclass(frozen=True, eq=False)
class FittedERM:
    """A fitted linear classifier with its distances.

    Attributes
    ----------
    certificate : StronglyConvexERM
    rows : UnitRows
    weights : float array [1, m] or [C, m]
        Secret.
    shift : float
        r for a query of norm 1; public.
    precision : Accuracy
        Public.
    levels : Levels or None
        Of the curvature version; secret.
    """

    certificate: StronglyConvexERM
    rows: UnitRows
    weights: Floats = field(repr=False)
    shift: float
    precision: Accuracy
    levels: Levels | None = field(repr=False)

    def stability(self, X: ArrayLike) -> tuple[Labels, Labels]:
        """See `confide.prediction.certificate.Certified`."""
        queries = self.rows(X)
        logits = queries @ self.weights.T
        if logits.shape[1] == 1:
            labels = (logits[:, 0] > 0).astype(np.int64)
            margin = np.abs(logits[:, 0])
        else:
            labels = np.argmax(logits, axis=1).astype(np.int64)
            ordered = np.partition(logits, -2, axis=1)
            margin = ordered[:, -1] - ordered[:, -2]
        k = self.plain(queries, margin)
        if self.levels is not None:
            k = np.maximum(k, self.levels.distances(queries, margin))
        return labels, k

    def plain(self, queries: Floats, margin: Floats) -> Labels:
        """Return the largest integers k with k r < margin."""
        radius = self.shift * lengths(queries) + 1e-290
        return np.maximum(np.ceil(np.minimum(margin / radius, 2.0**30)) - 1.0, 0.0).astype(np.int64)


def lengths(queries: Floats) -> Floats:
    """Return the norms of rows, rounded up."""
    return np.sqrt(np.sum(queries * queries, axis=1)) * (1.0 + 2.0**-32)
