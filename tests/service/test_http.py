"""The HTTP face: routes, keys, errors as problem details, headers; on a service in memory."""

from __future__ import annotations

import importlib.util
import logging
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from confide.errors import LedgerError, OutOfReachError
from confide.service import RequestOfAnotherModel

_spec = importlib.util.spec_from_file_location("service_fake", Path(__file__).with_name("fake.py"))
_fake = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(_fake)
GOOD, RAISED, made = _fake.GOOD, _fake.RAISED, _fake.made

ALICE = {"Authorization": "Bearer alice-key"}
OWNER = {"Authorization": "Bearer owner-key"}


@pytest.fixture
def service():
    return made()


@pytest.fixture
def client(service):
    return TestClient(service[1], raise_server_exceptions=False)


def problem(response, status, code):
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/problem+json"
    body = response.json()
    assert (body["status"], body["type"]) == (status, f"urn:confide:problem:{code}")
    assert body["title"]
    return body


def test_one_row_and_several(client):
    one = client.post("/v1/predict", json={"row": GOOD, "request_id": "a"}, headers=ALICE)
    assert one.status_code == 200
    assert one.json() == {
        "request_id": "a", "answers": ["no"], "states": ["answered"], "cost": {"epsilon": "1/10", "epsilon_decimal": "0.1", "delta": "0"},
        "left": {"epsilon": "99/10", "epsilon_decimal": "9.9", "delta": "0"}, "replayed": False, "notes": [],
    }  # fmt: skip
    many = client.post("/v1/predict", json={"rows": [GOOD, {**GOOD, "age": 200}]}, headers=ALICE).json()
    assert many["answers"] == ["no", "yes"]
    assert many["notes"] == ["age: 1 cell beyond the declared bounds, clipped"]
    assert len(many["request_id"]) == 32
    assert client.get("/v1/budget", headers=ALICE).json() == {
        "analyst": "alice", "limit": {"epsilon": "10", "epsilon_decimal": "10", "delta": "0"}, "spent": {"epsilon": "3/10", "epsilon_decimal": "0.3", "delta": "0"},
        "left": {"epsilon": "97/10", "epsilon_decimal": "9.7", "delta": "0"}, "answers": 3, "total_exhausted": False,
    }  # fmt: skip


def test_the_same_request_id_is_charged_once_and_other_rows_are_a_conflict(client):
    headers = {**ALICE, "Idempotency-Key": "visit-17"}
    first = client.post("/v1/predict", json={"row": GOOD}, headers=headers).json()
    again = client.post("/v1/predict", json={"row": GOOD, "request_id": "visit-17"}, headers=headers).json()
    assert (first["replayed"], again["replayed"]) == (False, True)
    assert first["answers"] == again["answers"]
    assert client.get("/v1/budget", headers=ALICE).json()["spent"]["epsilon"] == "1/10"
    problem(client.post("/v1/predict", json={"row": {**GOOD, "age": 3}}, headers=headers), 409, "request-id")


def test_a_request_id_of_another_model_says_so(client, service):
    service[0].raised = RequestOfAnotherModel("another", "no")
    told = problem(client.post("/v1/predict", json={"row": GOOD}, headers=ALICE), 409, "request-id")
    assert "another model" in told["title"]


@pytest.mark.parametrize("value", ["", " ", "a b", "é", "x" * 129, "a/b", None, 7, ["a"], "a\n"])
def test_a_malformed_request_id_is_refused_and_not_said_back(client, service, value):
    body = problem(
        client.post("/v1/predict", json={"row": GOOD, "request_id": value}, headers=ALICE), 400, "malformed"
    )
    assert body["errors"][0]["field"] == "request_id"
    assert not service[0].done


def test_header_and_body_must_agree_on_the_request_id(client):
    headers = {**ALICE, "Idempotency-Key": "b"}
    problem(
        client.post("/v1/predict", json={"row": GOOD, "request_id": "a"}, headers=headers), 409, "request-id"
    )


@pytest.mark.parametrize(
    "headers",
    [
        {}, {"Authorization": ""}, {"Authorization": "Bearer"}, {"Authorization": "Bearer nobody"},
        {"Authorization": "Basic alice-key"}, {"Authorization": "alice-key"}, {"Authorization": "Bearer " + "x" * 9999},
        {"Authorization": "Bearer alice-key bob-key"}, {"Authorization": b"Bearer \xe9"},
    ],
)  # fmt: skip
def test_without_a_key_nothing_is_said(client, headers):
    told = set()
    for method, path in [("POST", "/v1/predict"), ("GET", "/v1/budget")]:
        response = client.request(
            method, path, headers=headers, json={"row": GOOD} if method == "POST" else None
        )
        problem(response, 401, "key")
        assert response.headers["www-authenticate"].startswith("Bearer")
        told.add(response.text)
    assert len(told) == 1


def test_the_key_is_asked_for_before_the_body_is_read(client):
    problem(
        client.post("/v1/predict", content=b"{", headers={"Content-Type": "application/json"}), 401, "key"
    )


@pytest.mark.parametrize("name", RAISED)
def test_refusals_say_no_amount_of_the_total(client, service, name, caplog):
    error, status, code = RAISED[name]
    service[0].raised = error
    with caplog.at_level(logging.DEBUG):
        response = client.post("/v1/predict", json={"row": GOOD}, headers=ALICE)
    problem(response, status, code)
    assert "SECRET" not in response.text + caplog.text
    if status == 429:
        assert response.headers["retry-after"] == "1"


def test_an_account_that_is_spent_is_told_so_and_nothing_of_the_total(client, service):
    service[0].spent["alice"] += 10
    response = client.post("/v1/predict", json={"row": GOOD}, headers=ALICE)
    problem(response, 403, "budget")
    assert "SECRET" not in response.text
    assert (
        client.post(
            "/v1/predict", json={"row": GOOD}, headers={"Authorization": "Bearer bob-key"}
        ).status_code
        == 200
    )


def test_an_unstable_row_has_no_class(client, service):
    service[0].unstable = True
    told = client.post("/v1/predict", json={"row": GOOD}, headers=ALICE).json()
    assert (told["answers"], told["states"]) == ([None], ["unstable"])


def test_a_store_out_of_reach_is_told_apart_from_a_damaged_one(client, service, caplog, monkeypatch):
    from confide.service import quiet

    for line in quiet._LINES.values():
        monkeypatch.setattr(line, "_told", -1e9)
        monkeypatch.setattr(line, "_untold", 0)
    for error, code, title, line in (
        (
            OutOfReachError("SECRET", "SECRET"),
            "out-of-reach",
            "The store is out of reach.",
            "out of reach: 1 ref",
        ),
        (LedgerError("SECRET", "SECRET"), "ledger", LedgerError.failure.prose, "rolled back: 1 refused"),
    ):
        service[0].raised = error
        caplog.clear()
        for _ in range(3):
            response = client.post("/v1/predict", json={"row": GOOD}, headers=ALICE)
            body = problem(response, 503, code)
            assert body["title"] == title
            assert "same request id" in body["detail"]
            assert response.headers["retry-after"] == "5"
        (told,) = caplog.messages  # one line, however many ask
        assert line in told
        assert "SECRET" not in response.text + caplog.text
        assert "alice" not in caplog.text
        problem(client.get("/ready"), 503, code)
    service[0].raised = None
    assert client.get("/ready").json() == {"status": "ready"}
    front, looked = client.app.state.front, []
    monkeypatch.setattr(service[0], "check", lambda: looked.append(1))
    front.look()
    front.watched = True  # a worker looks each second: who has no key must not load the store
    assert [client.get("/ready").status_code for _ in range(5)] == [200] * 5
    assert len(looked) == 1
    front._looked = (front._looked[0] - 11, None)  # the look hangs
    problem(client.get("/ready"), 503, "out-of-reach")
    assert client.get("/health").status_code == 200


def test_guarantee_and_health_need_no_key(client):
    told = client.get("/v1/guarantee").json()
    assert told["epsilon"] == "30"
    assert told["adjacency"] == "replace_one"
    assert told["assumptions"] == ["the time of an answer is not observed"]
    assert client.get("/health").json() == {"status": "ok"}


def test_metrics_show_constants_to_all_and_counters_to_the_owner_alone(client):
    client.post("/v1/predict", json={"rows": [GOOD] * 7}, headers=ALICE)
    client.get("/nope")
    public = client.get("/metrics")
    assert public.headers["content-type"].startswith("text/plain; version=0.0.4")
    assert "confide_answer_epsilon 0.1" in public.text
    assert "_total" not in public.text
    problem(client.get("/metrics", headers=ALICE), 401, "key")
    full = client.get("/metrics", headers=OWNER).text
    for line in (
        'confide_requests_total{route="predict",status="2xx"} 1',
        'confide_requests_total{route="other",status="4xx"} 1',
        "confide_rows_total 7",
        "confide_schedule_overruns_total 0",
        "confide_refused_total 0",
    ):
        assert line in full.splitlines()
    names = set()
    for line in full.splitlines():  # each sample after its HELP and TYPE, as the format has it
        if line.startswith("# TYPE"):
            names.add(line.split()[2])
        elif not line.startswith("#"):
            assert line.split("{")[0].split()[0] in names
            float(line.rsplit(" ", 1)[1])


def test_the_monitors_key_reads_the_counters_and_nothing_else(client, service):
    monitor = {"Authorization": "Bearer monitor-key"}
    told = client.get("/metrics", headers=monitor)
    assert told.status_code == 200
    assert told.text == client.get("/metrics", headers=OWNER).text.replace(
        'route="metrics",status="2xx"} 1', 'route="metrics",status="2xx"} 0'
    )
    for line in ("confide_total_epsilon_spent 1.5", "confide_total_epsilon_left 28.5"):
        assert line in told.text.splitlines()
        assert line not in client.get("/metrics").text
    problem(client.get("/v1/budget", headers=monitor), 401, "key")
    problem(client.post("/v1/predict", json={"row": GOOD}, headers=monitor), 401, "key")
    for path in ("/", "/live"):
        assert client.get(path, auth=("x", "monitor-key")).status_code == 401
    assert not service[0].done
    # Each of them counted in its rate, and past that it is told so.
    assert service[0].admitted.count("metrics") == 5
    service[0].full = True
    for path in ("/v1/budget", "/metrics"):
        problem(client.get(path, headers=monitor), 429, "rate")
    problem(client.get("/", auth=("x", "monitor-key")), 429, "rate")


@pytest.mark.parametrize("path", ["/v1/predict", "/", "/nope"])
def test_a_body_with_two_lengths_is_refused(client, service, path):
    import asyncio

    head = [(b"content-type", b"application/json"), (b"authorization", b"Bearer alice-key")]
    both = [(b"Content-Length", b"2"), (b"Transfer-Encoding", b"chunked")]
    for extra, refused in ((both, True), (both[::-1], True), (both[:1], False), (both[1:], False)):
        sent = []

        async def receive():
            return {"type": "http.request", "body": b"{}", "more_body": False}

        async def send(message, sent=sent):
            sent.append(message)

        scope = {"type": "http", "method": "POST", "path": path, "query_string": b"", "headers": head + extra}
        asyncio.run(client.app(scope, receive, send))
        answer = dict(sent[0]["headers"])
        assert (b"the length of the body is said twice" in sent[1]["body"].lower()) is refused
        assert ((sent[0]["status"], answer.get(b"connection")) == (400, b"close")) is refused
    assert not service[0].done


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [("GET", "/nope", 404), ("GET", "/v1/predict", 405), ("PUT", "/v1/budget", 405), ("GET", "/docs", 404),
     ("GET", "/v1/predict/", 404), ("GET", "/..%2f..%2fetc/passwd", 404)],
)  # fmt: skip
def test_other_paths_and_methods_are_problems(client, method, path, status):
    body = problem(client.request(method, path + "?age=MARKER"), status, "http")
    assert "MARKER" not in str(body)


def test_every_response_carries_the_headers(client):
    for response in (
        client.get("/health"), client.get("/nope"), client.post("/v1/predict"), client.get("/page.css"),
        client.get("/"), client.get("/openapi.json"),
    ):  # fmt: skip
        policy = response.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert response.headers["x-content-type-options"] == "nosniff"
        assert response.headers["cache-control"] == "no-store"
        assert "server" not in response.headers


def test_the_document_is_complete(client):
    document = client.get("/openapi.json").json()
    paths = {"/v1/predict", "/v1/budget", "/v1/guarantee", "/health", "/ready", "/metrics"}
    assert set(document["paths"]) == paths
    assert "ValidationError" not in str(document)
    schemas = document["components"]["schemas"]

    def references(node):
        if isinstance(node, dict):
            for key, value in node.items():
                if key == "$ref":
                    yield value.rsplit("/", 1)[1]
                else:
                    yield from references(value)
        elif isinstance(node, list):
            for item in node:
                yield from references(item)

    assert set(references(document)) <= set(schemas)
    assert document["components"]["securitySchemes"]["key"] == {"type": "http", "scheme": "bearer"}
    predict = document["paths"]["/v1/predict"]["post"]
    content = predict["requestBody"]["content"]["application/json"]
    row = content["schema"]["oneOf"][0]["properties"]["row"]
    assert set(row["properties"]) == set(GOOD)
    assert row["properties"]["ward"]["enum"] == ["north", "south <b>", "é", "other", None]
    assert row["properties"]["grade"]["enum"] == ["1", 1, "2", 2, "3", 3, "other"]
    assert row["properties"]["smoker"]["enum"] == ["false", False, "true", True, "other", None]
    for example in content["examples"].values():
        assert client.post("/v1/predict", json=example["value"], headers=ALICE).status_code == 200


def test_a_model_on_arrays_is_not_served():
    from confide.errors import ParameterError
    from confide.service.app import create_app

    service, _ = made()
    service.model.schema = None
    with pytest.raises(ParameterError, match="certify"):
        create_app(service)
