"""Claims of `confide.training`: each engine by its estimator, on labels, private columns or whole rows."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np

from confide.audit import neighbours
from confide.audit.neighbours import Rows
from confide.audit.registry import Floats, Kind, Pair, promise, random_state
from confide.mechanisms import RandomStream
from confide.training import (
    PrivateClassifier,
    PrivateRegressor,
    adassp,
    boosted_adassp,
    fit_hybrid,
    fit_semi_sensitive,
    noisy_statistics,
)

_DELTA = Fraction(1, 1000)
#: One row weighs most: what it loses shows.
_BASE = Rows(np.vstack([[3.0, -3.0], neighbours.table(12, 2).X]), np.append(1.0, neighbours.table(12, 2).y))
_SIGNS = Rows(_BASE.X, np.where(_BASE.y > 0, 1.0, 0.0))
_SECRET = neighbours.table(3, 2)
_SECRET_SIGNS = Rows(_SECRET.X, np.where(_SECRET.y > 0, 1.0, 0.0))
_CANARIES = 32


def _shape(fitted: Any) -> Floats:
    """Return what an estimator shows: outputs at a few public points."""
    points = _BASE.X[:4]
    seen = (
        fitted.decision_function(points) if hasattr(fitted, "decision_function") else fitted.predict(points)
    )
    return np.ravel(seen)


def _canaries(make: Callable[[int | None], Any], low: float, high: float) -> Callable[[RandomStream], Any]:
    """Return one run with a canary a column: its label is set by a coin and read from the model."""

    def one_run(stream: RandomStream) -> tuple[Any, Any]:
        bits = np.where(stream.bits(_CANARIES) >> np.uint64(63), 1, -1)
        X = np.eye(_CANARIES)
        fitted = make(random_state(stream)).fit(X, np.where(bits > 0, high, low))
        read = fitted.decision_function if hasattr(fitted, "decision_function") else fitted.predict
        return bits, np.sign(np.ravel(read(X)) - (0.0 if low == 0 else (low + high) / 2)).astype(np.int64)

    return one_run


def engine(
    name: str,
    make: Callable[[int | None], Any],
    proof: str,
    *,
    base: Rows = _BASE,
    ends: tuple[float, float] = (-1.0, 1.0),
    adjacency: str = "replace_label",
    delta: Any = _DELTA,
    canaries: bool = False,
    **how: Any,
) -> None:
    """Register an engine by an estimator of a noise seed."""

    def run(rows: Rows, stream: RandomStream) -> Floats:
        return _shape(make(random_state(stream)).fit(rows.X, rows.y))

    promise(
        f"training.{name}",
        Kind.ENGINE,
        1,
        delta,
        adjacency,
        proof,
        lambda: neighbours.pairs(base, adjacency, labels=ends),
        run=run,
        one_run=_canaries(make, *ends) if canaries else None,
        covers=(f"training.engine:{name.partition('.')[0]}", *how.pop("covers", ())),
        draws=how.pop("draws", 4_000),
        quick=how.pop("quick", 120),
        **how,
    )


def regressor(name: str, **options: Any) -> Callable[[int | None], Any]:
    """Return a maker of a regressor with labels within +-1."""
    base: dict[str, Any] = {"epsilon": 1, "delta": 0.001, "target_bounds": (-1, 1), "engine": name}
    return lambda seed: PrivateRegressor(**{**base, **options}, random_state=seed)


def classifier(name: str, **options: Any) -> Callable[[int | None], Any]:
    """Return a maker of a classifier of the classes 0 and 1."""
    base: dict[str, Any] = {"epsilon": 1, "delta": 0.001, "classes": [0, 1], "engine": name}
    return lambda seed: PrivateClassifier(**{**base, **options}, random_state=seed)


_SECRETS = {"adjacency": "replace_one", "public": None, "feature_bounds": (-1, 1)}
_SUMS = "Gaussian noise on one statistic of labels; confide.training.problem"
for _kind in ("spectral", "optimal", "identity"):
    engine(
        f"closed_form.{_kind}",
        regressor("closed_form", conditioning=_kind),
        _SUMS,
        canaries=_kind == "spectral",
        quick=60,
        covers=("confide.training.PrivateRegressor", "confide.training.train"),
    )
engine("rounds", regressor("rounds"), "adaptive Gaussian rounds; confide.training.rounds", canaries=True)
_STEPS = "composed Gaussian steps; confide.training.sgd.sensitivity"
engine("dpsgd.linear", regressor("dpsgd", steps=4), _STEPS, canaries=True)
engine("dpsgd.mlp", regressor("dpsgd", model="mlp", hidden=(3,), steps=4), _STEPS)
engine("dpsgd.fm", regressor("dpsgd", model="fm", rank=2, steps=4), _STEPS)
engine(
    "dpsgd.poisson",
    regressor("dpsgd", steps=4, batch_size=4),
    "Poisson-sampled Gaussian, PLD; confide.privacy.losses",
    covers=("event:poisson_gaussian",),
)
engine("dpsgd.classes", classifier("dpsgd", steps=4), _STEPS, base=_SIGNS, ends=(0.0, 1.0))
engine(
    "closed_form.classes",
    classifier("closed_form"),
    "Gaussian noise on class moments; confide.training.class_moments",
    base=_SIGNS,
    ends=(0.0, 1.0),
    canaries=True,
    covers=("confide.training.PrivateClassifier",),
)
engine(
    "randomized_response",
    classifier("randomized_response", delta=0),
    "Warner 1965; confide.training.labels.channel",
    base=_SIGNS,
    ends=(0.0, 1.0),
    delta=0,
    canaries=True,
)
engine(
    "objective",
    classifier("objective", delta=0, **_SECRETS),
    "Chaudhuri, Monteleoni & Sarwate 2011; confide.training.objective",
    base=_SECRET_SIGNS,
    ends=(0.0, 1.0),
    adjacency="replace_one",
    delta=0,
)
engine(
    "objective.gaussian",
    classifier("objective", **_SECRETS),
    "Kifer, Smith & Thakurta 2012; confide.training.objective",
    base=_SECRET_SIGNS,
    ends=(0.0, 1.0),
    adjacency="replace_one",
)
engine(
    "dpsgd.secret",
    regressor("dpsgd", steps=4, **_SECRETS),
    _STEPS,
    base=_SECRET,
    adjacency="replace_one",
)


def secret_rows(name: str, fit: Callable[..., Any], proof: str, *amounts: Any) -> None:
    """Register a fit of least squares on secret rows, under both relations."""
    for adjacency in ("replace_one", "add_remove_one"):

        def run(rows: Rows, stream: RandomStream, adjacency: str = adjacency) -> Floats:
            found = fit(rows.X, rows.y, 1, *amounts, adjacency, random_state=stream)
            return np.append(found.coefficients, found.intercept)

        promise(
            f"training.{name}.{adjacency}",
            Kind.RELEASE,
            1,
            amounts[0] if amounts else 0,
            adjacency,
            proof,
            lambda adjacency=adjacency: neighbours.pairs(_SECRET, adjacency),
            run=run,
            covers=(f"confide.training.{name}", *([f"training.engine:{name}"] if amounts else [])),
            draws=10_000,
            quick=300,
        )


secret_rows("adassp", adassp, "Wang 2018, one joint Gaussian; confide.training.least_squares", _DELTA)
secret_rows(
    "boosted_adassp",
    boosted_adassp,
    "Gaussian rounds on clipped residuals; confide.training.boosting",
    _DELTA,
)
secret_rows("noisy_statistics", noisy_statistics, "Laplace noise on moments; confide.training.least_squares")


def _private_parts() -> list[Pair]:
    """Return neighbours of a table of public and private columns: the private part of row 0 changes."""
    return neighbours.pairs(neighbours.table(6, 2, seed=1), "replace_private_part")


_PUBLIC = neighbours.table(6, 2, seed=2).X


def _semi(rows: Rows, stream: RandomStream) -> Floats:
    fitted = fit_semi_sensitive(
        _PUBLIC, rows.X, rows.y, 1, _DELTA, target_bounds=(-1, 1), random_state=stream
    )
    return np.concatenate([[fitted.intercept], np.ravel(fitted.public), np.ravel(fitted.private)])


def _hybrid(rows: Rows, stream: RandomStream) -> Floats:
    from confide.training.sgd import SGDRequest

    asked = SGDRequest(
        1,
        0.001,
        "replace_private_part",
        (-1, 1),
        private_bounds=[(-1, 1)] * 2,
        steps=4,
        random_state=random_state(stream),
    )
    return np.ravel(fit_hybrid(_PUBLIC, rows.X, rows.y, asked).model.predict(_PUBLIC, np.zeros_like(_PUBLIC)))


promise(
    "training.semi_sensitive",
    Kind.ENGINE,
    1,
    _DELTA,
    "replace_private_part",
    "one Gaussian on all secret moments; confide.training.semi_problem",
    _private_parts,
    run=_semi,
    covers=("confide.training.fit_semi_sensitive", "training.engine:semi_sensitive"),
    draws=4_000,
    quick=150,
)
promise(
    "training.hybrid",
    Kind.ENGINE,
    1,
    _DELTA,
    "replace_private_part",
    "label privatiser, then Gaussian steps, composed; confide.training.hybrid",
    _private_parts,
    run=_hybrid,
    covers=("confide.training.fit_hybrid",),
    draws=1_000,
    quick=40,
)
