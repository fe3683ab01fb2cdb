"""The HTTP face on a real model, ledger and service: exactly once, caches, budgets, keys, a restart."""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing

import numpy as np
import pandas as pd
import pytest
from fastapi.testclient import TestClient

import confide
from confide.errors import LedgerError
from confide.ledger import Ledger
from confide.schema import Column, Schema
from confide.service import Service, ServiceConfig
from confide.service.app import create_app
from confide.service.keys import metrics_key
from confide.service.records import OWNER

SCHEMA = Schema(
    (
        Column("age", "private", 18, 90),
        Column("ward", "public", categories=["north", "south"]),
        Column("ill", "label", categories=["no", "yes"]),
    ),
    name="visits",
    declared_by="the hospital",
)


@pytest.fixture(scope="module")
def model():
    rng = np.random.default_rng(0)
    age = rng.uniform(18, 90, 500)
    frame = pd.DataFrame(
        {"age": age, "ward": rng.choice(["north", "south"], 500), "ill": np.where(age > 54, "yes", "no")}
    )
    return confide.certify(confide.Table.from_frame(frame, SCHEMA))


@pytest.fixture
def opened(model, url):
    ledger = Ledger.open(url, dataset="visits", epsilon=2, delta="1e-3", adjacency="replace_one")
    services = []

    def make(**settings):
        terms = {"epsilon": "1/10", "schedule_ms": 1, "rate": 1e6, "burst": 10**6, **settings}
        service = Service.open(model, ledger, ServiceConfig.of(**terms))
        services.append(service)
        return service, TestClient(create_app(service))

    yield make
    for service in services:
        service.close()


def ask(client, key, ages, **more):
    body = {"rows": [{"age": age, "ward": "north"} for age in ages], **more}
    return client.post("/v1/predict", json=body, headers={"Authorization": f"Bearer {key}"})


def test_exactly_once_over_http_and_over_a_restart(opened):
    service, client = opened()
    key = service.grant("ann", 1)
    first = ask(client, key, [20, 80], request_id="r").json()
    assert first["cost"] == {"epsilon": "1/5", "epsilon_decimal": "0.2", "delta": "0"}
    _, other = opened()
    again = ask(other, key, [20, 80], request_id="r").json()
    assert again == {**first, "replayed": True}
    assert ask(other, key, [20, 80, 20.0]).json()["cost"]["epsilon"] == "0"
    assert ask(other, key, [21], request_id="r").status_code == 409


def test_another_analyst_pays_alone_and_sees_its_own_account_alone(opened):
    service, client = opened()
    ann, bob = service.grant("ann", 1), service.grant("bob", 1)
    told = ask(client, ann, [20]).json()
    assert ask(client, bob, [20]).json()["answers"] == told["answers"]
    assert str(service.ledger.total()) == "epsilon = 0.1, delta = 0"
    for key, name in ((ann, "ann"), (bob, "bob")):
        account = client.get("/v1/budget", headers={"Authorization": f"Bearer {key}"}).json()
        assert account == {
            "analyst": name, "limit": {"epsilon": "1", "epsilon_decimal": "1", "delta": "0"}, "spent": {"epsilon": "1/10", "epsilon_decimal": "0.1", "delta": "0"},
            "left": {"epsilon": "9/10", "epsilon_decimal": "0.9", "delta": "0"}, "answers": 9, "total_exhausted": False,
        }  # fmt: skip


def test_account_and_total_are_refused_apart(opened):
    service, client = opened()
    poor, rich = service.grant("poor", "1/10"), service.grant("rich", 100)
    assert ask(client, poor, [20, 21]).json()["type"].endswith(":budget")
    assert ask(client, rich, range(20, 41)).json()["type"].endswith(":total")
    assert ask(client, rich, range(20, 40)).status_code == 200
    response = ask(client, poor, [70])
    assert response.json()["type"].endswith(":total")
    assert "2" not in response.json()["detail"]


def test_a_rotated_and_a_revoked_key_are_unknown(opened, monkeypatch):
    from confide.service import keys

    monkeypatch.setattr(keys, "_FRESH", 0)
    service, client = opened()
    old = service.grant("ann", 1)
    new = service.rotate("ann")
    assert ask(client, old, [20]).status_code == 401
    assert ask(client, new, [20]).status_code == 200
    service.revoke("ann")
    assert ask(client, new, [20]).status_code == 401


def test_too_many_requests(opened):
    service, client = opened(rate=0.01, burst=2)
    key = service.grant("ann", 1)
    statuses = [ask(client, key, [20]).status_code for _ in range(4)]
    assert statuses == [200, 200, 429, 429]


def test_the_page_shows_what_was_spent_and_asks(opened):
    import re

    service, client = opened()
    ask(client, service.grant("ann", 1), [20, 30, 40])
    auth = (OWNER, service.grant(OWNER, 1))
    page = client.get("/", auth=auth).text
    assert "30 % spent" in page
    token, request_id = re.findall(r'type="hidden" name="[a-z_]+" value="([0-9a-f]+)"', page)
    form = {"csrf": token, "request_id": request_id, "row.age": "70", "row.ward": ""}
    answer = client.post("/", data=form, auth=auth).text
    assert re.search(r'class="answer"><bdi>(yes|no)</bdi>', answer)
    assert "Left in this account: epsilon 0.9." in answer
    assert client.get("/", auth=("ann", "x")).status_code == 401


def test_epochs_over_http(opened):
    service, client = opened(release="sparse_vector", epsilon=1, delta="1e-6", epochs=1)
    key = service.grant("ann", 2, "1e-4")
    told = ask(client, key, [19, 53.99, 54.01, 54, 20]).json()
    assert told["cost"]["epsilon"] == "1"
    for answer, state in zip(told["answers"], told["states"], strict=True):
        assert (answer is None) == (state != "answered")


def test_a_store_out_of_reach_is_a_503_that_asks_to_come_again(opened, monkeypatch):
    service, client = opened()
    key = service.grant("ann", 1)
    service.analyst_of(key)

    def broken(*arguments):
        raise LedgerError("SECRET", "SECRET")

    monkeypatch.setattr(service, "_run", broken)
    response = ask(client, key, [20], request_id="r")
    assert response.status_code == 503
    assert response.headers["retry-after"] == "5"
    assert "SECRET" not in response.text
    monkeypatch.undo()
    assert ask(client, key, [20], request_id="r").json()["replayed"] is False


@pytest.mark.parametrize("settings", [{}, {"release": "sparse_vector", "delta": "1e-6"}])
def test_a_store_rolled_back_under_a_running_service_is_a_503_wherever_it_is_read(
    model, sqlite_url, tmp_path, settings, monkeypatch
):
    ledger = Ledger.open(sqlite_url, dataset="visits", epsilon=2, delta="1e-3", adjacency="replace_one")
    service = Service.open(model, ledger, ServiceConfig.of(epsilon="1/10", schedule_ms=1, **settings))
    client = TestClient(create_app(service))
    monkeypatch.setattr("confide.service.app.PROMISED", 0)
    keys = {name: service.grant(name, 1, "1e-4") for name in ("ann", OWNER)}
    monitor = metrics_key(ledger)
    store, old = tmp_path / "ledger.db", tmp_path / "old.db"
    with closing(sqlite3.connect(store)) as source, closing(sqlite3.connect(old)) as target:
        source.backup(target)
    ask(client, keys["ann"], [20, 54])

    def statuses():
        def bearer(key):
            return {"Authorization": f"Bearer {key}"}

        page = {"auth": (OWNER, keys[OWNER])}
        return [
            ask(client, keys["ann"], [30]).status_code,
            client.get("/v1/budget", headers=bearer(keys["ann"])).status_code,
            client.get("/v1/guarantee").status_code,
            client.get("/metrics").status_code,
            client.get("/metrics", headers=bearer(monitor)).status_code,
            client.get("/", **page).status_code,
            client.get("/live", **page).status_code,
        ]

    assert statuses() == [200] * 7
    for end in ("-wal", "-shm"):
        store.with_name(store.name + end).unlink(missing_ok=True)
    os.replace(old, store)  # the service is open all the while
    assert statuses() == [503] * 7
    body = client.get("/v1/budget", headers={"Authorization": f"Bearer {keys['ann']}"}).json()
    assert body["type"].endswith(":ledger")
    for read in (service.overview, service.amounts, service.guarantee):
        with pytest.raises(LedgerError, match="rolled back"):
            read()
    service.close()
