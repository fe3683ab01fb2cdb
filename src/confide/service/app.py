"""The HTTP face of a `Service`: six routes for analysts and machines, a page for the owner.

====================  ==============================  ============================================
route                 key                             what it says
====================  ==============================  ============================================
POST /v1/predict      an analyst's                    answers, their cost, what the account has left
GET /v1/budget        an analyst's                    its own account
GET /v1/guarantee     none                            what holds for everybody in the table
GET /health           none                            that the worker runs
GET /ready            none                            that the store can be reached
GET /metrics          none; owner's, monitor's         constants, or counters and the total
GET /openapi.json     none                            the document of all this
GET /, POST /         the owner's, as HTTP Basic      the page, and its form
====================  ==============================  ============================================

What takes the store, which others use, leaves on the public schedule: all that is said to whoever shows a
key, refusals too, since the key is looked up (`confide.service.visit`), and the guarantee and the constants,
which need none. A request without a key where one is needed is refused at once.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from functools import partial
from typing import TYPE_CHECKING, Any

from confide.errors import ConfideError, OutOfReachError, ParameterError
from confide.service.metrics import OVERRUNS, STRANGERS, Counters
from confide.service.problems import MEDIA_TYPE, ProblemError
from confide.service.rows import RowReader
from confide.service.schedule import Schedule
from confide.service.schemas import ProblemDetails

try:
    from fastapi import FastAPI, Request, Response
    from fastapi.exceptions import RequestValidationError
    from fastapi.openapi.utils import get_openapi
    from starlette.exceptions import HTTPException

    from confide.service import pages, routes
    from confide.service.headers import Headers
except ImportError as error:  # pragma: no cover - the extra is part of the development install
    raise ParameterError(
        f"The service needs {error.name or 'fastapi'}, which is not installed.",
        "Install the extra: pip install 'confide[serve]'.",
    ) from None

if TYPE_CHECKING:
    from confide.service.records import Promise
    from confide.service.service import Service

_log = logging.getLogger("confide.service")

#: Requests that wait for the store or compute at one time; the others queue.
THREADS = 64
#: Seconds for which the guarantee is not read anew: who has no key has no rate, and must not load the store.
PROMISED = 1.0
#: Seconds after which the last look at the store says nothing any more.
STALE = 10.0


class Front:
    """What the routes of one worker share.

    Parameters
    ----------
    service : Service
    counts : path, optional
        Folder of the counters, shared by the workers.
    started : float, optional
        When the service started, on the clock of the wall; default: now.
    """

    def __init__(self, service: Service, counts: str | None = None, started: float | None = None) -> None:
        from anyio import CapacityLimiter

        if service.model.schema is None:
            raise ParameterError(
                "The model was fitted on arrays and has no schema that rows of a request could be read by.",
                "Certify a table: confide certify FILE --schema ...",
            )
        self.service = service
        self.reader = RowReader(service.model.schema, service.config.rows)
        self.counters = Counters(counts)
        self.schedule = Schedule(
            service.config.schedule_ms / 1000,
            service.config.row_ms / 1000,
            self._late,
        )
        self.started = time.time() if started is None else started
        self.limiter = CapacityLimiter(THREADS)
        self._promise: tuple[float, Promise] | None = None
        self._promising = threading.Lock()
        self._looked: tuple[float, ConfideError | None] = (-math.inf, None)
        #: Whether something looks at the store again and again (`confide.service.worker.keep_up`).
        self.watched = False

    def _late(self) -> None:
        self.counters.add(OVERRUNS)
        self.service.overran()

    def late_to_nobody(self) -> None:
        """Count a late answer to who has no key: nothing of the table was computed for it."""
        self.counters.add(STRANGERS)

    def promise(self) -> Promise:
        """Return the service's guarantee, at most `PROMISED` seconds old.

        Raises
        ------
        LedgerError
            If the store cannot be read.
        """
        with self._promising:
            now = time.monotonic()
            if self._promise is None or now - self._promise[0] >= PROMISED:
                self._promise = now, self.service.guarantee()
            return self._promise[1]

    def look(self) -> None:
        """See whether the store is there; `ready` tells."""
        failure = None
        try:
            self.service.check()
        except ConfideError as error:
            failure = error
        self._looked = time.monotonic(), failure

    def ready(self) -> None:
        """Tell what the last look at the store found; reads nothing, so that its time says nothing.

        Raises
        ------
        LedgerError
            If the store is out of reach (also where a look takes longer than `STALE`), damaged, or was
            rolled back.
        """
        when, failure = self._looked
        if failure is None and time.monotonic() - when > STALE:
            failure = OutOfReachError("The store does not answer.", "Ask again.")
        if failure is not None:
            raise failure.with_traceback(None)

    async def call(self, work: Any, *arguments: Any) -> Any:
        """Run what waits for the store on a thread of its own."""
        from anyio.to_thread import run_sync

        return await run_sync(partial(work, *arguments), limiter=self.limiter)


def create_app(service: Service, *, counts: str | None = None, started: float | None = None) -> FastAPI:
    """Return the ASGI application of a service.

    Parameters
    ----------
    service : Service
    counts : path, optional
        Folder that the workers of one service share for their counters.
    started : float, optional
        When the service started, the same for all workers; default: now.

    Raises
    ------
    ParameterError
        For a model on arrays, and where the extra ``serve`` is not installed.
    """
    from importlib.metadata import version

    front = Front(service, counts, started)
    app = FastAPI(
        title=f"Private answers about {service.model.schema.name}",
        version=version("confide"),
        description="Each answer is differentially private for the table that the model was trained on. "
        "Ask for /v1/guarantee.",
        docs_url=None,
        redoc_url=None,
        # A slash too many is another path, not a redirection that repeats the query.
        redirect_slashes=False,
    )
    app.state.front = front
    routes.add(app, front)
    pages.add(app, front)
    for kind, handler in (
        (ProblemError, _problem),
        (ConfideError, _failure),
        (RequestValidationError, _unfit),
        (HTTPException, _http),
    ):
        app.add_exception_handler(kind, handler)  # type: ignore[arg-type]
    app.openapi = partial(_document, app)  # type: ignore[method-assign]
    app.add_middleware(Headers, counters=front.counters)  # type: ignore[arg-type]
    return app


def respond(error: ProblemError) -> Response:
    """Return an error as a response."""
    return Response(error.encoded(), error.status, headers=error.headers, media_type=MEDIA_TYPE)


async def _problem(request: Request, error: ProblemError) -> Response:
    return respond(error)


async def _failure(request: Request, error: ConfideError) -> Response:
    return respond(routes.refusal(error))


async def _unfit(request: Request, error: RequestValidationError) -> Response:
    # FastAPI's own handler repeats the input; ours says no more than that it does not fit.
    return respond(ProblemError(422, "validation", "The request does not fit the declared schema."))


async def _http(request: Request, error: HTTPException) -> Response:
    title = {404: "There is no such path.", 405: "The path does not take this method."}.get(
        error.status_code, "The request cannot be served."
    )
    return respond(ProblemError(error.status_code, "http", title, headers=dict(error.headers or {})))


def _document(app: FastAPI) -> dict[str, Any]:
    """Return the OpenAPI document; without FastAPI's own form of validation errors, which is never sent."""
    if app.openapi_schema is None:
        found = get_openapi(
            title=app.title, version=app.version, description=app.description, routes=app.routes
        )
        schemas = found["components"]["schemas"]
        for name in ("HTTPValidationError", "ValidationError"):
            schemas.pop(name, None)
        schemas["ProblemDetails"] = ProblemDetails.model_json_schema(
            ref_template="#/components/schemas/{model}"
        )
        schemas.update(schemas["ProblemDetails"].pop("$defs", {}))
        found["components"]["securitySchemes"] = {"key": {"type": "http", "scheme": "bearer"}}
        app.openapi_schema = found
    return app.openapi_schema
