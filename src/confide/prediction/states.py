"""Fitted models as plain values and arrays, and back: without pickle, by a list of known classes.

A dataclass is stored as its name and the fields of its constructor, a plain class as the attributes that its
constructor takes, a class with `state` and `from_state` as what the one returns and the other takes. Whoever
writes a new fitted object adds its name to `KNOWN`. A field that came later needs a default, which is what
older files then mean.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from importlib import import_module
from typing import Any

import numpy as np
from numpy.typing import NDArray

from confide.errors import ConfideError, DataError, UnsupportedError
from confide.privacy import Adjacency

#: Class -> module of this room. Only these are ever made from a file.
KNOWN = {
    "Accuracy": "erm_solver",
    "BallTraining": "intervals.ball",
    "Batch": "intervals.descent",
    "BoxRows": "rows",
    "CertifiedHybrid": "intervals.hybrid",
    "CertifiedLinear": "intervals.ball",
    "CertifiedNetwork": "intervals.certificate",
    "Ensemble": "ensemble",
    "FittedERM": "erm",
    "FittedEnsemble": "ensemble",
    "FittedPerPerson": "persons",
    "FixedBatches": "intervals.batches",
    "HashedBatches": "intervals.batches",
    "HybridTraining": "intervals.hybrid",
    "Hyperparameters": "intervals.hyperparameters",
    "IntervalTraining": "intervals.certificate",
    "Intervals": "intervals.training",
    "Level": "intervals.hybrid",
    "Levels": "erm_curvature",
    "Neighbours": "votes",
    "PerPerson": "persons",
    "Persons": "persons",
    "Rows": "intervals.network",
    "Steps": "erm_steps",
    "StronglyConvexERM": "erm",
    "UnitRows": "rows",
    "VoteGap": "votes",
}
#: Plain classes whose constructor takes these attributes.
_ATTRIBUTES = {"CertifiedHybrid": ("certificate", "levels")}
#: Fields that belong to a machine or a terminal, and not to a model.
_LOCAL = ("n_jobs", "progress")
_ROOM = "confide.prediction"

Arrays = list[NDArray[Any]]


def pack(value: Any, arrays: Arrays) -> Any:
    """Return a value as JSON has it; arrays are appended to `arrays`.

    Raises
    ------
    UnsupportedError
        For an object that is not `KNOWN`.
    """
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else {"number": repr(float(value))}
    if isinstance(value, np.generic):
        return pack(value.item(), arrays)
    if isinstance(value, np.ndarray):
        return {"array": _place(value, arrays)}
    if isinstance(value, Adjacency):
        return {"adjacency": value.value}
    if isinstance(value, tuple):
        return {"tuple": [pack(item, arrays) for item in value]}
    if isinstance(value, list):
        return [pack(item, arrays) for item in value]
    if isinstance(value, Mapping):
        return {"map": {str(key): pack(item, arrays) for key, item in value.items()}}
    name = type(value).__name__
    if KNOWN.get(name) is None or type(value) is not _class_of(name):
        raise UnsupportedError(
            f"A part of class {name} cannot be saved without pickle, which executes what it reads.",
            "Certify with 'erm', 'votes' or 'interval', or keep the model in its process.",
        )
    return {
        "type": name,
        "fields": {key: pack(item, arrays) for key, item in _fields_of(value).items() if key not in _LOCAL},
    }


def unpack(data: Any, arrays: Sequence[NDArray[Any]]) -> Any:
    """Return the value that `pack` took apart.

    Raises
    ------
    DataError
        For parts that do not fit each other, or a class that is not known here.
    """
    try:
        return _unpack(data, arrays)
    except DataError:
        raise
    except (KeyError, IndexError, TypeError, ValueError, AttributeError, ConfideError, OverflowError,
            RecursionError, MemoryError):  # fmt: skip
        raise DataError("The parts of the saved model do not fit each other.", "Save it again.") from None


def _unpack(data: Any, arrays: Sequence[NDArray[Any]]) -> Any:
    if isinstance(data, list):
        return [_unpack(item, arrays) for item in data]
    if not isinstance(data, dict):
        return data
    if "type" in data:
        name = data["type"]
        if name not in KNOWN:
            raise DataError(
                f"The saved model has a part of class {name!r:.60}, which this version does not know.",
                "Read it with the version of confide that wrote it, or a newer one.",
            )
        held = {str(key): _unpack(item, arrays) for key, item in data["fields"].items()}
        made = _class_of(name)
        return made.from_state(held) if hasattr(made, "from_state") else made(**held)
    ((kind, item),) = data.items()
    return _KINDS[kind](item, arrays)


_KINDS: dict[str, Callable[[Any, Sequence[NDArray[Any]]], Any]] = {
    "array": lambda item, arrays: arrays[int(item)],
    "tuple": lambda item, arrays: tuple(_unpack(part, arrays) for part in item),
    "map": lambda item, arrays: {str(key): _unpack(part, arrays) for key, part in item.items()},
    "adjacency": lambda item, arrays: Adjacency(item),
    "number": lambda item, arrays: float(item),
}


def shown(value: Any) -> Any:
    """Return the public parameters of a certificate as plain values; long arrays by their shape."""
    arrays: Arrays = []
    try:
        packed = pack(value, arrays)
    except UnsupportedError:
        return {"type": type(value).__name__}
    return _shown(packed, arrays)


def _shown(data: Any, arrays: Arrays) -> Any:
    if isinstance(data, list):
        return [_shown(item, arrays) for item in data]
    if not isinstance(data, dict):
        return data
    if "type" in data:
        return {"type": data["type"], **{key: _shown(item, arrays) for key, item in data["fields"].items()}}
    ((kind, item),) = data.items()
    if kind == "array":
        array = arrays[item]
        return array.tolist() if array.size <= 64 else {"shape": list(array.shape)}
    if kind == "map":
        return {key: _shown(part, arrays) for key, part in item.items()}
    return _shown(item, arrays)


def _fields_of(value: Any) -> dict[str, Any]:
    if hasattr(value, "state"):
        return value.state()
    names = _ATTRIBUTES.get(type(value).__name__)
    if names is not None:
        return {name: getattr(value, name) for name in names}
    assert is_dataclass(value)
    return {field.name: getattr(value, field.name) for field in fields(value) if field.init}


def _class_of(name: str) -> Any:
    return getattr(import_module(f"{_ROOM}.{KNOWN[name]}"), name)


def _place(array: NDArray[Any], arrays: Arrays) -> int:
    if array.dtype.kind not in "fiub":
        raise UnsupportedError(
            f"A model with an array of type {array.dtype} cannot be saved.", "Pass arrays of numbers."
        )
    for place, known in enumerate(arrays):
        if known is array:
            return place
    arrays.append(array)
    return len(arrays) - 1
