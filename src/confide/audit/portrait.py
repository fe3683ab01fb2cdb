"""Portraits: everything that a fitted estimator or a released result holds and shows, as plain text.

A run's output is what a claim reads off a model at a few points. A model is handed on whole: pickled, saved,
printed in a notebook, or looked into. With the mechanisms' answers frozen all of it is a function of these
and of what is public, so on neighbours it must be equal part for part, and no size, shape or type may differ.

=====================================  ===============================================================
what                                   how it is drawn
=====================================  ===============================================================
arrays                                 dtype, shape and a digest of the cells: the sign of a zero counts
any object                             as pickle takes it apart (``__reduce_ex__``), part by part
a function                             its name and what it closes over
an object that cannot be taken apart   its type and attributes
a part that was met before             by its number: which parts are one object shows in a pickle
texts: repr, str, HTML, ``to_dict``    where a class of this library writes them; HTML of scikit-learn
                                       is made of parameters, which are parts
a ledger, and its entry                left out: ids are drawn from the operating system
what is as secret as its table         texts, and attributes that are public: numbers of columns, classes
=====================================  ===============================================================
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from hashlib import sha256
from typing import Any

import numpy as np

#: Texts that an object may make of itself.
_TEXTS = ("__repr__", "__str__", "_repr_html_", "_repr_mimebundle_", "to_dict")
#: Attributes of a model that is secret itself, that are public.
_SURFACE = ("n_features_in_", "feature_names_in_", "classes_", "classes", "unit", "provenance", "guarantee")
#: Names of what is drawn anew in each run, and says nothing.
_DRAWN = ("entry", "ledger")
_ADDRESS = re.compile(" at 0x[0-9a-fA-F]+")
_PLAIN = (type(None), bool, int, float, complex, str, bytes)


def portrait(value: Any) -> str:
    """Return a digest of all that a released object holds and shows."""
    return _Drawing().of([value], value)


def surface(value: Any) -> str:
    """Return a digest of what an object shows that is as secret as its table."""
    return _Drawing().of([getattr(value, name, None) for name in _SURFACE], value)


class _Drawing:
    """Takes objects apart; those that it met stay alive, so that no other one has their place."""

    def __init__(self) -> None:
        self._met: dict[int, tuple[int, Any]] = {}
        self._drawn: list[str] = []

    def of(self, parts: list[Any], value: Any) -> str:
        """Return a digest of parts, and of the texts of an object."""
        told = [line for part in parts for line in self._lines(part)]
        for text in _texts(value):
            for name in self._drawn:
                text = text.replace(name, "")
            told.append(_ADDRESS.sub("", text))
        return sha256("\0".join(told).encode("utf-8", "surrogatepass")).hexdigest()

    def _lines(self, value: Any) -> Iterator[str]:
        if isinstance(value, _PLAIN):
            yield f"{type(value).__name__} {value!r}"
        elif isinstance(value, type):
            yield f"{value.__module__}.{value.__qualname__}"
        elif id(value) in self._met:
            yield f"part {self._met[id(value)][0]}"
        else:
            self._met[id(value)] = len(self._met), value
            if isinstance(value, np.ndarray) and value.dtype.kind != "O":
                cells = sha256(np.ascontiguousarray(value).tobytes()).hexdigest()
                yield f"array {value.dtype} {value.shape} {cells}"
            else:
                yield type(value).__qualname__
                for part in self._inside(value):
                    yield from self._lines(part)
                yield "end"

    def _inside(self, value: Any) -> list[Any]:
        if isinstance(value, dict):
            drawn = [value[name] for name in _DRAWN if value.get(name)]
            self._drawn += [name if isinstance(name, str) else repr(name) for name in drawn]
            return [part for name, told in value.items() if name not in _DRAWN for part in (name, told)]
        if isinstance(value, list | tuple):
            return list(value)
        if isinstance(value, set | frozenset):
            return sorted(value, key=repr)
        if isinstance(value, np.ndarray):
            return [value.shape, value.tolist()]
        if hasattr(value, "__code__"):
            cells = value.__closure__ or ()
            return [value.__module__, value.__qualname__, *(cell.cell_contents for cell in cells)]
        return _reduced(value)


def _reduced(value: Any) -> list[Any]:
    """Return what pickle would write of an object, or its attributes where it takes no pickling."""
    try:
        told = value.__reduce_ex__(4)
    except Exception:  # whatever an object raises that may not be pickled
        return [getattr(value, "__dict__", {})]
    if isinstance(told, str):
        return [told]
    return [list(part) if hasattr(part, "__next__") else part for part in told]


def _texts(value: Any) -> Iterator[str]:
    for name in _TEXTS:
        method = getattr(type(value), name, None)
        own = (getattr(method, "__module__", None) or "").startswith("confide")
        if own or (name == "__repr__" and method is not object.__repr__):
            yield f"{name}: {getattr(value, name)()}"
