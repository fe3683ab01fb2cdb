"""Randomised rounding: each numeric label becomes one of two numbers, with its own value as the mean.

Duchi, Jordan & Wainwright, "Minimax Optimal Procedures for Locally Private Estimation" (2018), in one
dimension, as an exact channel: round the label to an end of its range at random, then randomised response.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from confide.mechanisms import RandomStream
from confide.privacy import Event
from confide.training.labels.channel import Channel
from confide.training.labels.labels import Codes, Floats, LabelRange, PrivateLabels

#: A label is a multiple of 2^-52 of its range: then rounding it at random is a comparison of integers.
_BITS = 52


@dataclass(frozen=True)
class RoundedLabels:
    """Unbiased two-valued labels.

    Attributes
    ----------
    range : LabelRange
    epsilon : Fraction

    Notes
    -----
    A label u 2^-52 of the way from lower to upper is rounded up with probability exactly u 2^-52; the end
    then meets binary randomised response. The output is `upper` with probability
    (u a + (2^52 - u) b) / (2^52 (a + b)), between b / (a + b) and a / (a + b), so that two labels' ratios are
    within a/b <= e^epsilon. `Channel.unbiased` of the two ends makes its mean the label, to 2^-52 of the
    range.

    ==========================  ===============================================================
    edge case                   what happens
    ==========================  ===============================================================
    NaN, text                   the middle: either number with probability 1/2
    labels outside the bounds   the end
    ==========================  ===============================================================
    """

    range: LabelRange
    epsilon: Fraction

    @property
    def numeric(self) -> bool:
        """Labels are numbers."""
        return True

    @property
    def amounts(self) -> tuple[Fraction, Fraction]:
        """(epsilon, 0)."""
        return self.epsilon, Fraction(0)

    @property
    def event(self) -> Event:
        """Binary randomised response: rounding before it is a mixture of its two inputs."""
        return Event.of("randomized_response", epsilon=str(self.epsilon), classes=2)

    @property
    def outputs(self) -> Floats:
        """The two numbers."""
        return self.range.restored(Channel.of(2, self.epsilon).unbiased([-1.0, 1.0]))

    def units(self, y: Any) -> Codes:
        """Return u of each label, int64 [n] in 0 .. 2^52."""
        return np.floor((self.range.normalised(y) / 2 + 0.5) * float(1 << _BITS)).astype(np.int64)

    def probability(self, unit: int) -> Fraction:
        """Return the exact probability of the upper output for a label of that u."""
        channel = Channel.of(2, self.epsilon)
        up = Fraction(unit, 1 << _BITS)
        return up * channel.probability(1, 1) + (1 - up) * channel.probability(0, 1)

    def plain(self, y: Any) -> Floats:
        """Return the labels within their bounds."""
        return self.range.bounded(y)

    def release(self, y: Any, stream: RandomStream) -> PrivateLabels:
        """Return one of two numbers a label."""
        units = self.units(y)
        words = stream.child("label rounding").bits(units.size) >> np.uint64(64 - _BITS)
        ends = (words.astype(np.int64) < units).astype(np.int64)
        channel = Channel.of(2, self.epsilon)
        drawn = channel.draw(ends, stream.child("label channel"))
        return PrivateLabels(self.outputs[drawn], channel=channel)
