"""What select-then-fit hands back: a support, its coefficients, one guarantee for both."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from confide.errors import DataError
from confide.privacy import Guarantee
from confide.selection.result import SelectionResult
from confide.training.coefficients import Coefficients

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class SparseModel:
    """A linear predictor on a few columns.

    Attributes
    ----------
    names : tuple of str, length s
        Of the encoded columns it reads.
    indices : tuple of int, length s
        Their places among all encoded columns.
    intercept : float
    coefficients : ndarray of shape (s,)
    bounds : (float, float) or None
        Predictions are clipped to them; None for classes.
    classes : tuple of str
        The two classes of a label of categories, negative first; empty for a number.
    """

    names: tuple[str, ...]
    indices: tuple[int, ...]
    intercept: float
    coefficients: Floats
    bounds: tuple[float, float] | None
    classes: tuple[str, ...] = ()

    def predict(self, X: Any) -> Floats:
        """Return predictions of shape (n,) for encoded rows; of classes, scores, positive for the second.

        Parameters
        ----------
        X : array or CSR of shape (n, s) or (n, p)
            The columns of the support, or all of them.

        Raises
        ------
        DataError
            If X has another shape.
        """
        matrix = X.tocsr() if hasattr(X, "tocsr") else np.asarray(X, dtype=np.float64)
        size = len(self.indices)
        if len(matrix.shape) != 2 or matrix.shape[1] < size:
            raise DataError(f"The matrix has shape {tuple(matrix.shape)}.", f"Pass (n, {size}) values.")
        if matrix.shape[1] != size:
            if matrix.shape[1] <= max(self.indices):
                raise DataError(f"The matrix has {matrix.shape[1]} columns.", "Pass all encoded columns.")
            matrix = matrix[:, list(self.indices)]
        with np.errstate(all="ignore"):
            raw = np.asarray(matrix @ self.coefficients).ravel() + self.intercept
        if self.bounds is None:
            return np.nan_to_num(raw, nan=0.0)
        middle = self.bounds[0] / 2 + self.bounds[1] / 2
        return np.clip(np.where(np.isnan(raw), middle, raw), *self.bounds)

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, fit for JSON."""
        return {
            "names": list(self.names),
            "indices": list(self.indices),
            "intercept": self.intercept,
            "coefficients": self.coefficients.tolist(),
            "bounds": None if self.bounds is None else list(self.bounds),
            "classes": list(self.classes),
        }


@dataclass(frozen=True)
class SparseResult:
    """A support and its coefficients, released privately under one charge.

    Attributes
    ----------
    model : SparseModel
        In units of encoded columns and of the label.
    guarantee : Guarantee
        Of both parts together.
    selection : SelectionResult or None
        None where the support was public. Its own guarantee is the part of the budget that selected.
    coefficients : Coefficients
        In units of the declared bounds.
    schema_digest, entry : str
        Digest of the schema, and id of the ledger's entry; empty without.
    """

    model: SparseModel
    guarantee: Guarantee
    selection: SelectionResult | None
    coefficients: Coefficients
    schema_digest: str = ""
    entry: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, fit for JSON."""
        return {
            "status": "released",
            "support": list(self.model.names),
            "indices": list(self.model.indices),
            "guarantee": self.guarantee.to_dict(),
            "sentence": str(self.guarantee),
            "entry": self.entry,
            "schema_digest": self.schema_digest,
            "model": self.model.to_dict(),
            "selection": None if self.selection is None else self.selection.to_dict(),
            "coefficients": self.coefficients.to_dict(),
        }

    def to_json(self, *, indent: int | None = None) -> str:
        """Return `to_dict` as JSON text."""
        return json.dumps(self.to_dict(), indent=indent)
