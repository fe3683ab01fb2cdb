"""Prices from below: against closed forms, exact sums and an accountant from elsewhere, never above them."""

import math

import numpy as np
import pytest
from scipy.stats import binom

from confide.audit import losses
from confide.audit.losses import approximate, gaussian, of_event, pure, sampled
from confide.privacy import Event, gaussian_epsilon


def accounting():
    from dp_accounting.pld import privacy_loss_distribution

    return privacy_loss_distribution


def test_one_gaussian_is_the_closed_form():
    for sigma, delta in ((0.7, 1e-5), (2.0, 1e-3), (11.0, 1e-9), (1.0, 1e-15)):
        told = losses.epsilon([gaussian(sigma)], delta)
        assert told <= gaussian_epsilon(sigma, delta) * (1 + 1e-9)
        assert told == pytest.approx(gaussian_epsilon(sigma, delta), rel=1e-6)


def test_gaussian_noise_of_nothing_hides_nothing():
    assert losses.delta([gaussian(0), pure(1)], 8.0) == 1
    assert losses.exceeds([gaussian(0), pure(1)], 8.0, 1e-12)


@pytest.mark.parametrize("slack", [1e-9, 1e-11, 1e-12, 1e-14])
@pytest.mark.parametrize(("multiplier", "probability", "count"), [(1.0, 0.1, 16), (2.0, 0.3, 60)])
def test_a_small_delta_of_samples_is_decided_to_a_hundredth_of_the_noise(
    multiplier, probability, count, slack
):
    upper = accounting().from_gaussian_mechanism(
        multiplier, sampling_prob=probability, value_discretization_interval=1e-4
    )
    # The sum of rounded transforms may be off beside so small a delta: its own room is added.
    told = upper.self_compose(count, tail_mass_truncation=1e-18).get_epsilon_for_delta(
        max(slack - 1e-14, slack / 2)
    )

    def exceeds(share):
        steps = [sampled(share * multiplier, probability, added=True)] * count
        return losses.exceeds(steps, told, slack)

    assert (exceeds(1.0), exceeds(0.97)) == (False, True)


def test_small_deltas_of_answers_are_binomial_sums():
    count, each = 50, 0.25
    heads = np.arange(count + 1)
    p, q = (binom.pmf(heads, count, x / (1 + math.exp(each))) for x in (math.exp(each), 1.0))
    for epsilon in (11.75, 12.0):
        right = np.maximum(0, p - math.exp(epsilon) * q).sum()
        assert right < losses.ERROR
        assert not losses.exceeds([pure(each)] * count, epsilon, right)
        assert losses.exceeds([pure(each)] * count, epsilon, right * 0.5)
        assert not losses.exceeds([pure(each)] * count, count * each, 1e-300)


def test_gaussians_add_up_in_squares():
    assert losses.epsilon([gaussian(2.0)] * 4, 1e-3) == losses.epsilon([gaussian(1.0)], 1e-3)


def test_pure_epsilons_add_up_without_delta():
    assert losses.epsilon([pure(0.25)] * 3 + [pure(1)], 0.0) == 1.75
    assert losses.epsilon([pure(0.25), gaussian(5)], 0.0) == math.inf
    assert losses.delta([pure(0.5)] * 2, 1.0) == 0.0


def test_many_answers_are_a_binomial_sum():
    count, each = 50, 0.0754
    heads = np.arange(count + 1)
    p, q = (binom.pmf(heads, count, x / (1 + math.exp(each))) for x in (math.exp(each), 1.0))
    for epsilon in (0.25, 0.5, 1.0):
        right = np.maximum(0, p - math.exp(epsilon) * q).sum()
        told = losses.delta([pure(each)] * count, epsilon)
        assert told <= right + losses.ERROR
        assert told == pytest.approx(right, rel=0.1)


def test_what_is_told_outright_stays():
    told = losses.delta([approximate(1, 0.01)] * 3, 3.0)
    assert told == pytest.approx(1 - 0.99**3, abs=1e-9)
    assert losses.epsilon([approximate(1, 0.01)], 0.001) == math.inf


def sampled_steps(multiplier, probability, count, relation="REPLACE_ONE"):
    """Return sampled Gaussian steps by dp-accounting; its multiplier is of one row."""
    from dp_accounting.privacy_accountant import NeighboringRelation

    single = accounting().from_gaussian_mechanism(
        multiplier,
        value_discretization_interval=1e-4,
        sampling_prob=probability,
        neighboring_relation=NeighboringRelation[relation],
    )
    return single.self_compose(count)


@pytest.mark.parametrize("added", [True, False])
def test_sampled_steps_are_below_an_accountant_and_near_it(added):
    steps = sampled_steps(1.5, 0.3, 5, "ADD_OR_REMOVE_ONE" if added else "REPLACE_ONE")
    multiplier = 1.5 if added else 0.75  # theirs is of one row; a replaced one moves twice as far
    costs = [sampled(multiplier, 0.3, added=added)] * 5
    for epsilon in (0.5, 1.0, 2.0):
        upper = steps.get_delta_for_epsilon(epsilon)
        told = losses.delta(costs, epsilon)
        assert told <= upper
        assert told == pytest.approx(upper, rel=0.02)


def test_mixed_costs_are_below_an_accountant_and_near_it():
    distribution = accounting()
    upper = distribution.from_gaussian_mechanism(3.0, value_discretization_interval=1e-4).compose(
        distribution.from_randomized_response(2 / (1 + math.exp(0.4)), 2, value_discretization_interval=1e-4),
    )
    for epsilon in (0.4, 1.0):
        told = losses.delta([gaussian(3.0), pure(0.4)], epsilon)
        assert told <= upper.get_delta_for_epsilon(epsilon)
        assert told == pytest.approx(upper.get_delta_for_epsilon(epsilon), rel=0.02)


def test_no_cost_is_none():
    assert losses.delta([], 0.5) == 0.0
    assert losses.epsilon([], 1e-3) == 0.0
    assert losses.epsilon([gaussian(math.inf), pure(0)], 0.0) == 0.0


def test_no_noise_costs_everything():
    assert losses.delta([gaussian(0)], 5.0) == 1.0
    assert losses.epsilon([gaussian(0)], 1e-3) == math.inf
    assert losses.epsilon([pure(100)], 1e-3) == math.inf


EVENTS = (
    (Event.of("gaussian", noise_multiplier=2.0), (gaussian(2.0),)),
    (Event.of("laplace", epsilon="1/2", count=3), (pure(0.5),) * 3),
    (Event.of("response", epsilon="1/2", delta="1/100"), (approximate(0.5, 0.01),)),
    (Event.of("gaussian", noise_multiplier=2.0).group(3), (gaussian(2 / 3),)),
    (Event.sequence([Event.of("pure", epsilon="1"), Event.of("pure", epsilon="2")]), (pure(1), pure(2))),
    (Event.sequence([Event.of("pure", epsilon="1")], count=2), (pure(1),) * 2),
    (Event.of("approximate", epsilon="1", delta="1/10").group(2), None),
    (Event("random_stopping", parts=(Event.of("pure", epsilon="1"),)), None),
)


@pytest.mark.parametrize(("event", "right"), EVENTS, ids=[str(i) for i in range(len(EVENTS))])
def test_an_event_is_read(event, right):
    found = of_event(event)
    assert (found is None) == (right is None)
    if found is not None and right is not None:
        assert [(cost.kind, cost.rest) for cost in found] == [(cost.kind, cost.rest) for cost in right]
        assert [cost.size for cost in found] == pytest.approx([cost.size for cost in right])


def test_a_sampled_event_is_of_one_row_under_replacement():
    told = {
        relation: of_event(
            Event.of("poisson_gaussian", noise_multiplier=3.0, sampling_probability=0.25, adjacency=relation)
        )
        for relation in ("add_remove_one", "replace_label")
    }
    assert told["add_remove_one"] == (sampled(3.0, 0.25, added=True),)
    assert told["replace_label"] == (sampled(1.5, 0.25, added=False),)
    whole = Event.of(
        "poisson_gaussian", noise_multiplier=3.0, sampling_probability=1, adjacency="replace_one"
    )
    assert of_event(whole) == (gaussian(1.5),)


def test_the_error_covers_what_is_below():
    costs = [pure(0.0666), pure(0.7875), pure(0.0125)]
    more = [pure(0.2), *costs[1:]]
    for epsilon in (0.25, 0.5):
        # The truth grows with the first epsilon; from below it may not.
        assert losses.delta(costs, epsilon) <= losses.delta(more, epsilon) + losses.error(more)


def test_the_error_covers_the_cells_of_normal_laws():
    upper = sampled_steps(1.5, 0.3, 5)
    costs = [sampled(0.75, 0.3, added=False)] * 5
    for epsilon in (0.3, 1.0):
        assert upper.get_delta_for_epsilon(epsilon) <= losses.delta(costs, epsilon) + losses.error(costs)


def test_compositions_are_alike_in_any_order_and_gaussians_in_sum():
    assert losses.alike([pure(1), gaussian(2.0)], [gaussian(2.0), pure(1 + 1e-12)])
    assert losses.alike([gaussian(2.0)] * 4, [gaussian(1.0)])
    assert not losses.alike([pure(1)], [pure(1), pure(0.1)])
    assert not losses.alike([pure(1)], [approximate(1, 0.01)])
