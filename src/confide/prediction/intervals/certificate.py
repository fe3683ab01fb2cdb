"""`IntervalTraining`: the certificate, with every whole k searched."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from confide.errors import DataError, ParameterError
from confide.prediction.intervals.batches import Batches
from confide.prediction.intervals.descent import Batch
from confide.prediction.intervals.hyperparameters import Hyperparameters
from confide.prediction.intervals.network import (
    MOST_ROWS,
    Floats,
    Ints,
    Network,
    Rows,
    apply_map,
    blocks,
    matrix,
)
from confide.prediction.intervals.training import Intervals, Plan, decisions, nominal_labels
from confide.privacy import Adjacency

#: Up to so many levels "auto" trains all of them.
_ALL = 256
#: Held while a model trains all of its levels: threads of a service ask it at once. Of the module, since a
#: lock of its own would keep a model from being pickled.
_TRAINING = threading.Lock()


@dataclass(frozen=True, eq=False)
class IntervalTraining:
    """Certificate for a model trained by gradient descent (abstract gradient training).

    `fit` returns a `CertifiedNetwork`, whose `stability` gives each query's class and its stability distance
    k: no table within k changes of the training table changes the class (sound), and neighbouring tables have
    k that differ by at most 1 (1-Lipschitz). Both hold for the model as computed, rounding included; the
    proofs are in `confide.prediction.intervals.descent`.

    Parameters
    ----------
    layers : sequence of int
        Units, features first; last 1 (one logit) or the number of classes.
    hyperparameters : Hyperparameters or mapping
    k_max : int
        Largest k that is searched; a distance above it is reported as `k_max` (1-Lipschitz still).
    adjacency : Adjacency or str
    init : array-like, shape [parameters], optional
        Public start; None draws one from `training_seed`.
    batches : int, FixedBatches or HashedBatches, optional
        As in `train_intervals`.
    budget : {"step", "epoch"}
        As in `train_intervals`.
    levels : {"all", "bisect", "auto"}
        ``"all"`` trains every level in `fit`: its work, and that of a query, does not depend on the data.
        ``"bisect"`` trains a level when a query first needs it, about log2(k_max) of them: whether a level is
        certified is monotone in k, so the answers are the same; the time they take is not private. (A service
        asks the fitted model's `steady`, which trains all levels at its first call.) ``"auto"`` is ``"all"``
        up to k_max = 256.
    features : callable, optional
        A frozen public map of rows [256, inputs] -> [256, features], for training rows and queries alike. It
        must give a row the same bits wherever it stands and whatever the other rows are, and what it was
        itself trained on must be public.
    public : (X, y), optional
        Public rows that never change.
    training_seed : int
        Public.
    n_jobs : int, optional
    progress : bool

    Notes
    -----
    What follows from k alone is private once it is released by a mechanism of this room; k, the boxes and the
    trained model themselves are not (pitfalls F57 - F61).

    ==========================================  ===========================================================
    edge case                                   what happens
    ==========================================  ===========================================================
    a training cell or label that is unusable   gradient 0 for its row; it counts as a row
    a bound that is not finite                  that level and all above it certify nothing, for good
    k_max above the number of rows              levels above it have the boxes of that number (replacement)
    two equal logits                            the first class; certified only where the ties are too
    a query cell that is not finite             DataError: queries are the analyst's
    a class never seen                          its logit is bounded as any other
    ==========================================  ===========================================================
    """

    layers: Sequence[int]
    hyperparameters: Hyperparameters | Mapping[str, Any]
    k_max: int
    adjacency: Adjacency | str = Adjacency.REPLACE_ONE
    init: Any = None
    batches: Batches | int | None = None
    budget: str = "step"
    levels: str = "auto"
    features: Callable[[Floats], Any] | None = None
    public: tuple[Any, Any] | None = None
    training_seed: int = 0
    n_jobs: int | None = None
    progress: bool = False
    plan: Plan = field(init=False, repr=False)

    def __post_init__(self) -> None:
        k_max = self.k_max
        if isinstance(k_max, bool) or not isinstance(k_max, int | np.integer) or not 0 <= k_max < MOST_ROWS:
            raise ParameterError(f"The 'k_max' parameter is {k_max!r:.80}.", "Pass a whole number >= 0.")
        if self.levels not in ("all", "bisect", "auto"):
            raise ParameterError(
                f"The 'levels' parameter is {self.levels!r:.80}.", "Pass 'all', 'bisect' or 'auto'."
            )
        network = Network(tuple(self.layers))
        init = network.initial(self.training_seed) if self.init is None else self.init
        plan = Plan.of(
            network, init, self.hyperparameters, self.adjacency, self.batches, self.budget, self.n_jobs
        )
        object.__setattr__(self, "adjacency", plan.adjacency)
        object.__setattr__(self, "plan", plan)

    @property
    def classes(self) -> int:
        """Number of classes."""
        return self.plan.network.classes

    def fit(self, X: Any, y: Any, *, ids: Any = None) -> CertifiedNetwork:
        """Train the model and, where all levels are wanted, their boxes.

        Parameters
        ----------
        X : array-like, shape [rows, inputs]
        y : array-like, shape [rows]
            Class numbers.
        ids : sequence, optional
            For hashed batches.

        Raises
        ------
        DataError
            If the shapes do not fit each other or the network.
        """
        public = self.public
        if public is not None:
            public = (self.mapped(public[0]), public[1])
        held = self.plan.batches_of(self.mapped(X), y, ids, public)
        every = self.levels == "all" or (self.levels == "auto" and self.k_max <= _ALL)
        first = self.plan.intervals(held, range(int(self.k_max) + 1) if every else (0,), self.progress)
        return CertifiedNetwork(self, first, None if every else held)

    def mapped(self, X: Any) -> Any:
        """Apply the frozen map in blocks of one size, so that a row's place in the table does not matter."""
        return apply_map(self.features, X, self.plan.network.layers[0])


class CertifiedNetwork:
    """A trained model with its boxes: private data, no release.

    Attributes
    ----------
    certificate : IntervalTraining
    nominal : ndarray, shape [parameters]
        The trained model.
    intervals : Intervals or None
        All boxes, where every level was trained.
    """

    def __init__(self, certificate: IntervalTraining, first: Intervals, held: list[Batch] | None) -> None:
        self.certificate = certificate
        self._first = first
        self.nominal = first.nominal
        self.intervals = first if held is None else None
        self._network = certificate.plan.network
        self._held = held
        self._boxes = {k: (first.lower[i], first.upper[i]) for i, k in enumerate(first.ks)}
        self._every: tuple[Floats, Floats] | None = None

    def state(self) -> dict[str, Any]:
        """Return what `from_state` takes (`confide.prediction.states`)."""
        return {"certificate": self.certificate, "first": self._first, "held": self._held}

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> CertifiedNetwork:
        """Rebuild a model; levels that queries asked for are trained again when they are asked for again."""
        return cls(state["certificate"], state["first"], state["held"])

    def check_queries(self, X: Any) -> None:
        """Refuse queries with a cell that is not finite, or of another width."""
        self._queries(X)

    def predict(self, X: Any) -> Ints:
        """Return the trained model's classes; not private."""
        return self._decide(0, self._queries(X))[0]

    def stability(self, X: Any) -> tuple[Ints, Ints]:
        """Return the class and the stability distance of each query X [query, inputs]; neither is private.

        Returns
        -------
        labels : ndarray of int64, shape [query]
        k : ndarray of int64, shape [query]
            In 0 ... k_max.
        """
        queries = self._queries(X)
        if self.intervals is None:
            labels, _ = self._decide(0, queries)
            return labels, self._bisect(queries, labels)
        lower, upper = (self._network.inward(end) for end in (self.intervals.lower, self.intervals.upper))
        decided, logits = decisions(self._network, lower, upper, queries)
        labels = nominal_labels(decided[0], logits[0, 0])
        # Level 0 is the model itself; where it has no winner, no level has one.
        return labels, np.cumprod(decided[1:] == labels, axis=0).sum(axis=0).astype(np.int64)

    def steady(self, X: Any) -> tuple[Ints, Ints]:
        """Return what `stability` does, after as many steps a row as k_max has binary digits.

        See `confide.prediction.certificate.steady`. Which levels a bisection trains and asks depends on the
        distances. So here the first call trains every level, whatever is asked, and each row by itself goes
        through the same number of steps, those after its distance is found too. That a step reads the box of
        one level and not of another is all that is left.
        """
        if self.intervals is not None:
            return self.stability(X)  # all levels of all queries
        values, count = self._values(X), int(self.certificate.k_max).bit_length()
        lower, upper = self._all_boxes()
        labels = np.zeros(len(values), dtype=np.int64)
        k = np.zeros(len(values), dtype=np.int64)
        for row in range(len(values)):
            query = blocks(values[row : row + 1], np.zeros(1, dtype=np.int64))
            decided, logits = decisions(self._network, lower[:1], upper[:1], query)
            labels[row] = nominal_labels(decided[0], logits[0, 0])[0]
            low, high = 0, int(self.certificate.k_max)
            for _ in range(count):
                level = (low + high + 1) // 2  # low itself, once it is found
                decided, _ = decisions(
                    self._network, lower[level : level + 1], upper[level : level + 1], query
                )
                certified = bool(decided[0, 0] == labels[row]) or level == low
                low, high = (level, high) if certified else (low, level - 1)
            k[row] = low
        return labels, k

    def _all_boxes(self) -> tuple[Floats, Floats]:
        """Return the ends of the boxes of all levels, in the kernels' order."""
        with _TRAINING:
            if self._every is None:
                levels = range(int(self.certificate.k_max) + 1)
                self._train(levels)
                ends = (np.stack([self._boxes[k][end] for k in levels]) for end in (0, 1))
                lower, upper = map(self._network.inward, ends)
                self._every = lower, upper
            return self._every

    def _bisect(self, queries: Rows, labels: Ints) -> Ints:
        """Return the largest certified level of each query, level by level for all that ask for it."""
        low = np.zeros(queries.count, dtype=np.int64)
        high = np.full(queries.count, int(self.certificate.k_max), dtype=np.int64)
        while (low < high).any():
            asked = np.where(low < high, (low + high + 1) // 2, 0)
            levels = sorted(set(asked.tolist()) - {0})
            self._train(levels)
            for level in levels:
                _, decided = self._decide(level, queries)
                certified = decided == labels
                here = asked == level
                low[here & certified] = level
                high[here & ~certified] = level - 1
        return low

    def _train(self, levels: Sequence[int]) -> None:
        missing = [k for k in levels if k not in self._boxes]
        if missing and self._held is not None:
            found = self.certificate.plan.intervals(self._held, missing, self.certificate.progress)
            self._boxes.update({k: (found.lower[i], found.upper[i]) for i, k in enumerate(missing)})

    def _decide(self, level: int, queries: Rows) -> tuple[Ints, Ints]:
        """Return the labels of the box's lower end (at level 0: the model's) and what the box decides."""
        lower, upper = (self._network.inward(end[None]) for end in self._boxes[level])
        decided, logits = decisions(self._network, lower, upper, queries)
        return nominal_labels(decided[0], logits[0, 0]), decided[0]

    def _queries(self, X: Any) -> Rows:
        values = self._values(X)
        return blocks(values, np.zeros(len(values), dtype=np.int64))

    def _values(self, X: Any) -> Floats:
        values = matrix(self.certificate.mapped(X), self._network.layers[0])
        if not np.isfinite(values).all():
            raise DataError("A query has a cell that is not a finite number.", "Impute it before asking.")
        return values
