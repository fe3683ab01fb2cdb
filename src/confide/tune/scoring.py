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
from confide.schema.loose import check_classes, check_number_labels, vector_of

SCORES = ("squared", "absolute", "accuracy")


@dataclass(frozen=True)
class Rows:
    """Features and labels that can be cut by position; nothing is looked at.

    Attributes
    ----------
    X, y : object
    n, columns : int
    declared : object
        Labels as they were passed: their type is public. None for a table.
    categories : tuple, optional
        Of a table's label; empty where that is a number, None without a table.
    """

    X: Any
    y: Any
    n: int
    columns: int
    declared: Any = None
    categories: tuple[Any, ...] | None = None

    def check_labels(self, classes: tuple[Any, ...]) -> None:
        """Refuse labels whose public type, or categories, are not what is scored; no classes: numbers.

        Raises
        ------
        ParameterError, DataError
        """
        if self.categories is not None:
            names = tuple(self.categories)
            if names and not classes:
                raise ParameterError("The table's label has categories.", "Pass score='accuracy'.")
            if names and set(names) != set(classes):
                raise ParameterError(
                    f"The candidates' 'classes' are {classes!r:.80}, the label's categories {names!r:.80}.",
                    "Pass the categories as 'classes'.",
                )
        elif classes:
            check_classes(self.declared, classes)
        else:
            check_number_labels(self.declared)

    def stand_in(self, values: np.ndarray) -> np.ndarray:
        """Return public values in the type that labels were declared in, or zeros of it."""
        if not isinstance(self.declared, np.ndarray) or self.declared.dtype.kind == "O":
            return values.astype(object)
        same = values.dtype.kind == self.declared.dtype.kind
        return values if same else np.zeros(values.size, dtype=self.declared.dtype)

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
        """Return the labels at `places`; to be called after the charge."""
        return self.y[places]


class Labels:
    """Labels that are read after the charge, each by itself: no cell decides how another is read.

    NumPy would give a list one type by its cells, so that one text made all of them text. An array keeps the
    type it has; anything else becomes objects, one for each row.
    """

    def __init__(self, y: Any) -> None:
        self._y = y
        self._cells: np.ndarray | None = None

    def __getitem__(self, places: np.ndarray) -> np.ndarray:
        if isinstance(self._y, np.ndarray):
            return self._y[places]
        if self._cells is None:
            cells = self._y.tolist() if hasattr(self._y, "tolist") else list(self._y)
            self._cells = vector_of([cell.as_py() if hasattr(cell, "as_py") else cell for cell in cells])
        assert self._cells is not None
        return self._cells[places]


def rows_of(table: Any, X: Any, y: Any) -> Rows:
    """Return the rows of a table, or of arrays, after a look at shapes alone."""
    if table is None:
        shape, given = getattr(X, "shape", None), _shape_of_labels(y)
        if not (isinstance(shape, tuple) and len(shape) == 2) or given != (shape[0],):
            raise DataError(f"X and y have shapes {shape} and {given}.", "Pass (n, p) and (n,).")
        return Rows(X, Labels(y), int(shape[0]), int(shape[1]), y)
    if y is not None:
        raise ParameterError("A table and 'y' are passed.", "Leave out 'y': the table has a label.")
    if table.schema.id is not None:
        raise UnsupportedError(
            "The schema has an id column, and tuning splits a table by rows.",
            "Pass a table of one row a person, or tune on other, public rows.",
        )
    if not hasattr(table, "take"):
        raise UnsupportedError("The table is read in chunks.", "Read it into memory with Table.read.")
    matrix, label = table.public.matrix, table.schema.label
    names = () if label is None or label.numeric else tuple(label.categories)

    class OfTable:
        def __getitem__(self, places: np.ndarray) -> Any:
            cells = np.asarray(table.label)[places]
            if not names:
                return cells
            return vector_of([names[int(code)] if 0 <= code < len(names) else None for code in cells])

    return Rows(matrix, OfTable(), int(matrix.shape[0]), int(matrix.shape[1]), None, names)


def _shape_of_labels(y: Any) -> tuple[int, ...] | None:
    """Return the public shape of labels, for a sequence its length, without a look at a cell."""
    shape = getattr(y, "shape", None)
    if isinstance(shape, tuple):
        return shape
    return None if not hasattr(y, "__len__") or isinstance(y, str | bytes | dict) else (len(y),)


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
    """A noisy sum of gains in [0, 1].

    Sensitivity (proof). A row adds a gain in [0, 1], rounded to the grid. The gains of all other rows stay
    what they are, bit for bit: `gains` computes each from its row's label and prediction, and

    - where a row is replaced, all others keep their places in tables of one shape;
    - where rows come and go, every column is private, and the estimators of Confide for such rows predict
      each row from its own cells (`confide.mechanisms.rowwise`) and from the model, which is one for all.
      A matrix product would round a row by its place, and a gain would cross a step of the grid.

    An estimator from elsewhere, whose guarantee is its own word, owes the second as well.

    Parameters
    ----------
    score : str
    bounds : (float, float)
        Of the label; not used with ``"accuracy"``.
    cap : float
    epsilon, delta : Fraction
        Of the release; with delta = 0 the noise is discrete Laplace.
    classes : tuple
        Of ``"accuracy"``. Labels and predictions are compared as their numbers, a label that is none of them
        counts as the first: as in the fit (`confide.training.classifier.secret_codes`).
    """

    def __init__(
        self,
        score: str,
        bounds: tuple[float, float],
        cap: float,
        epsilon: Fraction,
        delta: Fraction,
        classes: tuple[Any, ...] = (),
    ) -> None:
        self.classes = classes
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
        """Return gains in [0, 1]; a row's depends on its label and prediction alone. Never warns."""
        if self.score == "accuracy":
            from confide.training.classifier import secret_codes

            guesses, truth = (
                np.asarray(secret_codes(cells, len(labels), self.classes)) for cells in (predicted, labels)
            )
            return (guesses == truth).astype(float)
        from confide.training.inputs import secret_labels

        with np.errstate(all="ignore"):
            y = np.clip(secret_labels(labels, len(labels))(), *self.bounds)
            share = np.minimum(1.0, np.abs(y - np.asarray(predicted, dtype=float)) / self.width)
            gain = 1.0 - (share**2 if self.score == "squared" else share)
        return np.where(np.isnan(gain), 0.0, gain)
