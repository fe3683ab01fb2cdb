"""scikit-learn shell over the engines of classes."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.base import ClassifierMixin

from confide.privacy import Adjacency
from confide.schema.loose import check_classes as check_label_type
from confide.schema.loose import declared_classes
from confide.training.columns import PublicColumns
from confide.training.engines import make
from confide.training.engines.ask import WHOLE_ROWS, SecretLabels
from confide.training.shell import (
    ask_of,
    coefficients_of,
    fit_engine,
    forget,
    parts_of,
    refuse_more,
    warn_of_score,
)


class PrivateClassifier(ClassifierMixin, PublicColumns):
    """Private classifier of declared classes: logistic for two, softmax for more.

    Parameters
    ----------
    epsilon, delta : amount
        Total privacy of one `fit`; both required. None, which stands there for scikit-learn's `clone`, is
        refused by `fit`: no amount of privacy is right by default. ``epsilon=inf`` only with
        ``nonprivate=True``.
    classes : sequence
        Required and public: all classes there may be, from knowledge and not from the data. With two, the
        first is the negative logit, and a logit of exactly 0 is the first. A label that is none of them
        counts as the first, without a word: a message would tell of it.
    public : "all", boolean mask of shape (p,), or sequence of column names
        Which columns of X are public. The others are refused under ``replace_label``; under
        ``replace_private_part`` engine ``dpsgd`` uses them and the others leave them out, not a cell read.
        Under ``replace_one`` and ``add_remove_one`` no column is public, whatever stands here.
    engine : {None, "closed_form", "randomized_response", "dpsgd", "objective"}
        None: for linear models on public columns, ``closed_form`` (one noisy release of moments) or
        ``randomized_response`` (a drawn label for each row), whichever public quantities expect to be
        better, and with delta = 0 the latter, which needs none; on secret rows, ``dpsgd``, or ``objective``
        (objective perturbation, two classes) with delta = 0; for other models, ``dpsgd``.
    model : {"linear", "fm", "mlp"}
        The last two by ``dpsgd``; a factorisation machine has two classes.
    feature_bounds : pair of scalars or of arrays of shape (p,), or dict {name: (lo, hi)}, optional
        Declared bounds of private columns, for the engines that use them; cells are clipped, missing ones
        are imputed by the middle. What stands at public columns is not read.
    adjacency : Adjacency or str
    conditioning : str or tuple, optional
        See `confide.training.conditioning_matrix`; None leaves it to the engine.
    leverage : float, optional
        Leverage quantile from which public rows are shortened (``closed_form``).
    shrinkage : bool
        Shrink by the known noise (``closed_form``, ``randomized_response``).
    fit_intercept : bool
    max_rows : int, optional
        Public stand-in for the secret number of rows under ``add_remove_one``, for ``dpsgd``: batches and
        means use it. No table is compared with it; rounding covers so many rows, and 2^24 at least.
    max_rows_per_person : int
        As in `PrivateRegressor`; 1 with ``dpsgd`` and ``randomized_response``.
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
    classes_ : ndarray of shape (K,)
        `classes` as given.
    coef_ : ndarray of shape (1, p) or (K, p)
        Of linear models; logits of the second class, or of each. 0 for columns that were left out.
    intercept_ : ndarray of shape (1,) or (K,)
    engine_ : str
        What released the model.
    guarantee_ : Guarantee
    result_ : ModelResult
        With public facts and the ledger's entry.
    n_features_in_, feature_names_in_
        As in scikit-learn.

    Notes
    -----
    One class only in the data, or none of the declared ones, takes the same path. `score`, and with it
    `cross_val_score` and `GridSearchCV`, compares predictions with labels and protects nobody (pitfall F20).

    Examples
    --------
    >>> import numpy as np
    >>> X = np.random.default_rng(0).normal(size=(2000, 3))
    >>> model = PrivateClassifier(1, 1e-6, classes=["no", "yes"]).fit(X, np.where(X[:, 0] > 0, "yes", "no"))
    >>> model.engine_
    'closed_form'
    """

    def __init__(
        self,
        epsilon: Any = None,
        delta: Any = None,
        *,
        classes: Any = None,
        public: Any = "all",
        engine: str | None = None,
        model: str = "linear",
        feature_bounds: Any = None,
        adjacency: Adjacency | str = "replace_label",
        conditioning: Any = None,
        leverage: float | None = None,
        shrinkage: bool = True,
        fit_intercept: bool = True,
        max_rows: int | None = None,
        max_rows_per_person: int = 1,
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
        self.classes = classes
        self.public = public
        self.engine = engine
        self.model = model
        self.feature_bounds = feature_bounds
        self.adjacency = adjacency
        self.conditioning = conditioning
        self.leverage = leverage
        self.shrinkage = shrinkage
        self.fit_intercept = fit_intercept
        self.max_rows = max_rows
        self.max_rows_per_person = max_rows_per_person
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

    def fit(self, X: Any, y: Any, **refused: Any) -> PrivateClassifier:
        """Fit, charging the ledger first.

        Parameters
        ----------
        X : array-like or CSR of shape (n, p)
            Public columns must be finite. An array, CSR matrix or frame where some columns are private.
        y : array-like of shape (n,) or (n, 1)
            Secret labels. Nothing but their shape and an array's declared type is judged: numbers where all
            classes are words, text where none is, times. They are read after the charge.
        **refused
            Nothing else is taken (TypeError, pitfall F45).

        Returns
        -------
        self
        """
        refuse_more(self, refused)
        classes = check_classes(self.classes)
        ask = ask_of(self, len(classes), target_bounds=None, classes=classes)
        engine = make(ask)
        try:
            fit_engine(self, engine, ask, X, lambda n: secret_codes(y, n, classes))
            self.classes_ = np.array(classes)
            self.engine_ = self.result_.engine
            if ask.model == "linear":
                self._linear_attributes()
            return self
        except BaseException:
            forget(self)
            raise

    def _linear_attributes(self) -> None:
        self.intercept_, self.coef_ = coefficients_of(self)

    def decision_function(self, X: Any) -> npt.NDArray[np.float64]:
        """Return logits: shape (n,), of the second class, for two; else (n, K)."""
        parts = parts_of(self, X)
        return self.result_.model.outputs(*parts)

    def predict(self, X: Any) -> Any:
        """Return classes of shape (n,); a logit of exactly 0, or a tie, is the earlier class."""
        f = np.asarray(self.decision_function(X))
        places = (f > 0).astype(np.int64) if f.ndim == 1 else f.argmax(axis=1)
        return self.classes_[places]

    def predict_proba(self, X: Any) -> npt.NDArray[np.float64]:
        """Return the probability of each class, shape (n, K), in the order of `classes_`."""
        parts = parts_of(self, X)
        return self.result_.model.predict_proba(*parts)

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Return the accuracy of `predict`, computed without any privacy, on labels that are public.

        Warns
        -----
        UncertifiedWarning
        """
        warn_of_score(self)
        return super().score(X, y, sample_weight)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = Adjacency.parse(self.adjacency) not in WHOLE_ROWS and self.model == "linear"
        tags.classifier_tags.poor_score = True
        tags.classifier_tags.multi_class = self.classes is None or len(self.classes) > 2
        tags.non_deterministic = self.random_state is None and not self.nonprivate
        return tags


def check_classes(classes: Any) -> tuple[Any, ...]:
    """Return declared classes as plain Python values, two or more and different; see `declared_classes`.

    Raises
    ------
    ParameterError
    """
    return declared_classes(classes)


def secret_codes(y: Any, n: int, classes: tuple[Any, ...]) -> SecretLabels:
    """Check the shape of class labels [n] or [n, 1]; their numbers are read later, 0 for anything unknown.

    Raises
    ------
    ValueError
        For None and for another shape.
    DataError
        For an array whose type can hold no class.
    """
    from confide.training.labels.estimator import rows_of

    shape = getattr(y, "shape", None)
    if isinstance(shape, tuple) and len(shape) == 2 and shape[1] == 1:
        from sklearn.exceptions import DataConversionWarning

        from confide.training.inputs import _only_column

        warnings.warn(
            DataConversionWarning("A column-vector y was passed when a 1d array was expected."), stacklevel=5
        )
        y = _only_column(y)
    if rows_of(y) != n or len(getattr(y, "shape", (n,))) != 1:
        raise ValueError(f"The labels have another shape than ({n},): pass one label for each row of X.")
    check_label_type(y, classes)
    places = {value: i for i, value in reversed(list(enumerate(classes)))}

    def code(cell: Any) -> int:
        try:
            return places.get(cell.as_py() if hasattr(cell, "as_py") else cell, 0)
        except Exception:  # an unhashable cell is no class, and no cell may raise
            return 0

    def read() -> npt.NDArray[np.int64]:
        values = np.asarray(y) if hasattr(y, "__array__") and not hasattr(y, "tolist") else y
        cells = values.tolist() if hasattr(values, "tolist") else list(values)
        return np.fromiter((code(cell) for cell in cells), dtype=np.int64, count=n)

    return SecretLabels(n, read)
