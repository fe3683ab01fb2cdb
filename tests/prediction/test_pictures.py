"""Pictures draw what they are given, say that it is public, and need no display."""

from __future__ import annotations

import io

import numpy as np
import pytest

from confide.errors import ParameterError
from confide.prediction import (
    accuracy_by_epsilon,
    accuracy_by_queries,
    boxes_figure,
    distances_figure,
    recommend_from_margins,
    response_probabilities,
    trace_intervals,
    train_intervals,
    widths_figure,
)
from confide.prediction.pictures import needed_distance

START = {"learning_rate": 2.0, "clip": 0.5, "epochs": 4, "momentum": 0.5, "learning_rate_decay": 0.1}


@pytest.fixture(scope="module")
def advice():
    rng = np.random.default_rng(0)
    margins = {alpha: rng.normal(0.3, 0.2, 300) / (1 + 5 * alpha) for alpha in (0.01, 0.1, 1.0)}
    return recommend_from_margins(margins, epsilon=3, delta=1e-5, queries=50, rows=2000)


@pytest.fixture(scope="module")
def trace():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 1))
    y = (X[:, 0] > 0.2).astype(int)
    return trace_intervals(X, y, [1, 1], np.zeros(2), START, (0, 1, 4), "replace_one")


def lines(figure):
    return {line.get_label(): line.get_xydata() for line in figure.axes[0].lines}


def says_public(figure):
    assert "public or synthetic" in figure.axes[0].get_title(loc="left")
    figure.savefig(io.BytesIO(), format="svg")
    figure.savefig(io.BytesIO(), format="png", dpi=40)


def test_distances_are_shares_of_queries(advice):
    k = np.array([0, 0, 1, 3, 3, 3, 7, 9])
    figure = distances_figure({"mine": k})
    drawn = lines(figure)["mine"]
    assert np.array_equal(drawn[:, 0], np.arange(11))
    assert np.allclose(drawn[:, 1], [(k >= step).mean() for step in range(11)])
    says_public(figure)
    says_public(distances_figure(k, epsilon=1))
    figure = distances_figure(advice)
    assert len(figure.axes[0].lines) == 2  # the best setting, and the mark of its epsilon
    says_public(figure)
    with pytest.raises(ParameterError, match="no distances"):
        distances_figure({})
    for bad in ([], [[1]], [0.5], [-1]):
        with pytest.raises(ParameterError, match="whole numbers"):
            distances_figure(np.array(bad))


@pytest.mark.parametrize(("epsilon", "classes", "k"), [(0.1, 2, 39), (1, 2, 4), (1, 5, None)])
def test_needed_distance_is_the_least(epsilon, classes, k):
    found = needed_distance(epsilon, classes)
    assert k is None or found == k
    r = response_probabilities(epsilon, classes, found)
    assert (classes - 1) * r.wrong[found] <= 0.01 < (classes - 1) * r.wrong[found - 1]


def test_accuracies_are_those_of_the_table(advice):
    figure = accuracy_by_epsilon(advice, (0.5, 3))
    drawn = lines(figure)
    for release, label in (("response", "response"), ("ptr", "propose-test-release")):
        at = [advice.at(0.5).best_of(release).accuracy, advice.best_of(release).accuracy]
        assert np.allclose(drawn[label], np.column_stack([(0.5, 3), at]))
    says_public(figure)
    figure = accuracy_by_queries(advice, (50, 5))
    at = [advice.at(queries=5).best_of("global").accuracy, advice.best_of("global").accuracy]
    assert np.allclose(lines(figure)["global"], np.column_stack([(5, 50), at]))
    says_public(figure)
    for bad in ((), (0,), (-1, 2)):
        with pytest.raises(ParameterError):
            accuracy_by_epsilon(advice, bad)


def test_trace_is_the_beginning_of_the_whole_training(trace):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 1))
    y = (X[:, 0] > 0.2).astype(int)
    whole = train_intervals(X, y, [1, 1], np.zeros(2), START, (0, 1, 4), "replace_one")
    assert len(trace) == 5
    assert np.array_equal(trace[-1].lower, whole.lower)
    assert np.array_equal(trace[-1].nominal, whole.nominal)
    assert np.all(trace[0].nominal == 0)
    # The step after the first is that of the same update at its own rate: no state is lost between traces.
    first = trace[1].nominal - trace[0].nominal
    again = train_intervals(X, y, [1, 1], np.zeros(2), {**START, "epochs": 1}, (0,), "replace_one")
    assert np.array_equal(again.nominal, first)


def test_boxes_are_those_of_the_trace(trace):
    figure = boxes_figure(trace, (0, 1))
    patches = [patch for patch in figure.axes[0].patches if not patch.get_fill()]
    assert len(patches) == len(trace)
    for held, patch in zip(trace, patches):
        assert np.allclose([*patch.get_xy()], held.lower[-1])
        assert np.allclose([patch.get_width(), patch.get_height()], held.upper[-1] - held.lower[-1])
    assert np.allclose(figure.axes[0].lines[0].get_xydata(), [held.nominal for held in trace])
    says_public(figure)
    for bad in ((0, 2), (-1, 0)):
        with pytest.raises(ParameterError):
            boxes_figure(trace, bad)
    with pytest.raises(ParameterError, match="fewer than two"):
        boxes_figure(trace[:1])


def test_widths_grow_with_k_and_epochs(trace):
    figure = widths_figure(trace)
    drawn = lines(figure)
    assert set(drawn) == {"k = 1", "k = 4"}
    assert np.allclose(drawn["k = 4"][:, 1], [np.mean(held.upper[2] - held.lower[2]) for held in trace])
    assert np.all(np.diff(drawn["k = 1"][:, 1]) > 0)
    assert np.all(drawn["k = 4"][1:, 1] > drawn["k = 1"][1:, 1])
    says_public(figure)
    with pytest.raises(ParameterError, match="no level"):
        widths_figure([replace_levels(held) for held in trace])


def replace_levels(held):
    from dataclasses import replace

    return replace(held, lower=held.lower[:1], upper=held.upper[:1], ks=(0,))
