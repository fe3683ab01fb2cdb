"""``confide serve`` and the commands of keys: from a CSV to a private answer, over real HTTP."""

from __future__ import annotations

import csv
import json
import os
import signal
import socket
import subprocess
import sys
import time

import httpx
import numpy as np
import pytest
from typer.testing import CliRunner

from confide.cli.app import app

SCHEMA = """
[table]
name = "visits"
declared_by = "the hospital"
[columns.age]
role = "private"
lower = 18
upper = 90
[columns.ward]
role = "public"
categories = ["north", "south"]
[columns.ill]
role = "label"
categories = ["no", "yes"]
"""


def call(*arguments, status=0):
    result = CliRunner().invoke(app, [str(part) for part in arguments], env={"COLUMNS": "200"})
    assert result.exit_code == status, result.output
    return result


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    folder = tmp_path_factory.mktemp("served")
    rng = np.random.default_rng(1)
    with (folder / "visits.csv").open("w", newline="") as file:
        out = csv.writer(file)
        out.writerow(["age", "ward", "ill"])
        for age in rng.uniform(18, 90, 800):
            out.writerow([f"{age:.1f}", rng.choice(["north", "south"]), "yes" if age > 54 else "no"])
    (folder / "visits.toml").write_text(SCHEMA)
    target = folder / "visits.npz"
    call("certify", folder / "visits.csv", "--schema", folder / "visits.toml", "--out", target)
    return target


@pytest.fixture
def ledger(tmp_path):
    handle = f"sqlite:///{tmp_path}/ledger.db#visits"
    call("ledger", "create", "--ledger", handle, "--epsilon", "5", "--adjacency", "replace_one")
    return handle


def test_a_key_is_shown_once_and_stays_when_limits_change(ledger):
    made = call("ledger", "grant", "ada", "--ledger", ledger, "--epsilon", "1")
    key = made.stdout.strip()
    assert key.startswith("confide_")
    assert "limit epsilon = 1" in made.stderr
    later = call("ledger", "grant", "ada", "--ledger", ledger, "--epsilon", "2")
    assert "confide_" not in later.output
    assert "limit epsilon = 2" in later.stderr
    assert later.stdout == ""  # KEY=$(...) is a key or empty, never prose
    assert "Warning" not in later.stderr
    assert key not in call("ledger", "show", "--ledger", ledger, "--json").output
    assert key not in call("ledger", "export", "--ledger", ledger).output


def test_keys_for_machines_and_rotation_and_revocation(ledger):
    from confide.ledger import Ledger
    from confide.service.keys import Keyring

    first = json.loads(call("ledger", "grant", "ada", "--ledger", ledger, "--epsilon", "1", "--json").stdout)
    assert first["limit"] == {"epsilon": "1", "delta": "0"}
    second = json.loads(call("ledger", "rotate", "ada", "--ledger", ledger, "--json").stdout)["key"]
    ring = Keyring(Ledger.from_handle(ledger).parts())
    assert ring.analyst_of(first["key"]) is None
    assert ring.analyst_of(second).name == "ada"
    assert call("ledger", "rotate", "ada", "--ledger", ledger).stdout.startswith("confide_")
    assert call("ledger", "revoke", "ada", "--ledger", ledger).stdout == ""
    call("ledger", "revoke", "ada", "--ledger", ledger, status=3)
    call("ledger", "rotate", "nobody", "--ledger", ledger, status=3)


def test_after_a_revocation_a_key_is_given_only_where_that_is_said(ledger):
    def grant(*more):
        return call("ledger", "grant", "ada", "--ledger", ledger, "--epsilon", "1", *more)

    def state():
        said = call("ledger", "show", "--ledger", ledger).output
        (line,) = (line for line in said.splitlines() if "ada" in line and "limit" in line)
        return line.split("│")[-2].strip()

    assert grant().stdout.startswith("confide_")
    assert state() == "valid"
    call("ledger", "revoke", "ada", "--ledger", ledger)
    assert state() == "revoked"
    again = grant()
    assert again.stdout == ""
    assert "Its key was revoked and no other is given; for one: --key." in again.stderr
    assert state() == "revoked"
    assert "--key" in call("ledger", "rotate", "ada", "--ledger", ledger, status=3).output
    assert grant("--no-key").stdout == ""
    assert grant("--key").stdout.startswith("confide_")
    assert state() == "valid"
    kept = grant("--key")
    assert kept.stdout == ""
    assert "The key that it has stays" in kept.stderr


def test_the_monitor_has_a_key_and_no_account(ledger):
    from confide.ledger import Ledger
    from confide.service.keys import Keyring

    call("ledger", "grant", "metrics", "--ledger", ledger, "--epsilon", "1", status=2)
    key = call("ledger", "grant", "metrics", "--ledger", ledger, "--epsilon", "0").stdout.strip()
    ring = Keyring(Ledger.from_handle(ledger).parts())
    found = ring.analyst_of(key)
    assert (found.name, found.owner, found.monitor) == ("metrics", False, True)
    assert Ledger.from_handle(ledger).show()["analysts"] == []
    other = call("ledger", "rotate", "metrics", "--ledger", ledger).stdout.strip()
    assert ring.analyst_of(key) is None
    assert ring.analyst_of(other).monitor
    call("ledger", "revoke", "metrics", "--ledger", ledger)
    assert ring.analyst_of(other) is None
    assert call("ledger", "grant", "metrics", "--ledger", ledger, "--epsilon", "0").stdout == ""
    assert Ledger.from_handle(ledger).verify()


def test_a_limit_above_the_total_is_told(ledger):
    for epsilon, told in (("5", False), ("5.01", True)):
        said = call("ledger", "grant", "ada", "--ledger", ledger, "--epsilon", epsilon).stderr
        assert ("above the ledger's own total" in said) is told


def test_a_limit_on_zcdp_is_told_as_what_was_kept(tmp_path):
    handle = f"sqlite:///{tmp_path}/rho.db#visits"
    create = ("--epsilon", "4", "--delta", "1e-5", "--accountant", "zcdp", "--adjacency", "replace_one")
    call("ledger", "create", "--ledger", handle, *create)
    asked = ("--epsilon", "1", "--delta", "1e-6")
    said = " ".join(call("ledger", "grant", "ada", "--ledger", handle, *asked).stderr.split())
    assert "what was kept is rho = 0.02435" in said
    assert "the most that epsilon = 1 allows at delta = 1e-06" in said
    assert "At the ledger's own delta = 1e-05 the same rho amounts to epsilon = 0.88" in said
    assert "Warning" not in said


def test_an_account_without_a_key(ledger):
    told = json.loads(
        call("ledger", "grant", "ada", "--no-key", "--ledger", ledger, "--epsilon", "1", "--json").stdout
    )
    assert told["key"] is None
    call("ledger", "rotate", "ada", "--ledger", ledger, status=3)


def test_check_says_the_guarantee_and_serves_nothing(model, ledger):
    told = call("serve", model, "--ledger", ledger, "--epsilon", "0.1", "--check").stdout
    assert "epsilon = 5" in told
    body = json.loads(call("serve", model, "-l", ledger, "--epsilon", "0.1", "--check", "--json").stdout)
    assert body["adjacency"] == "replace_one"


def test_limits_above_the_total_are_warned_of_under_the_sparse_vector(model, tmp_path):
    from confide.ledger import Ledger
    from confide.privacy import Event, Guarantee

    handle = f"sqlite:///{tmp_path}/ledger.db#visits"
    create = ("--epsilon", "5", "--delta", "1e-5", "--adjacency", "replace_one")
    call("ledger", "create", "--ledger", handle, *create)
    settings = ("--ledger", handle, "--epsilon", "1", "--delta", "1e-6", "--check")

    def said(release, *more):
        told = call("serve", model, *settings, "--release", release, *more)
        assert "Warning" not in told.stdout
        return " ".join(told.stderr.split())

    for name, epsilon in (("ada", "3"), ("bob", "2")):
        call("ledger", "grant", name, "--ledger", handle, "--epsilon", epsilon, "--delta", "5e-6")
    assert "Warning" not in said("sparse_vector")
    call("ledger", "grant", "bob", "--ledger", handle, "--epsilon", "2.5", "--delta", "5e-6")
    warned = said("sparse_vector", "--json")
    assert (
        "add up to epsilon = 5.5, delta = 1e-05, above the ledger's total of epsilon = 5, delta = 1e-05."
        in warned
    )
    assert "Grant smaller limits (confide ledger grant NAME --epsilon ...), or create a ledger" in warned
    assert "Warning" in said("sparse_vector", "--then", "response", "--then-epsilon", "0.5")
    assert "Warning" not in said("laplace")  # there it is no fact of the table
    call("ledger", "grant", "bob", "--ledger", handle, "--epsilon", "2", "--delta", "5e-6")
    assert "Warning" not in said("sparse_vector")
    paid = Guarantee("0.25", 0, "replace_one", "row", Event.of("pure", epsilon="0.25"))
    Ledger.from_handle(handle).charge(paid)  # to no account
    assert "add up to epsilon = 5.25" in said("sparse_vector")


@pytest.mark.parametrize(
    ("options", "status", "words"),
    [
        (("--epsilon", "-1"), 2, "epsilon"),
        (("--epsilon", "0.1", "--release", "nothing"), 2, "release"),
        (("--epsilon", "0.1", "--rows", "0"), 2, "rows"),
        (("--epsilon", "0.1", "--schedule-ms", "-1"), 2, "schedule_ms"),
        (("--epsilon", "0.1", "--slack", "1e-6"), 2, "slack"),
        (("--epsilon", "nan"), 2, "The option --epsilon is 'nan'. Pass a finite"),
        (("--epsilon", "0.1", "--release", "laplace"), 2, "The option --delta is 0. Pass 0 < delta"),
        (("--epsilon", "6"), 3, "its epsilon can never cover it"),
        (("--epsilon", "0.1", "--block", "60"), 3, "its epsilon can never cover it"),
        (("--epsilon", "0.1", "--delta", "1e-6", "--release", "laplace"), 3, "its delta can never cover it"),
        (("--epsilon", "6", "--delta", "1e-6", "--release", "laplace"), 3, "epsilon and delta can never"),
    ],
)
def test_what_is_wrong_is_said_before_a_port_is_opened(model, ledger, options, status, words):
    assert words in call("serve", model, "--ledger", ledger, *options, status=status).output


def test_a_missing_extra_is_named(model, ledger):
    code = (
        "import sys; sys.modules['fastapi'] = None\n"
        "from confide.cli.app import run; sys.argv = ['confide', *sys.argv[1:]]; run()"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, "serve", str(model), "--ledger", ledger, "--epsilon", "0.1"],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 2
    assert "pip install 'confide[serve]'" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("workers", [1, 2])
def test_from_a_key_to_an_answer_and_a_clean_stop(model, ledger, workers, tmp_path):
    key = call("ledger", "grant", "ada", "--ledger", ledger, "--epsilon", "1").stdout.strip()
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    log = tmp_path / "log"
    with log.open("w") as file:
        server = subprocess.Popen(
            [sys.executable, "-m", "confide", "serve", str(model), "--ledger", ledger, "--epsilon", "0.1",
             "--port", str(port), "--workers", str(workers)],
            stdout=file, stderr=file, start_new_session=True,
        )  # fmt: skip
    try:
        url, body = f"http://127.0.0.1:{port}", {"row": {"age": 30, "ward": "north"}, "request_id": "one"}
        _until_up(url)
        told = [
            httpx.post(url + "/v1/predict", json=body, headers={"Authorization": f"Bearer {key}"}).json()
            for _ in range(4)
        ]
        assert [item["replayed"] for item in told] == [False, True, True, True]
        assert len({item["answers"][0] for item in told}) == 1
        assert httpx.get(url + "/metrics").status_code == 200
        server.send_signal(signal.SIGTERM)
        server.wait(30)
    finally:
        if server.poll() is None:
            os.killpg(server.pid, signal.SIGKILL)
    text = log.read_text()
    assert key not in text
    assert "Traceback" not in text
    assert "north" not in text
    assert "ada" not in text


def test_a_limit_below_what_was_spent_is_told(model, ledger):
    from confide.service.worker import Settings

    service = Settings(str(model), ledger, {"epsilon": "1/8"}).opened()
    service.answer(service.analyst_of(service.grant("ann", 1)), [{"age": 30, "ward": "north"}], "r")
    service.close()
    assert (
        "Warning: more was spent" in call("ledger", "grant", "ann", "-l", ledger, "--epsilon", "0.1").stderr
    )
    assert "Warning" not in call("ledger", "grant", "ann", "-l", ledger, "--epsilon", "0.125").stderr


def test_a_model_that_others_may_read_is_told(model, ledger, tmp_path):
    copy = tmp_path / "visits.npz"
    copy.write_bytes(model.read_bytes())
    for mode, told in ((0o644, True), (0o640, False), (0o600, False)):
        copy.chmod(mode)
        said = call("serve", copy, "--ledger", ledger, "--epsilon", "0.1", "--check").stderr
        assert ("every user of this machine" in said) is told


def test_show_tells_what_accounts_paid_where_the_total_paid_another_amount(model, ledger):
    from confide.service.worker import Settings

    assert "of account" not in call("ledger", "show", "--ledger", ledger).output
    service = Settings(str(model), ledger, {"epsilon": "1/8"}).opened()
    for name in ("ann", "bob"):
        analyst = service.analyst_of(service.grant(name, 1))
        service.answer(analyst, [{"age": 30, "ward": "north"}], "r")
    service.close()
    for columns in ("80", "200"):
        told = (
            CliRunner().invoke(app, ["ledger", "show", "--ledger", ledger], env={"COLUMNS": columns}).output
        )
        assert "accounts do not add up" in " ".join(told.split())
        cells = [
            [cell.strip() for cell in line.split("│")] for line in told.splitlines() if "1 new, 0" in line
        ]
        (row,) = cells
        at = row.index("bob")
        assert row[at + 1 : at + 4] == ["0", "0", "0.125"]
        assert any(
            len(cell) >= 16 and cell[10:11] == " " and cell[13:14] == ":" for cell in row
        )  # to the minute


def test_a_rehearsal_charges_counts_and_delays_nothing(model, ledger):
    import asyncio

    from confide.ledger import Ledger
    from confide.service.worker import Settings, rehearse, warm

    service = Settings(str(model), ledger, {"epsilon": "1/10", "schedule_ms": 0.001}).opened()
    before = Ledger.from_handle(ledger).verify()
    warm(service)
    asyncio.run(rehearse(service))
    assert Ledger.from_handle(ledger).verify() == before
    assert service.guarantee().assumptions == ()  # no overrun, though the schedule cannot be kept
    service.close()


def test_a_taken_address_is_said_before_any_promise(model, ledger):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        said = call("serve", model, "--ledger", ledger, "--epsilon", "0.1", "--port", port, status=2).output
    assert f"port {port}" in said
    assert "Questions" not in said


@pytest.mark.slow
def test_workers_of_a_killed_command_end(model, ledger, tmp_path):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with (tmp_path / "log").open("w") as file:
        server = subprocess.Popen(
            [sys.executable, "-m", "confide", "serve", str(model), "--ledger", ledger, "--epsilon", "0.1",
             "--port", str(port), "--workers", "2"],
            stdout=file, stderr=file, start_new_session=True,
        )  # fmt: skip
    try:
        _until_up(f"http://127.0.0.1:{port}")
        os.kill(server.pid, signal.SIGKILL)
        server.wait(10)
        ends = time.monotonic() + 40
        while _group_lives(server.pid) and time.monotonic() < ends:
            time.sleep(0.2)
        assert not _group_lives(server.pid)
        with pytest.raises(httpx.TransportError):
            httpx.get(f"http://127.0.0.1:{port}/health")
    finally:
        if _group_lives(server.pid):
            os.killpg(server.pid, signal.SIGKILL)


def _group_lives(group):
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True


def _until_up(url):
    for _ in range(600):
        try:
            if httpx.get(url + "/health").status_code == 200:
                return
        except httpx.TransportError:
            time.sleep(0.1)
    raise AssertionError("the service did not start")
