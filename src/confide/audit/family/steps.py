"""Members of the families of gradient steps: `dpsgd` and the hybrid."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np

from confide.audit import neighbours
from confide.audit.family.shared import AMOUNTS, CODES, NUMBERS, SECRET, WIDE, Options, amounts, estimator, of
from confide.audit.family.variant import Families, Variant
from confide.audit.neighbours import Rows, table
from confide.audit.registry import Floats, Pair, Run, random_state
from confide.mechanisms import RandomStream
from confide.training import PrivateClassifier, PrivateRegressor, fit_hybrid

_STEPS: Options = {"engine": "dpsgd", "steps": 4}
_WEIGHTS = (2.0, 1.75)
#: Beyond the cap, and below 0.
_BEYOND = (1e6, -1e308)
#: So many steps are made, and so many are priced alone.
_MANY_STEPS, _MOST_STEPS = 1_000, 20_000
#: n is secret: a public number stands for it.
_ADDED: Options = {**SECRET, "adjacency": "add_remove_one", "max_rows": 4}


def _numbers(**options: Any) -> Run:
    return estimator(PrivateRegressor, **{**NUMBERS, **_STEPS, **options})


def _codes(**options: Any) -> Run:
    return estimator(PrivateClassifier, **{**CODES, **_STEPS, **options})


def _request(relation: str, *, secret: bool, weighted: tuple[float, ...] = (), **options: Any) -> Run:
    """Return a run of the engine's own request, for options that no estimator has.

    Weights follow labels: the first for one above 0, the second for another.
    """

    def run(rows: Rows, stream: RandomStream) -> Floats:
        from confide.training.sgd import SGDRequest, fit

        p = rows.X.shape[1]
        asked = SGDRequest(
            **{"epsilon": 1, "delta": 0.001, "steps": 4, "target_bounds": (-1, 1), **options},
            adjacency=relation, private_bounds=[(-1, 1)] * p if secret else (),
            random_state=random_state(stream),
        )  # fmt: skip
        weights = np.where(rows.y > 0, *weighted) if weighted else None
        public, private = (None, rows.X) if secret else (rows.X, None)
        return fit(public, private, rows.y, asked, sample_weight=weights).model.parameters

    return run


def _priced(relation: str, **options: Any) -> Run:
    """Return what the engine says of a fit of very many steps: what they cost, without a step."""

    def run(rows: Rows, stream: RandomStream) -> Floats:
        from confide.training.sgd import SGDRequest

        asked = SGDRequest(
            **{"epsilon": 1, "delta": 0.001, "steps": _MOST_STEPS, "target_bounds": (-1, 1), **options},
            adjacency=relation, private_bounds=() if relation == _LABELS else [(-1, 1)],
            random_state=random_state(stream),
        )  # fmt: skip
        accounting = asked.account(1.0)
        asked.guarantee(accounting)
        return np.array([accounting.multiplier])

    return run


_LABELS = "replace_label"
_MLP: Options = {"model": "mlp", "hidden": (3,)}


def _linear() -> Iterator[Variant]:
    yield from amounts(_numbers)
    yield Variant("a hundred steps", _numbers(steps=100))
    yield Variant("a thousand steps", _numbers(steps=_MANY_STEPS))
    yield Variant(f"{_MOST_STEPS} steps, priced", _priced(_LABELS))
    yield Variant("six columns", _numbers(), of(12, WIDE, _LABELS))
    yield Variant("two blocks", _numbers(), of(4_200, 2, _LABELS))
    yield Variant("momentum, cosine", _request(_LABELS, secret=False, optimizer="sgd", schedule="cosine"))
    yield Variant("weights", _request(_LABELS, secret=False, weighted=_WEIGHTS, weight_cap=2.0))
    yield Variant("weights beyond", _request(_LABELS, secret=False, weighted=_BEYOND, weight_cap=2.0))
    yield Variant(
        "weights, declared bound",
        _request(_LABELS, secret=False, weighted=_WEIGHTS, weight_cap=2.0, clip=None, gradient_bound=0.5),
    )
    # So far from the labels that a weight moves more than a label can.
    run = _request(_LABELS, secret=False, weighted=(2.0, 0.0), weight_cap=2.0, clip=1e3, learning_rate=1e3)
    yield Variant("weights of 0, steps of 1000", run)


def _far_row() -> list[Pair]:
    base = table(100, 2, seed=3)
    return neighbours.pairs(base.replaced(np.array([1e3, -1e3]), 1.0), _LABELS)


def _mlp() -> Iterator[Variant]:
    yield Variant("GELU", _numbers(**_MLP, activation="gelu"))
    yield Variant("embedding", _numbers(**_MLP, embedding=2))
    # Hardly clipped, so that norms decide how far a label moves a sum: each layer's counts.
    for name, options in (("", {"hidden": (3,)}), ("embedding, no layer, ", {"hidden": (), "embedding": 2})):
        yield Variant(f"{name}a far row", _numbers(model="mlp", clip=1e3, **options), _far_row)
    yield Variant("embedding, two layers, GELU", _numbers(model="mlp", hidden=(3, 2), activation="gelu",
                                                           embedding=2))  # fmt: skip
    yield Variant("a hundred steps", _numbers(**_MLP, steps=100))
    yield Variant("weights", _request(_LABELS, secret=False, weighted=_WEIGHTS, weight_cap=2.0, **_MLP))


def _classes() -> Iterator[Variant]:
    yield from amounts(_codes)
    three = of(12, 2, _LABELS, classes=3)
    # Every row is clipped: norms that are too small show.
    small: Options = {"classes": [0, 1, 2], "clip": 0.1}
    yield Variant("three classes, MLP", _codes(model="mlp", hidden=(8,), **small), three)
    yield Variant("three classes, embedding", _codes(**_MLP, **small, embedding=2), three)
    yield Variant("three classes, a hundred steps", _codes(classes=[0, 1, 2], steps=100), three)


#: Amounts that are calibrated fast with batches.
_FAST: Options = dict(zip(("epsilon", "delta"), AMOUNTS[1], strict=True))


def _poisson() -> Iterator[Variant]:
    small: Options = {"epsilon": 0.1, "delta": 1e-12}
    yield Variant("epsilon 0.1, delta 1e-12", _numbers(batch_size=4, **small), epsilon=0.1)
    # Calibrated by Renyi divergences: no other accountant tells so small a delta of so many steps.
    yield Variant("500 steps, epsilon 8, delta 1e-12", _numbers(batch_size=4, steps=500, **_FAST), epsilon=8)


#: Of a secret number of rows; such a rate is calibrated fast.
_MANY: Options = {**_ADDED, "max_rows": 10, "batch_size": 9.5, **_FAST}


#: Rows that turn all parameters to one sign, columns, and a rate after a step of which a row of ones has an
#: output beyond all numbers, and those rows have not.
_TURNING, _COLUMNS, _FAR = 400, 30, 1.6e307


def _overflows(relation: str) -> list[Pair]:
    """Return neighbours of which one has a row whose output overflows after a step."""
    base, row = Rows(np.full((_TURNING, _COLUMNS), 0.1), np.ones(_TURNING)), np.ones(_COLUMNS)
    there = base.replaced(row, 1.0) if relation == "replace_one" else base.added(row, 1.0)
    return [Pair("one row overflows", base, there)]


def _secret() -> Iterator[Variant]:
    def numbers(**given: Any) -> Run:
        return _numbers(**SECRET, **given)

    def added(**given: Any) -> Run:
        return _numbers(**_ADDED, **given)

    yield from amounts(numbers)
    yield Variant("a hundred steps", numbers(steps=100))
    yield Variant("six columns", numbers(), of(4, WIDE, "replace_one"))
    embedded: Options = {**_MLP, "embedding": 2}
    for relation, make in (("replace_one", numbers), ("add_remove_one", added)):
        pairs = of(3, 2, relation)
        for name, options in (("MLP", _MLP), ("embedding", embedded), ("factorisation", {"model": "fm"})):
            yield Variant(f"{relation}, {name}", make(**options), pairs, relation)
        how: Options = {"rows": 4} if make is added else {}
        weighted = _request(relation, secret=True, weighted=_WEIGHTS, weight_cap=2.0, **how)
        yield Variant(f"{relation}, weights", weighted, pairs, relation)
        beyond = _request(relation, secret=True, weighted=_BEYOND, weight_cap=2.0, **how)
        yield Variant(f"{relation}, weights beyond", beyond, pairs, relation)
        name = f"{relation}, {_MOST_STEPS} steps, priced"
        yield Variant(name, _priced(relation, **how), pairs, relation)
        far: Options = {"learning_rate": _FAR, "optimizer": "adam", "steps": 2, **_FAST}
        far |= {"rows": _TURNING} if make is added else {}
        large = _request(relation, secret=True, **far)
        yield Variant(
            f"{relation}, a row overflows", large, partial(_overflows, relation), relation, epsilon=8
        )
    yield Variant("batches", numbers(batch_size=4, **_FAST), of(12, 2, "replace_one"), epsilon=8)
    yield Variant("batches, MLP", numbers(batch_size=4, **_FAST, **_MLP), of(12, 2, "replace_one"), epsilon=8)
    pairs, relation = of(3, 2, "add_remove_one"), "add_remove_one"
    for name, options in (("batches", {}), ("batches, MLP", _MLP)):
        yield Variant(f"added, {name}", _numbers(**_MANY, **options), of(8, 2, relation), relation, epsilon=8)
    yield Variant("added", added(), pairs, relation)
    yield Variant("added, a hundred steps", added(steps=100), pairs, relation)
    yield Variant("added, a thousand steps", added(steps=_MANY_STEPS), pairs, relation)
    yield Variant("added, six columns", added(), of(4, WIDE, relation), relation)
    yield Variant("added, clip 0.1", added(clip=0.1), pairs, relation)


_PUBLIC = table(6, 2, seed=2).X


def _hybrid(share: Any = 0.5, **options: Any) -> Run:
    def run(rows: Rows, stream: RandomStream) -> Floats:
        from confide.training.sgd import SGDRequest

        asked = SGDRequest(
            **{"epsilon": 1, "delta": 0.001, "steps": 4, **options}, adjacency="replace_private_part",
            target_bounds=(-1, 1), private_bounds=[(-1, 1)] * 2, random_state=random_state(stream),
        )  # fmt: skip
        return fit_hybrid(_PUBLIC, rows.X, rows.y, asked, share=share).model.parameters

    return run


def _hybrids() -> Iterator[Variant]:
    yield from amounts(lambda **given: _hybrid(**given))
    yield Variant("a fifth for labels", _hybrid(0.2))
    yield Variant("four fifths for labels", _hybrid(0.8))
    yield Variant("MLP", _hybrid(**_MLP))
    yield Variant("a hundred steps", _hybrid(steps=100))
    yield Variant("batches", _hybrid(batch_size=2, **_FAST), epsilon=AMOUNTS[1][0])


STEPS: Families = {
    "training.dpsgd.linear": tuple(_linear()),
    "training.dpsgd.mlp": tuple(_mlp()),
    "training.dpsgd.classes": tuple(_classes()),
    "training.dpsgd.poisson": tuple(_poisson()),
    "training.dpsgd.secret": tuple(_secret()),
    "training.hybrid": tuple(_hybrids()),
}
