"""The owner's page without a browser: who sees it, what it says without a script, forms, and accessibility."""

from __future__ import annotations

import importlib.util
import re
from fractions import Fraction
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

_spec = importlib.util.spec_from_file_location("service_fake", Path(__file__).with_name("fake.py"))
_fake = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(_fake)

OWNER = ("anything", "owner-key")
GOOD_FORM = {"row.age": "40", "row.dose": " 5.5 ", "row.ward": "north", "row.smoker": "", "row.grade": "2"}
VOID = {"br", "hr", "img", "link", "meta", "input"}


class Page(HTMLParser):
    """Elements of a page in order; fails on tags that do not nest."""

    def __init__(self, text):
        super().__init__()
        self.elements, self.open, self.text = [], [], ""
        self.feed(text)
        self.close()
        assert not self.open

    def handle_starttag(self, name, attributes):
        self.elements.append((name, dict(attributes), tuple(self.open)))
        if name not in VOID:
            self.open.append(name)

    def handle_endtag(self, name):
        assert self.open.pop() == name

    def handle_data(self, data):
        self.text += data + " "

    def all(self, *names):
        return [attributes for name, attributes, _ in self.elements if name in names]


@pytest.fixture
def served():
    service, app = _fake.made()
    return service, TestClient(app, raise_server_exceptions=False)


def hidden(client):
    page = Page(client.get("/", auth=OWNER).text)
    return {item["name"]: item["value"] for item in page.all("input") if item.get("type") == "hidden"}


def test_only_the_owner_sees_it(served):
    _, client = served
    for auth in (None, ("owner", "alice-key"), ("owner", ""), ("owner-key", "x")):
        for method, path in (("GET", "/"), ("GET", "/live"), ("POST", "/")):
            response = client.request(method, path, auth=auth)
            assert response.status_code == 401
            assert response.headers["www-authenticate"].startswith("Basic")
            assert "alice" not in response.text
    for header in (
        "Basic",
        "Basic !!!",
        "Basic YQ==",
        "Bearer owner-key",
        "Basic " + "A" * 5000,
        "Basic /////w==",
    ):
        assert client.get("/", headers={"Authorization": header}).status_code == 401


def test_without_a_script_it_says_everything(served):
    _, client = served
    response = client.get("/", auth=OWNER)
    assert response.headers["content-type"] == "text/html; charset=utf-8"
    text = re.sub(r"\s+", " ", Page(response.text).text)
    for words in (
        "All answers together: Differentially private with epsilon = 30", "alice", "bob", "9.5", "95 % spent", "4,936",
        "requests refused", "2026-01-01 00:00", "revoked", "costs epsilon 0.1", "the time of an answer is not observed",
    ):  # fmt: skip
        assert words in text, words
    assert "<script>alert(1)" not in response.text
    assert "alert(1)" in text


def test_it_is_built_for_screen_readers_and_keyboards(served):
    _, client = served
    form = {**hidden(client), **GOOD_FORM, "row.age": "old"}
    for text in (client.get("/", auth=OWNER).text, client.post("/", data=form, auth=OWNER).text):
        page = Page(text)
        assert page.all("html")[0]["lang"] == "en"
        assert page.all("title")
        for landmark in ("header", "main", "footer", "nav", "h1"):
            assert len(page.all(landmark)) == 1
        ids = [item["id"] for _, item, _ in page.elements if "id" in item]
        assert len(ids) == len(set(ids))
        for attribute in ("aria-labelledby", "aria-describedby", "for"):
            for _, item, _ in page.elements:
                assert set(item.get(attribute, "").split()) <= set(ids)
        for link in page.all("a"):
            assert link["href"].removeprefix("#") in ids
        labelled = {item["for"] for item in page.all("label")}
        controls = [item for item in page.all("input", "select") if item.get("type") != "hidden"]
        assert len(controls) == 5
        assert {item["id"] for item in controls} == labelled
        levels = [int(name[1]) for name, _, _ in page.elements if re.fullmatch("h[1-6]", name)]
        assert levels[0] == 1
        assert all(after - before <= 1 for before, after in pairwise(levels))
        assert any(item.get("aria-live") == "polite" for item in page.all("p"))
        assert len(page.all("caption")) == len(page.all("table")) == 2
        assert all(item.get("scope") in ("col", "row") for item in page.all("th"))
        assert page.all("svg")[0]["role"] == "img"
        assert all(item["aria-label"] for item in page.all("meter"))
        assert not any("tabindex" in item and int(item["tabindex"]) > 0 for _, item, _ in page.elements)
        viewport = next(item["content"] for item in page.all("meta") if item.get("name") == "viewport")
        assert "user-scalable" not in viewport


def test_it_loads_and_runs_nothing_that_its_policy_would_refuse(served):
    _, client = served
    page = Page(client.get("/", auth=OWNER).text)
    assert [item["src"] for item in page.all("script")] == ["page.js"]
    assert not page.all("style", "iframe", "object", "img", "base")
    for _, item, _ in page.elements:
        assert not any(name.startswith("on") or name == "style" for name in item)
        for name in ("href", "src", "action"):
            # Relative: a gateway may give the page a path of its own.
            assert re.match(r"page\.(css|js)$|(\./)?#|data:,$", item.get(name, "#"))
    assert 'fetch("live"' in client.get("/page.js").text
    for path, kind in (("/page.css", "text/css"), ("/page.js", "text/javascript")):
        response = client.get(path)
        assert response.headers["content-type"].startswith(kind)
        assert "http" not in response.text.replace("http-equiv", "")
        assert "@import" not in response.text


def test_colours_of_new_pairs_meet_4_5_to_1():
    from confide.report.style import DARK, LIGHT

    def light(colour):
        parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
        parts = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
        return sum(weight * part for weight, part in zip((0.2126, 0.7152, 0.0722), parts))

    for scheme in (LIGHT, DARK):
        for ink, ground in (
            ("paper", "accent"),
            ("paper", "muted"),
            ("alarm", "paper"),
            ("muted", "paper"),
            ("ink", "panel"),
        ):
            high, low = sorted((light(scheme[ink]), light(scheme[ground])), reverse=True)
            assert (high + 0.05) / (low + 0.05) >= 4.5, (ink, ground)
        for line in ("accent", "second", "muted"):  # lines of the picture and borders of fields
            high, low = sorted((light(scheme[line]), light(scheme["paper"])), reverse=True)
            assert (high + 0.05) / (low + 0.05) >= 3


def test_a_question_is_answered_and_charged_once(served):
    service, client = served
    form = {**hidden(client), **GOOD_FORM}
    response = client.post("/", data=form, auth=OWNER)
    assert response.status_code == 200
    text = re.sub(r"\s+", " ", Page(response.text).text)
    assert "Answer no Cost: epsilon 0.1. Left in this account: epsilon 9.9." in text
    assert 'value="40"' in response.text
    again = client.post("/", data=form, auth=OWNER)
    assert "nothing, it was asked before" in again.text
    assert service.spent["owner"] * 10 == 1
    assert hidden(client)["request_id"] != form["request_id"]


def test_a_clipped_cell_and_an_unstable_row_are_said(served):
    service, client = served
    form = {**hidden(client), **GOOD_FORM, "row.age": "400"}
    assert "age: 1 cell beyond the declared bounds, clipped" in client.post("/", data=form, auth=OWNER).text
    service.unstable = True
    form = {**hidden(client), **GOOD_FORM}
    assert "No class" in client.post("/", data=form, auth=OWNER).text


@pytest.mark.parametrize(
    ("field", "value", "name"),
    [("row.age", "s3cr3t", "age"), ("row.age", "nan", "age"), ("row.age", "1e999", "age"), ("row.dose", "", "dose"),
     ("row.ward", "s3cr3t", "ward"), ("row.grade", "", "grade"), ("row.more", "s3cr3t", "more"),
     ("request_id", "s3cr3t !", "request_id")],
)  # fmt: skip
def test_a_field_at_fault_is_named_and_not_said_back(served, field, value, name):
    service, client = served
    response = client.post("/", data={**hidden(client), **GOOD_FORM, field: value}, auth=OWNER)
    assert 400 <= response.status_code < 500
    assert "s3cr3t" not in response.text
    page = Page(response.text)
    assert page.all("title")
    assert "No answer" in page.text
    assert f"<bdi>{name}</bdi>" in response.text
    assert not service.spent["owner"]
    wrong = [item["name"] for item in page.all("input", "select") if item.get("aria-invalid")]
    assert wrong == ([field] if field in GOOD_FORM else [])


def test_refusals_say_no_amount_of_the_total(served):
    service, client = served
    for error, status, _ in list(_fake.RAISED.values())[:3]:
        service.raised = error
        response = client.post("/", data={**hidden(client), **GOOD_FORM}, auth=OWNER)
        assert response.status_code == status
        assert "SECRET" not in response.text


def test_forms_of_other_sites_are_refused(served):
    service, client = served
    form = {**hidden(client), **GOOD_FORM}
    tries = [
        ({**form, "csrf": ""}, {}),
        ({**form, "csrf": "0" * 64}, {}),
        ({**form, "csrf": "é"}, {}),
        ({key: value for key, value in form.items() if key != "csrf"}, {}),
        (form, {"Origin": "https://evil.example"}),
        (form, {"Origin": "null"}),
        (form, {"Sec-Fetch-Site": "cross-site"}),
        (form, {"Sec-Fetch-Site": "same-site"}),
    ]
    for data, headers in tries:
        response = client.post("/", data=data, headers=headers, auth=OWNER)
        assert response.status_code == 403, headers
        assert "Nothing was charged" in response.text
    assert not service.spent["owner"]
    for headers in (
        {"Origin": "http://testserver"},
        # Behind a gateway that ends TLS and keeps the host, with browsers that say where a form is from, and not.
        {"Origin": "https://answers.example", "Host": "answers.example"},
        {
            "Origin": "https://answers.example:8443",
            "Host": "answers.example:8443",
            "Sec-Fetch-Site": "same-origin",
        },
        {"Origin": "https://gateway.example", "Sec-Fetch-Site": "same-origin"},  # the browser saw the gateway
        {},
    ):
        assert client.post("/", data=form, headers=headers, auth=OWNER).status_code == 200


@pytest.mark.parametrize(
    "body", [b"", b"a=1&a=2", b"%", b"\xff", b"a" * 300_000, b"&".join(b"a%d=1" % i for i in range(99))]
)
def test_malformed_forms_are_refused(served, body):
    headers = {"Content-Type": "application/x-www-form-urlencoded"}
    response = served[1].post("/", content=body, headers=headers, auth=OWNER)
    assert 400 <= response.status_code < 500


def test_the_moving_part_is_a_part_of_the_page(served):
    _, client = served
    part = client.get("/live", auth=OWNER).text
    Page(part)
    now = r"20\d\d-\d\d-\d\d \d\d:\d\d"  # the minute may change in between
    assert re.sub(now, "", part) in re.sub(now, "", client.get("/", auth=OWNER).text)


def test_a_history_of_one_moment_and_of_none_are_drawn():
    import datetime

    from confide.service.page.chart import MOST_POINTS, chart, thinned

    assert "Nothing was spent" in chart([], 3)
    now = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
    assert "<svg" in chart([(now, 0.5)], 3)
    assert "<svg" in chart([(now, 0.5)], float("inf"))
    same = [(now, float(i)) for i in range(1000)]
    assert thinned(same) == [same[0], same[-1]]
    long = [(now + datetime.timedelta(minutes=i), float(i)) for i in range(10_000)]
    kept = thinned(long)
    assert len(kept) <= MOST_POINTS
    assert (kept[0], kept[-1]) == (long[0], long[-1])
    assert kept == sorted(kept)


def test_ten_minutes_are_a_slope_and_the_axis_begins_with_them(monkeypatch):
    import datetime

    from confide.ledger import Budget
    from confide.service import reading
    from confide.service.page.chart import chart

    def at(minute):
        return datetime.datetime(2026, 1, 1, 0, minute, tzinfo=datetime.UTC)

    budget, first = Budget.of(3, adjacency="replace_one"), int(at(10).timestamp()) // 600
    moments = [(first, "1/2 0"), (first + 1, "1 0"), (first + 3, "3/2 0")]
    history = reading._history(moments, 500, at(0), budget)
    assert history == (
        (at(10), 0.0), (at(20), 0.5), (at(30), 1.0), (at(40), 1.0), (at(50), 1.5),
    )  # fmt: skip
    assert reading._history(moments, 2, at(0), budget) == history[1:]  # the axis begins later
    assert reading._history(moments[:1], 500, at(13), budget) == ((at(13), 0.0), (at(20), 0.5))
    assert reading._history([], 500, at(0), budget) == ()
    drawn = chart(history, 3)
    (line,) = re.findall(r'<path d="([^"]+)"', drawn)
    places = [tuple(map(float, part.split())) for part in re.findall(r"[ML]([\d.]+ [\d.]+)", line)]
    assert len({x for x, _ in places}) == len(places) == 5
    for words in ("2026-01-01 00:50 UTC", "steps of ten minutes", "times are UTC", "rises from 0 to 1.5"):
        assert words in drawn


def test_a_ledger_without_a_limit_is_drawn():
    import datetime
    import math

    from confide.ledger import Spending
    from confide.service.page.render import live
    from confide.service.page.views import Account, Overview

    endless = Spending(math.inf, math.inf)
    now = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
    for spent in (Spending(Fraction(3), Fraction(0)), endless):
        text = live(Overview(Account("all", endless, spent, endless), (), ((now, 3.0),)))
        assert "infinity" in text
        assert "0 % spent" in text


def test_the_guarantee_has_a_short_line_and_the_wide_table_a_hint(served):
    _, client = served
    page = Page(client.get("/", auth=OWNER).text)
    assert "Epsilon 30 for all answers together." in page.text
    assert sum(item.get("class") == "claim" for item in page.all("p")) == 1
    assert "scrolls sideways" in page.text
