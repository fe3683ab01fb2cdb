"""Public and private columns in one linear fit: sensitivity of the joint release, limits, and its accuracy."""

import math
import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from confide.errors import DataError, ParameterError, UnsupportedError
from confide.training import fit_semi_sensitive
from confide.training.closed_form import solve as solve_public
from confide.training.coefficients import Rows, make_shape
from confide.training.least_squares import make_plan as adassp_plan
from confide.training.least_squares import solve as adassp_solve
from confide.training.release import drive, exact_answer
from confide.training.semi_problem import (
    PrivateColumns,
    joint_sensitivity,
    make_weights,
    plan_release,
)
from confide.training.semi_sensitive import array_problem, assemble, solve

CELLS = st.one_of(
    st.floats(allow_nan=True, allow_infinity=True, width=64), st.sampled_from([-1e308, 1e308, 1e6, -2.0, 3.0])
)


def table(n=60, p=3, q=2, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.standard_t(3, size=(n, p))
    Z = np.clip(0.5 * rng.normal(size=(n, q)) + (0.2 * X[:, :1] if p else 0), -2, 3)
    y = (X.sum(axis=1) if p else 0) + (Z.sum(axis=1) if q else 0) + 0.2 * rng.normal(size=n)
    return X, Z, np.clip(y, -4, 4)


def task(X, Z, y, norm=None, rows_per_unit=1):
    return array_problem(X, Z, y, (-2.0, 3.0), (-4.0, 4.0), norm, rows_per_unit)


def record(X, Z, y, multiplier=1.0, norm=None, rows_per_unit=1, **options):
    problem, columns = task(X, Z, y, norm, rows_per_unit)
    plan = plan_release(problem, columns, multiplier, **options)
    solver = solve(problem, columns, plan)
    return plan, next(solver), solver


def replay(solver, answer):
    with pytest.raises(StopIteration) as stop:
        solver.send(answer)
    return stop.value.value


def distance(a, b):
    return a.step * np.linalg.norm((a.value - b.value).astype(float))


@settings(max_examples=30, deadline=None)
@given(
    row=st.integers(0, 59),
    old=st.tuples(CELLS, CELLS, CELLS),
    new=st.tuples(CELLS, CELLS, CELLS),
    norm=st.sampled_from([None, 0.5]),
    multiplier=st.sampled_from([0.002, 0.02, 0.1, 30.0]),
    leverage=st.sampled_from([None, 1.0]),
)
def test_one_private_part_moves_the_statistic_by_at_most_its_sensitivity(
    row, old, new, norm, multiplier, leverage
):
    X, Z, y = table()
    ends = []
    for a, b, label in (old, new):
        Z_, y_ = Z.copy(), y.copy()
        Z_[row], y_[row] = (a, b), label
        ends.append(record(X, Z_, y_[:, None], multiplier, norm, leverage=leverage))
    (_, a, solver_a), (_, b, solver_b) = ends
    assert (a.step, a.sensitivity, a.name) == (b.step, b.sensitivity, b.name)
    assert distance(a, b) <= a.sensitivity
    # Replay: nothing else of the tables is in the result.
    answer = exact_answer(a)
    first, second = replay(solver_a, answer), replay(solver_b, answer)
    np.testing.assert_array_equal(first.public, second.public)
    np.testing.assert_array_equal(first.private, second.private)
    assert np.isfinite(first.public).all()


def test_the_sensitivity_is_attained_on_the_grid():
    # Opposite corners of the private part, in the longest row: within 0.1 % where the square is free.
    X, Z, y = table(25)
    found = []
    for multiplier in (0.003, 0.3):
        largest = 0.0
        for row in range(len(y)):
            ends = []
            for sign in (1, -1):
                Z_, y_ = Z.copy(), y.copy()
                Z_[row], y_[row] = (3.0 if sign > 0 else -2.0), 4.0 * sign
                plan, statistic, _ = record(X, Z_, y_, multiplier)
                ends.append(statistic)
            largest = max(largest, distance(*ends) / ends[0].sensitivity)
        assert largest <= 1.0
        norm_squared = (2.0 if plan.weights.columns else 0.0) + plan.weights.label**2
        # 2 S of the opposite pair over D: what the bound has for pairs at the worst angle.
        found.append(largest / (2 * math.sqrt(norm_squared) / plan.weights.sensitivity))
    np.testing.assert_allclose(found, 1.0, atol=1e-3)


@pytest.mark.parametrize("inner", [0.1, 0.5, 0.8, 2.0, 10.0])
def test_joint_sensitivity_by_search(inner):
    # All pairs in the ball of radius S, with ||f|| <= 1: the closed form is their supremum.
    S = 1.3
    bound = joint_sensitivity(S, inner)
    angles = np.linspace(0, math.pi, 721)
    radii = np.linspace(0, S, 27)
    a, b, angle = np.meshgrid(radii, radii, angles, indexing="ij")
    x = a * b * np.cos(angle)
    square = a**2 + b**2 - 2 * x + inner**2 * (a**4 + b**4 - 2 * x**2)
    change = np.sqrt(np.maximum(square, 0.0))
    assert change.max() <= bound * (1 + 1e-12)
    assert change.max() >= bound * (1 - 1e-4)
    # Random vectors, by the definition and not by the formula.
    rng = np.random.default_rng(0)
    for _ in range(2000):
        s, r, f = (rng.normal(size=3) for _ in range(3))
        s, r, f = (
            S * s / np.linalg.norm(s),
            S * r / np.linalg.norm(r),
            f / np.linalg.norm(f),
        )
        moved = (
            np.linalg.norm(np.outer(f, s - r)) ** 2
            + (inner * np.linalg.norm(np.outer(s, s) - np.outer(r, r))) ** 2
        )
        assert math.sqrt(moved) <= bound * (1 + 1e-12)


def test_the_square_of_the_secret_part_is_free():
    weights = make_weights(1.0, 0.5, 1.0)
    assert weights.sensitivity == pytest.approx(2 * math.sqrt(2))
    assert make_weights(1.0, 0.5001, 1.0).sensitivity > weights.sensitivity


def test_without_private_columns_it_is_the_statistic_of_closed_form():
    X, Z, y = table(q=0)
    plan, statistic, solver = record(X, Z, y)
    problem, _ = task(X, Z, y)
    public = next(solve_public(problem, plan.step, 1.0))
    scale = 2.0 * plan.step.kappa
    ours = statistic.value * statistic.step
    theirs = public.value * public.step
    np.testing.assert_allclose(ours, theirs, atol=1e-6)
    assert plan.weights.inner == pytest.approx(scale)
    assert statistic.sensitivity == pytest.approx(public.sensitivity, rel=1e-6)
    solution = replay(solver, exact_answer(statistic))
    theirs = drive(solve_public(problem, plan.step, 1.0), exact_answer)
    np.testing.assert_allclose(solution.public * problem.half, theirs.estimate, rtol=1e-5, atol=1e-5)


def test_without_public_columns_it_is_the_statistic_of_adassp():
    X, Z, y = table(p=0, q=3)
    problem, columns = task(X, Z, y)
    plan = plan_release(problem, columns, 0.01)
    statistic = next(solve(problem, columns, plan))
    z, t = columns.normalised(Z), problem.normalised(y)
    s = np.column_stack([z, plan.weights.label * t])
    w = plan.step.plan.rows(plan.step.basis.coordinates(np.zeros((len(y), 0))))[1]
    np.testing.assert_allclose(w, 1.0)  # the intercept alone: every row counts fully
    gram = s.T @ s
    values = statistic.value * statistic.step
    np.testing.assert_allclose(np.abs(values[:4]), np.abs(s.sum(axis=0)), atol=1e-5)
    upper = np.triu_indices(4)
    scale = plan.weights.inner * np.where(upper[0] == upper[1], 1, math.sqrt(2))
    np.testing.assert_allclose(values[4:] / scale, gram[upper], atol=1e-5)
    # AdaSSP's matrix of (1, z, c t) has the same numbers, and at kappa = 2^(-1/2) the same sensitivity.
    shape = make_shape(3, "replace_one")
    theirs = adassp_plan(shape, 1, 1e-6)
    rows = Rows(z, t, shape)
    first = next(adassp_solve(rows, theirs))
    full = np.column_stack([np.ones(len(t)), z, theirs.weight * t])
    places = np.triu_indices(5)
    expected = (full.T @ full)[places] * np.where(places[0] == places[1], 1, math.sqrt(2))
    np.testing.assert_allclose(first.value * first.step, expected, atol=1e-3)
    norm = math.sqrt(3 + theirs.weight**2)
    assert math.sqrt(2) * joint_sensitivity(norm, math.sqrt(0.5)) == pytest.approx(
        theirs.sensitivity, rel=1e-3
    )


def test_without_noise_it_is_least_squares():
    X, Z, y = table(400, 4, 3)
    problem, columns = task(X, Z, y)
    plan = plan_release(problem, columns, 0.0)
    solution = drive(solve(problem, columns, plan), exact_answer)
    from fractions import Fraction

    fit = assemble(problem, columns, plan, solution, Fraction(1), Fraction(1))
    design = np.column_stack([np.ones(len(y)), X, Z])
    expected = np.linalg.lstsq(design, y, rcond=None)[0]
    np.testing.assert_allclose([fit.intercept, *fit.public, *fit.private], expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("kind", ["constant", "duplicate", "zero", "copy of a public one"])
def test_degenerate_private_columns(kind):
    X, Z, y = table(300)
    Z[:, 1] = {
        "constant": 1.0,
        "duplicate": Z[:, 0],
        "zero": 0.0,
        "copy of a public one": np.clip(X[:, 0], -2, 3),
    }[kind]
    fit = fit_semi_sensitive(X, Z, y, 2, 1e-6, private_bounds=(-2, 3), target_bounds=(-4, 4), random_state=0)
    predicted = fit.predict(X, Z)
    assert np.isfinite(predicted).all()
    assert np.abs(predicted).max() <= 4


def test_units_of_several_rows_pay_for_all():
    X, Z, y = table()
    single, several = (record(X, Z, y, 0.01, leverage=1.0, rows_per_unit=k) for k in (1, 3))
    assert several[0].step.touched == 3
    # Three rows of length 1 (the inner block at a quarter of its weight).
    assert several[0].step.reach == pytest.approx(3 * single[0].step.reach, rel=1e-6)
    rows = [4, 20, 33]
    ends = []
    for sign in (1, -1):
        Z_, y_ = Z.copy(), y.copy()
        Z_[rows] = 3.0 if sign > 0 else -2.0
        y_[rows] = 4.0 * sign
        ends.append(record(X, Z_, y_, 0.01, leverage=1.0, rows_per_unit=3)[1])
    assert distance(*ends) <= ends[0].sensitivity


def test_private_columns_help_where_they_matter():
    rng = np.random.default_rng(0)
    n = 8000
    X = rng.normal(size=(n, 10))
    Z = np.clip(0.5 * rng.normal(size=(n, 2)) + 0.3 * X[:, :2], -1, 1)
    y = np.clip(X[:, 0] + 2 * Z[:, 0] - Z[:, 1] + 0.3 * rng.normal(size=n), -5, 5)
    errors = {}
    for private in (Z, Z[:, :0]):
        fits = [
            fit_semi_sensitive(X, private, y, 1, 1e-6, target_bounds=(-5, 5), random_state=seed).predict(
                X, private
            )
            for seed in range(3)
        ]
        errors[private.shape[1]] = np.mean([(fit - y) ** 2 for fit in fits])
    assert errors[2] < 0.25 * errors[0]
    assert errors[2] < 1.5 * 0.09
    slopes = fit_semi_sensitive(X, Z, y, 1, 1e-6, target_bounds=(-5, 5), random_state=0).private
    np.testing.assert_allclose(slopes, [2, -1], atol=0.4)


def test_hopeless_private_columns_are_left_out_by_public_facts():
    X, Z, y = table(200, 10, 30)
    fits = [
        fit_semi_sensitive(
            X, cells, y, 0.05, 1e-6, private_bounds=(-2, 3), target_bounds=(-4, 4), random_state=0
        )
        for cells in (Z, -Z)
    ]
    for fit in fits:
        assert fit.facts["private_columns"] == 0
        assert not fit.private.any()


def test_the_event_is_what_was_charged():
    from confide.privacy import PLDAccountant

    X, Z, y = table()
    fit = fit_semi_sensitive(
        X, Z, y, 0.7, 1e-6, private_bounds=(-2, 3), target_bounds=(-4, 4), random_state=0
    )
    assert PLDAccountant().compose(fit.event).epsilon(1e-6) == pytest.approx(0.7, rel=1e-6)


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"epsilon": 0}, ParameterError),
        ({"delta": 0}, ParameterError),
        ({"private_bounds": (1, -1)}, ParameterError),
        ({"private_bounds": 3}, ParameterError),
        ({"private_bounds": (0, math.inf)}, ParameterError),
        ({"target_bounds": (1, 1)}, ParameterError),
        ({"private_norm": 0}, ParameterError),
        ({"private": np.zeros((59, 2))}, DataError),
        ({"public": np.zeros(60)}, DataError),
        ({"private": np.zeros((60, 300))}, UnsupportedError),
    ],
)
def test_refusals(change, error):
    X, Z, y = table()
    options = {"public": X, "private": Z, "y": y, "epsilon": 1, "delta": 1e-6, "private_bounds": (-2, 3),
               "target_bounds": (-4, 4), **change}  # fmt: skip
    with pytest.raises(error):
        fit_semi_sensitive(**options)


def test_weights_are_not_accepted():  # F45
    X, Z, y = table()
    with pytest.raises(TypeError):
        fit_semi_sensitive(X, Z, y, 1, 1e-6, target_bounds=(-4, 4), sample_weight=np.ones(60))


def test_a_fit_is_handed_on_without_the_table():
    X, Z, y = table()
    fit = fit_semi_sensitive(X, Z, y, 1, 1e-6, private_bounds=(-2, 3), target_bounds=(-4, 4), random_state=1)
    assert list(fit.columns.read()) == []
    copy = pickle.loads(pickle.dumps(fit))
    np.testing.assert_array_equal(copy.predict(X, Z), fit.predict(X, Z))


def test_rows_stay_within_their_norm():
    bound = np.full(3, 2.0)
    columns = PrivateColumns(lambda: iter([]), ("a", "b", "c"), -bound, bound, 0.7)
    cells = np.array([[1e308, -math.inf, math.nan], [0.1, 0, 0], [2, 2, 2]])
    z = columns.normalised(cells)
    assert np.linalg.norm(z, axis=1).max() <= 0.7
    np.testing.assert_allclose(z[1], [0.05, 0, 0])
    assert z[0, 2] == 0
    for cell in ("HIV+", [1, 2], 1j, None):
        rows = [[0.1, 0, 0], [2, cell, 2]]
        np.testing.assert_array_equal(
            columns.normalised(rows), columns.normalised([rows[0], [2, math.nan, 2]])
        )
    with pytest.raises(DataError, match="type"):
        columns.normalised(cells.astype(str))
