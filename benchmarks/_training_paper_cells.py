"""Cells of training_paper.py: which method, on which table, at which epsilon; their plan and their run."""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Iterator
from dataclasses import asdict, dataclass, fields, replace
from functools import lru_cache

import numpy as np

from _encoding import Unavailable
from _resume import OutOfTimeError, deadline
from training_data import Dataset, lemma_improvement, load, turning

DELTA = 1e-6
EPSILONS = (0.25, 0.5, 1.0, 2.0, 4.0, math.inf)
RUNS = 5
#: The public rule on rows: the first so many of a public permutation, of which a fifth is for testing.
ROWS = 25_000
#: (rows, columns) of each set under that rule, for the estimate of time alone.
SHAPES = {
    **dict.fromkeys(("synthetic-top", "synthetic-bottom", "synthetic-all", "synthetic-mixed"), (10_000, 50)),
    "randhie": (20_190, 57), "cps1988": (25_000, 13), "cpssw8": (25_000, 9), "loans": (10_000, 95),
    "california": (20_640, 8), "flights": (25_000, 130), "bikeshare": (8_645, 59), "wage": (3_000, 23),
    "diamonds": (25_000, 27), "diabetes": (442, 11), "openbandit": (25_000, 122),
}  # fmt: skip
ANGLES = tuple(round(share * math.pi / 2, 4) for share in (0, 0.02, 0.06, 0.15, 0.3, 0.5, 0.7, 0.85, 1))
MLP_SETS = ("california", "bikeshare", "diamonds", "cps1988")


@dataclass(frozen=True)
class Cell:
    """One error; the fields are the key of its row."""

    study: str
    data: str
    method: str
    parameters: str
    epsilon: float
    run: int

    @property
    def key(self) -> tuple[str, ...]:
        return tuple(str(value) for value in asdict(self).values())


KEYS = [field.name for field in fields(Cell)]
VALUES = ["mse", "rows", "columns", "predicted", "chosen", "seconds", "status"]
COLUMNS = [*KEYS, *VALUES]


@dataclass(frozen=True)
class Task:
    """The runs of one method on one table: parameters are chosen once."""

    cells: tuple[Cell, ...]
    cost: float
    limit: float

    @property
    def first(self) -> Cell:
        return self.cells[0]

    @property
    def table(self) -> tuple:
        return self.first.study, self.first.data, self.first.epsilon


@lru_cache(maxsize=4)
def table(study: str, name: str) -> Dataset:
    """Return a set under the rule on rows."""
    data = turning(float(name)) if study == "turning" else load(name)
    if len(data.y) > ROWS:
        rows = np.sort(np.random.default_rng([20260618]).permutation(len(data.y))[:ROWS])
        data = replace(data, X=data.X[rows], y=data.y[rows])
    return data


def splits(study: str, name: str, runs: int) -> list[tuple[Dataset, Dataset]]:
    """Return the training and the test part of each run."""
    data = table(study, name)
    return [data.split(seed=run) for run in range(runs)]


def run(task: Task, quick: bool) -> list[dict[str, object]]:
    """Return one row a cell; a task that takes too long says so in `status`."""
    start, first = time.process_time(), task.first
    rows: list[dict[str, object]] = []
    lost = f"not finished after {task.limit:g} s"
    common: dict[str, object] = {}
    try:
        with deadline(task.limit), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # labels here are public, and delta is as the study says
            parts = splits(first.study, first.data, len(task.cells))
            common = {"rows": len(parts[0][0].y), "columns": parts[0][0].X.shape[1]}
            if first.study == "turning":
                common["predicted"] = f"{lemma_improvement(parts[0][0]):.6g}"
            for cell, mse, chosen in _errors(task, parts, quick):
                rows.append(
                    {**asdict(cell), **common, "mse": f"{mse:.8g}", "chosen": chosen, "status": "done"}
                )
    except OutOfTimeError:
        pass
    except Unavailable as reason:
        lost = f"no data: {str(reason)[:80]}"
    except Exception as error:  # one cell must not end the run; it is recorded
        lost = f"failed: {type(error).__name__}: {str(error)[:100]}"
    spent = (time.process_time() - start) / len(task.cells)
    rows += [{**asdict(cell), **common, "status": lost} for cell in task.cells[len(rows) :]]
    return [{**row, "seconds": f"{spent:.3g}"} for row in rows]


def _errors(task: Task, parts, quick: bool) -> Iterator[tuple[Cell, float, str]]:
    """Yield each cell with its test error and the parameters that were used."""
    import _training_paper_mlp as networks
    from _training_paper_methods import METHODS, TUNED
    from _training_paper_sgd import show

    first = task.first
    if first.study == "mlp" and first.method in networks.METHODS:
        config = networks.choose(first.method, first.parameters, first.epsilon, parts, quick)
        fit = networks.fit
    elif first.parameters == "tuned":
        config = TUNED[first.method](first.method, first.epsilon, parts[:2], quick)
        fit = METHODS[first.method]
    else:
        config, fit = None, METHODS[first.method]
    for cell, (train, test) in zip(task.cells, parts, strict=True):
        guess = np.clip(fit(train, test.X, cell.epsilon, cell.run, config), *train.bounds)
        yield cell, float(np.mean((test.y - guess) ** 2)), show(config)


# The plan.

#: CPU seconds of the five runs of a method: (a, b), a + b n d / 10^6 for n rows and d columns.
COST = {
    "rounds": (0.1, 1.7), "closed_form": (0.05, 3.5), "cond_dp": (0.03, 0.4), "dp_sgd": (0.03, 0.3),
    "rr_on_bins": (0.03, 1.0), "rr_debiased": (0.03, 1.0), "rounding": (0.03, 1.0), "gaussian_labels": (0.03, 1.0),
    "weighted_llp": (0.02, 0.2), "adassp": (0.02, 2.6), "boosted_adassp": (0.02, 3.5), "hybrid": (0.05, 1.3),
    "mean": (0.02, 0.0), "least_squares": (0.0, 0.5),
}  # fmt: skip
COST_TUNED = {"cond_dp": (0.3, 8.0), "dp_sgd": (0.3, 8.0), "weighted_llp": (0.05, 1.4)}
LIMIT = {"linear": 120.0, "turning": 120.0, "mlp": 240.0}


def plan(quick: bool) -> list[Task]:
    """Return all tasks, those of one table and epsilon together."""
    tasks = [*_linear(quick), *_turning(quick), *_networks(quick)]
    return sorted(tasks, key=lambda task: tuple(map(str, task.table)))


def _task(
    study: str, data: str, method: str, parameters: str, epsilon: float, quick: bool, cost: float
) -> Task:
    cells = tuple(Cell(study, data, method, parameters, epsilon, i) for i in range(2 if quick else RUNS))
    return Task(cells, cost * (0.3 if quick else 1.0), 20.0 if quick else LIMIT[study])


def _linear(quick: bool) -> Iterator[Task]:
    from _training_paper_methods import AT_INFINITY, METHODS, TUNED

    names = ("synthetic-bottom", "diabetes", "wage") if quick else SHAPES
    for name in names:
        size = math.prod(SHAPES[name]) / 1e6
        for epsilon in (1.0, math.inf) if quick else EPSILONS:
            for method in METHODS:
                if method in AT_INFINITY and AT_INFINITY[method] != math.isinf(epsilon):
                    continue
                a, b = COST[method]
                yield _task("linear", name, method, "untuned", epsilon, quick, a + b * size)
                if method in TUNED:
                    a, b = COST_TUNED[method]
                    yield _task("linear", name, method, "tuned", epsilon, quick, a + b * size)


def _turning(quick: bool) -> Iterator[Task]:
    from _training_paper_methods import TUNED

    for angle in (ANGLES[0], ANGLES[-1]) if quick else ANGLES:
        yield _task("turning", str(angle), "least_squares", "untuned", math.inf, quick, 0.1)
        for method in ("rounds", "cond_dp", "dp_sgd"):
            kinds = ("untuned", "tuned") if method in TUNED else ("untuned",)
            for kind in kinds:
                yield _task("turning", str(angle), method, kind, 1.0, quick, 4.7 if kind == "tuned" else 0.5)


def _networks(quick: bool) -> Iterator[Task]:
    import _training_paper_mlp as networks

    for name in MLP_SETS[1:2] if quick else MLP_SETS:
        size = SHAPES[name][0] / 20_000
        for epsilon in (1.0,) if quick else networks.EPSILONS:
            for method in networks.METHODS:
                for kind in ("untuned", "tuned"):
                    fits = RUNS + (networks.count(method) if kind == "tuned" else 0)
                    yield _task("mlp", name, method, kind, epsilon, quick, fits * networks.SECONDS * size)
            yield _task("mlp", name, "rounds", "untuned", epsilon, quick, 2.0)
        yield _task("mlp", name, "mean", "untuned", math.inf, quick, 0.2)
