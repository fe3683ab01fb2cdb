"""What a total budget gives each answer of a release, and how accurate such answers are expected to be.

Everything here works on public numbers: distances of *public or synthetic* queries under a model of public
or synthetic rows. The same sums over a private table's distances would be private.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from decimal import ROUND_FLOOR, Context
from fractions import Fraction
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from confide.errors import ConfideError, ParameterError
from confide.mechanisms.above_threshold import split_epoch, stable_threshold
from confide.prediction.laws import Labels
from confide.prediction.releases import SPARSE_VECTOR, release_of
from confide.privacy import exact, split

#: All releases, the simplest first: ties go to it.
RELEASES = ("response", SPARSE_VECTOR, "ptr", "cauchy", "laplace", "global")
#: Releases whose answers need a delta of their own.
_WITH_DELTA = ("laplace", "ptr")
#: Largest number of epochs that is tried, and how often a run of epochs is simulated (in epochs).
_MOST_EPOCHS = 1 << 10
_SIMULATED = 20_000
#: Of the share of unstable queries among which the public ones show none: `Expected.low` is for its bound.
_LEVEL = 0.95
#: Quantiles of an epoch's threshold noise.
_QUANTILES = 200
#: Laws take at most this epsilon an answer.
_LARGEST = Fraction(1000)


@dataclass(frozen=True)
class Price:
    """What one answer (of "sparse_vector": one epoch) may spend.

    Attributes
    ----------
    release : str
    epsilon, delta : float
        Of one answer or epoch, rounded down to four digits.
    slack : float
        Delta for the composition.
    epochs : int
        Of "sparse_vector"; else 1.
    """

    release: str
    epsilon: float
    delta: float
    slack: float
    epochs: int = 1

    def answer_arguments(self) -> dict[str, Any]:
        """Return the keyword arguments of `answer` and `preview`."""
        out: dict[str, Any] = {"epsilon": self.epsilon, "delta": self.delta, "release": self.release}
        if self.slack:
            out["slack"] = self.slack
        if self.release == SPARSE_VECTOR:
            out["epochs"] = self.epochs
        return out


@dataclass(frozen=True)
class Expected:
    """Expected quality of answers to queries like the public ones.

    Attributes
    ----------
    accuracy : float
        Share of right answers, over noise and queries. A query that a sparse vector leaves open counts as a
        guess among all classes.
    error : float
        Standard error of the accuracy, from the finite number of public queries alone.
    answered : float
        Share of queries that get a class.
    low, high : float
        Two standard errors around the accuracy. Of a sparse vector: accuracies with the 95 % bound on the
        share of unstable queries that the public ones do not show, and without such queries.
    """

    accuracy: float
    error: float
    answered: float
    low: float
    high: float


def prices(
    releases: Iterable[str], epsilon: Any, delta: Any, queries: int, classes: int
) -> tuple[list[Price], list[str]]:
    """Return what each release gives an answer within a total budget, and why others are left out.

    Parameters
    ----------
    releases : iterable of str
    epsilon, delta : amount
        Total of all answers.
    queries, classes : int

    Returns
    -------
    list of Price
        "sparse_vector" once for each number of epochs that is tried: 1, 2, 4, ... up to `queries`.
    list of str
        A sentence for each release that cannot be had.

    Notes
    -----
    The exact composition of `confide.prediction.per_answer`. Where answers have a delta of their own, half of
    the total is theirs and half is the composition's slack.
    """
    held, reasons = [], []
    for release in releases:
        try:
            held += _prices(release, exact(epsilon, "epsilon"), exact(delta, "delta"), queries, classes)
        except ConfideError as problem:
            reasons.append(f"{release}: {problem.fact}")
    return held, reasons


def _prices(release: str, epsilon: Fraction, delta: Fraction, queries: int, classes: int) -> list[Price]:
    if release not in RELEASES:
        raise ParameterError(f"There is no release {release!r:.80}.")
    if delta == 0 and release in (*_WITH_DELTA, SPARSE_VECTOR):
        raise ParameterError("It needs a delta, and the budget has none.")
    if release == SPARSE_VECTOR:
        most = min(queries, _MOST_EPOCHS)
        return [_epochs(1 << power, epsilon, delta) for power in range(most.bit_length())]
    each = short(delta / (2 * queries)) if release in _WITH_DELTA else 0.0
    slack = short(delta - queries * exact(each))
    own = short(min(_LARGEST, exact(split(epsilon, exact(slack), queries))))
    price = Price(release, own, each, slack)
    release_of(release, own, classes, each)  # refuses what it cannot do, such as three classes
    return [price]


def _epochs(count: int, epsilon: Fraction, delta: Fraction) -> Price:
    each = short(delta / (2 * count))
    slack = short(delta - count * exact(each))
    own = short(min(_LARGEST, exact(split(epsilon, exact(slack), count))))
    return Price(SPARSE_VECTOR, own, each, slack, count)


def short(value: Fraction) -> float:
    """Return a float of four decimal digits that is at most the value."""
    context = Context(prec=4, rounding=ROUND_FLOOR)
    return float(context.divide(value.numerator, value.denominator))


def expected(price: Price, correct: NDArray[np.bool_], k: Labels, *, queries: int, classes: int) -> Expected:
    """Return the expected quality of answers to queries with such distances.

    Parameters
    ----------
    price : Price
    correct : bool array [q]
        Whether the certified class is right.
    k : int array [q]
        Stability distances of public queries.
    queries : int
        How many queries like them will be asked.
    classes : int
    """
    if k.size == 0:
        raise ParameterError("There are no public queries.", "Pass at least one.")
    if price.release == SPARSE_VECTOR:
        return _by_epochs(price, correct, k, queries, classes)
    law = release_of(price.release, price.epsilon, classes, price.delta)
    top = min(int(k.max()), (1 << 16) - 1)
    p, held = law.probabilities(top), np.minimum(k, top)
    right = np.where(correct, p[held], p.wrong[held])
    mean, error = float(right.mean()), float(right.std() / np.sqrt(k.size))
    return Expected(mean, error, 1.0, max(0.0, mean - 2 * error), min(1.0, mean + 2 * error))


def _by_epochs(price: Price, correct: NDArray[np.bool_], k: Labels, queries: int, classes: int) -> Expected:
    """Simulate the epochs: queries arrive in random order, an epoch ends with its first unstable one.

    Long epochs hang on the rarest queries. Let u be the share of unstable queries of a kind that none of the
    n public ones is. Under a uniform prior u is distributed as Beta(1, n + 1) then, and the next j queries
    hold none of them with probability (n + 1) / (n + 1 + j): few public queries promise no endless epoch,
    and n of them one of about n. One u holds for all epochs of a run.
    """
    theta, e1, e2 = _threshold(price.epsilon, price.delta)
    values, place = np.unique(k, return_inverse=True)
    share = np.bincount(place) / k.size
    share_right = np.bincount(place, weights=correct) / k.size
    u = (np.arange(_QUANTILES) + 0.5) / _QUANTILES - 0.5
    rho = np.rint(-np.sign(u) * np.log1p(-2 * np.abs(u)) / e1).astype(np.int64)
    above = _tail(theta + rho[:, None] - values, e2 / 2)
    stable, right = above @ share, above @ share_right
    precision = np.divide(right, stable, out=np.zeros_like(right), where=stable > 0)
    runs = max(1, _SIMULATED // price.epochs)

    def told(unseen: Any) -> tuple[float, float]:
        """Return the accuracy and the share that is answered, with a share of unstable queries a run."""
        rng = np.random.default_rng(0)
        chosen = rng.integers(0, rho.size, (runs, price.epochs))
        ends = 1.0 - stable[chosen] * (1.0 - np.reshape(unseen, (-1, 1)))
        # Queries up to and with the first unstable one.
        lengths = rng.geometric(np.clip(ends, 1e-9, 1.0))
        before = np.minimum(np.cumsum(lengths, axis=1) - lengths, queries)
        given = np.minimum(lengths - 1, queries - before)
        answered = float(given.sum(axis=1).mean() / queries)
        hits = float((given * precision[chosen]).sum(axis=1).mean() / queries)
        return hits + (1.0 - answered) / classes, answered

    levels = (np.random.default_rng(1).permutation(runs) + 0.5) / runs
    accuracy, answered = told(-np.expm1(np.log1p(-levels) / (k.size + 1)))
    low, high = told(-np.expm1(np.log1p(-_LEVEL) / k.size))[0], told(0.0)[0]
    error = float(np.sqrt(max(accuracy * (1 - accuracy), 0.0) / k.size))
    return Expected(accuracy, error, answered, min(low, accuracy), max(high, accuracy))


@lru_cache(maxsize=256)
def _threshold(epsilon: float, delta: float) -> tuple[int, float, float]:
    e1, e2 = split_epoch(epsilon)
    return stable_threshold(delta, e1, e2), float(e1), float(e2)


def _tail(t: NDArray[Any], rate: float) -> NDArray[np.float64]:
    """Return P(N > t) of discrete Laplace noise, P(N = n) proportional to e^(-rate |n|)."""
    q = np.exp(-rate)
    return np.where(t >= 0, q ** (np.maximum(t, 0) + 1.0), 1.0 + q - q ** np.maximum(-t, 0)) / (1.0 + q)
