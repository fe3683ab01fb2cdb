"""What each round of `rounds` did, from released values and public rows: free to look at and to plot."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class Round:
    """One release.

    Attributes
    ----------
    name : str
        ``"mean"`` (one number and a spread), or ``"coefficients"``.
    share : float
        Part of the budget, in squared mu.
    noise_multiplier : float
        Noise deviation over L2 sensitivity.
    clip : float
        Half-width of the window about the predictions, in the label's unit, at most R (nothing clipped).
    inside : float
        Estimated share of rows whose label the window does not clip, held in [0.3, 1].
    residual_deviation : float
        Estimated deviation of the label about the predictions that the round looked at, in the label's unit.
        That about the model is `TrainingResult.residual_deviation`.
    geometry : str
        ``"mean"``, ``"power p"`` (1: spectral, 0: identity on scaled columns), ``"water-filling g"``, or the
        conditioning that was asked for.
    quantile : float
        Leverage quantile from which rows were shortened; 1 shortens none.
    intercept_share : float
        The intercept's part of the squared length of an average row.
    posterior_deviation : float
        Root of the posterior variance of a fitted label after the round, mean over rows, in the label's unit:
        how far the fit may lie from the population's. Privacy noise (`TrainingResult.noise_error` of the
        unshrunk model), sampling noise, and what shrinkage may have taken too much; rounds on the mean count
        what columns are expected to explain. It falls from round to round, unless a round finds more to
        learn, or more residual, than was expected; it may stay above `noise_error` (sampling) or fall below
        it (shrinkage).
    """

    name: str
    share: float
    noise_multiplier: float
    clip: float
    inside: float
    residual_deviation: float
    geometry: str
    quantile: float
    intercept_share: float
    posterior_deviation: float


@dataclass(frozen=True)
class Trace:
    """The rounds of a fit in order.

    Examples
    --------
    A plot of the clip by round is ``plt.plot(trace.columns()["round"], trace.columns()["clip"])``.
    """

    rounds: tuple[Round, ...]

    def columns(self) -> dict[str, list[Any]]:
        """Return one list a field, one entry a round, with ``"round"`` counting from 1: ready to plot."""
        names = tuple(Round.__dataclass_fields__)
        table: dict[str, list[Any]] = {"round": list(range(1, len(self.rounds) + 1))}
        table.update({name: [getattr(item, name) for item in self.rounds] for name in names})
        return table

    def to_dict(self) -> list[dict[str, Any]]:
        """Return plain values, fit for JSON: one dictionary a round."""
        return [asdict(item) for item in self.rounds]
