"""From one column of any source to numbers or codes, by the definition in `confide.schema.cells`.

Fast vectorised paths exist for what Arrow types promise; everything else goes cell by cell (or distinct
value by distinct value) through `cells.number` and `cells.label`. Both give the same result: the tests
compare them. Nothing here raises on account of a cell's content.
"""

from __future__ import annotations

import hashlib
import importlib
import os
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa

from confide.schema import cells
from confide.schema.column import Column
from confide.schema.loose import unwrapped

# Arrow makes its compute functions at import time, where type checkers cannot see them.
pc: Any = importlib.import_module("pyarrow.compute")

# Texts that Arrow parses exactly as Python does: no overflow, no locale, no odd spelling.
_SAFE_NUMBER = r"^-?[0-9]{1,30}(\.[0-9]{1,30})?([eE][+-]?[0-9]{1,2})?$"

# Keyed afresh in each process, so that nobody can prepare two ids that collide.
_HASH_KEY = os.urandom(32)


def arrow_array(values: Any) -> pa.Array | list[Any]:
    """Return one column as an Arrow array, or as a list of Python cells where it has no one type.

    Parameters
    ----------
    values : Arrow array, NumPy array [n], narwhals Series, or sequence
    """
    if isinstance(values, pa.ChunkedArray):
        return _single(values)
    if isinstance(values, pa.Array):
        return values
    if isinstance(values, np.ma.MaskedArray):
        mask = np.ma.getmaskarray(values)
        return [None if gone else cell for cell, gone in zip(values.data.tolist(), mask.tolist())]
    if isinstance(values, np.ndarray):
        with np.errstate(all="ignore"):  # a cast may warn of one cell: of infinity, or a signalling NaN
            return _from_numpy(values)
    if hasattr(values, "to_arrow") and hasattr(values, "to_list"):
        if str(getattr(values, "dtype", "")) == "Object":
            return _from_list(values.to_list())
        try:
            return arrow_array(values.to_arrow())
        except Exception:  # a type that Arrow lacks: its cells are judged one by one
            return _from_list(values.to_list())
    dtype = getattr(values, "dtype", None)
    if isinstance(dtype, np.dtype) and dtype.kind in "fiub":  # a pandas Series in a dictionary
        return arrow_array(np.asarray(values))
    return _from_list(list(values))


def _from_numpy(values: np.ndarray) -> pa.Array | list[Any]:
    if values.dtype.kind == "f":
        return pa.array(values.astype(np.float64, copy=False))
    if values.dtype.kind in "iub":
        return pa.array(np.ascontiguousarray(values.astype(values.dtype.newbyteorder("="), copy=False)))
    if values.dtype.kind == "M":
        return pa.array(values.astype("datetime64[us]"))
    return _from_list(values.tolist() if values.dtype.kind in "US" else list(values))


def _from_list(values: list[Any]) -> pa.Array | list[Any]:
    """Pack a list of texts and gaps into an Arrow array; leave any mixture as it is."""
    if all(cell is None or type(cell) is str for cell in values):
        try:
            return pa.array(values, type=pa.large_string())
        except Exception:  # half surrogates
            return values
    return values


def _single(values: pa.ChunkedArray) -> pa.Array | list[Any]:
    """Join chunks; list their cells where Arrow cannot, such as dictionaries of lists that differ."""
    if values.num_chunks == 0:
        return pa.array([], type=values.type)
    if values.num_chunks == 1:
        return values.chunk(0)
    try:
        return _joined(values)
    except Exception:  # some depend on what the chunks hold
        return [cell for chunk in values.chunks for cell in _cells(chunk)]


def _joined(values: pa.ChunkedArray) -> pa.Array:
    if pa.types.is_dictionary(values.type):
        values = pa.chunked_array([_wide(chunk) for chunk in values.chunks]).unify_dictionaries()
    elif pa.types.is_string(values.type) or pa.types.is_binary(values.type):
        # Together they may pass the two gigabytes that 32-bit offsets reach.
        values = values.cast(_large(values.type))
    merged = values.combine_chunks()
    return merged if isinstance(merged, pa.Array) else pa.concat_arrays(merged.chunks)


def _wide(chunk: pa.Array) -> pa.Array:
    """Return a dictionary array that has room for the values of all chunks.

    How many values the chunks hold together is secret; the type that one chunk came in may be too narrow.
    """
    table = chunk.dictionary
    if pa.types.is_string(table.type) or pa.types.is_binary(table.type):
        table = table.cast(_large(table.type))
    return pa.DictionaryArray.from_arrays(chunk.indices.cast(pa.int64()), table)


def _large(kind: pa.DataType) -> pa.DataType:
    return pa.large_string() if pa.types.is_string(kind) else pa.large_binary()


def _text(values: pa.Array) -> pa.Array | list[Any]:
    """Bring texts and bytes to trimmed ``large_string``; a list of cells where bytes are no UTF-8."""
    kind = values.type
    try:
        if not pa.types.is_large_string(kind):
            values = values.cast(pa.large_string())
        return pc.ascii_trim(values, characters=cells.BLANKS)
    except Exception:
        return _cells(values)


def _is_text(kind: pa.DataType) -> bool:
    checks = (
        "is_string",
        "is_large_string",
        "is_string_view",
        "is_binary",
        "is_large_binary",
        "is_binary_view",
    )
    return any(getattr(pa.types, check, lambda _: False)(kind) for check in checks)


def _cells(values: pa.Array) -> list[Any]:
    """Return an array's cells as Python objects; a time stamp finer than a microsecond is cut to one.

    Where one cell has no Python form, each is converted by itself, so that it takes no other with it.
    """
    try:
        if pa.types.is_timestamp(values.type):
            values = values.cast(pa.timestamp("us", values.type.tz), safe=False)
        return values.to_pylist()
    except Exception:  # such as a year past 9999, or bytes in a text column that are no text
        return list(values)


# ---- numbers ----------------------------------------------------------------------------------------------


@np.errstate(all="ignore")
def numbers(values: pa.Array | list[Any]) -> np.ndarray:
    """Return float64 [n]: the number of each cell, NaN where there is none. Neither raises nor warns."""
    if isinstance(values, list):
        return np.fromiter(map(cells.number, values), dtype=np.float64, count=len(values))
    kind = values.type
    if isinstance(values, pa.ExtensionArray):
        return numbers(values.storage)
    if pa.types.is_dictionary(kind):
        return _through_dictionary(values, numbers, np.nan)
    if pa.types.is_floating(kind) or pa.types.is_integer(kind) or pa.types.is_boolean(kind):
        wide: pa.Array = values if pa.types.is_float64(kind) else values.cast(pa.float64(), safe=False)
        return np.array(wide.to_numpy(zero_copy_only=False), dtype=np.float64)
    if pa.types.is_decimal(kind):
        return numbers(values.cast(pa.large_string()))
    if _is_text(kind):
        text = _text(values)
        return numbers(text) if isinstance(text, list) else _parse(text)
    return np.full(len(values), np.nan)


def _parse(text: pa.Array) -> np.ndarray:
    try:
        safe = pc.match_substring_regex(text, _SAFE_NUMBER)
        parsed = pc.if_else(safe, text, None).cast(pa.float64())
    except Exception:
        return numbers(_cells(text))
    out = np.array(parsed.to_numpy(zero_copy_only=False), dtype=np.float64)
    odd = pc.invert(pc.fill_null(safe, True)).to_numpy(zero_copy_only=False)
    if odd.any():
        rest = text.filter(pa.array(odd)).dictionary_encode()
        values = numbers(_cells(rest.dictionary))  # a text column may hold bytes that are no text
        out[odd] = values[rest.indices.to_numpy(zero_copy_only=False)]
    return out


def _through_dictionary(values: pa.Array, convert: Callable[[Any], np.ndarray], missing: Any) -> np.ndarray:
    """Convert the distinct values of a dictionary array only, then look each cell up."""
    table = convert(values.dictionary)
    table = np.append(table, np.array([missing], dtype=table.dtype))
    indices = values.indices.cast(pa.int64()).fill_null(len(table) - 1)
    return table[indices.to_numpy(zero_copy_only=False)]


# ---- categories -------------------------------------------------------------------------------------------

#: Code of a cell that stands for no value, before the missing-value policy.
MISSING = -1


@np.errstate(all="ignore")
def codes(values: pa.Array | list[Any], column: Column) -> np.ndarray:
    """Return int32 [n]: the number of each cell's level in `column.levels`; `MISSING` where there is none."""

    def code(cell: Any) -> int:
        text, missing = cells.label(cell)
        found = column.codes.get(text)
        if found is not None:
            return found
        return MISSING if missing else column.other_code

    return _by_distinct(
        values, lambda distinct: np.fromiter(map(code, distinct), np.int32, len(distinct)), MISSING
    )


def _by_distinct(
    values: pa.Array | list[Any], convert: Callable[[list[Any]], np.ndarray], missing: Any
) -> np.ndarray:
    if isinstance(values, list):
        return convert(values)
    if isinstance(values, pa.ExtensionArray):
        uuid = str(values.type) == "extension<arrow.uuid>"
        return convert(_cells(values)) if uuid else _by_distinct(values.storage, convert, missing)
    if pa.types.is_dictionary(values.type):
        return _through_dictionary(values, lambda table: _by_distinct(table, convert, missing), missing)
    if _is_text(values.type):
        text = _text(values)
        return convert(text) if isinstance(text, list) else _encoded(text, convert, missing)
    return _encoded(values, convert, missing)


def _encoded(values: pa.Array, convert: Callable[[list[Any]], np.ndarray], missing: Any) -> np.ndarray:
    if len(values) == 0:
        return convert([])
    try:
        encoded = values.dictionary_encode()
    except Exception:  # nested types have no distinct values
        return convert(_cells(values))
    return _through_dictionary(encoded, lambda table: convert(_cells(table)), missing)


# ---- ids --------------------------------------------------------------------------------------------------

#: An id is 16 bytes: "i" and 64 bits for a whole number, else "t" and 112 bits of a keyed hash of the cell.
KEY_TYPE = "S16"


def id_keys(values: pa.Array | list[Any]) -> tuple[np.ndarray, np.ndarray]:
    """Return for each cell a fixed-size key that is equal for equal ids, and whether it is present.

    ==============================================  ===================================================
    cell                                            what it names
    ==============================================  ===================================================
    a number, a text, a date, a time, a UUID        an id by its text (`confide.schema.cells`)
    bytes that are no UTF-8                         an id by themselves, which no text is
    what stands for no value                        no id: its row is left out
    a tuple, list or array [k] of such cells        one id; none where one of them is none. Of length 1: its
                                                    cell
    anything else: a dict, a set, a duration, a     no id
    complex number, an object of another library
    ==============================================  ===================================================

    Returns
    -------
    keys : bytes array [n], dtype `KEY_TYPE`
    present : bool array [n]

    Notes
    -----
    *Neighbours stay neighbours.* The key of a cell, and whether it has one, is a function of that cell alone
    and of the process's hash key: rows that two tables share have one key in both. A row without a key is
    left out, and nothing is a function of it. So tables that differ in the rows of one person, whose cells
    are of one name, differ in rows of one key or in none that count. Cells whose content Confide does not
    know must not all have one key: who are several persons in truth would share the rows of one, and where
    one of them leaves, rows of the others would come in their place.
    """
    if not isinstance(values, list) and pa.types.is_integer(values.type) and values.type != pa.uint64():
        present = ~np.asarray(values.is_null().to_numpy(zero_copy_only=False), dtype=bool)
        whole = values.cast(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False)
        return _integer_keys(whole), present
    keys = _by_distinct(values, _text_keys, b"")
    return keys, keys != b""


def _integer_keys(values: np.ndarray) -> np.ndarray:
    raw = np.zeros((len(values), 16), dtype=np.uint8)
    raw[:, 0] = ord("i")
    raw[:, 1:9] = values.astype(">i8").view(np.uint8).reshape(-1, 8)
    raw[:, 9] = 1  # NumPy drops trailing zero bytes when it compares
    return raw.view(KEY_TYPE).reshape(-1)


_WHOLE = re.compile(r"-?[0-9]{1,19}", re.ASCII)


def _text_keys(distinct: list[Any]) -> np.ndarray:
    out = np.zeros(len(distinct), dtype=KEY_TYPE)
    for index, cell in enumerate(distinct):
        out[index] = _key(cell)
    return out


def _key(cell: Any) -> bytes:
    """Return the key of one id; empty where the cell is none."""
    if type(cell) is str:
        return _single_key(cell)
    try:
        cell = unwrapped(cell.as_py() if hasattr(cell, "as_py") else cell)
        row = isinstance(cell, list | tuple) or (isinstance(cell, np.ndarray) and cell.ndim == 1)
        if not row:
            return _single_key(cell)
        parts = [_single_key(part) for part in cell]
    except Exception:  # whatever stands in the cell
        return b""
    return _hashed(b"".join(parts), "cells") if parts and all(parts) else b""


def _single_key(cell: Any) -> bytes:
    if isinstance(cell, bytes | bytearray) and not _is_utf8(cell):
        return _hashed(bytes(cell), "bytes")
    text = cells.content(cell)
    if text is None:
        return b""
    if _WHOLE.fullmatch(text) and -(2**63) <= int(text) < 2**63:
        return b"i" + int(text).to_bytes(8, "big", signed=True) + b"\x01"
    return _hashed(text.encode("utf-8", errors="surrogatepass"), "")


def _hashed(raw: bytes, kind: str) -> bytes:
    """Return the key of some content, another one for each kind.

    Keys of parts that are joined have 10 bytes or 16, as their first one tells: no two rows are joined alike.
    """
    digest = hashlib.blake2b(raw, digest_size=14, key=_HASH_KEY, person=kind.encode()).digest()
    return b"t" + digest + b"\x01"


def _is_utf8(cell: bytes | bytearray) -> bool:
    try:
        bytes(cell).decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True
