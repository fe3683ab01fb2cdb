"""Public columns of arrays, sparse matrices and frames, as a fit of engine `dpsgd` and its model read them.

==================================================  =======================================================
X                                                   what happens
==================================================  =======================================================
array of any library of the array API               fetched to the host
sparse matrix                                       made dense
frame of pandas or polars, table of Arrow           its numbers, column by column, as scikit-learn reads them
text that spells a number, decimals, truth values   that number; a truth value is 0 or 1
other text                                          DataError that names the columns of text
dates or times, by the declared type                DataError
complex numbers                                     ValueError without the cells
a missing cell                                      NaN, which a fit refuses
a column name that stands twice                     DataError
names in another order than in the fit              DataError, as of every front door
a list, a dict, a lazy frame                        DataError: it has no shape
==================================================  =======================================================
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from confide.errors import DataError
from confide.schema import loose
from confide.training.sgd.arrays import Floats, to_host

Names = tuple[str, ...]
_MADE_UP = re.compile("x[0-9]+")


def public_cells(X: Any, name: str = "X_public") -> Floats:
    """Return public columns as float64 of shape (n, p) on the host, NaN where a cell is missing.

    Parameters
    ----------
    X : array, sparse matrix or frame of shape (n, p)
    name : str
        Of the parameter, for messages.

    Raises
    ------
    ValueError, DataError
    """
    loose.check_real(X, name)
    check_times(X, name)
    if hasattr(type(X), "columns"):
        return _of_frame(X)
    if loose.has(X, "toarray"):
        X = X.toarray()
    with loose.numeric_cells(X):
        return to_host(X)


def _of_frame(X: Any) -> Floats:
    if X.shape[1] == 0:
        return np.zeros((int(X.shape[0]), 0))
    from sklearn.utils.validation import check_array

    loose.check_features(X)
    # In C order, as most arrays are: sums of another order may differ in their last bits.
    checks: dict[str, Any] = {
        "accept_sparse": "csr",
        "dtype": np.float64,
        "order": "C",
        "ensure_min_samples": 0,
    }
    with loose.numeric_cells(X):
        cells: Any = check_array(X, ensure_all_finite=False, **checks)
    return cells if isinstance(cells, np.ndarray) else cells.toarray()


def check_times(X: Any, name: str) -> None:
    """Refuse an array or a frame with a column of dates or times, by its declared types alone.

    Raises
    ------
    DataError
    """
    own = loose.attribute(X, "dtype")
    several = loose.attribute(X, "dtypes", getattr(loose.attribute(X, "schema"), "types", ()))
    for kind in several if own is None else [own]:
        if loose.kind_of_type(kind) == "times":
            raise DataError(
                f"A column of {name} holds dates or times ({kind}).",
                "Pass numbers: days since a fixed date, say.",
            )


def names_of(*parts: Any) -> Names:
    """Return the column names of some frames in a row; none unless all have names, each another.

    None among the parts is skipped; names that are no text are none, as for scikit-learn.
    """
    found: list[Any] = []
    for X in parts:
        if X is not None:
            names = loose.attribute(X, "column_names", loose.attribute(X, "columns"))
            if names is None:
                return ()
            found += list(names)
    fine = all(isinstance(name, str) for name in found) and len(set(found)) == len(found)
    return tuple(found) if fine else ()


def check_names(X: Any, known: Names, name: str) -> None:
    """Refuse a frame whose columns are not called as those of the fit; where either has no names, nothing.

    A fit on arrays may have been given the names x0, x1, ...: a frame that has none of these is not compared.

    Raises
    ------
    DataError
    """
    given = names_of(X)
    if set(given).isdisjoint(known) and all(_MADE_UP.fullmatch(name) for name in known):
        return
    for place, (found, wanted) in enumerate(zip(given, known, strict=False), start=1):
        if found != wanted:
            raise DataError(
                f"Column {place} of {name} is {found!r:.80}, and in the fit it was {wanted!r:.80}.",
                "Pass the columns of the fit in its order, or an array without names.",
            )
