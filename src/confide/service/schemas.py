"""What the service says, as models: the OpenAPI document is made of these and of the model's own schema."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from confide.service.problems import MEDIA_TYPE
from confide.service.rows import example_row, json_schema

if TYPE_CHECKING:
    from confide.schema.column import Column

#: Of a request id: what every log, header and store can hold.
REQUEST_ID = r"[A-Za-z0-9._:-]{1,128}"


class _Closed(BaseModel):
    model_config = ConfigDict(extra="forbid")


class Amount(_Closed):
    """An amount of privacy, exact: a whole number, or a fraction such as 1/10."""

    epsilon: str = Field(examples=["1/10"])
    epsilon_decimal: str = Field(
        examples=["0.1"], description="Six digits: what is left and limits rounded down, the rest up."
    )
    delta: str = Field(examples=["0"])
    rho: str | None = Field(None, description="Of a zCDP ledger alone: what adds up there, exactly.")
    rho_decimal: str | None = Field(None, description="The same, as epsilon_decimal.")


class Answered(_Closed):
    """Answers, in the order of the rows."""

    request_id: str
    answers: list[str | int | float | bool | None] = Field(
        description="A class a row; null where 'states' is not answered (sparse_vector)."
    )
    states: list[Literal["answered", "unstable", "unanswered"]] = Field(
        description="One a row. Unstable ends an epoch; unanswered: after the last epoch of the request."
    )
    cost: Amount = Field(description="What this request cost the account: nothing where it was asked before.")
    left: Amount = Field(description="What the account has left.")
    replayed: bool = Field(description="Whether this request id was answered before, with these answers.")
    notes: list[str] = Field(description="Fields whose cells were clipped to their declared bounds.")


class Budget(_Closed):
    """The caller's own account."""

    analyst: str
    limit: Amount
    spent: Amount
    left: Amount
    answers: int | None = Field(
        description="New answers (epochs) that the account still allows, whatever others leave of the total; "
        "0 once that covers none."
    )
    total_exhausted: bool = Field(
        description="Whether the model's total refuses one new answer that the account covers."
    )


class Guaranteed(_Closed):
    """What holds for everybody in the table, whoever asks."""

    sentence: str = Field(description="Of all answers to all analysts together, even if they collude.")
    answer: str = Field(description="Of one answer by itself; of one epoch, for sparse_vector.")
    epsilon: str = Field(description="The total, exact.")
    delta: str
    adjacency: str
    unit: str
    release: str
    assumptions: list[str]
    schedule: str


class Health(_Closed):
    """That the worker runs, or that its store can be reached."""

    status: str = Field(examples=["ok", "ready"])


class FieldProblem(_Closed):
    """One field at fault. No value that was sent is ever said back."""

    pointer: str = Field(examples=["/rows/0/age"])
    field: str = Field(examples=["age"])
    detail: str = Field(examples=["Send a number in years, from 18 to 90, or null for a missing cell."])


class ProblemDetails(_Closed):
    """An error, as RFC 9457 has it."""

    type: str = Field(examples=["urn:confide:problem:validation"])
    title: str
    status: int
    detail: str | None = None
    count: int | None = None
    errors: list[FieldProblem] | None = None


def problems(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """Return the ``responses`` of a route that can end with these statuses."""
    schema = {"$ref": "#/components/schemas/ProblemDetails"}
    return {
        status: {"description": _TITLES[status], "content": {MEDIA_TYPE: {"schema": schema}}}
        for status in statuses
    }


_TITLES = {
    400: "The body, the request id or a header cannot be read.",
    401: "No key, or one that is not known.",
    403: "The budget, or the key, does not allow it.",
    408: "The body did not come in time.",
    409: "The request id was used for other rows or another model, or header and body name two.",
    413: "The body is too large.",
    415: "The body is no JSON.",
    422: "The rows do not fit the declared schema.",
    429: "Too many requests of this analyst, or with keys that nobody has.",
    500: "A fault of the service; nothing of its cause is told.",
    503: "The store is out of reach: ask again with the same request id; or it is damaged.",
}


def predict_document(columns: Sequence[Column], most: int) -> dict[str, Any]:
    """Return what OpenAPI says of the body and header of a question."""
    row = json_schema(columns)
    request_id = {"type": "string", "pattern": f"^{REQUEST_ID}$"}
    example = example_row(columns)
    one = {
        "type": "object",
        "properties": {"row": row, "request_id": request_id},
        "required": ["row"],
        "additionalProperties": False,
    }
    rows = {"type": "array", "items": row, "minItems": 1, "maxItems": most}
    many = {
        "type": "object",
        "properties": {"rows": rows, "request_id": request_id},
        "required": ["rows"],
        "additionalProperties": False,
    }
    examples = {
        "one": {"summary": "One row", "value": {"row": example, "request_id": "visit-17"}},
        "many": {"summary": "Several rows", "value": {"rows": [example, example]}},
    }
    return {
        "requestBody": {
            "required": True,
            "content": {"application/json": {"schema": {"oneOf": [one, many]}, "examples": examples}},
        },
        "parameters": [
            {
                "name": "Idempotency-Key",
                "in": "header",
                "required": False,
                "description": "The request id, unless the body has it. The same id with the same rows gets "
                "the same answers and is charged once, also after a crash.",
                "schema": request_id,
            }
        ],
    }
