"""Small problems, golden data, and record-and-replay for the tests of this room."""

import json
from pathlib import Path

import numpy as np

from confide.privacy import Adjacency
from confide.training.closed_form import solve
from confide.training.design import Source
from confide.training.linear import plan_step
from confide.training.problem import LinearProblem
from confide.training.request import make_request

GOLDEN = Path(__file__).parents[1] / "golden" / "training"
INDEX = json.loads((GOLDEN / "index.json").read_text())
DATASETS = INDEX["datasets"]


def load(entry):
    return np.load(GOLDEN / entry["file"])


def request(**changes):
    options = {"epsilon": 1, "delta": 1e-6, "adjacency": Adjacency.REPLACE_LABEL, "random_state": 0}
    return make_request(**{**options, **changes})


def problem(X, y, bounds=(-3.0, 3.0), *, ids=None, intercept=True, rows_per_unit=1, bounded=False, pieces=1):
    X = X if hasattr(X, "tocsr") else np.asarray(X, dtype=float)
    names = tuple(f"x{i}" for i in range(X.shape[1]))
    cuts = np.array_split(np.arange(X.shape[0]), pieces)
    read_ids = None if ids is None else (lambda: iter([np.asarray(ids)[c] for c in cuts]))
    return LinearProblem(
        Source(lambda: iter([X[c] for c in cuts]), names, bounded),
        lambda: iter([np.asarray(y)[c] for c in cuts]),
        *bounds,
        read_ids,
        intercept,
        rows_per_unit,
    )


def record(task, asked):
    """Run the solver up to its statistic; return the public step, the statistic and the waiting solver."""
    step = plan_step(task, asked)
    solver = solve(task, step, asked.noise_multiplier, shrinkage=asked.shrinkage)
    return step, next(solver), solver


def replay(solver, answer):
    """Send one answer and return the solution."""
    try:
        solver.send(answer)
    except StopIteration as stop:
        return stop.value
    raise AssertionError("the solver asked for more than one statistic")
