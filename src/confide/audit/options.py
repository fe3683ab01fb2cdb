"""Options of engines, losses and estimators beyond those of the claims: what `replay` tries with each claim.

A claim stands for a family. Its statistical layers run one member; replays are cheap, so every registered
option of the family is run as well, on the same neighbours. What a replay shows beside its result (`sides`)
is compared on the way.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from itertools import islice
from typing import Any

import numpy as np

from confide.audit import family, persons, replay, sides
from confide.audit.family.shared import CODES, NUMBERS, POINTS, SECRET, SPARSE, Options
from confide.audit.finding import Finding, Verdict
from confide.audit.legend import many
from confide.audit.registry import Claim, Floats, Pair, Run, random_state
from confide.mechanisms import RandomStream
from confide.pipeline import SparseClassifier, SparseRegressor
from confide.prediction import CertifiedClassifier
from confide.privacy import exact
from confide.selection import SubsetProblem, draw
from confide.training import (
    LabelPrivatizer,
    PrivateClassifier,
    PrivateRegressor,
    WeightedLLPRegressor,
    adassp,
    noisy_statistics,
)

_QUERIES = np.array([[0.05, 0.0], [0.0, 0.1], [-0.2, -0.3], [0.6, 0.2], [1.0, -1.0]])


def _fitted(make: Callable[..., Any], base: Options, read: Callable[[Any], Any]) -> Callable[[Options], Run]:
    def with_options(options: Options) -> Run:
        def run(rows: Any, stream: RandomStream) -> Any:
            return read(make(**{**base, **options}, random_state=random_state(stream)).fit(rows.X, rows.y))

        return run

    return with_options


def _outputs(fitted: Any) -> Floats:
    """Return what a model of two columns shows at three public points."""
    name = "decision_function" if hasattr(fitted, "decision_function") else "predict"
    return np.ravel(getattr(fitted, name)(POINTS))


def _coefficients(fitted: Any) -> Floats:
    return np.concatenate([np.ravel(fitted.coef_), np.ravel(fitted.intercept_)])


_STEPS: Options = {"engine": "dpsgd", "steps": 4}

_regressor = _fitted(PrivateRegressor, NUMBERS, _outputs)
_classifier = _fitted(PrivateClassifier, CODES, _outputs)
_sparse = _fitted(SparseRegressor, {**SPARSE, "target_bounds": (-1, 1)}, _coefficients)
_sparse_classes = _fitted(SparseClassifier, {**SPARSE, "classes": [-1.0, 1.0]}, _coefficients)
_bags = _fitted(WeightedLLPRegressor, NUMBERS, _outputs)


def _labels(options: Options) -> Run:
    def run(label: Any, stream: RandomStream) -> Any:
        made = LabelPrivatizer(**{"epsilon": 1, **options}, random_state=random_state(stream))
        return made.fit_transform(np.array([label, 0.0, 1.0, 1.0]))

    return run


def _selected(options: Options) -> Run:
    how = {"mechanism": "exponential", "loss": "squared", "adjacency": "replace_one", "size": 2, **options}
    bound = {} if how["loss"] in ("hinge", "logistic") else {"target_bound": 1.0}

    def run(rows: Any, stream: RandomStream) -> Any:
        y = rows.y if bound else np.where(rows.y > 0, 1.0, -1.0)
        problem = SubsetProblem(rows.X, y, how["size"], how["loss"], feature_bound=1.0, **bound)
        return np.array(draw(problem, how["mechanism"], 1, how["adjacency"], random_state=stream))

    return run


def _certified(options: Options) -> Run:
    given = dict(options)
    asked = {name: given.pop(name) for name in ("release", "delta") if name in given}
    base: Options = {"classes": [-1.0, 1.0], "feature_bounds": (-1, 1)}

    def run(table: Any, stream: RandomStream) -> Any:
        rows, query = table
        model = CertifiedClassifier(**{**base, **given}).fit(rows.X, rows.y)
        told = model.answer(_QUERIES[query:], 1, **asked, random_state=random_state(stream))
        return np.ma.filled(np.ma.asarray(told, dtype=np.float64), -9.0)

    return run


def _moments(fit: Callable[..., Any], adjacency: str) -> Callable[[Options], Run]:
    def with_options(options: Options) -> Run:
        amounts = (1, 0.001) if fit is adassp else (1,)

        def run(rows: Any, stream: RandomStream) -> Any:
            found = fit(rows.X, rows.y, *amounts, adjacency, **options, random_state=stream)
            return np.append(found.coefficients, found.intercept)

        return run

    return with_options


def _grid(**values: tuple[Any, ...]) -> Iterator[Options]:
    """Yield one option changed at a time."""
    for name, choices in values.items():
        yield from ({name: choice} for choice in choices)


_CONDITIONED = ("identity", "spectral", "optimal", ("power", 0.5), ("ridge", 0.1))
_SGD: tuple[Options, ...] = tuple(
    {**_STEPS, **options}
    for options in (
        *_grid(
            optimizer=("adam", "sgd"), clip=(None, 0.1, 1e-6, "auto"), batch_size=(4,), average=(0.0, 0.9),
            learning_rate=(1e3,), fit_intercept=(False,), switch=(1, 0.5),
        ),
        {"conditioning": "spectral", "switch": "anneal"},
        {"model": "mlp", "hidden": (3,), "activation": "tanh"},
        {"model": "mlp", "hidden": (3, 2), "optimizer": "sgd"},
        {"model": "fm", "rank": 1, "optimizer": "sgd"},
    )
)  # fmt: skip
_SELECTIONS = tuple(
    {"mechanism": mechanism, "loss": loss}
    for mechanism in ("exponential", "permute_and_flip", "top_r")
    for loss in ("squared", "huber", "quantile", "hinge", "logistic")
)
#: Of answers by ERM, under every relation.
_ANSWERS: tuple[Options, ...] = (
    *_grid(release=("response", "cauchy", "global")),
    {"members": 3, "ridge": 1.0},
    *({"release": name, "delta": 0.01} for name in ("laplace", "ptr")),
    # So small that no replay meets what delta allows: an answer of class at distance 0, which may differ.
    {"release": "sparse_vector", "delta": 1e-9},
)
_CERTIFICATES: tuple[Options, ...] = (
    *_ANSWERS,
    {"certificate": "votes", "neighbours": 3},
    {"certificate": "ball"},
    {"certificate": "interval", "k_max": 16, "hyperparameters": {"learning_rate": 0.5, "clip": 0.1}},
)

#: Claim -> (how a run is made of options, the options).
_FAMILIES: dict[str, tuple[Callable[[Options], Run], tuple[Options, ...]]] = {
    "training.closed_form.spectral": (
        lambda options: _regressor({"engine": "closed_form", **options}),
        tuple(
            _grid(conditioning=_CONDITIONED, leverage=(0.5, 1), shrinkage=(False,), fit_intercept=(False,))
        ),
    ),
    "training.rounds": (
        lambda options: _regressor({"engine": "rounds", **options}),
        tuple(_grid(leverage=(0.5, 1), shrinkage=(False,), fit_intercept=(False,))),
    ),
    "training.dpsgd.linear": (_regressor, _SGD),
    "training.dpsgd.classes": (_classifier, (*_SGD[:8], {**_STEPS, "classes": [0, 1, 2]})),
    "training.closed_form.classes": (
        lambda options: _classifier({"engine": "closed_form", **options}),
        ({"classes": [0, 1, 2]}, *_grid(leverage=(1,), shrinkage=(False,), fit_intercept=(False,))),
    ),
    "training.randomized_response": (
        lambda options: _classifier({"engine": "randomized_response", **options}),
        ({"delta": 0, "classes": [0, 1, 2]}, {}),
    ),
    "training.dpsgd.secret": (
        lambda options: _regressor({**SECRET, **options}),
        # Without a clip nothing bounds the gradient of a secret row: refused.
        tuple(options for options in _SGD[:12] if options.get("clip", "auto") is not None),
    ),
    "training.adassp.replace_one": (
        _moments(adassp, "replace_one"), ({"row_norm": 0.5}, {"intercept": False}),
    ),
    "training.adassp.add_remove_one": (
        _moments(adassp, "add_remove_one"), ({"row_norm": 0.5}, {"intercept": False}),
    ),
    "training.noisy_statistics.replace_one": (
        _moments(noisy_statistics, "replace_one"), ({"intercept": False},),
    ),
    "labels.rounding": (
        _labels,
        (
            {"method": "rr_on_bins", "target_bounds": (-1, 3), "cells": 5, "prior": [1, 2, 1, 3, 2]},
            {"method": "rr_on_bins", "target_bounds": (-1, 3), "cells": 4, "prior_share": 0.5},
            {"method": "rr_on_bins", "target_bounds": (-1, 3), "cells": 4, "debias": True},
            {"method": "rounding", "target_bounds": (-1, 3)},
            {"method": "laplace", "target_bounds": (-1, 3)},
            {"method": "gaussian", "target_bounds": (-1, 3), "delta": 0.001},
            {"method": "randomized_response", "classes": [0.0, 1.0, 3.0], "prior": "uniform"},
            {"method": "randomized_response", "classes": [0.0, 1.0, 3.0], "prior_share": 0.3},
        ),
    ),
    "labels.WeightedLLPRegressor": (_bags, tuple(_grid(bag_size=(1, 3), weights=("sign",), bag_seed=(5,)))),
    "pipeline.SparseRegressor.pure": (
        _sparse,
        tuple(
            {"delta": delta, "coefficient_loss": loss}
            for delta in (0, 0.001)
            for loss in ("huber", "quantile", ("quantile", 0.9), ("huber", 0.1), "squared")
        ),
    ),
    "pipeline.SparseClassifier": (
        _sparse_classes,
        tuple(
            {"delta": delta, "coefficient_loss": loss}
            for delta in (0, 0.001)
            for loss in ("logistic", "hinge", "squared")
        ),
    ),
    "selection.exponential.replace_one": (_selected, _SELECTIONS),
    "selection.exponential.add_remove_one": (
        lambda options: _selected({**options, "adjacency": "add_remove_one"}), _SELECTIONS,
    ),
    "prediction.erm": (_certified, _CERTIFICATES),
    "prediction.erm.replace_label": (
        lambda options: _certified({**options, "adjacency": "replace_label"}), _CERTIFICATES,
    ),
    "prediction.erm.add_remove_one": (
        lambda options: _certified({"ridge": 1.0, **options, "adjacency": "add_remove_one"}),
        _ANSWERS,
    ),
}  # fmt: skip


def variants(claim: Claim) -> tuple[Claim, ...]:
    """Return a claim with each option, persons of several rows and the rest of its family; not registered."""
    return (*changed(claim), *persons.variants(claim), *family.variants(claim))


def changed(claim: Claim) -> list[Claim]:
    """Return a claim with one option changed at a time."""
    found = []
    make, options = _FAMILIES.get(claim.name, (_labels, ()))
    for option in options:
        name = ", ".join(f"{key}={value!r}" for key, value in option.items())
        asked = {key: exact(option[key], key) for key in ("epsilon", "delta") if key in option}
        found.append(
            replace(
                claim, name=f"{claim.name}[{name}]", run=make(option), outputs=None, law=None, search=None,
                **asked,
            )
        )  # fmt: skip
    return found


def _tried(claim: Claim, pairs: list[Pair]) -> Iterator[tuple[Claim, list[Pair]]]:
    """Yield variants with as many pairs: the claim's, these with all rows of a person, or their own."""
    yield from ((variant, pairs) for variant in changed(claim))
    owned = persons.variants(claim)
    whole = [persons.several(pair, claim.adjacency) for pair in pairs] if owned else []
    yield from ((variant, whole) for variant in owned)
    yield from ((member, list(islice(member.pairs(), len(pairs)))) for member in family.variants(claim))


def check(claim: Claim, pairs: Iterable[Pair], others: Iterable[Pair]) -> Finding | None:
    """Attack a claim by replay on `pairs`, and every variant of its family on as many as `others`.

    Returns
    -------
    Finding or None
        Broken where any of them is, with the name of the option in its note; None as `replay.check`.
    """
    found = replay.check(claim, pairs)
    if found is None:
        return None
    for variant, tried in _tried(claim, list(others)):
        told = replay.check(variant, tried, kind=sides.Sitting, beside=sides.beside)
        if told is not None:
            whole = replace(found, tried=found.tried + told.tried, seconds=found.seconds + told.seconds,
                            moved=max(found.moved, told.moved))  # fmt: skip
            broken = told.verdict is Verdict.BROKEN and found.verdict is Verdict.HOLDS
            note = f"{variant.name}: {told.note}"
            found = replace(whole, verdict=told.verdict, pair=told.pair, note=note) if broken else whole
    return found


def aside(claim: Claim, count: int | None = None, *, seed: int = 0) -> Finding | None:
    """Attack variants of a claim's family by what their runs show beside their results, each on one pair.

    Parameters
    ----------
    claim : Claim
    count : int, optional
        Drawn by the seed; all by default.
    seed : int

    Returns
    -------
    Finding or None
        None for a claim without variants.
    """
    tried = list(_tried(claim, list(islice(claim.pairs(), 1))))
    if not tried:
        return None
    if count is not None:
        tried = [tried[i] for i in np.random.default_rng(seed).permutation(len(tried))[:count]]
    whole = Finding(claim.name, "side channels", Verdict.HOLDS, note=many(len(tried), "variant"))
    for variant, pairs in tried:
        told = sides.check(variant, pairs, seed=seed)
        whole = replace(whole, tried=whole.tried + told.tried, seconds=whole.seconds + told.seconds)
        if told.verdict is Verdict.BROKEN:
            return replace(whole, verdict=told.verdict, pair=told.pair, note=f"{variant.name}: {told.note}")
    return whole
