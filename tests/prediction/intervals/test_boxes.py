"""Boxes: the trained model, bounds of gradients, sums over rows, nesting between neighbours, attacks."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from confide.prediction.intervals import HashedBatches, train_intervals
from confide.prediction.intervals.kernels import EXPONENTIALS, monotone_exp

from .helpers import (
    CLIP,
    MODELS,
    SETTINGS,
    hyperparameters,
    neighbour,
    row_gradients,
    run,
    start,
    table,
    train_plainly,
    uphill,
)  # isort: skip


def test_the_exponential_is_monotone_and_exact_to_a_few_ulp():
    rng = np.random.default_rng(0)
    z = np.sort(rng.uniform(-41, 41, 20_000))
    knots = np.arange(-2560, 2561) / 64
    near = np.concatenate([z, knots, np.nextafter(knots, -99), np.nextafter(knots, 99), np.nextafter(z, 99)])
    near.sort()
    values = np.array([monotone_exp(x, EXPONENTIALS) for x in near])
    assert (np.diff(values) >= 0).all()
    np.testing.assert_allclose(values, np.exp(np.clip(near, -40, 40)), rtol=5e-16)
    assert monotone_exp(np.nan, EXPONENTIALS) == monotone_exp(-1e308, EXPONENTIALS) == EXPONENTIALS[0]


def batches_of(setting, data):
    _, batches, _ = SETTINGS[setting]
    X, y, ids = data
    if batches is None:
        return [(np.arange(len(y)), len(y))]
    return [(places, batches.divisor_of(places)) for places in batches.split(X, y, ids)]


@pytest.mark.parametrize("setting", SETTINGS)
@pytest.mark.parametrize("model", MODELS)
def test_the_nominal_model_is_plain_gradient_descent(model, setting):
    rng = np.random.default_rng(1)
    layers, extra = MODELS[model]
    data, init = table(rng, classes=max(2, layers[-1])), start(rng, layers)
    found = run(data, model, setting, [0, 1], init)
    expected = train_plainly(data, layers, init, hyperparameters(extra), batches_of(setting, data))
    np.testing.assert_allclose(found.nominal, expected, rtol=0, atol=1e-10)
    np.testing.assert_array_equal(found.lower[0], found.nominal)
    np.testing.assert_array_equal(found.upper[0], found.nominal)
    assert (found.lower[1] <= found.upper[1]).all()


@pytest.mark.parametrize("adjacency", ["replace_one", "add_remove_one"])
def test_one_step_of_a_linear_model_is_the_hull_of_all_changes(adjacency):
    """Enumeration: every choice of k rows, every corner for what replaces them."""
    rng = np.random.default_rng(2)
    X, y, _ = table(rng, rows=6)
    init, rate = start(rng, [3, 2]), 0.7
    ks = [0, 1, 2, 6, 8]
    batches = None if adjacency == "replace_one" else HashedBatches(1, 6)
    settings = {"learning_rate": rate, "clip": CLIP}
    found = train_intervals(X, y, [3, 2], init, settings, ks, adjacency, batches)
    g = np.clip(row_gradients(init, [3, 2], X, y), -CLIP, CLIP)
    for level, k in enumerate(ks):
        if adjacency == "replace_one":
            gone = min(k, 6)
            sums = [g[list(kept)].sum(axis=0) for kept in itertools.combinations(range(6), 6 - gone)]
            low, high = np.min(sums, axis=0) - gone * CLIP, np.max(sums, axis=0) + gone * CLIP
        else:
            low, high = g.sum(axis=0) - k * CLIP, g.sum(axis=0) + k * CLIP
        np.testing.assert_allclose(found.lower[level], init - rate * high / 6, atol=1e-10)
        np.testing.assert_allclose(found.upper[level], init - rate * low / 6, atol=1e-10)


@pytest.mark.parametrize("model", MODELS)
def test_bounds_hold_every_gradient_of_the_box(model):
    """Two steps under add/remove: every parameter of the box after one, sampled, steps into the box after two."""
    rng = np.random.default_rng(3)
    layers, extra = MODELS[model]
    data, init = table(rng, classes=max(2, layers[-1])), start(rng, layers)
    settings = {**hyperparameters(extra), "momentum": 0.0, "nesterov": False}
    X, y, _ = data
    one, two = (
        train_intervals(
            X, y, layers, init, {**settings, "epochs": epochs}, [2], "add_remove_one", HashedBatches(1, 12)
        )
        for epochs in (1, 2)
    )
    settings["learning_rate"] /= 1 + settings.pop("learning_rate_decay", 0)  # the rate of the second step
    corners = np.stack([one.lower[0], one.upper[0]])
    for _ in range(300):
        theta = (
            np.where(rng.random(len(init)) < 0.5, *corners) if rng.random() < 0.5 else rng.uniform(*corners)
        )
        moved = train_plainly(data, layers, theta, {**settings, "epochs": 1}, [(np.arange(12), 12)])
        assert (two.lower[0] - 1e-9 <= moved).all()
        assert (moved <= two.upper[0] + 1e-9).all()


def check_neighbours(model, setting, pairs, seed, k_max=4, queries=40):
    """Nesting bit for bit, distances within 1, both ways. Returns the number of (pair, query) checks."""
    rng = np.random.default_rng(seed)
    layers, _ = MODELS[model]
    classes, checks, informative = max(2, layers[-1]), 0, 0
    for _ in range(pairs):
        data, init = table(rng, classes=classes), start(rng, layers)
        other = neighbour(rng, data, SETTINGS[setting][0], classes)
        if rng.integers(2):
            data, other = other, neighbour(rng, other, SETTINGS[setting][0], classes)
        here, there = (run(each, model, setting, range(k_max + 1), init) for each in (data, other))
        for a, b in ((here, there), (there, here)):
            assert (a.lower[1:] <= b.lower[:-1]).all()
            assert (a.upper[1:] >= b.upper[:-1]).all()
            assert (np.diff(a.lower, axis=0) <= 0).all()
            assert (np.diff(a.upper, axis=0) >= 0).all()
        Q = rng.standard_normal((queries, 3)) * rng.choice([0.3, 3, 1e3], size=(queries, 1))
        (labels, k), (labels_2, k_2) = here.stability(Q), there.stability(Q)
        assert (abs(k - k_2) <= 1).all()
        assert ((labels == labels_2) | ((k == 0) & (k_2 == 0))).all()
        checks += queries
        informative += int(((k > 0) & (k < k_max)).sum())
    return checks, informative


@pytest.mark.parametrize("setting", SETTINGS)
@pytest.mark.parametrize("model", MODELS)
def test_boxes_of_neighbours_are_nested_and_distances_differ_by_one_at_most(model, setting):
    checks, _ = check_neighbours(model, setting, pairs=6, seed=4)
    assert checks == 240


def test_the_check_meets_distances_between_the_ends():
    _, informative = check_neighbours("linear_two_logits", "replace_full", pairs=20, seed=5)
    assert informative > 50


@pytest.mark.slow
@pytest.mark.parametrize("setting", SETTINGS)
@pytest.mark.parametrize("model", MODELS)
def test_neighbours_at_length(model, setting):
    """48 combinations of 4,500 checks: above 200,000."""
    checks, _ = check_neighbours(model, setting, pairs=45, seed=6, queries=100)
    assert checks == 4500


def check_attacks(model, setting, attacks, seed, k_max=3):
    """Retrain on changed tables: never outside the box, never another class than a certified one."""
    rng = np.random.default_rng(seed)
    layers, _ = MODELS[model]
    adjacency, classes = SETTINGS[setting][0], max(2, layers[-1])
    flips = 0
    for attack in range(attacks):
        if attack % 10 == 0:
            data, init = table(rng, classes=classes), start(rng, layers)
            boxes = run(data, model, setting, range(k_max + 1), init)
            Q = rng.standard_normal((30, 3))
            labels, k = boxes.stability(Q)

        def retrain(other):
            return run(other, model, setting, [0], init)  # noqa: B023

        changes = int(rng.integers(1, k_max + 1))
        if attack % 2:
            other = data
            for _ in range(changes):
                other = neighbour(rng, other, adjacency, classes)
        else:
            other = uphill(rng, data, changes, adjacency, classes, Q[rng.integers(len(Q))], retrain)
        poisoned = retrain(other)
        assert (boxes.lower[changes] <= poisoned.nominal).all()
        assert (poisoned.nominal <= boxes.upper[changes]).all()
        new = poisoned.labels(Q)
        assert (new[k >= changes] == labels[k >= changes]).all()
        flips += int((new != labels).sum())
    return flips


@pytest.mark.parametrize("setting", SETTINGS)
@pytest.mark.parametrize("model", MODELS)
def test_attacks_stay_in_the_box_and_never_change_a_certified_class(model, setting):
    assert check_attacks(model, setting, attacks=10, seed=7) > 0  # attacks do move other classes


@pytest.mark.slow
@pytest.mark.parametrize("setting", SETTINGS)
@pytest.mark.parametrize("model", MODELS)
def test_attacks_at_length(model, setting):
    """48 combinations of 50 attacks: above 2,000."""
    assert check_attacks(model, setting, attacks=50, seed=8) > 0


@pytest.mark.parametrize("setting", ["replace_full", "add_full"])
def test_attacks_come_close_to_the_distance(setting):
    """Not vacuous: on one step of a linear model, k + 4 changed rows often flip what k cannot."""
    rng = np.random.default_rng(9)
    adjacency, batches, _ = SETTINGS[setting]
    tight = tried = 0
    for _ in range(10):
        X, y, _ = table(rng, rows=30)
        init = start(rng, [3, 2]) * 0.3
        settings = {"learning_rate": 2.0, "clip": CLIP}
        batches = HashedBatches(1, 30) if adjacency == "add_remove_one" else None
        Q = rng.standard_normal((20, 3))
        labels, k = train_intervals(X, y, [3, 2], init, settings, range(15), adjacency, batches).stability(Q)
        for query, label, distance in zip(Q, labels, k):
            if distance < 1 or distance > 8:
                continue
            tried += 1
            changes = int(distance) + 4
            x = 2.0 * np.sign(query)  # far enough for the clip, not so far that the model is sure
            rows = (np.tile(x, (changes, 1)), np.full(changes, 1 - label))
            if adjacency == "replace_one":
                # The rows that pull hardest toward the class.
                pull = np.abs(row_gradients(init, [3, 2], X, y)).sum(axis=1) * (y == label)
                chosen = np.argsort(-pull)[:changes]
                X_2, y_2 = X.copy(), y.copy()
                X_2[chosen], y_2[chosen] = rows
            else:
                X_2, y_2 = np.vstack([X, rows[0]]), np.concatenate([y, rows[1]])
            new = train_intervals(X_2, y_2, [3, 2], init, settings, [0], adjacency, batches).labels(
                query[None]
            )
            tight += int(new[0] != label)
    assert tried > 20
    assert tight / tried > 0.5
