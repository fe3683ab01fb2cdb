"""What one run may spend, how many runs there are, what candidates promise: all without a private cell."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from confide.errors import DataError, ParameterError, UnsupportedError
from confide.mechanisms import RandomStream, is_certified, weighted_choice
from confide.mechanisms.stream import stream as random_stream
from confide.privacy import SEEDED, UNRECORDED, Adjacency, Event, Guarantee, gaussian_sigma
from confide.privacy.exact import round_down
from confide.privacy.losses import total_loss
from confide.privacy.random_stopping import Stopping, gaussian_profile
from confide.tune.scoring import Rows

#: Rows of the rehearsal at most.
_REHEARSAL = 64
#: Digits of a run's epsilon.
_DIGITS = 8


@dataclass(frozen=True)
class Price:
    """What one run may spend.

    Attributes
    ----------
    kind : str
        ``"gaussian"``, ``"pure"`` or ``"approximate"``: which bound on the whole selection is used.
    epsilon, delta : Fraction
        Of a run.
    """

    kind: str
    epsilon: Fraction
    delta: Fraction

    @property
    def event(self) -> Event:
        """Bound on what a fit or a score of this price does."""
        if self.kind == "gaussian":
            return Event.of("gaussian", noise_multiplier=gaussian_sigma(self.epsilon, self.delta, 1.0))
        if self.kind == "pure":
            return Event.of("pure", epsilon=str(self.epsilon))
        return Event.of("approximate", epsilon=str(self.epsilon), delta=str(self.delta))


def price_of_run(law: Stopping, kind: str, epsilon: Fraction, delta: Fraction) -> Price:
    """Return the largest budget of a run with which the whole selection stays within (epsilon, delta).

    Raises
    ------
    ParameterError
        If there is none.
    """
    share = delta if kind != "approximate" else round_down(float(delta) / law.mean * (1 - 1e-12))
    if law.gamma == 1:
        return Price(kind, epsilon, delta)

    def fits(amount: Fraction) -> bool:
        if kind == "gaussian":
            mu = 1.0 / gaussian_sigma(amount, share, 1.0) * (1 + 4e-16)
            return law.delta(float(epsilon) * (1 - 4e-16), gaussian_profile(mu)) <= float(delta) * (1 - 4e-16)
        if kind == "pure":
            return law.pure(amount) <= epsilon
        total = law.approximate(amount, share)
        return total[0] <= epsilon and total[1] <= delta

    low, high = 0.0, float(epsilon)
    while high - low > 1e-9 * high:
        middle = (low + high) / 2
        low, high = (middle, high) if fits(round_down(middle, digits=_DIGITS)) else (low, middle)
        if high < 1e-6 * float(epsilon):
            raise ParameterError(
                f"No run fits epsilon = {float(epsilon):g} and delta = {float(delta):g}.",
                "Pass a larger delta, or fewer expected_runs.",
            )
    return Price(kind, round_down(low, digits=_DIGITS), share)


def draw_runs(law: Stopping, stream: RandomStream) -> int:
    """Draw the number of runs, exactly: geometric proposals, accepted with rational probabilities."""
    if law.gamma == 1:
        return 1
    stop = [law.gamma.denominator - law.gamma.numerator, law.gamma.numerator]
    while True:
        k, batch = 1, 64
        while True:
            stops = np.flatnonzero(weighted_choice(stop, size=batch, stream=stream))
            if stops.size:
                k += int(stops[0])
                break
            k += batch
        accept = law.acceptance(k)
        if weighted_choice([accept.denominator - accept.numerator, accept.numerator], stream=stream) == 1:
            return k


def make_estimators(make: Any, candidates: Any) -> list[Any]:
    """Return an unfitted estimator for each candidate, or refuse it by its parameters."""
    if not callable(make) or not isinstance(candidates, Sequence) or not len(candidates):
        raise ParameterError(
            f"'make' is a {type(make).__name__} and 'candidates' a {type(candidates).__name__}.",
            "Pass a callable that returns an unfitted estimator, and a sequence of at least one candidate.",
        )
    made: list[Any] = [make(candidate) for candidate in candidates]
    for number, estimator in enumerate(made):
        parameters = estimator.get_params() if hasattr(estimator, "get_params") else {}
        missing = [name for name in ("epsilon", "delta", "random_state") if name not in parameters]
        if missing:
            raise UnsupportedError(
                f"The estimator of candidate {number} has no parameter {', '.join(map(repr, missing))}.",
                "Return a private estimator of Confide: others have no guarantee that could be charged.",
            )
        if parameters.get("ledger") is not None or parameters.get("nonprivate"):
            raise ParameterError(
                f"The estimator of candidate {number} has a ledger of its own, or is not private.",
                "Pass 'ledger' to tune: everything is charged once, there.",
            )
    return made


def common_bounds(estimators: list[Any], score: str) -> tuple[float, float]:
    """Return the label bounds that all estimators declare; (0, 1) where classes are scored."""
    if score == "accuracy":
        return 0.0, 1.0
    declared = [estimator.get_params().get("target_bounds") for estimator in estimators]
    bounds = {tuple(map(float, pair)) if pair is not None else () for pair in declared}
    if len(bounds) != 1 or len(pair := bounds.pop()) != 2 or not 0 < pair[1] - pair[0] < math.inf:
        raise ParameterError(
            "The candidates' estimators do not share one pair of finite 'target_bounds'.",
            "Declare the same bounds of the label in each; scores are measured against them.",
        )
    return pair[0], pair[1]


def fresh(estimator: Any, price: Price, stream: RandomStream) -> Any:
    """Return an unfitted copy with the budget and the noise seed of one run."""
    from sklearn.base import clone

    seed = None if is_certified(stream) else int(stream.child("fit").bits(1)[0]) >> 33
    fresh: Any = clone(estimator)
    return fresh.set_params(epsilon=_amount(price.epsilon), delta=_amount(price.delta), random_state=seed)


def _amount(value: Fraction) -> Any:
    """Return a float whose shortest decimal is the amount, else the fraction itself."""
    number = float(value)
    return number if Fraction(repr(number)) == value else value


def rehearse(
    estimators: list[Any],
    rows: Rows,
    bounds: tuple[float, float],
    epsilon: Fraction,
    delta: Fraction,
    law: Stopping,
) -> tuple[str, Adjacency, tuple[str, ...]]:
    """Fit every candidate on zeros: what cannot be fitted fails before the charge, and guarantees are learnt.

    A guarantee is a function of parameters alone, so that of the rehearsal is that of a run.
    """
    if rows.n < 2 or not rows.columns:
        raise DataError(f"X has shape ({rows.n}, {rows.columns}).", "Pass at least two rows and one column.")
    n = min(rows.n, _REHEARSAL)
    trial = Price("", round_down(float(epsilon) / 2), round_down(float(delta) / law.mean))
    found = set()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for estimator in estimators:
            zeros = _zeros(rows.X, n, rows.columns)
            classes = estimator.get_params().get("classes")
            y = (
                np.full(n, (bounds[0] + bounds[1]) / 2)
                if classes is None
                else np.resize(np.asarray(classes), n)
            )
            model = fresh(estimator, trial, random_stream(0))
            model.fit(zeros, y)
            found.add(_facts_of(model, trial))
    kinds, relations, units, assumed = (set(part) for part in zip(*found, strict=True))
    if len(relations) > 1 or units != {"row"}:
        raise UnsupportedError(
            f"The candidates protect {', '.join(sorted(units))} under "
            f"{', '.join(sorted(relation.value for relation in relations))}.",
            "Make all of them protect rows under one relation.",
        )
    if delta == 0 and kinds != {"pure"}:
        raise UnsupportedError("The 'delta' parameter is 0, and a candidate is not pure.", "Pass delta > 0.")
    kind = kinds.pop() if len(kinds) == 1 else "approximate"
    return kind, relations.pop(), tuple(sorted(set().union(*assumed) - {SEEDED, UNRECORDED}))


def _zeros(X: Any, n: int, columns: int) -> Any:
    """Return a table of zeros of the same type and column names, without a look at X's cells."""
    zeros = np.zeros((n, columns))
    if hasattr(X, "iloc"):
        import pandas as pd

        return pd.DataFrame(zeros, columns=X.columns)
    if not isinstance(X, np.ndarray) and not hasattr(X, "tocsr") and hasattr(X, "columns"):
        return type(X)(dict.fromkeys(X.columns, zeros[:, 0]))
    return zeros


def _facts_of(model: Any, price: Price) -> tuple[str, Adjacency, str, frozenset[str]]:
    guarantee = getattr(model, "guarantee_", None)
    if not isinstance(guarantee, Guarantee) or guarantee.epsilon == math.inf:
        raise UnsupportedError(
            f"{type(model).__name__} has no 'guarantee_' after fit.", "Return a private estimator of Confide."
        )
    if guarantee.epsilon > price.epsilon or guarantee.delta > price.delta:
        raise UnsupportedError(
            f"{type(model).__name__} spends more than the epsilon and delta that it is given.",
            "Return an estimator whose 'epsilon' and 'delta' are its whole budget.",
        )
    squared = total_loss(guarantee.event, "mu_squared")
    if guarantee.delta > 0 and squared is not None and squared <= _mu_squared(price):
        kind = "gaussian"
    else:
        kind = "pure" if guarantee.delta == 0 else "approximate"
    return kind, guarantee.adjacency, guarantee.unit, frozenset(guarantee.assumptions)


def _mu_squared(price: Price) -> Fraction:
    return 1 / Fraction(gaussian_sigma(price.epsilon, price.delta, 1.0)) ** 2 * (1 + Fraction(1, 10**12))


def check_run(model: Any, price: Price, adjacency: Adjacency) -> None:
    """Hold a run to the rehearsal: a bug here must not become a leak. Public facts alone decide."""
    kind, relation, unit, _ = _facts_of(model, price)
    if relation is not adjacency or unit != "row" or (price.kind == "gaussian" and kind != "gaussian"):
        raise UnsupportedError(
            f"{type(model).__name__} has another guarantee than in the rehearsal.",
            "Return estimators whose guarantee is a function of their parameters.",
        )
