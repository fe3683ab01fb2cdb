"""One door for saved models: the file says of which kind it is."""

from __future__ import annotations

from importlib import import_module
from os import PathLike
from typing import Any

from confide.errors import ParameterError
from confide.schema.rows import FORMATS, check_format, saved_model


def load(path: str | PathLike[str], *, ledger: Any = None) -> Any:
    """Return a saved model of any kind; nothing in the file is executed.

    ===========================================================  ============================================
    file                                                         returned
    ===========================================================  ============================================
    of `save`, or a result in JSON (``--out``)                   `LinearModel`, `TableModel` or `SparseModel`
    of `CertifiedModel.save` or ``confide certify``              `CertifiedModel`
    of `CertifiedClassifier.save`                                `CertifiedClassifier`
    ===========================================================  ============================================

    Parameters
    ----------
    path : path
    ledger : Ledger or str, optional
        Of a certified model, whose answers are charged; predictions of the others are free.

    Raises
    ------
    DataError
        For a file that is missing, damaged or holds no model.
    ParameterError
        For a ledger where nothing is charged.
    """
    from confide.prediction.saved import holds_certified

    if holds_certified(path):
        from confide.prediction.estimator import certified_of

        return certified_of(path, ledger=ledger)
    if ledger is not None:
        raise ParameterError(
            "A ledger is given for a model whose predictions are free.", "Leave out 'ledger'."
        )
    data = saved_model(path)
    if data.get("format") not in FORMATS:
        check_format(data, ", ".join(FORMATS))
    room, name, _ = FORMATS[str(data["format"])][1].rsplit(".", 2)
    return getattr(import_module(room), name).from_dict(data)
