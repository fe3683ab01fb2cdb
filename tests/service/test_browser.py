"""The owner's page in headless Chromium: by keyboard, with and without scripts, light and dark, phone width."""

from __future__ import annotations

import importlib.util
import os
import socket
import threading
import time
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

_spec = importlib.util.spec_from_file_location("service_fake", Path(__file__).with_name("fake.py"))
_fake = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(_fake)


@pytest.fixture(scope="module")
def served():
    import uvicorn

    service, app = _fake.made()
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    server = uvicorn.Server(uvicorn.Config(app, port=port, log_level="error", access_log=False))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.05)
    yield service, f"http://127.0.0.1:{port}"
    server.should_exit = True
    thread.join(10)


@pytest.fixture
def page_of(browser, served):
    contexts = []

    def make(**options):
        credentials = {"username": "owner", "password": "owner-key"}
        context = browser.new_context(**{"http_credentials": credentials, **options})
        contexts.append(context)
        page = context.new_page()
        page.faults = []
        page.on("console", lambda message: page.faults.append(message.text))
        page.on("pageerror", lambda error: page.faults.append(str(error)))
        page.on("request", lambda request: page.faults.append(request.url) if not request.url.startswith(
            (served[1], "data:")) else None)  # fmt: skip
        return page

    yield make
    for context in contexts:
        context.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [320, 390, 1100])
def test_it_fits_every_width_in_both_schemes(page_of, served, scheme, width, tmp_path):
    page = page_of(color_scheme=scheme, viewport={"width": width, "height": 800})
    page.goto(served[1])
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    ground = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert ground == ("rgb(255, 255, 255)" if scheme == "light" else "rgb(17, 21, 26)")
    heights = page.eval_on_selector_all(
        "input:not([type=hidden]),select,button", "all => all.map(e => e.offsetHeight)"
    )
    assert min(heights) >= 44
    assert not page.faults
    folder = Path(os.environ.get("CONFIDE_SCREENSHOTS", tmp_path))
    page.screenshot(path=folder / f"page-{scheme}-{width}.png", full_page=True)
    assert (folder / f"page-{scheme}-{width}.png").stat().st_size > 10_000


@pytest.mark.parametrize("scripts", [True, False])
def test_a_question_by_keyboard_alone(page_of, served, scripts):
    service, url = served
    before = service.spent["owner"]
    page = page_of(java_script_enabled=scripts)
    page.goto(url)
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")  # skip to the form
    page.keyboard.press("Tab")
    page.keyboard.type("70")
    page.keyboard.press("Tab")
    page.keyboard.type("5")
    page.keyboard.press("Tab")
    page.keyboard.type("north")
    page.keyboard.press("Tab")
    page.keyboard.press("Tab")
    page.keyboard.type("2")
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    page.wait_for_selector("#outcome")
    assert page.inner_text(".answer") == "yes"
    assert page.title().startswith("Answer")
    assert (service.spent["owner"] - before) * 10 == 1
    if scripts:
        assert page.evaluate("document.activeElement.id") == "outcome"
    page.reload()
    assert (service.spent["owner"] - before) * 10 == 1  # sent again, charged once
    assert not page.faults


def test_a_fault_is_heard_first_and_leads_to_its_field(page_of, served):
    page = page_of()
    page.goto(served[1])
    page.fill("#field-0", "seventy")
    page.click("button")
    page.wait_for_selector("#outcome")
    assert page.evaluate("document.activeElement.id") == "outcome"
    page.click("#outcome a >> nth=0")
    page.wait_for_url("**/#field-0")
    assert page.get_attribute("#field-0", "aria-invalid") == "true"
    assert "seventy" not in page.content()


def test_numbers_move_and_are_announced_without_touching_the_form(page_of, served):
    service, url = served
    page = page_of()
    page.clock.install()
    with page.expect_response("**/live") as first:
        page.goto(url)
    first.value.finished()
    page.fill("#field-0", "33")
    page.wait_for_timeout(300)
    service.spent["alice"] += 3
    page.clock.run_for(5_500)
    page.get_by_text("Updated:").wait_for()
    assert page.input_value("#field-0") == "33"
    assert page.evaluate("document.activeElement.id") == "field-0"
    assert not page.faults


def test_without_the_key_there_is_no_page(page_of, served):
    page = page_of(http_credentials={"username": "owner", "password": "alice-key"})
    page.goto(served[1])
    assert "key is needed" in page.content()
    assert "alice" not in page.content()
