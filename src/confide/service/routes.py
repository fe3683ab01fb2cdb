"""The routes for analysts and machines."""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from fastapi import FastAPI, Request, Response

from confide.errors import BudgetError, ConfideError
from confide.ledger import chain
from confide.ledger.budget import text
from confide.service import metrics, schemas
from confide.service.amounts import amount
from confide.service.bodies import JSON, json_object
from confide.service.problems import FieldError, ProblemError, invalid, of_failure, pointer, unreadable
from confide.service.quiet import note_failure
from confide.service.records import (
    Analyst,
    Answers,
    KeyRevoked,
    RequestOfAnotherModel,
    RequestReused,
    RowError,
    TooManyRequests,
    TotalExhausted,
    UnknownKeys,
)
from confide.service.rows import Asked, RowReader, rows_of
from confide.service.schedule import late
from confide.service.visit import Visit, key_of, single, unknown_key

if TYPE_CHECKING:
    from confide.service.app import Front

_REQUEST_ID = re.compile(schemas.REQUEST_ID)
#: Bytes of a body that is parsed on a thread, so that others' answers leave on time.
LARGE = 1 << 14
_SECURITY = {"security": [{"key": []}]}


def add(app: FastAPI, front: Front) -> None:
    """Add the routes to the application."""
    service, reader = front.service, front.reader

    @app.post(
        "/v1/predict",
        summary="Ask for private answers",
        response_model=schemas.Answered,
        responses=schemas.problems(400, 401, 403, 408, 409, 413, 415, 422, 429, 500, 503),
        openapi_extra={**schemas.predict_document(reader.columns, reader.most), **_SECURITY},
    )
    async def predict(request: Request) -> Response:
        """Answer one row, or several; charge the account once for each request id."""
        key = key_of(request)
        async with Visit(front) as visit:
            analyst, raw = await visit.question(request, key, JSON, reader.body_limit)
            parse = partial(question_of, request, raw, reader)
            request_id, asked = parse() if len(raw) <= LARGE else await front.call(parse)
            answers = await answered(visit, analyst, asked, request_id)
        return _json(told(answers, request_id, asked))

    @app.get(
        "/v1/budget",
        summary="The caller's own account",
        response_model=schemas.Budget,
        responses=schemas.problems(400, 401, 429, 500, 503),
        openapi_extra=_SECURITY,
    )
    async def budget(request: Request) -> Response:
        """Say what the account may spend, has spent and has left."""
        key = key_of(request)
        async with Visit(front) as visit:
            view = await front.call(service.budget, await visit.caller(key))
        return _json(
            {
                "analyst": view.name,
                "limit": amount(view.limit, rest=True),
                "spent": amount(view.spent),
                "left": amount(view.left, rest=True),
                "answers": view.answers,
                "total_exhausted": view.total_exhausted,
            }
        )

    @app.get(
        "/v1/guarantee",
        summary="What holds for everybody in the table",
        response_model=schemas.Guaranteed,
        responses=schemas.problems(500, 503),
    )
    async def guarantee() -> Response:
        """Say the guarantee of all answers together, and of one."""
        async with Visit(front, keyed=False):
            body = await front.call(promised, front)
        return _json(body)

    @app.get("/health", summary="Whether the worker runs", response_model=schemas.Health)
    async def health() -> Response:
        """Say that the worker runs; reads nothing."""
        return _json({"status": "ok"})

    @app.get(
        "/ready",
        summary="Whether the store can be reached",
        response_model=schemas.Health,
        responses=schemas.problems(500, 503),
    )
    async def ready() -> Response:
        """Say that the store is there and was not rolled back, as its worker last saw, each second."""
        if not front.watched:
            async with Visit(front, keyed=False):
                await front.call(front.look)
        front.ready()  # at once: a probe is no answer, and cannot be late
        return _json({"status": "ready"})

    @app.get(
        "/metrics",
        summary="Constants; counters for the owner's key",
        responses={
            200: {"content": {"text/plain": {"schema": {"type": "string"}}}},
            **schemas.problems(400, 401, 429, 500, 503),
        },
        response_class=Response,
        openapi_extra={"security": [{}, {"key": []}]},
    )
    async def counters(request: Request) -> Response:
        """Say public constants of the configuration; to owner and monitor counts and the total too."""
        key = key_of(request) if "authorization" in request.headers else None
        async with Visit(front, keyed=key is not None) as visit:
            counts, amounts = None, {}
            if key is not None:
                caller = await visit.caller(key, monitor=True)
                if not (caller.owner or caller.monitor):
                    raise unknown_key()
                counts = await front.call(front.counters.sums)
                amounts = await front.call(service.amounts)
            text = await front.call(exposition, front, counts, amounts)
        return Response(text, media_type=metrics.MEDIA_TYPE)


def _json(body: Mapping[str, Any]) -> Response:
    return Response(json.dumps(body, separators=(",", ":")).encode("ascii") + b"\n", media_type=JSON)


# ---- what is asked ----------------------------------------------------------------------------------------


def question_of(request: Request, raw: bytes, reader: RowReader) -> tuple[str, Asked]:
    """Return the request id and the rows of a body.

    Raises
    ------
    ProblemError
    """
    body = json_object(raw)
    return request_id_of(request, body), rows_of(body, reader)


def request_id_of(request: Request, body: Mapping[str, Any]) -> str:
    """Return the request id of the header or the body, or a new one.

    Raises
    ------
    ProblemError
    """
    sent = [
        value for value in (single(request, "Idempotency-Key"), body.get("request_id")) if value is not None
    ]
    rule = "A request id is 1 to 128 letters, digits or . _ : - in ASCII."
    if "request_id" in body and body["request_id"] is None:
        sent.append("")
    for value in sent:
        if not isinstance(value, str) or not _REQUEST_ID.fullmatch(value):
            raise unreadable(rule, "request_id")
    if len(set(sent)) > 1:
        raise ProblemError(
            409,
            "request-id",
            "The header Idempotency-Key and the body's request_id differ.",
            "Nothing was charged. Send one of them.",
        )
    return sent[0] if sent else uuid.uuid4().hex


# ---- answers ------------------------------------------------------------------------------------------


async def answered(visit: Visit, analyst: Analyst, asked: Asked, request_id: str) -> Answers:
    """Return answers; they leave when the visit ends.

    Raises
    ------
    ProblemError
    """
    front, visit.rows = visit.front, len(asked.rows)
    front.counters.add(metrics.ROWS, visit.rows)
    try:
        return await front.call(front.service.answer, analyst, asked.rows, request_id)
    except ConfideError as error:
        found = refusal(error)
        if found.status < 500:
            front.counters.add(metrics.REFUSED)
        raise found from None


def refusal(error: ConfideError) -> ProblemError:
    """Return the problem of a refusal."""
    for kind, made in _REFUSALS.items():
        if isinstance(error, kind):
            return made(error)
    note_failure(error)
    return of_failure(error)


def _reused(error: RequestReused) -> ProblemError:
    return ProblemError(
        409,
        "request-id",
        "The request id was used for other rows.",
        "Nothing was charged. Send new rows under a new request id.",
    )


def _of_another_model(error: RequestReused) -> ProblemError:
    return ProblemError(
        409,
        "request-id",
        "The request id was answered by another model, or under other settings.",
        "Nothing was charged. Send the rows under a new request id; they are then charged anew.",
    )


def _too_many(
    error: TooManyRequests,
    title: str = "Too many requests of this analyst.",
    detail: str = "Nothing was charged.",
) -> ProblemError:
    seconds = str(max(1, -int(-error.retry_after // 1)))
    return ProblemError(429, "rate", title, detail, headers={"Retry-After": seconds})


def _unknown(error: UnknownKeys) -> ProblemError:
    return _too_many(
        error,
        "Too many requests with keys that nobody has.",
        "Nothing was charged. A key that was given out just now is known when Retry-After is over.",
    )


def _exhausted(error: TotalExhausted) -> ProblemError:
    return ProblemError(
        403,
        "total",
        "The model's total budget does not cover the request.",
        "Nothing was charged. A request is checked as if all its rows that are new to you were new to the "
        "total: send fewer rows, or ask the owner of the model.",
    )


def _overdrawn(error: BudgetError) -> ProblemError:
    return ProblemError(
        403,
        "budget",
        "The account does not cover the request.",
        "Nothing was charged. GET /v1/budget says what is left: send fewer rows. Rows that were asked before "
        "cost nothing.",
    )


def _unfit(error: RowError) -> ProblemError:
    return invalid(
        FieldError(pointer("rows", row, name), name, f"{what}.") for row, name, what in error.faults
    )


#: Kinds of refusal that have words of their own; the narrower before the wider.
_REFUSALS: dict[type[ConfideError], Any] = {
    RequestOfAnotherModel: _of_another_model,
    RequestReused: _reused,
    UnknownKeys: _unknown,
    TooManyRequests: _too_many,
    KeyRevoked: lambda error: unknown_key(),
    TotalExhausted: _exhausted,
    RowError: _unfit,
    BudgetError: _overdrawn,
}


def told(answers: Answers, request_id: str, asked: Asked) -> dict[str, Any]:
    """Return answers as plain values."""
    return {
        "request_id": request_id,
        "answers": list(answers.values),
        "states": list(answers.states),
        "cost": amount(answers.cost),
        "left": amount(answers.left, rest=True),
        "replayed": answers.replayed,
        "notes": list(asked.notes),
    }


# ---- what holds ---------------------------------------------------------------------------------------


def promised(front: Front) -> dict[str, Any]:
    """Return the guarantee as plain values."""
    promise, config, schedule = front.promise(), front.service.config, front.schedule
    total, counted = promise.total, front.counters.sums()[metrics.OVERRUNS]
    # An answer that was late stands in the place of the promise that answers are on time.
    times = promise.late or (late(counted, chain.now()) if counted else schedule.assumption)
    also = "" if promise.late else f" It also assumes: {times}."
    return {
        "sentence": promise.sentence + also,
        "answer": str(promise.answer),
        "epsilon": text(total.epsilon),
        "delta": text(total.delta),
        "adjacency": total.adjacency.value,
        "unit": total.unit,
        "release": config.released,
        "assumptions": list(dict.fromkeys((*promise.assumptions, times))),
        "schedule": f"An answer leaves {config.schedule_ms:g} ms after its request, or a multiple of that: "
        f"as many as {config.row_ms:g} ms a row need."
        if schedule.step
        else "none",
    }


def exposition(front: Front, counts: Mapping[str, int] | None, amounts: Mapping[str, float]) -> str:
    """Return the text of /metrics."""
    config, promise = front.service.config, front.promise()
    return metrics.exposition(
        {
            "model": front.reader.schema.name,
            "release": config.released,
            "adjacency": promise.total.adjacency.value,
            "unit": promise.total.unit,
        },
        {
            "answer_epsilon": float(config.epsilon),
            "answer_delta": float(config.delta),
            "schedule_step_seconds": config.schedule_ms / 1000,
            "schedule_row_seconds": config.row_ms / 1000,
            "start_time_seconds": front.started,
            **amounts,
        },
        counts,
    )
