"""The audit's page in headless Chromium: it fits phones and desks, light and dark, and needs no colour."""

from __future__ import annotations

import math
import os
from pathlib import Path

import pytest

from confide.audit import Finding, Verdict
from confide.audit.origin import Origin
from confide.audit.page import page
from confide.audit.run import Audit

pytestmark = pytest.mark.slow
HEADER = {"version": "1.2.3", "sources": "0123456789abcdef" * 4, "seed": None}
_WIDER = """[...document.querySelectorAll(".scroll")].filter(one => one.scrollWidth > one.clientWidth)
    .map(one => one.getAttribute("aria-label"))"""
#: Whether the measured number stands below the claimed one.
_BELOW = """(([claimed, measured]) => measured.top >= claimed.bottom)(
    [3, 4].map(i => document.querySelector(`.standing td:nth-child(${i})`).getBoundingClientRect()))"""
FINDINGS = (
    Finding("labels.rounding", "exact", Verdict.BROKEN, math.inf, "ends"),
    Finding("labels.rounding", "replay", Verdict.BROKEN, note="a note without a space: " + "x" * 80),
    Finding("prediction.erm.add_remove_one", "exact", Verdict.HOLDS, 0.7, "a row beyond the bounds"),
    Finding("prediction.erm.add_remove_one", "poisoning", Verdict.HOLDS, tried=24, note="24 tables"),
    Finding("labels.rounding", "run time", Verdict.HOLDS, tried=9, note="CPU time 1.01 (0.9 to 1.2)"),
)


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1280])
def test_it_fits_every_width_in_both_schemes(browser, scheme, width, tmp_path):
    file = tmp_path / "audit.html"
    file.write_text(page(Audit(FINDINGS, False, 1.0, origin=Origin.here(HEADER))), encoding="utf-8")
    context = browser.new_context(color_scheme=scheme, viewport={"width": width, "height": 800})
    shown = context.new_page()
    asked = []
    shown.on("request", lambda request: asked.append(request.url))
    shown.goto(file.as_uri())
    assert asked == [file.as_uri()]
    assert shown.evaluate("document.documentElement.scrollWidth") <= width
    right = shown.evaluate("document.querySelector('.bars').getBoundingClientRect().right")
    assert right <= width, "the bars are seen without scrolling"
    shown.keyboard.press("Tab")
    assert shown.evaluate("document.activeElement.getAttribute('href')") == "#claims"
    folded = width < 768  # claim by layer too
    assert shown.get_by_role("table").count() == 4 - folded  # run times and attacks are folded
    assert shown.get_by_role("table", name="What each layer did").is_visible() != folded
    assert not shown.get_by_role("table", name="Every attack").is_visible()
    for fold in shown.locator("summary:visible").all():
        fold.click()
    assert shown.get_by_role("table").count() == 6
    assert shown.get_by_role("table", name="Every attack").is_visible()
    assert shown.evaluate(_WIDER) == [], "nothing needs sideways scrolling, not even inside a table"
    cells = shown.get_by_role("cell").count()
    assert cells == shown.locator("td").count(), "empty cells too: a screen reader counts them"
    told = shown.locator(".standing td:nth-child(3)").first
    label = told.evaluate("cell => getComputedStyle(cell, '::before').content")
    above = shown.evaluate(_BELOW)
    assert (label, above) == (('"claimed: "', True) if width < 500 else ("none", False))
    assert shown.get_by_role("img", name="labels.rounding: measured infinite of 1 claimed").is_visible()
    folder = Path(os.environ.get("CONFIDE_SCREENSHOTS", tmp_path))
    shown.screenshot(path=folder / f"audit-{scheme}-{width}.png", full_page=True)
    context.close()
