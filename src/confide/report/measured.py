"""Test error, which is shown only where somebody declares the test labels public."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from confide.errors import ParameterError

if TYPE_CHECKING:
    from confide.training import TrainingResult


@dataclass(frozen=True)
class PublicTest:
    """Held-out rows whose labels are declared public, and what to compare a model with on them.

    Parameters
    ----------
    table : Table
        Held-out rows, disjoint from the rows of the fit, in memory. Its labels are read and their errors
        published: nothing protects them.
    declared_by : str
        Who declares these labels public. Required: a name, not a formality.
    reason : str
        Why that is right.
    baseline : TrainingResult, optional
        A release to compare with, such as the private mean: the fit of a schema without public columns.
    others : sequence of TrainingResult
        Releases at other epsilon, for the picture of error against epsilon.
    reference : TrainingResult, optional
        A fit *without* privacy, for comparison. It is a function of the secret labels, so it may be shown
        only where those are no secret.
    reference_reason : str
        Why it may be shown. Required with `reference`, and printed.

    Raises
    ------
    ParameterError
        If `declared_by` is blank, or `reference` comes without a reason.
    """

    table: Any
    declared_by: str
    reason: str = ""
    baseline: TrainingResult | None = None
    others: tuple[TrainingResult, ...] = ()
    reference: TrainingResult | None = None
    reference_reason: str = ""

    def __post_init__(self) -> None:
        if not isinstance(self.declared_by, str) or not self.declared_by.strip():
            raise ParameterError(
                "The 'declared_by' of the test labels is blank.",
                "Name who declares them public; else leave 'test' out of the report.",
            )
        if self.reference is not None and not self.reference_reason.strip():
            raise ParameterError(
                "The fit without privacy has no 'reference_reason'.",
                "Say why a function of the secret labels may be shown, or leave 'reference' out.",
            )
        object.__setattr__(self, "others", tuple(self.others))

    @property
    def rows(self) -> int:
        """Number of held-out rows."""
        return int(self.table.n_rows)

    def error(self, result: TrainingResult) -> Error:
        """Return the error of a release on the held-out rows."""
        return measure(result, self.table)


@dataclass(frozen=True)
class Error:
    """Mean squared error on test rows, the standard error of that mean over rows, and each row's square."""

    squared: float
    deviation: float
    squares: npt.NDArray[np.float64] = field(repr=False, compare=False)

    @property
    def root(self) -> float:
        """Root-mean-square error, in the label's (transformed) unit."""
        return math.sqrt(self.squared)


def measure(result: TrainingResult, table: Any) -> Error:
    """Return the error of `result` on all rows of `table`, whose labels are thereby published.

    A model without columns predicts its intercept, whatever the columns of the table.
    """
    model = result.model
    low, high = model.bounds
    predicted: npt.NDArray[np.float64] | float
    predicted = model.predict(table) if model.names else min(max(model.intercept, low), high)
    squares = (np.asarray(table.label, dtype=np.float64) - predicted) ** 2
    spread = float(np.std(squares)) / math.sqrt(max(squares.size, 1))
    return Error(float(np.mean(squares)), spread, squares)


@dataclass(frozen=True)
class Share:
    """A share of the non-private gain, and its standard error over test rows (paired, delta method)."""

    value: float
    deviation: float

    @property
    def cell(self) -> str:
        """In per cent, for a table whose head says so."""
        return f"{100 * self.value:.1f} ± {100 * self.deviation:.1f}"

    def __str__(self) -> str:
        return f"{self.cell}\u00a0%"


def share_kept(private: Error, baseline: Error, reference: Error) -> Share | None:
    """Return the share of the non-private gain over the baseline that a private model keeps.

    (baseline - private) / (baseline - reference) in mean squared errors on the same test rows; None where
    there is no gain. It can pass 1: the two fits weigh rows differently, and the test rows are a sample.
    """
    gain = baseline.squared - reference.squared
    if not gain > 0:
        return None
    share = (baseline.squared - private.squared) / gain
    rest = (baseline.squares - private.squares) - share * (baseline.squares - reference.squares)
    return Share(share, float(np.std(rest)) / (gain * math.sqrt(rest.size)))
