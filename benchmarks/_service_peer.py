"""The peer of _service_load.py: a bare FastAPI application that parses a body and returns it."""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI

app = FastAPI()


@app.post("/echo")
async def echo(body: dict[str, Any]) -> dict[str, Any]:
    """Return the body."""
    return body


@app.get("/health")
async def health() -> dict[str, str]:
    """Say that it runs."""
    return {"status": "ok"}
