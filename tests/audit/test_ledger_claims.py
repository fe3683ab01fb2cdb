"""Claims of the ledger and the service: what refuses by the rows, and what answers for free, is caught."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from confide.audit import blackbox, claims, replay, sides
from confide.audit.finding import Verdict
from confide.audit.promises import ledger as promises
from confide.errors import DataError
from confide.mechanisms import os_stream

(REQUESTS,) = claims("ledger.requests")
(ANSWERS,) = claims("service.answers")


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


def attacked(count):
    return blackbox.check(ANSWERS, ANSWERS.pairs()[0], count, os_stream(), full=False, error=1e-6)


def test_answers_of_a_service_are_told_again():
    told = ANSWERS.sample(ANSWERS.pairs()[0].here, 50, os_stream())
    np.testing.assert_array_equal(told[:, 0], told[:, 1])
    np.testing.assert_array_equal(told[:, 0], told[:, 2])
    assert np.unique(told[:, 0]).size > 1
    np.testing.assert_array_equal(told[:, 3], 1)  # paid of the total
    assert (told[:, 4] > 0).all()  # refused


def test_a_service_that_draws_again_for_another_analyst_is_caught(monkeypatch):
    from confide.service.canonical import Names

    assert attacked(5_000).p_value > 1e-4
    named = Names.queries

    def apart(self, rows, analyst):
        self._apart = True
        return named(self, rows, analyst)

    monkeypatch.setattr(Names, "queries", apart)
    assert attacked(5_000).p_value < 1e-6


def test_more_answers_than_were_paid_have_no_place_in_the_claim():
    less = replace(ANSWERS, epsilon=ANSWERS.epsilon / 4)
    found = blackbox.check(less, less.pairs()[0], 2_000, os_stream(), full=False, error=1e-6)
    assert found.p_value < 1e-6
