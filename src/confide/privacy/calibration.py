"""Noise multipliers of DP-SGD for both kinds of adjacency, by privacy loss distributions."""

from __future__ import annotations

import math

from confide.errors import CalibrationError, ParameterError
from confide.privacy.accountants import PLDAccountant
from confide.privacy.adjacency import Adjacency
from confide.privacy.event import Event
from confide.privacy.exact import Amount, exact
from confide.privacy.gaussian import gaussian_sigma


def noise_multiplier(
    epsilon: Amount,
    delta: Amount,
    *,
    steps: int,
    sampling_probability: float = 1.0,
    adjacency: Adjacency | str,
) -> float:
    """Return the least noise deviation, in units of the clip norm, for `steps` noisy sums; rounded up.

    Parameters
    ----------
    epsilon, delta : amount
        Total of all steps; epsilon > 0, 0 < delta < 1.
    steps : int
        >= 1.
    sampling_probability : float
        In (0, 1]; each row enters a step independently (Poisson). 1 is a full batch, where the answer is
        Balle & Wang's times sqrt(steps).
    adjacency : Adjacency or str
        ADD_REMOVE_ONE moves a sum by one clipped row; the replacement relations move it from +c to -c, the
        pair (c, -c), which doubles the full-batch multiplier and nearly doubles the sampled one.

    Returns
    -------
    float
        The recomputed epsilon never exceeds `epsilon`; within 1e-5 of the least multiplier on the grid.

    Raises
    ------
    CalibrationError
        If no multiplier below 2^40 reaches the target.
    """
    relation = Adjacency.parse(adjacency)
    if isinstance(steps, bool) or not isinstance(steps, int) or steps < 1:
        raise ParameterError(f"The 'steps' parameter is {steps!r}.", "Pass an integer >= 1.")
    if not 0 < sampling_probability <= 1:
        raise ParameterError(
            f"The 'sampling_probability' parameter is {sampling_probability!r}.", "Pass a number in (0, 1]."
        )
    shift = 1.0 if relation is Adjacency.ADD_REMOVE_ONE else 2.0
    full = gaussian_sigma(epsilon, delta, shift * math.sqrt(steps) * (1.0 + 2e-16))
    if sampling_probability == 1:
        return full
    total = exact(epsilon, "epsilon")

    def holds(multiplier: float) -> bool:
        event = Event.of(
            "poisson_gaussian",
            noise_multiplier=multiplier,
            sampling_probability=sampling_probability,
            adjacency=relation.value,
        )
        return PLDAccountant().compose(event, steps).epsilon(delta) <= total

    # Sampling never needs more noise than the full batch, up to the grid's pessimism.
    high = min(full, 2.0**40) * 1.01
    if not holds(high):
        raise CalibrationError(
            f"No noise multiplier up to {high:.6g} gives epsilon = {epsilon!r} at delta = {delta!r}.",
            "Ask for a larger epsilon or delta, or for fewer steps.",
        )
    low = high
    while low > 1e-3:
        low = high / 2.0
        if not holds(low):
            break
        high = low
    while high > low * (1.0 + 1e-5):
        middle = math.sqrt(low * high)
        if holds(middle):
            high = middle
        else:
            low = middle
    return high
