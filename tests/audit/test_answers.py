"""Releases of answers at other amounts: they hold, and what is wrong at one of them alone is caught."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from confide.audit import answers, claims, exact
from confide.audit.finding import Finding, Verdict
from confide.audit.run import LAYERS, Effort
from confide.mechanisms import above_threshold, seeded_stream
from confide.prediction import ptr, response, smooth, vector

NAMES = sorted(answers.RELEASES)


def of(name):
    return next(claim for claim in claims("prediction") if claim.name == name)


def found(name, layer, seed=0):
    stream = seeded_stream(seed).child(name)
    return LAYERS[layer](of(name), Effort(False, 1e-6, stream, 0))


@pytest.mark.parametrize("name", NAMES)
def test_other_amounts_hold(name):
    claim = of(name)
    own = exact.check(claim, claim.pairs(), search=False)
    told = answers.exactly(claim, own)
    assert told.verdict is Verdict.HOLDS, told.note
    assert told.tried > own.tried
    assert found(name, "law of draws").p_value > 1e-5


@pytest.mark.parametrize("name", NAMES)
def test_amounts_are_small_and_large_and_laws_are_complete(name):
    others = answers.amounts(of(name))
    least = {Fraction(1, 1 << 50)} if name == "prediction.ptr.3" else set()
    assert {other.epsilon for other in others} == {Fraction(1, 10), 8} | least
    taken = {Fraction(1, 10**6), Fraction(1, 10**12)} if answers.RELEASES[name][2] else {0}
    assert {other.delta for other in others} == taken
    for other in others:
        for pair in list(other.pairs())[:3]:
            low, high = (sum(p[i] for p in other.law(pair.here).values()) for i in (0, 1))
            assert low <= 1 <= high
            assert high - low < 1e-7


def test_claims_of_other_things_have_no_amounts():
    assert answers.amounts(of("prediction.erm")) == ()
    assert answers.exactly(of("prediction.erm"), None) is None
    assert answers.drawn(of("prediction.erm"), None, 10, seeded_stream(0)) is None


def kept_by(make, *places):
    """Return a table that is kept by some of its arguments alone: the first one stays."""
    kept = {}

    def table(*given):
        key = tuple(given[place] for place in places)
        return kept.setdefault(key, make(*given))

    return table


@pytest.mark.parametrize(
    ("name", "module", "table", "places"),
    [
        ("prediction.response.3", response, "_table", (0, 1, 3, 4)),  # without delta
        ("prediction.response.2", response, "_table", (1, 2, 3, 4)),  # without epsilon
        ("prediction.response.2", response, "_table", (0, 2, 3, 4)),  # without the number of classes
        ("prediction.global.5", response, "_table", (1, 2, 3, 4)),
        ("prediction.ptr.3", ptr, "_release", (0, 2)),
        ("prediction.ptr.3", ptr, "_release", (1, 2)),
        ("prediction.laplace.2", smooth, "_laplace", (0,)),
        ("prediction.laplace.2", smooth, "_laplace", (1,)),
        ("prediction.cauchy.2", smooth, "_cauchy", ()),
    ],
)
def test_a_table_that_is_kept_by_too_little_is_caught(monkeypatch, name, module, table, places):
    monkeypatch.setattr(module, table, kept_by(getattr(module, table), *places))
    assert found(name, "exact").verdict is Verdict.BROKEN


def test_a_threshold_that_is_kept_under_the_delta_that_was_asked_for_is_caught(monkeypatch):
    """It says what was asked for, and answers of any class hide it at an epsilon of 0.1."""
    kept = kept_by(ptr._release, 0, 2)
    monkeypatch.setattr(ptr, "_release", lambda *given: replace(kept(*given), delta=given[1]))
    told = found("prediction.ptr.3", "exact")
    assert told.verdict is Verdict.BROKEN
    assert told.note.endswith("classes differ costs more")


@pytest.mark.parametrize("least", [Fraction(1, 10**9), Fraction(1, 10**5)])
def test_a_threshold_of_a_larger_delta_than_it_says_is_caught(monkeypatch, least):
    plain = ptr._release

    def larger(epsilon, delta, classes):
        return replace(plain(epsilon, max(delta, least), classes), delta=delta)

    monkeypatch.setattr(ptr, "_release", larger)
    assert found("prediction.ptr.3", "exact").verdict is Verdict.BROKEN


def test_a_threshold_that_is_kept_without_delta_is_caught(monkeypatch):
    kept = kept_by(above_threshold.stable_threshold, 1, 2)
    monkeypatch.setattr(vector, "stable_threshold", kept)
    assert found("prediction.sparse_vector", "exact").verdict is Verdict.BROKEN


@pytest.mark.parametrize("least", [Fraction(1, 10**9), Fraction(1, 10**5)])
@pytest.mark.parametrize(
    ("name", "module", "make", "place"),
    [
        ("prediction.response.3", response, "_table", 2),
        ("prediction.laplace.2", smooth, "_laplace", 1),
        ("prediction.ptr.3", ptr, "_release", 1),
        ("prediction.sparse_vector", vector, "stable_threshold", 0),
    ],
)
def test_small_deltas_that_are_taken_for_larger_ones_are_caught(
    monkeypatch, name, module, make, place, least
):
    plain = getattr(module, make)

    def larger(*given):
        given = list(given)
        given[place] = max(given[place], least) if given[place] else given[place]
        return plain(*given)

    monkeypatch.setattr(module, make, larger)
    assert found(name, "exact").verdict is Verdict.BROKEN


@pytest.mark.parametrize("name", [name for name in NAMES if "response" in name or "global" in name])
@pytest.mark.parametrize(
    "wrong", [lambda e: 2 * e if e > 4 else e, lambda e: e if e > Fraction(1, 2) else 2 * e]
)
def test_a_growth_that_is_wrong_at_one_amount_is_caught(monkeypatch, name, wrong):
    for module in (response, smooth):
        plain = module.inverse_growth
        monkeypatch.setattr(module, "inverse_growth", lambda e, bits, plain=plain: plain(wrong(e), bits))
    for table in (response._table, smooth._cauchy, smooth._laplace):
        table.cache_clear()
    try:
        told = found(name, "exact")
    finally:
        for table in (response._table, smooth._cauchy, smooth._laplace):
            table.cache_clear()
    assert told.verdict is Verdict.BROKEN


def test_a_release_that_says_another_amount_is_caught(monkeypatch):
    monkeypatch.setattr(ptr.ProposeTestRelease, "event", property(lambda self: vector.Event.of(
        "propose_test_release", epsilon="1/10", delta=str(self.delta), classes=self.classes)))  # fmt: skip
    told = found("prediction.ptr.3", "exact")
    assert told.verdict is Verdict.BROKEN
    assert "another epsilon" in told.note


@pytest.mark.parametrize("wrong", [lambda scale: min(scale, 5), lambda scale: max(scale, Fraction(1, 4))])
def test_noise_of_another_scale_at_one_amount_is_caught(monkeypatch, wrong):
    plain = ptr.discrete_laplace
    monkeypatch.setattr(ptr, "discrete_laplace", lambda scale, *a, **how: plain(wrong(scale), *a, **how))
    assert found("prediction.ptr.3", "law of draws").p_value < 1e-9


@pytest.mark.parametrize("wrong", [lambda scale: min(scale, 5), lambda scale: max(scale, Fraction(4, 5))])
def test_noise_of_an_epoch_of_another_scale_is_caught(monkeypatch, wrong):
    plain = above_threshold.discrete_laplace
    monkeypatch.setattr(
        above_threshold, "discrete_laplace", lambda scale, *a, **how: plain(wrong(scale), *a, **how)
    )
    assert found("prediction.sparse_vector", "law of draws").p_value < 1e-9


def test_the_p_value_of_draws_counts_all_amounts(monkeypatch):
    values = iter([0.5, 1e-8, 0.2, 0.1, 0.4, 0.6])
    monkeypatch.setattr(
        answers.blackbox, "fit",
        lambda claim, *_: Finding(claim.name, "law of draws", Verdict.HOLDS, p_value=next(values)),
    )  # fmt: skip
    own = Finding("prediction.ptr.3", "law of draws", Verdict.HOLDS, p_value=0.3)
    assert np.isclose(answers.drawn(of("prediction.ptr.3"), own, 10, seeded_stream(0)).p_value, 7e-8)
