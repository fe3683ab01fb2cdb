"""Before the first answer: a store that was rolled back, a lost counter, a worker that cannot start."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from confide.ledger import Ledger

_spec = importlib.util.spec_from_file_location("serve_cli", Path(__file__).with_name("test_serve_cli.py"))
_cli = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(_cli)

call, model, ledger = _cli.call, _cli.model, _cli.ledger
EPSILON = ("--epsilon", "0.1")


@pytest.fixture
def rolled_back(ledger, tmp_path):
    """The store as it was before its last entry; the counter has seen that one."""
    store = tmp_path / "ledger.db"
    aside = tmp_path / "aside.db"
    code = (
        "import sqlite3, sys; from confide.ledger import Ledger\n"
        "book = Ledger.from_handle(sys.argv[1]); book.grant('ada', 1)\n"
        "sqlite3.connect(sys.argv[2]).execute('PRAGMA wal_checkpoint(TRUNCATE)')\n"
        "import shutil; shutil.copy(sys.argv[2], sys.argv[3]); book.grant('ada', 2)"
    )
    subprocess.run([sys.executable, "-c", code, ledger, str(store), str(aside)], check=True)
    for path in tmp_path.glob("ledger.db*"):
        path.unlink()
    shutil.move(aside, store)
    return ledger


def serve(*arguments, code="from confide.cli.app import run; run()", **options):
    head = "import sys; sys.argv[0] = 'confide'\n"
    return subprocess.run(
        [sys.executable, "-c", head + code, "serve", *map(str, arguments)],
        capture_output=True, text=True, timeout=120, **options,
    )  # fmt: skip


@pytest.mark.parametrize("options", [("--check",), ("--workers", "1"), ("--workers", "2")])
def test_a_store_that_was_rolled_back_is_refused_before_anything_is_promised(model, rolled_back, options):
    done = serve(model, "--ledger", rolled_back, *EPSILON, "--port", "0", *options)
    assert done.returncode == 5
    assert "was rolled back or replaced" in done.stderr
    assert "Traceback" not in done.stderr
    assert "All answers" not in done.stdout + done.stderr
    assert "Started" not in done.stderr


@pytest.mark.slow
def test_a_worker_that_cannot_start_ends_the_command_with_the_status_of_its_error(model, rolled_back):
    # As if the store were replaced between the command's look and the workers'.
    code = (
        "from confide.ledger.handle import Handle; Handle.check = lambda self: None\n"
        "from confide.cli.app import run; run()"
    )
    done = serve(model, "--ledger", rolled_back, *EPSILON, "--port", "0", "--workers", "2", code=code)
    assert done.returncode == 5, done.stderr
    assert "was rolled back or replaced" in done.stderr
    assert "The service did not start" in done.stderr
    assert "Traceback" not in done.stderr
    assert len(re.findall("ERROR The ledger's store", done.stderr)) <= 2  # none is tried again


@pytest.mark.slow
def test_a_worker_that_fails_for_another_reason_ends_the_command_with_1(model, ledger, tmp_path):
    (tmp_path / "sitecustomize.py").write_text(
        "import multiprocessing, os\nif multiprocessing.parent_process() is not None: os._exit(77)\n"
        "import sys\nif '--multiprocessing-fork' in sys.argv or 'spawn_main' in ' '.join(sys.orig_argv): os._exit(77)"
    )
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    done = serve(
        model, "--ledger", ledger, *EPSILON, "--port", "0", "--workers", "2", env=environment
    )  # fmt: skip
    assert done.returncode == 1, done.stderr


class Worker:
    """A worker that has ended, or lives (None)."""

    def __init__(self, pid, code):
        from types import SimpleNamespace

        self.process = SimpleNamespace(pid=pid, exitcode=code, join=lambda: None)

    def is_alive(self, timeout):
        return self.process.exitcode is None

    def start(self):
        pass

    def kill(self):
        pass


@pytest.fixture
def workers(tmp_path, monkeypatch):
    """Two workers of a command, a clock, and the exit codes of those that are started next."""
    import itertools
    from types import SimpleNamespace

    from uvicorn.supervisors import multiprocess

    from confide.service import supervisor

    pids, now, codes = itertools.count(1), [0.0], []
    monkeypatch.setattr(multiprocess.signal, "signal", lambda *_: None)
    monkeypatch.setattr(supervisor, "Process", lambda *_: Worker(next(pids), codes.pop(0)))
    monkeypatch.setattr(supervisor, "time", SimpleNamespace(monotonic=lambda: now[0]))
    config = SimpleNamespace(workers=2, timeout_worker_healthcheck=1)
    held = supervisor.Workers(tmp_path, config, [])
    held.processes = [Worker(next(pids), None), Worker(next(pids), None)]
    return SimpleNamespace(
        held=held,
        now=now,
        codes=codes,
        serves=lambda place: (tmp_path / f"{held.processes[place].process.pid}.started").touch(),
        ends=lambda place, code: setattr(held.processes[place].process, "exitcode", code),
    )


def test_a_worker_that_fails_at_the_first_start_ends_the_command(workers):
    workers.ends(1, 105)
    workers.held.keep_subprocess_alive()
    assert workers.held.should_exit.is_set()
    assert workers.held.status == 5


def test_a_replacement_that_cannot_start_is_tried_again_after_longer_and_longer_pauses(workers, caplog):
    held, now = workers.held, workers.now
    workers.serves(0)
    workers.serves(1)
    workers.ends(1, -9)
    workers.codes[:] = [105] * 8
    held.keep_subprocess_alive()  # at once: it had served
    assert len(workers.codes) == 7
    tried = []
    for tick in range(1, 200):
        now[0], left = tick / 2, len(workers.codes)
        held.keep_subprocess_alive()
        if len(workers.codes) < left:
            tried.append(now[0])
    # Seen half a second after it failed, then 1, 2, 4, ... 30 s.
    assert [round(b - a) for a, b in zip([0.5, *tried], tried)] == [1, 2, 4, 8, 16, 30, 30]
    assert not held.should_exit.is_set()
    assert "another one is tried in 30 s" in caplog.text


def test_a_replacement_that_served_waits_for_one_second_again(workers):
    held, now = workers.held, workers.now
    workers.serves(0)
    workers.serves(1)
    workers.ends(1, -9)
    workers.codes[:] = [105, 105, None, 105, None]
    for tick in range(12):
        now[0] = tick / 2
        held.keep_subprocess_alive()
    assert held.processes[1].process.exitcode is None
    workers.serves(1)
    workers.ends(1, 1)
    held.keep_subprocess_alive()
    held.keep_subprocess_alive()
    assert workers.codes == [None]
    now[0] += 1
    held.keep_subprocess_alive()
    assert workers.codes == []


@pytest.mark.slow
def test_a_store_that_is_away_for_seconds_while_a_worker_dies_ends_no_service(model, ledger, tmp_path):
    import httpx

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    url = f"http://127.0.0.1:{port}"
    log = tmp_path / "log"
    with log.open("w") as file:
        server = subprocess.Popen(
            [sys.executable, "-m", "confide", "serve", str(model), "--ledger", ledger, "--epsilon", "0.1",
             "--port", str(port), "--workers", "2"],
            stdout=file, stderr=file, start_new_session=True,
        )  # fmt: skip
    try:
        _cli._until_up(url)
        _until(lambda: log.read_text().count("Application startup complete") == 2)
        killed = re.findall(r"Started server process \[(\d+)\]", log.read_text())[0]
        files = [path for path in tmp_path.glob("ledger.db*") if path.name != "ledger.db-queue"]
        for path in files:
            path.rename(path.with_suffix(path.suffix + ".away"))
        os.kill(int(killed), signal.SIGKILL)
        _until(lambda: "could not start; another one is tried" in log.read_text())
        assert server.poll() is None
        # The other one serves on, and says what is wrong.
        _until(lambda: httpx.get(url + "/ready").status_code == 503)
        assert "out-of-reach" in httpx.get(url + "/ready").text
        for path in files:
            path.with_suffix(path.suffix + ".away").rename(path)
        _until(lambda: log.read_text().count("Application startup complete") == 3)
        _until(lambda: httpx.get(url + "/ready").status_code == 200)
    finally:
        os.killpg(server.pid, signal.SIGTERM)
        server.wait(40)
    assert server.returncode in (0, -signal.SIGTERM), log.read_text()


def _until(holds):
    ends = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < ends
        time.sleep(0.2)


def test_a_lost_counter_is_told_wherever_an_owner_looks(model, ledger, tmp_path):
    def said(*arguments):
        return " ".join(call(*arguments).stderr.split())

    assert "counter" not in said("ledger", "grant", "ada", "--ledger", ledger, "--epsilon", "1")
    elsewhere = ("--ledger", ledger, "--counter", tmp_path / "lost")
    assert "There is no counter" in said("ledger", "show", *elsewhere)
    assert "There is no counter" in said("serve", model, *elsewhere, *EPSILON, "--check")
    assert "There is no counter" in said("ledger", "grant", "bob", "--epsilon", "1", *elsewhere)
    # That entry began one.
    assert "counter" not in said("ledger", "show", *elsewhere)
    off = Ledger.from_handle(ledger, counter=False)
    assert "rolled back goes unseen" in off.uncounted()


def test_check_of_a_ledger_reads_head_last_entry_and_counter(rolled_back, tmp_path):
    from confide.errors import LedgerError

    book = Ledger.from_handle(rolled_back)
    with pytest.raises(LedgerError, match="rolled back"):
        book.check()
    Ledger.from_handle(rolled_back, counter=tmp_path / "none").check()


def test_an_address_that_others_reach_is_warned_of(model, ledger, monkeypatch):
    from confide.service import worker

    monkeypatch.setattr(worker, "run", lambda *_: 0)
    options = (model, "--ledger", ledger, *EPSILON, "--port", "0")
    assert "put TLS in front" in call("serve", *options, "--host", "0.0.0.0").stderr
    for host in ("127.0.0.1", "localhost", "127.0.0.2"):
        assert "TLS" not in call("serve", *options, "--host", host).stderr


def test_a_taken_port_is_told_in_the_words_of_the_command(model, ledger):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        said = call("serve", model, "--ledger", ledger, *EPSILON, "--port", port, status=2).output
    assert f"--port {port % 65535 + 1}" in said
    assert "port=" not in said


def test_lines_of_the_log_carry_their_time():
    # In a process of its own: a new configuration closes the handlers of pytest, too.
    said = (
        "import logging.config; from confide.service.worker import LOGGING; logging.config.dictConfig(LOGGING)"
        "; logging.getLogger('confide.service').warning('answers left')"
        "; logging.getLogger('uvicorn.error').info('Started')"
    )
    done = subprocess.run([sys.executable, "-c", said], capture_output=True, text=True, check=True)
    lines = done.stderr.splitlines()
    stamp = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d[+-]\d{4} "
    assert re.fullmatch(stamp + "WARNING answers left", lines[0])
    assert re.fullmatch(stamp + "INFO Started", lines[1])
