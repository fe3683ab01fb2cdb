"""scikit-learn shell over the front door of this room."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.utils.validation import check_array, check_is_fitted, validate_data

from confide.errors import ParameterError, UncertifiedWarning
from confide.privacy import Adjacency
from confide.schema.loose import check_real, check_table, matrix_of
from confide.training.design import Source
from confide.training.front import fit
from confide.training.inputs import secret_labels, shape_of, take_columns
from confide.training.problem import LinearProblem, check_adjacency, check_bounds
from confide.training.request import Request, make_request


class PrivateRegressor(RegressorMixin, BaseEstimator):
    """Private linear regression on public columns, with declared label bounds.

    Parameters
    ----------
    epsilon, delta : amount
        Total privacy of one `fit`. ``epsilon=inf`` only with ``nonprivate=True``.
    target_bounds : (float, float)
        Bounds of the label, from knowledge and not from the data; labels outside are clipped, NaN and
        whatever is no number (text too) are imputed by the middle, silently: a message would tell of them.
    public : "all", boolean mask of shape (p,), or sequence of column names
        Which columns of X are public. The others are refused under ``replace_label``, and left out by the
        linear engines under ``replace_private_part``: not a cell of them is read, not even to
        validate it.
    engine : {"rounds", "closed_form"}
        See `confide.train`.
    model : {"linear"}
    conditioning : str or tuple, optional
        See `confide.training.conditioning_matrix`; None leaves it to the engine.
    leverage : float, optional
        Leverage quantile from which public rows are shortened; None chooses by expected error, 1 never.
    shrinkage : bool
        Shrink by the known noise.
    adjacency : Adjacency or str
    fit_intercept : bool
    max_rows_per_person : int
        Largest number m of rows that one privacy unit may have; the sensitivity is multiplied by it. With
        1, a unit is a row. With more, a unit is a person, and arrays hold no ids by which the bound could
        be enforced: the guarantee then carries the assumption ``"at most m rows a person"``, which a ledger
        refuses unless it is accepted by that name. `confide.train` on a table with an id column enforces
        the bound (rows beyond it are left out), assumes nothing, and needs less noise.
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
        With the ledger's entry.
    n_features_in_, feature_names_in_
        As in scikit-learn.

    Notes
    -----
    `score`, and with it `cross_val_score` and `GridSearchCV`, compares predictions with labels and protects
    nobody: on secret labels it leaks them past the ledger (pitfall F20). It warns; other scorers, such as
    ``scoring="r2"``, cannot. Give them labels that are public. Each fit of a search is charged by itself.

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
        engine: str = "rounds",
        model: str = "linear",
        conditioning: Any = None,
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
            Public columns must be finite. An array, CSR matrix or frame where some columns are private.
        y : array-like of shape (n,) or (n, 1)
            Secret labels. Nothing but their shape is judged, and they are read after the charge.
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
            assumptions=() if bound == 1 else (f"at most {bound} rows a person",),
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
        matrix, columns = self._public_part(X, reset=True, relation=request.guarantee.adjacency)
        read_labels = secret_labels(y, matrix.shape[0])

        def rows() -> Iterator[Any]:
            yield matrix

        def secret() -> Iterator[Any]:
            yield read_labels()

        names = tuple(str(name) for name in self._names(columns.size)[columns])
        problem = LinearProblem(
            Source(rows, names), secret, *bounds, None, bool(self.fit_intercept), rows_per_unit
        )
        result = fit(problem, request, ledger=self.ledger, label=type(self).__name__)
        self.result_ = result
        self.guarantee_ = result.guarantee
        self.intercept_ = result.model.intercept
        self.coef_ = np.zeros(columns.size)
        self.coef_[columns] = result.model.coefficients
        self.coef_std_error_ = np.zeros(columns.size)
        # The intercept's error, where there is one, comes first.
        self.coef_std_error_[columns] = list(result.standard_errors.values())[int(problem.intercept) :]
        return self

    def predict(self, X: Any) -> np.ndarray:
        """Return predictions of shape (n,), clipped to `target_bounds`."""
        check_is_fitted(self, "result_")
        matrix, _ = self._public_part(X, reset=False)
        return self.result_.model.predict(matrix)

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Return the coefficient of determination of `predict`, computed without any privacy.

        It is exact and free of charge, so it must only be used on labels that are public: on secret ones it
        tells about them past the guarantee (pitfall F20). Each call warns.

        Parameters
        ----------
        X : array-like or CSR of shape (n, p)
        y : array-like of shape (n,)
            Public labels.
        sample_weight : array-like of shape (n,), optional

        Warns
        -----
        UncertifiedWarning
        """
        warnings.warn(
            UncertifiedWarning(
                "PrivateRegressor.score reads labels without privacy and without a charge: use it on public "
                "labels only."
            ),
            stacklevel=2,
        )
        return super().score(X, y, sample_weight)

    def _public_part(
        self, X: Any, *, reset: bool, relation: Adjacency | None = None
    ) -> tuple[Any, np.ndarray]:
        """Return the validated public columns of X, and which they are; private cells are never read."""
        checks: dict[str, Any] = {"accept_sparse": "csr", "dtype": np.float64, "ensure_min_samples": 1}
        check_real(X)  # a message of scikit-learn's would print the rows, as for other shapes
        if isinstance(self.public, str) and self.public == "all":
            X = matrix_of(X)
            check_table(X)
            matrix: Any = validate_data(self, X, reset=reset, **checks)
            return matrix, np.ones(matrix.shape[1], dtype=bool)
        shape_of(X)
        validate_data(self, X, reset=reset, skip_check_array=True)  # names and number of columns alone
        columns = self._public_columns(shape_of(X)[1])
        if relation is not None:
            check_adjacency(relation, tuple(str(name) for name in self._names(columns.size)[~columns]))
        part = take_columns(X, columns)
        matrix = check_array(part, ensure_min_features=0, estimator=self, input_name="X", **checks)
        return matrix, columns

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
