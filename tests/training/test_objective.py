"""Objective perturbation: the solver's certificate, the law of the noise, and densities checked exactly."""

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from scipy import optimize, stats

from confide.errors import ConfideError, ParameterError, UnsupportedError
from confide.mechanisms import os_stream, round_toward_zero, seeded_stream
from confide.privacy import Event
from confide.training import objective
from confide.training.coefficients import Rows, make_shape
from confide.training.objective_solver import (
    Objective,
    descend,
    evaluate,
    gradient_error,
    gradient_of,
    minimise,
    newton,
)

LOSSES = ["squared", "huber", "quantile", "logistic", "hinge"]
ADJACENCIES = ["replace_one", "add_remove_one"]


def rows(n=60, m=3, seed=0, labels=True):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 1, size=(n, m))
    y = X @ np.linspace(1, -1, m) + 0.3 * rng.normal(size=n)
    return X, np.where(y > 0, 1.0, -1.0) if labels else np.clip(y, -1, 1)


def plan_for(loss="logistic", adjacency="replace_one", delta=0, epsilon=1, d=3, n=None, **shape):
    return objective.make_plan(
        make_shape(d, adjacency, **{"intercept": False, **shape}), epsilon, delta, loss, rows=n
    )


def objective_of(plan, b):
    return Objective(plan.loss, plan.ridge, plan.radius, plan.shape.norm_squared, b, plan.noise_bound)


@pytest.mark.parametrize("name", LOSSES)
def test_slopes_and_curvatures(name):
    loss = objective.make_loss(name, reach=2.0)
    z = np.linspace(-2, 2, 4001)
    for y in (-1.0, -0.3, 0.0, 1.0) if not loss.labels else (-1.0, 1.0):
        value, first, second = loss.derivatives(np.full_like(z, y), z)
        assert np.abs(first).max() <= loss.slope + 1e-15
        assert second.min() >= 0
        assert second.max() <= loss.curvature * (1 + 1e-12)
        middle = (value[2:] - value[:-2]) / (z[2:] - z[:-2])
        np.testing.assert_allclose(first[1:-1], middle, atol=loss.curvature * 1.1e-3)
        assert np.abs(np.diff(first)).max() <= loss.curvature * (z[1] - z[0]) * (1 + 1e-9)


def test_losses_are_what_they_are_called():
    z, y = np.linspace(-1, 1, 101), np.full(101, 0.25)
    np.testing.assert_allclose(objective.make_loss("squared", reach=1).derivatives(y, z)[0], (z - y) ** 2 / 2)
    signs = np.ones(101)
    hinge = np.maximum(0, 1 - z)
    gap = objective.make_loss("hinge").derivatives(signs, z)[0] - hinge
    assert gap.min() >= -1e-15
    assert gap.max() <= 0.125 + 1e-15
    logistic = objective.make_loss("logistic").derivatives(-signs, 500 * z)[0]
    np.testing.assert_allclose(logistic, np.logaddexp(0, 500 * z), rtol=1e-14)
    pinball = np.maximum(0.9 * (y - z), -0.1 * (y - z))
    gap = objective.make_loss("quantile", shape=0.9).derivatives(y, z)[0] - pinball
    assert gap.min() >= -1e-15
    assert gap.max() <= 0.125 / 4 + 1e-15


@pytest.mark.filterwarnings("ignore:delta_grad == 0.0")
@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize("n", [0, 1, 60, 1000])
def test_the_minimiser_is_certified(name, n):
    """Optimality conditions, and a second solver that shares nothing with Newton's steps."""
    X, y = rows(n, labels=name in ("logistic", "hinge"))
    for seed, scale in ((0, 1.0), (1, 300.0)):
        plan = plan_for(name, epsilon=3, n=n or 1)
        b = scale * np.random.default_rng(seed).normal(size=3)
        task = objective_of(plan, b)
        theta = newton(X, y, task, plan.tolerance)
        assert theta is not None
        assert np.linalg.norm(theta) <= plan.radius * (1 + 1e-12)

        def f(t, task=task):
            return evaluate(X, y, t, task)[0]

        ball = optimize.NonlinearConstraint(lambda t: t @ t, -np.inf, plan.radius**2)
        other = optimize.minimize(f, 0.5 * theta, method="trust-constr", constraints=[ball], tol=1e-11).x
        # scipy's own accuracy is the limit here, so values are compared, not points.
        assert f(theta) <= f(other * min(1, plan.radius / np.linalg.norm(other))) + 1e-9 * (1 + abs(f(other)))


@pytest.mark.parametrize("name", LOSSES)
def test_the_slow_way_arrives_too(name):
    X, y = rows(40, labels=name in ("logistic", "hinge"))
    for b in (np.zeros(3), np.array([3.0, -2.0, 50.0]), np.array([1e5, 0.0, 0.0])):
        plan = plan_for(name, n=40)
        task = objective_of(plan, b)
        fast = newton(X, y, task, plan.tolerance)
        slow = descend(X, y, task, plan.tolerance / 4)
        assert np.linalg.norm(fast - slow) <= 2 * plan.tolerance / plan.ridge


def test_the_fallback_is_taken_where_newton_gives_up(monkeypatch):
    X, y = rows(40)
    plan = plan_for(n=40)
    task = objective_of(plan, np.ones(3))
    expected = minimise(X, y, task, plan.tolerance)
    monkeypatch.setattr("confide.training.objective_solver._NEWTON_STEPS", 0)
    assert np.linalg.norm(minimise(X, y, task, plan.tolerance) - expected) <= 2 * plan.tolerance / plan.ridge


@pytest.mark.parametrize("name", LOSSES)
def test_the_error_bound_holds(name):
    """Against sums in exact rationals of the float64 derivatives, and extended precision for the rest."""
    X, y = rows(5000, labels=name in ("logistic", "hinge"))
    plan = plan_for(name, epsilon=3, n=5000)
    task = objective_of(plan, np.array([0.1, -3.0, 7.7]))
    theta = np.array([0.3, -0.2, 0.1])
    got = gradient_of(X, evaluate(X, y, theta, task)[1], theta, task)
    wide = np.longdouble
    z = X.astype(wide) @ theta.astype(wide)
    slopes = task.loss.derivatives(y.astype(wide), z)[1]
    exact = (X.astype(wide) * slopes[:, None]).sum(axis=0) + wide(task.ridge) * theta + task.perturbation
    bound = gradient_error(task.loss, task.ridge, task.radius, task.norm_squared, plan.noise_bound, 5000, 3)
    assert np.linalg.norm((got - exact).astype(float)) <= bound / 2


@pytest.mark.parametrize("m", [1, 3, 6])
def test_the_law_of_the_box_noise(m):
    """||b||_inf is Gamma(m), and the point on the box's surface is uniform: a coordinate over it, too."""
    plan = plan_for(d=m)
    draws = np.array([objective.box_noise(plan, os_stream()) for _ in range(4000)]) / plan.scale
    norms = np.abs(draws).max(axis=1)
    assert stats.kstest(norms, stats.gamma(m).cdf).pvalue > 1e-5
    shares = (draws / norms[:, None]).reshape(-1)
    inside = shares[np.abs(shares) < 1]
    if m > 1:
        assert stats.kstest(inside, stats.uniform(-1, 2).cdf).pvalue > 1e-5
    assert abs((shares == 1).mean() - 0.5 / m) < 0.03
    assert draws.std() == pytest.approx(math.sqrt((m + 1) * (m + 2) / 3), rel=0.1)
    assert plan.spread == pytest.approx(plan.scale * math.sqrt((m + 1) * (m + 2) / 3))
    assert np.abs(draws).max() * plan.scale <= plan.noise_bound


def test_the_law_of_the_gaussian_noise():
    plan = plan_for(delta=1e-6)
    draws = np.concatenate([objective.gaussian_noise(plan, os_stream()) for _ in range(1500)])
    assert stats.kstest(draws, stats.norm(scale=plan.scale).cdf).pvalue > 1e-5
    assert (draws / plan.noise_step == np.round(draws / plan.noise_step)).all()


# ---- exact densities of the minimiser ---------------------------------------------------------------------

PAIRS = [
    (np.array([[1.0]]), [1.0], np.array([[1.0]]), [-1.0]),
    (np.array([[1.0]]), [1.0], np.array([[-1.0]]), [1.0]),
    (np.array([[1.0], [0.5]]), [1.0, -1.0], np.array([[0.0], [0.5]]), [1.0, -1.0]),
    (np.array([[1.0], [1.0], [1.0]]), [1.0, 1.0, 1.0], np.array([[1.0], [1.0], [-1.0]]), [1.0, 1.0, 1.0]),
]


def log_density(X, y, plan, grid):
    """Log density of the exact minimiser at each point of `grid`, one dimension, the ball left out."""
    task = objective_of(plan, np.zeros(1))
    targets = np.broadcast_to(np.asarray(y)[:, None], (len(y), len(grid)))
    _, first, second = task.loss.derivatives(targets, X * grid)
    b = -(X * first).sum(axis=0) - plan.ridge * grid
    hessian = (second * X**2).sum(axis=0) + plan.ridge
    if plan.pure:
        law = -np.abs(b) / plan.scale - math.log(2 * plan.scale)
    else:
        law = stats.norm.logpdf(b, scale=plan.scale)
    return law + np.log(hessian)


def pairs(adjacency):
    for X, y, V, u in PAIRS:
        if adjacency == "replace_one":
            yield X, y, V, u
        else:
            yield X, y, X[:-1], y[:-1]
            yield X[:-1], y[:-1], X, y


@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize("adjacency", ADJACENCIES)
@pytest.mark.parametrize("epsilon", [0.5, 2])
def test_densities_of_neighbours_pure(name, adjacency, epsilon):
    plan = plan_for(name, adjacency, epsilon=epsilon, d=1)
    budget = epsilon * 63 / 64
    grid = np.linspace(-6, 6, 1201) * max(1.0, plan.scale / plan.ridge)
    largest = max(
        float((log_density(X, y, plan, grid) - log_density(V, u, plan, grid)).max())
        for X, y, V, u in pairs(adjacency)
    )
    assert largest <= budget * (1 + 1e-9)
    if (
        name == "huber"
    ):  # the claim is not loose by much; logistic rows of one column cannot oppose each other
        assert largest > 0.5 * budget


@pytest.mark.parametrize("name", ["huber", "logistic", "hinge"])
@pytest.mark.parametrize("adjacency", ADJACENCIES)
def test_densities_of_neighbours_gaussian(name, adjacency):
    epsilon, delta = 1.0, 1e-3
    plan = plan_for(name, adjacency, delta=delta, epsilon=epsilon, d=1)
    spread = 10 * (plan.scale + 4 * plan.loss.slope) / plan.ridge
    grid = np.linspace(-spread, spread, 20001)
    for X, y, V, u in pairs(adjacency):
        p, q = np.exp(log_density(X, y, plan, grid)), np.exp(log_density(V, u, plan, grid))
        assert np.trapezoid(p, grid) == pytest.approx(1, abs=1e-3)
        excess = np.trapezoid(np.maximum(p - math.exp(epsilon * 63 / 64) * q, 0), grid)
        assert excess <= delta * 63 / 64


@pytest.mark.parametrize("name", LOSSES)
def test_densities_of_neighbours_in_three_dimensions(name):
    """The ratio at minimisers drawn at random, by b = -grad J_0 and the determinant."""
    rng = np.random.default_rng(0)
    plan = plan_for(name, epsilon=1, d=3)
    X, y = rows(8, labels=plan.loss.labels)

    def log_p(X, y, t):
        task = objective_of(plan, np.zeros(3))
        _, first, second = task.loss.derivatives(y, X @ t)
        b = -(X.T @ first) - plan.ridge * t
        H = X.T @ (X * second[:, None]) + plan.ridge * np.eye(3)
        return -np.abs(b).max() / plan.scale + np.linalg.slogdet(H)[1]

    for _ in range(300):
        V, u = X.copy(), y.copy()
        V[0], u[0] = rng.choice([-1, 1], 3), rng.choice([-1, 1])
        W, w = X.copy(), y.copy()
        W[0], w[0] = rng.choice([-1, 1], 3), rng.choice([-1, 1])
        t = rng.normal(size=3) * rng.choice([0.1, 1, 10])
        assert abs(log_p(V, u, t) - log_p(W, w, t)) <= 63 / 64


@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize("delta", [0, 1e-6])
def test_given_the_exact_minimiser_outputs_of_neighbours_are_close(name, delta):
    """Record and replay: the same theta* on both tables, extreme rows included; the outputs' step is paid."""
    extremes = [[1e6, -1e6, 1e6], [1e308, 1e308, -1e308], [np.nan, np.inf, 0.0], [1.0, 1.0, 1.0], [0, 0, 0]]
    X, y = rows(200, labels=name in ("logistic", "hinge"))
    plan = plan_for(name, delta=delta, epsilon=3, n=200, d=3)
    rng = np.random.default_rng(1)
    for first, second in itertools.product(extremes, repeat=2):
        theta = rng.normal(size=3)
        theta *= 0.7 * plan.radius / np.linalg.norm(theta)
        told = []
        for row in (first, second):
            V = X.copy()
            V[0] = row
            cells, targets = objective.gathered(Rows(V, y, plan.shape), plan)
            zero = objective_of(plan, np.zeros(3))
            b = -gradient_of(cells, evaluate(cells, targets, theta, zero)[1], theta, zero)
            solver = objective.solve(Rows(V, y, plan.shape), plan)
            asked = next(solver)
            assert not asked.value.any()
            told.append(solver.send(b))
        moved = (told[0].value - told[1].value) * told[0].step
        assert (np.abs(moved).sum() if plan.pure else np.linalg.norm(moved)) <= plan.output_sensitivity
        assert told[0].step == told[1].step
        assert told[0].sensitivity == told[1].sensitivity


@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize("adjacency", ADJACENCIES)
@pytest.mark.parametrize("delta", [0, 1e-6])
def test_a_runs_own_noise_is_replayed_on_neighbours(name, adjacency, delta):
    """The noise that tells the same minimiser on a neighbour is about as likely, and the outputs are close."""
    X, y = rows(40, labels=name in ("logistic", "hinge"))
    plan = plan_for(name, adjacency, delta=delta, n=40 if adjacency == "replace_one" else None)
    zero, worst = objective_of(plan, np.zeros(3)), 0.0
    for seed in range(12):
        V, u = X.copy(), y.copy()
        row = [[1e308, -1e6, 1.0], [np.nan, np.inf, -1.0], [1.0, 1.0, 1.0]][seed % 3]
        V[0], u[0] = row, -u[0]
        if adjacency == "add_remove_one":
            V, u = (X[1:], y[1:]) if seed % 2 else (np.vstack([X, row]), np.append(y, 1.0))
        tables = [Rows(X, y, plan.shape), Rows(V, u, plan.shape)]
        answer = objective.answers(plan, seeded_stream(seed))
        solver = objective.solve(tables[0], plan)
        b = answer(next(solver))
        told = solver.send(b)
        theta = told.value * told.step
        gradients, volumes = [], []
        for held in tables:
            cells, targets = objective.gathered(held, plan)
            gradients.append(gradient_of(cells, evaluate(cells, targets, theta, zero)[1], theta, zero))
            second = plan.loss.derivatives(targets, cells @ theta)[2]
            hessian = cells.T @ (cells * second[:, None]) + plan.ridge * np.eye(3)
            volumes.append(np.linalg.slogdet(hessian)[1])
        other = b + gradients[0] - gradients[1]
        again = objective.solve(tables[1], plan)
        next(again)
        found = again.send(other)
        assert (found.step, found.sensitivity) == (told.step, told.sensitivity)
        moved = (found.value - told.value) * told.step
        assert (np.abs(moved).sum() if plan.pure else np.linalg.norm(moved)) <= plan.output_sensitivity
        if plan.pure:
            likelier = (np.abs(other).max() - np.abs(b).max()) / plan.scale + volumes[0] - volumes[1]
            worst = max(worst, abs(likelier))
    assert worst <= 63 / 64
    assert worst > 0 or not plan.pure


@pytest.mark.parametrize("delta", [0, 1e-6])
@pytest.mark.parametrize("adjacency", ADJACENCIES)
def test_the_parts_add_up_to_the_budget(delta, adjacency):
    plan = plan_for(delta=delta, adjacency=adjacency, epsilon="0.7")
    first, second = plan.event.parts
    assert Fraction(first["epsilon"]) == Fraction("0.7") * 63 / 64
    spent = math.log1p(plan.loss.curvature * plan.shape.norm_squared / plan.ridge)
    assert spent == pytest.approx(0.7 / 4)
    if delta == 0:
        assert second == Event.of("discrete_laplace", epsilon="7/640")
        factor = 2 if adjacency == "replace_one" else 1
        assert spent + factor * plan.loss.slope / plan.scale <= 0.7 * 63 / 64
    else:
        assert Fraction(first["delta"]) == Fraction(1, 10**6) * 63 / 64
        assert second.mechanism == "gaussian"


def test_rows_of_a_person_share_the_budget():
    one = plan_for(epsilon=1)
    three = plan_for(epsilon=3, rows_per_unit=3)
    assert three.scale == one.scale
    assert three.ridge == one.ridge
    assert three.event.mechanism == "group"
    approximate = plan_for(epsilon=3, rows_per_unit=3, delta=1e-6)
    assert approximate.scale > plan_for(epsilon=1, delta=1e-6).scale


@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize("delta", [0, 1e-6])
@pytest.mark.parametrize("adjacency", ADJACENCIES)
@pytest.mark.parametrize("value", [0.0, 1.0, 1e308, np.inf, np.nan])
def test_odd_rows_have_finite_coefficients(name, delta, adjacency, value):
    for n, epsilon in itertools.product((0, 1, 40), (1e-12, 1, 1e6)):
        shape = make_shape(3, adjacency)
        plan = objective.make_plan(shape, epsilon, delta, name, rows=n)
        found = objective.release(Rows(np.full((n, 3), value), np.full(n, value), shape), plan)
        assert np.isfinite([found.intercept, *found.coefficients]).all()


def test_seeds_repeat_and_streams_differ():
    X, y = rows(50)
    plan = plan_for(n=50)
    told = Rows(X, y, plan.shape)
    same = [objective.release(told, plan, stream=seeded_stream(3)).coefficients for _ in range(2)]
    np.testing.assert_array_equal(*same)
    assert not np.array_equal(same[0], objective.release(told, plan, stream=seeded_stream(4)).coefficients)


@pytest.mark.parametrize("name", LOSSES)
def test_much_data_is_the_fit_without_noise(name):
    X, y = rows(20_000, labels=name in ("logistic", "hinge"))
    plan = plan_for(name, epsilon=50, n=len(y))
    found = objective.release(Rows(X, y, plan.shape), plan).coefficients
    clean = minimise(X, y, objective_of(plan, np.zeros(3)), plan.tolerance)
    assert np.linalg.norm(found - clean) < 0.02 * np.linalg.norm(clean)


def test_parameters_are_checked():
    for changes, word in (
        ({"loss": "cubic"}, "loss"),
        ({"epsilon": 0}, "epsilon"),
        ({"delta": 1}, "delta"),
        ({"epsilon": "1e-30"}, "epsilon"),
    ):
        with pytest.raises(ParameterError) as info:
            plan_for(**changes)
        assert word in str(info.value)
    shape = make_shape(3, "replace_one")
    with pytest.raises(ParameterError, match="ridge"):
        objective.make_plan(shape, 1, 0, "logistic", ridge=1e-6)
    with pytest.raises(ParameterError, match="radius"):
        objective.make_plan(shape, 1, 0, "logistic", radius=0.0)
    with pytest.raises(UnsupportedError, match="1,048,576"):
        objective.make_plan(shape, 1, 0, "logistic", rows=2_000_000)
    for loss, bad in (("huber", -1.0), ("quantile", 1.0)):
        with pytest.raises(ParameterError, match="loss"):
            objective.make_plan(shape, 1, 0, loss, loss_shape=bad)


@pytest.mark.parametrize(("delta", "draws"), [(0, 3000), (1e-2, 3000)])
def test_black_box_audit(delta, draws):
    """Whole releases of two neighbours of one row: no threshold on the output beats the claim."""
    from .test_least_squares import lower_bound

    plan = plan_for("logistic", delta=delta, d=1, n=1)
    samples = []
    for target in (-1.0, 1.0):
        told = Rows(np.ones((1, 1)), np.array([target]), plan.shape)
        samples.append(np.array([objective.release(told, plan).coefficients[0] for _ in range(draws)]))
    power, alarm = lower_bound(*samples, 1.0)
    assert power - math.e * alarm <= delta
    assert np.median(samples[1]) > np.median(samples[0])  # it tells the two apart, within the claim


@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize("rows", [1, 2, 100, 1000, None])
@pytest.mark.parametrize(("epsilon", "delta"), [(1e-3, 1e-6), (1, 0), (10, 1e-6), (1e4, 0), (1e6, 1e-6)])
def test_the_grid_of_the_output_holds_every_point_of_the_ball(name, rows, epsilon, delta):
    """The certified distance may be so small that a grid of its size would cut the minimiser off."""
    for size in (1, 5):
        plan = objective.make_plan(make_shape(size, "replace_one"), epsilon, delta, name, rows=rows)
        assert plan.radius / plan.output_step <= 2.0**60
        corner = np.full(plan.shape.size, plan.radius)
        kept = round_toward_zero(corner, plan.output_step) * plan.output_step
        np.testing.assert_allclose(kept, corner, rtol=2.0**-40)
        # The padding pays for the step, whichever is larger, in the norm that is charged.
        least = 2 * plan.distance * (1 if delta else math.sqrt(plan.shape.size))
        assert plan.output_sensitivity >= least + plan.output_step * math.sqrt(plan.shape.size)


@pytest.mark.parametrize(("n", "epsilon", "delta"), [(1, 1e4, 0), (2, 1e4, 0), (100, 1e4, 0), (1, 1e6, 1e-6)])
def test_few_rows_have_the_coefficients_of_the_minimiser(n, epsilon, delta):
    """Once they saturated at 2^61 steps of the grid, and were off by 12."""
    X, y = np.full((n, 1), 0.5), np.full(n, 1.0)
    plan = objective.make_plan(make_shape(1, "replace_one"), epsilon, delta, "logistic", rows=n)
    told = objective.release(Rows(X, y, plan.shape), plan, stream=seeded_stream(1))
    solver = objective.solve(Rows(X, y, plan.shape), plan)
    next(solver)
    value = solver.send(np.zeros(2))
    exact = value.value * value.step
    scale = plan.spread / plan.ridge
    assert abs(told.intercept - exact[0]) < 20 * scale + 1e-6
    assert abs(told.coefficients[0] - exact[1]) < 20 * scale + 1e-6


@pytest.mark.parametrize("shape", [1e-320, 1e-8, "x", True, math.nan, math.inf])
def test_shapes_of_losses_are_checked_before_the_charge(shape):
    with pytest.raises(ParameterError, match="loss_shape"):
        objective.make_plan(make_shape(2, "replace_one"), 1, 1e-6, "huber", loss_shape=shape)


@pytest.mark.parametrize("options", [
    {"ridge": "1000"}, {"ridge": True}, {"ridge": math.nan}, {"radius": "1"}, {"radius": True}
])  # fmt: skip
def test_other_types_are_refused(options):
    with pytest.raises(ParameterError, match=next(iter(options))):
        objective.make_plan(make_shape(2, "replace_one"), 1, 1e-6, "huber", **options)


@pytest.mark.parametrize("epsilon", [1e-30, 1e-9, 1e18, 1e100, 1e250])
@pytest.mark.parametrize("delta", [0, 1e-6, 1e-50])
@pytest.mark.parametrize("name", LOSSES)
def test_extreme_amounts_are_refused_before_the_charge_or_served(epsilon, delta, name):
    try:
        plan = objective.make_plan(make_shape(2, "replace_one"), epsilon, delta, name, rows=5)
    except ConfideError:
        return
    rows = Rows(np.ones((5, 2)), np.ones(5), plan.shape)
    assert np.isfinite(objective.release(rows, plan).coefficients).all()
