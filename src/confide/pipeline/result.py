"""What select-then-fit hands back: a support, its coefficients, one guarantee for both."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from confide.errors import DataError, UnsupportedError
from confide.privacy import Guarantee
from confide.schema import Schema
from confide.schema.rows import check_format, encoded_as, saved_model, table_of
from confide.selection.result import SelectionResult
from confide.training.coefficients import Coefficients

Floats = npt.NDArray[np.float64]
_FORMAT = "confide-sparse-model/1"


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
    candidates : int
        p, the number of all encoded columns.
    loss : str
        Of the coefficients: it says how a score becomes a probability.
    schema_digest : str
        Digest of the schema of the fit; empty for a model on arrays.
    features : dict, optional
        Declaration of the columns that hold `names`, so that the model can read raw rows: of these columns
        alone. None for a model on arrays.
    """

    names: tuple[str, ...]
    indices: tuple[int, ...]
    intercept: float
    coefficients: Floats
    bounds: tuple[float, float] | None
    classes: tuple[str, ...] = ()
    candidates: int = 0
    loss: str = ""
    schema_digest: str = ""
    features: dict[str, Any] | None = field(default=None, repr=False, compare=False)

    def __repr__(self) -> str:
        target = f"score of {self.classes[1]!r}" if self.classes else "prediction"
        return f"SparseModel({target} from {_few(self.names)})"

    def predict(self, X: Any) -> npt.NDArray[Any]:
        """Return predictions of shape (n,): numbers within `bounds`, or classes.

        Parameters
        ----------
        X : frame, dict of columns, list of dicts, array, path, Table, ChunkedTable or Encoded
            A pandas, polars or Arrow frame, dicts, or a CSV, Parquet or Arrow file need the columns of the
            support alone, and no label or id; an array holds raw cells of the support's columns, in the order
            of the schema. Encoded columns are passed by that name: `confide.schema.Encoded`. A model fitted
            on arrays takes the columns of the support, or all.

        Returns
        -------
        ndarray of shape (n,)
            A number in the encoded unit of the label (its logarithm, with ``transform = "log"``); a class
            where the label has two categories, the first for a score of exactly 0.

        Raises
        ------
        DataError
            If the columns do not match those of the fit.
        """
        score = self.decision_function(X)
        if self.classes:
            return np.array(self.classes)[(score > 0).astype(np.int64)]
        assert self.bounds is not None
        return np.clip(score, *self.bounds)

    def decision_function(self, X: Any) -> Floats:
        """Return the linear score of shape (n,): for classes, positive for the second."""
        matrix = self._encoded(X)
        with np.errstate(all="ignore"):
            raw = np.asarray(matrix @ self.coefficients).ravel() + self.intercept
        # A row near 1e308 may overflow to inf - inf; the middle is a prediction like any other.
        middle = 0.0 if self.bounds is None else self.bounds[0] / 2 + self.bounds[1] / 2
        return np.where(np.isnan(raw), middle, raw)

    def predict_proba(self, X: Any) -> Floats:
        """Return probabilities of shape (n, 2), in the order of `classes`.

        The logistic function of the score, or (1 + score) / 2 clipped to [0, 1] for squared loss.

        Raises
        ------
        UnsupportedError
            For a model of a number, and for hinge loss, whose score is no probability.
        """
        if not self.classes or self.loss == "hinge":
            what = f"loss {self.loss!r}" if self.classes else "a label that is a number"
            raise UnsupportedError(
                f"The model has {what}, and no probabilities.",
                "Use predict, or fit a label of two categories with coefficient_loss='logistic'.",
            )
        return probabilities(self.decision_function(X), self.loss)

    def _encoded(self, X: Any) -> Any:
        """Return the encoded columns of the support, [n, s], of whatever holds the rows."""
        X = table_of(X, self.features, self.names)
        if hasattr(X, "schema") and hasattr(X, "chunks"):
            if self.features is None:
                raise DataError(
                    "The model was fitted on arrays and has no schema.",
                    f"Pass an array of shape (n, {len(self.indices)}).",
                )
            return encoded_as(X, Schema.from_dict(self.features), self.names)
        matrix = X.tocsr() if hasattr(X, "tocsr") else np.asarray(X, dtype=np.float64)
        size, shape = len(self.indices), tuple(matrix.shape)
        if len(shape) == 2 and shape[1] == size:
            return matrix
        whole = self.candidates or (shape[1] if len(shape) == 2 else 0)
        if len(shape) != 2 or shape[1] != whole or whole <= max(self.indices):
            every = f", or all {self.candidates} encoded columns" if self.candidates else ""
            raise DataError(f"The matrix has shape {shape}.", f"Pass (n, {size}) values{every}.")
        return matrix[:, list(self.indices)]

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, fit for JSON."""
        return {
            "format": _FORMAT,
            "names": list(self.names),
            "indices": list(self.indices),
            "candidates": self.candidates,
            "intercept": self.intercept,
            "coefficients": self.coefficients.tolist(),
            "bounds": None if self.bounds is None else list(self.bounds),
            "classes": list(self.classes),
            "loss": self.loss,
            "schema_digest": self.schema_digest,
            "features": self.features,
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> SparseModel:
        """Rebuild a model from `to_dict`; refuses other formats and numbers that are not finite."""
        check_format(data, _FORMAT)
        coefficients = np.array(data["coefficients"], dtype=np.float64)
        names = tuple(str(name) for name in data["names"])
        indices = tuple(int(place) for place in data["indices"])
        classes = tuple(str(value) for value in data["classes"])
        bounds = data["bounds"]
        if (
            not coefficients.shape == (len(names),) == (len(indices),)
            or not names
            or (bounds is None) != (len(classes) == 2)
        ):
            raise DataError("The model's names and coefficients do not match.", "Save it again.")
        numbers = np.concatenate([coefficients, [data["intercept"], *(bounds or ())]])
        if not np.isfinite(numbers).all():
            raise DataError("The model holds numbers that are not finite.", "Save it again.")
        return cls(
            names,
            indices,
            float(data["intercept"]),
            coefficients,
            None if bounds is None else (float(bounds[0]), float(bounds[1])),
            classes,
            int(data["candidates"]),
            str(data["loss"]),
            str(data["schema_digest"]),
            data["features"],
        )

    def save(self, path: str | PathLike[str]) -> None:
        """Write the model as JSON; an existing file is written over."""
        Path(path).write_text(json.dumps(self.to_dict(), indent=1) + "\n", encoding="utf-8")

    @classmethod
    def load(cls, path: str | PathLike[str]) -> SparseModel:
        """Read a model that `save` wrote, or the one in a result (``confide select --fit --out``).

        Nothing in the file is executed.

        Raises
        ------
        DataError
            For a file of another format, which the message names.
        """
        return cls.from_dict(saved_model(path))


def probabilities(score: Floats, loss: str) -> Floats:
    """Return probabilities [n, 2] of the two classes from scores, for logistic or squared loss."""
    if loss == "squared":
        positive = np.clip((1 + score) / 2, 0.0, 1.0)
    else:
        from scipy.special import expit

        positive = expit(score)
    return np.column_stack([1 - positive, positive])


def _few(names: tuple[str, ...]) -> str:
    """Return names in a line, cut after six."""
    return ", ".join(names[:6]) + (f" and {len(names) - 6} more" if len(names) > 6 else "")


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

    def __repr__(self) -> str:
        return f"SparseResult({_few(self.model.names)}; {self.guarantee})"

    def predict(self, X: Any) -> npt.NDArray[Any]:
        """Return `SparseModel.predict`; post-processing, hence free."""
        return self.model.predict(X)

    def predict_proba(self, X: Any) -> Floats:
        """Return `SparseModel.predict_proba`."""
        return self.model.predict_proba(X)

    @property
    def noise_errors(self) -> dict[str, float] | None:
        """Standard deviations of the privacy noise in intercept and coefficients; None where not known."""
        return noise_errors(self.coefficients, self.model.names)

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
            "noise_errors": self.noise_errors,
            "selection": None if self.selection is None else self.selection.to_dict(),
            "coefficients": self.coefficients.to_dict(),
        }

    def to_json(self, *, indent: int | None = None) -> str:
        """Return `to_dict` as JSON text."""
        return json.dumps(self.to_dict(), indent=indent)


def noise_errors(fitted: Coefficients, names: tuple[str, ...]) -> dict[str, float] | None:
    """Return deviations of the privacy noise by name, ``"(intercept)"`` first; None where not known."""
    if fitted.covariance is None:
        return None
    deviations = np.sqrt(np.maximum(np.diag(fitted.covariance), 0.0)).tolist()
    first = ("(intercept)",) if len(deviations) == len(names) + 1 else ()
    return dict(zip((*first, *names), deviations, strict=True))


def errors_in_words(fitted: Coefficients) -> str:
    """Return what is known of the error of coefficients, and how they are shrunk; a public sentence."""
    facts = dict(fitted.facts)
    weight = facts.get("curvature", 1.0)
    towards = (
        f"A ridge of {facts['ridge']:.3g} draws them towards 0; a row at its bounds weighs at "
        f"most {weight:.3g} against it."
    )
    if fitted.covariance is not None:
        return f"± is one standard deviation of the privacy noise, to first order. {towards}"
    return (
        "Their errors are not known: the noise enters the objective, and how far it moves the minimiser "
        f"hangs on the secret rows. {towards}"
    )
