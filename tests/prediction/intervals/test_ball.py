"""The l2 ball: radius between models of neighbours, distances, attacks, refusals."""

from __future__ import annotations

import numpy as np
import pytest

from confide.errors import DataError, ParameterError, UnsupportedError
from confide.prediction.certificate import Certificate, Certified
from confide.prediction.intervals import BallTraining, FixedBatches, IntervalTraining

from .helpers import odd_row, train_plainly  # isort: skip

SETTINGS = {
    "full": ({"learning_rate": 0.4, "clip": 0.8, "epochs": 12}, None),
    "decay": ({"learning_rate": 0.3, "clip": 2.0, "epochs": 30, "weight_decay": 0.2}, None),
    "expanding": ({"learning_rate": 3.0, "clip": 0.5, "epochs": 3}, None),
    "batches": (
        {"learning_rate": 0.4, "clip": 0.6, "epochs": 4, "learning_rate_decay": 0.2},
        FixedBatches(3),
    ),
}
NORM = 2.0


def certificate(name, **options):
    settings, batches = SETTINGS[name]
    return BallTraining(3, {**settings, "clip_by": "norm"}, NORM, batches=batches, **options)


def table(rng, rows=40):
    X = rng.standard_normal((rows, 3))
    return X, (X[:, 0] + 0.5 * rng.standard_normal(rows) > 0).astype(np.int64)


def changed(rng, X, y, count=1):
    X, y = X.copy(), y.copy()
    for row in rng.choice(len(y), size=count, replace=False):
        X[row], y[row] = odd_row(rng, 3, 2)
    return X, y


@pytest.mark.parametrize("name", SETTINGS)
def test_the_model_is_plain_gradient_descent(name):
    rng = np.random.default_rng(0)
    X, y = table(rng)
    X *= 0.5 / np.linalg.norm(X, axis=1, keepdims=True) * rng.uniform(0, 2 * NORM - 0.1, (len(X), 1))
    model = certificate(name)
    settings, batches = SETTINGS[name]
    parts = (batches or FixedBatches(1)).split(X, y, None)
    expected = train_plainly(
        (X, y, None),
        [3, 1],
        np.zeros(4),
        {**settings, "clip_by": "norm"},
        [(part, len(part)) for part in parts],
    )
    np.testing.assert_allclose(model.fit(X, y).nominal, expected, atol=1e-7)  # rows are a little shorter


def check(name, pairs, seed):
    """Neighbours' models within the radius, distances within 1; k changes within k radii, certified ones stay."""
    rng = np.random.default_rng(seed)
    ratio = flips = 0.0
    for _ in range(pairs):
        X, y = table(rng)
        model = certificate(name, init=rng.standard_normal(4) * 0.2)
        here, there = model.fit(X, y), model.fit(*changed(rng, X, y))
        moved = np.linalg.norm(here.nominal - there.nominal)
        assert moved <= here.radius
        ratio = max(ratio, moved / here.radius)
        Q = rng.standard_normal((40, 3)) * rng.choice([0.2, 1, 10], size=(40, 1))
        (labels, k), (labels_2, k_2) = here.stability(Q), there.stability(Q)
        assert (abs(k - k_2) <= 1).all()
        assert ((labels == labels_2) | ((k == 0) & (k_2 == 0))).all()
        count = int(rng.integers(2, 12))
        far = model.fit(*changed(rng, X, y, count))
        assert np.linalg.norm(here.nominal - far.nominal) <= count * here.radius
        new = far.stability(Q)[0]
        assert (new[k >= count] == labels[k >= count]).all()
        flips += (new != labels).sum()
    return ratio, flips


@pytest.mark.parametrize("name", SETTINGS)
def test_models_of_neighbours_and_attacks(name):
    _, flips = check(name, pairs=25, seed=1)
    assert flips > 0


@pytest.mark.slow
@pytest.mark.parametrize("name", SETTINGS)
def test_models_of_neighbours_and_attacks_at_length(name):
    check(name, pairs=1000, seed=2)


def test_the_radius_is_attained_up_to_a_factor():
    """One step: a row of label 1 against the same row of label 0, both past the clip."""
    model = BallTraining(1, {"learning_rate": 0.5, "clip": 0.4, "clip_by": "norm"}, 1.0)
    X = np.zeros((10, 1))
    here, there = (model.fit(np.vstack([X, [[1.0]]]), np.r_[np.zeros(10), label]) for label in (0, 1))
    moved = np.linalg.norm(here.nominal - there.nominal)
    assert 0.999 * here.radius < moved <= here.radius


def test_decay_keeps_the_radius_bounded_where_steps_alone_add_it_up():
    settings = {"learning_rate": 0.1, "clip": 0.5, "clip_by": "norm"}

    def radius(epochs, decay):
        return BallTraining(3, {**settings, "epochs": epochs, "weight_decay": decay}, 1.0).motion([100])[0]

    np.testing.assert_allclose(radius(50, 0), 50 * 0.1 * 2 * 0.5 / 100, rtol=1e-6)
    assert radius(10_000, 0.5) < 2 * 0.5 / 100 / 0.5 * 1.001
    assert radius(1, 0) < 0.1 * 2 * 0.5 / 100 * (1 + 1e-8)  # rounding is the smallest part


def test_many_steps_certify_where_boxes_lost_everything():
    rng = np.random.default_rng(3)
    X, y = table(rng, rows=400)
    Q = rng.standard_normal((200, 3))
    settings = {"learning_rate": 0.5, "clip": 0.5, "epochs": 40, "clip_by": "norm"}
    ball = BallTraining(3, settings, NORM).fit(X, y).stability(Q)[1]
    boxes = IntervalTraining([3, 1], settings, 50).fit(X, y).stability(Q)[1]
    assert np.median(ball) > 3 * max(np.median(boxes), 1)


@pytest.mark.parametrize(
    "query", [np.zeros(3), np.full(3, 1e308), np.full(3, 1e-320), np.array([1e308, -1e308, 0.0])]
)
def test_queries_at_the_ends_of_the_range(query):
    rng = np.random.default_rng(4)
    model = certificate("full").fit(*table(rng))
    labels, k = model.stability(query[None])
    assert labels.shape == k.shape == (1,)
    assert k[0] >= 0


def test_a_logit_of_zero_is_the_first_class_without_distance():
    model = BallTraining(2, {"learning_rate": 1.0, "clip": 1.0, "epochs": 0, "clip_by": "norm"}, 1.0)
    labels, k = model.fit(np.ones((3, 2)), [0, 1, 1]).stability([[1.0, 1.0]])
    assert labels.tolist() == [0]
    assert k.tolist() == [0]


def test_unusable_rows_and_bad_queries():
    rng = np.random.default_rng(5)
    X, y = table(rng)
    X[0] = np.nan
    model = certificate("full").fit(X, y)
    assert np.isfinite(model.nominal).all()
    with pytest.raises(DataError, match="query"):
        model.stability(X[:1])
    assert isinstance(certificate("full"), Certificate)
    assert isinstance(model, Certified)


def test_what_has_no_proof_is_refused():
    good = {"learning_rate": 1.0, "clip": 1.0, "clip_by": "norm"}
    with pytest.raises(UnsupportedError):
        BallTraining(3, good, 1.0, adjacency="add_remove_one")
    with pytest.raises(UnsupportedError):
        BallTraining(3, {**good, "momentum": 0.5}, 1.0)
    with pytest.raises(UnsupportedError):
        BallTraining(3, {**good, "clip_by": "value"}, 1.0)
    for norm in (0.0, -1.0, np.nan, np.inf):
        with pytest.raises(ParameterError):
            BallTraining(3, good, norm)
