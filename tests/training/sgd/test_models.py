"""Kernels against plain per-example gradients: sums, norms, and the array paths against each other."""

import numpy as np
import pytest

from confide.errors import ParameterError
from confide.training.sgd.arrays import flatten, namespace, row_squares, take_rows, without
from confide.training.sgd.engine import _one_pass, _weigh
from confide.training.sgd.factorisation import FactorisationMachine
from confide.training.sgd.kernels import clip_weights
from confide.training.sgd.linear import Linear
from confide.training.sgd.losses import Logistic, Softmax, Squared, make_loss
from confide.training.sgd.mlp import MLP

from .helpers import LOSSES, account, clipped_sum, first, gradients, problem, rows_of, start

P, Q, N = 4, 2, 9
MODELS = {
    "linear": lambda k, q: Linear(P + q, k),
    "no intercept": lambda k, q: Linear(P + q, k, intercept=False),
    "mlp relu": lambda k, q: MLP(P, q, (5, 3), activation="relu", outputs=k),
    "mlp tanh embedded": lambda k, q: MLP(P, q, (5, 3), 3, 2 if q else 0, "tanh", k),
    "mlp gelu": lambda k, q: MLP(P, q, (6,), 4, 2 if q else 0, "gelu", k),
    "embedding alone": lambda k, q: MLP(P, q, (), 3, 2 if q else 0, "tanh", k),
    "deep": lambda k, q: MLP(P, q, (4, 4, 3, 2), activation="tanh", outputs=k),
}
CASES = [(name, loss, q) for name in MODELS for loss in LOSSES for q in (0, Q)]
CASES += [("fm", loss, q) for loss in ("squared", "logistic") for q in (0, Q)]


def make(name, loss, q):
    if name == "fm":
        return FactorisationMachine(P + q, 3)
    return MODELS[name](LOSSES[loss].outputs, q)


def data(loss, q, seed=0):
    rng = np.random.default_rng(seed)
    labels = rng.uniform(-1, 1, N) if loss == "squared" else rng.integers(0, LOSSES[loss].outputs + 1, N) % 3
    if loss == "logistic":
        labels = labels % 2
    return rng.normal(size=(N, P)), (rng.normal(size=(N, q)) if q else None), labels.astype(float)


def all_values(model, X, Z):
    parts = [X] + ([] if Z is None else [Z]) + ([np.ones((N, 1))] if model.constant else [])
    return np.concatenate(parts, axis=1)


@pytest.mark.parametrize(("name", "loss", "q"), CASES)
@pytest.mark.parametrize("clip", [0.3, 1e3])
def test_the_statistic_is_the_sum_of_clipped_gradients(name, loss, q, clip):
    model, (X, Z, y) = make(name, loss, q), data(loss, q)
    task = problem(model, LOSSES[loss], X, Z, y, account("replace_private_part"), clip=clip)
    state = start(model)
    G = gradients(model, LOSSES[loss], state.parameters, all_values(model, X, Z), P, y)
    found = first(task, state=state)
    expected = clipped_sum(G, clip)
    np.testing.assert_allclose(
        found.value * found.step, expected, atol=found.step + 3e-6 * max(1.0, np.abs(expected).max())
    )


@pytest.mark.parametrize(("name", "loss", "q"), CASES)
def test_norms_are_those_of_plain_gradients(name, loss, q):
    model, (X, Z, y) = make(name, loss, q), data(loss, q)
    theta, values = start(model).parameters, all_values(model, X, Z)
    rows = rows_of(model, values, P, y)
    f, tape = model.forward(np, theta, rows)
    slope = LOSSES[loss].slope(np, f, y)
    squares, _ = model.backward(np, theta, rows, tape, None if model.outputs == 1 else slope)
    G = gradients(model, LOSSES[loss], theta, values, P, y)
    size = rows.widths**2 if squares is None else squares
    if squares is None or model.outputs == 1:
        size = size * (slope.reshape(N, -1) ** 2).sum(axis=1)
    np.testing.assert_allclose(size, (G**2).sum(axis=1), rtol=1e-5, atol=1e-10)


def test_the_norm_of_a_factorisation_machine_is_never_too_small():
    # One column alone: T's gradient is a v - T a^2 = 0, and what is left of the terms is rounding.
    model = FactorisationMachine(5, 4)
    rng = np.random.default_rng(0)
    for scale in (1e-8, 1.0, 1e8):
        values = np.zeros((50, 5))
        values[np.arange(50), rng.integers(0, 5, 50)] = scale * rng.normal(size=50)
        theta = start(model, scale=3.0).parameters
        rows = rows_of(model, values, 5)
        _, tape = model.forward(np, theta, rows)
        squares, _ = model.backward(np, theta, rows, tape, None)
        T = theta[6:].reshape(5, 4)
        v = values @ T
        G = values[:, :, None] * v[:, None, :] - T[None] * (values**2)[:, :, None]
        true = 1 + (values**2).sum(axis=1) + (G**2).sum(axis=(1, 2))
        assert (squares >= true * (1 - 1e-12)).all()
        # No part is longer than `cancellation` times the norm.
        part = np.linalg.norm(values, axis=1) * np.linalg.norm(v, axis=1)
        assert (part <= model.cancellation * np.sqrt(squares) * (1 + 1e-12)).all()


@pytest.mark.parametrize("loss", [Squared(2.0), Logistic()])
def test_one_pass_equals_the_array_path(loss):
    rng = np.random.default_rng(1)
    f, norm = rng.normal(size=300) * 5, np.abs(rng.normal(size=300))
    norm[:3] = 0.0, np.inf, np.nan
    slope = loss.slope(np, f, np.zeros(300))
    for limit in (0.7, np.inf):
        fast = _one_pass(clip_weights, f[3:], slope[3:], norm[3:], limit)
        slow = _weigh(np, f[3:], slope[3:], norm[3:], limit)
        np.testing.assert_array_equal(fast[0], slow[0])
        assert fast[1:] == slow[1:]
        with np.errstate(all="ignore"):
            fast, slow = _one_pass(clip_weights, f, slope, norm, limit), _weigh(np, f, slope, norm, limit)
        np.testing.assert_array_equal(fast[0], slow[0])
        assert np.isnan(fast[1])
        assert np.isnan(slow[1])


def test_slopes_are_derivatives_and_their_bounds_hold():
    rng = np.random.default_rng(2)
    f = rng.normal(size=400) * 4
    top = float(np.abs(f).max())
    y = rng.uniform(-1, 1, 400)
    squared = make_loss("squared", width=2.0)
    np.testing.assert_allclose(squared.slope(np, f, y), 2 * (f - y))
    assert np.abs(squared.slope(np, f, y)).max() <= squared.slope_bound(top)
    gap = np.abs(squared.slope(np, f, np.full(400, 1.0)) - squared.slope(np, f, np.full(400, -1.0)))
    assert 4.0 <= gap.max() <= squared.label_shift(top) < 4.001
    logistic = make_loss("logistic")
    h = 1e-6
    value = lambda t: np.logaddexp(0, t) - (y > 0) * t  # noqa: E731
    np.testing.assert_allclose(
        logistic.slope(np, f, (y > 0).astype(float)), (value(f + h) - value(f - h)) / (2 * h), atol=1e-8
    )
    assert logistic.label_shift(top) == pytest.approx(1.0)
    softmax = Softmax(4)
    F = rng.normal(size=(200, 4)) * 3
    slopes = [softmax.slope(np, F, np.full(200, float(k))) for k in range(4)]
    assert max(np.linalg.norm(a - b, axis=1).max() for a in slopes for b in slopes) <= softmax.label_shift(
        9.0
    )
    assert softmax.slope(np, np.full((1, 4), 1e300), np.zeros(1)).tolist() == [[-0.75, 0.25, 0.25, 0.25]]


def test_far_labels_round_and_the_shift_says_so():
    squared = Squared(2.0)
    f = np.array([3e17, 1e300])
    gap = np.abs(squared.slope(np, f, np.ones(2)) - squared.slope(np, f, -np.ones(2)))
    assert (gap <= [squared.label_shift(3e17), squared.label_shift(1e300)]).all()


@pytest.mark.parametrize(
    "options", [{"activation": "cos"}, {"hidden": (0,)}, {"embedding": -1}, {"hidden": (2.5,)}]
)
def test_shapes_are_checked(options):
    with pytest.raises(ParameterError):
        MLP(3, **options)


def test_a_private_part_needs_its_embedding():
    with pytest.raises(ParameterError, match="private_embedding"):
        MLP(3, 2, embedding=4).initial(0)


def test_unknown_losses_are_refused():
    for name, classes in (("hinge", 2), ("logistic", 3), ("softmax", 1)):
        with pytest.raises(ParameterError):
            make_loss(name, classes=classes)


def test_other_array_libraries_take_the_standard_path():
    compat = pytest.importorskip("array_api_compat.numpy")
    A = np.arange(6.0).reshape(3, 2)
    np.testing.assert_array_equal(row_squares(compat, A), [1, 13, 41])
    np.testing.assert_array_equal(take_rows(compat, A, np.array([2, 0])), A[[2, 0]])
    np.testing.assert_array_equal(
        without(compat, A, np.array([True, False, False])), [[0, 0], [2, 3], [4, 5]]
    )
    np.testing.assert_array_equal(flatten(compat, [A, A[0]]), [0, 1, 2, 3, 4, 5, 0, 1])
    assert namespace(A, None) is np
    assert namespace([1.0]) is np
    # The kernels themselves, run through that namespace, give what NumPy's own path gives.
    for model in (Linear(4, 1), MLP(4, 0, (5, 3), 3, activation="gelu"), FactorisationMachine(4, 3)):
        values = np.random.default_rng(0).normal(size=(6, 4 + int(model.constant)))
        theta = start(model).parameters
        results = []
        for xp in (np, compat):
            rows = rows_of(model, values, 4)
            f, tape = model.forward(xp, theta, rows)
            squares, deltas = model.backward(xp, theta, rows, tape, None)
            results.append((f, squares, model.contract(xp, theta, rows, tape, deltas, f)))
        for a, b in zip(*results, strict=True):
            if a is not None:
                np.testing.assert_allclose(a, b, rtol=1e-12)
