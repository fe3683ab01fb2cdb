"""The other side of the service: a small HTTP/1.1 client, and a process that loads a server with it.

Run by _service_load.py: python _service_client.py PORT SECONDS CONNECTIONS < work.json. The work is a list of
keys and of bodies; what comes back is JSON: answers, errors by status, and latencies in seconds.
"""

from __future__ import annotations

import asyncio
import json
import socket
import sys
import time
from typing import Any


class Gone(Exception):
    """The server went away before the whole answer came."""


class Client:
    """One connection, kept open; one request at a time."""

    def __init__(self, port: int, timeout: float = 60.0) -> None:
        self._address, self._timeout = ("127.0.0.1", port), timeout
        self._socket: socket.socket | None = None
        self._held = b""

    def ask(self, body: bytes, key: str, request_id: str | None = None) -> tuple[int, bytes]:
        """Send a question; return the status and the body of what comes back.

        Raises
        ------
        Gone
        """
        return self.send(message(body, key, request_id))

    def get(self, path: str, key: str = "") -> tuple[int, bytes]:
        """Return the status and the body of a resource."""
        bearer = f"Authorization: Bearer {key}\r\n" if key else ""
        return self.send(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n{bearer}\r\n".encode())

    def send(self, request: bytes) -> tuple[int, bytes]:
        """Send a request as it is; see `ask`."""
        try:
            if self._socket is None:
                self._socket = socket.create_connection(self._address, self._timeout)
                self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                self._held = b""
            self._socket.sendall(request)
            return self._receive(self._socket)
        except OSError as error:
            self.close()
            raise Gone(type(error).__name__) from None

    def _receive(self, connection: socket.socket) -> tuple[int, bytes]:
        held = self._held
        while (end := held.find(b"\r\n\r\n")) < 0:
            held += self._more(connection)
        status, length, closes = head(held[:end])
        while len(held) < end + 4 + length:
            held += self._more(connection)
        self._held = held[end + 4 + length :]
        if closes:
            self.close()
        return status, held[end + 4 : end + 4 + length]

    def _more(self, connection: socket.socket) -> bytes:
        part = connection.recv(1 << 16)
        if not part:
            raise ConnectionResetError
        return part

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None


def message(body: bytes, key: str, request_id: str | None = None, path: str = "/v1/predict") -> bytes:
    """Return the bytes of a POST."""
    named = f"Idempotency-Key: {request_id}\r\n" if request_id else ""
    return (
        f"POST {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {key}\r\n{named}"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    ).encode() + body


def head(raw: bytes) -> tuple[int, int, bool]:
    """Return status, length and whether the connection closes."""
    lines = raw.lower().split(b"\r\n")
    fields = dict(line.split(b":", 1) for line in lines[1:])
    closes = fields.get(b"connection", b"").strip() == b"close"
    return int(lines[0].split(b" ", 2)[1]), int(fields.get(b"content-length", b"0")), closes


class _Connection(asyncio.Protocol):
    """Asks its share of the bodies, one after the other."""

    def __init__(self, work: _Work) -> None:
        self.work = work

    def connection_made(self, transport: Any) -> None:
        self.transport, self.held = transport, b""
        self.next()

    def next(self) -> None:
        request = self.work.next()
        if request is None:
            self.transport.close()
            return
        self.begun = time.perf_counter()
        self.transport.write(request)

    def data_received(self, data: bytes) -> None:
        self.held += data
        end = self.held.find(b"\r\n\r\n")
        if end < 0:
            return
        status, length, _ = head(self.held[:end])
        if len(self.held) < end + 4 + length:
            return
        self.held = b""
        self.work.told(status, time.perf_counter() - self.begun)
        self.next()

    def connection_lost(self, error: Exception | None) -> None:
        self.work.left(error)


class _Work:
    """Bodies to send until the time is over, and what came of them."""

    def __init__(self, requests: list[bytes], seconds: float, connections: int) -> None:
        self.requests, self.place = requests, 0
        self.seconds, self.open = seconds, connections
        self.latencies: list[float] = []
        self.statuses: dict[int, int] = {}
        self.errors: list[str] = []
        self.done = asyncio.get_running_loop().create_future()
        self.begun = self.ended = time.perf_counter()

    def next(self) -> bytes | None:
        if time.perf_counter() - self.begun > self.seconds or self.place == len(self.requests):
            return None
        self.place += 1
        return self.requests[self.place - 1]

    def told(self, status: int, latency: float) -> None:
        self.statuses[status] = self.statuses.get(status, 0) + 1
        self.latencies.append(latency)
        self.ended = time.perf_counter()

    def left(self, error: Exception | None) -> None:
        if error is not None:
            self.errors.append(type(error).__name__)
        self.open -= 1
        if not self.open:
            self.done.set_result(None)


async def load(port: int, seconds: float, connections: int, requests: list[bytes]) -> dict[str, Any]:
    """Ask on so many connections at once; return what came of it."""
    loop = asyncio.get_running_loop()
    work = _Work(requests, seconds, connections)
    for _ in range(connections):
        await loop.create_connection(lambda: _Connection(work), "127.0.0.1", port)
    await work.done
    return {
        "seconds": work.ended - work.begun,
        "statuses": work.statuses,
        "errors": work.errors,
        "latencies": work.latencies,
        "exhausted": work.place == len(requests),
        "cpu": time.process_time(),
    }


def main() -> None:
    port, seconds, connections = int(sys.argv[1]), float(sys.argv[2]), int(sys.argv[3])
    asked = json.load(sys.stdin)
    keys, path = asked["keys"], asked["path"]
    requests = [
        message(body.encode(), keys[place % len(keys)], path=path)
        for place, body in enumerate(asked["bodies"])
    ]
    before = time.process_time()
    told = asyncio.run(load(port, seconds, connections, requests))
    told["cpu"] -= before
    json.dump(told, sys.stdout)


if __name__ == "__main__":
    main()
