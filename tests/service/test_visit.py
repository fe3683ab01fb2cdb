"""A request from its arrival to its time: looked up, limited and read on the schedule."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import logging
import re
import threading
import time
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from confide.errors import OutOfReachError
from confide.service import routes, visit
from confide.service.records import Analyst, UnknownKeys
from confide.service.schedule import Schedule

_spec = importlib.util.spec_from_file_location("service_fake", Path(__file__).with_name("fake.py"))
_fake = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(_fake)
GOOD, made = _fake.GOOD, _fake.made

ALICE = {"Authorization": "Bearer alice-key"}
JSON = {**ALICE, "Content-Type": "application/json"}


@pytest.fixture
def on():
    def make(**settings):
        service, app = made(**settings)
        return service, TestClient(app, raise_server_exceptions=False)

    return make


ASKED = {
    "an answer": ("POST", "/v1/predict", {"row": GOOD}, 200),
    "a wrong row": ("POST", "/v1/predict", {"row": {}}, 422),
    "a wrong body": ("POST", "/v1/predict", ["x"], 400),
    "the account": ("GET", "/v1/budget", None, 200),
}


@pytest.mark.parametrize("name", ASKED)
@pytest.mark.parametrize("known", [True, False])
def test_a_slow_look_up_of_the_key_is_an_overrun_and_leaves_on_the_grid(on, name, known, monkeypatch):
    monkeypatch.setattr(Schedule, "tolerance", 1.0)  # a busy machine wakes late
    service, client = on(schedule_ms=80)
    method, path, body, status = ASKED[name]
    real = service.analyst_of

    def slow(key):
        time.sleep(0.1)
        return real(key) if known else None

    service.analyst_of = slow
    start = time.monotonic()
    response = client.request(method, path, json=body, headers=ALICE)
    assert response.status_code == (status if known else 401)
    assert time.monotonic() - start >= 0.16
    service.analyst_of = real
    assert service.overruns == known  # for nobody nothing of the table is computed: the promise stands
    assert _late(client) == (known, not known)


def _late(client):
    """Return the late answers, and those of who has no key, by the owner's counters."""
    text = client.get("/metrics", headers={"Authorization": "Bearer owner-key"}).text
    names = "confide_schedule_overruns_total", "confide_schedule_late_without_key_total"
    return tuple(int(re.search(rf"^{name} (\d+)$", text, re.MULTILINE)[1]) for name in names)


@pytest.mark.parametrize("path", ["/v1/guarantee", "/metrics", "/ready", "/", "/v1/budget"])
def test_late_answers_to_nobody_do_not_touch_the_statement(on, path, monkeypatch):
    monkeypatch.setattr(Schedule, "tolerance", 1.0)  # a busy machine wakes late
    service, client = on(schedule_ms=40)
    front, real = client.app.state.front, service.analyst_of

    def slow(*_):
        time.sleep(0.06)

    def too_many(key):
        slow()
        raise UnknownKeys(0.3)

    read = front.promise
    front.promise, front.look = lambda: slow() or read(), slow
    service.analyst_of = too_many
    how = {"/": {"auth": ("x", "nobody")}, "/v1/budget": {"headers": ALICE}}.get(path, {})
    client.get(path, **how)
    front.promise, service.analyst_of = read, real
    assert service.overruns == 0
    assert _late(client) == (0, 1)
    assert "left late" not in client.get("/v1/guarantee").json()["sentence"]


def test_a_look_up_that_fails_late_may_be_an_analysts(on):
    service, client = on(schedule_ms=40)

    def away(key):
        time.sleep(0.06)
        raise OutOfReachError("away", "Ask again.")

    service.analyst_of = away
    assert client.get("/v1/budget", headers=ALICE).status_code == 503
    assert service.overruns == 1


@pytest.mark.parametrize("name", ASKED)
def test_a_caller_over_its_rate_is_told_so_whatever_it_asks(on, name):
    service, client = on(schedule_ms=40)
    method, path, body, status = ASKED[name]
    assert client.request(method, path, json=body, headers=ALICE).status_code == status
    service.full = True
    start = time.monotonic()
    response = client.request(method, path, json=body, headers=ALICE)
    assert response.status_code == 429
    assert response.headers["retry-after"] == "1"
    assert time.monotonic() - start >= 0.04
    assert service.admitted == ["alice", "alice"]


def test_a_request_of_nobody_counts_in_no_rate(on):
    service, client = on()
    for headers in ({}, {"Authorization": "Bearer nobody"}):
        assert client.get("/v1/budget", headers=headers).status_code == 401
    assert service.admitted == []


@pytest.mark.parametrize("name", [*ASKED, "the constants", "the page"])
def test_too_many_unknown_keys_are_refused_on_the_schedule(on, name):
    service, client = on(schedule_ms=40)
    more = {"the constants": ("GET", "/metrics", None, 0), "the page": ("GET", "/", None, 0)}
    method, path, body, _ = {**ASKED, **more}[name]

    def refuse(key):
        raise UnknownKeys(0.3)

    service.analyst_of = refuse
    start = time.monotonic()
    how = {"auth": ("x", "nobody")} if path == "/" else {"headers": ALICE}
    response = client.request(method, path, json=body, **how)
    assert time.monotonic() - start >= 0.04
    assert response.status_code == 429
    assert response.headers["retry-after"] == "1"
    assert "keys that nobody has" in response.json()["title"]
    assert service.admitted == []


@pytest.mark.parametrize("header", ["Authorization", "Idempotency-Key"])
def test_a_header_twice_is_refused(on, header):
    service, client = on()
    first = {"Authorization": "Bearer alice-key", "Idempotency-Key": "a"}
    headers = [*first.items(), (header, {"Authorization": "Bearer bob-key"}.get(header, "b"))]
    response = client.post("/v1/predict", json={"row": GOOD}, headers=headers)
    assert response.status_code == 400
    assert response.json()["errors"][0]["field"] == header
    assert not service.done


@pytest.mark.parametrize("count", [1, 1000])
def test_a_large_body_is_parsed_on_a_thread(on, count, monkeypatch):
    _, client = on()
    threads, real = [], routes.question_of
    monkeypatch.setattr(
        routes, "question_of", lambda *args: threads.append(threading.current_thread().name) or real(*args)
    )
    body = json.dumps({"rows": [GOOD] * count}).encode()
    assert (len(body) > routes.LARGE) == (count == 1000)
    client.post("/v1/predict", content=body, headers=JSON)
    assert ("worker" in threads[0].lower()) == (count == 1000), threads


def test_an_amount_of_a_zcdp_ledger_has_its_rho_which_adds_up():
    from fractions import Fraction

    from confide.ledger import Spending
    from confide.service.schemas import Amount

    basic, zcdp = (
        Spending(Fraction(1, 10), Fraction(0)),
        Spending(Fraction(1), Fraction(1, 10**6), Fraction(1, 200)),
    )
    assert routes.amount(basic) == {"epsilon": "1/10", "epsilon_decimal": "0.1", "delta": "0"}
    assert routes.amount(zcdp) == {
        "epsilon": "1", "epsilon_decimal": "1", "delta": "1/1000000", "rho": "1/200", "rho_decimal": "0.005",
    }  # fmt: skip
    for told in (basic, zcdp):
        assert Amount(**routes.amount(told)).model_dump(exclude_none=True) == routes.amount(told)


def _request(parts):
    from fastapi import Request

    async def receive():
        wait, data, more = parts.pop(0)
        await asyncio.sleep(wait)
        return {"type": "http.request", "body": data, "more_body": more}

    head = [(b"content-type", b"application/json"), (b"authorization", b"Bearer alice-key")]
    return Request({"type": "http", "method": "POST", "path": "/", "headers": head}, receive)


def test_a_body_that_comes_slowly_is_no_overrun(on, monkeypatch):
    monkeypatch.setattr(Schedule, "tolerance", 1.0)  # a busy machine wakes late
    service, client = on(schedule_ms=50)
    front = client.app.state.front

    async def ask():
        start = time.monotonic()
        async with visit.Visit(front) as held:
            analyst, raw = await held.question(
                _request([(0.01, b"{", True), (0.12, b"}", False)]), "alice-key", "application/json", 100
            )
        assert (analyst.name, raw) == ("alice", b"{}")
        assert held.arrival - start >= 0.13
        return time.monotonic() - start

    assert asyncio.run(ask()) >= 0.18
    assert service.overruns == 0


def test_a_slow_look_up_is_no_part_of_the_arrival(on):
    service, client = on(schedule_ms=50)
    front = client.app.state.front
    service.analyst_of = lambda key: time.sleep(0.12) or Analyst("alice", "alice")

    async def ask():
        start = time.monotonic()
        async with visit.Visit(front) as held:
            await held.question(_request([(0.01, b"{}", False)]), "alice-key", "application/json", 100)
        assert held.arrival - start < 0.1
        return time.monotonic() - start

    assert asyncio.run(ask()) >= 0.15
    assert service.overruns == 1


def test_the_body_of_a_caller_who_is_refused_is_not_waited_for(on, caplog):
    _, client = on(schedule_ms=1)
    front = client.app.state.front

    async def ask():
        start = time.monotonic()
        with pytest.raises(visit.ProblemError) as caught:
            async with visit.Visit(front) as held:
                await held.question(_request([(60, b"{}", False)]), "nobody", "application/json", 100)
        assert caught.value.status == 401
        return time.monotonic() - start

    with caplog.at_level(logging.ERROR):
        assert asyncio.run(ask()) < 30
    assert not caplog.records


def test_a_body_that_never_comes_is_given_up(on, monkeypatch):
    _, client = on(schedule_ms=1)
    front = client.app.state.front
    monkeypatch.setattr(visit, "SECONDS", 0.05)

    async def ask():
        async with visit.Visit(front) as held:
            await held.question(_request([(60, b"{}", False)]), "alice-key", "application/json", 100)

    with pytest.raises(visit.ProblemError) as caught:
        asyncio.run(ask())
    assert caught.value.status == 408
