"""Claims of select-then-fit and of accounts: their outputs have the law of runs, and tell what is broken."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest

from confide.audit import blackbox, claims
from confide.audit.promises import pipeline
from confide.mechanisms import os_stream, seeded_stream
from confide.pipeline import SparseRegressor

ERROR = 1e-6


def claim_of(name):
    (found,) = (claim for claim in claims(name) if claim.name == name)
    return found


def attacked(claim, count, seed=0):
    pair = next(iter(claim.pairs()))
    return blackbox.check(claim, pair, count, seeded_stream(seed), full=False, error=ERROR)


def test_supports_drawn_at_once_have_the_law_of_runs():
    claim = claim_of("pipeline.SparseRegressor.moments")
    table, stream = next(iter(claim.pairs())).here, seeded_stream(0)
    told = claim.sample(table, 2000, stream)
    assert told.shape == (2000, 1 + 5)
    runs = np.array([claim.run(table, stream.child(f"run {i}")) for i in range(400)])
    first = np.mean(told[:, 0] == 0), np.mean(runs[:, 0] != 0)
    assert abs(first[0] - first[1]) < 4 * math.sqrt(0.25 / 400)


def test_a_run_of_other_steps_is_no_select_then_fit():
    claim = claim_of("tune.tune")
    with pytest.raises(ValueError, match="no draw of a support"):
        pipeline.by_support(claim.run)(next(iter(claim.pairs())).here, 2, seeded_stream(0))


def test_select_then_fit_is_measured():
    found = attacked(claim_of("pipeline.SparseRegressor.moments"), 20_000)
    assert found.measured > 0.15
    assert found.p_value > 1e-3


def test_select_then_fit_at_four_times_its_epsilon_is_convicted():
    claim = claim_of("pipeline.SparseRegressor.moments")
    options = {"coefficient_loss": "squared", "feature_bounds": (-1, 1), "target_bounds": (-1, 1)}
    run = pipeline._sparse(lambda seed: SparseRegressor(1, 6, 0, **options, random_state=seed))
    broken = dataclasses.replace(claim, run=run, outputs=pipeline.by_support(run))
    assert attacked(broken, 10_000).p_value < ERROR


def test_an_account_is_measured_and_an_account_that_books_half_is_convicted(monkeypatch):
    claim = claim_of("prediction.account")
    pair = next(iter(claim.pairs()))
    np.testing.assert_array_equal(np.abs(claim.sample(pair.here, 3, os_stream())), [[1, 0, 1, 0, 1, 0]] * 3)
    found = attacked(claim, 10_000)
    assert found.measured > 0.6
    assert found.p_value > 1e-4

    from confide.ledger import charging

    charged = charging.charged

    def half(ledger, guarantee, **named):
        return charged(ledger, dataclasses.replace(guarantee, epsilon=guarantee.epsilon / 2), **named)

    monkeypatch.setattr(charging, "charged", half)
    assert attacked(claim, claim.quick).p_value < 1e-5
