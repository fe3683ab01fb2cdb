"""Shared helpers of the suite."""

from __future__ import annotations

from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="session")
def golden() -> Path:
    """Folder of golden data: the shared cases where present, else the copies in this folder."""
    shared = ROOT.parent / "shared" / "cases"
    return shared if (shared / "README.md").exists() else ROOT / "tests" / "golden"
