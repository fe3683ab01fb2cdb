"""The benchmark of private answers: its epochs, its prices, its stand-ins, and a smoke run."""

from __future__ import annotations

import csv
import importlib
import os
import subprocess
import sys
from fractions import Fraction
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from confide.prediction import StableAnswers, answers, release_of
from confide.privacy import compose

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"


@pytest.fixture
def paper(monkeypatch):
    """The benchmark's modules, as one run imports them."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    before = set(sys.modules)
    names = (
        "prediction_paper",
        *(f"_prediction_paper_{part}" for part in ("cells", "data", "epochs", "models")),
    )
    modules = [importlib.import_module(name) for name in names]
    yield SimpleNamespace(**{m.__name__.removeprefix("_prediction_paper_"): m for m in modules})
    for name in set(sys.modules) - before:
        if str(getattr(sys.modules[name], "__file__", "")).startswith(str(BENCHMARKS)):
            del sys.modules[name]


@pytest.mark.parametrize(("epochs", "classes"), [(1, 2), (4, 2), (3, 10)])
def test_expected_accuracy_of_epochs_is_that_of_the_release(paper, epochs, classes):
    rng = np.random.default_rng(epochs)
    k = rng.integers(10, 45, size=50)
    right = rng.random(50) < 0.9
    queries, runs, epsilon, delta = 200, 150, 1.0, 1e-2
    found = []
    for seed in range(runs):
        asked = rng.integers(50, size=queries)
        told, opened = paper.epochs.told(
            np.zeros(queries, dtype=int), k[asked], classes, epsilon, delta, epochs, seed
        )
        assert opened <= epochs
        found.append(np.where(told < 0, 1 / classes, right[asked]).mean())
    expected, inside = paper.epochs.expected(right, k, classes, epsilon, delta, epochs, queries, runs=2_000)
    error = np.hypot(np.std(found) / np.sqrt(runs), expected.std() / np.sqrt(2_000))
    assert abs(np.mean(found) - expected.mean()) < 4 * error
    assert 0 < inside < 1


def test_every_price_fits_its_total(paper):
    """What a cell pays for each answer or epoch composes to at most its total."""
    cells = paper.cells
    for release in cells.RELEASES:
        for total in cells.TOTALS:
            for count in (1, 10, 1_000):
                epochs = cells.EPOCHS if release == "sparse_vector" else 0
                each, own = cells.price(
                    cells.Cell("budget", "blobs", "erm", 1, release, total, count, epochs)
                )
                if release == "sparse_vector":
                    vector = StableAnswers(each, own, 2, charge=lambda event: None)
                    spent = compose(vector.epsilon, epochs, Fraction(cells.DELTA) - epochs * vector.delta)
                    assert spent <= total
                else:
                    law = release_of(release, each, 2, own)
                    cost = answers(law, count, max(Fraction(0), Fraction(cells.DELTA) - count * law.delta))
                    assert cost.epsilon <= total
                    assert cost.delta <= Fraction(cells.DELTA)


def test_knobs_are_chosen_without_the_set(paper, monkeypatch):
    def never(*_):
        raise AssertionError("the set was read")

    monkeypatch.setitem(paper.data.LOADERS, "breast", never)
    told = []

    def distances(data, certificate, members, setting, run):
        told.append(data)
        table = paper.data.load(data)
        return table.y[:100], table.y[:100], np.full(100, int(setting))

    monkeypatch.setattr(paper.models, "distances", distances)
    cell = paper.cells.Cell("answers", "breast", "erm", 1, "response", 1.0, 1, 0)
    assert paper.cells.choose(cell, 1.0, 0.0) == max(paper.models.knobs("erm", "breast", 1))
    assert set(told) == {"stand-in breast"}


def test_the_plan_has_no_cell_twice(paper):
    for quick in (False, True):
        keys = [cell.key for task in paper.cells.plan(quick) for cell in task.cells]
        assert len(keys) == len(set(keys))


def test_a_run_goes_on_from_finished_cells(paper, monkeypatch, tmp_path):
    tasks = [task for task in paper.cells.plan(True) if task.first.release == "majority"]
    monkeypatch.setattr(paper.cells, "plan", lambda quick: tasks)
    path = tmp_path / "prediction_paper.csv"
    options = SimpleNamespace(quick=True, retry=False, jobs=1, sets=paper.cells.SETS)
    paper.prediction_paper.measure(path, options)
    first = path.read_text()
    assert first.count("done") == len(tasks) > 0
    paper.prediction_paper.measure(path, options)
    assert path.read_text() == first
    path.write_text(first[: first.rindex("\n", 0, -1) + 8])  # the last row was cut off
    paper.prediction_paper.measure(path, options)
    assert path.read_text().count("done") == len(tasks)


@pytest.mark.slow
def test_smoke_run_writes_rows_figures_and_the_report(tmp_path):
    script = BENCHMARKS / "prediction_paper.py"
    done = subprocess.run(
        [sys.executable, str(script), "--quick", "--jobs", "1"], env={**os.environ, "TMPDIR": str(tmp_path)},
        capture_output=True, text=True, timeout=900,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    (table,) = tmp_path.rglob("prediction_paper.csv")
    with table.open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert {row["status"] for row in rows} == {"done"}
    assert all(0 <= float(row["accuracy"]) <= 1 for row in rows)
    assert "## Claims" in (table.parent / "prediction_paper.md").read_text()
    assert len(list(table.parent.glob("prediction_paper_*.png"))) >= 8
