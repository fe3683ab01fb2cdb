"""Cells of prediction_paper.py: which release of which certificate on which set; their plan and their run."""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Iterator
from dataclasses import asdict, dataclass, fields, replace
from functools import lru_cache

import numpy as np

from _encoding import Unavailable
from _prediction_paper_data import CLASSES, SHAPES, STAND_IN
from _resume import OutOfTimeError, deadline

DELTA = 1e-5
#: Epsilons of one answer, and totals (with DELTA) for a number of answers.
ANSWERS, TOTALS = (0.1, 0.3, 1.0, 3.0), (1.0, 10.0)
QUERIES = (1, 10, 100, 1_000, 10_000, 100_000)
RELEASES = ("response", "sparse_vector", "ptr", "cauchy", "laplace", "global")
BINARY = ("cauchy", "laplace")
#: Epochs of the sparse vector unless they are what varies.
EPOCHS = 10
#: Of study "drawn": how often `StableAnswers` itself answers all queries of a run.
DRAWS = 40
EPOCH_GRID = (1, 3, 10, 30, 100, 300, 1_000)
MEMBERS = (1, 3, 5, 10, 25)
STEPS = (1, 2, 4, 8, 16, 32)
STEPPED = ("boxes {}", "ball {}")
RIDGES = (1, 2, 3, 5, 7, 10, 30, 100, 300, 1_000)
SETS = tuple(SHAPES)


@dataclass(frozen=True)
class Cell:
    """One accuracy; the fields are the key of its row. Study "answers": `epsilon` is that of an answer."""

    study: str
    data: str
    certificate: str
    members: int
    release: str
    epsilon: float
    queries: int
    epochs: int

    @property
    def key(self) -> tuple[str, ...]:
        return tuple(str(value) for value in asdict(self).values())


KEYS = [field.name for field in fields(Cell)]
VALUES = ["accuracy", "error", "balanced", "nominal", "each", "setting", "inside", "quantiles", "runs",
          "seconds", "status"]  # fmt: skip
COLUMNS = [*KEYS, *VALUES]
#: Of the distances of all runs together.
SHARES = (0.01, 0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99)


@dataclass(frozen=True)
class Task:
    """Cells of one set, certificate and number of members: they share distances."""

    cells: tuple[Cell, ...]
    cost: float
    limit: float

    @property
    def first(self) -> Cell:
        return self.cells[0]


def runs_of(data: str, quick: bool) -> int:
    """Return how many splits: more where few rows are held out and a fit is quick."""
    rows = SHAPES[data][0]
    return 2 if quick else {"breast": 20, "digits 3-8": 10}.get(data, 5 if rows < 5_000 else 3)


def run(task: Task, quick: bool) -> list[dict[str, object]]:
    """Return one row a cell; a task that takes too long says so in `status`."""
    start = time.process_time()
    rows: list[dict[str, object]] = []
    lost = f"not finished after {task.limit:g} s"
    try:
        with deadline(task.limit), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # seeds and deltas are as the study says
            for cell in task.cells:
                runs = runs_of(cell.data, quick)
                runs = (
                    min(runs, 3) if cell.study == "steps" and cell.certificate.startswith("boxes") else runs
                )
                rows.append({**asdict(cell), **measure(cell, runs), "status": "done"})
    except OutOfTimeError:
        pass
    except Unavailable as reason:
        lost = f"no data: {str(reason)[:80]}"
    except Exception as error:  # one cell must not end the run; it is recorded
        lost = f"failed: {type(error).__name__}: {str(error)[:100]}"
    spent = (time.process_time() - start) / len(task.cells)
    rows += [{**asdict(cell), "status": lost} for cell in task.cells[len(rows) :]]
    return [{**row, "seconds": f"{spent:.3g}"} for row in rows]


def measure(cell: Cell, runs: int) -> dict[str, object]:
    """Return the values of a cell over its runs."""
    if cell.study == "trained":
        return _trained(cell, runs)
    from _prediction_paper_models import distances

    each, delta = price(cell)
    setting = choose(cell, each, delta)
    found = [distances(cell.data, cell.certificate, cell.members, setting, i) for i in range(runs)]
    scores = [_scores(cell, each, delta, *one, seed=i) for i, one in enumerate(found)]
    accuracy, balanced, inside, noise = np.array(scores).T
    # Runs are splits of their own; the little that drawn epochs add is inside each of them.
    values = _mean(accuracy, float(np.sqrt(np.mean(noise**2) / runs)))
    k = np.concatenate([k for _, _, k in found])
    return {
        **values, "balanced": f"{balanced.mean():.5f}" if math.isfinite(balanced.mean()) else "",
        "nominal": f"{np.mean([np.mean(truth == label) for truth, label, _ in found]):.5f}",
        "each": f"{each:.6g}", "setting": f"{setting:.6g}",
        "inside": f"{inside.mean():.5f}" if cell.release == "sparse_vector" else "",
        "quantiles": ";".join(f"{v:.0f}" for v in np.quantile(k, SHARES, method="lower")), "runs": runs,
    }  # fmt: skip


def choose(cell: Cell, each: float, delta: float) -> float:
    """Return the value of the certificate's knob that does best on the stand-in; of equal ones the last."""
    from _prediction_paper_models import distances, knobs

    options = knobs(cell.certificate, cell.data, cell.members)
    if len(options) == 1:
        return options[0]
    cell = replace(cell, study="budget") if cell.study == "drawn" else cell
    told = [distances(STAND_IN + cell.data, cell.certificate, cell.members, value, 0) for value in options]
    scores = [round(float(_scores(cell, each, delta, *one, seed=0)[0]), 4) for one in told]
    return max(zip(scores, options, strict=True))[1]


def price(cell: Cell) -> tuple[float, float]:
    """Return epsilon and delta of an answer (of an epoch).

    A total's delta goes to the composition where answers are pure; half of it where they have a delta.
    """
    if cell.study in ("answers", "steps"):
        return cell.epsilon, 0.0 if cell.release in ("response", "cauchy", "global") else DELTA
    count = cell.epochs if cell.release == "sparse_vector" else cell.queries
    own = 0.0 if cell.release in ("response", "cauchy", "global") else DELTA / 2 / count
    return _share(cell.epsilon, count, own), own


@lru_cache(maxsize=256)
def _share(total: float, count: int, own: float) -> float:
    from confide.prediction import per_answer

    # No release errs at 20.
    return min(20.0, per_answer(total, DELTA, count, each_delta=own))


def _scores(cell: Cell, each: float, delta: float, truth, labels, k, seed: int):
    """Return expected accuracy, expected accuracy with all classes alike, share inside epochs, standard error."""
    right, classes = truth == labels, CLASSES[cell.data]
    if cell.study == "drawn":
        from _prediction_paper_epochs import drawn

        told, inside = drawn(truth, labels, k, classes, each, delta, cell.epochs, cell.queries, DRAWS, seed)
        return told.mean(), math.nan, inside, told.std(ddof=1) / math.sqrt(len(told))
    if cell.release == "sparse_vector":
        from _prediction_paper_epochs import expected

        told, inside = expected(right, k, classes, each, delta, cell.epochs, cell.queries, seed=seed)
        return told.mean(), math.nan, inside, told.std(ddof=1) / math.sqrt(len(told))
    from confide.prediction import release_of

    p = release_of(cell.release, each, classes, delta).probabilities(int(k.max(initial=0)))
    score = np.where(right, np.asarray(p)[k], p.wrong[k])
    balanced = np.mean([score[truth == one].mean() for one in np.unique(truth)])
    return score.mean(), balanced, math.nan, 0.0


def _trained(cell: Cell, runs: int) -> dict[str, object]:
    from _prediction_paper_models import trained

    scores, balanced = [], []
    for i in range(runs):
        truth, told = trained(cell.release, cell.data, cell.epsilon, DELTA, i)
        scores.append(float(np.mean(truth == told)))
        balanced.append(np.mean([np.mean(told[truth == one] == one) for one in np.unique(truth)]))
    return {**_mean(np.array(scores)), "balanced": f"{np.mean(balanced):.5f}", "runs": runs}


def _mean(values, noise: float = 0.0) -> dict[str, object]:
    spread = float(np.std(values, ddof=1) / math.sqrt(len(values))) if len(values) > 1 else 0.0
    return {"accuracy": f"{np.mean(values):.6f}", "error": f"{max(spread, noise):.6f}"}


# The plan.


def plan(quick: bool) -> list[Task]:
    """Return all tasks; those of one set stand together."""
    sets = ("blobs", "breast") if quick else SETS
    return [task for data in sets for task in _tasks(data, quick)]


def _task(cells: list[Cell], quick: bool) -> Task:
    first = cells[0]
    n, p = SHAPES[first.data]
    fits = 4 if first.certificate in ("erm", "votes") else 1
    seconds = 0.02 * len(cells) + fits * (2 + runs_of(first.data, quick)) * (0.05 + 3e-9 * n * p * p)
    return Task(tuple(cells), seconds, 20.0 if quick else 300.0)


def _releases(data: str) -> tuple[str, ...]:
    return tuple(name for name in RELEASES if CLASSES[data] == 2 or name not in BINARY)


def _tasks(data: str, quick: bool) -> Iterator[Task]:
    certificates = ["boxes", "erm", "votes"] + (["ball"] if CLASSES[data] == 2 else [])
    certificates += ["boxes random start", "boxes mlp"] if data == "blobs" else []
    for certificate in certificates:
        yield _task([*_answers(data, certificate, quick), *_budget(data, certificate, quick)], quick)
        if data == "blobs":
            count = 1_000 if quick else 100_000
            yield _task([Cell("drawn", data, certificate, 1, "sparse_vector", 10.0, count, EPOCHS)], quick)
        if certificate in ("boxes", "erm") and data in (
            "blobs",
            "breast",
            "mnist 0-1",
            "adult",
            "covid",
            "reviews",
        ):
            grid = (1, 10) if quick else EPOCH_GRID
            cells = [Cell("epochs", data, certificate, 1, "sparse_vector", total, count, epochs)
                     for total in TOTALS for count in (10_000, 100_000) for epochs in grid]  # fmt: skip
            yield _task(cells, quick)
    if data in ("blobs", "breast", "mnist 3-8", "mnist ten", "adult", "reviews"):
        yield from _ensembles(data, quick)
    if data in ("blobs", "breast", "digits 3-8", "adult"):
        yield from _steps(data, quick)
    methods = ["dpsgd", "majority", "logistic"] + (["objective"] if CLASSES[data] == 2 else [])
    for method in methods:
        epsilons = (math.inf,) if method in ("majority", "logistic") else (*ANSWERS, 10.0)
        yield _task([Cell("trained", data, "none", 1, method, e, 0, 0) for e in epsilons], quick)


def _answers(data: str, certificate: str, quick: bool) -> Iterator[Cell]:
    for release in _releases(data):
        if release != "sparse_vector":
            for epsilon in (1.0,) if quick else ANSWERS:
                yield Cell("answers", data, certificate, 1, release, epsilon, 1, 0)


def _budget(data: str, certificate: str, quick: bool, members: int = 1) -> Iterator[Cell]:
    for release in _releases(data):
        epochs = EPOCHS if release == "sparse_vector" else 0
        for total in (10.0,) if quick else TOTALS:
            for queries in (1, 100, 10_000) if quick else QUERIES:
                yield Cell("budget", data, certificate, members, release, total, queries, epochs)


def _ensembles(data: str, quick: bool) -> Iterator[Task]:
    """T members at (10, DELTA) for Q = 100 and 10,000; T = 1 is no ensemble."""
    n, p = SHAPES[data]
    certificates = ["boxes"]
    certificates += ["erm"] if n * p * p < 1e8 else []  # minutes for each number of members
    certificates += ["teachers"] if CLASSES[data] == 2 else []
    for certificate in certificates:
        for members in (1, 5) if quick else MEMBERS:
            if certificate == "teachers" and members == 1:
                continue
            cells = [Cell("ensembles", data, certificate, members, release, 10.0, queries,
                          EPOCHS if release == "sparse_vector" else 0)
                     for release in _releases(data) for queries in (100, 10_000)]  # fmt: skip
            yield _task(cells, quick)


def _steps(data: str, quick: bool) -> Iterator[Task]:
    """Accuracy without noise and distances as steps are added, as Lambda grows; epsilon is 1 an answer."""
    for name in STEPPED:
        for steps in (1, 4) if quick else STEPS if SHAPES[data][0] < 5_000 else STEPS[:4]:
            yield _task([Cell("steps", data, name.format(steps), 1, "response", 1.0, 1, 0)], quick)
    cells = [
        Cell("steps", data, f"erm {L}", 1, "response", 1.0, 1, 0) for L in RIDGES[: 2 if quick else None]
    ]
    yield _task(cells, quick)
