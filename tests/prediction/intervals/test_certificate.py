"""`IntervalTraining` and `train_intervals`: levels, edge cases, batches, budgets, public rows, feature maps."""

from __future__ import annotations

import numpy as np
import pytest

import confide.prediction
from confide.errors import DataError, ParameterError, UnsupportedError
from confide.prediction.certificate import Certificate, Certified, steady
from confide.prediction.intervals import (
    FixedBatches,
    HashedBatches,
    Hyperparameters,
    IntervalTraining,
    Network,
    certificate,
    train_intervals,
)
from confide.prediction.intervals.certificate import CertifiedNetwork
from confide.privacy import Adjacency

from .helpers import CLIP, MODELS, SETTINGS, hyperparameters, run, start, table  # isort: skip

STEP = {"learning_rate": 1.0, "clip": 0.1}


def blobs(rows=200, seed=0, columns=4, classes=2):
    rng = np.random.default_rng(seed)
    y = rng.integers(classes, size=rows)
    centres = np.random.default_rng(1).standard_normal((classes, columns))
    return rng.standard_normal((rows, columns)) + 1.5 * centres[y], y


# -- levels --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("setting", SETTINGS)
@pytest.mark.parametrize("model", ["mlp", "linear_one_logit_nesterov"])
def test_a_level_alone_has_the_bits_it_has_among_others(model, setting):
    """Also the nominal model (pitfall F60), whatever the levels and the number of threads."""
    rng = np.random.default_rng(0)
    layers, _ = MODELS[model]
    data, init = table(rng), start(rng, layers)
    every = run(data, model, setting, range(6), init, n_jobs=2)
    for k in (0, 1, 3, 5):
        alone = run(data, model, setting, [k], init)
        np.testing.assert_array_equal(alone.nominal, every.nominal)
        np.testing.assert_array_equal(alone.lower[0], every.lower[k])
        np.testing.assert_array_equal(alone.upper[0], every.upper[k])


@pytest.mark.parametrize("layers", [[4, 2], [4, 1], [4, 6, 3]])
def test_bisection_gives_the_distances_of_all_levels(layers):
    X, y = blobs(classes=max(2, layers[-1]))
    Q = np.random.default_rng(2).standard_normal((300, 4)) * 2
    settings = {**STEP, "epochs": 2}
    every = IntervalTraining(layers, settings, 60, levels="all").fit(X, y)
    some = IntervalTraining(layers, settings, 60, levels="bisect").fit(X, y)
    np.testing.assert_array_equal(np.array(every.stability(Q)), np.array(some.stability(Q)))
    np.testing.assert_array_equal(every.stability(Q)[0], every.predict(Q))
    assert len(set(every.stability(Q)[1].tolist())) > 8
    assert every.intervals is not None
    assert some.intervals is None


@pytest.mark.parametrize("layers", [[4, 2], [4, 1], [4, 6, 3]])
@pytest.mark.parametrize("k_max", [0, 1, 2, 60, 64])
def test_steady_gives_the_distances_of_all_levels(layers, k_max):
    X, y = blobs(classes=max(2, layers[-1]))
    Q = np.random.default_rng(2).standard_normal((60, 4)) * 2
    settings = {**STEP, "epochs": 2}
    every = IntervalTraining(layers, settings, k_max, levels="all").fit(X, y)
    some = IntervalTraining(layers, settings, k_max, levels="bisect").fit(X, y)
    expected = np.array(every.stability(Q))
    np.testing.assert_array_equal(np.array(steady(some, Q)), expected)
    np.testing.assert_array_equal(np.array(steady(every, Q)), expected)
    np.testing.assert_array_equal(np.array(some.stability(Q)), expected)


def test_steady_takes_the_same_steps_for_every_row_and_table(monkeypatch):
    """Levels that are trained, and boxes that are asked, by k_max and the number of rows alone."""
    steps, trained = [], []
    real, train = certificate.decisions, CertifiedNetwork._train
    monkeypatch.setattr(
        certificate,
        "decisions",
        lambda *given: steps.append((len(given[1]), given[3].X.shape)) or real(*given),
    )
    monkeypatch.setattr(
        CertifiedNetwork, "_train", lambda self, levels: trained.append(list(levels)) or train(self, levels)
    )
    told = set()
    X, y = blobs()
    for rows, labels in ((X, y), (X, np.zeros_like(y)), (1e300 * X, y), (X[:3], y[:3])):
        fitted = IntervalTraining([4, 2], STEP, 300, levels="bisect").fit(rows, labels)
        for Q in (X[:2] * 100, X[:2] * 0):
            steps.clear()
            told.update(steady(fitted, Q)[1].tolist())
            assert steps == [(1, (1, 5, 1))] * (2 * (1 + 9))
    assert trained == [list(range(301))] * 4  # at the first call, whatever it asks
    assert len(told) > 3


def test_a_lost_model_is_steady_too():
    X, y = blobs()
    settings = {"learning_rate": 1e100, "clip": 1e100, "epochs": 3, "weight_decay": 1e100}
    fitted = IntervalTraining([4, 2], settings, 300).fit(X, y)
    assert not steady(fitted, X[:20])[1].any()
    np.testing.assert_array_equal(steady(fitted, X[:20])[0], fitted.stability(X[:20])[0])


def test_steady_trains_once_for_all_threads_and_leaves_the_state():
    """What a service names its answers by is the state: it must not change as the model is asked."""
    from concurrent.futures import ThreadPoolExecutor

    X, y = blobs()
    fitted = IntervalTraining([4, 2], STEP, 300).fit(X, y)
    before, trained = fitted.state(), []
    train = fitted._train
    fitted._train = lambda levels: trained.append(1) or train(levels)
    with ThreadPoolExecutor(8) as pool:
        told = list(pool.map(lambda row: int(steady(fitted, X[row : row + 1])[1][0]), range(40)))
    assert trained == [1]
    assert told == fitted.stability(X[:40])[1].tolist()
    assert all(fitted.state()[name] is before[name] for name in before)


def test_large_k_is_searched_in_few_levels():
    X, y = blobs(rows=2000)
    fitted = IntervalTraining([4, 2], STEP, 2000).fit(X, y)
    _, k = fitted.stability(X[:3])
    assert k.max() > 256
    assert len(fitted._boxes) < 3 * 12 + 2


def test_a_coarse_grid_of_levels_gives_no_distance():
    X, y = blobs()
    coarse = train_intervals(X, y, [4, 2], np.zeros(10), STEP, [0, 5, 10], "replace_one")
    with pytest.raises(ParameterError, match="missing below"):
        coarse.stability(X)
    fine = train_intervals(X, y, [4, 2], np.zeros(10), STEP, range(1, 11), "replace_one")
    whole = train_intervals(X, y, [4, 2], np.zeros(10), STEP, range(11), "replace_one")
    np.testing.assert_array_equal(fine.stability(X)[1], whole.stability(X)[1])
    np.testing.assert_array_equal(whole.certified(X)[[0, 5, 10]], coarse.certified(X))


# -- bad input -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("cell", "label"), [(np.nan, 0), (np.inf, 1), ("text", 0), (None, 1), (10**400, 1), (0.5, 7), (0.5, None),
                                             (0.5, "x"), (0.5, 0.5), (0.5, -1)])  # fmt: skip
def test_an_unusable_row_counts_with_gradient_zero(cell, label):
    X, y = blobs()
    odd, labels = X.astype(object), y.astype(object)
    odd[3, 1], labels[3] = cell, label
    settings = {**STEP, "epochs": 3, "weight_decay": 0.1}
    init = Network((4, 5, 2)).initial(0)
    ours = train_intervals(
        odd, labels, [4, 5, 2], init, settings, range(3), "add_remove_one", HashedBatches(1, 200)
    )
    rest = np.arange(200) != 3
    without = train_intervals(
        X[rest], y[rest], [4, 5, 2], init, settings, range(3), "add_remove_one", HashedBatches(1, 200)
    )
    np.testing.assert_array_equal(ours.lower, without.lower)
    np.testing.assert_array_equal(ours.upper, without.upper)


def test_an_overflowing_row_is_bounded_by_the_clip():
    X, y = blobs()
    X[0] = 1e308
    init = Network((4, 6, 6, 2)).initial(0)
    boxes = train_intervals(X, y, [4, 6, 6, 2], init, {**STEP, "epochs": 2}, range(3), "replace_one")
    assert np.isfinite(boxes.lower).all()
    assert np.isfinite(boxes.upper).all()
    assert not boxes.lost.any()


@pytest.mark.parametrize("budget", ["step", "epoch"])
def test_a_lost_level_loses_all_above_it_and_none_below(budget):
    """Decay of 1e77 stretches boxes of width k * 1.2 until level 2 overflows and level 1 does not."""
    settings = {"learning_rate": 1.0, "clip": 1.2, "epochs": 5, "weight_decay": 1e77}
    boxes = train_intervals(
        np.empty((0, 4)), [], [4, 2], np.zeros(10), settings, range(5), "add_remove_one", HashedBatches(1, 1),
        budget=budget,
    )  # fmt: skip
    np.testing.assert_array_equal(boxes.lost, [False, False, True, True, True])
    assert np.isneginf(boxes.lower[2:]).all()
    assert np.isposinf(boxes.upper[2:]).all()
    assert np.isfinite(boxes.upper[1]).all()
    certified = boxes.certified(np.zeros((1, 4)))
    assert certified[0].all()
    assert not certified[2:].any()


def test_a_lost_model_certifies_nothing():
    """Level 0 itself overflows: every distance is 0, and there is a class all the same."""
    X, y = blobs()
    settings = {"learning_rate": 1e100, "clip": 1e100, "epochs": 3, "weight_decay": 1e100}
    boxes = train_intervals(X, y, [4, 2], np.ones(10), settings, range(3), "replace_one")
    assert boxes.lost.all()
    labels, k = boxes.stability(X)
    assert (k == 0).all()
    assert set(labels.tolist()) <= {0, 1}


def test_a_query_that_overflows_is_certified_at_no_level():
    X, y = blobs()
    boxes = train_intervals(
        X, y, [4, 6, 6, 2], 50 * Network((4, 6, 6, 2)).initial(0), STEP, range(3), "replace_one"
    )
    labels, k = boxes.stability([[1.7e308, -1.7e308, 1.7e308, 1.7e308], [1.7e308] * 4])
    assert (k == 0).all()
    assert set(labels.tolist()) <= {0, 1}
    with pytest.raises(DataError, match="query"):
        boxes.stability([[0, 0, np.nan, 0]])


def test_more_changes_than_rows_replace_them_all():
    X, y = blobs(rows=5)
    boxes = train_intervals(X, y, [4, 2], np.zeros(10), STEP, range(9), "replace_one")
    np.testing.assert_array_equal(boxes.lower[5:], np.tile(boxes.lower[5], (4, 1)))
    np.testing.assert_allclose(boxes.upper[5], 0.1, rtol=1e-11)


def test_ties_go_to_the_first_class_and_are_certified_only_if_certain():
    X, y = blobs()
    boxes = train_intervals(X, y, [4, 2], np.zeros(10), {**STEP, "epochs": 0}, range(3), "replace_one")
    labels, k = boxes.stability(X)
    assert (labels == 0).all()
    assert (k == 2).all()  # without a step nothing moves
    one = train_intervals(X, y, [4, 1], np.zeros(5), {**STEP, "epochs": 0}, range(3), "replace_one")
    assert (one.labels(X) == 0).all()


def test_one_query_and_none():
    """One query with two logits, and an empty list (the reference failed on the first)."""
    X, y = blobs()
    boxes = train_intervals(X, y, [4, 2], np.zeros(10), STEP, range(3), "replace_one")
    labels, k = boxes.stability(X[:1])
    assert labels.shape == k.shape == (1,)
    assert boxes.logits(X[:1])[0].shape == (3, 1, 2)
    assert boxes.stability(X[:0])[1].shape == (0,)


def test_a_class_never_seen_is_bounded_like_the_others():
    X, y = blobs()
    labels, k = IntervalTraining([4, 3], {**STEP, "epochs": 9}, 20, init=np.zeros(15)).fit(X, y).stability(X)
    assert (labels == 2).mean() < 0.1
    assert k.max() > 0


@pytest.mark.parametrize(
    "change",
    [{"clip": np.inf}, {"clip": 0}, {"clip": np.nan}, {"learning_rate": -1}, {"momentum": 1}, {"weight_decay": -0.1},
     {"epochs": 1.5}, {"clip_by": "rows"}, {"loss": "hinge"}, {"optimizer": "Adam"}, {"nosuch": 1},
     {"learning_rate": "fast"}],
)  # fmt: skip
def test_bad_hyperparameters_are_refused_before_data(change):
    with pytest.raises(ParameterError):
        train_intervals(None, None, [4, 2], np.zeros(10), {**STEP, **change}, [1], "replace_one")


def test_a_clip_is_required():
    """The reference's defaults (no clip, k = 0) gave NaN without a word (pitfall F57)."""
    with pytest.raises(ParameterError, match="clip"):
        Hyperparameters.of({"learning_rate": 1.0}, 2)


@pytest.mark.parametrize("ks", [[], [2, 1], [1, 1], [-1], [0.5], ["a"], None])
def test_bad_levels_are_refused_before_data(ks):
    with pytest.raises(ParameterError, match="ks"):
        train_intervals(None, None, [4, 2], np.zeros(10), STEP, ks, "replace_one")


@pytest.mark.parametrize(("layers", "init"), [([4], np.zeros(5)), ([4, 0], np.zeros(5)), ([4, 2], np.zeros(9)),
                                              ([4, 2], np.full(10, np.nan)), ([4, 2], None), (None, None)])  # fmt: skip
def test_bad_networks_are_refused_before_data(layers, init):
    with pytest.raises((ParameterError, TypeError)):
        train_intervals(None, None, layers, init, STEP, [1], "replace_one")


# -- batches and budgets -------------------------------------------------------------------------------------


def test_batches_that_a_relation_does_not_bear_are_refused():
    with pytest.raises(UnsupportedError, match="divisor"):
        IntervalTraining([4, 2], STEP, 5, adjacency="add_remove_one")
    with pytest.raises(UnsupportedError, match="hash"):
        IntervalTraining([4, 2], STEP, 5, batches=HashedBatches(3, 10))
    with pytest.raises(DataError, match="batches"):
        IntervalTraining([4, 2], STEP, 5, batches=300).fit(*blobs())
    with pytest.raises(ParameterError):
        FixedBatches(0)
    with pytest.raises(ParameterError):
        HashedBatches(1, 0.0)


def test_a_batch_is_too_large_only_where_its_size_is_public(monkeypatch):
    """Sums stay exact up to four times the number, and under add/remove no exception may tell the size."""
    monkeypatch.setattr("confide.prediction.intervals.network.MOST_ROWS", 99)
    with pytest.raises(DataError, match="more than 99 rows"):
        IntervalTraining([4, 2], STEP, 5).fit(*blobs(100))
    IntervalTraining([4, 2], STEP, 5, batches=2).fit(*blobs(100))
    secret = IntervalTraining([4, 2], STEP, 5, adjacency="add_remove_one", batches=HashedBatches(1, 9.0))
    for n in (99, 100):
        assert len(secret.fit(*blobs(n)).stability(blobs(3)[0])[1]) == 3


def test_hashed_batches_depend_on_the_id_alone():
    X, y = blobs(rows=50)
    ids = np.arange(50)
    batches = HashedBatches(4, 12)
    before = batches.split(X, y, ids)
    order = np.random.default_rng(0).permutation(50)
    after = batches.split(X[order], y[order], ids[order])
    for a, b in zip(before, after):
        assert set(a.tolist()) == set(order[b].tolist())
    gone = batches.split(X[1:], y[1:], ids[1:])
    assert sum(map(len, gone)) == 49
    assert all(set((b + 1).tolist()) <= set(a.tolist()) for a, b in zip(before, gone))


def test_an_empty_batch_is_a_step_with_zero_gradient():
    """Momentum and decay go on, and k rows may be added to it."""
    settings = {**STEP, "weight_decay": 0.5, "momentum": 0.5}
    init = np.linspace(-1, 1, 10)
    boxes = train_intervals(
        np.empty((0, 4)), [], [4, 2], init, settings, [0, 2], "add_remove_one", HashedBatches(1, 10)
    )
    np.testing.assert_allclose(boxes.nominal, init / 2)
    np.testing.assert_allclose(boxes.upper[1] - boxes.lower[1], 2 * 2 * 0.1 / 10, rtol=1e-9)
    three = train_intervals(
        [[1, 0, 0, 0]], [0], [4, 2], init, {**settings, "epochs": 2}, [0, 1], "add_remove_one", HashedBatches(3, 10),
        ids=[5],
    )  # fmt: skip
    assert np.isfinite(three.upper).all()


def test_decay_contracts_boxes_and_never_inverts_them():
    """Wide once, then only decay: the box shrinks by 1 - rate * decay, through 0 to a swap of its ends."""
    X, y = blobs(rows=10)
    for decay in (0.5, 1.0, 1.5):
        settings = {"learning_rate": 1.0, "clip": 0.1, "weight_decay": decay}
        one, two = (
            train_intervals(X, y, [4, 2], np.ones(10), {**settings, "epochs": n}, [10], "replace_one")
            for n in (1, 2)
        )
        width, fresh = one.upper - one.lower, 0.2
        np.testing.assert_allclose(width, fresh, rtol=1e-9)
        np.testing.assert_allclose(two.upper - two.lower, abs(1 - decay) * width + fresh, rtol=1e-9)


def test_a_budget_for_the_epoch_narrows_boxes():
    X, y = blobs(rows=300)
    settings = {"learning_rate": 1.0, "clip": 0.1}
    widths = {}
    for budget in ("step", "epoch"):
        boxes = train_intervals(X, y, [4, 2], np.zeros(10), settings, [5], "replace_one", 3, budget=budget)
        widths[budget] = (boxes.upper - boxes.lower).mean()
    assert 1 / 3 < widths["epoch"] / widths["step"] < 0.5
    once = [train_intervals(X, y, [4, 2], np.zeros(10), {**settings, "epochs": 3}, [5], "replace_one", budget=budget)
            for budget in ("step", "epoch")]  # fmt: skip
    np.testing.assert_array_equal(once[0].upper, once[1].upper)  # one batch: the same


# -- public rows, features, shell ----------------------------------------------------------------------------


@pytest.mark.parametrize("adjacency", ["replace_one", "add_remove_one"])
def test_public_rows_join_and_narrow_the_boxes(adjacency):
    X, y = blobs(rows=100)
    extra = blobs(rows=300, seed=9)
    batches = FixedBatches(2) if adjacency == "replace_one" else HashedBatches(2, 50)
    settings = {**STEP, "epochs": 2}
    alone = train_intervals(X, y, [4, 2], np.zeros(10), settings, range(6), adjacency, batches)
    joined = train_intervals(X, y, [4, 2], np.zeros(10), settings, range(6), adjacency, batches, public=extra)
    assert (joined.upper - joined.lower).mean() < 0.4 * (alone.upper - alone.lower).mean()
    if adjacency == "replace_one":
        # Level 0 is plain training on both tables' rows.
        X_all = np.vstack([X, extra[0]])
        whole = train_intervals(X_all, np.concatenate([y, extra[1]]), [4, 2], np.zeros(10), settings, [0],
                                "replace_one", 2)  # fmt: skip
        np.testing.assert_allclose(joined.nominal, whole.nominal, atol=1e-13)


def test_a_frozen_map_sees_rows_and_queries_in_blocks_of_one_size():
    sizes = []

    def squares(rows):
        sizes.append(len(rows))
        return np.concatenate([rows, rows**2], axis=1)

    X, y = blobs()
    mapped = IntervalTraining([8, 2], STEP, 10, features=squares).fit(X, y)
    plain = IntervalTraining([8, 2], STEP, 10).fit(np.concatenate([X, X**2], axis=1), y)
    np.testing.assert_array_equal(mapped.nominal, plain.nominal)
    np.testing.assert_array_equal(mapped.stability(X[:7])[1], plain.stability(np.hstack([X, X**2])[:7])[1])
    assert set(sizes) == {256}


def test_it_is_a_certificate_and_fits_do_not_touch_each_other():
    certificate = IntervalTraining([4, 2], STEP, 10, adjacency="replace_label")
    assert isinstance(certificate, Certificate)
    assert certificate.adjacency is Adjacency.REPLACE_LABEL
    assert certificate.classes == 2
    X, y = blobs()
    first = certificate.fit(X, y)
    before = first.stability(X)[1].copy()
    certificate.fit(-X, 1 - y)
    assert isinstance(first, Certified)
    np.testing.assert_array_equal(first.stability(X)[1], before)
    assert confide.prediction.train_intervals is train_intervals


def test_a_bar_appears_on_long_work_alone(monkeypatch):
    from confide.prediction.intervals import training

    monkeypatch.setattr(training, "_QUIET", -1.0)
    X, y = blobs()
    quiet = train_intervals(X, y, [4, 2], np.zeros(10), {**STEP, "epochs": 3}, range(4), "replace_one")
    shown = train_intervals(
        X, y, [4, 2], np.zeros(10), {**STEP, "epochs": 3}, range(4), "replace_one", progress=True
    )
    np.testing.assert_array_equal(quiet.lower, shown.lower)


def test_hyperparameters_read_the_names_of_the_cases():
    settings = Hyperparameters.of(
        {"learning_rate": 2, "clip_gamma": CLIP, "n_epochs": 3, "clip_method": "clamp"}, 2
    )
    assert settings == Hyperparameters(2.0, CLIP, epochs=3)
    clip, step = settings.grid
    assert CLIP * (1 - 4e-12) <= clip <= CLIP
    assert 2**37 <= clip / step < 2**38
    assert hyperparameters({})["clip"] == CLIP


@pytest.mark.parametrize("X", [[[1, 2, 3, 4], [1, 2]], [1, 2, 3, 4], np.zeros((2, 5)), "rows"])
def test_a_table_of_another_shape_is_refused_without_its_cells(X):
    with pytest.raises(DataError, match="number of inputs"):
        train_intervals(X, [0, 1], [4, 2], np.zeros(10), STEP, [1], "replace_one")


def test_cells_that_are_lists_are_unusable_and_no_more():
    boxes = train_intervals([["a", [1], 2, 3]] * 2, [0, 1], [4, 2], np.zeros(10), STEP, [1], "replace_one")
    assert (boxes.nominal == 0).all()
