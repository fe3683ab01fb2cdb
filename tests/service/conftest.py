"""A small certified model and a service on both stores of the ledger."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from confide.ledger import Ledger
from confide.ledger.store import Store
from confide.prediction import CertifiedClassifier
from confide.service import Service, ServiceConfig

_path = Path(__file__).parents[1] / "ledger" / "conftest.py"
_spec = importlib.util.spec_from_file_location("ledger_conftest", _path)
_ledger = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(_ledger)

counter_folder = _ledger.counter_folder
postgres_url = _ledger.postgres_url
sqlite_url = _ledger.sqlite_url
url = _ledger.url

#: Far from the boundary, and on it.
STABLE = [[1.0, 1.0], [-1.0, 1.0], [0.9, 0.0], [-0.9, -0.2], [1.0, -1.0]]
UNSTABLE = [[0.0, 0.5], [0.0, -0.5], [0.0, 0.3]]


@pytest.fixture(scope="session")
def model():
    rows = np.random.default_rng(0).uniform(-1, 1, (400, 2))
    return (
        CertifiedClassifier([0, 1], (-1, 1), certificate="erm", alpha=0.03).fit(rows, rows[:, 0] > 0).model_
    )


class Bench:
    """A ledger, and the services opened on it."""

    stable, unstable = STABLE, UNSTABLE

    def __init__(self, url, model):
        self.url, self.model = url, model
        self.services = []

    def open(self, epsilon=10, delta="1e-3", **terms):
        self.ledger = Ledger.open(
            self.url, dataset="visits", epsilon=epsilon, delta=delta, adjacency="replace_one", **terms
        )
        return self

    def serve(self, **settings):
        settings = {"epsilon": "1/10", "rate": 1e9, "burst": 10**9, **settings}
        service = Service.open(self.model, self.ledger, ServiceConfig.of(**settings))
        self.services.append(service)
        return service

    def epochs(self, **settings):
        return self.serve(epsilon=20, delta="1e-6", release="sparse_vector", **settings)

    def analyst(self, service, name="ann", epsilon=5, delta="1e-3"):
        return service.analyst_of(service.grant(name, epsilon, delta))

    def restart(self):
        """Be a new process: no memory but the store's and the counters'."""
        for service in self.services:
            service.close()
        self.services.clear()
        store = Store.at(self.ledger._url)
        store.close()
        store.marks.clear()
        store.known.clear()
        self.ledger = Ledger.from_handle(self.ledger.handle)

    def state(self):
        """All rows of the store that a request could change, but for counts of refusals."""
        store = Store.at(self.ledger._url)
        tables = ("confide_head", "confide_account", "confide_entry", "confide_secret")
        tables += tuple(f"confide_service_{name}" for name in ("query", "request", "block", "epoch", "key"))
        with store.reading() as connection:
            return {
                table: sorted(map(repr, map(tuple, store.rows(connection, f"SELECT * FROM {table}"))))
                for table in tables
            }

    def spent(self, name=None):
        total = self.ledger.total() if name is None else self.ledger.account(name).spent
        return total.epsilon


@pytest.fixture
def bench(url, model):
    made = Bench(url, model)
    yield made
    for service in made.services:
        service.close()


@pytest.fixture
def local(sqlite_url, model):
    made = Bench(sqlite_url, model)
    yield made
    for service in made.services:
        service.close()


@pytest.fixture
def rows():
    """Many distinct rows."""
    found = np.random.default_rng(1).uniform(-1, 1, (500, 2)).tolist()
    return SimpleNamespace(all=found, one=found[:1], ten=found[:10])
