"""The l2 ball: radius between models of neighbours, distances, attacks, refusals."""

from __future__ import annotations

import numpy as np
import pytest

from confide.errors import DataError, ParameterError, UnsupportedError
from confide.prediction import states
from confide.prediction.certificate import Certificate, Certified
from confide.prediction.intervals import (
    BallTraining,
    FixedBatches,
    HashedBatches,
    Hyperparameters,
    IntervalTraining,
)

from .helpers import neighbour, train_plainly  # isort: skip

NORM = 2.0
#: name -> hyperparameters, options. Clips of 4 never bind.
SETTINGS = {
    "full": ({"learning_rate": 0.4, "clip": 0.8, "epochs": 12}, {}),
    "decay": ({"learning_rate": 0.3, "clip": 2.0, "epochs": 30, "weight_decay": 0.2}, {}),
    "expanding": ({"learning_rate": 3.0, "clip": 0.5, "epochs": 3}, {}),
    "batches": (
        {"learning_rate": 0.4, "clip": 0.6, "epochs": 4, "learning_rate_decay": 0.2},
        {"batches": FixedBatches(3)},
    ),
    "momentum": ({"learning_rate": 0.2, "clip": 0.8, "epochs": 12, "momentum": 0.5, "weight_decay": 0.1}, {}),
    "momentum_batches": (  # the rate's metric changes at every step
        {"learning_rate": 0.1, "clip": 0.8, "epochs": 5, "momentum": 0.8, "learning_rate_decay": 0.3},
        {"batches": FixedBatches(2)},
    ),
    "nesterov": (
        {"learning_rate": 0.2, "clip": 4.0, "epochs": 10, "momentum": 0.6, "nesterov": True},
        {"classes": 3},
    ),
    "nesterov_expanding": (
        {"learning_rate": 2.0, "clip": 0.5, "epochs": 3, "momentum": 0.5, "nesterov": True},
        {},
    ),
    "softmax": ({"learning_rate": 0.3, "clip": 4.0, "epochs": 6}, {"classes": 3}),
    "softmax_batches": (
        {"learning_rate": 0.5, "clip": 4.0, "epochs": 3, "weight_decay": 0.3},
        {"classes": 4, "batches": FixedBatches(2)},
    ),
    "add": (
        {"learning_rate": 0.5, "clip": 0.8, "epochs": 10},
        {"adjacency": "add_remove_one", "batches": HashedBatches(1, 40)},
    ),
    "add_expanding": (  # some levels contract, those with more rows do not
        {"learning_rate": 1.5, "clip": 0.8, "epochs": 5},
        {"adjacency": "add_remove_one", "batches": HashedBatches(1, 40)},
    ),
    "add_batches": (
        {"learning_rate": 0.4, "clip": 1.0, "epochs": 4, "weight_decay": 0.1},
        {"adjacency": "add_remove_one", "batches": HashedBatches(3, 13)},
    ),
    "add_softmax": (
        {"learning_rate": 0.4, "clip": 4.0, "epochs": 5},
        {"adjacency": "add_remove_one", "batches": HashedBatches(2, 20), "classes": 3},
    ),
}


def certificate(name, **options):
    settings, given = SETTINGS[name]
    return BallTraining(3, {**settings, "clip_by": "norm"}, NORM, **given, **options)


def table(rng, rows=40, classes=2):
    X = rng.standard_normal((rows, 3))
    y = (X[:, 0] + 0.5 * rng.standard_normal(rows) > 0).astype(np.int64)
    if classes > 2:
        y += X[:, 1] > 0.4
    return X, y, np.arange(rows)


def fit(model, data):
    X, y, ids = data
    return model.fit(X, y, ids=ids if isinstance(model.batches, HashedBatches) else None)


def changed(rng, data, model, count=1):
    """Random changes, rows of every odd kind among them."""
    for _ in range(count):
        data = neighbour(rng, data, model.adjacency.value, model.classes)
    return data


def poisoned(rng, data, model, count, query):
    """Changes chosen against a query: copies of it, as long as allowed, of each wrong class; or no such rows."""
    X, y, ids = (part.copy() for part in data)
    label = fit(model, data).predict(query[None])[0]
    wrong = (label + 1 + rng.integers(model.classes - 1)) % model.classes
    worst = np.argsort(-(X @ query) * np.where(y == label, 1, -1))[:count]  # rows that speak for the class
    if model.adjacency.value == "replace_one":
        X[worst], y[worst] = query * 1e3, wrong
        return X, y, ids
    gone = count // 2
    X, y, ids = (np.delete(part, worst[:gone], 0) for part in (X, y, ids))
    more = count - gone
    return (
        np.vstack([X, np.tile(query * 1e3, (more, 1))]),
        np.concatenate([y, np.full(more, wrong)]),
        np.concatenate([ids, 500 + rng.integers(10**6, size=more)]),
    )


@pytest.mark.parametrize("name", SETTINGS)
def test_the_model_is_plain_gradient_descent(name):
    rng = np.random.default_rng(0)
    model = certificate(name)
    X, y, ids = table(rng, classes=model.classes)
    X *= 0.5 / np.linalg.norm(X, axis=1, keepdims=True) * rng.uniform(0, 2 * NORM - 0.1, (len(X), 1))
    batches = model.plan.batches
    parts = batches.split(X, y, ids)
    outputs = 1 if model.classes == 2 else model.classes
    expected = train_plainly(
        (X, y, None),
        [3, outputs],
        np.zeros(4 * outputs),
        {**SETTINGS[name][0], "clip_by": "norm"},
        [(part, batches.divisor_of(part)) for part in parts],
    )
    found = fit(model, (X, y, ids)).nominal
    np.testing.assert_allclose(found, expected, atol=1e-7)  # rows are a little shorter


def check(name, pairs, seed):
    """Neighbours' models within the radius, distances within 1; k changes within reach, certified ones stay."""
    rng = np.random.default_rng(seed)
    flips = certified = 0
    for number in range(pairs):
        plain = certificate(name)
        data = table(rng, classes=plain.classes)
        model = certificate(name, init=rng.standard_normal(plain.plan.network.size) * 0.2, k_max=300)
        here, there = fit(model, data), fit(model, changed(rng, data, model))
        assert np.linalg.norm(here.nominal - there.nominal) <= min(here.reach[0], there.reach[0])
        assert (there.reach[:-1] <= here.reach[1:]).all()
        Q = rng.standard_normal((40, 3)) * rng.choice([0.2, 1, 10], size=(40, 1))
        (labels, k), (labels_2, k_2) = here.stability(Q), there.stability(Q)
        assert (abs(k - k_2) <= 1).all()
        assert ((labels == labels_2) | ((k == 0) & (k_2 == 0))).all()
        count = int(rng.integers(2, 12))
        random = changed(rng, data, model, count)
        aimed = poisoned(rng, data, model, count, Q[0])
        # Ten changes and one: distances of tables far apart differ by at most their number.
        for far in (random, aimed):
            other = fit(model, far)
            assert np.linalg.norm(here.nominal - other.nominal) <= here.reach[count - 1]
            new, k_far = other.stability(Q)
            assert (abs(k - k_far) <= count).all()
            assert (new[k >= count] == labels[k >= count]).all()
            flips += (new != labels).sum()
            certified += (k >= count).sum()
        certified += number == 0
    return flips, certified


@pytest.mark.parametrize("name", SETTINGS)
def test_models_of_neighbours_and_attacks(name):
    flips, _ = check(name, pairs=15, seed=1)
    assert flips > 0


@pytest.mark.slow
@pytest.mark.parametrize("name", SETTINGS)
def test_models_of_neighbours_and_attacks_at_length(name):
    check(name, pairs=600, seed=2)


@pytest.mark.parametrize(
    ("adjacency", "batches"), [("replace_one", 1), ("add_remove_one", HashedBatches(1, 11))]
)
def test_the_radius_is_attained_up_to_a_factor(adjacency, batches):
    """One step. Label 1 against label 0, both past the clip; a row more against none."""
    model = BallTraining(
        1, {"learning_rate": 0.5, "clip": 0.4, "clip_by": "norm"}, 1.0, adjacency=adjacency, batches=batches
    )
    X = np.zeros((10, 1))
    here = model.fit(np.vstack([X, [[1.0]]]), np.r_[np.zeros(10), 1])
    if adjacency == "replace_one":
        there = model.fit(np.vstack([X, [[1.0]]]), np.zeros(11))
    else:
        there = model.fit(X, np.zeros(10))
    moved = np.linalg.norm(here.nominal - there.nominal)
    assert 0.999 * here.reach[0] < moved <= here.reach[0]


def test_an_attack_on_many_rows_comes_near_the_certified_distance():
    """One step from 0: of k_true rows that turn a query, the certificate proves more than half."""
    rng = np.random.default_rng(7)
    X = rng.standard_normal((300, 3))
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    y = (X[:, 0] > 0).astype(int)
    model = BallTraining(3, {"learning_rate": 1.0, "clip": 0.5, "clip_by": "norm"}, 1.0)
    query = np.array([1.0, 0.0, 0.0])
    k = model.fit(X, y).stability(query[None])[1][0]
    order = np.argsort(-X[:, 0] * (2 * y - 1))
    for count in range(1, 300):
        A, b = X.copy(), y.copy()
        A[order[:count]], b[order[:count]] = query, 0
        if model.fit(A, b).predict(query[None])[0] == 0:
            break
    assert 0.5 * count < k < count


def test_decay_keeps_the_radius_bounded_where_steps_alone_add_it_up():
    settings = {"learning_rate": 0.1, "clip": 0.5, "clip_by": "norm"}

    def radius(epochs, decay):
        model = BallTraining(3, {**settings, "epochs": epochs, "weight_decay": decay}, 1.0, k_max=1)
        return model.reach([100.0], [100])[0]

    np.testing.assert_allclose(radius(50, 0), 50 * 0.1 * 2 * 0.5 / 100, rtol=1e-5)
    assert radius(10_000, 0.5) < 2 * 0.5 / 100 / 0.5 * 1.001
    assert radius(1, 0) < 0.1 * 2 * 0.5 / 100 * (1 + 1e-5)  # rounding is the smallest part


@pytest.mark.parametrize("nesterov", [False, True])
def test_momentum_costs_about_its_share_where_steps_are_short(nesterov):
    def radius(beta):
        settings = {"learning_rate": 0.02 * (1 - beta), "momentum": beta, "nesterov": nesterov, "epochs": 300}
        model = BallTraining(3, {**settings, "clip": 0.5, "clip_by": "norm"}, 1.0, k_max=1)
        return model.reach([100.0], [100])[0]

    for beta in (0.3, 0.6, 0.9):
        assert radius(0) * 0.95 < radius(beta) < radius(0) * (1 + beta) * 1.02
    still = {"learning_rate": 1.0, "momentum": 0.5, "epochs": 0, "clip": 1.0, "clip_by": "norm"}
    assert BallTraining(3, still, 1.0, k_max=1).reach([9.0], [9])[0] < 1e-200


def test_the_metric_of_momentum_bounds_products_of_any_steps():
    """Random symmetric G in the range, three dimensions: |u| of the recursion stays within the radius."""
    from confide.prediction.intervals.ball_momentum import momentum_moves

    rng = np.random.default_rng(10)
    for nesterov in (False, True):
        for _ in range(40):
            beta, rate, smooth = rng.uniform(0.05, 0.9), rng.uniform(0.05, 1), rng.uniform(0.1, 2)
            settings = Hyperparameters(rate, 1.0, 8, "norm", beta, nesterov, 0.1, rng.choice([0.0, 0.5]))
            found, _ = momentum_moves(
                settings, [10.0], longest=1.0, smooth=smooth, start=0.0, row_error=(0.0, 0.0)
            )
            u = p = np.zeros(3)
            for step in range(8):
                basis = np.linalg.qr(rng.standard_normal((3, 3)))[0]
                ends = rng.choice([0, smooth, rng.uniform(0, smooth)], size=3)
                g = (basis * (ends + 0.1)) @ basis.T @ u + 0.2 * rng.choice([-1, 1]) * np.eye(3)[0]
                p = beta * p + g
                u = u - settings.rate(step) * (g + beta * p if nesterov else p)
            assert np.linalg.norm(u) <= found


def test_a_change_lies_in_one_batch():
    """An epoch of three batches costs what one step of a third of the rows costs, not three."""
    settings = {"learning_rate": 0.1, "clip": 0.5, "clip_by": "norm"}
    three = BallTraining(3, settings, 1.0, batches=3, k_max=5).reach([100.0] * 3, [100] * 3)
    one = BallTraining(3, settings, 1.0, k_max=5).reach([100.0], [100])
    np.testing.assert_allclose(three, one, rtol=1e-5)
    np.testing.assert_allclose(three, np.arange(1, 6) * three[0], rtol=1e-15)


def test_levels_that_expand_cost_more_and_lost_ones_stay_lost():
    """Add/remove: from a number of rows on a step expands; far on, a level's bound is infinite."""
    settings = {"learning_rate": 1.0, "clip": 0.5, "clip_by": "norm", "epochs": 20}
    model = BallTraining(3, settings, 1.0, "add_remove_one", HashedBatches(1, 10.0), k_max=3000)
    growth = np.diff(model.reach([10.0], [30])[:14], prepend=0)
    np.testing.assert_allclose(growth[:10], growth[0], rtol=1e-5)  # (30 + 10)/10 L = 2
    assert growth[13] > 5 * growth[0]
    assert np.isposinf(model.reach([10.0], [30])[-1])
    finite = np.isfinite(model.reach([10.0], [30]))
    assert (np.diff(finite.astype(int)) <= 0).all()
    far = BallTraining(3, {**settings, "learning_rate": 1e90}, 1.0).fit(np.eye(3), [0, 1, 0])
    assert (far.stability(np.eye(3))[1] == 0).all()


def test_many_steps_certify_where_boxes_lost_everything():
    rng = np.random.default_rng(3)
    X, y, _ = table(rng, rows=400)
    Q = rng.standard_normal((200, 3))
    settings = {"learning_rate": 0.5, "clip": 0.5, "epochs": 40, "clip_by": "norm"}
    ball = BallTraining(3, settings, NORM).fit(X, y).stability(Q)[1]
    boxes = IntervalTraining([3, 1], settings, 50).fit(X, y).stability(Q)[1]
    assert np.median(ball) > 3 * max(np.median(boxes), 1)


@pytest.mark.slow
def test_breast_cancer_after_many_steps_has_a_median_distance_of_at_least_five():
    """The promised figure, at a mean held-out accuracy of .95: settings chosen on the training rows alone."""
    from sklearn.datasets import load_breast_cancer
    from sklearn.model_selection import StratifiedKFold, train_test_split

    X, y = load_breast_cancer(return_X_y=True)
    X = np.clip((X - X.mean(axis=0)) / X.std(axis=0), -2, 2)
    settings = [
        {"learning_rate": 0.3, "clip": clip, "epochs": epochs, "weight_decay": 0.03, "clip_by": "norm"}
        for clip in (0.5, 1.0)
        for epochs in (30, 100)
    ]

    def model(setting):
        return BallTraining(30, setting, 3.0)

    accuracy, ball, boxes = [], [], []
    for split in range(10):
        A, Q, a, q = train_test_split(X, y, test_size=0.25, random_state=split, stratify=y)
        scores = []
        for setting in settings:
            folds = list(StratifiedKFold(5, shuffle=True, random_state=split).split(A, a))
            found = [model(setting).fit(A[s], a[s]).stability(A[t]) for s, t in folds]
            right = np.mean(
                [(labels == a[t]).mean() for (labels, _), (_, t) in zip(found, folds, strict=True)]
            )
            scores.append((right >= 0.96, np.mean([k.mean() for _, k in found]) if right >= 0.96 else right))
        setting = settings[max(range(len(settings)), key=scores.__getitem__)]
        labels, k = model(setting).fit(A, a).stability(Q)
        accuracy.append((labels == q).mean())
        ball.append(np.median(k))
        box = IntervalTraining([30, 1], setting, 2, init=np.zeros(31)).fit(model(setting).shortened(A), a)
        boxes.append(np.median(box.stability(model(setting).shortened(Q))[1]))
    assert np.mean(accuracy) >= 0.95
    assert min(ball) >= 5
    assert max(boxes) == 0


def test_a_frozen_map_stands_before_rows_and_queries():
    """A hidden layer from a public seed: classes that no line divides, with distances."""
    rng = np.random.default_rng(8)
    X = rng.uniform(-1, 1, (2400, 2))
    y = (X[:, 0] * X[:, 1] > 0).astype(int)
    W = np.random.default_rng(9).standard_normal((3, 40))

    def hidden(rows):
        assert len(rows) == 256
        return np.maximum(np.c_[rows, np.ones(len(rows))] @ W, 0) / 4

    settings = {"learning_rate": 1.0, "clip": 1.0, "epochs": 60, "clip_by": "norm"}
    mapped = BallTraining(40, settings, 2.0, features=hidden).fit(X, y)
    labels, k = mapped.stability(X)
    line = BallTraining(2, settings, 2.0).fit(X, y)
    assert (labels == y).mean() > 0.8 > (line.predict(X) == y).mean() + 0.15
    assert np.median(k) >= 2


@pytest.mark.parametrize(
    "query", [np.zeros(3), np.full(3, 1e308), np.full(3, 1e-320), np.array([1e308, -1e308, 0.0])]
)
@pytest.mark.parametrize("name", ["full", "softmax"])
def test_queries_at_the_ends_of_the_range(name, query):
    rng = np.random.default_rng(4)
    model = certificate(name)
    labels, k = fit(model, table(rng, classes=model.classes)).stability(query[None])
    assert labels.shape == k.shape == (1,)
    assert 0 <= k[0] <= model.k_max


@pytest.mark.parametrize("classes", [2, 3])
def test_a_gap_of_zero_is_the_first_class_without_distance(classes):
    settings = {"learning_rate": 1.0, "clip": 3.0, "epochs": 0, "clip_by": "norm"}
    model = BallTraining(2, settings, 1.0, classes=classes)
    labels, k = model.fit(np.ones((3, 2)), [0, 1, 1]).stability([[1.0, 1.0]])
    assert labels.tolist() == [0]
    assert k.tolist() == [0]


def test_a_distance_is_at_most_k_max():
    rng = np.random.default_rng(4)
    data, Q = table(rng, rows=4000), rng.standard_normal((50, 3))
    every = fit(certificate("decay"), data).stability(Q)[1]
    assert every.max() > 9
    few = fit(certificate("decay", k_max=9), data).stability(Q)[1]
    np.testing.assert_array_equal(few, np.minimum(every, 9))
    assert (fit(certificate("decay", k_max=0), data).stability(Q)[1] == 0).all()


@pytest.mark.parametrize("name", ["full", "add", "add_softmax"])
def test_unusable_rows_and_bad_queries(name):
    rng = np.random.default_rng(5)
    certified = certificate(name)
    X, y, ids = table(rng, classes=certified.classes)
    X[0] = np.nan
    model = fit(certified, (X, y, ids))
    assert np.isfinite(model.nominal).all()
    with pytest.raises(DataError, match="query"):
        model.stability(X[:1])
    assert isinstance(certified, Certificate)
    assert isinstance(model, Certified)


@pytest.mark.parametrize("name", ["batches", "add_softmax"])
def test_a_model_comes_back_from_its_state(name):
    rng = np.random.default_rng(6)
    certified = certificate(name)
    model = fit(certified, table(rng, classes=certified.classes))
    arrays = []
    again = states.unpack(states.pack(model, arrays), arrays)
    Q = rng.standard_normal((30, 3))
    for one, other in zip(model.stability(Q), again.stability(Q), strict=True):
        np.testing.assert_array_equal(one, other)


def test_no_rows_under_add_remove():
    model = certificate("add_batches", init=np.ones(4))
    labels, k = model.fit(np.empty((0, 3)), [], ids=[]).stability(np.eye(3))
    assert (labels == 1).all()
    assert (k > 0).all()


def test_what_has_no_proof_is_refused():
    good = {"learning_rate": 1.0, "clip": 1.0, "clip_by": "norm"}
    with pytest.raises(UnsupportedError):
        BallTraining(3, good, 1.0, adjacency="add_remove_one")
    with pytest.raises(UnsupportedError):
        BallTraining(3, {**good, "momentum": 0.5}, 1.0, "add_remove_one", HashedBatches(1, 9))
    with pytest.raises(UnsupportedError):
        BallTraining(3, {**good, "clip_by": "value"}, 1.0)
    with pytest.raises(UnsupportedError, match="Softmax"):
        BallTraining(3, {**good, "clip": 1.99}, 1.0, classes=3)
    BallTraining(3, {**good, "clip": 2.0001}, 1.0, classes=3)
    for norm in (0.0, -1.0, np.nan, np.inf):
        with pytest.raises(ParameterError):
            BallTraining(3, good, norm)
    for name, value in (("classes", 1), ("classes", 2.0), ("k_max", -1), ("k_max", True), ("k_max", 1 << 21)):
        with pytest.raises(ParameterError, match=name):
            BallTraining(3, good, 1.0, **{name: value})
