import numpy as np
import pytest

from confide.training.shrinkage import shrink

S = np.geomspace(10, 0.1, 8)


def test_no_noise_no_shrinkage_and_much_noise_no_signal():
    theta = np.random.default_rng(0).normal(size=9) * 5
    sharp = shrink(theta, np.eye(9) * 1e-8, S, 1000.0, fixed=1)
    np.testing.assert_allclose(sharp.mean, theta, rtol=1e-4, atol=1e-4)
    assert sharp.effective == pytest.approx(8, abs=0.05)
    blurred = shrink(theta, np.eye(9) * 1e8, S, 1000.0, fixed=1)
    assert np.abs(blurred.mean).max() < 0.01
    assert blurred.effective < 0.01


def test_the_intercept_is_hardly_shrunk():
    theta = np.zeros(9)
    theta[0] = 20.0
    posterior = shrink(theta, np.eye(9), S, 1000.0, fixed=1)
    assert posterior.mean[0] == pytest.approx(20.0, rel=0.01)
    assert np.abs(posterior.mean[1:]).max() < 0.2


def test_posterior_is_a_covariance_below_the_noise():
    rng = np.random.default_rng(1)
    root = rng.normal(size=(9, 9))
    noise = root @ root.T + 0.1 * np.eye(9)
    posterior = shrink(rng.normal(size=9), noise, S, 1000.0, fixed=1)
    assert np.linalg.eigvalsh(posterior.covariance).min() > -1e-9
    assert np.trace(posterior.covariance) < np.trace(noise)


@pytest.mark.parametrize("shape", ["flat", "steep", "top", "none"])
def test_it_beats_the_raw_estimate_on_average(shape):
    rng = np.random.default_rng(2)
    s = np.geomspace(30, 0.3, 20)
    scale = {"flat": np.ones(20), "steep": s / 8, "top": 4.0 * (np.arange(20) < 2), "none": np.zeros(20)}[
        shape
    ]
    raw = shrunk = 0.0
    for _ in range(150):
        truth = scale * rng.normal(size=20)
        noisy = truth + rng.normal(size=20)
        raw += np.sum((noisy - truth) ** 2)
        shrunk += np.sum((shrink(noisy, np.eye(20), s, 2000.0, fixed=0).mean - truth) ** 2)
    assert shrunk < {"flat": 0.75, "steep": 0.9, "top": 0.4, "none": 0.15}[shape] * raw


def test_posterior_errors_are_calibrated():
    rng = np.random.default_rng(3)
    z = []
    for _ in range(200):
        truth = np.concatenate([[3.0], 3.0 * rng.normal(size=8)])
        posterior = shrink(truth + rng.normal(size=9), np.eye(9), S, 2000.0, fixed=1)
        z.append((posterior.mean - truth) / np.sqrt(np.diag(posterior.covariance)))
    assert 0.9 < np.mean(np.abs(z) < 1.96) < 0.99


def test_no_columns_and_extreme_scales():
    assert shrink(np.array([2.0]), np.eye(1), np.zeros(0), 100.0, fixed=1).mean[0] == pytest.approx(
        2, rel=0.05
    )
    for factor in (1e-150, 1e100):
        posterior = shrink(np.ones(9) * factor, np.eye(9) * factor**2, S, 100 * factor**2, fixed=1)
        assert np.isfinite(posterior.mean).all()
