"""Claims of `confide.pipeline` and `confide.tune`: several releases under one guarantee."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np

from confide.audit import neighbours
from confide.audit.neighbours import Rows
from confide.audit.promises import stopping
from confide.audit.recorded import Mechanism
from confide.audit.registry import Floats, Kind, Pair, promise, random_state
from confide.audit.replay import Recorder, recording
from confide.audit.views import Outputs, Run
from confide.mechanisms import RandomStream
from confide.pipeline import SparseClassifier, SparseRegressor
from confide.training import PrivateRegressor
from confide.tune import tune

_DELTA = Fraction(1, 1000)
_BASE = neighbours.table(3, 4)
_SIGNS = neighbours.table(3, 4, classes=True)


def _sparse(make: Any) -> Any:
    def run(rows: Rows, stream: RandomStream) -> Floats:
        fitted = make(random_state(stream)).fit(rows.X, rows.y)
        return np.concatenate([np.ravel(fitted.coef_), np.ravel(fitted.intercept_)])

    return run


#: Runs after which a support that was drawn at once must have come.
_TRIES = 10_000
#: A mechanism, what runs it, and its arguments.
Step = tuple[Mechanism, Callable[..., Any], dict[str, Any]]


class _Steps(Recorder):
    """Keeps how the mechanisms of a run were called."""

    def __init__(self) -> None:
        super().__init__()
        self.made: list[Step] = []

    def call(
        self, mechanism: Mechanism, run: Callable[..., Any], args: Any, named: Any, extra: Any = None
    ) -> Any:
        """See `Recorder`."""
        if not self._inside:
            bound = inspect.signature(run).bind(*args, **named)
            bound.apply_defaults()
            self.made.append((mechanism, run, dict(bound.arguments)))
        return super().call(mechanism, run, args, named, extra)


def _planned(run: Run, table: Any, stream: RandomStream) -> tuple[Step, tuple[int, ...], Step]:
    """Return the two steps of one run of select-then-fit, and the support between them.

    Raises
    ------
    ValueError
        If it takes other steps.
    """
    seen = _Steps()
    with recording(seen):
        run(table, stream)
    if len(seen.made) != 2 or seen.made[0][0].name != "draw":
        raise ValueError("A run is no draw of a support and one release.")
    return seen.made[0], tuple(seen.calls[0].output[0]), seen.made[1]


def by_support(run: Run) -> Outputs:
    """Return the outputs of select-then-fit: the support, and what was released given it.

    A run draws a support, and then asks one mechanism with an input that is a function of table and support.
    So many supports are drawn at once, runs are made until the second step is known for each of them, and
    that step is repeated alone, each time on a stream of its own: the law of both answers is that of as many
    runs. What a run does with the answers is post-processing.
    """

    def outputs(table: Any, count: int, stream: RandomStream) -> Floats:
        (_, draw, given), support, release = _planned(run, table, stream.child("plan"))
        told = draw(**{**given, "size": count, "random_state": stream.child("supports")})
        releases, missing, tries = {support: release}, set(told) - {support}, 0
        while missing:
            _, support, release = _planned(run, table, stream.child(f"plan {tries}"))
            releases[support], tries = release, tries + 1
            missing.discard(support)
            if tries > _TRIES:
                raise ValueError("A support that was drawn alone is not drawn in a run.")
        answers = [_again(releases[one], stream.child(f"answer {i}")) for i, one in enumerate(told)]
        return np.hstack([np.array(told, dtype=np.float64), np.array(answers)])

    return outputs


def _again(step: Step, stream: RandomStream) -> Floats:
    """Return one more answer of a release: a vector, or coefficients."""
    _, release, given = step
    answer = release(**{**given, "stream": stream})
    if hasattr(answer, "coefficients"):
        return np.append(answer.coefficients, answer.intercept)
    return np.ravel(np.asarray(answer, dtype=np.float64))


def _both(rows: Rows) -> list[Pair]:
    """Return neighbours whose label moves the best support and every coefficient, before those of a table."""
    X = np.array([[1.0, 1.0, 1.0, 1.0], [1.0, -1.0, -1.0, -1.0]])
    here, there = (Rows(X, np.array([label, 1.0])) for label in (1.0, -1.0))
    return [Pair("support and coefficients turn", here, there), *neighbours.pairs(rows, "replace_one")]


_BOUNDS: dict[str, Any] = {"feature_bounds": (-1, 1)}
_NUMBERS = {**_BOUNDS, "target_bounds": (-1, 1)}
_CLASSES = {**_BOUNDS, "classes": [-1.0, 1.0]}
_FRONT = ("confide.pipeline.SparseRegressor", "confide.pipeline.select_and_fit")
#: Of what is released by objective perturbation, and of a noisy Gram matrix, which is drawn faster.
_PERTURBED, _MOMENTS = {"draws": 10_000, "quick": 120}, {"draws": 40_000, "quick": 5_000}


def sparse(
    name: str, make: Any, options: dict[str, Any], covers: tuple[str, ...], *, delta: Fraction, **how: Any
) -> None:
    """Register an estimator of select-then-fit with one column."""
    rows = _SIGNS if "classes" in options else _BASE
    run = _sparse(lambda seed: make(1, 1, delta, **options, random_state=seed))
    promise(
        f"pipeline.{name}", Kind.ESTIMATOR, 1, delta, "replace_one",
        "selection and coefficients, basic composition; confide.pipeline.request",
        lambda: _both(rows), run=run, outputs=by_support(run), covers=covers, **how,
    )  # fmt: skip


for _name, _delta in (("pure", Fraction(0)), ("gaussian", _DELTA)):
    sparse(f"SparseRegressor.{_name}", SparseRegressor, _NUMBERS, _FRONT, delta=_delta, **_PERTURBED)
sparse(
    "SparseRegressor.moments", SparseRegressor, {**_NUMBERS, "coefficient_loss": "squared"}, _FRONT,
    delta=Fraction(0), **_MOMENTS,
)  # fmt: skip
sparse(
    "SparseClassifier", SparseClassifier, _CLASSES, ("confide.pipeline.SparseClassifier",),
    delta=Fraction(0), **{**_PERTURBED, "draws": 20_000},
)  # fmt: skip
sparse(
    "SparseClassifier.moments", SparseClassifier, {**_CLASSES, "coefficient_loss": "squared"},
    ("confide.pipeline.SparseClassifier",), delta=Fraction(0), **_MOMENTS,
)  # fmt: skip


def _tunings() -> list[Pair]:
    """Return neighbours; a law of the number of runs that is wrong is not drawn from."""
    stopping.checked()
    return neighbours.pairs(neighbours.table(20, 2), "replace_label")


def _tuned(rows: Rows, stream: RandomStream) -> Floats:
    found = tune(
        lambda kind: PrivateRegressor(
            target_bounds=(-1, 1), engine="closed_form", conditioning=kind, shrinkage=False
        ),
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
    _tunings,
    run=_tuned,
    covers=("confide.tune.tune",),
    note="A run takes tens of milliseconds, too long for draws that would measure it; the law of the best of "
    "a random number of runs is that of tune.random_stopping, what each run asks is replayed.",
    draws=1_000,
    quick=16,
)
