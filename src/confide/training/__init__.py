"""Private models that use public columns for free. `train` is the front door on tables."""

from __future__ import annotations

from typing import TYPE_CHECKING

from confide.lazy import lazy

if TYPE_CHECKING:
    from confide.training.boosting import boosted_adassp as boosted_adassp
    from confide.training.classifier import PrivateClassifier as PrivateClassifier
    from confide.training.coefficients import Coefficients as Coefficients
    from confide.training.conditioning import conditioning_matrix as conditioning_matrix
    from confide.training.conditioning import from_gram as from_gram
    from confide.training.engines.result import ModelResult as ModelResult
    from confide.training.engines.table_model import TableModel as TableModel
    from confide.training.estimator import PrivateRegressor as PrivateRegressor
    from confide.training.forecasting import Forecast as Forecast
    from confide.training.forecasting import forecast as forecast
    from confide.training.front import train as train
    from confide.training.hybrid import HybridResult as HybridResult
    from confide.training.hybrid import fit_hybrid as fit_hybrid
    from confide.training.labels.estimator import LabelPrivatizer as LabelPrivatizer
    from confide.training.labels.estimator import PrivateLabelClassifier as PrivateLabelClassifier
    from confide.training.labels.estimator import PrivateLabelRegressor as PrivateLabelRegressor
    from confide.training.labels.llp import WeightedLLPRegressor as WeightedLLPRegressor
    from confide.training.labels.rr_on_bins import Bins as Bins
    from confide.training.labels.rr_on_bins import rr_on_bins as rr_on_bins
    from confide.training.least_squares import adassp as adassp
    from confide.training.least_squares import noisy_statistics as noisy_statistics
    from confide.training.optimal import Geometry as Geometry
    from confide.training.optimal import geometry as geometry
    from confide.training.problem import LinearProblem as LinearProblem
    from confide.training.result import LinearModel as LinearModel
    from confide.training.result import Statistics as Statistics
    from confide.training.result import Status as Status
    from confide.training.result import TrainingResult as TrainingResult
    from confide.training.semi_sensitive import SemiSensitiveFit as SemiSensitiveFit
    from confide.training.semi_sensitive import fit_semi_sensitive as fit_semi_sensitive

#: Public name -> module. Loaded on first use, so that importing the room stays cheap.
_WHERE = {
    "Coefficients": "coefficients",
    "adassp": "least_squares",
    "boosted_adassp": "boosting",
    "fit_hybrid": "hybrid",
    "HybridResult": "hybrid",
    "SemiSensitiveFit": "semi_sensitive",
    "fit_semi_sensitive": "semi_sensitive",
    "noisy_statistics": "least_squares",
    "Bins": "labels.rr_on_bins",
    "Geometry": "optimal",
    "LabelPrivatizer": "labels.estimator",
    "LinearModel": "result",
    "LinearProblem": "problem",
    "ModelResult": "engines.result",
    "PrivateClassifier": "classifier",
    "PrivateLabelClassifier": "labels.estimator",
    "PrivateLabelRegressor": "labels.estimator",
    "PrivateRegressor": "estimator",
    "Statistics": "result",
    "Status": "result",
    "TableModel": "engines.table_model",
    "TrainingResult": "result",
    "WeightedLLPRegressor": "labels.llp",
    "conditioning_matrix": "conditioning",
    "rr_on_bins": "labels.rr_on_bins",
    "from_gram": "conditioning",
    "geometry": "optimal",
    "Forecast": "forecasting",
    "forecast": "forecasting",
    "train": "front",
}

__all__ = sorted(_WHERE)  # pyright: ignore[reportUnsupportedDunderAll]


__getattr__, __dir__ = lazy(__name__, _WHERE)
