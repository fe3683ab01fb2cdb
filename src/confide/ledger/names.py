"""Names and handles: what callers may write, checked before anything is opened."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable
from typing import Any

from confide.errors import ParameterError

LONGEST_NAME = 200
LONGEST_LABEL = 2000
_ROWS = re.compile(r"at most [1-9][0-9]* rows a person")


def parts_of(handle: str) -> tuple[str, str]:
    """Return (URL, what stands after ``#``, or nothing)."""
    if not isinstance(handle, str):
        raise ParameterError(f"The ledger's URL is a {type(handle).__name__}.", "Pass text.")
    base, mark, fragment = handle.rpartition("#")
    if not mark or "/" in fragment:  # a path may hold a '#', a dataset's name holds no '/'
        return handle, ""
    return base, fragment


def split_handle(handle: str, dataset: str | None = None) -> tuple[str, str]:
    """Return (URL, dataset) of a handle; `dataset` must agree with the part after ``#``."""
    base, fragment = parts_of(handle)
    if fragment and isinstance(dataset, str) and _same(fragment) != _same(dataset):
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
    """Return `value` if it is 1 to 200 printable letters.

    The name of a dataset or an analyst comes back in one spelling: without spaces around it, in Unicode's
    form NFC. Letters that only look alike (Latin and Cyrillic, upper and lower case) stay different: to give
    a dataset another name, and with it a second budget, is the owner's own act (`Ledger.datasets` lists
    them).
    """
    if parameter in ("dataset", "analyst"):
        value = one_spelling(value)
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


def one_spelling(name: Any) -> Any:
    """Return the name of a dataset or an analyst as the ledger spells it; what is no such name, as it is."""
    return _same(name) if isinstance(name, str) and name.isprintable() else name


def _same(name: str) -> str:
    return unicodedata.normalize("NFC", name).strip()


def public_text(value: str, what: str, longest: int = LONGEST_LABEL) -> None:
    """Refuse text that a terminal would take for commands, or that cannot be written out at all.

    The chain keeps it for ever and others print it: control letters, line ends and halves of letters
    (surrogates) stay out.
    """
    if isinstance(value, str) and len(value) <= longest and value.isprintable():
        return
    if isinstance(value, str) and len(value) <= longest:
        fact, remedy = (
            f"{what} is {value!r:.80}: it holds control letters.",
            "Pass printable letters, one line.",
        )
    else:
        fact, remedy = f"{what} is no text, or too long.", f"Pass at most {longest} printable letters."
    raise ParameterError(fact, remedy)


def plain(value: str) -> str:
    """Return text of an entry that was written before `public_text`, or past it, made safe to print."""
    return (
        value
        if value.isprintable()
        else "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in value)
    )


def accept_of(names: Iterable[str]) -> tuple[str, ...]:
    """Return names of assumptions, sorted.

    A guarantee of the caller's own making may assume what it likes; but a name that is nearly one of this
    house's, such as ``"gap"`` or ``"Gap-condition"``, would accept nothing, and is refused.
    """
    if isinstance(names, str):
        raise ParameterError(f"The 'accept' parameter is {names!r:.80}.", f"Pass a tuple: ({names!r:.80},).")
    accepted = tuple(sorted({str(name) for name in names}))
    for name in accepted:
        meant = _nearly(name)
        if meant is not None:
            raise ParameterError(
                f"The 'accept' parameter holds {name!r:.80}, which no guarantee assumes.",
                f"Did you mean {meant!r}? Known are {', '.join(map(repr, known_assumptions()))}.",
            )
    return accepted


def known_assumptions() -> tuple[str, ...]:
    """Return the names of the assumptions that this house makes and a ledger can accept."""
    from confide.privacy.guarantee import MEANINGS

    return (*MEANINGS, "at most m rows a person")


def is_known(name: str) -> bool:
    """Whether `name` is an assumption that a guarantee of this house can carry, with any number of rows."""
    return name in known_assumptions() or _ROWS.fullmatch(name) is not None


def _nearly(name: str) -> str | None:
    from difflib import get_close_matches

    if is_known(name):
        return None
    words = " ".join(re.split(r"[^a-z0-9]+", name.lower())).strip()
    words = re.sub(r"\b[0-9]+\b", "m", words)
    for known in known_assumptions():
        if words and (words == known or known.startswith(f"{words} ")):
            return known
    return next(iter(get_close_matches(words, known_assumptions(), 1, 0.8)), None)


def version_of(value: int | None) -> int | None:
    """Return `value` if it is None or a version's number."""
    if value is not None and (not isinstance(value, int) or isinstance(value, bool) or value < 1):
        raise ParameterError(f"The 'version' parameter is {value!r:.80}.", "Pass what `bind` returned.")
    return value


def secret_of(value: bytes) -> bytes:
    """Return `value` if it is bytes."""
    if not isinstance(value, bytes):
        raise ParameterError(f"The 'secret' parameter is a {type(value).__name__}.", "Pass bytes.")
    return value
