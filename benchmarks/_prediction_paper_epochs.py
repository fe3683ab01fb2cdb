"""The sparse vector over many queries: expected accuracy, with epochs paid as they open.

Queries are drawn with replacement from the held-out rows. An epoch's threshold noise is drawn; given it, each
query is stable with a known probability, so the number of queries up to the first unstable one is geometric and
their expected accuracy is known: only thresholds and lengths of epochs are drawn. An unstable query, and each
one after the last epoch, is answered by a public fallback: a class at random, right with 1 / C.

`told` and `drawn` ask `StableAnswers` itself, one query after the other; the test compares the two.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

import numpy as np

from confide.errors import RefusedError
from confide.mechanisms.above_threshold import split_epoch, stable_threshold
from confide.mechanisms.stream import seeded_stream
from confide.prediction import StableAnswers

Floats = np.ndarray
Labels = np.ndarray


def expected(
    right: Floats, k: Labels, classes: int, epsilon: float, delta: float, epochs: int, queries: int,
    runs: int = 200, seed: int = 0,
) -> tuple[Floats, float]:  # fmt: skip
    """Return the expected accuracy of each run [runs], and the share of answers from inside an epoch.

    Parameters
    ----------
    right : bool array [q]
        Whether the certified class is the true one.
    k : int array [q]
    epsilon, delta : float
        Of an epoch.
    epochs : int
        How many there are at most.
    """
    e1, e2 = (float(part) for part in split_epoch(epsilon))
    threshold = stable_threshold(delta, *split_epoch(epsilon))
    rng = np.random.default_rng([3, seed])
    rho = _laplace(rng, 1 / e1, (runs, epochs))
    values, places = np.unique(rho, return_inverse=True)
    places = places.reshape(rho.shape)
    levels, counts = np.unique(k, return_counts=True)
    correct = np.array([right[k == level].mean() for level in levels])
    weights = counts / counts.sum()
    # P(k + N > threshold + rho), a row for each value of rho.
    above = _tail(threshold + values[:, None] - levels[None, :], 2 / e2)
    stable = above @ weights
    hits = (above @ (weights * correct)) / np.maximum(stable, 1e-300)
    left, score, inside = np.full(runs, queries), np.zeros(runs), np.zeros(runs)
    for epoch in range(epochs):
        now = places[:, epoch]
        halt = np.maximum(1.0 - stable[now], 1e-15)
        length = rng.geometric(halt)  # the place of the first unstable query
        good = np.minimum(length - 1, left)
        score += good * hits[now] + (length <= left) / classes
        inside += good
        left -= np.minimum(length, left)
    return (score + left / classes) / queries, float(inside.mean() / queries)


def _laplace(rng: np.random.Generator, scale: float, shape: tuple[int, ...]) -> Labels:
    """Draw discrete Laplace noise."""
    p = -np.expm1(-1.0 / scale)
    return rng.geometric(p, shape) - rng.geometric(p, shape)


def _tail(m: Labels, scale: float) -> Floats:
    """Return P(N > m) of discrete Laplace noise."""
    q = np.exp(-1.0 / scale)
    upper = np.exp(-(np.maximum(m, 0) + 1.0) / scale) / (1 + q)
    lower = 1.0 - np.exp(np.minimum(m, 0) / scale) / (1 + q)
    return np.where(m >= 0, upper, lower)


def told(
    labels: Labels, k: Labels, classes: int, epsilon: float, delta: float, epochs: int, seed: int = 0
) -> tuple[Labels, int]:
    """Answer queries by `StableAnswers`, at most so many epochs; -1 is unstable. Also how many were paid."""
    charge = refusing_after(epochs)
    vector = StableAnswers(
        Fraction(epsilon), Fraction(delta), classes, charge=charge, stream=seeded_stream(seed)
    )
    answers = vector.answer(labels, k)
    rest = np.full(len(labels) - len(answers), -1)
    return np.concatenate([answers, rest]), vector.opened


def drawn(
    truth: Labels, labels: Labels, k: Labels, classes: int, epsilon: float, delta: float, epochs: int,
    queries: int, draws: int, seed: int = 0,
) -> tuple[Floats, float]:  # fmt: skip
    """Return the accuracy of each draw [draws] of what `told` answers, and the share answered as stable."""
    rng, scores, inside = np.random.default_rng([4, seed]), [], []
    for draw in range(draws):
        asked = rng.integers(len(k), size=queries)
        answers, _ = told(labels[asked], k[asked], classes, epsilon, delta, epochs, draws * seed + draw)
        stable = answers >= 0
        scores.append(np.where(stable, answers == truth[asked], 1 / classes).mean())
        inside.append(stable.mean())
    return np.array(scores), float(np.mean(inside))


def refusing_after(epochs: int) -> Callable[[object], None]:
    """Return a charge that refuses once so many epochs were paid."""
    left = epochs

    def charge(event: object) -> None:
        nonlocal left
        if left == 0:
            raise RefusedError("The epochs are spent.", "Reserve more.")
        left -= 1

    return charge
