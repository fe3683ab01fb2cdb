"""Shared helpers of the suite."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="session", autouse=True)
def counter_outside_the_home_folder(tmp_path_factory):
    """Keep the ledgers' rollback counters of the whole suite in a folder of its own."""
    before = os.environ.get("CONFIDE_LEDGER_COUNTER")
    os.environ["CONFIDE_LEDGER_COUNTER"] = str(tmp_path_factory.mktemp("counters"))
    yield
    if before is None:
        del os.environ["CONFIDE_LEDGER_COUNTER"]
    else:
        os.environ["CONFIDE_LEDGER_COUNTER"] = before


@pytest.fixture(scope="session")
def golden() -> Path:
    """Folder of golden data: the shared cases where present, else the copies in this folder."""
    shared = ROOT.parent / "shared" / "cases"
    return shared if (shared / "README.md").exists() else ROOT / "tests" / "golden"


@pytest.fixture(scope="module")  # while it lives, no other test of this process can call asyncio.run
def browser():
    """Return headless Chromium, driven by Playwright."""
    pytest.importorskip("playwright", reason="no Playwright: pip install playwright")
    from playwright.sync_api import sync_playwright

    found = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if found is None:
        pytest.skip("no Chromium: apt-get install chromium")
    with sync_playwright() as playwright:
        # Chromium's own sandbox does not start as root, as in most containers.
        launched = playwright.chromium.launch(
            executable_path=found, args=["--no-sandbox"] if os.getuid() == 0 else []
        )
        yield launched
        launched.close()
