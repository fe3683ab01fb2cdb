"""Moments of classes: exact sensitivity by record and replay, channels, the fit's optimality."""

import math
from fractions import Fraction

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from confide.errors import ParameterError
from confide.mechanisms.stream import seeded_stream
from confide.training.class_moments import (
    ClassProblem,
    contrast,
    plan_classes,
    respond,
    simplex,
    solution_of,
    solve,
)
from confide.training.labels.channel import Channel
from confide.training.release import drive, exact_answer

from .helpers import problem as linear_problem


def classes(X, y, K, **changes):
    design = linear_problem(X, np.zeros(len(X)), (-1.0, 1.0), **changes)
    return ClassProblem(design, lambda: iter([np.asarray(y)]), K)


def rows(n=300, p=4, seed=0, K=3):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, p))
    return X, (X @ rng.normal(size=(p, K)) + rng.gumbel(size=(n, K))).argmax(axis=1)


@pytest.mark.parametrize("K", [2, 3, 10, 57])
def test_corners_of_the_simplex(K):
    V = simplex(K)
    np.testing.assert_allclose(V.sum(axis=0), 0, atol=1e-13)
    np.testing.assert_allclose(V @ V.T, np.eye(K) - 1 / K, atol=1e-13)
    assert np.abs(V).max() <= 1
    assert V[-1, -1] > 0


def statistic(X, y, K, multiplier=2.0, **changes):
    task = classes(X, y, K, **changes)
    plan = plan_classes(task, None, multiplier, "closed_form")
    return plan, next(solve(task, plan))


@pytest.mark.parametrize("K", [2, 3, 7])
@pytest.mark.parametrize("scale", [1.0, 1e6, 1e300])
def test_one_label_moves_the_release_by_at_most_its_sensitivity(K, scale):
    X, y = rows(K=K)
    X[5] *= scale
    plan, first = statistic(X, y, K)
    assert first.sensitivity == plan.sensitivity
    worst = 0.0
    for i in (0, 5, 17, 299):
        for new in range(K):
            other = y.copy()
            other[i] = new
            again, second = statistic(X, other, K)
            assert second.step == first.step
            assert again.sensitivity == plan.sensitivity
            moved = math.sqrt(sum(int(d) ** 2 for d in second.value - first.value)) * first.step
            worst = max(worst, moved)
    assert 0 < worst <= plan.sensitivity
    # Full-length rows are there, and the bound is nearly met: the noise is not twice what it must be.
    assert plan.sensitivity <= math.sqrt(2) * 1.001
    lengths = np.linalg.norm(plan.step.plan.rows(plan.step.basis.coordinates(X))[0], axis=1)
    assert worst >= 0.99 * math.sqrt(2) * lengths[[0, 5, 17, 299]].max()


def test_all_rows_of_a_person_count():
    X, y = rows(K=2)
    ids = np.arange(len(X)) // 3
    plan, first = statistic(X, y, 2, ids=ids)
    other = np.where(ids == 4, 1 - y, y)
    _, second = statistic(X, other, 2, ids=ids)
    moved = np.linalg.norm(((second.value - first.value) * first.step).astype(float))
    assert 0 < moved <= plan.sensitivity
    with pytest.raises(ParameterError, match="several rows"):
        plan_classes(classes(X, y, 2, ids=ids), Fraction(1), 2.0, "randomized_response")


@pytest.mark.parametrize("K", [2, 5])
def test_randomised_response_is_unbiased(K):
    X, y = rows(n=4000, K=K)
    task = classes(X, y, K)
    plan = plan_classes(task, Fraction(1), 3.0, "randomized_response")
    assert plan.channel is not None
    V = simplex(K)
    drawn = np.stack(
        [V[plan.channel.draw(np.full(200_000, k), seeded_stream(k))].mean(axis=0) for k in range(K)]
    )
    np.testing.assert_allclose(drawn / plan.contrast, V, atol=5 / math.sqrt(200_000) / plan.contrast)
    assert contrast(Channel.of(K, Fraction(1))) == pytest.approx((math.e - 1) / (math.e + K - 1), rel=1e-9)
    # The stated variance of theta: that of the channel, per coordinate with U'U = I, about the mean draw.
    noise = plan.noise[0, 0]
    single = V[plan.channel.draw(np.full(200_000, 0), seeded_stream(9))] / plan.contrast
    assert np.trace(np.cov(single.T).reshape(K - 1, -1)) / (K - 1) == pytest.approx(noise, rel=0.02)


def test_equal_seeds_repeat_and_streams_differ():
    X, y = rows(K=3)
    task = classes(X, y, 3)
    plan = plan_classes(task, Fraction(2), 1.5, "randomized_response")
    one, two, three = (respond(task, plan, seeded_stream(s)).theta for s in (1, 1, 2))
    np.testing.assert_array_equal(one, two)
    assert not np.array_equal(one, three)


@pytest.mark.parametrize("K", [2, 4])
def test_without_noise_it_is_penalised_maximum_likelihood(K):
    X, y = rows(n=3000, K=K)
    task = classes(X, y, K)
    plan = plan_classes(task, None, 0.0)
    found = drive(solve(task, plan), exact_answer)
    assert plan.engine == "closed_form"
    logits = plan.step.basis.coordinates(X) @ found.theta
    second = LogisticRegression(C=1e4, max_iter=5000, tol=1e-10).fit(X, y)
    other = second.decision_function(X)
    other = np.stack([-other / 2, other / 2], axis=1) if K == 2 else other
    # The penalty takes about two per cent of a logit here.
    np.testing.assert_allclose(logits, other - other.mean(axis=1, keepdims=True), rtol=0.03, atol=0.05)
    # Optimality: expected moments are those of the labels, up to the penalty.
    e = np.exp(logits - logits.max(axis=1, keepdims=True))
    p = e / e.sum(axis=1, keepdims=True)
    U, V = plan.step.basis.coordinates(X), simplex(K)
    gap = U.T @ (p @ V - V[y])
    penalty = np.full((U.shape[1], 1), 0.3 * U.shape[1] / len(X))
    penalty[0] *= 1e-2
    np.testing.assert_allclose(gap, -penalty * (found.theta @ V), atol=1e-3)


@pytest.mark.parametrize("odd", [-1, 3, 2**40])
def test_unknown_codes_are_the_first_class(odd):
    X, y = rows(K=3)
    y[7] = odd
    z = y.copy()
    z[7] = 0
    one, two = (statistic(X, part, 3)[1].value for part in (y, z))
    np.testing.assert_array_equal(one, two)


@pytest.mark.parametrize("engine", ["closed_form", "randomized_response"])
@pytest.mark.parametrize(
    "X",
    [
        np.ones((50, 3)),
        np.zeros((50, 2)),
        np.repeat(np.arange(50.0)[:, None], 3, axis=1),
        np.random.default_rng(0).normal(size=(20, 40)),
        np.zeros((30, 0)),
        np.where(np.arange(60).reshape(30, 2) == 8, 1e308, 1.0),
    ],
    ids=["constant", "zero", "duplicate", "more columns than rows", "none", "1e308"],
)
def test_edge_designs(X, engine):
    for y in (np.zeros(len(X), dtype=int), np.arange(len(X)) % 2):
        task = classes(X, y, 2)
        plan = plan_classes(task, Fraction(1), 4.2, engine)
        rng = np.random.default_rng(0)

        def answer(s, rng=rng):
            return s.value * s.step + 4.2 * s.sensitivity * rng.normal(size=s.value.shape)

        found = respond(task, plan, seeded_stream(0)) if plan.channel else drive(solve(task, plan), answer)
        assert np.isfinite(found.theta).all()


def test_shares_of_classes_stay_shares():
    """A rare class whose noisy share is below 0 is rare, and not impossible."""
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(2000, 2)), np.zeros(2000, dtype=int)
    y[:4] = 1
    task = classes(X, y, 2)
    plan = plan_classes(task, None, 30.0, "closed_form")
    moments = np.zeros((plan.step.basis.size, 1))
    moments[0] = -0.75 * plan.step.A[0, 0] * math.sqrt(2000)
    found = solution_of(plan, moments)
    share = 1 / (1 + math.exp(-(found.theta[0, 1] - found.theta[0, 0]) / math.sqrt(2000)))
    assert 1e-5 < share < 0.05


def test_public_quantities_choose_the_release():
    X, y = rows(n=300, p=20, K=2)
    few = classes(X, y, 2)
    assert plan_classes(few, Fraction(4), 1.37).engine == "randomized_response"
    assert plan_classes(few, Fraction(1, 4), 14.5).engine == "closed_form"
    # The choice reads no label.
    blind = ClassProblem(few.design, lambda: iter([np.full(300, None)]), 2)
    assert plan_classes(blind, Fraction(4), 1.37).engine == "randomized_response"


@pytest.mark.parametrize("engine", ["closed_form", "randomized_response", None])
def test_columns_that_do_not_vary_and_no_intercept_make_all_classes_alike(engine):
    from confide.training import PrivateClassifier

    options = {} if engine is None else {"engine": engine}
    delta = 0 if engine == "randomized_response" else 0.001
    model = PrivateClassifier(
        1, delta, classes=[0, 1, 2], fit_intercept=False, random_state=1, **options
    ).fit(np.zeros((60, 2)), np.arange(60) % 3)
    np.testing.assert_allclose(model.predict_proba(np.zeros((1, 2))), 1 / 3)
