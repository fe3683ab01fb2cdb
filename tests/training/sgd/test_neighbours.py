"""Neighbouring tables meet one path: secret numbers of rows, secret weights, and runs replayed in every stage."""

import math

import numpy as np
import pytest

from confide.errors import ParameterError
from confide.ledger import Ledger
from confide.training.result import Status
from confide.training.sgd import fit, fitting

from .test_fit import N, X, Y, Z, ledger, request

__all__ = ["ledger"]


def _secret_rows(n, declared, **options):
    """The first release of a table of n rows under add/remove with a declared number of rows."""
    asked = request(adjacency="add_remove_one", rows=declared, private_bounds=[(0, 2)] * 2, **options)
    ready = fitting.prepare(None, Z[:n], n, asked)
    task = fitting._problem(ready, None, Z[:n], Y[:n], n, None)
    state = fitting._Keeper(ready, None, None, 0, 0, None).state
    return ready, next(fitting.steps(task, ready.stages, ready.rates, state))


@pytest.mark.parametrize("declared", [1, 9, 10, 11, 10**6])
@pytest.mark.parametrize("model", ["linear", "mlp", "fm"])
def test_no_declared_number_tells_a_secret_number_of_rows(model, declared):
    """Neighbours of 10 and 11 rows: one path, one charge, one grid, and a difference within its bound."""
    options = {"model": model, "hidden": (3,)} if model == "mlp" else {"model": model}
    (ready, a), (other, b) = (_secret_rows(n, declared, **options) for n in (10, 11))
    assert a.step == b.step
    assert a.sensitivity == b.sensitivity
    assert ready.clip == other.clip
    assert ready.digest == other.digest
    assert ready.request.guarantee(ready.accounting) == other.request.guarantee(other.accounting)
    moved = math.sqrt(sum((int(x) - int(y)) ** 2 for x, y in zip(a.value, b.value, strict=True))) * a.step
    assert 0 < moved <= a.sensitivity


@pytest.mark.parametrize("declared", [10**9, N, 1])
def test_a_fit_goes_on_past_the_declared_rows(declared, tmp_path):
    charged = []
    for n in (N - 1, N):
        book = Ledger.open(
            f"sqlite:///{tmp_path}/{n}.db", dataset="d", epsilon=4, delta=1e-5, adjacency="add_remove_one"
        )
        asked = request(
            adjacency="add_remove_one",
            rows=declared,
            private_bounds=[(0, 2)] * 2,
            recorded=True,
            random_state=None,
        )
        result = fit(None, Z[:n], Y[:n], asked, ledger=book)
        charged.append((result.status, result.guarantee, book.remaining()))
    assert charged[0] == charged[1]


@pytest.mark.parametrize("weighted", [False, True])
def test_gradients_without_a_bound_are_refused_before_the_charge(weighted, ledger):
    """Of private columns, or of weighted rows: weights are secret."""
    options = {"clip": None, "recorded": True, "random_state": None}
    part = {"adjacency": "replace_private_part", "private_bounds": [(0, 2)] * 2}
    asked = request(**options, **({"weight_cap": 1.0} if weighted else part))
    weights = np.ones(N) if weighted else None
    with pytest.raises(ParameterError, match="no public bound"):
        fit(X, None if weighted else Z, Y, asked, sample_weight=weights, ledger=ledger)
    assert ledger.remaining().epsilon == 4
    assert fit(X, None, Y, request(**options, steps=2), ledger=ledger).status is Status.RELEASED


@pytest.mark.parametrize("switch", [None, 0.5, "anneal"])
@pytest.mark.parametrize(
    "options",
    [
        {"clip": None},
        {"clip": "auto"},
        {"model": "mlp", "hidden": (3,), "clip": "auto"},
        {"adjacency": "replace_private_part", "private_bounds": [(0, 2)] * 2},
    ],
)
def test_answers_of_a_run_are_replayed_on_neighbours(options, switch, monkeypatch):
    """Through every stage, at the answers of one table, sums of both lie within the sensitivity."""
    told, kept = [], []

    def drive(generator, answer):
        statistic = next(generator)
        while True:
            kept.append(statistic)
            if len(told) < len(kept):
                told.append(answer(statistic))
            try:
                statistic = generator.send(told[len(kept) - 1])
            except StopIteration as end:
                return end.value

    monkeypatch.setattr(fitting, "drive", drive)
    private = Z if "private_bounds" in options else None
    asked = request(steps=12, switch=switch, optimizer="sgd", epsilon=0.5, **options)
    fit(X, private, Y, asked)
    first = list(kept)
    for row, value in ((0, 1e308), (17, -4.0), (N - 1, math.nan)):
        kept.clear()
        other, part = Y.copy(), None if private is None else Z.copy()
        other[row] = value
        if part is not None:
            part[row] = value
        fit(X, part, other, asked)
        assert len(kept) == len(first) == 12
        for a, b in zip(first, kept, strict=True):
            assert (a.step, a.sensitivity) == (b.step, b.sensitivity)
            gap = [int(x) - int(y) for x, y in zip(a.value, b.value, strict=True)]
            assert math.sqrt(sum(g * g for g in gap)) * a.step <= a.sensitivity
