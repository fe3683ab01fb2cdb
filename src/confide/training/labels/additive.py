"""Numeric labels plus noise on a public grid: exactly rounded Gaussian, or discrete Laplace."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from confide.errors import ParameterError
from confide.mechanisms import (
    RandomStream,
    Statistic,
    gaussian_release,
    grid_step,
    laplace_release,
    padded_sensitivity,
    round_toward_zero,
)
from confide.mechanisms.grid import LARGEST_VALUE
from confide.privacy import Event, gaussian_sigma
from confide.training.labels.labels import Floats, LabelRange, PrivateLabels


def label_statistic(labels: LabelRange, y: Any, step: float) -> Statistic:
    """Return normalised labels [n] on the grid, with their sensitivity 2 + step.

    One replaced label moves one coordinate, by at most 2 (from end to end), and rounding it toward zero adds
    at most a step: the same bound holds in L1 and in L2, however many rows there are.
    """
    values = round_toward_zero(labels.normalised(y), step)
    return Statistic(values, step, padded_sensitivity(2, step, 1), "labels")


@dataclass(frozen=True)
class GaussianLabels:
    """Labels with Gaussian noise, (epsilon, delta)-DP, unbiased, not clipped afterwards.

    Attributes
    ----------
    range : LabelRange
    epsilon, delta : Fraction
    """

    range: LabelRange
    epsilon: Fraction
    delta: Fraction

    def __post_init__(self) -> None:
        if not 0 < self.delta < 1:
            raise ParameterError(
                f"The 'delta' parameter is {float(self.delta)!r}; Gaussian labels need a positive one.",
                "Pass 0 < delta < 1, well below one over the number of rows.",
            )
        if 1 / Fraction(self.step) > LARGEST_VALUE:
            raise ParameterError(
                f"The 'epsilon' parameter {float(self.epsilon):.3g} leaves no grid for the labels.",
                "Pass a smaller epsilon.",
            )

    @property
    def numeric(self) -> bool:
        """Labels are numbers."""
        return True

    @property
    def amounts(self) -> tuple[Fraction, Fraction]:
        """(epsilon, delta)."""
        return self.epsilon, self.delta

    @property
    def noise_multiplier(self) -> float:
        """Deviation of the noise over the sensitivity."""
        return gaussian_sigma(self.epsilon, self.delta, 1.0)

    @property
    def step(self) -> float:
        """Grid of normalised labels."""
        return grid_step(2 * self.noise_multiplier, 1, noise_multiplier=self.noise_multiplier)

    @property
    def event(self) -> Event:
        """One Gaussian release of all labels."""
        return Event.of("gaussian", noise_multiplier=self.noise_multiplier)

    def plain(self, y: Any) -> Floats:
        """Return the labels within their bounds."""
        return self.range.bounded(y)

    def release(self, y: Any, stream: RandomStream) -> PrivateLabels:
        """Return one number a label."""
        statistic = label_statistic(self.range, y, self.step)
        noisy = gaussian_release(statistic, self.noise_multiplier, stream=stream.child("labels"))
        return PrivateLabels(self.range.restored(noisy))


@dataclass(frozen=True)
class LaplaceLabels:
    """Labels with discrete Laplace noise on a fine grid, epsilon-DP, unbiased, not clipped afterwards.

    Attributes
    ----------
    range : LabelRange
    epsilon : Fraction
    """

    range: LabelRange
    epsilon: Fraction

    def __post_init__(self) -> None:
        step = Fraction(self.step)
        # Labels are 1 / step integers; the discrete Laplace takes scales up to 2^50 of them.
        if 1 / step > LARGEST_VALUE or (2 + 2 * step) / step / self.epsilon > 2**50:
            raise ParameterError(
                f"The 'epsilon' parameter {float(self.epsilon):.3g} leaves no grid for Laplace noise.",
                "Pass an epsilon between 1e-10 and 1e9.",
            )

    @property
    def numeric(self) -> bool:
        """Labels are numbers."""
        return True

    @property
    def amounts(self) -> tuple[Fraction, Fraction]:
        """(epsilon, 0)."""
        return self.epsilon, Fraction(0)

    @property
    def step(self) -> float:
        """Grid of normalised labels: fine beside the noise, and coarse enough for its integers."""
        return grid_step(2 / self.epsilon, 1, noise_multiplier=max(Fraction(1), 1 / self.epsilon))

    @property
    def event(self) -> Event:
        """One discrete Laplace release of all labels."""
        return Event.of("discrete_laplace", epsilon=str(self.epsilon))

    def plain(self, y: Any) -> Floats:
        """Return the labels within their bounds."""
        return self.range.bounded(y)

    def release(self, y: Any, stream: RandomStream) -> PrivateLabels:
        """Return one number a label."""
        statistic = label_statistic(self.range, y, self.step)
        noisy = laplace_release(
            statistic,
            self.epsilon,
            l1_sensitivity=padded_sensitivity(2, self.step, 1, norm=1),
            stream=stream.child("labels"),
        )
        return PrivateLabels(self.range.restored(noisy))
