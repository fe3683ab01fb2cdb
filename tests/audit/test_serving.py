"""Claims of what a service keeps: they hold, and each way in which an epoch or a total may go wrong is caught."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from confide.audit import blackbox, claims, poison
from confide.audit.finding import Verdict
from confide.audit.promises import serving
from confide.audit.run import LAYERS, Effort
from confide.mechanisms import above_threshold, os_stream, seeded_stream
from confide.mechanisms.above_threshold import SparseVector
from confide.prediction import CertifiedModel, StableAnswers, budgets, front, model, persons
from confide.prediction.intervals.batches import HashedBatches
from confide.prediction.intervals.certificate import CertifiedNetwork
from confide.privacy import exact

RESTORED, SERVING = "prediction.restored_epochs", "prediction.serving"


def of(name):
    return next(claim for claim in claims("prediction") if claim.name == name)


def p_value(name, stream=None):
    """Return that of draws against the law in a quick audit."""
    forget()
    try:
        effort = Effort(False, 1e-6, stream or os_stream(), 0)
        return LAYERS["law of draws"](of(name), effort).p_value
    finally:
        forget()


def forget():
    serving._totals.cache_clear()
    serving._known.cache_clear()


@pytest.mark.parametrize("stream", [None, seeded_stream(1)])
@pytest.mark.parametrize("name", [RESTORED, SERVING])
def test_what_is_kept_holds(name, stream):
    assert p_value(name, stream) > 1e-6
    assert LAYERS["exact"](of(name), Effort(False, 1e-6, os_stream(), 0)).verdict is Verdict.HOLDS


def test_the_law_of_two_epochs_is_complete():
    low, high = (sum(p[i] for p in serving._restored_law((15, 16, 14)).values()) for i in (0, 1))
    assert low <= 1 <= high
    assert math.isclose(low, high, abs_tol=1e-9)


def test_more_is_told_of_more_answers_alone():
    """Two answers by hand: losses 2 e, 0 and -2 e of a coin of e^e to 1."""
    p = math.e / (1 + math.e)
    inside = p * p * -math.expm1(0.5 - 2)
    assert serving._more(1, 0, 2, 0.5, inside * 0.999)
    assert not serving._more(1, 0, 2, 0.5, inside * 1.001)
    told = 1 - 0.99**2 * (1 - inside)
    assert serving._more(1, 0.01, 2, 0.5, told * 0.999)
    assert not serving._more(1, 0.01, 2, 0.5, told * 1.001)


def reopened(monkeypatch):
    read = SparseVector.from_bytes.__func__

    def opened(cls, data, *, stream=None):
        epoch = read(cls, data, stream=stream)
        epoch._open = True
        return epoch

    monkeypatch.setattr(SparseVector, "from_bytes", classmethod(opened))


def redrawn(monkeypatch):
    read = SparseVector.from_bytes.__func__

    def drawn(cls, data, *, stream=None):
        epoch = read(cls, data, stream=stream)
        epoch._rho = SparseVector(epoch.threshold, epoch._e1, epoch._e2, stream=stream)._rho
        return epoch

    monkeypatch.setattr(SparseVector, "from_bytes", classmethod(drawn))


def redrawn_at_each_call(monkeypatch):
    above = SparseVector.above_many

    def drawn(self, queries):
        if self._answered > 20:
            self._rho = SparseVector(self.threshold, self._e1, self._e2, stream=self._stream)._rho
        return above(self, queries)

    monkeypatch.setattr(SparseVector, "above_many", drawn)


def silent_after_twenty(monkeypatch):
    plain, answered = above_threshold.discrete_laplace, {"now": 0}
    above = SparseVector.above_many

    def counted(self, queries):
        answered["now"] = self._answered
        return above(self, queries)

    def silent(scale, size, **how):
        noise = plain(scale, size, **how)
        return (
            noise * (answered["now"] < 20) if size < 10 and scale == 2 / serving.split_epoch(1)[1] else noise
        )

    monkeypatch.setattr(above_threshold, "discrete_laplace", silent)
    monkeypatch.setattr(SparseVector, "above_many", counted)


def one_threshold_for_all_epochs(monkeypatch):
    ready = StableAnswers._ready

    def same(self, some):
        before = self._epoch
        went_on = ready(self, some)
        if before is not None and self._epoch is not before:
            self._epoch._rho = before._rho
        return went_on

    monkeypatch.setattr(StableAnswers, "_ready", same)


def later_epochs_for_nothing(monkeypatch):
    ready = StableAnswers._ready

    def free(self, some):
        charge, self._charge = self._charge, (self._charge if self._opened < 3 else lambda event: None)
        try:
            return ready(self, some)
        finally:
            self._charge = charge

    monkeypatch.setattr(StableAnswers, "_ready", free)


def charged_when_read(monkeypatch):
    resume = StableAnswers.resume

    def paid(self, state):
        resume(self, state)
        if state:
            self._charge(self.event)

    monkeypatch.setattr(StableAnswers, "resume", paid)


def answers_after_the_end(monkeypatch):
    above = SparseVector.above_many

    def on(self, queries):
        told = above(self, queries)
        self._open = True
        return told

    monkeypatch.setattr(SparseVector, "above_many", on)


def kept_without_slack(monkeypatch):
    split, kept = budgets.split, {}
    monkeypatch.setattr(
        budgets, "_split", lambda e, slack, count: kept.setdefault((e, count), split(e, slack, count))
    )


def kept_without_count(monkeypatch):
    split, kept = budgets.split, {}
    monkeypatch.setattr(
        budgets, "_split", lambda e, slack, count: kept.setdefault((e, slack), split(e, slack, count))
    )


def a_hundred_at_most(monkeypatch):
    plain = budgets.compose
    monkeypatch.setattr(budgets, "compose", lambda each, count, slack: plain(each, min(count, 99), slack))


def deltas_of_one(monkeypatch):
    monkeypatch.setattr(budgets, "_total_delta", lambda each, count, slack: each)


def hashed_batches_under_replacement(monkeypatch):
    monkeypatch.setattr(HashedBatches, "check", lambda self, relation, rows=None: None)


def rows_of_a_person_that_count_by_labels(monkeypatch):
    kept, fit, held = persons.kept, persons.Persons.fit, []

    def fitted(self, X, y, *, ids=None):
        held[:] = [np.asarray(y)]
        return fit(self, X, y, ids=ids)

    def by_labels(rows, names, most, key):
        return kept(np.column_stack([rows, held[0]]), names, most, key)

    monkeypatch.setattr(persons.Persons, "fit", fitted)
    monkeypatch.setattr(persons, "kept", by_labels)


def rows_of_a_person_in_a_batch_rounded_down(monkeypatch):
    monkeypatch.setattr(
        persons, "_in_one_batch", lambda batches, rows: max(1, rows // getattr(batches, "count", 1))
    )


def tables_of_persons_that_count_rows(monkeypatch):
    monkeypatch.setattr(front, "_fit", lambda table, recipe, certificate, X, y: certificate.fit(X, y))


def totals_split_by_fewer(monkeypatch):
    plain = budgets.split
    monkeypatch.setattr(budgets, "_split", lambda e, slack, count: plain(e, slack, min(count, 100)))


def as_many_epochs_as_are_needed(monkeypatch):
    plain = model._by_epochs
    monkeypatch.setattr(
        model, "_by_epochs", lambda labels, k, e, d, classes, epochs, source: plain(
            labels, k, e, d, classes, labels.size, source)
    )  # fmt: skip


def epochs_of_another_delta(monkeypatch):
    plain = model._by_epochs
    monkeypatch.setattr(
        model, "_by_epochs", lambda labels, k, e, d, *rest: plain(labels, k, e, max(d, serving._DELTA), *rest)
    )


def epochs_whose_deltas_are_one(monkeypatch):
    plain = CertifiedModel._epochs

    def once(self, epsilon, delta, slack, epochs):
        told, own = plain(self, epsilon, delta, slack, epochs), exact(delta)
        return replace(told, delta=own + exact(slack) * (1 - own))

    monkeypatch.setattr(CertifiedModel, "_epochs", once)


@pytest.mark.parametrize(
    "wrong",
    [
        tables_of_persons_that_count_rows, as_many_epochs_as_are_needed, epochs_of_another_delta, epochs_whose_deltas_are_one, reopened, redrawn, redrawn_at_each_call, one_threshold_for_all_epochs, answers_after_the_end,
        later_epochs_for_nothing, charged_when_read, kept_without_slack, kept_without_count,
        a_hundred_at_most, deltas_of_one, totals_split_by_fewer, hashed_batches_under_replacement,
        rows_of_a_person_that_count_by_labels, rows_of_a_person_in_a_batch_rounded_down,
    ],
)  # fmt: skip
def test_what_is_kept_or_summed_otherwise_is_caught(monkeypatch, wrong):
    wrong(monkeypatch)
    assert p_value(SERVING) < 1e-12


@pytest.mark.parametrize("wrong", [as_many_epochs_as_are_needed, epochs_whose_deltas_are_one])
def test_epochs_that_cost_more_than_is_charged_are_caught(monkeypatch, wrong):
    claim = of("prediction.total")
    wrong(monkeypatch)
    found = LAYERS["price"](claim, Effort(False, 1e-6, os_stream(), 0))
    assert found.verdict is Verdict.BROKEN
    assert "[3 epochs]" in found.note


def test_noise_that_ends_with_the_twentieth_answer_is_caught(monkeypatch):
    silent_after_twenty(monkeypatch)
    assert p_value(RESTORED) < 1e-9


@pytest.mark.slow
@pytest.mark.parametrize("wrong", [redrawn, redrawn_at_each_call, one_threshold_for_all_epochs])
def test_an_epoch_of_another_law_is_caught(monkeypatch, wrong):
    wrong(monkeypatch)
    claim = of(RESTORED)
    assert blackbox.fit(claim, claim.pairs()[0], 10_000, os_stream()).p_value < 1e-9


def test_a_search_of_levels_that_ends_early_is_caught(monkeypatch):
    """By `steady`, which a service asks: four steps where seven are needed."""
    steady = CertifiedNetwork.steady

    def early(self, X):
        labels, k = steady(self, X)
        return labels, k & ~7 if self.certificate.k_max > 15 and self.intervals is None else k

    assert poison.attack(of("prediction.interval"), budget=24).verdict is Verdict.HOLDS
    monkeypatch.setattr(CertifiedNetwork, "steady", early)
    assert "levels in turn" in poison.attack(of("prediction.interval"), budget=24).note


def test_deep_networks_whose_levels_are_one_too_many_are_caught(monkeypatch):
    steady = CertifiedNetwork.steady

    def deep(self, X):
        labels, k = steady(self, X)
        return labels, k + (len(self.certificate.plan.network.layers) > 5)

    monkeypatch.setattr(CertifiedNetwork, "steady", deep)
    assert "five layers" in poison.attack(of("prediction.interval"), budget=24).note


def test_a_law_that_a_model_keeps_without_delta_is_caught(monkeypatch):
    plain, kept = model.release_of, {}
    claim = of("prediction.total")
    assert LAYERS["price"](claim, Effort(False, 1e-6, os_stream(), 0)).verdict is Verdict.HOLDS

    def without_delta(name, epsilon, classes, delta=0):
        return kept.setdefault((name, epsilon, classes), plain(name, epsilon, classes, delta))

    # What is charged is right, what is drawn is not.
    monkeypatch.setattr(model, "release_of", without_delta)
    preview = model.CertifiedModel.preview

    def right(self, *args, **how):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(model, "release_of", plain)
            return preview(self, *args, **how)

    monkeypatch.setattr(model.CertifiedModel, "preview", right)
    found = LAYERS["price"](claim, Effort(False, 1e-6, os_stream(), 0))
    assert found.verdict is Verdict.BROKEN
    assert "less delta after more" in found.note
