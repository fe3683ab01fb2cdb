"""Linear model: f = W a over conditioned public columns, private columns and a column of ones."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from confide.training.sgd.arrays import Array, Floats, Namespace, flatten, row_squares, without
from confide.training.sgd.models import Block, Rows


@dataclass(frozen=True)
class Linear:
    """K linear outputs; parameters are W [K, columns], row by row, the intercept last in each.

    Attributes
    ----------
    features : int
        Public and private columns.
    outputs : int
    intercept : bool
        Whether a column of ones stands after them.

    Notes
    -----
    The gradient of s'f is s a': norm ||s|| ||a||, the constant's square included in ||a||.
    """

    features: int
    outputs: int = 1
    intercept: bool = True
    cancellation: float = 1.0
    has_widths: bool = True

    @property
    def columns(self) -> int:
        """Columns, the constant included."""
        return self.features + int(self.intercept)

    @property
    def constant(self) -> bool:
        """Whether there is an intercept."""
        return self.intercept

    @property
    def width(self) -> int:
        """Columns and outputs."""
        return self.columns + 4 * self.outputs

    @property
    def size(self) -> int:
        """Number of parameters."""
        return self.outputs * self.columns

    @property
    def blocks(self) -> tuple[Block, ...]:
        """W, whose first columns are public."""
        return (Block(0, self.outputs, self.columns),)

    def initial(self, seed: int) -> Floats:
        """Return zeros: the loss is convex."""
        return np.zeros(self.size)

    def forward(self, xp: Namespace, parameters: Array, rows: Rows) -> tuple[Array, Any]:
        """Return a'w for each output."""
        if self.outputs == 1:
            return xp.matmul(rows.values, parameters), None
        weights = xp.reshape(parameters, (self.outputs, self.columns))
        return xp.matmul(rows.values, weights.T), None

    def backward(
        self, xp: Namespace, parameters: Array, rows: Rows, tape: Any, seeds: Array | None
    ) -> tuple[None, Any]:
        """Return the seeds: norms are ||s|| times the row's width."""
        return None, seeds

    def widths(self, xp: Namespace, values: Array) -> Array:
        """Return ||a||."""
        return xp.sqrt(row_squares(xp, values))

    def contract(
        self, xp: Namespace, parameters: Array, rows: Rows, tape: Any, deltas: Any, weights: Array
    ) -> Array:
        """Return sum_i w_i s_i a_i'."""
        if deltas is None:
            return weights @ rows.values
        return flatten(xp, [(deltas * weights[:, None]).T @ rows.values])

    def scrub(self, xp: Namespace, rows: Rows, tape: Any, deltas: Any, bad: Array) -> tuple[Rows, Any, Any]:
        """Empty bad rows."""
        return rows.without(xp, bad), tape, None if deltas is None else without(xp, deltas, bad)
