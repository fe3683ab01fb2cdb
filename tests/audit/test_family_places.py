"""Rows whose predictions a matrix product would round by their number: replay sees it, and nothing else."""

from __future__ import annotations

import numpy as np
import pytest

from confide.audit import claims, family
from confide.audit.family import places
from confide.audit.finding import Verdict
from confide.training import boosting
from confide.training.engines import parts

from .members import faults, verdicts

MEMBERS = {
    name: next(
        v for v in family.variants(next(c for c in claims(name) if c.name == name)) if "a last bit" in v.name
    )
    for name in ("training.boosted_adassp.add_remove_one", "tune.tune")
}
#: What a product of this library rounds, by its number of rows.
ROUNDED = {"training.boosted_adassp.add_remove_one": places._round, "tune.tune": places._score}


@pytest.mark.parametrize("name", MEMBERS)
def test_a_member_holds_and_one_row_moves_all_that_it_may(name):
    told, priced = verdicts(MEMBERS[name])
    assert told.verdict is priced.verdict is Verdict.HOLDS
    assert 0.999 < told.moved <= 1


@pytest.mark.parametrize("name", MEMBERS)
def test_a_matrix_product_is_seen(name, monkeypatch):
    if np.count_nonzero(ROUNDED[name]()[1].here.y) < places._ENOUGH:
        pytest.skip("products of this library do not differ")
    for module in (boosting, parts):
        monkeypatch.setattr(module, "row_products", lambda rows, weights: rows @ weights)
    assert any("moves by" in fault for fault in faults(MEMBERS[name]))


@pytest.mark.parametrize("name", ROUNDED)
def test_neighbours_differ_in_one_row(name):
    _, pair = ROUNDED[name]()
    np.testing.assert_array_equal(pair.there.X[:-1], pair.here.X)
    np.testing.assert_array_equal(pair.there.y[:-1], pair.here.y)
