"""Methods of training_paper.py, one function each: fit on a training part, predict on other rows.

Every function takes (train, X, epsilon, run, parameters) and returns predictions [m]; `run` seeds the noise.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np

import _training_paper_sgd as sgd
from confide.training import PrivateLabelRegressor, PrivateRegressor, WeightedLLPRegressor, adassp
from confide.training.hybrid import fit_hybrid
from confide.training.sgd import SGDRequest
from training_data import Dataset

DELTA = 1e-6


def private_regressor(train: Dataset, X, epsilon, run, parameters, engine: str):
    model = PrivateRegressor(
        epsilon, DELTA, target_bounds=train.bounds, engine=engine, random_state=run,
        nonprivate=math.isinf(epsilon),
    )  # fmt: skip
    return model.fit(train.X, train.y).predict(X)


def private_mean(train: Dataset, X, epsilon, run, parameters):
    """The closed form of a model with an intercept alone."""
    model = PrivateRegressor(
        epsilon, DELTA, target_bounds=train.bounds, engine="closed_form", shrinkage=False, random_state=run,
        nonprivate=math.isinf(epsilon),
    )  # fmt: skip
    return model.fit(np.zeros((len(train.y), 1)), train.y).predict(np.zeros((len(X), 1)))


def least_squares(train: Dataset, X, epsilon, run, parameters):
    """Not private."""
    mean = train.X.mean(axis=0)
    rows = np.column_stack([train.X - mean, np.ones(len(train.y))])
    beta, *_ = np.linalg.lstsq(rows, train.y, rcond=1e-10)
    return np.column_stack([X - mean, np.ones(len(X))]) @ beta


def private_labels(train: Dataset, X, epsilon, run, parameters, method: str, **options):
    """Any regressor on private labels; here standardised ridge, its penalty chosen on them."""
    delta = DELTA if method == "gaussian" and not math.isinf(epsilon) else 0
    model = PrivateLabelRegressor(
        None, method, epsilon, delta, target_bounds=train.bounds, random_state=run,
        nonprivate=math.isinf(epsilon), **options,
    )  # fmt: skip
    return model.fit(train.X, train.y).predict(X)


@dataclass(frozen=True)
class BagSize:
    bag_size: int = 8


def weighted_llp(train: Dataset, X, epsilon, run, parameters):
    size = (parameters or BagSize()).bag_size
    model = WeightedLLPRegressor(
        epsilon, DELTA, target_bounds=train.bounds, bag_size=size, random_state=run,
        nonprivate=math.isinf(epsilon),
    )  # fmt: skip
    return model.fit(train.X, train.y).predict(X)


def tuned_llp(method: str, epsilon: float, parts, quick: bool) -> BagSize:
    """Return the bag size with the least test error."""

    def error(size: int) -> float:
        guesses = [weighted_llp(a, b.X, epsilon, i, BagSize(size)) for i, (a, b) in enumerate(parts)]
        return float(np.mean([np.mean((g - b.y) ** 2) for g, (_, b) in zip(guesses, parts, strict=True)]))

    return BagSize(min((1, 8) if quick else (1, 2, 4, 8, 16, 32, 64), key=error))


def full_privacy(train: Dataset, X, epsilon, run, parameters, fit: Callable):
    """Methods that protect the features too, under REPLACE_ONE, within declared bounds of cells and rows."""
    low, high = train.bounds
    middle, half = (low + high) / 2, (high - low) / 2
    cell, row = feature_bounds(train)
    found = fit(
        train.X, (train.y - middle) / half, epsilon, DELTA, "replace_one", feature_bound=cell, row_norm=row,
        random_state=run,
    )  # fmt: skip
    return middle + half * np.clip(X @ found.coefficients + found.intercept, -1, 1)


def feature_bounds(train: Dataset) -> tuple[float, float]:
    """Return bounds of a cell and of a row's norm: of the encoding, or four deviations of the synthetic law.

    An encoded column of the table has norm at most 1, whether it is a number or one of its levels.
    """
    if train.name.startswith("synthetic"):
        return 4.0, 4.0 * math.sqrt(sum(j**-2 for j in range(1, train.X.shape[1] + 1)))
    return 1.0, math.sqrt(len({name.split("=")[0] for name in train.features}))


def boosted_adassp(*arguments, **options):
    from confide.training.boosting import boosted_adassp as fit

    return fit(*arguments, **options)


def hybrid(train: Dataset, X, epsilon, run, parameters):
    """Half of epsilon for the labels of the warm start, half for the engine's default steps from there."""
    request = SGDRequest(epsilon, DELTA, target_bounds=train.bounds, random_state=run)
    return fit_hybrid(train.X, None, train.y, request).model.predict(X)


METHODS: dict[str, Callable] = {
    "rounds": partial(private_regressor, engine="rounds"),
    "closed_form": partial(private_regressor, engine="closed_form"),
    "cond_dp": partial(sgd.fit, kind="spectral"),
    "dp_sgd": partial(sgd.fit, kind="identity"),
    "rr_on_bins": partial(private_labels, method="rr_on_bins", debias=False),
    "rr_debiased": partial(private_labels, method="rr_on_bins", debias=True),
    "rounding": partial(private_labels, method="rounding"),
    "gaussian_labels": partial(private_labels, method="gaussian"),
    "weighted_llp": weighted_llp,
    "adassp": partial(full_privacy, fit=adassp),
    "boosted_adassp": partial(full_privacy, fit=boosted_adassp),
    "hybrid": hybrid,
    "mean": private_mean,
    "least_squares": least_squares,
}
TUNED: dict[str, Callable] = {"cond_dp": sgd.tuned, "dp_sgd": sgd.tuned, "weighted_llp": tuned_llp}
#: Methods that exist at epsilon = inf alone (True), or only below it (False).
AT_INFINITY = {"least_squares": True, "adassp": False, "boosted_adassp": False, "hybrid": False}
