"""What one cell means, whatever it came in: the single definition that all readers share.

========================================  =====================  =============================
cell                                      in a numeric column    in a category or id column
========================================  =====================  =============================
``None``, NaN, null, ``""``, blanks       missing                missing
``1``, ``1.0``, ``"1"``, ``" 1 "``        1.0                    ``1``
``True``, ``"true"``, ``"TRUE"``          1.0                    ``1`` (``False`` is ``0``)
``"1e3"``                                 1000.0                 the text ``1e3``
``"1e+03"`` (how a float prints)          1000.0                 ``1000``
``"inf"``, ``float("inf")``, ``10**400``  inf (clipped later)    ``inf``
``"NA"``, ``"null"``, ``"nan"`` ...       missing                missing, unless it is declared
other text, dates, times, UUIDs           missing                its text (dates in ISO form)
anything else: lists, durations, objects  missing                ``<its type>``; see below
========================================  =====================  =============================

As an id, the name of a type would make one person of all who have a cell of that type: such a cell is no id,
but for tuples and lists of ids (`content`, `confide.schema.arrays.id_keys`).

No cell raises. Text is trimmed of ASCII white space and compared with case, except for true and false.
Integers beyond 2^53 keep every digit in category and id columns. A float32 is widened exactly, so float32
0.1 is 0.10000000149011612 and not the number that the text ``0.1`` names.
"""

from __future__ import annotations

import datetime
import math
import re
import uuid
from decimal import Decimal
from fractions import Fraction
from typing import Any

BLANKS = " \t\n\r\x0b\x0c"

#: Text (in lower case) that stands for no value, unless a category of that spelling is declared.
MISSING_WORDS = frozenset({"", "na", "n/a", "#n/a", "nan", "null", "none", "<na>", "nat"})

# Each digit can be matched in one way only: "[0-9]+\.?[0-9]*" takes quadratic time on a long run of digits.
_NUMBER = re.compile(r"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?")
_INTEGER = re.compile(r"([+-]?)([0-9]+)(\.0*)?")
# Codes such as "12E3" are names, not numbers; only the spelling that a printed float has is a number.
_PRINTED = re.compile(r"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)(e[+-][0-9]{2,3})?")
_INFINITY = re.compile(r"([+-]?)inf(inity)?", re.IGNORECASE)
_TRUTH = {"true": "1", "false": "0"}
#: What has a text of its own, once scalars of NumPy and Arrow are plain.
_TOLD = (str, int, float, Decimal, Fraction, datetime.date, datetime.time, uuid.UUID)


def number(cell: Any) -> float:
    """Return the number in a cell of any type; NaN where it holds none. Never raises."""
    cell = _plain(cell)
    if cell is None:
        return math.nan
    if isinstance(cell, (bool, float)):
        return float(cell)
    if isinstance(cell, str):
        return number_of_text(cell)
    if isinstance(cell, (int, Decimal, Fraction)):
        try:
            return float(cell)
        except OverflowError:
            return math.inf if cell > 0 else -math.inf
        except ValueError:  # a signalling NaN
            return math.nan
    return math.nan


def number_of_text(text: str) -> float:
    """Return the number that `text` spells; NaN where it spells none."""
    text = text.strip(BLANKS)
    if _NUMBER.fullmatch(text):
        return float(text)
    infinite = _INFINITY.fullmatch(text)
    if infinite:
        return -math.inf if infinite[1] == "-" else math.inf
    truth = _TRUTH.get(text.lower())
    return math.nan if truth is None else float(truth)


def label(cell: Any) -> tuple[str, bool]:
    """Return a cell's text in canonical form, and whether it stands for no value. Never raises."""
    cell = _plain(cell)
    if cell is None:
        return "", True
    if isinstance(cell, bool):
        return ("1" if cell else "0"), False
    if isinstance(cell, int):
        return _digits(cell), False
    if isinstance(cell, float):
        return ("", True) if cell != cell else (_float_text(cell), False)
    if isinstance(cell, str):
        return label_of_text(cell)
    if isinstance(cell, (Decimal, Fraction)):
        value = number(cell)
        if value != value:
            return "", True
        # Whole numbers keep their digits, however many; other values are the nearest double.
        return (
            _digits(int(cell)) if math.isfinite(value) and cell == int(cell) else _float_text(value)
        ), False
    if isinstance(cell, datetime.datetime):
        try:
            text = cell.isoformat(sep=" ")
        except ValueError:
            return "", True
        return label_of_text(text.removesuffix(" 00:00:00"))
    if isinstance(cell, (datetime.date, datetime.time)):
        return cell.isoformat(), False
    if isinstance(cell, uuid.UUID):
        return str(cell), False
    return f"<{type(cell).__name__}>", type(cell).__name__ in ("NAType", "NaTType")


def content(cell: Any) -> str | None:
    """Return a cell's `label`; None where the cell is missing, or the label only names its type."""
    if type(cell) is str:  # what most are
        text, missing = label_of_text(cell)
        return None if missing else text
    cell = _plain(cell)
    text, missing = label(cell)
    return text if isinstance(cell, _TOLD) and not missing else None


def label_of_text(text: str) -> tuple[str, bool]:
    """Return the canonical form of a text, and whether it stands for no value."""
    text = text.strip(BLANKS)
    truth = _TRUTH.get(text.lower())
    if truth is not None:
        return truth, False
    whole = _INTEGER.fullmatch(text)
    if whole:  # not through int(): how many digits it takes is a setting of the interpreter
        digits = whole[2].lstrip("0") or "0"
        return ("-" if whole[1] == "-" and digits != "0" else "") + digits, False
    if _PRINTED.fullmatch(text):
        return _float_text(float(text)), False
    return text, text.lower() in MISSING_WORDS


def _digits(value: int) -> str:
    try:
        return str(value)
    except ValueError:  # beyond the interpreter's limit on digits, which decimals do not have
        return str(Decimal(value))


def _float_text(value: float) -> str:
    if math.isfinite(value) and value == math.floor(value):
        return str(int(value))
    return repr(value)


def _plain(cell: Any) -> Any:
    """Turn NumPy and Arrow scalars and bytes into plain Python values."""
    if isinstance(cell, (bytes, bytearray)):
        return bytes(cell).decode("utf-8", errors="replace")
    if isinstance(cell, (str, int, float, type(None))):
        # NumPy's float64 is a float, str_ a str: take the plain class, whose printing is known.
        for plain in (bool, str, int, float):
            if isinstance(cell, plain):
                return plain(cell)
        return None
    if type(cell).__module__ == "numpy" and getattr(cell, "ndim", 1) == 0:
        kind = cell.dtype.kind
        if kind == "f":  # a long double would hand itself back
            return float(cell)
        return (
            _plain((cell.astype("datetime64[us]") if kind == "M" else cell).item())
            if kind in "iubUSM"
            else None
        )
    if hasattr(cell, "as_py"):
        try:
            return _plain(cell.as_py())
        except Exception:  # a time stamp finer than Python's
            return None
    return cell
