"""The rows of a tuning, how they are split, and the noisy score of a run on those that were held out."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from confide.errors import DataError, ParameterError, UnsupportedError
from confide.mechanisms import (
    RandomStream,
    Statistic,
    gaussian_release,
    grid_step,
    laplace_release,
    padded_sensitivity,
    round_toward_zero,
    weighted_choice,
)
from confide.privacy import Adjacency, gaussian_sigma

SCORES = ("squared", "absolute", "accuracy")


@dataclass(frozen=True)
class Rows:
    """Features and labels that can be cut by position; nothing is looked at."""

    X: Any
    y: Any
    n: int
    columns: int

    def features(self, places: np.ndarray) -> Any:
        """Return the rows at `places`, in the type of X."""
        if hasattr(self.X, "iloc"):
            return self.X.iloc[places]
        if hasattr(self.X, "tocsr"):
            return self.X.tocsr()[places]
        if isinstance(self.X, np.ndarray):
            return self.X[places]
        return self.X[places.tolist()]

    def labels(self, places: np.ndarray) -> Any:
        """Return the labels at `places`."""
        return self.y[places]


def rows_of(table: Any, X: Any, y: Any) -> Rows:
    """Return the rows of a table, or of arrays, after a look at shapes alone."""
    if table is None:
        shape = getattr(X, "shape", None)
        labels = np.asarray(y) if y is not None else None
        if (
            not (isinstance(shape, tuple) and len(shape) == 2)
            or labels is None
            or labels.shape != (shape[0],)
        ):
            raise DataError(
                f"X and y have shapes {shape} and {getattr(labels, 'shape', None)}.", "Pass (n, p) and (n,)."
            )
        return Rows(X, labels, int(shape[0]), int(shape[1]))
    if y is not None:
        raise ParameterError("A table and 'y' are passed.", "Leave out 'y': the table has a label.")
    if table.schema.id is not None:
        raise UnsupportedError(
            "The schema has an id column, and tuning splits a table by rows.",
            "Pass a table of one row a person, or tune on other, public rows.",
        )
    if not hasattr(table, "take"):
        raise UnsupportedError("The table is read in chunks.", "Read it into memory with Table.read.")
    matrix = table.public.matrix

    class Labels:
        def __getitem__(self, places: np.ndarray) -> Any:
            return np.asarray(table.label)[places]

    return Rows(matrix, Labels(), int(matrix.shape[0]), int(matrix.shape[1]))


def split(
    n: int, held_out: float, adjacency: Adjacency, stream: RandomStream
) -> tuple[np.ndarray, np.ndarray]:
    """Return positions to fit on and positions to score on."""
    if adjacency is Adjacency.ADD_REMOVE_ONE:
        cut = round(held_out * 2**32)
        coins = np.asarray(weighted_choice([2**32 - cut, cut], size=n, stream=stream))
        return np.flatnonzero(coins == 0), np.flatnonzero(coins == 1)
    order = np.random.default_rng(20260618).permutation(n)
    size = min(max(1, round(held_out * n)), n - 1)
    return np.sort(order[size:]), np.sort(order[:size])


class Scoring:
    """A noisy sum of gains in [0, 1]."""

    def __init__(
        self, score: str, bounds: tuple[float, float], cap: float, epsilon: Fraction, delta: Fraction
    ) -> None:
        self.score, self.bounds, self.width = score, bounds, cap * (bounds[1] - bounds[0])
        self.epsilon, self.delta = epsilon, delta
        if delta > 0:
            self.multiplier = gaussian_sigma(epsilon, delta, 1.0)
        else:
            self.multiplier = math.sqrt(2.0) / float(epsilon)
        self.step = grid_step(self.multiplier, 1, noise_multiplier=max(1.0, self.multiplier))
        # A gain is at most 1 and rows are summed as integers: 2^24 rows must fit.
        self.step = max(self.step, 2.0**-36)
        self.sensitivity = padded_sensitivity(1.0, self.step, 1)

    @property
    def deviation(self) -> float:
        """Of the noise in the sum."""
        return self.multiplier * self.sensitivity

    def release(self, predicted: Any, labels: Any, stream: RandomStream) -> float:
        """Return the noisy sum of gains."""
        gains = self.gains(predicted, labels)
        total = round_toward_zero(gains, self.step).sum(dtype=np.int64).reshape(1)
        statistic = Statistic(total, self.step, self.sensitivity, "score")
        child = stream.child("score")
        if self.delta > 0:
            return float(gaussian_release(statistic, self.multiplier, stream=child)[0])
        spread = self.sensitivity
        return float(laplace_release(statistic, self.epsilon, l1_sensitivity=spread, stream=child)[0])

    def gains(self, predicted: Any, labels: Any) -> np.ndarray:
        """Return gains in [0, 1]; a row's depends on nothing but itself. Never warns."""
        if self.score == "accuracy":
            return np.asarray(np.asarray(predicted) == np.asarray(labels), dtype=float)
        from confide.training.inputs import secret_labels

        with np.errstate(all="ignore"):
            y = np.clip(secret_labels(labels, len(labels))(), *self.bounds)
            share = np.minimum(1.0, np.abs(y - np.asarray(predicted, dtype=float)) / self.width)
            gain = 1.0 - (share**2 if self.score == "squared" else share)
        return np.where(np.isnan(gain), 0.0, gain)
