"""Prices: every claim and option is honest, and what spends more than it says is told."""

from contextlib import suppress
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from confide.audit import claims, price
from confide.audit.finding import Verdict
from confide.audit.museum.piece import claim
from confide.audit.options import variants
from confide.audit.registry import Pair
from confide.ledger import charging
from confide.mechanisms import SparseVector, Statistic, choice, grid, sparse_vector
from confide.prediction import budgets
from confide.privacy import Adjacency, Event, Guarantee, gaussian_sigma
from confide.training import least_squares
from confide.training.labels.channel import Channel
from confide.training.sgd import batches, sensitivity

ALL = [made for made in claims() if made.replayed]
PAIR = (Pair("0 against 1", 0, 1),)


def named(name):
    (made,) = (one for one in ALL if one.name == name)
    return made


def first(made):
    return [next(iter(made.pairs()))]


@pytest.mark.parametrize("name", [made.name for made in ALL])
def test_every_claim_and_option_is_honest(name):
    made = named(name)
    found = price.check(made, first(made), variants(made))
    assert found is not None
    assert found.verdict is Verdict.HOLDS, found.note
    assert "epsilon 0 at" not in found.note
    assert "error" not in found.note


def laplace(value, amount, stream, name="value"):
    statistic = Statistic(np.array([value]), 1.0, 1.0, name)
    return grid.laplace_release(statistic, amount, l1_sensitivity=1.0, stream=stream.child(name))


def gaussian(value, multiplier, stream, name="value"):
    return grid.gaussian_release(
        Statistic(np.array([value]), 1.0, 1.0, name), multiplier, stream=stream.child(name)
    )


def guaranteed(epsilon, event, *, adjacency="replace_one", delta=0):
    return Guarantee(epsilon, delta, Adjacency.parse(adjacency), "row", event, ("unrecorded",))


PURE = Event.of("pure", epsilon="1")


def twice(value, stream):
    with charging.charged(None, guaranteed(1, PURE)):
        return np.append(laplace(value, 1, stream), laplace(value, 1, stream, "again"))


def charged_half(value, stream):
    with charging.charged(None, guaranteed(Fraction(1, 2), Event.of("pure", epsilon="1/2"))):
        return laplace(value, 1, stream)


def charged_twice(value, stream):
    for _ in range(2):
        with charging.charged(None, guaranteed(1, PURE)):
            pass
    return laplace(value, 1, stream)


def cheap_event(value, stream):
    with charging.charged(None, guaranteed(1, Event.of("pure", epsilon="1/2"))):
        return laplace(value, 1, stream)


def dear_event(value, stream):
    with charging.charged(None, guaranteed(1, Event.of("pure", epsilon="2"))):
        return laplace(value, 1, stream)


def weaker_relation(value, stream):
    with charging.charged(None, guaranteed(1, PURE, adjacency="replace_label")):
        return laplace(value, 1, stream)


def wrong_guarantee(value, stream):
    told = laplace(value, 1, stream)
    guaranteed(Fraction(1, 2), Event.of("pure", epsilon="1/2"))
    return told


def raises(value, stream):
    laplace(value, 2, stream)
    raise ValueError


def no_delta(value, stream):
    return gaussian(value, 5, stream)


def two_epochs(value, stream):
    for name in "ab":
        SparseVector(5, Fraction(1, 4), Fraction(1, 2), stream=stream.child(name)).above_many([value])
    return np.zeros(1)


@pytest.mark.parametrize(
    ("run", "told"),
    [
        (twice, "the calls cost epsilon 2"),
        (charged_half, "the calls cost epsilon 1 at delta 0, charged is 0.5"),
        (charged_twice, "charges add up to 2"),
        (cheap_event, "the event says less"),
        (dear_event, "the event costs epsilon 2"),
        (weaker_relation, "replace_label"),
        (wrong_guarantee, "charged is 0.5"),
        (no_delta, "the calls cost epsilon inf"),
        (two_epochs, "the calls cost epsilon 1.5"),
        (raises, "the calls cost epsilon 2"),
    ],
)
def test_what_spends_more_than_it_says_is_told(run, told):
    found = price.check(claim("test", 1, 0, "replace_one", PAIR, run), PAIR)
    assert found is not None
    assert found.verdict is Verdict.BROKEN
    assert told in found.note


def fair(value, stream):
    with charging.charged(None, guaranteed(1, Event.of("pure", epsilon="1/2", count=2))):
        return np.append(laplace(value, Fraction(1, 2), stream), laplace(value, 0.5, stream, "again"))


def fair_gaussian(value, stream):
    multiplier = gaussian_sigma(1, 0.001) * 2**0.5
    with charging.charged(
        None, guaranteed(1, Event.of("gaussian", noise_multiplier=multiplier, count=2), delta=0.001)
    ):
        return np.append(gaussian(value, multiplier, stream), gaussian(value, multiplier, stream, "again"))


def one_epoch(value, stream):
    epoch = sparse_vector(1, Fraction(1, 100), stream=stream)
    epoch.above_many([100])
    with suppress(Exception):
        epoch.above_many([value])
    return np.zeros(1)


def a_choice(value, stream):
    return choice.weighted_choice(log_weights=[Fraction(value, 2), Fraction(0)], stream=stream)


def test_a_release_after_sampled_steps_is_not_sampled():
    def run(value, stream):
        next(batches.poisson_batches(3, batches.rate_of(1, 3)[0], stream.child("batch")))
        return gaussian(value, gaussian_sigma(1, 0.001) / 1.5, stream)

    found = price.check(claim("test", 1, 0.001, "replace_one", PAIR, run), PAIR)
    assert found is not None
    assert found.verdict is Verdict.BROKEN


@pytest.mark.parametrize("run", [fair, fair_gaussian, one_epoch, a_choice])
def test_what_spends_what_it_says_holds(run):
    found = price.check(claim("test", 1, 0.001, "replace_one", PAIR, run), PAIR)
    assert found is not None
    assert found.verdict is Verdict.HOLDS, found.note


def test_an_option_is_held_against_its_own_charge():
    made = claim("test", 1, 0.001, "replace_one", PAIR, fair)
    cheap = replace(made, name="test[cheap]", run=charged_half)
    found = price.check(made, PAIR, [replace(made, run=fair_gaussian), cheap])
    assert found is not None
    assert found.verdict is Verdict.BROKEN
    assert found.note.startswith("test[cheap]: ")


# ---- the library, broken ----------------------------------------------------------------------------------


def broken(name):
    found = price.check(named(name), first(named(name)))
    assert found is not None
    assert "error" not in found.note
    return found.verdict is Verdict.BROKEN


def test_half_of_the_noise_of_a_joint_gaussian(monkeypatch):
    monkeypatch.setattr(least_squares, "gaussian_sigma", lambda *a: gaussian_sigma(*a) / 2)
    assert broken("training.adassp.replace_one")


def test_an_event_of_twice_the_noise(monkeypatch):
    right = Event.of

    def of(mechanism, **how):
        how = {key: 2 * value if key == "noise_multiplier" else value for key, value in how.items()}
        return right(mechanism, **how)

    monkeypatch.setattr(least_squares.Event, "of", of)
    assert broken("training.adassp.replace_one")
    assert broken("training.closed_form.spectral")


def test_steps_that_are_accounted_as_one(monkeypatch):
    right = sensitivity.plan

    def plan(*a, steps, **how):
        return replace(right(*a, steps=steps, **how), multiplier=right(*a, steps=1, **how).multiplier)

    monkeypatch.setattr("confide.training.sgd.request.plan", plan)
    assert broken("training.dpsgd.linear")


def test_a_sampled_step_accounted_for_one_row(monkeypatch):
    right = sensitivity.plan

    def plan(*a, **how):
        made = right(*a, **how)
        return replace(made, multiplier=made.multiplier / 2)

    monkeypatch.setattr("confide.training.sgd.request.plan", plan)
    assert broken("training.dpsgd.poisson")


def test_a_prior_that_is_not_paid(monkeypatch):
    right = Channel.of
    monkeypatch.setattr(Channel, "of", classmethod(lambda cls, size, epsilon: right(size, Fraction(1))))
    for name in ("labels.PrivateLabelClassifier", "labels.LabelPrivatizer", "training.hybrid"):
        assert broken(name), name


def test_many_answers_charged_as_one(monkeypatch):
    right = budgets.answers
    monkeypatch.setattr("confide.prediction.model.answers", lambda release, count, delta=0: right(release, 1))
    assert broken("prediction.repeated")
    assert broken("prediction.total")


def test_answers_of_three_times_their_share(monkeypatch):
    right = budgets.per_answer
    monkeypatch.setattr(budgets, "per_answer", lambda *a, **how: 3 * right(*a, **how))
    monkeypatch.setattr(
        "confide.prediction.model.answers",
        lambda release, count, delta=0: replace(budgets.answers(release, count, delta), epsilon=Fraction(1)),
    )
    assert broken("prediction.total")


def test_the_library_does_not_say_what_a_relation_implies(monkeypatch):
    """Held by the audit's own table, whatever the library's is."""
    from confide.privacy import adjacency

    monkeypatch.setattr(adjacency, "_IMPLIED", {key: set(Adjacency) for key in Adjacency})
    told = Guarantee(1, 0, "replace_label", "row", Event.of("pure", epsilon=1))
    assert any("holds under" in what for what in price._dishonest(Adjacency.REPLACE_ONE, price.Spent(told)))
    assert not list(price._dishonest(Adjacency.REPLACE_LABEL, price.Spent(told)))


@pytest.mark.parametrize("name", ["training.objective", "training.objective.gaussian"])
def test_a_plan_of_more_than_was_asked_for_is_seen_without_a_charge(monkeypatch, name):
    from confide.training import objective

    true = objective.make_plan
    monkeypatch.setattr(
        objective, "make_plan", lambda shape, epsilon, *rest, **how: true(shape, 2 * epsilon, *rest, **how)
    )
    plain = [v for v in variants(named(name)) if "quantile .2" in v.name or "ridge 20" in v.name]
    assert len(plain) == 2
    for variant in plain:
        till, _ = price.price(variant, next(iter(variant.pairs())).here, 1)
        assert not till.paid
        assert any("nothing is charged" in what for what in price.dishonest(variant, till))


def test_shortened_rows_at_twice_the_amount_are_seen_without_a_charge(monkeypatch):
    from confide.audit.family import training as members

    (variant,) = (v for v in variants(named("training.semi_sensitive")) if "shortened rows" in v.name)
    here = next(iter(variant.pairs())).here
    assert not list(price.dishonest(variant, price.price(variant, here, 1)[0]))
    true = members.fit_semi_sensitive
    monkeypatch.setattr(
        members, "fit_semi_sensitive", lambda X, private, y, epsilon, *rest, **how: true(
            X, private, y, 1.05 * epsilon, *rest, **how
        ),
    )  # fmt: skip
    assert list(price.dishonest(variant, price.price(variant, here, 1)[0]))
