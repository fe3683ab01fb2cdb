"""`train_intervals`: boxes of parameters for every number k of changed rows, and what they certify."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from confide.errors import DataError, ParameterError
from confide.prediction.intervals.batches import Batches, parse
from confide.prediction.intervals.descent import Batch, Boxes, Descent, per_epoch, per_step
from confide.prediction.intervals.hyperparameters import Hyperparameters
from confide.prediction.intervals.network import (
    MOST_ROWS,
    Floats,
    Ints,
    Network,
    Rows,
    blocks,
    check_rows,
    class_codes,
    matrix,
    parse_layers,
)
from confide.privacy import Adjacency

_QUIET = 2.0
_BUDGETS = {"step": per_step, "epoch": per_epoch}


@dataclass(frozen=True)
class Intervals:
    """Boxes that hold every model trained on a table within k changes.

    Attributes
    ----------
    lower, upper : ndarray, shape [k, parameter]
        In the order of `ks`; layer by layer, weight [out, in] then bias. -inf and inf for a lost level.
    nominal : ndarray, shape [parameter]
        The trained model.
    ks : tuple of int
    layers : tuple of int
    adjacency : Adjacency
    lost : ndarray of bool, shape [k]
        Levels without a certificate: a bound was not finite, at this level or a lower one.
    """

    lower: Floats
    upper: Floats
    nominal: Floats
    ks: tuple[int, ...]
    layers: tuple[int, ...]
    adjacency: Adjacency
    lost: Any

    def logits(self, X: Any) -> tuple[Floats, Floats]:
        """Bound the logits of queries X [query, input]: two arrays [k, query, output]."""
        _, bounds = self._decide(_queries(X, self.layers[0]))
        return bounds[1:, 0], bounds[1:, 1]

    def labels(self, X: Any) -> Ints:
        """Return the class of the trained model; not private."""
        labels, _ = self._labels_and_levels(X)
        return labels

    def certified(self, X: Any) -> Any:
        """Return whether no model in a level's box changes the class: bool, shape [k, query]."""
        labels, decided = self._labels_and_levels(X)
        return decided == labels

    def stability(self, X: Any) -> tuple[Ints, Ints]:
        """Return the class of each query and its stability distance k, sound and 1-Lipschitz.

        k is the last level up to which all are certified, so at most max(ks).

        Raises
        ------
        ParameterError
            If `ks` leaves out a whole number: then k is not 1-Lipschitz.
        """
        whole = tuple(range(self.ks[-1] + 1))
        if self.ks not in (whole, whole[1:]):
            raise ParameterError(
                f"The levels are {self.ks!r:.80}: numbers are missing below the largest.",
                "Train with ks=range(K + 1); a distance from a coarse grid is not 1-Lipschitz: it leaks.",
            )
        labels, decided = self._labels_and_levels(X)
        levels = decided == labels if self.ks[0] else (decided == labels)[1:]
        return labels, np.cumprod(levels, axis=0).sum(axis=0).astype(np.int64)

    def _labels_and_levels(self, X: Any) -> tuple[Ints, Ints]:
        decided, logits = self._decide(_queries(X, self.layers[0]))
        return nominal_labels(decided[0], logits[0, 0]), decided[1:]

    def _decide(self, queries: Rows) -> tuple[Ints, Floats]:
        """Decide for the nominal model, then for each level: [1 + k, query], [1 + k, 2, query, output]."""
        network = Network(self.layers)
        lower = network.inward(np.vstack([self.nominal, self.lower]))
        upper = network.inward(np.vstack([self.nominal, self.upper]))
        return decisions(network, lower, upper, queries)


def decisions(network: Network, lower: Floats, upper: Floats, queries: Rows) -> tuple[Ints, Floats]:
    """Return who wins in each box, or -1 [box, query], and logit bounds [box, 2, query, output]."""
    from confide.prediction.intervals.kernels import decide

    decided = np.empty((len(lower), queries.count), dtype=np.int64)
    logits = np.empty((len(lower), 2, network.outputs, queries.count))
    with np.errstate(all="ignore"):
        for place in range(len(lower)):
            decide(network.dims, lower[place], upper[place], queries.X, decided[place], logits[place])
    return decided, logits.transpose(0, 1, 3, 2)


def nominal_labels(decided: Ints, logits: Floats) -> Ints:
    """Return the trained model's classes: by the comparison that certifies, so that level 0 agrees.

    Where that comparison has no winner (rounding made it circular, or the model is not finite) no level is
    certified, and any class serves: the largest logit's.
    """
    if logits.shape[1] == 1:
        fallback = np.zeros(len(decided), dtype=np.int64)
    else:
        fallback = np.argmax(np.where(np.isnan(logits), -np.inf, logits), axis=1)
    return np.where(decided >= 0, decided, fallback)


def _queries(X: Any, inputs: int) -> Rows:
    values = matrix(X, inputs)
    if not np.isfinite(values).all():
        raise DataError("A query has a cell that is not a finite number.", "Impute it before asking.")
    return blocks(values, np.zeros(len(values), dtype=np.int64))


def train_intervals(
    X: Any,
    y: Any,
    layers: Sequence[int] | Network,
    init: Any,
    hyperparameters: Hyperparameters | Mapping[str, Any],
    ks: Sequence[int],
    adjacency: Adjacency | str,
    batches: Batches | int | None = None,
    *,
    ids: Sequence[Any] | None = None,
    public: tuple[Any, Any] | None = None,
    budget: str = "step",
    n_jobs: int | None = None,
    progress: bool = False,
) -> Intervals:
    """Train a linear model or a network, and bound what training on any table within k changes gives.

    Parameters
    ----------
    X : array-like, shape [rows, inputs]
        A row with a cell that is no finite number, or a label that is no class, has gradient 0 (it counts).
    y : array-like, shape [rows]
        Class numbers 0 ... classes - 1; 0 and 1 for one output.
    layers : sequence of int
        Units, inputs first: ``[6, 2]`` linear, ``[6, 16, 2]`` one hidden layer; last 1 for one logit.
    init : array-like, shape [parameters]
        Public start: layer by layer, weight [out, in] and then bias.
    hyperparameters : Hyperparameters or mapping
    ks : sequence of int
        Numbers of changed rows, ascending. All share passes over one box where they can.
    adjacency : Adjacency or str
        Under the replacement relations (all certified as REPLACE_ONE) the number of rows is public.
    batches : int, FixedBatches or HashedBatches, optional
        None is one full batch; ``HashedBatches(count, divisor)`` under add/remove.
    ids : sequence, optional
        Row ids, for hashed batches; without them a row's content is hashed.
    public : (X, y), optional
        Public rows; they join the batches by their place and never change. Under add/remove their number in a
        batch is added to its divisor, as it is to the number of rows under replacement.
    budget : {"step", "epoch"}
        At most k changed rows in each batch, or in all batches of an epoch together (narrower boxes, about
        max(ks)/2 times the work of a level).
    n_jobs : int, optional
        Threads of joblib, over levels.
    progress : bool
        A bar on work past two seconds.

    Returns
    -------
    Intervals

    Raises
    ------
    ParameterError, UnsupportedError, DataError

    Notes
    -----
    The proofs that the boxes are sound and that k is 1-Lipschitz, rounding included, are in
    `confide.prediction.intervals.descent` and `.kernels`.
    """
    plan = Plan.of(layers, init, hyperparameters, adjacency, batches, budget, n_jobs)
    levels = check_levels(ks)
    held = plan.batches_of(X, y, ids, public)
    return plan.intervals(held, levels, progress)


@dataclass(frozen=True)
class Plan:
    """Everything public about a training, checked; the certificate trains further levels with it."""

    network: Network
    init: Floats
    settings: Hyperparameters
    adjacency: Adjacency
    batches: Batches
    budget: str
    n_jobs: int | None

    @classmethod
    def of(cls, layers: Any, init: Any, hyperparameters: Any, adjacency: Any, batches: Any, budget: Any,
           n_jobs: int | None) -> Plan:  # fmt: skip
        """Check what is asked, before any data is read."""
        network = parse_layers(layers)
        relation = Adjacency.parse(adjacency)
        if budget not in _BUDGETS:
            raise ParameterError(f"The 'budget' parameter is {budget!r:.80}.", "Pass 'step' or 'epoch'.")
        settings = Hyperparameters.of(hyperparameters, network.outputs)
        return cls(network, network.check_parameters(init), settings, relation, parse(batches, relation),
                   budget, n_jobs)  # fmt: skip

    def batches_of(self, X: Any, y: Any, ids: Any, public: Any) -> list[Batch]:
        """Return the batches of a table."""
        values, codes = self._table(X, y)
        self.batches.check(self.adjacency, len(values))
        if ids is not None and len(ids) != len(values):
            raise DataError("There are more or fewer ids than rows.", "Pass one id for each row.")
        out = []
        for number, places in enumerate(self.batches.split(values, codes, ids)):
            if self.adjacency is not Adjacency.ADD_REMOVE_ONE:  # there no exception may tell the number
                check_rows(len(places))
            divisor, extra = self.batches.divisor_of(places), None
            if public is not None:
                seen, classes = self._table(*public)
                part = slice(number, None, self.batches.count)
                extra = blocks(seen[part], classes[part])
                divisor += extra.count
            if self.batches.count > 1:  # one batch needs no copy of its own
                out.append(Batch(blocks(values[places], codes[places]), extra, divisor))
            else:
                out.append(Batch(blocks(values, codes), extra, divisor))
        return out

    def _table(self, X: Any, y: Any) -> tuple[Floats, Ints]:
        values, codes = matrix(X, self.network.layers[0]), class_codes(y, self.network.classes)
        if len(values) != len(codes):
            raise DataError("There are more or fewer labels than rows.", "Pass one label for each row.")
        if self.adjacency is not Adjacency.ADD_REMOVE_ONE and len(values) == 0:
            raise DataError("There are 0 rows.", "Pass rows: the divisor is their number.")
        return values, codes

    def run(self, batches: list[Batch], levels: Sequence[int], progress: bool) -> Boxes:
        """Return boxes [level, parameter] in the order of the kernels; the first level is 0."""
        passes = self.settings.epochs * len(batches) * len(levels)
        if self.budget == "epoch":
            passes = _epoch_passes(self.settings.epochs, len(batches), levels)
        with _bar(progress, passes) as tick:
            descent = Descent(self.network, self.settings, self.adjacency is not Adjacency.ADD_REMOVE_ONE,
                              self.n_jobs, tick)  # fmt: skip
            return _BUDGETS[self.budget](descent, self.network.inward(self.init), levels, batches)

    def intervals(self, batches: list[Batch], ks: Sequence[int], progress: bool) -> Intervals:
        """Train the levels `ks`, and level 0."""
        extra = 0 if ks[0] == 0 else 1
        boxes = self.run(batches, (0, *ks) if extra else tuple(ks), progress)
        lower, upper = self.network.outward(boxes.lower), self.network.outward(boxes.upper)
        return Intervals(lower[extra:], upper[extra:], lower[0].copy(), tuple(ks), self.network.layers,
                         self.adjacency, ~boxes.sound[extra:])  # fmt: skip


def check_levels(ks: Sequence[int]) -> tuple[int, ...]:
    """Return whole numbers in ascending order, or refuse them."""
    try:
        levels = tuple(int(k) for k in ks)
        good = (
            levels and all(a < b for a, b in zip((-1, *levels), (*levels, MOST_ROWS))) and levels == tuple(ks)
        )
    except (TypeError, ValueError):
        good, levels = False, ()
    if not good:
        raise ParameterError(
            f"The 'ks' parameter is {ks!r:.80}.", f"Pass whole numbers, ascending, below {MOST_ROWS}."
        )
    return levels


def _epoch_passes(epochs: int, batches: int, levels: Sequence[int]) -> int:
    def one(k: int) -> int:
        return 1 + (batches - 1) * (k + 1)

    return one(levels[-1]) + (epochs - 1) * sum(one(k) for k in levels) if epochs else 0


@contextmanager
def _bar(progress: bool, passes: int) -> Iterator[Any]:
    """Yield a function that moves a bar, shown once two seconds have passed."""
    if not progress:
        yield lambda done: None
        return
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn(), TimeRemainingColumn())
    start = time.perf_counter()
    bar = Progress(*columns, transient=True)
    task = bar.add_task("boxes", total=passes)
    shown = False

    def tick(done: int) -> None:
        nonlocal shown
        bar.advance(task, done)
        if not shown and time.perf_counter() - start > _QUIET:
            shown = True
            bar.start()

    try:
        yield tick
    finally:
        if shown:
            bar.stop()
