"""What a fit of engine `dpsgd` hands back."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from os import PathLike
from typing import Any

import numpy as np

from confide.errors import DataError
from confide.privacy import Guarantee
from confide.schema.loose import attribute
from confide.training.inputs import dense
from confide.training.result import Status
from confide.training.sgd.arrays import Floats, RowWise
from confide.training.sgd.cells import numbers
from confide.training.sgd.models import Model, Rows
from confide.training.sgd.public import check_names, public_cells
from confide.training.sgd.sensitivity import Accounting


@dataclass(frozen=True)
class Inputs:
    """Public maps from a user's columns to what the model sees.

    Attributes
    ----------
    centre, scale : ndarray of shape (p,)
        Of public columns: (x - centre) / scale.
    middle, half : ndarray of shape (q,)
        Of private columns: clipped to [-1, 1] about the middle of their bounds; missing is 0.
    """

    centre: Floats
    scale: Floats
    middle: Floats
    half: Floats

    def public(self, X: Any) -> Floats:
        """Return public columns of an array or frame, centred and scaled."""
        # Halves first: the difference of two finite numbers near 1e308 overflows.
        return (public_cells(X) / 2 - self.centre / 2) / (self.scale / 2)

    def private(self, X: Any) -> Floats:
        """Return private columns within [-1, 1], whatever their cells hold; never warns."""
        with np.errstate(all="ignore"):
            scaled = (numbers(dense(X)) / 2 - self.middle / 2) / (self.half / 2)
            return np.clip(np.nan_to_num(scaled, nan=0.0, posinf=1.0, neginf=-1.0), -1.0, 1.0)


@dataclass(frozen=True)
class SGDModel:
    """A released model; `predict` is post-processing.

    Attributes
    ----------
    model : Model
    parameters : ndarray of shape (size,)
    matrix : ndarray of shape (p, p) or None
        C of the stage that the parameters belong to.
    inputs : Inputs
    target_bounds : pair of float or None
    classes : tuple or None
    columns : tuple of str
        Names of the public columns, then of the private ones, where the fit knew them; kept by `save`.
    """

    model: Model
    parameters: Floats
    matrix: Floats | None
    inputs: Inputs
    target_bounds: tuple[float, float] | None
    classes: tuple[Any, ...] | None
    columns: tuple[str, ...] = field(default=(), repr=False, compare=False)

    def __repr__(self) -> str:
        target = "a number" if self.classes is None else f"{len(self.classes)} classes"
        p, q = self.inputs.centre.size, self.inputs.middle.size
        name = type(self.model).__name__
        return (
            f"SGDModel({name} of {target}, {p} public and {q} private columns, "
            f"{self.parameters.size} parameters)"
        )

    def outputs(self, X_public: Any = None, X_private: Any = None) -> Floats:
        """Return the model's outputs, shape [m] or [m, K], in units of labels in [-1, 1] or as logits.

        Parts are arrays, sparse matrices or frames of the fit's columns in its order; a frame that calls them
        otherwise is refused. Where no column is public, a row's output depends on that row alone, bit for bit
        (`confide.mechanisms.rowwise`): scores of rows that come and go rely on it (`confide.tune.scoring`).
        """
        p, q = self.inputs.centre.size, self.inputs.middle.size
        parts = []
        for X, columns, read, name, known in (
            (X_public, p, self.inputs.public, "public", self.columns[:p]),
            (X_private, q, self.inputs.private, "private", self.columns[p:]),
        ):
            if X is None and columns == 0:
                continue
            shape = attribute(X, "shape")
            if not isinstance(shape, tuple) or len(shape) != 2 or shape[1] != columns:
                raise DataError(
                    f"The model has {columns} {name} columns.",
                    f"Pass an array or a frame of shape (m, {columns}).",
                )
            check_names(X, known, f"X_{name}")
            parts.append(read(X))
        if parts and p and self.matrix is not None:
            parts[0] = parts[0] @ self.matrix.T
        values = np.concatenate(parts, axis=1) if parts else np.zeros((1, 0))
        if self.model.constant:
            values = np.concatenate([values, np.ones((values.shape[0], 1))], axis=1)
        rows = Rows.of(np, self.model, values, p, np.zeros(values.shape[0]))
        with np.errstate(all="ignore"):
            return np.asarray(self.model.forward(np if p else RowWise(), self.parameters, rows)[0])

    def predict(self, X_public: Any = None, X_private: Any = None) -> Any:
        """Return labels within their bounds, or classes, shape [m]."""
        f = self.outputs(X_public, X_private)
        if self.target_bounds is not None:
            low, high = self.target_bounds
            return low / 2 + high / 2 + (high / 2 - low / 2) * np.clip(f, -1.0, 1.0)
        assert self.classes is not None
        places = (f > 0).astype(int) if f.ndim == 1 else f.argmax(axis=1)
        return np.asarray(self.classes)[places]

    def predict_proba(self, X_public: Any = None, X_private: Any = None) -> Floats:
        """Return the probability of each class, shape [m, K]."""
        f = self.outputs(X_public, X_private)
        if f.ndim == 1:
            one = 0.5 * (1.0 + np.tanh(0.5 * f))
            return np.stack([1.0 - one, one], axis=1)
        e = np.exp(f - f.max(axis=1, keepdims=True))
        return e / e.sum(axis=1, keepdims=True)

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, fit for JSON."""
        from confide.training.engines.table_model import sgd_to_dict

        return sgd_to_dict(self)

    def save(self, path: str | PathLike[str]) -> None:
        """Write the model as JSON; `confide.training.TableModel.load` reads it.

        The model that is read takes one matrix: public columns, then private ones; or a frame with their
        names, in any order. An existing file is written over.
        """
        from confide.training.engines.table_model import of_arrays

        of_arrays(self, self.inputs.centre.size, self.inputs.middle.size, self.columns).save(path)


@dataclass(frozen=True)
class TracePoint:
    """The model after some step; released, like every iterate."""

    step: int
    model: SGDModel


@dataclass(frozen=True)
class SGDResult:
    """A fit.

    Attributes
    ----------
    model : SGDModel
    guarantee : Guarantee
    status : Status
    accounting : Accounting
        Sampler, multiplier and accountant; ``accounting.accountant`` says which calculus priced the noise.
    clip : float
        Clip norm of the last stage.
    rates : ndarray of shape (T,)
    trace : tuple of TracePoint
    entry : str or None
        The ledger's entry.
    """

    model: SGDModel
    guarantee: Guarantee
    status: Status
    accounting: Accounting
    clip: float
    rates: Floats
    trace: tuple[TracePoint, ...] = ()
    entry: str | None = None

    def __repr__(self) -> str:
        steps, size = self.accounting.steps, self.model.parameters.size
        name = type(self.model.model).__name__
        return f"SGDResult({name} of {size} parameters, {steps} steps, {self.status.code}; {self.guarantee})"

    def learning_curve(self, score: Callable[[SGDModel], float]) -> tuple[tuple[int, float], ...]:
        """Return (step, score) of each traced model.

        Models are released and free; a score that reads private rows is a release of its own, and not
        private.
        """
        return tuple((point.step, float(score(point.model))) for point in self.trace)
