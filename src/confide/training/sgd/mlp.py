"""Multilayer perceptron over embeddings: v = (Theta_pub C x_pub, Theta_priv x_priv), then dense layers.

Every weight is used once a row, so a dense layer's squared gradient norm is ||delta||^2 (||a||^2 + 1), delta
the gradient at its output and a its input; embeddings have no bias, hence no + 1. With a tape of activations
and one backward pass of deltas, norms are row sums of squares and the weighted sum is one product a layer.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from confide.errors import ParameterError
from confide.training.sgd.arrays import Array, Floats, Namespace, flatten, row_squares, without
from confide.training.sgd.models import Block, Rows, uniform

_GELU = math.sqrt(2.0 / math.pi)


def _relu(xp: Namespace, h: Array) -> tuple[Array, Array]:
    if xp is np:
        a = np.maximum(h, 0.0)
        return a, a
    a = xp.where(h > 0, h, xp.zeros_like(h))
    return a, a


def _relu_slope(xp: Namespace, kept: Array) -> Array:
    return kept > 0


def _tanh(xp: Namespace, h: Array) -> tuple[Array, Array]:
    a = xp.tanh(h)
    return a, a


def _tanh_slope(xp: Namespace, kept: Array) -> Array:
    return 1.0 - kept * kept


def _gelu(xp: Namespace, h: Array) -> tuple[Array, Array]:
    # Hendrycks & Gimpel 2016, the form with tanh: the array API has no error function.
    t = xp.tanh(_GELU * (h + 0.044715 * h * h * h))
    slope = 0.5 * (1.0 + t) + 0.5 * h * (1.0 - t * t) * (_GELU * (1.0 + 3 * 0.044715 * h * h))
    return 0.5 * h * (1.0 + t), slope


def _gelu_slope(xp: Namespace, kept: Array) -> Array:
    return kept


def _scaled(xp: Namespace, delta: Array, column: Array) -> Array:
    """Return delta * column; in place where that saves a large array (deltas are used once)."""
    return np.multiply(delta, column, out=delta) if xp is np else delta * column


#: Name -> (function that returns the activation and what its slope needs, slope, gain of the initial law).
ACTIVATIONS: dict[str, tuple[Callable[..., Any], Callable[..., Any], float]] = {
    "relu": (_relu, _relu_slope, math.sqrt(2.0)),
    "tanh": (_tanh, _tanh_slope, 1.0),
    "gelu": (_gelu, _gelu_slope, math.sqrt(2.0)),
}


@dataclass(frozen=True)
class MLP:
    """Dense layers over optional embeddings.

    Attributes
    ----------
    public, private : int
        Columns of each kind; either may be 0.
    hidden : tuple of int
        Widths of the hidden layers; empty is a linear model over the embeddings.
    embedding, private_embedding : int
        Widths of Theta_pub x and Theta_priv x; 0 for both feeds the columns to the first layer.
    activation : {"relu", "tanh", "gelu"}
    outputs : int

    Notes
    -----
    Parameters, in order: Theta_pub [embedding, public], Theta_priv [private_embedding, private], then W
    [out, in] and b [out] of each layer; all row by row.
    """

    public: int
    private: int = 0
    hidden: tuple[int, ...] = (64, 32)
    embedding: int = 0
    private_embedding: int = 0
    activation: str = "relu"
    outputs: int = 1
    cancellation: float = 1.0
    has_widths: bool = False
    constant: bool = False

    def __post_init__(self) -> None:
        if self.activation not in ACTIVATIONS:
            raise ParameterError(
                f"The 'activation' parameter is {self.activation!r:.80}.",
                f"Pass one of {', '.join(map(repr, ACTIVATIONS))}.",
            )
        for name in ("embedding", "private_embedding", *("hidden",) * len(self.hidden)):
            widths = self.hidden if name == "hidden" else (getattr(self, name),)
            if any(isinstance(w, bool) or not isinstance(w, int) or w < (name == "hidden") for w in widths):
                raise ParameterError(f"The '{name}' parameter is {widths!r:.80}.", "Pass positive integers.")

    @property
    def width(self) -> int:
        """Columns, activations and deltas."""
        return self.public + self.private + 2 * (sum(self.hidden) + self.embedding + self.private_embedding)

    @property
    def embedded(self) -> bool:
        """Whether columns enter through embeddings without bias."""
        return self.embedding > 0 or self.private_embedding > 0

    @cached_property
    def _embeddings(self) -> tuple[tuple[int, int], ...]:
        """(width, columns) of the embeddings that exist."""
        if not self.embedded:
            return ()
        pairs = ((self.embedding, self.public), (self.private_embedding, self.private))
        for (width, columns), name in zip(pairs, ("embedding", "private_embedding"), strict=True):
            if columns and not width:
                raise ParameterError(
                    f"The '{name}' parameter is 0 for {columns} columns.", "Pass a width for both parts."
                )
        return tuple((width if columns else 0, columns) for width, columns in pairs)

    @cached_property
    def _shapes(self) -> tuple[tuple[int, int], ...]:
        """(out, in) of the dense layers."""
        first = sum(w for w, _ in self._embeddings) if self.embedded else self.public + self.private
        widths = (first, *self.hidden, self.outputs)
        return tuple(zip(widths[1:], widths[:-1], strict=True))

    @property
    def size(self) -> int:
        """Number of parameters."""
        return self._size

    @cached_property
    def _size(self) -> int:
        return sum(w * c for w, c in self._embeddings) + sum(o * (i + 1) for o, i in self._shapes)

    @property
    def blocks(self) -> tuple[Block, ...]:
        """Theta_pub, or the public columns of the first layer."""
        if self.embedded:
            return (Block(0, self._embeddings[0][0], self.public),) if self.public else ()
        rows, columns = self._shapes[0]
        return (Block(0, rows, columns),) if self.public else ()

    def initial(self, seed: int) -> Floats:
        """Return uniform weights of variance gain^2 / fan-in, biases 0."""
        gain = ACTIVATIONS[self.activation][2]
        laws: list[tuple[int, float]] = [
            (w * c, math.sqrt(3.0 / c) if c else 0.0) for w, c in self._embeddings
        ]
        for place, (out, fan) in enumerate(self._shapes):
            strength = 1.0 if place == len(self._shapes) - 1 else gain
            laws += [(out * fan, strength * math.sqrt(3.0 / fan) if fan else 0.0), (out, 0.0)]
        return np.concatenate(uniform(seed, *laws))

    def _weights(self, xp: Namespace, parameters: Array) -> tuple[list[Array], list[tuple[Array, Array]]]:
        start, embeddings, layers = 0, [], []
        for width, columns in self._embeddings:
            stop = start + width * columns
            embeddings.append(xp.reshape(parameters[start:stop], (width, columns)))
            start = stop
        for out, fan in self._shapes:
            stop = start + out * fan
            layers.append((xp.reshape(parameters[start:stop], (out, fan)), parameters[stop : stop + out]))
            start = stop + out
        return embeddings, layers

    def forward(self, xp: Namespace, parameters: Array, rows: Rows) -> tuple[Array, Any]:
        """Return the outputs, and for each layer its input and what the slope at its input needs."""
        embeddings, layers = self._weights(xp, parameters)
        act = ACTIVATIONS[self.activation][0]
        a, cut, kept = rows.values, rows.public, None
        if self.embedded:
            public, private = embeddings
            if not self.private:
                a = xp.matmul(rows.values, public.T)
            elif not self.public:
                a = xp.matmul(rows.values, private.T)
            else:
                join = np.concatenate if xp is np else xp.concat
                parts = (rows.values[:, :cut], public), (rows.values[:, cut:], private)
                a = join([xp.matmul(cells, W.T) for cells, W in parts], axis=1)
        tape = [(a, kept)]
        for W, b in layers[:-1]:
            h = xp.matmul(a, W.T)
            h += b
            a, kept = act(xp, h)
            tape.append((a, kept))
        W, b = layers[-1]
        f = xp.matmul(a, W.T) + b
        return (f[:, 0] if self.outputs == 1 else f), tape

    def backward(
        self, xp: Namespace, parameters: Array, rows: Rows, tape: Any, seeds: Array | None
    ) -> tuple[Array, Any]:
        """Return the squared norms, and the delta of each layer's output (embeddings first)."""
        _, layers = self._weights(xp, parameters)
        slope = ACTIVATIONS[self.activation][1]
        last = len(layers) - 1
        delta = xp.ones_like(rows.values[:, :1]) if seeds is None else seeds
        deltas: list[Array] = [delta]
        norms = (row_squares(xp, tape[last][0]) + 1.0) * (1.0 if seeds is None else row_squares(xp, delta))
        for place in range(last, 0, -1):
            W = layers[place][0]
            # From one output of seed 1 the delta is the same row for all: no product is needed.
            back = W if seeds is None and place == last else delta @ W
            delta = back * slope(xp, tape[place][1])
            deltas.append(delta)
            a = tape[place - 1][0]
            inside = row_squares(xp, a) if place > 1 or self.embedded else rows.squares
            norms = norms + row_squares(xp, delta) * (inside + 1.0)
        if self.embedded:
            W = layers[0][0]
            delta = delta @ W if last or seeds is not None else delta * W
            deltas.append(delta)
            cut = self._embeddings[0][0]
            norms = norms + row_squares(xp, delta[:, :cut]) * rows.inside
            if self.private:
                norms = norms + row_squares(xp, delta[:, cut:]) * rows.outside
        return norms, deltas[::-1]

    def widths(self, xp: Namespace, values: Array) -> Array:
        """Refuse: it would take a backward pass for each output."""
        raise NotImplementedError

    def contract(
        self, xp: Namespace, parameters: Array, rows: Rows, tape: Any, deltas: Any, weights: Array
    ) -> Array:
        """Return the weighted sum of gradients: one product a layer."""
        column = weights[:, None]
        parts: list[Array] = []
        rest = deltas
        if self.embedded:
            scaled = _scaled(xp, deltas[0], column)
            cut = self._embeddings[0][0]
            if self.public:
                parts.append(scaled[:, :cut].T @ rows.values[:, : rows.public])
            if self.private:
                parts.append(scaled[:, cut:].T @ rows.values[:, rows.public :])
            rest = deltas[1:]
        for (a, _), delta in zip(tape, rest, strict=True):
            scaled = _scaled(xp, delta, column)
            parts += [scaled.T @ a, xp.sum(scaled, axis=0)]
        return flatten(xp, parts)

    def scrub(self, xp: Namespace, rows: Rows, tape: Any, deltas: Any, bad: Array) -> tuple[Rows, Any, Any]:
        """Empty bad rows."""
        layers = [(without(xp, a, bad), kept) for a, kept in tape]
        return rows.without(xp, bad), layers, [without(xp, delta, bad) for delta in deltas]
