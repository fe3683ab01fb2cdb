"""scikit-learn shell over the front door of this room."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from confide.errors import DataError, ParameterError
from confide.privacy import Adjacency
from confide.training.design import Source
from confide.training.front import fit
from confide.training.problem import LinearProblem, check_adjacency, check_bounds
from confide.training.request import Request, make_request


class PrivateRegressor(RegressorMixin, BaseEstimator):
    """Private linear regression on public columns, with declared label bounds.

    Parameters
    ----------
    epsilon, delta : amount
        Total privacy of one `fit`. ``epsilon=inf`` only with ``nonprivate=True``.
    target_bounds : (float, float)
        Bounds of the label, from knowledge and not from the data; labels outside are clipped, NaN is
        imputed by the middle.
    public : "all", boolean mask of shape (p,), or sequence of column names
        Which columns of X are public. The others are refused under ``replace_label``, and left out by the
        engine ``closed_form`` under ``replace_private_part``.
    engine : {"closed_form"}
    model : {"linear"}
    conditioning : str or tuple
        See `confide.training.conditioning_matrix`.
    leverage : float, optional
        Leverage quantile from which public rows are shortened; None chooses by expected error, 1 never.
    shrinkage : bool
        Shrink by the known noise.
    adjacency : Adjacency or str
    fit_intercept : bool
    max_rows_per_person : int
        Largest number of rows that one privacy unit may have; the sensitivity is multiplied by it. With 1,
        a unit is a row. Tables with an id column (`confide.train`) do this more tightly.
    ledger : Ledger or str, optional
        Charged before the labels are read. None marks the guarantee ``"unrecorded"``.
    random_state : int, optional
        Noise seed for tests; marks the guarantee ``"seeded"``. None draws from the operating system.
    nonprivate : bool

    Attributes
    ----------
    coef_ : ndarray of shape (p,)
        Zero for columns that were left out.
    intercept_ : float
    coef_std_error_ : ndarray of shape (p,)
        Of the unbiased coefficients, privacy and sampling noise; see `TrainingResult.standard_errors`.
    guarantee_ : Guarantee
    result_ : TrainingResult
    n_features_in_, feature_names_in_
        As in scikit-learn.

    Examples
    --------
    >>> import numpy as np
    >>> X = np.random.default_rng(0).normal(size=(2000, 3))
    >>> model = PrivateRegressor(epsilon=1, delta=1e-6, target_bounds=(-5, 5)).fit(X, X[:, 0])
    >>> model.guarantee_.assumptions
    ('unrecorded',)
    """

    def __init__(
        self,
        epsilon: Any = 1.0,
        delta: Any = 1e-6,
        *,
        target_bounds: Any = None,
        public: Any = "all",
        engine: str = "closed_form",
        model: str = "linear",
        conditioning: Any = "optimal",
        leverage: float | None = None,
        shrinkage: bool = True,
        adjacency: Adjacency | str = "replace_label",
        fit_intercept: bool = True,
        max_rows_per_person: int = 1,
        ledger: Any = None,
        random_state: int | None = None,
        nonprivate: bool = False,
    ) -> None:
        self.epsilon = epsilon
        self.delta = delta
        self.target_bounds = target_bounds
        self.public = public
        self.engine = engine
        self.model = model
        self.conditioning = conditioning
        self.leverage = leverage
        self.shrinkage = shrinkage
        self.adjacency = adjacency
        self.fit_intercept = fit_intercept
        self.max_rows_per_person = max_rows_per_person
        self.ledger = ledger
        self.random_state = random_state
        self.nonprivate = nonprivate

    def fit(self, X: Any, y: Any, **refused: Any) -> PrivateRegressor:
        """Fit, charging the ledger first.

        Parameters
        ----------
        X : array-like or CSR of shape (n, p)
            Public columns must be finite.
        y : array-like of shape (n,) or (n, 1)
            Secret labels.
        **refused
            Nothing else is taken: a `sample_weight` scales one person's influence, and has no public cap
            here (TypeError, pitfall F45).

        Returns
        -------
        self
        """
        if refused:
            raise TypeError(
                f"PrivateRegressor.fit got {', '.join(map(repr, sorted(refused)))}. Weights scale a person's "
                "influence and have no public cap here: leave them out."
            )
        if self.model != "linear":
            raise ParameterError(f"The 'model' parameter is {self.model!r}.", "Pass 'linear'.")
        if self.target_bounds is None:
            raise ParameterError(
                "The 'target_bounds' parameter is None.",
                "Pass bounds (lo, hi) of the label from knowledge; they are never read from the data.",
            )
        low, high = check_bounds(self.target_bounds)
        bound = self.max_rows_per_person
        if not isinstance(bound, int | np.integer) or isinstance(bound, bool) or bound < 1:
            raise ParameterError(
                f"The 'max_rows_per_person' parameter is {bound!r}.", "Pass an integer >= 1."
            )
        relation = Adjacency.parse(self.adjacency)
        check_adjacency(relation, ())
        request = make_request(
            epsilon=self.epsilon,
            delta=self.delta,
            adjacency=relation,
            unit="row" if bound == 1 else "person",
            engine=self.engine,
            conditioning=self.conditioning,
            leverage=self.leverage,
            shrinkage=self.shrinkage,
            random_state=self.random_state,
            recorded=self.ledger is not None,
            nonprivate=self.nonprivate,
        )
        try:
            return self._fit(X, y, request, (low, high), int(bound))
        except BaseException:
            # A refused or failed fit leaves nothing half-fitted, and no older model under new parameters.
            for name in [name for name in vars(self) if name.endswith("_") and not name.startswith("_")]:
                delattr(self, name)
            raise

    def _fit(
        self, X: Any, y: Any, request: Request, bounds: tuple[float, float], rows_per_unit: int
    ) -> PrivateRegressor:
        # y is taken apart from X: its values are secret, so that only its shape is checked.
        X = validate_data(self, X, accept_sparse="csr", dtype=np.float64, ensure_min_samples=1)
        labels = _labels(y, X.shape[0])
        columns = self._public_columns(X.shape[1])
        left_out = tuple(str(name) for name in self._names(X.shape[1])[~columns])
        check_adjacency(request.guarantee.adjacency, left_out)
        matrix = X if columns.all() else X[:, np.flatnonzero(columns)]

        def rows() -> Iterator[Any]:
            yield matrix

        def secret() -> Iterator[Any]:
            yield labels

        names = tuple(str(name) for name in self._names(X.shape[1])[columns])
        problem = LinearProblem(
            Source(rows, names), secret, *bounds, None, bool(self.fit_intercept), rows_per_unit
        )
        result = fit(problem, request, ledger=self.ledger, label=type(self).__name__)
        self.result_ = result
        self.guarantee_ = result.guarantee
        self.intercept_ = result.model.intercept
        self.coef_ = np.zeros(X.shape[1])
        self.coef_[columns] = result.model.coefficients
        self.coef_std_error_ = np.zeros(X.shape[1])
        # The intercept's error, where there is one, comes first.
        self.coef_std_error_[columns] = list(result.standard_errors.values())[int(problem.intercept) :]
        return self

    def predict(self, X: Any) -> np.ndarray:
        """Return predictions of shape (n,), clipped to `target_bounds`."""
        check_is_fitted(self, "result_")
        X = validate_data(self, X, accept_sparse="csr", dtype=np.float64, reset=False)
        model = self.result_.model
        if model.coefficients.size != X.shape[1]:
            X = X[:, np.flatnonzero(self._public_columns(X.shape[1]))]
        return model.predict(X)

    def _names(self, p: int) -> np.ndarray:
        names = getattr(self, "feature_names_in_", None)
        return np.array([f"x{i}" for i in range(p)], dtype=object) if names is None else names

    def _public_columns(self, p: int) -> np.ndarray:
        public = self.public
        if isinstance(public, str):
            if public == "all":
                return np.ones(p, dtype=bool)
            raise ParameterError(f"The 'public' parameter is {public!r}.", "Pass 'all', a mask, or names.")
        values = np.asarray(public)
        if values.dtype == bool and values.shape == (p,):
            return values
        names = getattr(self, "feature_names_in_", None)
        if values.ndim == 1 and names is not None and values.dtype.kind in "OUT":
            unknown = [str(name) for name in values if name not in set(names)]
            if not unknown:
                return np.isin(names, values.astype(object))
            raise ParameterError(
                f"The 'public' parameter names unknown columns: {', '.join(unknown[:5])}.",
                "Pass names of the columns of X.",
            )
        raise ParameterError(
            f"The 'public' parameter has shape {values.shape} and type {values.dtype}.",
            f"Pass 'all', a boolean mask of length {p}, or names of a frame's columns.",
        )

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.regressor_tags.poor_score = True
        # Noise from the operating system unless seeded.
        tags.non_deterministic = self.random_state is None and not self.nonprivate
        return tags


def _labels(y: Any, n: int) -> np.ndarray:
    """Return labels as float64 of shape (n,); only type and shape can fail."""
    if y is None:
        raise ValueError("This estimator requires y to be passed, but the target y is None.")
    values = np.asarray(y)
    if np.iscomplexobj(values):
        raise ValueError("Complex data not supported: pass real labels.")
    try:
        values = values.astype(np.float64)
    except (TypeError, ValueError):
        # The original message would quote a label (pitfall K15).
        raise DataError(
            f"The label has type {values.dtype}, which holds something else than numbers.",
            "Pass real labels; missing ones as NaN.",
        ) from None
    if values.ndim == 2 and values.shape[1] == 1:
        import warnings

        from sklearn.exceptions import DataConversionWarning

        warnings.warn(
            DataConversionWarning("A column-vector y was passed when a 1d array was expected."), stacklevel=3
        )
        values = values[:, 0]
    if values.shape != (n,):
        raise ValueError(f"The label has shape {values.shape}. Pass ({n},): one label for each row of X.")
    return values
