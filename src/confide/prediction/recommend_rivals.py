"""What a recommendation has to beat: a constant answer, and one private model at the same total."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from confide.errors import ConfideError, ParameterError
from confide.prediction.laws import Labels
from confide.prediction.rows import Floats
from confide.privacy import Adjacency

#: A private model is fitted on at most so many rows: with more it would do a little better than is said.
_MOST_ROWS = 50_000
#: Fits a fold: their noise differs.
_FITS = 2


@dataclass(frozen=True)
class Baseline:
    """What answers without a certificate would be worth.

    Attributes
    ----------
    name : str
    accuracy : float
        Expected share of right answers to the public queries, however many.
    error : float
        Its standard error.
    """

    name: str
    accuracy: float
    error: float


@dataclass(frozen=True, eq=False)
class Rivals:
    """Public rows, in folds, on which baselines are measured.

    Attributes
    ----------
    X : float array [n, p]
    y : int64 array [n]
    classes : list
    feature_bounds : pair
    parts : sequence of (training rows, queries)
    private : estimator, optional
    """

    X: Floats = field(repr=False)
    y: Labels = field(repr=False)
    classes: list[Any]
    feature_bounds: Any
    parts: Sequence[tuple[Labels, Labels]] = field(repr=False)
    private: Any = None

    def __post_init__(self) -> None:
        if self.private is not None and not {"epsilon", "delta"} <= set(_parameters(self.private)):
            raise ParameterError(
                f"The 'private' parameter is a {type(self.private).__name__}.",
                "Pass an estimator with epsilon and delta, such as confide.PrivateClassifier().",
            )

    def constant(self) -> Baseline:
        """Return the worth of answering the most frequent class, whatever is asked."""
        counts = np.bincount(self.y, minlength=len(self.classes))
        share = float(counts.max() / self.y.size)
        name = f"always {self.classes[int(counts.argmax())]!r}"
        return Baseline(name, share, float(np.sqrt(share * (1 - share) / self.y.size)))

    def model(self, epsilon: Any, delta: Any, adjacency: Adjacency, rows: int) -> Baseline:
        """Return the worth of the private estimator, fitted with the whole total.

        Raises
        ------
        ConfideError
            If the estimator cannot be had at this total.
        """
        shares = []
        for fold, (train, asked) in enumerate(self.parts):
            rows_of = np.resize(train, min(rows, _MOST_ROWS))
            for again in range(_FITS):
                made = self._made(epsilon, delta, adjacency, rows, fold * _FITS + again)
                made.fit(self.X[rows_of], np.asarray(self.classes)[self.y[rows_of]])
                told = made.predict(self.X[asked])
                shares.append(float(np.mean(told == np.asarray(self.classes)[self.y[asked]])))
        name = f"{type(self.private).__name__} at this total, any number of answers"
        spread = np.std(shares, ddof=1) if len(shares) > 1 else 0.0
        return Baseline(name, float(np.mean(shares)), float(spread / np.sqrt(len(shares))))

    def _made(self, epsilon: Any, delta: Any, adjacency: Adjacency, rows: int, seed: int) -> Any:
        from sklearn.base import clone

        made: Any = clone(self.private)
        held = made.get_params(deep=False)
        # No ledger is charged: the rows are public. The rest is taken over where nothing was declared.
        asked = {"epsilon": epsilon, "delta": delta, "random_state": seed, "ledger": None}
        asked["adjacency"] = adjacency.value
        open_ = {"classes": self.classes, "feature_bounds": self.feature_bounds}
        if adjacency is Adjacency.ADD_REMOVE_ONE:
            open_["max_rows"] = rows
        asked |= {name: value for name, value in open_.items() if held.get(name) is None}
        return made.set_params(**{name: value for name, value in asked.items() if name in held})

    def of(
        self, epsilon: Any, delta: Any, adjacency: Adjacency, rows: int
    ) -> tuple[tuple[Baseline, ...], tuple[str, ...]]:
        """Return the baselines, the best first, and why one is missing."""
        held, missing = [self.constant()], []
        if self.private is not None:
            try:
                held.append(self.model(epsilon, delta, adjacency, rows))
            except ConfideError as problem:
                missing.append(f"{type(self.private).__name__}: {problem.fact}")
        return tuple(sorted(held, key=lambda baseline: -baseline.accuracy)), tuple(missing)


def _parameters(estimator: Any) -> Sequence[str]:
    try:
        return tuple(estimator.get_params(deep=False))
    except (AttributeError, TypeError):
        return ()
