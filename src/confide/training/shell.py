"""What the estimators of this room share: from parameters to a request, from arrays to a fit."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from confide.errors import DataError, ParameterError, UncertifiedWarning, UnsupportedError
from confide.privacy import Adjacency
from confide.training.columns import bounds_of
from confide.training.engines import ONLY_PRIVATE, USES_PRIVATE, default_engine
from confide.training.engines.ask import (
    SGD_OPTIONS,
    WHOLE_ROWS,
    Ask,
    Charge,
    Engine,
    Job,
    SecretLabels,
    changed_options,
    given_delta,
)
from confide.training.engines.models import affine
from confide.training.problem import check_adjacency


def refuse_more(estimator: Any, refused: dict[str, Any]) -> None:
    """Refuse further arguments of `fit`: weights scale a person's influence."""
    if refused:
        raise TypeError(
            f"{type(estimator).__name__}.fit got {', '.join(map(repr, sorted(refused)))}. Weights scale a "
            "person's influence and have no public cap here: leave them out."
        )


def ask_of(estimator: Any, count: int, *, target_bounds: Any, classes: Any) -> Ask:
    """Return what an estimator asks for, from its parameters alone.

    Raises
    ------
    ParameterError, UnsupportedError
    """
    relation = Adjacency.parse(estimator.adjacency)
    bound = estimator.max_rows_per_person
    if not isinstance(bound, int | np.integer) or isinstance(bound, bool) or bound < 1:
        raise ParameterError(f"The 'max_rows_per_person' parameter is {bound!r}.", "Pass an integer >= 1.")
    public = estimator._has_public(relation)
    delta = given_delta(estimator.epsilon, estimator.delta, estimator.nonprivate)
    pure = delta == 0 and not estimator.nonprivate
    engine = estimator.engine or default_engine(
        classes=count, model=estimator.model, adjacency=relation, public=public, pure=pure
    )
    private = relation in WHOLE_ROWS or not (isinstance(estimator.public, str) and estimator.public == "all")
    if engine in USES_PRIVATE and private and estimator.feature_bounds is None:
        raise ParameterError(
            f"Under {relation.value!r} engine {engine!r} uses private columns; 'feature_bounds' is None.",
            "Pass bounds (lo, hi) of the private columns from knowledge; they are never read from the data.",
        )
    if engine in ONLY_PRIVATE and public:
        raise UnsupportedError(
            f"The engine {engine!r} reads no column as public.",
            "Pass adjacency='replace_one', or an engine that uses public columns.",
        )
    rows = estimator.max_rows
    if rows is not None and (isinstance(rows, bool) or not isinstance(rows, int | np.integer) or rows < 1):
        raise ParameterError(f"The 'max_rows' parameter is {rows!r:.80}.", "Pass an integer >= 1, or None.")
    if engine == "dpsgd" and relation is Adjacency.ADD_REMOVE_ONE and rows is None:
        raise ParameterError(
            "The 'max_rows' parameter is None; under 'add_remove_one' the number of rows is secret.",
            "Pass a public bound on the number of rows.",
        )
    if relation not in WHOLE_ROWS:
        check_adjacency(relation, ())
    given = {name: getattr(estimator, name) for name in SGD_OPTIONS}
    return Ask(
        engine,
        estimator.epsilon,
        delta if estimator.delta is None else estimator.delta,
        relation,
        target_bounds,
        classes,
        estimator.model,
        estimator.conditioning,
        estimator.leverage,
        estimator.shrinkage,
        estimator.fit_intercept,
        changed_options(given),
        None if rows is None else int(rows),
        int(bound),
        "row" if bound == 1 else "person",
        "",
        () if bound == 1 else (f"at most {bound} rows a person",),
        estimator.ledger is not None,
        estimator.random_state,
        estimator.nonprivate,
    )


def fit_engine(
    estimator: Any, engine: Engine, ask: Ask, X: Any, labels: Callable[[int], SecretLabels]
) -> None:
    """Read what is public of X, run an engine, and set what every estimator has."""
    matrix, private, columns = estimator._both_parts(X, reset=True, relation=ask.adjacency)
    uses = ask.engine in USES_PRIVATE
    bounds = bounds_of(estimator.feature_bounds, columns, estimator._names(columns.size)) if uses else ()
    job = Job(matrix, private, labels(matrix.shape[0]), bounds)
    if matrix.shape[0] == 0 and ask.adjacency is not Adjacency.ADD_REMOVE_ONE:
        raise DataError("X has no rows.", "Pass at least one row.")
    result = engine.fit(job, Charge(estimator.ledger, label=type(estimator).__name__))
    names = [str(name) for name in estimator._names(columns.size)]
    order = [*np.flatnonzero(columns), *(np.flatnonzero(~columns) if bounds else ())]
    known = replace(result.model, columns=tuple(names[place] for place in order))
    estimator.result_ = replace(result, model=known)
    estimator.guarantee_ = estimator.result_.guarantee
    estimator.columns_ = columns
    estimator.uses_private_ = uses and len(bounds) > 0


def coefficients_of(estimator: Any) -> tuple[Any, Any]:
    """Return intercepts [K] and coefficients [K, p] of a linear model; 0 for columns that it left out."""
    intercept, public, private = affine(estimator.result_.model)
    used = estimator.columns_
    coefficients = np.zeros((intercept.size, used.size))
    coefficients[:, used] = public
    if private.shape[1]:
        coefficients[:, ~used] = private
    return intercept, coefficients


def parts_of(estimator: Any, X: Any) -> tuple[Any, Any]:
    """Return the public and the private columns that a fitted model reads."""
    check_is_fitted(estimator, "result_")
    relation = estimator.guarantee_.adjacency
    matrix, private, _ = estimator._both_parts(
        X, reset=False, relation=relation if relation in WHOLE_ROWS else None
    )
    held = getattr(estimator.result_.model, "names", None)  # a `LinearModel` reads a matrix of no columns too
    return (
        matrix if matrix.shape[1] or held is not None else None,
        private.to_numpy() if estimator.uses_private_ else None,
    )


def warn_of_score(estimator: Any) -> None:
    """Warn that a score protects nobody."""
    warnings.warn(
        UncertifiedWarning(
            f"{type(estimator).__name__}.score reads labels without privacy and without a charge: use it on "
            "public labels only."
        ),
        stacklevel=3,
    )


def forget(estimator: Any) -> None:
    """Leave nothing half-fitted, and no older model under new parameters."""
    for name in [name for name in vars(estimator) if name.endswith("_") and not name.startswith("_")]:
        delattr(estimator, name)
