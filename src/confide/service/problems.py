"""Errors as problem details (RFC 9457): what is wrong, where, what to do; never a value that was sent."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from confide.errors import ConfideError, Failure

MEDIA_TYPE = "application/problem+json"
#: Errors of one request that are listed; their number is always told.
MOST_LISTED = 20
#: A name that a client may have sent instead of a field's, and that is safe to say back.
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_ .-]{0,63}")

#: Status of each failure of the library, where an analyst's request meets it.
STATUS = {
    Failure.PARAMETER: 400,
    Failure.UNSUPPORTED: 400,
    Failure.SCHEMA: 422,
    Failure.DATA: 422,
    Failure.BUDGET: 403,
    Failure.ASSUMPTION: 403,
    Failure.ADJACENCY: 403,
    Failure.REFUSED: 403,
    Failure.LEDGER: 503,
    Failure.OUT_OF_REACH: 503,
    Failure.TERMS: 503,
    Failure.CALIBRATION: 503,
    Failure.ENTROPY: 503,
}


#: Seconds after which it is worth asking again where the store fails.
AGAIN = 5
_AWAY = "Ask again with the same request id: if it was charged, its answers are there."
_DAMAGED = (
    "Nothing is answered until the owner of the model has looked at it; then ask with the same request id."
)


@dataclass(frozen=True)
class FieldError:
    """One thing that is wrong with a body.

    Attributes
    ----------
    pointer : str
        JSON pointer (RFC 6901) to it: ``/rows/3/age``.
    field : str
        Its name, or empty where the body as a whole is at fault.
    detail : str
        What is wrong and what to do; public facts of the schema alone.
    """

    pointer: str
    field: str
    detail: str


class ProblemError(Exception):
    """An answer that is an error.

    Parameters
    ----------
    status : int
        Of HTTP.
    code : str
        Stable, for machines: the last part of the problem's type.
    title, detail : str
    errors : sequence of FieldError
    headers : mapping
    """

    def __init__(
        self,
        status: int,
        code: str,
        title: str,
        detail: str = "",
        *,
        errors: Iterable[FieldError] = (),
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(status, code)
        self.status = status
        self.code = code
        self.title = title
        self.detail = detail
        self.errors = tuple(errors)
        self.headers = dict(headers or {})

    def body(self) -> dict[str, Any]:
        """Return the members of the problem."""
        found: dict[str, Any] = {
            "type": f"urn:confide:problem:{self.code}",
            "title": self.title,
            "status": self.status,
        }
        more = len(self.errors) - MOST_LISTED
        told = self.detail
        if more >= 0:  # `Faults` stops to look there: how many there are in all is not known
            told = f"{told} The first {MOST_LISTED} are listed; {more or 'no'} more were found, and the rest "
            told += "was not looked at."
        if told:
            found["detail"] = told.strip()
        if self.errors:
            found["count"] = len(self.errors)
            found["errors"] = [
                {"pointer": item.pointer, "field": item.field, "detail": item.detail}
                for item in self.errors[:MOST_LISTED]
            ]
        return found

    def encoded(self) -> bytes:
        """Return the problem as JSON, in ASCII."""
        return json.dumps(self.body(), separators=(",", ":")).encode("ascii") + b"\n"


@dataclass
class Faults:
    """Errors of one body, collected up to a bound, so that a hostile body costs little."""

    found: list[FieldError] = field(default_factory=list)

    def add(self, pointer: str, name: str, detail: str) -> None:
        """Note one."""
        self.found.append(FieldError(pointer, name, detail))

    @property
    def full(self) -> bool:
        """Whether enough were found to stop looking."""
        return len(self.found) >= MOST_LISTED

    def raise_if_any(self) -> None:
        """Raise what was found.

        Raises
        ------
        ProblemError
        """
        if self.found:
            raise invalid(self.found)


def invalid(errors: Iterable[FieldError]) -> ProblemError:
    """Return the problem of a body that does not fit the declared schema; nothing was charged."""
    return ProblemError(
        422,
        "validation",
        "The request does not fit the declared schema.",
        "Nothing was charged. Mend the fields listed under 'errors'.",
        errors=errors,
    )


def unreadable(detail: str, name: str = "body") -> ProblemError:
    """Return the problem of a body that is no JSON object as RFC 8259 has it; nothing was charged."""
    return ProblemError(
        400,
        "malformed",
        "The body cannot be read.",
        "Nothing was charged.",
        errors=(FieldError("", name, detail),),
    )


def of_failure(error: ConfideError) -> ProblemError:
    """Return the problem of an error of the library, in the enum's own prose.

    Fact and remedy of an error may name amounts of the total, which analysts do not see: they stay here.
    """
    failure = error.failure
    status = STATUS[failure]
    away = failure is Failure.OUT_OF_REACH
    detail = _AWAY if away else _DAMAGED if status == 503 else ""
    title = "The store is out of reach." if away else failure.prose
    headers = {"Retry-After": str(AGAIN)} if status == 503 else {}
    return ProblemError(status, failure.code, title, detail, headers=headers)


def pointer(*parts: object) -> str:
    """Return a JSON pointer."""
    return "".join("/" + str(part).replace("~", "~0").replace("/", "~1") for part in parts)


def spoken(name: str) -> str:
    """Return a name that the client sent if it can be said back, else a placeholder.

    An unknown field must be named for its sender to find it; but text that is no plain name may be a value
    that went astray.
    """
    return name if _NAME.fullmatch(name) else "(a name that is not shown)"
