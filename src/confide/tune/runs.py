"""What one run may spend, how many runs there are, what candidates promise: all without a private cell."""

from __future__ import annotations

import inspect
import math
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from confide.errors import ConfideError, DataError, ParameterError, UnsupportedError
from confide.mechanisms import RandomStream, is_certified, weighted_choice
from confide.mechanisms.stream import stream as random_stream
from confide.privacy import SEEDED, UNRECORDED, Adjacency, Event, Guarantee, gaussian_sigma
from confide.privacy.exact import round_down
from confide.privacy.losses import total_loss
from confide.privacy.random_stopping import Stopping, gaussian_profile
from confide.schema.loose import has
from confide.tune.scoring import Rows, split

#: Rows of a rehearsal on zeros; never the number of rows of the data, which may be secret.
_REHEARSAL = 64
#: Digits of a run's epsilon.
_DIGITS = 8
#: Kinds of a price, from where the rehearsal on zeros puts a candidate to what holds for all.
_LADDER = ("pure", "gaussian", "approximate")


@dataclass(frozen=True)
class Price:
    """What one run may spend.

    Attributes
    ----------
    kind : str
        ``"gaussian"``, ``"pure"`` or ``"approximate"``: which bound on the whole selection is used.
    epsilon, delta : Fraction
        Of a run, of its fit and of its score alike; delta is 0 where the kind is pure.
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

    Of the kind ``"pure"`` a run has no delta, and the whole selection costs none.

    Raises
    ------
    ParameterError
        If there is none.
    """
    delta = Fraction(0) if kind == "pure" else delta
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
        _check_untouched(number, estimator, parameters)
    return made


def _check_untouched(number: int, estimator: Any, parameters: dict[str, Any]) -> None:
    """Refuse an amount or a seed that a run would overwrite."""
    defaults = inspect.signature(type(estimator)).parameters
    for name in ("epsilon", "delta", "random_state"):
        default = defaults[name].default if name in defaults else inspect.Parameter.empty
        if default is not inspect.Parameter.empty and parameters[name] != default:
            raise ParameterError(
                f"The estimator of candidate {number} sets {name!r} to {parameters[name]!r:.80}, and a run "
                "sets it anew.",
                f"Leave {name!r} out of 'make' and pass it to tune.",
            )


def common_bounds(estimators: list[Any], score: str) -> tuple[float, float]:
    """Return the label bounds that all estimators declare; (0, 1) where classes are scored."""
    if score == "accuracy":
        return 0.0, 1.0
    parameters = [estimator.get_params() for estimator in estimators]
    declared = [each.get("target_bounds") for each in parameters]
    if any(pair is None and "classes" in each for pair, each in zip(declared, parameters, strict=True)):
        raise ParameterError(
            f"The 'score' parameter is {score!r}, and a candidate's estimator predicts classes.",
            "Pass score='accuracy'.",
        )
    bounds = {tuple(map(float, pair)) if pair is not None else () for pair in declared}
    if len(bounds) != 1 or len(pair := bounds.pop()) != 2 or not 0 < pair[1] - pair[0] < math.inf:
        raise ParameterError(
            "The candidates' estimators do not share one pair of finite 'target_bounds'.",
            "Declare the same bounds of the label in each; scores are measured against them.",
        )
    return pair[0], pair[1]


def common_classes(estimators: list[Any], score: str) -> tuple[Any, ...]:
    """Return the classes that all estimators declare; none where numbers are scored."""
    if score != "accuracy":
        return ()
    from confide.training.classifier import check_classes

    if not all("classes" in estimator.get_params() for estimator in estimators):
        raise ParameterError(
            "The 'score' parameter is 'accuracy', and a candidate's estimator declares no classes.",
            "Pass score='squared' or 'absolute' for labels that are numbers.",
        )
    declared = {check_classes(estimator.get_params()["classes"]) for estimator in estimators}
    if len(declared) != 1:
        raise ParameterError(
            "The candidates' estimators do not share their 'classes'.",
            "Declare the same classes in the same order in each; labels are scored as their numbers.",
        )
    return declared.pop()


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


@dataclass(frozen=True)
class Plan:
    """What the rehearsal found: the price of a run, and what every run promises."""

    price: Price
    adjacency: Adjacency
    assumptions: tuple[str, ...]


def rehearse(
    estimators: list[Any],
    rows: Rows,
    held_out: float,
    bounds: tuple[float, float],
    epsilon: Fraction,
    delta: Fraction,
    law: Stopping,
) -> Plan:
    """Fit every candidate before the charge: what cannot be fitted fails there, and guarantees are learnt.

    First on a few rows of zeros at the whole budget, so that a message on an amount names what was passed.
    Then at the price of a run on all that is public of a run: the public cells of its rows, their number
    (unless that is secret), the middle of the label's bounds or the classes in turn as labels. An engine
    that is chosen by public quantities is so chosen as in a run, and its guarantee is that of a run.
    """
    if not rows.columns:
        raise DataError(f"X has shape ({rows.n}, 0).", "Pass at least one column.")
    whole = Price("", epsilon, delta)
    found, masks = [], []
    with quiet():
        for estimator in estimators:
            n = _rehearsal_rows(estimator)
            model = fresh(estimator, whole, random_stream(0))
            model.fit(_zeros(rows.X, n, rows.columns), _stand_in(estimator, n, bounds))
            found.append(_facts_of(model, whole))
            masks.append(getattr(model, "columns_", np.zeros(rows.columns, dtype=bool)))
    kinds, relations, units, assumed = (set(part) for part in zip(*found, strict=True))
    if len(relations) > 1 or units != {"row"}:
        raise UnsupportedError(
            f"The candidates protect {', '.join(sorted(units))} under "
            f"{', '.join(sorted(relation.value for relation in relations))}.",
            "Make all of them protect rows under one relation.",
        )
    if delta == 0 and kinds != {"pure"}:
        raise UnsupportedError("The 'delta' parameter is 0, and a candidate is not pure.", "Pass delta > 0.")
    adjacency = relations.pop()
    _check_masks(masks, adjacency)
    stage = _Stage(estimators, masks, rows, held_out, bounds, adjacency)
    price = _settled(stage, kinds, epsilon, delta, law)
    return Plan(price, adjacency, tuple(sorted(set().union(*assumed) - {SEEDED, UNRECORDED})))


def _check_masks(masks: list[Any], relation: Adjacency) -> None:
    """Refuse candidates that call different columns public where columns may be private.

    The winner's guarantee would not say whose declaration it rests on, and which candidate wins is noise.
    """
    if relation is Adjacency.REPLACE_PRIVATE_PART and len({mask.tobytes() for mask in masks}) > 1:
        raise ParameterError(
            f"The candidates declare different columns public under {relation.value!r}.",
            "Declare one 'public' for all; leave columns out of X to try fewer.",
        )


def _settled(stage: _Stage, kinds: set[str], epsilon: Fraction, delta: Fraction, law: Stopping) -> Price:
    """Return the first price whose kind all candidates keep at that price; ``"approximate"`` holds for all.

    Where zeros led an engine to be pure, the public cells may still make it Gaussian.
    """
    first = next(iter(kinds)) if len(kinds) == 1 else "approximate"
    ladder = ("pure",) if delta == 0 else _LADDER[_LADDER.index(first) :]
    for kind in ladder:
        last = kind == ladder[-1]
        try:
            price = price_of_run(law, kind, epsilon, delta)
            if all(_keeps(found, price) for found in stage.play(price)):
                return price
        except ConfideError as error:
            if last:
                error.add_note(f"In the rehearsal of a run, a part of epsilon = {float(epsilon):g}.")
                raise
    raise UnsupportedError(
        "A candidate's guarantee is not pure on these public columns, and the 'delta' parameter is 0.",
        "Pass delta > 0, or name the engine.",
    )


@dataclass(frozen=True)
class _Stage:
    """What a rehearsal may use: public cells, the number of rows where it is public, zeros for the rest."""

    estimators: list[Any]
    masks: list[Any]
    rows: Rows
    held_out: float
    bounds: tuple[float, float]
    adjacency: Adjacency

    def play(self, price: Price) -> list[tuple[str, Adjacency, str, frozenset[str]]]:
        """Fit every candidate at a price, predict, and return their facts."""
        if self.adjacency is Adjacency.ADD_REMOVE_ONE:
            return [self._fit(i, price, None, None) for i in range(len(self.estimators))]
        if self.rows.n < 2:
            raise DataError(f"X has {self.rows.n} rows.", "Pass at least two: some are fitted, some score.")
        places = split(self.rows.n, self.held_out, self.adjacency, random_stream(0))
        return [self._fit(i, price, *places) for i in range(len(self.estimators))]

    def _fit(self, number: int, price: Price, fitting: Any, scored: Any) -> Any:
        estimator, public = self.estimators[number], self.masks[number]
        n = _rehearsal_rows(estimator) if fitting is None else fitting.size
        with quiet():
            model = fresh(estimator, price, random_stream(0))
            labels = self.rows.stand_in(_stand_in(estimator, n, self.bounds))
            model.fit(self._cells(fitting, n, public), labels)
            model.predict(self._cells(scored, n if scored is None else scored.size, public))
        return _facts_of(model, price)

    def _cells(self, places: Any, n: int, public: Any) -> Any:
        if places is None or not public.any():
            return _zeros(self.rows.X, n, self.rows.columns)
        return _public_cells(self.rows.features(places), public)


def _rehearsal_rows(estimator: Any) -> int:
    limit = estimator.get_params().get("max_rows")
    return min(_REHEARSAL, limit) if isinstance(limit, int) else _REHEARSAL


def _stand_in(estimator: Any, n: int, bounds: tuple[float, float]) -> np.ndarray:
    classes = estimator.get_params().get("classes")
    if classes is None:
        return np.full(n, (bounds[0] + bounds[1]) / 2)
    values = np.asarray(classes)
    return values[np.arange(n) % max(1, values.size)] if values.size else np.zeros(n)


def _public_cells(X: Any, public: Any) -> Any:
    """Return X with zeros in place of its private columns, whose cells are not looked at."""
    if public.all():
        return X
    if has(X, "tocsr"):
        from scipy.sparse import csr_matrix

        kept = np.flatnonzero(public)
        places = (np.ones(kept.size), (np.arange(kept.size), kept))
        return X.tocsr()[:, kept] @ csr_matrix(places, shape=(kept.size, public.size))
    if hasattr(X, "iloc"):
        X = X.copy()
        for j in np.flatnonzero(~public):
            X.isetitem(j, 0.0)
        return X
    if isinstance(X, np.ndarray):
        cells = np.zeros(X.shape, dtype=X.dtype)
        cells[:, public] = X[:, public]
        return cells
    import narwhals as nw

    private = [name for name, known in zip(X.columns, public, strict=True) if not known]
    return nw.from_native(X).with_columns(*(nw.lit(0.0).alias(name) for name in private)).to_native()


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


def _keeps(found: tuple[str, Adjacency, str, frozenset[str]], price: Price) -> bool:
    """Whether a guarantee within the amounts of a price is of its kind; any is approximate."""
    return price.kind == "approximate" or found[0] == price.kind


@contextmanager
def quiet() -> Iterator[None]:
    """Silence warnings: one a run would tell the secret number of runs."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def check_run(model: Any, price: Price, adjacency: Adjacency) -> None:
    """Hold a run to the rehearsal: a bug here must not become a leak. Public facts alone decide."""
    found = _facts_of(model, price)
    if found[1] is not adjacency or found[2] != "row" or not _keeps(found, price):
        raise UnsupportedError(
            f"{type(model).__name__} has another guarantee than in the rehearsal.",
            "Return estimators whose guarantee is a function of their parameters.",
        )
