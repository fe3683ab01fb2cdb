"""Rows and bodies that do not fit: always 4xx, the field named, no value said back, nothing charged."""

from __future__ import annotations

import importlib.util
import json
import random
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

_spec = importlib.util.spec_from_file_location("service_fake", Path(__file__).with_name("fake.py"))
_fake = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(_fake)
GOOD, SCHEMA, made = _fake.GOOD, _fake.SCHEMA, _fake.made

HEADERS = {"Authorization": "Bearer alice-key", "Content-Type": "application/json"}
MARK = "s3cr3tV4lue"
NUMERIC, LEVELS = ("age", "dose"), ("ward", "smoker", "grade")


@pytest.fixture(scope="module")
def served():
    service, app = made()
    return service, TestClient(app, raise_server_exceptions=False)


def malformed(number):
    """A row that does not fit, the field at fault, and texts that no answer may hold."""
    rng = random.Random(number)
    row, kind = dict(GOOD), number % 10
    digits = str(rng.randrange(10**11, 10**12))
    if kind == 0:
        name = rng.choice(NUMERIC)
        row[name] = rng.choice([MARK, digits, f"{MARK}\u202e", f"<b>{MARK}</b>", "é" + MARK])
    elif kind == 1:
        name = rng.choice(NUMERIC)
        row[name] = rng.choice([[int(digits)], {MARK: 1}, [MARK] * 3, {"a": {"b": MARK}}, True, False])
    elif kind == 2:
        name = rng.choice(LEVELS)
        row[name] = rng.choice([MARK, int(digits), float(digits) / 7, "NORTH" + MARK, f"north\x00{MARK}"])
    elif kind == 3:
        name = rng.choice(LEVELS)
        row[name] = rng.choice([[MARK], {"x": MARK}, [], {}])
    elif kind == 4:
        name = rng.choice(list(row))
        del row[name]
    elif kind == 5:
        name = f"{rng.choice(['agee', 'Age', 'weight', 'ward_'])}{rng.randrange(10)}"
        row[name] = MARK
    elif kind == 6:
        name = "ill"
        row[name] = MARK
    elif kind == 7:
        name = rng.choice(["dose", "grade"])
        row[name] = rng.choice([None, "NA" if name == "grade" else None])
    elif kind == 8:
        name, key = "(a name that is not shown)", f"{digits} {MARK}\n"
        row[key] = 1
    else:
        name = rng.choice(list(row))
        row[name] = {"deep": [[[[MARK]]]]}
    return row, name, (MARK, digits)


def test_two_thousand_malformed_rows(served):
    service, client = served
    before = dict(service.spent)
    for number in range(2000):
        row, name, hidden = malformed(number)
        many = number % 3 == 0
        place = number % 7 if many else 0
        body = {"rows": [GOOD] * place + [row]} if many else {"row": row}
        response = client.post("/v1/predict", content=json.dumps(body), headers=HEADERS)
        assert 400 <= response.status_code < 500, (number, response.text)
        told = response.json()
        assert name in [item["field"] for item in told["errors"]], (number, told)
        if many:
            assert told["errors"][0]["pointer"].startswith(f"/rows/{place}/")
        for text in hidden:
            assert text not in response.text
            assert text not in str(response.headers)
    assert service.spent == before


BODIES = {
    "empty": b"",
    "no JSON": b"age=40",
    "half": b'{"row": {"age": 4',
    "not UTF-8": b'{"row": {"age": "\xff\xfe"}}',
    "UTF-16": '{"row": {}}'.encode("utf-16"),
    "a byte order mark": b"\xef\xbb\xbf{}",
    "a list": b"[]",
    "null": b"null",
    "a text": b'"row"',
    "an empty object": b"{}",
    "NaN": json.dumps({"row": {**GOOD, "age": float("nan")}}).encode(),
    "Infinity": b'{"row": {"age": Infinity}}',
    "-Infinity": b'{"row": {"age": -Infinity}}',
    "1e999": b'{"row": {"age": 1e999}}',
    "a long integer": b'{"row": {"age": ' + b"9" * 5000 + b"}}",
    "an integer past double": b'{"row": {"age": 1' + b"0" * 309 + b"}}",
    "a name twice": b'{"row": {"age": 40, "age": 41}}',
    "rows twice": b'{"rows": [], "rows": []}',
    "deep lists": b"[" * 100_000 + b"]" * 100_000,
    "deep objects": b'{"row":' * 20_000 + b"1" + b"}" * 20_000,
    "row and rows": json.dumps({"row": GOOD, "rows": [GOOD]}).encode(),
    "other members": json.dumps({"row": GOOD, "epsilon": 100}).encode(),
    "rows no list": json.dumps({"rows": GOOD}).encode(),
    "no rows": json.dumps({"rows": []}).encode(),
    "too many rows": json.dumps({"rows": [GOOD] * 1001}).encode(),
    "rows of lists": json.dumps({"rows": [[1, 2]]}).encode(),
    "a lone surrogate": b'{"row": {"\\ud800": 1}}',
    "a zero byte": b'{"row": {"age\\u0000": 1}}\x00',
    "trailing": json.dumps({"row": GOOD}).encode() + b"{}",
}


@pytest.mark.parametrize("name", BODIES)
def test_bodies_that_are_no_question(served, name):
    service, client = served
    before = dict(service.spent)
    response = client.post("/v1/predict", content=BODIES[name], headers=HEADERS)
    assert 400 <= response.status_code < 500, response.text
    told = response.json()
    assert told["errors"][0]["detail"]
    assert len(response.content) < 8000
    assert service.spent == before


@pytest.mark.parametrize("name", ["1e999", "a long integer", "an integer past double"])
def test_a_number_past_double_range_names_its_field(served, name):
    response = served[1].post("/v1/predict", content=BODIES[name], headers=HEADERS)
    assert response.status_code == 422
    assert "/row/age" in [item["pointer"] for item in response.json()["errors"]]


def test_a_name_twice_is_said(served):
    response = served[1].post("/v1/predict", content=BODIES["a name twice"], headers=HEADERS)
    assert response.json()["errors"][0]["field"] == "age"


@pytest.mark.parametrize(
    "kind", ["", "text/plain", "application/x-www-form-urlencoded", "application/json; charset=latin-1"]
)
def test_other_media_types_are_refused(served, kind):
    response = served[1].post("/v1/predict", content=b"{}", headers={**HEADERS, "Content-Type": kind})
    assert response.status_code == 415


@pytest.mark.parametrize("declared", [True, False])
def test_a_body_past_the_public_limit_is_not_read_to_its_end(served, declared):
    limit = served[1].app.state.front.reader.body_limit
    sent = 0

    def parts():
        nonlocal sent
        for _ in range(10 + 3 * limit // 65536):
            sent += 65536
            yield b" " * 65536

    content = b" " * (limit + 1) if declared else parts()
    response = served[1].post("/v1/predict", content=content, headers=HEADERS)
    assert response.status_code == 413
    assert str(limit) in response.json()["detail"]


def test_the_largest_honest_body_fits(served):
    row = {
        "age": -1.2345678901234567e-300,
        "dose": 1.2345678901234567e300,
        "ward": "other",
        "smoker": True,
        "grade": 3,
    }
    text = json.dumps({"rows": [row] * 1000}, indent=1)
    service, client = served
    service.spent["alice"] -= 100
    response = client.post("/v1/predict", content=text, headers=HEADERS)
    assert response.status_code == 200, response.text
    assert response.json()["notes"] == [
        "age: 1000 cells beyond the declared bounds, clipped", "dose: 1000 cells beyond the declared bounds, clipped",
    ]  # fmt: skip


def test_many_errors_are_counted_up_to_a_bound(served):
    rows = [{"age": MARK}] * 1000
    told = served[1].post("/v1/predict", json={"rows": rows}, headers=HEADERS).json()
    assert len(told["errors"]) == 20


@pytest.mark.parametrize(
    ("cells", "read"),
    [
        ({"age": 40}, {"age": 40.0}),
        ({"age": None}, {"age": None}),
        ({"grade": 2}, {"grade": "2"}),
        ({"grade": 2.0}, {"grade": "2"}),
        ({"grade": "other"}, {"grade": "other"}),
        ({"smoker": True}, {"smoker": "true"}),
        ({"smoker": "false"}, {"smoker": "false"}),
        ({"ward": None}, {"ward": None}),
        ({"age": -0.0}, {"age": 0.0}),
    ],
)
def test_cells_that_fit(cells, read):
    from confide.service.rows import RowReader

    row = RowReader(SCHEMA).read_one({**GOOD, **cells}).rows[0]
    for name, value in read.items():
        assert row[name] == value


@pytest.mark.parametrize(
    ("name", "cell"),
    [
        ("ward", ""),
        ("ward", "NA"),
        ("ward", " north"),
        ("ward", "North"),
        ("smoker", 1),
        ("smoker", "1"),
        ("grade", True),
    ],
)
def test_near_misses_of_categories_are_refused(served, name, cell):
    response = served[1].post("/v1/predict", json={"row": {**GOOD, name: cell}}, headers=HEADERS)
    assert response.status_code == 422
    assert response.json()["errors"][0]["field"] == name


def test_the_reader_hands_on_what_the_library_reads_alike():
    """A row as sent, and the row as read, are one encoded row."""
    import numpy as np

    from confide.prediction.model import encoded
    from confide.service.rows import RowReader

    reader = RowReader(SCHEMA)
    rng = random.Random(3)
    rows = [
        {
            "age": rng.choice([None, rng.uniform(-50, 200)]),
            "dose": rng.uniform(-1e3, 1e4),
            "ward": rng.choice(["north", "south <b>", "é", "other", None]),
            "smoker": rng.choice([True, False, None, "true"]),
            "grade": rng.choice([1, "2", 3.0, "other"]),
        }
        for _ in range(200)
    ]
    np.testing.assert_array_equal(encoded(rows, SCHEMA), encoded(reader.read(rows).rows, SCHEMA))


def test_headers_of_a_body_twice_and_a_compressed_body_are_refused(served):
    client = served[1]
    import gzip

    body = json.dumps({"row": GOOD}).encode()
    twice = [*HEADERS.items(), ("Content-Type", "application/json")]
    response = client.post("/v1/predict", content=body, headers=twice)
    assert response.status_code == 400
    assert response.json()["errors"][0]["field"] == "Content-Type"
    for encoding in ("gzip", "br", "gzip, identity"):
        headers = {**HEADERS, "Content-Encoding": encoding}
        response = client.post("/v1/predict", content=gzip.compress(body), headers=headers)
        assert response.status_code == 415
        assert "without the header Content-Encoding" in response.json()["detail"]
    headers = {**HEADERS, "Content-Encoding": "identity"}
    assert client.post("/v1/predict", content=body, headers=headers).status_code == 200


def test_a_list_of_errors_says_that_it_is_not_all(served):
    client = served[1]
    for count, told in ((3, False), (100, True)):
        rows = [{**GOOD, "age": "old"}] * count
        response = client.post("/v1/predict", json={"rows": rows}, headers=HEADERS)
        assert response.status_code == 422
        assert response.text.endswith("}\n")
        assert ("The first 20 are listed" in response.json()["detail"]) is told
        assert len(response.json()["errors"]) == min(count, 20)
    assert client.post("/v1/predict", json={"row": GOOD}, headers=HEADERS).text.endswith("}\n")
