"""Private labels with a released prior: both releases are seen, and a prior that is not paid for is caught."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import pytest

from confide.audit import claims, price, replay
from confide.audit.finding import Verdict
from confide.audit.views import answers
from confide.mechanisms import seeded_stream
from confide.training.labels import binned, labels, randomized_response

NAMES = ("labels.LabelPrivatizer", "labels.LabelPrivatizer.rr_on_bins")
HOLDERS = (randomized_response, binned)


def named(name):
    (claim,) = (c for c in claims() if c.name == name)
    return claim


def verdicts(claim):
    """Return what each layer of one counter-example says on all pairs; replays vary with the answers."""
    pairs = list(claim.pairs())
    told = [replay.check(claim, pairs, seed=seed) for seed in range(5)]
    broken = any(one.verdict is Verdict.BROKEN for one in told)
    return broken, price.check(claim, pairs).verdict is Verdict.BROKEN


@pytest.mark.parametrize("name", NAMES)
def test_the_transcript_shows_counts_and_labels(name):
    claim = named(name)
    first = next(iter(claim.pairs()))
    told = answers(claim.run, first.here, seeded_stream(0))
    assert [a.mechanism for a in told] == ["laplace_release", "Channel.draw"]
    assert told[0].public[4] == Fraction(1, 2)
    rows = claim.sample(first.here, 3, seeded_stream(0))
    assert rows.shape == (3, told[0].values.size + told[1].values.size)
    assert verdicts(claim) == (False, False)


@pytest.mark.parametrize("name", NAMES)
def test_a_channel_that_takes_all_of_epsilon_beside_the_prior_costs_too_much(name, monkeypatch):
    for module in HOLDERS:
        true = module.split_share
        monkeypatch.setattr(module, "split_share", lambda e, s, true=true: (true(e, s)[0], e))
    assert verdicts(named(name))[1]


@pytest.mark.parametrize("name", NAMES)
def test_a_prior_without_noise_is_caught_by_replay(name, monkeypatch):
    def exact_counts(codes, size, epsilon, stream):
        return labels.count_statistic(codes, size).value.astype(float)

    for module in HOLDERS:
        monkeypatch.setattr(module, "released_counts", exact_counts)
    assert verdicts(named(name))[0]


@pytest.mark.parametrize("name", NAMES)
def test_a_prior_with_half_of_its_noise_is_caught_by_replay(name, monkeypatch):
    true = labels.laplace_release

    def narrow(statistic, epsilon, *, l1_sensitivity, stream):
        return true(statistic, epsilon, l1_sensitivity=l1_sensitivity / 2, stream=stream)

    monkeypatch.setattr(labels, "laplace_release", narrow)
    assert verdicts(named(name))[0]


@pytest.mark.parametrize("name", NAMES)
def test_the_claim_is_about_all_of_epsilon(name):
    less = replace(named(name), epsilon=Fraction(9, 10))
    assert verdicts(less)[1]
