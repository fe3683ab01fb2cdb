"""Bodies of requests: bounded, strict JSON; and the fields of the page's form.

==========================================  ==========================================
body                                        outcome
==========================================  ==========================================
longer than the public limit                413, before it is read to its end
another content type, or compressed         415
the header of either twice                  400
a length, and chunked besides               400, the connection ends (`confide.service.headers`)
not UTF-8, no JSON, empty, no object        400
NaN, Infinity                               400: no JSON
a number past double range                  read as infinite, which no field takes: 422, the field named
a name twice in one object                  400, the name said
nested too deep                             400
==========================================  ==========================================
"""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Any, NoReturn
from urllib.parse import parse_qsl

from confide.service.problems import ProblemError, spoken, unreadable

if TYPE_CHECKING:
    from fastapi import Request

JSON = "application/json"
FORM = "application/x-www-form-urlencoded"


class _Refused(ValueError):
    def __init__(self, detail: str, name: str = "body") -> None:
        super().__init__(detail)
        self.detail = detail
        self.name = name


async def read(request: Request, media_type: str, limit: int) -> bytes:
    """Return the body of a request.

    Parameters
    ----------
    request : Request
    media_type : str
        What its content type must be; a charset may follow, UTF-8.
    limit : int
        Bytes.

    Raises
    ------
    ProblemError
    """
    for name in ("content-type", "content-encoding"):
        if len(request.headers.getlist(name)) > 1:
            raise unreadable(f"The header {name.title()} stands twice.", name.title())
    if request.headers.get("content-encoding", "identity").strip().lower() not in ("identity", ""):
        raise ProblemError(
            415,
            "media-type",
            "The body is compressed.",
            "Send it as it is, without the header Content-Encoding.",
        )
    kind, _, options = request.headers.get("content-type", "").partition(";")
    charset = options.strip().lower().replace('"', "").replace(" ", "")
    if kind.strip().lower() != media_type or charset not in ("", "charset=utf-8"):
        raise ProblemError(
            415,
            "media-type",
            f"The content type must be {media_type}, in UTF-8.",
            f"Send the header Content-Type: {media_type}.",
        )
    length = request.headers.get("content-length", "0")
    if not length.isdigit() or len(length) > 18 or int(length) > limit:
        raise _too_large(limit)
    parts, size = [], 0
    async for part in request.stream():
        size += len(part)
        if size > limit:
            raise _too_large(limit)
        parts.append(part)
    return b"".join(parts)


def _too_large(limit: int) -> ProblemError:
    return ProblemError(
        413,
        "too-large",
        "The body is too large.",
        f"Send at most {limit} bytes; split the rows over several requests.",
        headers={"Connection": "close"},
    )


def json_object(raw: bytes) -> dict[str, Any]:
    """Return the JSON object that `raw` spells.

    Raises
    ------
    ProblemError
        See the table of the module. No message holds a value of the body.
    """
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError:
        raise unreadable("The body is not UTF-8.") from None
    try:
        body = _DECODER.decode(text)
    except _Refused as error:
        raise unreadable(error.detail, error.name) from None
    except RecursionError:
        raise unreadable("The JSON is nested too deep.") from None
    except json.JSONDecodeError as error:
        raise unreadable(
            f"The body is no JSON: line {error.lineno}, column {error.colno} is not what is expected there."
        ) from None
    if not isinstance(body, dict):
        raise unreadable("The body is no JSON object.")
    return body


def _pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        seen: set[str] = set()
        for name, _ in pairs:
            if name in seen:
                raise _Refused("A name stands twice in one object.", spoken(name))
            seen.add(name)
    return found


def _constant(text: str) -> NoReturn:
    raise _Refused("NaN and Infinity are no JSON numbers; send null for a missing cell.")


def _integer(text: str) -> int | float:
    # int() takes quadratic time on long digits, and refuses the longest with a message of its own.
    value = float(text)
    return int(text) if math.isfinite(value) else value


_DECODER = json.JSONDecoder(object_pairs_hook=_pairs, parse_constant=_constant, parse_int=_integer)


def form_fields(raw: bytes, most: int) -> dict[str, str]:
    """Return the fields of a form; a name twice, or more than `most`, are refused.

    Raises
    ------
    ProblemError
    """
    try:
        pairs = parse_qsl(
            raw.decode("ascii"),
            keep_blank_values=True,
            strict_parsing=bool(raw),
            errors="strict",
            max_num_fields=most,
        )
    except ValueError:
        raise unreadable("The form cannot be read.") from None
    found = dict(pairs)
    if len(found) != len(pairs):
        raise unreadable("A field of the form stands twice.")
    return found
