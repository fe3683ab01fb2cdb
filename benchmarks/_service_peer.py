"""The peer of _service_load.py: a bare FastAPI application that parses a body and returns it.

Run: python _service_peer.py PORT WORKERS. It listens as the service does, on a socket without Nagle's algorithm.
"""

from __future__ import annotations

import sys
from typing import Any

import uvicorn
from fastapi import FastAPI
from uvicorn.supervisors import Multiprocess

from confide.service.worker import listening

app = FastAPI()


@app.post("/echo")
async def echo(body: dict[str, Any]) -> dict[str, Any]:
    """Return the body."""
    return body


@app.get("/health")
async def health() -> dict[str, str]:
    """Say that it runs."""
    return {"status": "ok"}


if __name__ == "__main__":
    config = uvicorn.Config(
        "_service_peer:app", workers=int(sys.argv[2]), access_log=False, log_level="warning", http="h11"
    )
    Multiprocess(config, sockets=[listening("127.0.0.1", int(sys.argv[1]))]).run()
