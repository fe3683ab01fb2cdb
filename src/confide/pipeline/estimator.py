"""scikit-learn shells: select columns, then fit their coefficients, under one guarantee."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted, validate_data

from confide.errors import DataError, ParameterError, UncertifiedWarning
from confide.pipeline.cells import label_values, numeric, positives, take
from confide.pipeline.release import Secret, release
from confide.pipeline.request import SparseRequest, make_budget, make_fit, make_sparse_request
from confide.privacy import Adjacency
from confide.selection.problem import check_rows
from confide.selection.wide import Bounds, ParquetMatrix, bounded
from confide.training.coefficients import check_rows as check_fitted_rows


class _Sparse(BaseEstimator):
    """What both estimators share: validation, one charge, a linear score on the selected columns."""

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
        bounds = Bounds.of(self.feature_bounds)
        target = self._target()
        self._request(bounds, target, None, None)
        try:
            return self._fit(X, y, bounds, target)
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
        norm = self.row_norm
        if norm is not None and not (isinstance(norm, int | float) and norm > 0):
            raise ParameterError(
                f"The 'row_norm' parameter is {norm!r:.80}.", "Pass a positive number, or None."
            )
        return make_sparse_request(
            size=self.size,
            budget=make_budget(self.epsilon, self.delta, self.split),
            fit=make_fit(
                self.coefficients,
                self.coefficient_loss,
                classes=self._classes,
                ridge=self.coefficient_ridge,
                row_norm=None if norm is None else norm / b_x,
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
        from confide.selection.losses import loss_of

        return loss_of(self.loss).labels

    def _fit(self, X: Any, y: Any, bounds: Bounds, target: Bounds) -> Any:
        matrix = self._matrix(X, reset=True)
        n, p = matrix.shape
        read = self._reader(y, n, target)
        bounds.fit(p)
        request = self._request(bounds, target, p, n)
        if request.selection is not None and request.guarantee.adjacency is not Adjacency.ADD_REMOVE_ONE:
            check_rows(request.selection.size, n)
        check_fitted_rows(request.plan.shape, n)
        names = getattr(self, "feature_names_in_", None)
        shown = tuple(f"x{j}" for j in range(p)) if names is None else tuple(map(str, names))
        b_x, b_y = bounds.symmetric or 1.0, target.symmetric or 1.0

        def secret() -> Secret:
            return Secret(
                bounded(matrix, bounds)[0], lambda columns: take(matrix, bounds, columns), read(), b_x, b_y
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
        self.coef_ = np.zeros(p)
        self.coef_[self.support_] = scale * slopes / halves
        self.intercept_ = shift + scale * (
            self.coefficients_.intercept - float(np.sum(slopes * middles / halves))
        )
        return self

    def _matrix(self, X: Any, *, reset: bool) -> Any:
        """Return X with numeric cells; only types and shapes can raise."""
        if isinstance(X, ParquetMatrix):
            if reset:
                self.n_features_in_ = X.shape[1]
                self.feature_names_in_ = np.array(X.names, dtype=object)
            elif X.shape[1] != self.n_features_in_:
                raise DataError(f"The file has {X.shape[1]} columns.", f"Pass {self.n_features_in_}.")
            return X
        columns = getattr(X, "columns", None)
        if columns is not None and len(set(columns)) < len(columns):
            raise DataError("The frame names a column twice.", "Rename one: a support is told by names.")
        checked = validate_data(
            self,
            X,
            reset=reset,
            accept_sparse="csr",
            dtype=None,
            ensure_all_finite=False,
            ensure_min_samples=0 if reset else 1,
        )
        return numeric(checked)

    def _score(self, X: Any) -> np.ndarray:
        """Return the linear score in units of the target bounds, for cells clipped as those of the fit."""
        check_is_fitted(self, "coefficients_")
        cells = take(self._matrix(X, reset=False), self._bounds, tuple(self.support_.tolist()))
        return cells @ self.coefficients_.coefficients + self.coefficients_.intercept

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


class SparseRegressor(RegressorMixin, _Sparse):
    """Private regression on `size` of p columns: select, then fit, under one guarantee and one charge.

    Every cell of a row is secret, public columns included. A part `split` of epsilon draws the support, by
    the mechanisms of `SubsetSelector`; the rest, and delta, releases the coefficients.

    Parameters
    ----------
    size : int
        Columns of the model.
    epsilon, delta : amount
        Total privacy of one `fit`. With delta = 0 both parts are pure. With delta > 0 the coefficients take
        Gaussian noise where it is less than that of pure epsilon, by public numbers: from about 45 columns.
    split : amount, optional
        Part of epsilon for the support; 1/2 by default. See the how-to page on the split.
    support : sequence of int, optional
        A support that is public. Nothing is then charged for selection, as for ``size = p``: all of epsilon
        goes to the coefficients.
    mechanism, top, loss, radius, ridge
        Of the selection: see `SubsetSelector`.
    coefficients : {"auto", "objective", "sufficient_statistics"}
        ``"objective"``: objective perturbation with the `coefficient_loss`. ``"sufficient_statistics"``:
        least squares from a noisy Gram matrix (`confide.training.adassp`, or Laplace noise), for any number
        of rows. ``"auto"``: the first, but for ``coefficient_loss="squared"``. The label-DP engines are
        refused: they are not private where columns are secret.
    coefficient_loss : {"huber", "quantile", "squared"} or ("huber", width) or ("quantile", level), optional
        Huber's loss of width 1/2 of the target bound by default: one row moves its gradient far less than
        that of squared loss.
    coefficient_ridge : float, optional
        Public ridge of objective perturbation, at least what epsilon needs (the default).
    row_norm : float, optional
        Public L2 bound to which the selected part of a row is shortened.
    fit_intercept : bool
    feature_bounds : (lower, upper), numbers or arrays of shape (p,)
        Required, from knowledge; as in `SubsetSelector`.
    target_bounds : (lower, upper)
        Required, from knowledge. Predictions are clipped to them.
    adjacency : Adjacency or str
    max_rows_per_person : int
        As in `SubsetSelector`: declared, not enforced, and named among the assumptions.
    ledger : Ledger or str, optional
        Charged once, before any cell is used. None marks the guarantee ``"unrecorded"``.
    random_state : int, optional
        Noise seed for tests; marks the guarantee ``"seeded"``.

    Attributes
    ----------
    support_ : ndarray of shape (size,)
    coef_ : ndarray of shape (p,)
        Zero outside the support.
    intercept_ : float
    guarantee_ : Guarantee
        Of both parts: epsilon and delta are the constructor's.
    selection_ : SelectionResult or None
        None where the support was public.
    coefficients_ : Coefficients
        In units of the declared bounds, with public facts of the noise.
    entry_ : str
        Id of the ledger's entry.
    n_features_in_, feature_names_in_
        As in scikit-learn.

    Notes
    -----
    `score` compares predictions with labels and protects nobody: it warns.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-1, 1, size=(3000, 8))
    >>> y = X[:, 2] - X[:, 5] + 0.1 * rng.normal(size=3000)
    >>> model = SparseRegressor(2, 5, feature_bounds=(-1, 1), target_bounds=(-2, 2), random_state=0)
    >>> model.fit(X, y).support_
    array([2, 5])
    """

    def __init__(
        self,
        size: Any,
        epsilon: Any,
        delta: Any = 0,
        *,
        split: Any = None,
        support: Any = None,
        mechanism: str = "exponential",
        top: int | None = None,
        loss: Any = "squared",
        radius: float | None = None,
        ridge: float | None = None,
        coefficients: str = "auto",
        coefficient_loss: Any = None,
        coefficient_ridge: float | None = None,
        row_norm: float | None = None,
        fit_intercept: bool = True,
        feature_bounds: Any = None,
        target_bounds: Any = None,
        adjacency: Adjacency | str = "replace_one",
        max_rows_per_person: int = 1,
        ledger: Any = None,
        random_state: int | None = None,
    ) -> None:
        self.size = size
        self.epsilon = epsilon
        self.delta = delta
        self.split = split
        self.support = support
        self.mechanism = mechanism
        self.top = top
        self.loss = loss
        self.radius = radius
        self.ridge = ridge
        self.coefficients = coefficients
        self.coefficient_loss = coefficient_loss
        self.coefficient_ridge = coefficient_ridge
        self.row_norm = row_norm
        self.fit_intercept = fit_intercept
        self.feature_bounds = feature_bounds
        self.target_bounds = target_bounds
        self.adjacency = adjacency
        self.max_rows_per_person = max_rows_per_person
        self.ledger = ledger
        self.random_state = random_state

    def _target(self) -> Bounds:
        if self._loss_of_classes():
            raise ParameterError(
                f"The 'loss' parameter is {self.loss!r:.80}, of classes.",
                "Use SparseClassifier, or another loss.",
            )
        target = Bounds.of(self.target_bounds, "target_bounds")
        if not target.scalar:
            raise ParameterError("The 'target_bounds' parameter holds arrays.", "Pass a pair of numbers.")
        return target

    def _reader(self, y: Any, n: int, target: Bounds) -> Callable[[], np.ndarray]:
        values = label_values(y, n)
        return lambda: target.scale(values(), slice(None))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.regressor_tags.poor_score = True
        return tags

    def predict(self, X: Any) -> np.ndarray:
        """Return predictions of shape (n,), clipped to `target_bounds`."""
        score = self._score(X)
        target = self._target_bounds
        if target.symmetric is None:
            score = target.middle + target.half_width * score
        return np.clip(score, target.lower, target.upper)

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Return R^2 of `predict`, computed without any privacy: on public labels only. Each call warns."""
        self._warn_of_score()
        return super().score(X, y, sample_weight)


class SparseClassifier(ClassifierMixin, _Sparse):
    """Private classification into two classes on `size` of p columns.

    Parameters
    ----------
    size, epsilon, delta
        As in `SparseRegressor`, with all the parameters that are not here.
    classes : (negative, positive)
        Required and public: y counts as positive where it equals the second, else as negative.
    loss : str or Loss
        Of the selection. Squared loss on -1 and +1 by default: a fraction of the time of the others.
    coefficient_loss : {"logistic", "hinge", "squared"}, optional
        Logistic by default. Hinge loss has its kink rounded; ``"squared"`` is a least-squares score.

    Attributes
    ----------
    classes_ : ndarray of shape (2,)
    support_, coef_, intercept_, guarantee_, selection_, coefficients_, entry_
        As in `SparseRegressor`; the score X coef_ + intercept_ is positive for ``classes_[1]``, and a score
        of exactly 0 is ``classes_[0]``.
    """

    _classes = True

    def __init__(
        self,
        size: Any,
        epsilon: Any,
        delta: Any = 0,
        *,
        classes: Any = None,
        split: Any = None,
        support: Any = None,
        mechanism: str = "exponential",
        top: int | None = None,
        loss: Any = "squared",
        radius: float | None = None,
        ridge: float | None = None,
        coefficients: str = "auto",
        coefficient_loss: Any = None,
        coefficient_ridge: float | None = None,
        row_norm: float | None = None,
        fit_intercept: bool = True,
        feature_bounds: Any = None,
        adjacency: Adjacency | str = "replace_one",
        max_rows_per_person: int = 1,
        ledger: Any = None,
        random_state: int | None = None,
    ) -> None:
        self.size = size
        self.epsilon = epsilon
        self.delta = delta
        self.classes = classes
        self.split = split
        self.support = support
        self.mechanism = mechanism
        self.top = top
        self.loss = loss
        self.radius = radius
        self.ridge = ridge
        self.coefficients = coefficients
        self.coefficient_loss = coefficient_loss
        self.coefficient_ridge = coefficient_ridge
        self.row_norm = row_norm
        self.fit_intercept = fit_intercept
        self.feature_bounds = feature_bounds
        self.adjacency = adjacency
        self.max_rows_per_person = max_rows_per_person
        self.ledger = ledger
        self.random_state = random_state

    def _target(self) -> Bounds:
        values = self.classes
        pair = list(values) if isinstance(values, list | tuple | np.ndarray) else []
        if len(pair) != 2 or pair[0] == pair[1]:
            raise ParameterError(
                f"The 'classes' parameter is {values!r:.80}.",
                "Pass two different labels: classes are public and never read from the data.",
            )
        return Bounds.of((-1.0, 1.0))

    def _reader(self, y: Any, n: int, target: Bounds) -> Callable[[], np.ndarray]:
        self.classes_ = np.asarray(self.classes)
        positive = self.classes[1]
        return positives(y, n, positive)

    def decision_function(self, X: Any) -> np.ndarray:
        """Return scores of shape (n,); positive for ``classes_[1]``."""
        return self._score(X)

    def predict(self, X: Any) -> np.ndarray:
        """Return classes of shape (n,)."""
        score = self._score(X)
        return self.classes_[(score > 0).astype(np.int64)]

    @available_if(lambda self: self.coefficient_loss != "hinge")
    def predict_proba(self, X: Any) -> np.ndarray:
        """Return probabilities of shape (n, 2), in the order of `classes_`; not for hinge loss.

        The logistic function of the score, or (1 + score) / 2 clipped to [0, 1] for squared loss.
        """
        score = self._score(X)
        if self.coefficients_.loss == "squared":
            positive = np.clip((1 + score) / 2, 0.0, 1.0)
        else:
            from scipy.special import expit

            positive = expit(score)
        return np.column_stack([1 - positive, positive])

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Return the accuracy of `predict`, computed without any privacy: on public labels only. It warns."""
        self._warn_of_score()
        return super().score(X, y, sample_weight)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = False
        tags.classifier_tags.poor_score = True
        return tags
