"""Pieces of engine `rounds`: windows, clips, the share inside, geometries."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from confide.training.linear import plan_design
from confide.training.rounds_clip import SCALES, Window, allowance, choose_clip, read_spread, share_of
from confide.training.rounds_geometry import choose_geometry, expected_variance, water_fill

from .helpers import problem
from .test_rounds import asked, table

# ---- the window ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("clip", [1e-3, 0.3, 0.99, 1.0, 1.7, 2.0])
def test_a_window_is_a_clipped_residual(clip):
    rng = np.random.default_rng(0)
    t, g = rng.uniform(-1, 1, 500), np.clip(rng.normal(size=500), -1, 1)
    window = Window(clip)
    v = window.view(t, g)
    assert np.abs(v).max() <= 1
    low, high = window.bounds(g)
    np.testing.assert_allclose(window.half * v + window.offset(g), np.clip(t, low, high) - g, atol=1e-15)
    np.testing.assert_allclose(np.clip(t, low, high) - g, np.clip(t - g, -clip, clip), atol=1e-15)
    if clip == 2.0:
        np.testing.assert_array_equal(v, t)  # the closed form


@pytest.mark.parametrize("law", ["normal", "laplace", "uniform"])
@pytest.mark.parametrize("clip", [0.1, 0.2, 0.35])
def test_the_second_moment_tells_the_share_inside(law, clip):
    rng = np.random.default_rng(1)
    scale = 0.2 / {"normal": 1.0, "laplace": np.sqrt(2), "uniform": 1 / np.sqrt(3)}[law]
    draw = {"normal": rng.normal, "laplace": rng.laplace, "uniform": lambda a, b, n: rng.uniform(-b, b, n)}
    g = rng.uniform(-0.3, 0.3, 40_000)
    r = draw[law](0.0, scale, 40_000)
    window = Window(clip)
    v = window.view(g + r, g)
    found = read_spread(window, g[:500], np.ones(500), float(np.mean(v**2)), float(np.mean(v)), (1e-6, 1e-6))
    # A law with no tails at all is the hardest: its share is told an eighth too low when nothing is clipped.
    assert found.inside == pytest.approx(np.mean(np.abs(r) <= clip), abs=0.13 if law == "uniform" else 0.07)
    if law == "normal":
        assert found.scale == pytest.approx(0.2, rel=0.05)


def test_a_moment_drowned_in_noise_leaves_the_prior():
    found = read_spread(Window(0.5), np.zeros(1), np.ones(1), 7.0, 0.0, (1e3, 1e3), (0.1, 0.5))
    assert found.scale == pytest.approx(0.1, rel=0.15)
    assert SCALES[0] < found.scale < SCALES[-1]


def test_clips_widen_with_the_rows():
    shares = [share_of(choose_clip(0.1, n, 4.0, 100.0), 0.1) for n in (100, 1000, 10_000, 10**6)]
    assert shares == sorted(shares)
    assert shares[0] == pytest.approx(0.6, abs=0.01)
    assert shares[-1] > 0.999
    assert allowance(2.0, 0.3) == 0 < allowance(1.9, 0.3)


# ---- geometry --------------------------------------------------------------------------------------------


@given(variances=st.lists(st.floats(1e-6, 1e6), min_size=1, max_size=9), budget=st.floats(1e-3, 1e6))
def test_water_filling_meets_its_conditions(variances, budget):
    P = np.array(variances)
    m = water_fill(P, budget)
    assert (m >= 0).all()
    assert m.sum() == pytest.approx(budget, rel=1e-6)
    # Stationarity: one level where precision is bought, and none is bought above it.
    level = (1 / P + m)[m > 0]
    assert level.max() == pytest.approx(level.min(), rel=1e-6)
    assert (1 / P[m == 0] >= level.max() * (1 - 1e-9)).all()


def test_the_chosen_geometry_is_the_best_of_its_candidates():
    X, y = table(400, 5)
    design, basis = plan_design(problem(X, y), asked())
    prior = np.diag(basis.n * 0.01 * np.array([1.0, 1.0, 0.1, 0.01, 0.01, 1e-6]))
    chosen = choose_geometry(basis, prior, 0.5, 0.01)
    spectral = choose_geometry(basis, 100 * np.eye(6), 0.5, 0.01)
    worse = expected_variance(basis, basis.sample, spectral.plan, prior, 0.5, 0.01)
    assert chosen.name.startswith("water-filling")
    assert chosen.expected < worse
    assert chosen.expected < np.trace(prior)
    rows, weights = chosen.plan.rows(basis.coordinates(X))
    assert np.linalg.norm(rows, axis=1).max() <= 1 + 1e-12
    assert design.schedule.shares[0] < 0.2
    assert (weights > 0).all()
