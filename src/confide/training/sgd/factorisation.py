"""Factorisation machine of order two (Rendle 2010) on conditioned public and private columns a.

    f = b + w'a + 1/2 sum_k [(sum_j T_jk a_j)^2 - sum_j T_jk^2 a_j^2]

With v_k = sum_j T_jk a_j the gradient in T_jk is a_j v_k - T_jk a_j^2, which is not of rank one (self-terms).
Its squared norm, summed over j and k, is

    ||a||^2 ||v||^2 - 2 sum_k v_k sum_j a_j^3 T_jk + sum_j a_j^4 ||T_j||^2,

from row sums and one more matrix product. The three terms may cancel: their rounding, at most
8 (d + rank + 8) u (||a|| ||v|| + ||a||^2 ||T||)^2 by Cauchy-Schwarz, is added, so that what is returned
bounds the norm from above. For the same reason the norm counts as at least 2^-10 of the length of the parts
that cancel, which bounds the rounding of the weighted sum (`cancellation`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from confide.training.sgd.arrays import Array, Floats, Namespace, flatten, row_squares, without
from confide.training.sgd.models import Rows, uniform

_UNIT = 2.0**-53


@dataclass(frozen=True)
class FactorisationMachine:
    """One output; parameters are b, w [columns], T [columns, rank] row by row."""

    columns: int
    rank: int = 8
    outputs: int = 1
    cancellation: float = 1024.0
    has_widths: bool = False
    #: Self-terms are squares of single columns: the function is not one of C x alone.
    blocks: None = None
    constant: bool = False

    @property
    def width(self) -> int:
        """Columns, their squares and factors."""
        return 3 * (self.columns + self.rank)

    @property
    def size(self) -> int:
        """Number of parameters."""
        return 1 + self.columns * (1 + self.rank)

    def initial(self, seed: int) -> Floats:
        """Return b = w = 0 and small T: at T = 0 its gradient vanishes."""
        out = np.zeros(self.size)
        count = self.columns * self.rank
        out[1 + self.columns :] = uniform(seed, (count, 0.5 / max(1, count) ** 0.5))[0]
        return out

    def _factors(self, xp: Namespace, parameters: Array) -> Array:
        return xp.reshape(parameters[1 + self.columns :], (self.columns, self.rank))

    def forward(self, xp: Namespace, parameters: Array, rows: Rows) -> tuple[Array, Any]:
        """Return f, and (v, a^2)."""
        T = self._factors(xp, parameters)
        v = xp.matmul(rows.values, T)
        squares = rows.values * rows.values
        pairs = row_squares(xp, v) - xp.matmul(squares, row_squares(xp, T))
        f = parameters[0] + xp.matmul(rows.values, parameters[1 : 1 + self.columns]) + 0.5 * pairs
        return f, (v, squares)

    def backward(
        self, xp: Namespace, parameters: Array, rows: Rows, tape: Any, seeds: Array | None
    ) -> tuple[Array, Any]:
        """Return the squared norm of grad f, rounded up."""
        T = self._factors(xp, parameters)
        v, squares = tape
        a2 = rows.squares
        v2 = row_squares(xp, v)
        each = row_squares(xp, T)
        cross = xp.sum(v * ((squares * rows.values) @ T), axis=1)
        norms = a2 * v2 - 2.0 * cross + (squares * squares) @ each
        # Length of the parts: each of the three terms is at most its square.
        length = xp.sqrt(a2 * v2) + a2 * xp.sqrt(xp.sum(each))
        parts = length * length
        slack = 8.0 * (self.columns + self.rank + 8) * _UNIT
        norms = xp.maximum(norms + slack * parts, parts * self.cancellation**-2)
        return 1.0 + a2 + norms, None

    def widths(self, xp: Namespace, values: Array) -> Array:
        """Refuse: it would take a backward pass for each output."""
        raise NotImplementedError

    def contract(
        self, xp: Namespace, parameters: Array, rows: Rows, tape: Any, deltas: Any, weights: Array
    ) -> Array:
        """Return the weighted sum of (1, a, a v' - T a^2)."""
        v, squares = tape
        T = self._factors(xp, parameters)
        first = xp.sum(weights, axis=0, keepdims=True)
        factors = rows.values.T @ (v * weights[:, None]) - T * (weights @ squares)[:, None]
        return flatten(xp, [first, weights @ rows.values, factors])

    def scrub(self, xp: Namespace, rows: Rows, tape: Any, deltas: Any, bad: Array) -> tuple[Rows, Any, Any]:
        """Empty bad rows."""
        emptied = tuple(without(xp, part, bad) for part in tape)
        return rows.without(xp, bad), emptied, None
