"""Black-box check: no threshold on the output beats the claimed (epsilon, delta) (pitfalls K07, K08)."""

import numpy as np
import pytest
from scipy.stats import beta

from confide.mechanisms import Statistic, gaussian_release, os_stream

from .helpers import problem, record, request

EPSILON, DELTA = 1.0, 1e-2


def lower_bound(first, second, confidence=0.9999):
    """Return a lower confidence bound on delta at EPSILON: the threshold is chosen on one half of the draws."""
    half = len(first) // 2
    candidates = np.quantile(np.concatenate([first[:half], second[:half]]), np.linspace(0.005, 0.995, 199))
    gain = [(second[:half] > c).mean() - np.exp(EPSILON) * (first[:half] > c).mean() for c in candidates]
    best = candidates[int(np.argmax(gain))]
    n = len(first) - half
    hits, alarms = int((second[half:] > best).sum()), int((first[half:] > best).sum())
    tail = (1 - confidence) / 2
    power = beta.ppf(tail, hits, n - hits + 1) if hits else 0.0
    return power - np.exp(EPSILON) * beta.ppf(1 - tail, alarms + 1, n - alarms)


def outputs(kind, noise=1.0, draws=400_000):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(30, 2))
    X[0] *= 20  # the row with the most to lose
    asked = request(epsilon=EPSILON, delta=DELTA, conditioning=kind, random_state=None)
    sides = []
    for value in (-3.0, 3.0):
        y = np.zeros(30)
        y[0] = value
        sides.append(record(problem(X, y), asked)[1])
    direction = (sides[1].value - sides[0].value).astype(float)
    direction /= np.linalg.norm(direction)
    results = []
    for side in sides:
        many = Statistic(np.tile(side.value, (draws, 1)), side.step, side.sensitivity, side.name)
        results.append(gaussian_release(many, noise * asked.noise_multiplier, stream=os_stream()) @ direction)
    return results


@pytest.mark.parametrize("kind", ["optimal", "spectral", "identity"])
def test_no_threshold_beats_the_claim(kind):
    found = lower_bound(*outputs(kind))
    assert found <= DELTA
    # The audit has teeth: it finds a good part of what there is, and convicts noise that is a fifth too small.
    assert found > 0.2 * DELTA
    assert lower_bound(*outputs(kind, noise=0.8)) > DELTA
