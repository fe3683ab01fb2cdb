"""Confide: private supervised learning on tables that hold people's secrets.

``confide.Table`` and ``confide.Ledger`` hold the data and the budget; ``confide.train`` fits a private model
(`PrivateRegressor` is its scikit-learn shell), ``confide.certify`` one whose answers are private
(`CertifiedClassifier`). Names are loaded on first use, so ``import confide`` is cheap.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from confide.ledger import Ledger as Ledger
    from confide.pipeline import SparseClassifier as SparseClassifier
    from confide.pipeline import SparseRegressor as SparseRegressor
    from confide.pipeline import load as load
    from confide.prediction import CertifiedClassifier as CertifiedClassifier
    from confide.prediction import certify as certify
    from confide.privacy import Adjacency as Adjacency
    from confide.privacy import Guarantee as Guarantee
    from confide.report import write_report as write_report
    from confide.schema import Column as Column
    from confide.schema import Schema as Schema
    from confide.schema import Table as Table
    from confide.selection import SubsetSelector as SubsetSelector
    from confide.selection import select as select
    from confide.training import PrivateClassifier as PrivateClassifier
    from confide.training import PrivateRegressor as PrivateRegressor
    from confide.training import forecast as forecast
    from confide.training import train as train
    from confide.tune import TuneResult as TuneResult
    from confide.tune import tune as tune

#: Public name -> room.
_WHERE = {
    "Adjacency": "confide.privacy",
    "CertifiedClassifier": "confide.prediction",
    "Column": "confide.schema",
    "Guarantee": "confide.privacy",
    "Ledger": "confide.ledger",
    "PrivateClassifier": "confide.training",
    "PrivateRegressor": "confide.training",
    "Schema": "confide.schema",
    "SparseClassifier": "confide.pipeline",
    "SparseRegressor": "confide.pipeline",
    "SubsetSelector": "confide.selection",
    "Table": "confide.schema",
    "certify": "confide.prediction",
    "load": "confide.pipeline",
    "select": "confide.selection",
    "forecast": "confide.training",
    "train": "confide.training",
    "TuneResult": "confide.tune",
    "tune": "confide.tune",
    "write_report": "confide.report",
}
_ROOMS = (
    "data",
    "errors",
    "ledger",
    "mechanisms",
    "pipeline",
    "prediction",
    "privacy",
    "report",
    "schema",
    "selection",
    "training",
)

__all__ = ["__version__", *sorted(_WHERE)]  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> Any:
    if name in _WHERE:
        value = getattr(import_module(_WHERE[name]), name)
    elif name in _ROOMS:
        value = import_module(f"confide.{name}")
    elif name == "__version__":
        from importlib.metadata import version

        value = version("confide")
    else:
        raise AttributeError(f"module 'confide' has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_WHERE, *_ROOMS, "__version__"})
