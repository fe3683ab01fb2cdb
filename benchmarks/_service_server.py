"""Servers of benchmarks/service.py: the real command, and a nursery of forks that are cheap to kill.

As a script it is the nursery: it loads everything once, a model too, then forks one server for each line of
its input that says ``start PORT SETTINGS``, and prints its pid.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

import psutil

from _service_client import Client, Gone
from _service_world import HERE, World, environment, rows

PATIENCE = 120.0


def free_port() -> int:
    """Return a port that nobody has now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def wait(port: int, alive: Any) -> None:
    """Return once the server answers.

    Raises
    ------
    RuntimeError
        If it ended before, or takes too long.
    """
    client, until = Client(port, 5.0), time.monotonic() + PATIENCE
    while time.monotonic() < until:
        try:
            if client.get("/health")[0] == 200:
                client.close()
                return
        except Gone:
            if not alive():
                raise RuntimeError("the server ended before it answered") from None
            time.sleep(0.02)
    raise RuntimeError("the server does not answer")


class Server:
    """A running server.

    Attributes
    ----------
    port : int
    process : psutil.Process
    log : Path
    """

    def __init__(self, port: int, pid: int, log: Path) -> None:
        self.port, self.log = port, log
        self.process = psutil.Process(pid)

    def cpu(self) -> float:
        """Return the CPU seconds that it and its workers have used."""
        family = [self.process, *self.process.children(recursive=True)]
        return sum(sum(one.cpu_times()[:2]) for one in family)


@contextmanager
def command(world: World, settings: dict[str, Any], workers: int = 1) -> Iterator[Server]:
    """Run `confide serve` itself."""
    port = free_port()
    options = {**settings["service"], "workers": workers, "counter": settings["counter"], "port": port}
    arguments = [f"--{name.replace('_', '-')}={_plain(value)}" for name, value in options.items()]
    line = [sys.executable, "-m", "confide", "serve", settings["model"], "--ledger", settings["ledger"]]
    with running([*line, *arguments], port, world.folder) as server:
        yield server


def _plain(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) and value < 1e6 else str(value)


@contextmanager
def running(line: list[str], port: int, folder: Path) -> Iterator[Server]:
    """Run a command that serves on `port`."""
    handle, name = tempfile.mkstemp(".log", "server-", folder)
    with os.fdopen(handle, "wb") as log:
        process = subprocess.Popen(line, stdout=log, stderr=log, env=environment(), cwd=folder)
        try:
            try:
                wait(port, lambda: process.poll() is None)
            except RuntimeError as error:
                raise RuntimeError(f"{error}: {Path(name).read_text()[-2000:]}") from None
            yield Server(port, process.pid, Path(name))
        finally:
            process.send_signal(signal.SIGINT)
            try:
                process.wait(40)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


class Nursery:
    """Forks servers from one process that has everything loaded."""

    def __init__(self, here: World) -> None:
        line = [sys.executable, str(HERE / "_service_server.py"), str(here.model)]
        self.log = here.folder / "nursery.log"
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                line, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, env=environment(), text=True
            )
        self._tell("load")

    def _tell(self, line: str) -> str:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        if not answer:
            raise RuntimeError(f"the nursery ended: {self.log.read_text()[-2000:]}")
        return answer.strip()

    def start(self, settings: dict[str, Any], port: int) -> int:
        """Fork a server; return its pid, without waiting for it to answer."""
        return int(self._tell(f"start {port} {json.dumps(settings)}"))

    def kill(self, pid: int) -> None:
        """SIGKILL a server and wait for its end."""
        self._tell(f"kill {pid}")

    def alive(self) -> bool:
        """Whether the nursery runs."""
        return self._process.poll() is None

    def close(self) -> None:
        """End all servers."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(60)

    def __enter__(self) -> Nursery:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _serve(port: int, settings: dict[str, Any]) -> None:
    import uvicorn

    from confide.service import worker

    os.environ[worker.VARIABLE] = json.dumps({"accept": [], **settings})
    uvicorn.run(
        worker.application, factory=True, host="127.0.0.1", port=port, access_log=False, log_level="warning"
    )


def _nursery() -> None:
    for name in ("psycopg", "uvicorn.protocols.http.auto"):  # loaded once, for every server forked from here
        import_module(name)
    from confide.prediction import CertifiedModel

    model, row = CertifiedModel.load(sys.argv[1]), rows(1, 0)[0]
    model.certified.stability(model.queries({name: [cell] for name, cell in row.items()}))
    children: set[int] = set()
    for line in sys.stdin:
        word, _, rest = line.strip().partition(" ")
        if word == "start":
            port, _, settings = rest.partition(" ")
            pid = os.fork()
            if pid == 0:
                code = 1
                try:
                    os.dup2(2, 1)  # whatever a server prints must not answer for the nursery
                    os.close(0)
                    _serve(int(port), json.loads(settings))
                    code = 0
                finally:
                    os._exit(code)
            children.add(pid)
            print(pid, flush=True)
        elif word == "kill":
            pid = int(rest)
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            children.discard(pid)
            print("killed", flush=True)
        else:
            print("loaded", flush=True)
    for pid in children:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


if __name__ == "__main__":
    _nursery()
