"""Weighted learning from label proportions: noisy weighted sums of the labels of bags of public rows.

Brahmbhatt, Saket & Raghuveer, "Label Differential Privacy via Aggregation" (2023): rows are put in random
disjoint bags, each row gets a random weight, and a learner sees the weighted sums of the features and of the
labels of each bag, the latter with noise. A linear model of rows is a linear model of such sums.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from confide.errors import ParameterError, UncertifiedWarning
from confide.mechanisms import (
    Statistic,
    gaussian_release,
    grid_step,
    padded_sensitivity,
    round_toward_zero,
)
from confide.mechanisms.stream import stream as random_stream
from confide.privacy import NONPRIVATE, SEEDED, UNRECORDED, Adjacency, Event, Guarantee, exact, gaussian_sigma
from confide.schema.loose import check_features, numeric_cells
from confide.training.inputs import number_labels
from confide.training.labels.labels import Floats, LabelRange
from confide.training.labels.request import check_infinite, check_label_adjacency, check_seed, label_range

#: Gaussian weights beyond this are drawn again: the largest weight sets the sensitivity.
CAP = 2.0
WEIGHTS = ("gaussian", "sign")


@dataclass(frozen=True)
class Bags:
    """Public bags and weights.

    Attributes
    ----------
    bag : int64 array [n]
        Bag of each row, 0 .. m - 1; bags are disjoint.
    weight : float64 array [n]
        Within +-`cap`.
    cap : float
    """

    bag: npt.NDArray[np.int64]
    weight: Floats
    cap: float

    @classmethod
    def of(cls, n: int, size: int, weights: str, seed: int) -> Bags:
        """Put `n` rows in random bags of `size` rows (one may be smaller), by a public seed."""
        rng = np.random.default_rng([0x11B, seed])
        bag = np.empty(n, dtype=np.int64)
        bag[rng.permutation(n)] = np.arange(n) // size
        if weights == "sign":
            return cls(bag, rng.choice([-1.0, 1.0], size=n), 1.0)
        weight = rng.normal(size=n)
        while (far := np.abs(weight) > CAP).any():
            weight[far] = rng.normal(size=int(far.sum()))
        return cls(bag, weight, CAP)

    @property
    def count(self) -> int:
        """Number m of bags."""
        return int(self.bag.max()) + 1 if self.bag.size else 0

    def features(self, X: Floats) -> Floats:
        """Return weighted sums of rows [m, d + 1], the constant's sum last."""
        out = np.zeros((self.count, X.shape[1] + 1))
        np.add.at(out, self.bag, self.weight[:, None] * np.column_stack([X, np.ones(len(X))]))
        return out

    def statistic(self, t: Floats, step: float) -> Statistic:
        """Return the weighted sums of normalised labels [m] with their sensitivity.

        Each row's product is rounded toward zero to the grid and summed in integers. A label is in one bag,
        so that replacing it moves one sum, by at most 2 cap + step.
        """
        rows = round_toward_zero(self.weight * t, step)
        sums = np.zeros(self.count, dtype=np.int64)
        np.add.at(sums, self.bag, rows)
        return Statistic(sums, step, padded_sensitivity(2 * Fraction(self.cap), step, 1), "bag sums")


class WeightedLLPRegressor(RegressorMixin, BaseEstimator):
    """Linear regression from noisy weighted bag sums of the labels; a baseline.

    Parameters
    ----------
    epsilon, delta : amount
        Total of one fit; both required. ``epsilon=inf`` only with ``nonprivate=True``.
    target_bounds : (float, float)
    bag_size : int
        Rows a bag.
    weights : {"gaussian", "sign"}
        Standard normal within +-2, as published, or +-1: a smaller largest weight, hence less noise, and the
        default since it left less error in 25 of 26 cells (public sets, epsilon 1 and 4;
        ``benchmarks/results/training_defaults.md``).
    bag_seed : int
        Public seed of bags and weights.
    adjacency, ledger, random_state, nonprivate
        See `LabelPrivatizer`.

    Attributes
    ----------
    coef_ : ndarray of shape (p,)
    intercept_ : float
    guarantee_ : Guarantee
    entry_ : str or None

    Notes
    -----
    Columns of X are public. The sums are fitted by ridge regression on standardised columns; its penalty is
    chosen by leave-one-bag-out error, which reads private sums only and is free.
    """

    def __init__(
        self,
        epsilon: Any = None,
        delta: Any = None,
        *,
        target_bounds: Any = None,
        bag_size: int = 8,
        weights: str = "sign",
        bag_seed: int = 0,
        adjacency: Adjacency | str = "replace_label",
        ledger: Any = None,
        random_state: int | None = None,
        nonprivate: bool = False,
    ) -> None:
        self.epsilon = epsilon
        self.delta = delta
        self.target_bounds = target_bounds
        self.bag_size = bag_size
        self.weights = weights
        self.bag_seed = bag_seed
        self.adjacency = adjacency
        self.ledger = ledger
        self.random_state = random_state
        self.nonprivate = nonprivate

    def fit(self, X: Any, y: Any) -> WeightedLLPRegressor:
        """Release noisy bag sums, charging first, and fit a linear model on them.

        Parameters
        ----------
        X : array-like of shape (n, p)
            Public and finite.
        y : array-like of shape (n,) or (n, 1)
            Secret labels; NaN counts as the middle of the bounds.

        Returns
        -------
        self
        """
        from confide.ledger import charged

        guarantee, multiplier, labels, seed = self._request()
        try:
            check_features(X)
            with numeric_cells(X):
                matrix: Floats = validate_data(self, X, dtype=np.float64)  # pyright: ignore[reportAssignmentType]
            read = number_labels(y, matrix.shape[0])
            bags = Bags.of(matrix.shape[0], int(self.bag_size), self.weights, int(self.bag_seed))
            sigma = 2 * bags.cap * (multiplier or 1.0)
            step = grid_step(sigma, 1, noise_multiplier=max(multiplier, 1.0), rows=int(self.bag_size))
            with charged(self.ledger, guarantee, label=type(self).__name__) as reservation:
                statistic = bags.statistic(labels.normalised(read()), step)
                if self.nonprivate:
                    sums: Floats = statistic.value.astype(np.float64) * step
                else:
                    sums = gaussian_release(statistic, multiplier, stream=random_stream(seed).child("bags"))
            self._solve(matrix, bags, sums, labels)
        except BaseException:
            for name in [name for name in vars(self) if name.endswith("_") and not name.startswith("_")]:
                delattr(self, name)
            raise
        self.guarantee_ = guarantee
        self.entry_ = None if reservation is None else reservation.id
        return self

    def _request(self) -> tuple[Guarantee, float, LabelRange, int | None]:
        for name in ("bag_size", "bag_seed"):
            value, least = getattr(self, name), int(name == "bag_size")
            if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < least:
                raise ParameterError(
                    f"The '{name}' parameter is {value!r:.80}.", f"Pass an integer >= {least}."
                )
        if self.weights not in WEIGHTS:
            raise ParameterError(
                f"The 'weights' parameter is {self.weights!r:.80}.", f"Pass one of {WEIGHTS}."
            )
        bounds = {} if self.target_bounds is None else {"target_bounds": self.target_bounds}
        labels, relation = label_range(bounds), check_label_adjacency(self.adjacency)
        seed = check_seed(self.random_state)
        marks = (() if self.ledger is not None else (UNRECORDED,)) + (() if seed is None else (SEEDED,))
        if check_infinite(self.epsilon, self.nonprivate):
            event = Event.of("gaussian", noise_multiplier=0.0)
            return (
                Guarantee(float("inf"), 0, relation, "row", event, (*marks, NONPRIVATE)),
                0.0,
                labels,
                seed,
            )
        if exact(self.epsilon, "epsilon") == 0 or not 0 < exact(self.delta, "delta") < 1:
            raise ParameterError(
                f"The 'epsilon' and 'delta' parameters are {self.epsilon!r:.80} and {self.delta!r:.80}.",
                "Pass a positive epsilon and 0 < delta < 1.",
            )
        multiplier = gaussian_sigma(self.epsilon, self.delta, 1.0)
        event = Event.of("gaussian", noise_multiplier=multiplier)
        return Guarantee(self.epsilon, self.delta, relation, "row", event, marks), multiplier, labels, seed

    def _solve(self, X: Floats, bags: Bags, sums: Floats, labels: LabelRange) -> None:
        from sklearn.linear_model import RidgeCV

        centre = X.mean(axis=0)
        scale = X.std(axis=0)
        scale[scale == 0] = 1.0
        rows = bags.features((X - centre) / scale)
        alphas = np.logspace(-4, 4, 25) * max(float(np.mean(rows**2)) * len(rows), 1.0)
        cross_validated = len(rows) > 1
        model = RidgeCV(alphas=alphas if cross_validated else alphas[-1:], fit_intercept=False)
        if cross_validated:
            theta = np.asarray(model.fit(rows, sums).coef_)
        else:
            theta = np.zeros(rows.shape[1])
        self.coef_ = labels.half * theta[:-1] / scale
        self.intercept_ = float(labels.middle + labels.half * theta[-1] - centre @ self.coef_)

    def predict(self, X: Any) -> np.ndarray:
        """Return predictions of shape (n,), clipped to `target_bounds`."""
        check_is_fitted(self, "coef_")
        matrix: Any = validate_data(self, X, dtype=np.float64, reset=False)
        return np.clip(matrix @ self.coef_ + self.intercept_, *self.target_bounds)

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Return the coefficient of determination on labels that are public; it protects nobody and warns."""
        import warnings

        warnings.warn(
            UncertifiedWarning("WeightedLLPRegressor.score reads labels without privacy: use public labels."),
            stacklevel=2,
        )
        return super().score(X, y, sample_weight)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.regressor_tags.poor_score = True
        tags.non_deterministic = self.random_state is None and not self.nonprivate
        return tags
