"""A loss is the maximum that its box and conjugate say, and no record moves a score by more than M."""

from __future__ import annotations

import numpy as np
import pytest

from confide.errors import ParameterError
from confide.selection import Loss, hinge, huber, logistic, quantile, squared
from confide.selection.losses import loss_of

ALL = [squared(), hinge(), huber(0.3), huber(5.0), logistic(), quantile(0.5), quantile(0.9)]


def targets(loss: Loss, bound: float) -> np.ndarray:
    return np.array([-1.0, 1.0]) if loss.labels else np.linspace(-bound, bound, 21)


@pytest.mark.parametrize("loss", ALL, ids=lambda loss: f"{loss.name}{loss.shape:g}")
def test_derivative_is_a_subgradient_and_attains_the_conjugate(loss):
    z = np.linspace(-3, 3, 61)
    for y in targets(loss, 2.0):
        ys = np.full_like(z, y)
        value, alpha = loss.value(ys, z), -loss.derivative(ys, z)
        low, high = loss.box(ys)
        assert np.all(alpha >= low - 1e-15)
        assert np.all(alpha <= high + 1e-15)
        dual = -z * alpha - loss.conjugate(ys, alpha)
        np.testing.assert_allclose(dual, value, atol=1e-12)
        for a in np.linspace(max(low[0], -3), min(high[0], 3), 17):  # weak duality at any multiplier
            assert np.all(-z * a - loss.conjugate(ys, np.full_like(z, a)) <= value + 1e-12)


@pytest.mark.parametrize("loss", ALL, ids=lambda loss: f"{loss.name}{loss.shape:g}")
@pytest.mark.parametrize("reach", [0.01, 0.3, 1.0, 1.7, 4.0])
@pytest.mark.parametrize("bound", [0.2, 1.0])
def test_record_range_is_the_largest_range(loss, reach, bound):
    if loss.labels and bound != 1.0:
        pytest.skip("classes have bound 1")
    z = np.linspace(-reach, reach, 4001)
    ranges = [np.ptp(loss.value(np.full_like(z, y), z)) for y in targets(loss, bound)]
    M = loss.record_range(bound, reach)
    assert max(ranges) <= M * (1 + 1e-12)
    # Logistic's a is the bound of the page: log((1 + e^a) / (1 + e^-a)) is exactly a.
    assert max(ranges) >= M * (1 - 1e-3)


@pytest.mark.parametrize("reach", [0.1, 1.0, 5.0, 40.0])
def test_curvature_bounds_the_second_derivative(reach):
    z = np.linspace(-reach, reach, 1001)
    second = 0.25 / np.cosh(z / 2) ** 2
    assert 0 < logistic().curvature(reach) <= second.min()
    assert squared().curvature(reach) == 1
    assert hinge().curvature(reach) == huber(1.0).curvature(reach) == 0


@pytest.mark.parametrize("bad", ["lasso", 3, None])
def test_unknown_losses_are_refused(bad):
    with pytest.raises(ParameterError, match="loss"):
        loss_of(bad)


@pytest.mark.parametrize(
    "given",
    [("quantile", 2, False, 3.0), ("quantile", 2, False, 0.0), ("quantile", 4, False, 0.5),
     ("quantile", 2, True, 0.5), ("quantile", 2, False, float("nan")), ("quantile", 2, False, "0.5"),
     ("huber", 1, False, -1.0), ("huber", 1, False, float("inf")), ("huber", 1, False, True),
     ("hinge", 3, False), ("logistic", 3, True), ("squared", 1), ("squared", 0, False, 1.0),
     ("squared", False), ("lasso", 0), (["squared"], 0)],
)  # fmt: skip
def test_a_loss_made_by_hand_is_one_of_the_five(given):
    """A level of 3, or the code of another loss, would have a record move a score by far more than M."""
    with pytest.raises(ParameterError, match="loss"):
        Loss(*given)


def test_a_loss_is_equal_however_it_was_made():
    assert Loss("quantile", 2, shape=0.5) == quantile()
    assert Loss("huber", 1, shape=np.float64(0.25)) == huber(0.25)
    assert huber().fitted_to(3.0) == huber(1.5)


@pytest.mark.parametrize(
    "make", [lambda: huber(0), lambda: huber(-1), lambda: quantile(0), lambda: quantile(1)]
)
def test_bad_shapes_are_refused(make):
    with pytest.raises(ParameterError):
        make()
