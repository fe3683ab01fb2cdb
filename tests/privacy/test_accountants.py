"""The metamorphic suite: one abstract test class, run on each accountant and each of its events."""

import math
import time
from fractions import Fraction

import numpy as np
import pytest

from confide.errors import BudgetError, ParameterError, UnsupportedError
from confide.privacy import (
    BasicAccountant,
    Event,
    PLDAccountant,
    RDPAccountant,
    RDPFilter,
    ZCDPAccountant,
    ZCDPFilter,
    exact,
    gaussian_epsilon,
    mechanisms,
    pure_cost,
    zcdp_budget,
    zcdp_cost,
    zcdp_epsilon,
)

DELTA = 1e-5


def stopped(epsilon):
    run = Event.of("pure", epsilon=epsilon)
    return Event("random_stopping", (("eta", "0"), ("gamma", "1/10")), 1, (run, run))


SAMPLED = {"sampling_probability": 0.01, "adjacency": "add_remove_one"}
# Each event with the same mechanism at more noise.
PAIRS = {
    "gaussian": (Event.of("gaussian", noise_multiplier=2.0), Event.of("gaussian", noise_multiplier=2.5)),
    "discrete_gaussian": (
        Event.of("discrete_gaussian", noise_multiplier=2.0),
        Event.of("discrete_gaussian", noise_multiplier=2.5),
    ),
    **{
        name: (Event.of(name, epsilon=0.3), Event.of(name, epsilon=0.2))
        for name in ("laplace", "discrete_laplace", "pure", "exponential", "permute_and_flip")
    },
    "top_r": (Event.of("top_r", epsilon=0.3, top=50), Event.of("top_r", epsilon=0.2, top=50)),
    "mistakes": (Event.of("mistakes", epsilon=0.3), Event.of("mistakes", epsilon=0.2)),
    "randomized_response": (
        Event.of("randomized_response", epsilon=0.3, classes=4),
        Event.of("randomized_response", epsilon=0.2, classes=4),
    ),
    "approximate": (
        Event.of("approximate", epsilon=0.3, delta=1e-7),
        Event.of("approximate", epsilon=0.2, delta=1e-7),
    ),
    "response": (
        Event.of("response", epsilon=0.3, delta=0, classes=3),
        Event.of("response", epsilon=0.2, delta=0, classes=3),
    ),
    "smooth_cauchy": (Event.of("smooth_cauchy", epsilon=0.3), Event.of("smooth_cauchy", epsilon=0.2)),
    **{
        name: (Event.of(name, epsilon=0.3, delta=1e-7), Event.of(name, epsilon=0.2, delta=1e-7))
        for name in ("sparse_vector", "smooth_laplace", "propose_test_release")
    },
    "group": (Event.of("pure", epsilon=0.1).group(3), Event.of("pure", epsilon=0.1).group(2)),
    "random_stopping": (stopped(0.1), stopped(0.07)),
    "poisson_gaussian": (
        Event.of("poisson_gaussian", noise_multiplier=1.0, **SAMPLED),
        Event.of("poisson_gaussian", noise_multiplier=1.3, **SAMPLED),
    ),
}


def test_every_mechanism_is_in_the_suite():
    assert set(PAIRS) == set(mechanisms())


class MetamorphicSuite:
    """What holds for every accountant; subclasses name the accountant and its events."""

    accountant: type
    names: tuple[str, ...]

    @pytest.fixture(params=sorted(PAIRS))
    def pair(self, request):
        if request.param not in self.names:
            with pytest.raises(UnsupportedError, match=request.param):
                self.accountant().compose(PAIRS[request.param][0])
            return None
        return PAIRS[request.param]

    def epsilon(self, *events):
        state = self.accountant()
        for event in events:
            state = state.compose(event)
        return state.epsilon(DELTA)

    def test_n_singles_are_one_n_fold_are_nested(self, pair):
        if pair is None:
            return
        event = pair[0]
        single = self.epsilon(*[event] * 6)
        assert single == self.epsilon(event.times(6))
        assert single == self.epsilon(event.times(2).times(3))
        assert single == self.epsilon(Event.sequence([event.times(3), event, event.times(2)]))
        assert single > self.epsilon(event.times(5))

    def test_empty_is_zero(self, pair):
        assert self.epsilon() == 0
        assert self.epsilon(Event.sequence([])) == 0
        if pair is not None:
            assert self.epsilon(pair[0].times(0)) == 0

    def test_order_is_irrelevant(self, pair):
        if pair is None:
            return
        others = [PAIRS[name][0] for name in self.names]
        assert self.epsilon(pair[0], *others) == self.epsilon(*others[::-1], pair[0])

    def test_more_noise_never_costs_more(self, pair):
        if pair is None:
            return
        less, more = pair
        assert self.epsilon(more) <= self.epsilon(less)
        assert self.epsilon(more.times(50)) < self.epsilon(less.times(50))

    def test_asking_changes_nothing(self, pair):
        if pair is None:
            return
        state = self.accountant().compose(pair[0], 7)
        before = state.events
        assert state.epsilon(DELTA) == state.epsilon(DELTA)
        assert state.events == before

    def test_serialised_events_cost_the_same(self, pair):
        if pair is None:
            return
        event = Event.sequence([pair[0].times(3), pair[1]])
        assert self.epsilon(Event.from_json(event.to_json())) == self.epsilon(event)


class TestBasic(MetamorphicSuite):
    accountant = BasicAccountant
    names = ("laplace", "discrete_laplace", "pure", "exponential", "permute_and_flip", "top_r", "mistakes",
             "randomized_response", "approximate", "response", "smooth_cauchy", "sparse_vector", "smooth_laplace",
             "propose_test_release", "random_stopping", "group")  # fmt: skip

    def test_exact(self):
        assert self.epsilon(Event.of("pure", epsilon=0.1).times(3)) == Fraction(3, 10)


class TestZCDP(MetamorphicSuite):
    accountant = ZCDPAccountant
    names = ("gaussian", "discrete_gaussian", "laplace", "discrete_laplace", "pure", "exponential",
             "permute_and_flip", "top_r", "mistakes", "randomized_response", "response", "smooth_cauchy",
             "random_stopping", "group")  # fmt: skip

    def test_bounded_range_only_for_the_exponential_mechanism(self):  # F16
        assert zcdp_cost(Event.of("exponential", epsilon=1)) == Fraction(1, 8)
        assert zcdp_cost(Event.of("top_r", epsilon=1, top=50)) == Fraction(1, 8)
        assert zcdp_cost(Event.of("mistakes", epsilon=1)) == Fraction(1, 8)
        assert zcdp_cost(Event.of("permute_and_flip", epsilon=1)) == Fraction(1, 2)
        assert zcdp_cost(Event.of("pure", epsilon=1)) == Fraction(1, 2)
        assert zcdp_cost(Event.of("gaussian", noise_multiplier=2.0).times(3)) == Fraction(3, 8)
        assert zcdp_cost(PAIRS["approximate"][0]) is None


class TestRDP(MetamorphicSuite):
    accountant = RDPAccountant
    names = ("gaussian", "discrete_gaussian", "laplace", "discrete_laplace", "pure", "exponential",
             "permute_and_flip", "top_r", "mistakes", "randomized_response", "response", "smooth_cauchy",
             "random_stopping", "poisson_gaussian", "group")  # fmt: skip


class TestPLD(MetamorphicSuite):
    accountant = PLDAccountant
    names = ("gaussian", "laplace", "discrete_laplace", "pure", "exponential", "permute_and_flip",
             "top_r", "mistakes", "randomized_response", "approximate", "response", "smooth_cauchy", "sparse_vector",
             "smooth_laplace", "propose_test_release", "random_stopping", "poisson_gaussian", "group")  # fmt: skip

    def test_gaussians_are_exact(self):
        events = [
            Event.of("gaussian", noise_multiplier=3.0).times(4),
            Event.of("gaussian", noise_multiplier=1.5),
        ]
        expected = gaussian_epsilon(1 / math.sqrt(4 / 9 + 4 / 9), DELTA)
        assert float(self.epsilon(*events)) == pytest.approx(expected, rel=1e-9)

    def test_the_grid_agrees_with_the_analytic_curve(self):
        # The same Gaussian by its loss distribution: pessimistic, and close.
        state = PLDAccountant().compose(Event.of("gaussian", noise_multiplier=2.0), 10)
        grid = state.distribution().get_epsilon_for_delta(DELTA)
        exact_value = gaussian_epsilon(2.0 / math.sqrt(10), DELTA)
        assert exact_value * (1 - 1e-9) <= grid <= exact_value * (1 + 1e-4)

    def test_pure_composition_agrees_with_the_exact_formula(self):
        from confide.privacy import compose

        for epsilon, count in [(0.1, 100), (0.02, 1000), (1, 20)]:
            grid = float(PLDAccountant().compose(Event.of("pure", epsilon=epsilon), count).epsilon(DELTA))
            assert grid == pytest.approx(compose(epsilon, count, DELTA), rel=2e-3)

    def test_a_count_is_never_lost(self):  # dp-accounting 0.6.0 loses it for randomised response
        event = PAIRS["randomized_response"][0]
        assert self.epsilon(event.times(20)) > 2 * self.epsilon(event)

    def test_f10_zero_is_right_below_the_total_variation(self):
        event = Event.of("poisson_gaussian", noise_multiplier=1.0, sampling_probability=105 / 100000,
                         adjacency="add_remove_one")  # fmt: skip
        assert PLDAccountant().compose(event).epsilon(1e-3) == 0
        assert float(PLDAccountant().compose(event).epsilon(3e-4)) == pytest.approx(4.06e-4, rel=0.05)

    def test_f15_tiny_budgets_stay_cheap(self):
        start = time.process_time()
        for epsilon in (0.01, 0.001):
            PLDAccountant().compose(Event.of("pure", epsilon=epsilon), 8).epsilon(1e-5)
        PLDAccountant().compose(Event.of("gaussian", noise_multiplier=0.01), 3).compose(
            Event.of("pure", epsilon=0.01)
        ).epsilon(1e-5)
        assert time.process_time() - start < 20  # a guard against running away, not a benchmark

    def test_sampling_replaced_rows_costs_about_twice(self):
        less = Event.of("poisson_gaussian", noise_multiplier=2.0, **SAMPLED)
        more = Event.of("poisson_gaussian", noise_multiplier=2.0, sampling_probability=0.01,
                        adjacency="replace_one")  # fmt: skip
        assert self.epsilon(more.times(1000)) > 1.7 * self.epsilon(less.times(1000))

    def test_f09_a_full_batch_is_the_plain_gaussian(self):
        full = Event.of(
            "poisson_gaussian", noise_multiplier=2.0, sampling_probability=1, adjacency="replace_one"
        )
        assert self.epsilon(full) == self.epsilon(Event.of("gaussian", noise_multiplier=1.0))


def test_no_noise_costs_infinity_or_is_refused():  # F29
    with pytest.raises(UnsupportedError):
        PLDAccountant().compose(Event.of("gaussian", noise_multiplier=0.0))
    assert zcdp_cost(Event.of("gaussian", noise_multiplier=0.0)) is None


@pytest.mark.parametrize(
    "event",
    [Event.of("gaussian"), Event.of("gaussian", noise_multiplier=-1.0), Event.of("gaussian", noise_multiplier=math.nan),
     Event.of("pure"), Event.of("pure", epsilon=True), Event.of("randomized_response", epsilon=1, classes=1),
     Event.of("poisson_gaussian", noise_multiplier=1.0, sampling_probability=2, adjacency="replace_one"),
     Event.of("poisson_gaussian", noise_multiplier=1.0, sampling_probability=0.5, adjacency="other")],
)  # fmt: skip
def test_malformed_events_are_refused(event):
    with pytest.raises(ParameterError):
        PLDAccountant().compose(event)


def test_unknown_mechanisms_are_named():
    with pytest.raises(UnsupportedError, match="'wishart'"):
        BasicAccountant().compose(Event.sequence([Event.of("wishart", epsilon=1)]))


def test_sampled_renyi_divergences_agree_with_dp_accounting():
    from dp_accounting import GaussianDpEvent, PoissonSampledDpEvent
    from dp_accounting.rdp import RdpAccountant

    for multiplier, probability in [(1.0, 0.01), (4.0, 0.3), (90.0, 0.001)]:
        orders, ours = (
            RDPAccountant()
            .compose(
                Event.of(
                    "poisson_gaussian",
                    noise_multiplier=multiplier,
                    sampling_probability=probability,
                    adjacency="add_remove_one",
                )
            )
            .divergences()
        )
        some = [0, 3, 20, 60]
        theirs = RdpAccountant([int(orders[i]) for i in some]).compose(
            PoissonSampledDpEvent(probability, GaussianDpEvent(multiplier))
        )
        np.testing.assert_allclose(ours[some], theirs.rdp, rtol=1e-9, atol=1e-14)


def test_rdp_is_never_below_pld():
    for event, count in [
        (PAIRS["poisson_gaussian"][0], 1000),
        (PAIRS["gaussian"][0], 30),
        (PAIRS["pure"][0], 50),
    ]:
        rdp = RDPAccountant().compose(event, count).epsilon(DELTA)
        assert rdp >= PLDAccountant().compose(event, count).epsilon(DELTA)


def test_f11_extreme_orders_are_there():
    event = Event.of("poisson_gaussian", noise_multiplier=90.0, **SAMPLED)
    assert float(RDPAccountant().compose(event, 1000).epsilon(DELTA)) < 0.011


def test_zcdp_conversion_is_safe_and_inverts():
    for epsilon in (0.01, 1, 10):
        rho = zcdp_budget(epsilon, 1e-6)
        assert zcdp_epsilon(rho, 1e-6) <= exact(epsilon)
        assert zcdp_epsilon(rho * Fraction(1001, 1000), 1e-6) > exact(epsilon)
        # A Gaussian of this rho truly costs less (Balle-Wang is exact).
        assert gaussian_epsilon(1 / math.sqrt(2 * float(rho)), 1e-6) <= epsilon


@pytest.mark.parametrize("kind", [ZCDPFilter, RDPFilter])
def test_filters_stop_before_the_limit(kind):
    state, steps = kind(1, 1e-6), 0
    event = Event.of("gaussian", noise_multiplier=20.0)
    while state.admits(event):
        state, steps = state.spend(event), steps + 1
        assert steps < 1000
    assert steps > 10
    assert state.accountant.epsilon(1e-6) <= 1
    with pytest.raises(BudgetError) as caught:
        state.spend(event)
    assert caught.value.limit is not None
    assert state.admits(Event.of("gaussian", noise_multiplier=20.0), 0)
    # A smaller step may still fit: the filter admits by what is left, not by what was planned.
    assert kind(1, 1e-6).admits(Event.of("gaussian", noise_multiplier=4.6))
    assert not kind(1, 1e-6).admits(Event.of("gaussian", noise_multiplier=4.0))


def test_pure_cost():
    assert pure_cost(Event.of("exponential", epsilon=0.1).times(3)) == Fraction(3, 10)
    assert pure_cost(PAIRS["gaussian"][0]) is None


def test_a_group_pays_for_its_size_under_every_calculus():
    gaussian = Event.of("gaussian", noise_multiplier=3.0)
    mixed = Event.sequence([gaussian.times(2), PAIRS["exponential"][0]])
    assert zcdp_cost(gaussian.group(3)) == 9 * zcdp_cost(gaussian)
    assert zcdp_cost(mixed.group(2).times(5)) == 20 * zcdp_cost(mixed)
    assert zcdp_cost(gaussian.group(2).group(3)) == 36 * zcdp_cost(gaussian)
    assert pure_cost(PAIRS["pure"][0].group(4)) == 4 * pure_cost(PAIRS["pure"][0])
    # mu-GDP becomes size mu: exact, and what a noise multiplier of a third would cost.
    third = PLDAccountant().compose(Event.of("gaussian", noise_multiplier=1.0)).epsilon(DELTA)
    assert PLDAccountant().compose(gaussian.group(3)).epsilon(DELTA) == pytest.approx(float(third), rel=1e-9)
    assert zcdp_cost(PAIRS["approximate"][0].group(2)) is None
    # With delta an answer is a pair, of which no zCDP is known.
    assert zcdp_cost(Event.of("response", epsilon=0.3, delta=1e-9, classes=3)) is None
    with pytest.raises(UnsupportedError):
        PLDAccountant().compose(PAIRS["discrete_gaussian"][0].group(2))
    for bad in (0, -1, True, "2"):
        with pytest.raises(ParameterError, match="size"):
            zcdp_cost(Event("group", (("size", bad),), 1, (gaussian,)))


def test_converted_guarantees_carry_their_cost_in_the_event():
    from confide.privacy import Guarantee, group

    event = Event.of("gaussian", noise_multiplier=4.0)
    one = Guarantee(1, 1e-6, "add_remove_one", "row", event)
    assert zcdp_cost(one.under("replace_one").event) == 4 * zcdp_cost(event)
    assert zcdp_cost(group(one, 10, unit="person").event) == 100 * zcdp_cost(event)
    assert zcdp_cost(
        Guarantee(1, 1e-6, "replace_one", "row", event).under("replace_label").event
    ) == zcdp_cost(event)
    again = Guarantee.from_json(group(one, 10).to_json())
    assert zcdp_cost(again.event) == 100 * zcdp_cost(event)


@pytest.mark.parametrize(
    ("multiplier", "rate", "steps", "epsilon", "delta"),
    [
        # An independent transform, tilted to the tail, gives these deltas (or more) at these epsilons.
        (1.13383, 0.001, 2000, 0.5, 1.04e-12),
        (0.7, 0.0001, 20_000, 1.0, 1.87e-10),
        (1.0381, 0.001, 2000, 0.5, 1.00e-10),
        (7.12, 0.05, 500, 1.0, 9.83e-12),
    ],
)
def test_round_off_of_transforms_hides_no_tail(multiplier, rate, steps, epsilon, delta):
    event = Event.of(
        "poisson_gaussian",
        noise_multiplier=multiplier,
        sampling_probability=rate,
        adjacency="add_remove_one",
    )
    assert PLDAccountant().compose(event, steps).epsilon(delta) >= epsilon


def test_tiny_deltas_are_answered_without_transforms():
    gaussian = Event.of("gaussian", noise_multiplier=5.0)
    mixed = PLDAccountant().compose(gaussian).compose(Event.of("pure", epsilon=0.1))
    other = RDPAccountant().compose(gaussian).compose(Event.of("pure", epsilon=0.1))
    assert mixed.epsilon(1e-11) == other.epsilon(1e-11)
    assert mixed.epsilon(1e-9) < other.epsilon(1e-9)
    assert PLDAccountant().compose(Event.of("pure", epsilon=0.1), 3).epsilon(1e-12) == Fraction("0.3")
    pair = Event.of(
        "poisson_gaussian", noise_multiplier=5.0, sampling_probability=0.1, adjacency="replace_one"
    )
    assert PLDAccountant().compose(pair, 10).epsilon(1e-12) == math.inf
    # A million releases: their round-off is 1.8e-9.
    assert mixed.compose(gaussian, 10**6).epsilon(3e-9) == other.compose(gaussian, 10**6).epsilon(3e-9)
