"""The law: golden probabilities, the inequality of differential privacy itself, and who wins."""

from __future__ import annotations

import math
from itertools import permutations

import numpy as np
import pytest
from instances import CLASSES, LOSSES, epsilon_of, problem, random_problem, table
from test_scores import load

from confide.errors import ParameterError, UnsupportedError
from confide.selection import law
from confide.selection.enumeration import all_supports, log_law
from confide.selection.exponent import exponent

MECHANISMS = ("exponential", "permute_and_flip")


@pytest.mark.parametrize("name", ["ls_p20_s3_n500", "ls_p30_s3_n1000", "ls_p30_s3_ball"])
def test_golden_law(golden, name):
    data, made = load(golden, name)
    best = tuple(sorted(map(int, data["opt_support"])))
    for i, eps in enumerate(data["eps"]):
        # The file's exponent is eps / (2 Delta) per unit of F / n; ours is eps' / (2 M): the ball is centred.
        ours = float(eps) * made.record_range / (made.n * float(data["Delta"]))
        got = law(made, "exponential", ours, "replace_one")
        want = (
            -float(eps) * data["all_obj"] / (2 * float(data["Delta"])) - data["em_log_partition_eps1_5_10"][i]
        )
        # tau is 2^-24 M: the exponent is smaller by 2^-23 of itself.
        np.testing.assert_allclose(np.log(list(got.values())), want, atol=1e-5, rtol=2.0**-22)
        assert got[best] == pytest.approx(float(data["em_prob_opt_eps1_5_10"][i]), rel=1e-6)
        assert math.fsum(got.values()) == pytest.approx(1, abs=1e-12)
        assert max(got, key=got.__getitem__) == best


def test_golden_hinge_law(golden):
    data, made = load(golden, "hinge_p12_s2_n400")
    for eps in data["eps"]:
        ours = float(eps) * made.record_range / (made.n * float(data["Delta"]))
        got = np.log(list(law(made, "exponential", ours, "replace_one").values()))
        want = -float(eps) * data["all_obj"] / (2 * float(data["Delta"]))
        want = want - np.logaddexp.reduce(want)
        np.testing.assert_allclose(got, want, atol=1e-6, rtol=1e-5)  # tau is 2^-20 M, and shows


def test_permute_and_flip_by_all_orders():
    scores = np.array([0.0, 0.3, 0.3, 1.5, 4.0])
    p = np.exp(-scores)
    law_ = np.zeros(5)
    for order in permutations(range(5)):
        alive = 1.0
        for i in order:
            law_[i] += alive * p[i]
            alive *= 1 - p[i]
    np.testing.assert_allclose(np.exp(log_law(scores, 1.0, "permute_and_flip")), law_ / 120, rtol=1e-12)


@pytest.mark.parametrize("seed", range(6))
def test_permute_and_flip_law_sums_to_one_at_any_scale(seed):
    rng = np.random.default_rng(seed)
    scores = rng.exponential(size=[2, 50, 3000][seed % 3]) * [0.0, 1e-3, 1, 30, 2000, 1e5][seed]
    logs = log_law(scores, 1.0, "permute_and_flip")
    assert math.fsum(np.exp(logs)) == pytest.approx(1, abs=1e-11)


def test_scores_of_any_size_neither_overflow_nor_tie():
    for mechanism in MECHANISMS:
        logs = log_law(np.array([-1e12, -1e12 + 1, -1e12 + 2]), 1.0, mechanism)
        assert logs[0] > logs[1] > logs[2]
        assert math.fsum(np.exp(logs)) == pytest.approx(1)
        far = log_law(np.array([0.0, 800.0, 1600.0]), 1.0, mechanism)
        assert -700 > far[1] > far[2] > -1700


def neighbours(rng, adjacency):
    """Return two tables that differ in one record, often an extreme one, and what they share."""
    n, p = int(rng.integers(1, 25)), int(rng.integers(2, 7))
    size = int(rng.integers(1, min(p, 3) + 1))
    X, y = table(rng, n, p, float(rng.choice([0, 0.8])), odd=bool(rng.random() < 0.3))
    if rng.random() < 0.4:  # ties, and corners of the bounds
        X, y = np.sign(X) * 0.5 * (rng.random(X.shape) < 0.9), np.sign(y) * 0.5
    if rng.random() < 0.2:
        X[:] = X[:, :1]
    other = np.where(rng.random(p) < 0.5, 0.5, -0.5) if rng.random() < 0.7 else rng.uniform(-9, 9, p)
    label = 0.5 * rng.choice([-1, 1]) if rng.random() < 0.7 else rng.uniform(-9, 9)
    if adjacency == "replace_one":
        X2, y2 = X.copy(), y.copy()
        X2[0], y2[0] = other, label
        if rng.random() < 0.5:  # both ends adversarial
            X[0], y[0] = -X2[0] if rng.random() < 0.5 else X2[0], -y2[0]
    else:
        X2, y2 = np.vstack([X, other]), np.append(y, label)
    radius = rng.choice([None, 0.05, 0.4, 3.0])
    options = (size, str(rng.choice(LOSSES)), None if radius is None else float(radius),
               float(rng.choice([0.0, 1.0, 50.0])))  # fmt: skip
    return problem(X, y, *options), problem(X2, y2, *options)


def worst_ratio(seed, adjacency, mechanism):
    rng = np.random.default_rng([seed, adjacency == "replace_one"])
    one, two = neighbours(rng, adjacency)
    eps = float(rng.choice([0.1, 1.0, 5.0]))
    etas = [exponent(t, mechanism, eps, adjacency) for t in (one, two)]
    assert etas[0] == etas[1]  # the exponent is a function of declared numbers
    logs = [log_law(t.centred_scores(all_supports(t)), etas[0], mechanism) for t in (one, two)]
    return float(np.abs(logs[0] - logs[1]).max()) / eps


def check_privacy(count, adjacency, mechanism):
    ratios = [worst_ratio(seed, adjacency, mechanism) for seed in range(count)]
    assert max(ratios) <= 1 + 1e-9
    assert max(ratios) > 0.15  # the pairs are adversarial enough to notice a wrong factor of a few


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("adjacency", ["add_remove_one", "replace_one"])
def test_log_ratio_of_neighbours(adjacency, mechanism):
    check_privacy(100, adjacency, mechanism)


@pytest.mark.slow
@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("adjacency", ["add_remove_one", "replace_one"])
def test_log_ratio_of_many_neighbours(adjacency, mechanism):
    check_privacy(1000, adjacency, mechanism)


@pytest.mark.parametrize("loss", LOSSES)
def test_the_bound_is_nearly_met(loss):
    # One record decides between two columns: x = (b, -b) or (-b, b) with y = b, on an otherwise empty table.
    # ADD_REMOVE_ONE: an empty table is uniform, and one record moves one score by up to M.
    eps, radius = 1.0, None
    X = np.array([[0.5, 0.0]])
    made = problem(X, np.array([0.5]), 1, loss, radius, 0.0)
    eta = exponent(made, "exponential", eps, "add_remove_one")
    gap = eta * abs(made.score((0,)) - made.score((1,)))
    assert gap <= eps
    assert gap >= {"hinge": 0.49, "logistic": 0.37, "huber": 0.25}.get(loss, 0.24) * eps


@pytest.mark.parametrize("seed", range(12))
def test_permute_and_flip_finds_the_best_at_least_as_often(seed):
    made = random_problem(seed)
    flips = law(made, "permute_and_flip", epsilon_of(seed), "replace_one")
    plain = law(made, "exponential", epsilon_of(seed), "replace_one")
    best = max(plain, key=plain.__getitem__)
    assert flips[best] >= plain[best] * (1 - 1e-9)


@pytest.mark.parametrize("seed", range(12))
def test_exponential_finds_the_best_at_least_as_often_as_coarser_scores(seed):
    # top_r and mistakes raise or lower scores of others towards the best's: a larger normaliser.
    made = random_problem(seed)
    eta = exponent(made, "exponential", epsilon_of(seed), "replace_one")
    supports = all_supports(made)
    scores = made.centred_scores(supports)
    best = int(np.argmin(scores))
    cut = np.sort(scores)[min(scores.size, 2 + (made.p - made.size) * made.size) - 1]
    mistakes = made.size - np.isin(supports, supports[best]).sum(axis=1)
    bucket = np.array(
        [scores[mistakes == t].min() if np.any(mistakes == t) else 0 for t in range(made.size + 1)]
    )
    exact = log_law(scores, eta, "exponential")[best]
    assert exact >= log_law(np.minimum(scores, cut), eta, "exponential")[best] - 1e-9
    assert exact >= log_law(bucket[mistakes], eta, "exponential")[best] - 1e-9


def test_duplicate_columns_share_equally():
    X, y = table(np.random.default_rng(4), 50, 6, odd=True)
    for loss in ("squared", *CLASSES):
        made = problem(X, y, 2, loss)
        for mechanism in MECHANISMS:
            got = law(made, mechanism, 2.0, "replace_one")
            assert got[(0, 4)] == got[(1, 4)]


def test_one_support_and_one_column():
    X, y = table(np.random.default_rng(4), 20, 3)
    assert law(problem(X, y, 3), "exponential", 1, "replace_one") == {(0, 1, 2): 1.0}
    assert law(problem(X[:, :1], y, 1), "permute_and_flip", 1, "add_remove_one") == {(0,): pytest.approx(1.0)}


def test_enumeration_is_refused_past_its_limit():
    with pytest.raises(UnsupportedError, match="200000"):
        law(problem(np.zeros((1, 60)), np.zeros(1), 5), "exponential", 1, "replace_one")


@pytest.mark.parametrize(
    ("mechanism", "epsilon", "adjacency"),
    [("laplace", 1, "replace_one"), ("exponential", 0, "replace_one"), ("exponential", -1, "replace_one"),
     ("exponential", math.inf, "replace_one"), ("exponential", math.nan, "replace_one"), ("exponential", 1, "row"),
     (None, 1, "replace_one")],
)  # fmt: skip
def test_bad_requests(mechanism, epsilon, adjacency):
    with pytest.raises(ParameterError):
        law(problem(*table(np.random.default_rng(0), 5, 3), 1), mechanism, epsilon, adjacency)


def test_rounding_is_paid_for_and_refused_where_it_would_dominate():
    made = problem(*table(np.random.default_rng(0), 5, 3), 1)
    M = made.record_range
    full, add = (
        exponent(made, "exponential", 1, "replace_one"),
        exponent(made, "exponential", 1, "add_remove_one"),
    )
    assert (1 - 1e-6) / (2 * M) < full < 1 / (2 * (M + 2 * made.tau))
    assert add == pytest.approx(2 * full, rel=1e-12)
    assert exponent(made, "exponential", 1, "replace_label") == full
    with pytest.raises(UnsupportedError, match="rounding"):
        exponent(made, "exponential", 1e-12, "replace_one")
