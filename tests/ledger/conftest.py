"""Ledgers on both stores: every test that takes `url` or `ledger` runs on SQLite and on PostgreSQL."""

from __future__ import annotations

import importlib.util
import itertools
from pathlib import Path

import pytest

from confide.ledger import Ledger
from confide.ledger.store import close_all
from confide.privacy.event import Event
from confide.privacy.guarantee import Guarantee

_spec = importlib.util.spec_from_file_location("ledger_postgres", Path(__file__).with_name("postgres.py"))
postgres = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(postgres)

_schemas = itertools.count()


@pytest.fixture(scope="session")
def postgres_url():
    reason = postgres.missing()
    if reason:
        pytest.skip(reason)
    with postgres.cluster() as url:
        yield url
        close_all()


@pytest.fixture(autouse=True)
def counter_folder(tmp_path, monkeypatch):
    """Keep every counter of the test in its own folder; child processes inherit it."""
    folder = tmp_path / "counters"
    monkeypatch.setenv("CONFIDE_LEDGER_COUNTER", str(folder))
    return folder


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request, tmp_path):
    """URL of an empty store."""
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path / 'ledger.db'}"
        return
    import psycopg

    base = request.getfixturevalue("postgres_url")
    schema = f"t{next(_schemas)}"
    plain = base.replace("+psycopg", "")
    with psycopg.connect(plain, autocommit=True) as connection:
        connection.execute(f"DROP SCHEMA IF EXISTS {schema} CASCADE")
        connection.execute(f"CREATE SCHEMA {schema}")
    yield f"{base}?options=-csearch_path%3D{schema}"


@pytest.fixture
def sqlite_url(tmp_path):
    return f"sqlite:///{tmp_path / 'ledger.db'}"


@pytest.fixture
def ledger(url):
    return open_ledger(url)


def open_ledger(url, **changes):
    terms = {"dataset": "visits", "epsilon": 1, "delta": "1e-6", "adjacency": "replace_one"} | changes
    return Ledger.open(url, **terms)


def guarantee(epsilon=0.1, delta=0, adjacency="replace_one", unit="row", assumptions=(), event=None):
    event = event or Event.of("pure", epsilon=0.1)
    return Guarantee(epsilon, delta, adjacency, unit, event, assumptions)


@pytest.fixture(name="guarantee")
def _guarantee():
    return guarantee


@pytest.fixture(name="open_ledger")
def _open_ledger():
    return open_ledger
