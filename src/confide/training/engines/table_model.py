"""A released model that reads frames, files and tables, and is saved as JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from confide.errors import DataError, UnsupportedError
from confide.schema import Schema
from confide.schema.rows import check_format, encoded_as, saved_model, table_of
from confide.training.engines.parts import LinearParts
from confide.training.sgd.factorisation import FactorisationMachine
from confide.training.sgd.linear import Linear
from confide.training.sgd.mlp import MLP
from confide.training.sgd.result import Inputs, SGDModel

Floats = npt.NDArray[np.float64]
_FORMAT = "confide-table-model/1"
_KINDS = {"linear": Linear, "fm": FactorisationMachine, "mlp": MLP}


@dataclass(frozen=True)
class TableModel:
    """A model of the encoded columns of a schema.

    Attributes
    ----------
    core : LinearParts or SGDModel
        What predicts from encoded columns.
    public, private : tuple of str
        Names of the encoded columns that it reads as public and as private ones.
    schema_digest : str
        Of the schema of the fit.
    features : dict
        Declaration of these columns, without label and id.
    """

    core: LinearParts | SGDModel
    public: tuple[str, ...]
    private: tuple[str, ...]
    schema_digest: str = ""
    features: dict[str, Any] | None = field(default=None, repr=False, compare=False)

    def __str__(self) -> str:
        names = {cls: name for name, cls in _KINDS.items()}
        kind = names[type(self.core.model)] if isinstance(self.core, SGDModel) else "linear"
        return f"{kind} model, {len(self.public)} public and {len(self.private)} private columns"

    @property
    def classes(self) -> tuple[Any, ...] | None:
        """Classes of the label; None for a number."""
        return self.core.classes

    def predict(self, X: Any) -> Any:
        """Return predictions of shape (n,): numbers within the label's bounds, or classes.

        Parameters
        ----------
        X : frame, dict of columns, list of dicts, array, path, Table, ChunkedTable or Encoded
            A frame, dicts or a file need the columns that the model reads, private ones too, and no label or
            id; an array holds raw cells, public columns first, then private ones. Encoded columns are passed
            by that name: `confide.schema.Encoded`. Rows are not protected by a prediction: who asks must be
            allowed to see them. A model fitted on arrays takes the same columns as an array of shape
            (n, p + q), public ones first, or a frame with their names.

        Raises
        ------
        DataError
            If the columns do not match those of the fit.

        Warns
        -----
        UserWarning
            Of cells that do not fit the schema, with their number.
        """
        return self.core.predict(*self._encoded(X))

    def predict_proba(self, X: Any) -> Floats:
        """Return the probability of each class, shape (n, K).

        Raises
        ------
        UnsupportedError
            For a model of a number.
        """
        if self.classes is None:
            raise UnsupportedError("The model predicts a number, and no classes.", "Use predict.")
        return self.core.predict_proba(*self._encoded(X))

    def decision_function(self, X: Any) -> Floats:
        """Return outputs before clipping, or logits; shape (n,) or (n, K)."""
        return self.core.outputs(*self._encoded(X))

    def _encoded(self, X: Any) -> tuple[Any, Any]:
        p, names = len(self.public), (*self.public, *self.private)
        X = table_of(X, self.features, names)
        if hasattr(X, "schema") and hasattr(X, "chunks"):
            matrix = encoded_as(X, Schema.from_dict(dict(self.features or {})), names)
        else:
            matrix = X.tocsr() if hasattr(X, "tocsr") else np.asarray(X, dtype=np.float64)
        if len(matrix.shape) != 2 or matrix.shape[1] != len(names):
            raise DataError(f"The matrix has shape {tuple(matrix.shape)}.", f"Pass (n, {len(names)}) values.")
        return (matrix[:, :p] if p else None), (matrix[:, p:] if self.private else None)

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, fit for JSON."""
        core = self.core
        return {
            "format": _FORMAT,
            "core": core.to_dict() if isinstance(core, LinearParts) else sgd_to_dict(core),
            "public": list(self.public),
            "private": list(self.private),
            "schema_digest": self.schema_digest,
            "features": self.features,
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> TableModel:
        """Rebuild a model from `to_dict`; refuses other formats and numbers that are not finite."""
        check_format(data, _FORMAT)
        held = data["core"]
        try:
            core = LinearParts.from_dict(held) if held["kind"] == "linear" else sgd_from_dict(held)
        except (KeyError, TypeError, ValueError) as error:
            raise DataError("The model's parts do not match.", "Save it again.") from error
        return cls(
            core,
            tuple(str(name) for name in data["public"]),
            tuple(str(name) for name in data["private"]),
            str(data["schema_digest"]),
            data["features"],
        )

    def save(self, path: str | PathLike[str]) -> None:
        """Write the model as JSON; an existing file is written over."""
        Path(path).write_text(json.dumps(self.to_dict(), indent=1) + "\n", encoding="utf-8")

    @classmethod
    def load(cls, path: str | PathLike[str]) -> TableModel:
        """Read a model that `save` wrote, or the one in a result (``confide train --out``).

        Nothing in the file is executed.
        """
        return cls.from_dict(saved_model(path))


def of_arrays(core: LinearParts | SGDModel, p: int, q: int, names: tuple[str, ...] = ()) -> TableModel:
    """Return a model of arrays without a schema: p public columns, then q private ones, else x0, x1, ..."""
    if len(names) != p + q:
        names = tuple(f"x{j}" for j in range(p + q))
    return TableModel(core, names[:p], names[p:])


def sgd_to_dict(model: SGDModel) -> dict[str, Any]:
    """Return a model of ``dpsgd`` as plain values."""
    kind = next(name for name, cls in _KINDS.items() if isinstance(model.model, cls))
    asked = {f.name: getattr(model.model, f.name) for f in fields(model.model) if f.init}  # type: ignore[arg-type]
    return {
        "kind": "dpsgd",
        "model": kind,
        "shape": {key: list(value) if isinstance(value, tuple) else value for key, value in asked.items()},
        "parameters": model.parameters.tolist(),
        "matrix": None if model.matrix is None else model.matrix.tolist(),
        "inputs": {f.name: getattr(model.inputs, f.name).tolist() for f in fields(model.inputs)},
        "bounds": None if model.target_bounds is None else list(model.target_bounds),
        "classes": None if model.classes is None else list(model.classes),
    }


def sgd_from_dict(data: Mapping[str, Any]) -> SGDModel:
    """Rebuild a model of ``dpsgd``."""
    shape = {key: tuple(value) if isinstance(value, list) else value for key, value in data["shape"].items()}
    model = _KINDS[data["model"]](**shape)
    parameters = np.array(data["parameters"], dtype=np.float64)
    inputs = Inputs(**{name: np.array(value, dtype=np.float64) for name, value in data["inputs"].items()})
    matrix = None if data["matrix"] is None else np.array(data["matrix"], dtype=np.float64)
    parts = [
        parameters,
        *(getattr(inputs, f.name) for f in fields(inputs)),
        *([] if matrix is None else [matrix]),
    ]
    if parameters.shape != (model.size,) or not all(np.isfinite(part).all() for part in parts):
        raise ValueError("parameters")
    bounds, classes = data["bounds"], data["classes"]
    return SGDModel(
        model,
        parameters,
        matrix,
        inputs,
        None if bounds is None else (float(bounds[0]), float(bounds[1])),
        None if classes is None else tuple(classes),
    )
