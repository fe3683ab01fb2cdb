"""The laws of answers: exact ratios, published counter-examples of laws, draws, accounting."""

import itertools
from fractions import Fraction

import numpy as np
import pytest

from confide.errors import ParameterError, UnsupportedError
from confide.ledger import Ledger
from confide.mechanisms import seeded_stream
from confide.mechanisms.enclosure import exp_minus
from confide.prediction import CertifiedClassifier, response_probabilities
from confide.prediction.budgets import answers, per_answer
from confide.prediction.ptr import _above, propose_test_release
from confide.prediction.response import global_law, response_law
from confide.prediction.smooth import cauchy_law, laplace_law
from confide.privacy import PLDAccountant, compose, exact

EPSILONS = (0.01, 0.1, 0.3, 1, 2, 3)


def growth(epsilon):
    """A rational at most e^epsilon."""
    return Fraction(1 << 400, exp_minus(exact(epsilon), 400)[1])


def violations(units, bits, classes, e, delta=Fraction(0)):
    """Worst excess of (e, delta)-DP over all neighbouring pairs of a table, in exact rationals."""
    one, others = 1 << bits, classes - 1
    wrong = [Fraction(u, one) for u in units]
    right = [1 - others * u for u in wrong]
    worst = max(right[0] - e * wrong[0] - delta, (1 - wrong[0]) - e * (1 - right[0]) - delta)
    for k in range(len(units) - 1):
        for a, b in ((k, k + 1), (k + 1, k)):
            # For sets with and without the certified class the excess is linear in the other classes' number.
            worst = max(worst, right[a] - e * right[b] - delta, others * (wrong[a] - e * wrong[b]) - delta,
                        1 - e - delta)  # fmt: skip
    return worst


@pytest.mark.parametrize("classes", [2, 3, 10, 100])
@pytest.mark.parametrize("epsilon", EPSILONS)
def test_ratios_are_exact_in_rationals(epsilon, classes):
    law = response_law(epsilon, classes)
    e = growth(epsilon)
    levels = [*range(min(200, len(law.units))), len(law.units) - 1]
    assert all(law.units[a] >= law.units[b] > 0 for a, b in itertools.pairwise(levels))
    assert violations(law.units[:200], law.bits, classes, e) <= 0
    # and tight: the first bound holds with equality up to the grid
    assert violations(law.units[:1], law.bits, classes, e) > -Fraction(1, 1 << 140)


def test_all_levels_of_a_table_in_rationals():
    law = response_law(0.1, 3)
    assert violations(law.units, law.bits, 3, growth(0.1)) <= 0
    short = law.units[:5] + law.units[6:]  # the check convicts a table that skips one level
    assert violations(short, law.bits, 3, growth(0.1)) > 0


@pytest.mark.parametrize("classes", [2, 3, 10, 100])
@pytest.mark.parametrize("delta", ["1e-6", "1/100"])
@pytest.mark.parametrize("epsilon", [0.1, 1])
def test_with_delta_all_sets_of_answers(epsilon, delta, classes):
    law = response_law(epsilon, classes, delta)
    assert violations(law.units, law.bits, classes, growth(epsilon), Fraction(delta)) <= 0
    assert law.units[-1] == 0  # exact from some distance on
    assert law.probabilities(len(law.units))[-1] == 1


@pytest.mark.parametrize("epsilon", EPSILONS)
def test_binary_closed_form(epsilon):
    k = np.arange(301)
    r = response_probabilities(epsilon, 2, 300)
    expected = np.exp(-epsilon * k) / (1 + np.exp(epsilon))
    np.testing.assert_allclose(r.wrong, expected, rtol=1e-12)
    np.testing.assert_allclose(r, 1 - expected, rtol=1e-15)


def test_no_cancellation_down_to_the_smallest_double():
    r = response_probabilities(3, 4, 230)
    assert np.all(r.wrong > 0)
    np.testing.assert_allclose(r.wrong[1:] / r.wrong[:-1], [np.exp(-3)] * 230, rtol=1e-12)
    assert response_probabilities(3, 4, 400).wrong[-1] == 0.0
    assert response_law(3, 4).units[-1] == 1  # what is drawn is never impossible


def test_many_classes_grow_by_the_ratio_not_by_the_simple_law():
    # q e^(-eps k) with q = (C - 1) / (E + C - 1): r_1 / r_0 is above E once C > 1 + E^2.
    e, classes = np.e, 100
    q = (classes - 1) / (e + classes - 1)
    assert (1 - q / e) / (1 - q) > e * 1.5
    r = response_probabilities(1, classes, 3)
    assert r[1] / r[0] == pytest.approx(e, rel=1e-12)


def test_page_figures():
    def needed(law):
        return int(np.argmax(law.probabilities(2000).wrong < 0.01))

    assert [needed(response_law(e, 2)) for e in (0.1, 1)] == [39, 4]
    assert [needed(cauchy_law(e)) for e in (0.1, 1)] == [495, 36]
    assert [needed(laplace_law(e, 1e-5)) for e in (0.1, 1)] == [1234, 68]
    assert [needed(propose_test_release(e, 1e-5, 2)) for e in (0.1, 1)] == [141, 15]  # page: 295, 29
    # F61, F58: survival of the vote with Cauchy noise at eps = 1; at k = 0 the scale is 6 and 2.
    p = cauchy_law(1).probabilities(40)
    np.testing.assert_allclose(p[[0, 10, 40]], [0.5265, 0.6323, 0.9951], atol=1e-4)
    assert laplace_law(1, 1e-5).probabilities(0)[0] == pytest.approx(1 - np.exp(-0.25) / 2, rel=1e-8)


@pytest.mark.parametrize("epsilon", [0.1, 1, 7])
def test_f58_a_distance_of_zero_has_the_noise_of_global_sensitivity(epsilon):
    # A vote of 0 or 1, told against 1/2 after Cauchy noise of scale 6 / eps or Laplace noise of scale 2 / eps.
    cauchy = 0.5 + np.arctan(0.5 / (6 / epsilon)) / np.pi
    laplace = 1 - np.exp(-0.5 / (2 / epsilon)) / 2
    for law, chance in ((cauchy_law(epsilon), cauchy), (laplace_law(epsilon, 1e-5), laplace)):
        p = law.probabilities(3)
        assert p[0] == pytest.approx(chance, rel=1e-6)
        assert np.isfinite(p).all()
        labels, k = np.array([0, 1, 1]), np.array([0, 0, 3])
        law.draw(labels, k, stream=seeded_stream(0))
        assert labels.tolist() == [0, 1, 1]
        assert k.tolist() == [0, 0, 3]


def test_f61_only_the_class_leaves_and_a_query_asked_again_is_charged_again(tmp_path):
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (400, 2))
    ledger = Ledger.open(
        f"sqlite:///{tmp_path}/l.db", dataset="d", epsilon=10, delta=0, adjacency="replace_one"
    )
    told = []
    for table in (X, np.vstack([X[:-1], [[1.0, 1.0]]])):  # neighbours whose distances differ
        model = CertifiedClassifier(["no", "yes"], (-1, 1), ledger=ledger, alpha=0.1)
        model.fit(table, np.where(table[:, 0] > 0, "yes", "no"))
        before = ledger.total().epsilon
        answers = [model.answer(X[:1], 1) for _ in range(2)]
        assert ledger.total().epsilon == before + 2
        assert {answer.dtype.kind for answer in answers} == {"U"}
        assert {answer.shape for answer in answers} == {(1,)}
        told.append(model.guarantee_.to_json())
    assert told[0] == told[1]


@pytest.mark.parametrize("epsilon", [0.05, 0.3, 1, 3])
def test_smooth_laws_are_private_on_all_neighbours(epsilon):
    e = growth(epsilon)
    for law in (cauchy_law(epsilon), laplace_law(epsilon, "1e-5")):
        delta = law.delta
        one = 1 << law.bits
        wrong = [Fraction(u, one) for u in law.units]
        right = [1 - u for u in wrong]
        assert right[0] <= e * wrong[0] + delta
        for k in range(min(400, len(wrong) - 1)):
            for a, b in ((k, k + 1), (k + 1, k)):
                assert wrong[a] <= e * wrong[b] + delta
                assert right[a] <= e * right[b] + delta


@pytest.mark.parametrize("epsilon", [0.1, 1, 3])
def test_propose_test_release_on_all_neighbours(epsilon):
    delta = Fraction(1, 10**5)
    release = propose_test_release(epsilon, delta, 3)
    assert _above(exact(epsilon), release.threshold) <= delta < _above(exact(epsilon), release.threshold - 1)
    p = release.probabilities(release.threshold + 60)
    wrong = p.wrong
    np.testing.assert_allclose(p + 2 * wrong, 1, rtol=1e-14)
    e = np.exp(epsilon) * (1 + 1e-12)
    assert p[0] <= wrong[0] + float(delta)
    assert np.all(2 * wrong[:-1] <= e * 2 * wrong[1:] + float(delta))
    assert np.all(p[1:] <= e * p[:-1] + float(delta))


@pytest.mark.parametrize(
    "release",
    [response_law(0.5, 3), response_law(0.5, 3, "0.05"), global_law(0.5, 3), propose_test_release(0.5, "0.05", 3),
     cauchy_law(0.5), laplace_law(0.5, "0.05")],
    ids=lambda release: release.event.mechanism,
)  # fmt: skip
def test_draws_follow_the_law(release):
    n = 30_000
    for k, label in ((0, 1), (3, 0), (10, 1)):
        drawn = release.draw(np.full(n, label), np.full(n, k), stream=seeded_stream(7 * k + label))
        p = release.probabilities(k)
        for c in range(release.classes):
            chance = p[k] if c == label else p.wrong[k]
            assert abs(np.sum(drawn == c) - n * chance) <= 5 * np.sqrt(n * chance * (1 - chance)) + 1


def test_distances_past_the_table_count_as_its_last():
    law = response_law(3, 2)
    drawn = law.draw([1, 0], [len(law.units), 2**62], stream=seeded_stream(0))
    assert drawn.tolist() == [1, 0]
    assert propose_test_release(1, 1e-6, 2).draw([1], [2**63 - 1], stream=seeded_stream(0)).tolist() == [1]
    assert law.draw([], []).shape == (0,)


def test_costs_of_many_answers():
    assert per_answer(10, 1e-5, 100) == pytest.approx(0.204, abs=5e-4)
    assert per_answer(10, 1e-5, 10_000) == pytest.approx(0.0200, abs=5e-5)
    assert per_answer(10, 1e-5, 10) == pytest.approx(1.0, abs=3e-5)
    for count in (1, 100, 10_000):
        epsilon = per_answer(10, 1e-5, count)
        total = answers(response_law(epsilon, 2), count, 1e-5)
        assert total.epsilon <= 10
        assert total.delta == Fraction(1, 10**5)
        assert total.epsilon == exact(compose(epsilon, count, 1e-5))
        assert total.guarantee("replace_one").event.count == count
    # The accountants agree with the exact formula.
    event = response_law("0.204", 2).event
    grid = float(PLDAccountant().compose(event, 100).epsilon(1e-5))
    assert grid == pytest.approx(compose("0.204", 100, 1e-5), rel=2e-3)
    paired = answers(response_law("0.2", 2, "1e-8"), 100, "1e-5")
    assert Fraction(1, 10**6) + Fraction(1, 10**5) * (1 - Fraction(1, 10**6)) == paired.delta
    assert per_answer(10, 1e-5, 100, each_delta="5e-8") < per_answer(10, 1e-5, 100)
    with pytest.raises(ParameterError, match="add up to"):
        per_answer(10, 1e-5, 100, each_delta="1e-6")


@pytest.mark.parametrize("bad", [0, -1, float("nan"), float("inf"), True, None, 1001])
def test_bad_epsilons(bad):
    for make in (lambda: response_probabilities(bad, 2, 3), lambda: cauchy_law(bad),
                 lambda: propose_test_release(bad, 1e-5, 2), lambda: global_law(bad, 2)):  # fmt: skip
        with pytest.raises(ParameterError, match="epsilon"):
            make()


def test_bad_parameters():
    for classes in (1, True, 2.0, 1 << 17):
        with pytest.raises(ParameterError, match="classes"):
            response_probabilities(1, classes, 3)
    for delta in (1, -0.1, float("nan")):
        with pytest.raises(ParameterError, match="delta"):
            response_probabilities(1, 2, 3, delta)
    with pytest.raises(ParameterError, match="k_max"):
        response_probabilities(1, 2, -1)
    with pytest.raises(UnsupportedError, match="3 classes"):
        cauchy_law(1, 3)
    with pytest.raises(ParameterError, match="delta"):
        propose_test_release(1, 0, 2)
    law = response_law(1, 3)
    for labels, k in (([3], [1]), ([0], [-1]), ([0.0], [1]), ([0, 1], [1])):
        with pytest.raises(ParameterError, match="Pass"):
            law.draw(labels, k)
