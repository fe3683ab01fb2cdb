"""Names and handles: what callers may write, checked before anything is opened."""

from __future__ import annotations

from collections.abc import Iterable

from confide.errors import ParameterError

LONGEST_NAME = 200
LONGEST_LABEL = 2000


def split_handle(handle: str, dataset: str | None = None) -> tuple[str, str]:
    """Return (URL, dataset) of a handle; `dataset` must agree with the part after ``#``."""
    if not isinstance(handle, str):
        raise ParameterError(f"The ledger's URL is a {type(handle).__name__}.", "Pass text.")
    base, mark, fragment = handle.rpartition("#")
    if not mark or "/" in fragment:  # a path may hold a '#', a dataset's name holds no '/'
        base, fragment = handle, ""
    if fragment and dataset is not None and fragment != dataset:
        raise ParameterError(
            f"The ledger's URL names dataset {fragment!r:.80} and 'dataset' is {dataset!r:.80}.",
            "Pass one of them.",
        )
    name = fragment or dataset
    if not name:
        raise ParameterError(
            "The ledger names no dataset.", "Write it after '#': sqlite:///ledger.db#visits."
        )
    return base, name


def name_of(value: str, parameter: str) -> str:
    """Return `value` if it is 1 to 200 printable letters."""
    bad = (
        not isinstance(value, str)
        or not 0 < len(value) <= LONGEST_NAME
        or not value.isprintable()
        or (parameter == "dataset" and ("#" in value or "/" in value))
    )
    if bad:
        raise ParameterError(
            f"The '{parameter}' parameter is {value!r:.80}.",
            f"Pass 1 to {LONGEST_NAME} printable letters"
            + (", no '#' or '/'." if parameter == "dataset" else "."),
        )
    return value


def accept_of(names: Iterable[str]) -> tuple[str, ...]:
    """Return names of assumptions, sorted."""
    if isinstance(names, str):
        raise ParameterError(f"The 'accept' parameter is {names!r:.80}.", f"Pass a tuple: ({names!r:.80},).")
    return tuple(sorted({str(name) for name in names}))


def secret_of(value: bytes) -> bytes:
    """Return `value` if it is bytes."""
    if not isinstance(value, bytes):
        raise ParameterError(f"The 'secret' parameter is a {type(value).__name__}.", "Pass bytes.")
    return value
