"""What every response carries, the last resort for errors, and the count of both.

A plain ASGI layer outside of all others: an error that nobody foresaw becomes a problem of status 500 that
says nothing, and one line of the log with its type alone (its message or traceback may quote a cell).
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from starlette.requests import ClientDisconnect

from confide.service.problems import MEDIA_TYPE, ProblemError

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from confide.service.metrics import Counters

_log = logging.getLogger("confide.service")

POLICY = (
    "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; img-src data:; "
    "form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
)
HEADERS = (
    ("content-security-policy", POLICY),
    ("x-content-type-options", "nosniff"),
    ("x-frame-options", "DENY"),
    ("referrer-policy", "same-origin"),
    ("cross-origin-opener-policy", "same-origin"),
    ("cross-origin-resource-policy", "same-origin"),
    ("permissions-policy", "camera=(), geolocation=(), microphone=()"),
    ("cache-control", "no-store"),
)
_ENCODED = [(name.encode(), value.encode()) for name, value in HEADERS]
_TWO_LENGTHS = (
    "The length of the body is said twice.",
    "Nothing was charged. Send Content-Length or Transfer-Encoding, not both.",
)
#: Path -> route, of what is counted.
_ROUTES = {
    "/v1/predict": "predict",
    "/v1/budget": "budget",
    "/v1/guarantee": "guarantee",
    "/health": "health",
    "/ready": "ready",
    "/metrics": "metrics",
    "/": "page",
    "/live": "page",
}


class Headers:
    """The outermost layer."""

    def __init__(self, app: ASGIApp, counters: Counters) -> None:
        self.app = app
        self.counters = counters

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, and its response back."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        route, begun = _ROUTES.get(scope["path"], "other"), False

        async def told(message: Message) -> None:
            nonlocal begun
            if message["type"] == "http.response.start":
                begun = True
                names = {name for name, _ in message.get("headers", ())}
                message = {
                    **message,
                    "headers": [
                        *message.get("headers", ()),
                        *(pair for pair in _ENCODED if pair[0] not in names),
                    ],
                }
                self.counters.request(route, message["status"])
            await send(message)

        try:
            if _ambiguous(scope):
                await _send_problem(told, 400, "malformed", *_TWO_LENGTHS, close=True)
                return
            await self.app(scope, receive, told)
        except ClientDisconnect:
            return
        except Exception as error:
            _log.error("unexpected %s; its message may quote a cell and is not logged", _kind(error))
            if not begun:
                await _send_problem(
                    told, 500, "fault", "A fault of the service.", "Ask again with the same request id."
                )


def _ambiguous(scope: Scope) -> bool:
    """Whether a body has two lengths: a gateway may have read the other one, and two requests as one."""
    names = {name.lower() for name, _ in scope["headers"]}
    return {b"content-length", b"transfer-encoding"} <= names


async def _send_problem(
    send: Any, status: int, code: str, title: str, detail: str, *, close: bool = False
) -> None:
    body = ProblemError(status, code, title, detail).encoded()
    head = [(b"content-type", MEDIA_TYPE.encode()), (b"content-length", str(len(body)).encode())]
    head += [(b"connection", b"close")] if close else []
    await send({"type": "http.response.start", "status": status, "headers": head})
    await send({"type": "http.response.body", "body": body})


def _kind(error: BaseException) -> str:
    return type(error).__name__
