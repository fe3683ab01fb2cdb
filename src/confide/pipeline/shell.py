"""What both estimators of this room share: validation, one charge, a linear score on the selected columns."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted, validate_data

from confide.errors import DataError, UncertifiedWarning
from confide.mechanisms import row_products
from confide.pipeline.cells import paid, rows_of, take
from confide.pipeline.release import Secret, release
from confide.pipeline.request import (
    SparseRequest,
    make_budget,
    make_fit,
    make_sparse_request,
)
from confide.privacy import Adjacency
from confide.schema.loose import check_numeric
from confide.selection.losses import loss_of
from confide.selection.named import bounds_before, bounds_for, width_of
from confide.selection.problem import check_rows
from confide.selection.wide import Bounds, ParquetMatrix, bounded
from confide.training.coefficients import Coefficients, own_norm
from confide.training.coefficients import check_rows as check_fitted_rows


class SparseEstimator(BaseEstimator):
    """Base of `SparseRegressor` and `SparseClassifier`, which say what a target is."""

    size: Any
    epsilon: Any
    delta: Any
    split: Any
    support: Any
    mechanism: str
    top: int | None
    loss: Any
    radius: float | None
    ridge: float | None
    coefficients: str
    coefficient_loss: Any
    coefficient_ridge: float | None
    row_norm: float | None
    fit_intercept: bool
    feature_bounds: Any
    adjacency: Any
    max_rows_per_person: int
    ledger: Any
    random_state: Any

    _classes = False

    def fit(self, X: Any, y: Any = None, **refused: Any) -> Any:
        """Select and fit, charging the ledger first.

        Parameters
        ----------
        X : array-like, CSR or `confide.selection.ParquetMatrix` of shape (n, p)
        y : array-like of shape (n,) or (n, 1)
        **refused
            Nothing else is taken: a `sample_weight` scales one person's influence, and has no public cap
            here (TypeError, pitfall F45).

        Returns
        -------
        self

        Raises
        ------
        ParameterError, UnsupportedError
            Before any data is looked at.
        DataError, ValueError
            From shapes and types, before the charge.
        RefusedError
            From the ledger, before any cell is used.
        """
        if refused:
            raise TypeError(
                f"{type(self).__name__}.fit got {', '.join(map(repr, sorted(refused)))}. Weights scale a "
                "person's influence and have no public cap here: leave them out."
            )
        bounds = bounds_before(self.feature_bounds)
        target = self._target()
        self._request(bounds, target, width_of(X), None)
        try:
            return self._fit(X, y, target)
        except BaseException:
            # A refused or failed fit leaves nothing half-fitted, and no older model under new parameters.
            for name in [name for name in vars(self) if name.endswith("_") and not name.startswith("_")]:
                delattr(self, name)
            raise

    def _target(self) -> Bounds:
        raise NotImplementedError

    def _reader(self, y: Any, n: int, target: Bounds) -> Callable[[], np.ndarray]:
        raise NotImplementedError

    def _request(
        self, bounds: Bounds, target: Bounds, candidates: int | None, rows: int | None
    ) -> SparseRequest:
        many = self.max_rows_per_person != 1
        b_x, b_y = bounds.symmetric or 1.0, target.symmetric or 1.0
        return make_sparse_request(
            size=self.size,
            budget=make_budget(self.epsilon, self.delta, self.split),
            fit=make_fit(
                self.coefficients,
                self.coefficient_loss,
                classes=self._classes,
                ridge=self.coefficient_ridge,
                row_norm=own_norm(self.row_norm, b_x),
                intercept=self.fit_intercept,
            ),
            support=self.support,
            candidates=candidates,
            rows=rows,
            adjacency=self.adjacency,
            rows_per_unit=self.max_rows_per_person,
            unit="person" if many else "row",
            assumptions=(f"at most {self.max_rows_per_person} rows a person",) if many else (),
            random_state=self.random_state,
            recorded=self.ledger is not None,
            mechanism=self.mechanism,
            top=self.top,
            loss=self.loss,
            radius=self.radius,
            ridge=self.ridge,
            feature_bound=b_x,
            target_bound=None if self._loss_of_classes() else b_y,
        )

    def _loss_of_classes(self) -> bool:
        return loss_of(self.loss).labels

    def _fit(self, X: Any, y: Any, target: Bounds) -> Any:
        matrix = self._matrix(X, reset=True)
        n, p = matrix.shape
        read = self._reader(y, n, target)
        names = getattr(self, "feature_names_in_", None)
        bounds = bounds_for(self.feature_bounds, names, p)
        request = self._request(bounds, target, p, n)
        if request.selection is not None and request.guarantee.adjacency is not Adjacency.ADD_REMOVE_ONE:
            check_rows(request.selection.size, n)
        check_fitted_rows(request.plan.shape, n)
        shown = tuple(f"x{j}" for j in range(p)) if names is None else tuple(map(str, names))
        b_x, b_y = bounds.symmetric or 1.0, target.symmetric or 1.0

        def secret() -> Secret:
            cells = paid(matrix)
            return Secret(
                bounded(cells, bounds)[0], lambda columns: take(cells, bounds, columns), read(), b_x, b_y
            )

        support, self.selection_, self.coefficients_, entry = release(
            secret, shown, request, ledger=self.ledger, label=type(self).__name__
        )
        self.support_ = np.array(support, dtype=np.int64)
        self.guarantee_ = request.guarantee
        self.entry_ = entry
        self._bounds, self._target_bounds = bounds, target
        slopes = self.coefficients_.coefficients
        middles, halves = np.zeros(len(support)), np.ones(len(support))
        if bounds.symmetric is None:
            middles, halves = (
                np.broadcast_to(side, (p,))[self.support_] if bounds.scalar else side[self.support_]
                for side in (bounds.middle, bounds.half_width)
            )
        scale, shift = (1.0, 0.0)
        if target.symmetric is None:
            scale, shift = float(target.half_width), float(target.middle)
        scales = np.full(len(support), scale) / halves
        self.noise_errors_ = _moved(self.coefficients_, shown, self.support_, scales, scale, middles)
        self.coef_ = np.zeros(p)
        self.coef_[self.support_] = scale * slopes / halves
        self.intercept_ = shift + scale * (
            self.coefficients_.intercept - float(np.sum(slopes * middles / halves))
        )
        return self

    def _matrix(self, X: Any, *, reset: bool) -> Any:
        """Return X as a matrix of numbers or objects; only types and shapes are looked at."""
        if isinstance(X, ParquetMatrix):
            if reset:
                self.n_features_in_ = X.shape[1]
                self.feature_names_in_ = np.array(X.names, dtype=object)
            elif X.shape[1] != self.n_features_in_:
                raise DataError(f"The file has {X.shape[1]} columns.", f"Pass {self.n_features_in_}.")
            return X
        checked = validate_data(
            self,
            rows_of(X),
            reset=reset,
            accept_sparse="csr",
            dtype=None,
            ensure_all_finite=False,
            ensure_min_samples=0,  # a part of a table of few rows may be empty, and no exception may tell
        )
        check_numeric(checked)
        return checked

    def _score(self, X: Any) -> np.ndarray:
        """Return the linear score in units of the target bounds, for cells clipped as those of the fit."""
        check_is_fitted(self, "coefficients_")
        cells = take(paid(self._matrix(X, reset=False)), self._bounds, tuple(self.support_.tolist()))
        # Of each row alone, bit for bit: scores of rows that come and go rely on it (`confide.tune.scoring`).
        return row_products(cells, self.coefficients_.coefficients) + self.coefficients_.intercept

    def _warn_of_score(self) -> None:
        warnings.warn(
            UncertifiedWarning(
                f"{type(self).__name__}.score reads labels without privacy and without a charge: use it on "
                "public labels only."
            ),
            stacklevel=3,
        )

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.input_tags.allow_nan = True
        tags.target_tags.required = True
        # Noise from the operating system unless seeded.
        tags.non_deterministic = self.random_state is None
        return tags


def _moved(
    fitted: Coefficients,
    names: tuple[str, ...],
    support: np.ndarray,
    scales: np.ndarray,
    scale: float,
    middles: np.ndarray,
) -> dict[str, float] | None:
    """Return deviations of the privacy noise in intercept and coefficients, in the units of X and y."""
    if fitted.covariance is None:
        return None
    size = scales.size
    move = np.zeros((size + 1, size + 1))
    move[0, 0] = scale
    move[0, 1:] = -scales * middles
    move[1:, 1:] = np.diag(scales)
    move = move[:, -fitted.covariance.shape[0] :]  # without an intercept its column is missing
    deviations = np.sqrt(np.maximum(np.diag(move @ fitted.covariance @ move.T), 0.0)).tolist()
    return dict(zip(("(intercept)", *(names[j] for j in support)), deviations, strict=True))
