"""The routes of the owner's page.

The owner's key is the password of HTTP Basic (any name): it works in every browser without a script, keeps no
session, and ends with the key. A form carries a token made from the key itself, which no other site knows,
and a form that another site sent is refused by its origin besides.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import uuid
from collections.abc import Mapping
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from fastapi import FastAPI, Request, Response

from confide.privacy.exact import show
from confide.service import shown
from confide.service.bodies import FORM, form_fields
from confide.service.page.form import CELL, CSRF, REQUEST
from confide.service.page.render import live, page, refused
from confide.service.page.style import css
from confide.service.page.views import Outcome, Overview
from confide.service.problems import ProblemError
from confide.service.records import ANSWERED
from confide.service.routes import answered, request_id_of
from confide.service.visit import Visit

if TYPE_CHECKING:
    from confide.ledger import Spending
    from confide.service.app import Front
    from confide.service.records import Analyst, Answers
    from confide.service.rows import Asked

HTML = "text/html; charset=utf-8"
_BASIC = {"WWW-Authenticate": 'Basic realm="confide, owner", charset="UTF-8"'}
_LARGEST_FORM = 1 << 18


def add(app: FastAPI, front: Front) -> None:
    """Add the routes to the application; they are for people and stay out of the OpenAPI document."""
    from importlib.resources import files

    script = files("confide.service.page").joinpath("page.js").read_bytes()
    style = css().encode()

    def moving() -> Overview:
        return shown.overview(front.service.overview())

    async def drawn(key: str, outcome: Outcome | None, status: int = 200) -> Response:
        standing, overview = await front.call(lambda: (shown.standing(front), moving()))
        text = page(
            standing,
            overview,
            front.reader.columns,
            token=token_of(key),
            request_id=uuid.uuid4().hex,
            outcome=outcome,
        )
        return _html(text, status)

    @app.get("/", include_in_schema=False)
    async def home(request: Request) -> Response:
        owner = await _owner(front, request)
        return _asked_for_key() if owner is None else await drawn(owner[1], None)

    @app.get("/live", include_in_schema=False)
    async def fragment(request: Request) -> Response:
        if await _owner(front, request) is None:
            return _asked_for_key()
        return _html(live(await front.call(moving)))

    @app.post("/", include_in_schema=False)
    async def ask(request: Request) -> Response:
        owner = await _owner(front, request)
        if owner is None:
            return _asked_for_key()
        analyst, key = owner
        try:
            visit = Visit(front)
            fields = form_fields(
                await visit.receive(request, FORM, _LARGEST_FORM), len(front.reader.columns) + 8
            )
        except ProblemError as error:
            return _html(refused(error.title, error.detail), error.status)
        if not _same_origin(request) or not hmac.compare_digest(
            fields.get(CSRF, "").encode(), token_of(key).encode()
        ):
            return _html(
                refused("The form was not sent from this page.", "Nothing was charged. Load the page again."),
                403,
            )
        outcome, status = await _outcome(visit, request, analyst, fields)
        return await drawn(key, outcome, status)

    @app.get("/page.css", include_in_schema=False)
    async def stylesheet() -> Response:
        return Response(style, media_type="text/css; charset=utf-8")

    @app.get("/page.js", include_in_schema=False)
    async def scripted() -> Response:
        return Response(script, media_type="text/javascript; charset=utf-8")


def _html(text: str, status: int = 200) -> Response:
    return Response(text.encode(), status, media_type=HTML)


def _asked_for_key() -> Response:
    text = refused(
        "The owner's key is needed.",
        "Give it as the password; the name may be anything. `confide ledger grant owner` showed it once.",
    )
    return Response(text.encode(), 401, headers=_BASIC, media_type=HTML)


async def _owner(front: Front, request: Request) -> tuple[Analyst, str] | None:
    """Return the owner and the key that was given, or None, the same in every case."""
    sent = request.headers.getlist("authorization")
    scheme, _, word = sent[0].partition(" ") if len(sent) == 1 else ("", "", "")
    if scheme.lower() != "basic" or len(word) > 1024:
        return None
    try:
        key = base64.b64decode(word.strip(), validate=True).decode("ascii").partition(":")[2]
    except (binascii.Error, ValueError):
        return None
    async with Visit(front) as visit:
        analyst = await visit.holder(key)
        if analyst is not None and not analyst.owner:
            front.service.admit(analyst)
    return (analyst, key) if analyst is not None and analyst.owner else None


def token_of(key: str) -> str:
    """Return the token of the forms of a page that was made for this key."""
    return hmac.digest(key.encode(), b"confide form", hashlib.sha256).hex()


def _same_origin(request: Request) -> bool:
    """Whether a form came from this page, as far as the browser says; its token decides in any case."""
    site = request.headers.get("sec-fetch-site")
    if site is not None:  # also right behind a gateway that names another host
        return site in ("same-origin", "none")
    origin = request.headers.get("origin")
    return origin is None or urlsplit(origin).netloc == request.headers.get("host")


async def _outcome(
    visit: Visit, request: Request, analyst: Analyst, fields: Mapping[str, str]
) -> tuple[Outcome, int]:
    front = visit.front
    cells = {name.removeprefix(CELL): text for name, text in fields.items() if name.startswith(CELL)}
    try:
        async with visit:
            request_id = request_id_of(request, {REQUEST: fields.get(REQUEST, "")})
            asked = front.reader.of_form(cells)
            answers = await answered(visit, analyst, asked, request_id)
    except ProblemError as error:
        wrong = {item.field for item in error.errors}
        known = {column.name for column in front.reader.columns}
        kept = {name: text for name, text in cells.items() if name in known - wrong}
        remedy = "Nothing was charged." if error.errors else error.detail
        return Outcome(problem=error.title, remedy=remedy, errors=error.errors, cells=kept), error.status
    return _told(answers, asked, cells), 200


def _told(answers: Answers, asked: Asked, cells: dict[str, str]) -> Outcome:
    return Outcome(
        answer=str(answers.values[0]),
        unstable=answers.states[0] != ANSWERED,
        cost="nothing, it was asked before" if answers.replayed else words(answers.cost),
        left=words(answers.left),
        notes=asked.notes,
        cells=cells,
    )


def words(spending: Spending) -> str:
    """Return an amount for people."""
    delta = f", delta {show(spending.delta)}" if spending.delta else ""
    if spending.rho is not None:
        return f"rho {show(spending.rho)} (epsilon {show(spending.epsilon)}{delta})"
    return f"epsilon {show(spending.epsilon)}{delta}"
