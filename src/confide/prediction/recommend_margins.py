"""A recommendation without any rows: from the margins that are expected."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from confide.errors import ParameterError
from confide.prediction.erm import StronglyConvexERM
from confide.prediction.laws import class_count, whole
from confide.prediction.recommend_price import RELEASES
from confide.prediction.recommendation import Asked, Recommendation, Trial
from confide.privacy import Adjacency


def recommend_from_margins(
    profile: Mapping[float, ArrayLike],
    *,
    epsilon: Any,
    delta: Any = 0,
    queries: int,
    rows: int,
    classes: Any = 2,
    model: str | None = None,
    adjacency: Adjacency | str = "replace_one",
    releases: Sequence[str] = RELEASES,
) -> Recommendation:
    """Recommend regularisation and release of "erm" from expected margins, without rows.

    **The margins must be public**: from a publication, from simulated rows, or assumed. Those of a private
    model are private.

    Parameters
    ----------
    profile : mapping of alpha to array-like [m]
        For each ridge of the mean objective the margins of m equally likely queries, such as quantiles of an
        assumed distribution: |logit| / ||x|| (for more than two classes the difference of the two largest
        logits over ||x||), with x in the unit ball (`confide.prediction.rows.UnitRows`), and negative where
        the class is wrong.
    epsilon, delta : amount
        Total of all answers.
    queries : int
    rows : int
        Of the private table: public, or a public guess.
    classes : int or sequence
    model : {"logistic", "huber_hinge", "softmax"}, optional
    adjacency : Adjacency or str
    releases : sequence of str

    Returns
    -------
    Recommendation
        Its `certifier` still needs ``feature_bounds=``.

    Notes
    -----
    k is the largest integer with k s < margin, s = g / (alpha n), g = 2 for a replacement and 1 for an
    addition or removal, twice that for softmax: the plain bound of `StronglyConvexERM`, without the solver's
    tau. The curvature version certifies more, so accuracies here are low rather than high.

    Examples
    --------
    >>> from statistics import NormalDist
    >>> margins = {0.1: NormalDist(0.3, 0.2).quantiles(200), 1.0: NormalDist(0.05, 0.04).quantiles(200)}
    >>> advice = recommend_from_margins(margins, epsilon=1, queries=10, rows=5000)
    >>> advice.best.settings["alpha"], round(advice.best.accuracy, 2)
    (0.1, 0.93)
    """
    names = list(range(class_count(classes))) if isinstance(classes, int) else list(classes)
    loss = model or ("logistic" if len(names) == 2 else "softmax")
    asked = Asked(
        epsilon, delta, whole(queries, "queries", 1), len(names), Adjacency.parse(adjacency), tuple(releases),
        whole(rows, "rows", 1),
    )  # fmt: skip
    asked.check()
    trials = []
    for alpha, margins in profile.items():
        settings = {"certificate": "erm", "model": loss, **asked.strength(alpha)}
        reference = StronglyConvexERM(
            float(alpha) * asked.rows, len(names), loss=loss, adjacency=asked.adjacency
        )
        step = reference.gradient_shift * (2.0 if loss == "softmax" else 1.0) / reference.ridge
        signed = _margins(margins)
        k = np.maximum(np.ceil(np.minimum(np.abs(signed) / step, 2.0**53)) - 1, 0).astype(np.int64)
        trials.append(Trial(settings, signed > 0, k))
    if not trials:
        raise ParameterError("The 'profile' is empty.", "Pass margins for at least one alpha.")
    return Recommendation(asked, trials, names)


def _margins(values: ArrayLike) -> np.ndarray:
    try:
        signed = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError):
        signed = np.zeros((0, 0))
    if signed.ndim != 1 or signed.size == 0 or not np.isfinite(signed).all():
        raise ParameterError(
            "The margins of the 'profile' are no row of finite numbers.", "Pass an array for each alpha."
        )
    return signed
