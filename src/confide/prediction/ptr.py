"""Propose, test, release: the exact class where the distance passes a noisy test, else any class."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike

from confide.errors import ParameterError
from confide.mechanisms.choice import uniform_integers
from confide.mechanisms.discrete import discrete_laplace
from confide.mechanisms.enclosure import exp_minus
from confide.mechanisms.stream import RandomStream
from confide.mechanisms.stream import stream as as_stream
from confide.prediction.laws import (
    Labels,
    Probabilities,
    checked,
    class_count,
    positive_epsilon,
    small_delta,
    whole,
)
from confide.privacy import Event
from confide.privacy.exact import Amount

_LEAST = Fraction(1, 1 << 50)


@dataclass(frozen=True)
class ProposeTestRelease:
    """Answer the certified class if k + N > threshold, N discrete Laplace of scale 1/epsilon; else uniformly.

    Attributes
    ----------
    epsilon, delta : Fraction
    classes : int
    threshold : int
        The smallest with P(N > threshold) <= delta.

    Notes
    -----
    (epsilon, delta)-DP (Dwork & Lei 2009, in the discrete form). If neighbouring tables have the same class,
    the answer is post-processing of whether k + N > threshold, a query of sensitivity 1 under noise that is
    epsilon-DP. If the classes differ, both k are 0 and both tables answer uniformly but with probability
    P(N > threshold) <= delta. The noise and the other class are drawn for every query: the same steps for
    each.

    ==============================  ===================================================================
    edge case                       what happens
    ==============================  ===================================================================
    k = 0                           uniform, but for delta
    delta >= e^-epsilon / (1 + e^-epsilon)   threshold 0: any k > 0 mostly passes
    delta = 0                       ParameterError: use `response`
    epsilon below 2^-50             ParameterError
    ==============================  ===================================================================
    """

    epsilon: Fraction
    delta: Fraction
    classes: int
    threshold: int

    @property
    def event(self) -> Event:
        """One answer."""
        return Event.of(
            "propose_test_release", epsilon=str(self.epsilon), delta=str(self.delta), classes=self.classes
        )

    def probabilities(self, k_max: int) -> Probabilities:
        """See `Release`; to double precision."""
        k = np.arange(whole(k_max, "k_max") + 1, dtype=np.float64)
        rate = float(self.epsilon)
        # P(N >= m) = q^m / (1 + q) for m >= 1; below the threshold 1 - P(N > threshold - k).
        tail = np.exp(
            -rate * np.abs(np.where(k <= self.threshold, self.threshold - k + 1, k - self.threshold))
        )
        tail /= 1.0 + math.exp(-rate)
        below = np.where(k <= self.threshold, 1.0 - tail, tail)
        wrong = below / self.classes
        certified = np.where(k <= self.threshold, tail + (1.0 - tail) / self.classes, 1.0 - tail + wrong)
        return Probabilities(certified.tolist(), wrong.tolist())

    def draw(self, labels: ArrayLike, k: ArrayLike, *, stream: RandomStream | None = None) -> Labels:
        """See `Release`."""
        chosen, distances = checked(labels, k, self.classes)
        source = as_stream(stream)
        noise = discrete_laplace(1 / self.epsilon, chosen.size, stream=source)
        uniform = np.asarray(uniform_integers(self.classes, chosen.size, source)).astype(np.int64)
        # Distances beyond 2^61 say nothing more, and cannot overflow.
        return np.where(np.minimum(distances, 1 << 61) + noise > self.threshold, chosen, uniform)


def propose_test_release(epsilon: Amount, delta: Amount, classes: int) -> ProposeTestRelease:
    """Return the release with the smallest threshold that `delta` allows.

    Parameters
    ----------
    epsilon : amount
        In [2^-50, 1000].
    delta : amount
        In (0, 1).
    classes : int

    Raises
    ------
    ParameterError
    """
    value = positive_epsilon(epsilon)
    if value < _LEAST:  # what noise can be drawn at: known before anything is charged
        raise ParameterError(f"The 'epsilon' parameter is {epsilon!r}.", "Pass at least 2^-50 here.")
    return _release(value, small_delta(delta, positive=True), class_count(classes))


@lru_cache(maxsize=64)
def _release(epsilon: Fraction, delta: Fraction, classes: int) -> ProposeTestRelease:
    low, high = -1, 1
    while _above(epsilon, high) > delta:
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if _above(epsilon, middle) <= delta else (middle, high)
    return ProposeTestRelease(epsilon, delta, classes, high)


def _above(epsilon: Fraction, threshold: int) -> Fraction:
    """Return P(N > threshold) = q^(threshold + 1) / (1 + q), rounded up."""
    bits = 128 + math.ceil(float(epsilon) * (threshold + 2) * 1.4427)
    q = exp_minus(epsilon, bits)[0]
    return Fraction(exp_minus(epsilon * (threshold + 1), bits)[1], (1 << bits) + q)
