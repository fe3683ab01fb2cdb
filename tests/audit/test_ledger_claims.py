"""The claim of the ledger: what refuses or charges by the rows is caught."""

from __future__ import annotations

import numpy as np
import pytest

from confide.audit import claims, replay, sides
from confide.audit.finding import Verdict
from confide.audit.promises import ledger as promises
from confide.errors import DataError
from confide.mechanisms import os_stream

(REQUESTS,) = claims("ledger.requests")


@pytest.mark.filterwarnings("ignore")
def test_requests_are_admitted_and_refused_alike():
    pairs = REQUESTS.pairs()
    assert {pair.name for pair in pairs[:4]} == {
        "the gap on one side alone", "a class goes", "missing and beyond", "no class at all",
    }  # fmt: skip
    assert promises._held(pairs[0].here) != promises._held(pairs[0].there)
    told = REQUESTS.run(pairs[0].here, os_stream()).reshape(-1, 3)
    refused = (told[:, 0] != 0).tolist()
    assert refused == [True, True, False, True, False, False, False, True, False, True]
    assert told[-1, 1] == 0
    assert replay.check(REQUESTS, pairs).verdict is Verdict.HOLDS


def refusing_gaps(rows, to):
    """Refuse, before the charge, a table without the gap."""
    if not promises._held(promises.Rows(np.nan_to_num(rows.X), np.nan_to_num(rows.y))):
        raise DataError("The gap condition does not hold.", "Use another mechanism.")


def charging_by_missing_cells(rows, to):
    """Charge more where a cell is missing."""
    promises._certified(rows, to, "1/2" if np.isnan(rows.X).any() else "1/4")


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("broken", [refusing_gaps, charging_by_missing_cells])
def test_a_request_that_looks_at_the_rows_is_caught(monkeypatch, broken):
    monkeypatch.setattr(promises, "_REQUESTS", (*promises._REQUESTS[:3], broken))
    found = replay.check(REQUESTS, REQUESTS.pairs()[:3])
    assert found.verdict is Verdict.BROKEN
    if broken is charging_by_missing_cells:
        assert sides.check(REQUESTS, REQUESTS.pairs()[:3]).verdict is Verdict.BROKEN
