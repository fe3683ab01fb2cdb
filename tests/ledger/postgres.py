"""A private PostgreSQL cluster for tests and benchmarks: own folder, own port, own user."""

from __future__ import annotations

import glob
import os
import pwd
import shutil
import socket
import subprocess
import tempfile
from contextlib import contextmanager


def missing() -> str:
    """Why no PostgreSQL can be used here, or an empty string."""
    if os.environ.get("CONFIDE_TEST_POSTGRES"):
        return ""
    try:
        import psycopg  # noqa: F401
    except ImportError:
        return "psycopg is not installed"
    if _binary("initdb") is None or _binary("pg_ctl") is None:
        return "no CONFIDE_TEST_POSTGRES and no initdb and pg_ctl (Debian: apt-get install postgresql)"
    if os.geteuid() == 0 and (_user() is None or shutil.which("runuser") is None):
        return "running as root, and no user to run PostgreSQL as"
    return ""


@contextmanager
def cluster(*, fsync: bool = False):
    """Yield the URL of a database that lives as long as the block."""
    given = os.environ.get("CONFIDE_TEST_POSTGRES")
    if given:
        yield given
        return
    # A short path: a Unix socket's name has at most 107 letters.
    folder = tempfile.mkdtemp(prefix="confide-pg-", dir="/tmp")
    user = _user() if os.geteuid() == 0 else None
    if user is not None:
        shutil.chown(folder, user)
    data = os.path.join(folder, "data")

    def run(*command: str) -> None:
        prefix = ["runuser", "-u", user, "--"] if user is not None else []
        subprocess.run([*prefix, *command], check=True, capture_output=True, cwd=folder, timeout=120)

    try:
        run(_binary("initdb"), "-D", data, "-U", "confide", "-A", "trust", "-N", "--no-locale", "-E", "UTF8")
        port = _free_port()
        # The tests kill clients, never the machine: the server need not wait for the disk.
        options = f"-k {folder} -p {port} -c listen_addresses=127.0.0.1 -c max_connections=200"
        options += f" -c fsync={'on' if fsync else 'off'}"
        run(_binary("pg_ctl"), "-D", data, "-l", f"{folder}/log", "-w", "-o", options, "start")
        try:
            yield f"postgresql+psycopg://confide@127.0.0.1:{port}/postgres"
        finally:
            run(_binary("pg_ctl"), "-D", data, "-m", "immediate", "stop")
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _binary(name: str) -> str | None:
    found = sorted(glob.glob(f"/usr/lib/postgresql/*/bin/{name}"))
    return shutil.which(name) or (found[-1] if found else None)


def _user() -> str | None:
    for name in ("postgres", "nobody"):
        try:
            pwd.getpwnam(name)
        except KeyError:
            continue
        return name
    return None


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]
