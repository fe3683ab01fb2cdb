"""A scorer for scikit-learn's searches: what private answers would be worth, on rows that are public."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from confide.errors import ParameterError, UnsupportedError
from confide.prediction.recommend_price import Price, expected
from confide.prediction.releases import SPARSE_VECTOR, release_of
from confide.privacy import exact


@dataclass(frozen=True)
class AnswerScorer:
    """Expected share of right answers; made by `private_scorer`.

    Attributes
    ----------
    price : Price
        What one answer spends.
    """

    price: Price

    def __call__(self, estimator: Any, X: Any, y: Any) -> float:
        """Return the expected share of right answers to X; *not private*.

        Parameters
        ----------
        estimator : CertifiedClassifier, or Pipeline that ends in one
            Fitted.
        X : array-like of shape (q, p)
            Public rows.
        y : array-like of shape (q,)
            Their classes.
        """
        if hasattr(estimator, "steps"):
            X, estimator = estimator[:-1].transform(X), estimator[-1]
        if not hasattr(estimator, "stability"):
            raise ParameterError(
                f"The estimator is a {type(estimator).__name__}, which has no stability distances.",
                "Score a CertifiedClassifier, or a pipeline that ends in one.",
            )
        told, k = estimator.stability(X)
        classes = len(estimator.classes_)
        return expected(self.price, told == np.asarray(y), k, queries=1, classes=classes).accuracy


def private_scorer(
    epsilon: Any, delta: Any = 0, release: str = "response", *, public: bool = False
) -> AnswerScorer:
    """Return a scorer that ranks settings by what their private answers are worth.

    **Score public or synthetic rows alone.** The score is a function of the rows, without noise, and in no
    ledger. ``scoring="accuracy"`` ranks the model without noise instead, and prefers too little ridge.

    Parameters
    ----------
    epsilon, delta : amount
        Of one answer.
    release : str
        As in `release_of`; not "sparse_vector", whose answers hang on each other (`recommend` has it).
    public : bool
        Required: True says that the rows may be shown to anybody.

    Returns
    -------
    AnswerScorer
        A callable (estimator, X, y), for ``scoring=`` of `GridSearchCV` and `cross_val_score`. The mean over
        queries and noise; nothing is drawn.

    Raises
    ------
    ParameterError, UnsupportedError

    Notes
    -----
    Folds are smaller than the table: with n rows public and N private ones, and K folds, distances are those
    of (K - 1) / K n rows. Multiply epsilon by N K / ((K - 1) n) for the private table's, since a distance
    counts as much as epsilon; `recommend` does so by itself.

    Examples
    --------
    >>> from sklearn.model_selection import GridSearchCV
    >>> from confide.prediction import CertifiedClassifier
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(600, 3))  # synthetic
    >>> y = X[:, 0] + rng.normal(size=600) > 0
    >>> model = CertifiedClassifier([False, True], (-2, 2))
    >>> search = GridSearchCV(model, {"alpha": [0.001, 0.1]}, scoring=private_scorer(0.1, public=True))
    >>> search.fit(X, y).best_params_
    {'alpha': 0.1}
    """
    if public is not True:
        raise ParameterError(
            "A score is a function of its rows, and nothing in it is private.",
            "Pass public=True if all rows may be shown to anybody; never score the private table.",
        )
    if release == SPARSE_VECTOR:
        raise UnsupportedError(
            "Answers of the release 'sparse_vector' hang on each other, so that none has a score.",
            "Use confide.prediction.recommend, which simulates them.",
        )
    release_of(release, epsilon, 2, delta)
    return AnswerScorer(Price(release, float(exact(epsilon)), float(exact(delta)), 0.0))
