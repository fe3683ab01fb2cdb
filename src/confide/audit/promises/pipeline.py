"""Claims of `confide.pipeline` and `confide.tune`: several releases under one guarantee."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np

from confide.audit import neighbours
from confide.audit.exact import nearly
from confide.audit.neighbours import Rows
from confide.audit.registry import Floats, Kind, Law, Pair, promise, random_state
from confide.mechanisms import RandomStream
from confide.pipeline import SparseClassifier, SparseRegressor
from confide.privacy.random_stopping import stopping
from confide.training import PrivateRegressor
from confide.tune import tune
from confide.tune.runs import draw_runs

_DELTA = Fraction(1, 1000)
_BASE = neighbours.table(3, 4)
_SIGNS = neighbours.table(3, 4, classes=True)


def _sparse(make: Any) -> Any:
    def run(rows: Rows, stream: RandomStream) -> Floats:
        fitted = make(random_state(stream)).fit(rows.X, rows.y)
        return np.concatenate([np.ravel(fitted.coef_), np.ravel(fitted.intercept_)])

    return run


for _delta in (Fraction(0), _DELTA):
    promise(
        f"pipeline.SparseRegressor.{'pure' if _delta == 0 else 'gaussian'}",
        Kind.ESTIMATOR,
        1,
        _delta,
        "replace_one",
        "selection and coefficients, basic composition; confide.pipeline.request",
        lambda: neighbours.pairs(_BASE, "replace_one"),
        run=_sparse(
            lambda seed, delta=_delta: SparseRegressor(
                1, 1, delta, feature_bounds=(-1, 1), target_bounds=(-1, 1), random_state=seed
            )
        ),
        covers=("confide.pipeline.SparseRegressor", "confide.pipeline.select_and_fit"),
        draws=4_000,
        quick=120,
    )
promise(
    "pipeline.SparseClassifier",
    Kind.ESTIMATOR,
    1,
    0,
    "replace_one",
    "selection and coefficients, basic composition; confide.pipeline.request",
    lambda: neighbours.pairs(_SIGNS, "replace_one"),
    run=_sparse(
        lambda seed: SparseClassifier(1, 1, classes=[-1.0, 1.0], feature_bounds=(-1, 1), random_state=seed)
    ),
    covers=("confide.pipeline.SparseClassifier",),
    draws=4_000,
    quick=120,
)


#: Law of a run on two neighbours, each 1/2-DP: the worst case of the proof is rare below an upper set.
_LAW = stopping(3, 0)
_RUN = Fraction(1, 2)
_RARE = 1e-3


def _run_law(side: int) -> Floats:
    growth = float(np.exp(float(_RUN)))
    first = np.array([growth / (1 + growth) - _RARE * growth, _RARE * growth, 1 / (1 + growth)])
    other = np.array([1 / (1 + growth) - _RARE, _RARE, growth / (1 + growth)])
    return other if side else first


def _best(side: int, count: int, stream: RandomStream) -> Floats:
    """Return the best of a random number of runs; the third outcome scores highest."""
    sizes = [draw_runs(_LAW, stream.child(str(i))) for i in range(count)]
    draws = np.searchsorted(
        np.cumsum(_run_law(side))[:-1], stream.child("runs").bits(sum(sizes)) / 2.0**64, side="right"
    )
    ends = np.cumsum(sizes)
    return np.array(
        [draws[end - size : end].max() for end, size in zip(ends, sizes, strict=True)], dtype=np.float64
    )


def _winner(side: int) -> Law:
    counts = np.arange(1, 2000)
    chance = np.array([_LAW.probability(int(k)) for k in counts])
    below = np.concatenate([[0.0], np.cumsum(_run_law(side))])
    below[-1] = 1.0
    powers = (below[:, None] ** counts * chance).sum(axis=1)
    return nearly({float(i): float(powers[i + 1] - powers[i]) for i in range(3)}, 1e-8)


promise(
    "tune.random_stopping",
    Kind.MECHANISM,
    _LAW.pure(_RUN),
    0,
    "replace_one",
    "Papernot & Steinke 2022, tightened; confide.privacy.random_stopping",
    lambda: [Pair("worst of the proof", 0, 1)],
    run=lambda side, stream: _best(side, 1, stream),
    outputs=_best,
    law=_winner,
    covers=("event:random_stopping",),
    draws=20_000,
    quick=300,
    replayed=False,
)


def _tuned(rows: Rows, stream: RandomStream) -> Floats:
    found = tune(
        lambda kind: PrivateRegressor(target_bounds=(-1, 1), engine="closed_form", conditioning=kind),
        ["spectral", "identity"],
        rows.X,
        rows.y,
        epsilon=1,
        delta=0.001,
        expected_runs=2,
        random_state=random_state(stream),
    )
    return np.append(found.model.predict(rows.X[:2]), found.score)


promise(
    "tune.tune",
    Kind.ESTIMATOR,
    1,
    _DELTA,
    "replace_label",
    "random stopping over runs and scores; confide.privacy.random_stopping",
    lambda: neighbours.pairs(neighbours.table(20, 2), "replace_label"),
    run=_tuned,
    covers=("confide.tune.tune",),
    draws=1_000,
    quick=16,
)
