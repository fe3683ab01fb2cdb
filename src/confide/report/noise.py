"""Whether noise leaves a model anything to say, and how well the spread about the fit is known."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from confide.privacy import round_up, show
from confide.report.words import number

if TYPE_CHECKING:
    from confide.training import TrainingResult

#: Largest epsilon that a page proposes.
_LARGEST = 100.0


@dataclass(frozen=True)
class Spread:
    """How far labels lie from the fit: an estimate from the release, where noise lets it be one.

    Attributes
    ----------
    value : float
        Estimated deviation of the label about its linear fit.
    error : float or None
        Deviation that privacy noise gives `value`; None where the result does not tell, and then no error is
        printed.
    known : bool
        False where noise dominates, so that `value` says next to nothing: it is not shown.
    """

    value: float
    error: float | None
    known: bool

    def words(self, unit: str = "") -> str:
        """Return the estimate with its error, or "not determined"."""
        if not self.known:
            return "not determined"
        error = "" if not self.error else f"\u00a0±\u00a0{number(self.error, 2)}"
        return f"{number(self.value)}{error}{unit}"


def spread(result: TrainingResult) -> Spread:
    """Return the spread about the fit, and whether it is determined.

    The released quantity is the variance v, with a noise deviation e; sqrt(v) then has deviation
    e / (2 sqrt(v)). It counts as determined where v lies at least four deviations above 0: the noise
    that carries a small v over a lower hurdle is the noise that makes it wrong.
    """
    value = result.residual_deviation
    if not result.statistics.noise_multiplier:
        return Spread(value, 0.0, True)
    told: Any = getattr(result, "residual_error", None)
    error = _roughly(result) if told is None else float(told)
    known = bool(math.isfinite(error) and value > 0 and error <= value / 8)
    return Spread(value, None if told is None else error, known)


def _roughly(result: TrainingResult) -> float:
    """Return the size of the noise in the residual deviation, to decide whether to show it.

    Three parts (`confide.training.problem`): the second moment is released with weight 4 kappa / R,
    kappa = 0.83 (a quarter of it where units may have several rows), over n rows; the noise of the mean
    enters times twice its distance from the middle of the bounds, here told from the intercept; and the
    noise of the coefficients enters squared.
    """
    facts, value = result.statistics, result.residual_deviation
    if not value > 0:
        return math.inf
    kappa = 0.83 if result.guarantee.unit == "row" else 0.83 / 4
    moment = facts.noise_multiplier * facts.sensitivity * facts.label_range / (4 * kappa * facts.rows)
    squared = (facts.noise_multiplier * facts.sensitivity) ** 2 * facts.noise_trace / facts.rows
    low, high = result.model.bounds
    offset = min(abs(result.model.intercept - (low / 2 + high / 2)), (high - low) / 2)
    linear = 2 * offset * math.sqrt(squared / (facts.rank + 1))
    return math.hypot(moment, linear, squared * math.sqrt(2 / (facts.rank + 1))) / (2 * value)


def drowned(result: TrainingResult, label_unit: str = "") -> str:
    """Return what to say where noise has left less than half of the public directions; else nothing.

    Notes
    -----
    Free post-processing: the number of directions is a function of the release, and the epsilon proposed one
    of public quantities, besides the released spread about the fit where that is determined.
    """
    facts = result.statistics
    epsilon = result.guarantee.epsilon
    if not facts.rank or not facts.noise_multiplier or not isinstance(epsilon, Fraction):
        return ""
    left = min(facts.effective, float(facts.rank))
    if left >= facts.rank / 2:
        return ""
    if result.trace is not None and all(item.name == "mean" for item in result.trace.rounds):
        return (
            "This model is the mean of the label and no more: for so few rows, coefficients would drown in "
            "the noise of this epsilon. More rows, or a larger epsilon, could change that."
        )
    about = spread(result)
    noise = result.noise_error(float(epsilon))
    directions = f"{survivors(left)} of {facts.rank} directions"
    if about.known and noise <= about.value * math.sqrt(facts.sampling_trace / facts.rows):
        return (
            f"The public columns explain little here: {directions} stand out. Privacy noise is smaller than "
            "the error of sampling, so more epsilon would change little; more rows, or other columns, could."
        )
    start = (
        f"Noise drowns this model: {directions} survive. It says little more than the mean of the label"
        if left < 1
        else f"Noise hides much of this model: {directions} survive"
    )
    unit = f" ({label_unit})" if label_unit else ""
    whole = noise >= facts.label_range
    move = "the whole range of the label" if whole else f"{number(noise)}{unit}"
    start += f"; noise moves a typical prediction by {move} before shrinkage."
    target, words = facts.label_range / 100, "a hundredth of the declared range of the label"
    if about.known:
        target, words = about.value / 10, "a tenth of the spread about the fit"
    needed = epsilon_for(result, target)
    if needed is None or needed <= float(epsilon):
        return f"{start} More rows, or tighter declared bounds, would help."
    if needed > 10:
        return (
            f"{start} Not even epsilon 10 would bring it down to {number(target, 2)}, {words}: this takes "
            "more rows, or tighter declared bounds."
        )
    return (
        f"{start} At epsilon {show(round_up(needed, 2))} it would be {number(target, 2)}, {words}; more "
        "rows, or tighter declared bounds, help too."
    )


def survivors(left: float) -> str:
    """Return how many directions the noise has left, in words."""
    return "less than 0.1" if left < 0.1 else number(left, 2 if left < 10 else 3)


def epsilon_for(result: TrainingResult, target: float) -> float | None:
    """Return the least epsilon at which noise moves a typical prediction by `target` at most.

    None above 100. From public quantities, for the design chosen in the fit.
    """
    low, high = 1e-4, _LARGEST
    if not target > 0 or result.noise_error(high) > target:
        return None
    if result.noise_error(low) <= target:
        return low
    while high > low * 1.005:
        middle = math.sqrt(low * high)
        low, high = (low, middle) if result.noise_error(middle) <= target else (middle, high)
    return high
