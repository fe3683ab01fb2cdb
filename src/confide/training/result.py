"""What a private fit hands back: a frozen model, its guarantee, and what is publicly known of its error."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from confide.errors import DataError, ParameterError
from confide.privacy import Guarantee, gaussian_sigma
from confide.schema.rows import check_format, saved_model, stacked, table_of
from confide.training.expansion import Powers, expand, names_of
from confide.training.rounds_trace import Trace

Floats = npt.NDArray[np.float64]
_FORMAT = "confide-linear-model/1"


class Status(Enum):
    """What became of a fit; decided by public facts and released values alone."""

    RELEASED = ("released", "The coefficients were released with calibrated noise.")
    PREVIEW = ("preview", "Nothing was read or charged: this is the guarantee that would be.")
    NONPRIVATE = ("nonprivate", "The coefficients carry no noise and no privacy.")

    def __init__(self, code: str, prose: str) -> None:
        self.code = code
        self.prose = prose


@dataclass(frozen=True)
class LinearModel:
    """A linear predictor, clipped to the declared label bounds.

    Attributes
    ----------
    intercept : float
    coefficients : ndarray of shape (p + len(powers),)
        For the encoded public columns `names`, then for the terms `powers`.
    names : tuple of str
        Length p.
    bounds : (float, float)
        Declared label bounds.
    schema_digest : str
        Digest of the schema that encodes tables for this model; empty for a model on arrays.
    powers : tuple of (int, int)
        Pairs (column, power) of further terms.
    features : dict, optional
        Declaration of the public columns (`Schema.features`), so that the model can read raw rows; None for
        a model on arrays.
    """

    intercept: float
    coefficients: Floats
    names: tuple[str, ...]
    bounds: tuple[float, float]
    schema_digest: str = ""
    powers: Powers = ()
    features: dict[str, Any] | None = field(default=None, repr=False, compare=False)

    @property
    def terms(self) -> tuple[str, ...]:
        """Names of the coefficients."""
        return names_of(self.names, self.powers)

    def predict(self, X: Any) -> Floats:
        """Return predictions of shape (n,), one for each row.

        Parameters
        ----------
        X : frame, dict of columns, list of dicts, array, path, Table, ChunkedTable or Encoded
            A pandas, polars or Arrow frame, dicts, or a CSV, Parquet or Arrow file need the public columns of
            the fit and no label or id; an array holds raw cells in the order of these columns. Encoded
            columns are passed by that name: `Table.public`. A `Table` that was read with an id column holds
            the rows that `max_rows_per_id` kept. A model fitted on arrays takes an array of shape (n, p) of
            the same columns, or a frame with their names.

        Returns
        -------
        ndarray of shape (n,)
            In the encoded unit of the label (its logarithm, with ``transform = "log"``).

        Raises
        ------
        DataError
            If the columns do not match those of the fit.

        Warns
        -----
        UserWarning
            Of cells that do not fit the schema, with their number.
        """
        X = self._encoded(X)
        matrix = X if hasattr(X, "tocsr") else np.asarray(X, dtype=np.float64)
        if matrix.ndim != 2 or matrix.shape[1] != len(self.names):
            raise DataError(
                f"The matrix has shape {tuple(matrix.shape)}.", f"Pass (n, {len(self.names)}) values."
            )
        matrix = expand(matrix, self.powers)
        with np.errstate(over="ignore", invalid="ignore"):
            raw = np.asarray(matrix @ self.coefficients).ravel() + self.intercept
        # A row near 1e308 may overflow to inf - inf; the middle is a prediction like any other.
        middle = self.bounds[0] / 2 + self.bounds[1] / 2
        return np.clip(np.where(np.isnan(raw), middle, raw), *self.bounds)

    def _encoded(self, X: Any) -> Any:
        """Return the encoded public matrix of whatever holds the rows."""
        X = table_of(X, self.features, self.names)
        parts = getattr(X, "public_chunks", None)
        if parts is None and not hasattr(getattr(X, "public", None), "matrix"):
            return X
        blocks: list[Any] = []
        whole: Any = X
        for part in (whole,) if parts is None else parts():
            if tuple(part.public.names) != self.names:
                raise DataError(
                    f"The table encodes to {len(part.public.names)} public columns that are not the model's "
                    f"{len(self.names)}.",
                    "Read it with the schema of the fit.",
                )
            blocks.append(part.public.matrix)
        return stacked(blocks, len(self.names))

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, fit for JSON."""
        return {
            "format": _FORMAT,
            "intercept": self.intercept,
            "names": list(self.names),
            "powers": [list(pair) for pair in self.powers],
            "coefficients": self.coefficients.tolist(),
            "bounds": list(self.bounds),
            "schema_digest": self.schema_digest,
            "features": self.features,
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> LinearModel:
        """Rebuild a model from `to_dict`; refuses other formats and numbers that are not finite."""
        check_format(data, _FORMAT)
        coefficients = np.array(data["coefficients"], dtype=np.float64)
        names = tuple(str(name) for name in data["names"])
        powers = tuple((int(column), int(power)) for column, power in data.get("powers", ()))
        if coefficients.shape != (len(names) + len(powers),) or any(c >= len(names) for c, _ in powers):
            raise DataError("The model's names and coefficients do not match.", "Save it again.")
        numbers = np.concatenate([coefficients, [data["intercept"], *data["bounds"]]])
        if not np.isfinite(numbers).all():
            raise DataError("The model holds numbers that are not finite.", "Save it again.")
        low, high = (float(value) for value in data["bounds"])
        return cls(
            float(data["intercept"]),
            coefficients,
            names,
            (low, high),
            str(data.get("schema_digest", "")),
            powers,
            data.get("features"),
        )

    def save(self, path: str | PathLike[str]) -> None:
        """Write the model as JSON; an existing file is written over."""
        Path(path).write_text(json.dumps(self.to_dict(), indent=1) + "\n", encoding="utf-8")

    @classmethod
    def load(cls, path: str | PathLike[str]) -> LinearModel:
        """Read a model that `save` wrote, or the model in a result (``confide train --out``).

        Nothing in the file is executed.
        """
        return cls.from_dict(saved_model(path))


@dataclass(frozen=True)
class Statistics:
    """Public facts of a fit: functions of the public design, the plan and the declared parameters.

    With the engine ``rounds`` they are functions of released values too; `sensitivity` is that of labels that
    are not clipped, and `noise_trace` is relative to it.

    Attributes
    ----------
    rows, rank : int
    singular_values : ndarray of shape (r,)
        Spectrum of the centred public design.
    label_range : float
        R.
    noise_trace : float
        Squared error of all fitted values together per (noise deviation)^2 of the released statistic.
    sampling_trace : float
        tr A^-1 B A^-1: sampling error of all fitted values together per residual variance; k for ordinary
        least squares, a little more where rows are shortened.
    lower_trace : float
        k^2 / n: what no geometry without row weights can undercut.
    sensitivity : float
        L2 sensitivity of the released statistic, padding included.
    noise_multiplier : float
        Noise deviation over sensitivity; 0 without noise.
    share, quantile, gap : float
        Of the plan (in ``rounds``, of the last round): the intercept's share of the squared sensitivity, the
        leverage quantile at which rows are shortened, relative primal-dual gap of the geometry.
    effective : float
        Directions that the noise has left, a function of the release.
    """

    rows: int
    rank: int
    singular_values: Floats
    label_range: float
    noise_trace: float
    sampling_trace: float
    lower_trace: float
    sensitivity: float
    noise_multiplier: float
    share: float
    quantile: float
    gap: float
    effective: float

    def to_dict(self) -> dict[str, Any]:
        """Return plain values; NaN as None."""
        plain = {name: getattr(self, name) for name in self.__dataclass_fields__}
        plain["singular_values"] = self.singular_values.tolist()
        return {k: None if isinstance(v, float) and not math.isfinite(v) else v for k, v in plain.items()}


@dataclass(frozen=True)
class TrainingResult:
    """A private fit.

    Attributes
    ----------
    model : LinearModel
    guarantee : Guarantee
    status : Status
    coefficients : dict
        Name -> coefficient of the encoded column, shrunk; ``"(intercept)"`` first where there is one.
    unbiased : dict
        The same before shrinkage: the weighted least-squares fit plus noise of known covariance.
    covariance : ndarray of shape (q, q)
        Covariance of the privacy noise in `unbiased`, in its order. Exact up to rounding, and public.
    noise_errors : dict
        Square roots of its diagonal: how far `unbiased` is from the same fit of this table without noise.
    standard_errors : dict
        Of `unbiased` about the population's coefficients: privacy noise and sampling noise together. The
        second part assumes residuals of equal variance (`residual_deviation`, estimated privately in the
        same release at no cost) and a linear model.
    shrunk_errors : dict
        Empirical-Bayes deviations of `coefficients` about the population's; an estimate, and not the width
        of a confidence interval with guaranteed coverage.
    residual_deviation : float
        Estimated deviation of the label about its linear fit.
    statistics : Statistics
    entry : str
        Id of the ledger's entry that paid for this release; empty without a ledger.
    trace : Trace, optional
        What each round did (clip, share inside, geometry, posterior deviation), with the engine ``rounds``:
        `Trace.columns` is ready to plot.
    """

    model: LinearModel
    guarantee: Guarantee
    status: Status
    coefficients: dict[str, float]
    unbiased: dict[str, float]
    covariance: Floats = field(repr=False)
    noise_errors: dict[str, float]
    standard_errors: dict[str, float]
    shrunk_errors: dict[str, float]
    residual_deviation: float
    statistics: Statistics = field(repr=False)
    entry: str = ""
    trace: Trace | None = field(default=None, repr=False)

    def __str__(self) -> str:
        terms = len(self.coefficients)
        return f"Private linear fit: {terms} terms, {self.statistics.rows} rows. {self.guarantee}"

    def predict(self, X: Any) -> Floats:
        """Return the model's predictions; post-processing, hence free."""
        return self.model.predict(X)

    def noise_error(self, epsilon: float, delta: float | None = None) -> float:
        """Return the root-mean-square error that privacy noise alone adds to a fitted value.

        From public quantities, without shrinkage and for this fit's geometry: what epsilon buys. With the
        engine ``rounds`` also for this fit's clips, which another epsilon would have chosen otherwise.

        Parameters
        ----------
        epsilon : float
        delta : float, optional
            The guarantee's own by default.
        """
        if epsilon == math.inf:
            return 0.0
        delta_ = self.guarantee.delta if delta is None else delta
        if not delta_ > 0:
            raise ParameterError("The 'delta' parameter is 0.", "Pass delta > 0.")
        sigma = gaussian_sigma(epsilon, delta_, self.statistics.sensitivity)
        return sigma * math.sqrt(self.statistics.noise_trace / self.statistics.rows)

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, fit for JSON."""
        return {
            "status": self.status.code,
            "guarantee": self.guarantee.to_dict(),
            "sentence": str(self.guarantee),
            "entry": self.entry,
            "model": self.model.to_dict(),
            "coefficients": self.coefficients,
            "unbiased": self.unbiased,
            "noise_errors": self.noise_errors,
            "standard_errors": self.standard_errors,
            "standard_errors_cover": "privacy and sampling noise of 'unbiased'; equal residual variances",
            "residual_deviation": self.residual_deviation,
            "shrunk_errors": self.shrunk_errors,
            "covariance": self.covariance.tolist(),
            "statistics": self.statistics.to_dict(),
            "trace": None if self.trace is None else self.trace.to_dict(),
        }

    def to_json(self, *, indent: int | None = None) -> str:
        """Return `to_dict` as JSON text."""
        return json.dumps(self.to_dict(), indent=indent)
