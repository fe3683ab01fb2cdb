"""Pieces of engine `rounds`: windows, clips, the share inside, geometries."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from confide.training.choice import Plan
from confide.training.linear import plan_design
from confide.training.problem import public_step
from confide.training.rounds_clip import Window, allowance, choose_clip, share_of
from confide.training.rounds_geometry import choose_geometry, expected_variance, water_fill
from confide.training.rounds_spread import SCALES, Evidence, Moment, Reading, read_moment

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


# ---- the spread ------------------------------------------------------------------------------------------


def reading(window, rows, labels, theta, deviation=1e-6):
    """A round on these very rows, without noise, its moment told about the predictions."""
    g = np.clip(rows @ theta, -1, 1)
    moment = Moment(
        float(np.mean((window.half * window.view(labels, g) + window.offset(g)) ** 2)), deviation, 0.0
    )
    moment = Moment(moment.value / window.half**2, deviation, 0.0)
    m = len(rows)
    return Reading(moment, window, theta, np.full(m, 1 / m), rows.T @ rows / m)


@pytest.mark.parametrize("law", ["normal", "laplace", "uniform"])
@pytest.mark.parametrize("clip", [0.1, 0.2, 0.35])
def test_the_second_moment_tells_the_share_inside(law, clip):
    rng = np.random.default_rng(1)
    scale = 0.2 / {"normal": 1.0, "laplace": np.sqrt(2), "uniform": 1 / np.sqrt(3)}[law]
    draw = {"normal": rng.normal, "laplace": rng.laplace, "uniform": lambda a, b, n: rng.uniform(-b, b, n)}
    rows, theta = rng.uniform(-0.3, 0.3, (4000, 1)), np.ones(1)
    r = draw[law](0.0, scale, 4000)
    near, far = (reading(Window(c), rows, rows[:, 0] + r, theta) for c in (clip, 2.0))
    # A law with no tails at all is the hardest: its share is told an eighth too low when nothing is clipped.
    for readings in ((near,), (far, near)):
        found = Evidence(rows, readings).about(theta)
        assert found.inside == pytest.approx(
            np.mean(np.abs(r) <= clip), abs=0.14 if law == "uniform" else 0.09
        )
    assert found.scale == pytest.approx(np.std(r), rel=0.06)


def heavy(n, deviation, rng):
    """Residuals of which one in twenty-five is five times as wide."""
    wide = rng.random(n) < 0.04
    return deviation / np.sqrt(1.96) * rng.normal(size=n) * np.where(wide, 5.0, 1.0)


def test_a_wide_window_tells_a_narrow_one_of_tails():
    rng = np.random.default_rng(4)
    rows, theta = rng.normal(0, 0.1, (4000, 1)), np.ones(1)
    tailed = heavy(4000, 0.12, rng)
    plain = 0.12 / np.sqrt(1.5) * rng.normal(size=4000)
    told = []
    for r in (tailed, plain):
        near, far = (reading(Window(clip), rows, rows[:, 0] + r, theta) for clip in (0.1, 2.0))
        assert Evidence(rows, (far, near)).about(theta).scale == pytest.approx(np.std(r), rel=0.06)
        told.append(Evidence(rows, (near,)).about(theta).scale)
    # The narrow one alone takes the plain one for tailed.
    assert told[1] > 1.2 * np.std(plain)


@pytest.mark.parametrize("first", [2.0, 0.8])
def test_what_was_explained_since_leaves_the_residual(first):
    # Exact where nothing is clipped: E (r + u'd)^2 = E r^2 + d' E uu' d, though the part is eight times the rest.
    rng = np.random.default_rng(5)
    rows, new = rng.normal(0, 1, (4000, 2)), np.array([0.25, 0.1])
    labels = np.clip(rows @ new + 0.1 * rng.normal(size=4000), -1, 1)
    readings = (reading(Window(first), rows, labels, np.zeros(2)), reading(Window(0.3), rows, labels, new))
    for chosen in (readings, readings[:1]):
        told = Evidence(
            rows[:256],
            tuple(Reading(r.moment, r.window, r.theta, np.full(256, 1 / 256), r.metric) for r in chosen),
        ).about(new)
        assert told.scale == pytest.approx(0.1, rel=0.15)


@pytest.mark.parametrize("clip", [0.1, 0.5, 0.9, 2.0])
@pytest.mark.parametrize("wrong", [0.0, 0.5])
def test_a_moment_about_predictions_is_read_from_one_about_windows(clip, wrong):
    # At c = 2 the window knows nothing of predictions: what they explain sits in the cross term alone.
    rng = np.random.default_rng(6)
    X = rng.normal(size=(3000, 3))
    truth = X @ [0.25, -0.2, 0.1]
    y = np.clip(truth + 0.15 * rng.normal(size=3000), -1, 1)
    _, basis = plan_design(problem(X, y, (-1.0, 1.0)), asked())
    u = basis.coordinates(X)
    step = public_step(problem(X, y, (-1.0, 1.0)), basis, Plan(np.eye(4) * 10, 0.25, 1.0, np.nan))
    _, w = step.plan.rows(u)
    theta = (1 - wrong) * np.linalg.lstsq(u, truth, rcond=None)[0]
    window, g = Window(clip), np.clip(u @ theta, -1, 1)
    v, o = window.view(y, g), window.offset(g)
    square = 2 * step.kappa * float(w @ v**2)
    told = read_moment(
        step, 1e-9, square, (w * v) @ u, window, (w * o) @ u, float(w @ o**2), np.eye(4) * 1e-9
    )
    direct = float(w @ (v + o / window.half) ** 2) / step.mass
    assert abs(told.value - direct) <= 2 * told.rest * 0.6 * np.sqrt(direct) + 1e-3
    if clip in (0.1, 2.0):
        assert told.value == pytest.approx(direct, rel=0.05)
    # Where sums of v u are drowned, predictions are believed: exact for those that are right.
    drowned = read_moment(
        step, 1e9, square, (w * v) @ u, window, (w * o) @ u, float(w @ o**2), np.eye(4) * 1e-9
    )
    assert drowned.deviation > 1e3
    if not wrong and clip == 2.0:
        assert drowned.value == pytest.approx(direct, rel=0.05)


def test_a_moment_drowned_in_noise_leaves_the_prior():
    theta, rows = np.zeros(1), np.ones((1, 1))
    drowned = Reading(Moment(7.0, 1e3, 0.0), Window(0.5), theta, np.ones(1), np.ones((1, 1)))
    told = reading(Window(0.5), rows, np.array([0.1]), theta)
    assert Evidence(rows, (drowned,)).about(theta).scale == pytest.approx(0.25, rel=0.2)
    both, alone = (Evidence(rows, some).about(theta) for some in ((drowned, told), (told,)))
    assert both.scale == pytest.approx(alone.scale, rel=1e-3)
    assert SCALES[0] < both.scale < SCALES[-1]


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
