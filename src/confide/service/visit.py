"""One request from its arrival to its time on the schedule: key, rate and body.

Whoever shows a key is looked up in the store, which others use: how long that takes may show what they ask.
So a request is on the schedule from its arrival, before its key is looked up, whatever becomes of it.

==========================================  =========================================================
what comes in                               outcome
==========================================  =========================================================
no key, or none of the right form           401 at once: it depends on the request alone
a key that nobody has                       401 on the schedule; 429 there where too many such keys came
an analyst over its rate                    429 on the schedule, before the body is parsed
a body that cannot be read, wrong rows      400, 413, 415, 422 on the schedule
a body that comes slowly                    arrived with its last byte: no overrun of ours
a body that takes longer than `SECONDS`     408
late, without a key or with one of nobody   counted apart: it tells nothing of the table, and anybody could
                                            make it so
late, the key not looked up: no store       an overrun: it may be an analyst's
a header twice that says who or which       400: a gateway might have read the other one
==========================================  =========================================================
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

from confide.service.bodies import read
from confide.service.problems import ProblemError, unreadable
from confide.service.records import UnknownKeys

if TYPE_CHECKING:
    from types import TracebackType

    from fastapi import Request

    from confide.service.app import Front
    from confide.service.records import Analyst

#: Within which a body must come in.
SECONDS = 30.0
_BEARER = {"WWW-Authenticate": 'Bearer realm="confide"'}


class Visit:
    """A stay of one request: ``async with Visit(front) as visit`` ends at the request's time.

    Attributes
    ----------
    arrival : float
        On the monotonic clock; of the last byte, once a body was received.
    rows : int
        That are asked.
    stranger : bool
        Whether it is known that nobody asks who has a key: for such a one nothing of the table is computed.

    Parameters
    ----------
    front : Front
    keyed : bool
        Whether the request shows a key.
    """

    def __init__(self, front: Front, *, keyed: bool = True) -> None:
        self.front = front
        self.arrival = time.monotonic()
        self.rows = 0
        self.stranger = not keyed

    async def __aenter__(self) -> Visit:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None or issubclass(kind, Exception):  # not where the task was cancelled: nobody waits
            late = self.front.late_to_nobody if self.stranger else None
            await self.front.schedule.wait(self.arrival, self.rows, late)

    async def receive(self, request: Request, media_type: str, limit: int) -> bytes:
        """Return the body; the request has arrived with its last byte.

        Raises
        ------
        ProblemError
        """
        try:
            async with asyncio.timeout(SECONDS):
                raw = await read(request, media_type, limit)
        except TimeoutError:
            self.arrival = time.monotonic()
            raise ProblemError(
                408,
                "slow",
                "The body did not come in time.",
                f"Nothing was charged. Send it within {SECONDS:g} seconds.",
                headers={"Connection": "close"},
            ) from None
        except Exception:
            self.arrival = time.monotonic()
            raise
        self.arrival = time.monotonic()
        return raw

    async def caller(self, key: str, *, monitor: bool = False) -> Analyst:
        """Return who a key stands for, and count the request in its rate.

        Parameters
        ----------
        key : str
        monitor : bool
            Whether the monitor's key is taken: for the counters alone.

        Raises
        ------
        ProblemError
            401, the same in every case.
        TooManyRequests
            Of an analyst; of keys that nobody has, `UnknownKeys`.
        """
        analyst = await self.holder(key)
        if analyst is None:
            raise unknown_key()
        self.front.service.admit(analyst)  # first: a key that is refused has a rate too
        if analyst.monitor and not monitor:
            raise unknown_key()
        return analyst

    async def holder(self, key: str) -> Analyst | None:
        """Return whose a key is, or None.

        Raises
        ------
        UnknownKeys
        """
        try:
            analyst = await self.front.call(self.front.service.analyst_of, key)
        except UnknownKeys:
            self.stranger = True
            raise
        self.stranger = analyst is None
        return analyst

    async def question(
        self, request: Request, key: str, media_type: str, limit: int
    ) -> tuple[Analyst, bytes]:
        """Return who asks, and the body.

        Both at once, so that the time of arrival is that of the body and not of the store. Of a caller who is
        refused the body is not read on.

        Raises
        ------
        ProblemError, TooManyRequests
            Of the caller before that of the body.
        """
        reading = asyncio.ensure_future(self.receive(request, media_type, limit))
        try:
            analyst = await self.caller(key)
        except BaseException:
            await _given_up(reading)
            raise
        return analyst, await reading


async def _given_up(task: asyncio.Future[bytes]) -> None:
    """End a task whose outcome nobody asks for any more."""
    task.cancel()
    await asyncio.wait([task])
    if not task.cancelled():
        task.exception()  # else the log would hold it


def key_of(request: Request) -> str:
    """Return the bearer key of a request.

    Raises
    ------
    ProblemError
        401, the same in every case; 400 for two keys.
    """
    scheme, _, key = (single(request, "Authorization") or "").partition(" ")
    key = key.strip()
    if scheme.lower() != "bearer" or not key or len(key) > 512 or not key.isascii():
        raise unknown_key()
    return key


def single(request: Request, header: str) -> str | None:
    """Return a header, or None without it.

    Raises
    ------
    ProblemError
        If it stands twice.
    """
    found = request.headers.getlist(header)
    if len(found) > 1:
        raise unreadable(f"The header {header} stands twice.", header)
    return found[0] if found else None


def unknown_key() -> ProblemError:
    """Return the one problem of a key that is missing, malformed, unknown, rotated or revoked."""
    return ProblemError(
        401,
        "key",
        "A key of this service is needed.",
        "Send the header Authorization: Bearer KEY, with a key of `confide ledger grant`.",
        headers=_BEARER,
    )
