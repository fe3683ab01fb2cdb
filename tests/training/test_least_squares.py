"""Noisy sufficient statistics: sensitivities, the law of the noise, and what is made of the release."""

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from scipy import stats
from scipy.stats import beta

from confide.errors import ConfideError, DataError, ParameterError, UnsupportedError
from confide.mechanisms import gaussian_release, laplace_release, os_stream, seeded_stream
from confide.privacy import Event, gaussian_sigma
from confide.training import adassp, boosted_adassp, least_squares, noisy_statistics
from confide.training.coefficients import Rows, check_method, make_shape
from confide.training.release import drive, exact_answer

ADJACENCIES = ["replace_one", "add_remove_one"]
#: What one row may hold, with its target.
ROWS = [
    ([0.0, 0.0, 0.0], 0.0),
    ([1.0, 1.0, 1.0], 1.0),
    ([-1.0, 1.0, -1.0], 1.0),
    ([1.0, 1.0, 1.0], -1.0),
    ([1e6, -1e6, 1e6], 1e6),
    ([1e308, -1e308, 1e308], -1e308),
    ([np.inf, -np.inf, np.nan], np.nan),
    ([5e-324, 1 / 3, -1e-9], 0.7),
]


def data(n=400, d=3, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 1, size=(n, d))
    return X, np.clip(X @ np.linspace(0.5, -0.5, d) + 0.1 + 0.1 * rng.normal(size=n), -1, 1)


def statistic(X, y, plan, **bounds):
    return next(least_squares.solve(Rows(X, y, plan.shape, **bounds), plan))


def plan_for(adjacency="replace_one", delta=1e-6, epsilon=1, d=3, **shape):
    return least_squares.make_plan(make_shape(d, adjacency, **shape), epsilon, delta)


@pytest.mark.parametrize("adjacency", ADJACENCIES)
@pytest.mark.parametrize("delta", [0, 1e-6])
@pytest.mark.parametrize("shape", [{}, {"intercept": False}, {"row_norm": 0.8}])
def test_neighbours_are_within_the_sensitivity(adjacency, delta, shape):
    """Record on neighbours: the released integers move by at most what is charged for."""
    plan = plan_for(adjacency, delta, **shape)
    X, y = data(30)
    largest = 0.0
    for (x, t), (v, u) in itertools.product(ROWS, repeat=2):
        first = np.vstack([X, [x]]), np.append(y, t)
        second = (np.vstack([X, [v]]), np.append(y, u)) if adjacency == "replace_one" else (X, y)
        moved = (statistic(*first, plan).value - statistic(*second, plan).value) * plan.step
        norm = np.abs(moved).sum() if plan.pure else np.linalg.norm(moved)
        assert norm <= plan.sensitivity
        largest = max(largest, norm)
    # Lemmas 3 and 4 are about the box, which shortened rows do not fill.
    assert largest > 0.5 * plan.sensitivity or (plan.pure and "row_norm" in shape)


def test_the_bound_of_a_replacement_is_attained():
    """Lemma 2: w and v orthogonal and of full length."""
    plan = plan_for(d=3, intercept=False)
    c = plan.weight
    # (1, 1, 1, c) and (1, 1, -1, -c t) with 1 = c^2 t.
    assert c > 1
    first = statistic(np.array([[1.0, 1.0, 1.0]]), np.array([1.0]), plan).value
    second = statistic(np.array([[1.0, 1.0, -1.0]]), np.array([-1 / c**2]), plan).value
    w, v = 3 + c**2, 3 + 1 / c**2
    assert np.linalg.norm(first - second) * plan.step == pytest.approx(math.hypot(w, v), rel=1e-6)
    assert math.sqrt(2) * w <= plan.sensitivity < math.sqrt(2) * w * 1.001


@pytest.mark.parametrize(("d", "intercept"), [(1, True), (2, True), (3, True), (2, False), (3, False)])
@pytest.mark.parametrize("weight", [0.3, 1.0, 2.5])
def test_lemmas_3_and_4_by_enumeration(d, intercept, weight):
    m = d + int(intercept)
    rng = np.random.default_rng(d)
    corners = [np.array(corner) for corner in itertools.product((-1.0, 1.0), repeat=d + 1)]
    corners += [*list(rng.uniform(-1, 1, size=(40, d + 1))), np.zeros(d + 1)]
    places = np.triu_indices(m + 1)

    def entries(corner):
        w = np.concatenate([np.ones(int(intercept)), corner]) * np.append(np.ones(m), weight)
        return (w[places[0]] * w[places[1]])[:-1]

    rows = np.array([entries(corner) for corner in corners])
    replaced = max(np.abs(rows - row).sum(axis=1).max() for row in rows)
    added = np.abs(rows).sum(axis=1).max()
    assert replaced <= least_squares.l1_sensitivity(d, m, weight, replaced=True) + 1e-12
    assert added == pytest.approx(least_squares.l1_sensitivity(d, m, weight, replaced=False))
    # Squares cannot move at corners: the rest of the bound is attained there.
    assert replaced >= least_squares.l1_sensitivity(d, m, weight, replaced=True) - d - 1e-12


@pytest.mark.parametrize("delta", [0, 1e-6])
def test_rows_of_a_person_add_up(delta):
    one, three = plan_for(delta=delta), plan_for(delta=delta, rows_per_unit=3)
    assert three.sensitivity == pytest.approx(3 * one.sensitivity, rel=1e-6)
    X, y = data(30)
    far = X.copy(), y.copy()
    far[0][:3], far[1][:3] = 1e308, -1e308
    near = X.copy(), y.copy()
    near[0][:3], near[1][:3] = -1, 1
    moved = (statistic(*far, three).value - statistic(*near, three).value) * three.step
    assert (np.abs(moved).sum() if delta == 0 else np.linalg.norm(moved)) <= three.sensitivity


@pytest.mark.parametrize("delta", [0, 1e-6])
def test_the_law_of_the_noise(delta):
    """Exactly the library's Gaussian or Laplace of the plan's scale, and nothing but noise differs."""
    plan = plan_for(delta=delta)
    told = statistic(*data(50), plan)
    answer = least_squares.answers(plan, seeded_stream(5))(told)
    stream = seeded_stream(5)
    if plan.pure:
        expected = laplace_release(
            told, plan.epsilon, l1_sensitivity=plan.sensitivity, stream=stream.child(told.name)
        )
    else:
        expected = gaussian_release(told, plan.multiplier, stream=stream.child(f"{told.name}/1"))
    np.testing.assert_array_equal(answer, expected)
    noise = np.concatenate(
        [least_squares.answers(plan, os_stream())(told) - told.value * plan.step for _ in range(500)]
    )
    law = stats.laplace(scale=plan.sensitivity / 1.0) if plan.pure else stats.norm(scale=plan.deviation)
    assert stats.kstest(noise, law.cdf).pvalue > 1e-5
    assert plan.deviation == pytest.approx(law.std())


def test_events_are_what_was_run():
    assert plan_for(delta=0, epsilon=0.5).event == Event.of("discrete_laplace", epsilon="1/2")
    event = plan_for().event
    assert event == Event.of("gaussian", noise_multiplier=gaussian_sigma(1, 1e-6))


def lower_bound(first, second, epsilon, confidence=0.9999):
    """Return a lower confidence bound on the epsilon that separates two samples of a statistic, delta = 0."""
    half = len(first) // 2
    best, found = None, -np.inf
    for c in np.quantile(np.concatenate([first[:half], second[:half]]), np.linspace(0.02, 0.98, 97)):
        p, q = (second[:half] > c).mean(), (first[:half] > c).mean()
        gain = p - math.exp(epsilon) * q
        if gain > found:
            best, found = c, gain
    n = len(first) - half
    hits, alarms = int((second[half:] > best).sum()), int((first[half:] > best).sum())
    tail = (1 - confidence) / 2
    low = beta.ppf(tail, hits, n - hits + 1) if hits else 0.0
    return low, beta.ppf(1 - tail, alarms + 1, n - alarms)


@pytest.mark.parametrize(("delta", "shrink"), [(0, 1.0), (1e-2, 1.0), (0, 0.4), (1e-2, 0.6)])
def test_black_box_audit(delta, shrink):
    """The likelihood-ratio direction of the worst pair: no threshold beats the claim; less noise is caught."""
    plan = plan_for(delta=delta, d=2)
    X, y = data(4, 2)
    first = statistic(np.vstack([X, [[1, 1]]]), np.append(y, 1.0), plan)
    second = statistic(np.vstack([X, [[-1, 1]]]), np.append(y, -1.0), plan)
    moved = (second.value - first.value) * plan.step
    draws = 60_000
    outcomes = []
    for told in (first, second):
        noise = np.concatenate(
            [
                (
                    least_squares.answers(plan, os_stream())(_tiled(told, 500))
                    - _tiled(told, 500).value * told.step
                )
                for _ in range(draws // 500)
            ]
        )
        value = told.value * told.step + shrink * noise
        if plan.pure:
            a, b = first.value * plan.step, second.value * plan.step
            outcomes.append(np.abs(value - a).sum(axis=1) - np.abs(value - b).sum(axis=1))
        else:
            outcomes.append(value @ moved)
    power, alarm = lower_bound(*outcomes, 1.0)
    broken = power - math.exp(1.0) * alarm > delta
    assert broken == (shrink < 1)


def _tiled(told, count):
    from confide.mechanisms import Statistic

    return Statistic(np.tile(told.value, (count, 1)), told.step, told.sensitivity, told.name)


@pytest.mark.parametrize("adjacency", ADJACENCIES)
@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("delta", [0, 1e-6])
def test_large_epsilon_is_least_squares(adjacency, intercept, delta):
    X, y = data(2000)
    plan = plan_for(adjacency, delta, epsilon=1e6, intercept=intercept)
    found = drive(least_squares.solve(Rows(3 * X, 5 * y, plan.shape, 3.0, 5.0), plan), exact_answer)
    A = np.column_stack([np.ones(len(X)), 3 * X]) if intercept else 3 * X
    expected = np.linalg.lstsq(A, 5 * y, rcond=None)[0]
    values = np.append(found.intercept, found.coefficients) if intercept else found.coefficients
    np.testing.assert_allclose(values, expected, atol=1e-4)
    if delta:
        assert dict(found.facts)["target_square"] == pytest.approx(float(y @ y), rel=1e-6)


def test_blocks_and_order_of_rows_do_not_matter(monkeypatch):
    X, y = data(777)
    plan = plan_for()
    whole = statistic(X, y, plan).value
    order = np.random.default_rng(0).permutation(len(y))
    np.testing.assert_array_equal(statistic(X[order], y[order], plan).value, whole)
    monkeypatch.setattr("confide.training.coefficients._BLOCK", 100)
    np.testing.assert_array_equal(statistic(X, y, plan).value, whole)


def test_the_reported_covariance_is_that_of_the_noise():
    X, y = data(20_000)
    found = [adassp(X, y, 1, 1e-6, "replace_one", random_state=seed) for seed in range(400)]
    values = np.array([np.append(one.intercept, one.coefficients) for one in found])
    told = np.mean([np.diag(one.covariance) for one in found], axis=0)
    # A deviation of 400 draws is within 15 % but once in 10^4. The intercept's is an upper bound: n is public.
    np.testing.assert_allclose(values[:, 1:].std(axis=0), np.sqrt(told[1:]), rtol=0.15)
    assert values[:, 0].std() <= np.sqrt(told[0]) * 1.15


@pytest.mark.parametrize("fit", [lambda *a: adassp(*a[:3], 1e-6, *a[3:]), noisy_statistics])
@pytest.mark.parametrize("adjacency", [*ADJACENCIES, "replace_label", "replace_private_part"])
@pytest.mark.parametrize("n", [0, 1, 2, 50])
@pytest.mark.parametrize("value", [0.0, 1.0, 1e308, np.inf, np.nan])
def test_odd_rows_have_finite_coefficients(fit, adjacency, n, value):
    for epsilon in (1e-3, 1, 1e6):
        found = fit(np.full((n, 3), value), np.full(n, value), epsilon, adjacency)
        assert np.isfinite([found.intercept, *found.coefficients]).all()


def test_label_relations_take_the_noise_of_a_replaced_row():
    plans = [plan_for(adjacency) for adjacency in ("replace_one", "replace_label", "replace_private_part")]
    assert len({plan.sensitivity for plan in plans}) == 1


def test_refusals_name_the_parameter_and_come_before_the_rows():
    X, y = data(10)
    cases = [
        (lambda: adassp(X, y, 1, 0, "replace_one"), "noisy_statistics"),
        (lambda: adassp(X, y, 0, 1e-6, "replace_one"), "epsilon"),
        (lambda: adassp(X, y, 1, 1, "replace_one"), "delta"),
        (lambda: adassp(X, y, 1, 1e-6, "nearby"), "adjacency"),
        (lambda: adassp(X, y, 1, 1e-6, "replace_one", feature_bound=0.0), "feature_bound"),
        (lambda: adassp(X, y, 1, 1e-6, "replace_one", target_bound=np.nan), "target_bound"),
        (lambda: adassp(X, y, 1, 1e-6, "replace_one", row_norm=0.0), "row_norm"),
        (lambda: adassp(X, y, 1, 1e-6, "replace_one", rows_per_unit=0), "integers >= 1"),
        (lambda: adassp(X, y[:-1], 1, 1e-6, "replace_one"), "one target"),
        (lambda: adassp(X[0], y, 1, 1e-6, "replace_one"), "shape"),
        (lambda: adassp(np.zeros((2, 513)), y[:2], 1, 1e-6, "replace_one"), "512"),
        (lambda: noisy_statistics(X, y, 1e-18, "replace_one"), "epsilon"),
    ]
    for call, word in cases:
        with pytest.raises((ParameterError, UnsupportedError, DataError)) as info:
            call()
        assert word in str(info.value)
        assert info.value.remedy


@pytest.mark.parametrize("engine", ["closed_form", "rounds"])
def test_engines_for_public_columns_are_refused_by_name(engine):
    with pytest.raises(UnsupportedError, match=f"'{engine}' is not private here"):
        check_method(engine, ("objective",))
    with pytest.raises(ParameterError, match="coefficients"):
        check_method("lasso", ("objective",))


def test_too_many_rows_are_refused_where_their_number_is_public(monkeypatch):
    X, y = data(10)
    monkeypatch.setattr("confide.training.least_squares.check_rows", _few)
    with pytest.raises(ConfideError, match="10 rows"):
        adassp(X, y, 1, 1e-6, "replace_one")
    adassp(X, y, 1, 1e-6, "add_remove_one")


def _few(shape, rows):
    from confide.training.coefficients import check_rows

    check_rows(shape, rows, most=5)


@pytest.mark.parametrize("fit", [adassp, boosted_adassp, lambda X, y, e, _, a: noisy_statistics(X, y, e, a)])
def test_messages_hold_no_cell(fit):
    """Objects without a number count as 0; a type that is refused is named without a cell."""
    cells = np.array([[1, 2], [3, "secret-diagnosis"]], dtype=object)
    told = fit(cells, np.array([0, "secret"], dtype=object), 1, 1e-6, "replace_one")
    assert np.isfinite(told.coefficients).all()
    assert fit(cells.tolist(), [0, "secret"], 1, 1e-6, "replace_one").coefficients.shape == (2,)
    for bad in (cells.astype(str), np.ones((2, 2)) + 0.5j):
        with pytest.raises(ValueError, match=r"type|Complex") as info:
            fit(bad, np.zeros(2), 1, 1e-6, "replace_one")
        assert "secret" not in str(info.value)
        with pytest.raises(ValueError, match=r"type|Complex"):
            fit(np.zeros((2, 2)), bad[0], 1, 1e-6, "replace_one")


def test_objects_are_the_numbers_they_hold():
    plan = plan_for()
    X, y = data(40)
    cells = X.astype(object)
    cells[0], cells[1, 0] = [str(x) for x in X[0]], None
    X[1, 0] = np.nan
    told = statistic(cells, y.astype(object), plan).value
    np.testing.assert_array_equal(told, statistic(X, y, plan).value)


@pytest.mark.parametrize("epsilon", [1e15, 1e18, 1e40])
@pytest.mark.parametrize("n", [0, 1, 50])
@pytest.mark.parametrize("fit", [noisy_statistics, lambda X, y, e, a: adassp(X, y, e, 1e-6, a)])
def test_equal_columns_at_any_epsilon(fit, n, epsilon):
    """Nothing raises once it is charged: noise below rounding leaves the ridge of the rounding."""
    told = fit(np.ones((n, 3)), np.ones(n), epsilon, "replace_one")
    assert np.isfinite(told.coefficients).all()
    assert np.isfinite(told.covariance).all()
    if n:
        assert told.intercept + told.coefficients.sum() == pytest.approx(1, abs=0.05)


def test_results_carry_their_guarantee():
    X, y = data(50)
    told = adassp(X, y, 1, 1e-6, "add_remove_one").guarantee
    assert (told.epsilon, told.delta, told.adjacency.value) == (1, Fraction(1, 10**6), "add_remove_one")
    assert told.assumptions == ("unrecorded",)
    for seed in (3, seeded_stream(3)):
        assert "seeded" in adassp(X, y, 1, 1e-6, "replace_one", random_state=seed).guarantee.assumptions
        assert (
            "seeded" in boosted_adassp(X, y, 1, 1e-6, "replace_one", random_state=seed).guarantee.assumptions
        )
        assert "seeded" in noisy_statistics(X, y, 1, "replace_one", random_state=seed).guarantee.assumptions
    assert adassp(X, y, 1, 1e-6, "replace_one", random_state=os_stream()).guarantee.assumptions == (
        "unrecorded",
    )
    many = noisy_statistics(X, y, 1, "replace_one", rows_per_unit=3)
    assert many.guarantee.unit == "person"
    assert many.guarantee.assumptions == ("at most 3 rows a person", "unrecorded")
    assert many.guarantee.event == many.event
    assert many.to_dict()["guarantee"] == many.guarantee.to_dict()


@pytest.mark.parametrize(("options", "word"), [
    ({"feature_bound": True}, "feature_bound"), ({"feature_bound": "1"}, "feature_bound"),
    ({"target_bound": True}, "target_bound"), ({"row_norm": True}, "row_norm"), ({"row_norm": "1"}, "row_norm"),
    ({"row_norm": math.nan}, "row_norm"), ({"intercept": math.nan}, "intercept"), ({"intercept": "no"}, "intercept"),
    ({"rows_per_unit": True}, "rows a unit"), ({"rows_per_unit": 1.5}, "rows a unit"),
])  # fmt: skip
@pytest.mark.parametrize("fit", [adassp, boosted_adassp])
def test_parameters_of_another_type_are_refused(fit, options, word):
    with pytest.raises(ParameterError, match=word):
        fit(*data(5), 1, 1e-6, "replace_one", **options)


def test_numbers_of_numpy_are_numbers():
    given = {"row_norm": np.float32(1), "rows_per_unit": np.int64(2), "feature_bound": np.float32(1)}
    told = adassp(*data(5), 1, 1e-6, "replace_one", intercept=np.bool_(True), **given)
    assert dict(told.facts)["row_norm"] == pytest.approx(math.sqrt(2))


@pytest.mark.parametrize("layout", [np.ascontiguousarray, np.asfortranarray])
def test_rows_are_shortened_each_by_itself(layout):
    """A norm from `einsum` was rounded otherwise for a table of one row, where columns lie first in memory."""
    for d in range(2, 30):
        X = np.random.default_rng(d).uniform(-1, 1, size=(3, d))
        shape = make_shape(d, "add_remove_one", row_norm=1.0)
        many, _ = next(Rows(layout(X), np.zeros(3), shape).blocks(d))
        for i in range(3):
            alone, _ = next(Rows(layout(X[i : i + 1]), np.zeros(1), shape).blocks(d))
            np.testing.assert_array_equal(alone[0], many[i])
