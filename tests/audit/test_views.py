"""Views of a run: its answers, and one release repeated alone with the law of many runs."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import ks_2samp

from confide.audit import claims
from confide.audit.onerun import extremes
from confide.audit.views import answers, redrawn, transcript
from confide.mechanisms import Statistic, grid, seeded_stream

ONE_RELEASE = (
    "training.closed_form.identity", "training.closed_form.classes", "training.adassp.replace_one",
    "training.noisy_statistics.add_remove_one", "training.randomized_response", "labels.WeightedLLPRegressor",
)  # fmt: skip


def claim_of(name):
    (claim,) = (claim for claim in claims(name) if claim.name == name)
    return claim


@pytest.mark.parametrize("name", ONE_RELEASE)
def test_copies_of_a_release_have_the_law_of_runs(name):
    claim = claim_of(name)
    for table in (next(iter(claim.pairs())).here, next(iter(claim.pairs())).there):
        many = redrawn(claim.run)(table, 20_000, seeded_stream(1))
        runs = transcript(claim.run, result=False)(table, 120, seeded_stream(2))
        assert many.shape[1] == runs.shape[1]
        worst = min(ks_2samp(many[:, j], runs[:, j]).pvalue for j in range(runs.shape[1]))
        assert worst > 1e-4 / runs.shape[1]
        correlated = np.corrcoef(many[:-1].T, many[1:].T)[: runs.shape[1], runs.shape[1] :]
        assert np.nanmax(np.abs(correlated)) < 0.05  # copies are independent of each other


def test_copies_are_refused_where_the_lemma_does_not_hold():
    two = claim_of("training.boosted_adassp.replace_one")
    with pytest.raises(ValueError, match="releases"):
        redrawn(two.run)(next(iter(two.pairs())).here, 10, seeded_stream(0))

    def moving(table, stream):
        drawn = int(stream.bits(1)[0] >> np.uint64(32))
        told = Statistic(np.array([drawn]), 1.0, 1.0, "moving")
        return grid.laplace_release(told, 1, l1_sensitivity=1, stream=stream.child("noise"))

    with pytest.raises(ValueError, match="differs"):
        redrawn(moving)(None, 10, seeded_stream(3))

    def spread(table, stream):
        return grid.laplace_release(Statistic(np.zeros(2, dtype=np.int64), 1.0, 1.0, "n"), 1, stream=stream)

    with pytest.raises(ValueError, match="number of copies"):
        redrawn(spread)(None, 10, seeded_stream(4))


def test_answers_are_those_of_the_run():
    claim = claim_of("training.dpsgd.linear")
    table = next(iter(claim.pairs())).here
    told = answers(claim.run, table, seeded_stream(5).child("0"))
    assert [a.mechanism for a in told] == ["step_answer"] * 4
    assert all(a.deviation > 0 for a in told)
    row = transcript(claim.run)(table, 1, seeded_stream(5))[0]
    np.testing.assert_array_equal(row[:-4], np.concatenate([a.values for a in told]))


def test_only_extreme_scores_are_guessed():
    np.testing.assert_array_equal(extremes(np.array([0.1, -3.0, 2.0, 0.0]), 1), [0, -1, 1, 0])
