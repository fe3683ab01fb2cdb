"""scikit-learn shell over the front door of this room."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from sklearn.base import RegressorMixin

from confide.errors import ParameterError
from confide.privacy import Adjacency
from confide.training.columns import PublicColumns
from confide.training.design import Source
from confide.training.engines import make
from confide.training.engines.ask import WHOLE_ROWS, Ask, SecretLabels
from confide.training.inputs import number_labels
from confide.training.linear import fit
from confide.training.problem import LinearProblem, check_adjacency, check_bounds
from confide.training.request import ENGINES, Request, make_request
from confide.training.result import LinearModel
from confide.training.shell import (
    ask_of,
    coefficients_of,
    fit_engine,
    forget,
    parts_of,
    refuse_more,
    warn_of_score,
)


class PrivateRegressor(RegressorMixin, PublicColumns):
    """Private regression with declared label bounds; by default linear, on public columns.

    Parameters
    ----------
    epsilon, delta : amount
        Total privacy of one `fit`; both required. None, which stands there for scikit-learn's `clone`, is
        refused by `fit`: no amount of privacy is right by default. ``epsilon=inf`` only with
        ``nonprivate=True``.
    target_bounds : (float, float)
        Bounds of the label, from knowledge and not from the data; labels outside are clipped, NaN and
        whatever is no number (text in a list too) are imputed by the middle, silently: a message would tell
        of them.
    public : "all", boolean mask of shape (p,), or sequence of column names
        Which columns of X are public. The others are refused under ``replace_label``. Under
        ``replace_private_part`` engines ``semi_sensitive`` and ``dpsgd`` use them; ``rounds`` and
        ``closed_form`` leave them out: not a cell of them is read, not even to validate it. Under
        ``replace_one`` and ``add_remove_one`` no column is public, whatever stands here.
    engine : {None, "rounds", "closed_form", "semi_sensitive", "adassp", "boosted_adassp", "dpsgd"}
        See `confide.train`. None: ``rounds`` with public columns, ``boosted_adassp`` without, ``dpsgd`` for
        other models than linear ones. All of them need delta > 0; labels that are made private first
        (`PrivateLabelRegressor`) do not.
    model : {"linear", "fm", "mlp"}
        The last two by ``dpsgd``.
    feature_bounds : pair of scalars or of arrays of shape (p,), or dict {name: (lo, hi)}, optional
        Declared bounds of private columns, for the engines that use them; cells are clipped, missing ones
        are imputed by the middle. What stands at public columns is not read.
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
    max_rows : int, optional
        Public stand-in for the secret number of rows under ``add_remove_one``, for ``dpsgd``: batches and
        means use it. No table is compared with it; rounding covers so many rows, and 2^24 at least.
    hidden, activation, embedding, rank, switch, optimizer, learning_rate, steps, batch_size, clip, average
        Of engine ``dpsgd``: see `confide.training.sgd.SGDRequest`. Not at their defaults, they are refused by
        the other engines.
    ledger : Ledger or str, optional
        Charged before the labels are read. None marks the guarantee ``"unrecorded"``.
    random_state : int, optional
        Noise seed for tests; marks the guarantee ``"seeded"``. None draws from the operating system.
    nonprivate : bool

    Attributes
    ----------
    coef_ : ndarray of shape (p,)
        Of linear models; zero for columns that were left out.
    intercept_ : float
    coef_std_error_ : ndarray of shape (p,)
        With engines ``rounds`` and ``closed_form``: standard errors of the unbiased coefficients, of privacy
        and sampling noise together; see `TrainingResult.standard_errors`.
    guarantee_ : Guarantee
    result_ : TrainingResult or ModelResult
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
        epsilon: Any = None,
        delta: Any = None,
        *,
        target_bounds: Any = None,
        public: Any = "all",
        engine: str | None = None,
        model: str = "linear",
        feature_bounds: Any = None,
        conditioning: Any = None,
        leverage: float | None = None,
        shrinkage: bool = True,
        adjacency: Adjacency | str = "replace_label",
        fit_intercept: bool = True,
        max_rows_per_person: int = 1,
        max_rows: int | None = None,
        hidden: Any = (64, 32),
        activation: str = "relu",
        embedding: int = 0,
        rank: int = 8,
        switch: Any = None,
        optimizer: str = "adam",
        learning_rate: float | None = None,
        steps: int = 100,
        batch_size: float | None = None,
        clip: Any = "auto",
        average: float = 0.5,
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
        self.feature_bounds = feature_bounds
        self.max_rows = max_rows
        self.hidden = hidden
        self.activation = activation
        self.embedding = embedding
        self.rank = rank
        self.switch = switch
        self.optimizer = optimizer
        self.learning_rate = learning_rate
        self.steps = steps
        self.batch_size = batch_size
        self.clip = clip
        self.average = average
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
            Secret labels. Nothing but their shape and an array's declared type is judged (text, times and
            complex numbers are refused), and they are read after the charge.
        **refused
            Nothing else is taken: a `sample_weight` scales one person's influence, and has no public cap
            here (TypeError, pitfall F45).

        Returns
        -------
        self
        """
        refuse_more(self, refused)
        if self.target_bounds is None:
            raise ParameterError(
                "The 'target_bounds' parameter is None.",
                "Pass bounds (lo, hi) of the label from knowledge; they are never read from the data.",
            )
        bounds = check_bounds(self.target_bounds)
        ask = ask_of(self, 0, target_bounds=bounds, classes=None)
        own = ask.engine in ENGINES  # streams, and tells the errors of its coefficients
        engine = None if own else make(ask)
        request = self._request(ask) if own else None
        try:
            if request is not None:
                return self._fit(X, y, request, bounds, ask.rows_per_unit)
            assert engine is not None
            fit_engine(self, engine, ask, X, lambda n: SecretLabels(n, number_labels(y, n)))
            if ask.model == "linear":
                self._linear_attributes()
            return self
        except BaseException:
            forget(self)
            raise

    def _request(self, ask: Ask) -> Request:
        ask.only_linear()
        return make_request(
            epsilon=ask.epsilon,
            delta=ask.delta,
            adjacency=check_adjacency(ask.adjacency, ()),
            unit=ask.unit,
            assumptions=ask.assumptions,
            engine=ask.engine,
            conditioning=ask.conditioning,
            leverage=ask.leverage,
            shrinkage=ask.shrinkage,
            random_state=ask.random_state,
            recorded=ask.recorded,
            nonprivate=ask.nonprivate,
        )

    def _linear_attributes(self) -> None:
        intercept, coefficients = coefficients_of(self)
        self.intercept_, self.coef_ = float(intercept[0]), coefficients[0]

    def _fit(
        self, X: Any, y: Any, request: Request, bounds: tuple[float, float], rows_per_unit: int
    ) -> PrivateRegressor:
        matrix, columns = self._public_part(X, reset=True, relation=request.guarantee.adjacency)
        read_labels = number_labels(y, matrix.shape[0])

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
        self.columns_ = columns
        self.uses_private_ = False
        self.intercept_ = result.model.intercept
        self.coef_ = np.zeros(columns.size)
        self.coef_[columns] = result.model.coefficients
        self.coef_std_error_ = np.zeros(columns.size)
        # The intercept's error, where there is one, comes first.
        self.coef_std_error_[columns] = list(result.standard_errors.values())[int(problem.intercept) :]
        return self

    def predict(self, X: Any) -> np.ndarray:
        """Return predictions of shape (n,), clipped to `target_bounds`."""
        public, private = parts_of(self, X)
        model = self.result_.model
        if isinstance(model, LinearModel):
            return model.predict(public)
        return model.predict(public, private)

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
        warn_of_score(self)
        return super().score(X, y, sample_weight)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = Adjacency.parse(self.adjacency) not in WHOLE_ROWS and self.model == "linear"
        tags.regressor_tags.poor_score = True
        # Noise from the operating system unless seeded.
        tags.non_deterministic = self.random_state is None and not self.nonprivate
        return tags
