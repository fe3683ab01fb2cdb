"""The unit and the image in ``examples/``: what they say is what the command takes, and a rollback is noticed."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path, PurePosixPath

import pytest
from typer.testing import CliRunner

from confide.cli.app import app

ROOT = Path(__file__).resolve().parents[2]
UNIT = (ROOT / "examples" / "confide.service").read_text()
IMAGE = (ROOT / "examples" / "Containerfile").read_text()


@pytest.mark.parametrize("text", [UNIT, IMAGE], ids=["unit", "image"])
def test_the_counter_lies_outside_of_what_holds_the_store(text):
    """Restoring the folder of the store must not restore the counter."""
    for pattern in (r"CONFIDE_LEDGER=\S*?sqlite:///(/[^#\s]+)#", r"CONFIDE_LEDGER_COUNTER=(/\S+)"):
        assert re.findall(pattern, text)
    stores = re.findall(r"CONFIDE_LEDGER='?sqlite:///(/[^#\s]+)#", text)
    counters = re.findall(r"CONFIDE_LEDGER_COUNTER=(/\S+)", text)
    for store in stores:
        for counter in counters:
            assert not PurePosixPath(counter).is_relative_to(PurePosixPath(store).parent)
            assert not PurePosixPath(store).is_relative_to(PurePosixPath(counter))


def test_the_model_is_no_small_secret():
    """Credentials of systemd end at 1 MB, secrets of podman at 512 kB."""
    assert not re.search(r"^LoadCredential", UNIT, re.MULTILINE)
    assert "--secret" not in IMAGE


@pytest.mark.parametrize("text", [UNIT, IMAGE], ids=["unit", "image"])
def test_options_are_those_of_the_command(text):
    known = CliRunner().invoke(app, ["serve", "--help"], env={"COLUMNS": "200"}).output
    lines = re.findall(r"^(?:Exec\w+=.*confide serve|CMD \[\"serve\").*$", text, re.MULTILINE)
    assert lines
    for option in re.findall(r"(?<![\w-])--[a-z-]+", "\n".join(lines)):
        assert option in known


def test_docker_leaves_out_what_podman_does():
    assert (ROOT / ".dockerignore").read_bytes() == (ROOT / ".containerignore").read_bytes()


@pytest.mark.parametrize("text", [UNIT, IMAGE], ids=["unit", "image"])
def test_the_store_is_checked_before_it_is_served_and_the_owner_has_a_key(text):
    check = re.search(r"serve /\S+ --epsilon 0.1 --check", text)
    assert check
    assert "ledger grant owner" in text


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="no systemd here")
def test_systemd_reads_every_line(tmp_path):
    unit = tmp_path / "confide.service"
    unit.write_text(UNIT.replace("/opt/confide/bin/confide", "/bin/true"))
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(unit)], capture_output=True, text=True, timeout=60
    )
    assert str(unit) not in done.stderr, done.stderr
