"""Claims of `confide.training.labels`: one label made private, and the estimators that are fitted on them."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np

from confide.audit import neighbours
from confide.audit.exact import certain
from confide.audit.neighbours import Rows
from confide.audit.registry import Floats, Kind, Law, Pair, promise, random_state
from confide.audit.views import redrawn, transcript
from confide.mechanisms import RandomStream
from confide.training import (
    LabelPrivatizer,
    PrivateLabelClassifier,
    PrivateLabelRegressor,
    WeightedLLPRegressor,
)
from confide.training.labels.labels import Privatizer
from confide.training.labels.request import METHODS

_EPSILON = Fraction(1)
_CLASSES = (0.0, 1.0, 2.0)
_ALL_CLASSES = tuple(
    Pair(f"{a} against {b}", a, b)
    for a, b in ((0.0, 1.0), (0.0, 2.0), (1.0, 2.0), (0.0, np.nan), (2.0, -9.0))
)
_ENDS = (
    Pair("ends", -1.0, 3.0),
    Pair("end and middle", -1.0, 1.0),
    Pair("beyond the bounds", -1e308, 1e6),
    Pair("missing", np.nan, 3.0),
)


def one_label(name: str, method: Privatizer, proof: str, pairs: tuple[Pair, ...], **how: Any) -> None:
    """Register a privatiser, released on a single label."""

    def outputs(label: Any, count: int, stream: RandomStream) -> Floats:
        return np.asarray(method.release(np.full(count, label), stream).values, dtype=np.float64)

    promise(
        f"labels.{name}",
        Kind.MECHANISM,
        *method.amounts,
        "replace_label",
        proof,
        lambda: pairs,
        run=lambda label, stream: outputs(label, 1, stream),
        outputs=outputs,
        **how,
    )


def build(method: str, **options: Any) -> Any:
    """Return a privatiser as its estimator builds it."""
    delta = Fraction(1, 1000) if method == "gaussian" else Fraction(0)
    return METHODS[method][0](_EPSILON, delta, options)


_RESPONSE = build("randomized_response", classes=list(_CLASSES), prior=[0.5, 0.3, 0.2])
_UNIFORM = build("randomized_response", classes=list(_CLASSES), prior="uniform")
_BINS = build("rr_on_bins", target_bounds=(-1, 3), cells=5, prior=[1, 2, 1, 3, 2])
_ROUNDED = build("rounding", target_bounds=(-1, 3))


def _response(method: Any) -> Callable[[Any], Law]:
    def law(label: float) -> Law:
        top, channel = method.response(method.prior)
        place = {int(code): j for j, code in enumerate(top)}
        own = place.get(int(method.codes([label])[0]), -1)
        return certain({_CLASSES[code]: channel.probability(own, j) for j, code in enumerate(top)})

    return law


def _binned(label: float) -> Law:
    bins, channel, outputs = _BINS.response(_BINS.prior)
    own = int(bins.codes()[_BINS.codes([label])[0]])
    return certain({float(z): channel.probability(own, j) for j, z in enumerate(outputs)})


def _rounded(label: float) -> Law:
    low, high = _ROUNDED.outputs
    up = _ROUNDED.probability(int(_ROUNDED.units([label])[0]))
    return certain({float(low): 1 - up, float(high): up})


one_label(
    "randomized_response.prior",
    _RESPONSE,
    "Ghazi et al. 2021, RRTop-k; confide.training.labels.channel",
    _ALL_CLASSES,
    law=_response(_RESPONSE),
    covers=("labels.method:randomized_response", "event:randomized_response"),
)
one_label(
    "randomized_response.uniform",
    _UNIFORM,
    "Warner 1965, k classes; confide.training.labels.channel",
    _ALL_CLASSES,
    law=_response(_UNIFORM),
)
one_label(
    "rr_on_bins",
    _BINS,
    "Ghazi et al. 2022, theorem 3; confide.training.labels.binned",
    _ENDS,
    law=_binned,
    covers=("labels.method:rr_on_bins", "confide.training.rr_on_bins"),
)
one_label(
    "rounding",
    _ROUNDED,
    "Duchi, Jordan & Wainwright 2018, one dimension; confide.training.labels.rounding",
    _ENDS,
    law=_rounded,
    covers=("labels.method:rounding",),
)
for _method, _proof in (("laplace", "Ghosh et al. 2009"), ("gaussian", "Balle & Wang 2018, theorem 8")):
    one_label(
        _method,
        build(_method, target_bounds=(-1, 3)),
        f"{_proof}; confide.training.labels.additive",
        _ENDS,
        covers=(f"labels.method:{_method}",),
    )


_TABLE = neighbours.table(8, 2)
_COUNTED = Rows(_TABLE.X, np.array([0.0, 0.0, 1.0, 1.0, 1.0, 2.0, 2.0, 0.0]))


#: Classes as frequent that their released counts are told from noise: all three stay in the channel.
_FREQUENT = Rows(neighbours.table(240, 2).X, (np.arange(240) % 3).astype(np.float64))


def estimator(
    name: str,
    make: Callable[[int | None], Any],
    read: Callable[[Any], Any],
    delta: Any,
    proof: str,
    single: bool = False,
    **how: Any,
) -> None:
    """Register an estimator that is fitted on private labels; `single` says that a fit is one release."""
    base = how.pop("base", _TABLE)
    ends = how.pop("ends", (-1.0, 1.0))

    def run(rows: Rows, stream: RandomStream) -> Any:
        return read(make(random_state(stream)).fit(rows.X, rows.y))

    promise(
        f"labels.{name}",
        Kind.ESTIMATOR,
        _EPSILON,
        delta,
        "replace_label",
        proof,
        lambda: neighbours.pairs(base, "replace_label", labels=ends),
        run=run,
        outputs=how.pop("outputs", redrawn(run) if single else transcript(run, result=False)),
        covers=(f"confide.training.{name.partition('.')[0]}", *how.pop("covers", ())),
        draws=how.pop("draws", 200_000 if single else 5_000),
        quick=how.pop("quick", 4_000 if single else 150),
        **how,
    )


for _name, _how, _proof in (
    (
        "LabelPrivatizer",
        {"method": "randomized_response", "classes": list(_CLASSES)},
        "released class counts, then RRTop-k; confide.training.labels.randomized_response",
    ),
    (
        "LabelPrivatizer.rr_on_bins",
        {"method": "rr_on_bins", "target_bounds": (0, 2), "cells": 5},
        "released counts of cells, then Ghazi et al. 2022; confide.training.labels.binned",
    ),
):

    def _privatise(rows: Rows, stream: RandomStream, how: dict[str, Any] = _how) -> Any:
        shell = LabelPrivatizer(**how, epsilon=1, prior_share=0.5, random_state=random_state(stream))
        return shell.fit_transform(rows.y)

    promise(
        f"labels.{_name}",
        Kind.ESTIMATOR,
        1,
        0,
        "replace_label",
        _proof,
        lambda: neighbours.pairs(_COUNTED, "replace_label", labels=(0.0, 2.0)),
        run=_privatise,
        outputs=transcript(_privatise, result=False),
        covers=("confide.training.LabelPrivatizer",),
        draws=6_000,
        quick=200,
    )


def _linear() -> Any:
    from sklearn.linear_model import LinearRegression

    return LinearRegression()


def _trees() -> Any:
    from sklearn.tree import DecisionTreeClassifier

    return DecisionTreeClassifier(random_state=0)


estimator(
    "PrivateLabelRegressor",
    lambda seed: PrivateLabelRegressor(
        _linear(), "rr_on_bins", 1, target_bounds=(-1, 1), cells=5, random_state=seed
    ),
    lambda fitted: fitted.predict(_TABLE.X[:3]),
    0,
    "post-processing of rr_on_bins with released counts",
)
estimator(
    "PrivateLabelClassifier",
    lambda seed: PrivateLabelClassifier(_trees(), 1, classes=list(_CLASSES), random_state=seed),
    lambda fitted: fitted.predict(_FREQUENT.X[:3]),  # each of these rows is a leaf: its private label
    0,
    "post-processing of randomised response with released counts",
    base=_FREQUENT,
    ends=(0.0, 2.0),
    outputs=None,
)
estimator(
    "WeightedLLPRegressor",
    lambda seed: WeightedLLPRegressor(1, 0.001, target_bounds=(-1, 1), bag_size=2, random_state=seed),
    lambda fitted: fitted.predict(_TABLE.X[:3]),
    Fraction(1, 1000),
    "Gaussian noise on weighted sums of bags; confide.training.labels.llp",
    single=True,
)
