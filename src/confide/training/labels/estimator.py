"""scikit-learn shells: private labels for any learner, and the learner with them."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin, MetaEstimatorMixin, RegressorMixin, clone
from sklearn.utils.validation import check_is_fitted, validate_data

from confide.errors import DataError, ParameterError, UncertifiedWarning, UnsupportedError
from confide.mechanisms.stream import stream as random_stream
from confide.privacy import Adjacency
from confide.schema.loose import check_classes
from confide.training.inputs import number_labels
from confide.training.labels.labels import PrivateLabels
from confide.training.labels.request import LabelRequest, label_request

_OPTIONS = ("target_bounds", "classes", "prior", "prior_share", "cells", "debias")


def privatize(
    y: Any, n: int, request: LabelRequest, *, ledger: Any, label: str, classes: Any = None
) -> tuple[PrivateLabels, Any]:
    """Charge, then read the secret labels and release private ones; return them and the ledger's entry."""
    from confide.ledger import charged

    if request.method.numeric:
        read: Callable[[], Any] = number_labels(y, n)
    else:
        read = secret_cells(y, n)
        check_classes(y, classes or ())
    delta = float(request.guarantee.delta)
    if 10 * delta * n > 1:
        warnings.warn(
            f"The 'delta' parameter is {delta:g} for {n} rows: a mechanism that publishes one row in full "
            f"may satisfy a delta near {1 / max(n, 1):.1g}. Pass a far smaller one.",
            UserWarning,
            stacklevel=4,
        )
    with charged(ledger, request.guarantee, label=label) as reservation:
        if request.nonprivate:
            released = PrivateLabels(request.method.plain(read()))
        else:
            released = request.method.release(read(), random_stream(request.seed))
    return released, None if reservation is None else reservation.id


def rows_of(y: Any) -> int:
    """Return the number of labels, from the shape or length alone."""
    if y is None:
        raise ValueError("This estimator requires y to be passed, but the target y is None.")
    shape = getattr(y, "shape", None)
    if isinstance(shape, tuple) and shape:
        return int(shape[0])
    if not hasattr(y, "__len__") and hasattr(y, "__array__"):
        return len(np.asarray(y))
    if not hasattr(y, "__len__") or isinstance(y, str | bytes | dict):
        raise DataError(f"The label has type {type(y).__name__}.", "Pass an array of shape (n,).")
    return len(y)


def check_table(X: Any) -> None:
    """Refuse features whose public shape is not two-dimensional; their cells are the learner's affair."""
    shape = getattr(X, "shape", None)
    if isinstance(shape, tuple) and len(shape) != 2:
        raise ValueError(
            f"Expected a two-dimensional table, got shape {shape}. Reshape your data with X.reshape(-1, 1) "
            "for one feature, or X.reshape(1, -1) for one row."
        )


def secret_cells(y: Any, n: int) -> Callable[[], list[Any]]:
    """Check the shape of class labels, and return a function that reads them as Python objects."""
    if rows_of(y) != n or len(getattr(y, "shape", (n,))) != 1:
        raise ValueError(f"The labels have another shape than ({n},): pass one label for each row of X.")

    def read() -> list[Any]:
        cells = y.tolist() if hasattr(y, "tolist") else list(y)
        return [cell.as_py() if hasattr(cell, "as_py") else cell for cell in cells]

    return read


class _LabelParameters(BaseEstimator):
    """What the shells share: parameters of the privatiser, and the request made of them."""

    method: str
    epsilon: Any
    delta: Any
    adjacency: Any
    random_state: Any
    ledger: Any
    nonprivate: bool

    def _request(self) -> LabelRequest:
        return label_request(
            self.method,
            self.epsilon,
            self.delta,
            options={name: getattr(self, name, None) for name in _OPTIONS},
            adjacency=self.adjacency,
            random_state=self.random_state,
            recorded=self.ledger is not None,
            nonprivate=self.nonprivate,
        )

    def _release(self, y: Any, n: int, request: LabelRequest) -> Any:
        classes, label = getattr(self, "classes", None), type(self).__name__
        released, entry = privatize(y, n, request, ledger=self.ledger, label=label, classes=classes)
        self.guarantee_ = request.guarantee
        self.entry_ = entry
        self.counts_ = released.counts
        self.response_ = released.response
        self.channel_ = released.channel
        return released.values

    def _forget(self) -> None:
        """Leave nothing half-fitted, and no older state under new parameters."""
        for name in [name for name in vars(self) if name.endswith("_") and not name.startswith("_")]:
            delattr(self, name)


class LabelPrivatizer(_LabelParameters):
    """Make labels private, each by itself; whatever is done with them afterwards is free.

    Parameters
    ----------
    method : str
        ``"rr_on_bins"``, ``"rounding"``, ``"gaussian"`` or ``"laplace"`` for numbers,
        ``"randomized_response"`` for classes.
    epsilon, delta : amount
        Total privacy of one call. Epsilon is required; delta is for ``"gaussian"`` alone. ``epsilon=inf``
        only with ``nonprivate=True``.
    target_bounds : (float, float)
        Declared bounds of a numeric label. Labels outside are clipped, NaN and text become the middle,
        without a word: a message would tell of them.
    classes : sequence
        Public class set, for ``"randomized_response"``. Other labels count as the first.
    prior : None, "uniform" or weights
        Public prior over the cells or the classes. None releases one, for `prior_share` of epsilon.
    prior_share : float, optional
        Share of epsilon for a released prior; a tenth by default.
    cells : int or sequence of float, optional
        For ``"rr_on_bins"``: equal cells of the range (32), or the label values themselves.
    debias : bool, optional
        For ``"rr_on_bins"`` (default True): hand out the inverse channel's numbers, whose means are those of
        the bins. Costs no privacy; the numbers may lie outside the bounds.
    adjacency : Adjacency or str
        ``"replace_label"``, or ``"replace_private_part"`` where nothing but public features is used beside.
    ledger : Ledger or str, optional
        Charged before the labels are read. None marks the guarantee ``"unrecorded"``.
    random_state : int, optional
        Noise seed for tests; marks the guarantee ``"seeded"``.
    nonprivate : bool

    Attributes
    ----------
    guarantee_ : Guarantee
    entry_ : str or None
        The ledger's entry.
    counts_ : ndarray or None
        The prior that was used.
    response_ : Bins, tuple or None
        The bins, or the classes that are told apart, likeliest first.
    channel_ : Channel or None
        The exact randomised response: its size and integer probabilities.

    Notes
    -----
    There is no `transform`: it would be drawn afresh at each call, and a second draw costs again. So it is no
    step of scikit-learn's TransformedTargetRegressor, which transforms more than once; use
    `PrivateLabelRegressor`.

    Examples
    --------
    >>> import numpy as np
    >>> y = np.random.default_rng(0).uniform(0, 1, 1000)
    >>> privatizer = LabelPrivatizer("rounding", epsilon=1, target_bounds=(0, 1))
    >>> len(np.unique(privatizer.fit_transform(y)))
    2
    """

    def __init__(
        self,
        method: str = "rr_on_bins",
        epsilon: Any = None,
        delta: Any = 0,
        *,
        target_bounds: Any = None,
        classes: Any = None,
        prior: Any = None,
        prior_share: Any = None,
        cells: Any = None,
        debias: bool | None = None,
        adjacency: Adjacency | str = "replace_label",
        ledger: Any = None,
        random_state: int | None = None,
        nonprivate: bool = False,
    ) -> None:
        self.method = method
        self.epsilon = epsilon
        self.delta = delta
        self.target_bounds = target_bounds
        self.classes = classes
        self.prior = prior
        self.prior_share = prior_share
        self.cells = cells
        self.debias = debias
        self.adjacency = adjacency
        self.ledger = ledger
        self.random_state = random_state
        self.nonprivate = nonprivate

    def fit_transform(self, y: Any) -> Any:
        """Charge the ledger, and return private labels.

        Parameters
        ----------
        y : array-like of shape (n,) or (n, 1)
            Secret labels. Nothing but their shape is judged, and they are read after the charge.

        Returns
        -------
        ndarray of shape (n,)
            Floats, or members of `classes`.
        """
        request = self._request()
        try:
            return self._release(y, rows_of(y), request)
        except BaseException:
            self._forget()
            raise

    def fit(self, y: Any, *rest: Any) -> LabelPrivatizer:
        """Refuse: a fit would have to remember secret labels, or draw twice.

        Raises
        ------
        UnsupportedError
        """
        raise UnsupportedError(
            "A LabelPrivatizer has no fit apart from its draw: each draw is charged.",
            "Call fit_transform(y), or wrap the learner in PrivateLabelRegressor.",
        )


class _PrivateLabelLearner(MetaEstimatorMixin, _LabelParameters):
    """Fit a learner on public features and private labels."""

    def _fit(self, X: Any, y: Any, learner: Any, refused: dict[str, Any]) -> None:
        if refused:
            raise TypeError(
                f"{type(self).__name__}.fit got {', '.join(map(repr, sorted(refused)))}. Weights scale a "
                "person's influence and have no public cap here: leave them out."
            )
        if not (hasattr(learner, "fit") and hasattr(learner, "predict")):
            raise ParameterError(
                f"The learner is a {type(learner).__name__}.", "Pass a scikit-learn estimator, or None."
            )
        request = self._request()
        try:
            check_table(X)
            validate_data(self, X, skip_check_array=True)
            n = rows_of(X) if y is not None else 0
            labels = self._release(y, n, request)
            self._learn(X, labels, clone(learner))
        except BaseException:
            self._forget()
            raise

    def _learn(self, X: Any, labels: Any, learner: Any) -> None:
        self.learner_ = learner.fit(X, labels)

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
        tags.target_tags.required = True
        tags.non_deterministic = self.random_state is None and not self.nonprivate
        return tags


class PrivateLabelRegressor(RegressorMixin, _PrivateLabelLearner):
    """Any scikit-learn regressor, fitted on public features and labels that were made private first.

    Parameters
    ----------
    regressor : estimator, optional
        None: standardised ridge regression whose penalty is chosen by cross-validation on the private
        labels, which costs nothing. Any search or stacking inside the regressor is free for the same reason.
    method, epsilon, delta, target_bounds, prior, prior_share, cells, debias
        See `LabelPrivatizer`.
    adjacency, ledger, random_state, nonprivate
        See `LabelPrivatizer`.

    Attributes
    ----------
    learner_ : estimator
        The fitted regressor.
    guarantee_, entry_, counts_, response_
        See `LabelPrivatizer`.
    n_features_in_, feature_names_in_
        As in scikit-learn.

    Notes
    -----
    All columns of X are declared public. Each fit draws the labels afresh and is charged by itself, so a
    cross-validation around this estimator pays for each of its fits, and stops at the fit that would
    overspend (pitfall F01); one inside the regressor sees private labels only.
    """

    def __init__(
        self,
        regressor: Any = None,
        method: str = "rr_on_bins",
        epsilon: Any = None,
        delta: Any = 0,
        *,
        target_bounds: Any = None,
        prior: Any = None,
        prior_share: Any = None,
        cells: Any = None,
        debias: bool | None = None,
        adjacency: Adjacency | str = "replace_label",
        ledger: Any = None,
        random_state: int | None = None,
        nonprivate: bool = False,
    ) -> None:
        self.regressor = regressor
        self.method = method
        self.epsilon = epsilon
        self.delta = delta
        self.target_bounds = target_bounds
        self.prior = prior
        self.prior_share = prior_share
        self.cells = cells
        self.debias = debias
        self.adjacency = adjacency
        self.ledger = ledger
        self.random_state = random_state
        self.nonprivate = nonprivate

    def fit(self, X: Any, y: Any, **refused: Any) -> PrivateLabelRegressor:
        """Make the labels private, charging first, and fit the regressor on them.

        Parameters
        ----------
        X : array-like of shape (n, p)
            Public; the regressor validates it.
        y : array-like of shape (n,) or (n, 1)
            Secret labels.
        **refused
            Nothing else is taken (TypeError, pitfall F45).

        Returns
        -------
        self
        """
        self._fit(X, y, default_regressor() if self.regressor is None else self.regressor, refused)
        return self

    def predict(self, X: Any) -> np.ndarray:
        """Return predictions of shape (n,), clipped to `target_bounds`."""
        check_is_fitted(self, "learner_")
        check_table(X)
        validate_data(self, X, reset=False, skip_check_array=True)
        return np.clip(np.asarray(self.learner_.predict(X), dtype=np.float64), *self.target_bounds)

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Return the coefficient of determination on labels that are public; it protects nobody and warns."""
        self._warn_of_score()
        return super().score(X, y, sample_weight)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.regressor_tags.poor_score = True
        return tags


class PrivateLabelClassifier(ClassifierMixin, _PrivateLabelLearner):
    """Any scikit-learn classifier, fitted on public features and classes by randomised response with prior.

    Parameters
    ----------
    classifier : estimator, optional
        None: logistic regression.
    epsilon, classes, prior, prior_share, adjacency, ledger, random_state, nonprivate
        See `LabelPrivatizer`.

    Attributes
    ----------
    learner_ : estimator
    classes_ : ndarray
        `classes` as given.
    guarantee_, entry_, counts_, response_
        See `LabelPrivatizer`.
    """

    method = "randomized_response"
    delta = 0

    def __init__(
        self,
        classifier: Any = None,
        epsilon: Any = None,
        *,
        classes: Any = None,
        prior: Any = None,
        prior_share: Any = None,
        adjacency: Adjacency | str = "replace_label",
        ledger: Any = None,
        random_state: int | None = None,
        nonprivate: bool = False,
    ) -> None:
        self.classifier = classifier
        self.epsilon = epsilon
        self.classes = classes
        self.prior = prior
        self.prior_share = prior_share
        self.adjacency = adjacency
        self.ledger = ledger
        self.random_state = random_state
        self.nonprivate = nonprivate

    def fit(self, X: Any, y: Any, **refused: Any) -> PrivateLabelClassifier:
        """Make the classes private, charging first, and fit the classifier on them; see the regressor."""
        from sklearn.linear_model import LogisticRegression

        learner = LogisticRegression(max_iter=1000) if self.classifier is None else self.classifier
        self._fit(X, y, learner, refused)
        self.classes_ = np.array(self.classes)
        return self

    def _learn(self, X: Any, labels: Any, learner: Any) -> None:
        if len(np.unique(labels)) == 1:  # of the private labels: their number may be told
            from sklearn.dummy import DummyClassifier

            learner = DummyClassifier(strategy="most_frequent")
        super()._learn(X, labels, learner)

    def predict(self, X: Any) -> np.ndarray:
        """Return members of `classes`, shape (n,)."""
        check_is_fitted(self, "learner_")
        check_table(X)
        validate_data(self, X, reset=False, skip_check_array=True)
        return self.learner_.predict(X)

    def predict_proba(self, X: Any) -> np.ndarray:
        """Return class probabilities [n, k] in the order of `classes_`, the channel inverted.

        The classifier's probabilities are of private labels. With q = b/a and D = 1 + q (k - 1) a class told
        apart has probability (D p - q) / (1 - q) of being the true one, where all classes are told apart;
        clipped at 0 and scaled to 1. Classes that are not told apart get 0.
        """
        check_is_fitted(self, "learner_")
        seen = np.asarray(self.learner_.predict_proba(X), dtype=np.float64)
        place = {value: j for j, value in enumerate(self.classes_.tolist())}
        full = np.zeros((seen.shape[0], len(place)))
        full[:, [place[value] for value in self.learner_.classes_.tolist()]] = seen
        channel = self.channel_
        if channel is None:
            return full
        told = [place[value] for value in np.array(self.response_).tolist()]
        out = np.zeros_like(full)
        if channel.size == 1 or channel.own == channel.other:
            out[:, told] = full[:, told]
            return out
        q, spread = channel.lie, channel.total / channel.own
        out[:, told] = np.maximum((spread * full[:, told] - q) / (1.0 - q), 0.0)
        total = out.sum(axis=1, keepdims=True)
        return np.where(total > 0, out / np.where(total > 0, total, 1.0), full)

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Return the accuracy on labels that are public; it protects nobody and warns."""
        self._warn_of_score()
        return super().score(X, y, sample_weight)


def default_regressor() -> Any:
    """Return standardised ridge regression with a penalty chosen on the private labels themselves."""
    from sklearn.linear_model import RidgeCV
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    return make_pipeline(StandardScaler(), RidgeCV(alphas=np.logspace(-2, 6, 25)))
