"""Boxes met with a box plus a ball: order of neighbours' levels, distances, attacks, gain over boxes."""

from __future__ import annotations

import numpy as np
import pytest

from confide.errors import DataError, ParameterError, UnsupportedError
from confide.prediction import states
from confide.prediction.certificate import Certificate, Certified
from confide.prediction.intervals import (
    FixedBatches,
    HashedBatches,
    HybridTraining,
    IntervalTraining,
    Network,
)

from .helpers import neighbour, row_gradients, start, train_plainly  # isort: skip

LAYERS = [3, 4, 1]
#: name -> hyperparameters, options.
SETTINGS = {
    "full": ({"learning_rate": 0.5, "clip": 0.3, "epochs": 3}, {}),
    "decay_batches": (
        {"learning_rate": 0.4, "clip": 0.5, "epochs": 2, "weight_decay": 0.3},
        {"batches": FixedBatches(2), "spread": 1.25},
    ),
    "decay_past_one": (
        {"learning_rate": 0.6, "clip": 0.3, "epochs": 3, "weight_decay": 2.2},
        {"spread": 4.0},
    ),
    "balls": ({"learning_rate": 1.0, "clip": 1.0, "epochs": 3}, {"spread": 1.01}),  # rows turn into balls
    "add": (
        {"learning_rate": 0.5, "clip": 0.4, "epochs": 3},
        {"adjacency": "add_remove_one", "batches": HashedBatches(1, 50)},
    ),
    "add_batches": (
        {"learning_rate": 0.5, "clip": 0.4, "epochs": 2, "weight_decay": 0.2},
        {"adjacency": "add_remove_one", "batches": HashedBatches(3, 20), "spread": 1.5},
    ),
}
K = 8


def certificate(name, init, layers=LAYERS, k_max=K):
    settings, options = SETTINGS[name]
    return HybridTraining(layers, {**settings, "clip_by": "norm"}, k_max, init=init, **options)


def table(rng, rows=60):
    X = rng.standard_normal((rows, 3))
    return X, (X[:, 0] * X[:, 1] > 0).astype(np.int64), np.arange(rows)


def fit(model, data):
    X, y, ids = data
    return model.fit(X, y, ids=ids if isinstance(model.batches, HashedBatches) else None)


def below(small, large):
    """Check the order of the proof: boxes nested bit for bit, V' within V widened by the spare radius."""
    assert (large.lower <= small.lower).all()
    assert (small.upper <= large.upper).all()
    excess = np.maximum(np.maximum(large.v_lower - small.v_lower, small.v_upper - large.v_upper), 0)
    assert np.linalg.norm(excess) <= large.rho - small.rho
    assert small.norm <= large.norm


def holds(level, theta):
    """Whether a model lies in both sets of a level."""
    excess = np.maximum(np.maximum(level.v_lower - theta, theta - level.v_upper), 0)
    inside = (level.lower <= theta).all() and (theta <= level.upper).all()
    return inside and np.linalg.norm(excess) <= level.rho


def check(name, pairs, seed):
    rng = np.random.default_rng(seed)
    network, flips, certified = Network(tuple(LAYERS)), 0, 0
    for _ in range(pairs):
        model, data = certificate(name, start(rng, LAYERS) * 1.5), table(rng)
        here = fit(model, data)
        there = fit(model, neighbour(rng, data, model.adjacency.value, 2))
        assert len(here.levels) == len(there.levels) == K + 1
        for k in range(K):
            below(here.levels[k], here.levels[k + 1])
            below(there.levels[k], here.levels[k + 1])
            below(here.levels[k], there.levels[k + 1])
        Q = rng.standard_normal((40, 3)) * rng.choice([0.2, 1, 10, 1e70], size=(40, 1))
        (labels, k), (labels_2, k_2) = here.stability(Q), there.stability(Q)
        assert (abs(k - k_2) <= 1).all()
        assert ((labels == labels_2) | ((k == 0) & (k_2 == 0))).all()
        count = int(rng.integers(2, K + 1))
        random = data
        for _ in range(count):
            random = neighbour(rng, random, model.adjacency.value, 2)
        aimed = uphill(here, model, data, count, Q[0])
        for far in (random, aimed):
            other = fit(model, far)
            assert holds(here.levels[count], network.inward(other.nominal))
            new, k_far = other.stability(Q)
            assert (abs(k - k_far) <= count).all()
            assert (new[k >= count] == labels[k >= count]).all()
            flips += (new != labels).sum()
            certified += (k >= 1).sum()
    return flips, certified


def uphill(model, certificate_, data, count, query):
    """Change the rows whose gradients push a query's logit to its side most: to the query, of the other class."""
    X, y, ids = (part.copy() for part in data)
    label = model.predict(query[None])[0]
    query = query / max(1.0, np.linalg.norm(query)) * 3
    theta = certificate_.plan.init
    gradients = row_gradients(theta, LAYERS, X, y)
    slope = row_gradients(theta, LAYERS, query[None], np.array([label]))[0]
    worst = np.argsort(-gradients @ slope)[:count]
    if certificate_.adjacency.value == "replace_one":
        X[worst], y[worst] = query, 1 - label
        return X, y, ids
    gone = count // 2
    X, y, ids = (np.delete(part, worst[:gone], 0) for part in (X, y, ids))
    more = count - gone
    return (
        np.vstack([X, np.tile(query, (more, 1))]),
        np.r_[y, np.full(more, 1 - label)],
        np.r_[ids, 500 + np.arange(more)],
    )


@pytest.mark.parametrize("name", SETTINGS)
def test_levels_of_neighbours_and_attacks(name):
    flips, certified = check(name, pairs=12, seed=1)
    assert flips > 0
    assert certified > 0


@pytest.mark.slow
@pytest.mark.parametrize("name", SETTINGS)
def test_levels_of_neighbours_and_attacks_at_length(name):
    check(name, pairs=250, seed=2)


@pytest.mark.parametrize("name", SETTINGS)
def test_the_model_is_plain_gradient_descent(name):
    rng = np.random.default_rng(0)
    init, data = start(rng, LAYERS), table(rng)
    model = certificate(name, init)
    batches = model.plan.batches
    parts = batches.split(data[0], data[1], data[2])
    expected = train_plainly(
        data, LAYERS, init, {**SETTINGS[name][0], "clip_by": "norm"},
        [(part, batches.divisor_of(part)) for part in parts],
    )  # fmt: skip
    found = fit(model, data)
    np.testing.assert_allclose(found.nominal, expected, atol=1e-9)
    level = found.levels[0]
    assert level.rho == 0
    np.testing.assert_array_equal(level.v_lower, level.v_upper)


@pytest.mark.parametrize("name", SETTINGS)
def test_never_looser_than_boxes_and_the_same_model(name):
    rng = np.random.default_rng(3)
    init, data, Q = start(rng, LAYERS), table(rng), rng.standard_normal((100, 3)) * 2
    settings, options = SETTINGS[name]
    options = {key: value for key, value in options.items() if key != "spread"}
    hybrid = fit(certificate(name, init), data)
    boxes = fit(IntervalTraining(LAYERS, {**settings, "clip_by": "norm"}, K, init=init, **options), data)
    np.testing.assert_array_equal(hybrid.nominal, boxes.nominal)
    (labels, k), (same, plain) = hybrid.stability(Q), boxes.stability(Q)
    np.testing.assert_array_equal(labels, same)
    assert (k >= plain).all()
    for level, lower, upper in zip(hybrid.levels, boxes.intervals.lower, boxes.intervals.upper, strict=True):
        assert (level.lower >= Network(tuple(LAYERS)).inward(lower)).all()
        assert (level.upper <= Network(tuple(LAYERS)).inward(upper)).all()


def test_it_certifies_more_than_boxes_after_two_and_four_steps():
    rng = np.random.default_rng(4)
    X = rng.standard_normal((400, 12)) / 2
    y = (X[:, 0] + X[:, 1] > 0).astype(int)
    Q = rng.standard_normal((200, 12)) / 2
    for epochs, rate in ((2, 4.0), (4, 1.5)):
        settings = {"learning_rate": rate, "clip": 0.5, "epochs": epochs, "clip_by": "norm"}
        found = [
            kind([12, 8, 1], settings, 20).fit(X, y).stability(Q)[1]
            for kind in (HybridTraining, IntervalTraining)
        ]
        assert found[0].mean() > 1.3 * found[1].mean()


def test_a_lost_level_loses_all_above_it():
    rng = np.random.default_rng(5)
    init, data = start(rng, LAYERS), table(rng)
    settings = {"learning_rate": 1.5e59, "clip": 0.5, "epochs": 2, "clip_by": "norm"}
    model = HybridTraining(LAYERS, settings, 200, init=init).fit(*data[:2])
    assert 0 < len(model.levels) < 201
    _, k = model.stability(data[0])
    assert k.max() < len(model.levels)
    gone = HybridTraining(LAYERS, {**settings, "learning_rate": 1e80}, 3, init=init).fit(*data[:2])
    assert gone.levels == []
    assert (gone.stability(data[0])[1] == 0).all()


def test_edge_cases_of_rows_queries_and_tables():
    rng = np.random.default_rng(6)
    init, (X, y, _) = start(rng, LAYERS), table(rng)
    X[0], X[1], X[2], y[3] = np.nan, 1e300, 1e61, 7
    model = certificate("full", init).fit(X, y)
    assert np.isfinite(model.nominal).all()
    with pytest.raises(DataError, match="query"):
        model.stability(X[:1])
    with pytest.raises(DataError, match="query"):
        model.check_queries(X[:1])
    assert isinstance(model, Certified)
    assert isinstance(certificate("full", init), Certificate)
    empty = certificate("add_batches", init).fit(np.empty((0, 3)), [], ids=[])
    assert empty.stability(np.eye(3))[1].shape == (3,)
    assert model.stability(X[:0])[1].shape == (0,)
    still = HybridTraining(
        LAYERS, {"learning_rate": 1, "clip": 1, "epochs": 0, "clip_by": "norm"}, 3, init=np.zeros(21)
    )
    labels, _ = still.fit(X, y).stability(np.eye(3))
    assert (labels == 0).all()


def test_a_model_comes_back_from_its_state(monkeypatch):
    monkeypatch.setitem(states.KNOWN, "HybridTraining", "intervals.hybrid")
    monkeypatch.setitem(states.KNOWN, "CertifiedHybrid", "intervals.hybrid")
    monkeypatch.setitem(states.KNOWN, "Level", "intervals.hybrid")
    rng = np.random.default_rng(7)
    model = fit(certificate("decay_batches", start(rng, LAYERS)), table(rng))
    arrays = []
    again = states.unpack(states.pack(model, arrays), arrays)
    Q = rng.standard_normal((30, 3))
    for one, other in zip(model.stability(Q), again.stability(Q), strict=True):
        np.testing.assert_array_equal(one, other)


def test_what_has_no_proof_is_refused():
    good = {"learning_rate": 1.0, "clip": 1.0, "clip_by": "norm"}
    for layers in ([3, 1], [3, 4, 2], [3, 4, 4, 1]):
        with pytest.raises(UnsupportedError, match="hybrid"):
            HybridTraining(layers, good, 5)
    for change in ({"momentum": 0.5}, {"clip_by": "value"}):
        with pytest.raises(UnsupportedError, match="hybrid"):
            HybridTraining(LAYERS, {**good, **change}, 5)
    with pytest.raises(UnsupportedError):
        HybridTraining(LAYERS, good, 5, adjacency="add_remove_one")
    for options in (
        {"k_max": -1},
        {"k_max": 2.0},
        {"k_max": 1, "spread": 1.0},
        {"k_max": 1, "spread": np.nan},
    ):
        with pytest.raises(ParameterError):
            HybridTraining(LAYERS, good, **options)
