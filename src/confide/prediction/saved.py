"""Certified models as one file: numbers and text, checked, replaced as a whole, for its owner's eyes alone.

The file is an npz archive (a zip of arrays, stored and not compressed, without pickle): ``header``, UTF-8
JSON; ``a0``, ``a1``, ..., the arrays that it names; ``digest``, SHA-256 of all of it. The digest finds
accidents. It is no signature: who can write the file can write another model. But nothing in a file makes its
reader take more memory than a few times the file, or end in another exception than DataError: an array is
read as the bytes that are there, and only if its shape names as many.

====================================  =================================================================
edge case                             what happens
====================================  =================================================================
the file exists                       replaced as a whole, once the new one is on the disk
a crash while writing                 the old file, or none
cut short, or with a changed byte     DataError
another kind of file, pickled arrays  DataError; nothing is executed
compressed arrays, shapes of 10^13    DataError before any such memory is asked for
JSON 100,000 brackets deep            DataError
parts of another type                 DataError
a newer format                        DataError that says so
classes that are no text or numbers   UnsupportedError, nothing is written
====================================  =================================================================
"""

from __future__ import annotations

import hashlib
import io
import json
import math
import os
import struct
import tempfile
import zipfile
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from confide.errors import ConfideError, DataError, ParameterError, UnsupportedError
from confide.prediction.certificate import Certified
from confide.prediction.model import CertifiedModel, Facts
from confide.prediction.states import Arrays, pack, unpack
from confide.privacy import Adjacency

#: Format of the files that this version writes; it reads no newer one.
FORMAT = "confide-certified-model"
VERSION = 1
#: Bytes of one class: text is stored by its longest.
_WIDEST = 1 << 16
_PLAIN = (str, int, float, bool, type(None))

PathLike = str | os.PathLike[str]


def save_model(
    model: CertifiedModel, path: PathLike, *, shell: Mapping[str, Any] | None = None, names: Any = None
) -> None:
    """Write a model; see `CertifiedModel.save`.

    Parameters
    ----------
    model : CertifiedModel
    path : path
    shell : mapping, optional
        Parameters of the scikit-learn shell around it.
    names : sequence of str, optional
        Names of the shell's columns.
    """
    arrays: Arrays = []
    facts = model.facts
    header = {
        "format": FORMAT,
        "version": VERSION,
        "model": pack(model.certified, arrays),
        "classes": _classes(facts.classes),
        "adjacency": facts.adjacency.value,
        "columns": facts.columns,
        "unit": facts.unit,
        "declaration": facts.declaration,
        "marks": dict(facts.marks),
        "schema": None if facts.schema is None else facts.schema.to_dict(),
        "provenance": dict(facts.provenance),
        "shell": None if shell is None else pack(dict(shell), arrays),
        "names": None if names is None else [str(name) for name in names],
    }
    text = json.dumps(header, ensure_ascii=False, allow_nan=False).encode("utf-8")
    members = {f"a{place}": np.asarray(array) for place, array in enumerate(arrays)}
    members["header"] = np.frombuffer(text, dtype=np.uint8)
    members["digest"] = np.frombuffer(digest(text, arrays), dtype=np.uint8)
    _write(Path(path), members)


def load_model(path: PathLike, *, ledger: Any = None) -> CertifiedModel:
    """Read a model; see `CertifiedModel.load`."""
    return read(path, ledger=ledger)[0]


def read(path: PathLike, *, ledger: Any = None) -> tuple[CertifiedModel, dict[str, Any] | None, Any]:
    """Return the model of a file, the parameters of the shell around it, and the names of its columns."""
    header, arrays = _read(Path(path))
    try:
        facts = Facts(
            _read_classes(header["classes"]),
            Adjacency(header["adjacency"]),
            _typed(header["columns"], int),
            _typed(header["unit"], str),
            _typed(header["declaration"], str),
            {key: _typed(value, *_PLAIN) for key, value in _typed(header["marks"], dict).items()},
            _schema(header["schema"]),
            _typed(header["provenance"], dict),
        )
        names = header["names"]
        if names is not None:
            names = [_typed(name, str) for name in _typed(names, list)]
        model = unpack(header["model"], arrays)
        shell = None if header["shell"] is None else _typed(unpack(header["shell"], arrays), dict)
        if not isinstance(model, Certified):
            raise TypeError
    except ConfideError:
        raise
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError, RecursionError, MemoryError):
        raise DataError(f"The parts of {path} do not fit each other.", "Save the model again.") from None
    return CertifiedModel(model, facts, ledger=ledger), shell, names


def holds_certified(path: PathLike) -> bool:
    """Return whether a file looks like one of ours (an archive) rather than JSON, by its first bytes."""
    try:
        with open(path, "rb") as file:
            return file.read(2) == b"PK"
    except OSError:
        raise _missing(path) from None


def digest(text: bytes, arrays: Sequence[NDArray[Any]]) -> bytes:
    """Return SHA-256 over the header and, in order, type, shape and bytes of each array."""
    total = hashlib.sha256(struct.pack("<Q", len(text)) + text)
    for array in arrays:
        total.update(f"{array.dtype.str}{array.shape}".encode())
        total.update(np.ascontiguousarray(array).tobytes())
    return total.digest()


def _schema(data: Any) -> Any:
    from confide.schema import Schema

    return None if data is None else Schema.from_dict(data)


def _classes(classes: NDArray[Any]) -> dict[str, Any]:
    if classes.dtype.kind not in "Ufiub":
        raise UnsupportedError(
            f"Classes of type {classes.dtype} cannot be saved.", "Declare classes of text or of numbers."
        )
    return {"type": classes.dtype.str, "values": classes.tolist()}


def _read_classes(known: Any) -> NDArray[Any]:
    kind = np.dtype(_typed(known["type"], str))
    if kind.kind not in "Ufiub" or kind.itemsize > _WIDEST:
        raise TypeError
    values = [_typed(value, str, int, float, bool) for value in _typed(known["values"], list)]
    return np.array(values, dtype=kind)


def _typed(value: Any, *types: type) -> Any:
    if type(value) not in types:
        raise TypeError
    return value


def _write(path: Path, members: Mapping[str, NDArray[Any]]) -> None:
    try:
        # mkstemp: mode 0600 from the first byte, a name that nobody guesses, in the same folder.
        handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    except OSError as error:
        raise _unwritable(path, error) from None
    try:
        with os.fdopen(handle, "wb") as file:
            np.savez(file, **members)  # pyright: ignore[reportArgumentType]
            file.flush()
            os.fsync(file.fileno())
        os.replace(name, path)
    except BaseException as error:
        Path(name).unlink(missing_ok=True)
        if isinstance(error, OSError):
            raise _unwritable(path, error) from None
        raise


def _read(path: Path) -> tuple[dict[str, Any], Arrays]:
    damaged = DataError(
        f"The file {path} is damaged: it was cut short or changed.", "Take it from a copy, or certify again."
    )
    try:
        with path.open("rb") as file:
            if file.read(2) != b"PK":
                raise DataError(
                    f"The file {path} holds no certified model.", "Name a file that `save` wrote."
                )
            size = file.seek(0, os.SEEK_END)
            with zipfile.ZipFile(file) as held:
                members = held.infolist()
                names = {member.filename for member in members}
                if not {"header.npy", "digest.npy"} <= names:
                    raise _foreign(path)
                packed = any(member.compress_type != zipfile.ZIP_STORED for member in members)
                if packed or sum(member.file_size for member in members) > size:
                    raise damaged
                text = _array(held.read("header.npy")).tobytes()
                header = json.loads(text.decode("utf-8"))
                _check_format(path, header)
                arrays = [_array(held.read(f"a{place}.npy")) for place in range(len(members) - 2)]
                found = _array(held.read("digest.npy")).tobytes()
    except DataError:
        raise
    except OSError:
        if not path.is_file():
            raise _missing(path) from None
        raise damaged from None
    except (
        ValueError,
        KeyError,
        EOFError,
        struct.error,
        zipfile.BadZipFile,
        zlib.error,
        NotImplementedError,
        RuntimeError,  # too deep, or encrypted
        SyntaxError,
        TypeError,
        OverflowError,
        MemoryError,
    ):
        raise damaged from None
    if found != digest(text, arrays):
        raise damaged
    return header, arrays


def _array(raw: bytes) -> NDArray[Any]:
    """Return the array of an npy member, if it has numbers, and as many as its shape says."""
    buffer = io.BytesIO(raw)
    readers = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
    shape, fortran, kind = readers[np.lib.format.read_magic(buffer)](buffer)
    start = buffer.tell()
    if kind.kind not in "fiub" or kind.subdtype is not None or min(shape, default=0) < 0:
        raise ValueError
    if math.prod(shape) * kind.itemsize != len(raw) - start:
        raise ValueError
    return np.array(np.ndarray(shape, kind, raw, start, order="F" if fortran else "C"))


def _check_format(path: Path, header: Any) -> None:
    found = header.get("format") if isinstance(header, dict) else None
    if found != FORMAT:
        raise _foreign(path)
    version = header.get("version")
    if version != VERSION:
        raise DataError(
            f"The file {path} has version {str(version)[:20]} of its format; this program reads {VERSION}.",
            "Read it with the version of confide that wrote it, or a newer one.",
        )


def _foreign(path: Path) -> DataError:
    return DataError(f"The file {path} holds no certified model.", "Name a file that `save` wrote.")


def _missing(path: PathLike) -> DataError:
    return DataError(f"There is no file {path} that can be read.", "Name a file that `save` wrote.")


def _unwritable(path: Path, error: OSError) -> ParameterError:
    return ParameterError(
        f"The file {path} cannot be written ({error.strerror or type(error).__name__}).",
        "Name a file in a folder that exists.",
    )
