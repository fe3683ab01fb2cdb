"""Arrays and lists that come without a schema: types and shapes before a charge, cells after it.

A list has no type until NumPy gives it one, by its cells: one text makes all of them text, one complex
number all complex, one nested list changes the shape. So a list becomes an array of objects here, cell by
cell, and objects are read as in a numeric column (`confide.schema.cells`): what holds no number is NaN. The
type that an array was given is taken as declared. Nothing here raises or warns because of what a cell holds.

====================================================  =====================================================
edge case                                             what happens
====================================================  =====================================================
a text, None, complex, a list or an array in a list   one cell, like any other; no number: NaN
rows of several lengths, or that are no sequences     an array of one dimension, for `check_table` to refuse
long double 1e4000, 10**400                           inf
an array of complex numbers                           ValueError without its cells
an array of text, dates or bytes                      DataError by its type
a class compared with pd.NA, an array, a list         not equal
a column named ``dtype``, a row labelled ``tocsr``    a column, a row: no type, and no sparse matrix
====================================================  =====================================================
"""

from __future__ import annotations

import datetime
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

from confide.errors import DataError, ParameterError
from confide.schema import cells

#: What a cell may be to equal a class of another type, once NumPy's scalars are plain.
_SCALARS = (str, bytes, bool, int, float, Decimal, Fraction)


def attribute(X: Any, name: str, default: Any = None) -> Any:
    """Return an attribute of an array, series or frame; never the column or the row that is called `name`.

    pandas and Dask hand out columns of a frame, and cells of a series by their index label, as attributes
    where the class has none of that name: a column decided which type a frame has, and a row what labels are.
    So of what has columns or an index, only what its class or its own dictionary defines is asked.
    """
    kind = type(X)
    if (hasattr(kind, "columns") or hasattr(kind, "iloc")) and not hasattr(kind, name):
        return getattr(X, "__dict__", {}).get(name, default)
    return getattr(X, name, default)


def has(X: Any, name: str) -> bool:
    """Return whether an array, series or frame has an `attribute` that is not None."""
    return attribute(X, name) is not None


def matrix_of(X: Any) -> Any:
    """Return a list of rows as objects [n, p], whatever its cells hold; anything else as it is."""
    if not isinstance(X, list | tuple):
        return X
    rows = [list(row) if _is_row(row) else None for row in X]
    widths = {-1 if row is None else len(row) for row in rows}
    if len(widths) != 1 or -1 in widths:
        return vector_of(X)
    flat = np.empty(len(rows) * widths.pop(), dtype=object)
    for place, cell in enumerate(cell for row in rows if row is not None for cell in row):
        flat[place] = cell
    return flat.reshape(len(rows), -1) if flat.size else np.empty((len(rows), 0), dtype=object)


def vector_of(y: Any) -> Any:
    """Return a list as objects [n], one for each element, `unwrapped`; anything else as it is."""
    if not isinstance(y, list | tuple):
        return y
    values = np.empty(len(y), dtype=object)
    for place, cell in enumerate(y):
        values[place] = unwrapped(cell)
    return values


def unwrapped(cell: Any) -> Any:
    """Return the one element of a list, tuple or array of length 1: rows of a column written as lists."""
    single = (type(cell) in (list, tuple) and len(cell) == 1) or (
        type(cell) is np.ndarray and cell.shape == (1,)
    )
    return cell[0] if single else cell


def check_table(X: Any) -> None:
    """Refuse what is not two-dimensional: without its cells, which a message of scikit-learn's would print.

    Raises
    ------
    ValueError
    """
    shape = attribute(X, "shape")
    shape = shape if isinstance(shape, tuple) else np.shape(np.asarray(X))
    if len(shape) != 2:
        raise ValueError(
            f"Expected 2D array, got {len(shape)}D array instead. Reshape your data with X.reshape(-1, 1) "
            "for one feature, or X.reshape(1, -1) for one row; lists need rows of one length."
        )


def check_real(values: Any, what: str = "X") -> None:
    """Refuse an array, sparse matrix or frame whose declared type is complex, without a word on its cells.

    Raises
    ------
    ValueError
    """
    own = attribute(values, "dtype")
    kinds = attribute(values, "dtypes") if own is None else None
    if kinds is None:
        types = [own]
    else:
        types = list(kinds.values()) if isinstance(kinds, dict) else list(np.atleast_1d(kinds))
    types += [getattr(getattr(kind, "categories", None), "dtype", None) for kind in types]
    if any(getattr(kind, "kind", "") == "c" for kind in types):
        raise ValueError(f"Complex data not supported: pass real numbers as {what}.")


def check_features(X: Any) -> None:
    """Refuse, by what X is and by its names, what would end in a message of another library.

    ================================================  =============================================
    X                                                 what happens
    ================================================  =============================================
    a dict, a list of dicts, a lazy frame             DataError: no array or frame in memory
    a frame without a column, or with a name twice    DataError
    complex numbers                                   ValueError
    ================================================  =============================================

    Raises
    ------
    ValueError, DataError
    """
    if has(X, "tocsr"):  # SciPy's dictionary of keys is a dict
        check_real(X)
        return
    if isinstance(X, Mapping) or (
        isinstance(X, list | tuple) and X and all(isinstance(row, Mapping) for row in X)
    ):
        what = "a dict of columns" if isinstance(X, Mapping) else "a list of dicts"
        raise DataError(
            f"X is {what}.", "Pass a data frame, such as pandas.DataFrame(X); `result_.predict` takes dicts."
        )
    if has(X, "collect_schema") and has(X, "collect"):
        raise DataError(f"X is a lazy {type(X).__name__}, which holds no rows.", "Pass X.collect().")
    names = attribute(X, "column_names", attribute(X, "columns"))  # the latter of Arrow are arrays
    if names is not None:
        if not len(names):
            raise DataError("X has no column.", "Pass at least one.")
        twice = [name for name, count in Counter(names).items() if count > 1]
        if twice:
            raise DataError(
                f"The column name {twice[0]!r:.80} stands twice in X.", "Rename one of the columns."
            )
    check_real(X)


@contextmanager
def numeric_cells(X: Any) -> Iterator[None]:
    """Turn scikit-learn's complaint about text in public columns into one that says what to do.

    Raises
    ------
    DataError
    """
    try:
        yield
    except ValueError as error:
        if not str(error).startswith("could not convert string to float"):
            raise
        types = attribute(X, "dtypes")
        named = dict(zip(attribute(X, "columns", ()), types, strict=True)) if types is not None else {}
        words = [repr(name) for name, kind in named.items() if kind_of_type(kind) == "text"]
        raise DataError(
            f"Cells of X are text{', in ' + ', '.join(words[:5]) if words else ''}.",
            "Use confide.Table with declared categories and confide.train, or encode them first: "
            "OneHotEncoder with 'categories' from knowledge.",
        ) from None


def check_numeric(values: Any, what: str = "X") -> None:
    """Refuse an array by its type; objects pass, but for those of a sparse matrix.

    Raises
    ------
    ValueError, DataError
    """
    check_real(values, what)
    kind = values.dtype.kind
    if kind not in "fiub" and (kind != "O" or has(values, "tocsr")):
        raise DataError(
            f"{what} has cells of type {values.dtype}.", "Pass numbers: encode other cells first."
        )


def declared_classes(values: Any, fewest: int = 2) -> tuple[Any, ...]:
    """Return declared classes as plain Python values, in their order.

    ==================================  =====================
    `values`                            what happens
    ==================================  =====================
    list, tuple, range, array, series   its members
    text, a set, a dict                 refused: no order
    a member twice, fewer than `fewest` refused
    NaN, None, an unhashable member     refused: equals nothing
    ==================================  =====================

    Raises
    ------
    ParameterError
    """
    found: tuple[Any, ...] = ()
    if isinstance(values, Sequence) or hasattr(values, "tolist") or hasattr(values, "to_list"):
        listed = getattr(values, "tolist", getattr(values, "to_list", lambda: values))()
        found = tuple(listed) if isinstance(listed, Sequence) else ()
    found = tuple(value.item() if isinstance(value, np.generic) else value for value in found)
    try:
        fine = len(set(found)) == len(found) >= fewest and all(
            value is not None and bool(value == value) for value in found
        )
    except (TypeError, ValueError):
        fine = False
    if not fine or isinstance(values, str | bytes | bytearray):
        raise ParameterError(
            f"The 'classes' parameter is {values!r:.80}.",
            "Pass a list of two or more different labels, in order, from knowledge and not from the data.",
        )
    return found


def declared_kind(y: Any) -> str:
    """Return what the declared type of an array can hold; no cell is looked at.

    ====================================================================  =============
    type                                                                  kind
    ====================================================================  =============
    NumPy's and pandas' integers, floats, truth values; decimals          ``"numbers"``
    text or bytes of one width, ``str`` of pandas 3, ``string``, polars'  ``"text"``
    ``String`` and ``Enum``, Arrow's strings
    times, dates, durations, periods                                      ``"times"``
    complex numbers                                                       ``"complex"``
    categories of pandas or Arrow                                         that of these
    objects, lists, and anything else                                     ``""``
    ====================================================================  =============
    """
    return kind_of_type(_declared_type(y))


def _declared_type(y: Any) -> Any:
    """Return the type of an array, or of the only column of a frame; None where there is none."""
    y = y.to_native() if has(y, "to_native") else y
    if type(y).__module__.split(".")[0] == "pyarrow":
        several = getattr(getattr(y, "schema", None), "types", None)
        own = None if several is not None else getattr(y, "type", None)
    else:
        several, own = attribute(y, "dtypes"), attribute(y, "dtype")
    if own is None and several is not None and hasattr(several, "__len__") and len(several) == 1:
        return next(iter(several))
    return own


def kind_of_type(dtype: Any) -> str:
    """Return `declared_kind` of a type itself; ``""`` for None."""
    room, name = type(dtype).__module__.split(".")[0], type(dtype).__name__
    if room == "polars":
        return _polars_kind(dtype)
    if room == "pyarrow":
        return _arrow_kind(dtype)
    for inner in ("pyarrow_dtype", "subtype"):  # pandas: of Arrow, and sparse or of intervals
        if hasattr(dtype, inner) and getattr(dtype, inner) is not None:
            return kind_of_type(getattr(dtype, inner))
    categories = getattr(getattr(dtype, "categories", None), "dtype", None)
    if categories is not None:
        return kind_of_type(categories)
    if name in ("StringDtype", "StringDType"):
        return "text"
    if name == "PeriodDtype":
        return "times"
    kinds = {**dict.fromkeys("fiub", "numbers"), **dict.fromkeys("UST", "text"), "M": "times", "m": "times"}
    return {**kinds, "c": "complex"}.get(getattr(dtype, "kind", ""), "")


def _polars_kind(dtype: Any) -> str:
    if dtype.is_numeric() or str(dtype) == "Boolean":
        return "numbers"
    if dtype.is_temporal():
        return "times"
    return "text" if str(dtype).split("(")[0] in ("String", "Categorical", "Enum", "Binary") else ""


def _arrow_kind(dtype: Any) -> str:
    import pyarrow.types as kinds

    if kinds.is_dictionary(dtype):
        return _arrow_kind(dtype.value_type)
    if kinds.is_boolean(dtype) or kinds.is_integer(dtype) or kinds.is_floating(dtype):
        return "numbers"
    if kinds.is_decimal(dtype):
        return "numbers"
    if kinds.is_temporal(dtype):
        return "times"
    names = ("string", "large_string", "string_view", "binary", "large_binary", "binary_view")
    return "text" if str(dtype) in names or str(dtype).startswith("fixed_size_binary") else ""


def check_classes(y: Any, classes: Sequence[Any]) -> None:
    """Refuse labels whose declared type can never equal a class: numbers for words, or words for numbers.

    The type of an array is public, as its shape is: a reader that infers it from the cells of a file decides
    it by secrets, so read files with declared types, or by a schema. Lists and objects are not judged.

    Raises
    ------
    ValueError, DataError
    """
    check_real(y, "y")
    kind = declared_kind(y)
    words = [isinstance(value, str | bytes) for value in classes]
    times = [isinstance(value, datetime.date | datetime.time | np.datetime64) for value in classes]
    never = {
        "numbers": all(words) or all(times),
        "text": not any(words),
        "times": not any(times),
    }
    if never.get(kind, False):
        raise DataError(
            f"The labels are {kind} (type {_type_name(y)}), and the 'classes' parameter is "
            f"{tuple(classes)!r:.80}: no label can be either class.",
            "Pass classes of the labels' type.",
        )


def check_number_labels(y: Any) -> None:
    """Refuse numeric labels whose declared type is text, times or complex; objects are not judged.

    Raises
    ------
    ValueError, DataError
    """
    check_real(y, "y")
    kind = declared_kind(y)
    if kind in ("text", "times"):
        raise DataError(
            f"The labels are {kind} (type {_type_name(y)}).",
            "Pass numbers, of a type that is declared and not inferred from cells: y.astype(float), from the "
            "start.",
        )


def _type_name(y: Any) -> str:
    return str(_declared_type(y))


def numbers(values: Any) -> npt.NDArray[np.float64]:
    """Return a new float64 array of the same shape; objects that are no numbers are NaN.

    Parameters
    ----------
    values : array that passed `check_numeric`
    """
    with np.errstate(all="ignore"):
        if values.dtype.kind != "O":
            return np.array(values, dtype=np.float64)
        flat = np.asarray(values).reshape(-1)
        found = (cell if type(cell) is float else cells.number(cell) for cell in flat)
        return np.fromiter(found, np.float64, flat.size).reshape(values.shape)


def real(values: Any) -> Any:
    """Return an array or sparse matrix of a type that float64 takes without a warning; see `numbers`."""
    kind = values.dtype.kind
    if kind == "O" or (kind == "f" and values.dtype.itemsize > 8 and not has(values, "tocsr")):
        return numbers(values)
    if kind == "f" and values.dtype.itemsize > 8:
        with np.errstate(all="ignore"):
            return values.astype(np.float64)
    return values


def equal(cell: Any, member: Any) -> bool:
    """Return whether a cell equals a public class; False for what cannot be compared."""
    try:
        cell, member = _plain(cell), _plain(member)
        if type(cell) is not type(member) and not isinstance(cell, _SCALARS):
            return False
        return bool(cell == member)
    except Exception:  # a signalling NaN, pd.NA, arrays: no cell may raise
        return False


def _plain(cell: Any) -> Any:
    """Return NumPy's numbers and texts as plain ones; times keep their type."""
    if isinstance(cell, np.generic) and cell.dtype.kind in "biufUS":
        return cell.item()
    return cell


def _is_row(row: Any) -> bool:
    return isinstance(row, list | tuple) or (getattr(row, "ndim", 0) == 1 and hasattr(row, "__len__"))
