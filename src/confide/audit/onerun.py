"""Canaries for one-run auditing: many labels of one training set by coins, guessed from the model.

Steinke, Nasr & Jagielski, "Privacy Auditing with One (1) Training Run" (NeurIPS 2023); the bound is
`blackbox.one_run_p_value`. Each row of the identity matrix is a canary: it has a column of its own, so that
what its label adds to a statistic meets no other label, and the noise it must be heard over is that of one
label alone. The model's output at the row, less where the training began, is the score. Only the most extreme
scores are guessed, a fixed number of each sign: where noise is normal, the likelihood ratio of a guess grows
with its score, and that of a typical one is near 1.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from confide.audit.neighbours import Rows
from confide.audit.registry import Floats, random_state
from confide.audit.views import Answer, Run, answers
from confide.mechanisms import RandomStream

Maker = Callable[[int | None], Any]
OneRun = Callable[[RandomStream], tuple[Any, Any]]


def canaries(
    make: Maker,
    low: float,
    high: float,
    *,
    rows: int = 32,
    told: int = 2,
    start: Maker | None = None,
    read: Callable[[Any], Floats] | None = None,
) -> OneRun:
    """Return one training with a canary a column: its label is set by a coin and read from the model.

    Parameters
    ----------
    make : function (seed) -> estimator
    low, high : float
        The labels.
    rows : int
        Canaries.
    told : int
        Guesses of each sign; of the other canaries nothing is said.
    start : function (seed) -> estimator, optional
        The same training with steps too short to move: its outputs are where `make` begins.
    read : function (fitted) -> array [m], optional
        Scores of the canaries; by default the model's outputs at their rows.
    """
    X, begun = np.eye(rows), list[Floats]()

    def score(fitted: Any) -> Floats:
        return _outputs(fitted, X) if read is None else read(fitted)

    def one_run(stream: RandomStream) -> tuple[Any, Any]:
        bits = np.where(stream.bits(rows) >> np.uint64(63), 1, -1)
        labels = np.where(bits > 0, high, low)
        if start is not None and not begun:
            begun.append(score(start(0).fit(X, labels)))
        scores = score(make(random_state(stream)).fit(X, labels)) - (begun[0] if begun else 0.0)
        return bits, extremes(scores, told)

    return one_run


def heard(
    run: Run,
    low: float,
    high: float,
    score: Callable[[list[Answer]], Floats],
    *,
    rows: int = 64,
    told: int = 4,
    present: bool = False,
) -> OneRun:
    """Return one run whose canaries are read from the answers of its mechanisms (`views`).

    Parameters
    ----------
    run : function (Rows, stream) -> array
    low, high : float
        The labels.
    score : function (answers) -> array [rows]
        Larger where the label is likely to be `high`.
    rows, told : int
        As in `canaries`.
    present : bool
        Whether a coin decides that a row is there, with label `high`, and not its label.
    """

    def one_run(stream: RandomStream) -> tuple[Any, Any]:
        bits = np.where(stream.bits(rows) >> np.uint64(63), 1, -1)
        table = Rows(np.eye(rows), np.where(bits > 0, high, low))
        if present:
            table = Rows(table.X[bits > 0], table.y[bits > 0])
        return bits, extremes(score(answers(run, table, stream)), told)

    return one_run


def _outputs(fitted: Any, X: Floats) -> Floats:
    read = fitted.decision_function if hasattr(fitted, "decision_function") else fitted.predict
    return np.ravel(read(X))


def extremes(scores: Floats, told: int) -> Any:
    """Return guesses [m]: 1 for the `told` largest scores, -1 for as many smallest, 0 between."""
    order = np.argsort(scores, kind="stable")
    guesses = np.zeros(scores.size, dtype=np.int64)
    guesses[order[-told:]], guesses[order[:told]] = 1, -1
    return guesses
