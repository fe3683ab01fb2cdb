"""Coefficients of linear models in the units of the data."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from confide.training.engines.parts import LinearParts
from confide.training.sgd.result import SGDModel

Floats = npt.NDArray[np.float64]


def affine(model: Any) -> tuple[Floats, Floats, Floats]:
    """Return intercept [m], public [m, p] and private [m, q] coefficients of a linear model's outputs.

    Those of private columns hold within their bounds, beyond which cells are clipped. Outputs of ``dpsgd`` on
    a number are in half-widths of the label's bounds, and are brought to its units.
    """
    return _of_parts(model) if isinstance(model, LinearParts) else _of_sgd(model)


def _of_parts(model: LinearParts) -> tuple[Floats, Floats, Floats]:
    low, high = model.private_bounds[:, 0], model.private_bounds[:, 1]
    private = model.private / (high / 2 - low / 2)
    return model.intercept - private @ (low / 2 + high / 2), model.public, private


def _of_sgd(model: SGDModel) -> tuple[Floats, Floats, Floats]:
    shape: Any = model.model
    inputs = model.inputs
    p = inputs.centre.size
    weights = model.parameters.reshape(shape.outputs, shape.columns)
    intercept = weights[:, -1].copy() if shape.intercept else np.zeros(shape.outputs)
    public = weights[:, :p] if model.matrix is None else weights[:, :p] @ model.matrix
    public = public / inputs.scale
    private = weights[:, p : shape.features] / inputs.half
    intercept = intercept - public @ inputs.centre - private @ inputs.middle
    if model.target_bounds is None:
        return intercept, public, private
    low, high = model.target_bounds
    half = high / 2 - low / 2
    return low / 2 + high / 2 + half * intercept, half * public, half * private
