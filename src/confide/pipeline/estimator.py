"""scikit-learn shells: select columns, then fit their coefficients, under one guarantee."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from sklearn.base import ClassifierMixin, RegressorMixin
from sklearn.utils.metaestimators import available_if

from confide.errors import ParameterError
from confide.pipeline.cells import label_values, positives
from confide.pipeline.result import probabilities
from confide.pipeline.shell import SparseEstimator
from confide.privacy import Adjacency
from confide.schema.loose import declared_classes
from confide.selection.wide import Bounds


class SparseRegressor(RegressorMixin, SparseEstimator):
    """Private regression on `size` of p columns: select, then fit, under one guarantee and one charge.

    Every cell of a row is secret, public columns included. A part `split` of epsilon draws the support, by
    the mechanisms of `SubsetSelector`; the rest, and delta, releases the coefficients.

    Parameters
    ----------
    size : int
        Columns of the model.
    epsilon, delta : amount
        Total privacy of one `fit`. With delta = 0 both parts are pure. With delta > 0 the coefficients take
        Gaussian noise where it is less than that of pure epsilon, by public numbers: see the how-to page.
    split : amount, optional
        Part of epsilon for the support; 1/2 by default. See the how-to page on the split.
    support : sequence of int, optional
        A support that is public. Nothing is then charged for selection, as for ``size = p``: all of epsilon
        goes to the coefficients. Options of a selection beside it (`split`, `mechanism`, `top`, `loss`,
        `radius`, `ridge`) are refused; with ``size = p`` they have no effect.
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
    feature_bounds : (lower, upper), numbers or arrays of shape (p,), or dict {column: (lower, upper)}
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
        Of both parts: epsilon is the constructor's; delta too, or 0 where all noise is that of pure epsilon.
    selection_ : SelectionResult or None
        None where the support was public.
    coefficients_ : Coefficients
        In units of the declared bounds, with public facts of the noise.
    noise_errors_ : dict or None
        Standard deviations of the privacy noise in ``intercept_`` and ``coef_``, by name, to first order;
        None where they are not known (objective perturbation).
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


class SparseClassifier(ClassifierMixin, SparseEstimator):
    """Private classification into two classes on `size` of p columns.

    Parameters
    ----------
    size, epsilon, delta
        As in `SparseRegressor`, with all the parameters that are not here.
    classes : (negative, positive)
        Required and public: y counts as positive where it equals the second, else as negative: misspelt
        and missing labels too, and all of it is charged. An array whose type can hold neither class (numbers
        for words, or the reverse) is refused before the charge.
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
        if len(declared_classes(self.classes)) != 2:
            raise ParameterError(
                f"The 'classes' parameter is {self.classes!r:.80}.",
                "Pass two different labels: classes are public and never read from the data.",
            )
        return Bounds.of((-1.0, 1.0))

    def _reader(self, y: Any, n: int, target: Bounds) -> Callable[[], np.ndarray]:
        self.classes_ = np.asarray(self.classes)
        return positives(y, n, list(self.classes))

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
        return probabilities(self._score(X), self.coefficients_.loss)

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Return the accuracy of `predict`, computed without any privacy: on public labels only. It warns."""
        self._warn_of_score()
        return super().score(X, y, sample_weight)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = False
        tags.classifier_tags.poor_score = True
        return tags
