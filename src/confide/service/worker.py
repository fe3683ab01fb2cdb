"""One worker of `confide serve`, and the settings that reach it through the environment.

The command opens the service once to refuse what is wrong, then starts as many workers as asked; each reads
the model's file for itself and shares the store with the others.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import socket
import sys
import threading
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from multiprocessing import parent_process
from pathlib import Path
from typing import TYPE_CHECKING, Any

from confide.errors import ConfideError, ParameterError
from confide.service.quiet import note_failure

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from fastapi import FastAPI

    from confide.service.app import Front
    from confide.service.service import Service

_log = logging.getLogger("confide.service")

#: Where the settings stand; set by `confide serve` for its own workers.
VARIABLE = "CONFIDE_SERVICE_SETTINGS"
#: Seconds that requests have to end once the service is told to stop.
GRACE = 30
#: Of one worker. uvicorn has no clock for a head that comes slowly: that is the gateway's to end.
MOST_CONNECTIONS, LARGEST_HEAD = 1000, 1 << 14
#: Seconds that an idle connection stays open.
KEEP_ALIVE = 5
#: Seconds after which a worker reads what others charged.
PAUSE = 1.0
#: Seconds after which a thread of a worker lets another one run.
SWITCH = 0.0005
#: Lines of the log carry the time, with the zone.
LOGGING: dict[str, Any] = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {
        "timed": {"format": "%(asctime)s %(levelname)s %(message)s", "datefmt": "%Y-%m-%dT%H:%M:%S%z"}
    },
    "handlers": {
        "timed": {"class": "logging.StreamHandler", "formatter": "timed", "stream": "ext://sys.stderr"}
    },
    "loggers": {
        name: {"handlers": ["timed"], "level": "INFO", "propagate": False} for name in ("uvicorn", "confide")
    },
}


@dataclass(frozen=True)
class Settings:
    """What a worker needs.

    Attributes
    ----------
    model : str
        Path of a certified model.
    ledger : str
        URL with ``#dataset``.
    service : dict
        Arguments of `ServiceConfig.of`; amounts as text.
    counter : str, optional
        See `confide.ledger.Ledger.open`.
    accept : tuple of str
        Assumptions accepted by name.
    counts : str, optional
        Folder of the counters that the workers share.
    started : float, optional
        When the command started, since the epoch of Unix.
    """

    model: str
    ledger: str
    service: dict[str, Any] = field(default_factory=dict)
    counter: str | None = None
    accept: tuple[str, ...] = ()
    counts: str | None = None
    started: float | None = None

    def to_json(self) -> str:
        """Return the settings as text."""
        return json.dumps(asdict(self))

    @classmethod
    def of_environment(cls) -> Settings:
        """Return the settings of this process.

        Raises
        ------
        ParameterError
            If there are none.
        """
        text = os.environ.get(VARIABLE)
        if text is None:
            raise ParameterError(f"{VARIABLE} is not set.", "Start the service with `confide serve`.")
        held = json.loads(text)
        return cls(**{**held, "accept": tuple(held["accept"])})

    def opened(self) -> Service:
        """Return the service.

        Raises
        ------
        ConfideError
            Of the model, the ledger or the configuration; of a store that was rolled back, before anything
            is promised or written.
        """
        from confide.ledger import Ledger
        from confide.prediction import CertifiedModel
        from confide.service.config import ServiceConfig
        from confide.service.service import Service

        config = ServiceConfig.of(**self.service)
        place = None if self.counter is None else Path(self.counter)
        book = Ledger.from_handle(self.ledger, accept=self.accept, counter=place)
        book.check()
        return Service.open(CertifiedModel.load(self.model), book, config)


def application() -> FastAPI:
    """Return the application of this worker; uvicorn calls it.

    Raises
    ------
    ConfideError
        In the command's own process, which tells it; a worker tells it and ends.
    """
    try:
        return _application()
    except ConfideError as error:
        if parent_process() is None:
            raise
        from confide.service.supervisor import REFUSED

        _log.error("%s %s", error.failure.prose, error)
        raise SystemExit(REFUSED + error.failure.exit_status) from None


def _application() -> FastAPI:
    from contextlib import asynccontextmanager

    from threadpoolctl import threadpool_limits

    from confide.service.app import create_app
    from confide.service.supervisor import note_start

    end_with_parent()
    settings = Settings.of_environment()
    service = settings.opened()
    app = create_app(service, counts=settings.counts, started=settings.started)
    warm(service)
    front = app.state.front
    front.promise()
    # Workers are the threads here. Those of one product wait for each other: on busy cores, milliseconds.
    threadpool_limits(1)
    # The loop wakes to send what is due: a thread that computes must not keep it waiting for 5 ms.
    sys.setswitchinterval(SWITCH)

    @asynccontextmanager
    async def life(app: FastAPI) -> AsyncIterator[None]:
        await rehearse(service)
        if settings.counts is not None:
            note_start(settings.counts)
        reading = asyncio.create_task(keep_up(front))
        yield
        reading.cancel()
        service.close()

    app.router.lifespan_context = life
    return app


def warm(service: Service) -> None:
    """Go once through what a request goes through, so that the first one does not overrun its time.

    The row is public, made of the schema, and the key is none: the transaction refuses and writes nothing.
    Noise is drawn once and thrown away, which loads its kernels.
    """
    from confide.mechanisms import discrete_laplace
    from confide.prediction.model import feature_columns
    from confide.service.records import Analyst, KeyRevoked
    from confide.service.rows import example_row

    discrete_laplace(1, 1)
    row = example_row(feature_columns(service.model.schema))
    service.guarantee()  # reads the chain, which may be long
    with suppress(KeyRevoked):
        service.answer(Analyst("", "no such key"), [row], "warm")


async def keep_up(front: Front, pause: float = PAUSE) -> None:
    """Read what others charged, every `pause` seconds, so that no question finds a long chain to read.

    The guarantee names the assumptions of every charge. Whoever asks for it after a day without a question
    would wait for a day's entries, late on the schedule, and the guarantee would say so for ever.
    """
    await front.call(front.look)
    front.watched = True
    while True:
        await asyncio.sleep(pause)
        await front.call(front.look)
        try:
            await front.call(front.promise)
        except ConfideError as error:  # who asks meanwhile is told so
            note_failure(error)


async def rehearse(service: Service) -> None:
    """Send one question with a key of nobody through an application of its own, before the port is open.

    What HTTP needs at first (routes, threads of this loop, the look-up of a key) is loaded then. It is on
    no schedule and in no count, so that it cannot be late.
    """
    from confide.prediction.model import feature_columns
    from confide.service.app import create_app
    from confide.service.rows import example_row
    from confide.service.schedule import Schedule

    app = create_app(service)
    app.state.front.schedule = Schedule(0)
    body = json.dumps({"row": example_row(feature_columns(service.model.schema))}).encode()
    head = {"host": "rehearsal", "content-type": "application/json", "content-length": str(len(body)),
            "authorization": "Bearer of-nobody"}  # fmt: skip

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(message: Any) -> None:
        pass

    await app(
        {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": "POST",
            "scheme": "http",
            "path": "/v1/predict",
            "raw_path": b"/v1/predict",
            "query_string": b"",
            "root_path": "",
            "headers": [(name.encode(), value.encode()) for name, value in head.items()],
            "client": None,
            "server": None,
        },
        receive,  # type: ignore[arg-type]
        send,
    )


def listening(host: str, port: int) -> socket.socket:
    """Return a socket at an address: what is taken or not ours is found before anything is said or loaded.

    Raises
    ------
    ParameterError
    """
    # The protocol is named: asyncio turns Nagle's algorithm off only where it is. Without, the body of an
    # answer waits for the receipt of its head, 40 ms.
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    taken = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        taken.bind((host, port))
    except OSError as error:
        taken.close()
        raise ParameterError(
            f"The service cannot listen at {host} port {port}: {error.strerror or type(error).__name__}.",
            f"Pass another one, such as port={port % 65535 + 1}, or stop what listens there.",
        ) from None
    taken.set_inheritable(True)
    return taken


def end_with_parent() -> None:
    """Stop this worker, as SIGTERM does, when the process that started it is gone.

    Killed, that process cannot stop its workers, and they would go on answering with nobody to stop them.
    """
    parent = parent_process()
    if parent is None:  # the only worker is the command itself
        return

    def wait() -> None:
        parent.join()
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=wait, name="end with parent", daemon=True).start()


def run(settings: Settings, taken: socket.socket, workers: int) -> int:
    """Serve at a socket of `listening` until told to stop; return 0, or the status of a failed start.

    Raises
    ------
    ParameterError
        Where the extra ``serve`` is not installed.
    ConfideError
        What keeps the only worker, which is this process, from starting.
    """
    try:
        import uvicorn

        from confide.service.supervisor import NOT_STARTED, Workers
    except ImportError:
        raise ParameterError(
            "The service needs uvicorn, which is not installed.",
            "Install the extra: pip install 'confide[serve]'.",
        ) from None
    os.environ[VARIABLE] = settings.to_json()
    config = uvicorn.Config(
        "confide.service.worker:application",
        factory=True,
        workers=workers,
        # A line a request would tell who asks when; the schedule and the ledger say what the owner needs.
        access_log=False,
        server_header=False,
        # Past it 503 at once: connections that send nothing must not eat the files and the memory of others.
        limit_concurrency=MOST_CONNECTIONS,
        timeout_keep_alive=KEEP_ALIVE,
        h11_max_incomplete_event_size=LARGEST_HEAD,
        proxy_headers=False,
        # Its own reader of HTTP, also where another is installed: only this one bounds the head.
        http="h11",
        log_config=LOGGING,
        log_level="info",
        timeout_graceful_shutdown=GRACE,
    )
    with taken, suppress(KeyboardInterrupt):
        if workers > 1:
            if settings.counts is None:
                raise ParameterError(
                    "Several workers have no folder in common.", "Pass Settings(..., counts=folder)."
                )
            supervisor = Workers(settings.counts, config, [taken])
            supervisor.run()
            return supervisor.status
        server = uvicorn.Server(config)
        try:
            server.run(sockets=[taken])
        except SystemExit as end:  # uvicorn's way to say that the application did not start
            return NOT_STARTED if end.code else 0
        return 0 if server.started else NOT_STARTED
    return 0
