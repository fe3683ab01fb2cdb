"""Private models that use public columns for free. `train` is the front door on tables."""

from __future__ import annotations

from typing import TYPE_CHECKING

from confide.lazy import lazy

if TYPE_CHECKING:
    from confide.training.coefficients import Coefficients as Coefficients
    from confide.training.conditioning import conditioning_matrix as conditioning_matrix
    from confide.training.conditioning import from_gram as from_gram
    from confide.training.estimator import PrivateRegressor as PrivateRegressor
    from confide.training.front import Forecast as Forecast
    from confide.training.front import forecast as forecast
    from confide.training.front import train as train
    from confide.training.least_squares import adassp as adassp
    from confide.training.least_squares import noisy_statistics as noisy_statistics
    from confide.training.optimal import Geometry as Geometry
    from confide.training.optimal import geometry as geometry
    from confide.training.problem import LinearProblem as LinearProblem
    from confide.training.result import LinearModel as LinearModel
    from confide.training.result import Statistics as Statistics
    from confide.training.result import Status as Status
    from confide.training.result import TrainingResult as TrainingResult

#: Public name -> module. Loaded on first use, so that importing the room stays cheap.
_WHERE = {
    "Coefficients": "coefficients",
    "adassp": "least_squares",
    "noisy_statistics": "least_squares",
    "Geometry": "optimal",
    "LinearModel": "result",
    "LinearProblem": "problem",
    "PrivateRegressor": "estimator",
    "Statistics": "result",
    "Status": "result",
    "TrainingResult": "result",
    "conditioning_matrix": "conditioning",
    "from_gram": "conditioning",
    "geometry": "optimal",
    "Forecast": "front",
    "forecast": "front",
    "train": "front",
}

__all__ = sorted(_WHERE)  # pyright: ignore[reportUnsupportedDunderAll]


__getattr__, __dir__ = lazy(__name__, _WHERE)
