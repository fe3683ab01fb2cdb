"""What the engine asks of a model: a forward pass, a backward pass of deltas, norms, one weighted sum.

Per-example gradients are never materialised. A model keeps what its forward pass computed (its tape), turns
seeds s_i on its outputs into deltas, says the norm of each row's gradient of s_i' f_i from row sums of
squares, and contracts sum_i w_i grad(s_i' f_i) with one matrix product a layer. For one output the seed is 1:
norms are then those of grad f, which depend on no label.

A row's norm must be an upper bound in floating point up to a relative 10^-7 (the engine clips at
c (1 - 10^-6)), and no part of a row's contribution may be longer than `cancellation` times its norm, which
bounds the rounding of the weighted sum.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from confide.training.sgd.arrays import Array, Floats, Namespace, row_squares, take_rows, without


@dataclass(frozen=True, slots=True)
class Rows:
    """Some rows of a table, as kernels see them.

    Attributes
    ----------
    values : array of shape [b, d]
        Conditioned public columns, then private ones.
    public : int
        How many of the d columns are public.
    side : array of shape [b, 2 to 4]
        What a batch gathers together: the label; the model's `widths` where it has them, elsewhere the
        squared norms of the public and of the private part; the sample weight within its public cap, where
        rows are weighted.
    weighted : bool
    """

    values: Array
    public: int
    side: Array
    weighted: bool = False

    @classmethod
    def of(
        cls,
        xp: Namespace,
        model: Model,
        values: Array,
        public: int,
        labels: Array,
        weights: Array | None = None,
    ) -> Rows:
        """Return rows with what `model` wants to know of each."""
        with np.errstate(all="ignore"):
            if model.has_widths:
                known = [model.widths(xp, values)]
            else:
                known = [row_squares(xp, values[:, :public]), row_squares(xp, values[:, public:])]
        columns = [labels, *known] + ([] if weights is None else [weights])
        side = (np.stack if xp is np else xp.stack)(columns, axis=1)
        return cls(values, public, side, weights is not None)

    @property
    def count(self) -> int:
        """Number b of rows."""
        return int(self.values.shape[0])

    @property
    def labels(self) -> Array:
        """Labels, shape [b]: never [b, 1], which would broadcast to b x b."""
        return self.side[:, 0]

    @property
    def widths(self) -> Array:
        """The model's widths, shape [b]."""
        return self.side[:, 1]

    @property
    def inside(self) -> Array:
        """Squared norms of the public part, shape [b]."""
        return self.side[:, 1]

    @property
    def outside(self) -> Array:
        """Squared norms of the private part, shape [b]."""
        return self.side[:, 2]

    @property
    def squares(self) -> Array:
        """Squared norms, shape [b]."""
        if self.public == self.values.shape[1]:
            return self.side[:, 1]
        return self.side[:, 1] + self.side[:, 2]

    @property
    def weights(self) -> Array:
        """Sample weights, shape [b]."""
        return self.side[:, -1]

    def __getitem__(self, part: slice) -> Rows:
        return Rows(self.values[part], self.public, self.side[part], self.weighted)

    def take(self, xp: Namespace, places: Any) -> Rows:
        """Return the rows at `places`."""
        values, side = take_rows(xp, self.values, places), take_rows(xp, self.side, places)
        return Rows(values, self.public, side, self.weighted)

    def without(self, xp: Namespace, bad: Array) -> Rows:
        """Return the same with the values of rows `bad` set to zero."""
        return Rows(without(xp, self.values, bad), self.public, self.side, self.weighted)


@dataclass(frozen=True)
class Block:
    """A matrix [rows, public] within the parameter vector that multiplies the public columns.

    Attributes
    ----------
    start, rows, stride : int
        Row r holds the parameters start + r * stride, ..., + public - 1.
    """

    start: int
    rows: int
    stride: int

    def view(self, parameters: Floats, public: int) -> Floats:
        """Return the block of a parameter vector, shape (rows, public), without a copy."""
        flat = parameters[self.start : self.start + self.rows * self.stride]
        return flat.reshape(self.rows, self.stride)[:, :public]


class Model(Protocol):
    """A model with a flat parameter vector."""

    @property
    def size(self) -> int:
        """Number of parameters."""
        ...

    @property
    def outputs(self) -> int:
        """Number K of outputs."""
        ...

    @property
    def width(self) -> int:
        """Numbers that a row holds on its way, about."""
        ...

    @property
    def constant(self) -> bool:
        """Whether a column of ones stands after the others."""
        ...

    @property
    def cancellation(self) -> float:
        """How much longer than a row's gradient the parts of its contribution may be, >= 1."""
        ...

    @property
    def blocks(self) -> tuple[Block, ...] | None:
        """Where public columns enter linearly, for `switch`; None where they enter otherwise too."""
        ...

    @property
    def has_widths(self) -> bool:
        """Whether ||grad(s'f)|| is a function of the row alone times ||s||, so that it is computed once."""
        ...

    def initial(self, seed: int) -> Floats:
        """Return public initial parameters, shape (size,)."""
        ...

    def forward(self, xp: Namespace, parameters: Array, rows: Rows) -> tuple[Array, Any]:
        """Return the outputs (shape [b] for K = 1, [b, K] otherwise) and the tape."""
        ...

    def backward(
        self, xp: Namespace, parameters: Array, rows: Rows, tape: Any, seeds: Array | None
    ) -> tuple[Array | None, Any]:
        """Return the squared norms [b] of each row's gradient of seeds' f, and the deltas.

        `seeds` of shape [b, K], or None for K = 1, where each is 1. The norms are None where `has_widths`.
        """
        ...

    def widths(self, xp: Namespace, values: Array) -> Array:
        """Return max_s ||grad(s'f)|| / ||s||, shape [b]; only asked where `has_widths`."""
        ...

    def contract(
        self, xp: Namespace, parameters: Array, rows: Rows, tape: Any, deltas: Any, weights: Array
    ) -> Array:
        """Return sum_i weights_i grad(seeds_i' f_i), shape [size]; may use up the deltas."""
        ...

    def scrub(self, xp: Namespace, rows: Rows, tape: Any, deltas: Any, bad: Array) -> tuple[Rows, Any, Any]:
        """Return the same with all that rows `bad` (bool [b]) hold set to zero."""
        ...


def uniform(seed: int, *counts: tuple[int, float]) -> list[Floats]:
    """Return public pseudo-random numbers, for each pair (count, a) uniform in [-a, a]."""
    generator = np.random.Generator(np.random.Philox(seed))
    return [generator.uniform(-a, a, count) for count, a in counts]
