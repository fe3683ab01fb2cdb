"""Claims of `confide.training`: each engine by its estimator, on labels, private columns or whole rows."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np

from confide.audit import neighbours
from confide.audit.minimisers import Column, repeated
from confide.audit.neighbours import Rows
from confide.audit.onerun import OneRun, canaries, heard
from confide.audit.promises import batches as batches  # its claim
from confide.audit.registry import Floats, Kind, Pair, promise, random_state
from confide.audit.views import Answer, redrawn, transcript
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
#: So many rows that the budget is split among four rounds.
_LONG = Rows(np.vstack([_BASE.X[:1], neighbours.table(399, 2).X]), np.append(1.0, neighbours.table(399, 2).y))
_SECRET = neighbours.table(3, 2)
_SECRET_SIGNS = Rows(_SECRET.X, np.where(_SECRET.y > 0, 1.0, 0.0))
#: Draws of one release, repeated alone.
_SINGLE = 200_000


def _shape(fitted: Any) -> Floats:
    """Return what an estimator shows: outputs at a few public points."""
    points = _BASE.X[:4, : fitted.n_features_in_]
    seen = (
        fitted.decision_function(points) if hasattr(fitted, "decision_function") else fitted.predict(points)
    )
    return np.ravel(seen)


def _unbiased(fitted: Any) -> Floats:
    """Return the coefficients before they are shrunk, which are released with the others."""
    return np.array([value for name, value in fitted.result_.unbiased.items() if name != "(intercept)"])


def engine(
    name: str,
    make: Callable[[int | None], Any],
    proof: str,
    *,
    base: Rows = _BASE,
    ends: tuple[float, float] = (-1.0, 1.0),
    adjacency: str = "replace_label",
    delta: Any = _DELTA,
    one_run: OneRun | None = None,
    single: bool = False,
    **how: Any,
) -> None:
    """Register an engine by an estimator of a noise seed; `single` says that a fit is one release."""

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
        one_run=one_run,
        outputs=how.pop("outputs", redrawn(run) if single else transcript(run, result=False)),
        covers=(f"training.engine:{name.partition('.')[0]}", *how.pop("covers", ())),
        draws=how.pop("draws", _SINGLE if single else 6_000),
        quick=how.pop("quick", 4_000 if single else 120),
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
        one_run=canaries(
            regressor("closed_form", conditioning=_kind, shrinkage=False), -1, 1, read=_unbiased
        ),
        single=True,
        # The front door is run by members of the first one's family.
        covers=("confide.training.PrivateRegressor", *(["confide.training.train"] * (_kind == "spectral"))),
    )
engine(
    "rounds",
    regressor("rounds"),
    "adaptive Gaussian rounds; confide.training.rounds",
    single=True,  # so few rows are below the public limit of a second round
)
engine(
    "rounds.several",
    regressor("rounds"),
    "adaptive Gaussian rounds; confide.training.rounds",
    base=_LONG,
    draws=1_000,
    quick=24,  # slow; a composition is priced
)
_STEPS = "composed Gaussian steps; confide.training.sgd.sensitivity"
#: The black box of what canaries measure better.
_DRAWS = 1_000


def _slow(make: Callable[..., Callable[[int | None], Any]], ends: tuple[float, float], rate: float = 1e-3,
          **options: Any) -> OneRun:  # fmt: skip
    """Return canaries of gradient steps so short that the model stays where it begins.

    All gradients are then those of the start: what the model moves by at a row is the sum of all noisy sums
    along that row's own gradient, the matched filter of its label.
    """
    how = {"steps": 4, "optimizer": "sgd", "average": 0.0, "conditioning": "identity", **options}
    still = make("dpsgd", **how, learning_rate=1e-12)
    return canaries(make("dpsgd", **how, learning_rate=rate), *ends, rows=128, told=8, start=still)


_NUMBERS = (-1.0, 1.0)
_LAYER = {"model": "mlp", "hidden": (8,), "activation": "tanh"}
for _name, _options, _told in (
    ("linear", {}, {"fit_intercept": False}),
    ("mlp", {"model": "mlp", "hidden": (3,)}, _LAYER),
    ("fm", {"model": "fm", "rank": 2}, {"model": "fm", "rank": 1}),
):
    engine(
        f"dpsgd.{_name}",
        regressor("dpsgd", steps=4, **_options),
        _STEPS,
        one_run=_slow(regressor, _NUMBERS, **_told),
        draws=_DRAWS,
    )
engine(
    "dpsgd.poisson",
    regressor("dpsgd", steps=4, batch_size=4),
    "Poisson-sampled Gaussian, PLD; confide.privacy.losses",
    one_run=_slow(regressor, _NUMBERS, batch_size=64),
    covers=("event:poisson_gaussian",),
    draws=_DRAWS,
)
engine(
    "dpsgd.classes",
    classifier("dpsgd", steps=4),
    _STEPS,
    base=_SIGNS,
    ends=(0.0, 1.0),
    one_run=_slow(classifier, (0.0, 1.0), 0.1, fit_intercept=False),
    draws=_DRAWS,
)
engine(
    "closed_form.classes",
    classifier("closed_form"),
    "Gaussian noise on class moments; confide.training.class_moments",
    base=_SIGNS,
    ends=(0.0, 1.0),
    one_run=canaries(classifier("closed_form"), 0.0, 1.0),
    single=True,
    covers=("confide.training.PrivateClassifier",),
)
engine(
    "randomized_response",
    classifier("randomized_response", delta=0),
    "Warner 1965; confide.training.labels.channel",
    base=_SIGNS,
    ends=(0.0, 1.0),
    delta=0,
    one_run=canaries(classifier("randomized_response", delta=0), 0.0, 1.0),
    single=True,
)


def _objective(delta: Any) -> Callable[..., Any]:
    """Return a maker of objective perturbation: one column is fitted without an intercept."""

    def fit(rows: Rows, seed: int | None) -> Any:
        make = classifier("objective", delta=delta, fit_intercept=rows.X.shape[1] > 1, **_SECRETS)
        return make(seed).fit(rows.X, rows.y)

    return fit


def _one_column() -> list[Pair]:
    """Return neighbours of a row alone, in one column: no other coordinate shares the noise."""
    here, *there = (Rows(np.array([[x]]), np.array([y])) for x, y in ((1.0, 1.0), (1.0, 0.0), (0.0, 1.0)))
    return [
        Pair(name, here, other) for name, other in zip(("a row alone turns", "it goes"), there, strict=True)
    ]


for _name, _delta, _proof in (
    ("objective", 0, "Chaudhuri, Monteleoni & Sarwate 2011"),
    ("objective.gaussian", _DELTA, "Kifer, Smith & Thakurta 2012"),
):

    def _perturbed(rows: Rows, stream: RandomStream, delta: float = float(_delta)) -> Floats:
        return _shape(_objective(delta)(rows, random_state(stream)))

    def _rows_and_one_column() -> list[Pair]:
        return [*_one_column(), *neighbours.pairs(_SECRET_SIGNS, "replace_one", labels=(0.0, 1.0))]

    promise(
        f"training.{_name}",
        Kind.ENGINE,
        1,
        _delta,
        "replace_one",
        f"{_proof}; confide.training.objective",
        _rows_and_one_column,
        run=_perturbed,
        outputs=repeated(_perturbed),
        covers=("training.engine:objective",),
        draws=10_000,
        quick=240,
    )
    for _adjacency in ("replace_one", "add_remove_one"):
        _column = Column(float(_delta), _adjacency)
        promise(
            f"training.{_name}.one_column.{_adjacency}",
            Kind.ENGINE,
            1,
            _delta,
            _adjacency,
            f"{_proof}; confide.training.objective",
            _column.pairs,
            run=_column.run,
            # Of Gaussian noise coefficients tell more than cells: the likelihood ratio changes slowly.
            outputs=None if _delta else _column.cells,
            law=_column.law,
            fits=not _delta,
            covers=("training.engine:objective",),
            draws=12_000 if _delta else 6_000,
            quick=100,
        )
engine(
    "dpsgd.secret",
    regressor("dpsgd", steps=4, **_SECRETS),
    _STEPS,
    base=_SECRET,
    adjacency="replace_one",
    one_run=_slow(regressor, _NUMBERS, **{**_SECRETS, "conditioning": None}, clip=0.1, fit_intercept=False),
    draws=_DRAWS,
)


_ROWS = 64


def _boosted_canaries(adjacency: str) -> OneRun:
    """Return canaries of boosted AdaSSP: rows of norm 1, of which each has entries of its own."""
    places = np.triu_indices(_ROWS + 1)
    own, label = places[0] == places[1], places[1] == _ROWS
    weight, root = np.sqrt(0.6), np.sqrt(2.0)
    added = adjacency == "add_remove_one"

    def run(rows: Rows, stream: RandomStream) -> Floats:
        found = boosted_adassp(
            rows.X, rows.y, 1, _DELTA, adjacency, row_norm=1.0, intercept=False, random_state=stream
        )
        return found.coefficients

    def score(told: list[Answer]) -> Floats:
        """Return the log-likelihood ratio up to a constant: shift times answer over variance, summed."""
        first, *rounds = told
        found = root * weight * first.values[label][:_ROWS]
        found = (found + first.values[own][:_ROWS] if added else 2 * found) / first.deviation**2
        return found + sum((0.3 if added else 0.6) * a.values / a.deviation**2 for a in rounds)

    return heard(run, -1.0, 1.0, score, rows=_ROWS, told=4, present=added)


def secret_rows(name: str, fit: Callable[..., Any], proof: str, *amounts: Any, rounds: bool = False) -> None:
    """Register a fit of least squares on secret rows, under both relations; of one release, or of rounds."""
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
            outputs=transcript(run, result=False) if rounds else redrawn(run),
            one_run=_boosted_canaries(adjacency) if rounds else None,
            covers=(f"confide.training.{name}", *([f"training.engine:{name}"] if amounts else [])),
            draws=1_000 if rounds else _SINGLE,
            quick=100 if rounds else 4_000,
        )


secret_rows("adassp", adassp, "Wang 2018, one joint Gaussian; confide.training.least_squares", _DELTA)
secret_rows(
    "boosted_adassp",
    boosted_adassp,
    "Gaussian rounds on clipped residuals; confide.training.boosting",
    _DELTA,
    rounds=True,
)
secret_rows("noisy_statistics", noisy_statistics, "Laplace noise on moments; confide.training.least_squares")


def _private_parts() -> list[Pair]:
    """Return neighbours of a table of public and private columns: the private part of row 0 changes."""
    found = neighbours.pairs(neighbours.table(6, 2, seed=1), "replace_private_part")
    return [found[1], found[0], *found[2:]]  # with few rows the label is all that is worth its noise


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


_CLIP = 0.1
_EYE = np.eye(_ROWS)


def _hybrid_score(told: list[Answer]) -> Floats:
    """Return the log-likelihood ratio of the private label, and of the steps along its own column."""
    codes = next(a.values for a in told if a.mechanism == "Channel.draw")
    found = 0.5 * np.sign(codes - (codes.min() + codes.max()) / 2)
    return found - sum(
        2 * _CLIP * a.values[:_ROWS] / a.deviation**2 for a in told if a.mechanism == "step_answer"
    )


def _hybrid_canaries(rows: Rows, stream: RandomStream) -> Floats:
    from confide.training.sgd.request import SGDRequest

    asked = SGDRequest(
        1, 0.001, "replace_private_part", (-1, 1), private_bounds=[(-1, 1)], steps=4, clip=_CLIP,
        conditioning="identity", fit_intercept=False, random_state=random_state(stream),
    )  # fmt: skip
    return fit_hybrid(_EYE, np.zeros((_ROWS, 1)), rows.y, asked).model.parameters


promise(
    "training.semi_sensitive",
    Kind.ENGINE,
    1,
    _DELTA,
    "replace_private_part",
    "one Gaussian on all secret moments; confide.training.semi_problem",
    _private_parts,
    run=_semi,
    outputs=redrawn(_semi),
    covers=("confide.training.fit_semi_sensitive", "training.engine:semi_sensitive"),
    draws=_SINGLE,
    quick=4_000,
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
    one_run=heard(_hybrid_canaries, -1.0, 1.0, _hybrid_score, rows=_ROWS, told=8),
    covers=("confide.training.fit_hybrid",),
    draws=1_000,
    quick=40,
)
