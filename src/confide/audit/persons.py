"""Persons of several rows: releases whose unit is not a row, where all of one person's rows change at once.

The noise then has to cover `ROWS` rows. A declared number of rows (arrays) and a column of ids (tables) take
different ways through the code; both are run, by `replay` on neighbours made of a claim's own: the row that
differs is there `ROWS` times.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from confide.audit.family.shared import CODES, NUMBERS, POINTS, SECRET, SPARSE
from confide.audit.neighbours import Rows, table
from confide.audit.registry import Claim, Floats, Pair, Run, random_state
from confide.mechanisms import RandomStream
from confide.pipeline import SparseClassifier, SparseRegressor
from confide.privacy import Adjacency
from confide.selection import SubsetProblem, gap_condition
from confide.training import (
    PrivateClassifier,
    PrivateRegressor,
    adassp,
    boosted_adassp,
    fit_semi_sensitive,
    noisy_statistics,
    train,
)

#: Rows of a person.
ROWS = 3


def several(pair: Pair, adjacency: Adjacency) -> Pair:
    """Return neighbours in which the row that differs is there `ROWS` times: first, or last if it is added.

    Tables whose other rows are a multiple of `ROWS` keep their persons: rows in turn, three each.
    """
    one, other = pair.here, pair.there
    if adjacency is Adjacency.ADD_REMOVE_ONE:
        return Pair(pair.name, one, _repeated(other, other.y.size - 1, last=True))
    same = [np.array_equal(a, b, equal_nan=True) for a, b in zip(one.X, other.X, strict=True)]
    differs = ~np.array(same) | ((one.y != other.y) & ~(np.isnan(one.y) & np.isnan(other.y)))
    place = int(differs.argmax())
    return Pair(pair.name, _repeated(one, place), _repeated(other, place))


def _repeated(rows: Rows, place: int, *, last: bool = False) -> Rows:
    others = np.delete(np.arange(rows.y.size), place)
    copies = np.full(ROWS, place)
    order = np.concatenate([others, copies] if last else [copies, others])
    return Rows(rows.X[order], rows.y[order])


def _estimator(make: Callable[..., Any], **options: Any) -> Run:
    def run(rows: Rows, stream: RandomStream) -> Floats:
        model = make(**options, max_rows_per_person=ROWS, random_state=random_state(stream))
        model.fit(rows.X, rows.y)
        if hasattr(model, "coef_"):
            return np.append(model.coef_, model.intercept_)
        return np.ravel(model.decision_function(POINTS[:, : rows.X.shape[1]]))

    return run


def _function(fit: Callable[..., Any], adjacency: str, *amounts: Any) -> Run:
    def run(rows: Rows, stream: RandomStream) -> Floats:
        found = fit(rows.X, rows.y, 1, *amounts, adjacency, rows_per_unit=ROWS, random_state=stream)
        return np.append(found.coefficients, found.intercept)

    return run


def _semi(rows: Rows, stream: RandomStream) -> Floats:
    public = np.vstack([*[[[0.9, -0.9]]] * ROWS, table(rows.y.size - ROWS, 2, seed=2).X])
    fitted = fit_semi_sensitive(
        public, rows.X, rows.y, 1, 0.001, target_bounds=(-1, 1), rows_per_unit=ROWS, random_state=stream
    )
    return np.concatenate([[fitted.intercept], np.ravel(fitted.public), np.ravel(fitted.private)])


def _semi_estimator(rows: Rows, stream: RandomStream) -> Floats:
    X = np.hstack([np.vstack([*[[[0.9, -0.9]]] * ROWS, table(rows.y.size - ROWS, 2, seed=2).X]), rows.X])
    model = PrivateRegressor(
        **NUMBERS, engine="semi_sensitive", feature_bounds=(-1, 1), adjacency="replace_private_part",
        public=np.arange(X.shape[1]) < 2, max_rows_per_person=ROWS, random_state=random_state(stream),
    ).fit(X, rows.y)  # fmt: skip
    return np.append(model.coef_, model.intercept_)


def _gap(rows: Rows, stream: RandomStream) -> Floats:
    problem = SubsetProblem(rows.X, rows.y, 1, ridge=0.0, feature_bound=1.0, target_bound=1.0)
    found = gap_condition(problem, epsilon=1, rows_per_unit=ROWS, random_state=random_state(stream))
    return np.array([found.gap, found.holds])


def _table(engine: str, adjacency: str, *, classes: bool = False, levels: int = 0, **options: Any) -> Run:
    """Return a run of `train` on a table of two columns with a column of ids, and maybe one of levels."""
    labels_alone = adjacency == "replace_label"
    role, end = ("public", 3) if labels_alone else ("private", 1)
    label = {"categories": ["0", "1"]} if classes else {"lower": -1, "upper": 1}

    def run(rows: Rows, stream: RandomStream) -> Floats:
        import pandas as pd

        from confide.schema import Table

        names = ["a", "b"][: rows.X.shape[1]]
        frame = pd.DataFrame(rows.X, columns=names).assign(person=np.arange(rows.y.size) // ROWS)
        frame["y"] = [{0.0: "0", 1.0: "1"}.get(y) for y in rows.y] if classes else rows.y
        columns: dict[str, Any] = {name: {"role": role, "lower": -end, "upper": end} for name in names}
        if levels:
            place = (np.nan_to_num(rows.X[:, 0]).clip(-1, 1) + 1) / 2
            frame["c"] = [f"level {at:.0f}" for at in place * (levels - 1)]
            columns["c"] = {"role": role, "categories": [f"level {at}" for at in range(levels)]}
        columns |= {"person": {"role": "id"}, "y": {"role": "label", **label}}
        held = Table.from_frame(frame, {"columns": columns, "table": {"max_rows_per_id": ROWS}})
        told: Any = train(
            held, epsilon=1, delta=0.001, engine=engine, adjacency=adjacency,
            random_state=random_state(stream), **options,
        )  # fmt: skip
        asked = pd.DataFrame(POINTS[:, : len(names)], columns=names)
        if levels:
            asked["c"] = "level 1"
        return np.ravel(getattr(told.model, "decision_function", told.model.predict)(asked)).astype(float)

    return run


_STEPS: dict[str, Any] = {"steps": 4}

#: Claim -> runs of its family, by name.
_FAMILIES: dict[str, dict[str, Run]] = {
    "training.closed_form.spectral": {
        "declared": _estimator(PrivateRegressor, engine="closed_form", **NUMBERS),
        "ids": _table("closed_form", "replace_label"),
        "ids, a column of categories": _table("closed_form", "replace_label", levels=8),
    },
    "training.rounds": {
        "declared": _estimator(PrivateRegressor, engine="rounds", **NUMBERS),
        "ids": _table("rounds", "replace_label"),
        "ids, a column of categories": _table("rounds", "replace_label", levels=8),
    },
    "training.closed_form.classes": {"ids": _table("closed_form", "replace_label", classes=True)},
    "training.dpsgd.linear": {"ids": _table("dpsgd", "replace_label", **_STEPS)},
    "training.dpsgd.mlp": {"ids": _table("dpsgd", "replace_label", model="mlp", hidden=(3,), **_STEPS)},
    "training.dpsgd.classes": {"ids": _table("dpsgd", "replace_label", classes=True, **_STEPS)},
    "training.dpsgd.secret": {
        "ids": _table("dpsgd", "replace_one", **_STEPS),
        "ids, a column of categories": _table("dpsgd", "replace_one", levels=8, **_STEPS),
    },
    "training.objective": {
        "declared": _estimator(PrivateClassifier, engine="objective", **{**CODES, **SECRET, "delta": 0}),
    },
    "training.objective.gaussian": {
        "declared": _estimator(PrivateClassifier, engine="objective", **CODES, **SECRET),
        "ids": _table("objective", "replace_one", classes=True),
    },
    "training.semi_sensitive": {"declared": _semi, "declared, estimator": _semi_estimator},
    "selection.gap_condition": {"declared": _gap},
    "pipeline.SparseRegressor.gaussian": {
        f"declared, {loss}": _estimator(
            SparseRegressor, **SPARSE, delta=0.001, target_bounds=(-1, 1), coefficient_loss=loss
        )
        for loss in ("squared", "huber")
    },
    "pipeline.SparseClassifier": {
        f"declared, {loss}": _estimator(
            SparseClassifier, **SPARSE, classes=[-1.0, 1.0], coefficient_loss=loss
        )
        for loss in ("squared", "logistic")
    },
    **{
        f"training.{fit.__name__}.{adjacency}": {
            "declared": _function(fit, adjacency, *amounts),
            **({"ids": _table(fit.__name__, adjacency)} if amounts else {}),
        }
        for fit, amounts in ((adassp, (0.001,)), (boosted_adassp, (0.001,)), (noisy_statistics, ()))
        for adjacency in ("replace_one", "add_remove_one")
    },
}


def variants(claim: Claim) -> tuple[Claim, ...]:
    """Return a claim with persons of `ROWS` rows, whose pairs are its own with that many; not registered."""

    def pairs() -> list[Pair]:
        return [several(pair, claim.adjacency) for pair in claim.pairs()]

    return tuple(
        replace(
            claim, name=f"{claim.name}[{ROWS} rows a person, {name}]", pairs=pairs, run=run, outputs=None,
            law=None, search=None,
        )
        for name, run in _FAMILIES.get(claim.name, {}).items()
    )  # fmt: skip
