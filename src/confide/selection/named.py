"""Bounds that name their columns: a dict {column: (lower, upper)}, or series with the names as index.

Names, order and number of columns are public; no cell is looked at.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from confide.errors import ParameterError
from confide.schema.loose import check_classes as check_classes
from confide.selection.wide import Bounds


def bounds_before(bounds: Any) -> Bounds:
    """Return bounds before the columns are known, checked as far as that goes.

    Raises
    ------
    ParameterError
    """
    return Bounds.of(_sides(bounds, list(bounds)) if isinstance(bounds, Mapping) else bounds)


def bounds_for(bounds: Any, names: Sequence[Any] | None, p: int) -> Bounds:
    """Return the bounds of p columns, those with names in the columns' order.

    Parameters
    ----------
    bounds : pair of numbers, arrays [p] or series, or dict {column: (lower, upper)}
    names : sequence or None
        Of the columns of a frame; None for an array.
    p : int

    Raises
    ------
    ParameterError
        If names and bounds do not match one to one.
    """
    if isinstance(bounds, Mapping):
        bounds = _sides(bounds, _matched(list(bounds), names))
    elif isinstance(bounds, Sequence) and not isinstance(bounds, str | bytes):
        bounds = tuple(_ordered(side, names, p) for side in bounds)
    found = Bounds.of(bounds)
    found.fit(p)
    return found


def _sides(bounds: Mapping[Any, Any], order: Sequence[Any]) -> tuple[list[Any], list[Any]]:
    pairs = []
    for column in order:
        pair = bounds[column]
        if isinstance(pair, str | bytes) or not hasattr(pair, "__len__") or len(pair) != 2:
            raise ParameterError(
                f"The 'feature_bounds' parameter gives {pair!r:.80} for column {column!r:.80}.",
                "Pass a pair (lower, upper) of finite numbers, from knowledge.",
            )
        pairs.append(pair)
    if not pairs:
        raise ParameterError("The 'feature_bounds' parameter is empty.", "Pass a pair for each column.")
    return [low for low, _ in pairs], [high for _, high in pairs]


def _ordered(side: Any, names: Sequence[Any] | None, p: int) -> Any:
    """Return a side of the bounds in the order of the columns; a series with an index goes by its names."""
    index = getattr(side, "index", None)
    if index is None or callable(index):  # lists and tuples have a method of that name
        return side
    keys = list(index)
    if names is None and keys == list(range(p)):
        return side.to_numpy()
    return side.loc[_matched(keys, names)].to_numpy()


def _matched(keys: list[Any], names: Sequence[Any] | None) -> list[Any]:
    """Return the names in order, if the keys are the same names."""
    if names is None:
        raise ParameterError(
            f"The 'feature_bounds' parameter names columns ({keys!r:.80}), and X has no names.",
            "Pass a frame, or bounds as arrays in the order of the columns.",
        )
    given, wanted = set(keys), list(names)
    lacking = [name for name in wanted if name not in given]
    unknown = [key for key in keys if key not in set(wanted)]
    if lacking or unknown or len(keys) != len(given):
        what = f"lacks column {lacking[0]!r:.80}" if lacking else "names a column twice"
        if not lacking and unknown:
            what = f"names {unknown[0]!r:.80}, which is no column of X"
        raise ParameterError(
            f"The 'feature_bounds' parameter {what}.", "Pass a pair for each column of X, by its name."
        )
    return wanted


def width_of(X: Any) -> int | None:
    """Return the number of columns of a two-dimensional X, public, or None where it has no such shape."""
    shape = X.shape if hasattr(type(X), "shape") else None  # what has no shape by its type is not touched
    return int(shape[1]) if isinstance(shape, tuple) and len(shape) == 2 else None


def check_types(X: Any) -> None:
    """Refuse a frame with a column of dates: its declared type is public.

    Raises
    ------
    DataError
    """
    from confide.errors import DataError

    kinds = getattr(X, "dtypes", None)
    columns = getattr(X, "columns", None)
    if kinds is None or columns is None:
        return
    for name, kind in zip(columns, kinds, strict=False):
        temporal = getattr(kind, "is_temporal", None)  # of polars
        if getattr(kind, "kind", "") in ("m", "M") or (callable(temporal) and temporal()):
            raise DataError(
                f"Column {name!r:.80} holds dates or times ({kind}).",
                "Pass numbers: days since a fixed date, say.",
            )
