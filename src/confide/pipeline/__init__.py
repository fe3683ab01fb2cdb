"""Select, then fit: a few columns and their coefficients, under one guarantee and one charge."""

from __future__ import annotations

from typing import TYPE_CHECKING

from confide.lazy import lazy

if TYPE_CHECKING:
    from confide.pipeline.estimator import SparseClassifier as SparseClassifier
    from confide.pipeline.estimator import SparseRegressor as SparseRegressor
    from confide.pipeline.front import select_and_fit as select_and_fit
    from confide.pipeline.result import SparseModel as SparseModel
    from confide.pipeline.result import SparseResult as SparseResult
    from confide.pipeline.saved import load as load

#: Public name -> module. Loaded on first use, so that importing the room stays cheap.
_WHERE = {
    "SparseClassifier": "estimator",
    "SparseModel": "result",
    "SparseRegressor": "estimator",
    "SparseResult": "result",
    "load": "saved",
    "select_and_fit": "front",
}

__all__ = sorted(_WHERE)  # pyright: ignore[reportUnsupportedDunderAll]


__getattr__, __dir__ = lazy(__name__, _WHERE)
