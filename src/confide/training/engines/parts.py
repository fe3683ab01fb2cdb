"""A linear predictor on public and private columns, of a number or of classes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from os import PathLike
from typing import Any

import numpy as np
import numpy.typing as npt

from confide.errors import DataError
from confide.mechanisms import row_products

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class LinearParts:
    """Outputs intercept + public coefficients + coefficients of private columns in half-widths.

    Attributes
    ----------
    intercept : ndarray of shape (m,)
        m = 1 for a number and for two classes (the logit of the second), else the number of classes.
    public : ndarray of shape (m, p)
    private : ndarray of shape (m, q)
        Of columns clipped to their bounds, about the middle, in half-widths; missing cells are the middle.
    private_bounds : ndarray of shape (q, 2)
    bounds : (float, float) or None
        Of a number, to which predictions are clipped; None for classes.
    classes : tuple or None
    columns : tuple of str
        Names of the public columns, then of the private ones, where the fit knew them; kept by `save`.
    """

    intercept: Floats
    public: Floats
    private: Floats
    private_bounds: Floats
    bounds: tuple[float, float] | None = None
    classes: tuple[Any, ...] | None = None
    columns: tuple[str, ...] = field(default=(), repr=False, compare=False)

    def __str__(self) -> str:
        target = "a number" if self.classes is None else f"{len(self.classes)} classes"
        p, q = self.public.shape[1], self.private.shape[1]
        return f"linear model of {target}, {p} public and {q} private columns"

    def outputs(self, X_public: Any = None, X_private: Any = None) -> Floats:
        """Return shape [n] for m = 1, else [n, m]; never NaN.

        Where no column is public, a row's output depends on that row alone, bit for bit
        (`confide.mechanisms.rowwise`): scores of rows that come and go rely on it (`confide.tune.scoring`).
        """
        raw: Any = self.intercept
        for X, weights, name, times in (
            (X_public, self.public, "public", _times),
            (X_private, self.private, "private", lambda X, W: row_products(self._halves(X), W)),
        ):
            if X is None and weights.shape[1] == 0:
                continue
            if X is None or len(X.shape) != 2 or X.shape[1] != weights.shape[1]:
                raise DataError(
                    f"The model has {weights.shape[1]} {name} columns.",
                    f"Pass a matrix of shape (n, {weights.shape[1]}).",
                )
            with np.errstate(over="ignore", invalid="ignore"):
                raw = raw + times(X, weights.T)
        # A row near 1e308 may overflow to inf - inf.
        middle = 0.0 if self.bounds is None else self.bounds[0] / 2 + self.bounds[1] / 2
        raw = np.clip(
            np.nan_to_num(np.atleast_2d(raw), nan=middle, posinf=1e300, neginf=-1e300), -1e300, 1e300
        )
        return raw[:, 0] if raw.shape[1] == 1 else raw

    def _halves(self, X: Any) -> Floats:
        with np.errstate(all="ignore"):
            cells = X.toarray() if hasattr(X, "toarray") else np.asarray(X, dtype=np.float64)
            low, high = self.private_bounds[:, 0], self.private_bounds[:, 1]
            z = (np.clip(cells, low, high) - (low / 2 + high / 2)) / (high / 2 - low / 2)
            return np.clip(np.nan_to_num(z, nan=0.0), -1.0, 1.0)

    def predict(self, X_public: Any = None, X_private: Any = None) -> Any:
        """Return numbers within the bounds, or classes; shape [n]."""
        f = self.outputs(X_public, X_private)
        if self.bounds is not None:
            return np.clip(f, *self.bounds)
        places = (f > 0).astype(np.int64) if f.ndim == 1 else f.argmax(axis=1)
        return np.asarray(self.classes)[places]

    def predict_proba(self, X_public: Any = None, X_private: Any = None) -> Floats:
        """Return the probability of each class, shape [n, K]."""
        return probabilities(self.outputs(X_public, X_private))

    def to_dict(self) -> dict[str, Any]:
        """Return plain values."""
        return {
            "kind": "linear",
            "intercept": self.intercept.tolist(),
            "public": self.public.tolist(),
            "private": self.private.tolist(),
            "private_bounds": self.private_bounds.tolist(),
            "bounds": None if self.bounds is None else list(self.bounds),
            "classes": None if self.classes is None else list(self.classes),
        }

    def save(self, path: str | PathLike[str]) -> None:
        """Write the model as JSON; `confide.training.TableModel.load` reads it.

        The model that is read takes one matrix: public columns, then private ones; or a frame with their
        names, in any order. An existing file is written over.
        """
        from confide.training.engines.table_model import of_arrays

        of_arrays(self, self.public.shape[1], self.private.shape[1], self.columns).save(path)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> LinearParts:
        """Rebuild from `to_dict`."""
        intercept = np.array(data["intercept"], dtype=np.float64)
        m = intercept.size
        bounds, classes = data["bounds"], data["classes"]
        return cls(
            intercept,
            np.array(data["public"], dtype=np.float64).reshape(m, -1),
            np.array(data["private"], dtype=np.float64).reshape(m, -1),
            np.array(data["private_bounds"], dtype=np.float64).reshape(-1, 2),
            None if bounds is None else (float(bounds[0]), float(bounds[1])),
            None if classes is None else tuple(classes),
        )


def _times(X: Any, weights: Floats) -> Floats:
    cells = X if hasattr(X, "tocsr") else np.asarray(X, dtype=np.float64)
    return np.asarray(cells @ weights)


def probabilities(f: Floats) -> Floats:
    """Return [n, 2] from logits [n] of the second class, or [n, K] from logits [n, K]."""
    if f.ndim == 1:
        one = 0.5 * (1.0 + np.tanh(0.5 * f))
        return np.stack([1.0 - one, one], axis=1)
    e = np.exp(f - f.max(axis=1, keepdims=True))
    return np.asarray(e / e.sum(axis=1, keepdims=True))
