"""Scores: golden values, certified against a second solver, whatever the layout of X; and the edge cases."""

from __future__ import annotations

import itertools
import json
import math

import numpy as np
import pandas as pd
import pytest
from instances import CLASSES, LOSSES, problem, table
from scipy.optimize import minimize
from scipy.sparse import csr_matrix

from confide.errors import ConfideError, DataError, ParameterError, UnsupportedError
from confide.schema import loose
from confide.selection import SubsetProblem, bounded
from confide.selection.kernels import DOT_ERROR, dot

GOLDEN = ["ls_p20_s3_n500", "ls_p30_s3_ball", "ls_p30_s3_n1000", "hinge_p12_s2_n400"]


def load(golden, name):
    path = golden / "selection" / f"{name}.npz"
    if not path.exists():
        pytest.skip("too large for the copies in tests/golden")
    data = np.load(path)
    hinge = name.startswith("hinge")
    made = SubsetProblem(
        data["X"], data["y"], int(data["s"]), "hinge" if hinge else "squared", float(data["r"]),
        float(data["Lambda_ridge"]) * (2 if hinge else 1), feature_bound=float(data["b_x"]),
        target_bound=None if hinge else float(data["b_y"]),
    )  # fmt: skip
    return data, made


@pytest.mark.parametrize("name", GOLDEN)
def test_golden_scores(golden, name):
    data, made = load(golden, name)
    tolerance = 2e-9 * made.n if name.startswith("hinge") else made.tau
    supports = data["all_supports"].astype(int)
    got = np.array([made.score(S) for S in supports])
    np.testing.assert_allclose(got, made.n * data["all_obj"], atol=tolerance, rtol=0)
    best = supports[np.argmin(got)]
    assert sorted(best) == sorted(data["opt_support"])


def test_golden_index_agrees_with_record_range(golden):
    index = json.loads((golden / "selection" / "index.json").read_text())
    for entry in index["instances"][:2]:
        _, made = load(golden, entry["file"].removesuffix(".npz"))
        assert made.record_range == pytest.approx(made.n * entry["Delta"], rel=1e-12)


def reference(made, support):
    """Minimise by SLSQP from a few starts, smooth or not: an upper bound on F_S."""
    A = made.columns.take(support)
    best = math.inf
    for start in (np.zeros(made.size), np.full(made.size, made.radius / 2 / math.sqrt(made.size))):
        found = minimize(
            lambda b: made.loss.value(made.y, A @ b).sum() + made.ridge / 2 * b @ b,
            start,
            jac=lambda b: A.T @ made.loss.derivative(made.y, A @ b) + made.ridge * b,
            constraints={"type": "ineq", "fun": lambda b: made.radius**2 - b @ b, "jac": lambda b: -2 * b},
            method="SLSQP",
            options={"maxiter": 300, "ftol": 1e-13},
        )
        if found.x @ found.x <= made.radius**2 * (1 + 1e-9):
            best = min(best, found.fun)
    return best


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("radius", [0.05, None, 5.0])
@pytest.mark.parametrize("ridge", [0.0, 1.0, 100.0])
def test_scores_against_a_second_solver(loss, radius, ridge):
    rng = np.random.default_rng(5)
    X, y = table(rng, 60, 6, 0.5, odd=True)
    made = problem(X, y, 3, loss, radius, ridge)
    for support in [(0, 1, 2), (0, 4, 5), (3, 4, 5)]:
        score, other = made.score(support), reference(made, support)
        assert score <= other + made.tau + 1e-9 * abs(other)
        if loss in ("squared", "logistic", "huber"):  # where SLSQP converges
            assert score >= other - 1e-6 * (1 + abs(other))


@pytest.mark.parametrize("loss", [loss for loss in LOSSES if loss != "squared"])
def test_interior_point_certifies_its_gap_everywhere(loss):
    from confide.selection.interior import solve_ball

    rng = np.random.default_rng(9)
    for trial in range(40):
        n, s = int(rng.choice([1, 2, 5, 50, 800])), int(rng.integers(1, 7))
        X, y = table(rng, n, max(s, 6), float(rng.choice([0, 0.9])), odd=trial % 2 == 0)
        made = problem(X, y, s, loss, float(rng.choice([0.05, 0.5, 3.0])), float(rng.choice([0, 0.1, 10])))
        alpha, beta = np.zeros(n), np.zeros(s)
        A = made.columns.take(range(s))
        value, gap = solve_ball(
            A, made.y, made.loss.code, made.loss.shape, np.full(s, made.ridge), made.radius, made.tau / 4, 200,
            beta, alpha,
        )  # fmt: skip
        assert gap <= made.tau / 4
        # Primal and dual values, computed anew.
        low, high = made.loss.box(made.y)
        assert np.all((alpha >= low - 1e-15) & (alpha <= high + 1e-15))
        assert beta @ beta <= made.radius**2 * (1 + 1e-12)
        origin = made.loss.value(made.y, np.zeros(n)).sum()
        primal = made.loss.value(made.y, A @ beta).sum() - origin + made.ridge / 2 * beta @ beta
        assert primal == pytest.approx(value, abs=1e-9)
        v = A.T @ np.clip(alpha, low, high)
        nus = np.concatenate([[0.0], np.geomspace(1e-9, 1e4, 2000)])
        conjugate = min(v @ v / (2 * (made.ridge + nu)) + nu * made.radius**2 / 2 if made.ridge + nu > 0
                        else (0.0 if not v.any() else math.inf) for nu in nus)  # fmt: skip
        dual = -made.loss.conjugate(made.y, np.clip(alpha, low, high)).sum() - conjugate - origin
        assert dual <= value + 1e-9
        # The grid of multipliers is coarse: it may only lower the dual value.
        assert dual >= value - gap - 2e-2 * (1 + abs(value))


def test_dot_is_as_exact_as_claimed():
    rng = np.random.default_rng(0)
    for n in (1, 31, 33, 1000, 20_001):
        x, y = rng.standard_normal(n), rng.standard_normal(n) * 10.0 ** rng.integers(-3, 4, n)
        true = math.fsum(float(a) * float(b) for a, b in zip(x, y))
        assert abs(dot(x, y) - true) <= DOT_ERROR * float(np.abs(x) @ np.abs(y))


def layouts(X):
    yield "C", np.ascontiguousarray(X)
    yield "F", np.asfortranarray(X)
    yield "strided", np.repeat(X, 2, axis=1)[:, ::2]
    yield "csr", csr_matrix(X)


@pytest.mark.parametrize("loss", ["squared", "hinge"])
@pytest.mark.parametrize("scale", [1.0, 3.0])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_layouts_agree_and_cells_are_clipped(loss, scale, dtype):
    rng = np.random.default_rng(2)
    X, y = table(rng, 50, 7)
    X = (X * scale * (rng.random(X.shape) < 0.6)).astype(dtype)
    if scale > 1:
        X[3, 2], X[4, 2], X[5, 1] = np.nan, np.inf, -np.inf
        y = y.copy()
        y[7], y[8] = np.nan, np.inf
    cells = np.clip(np.nan_to_num(X.astype(float), nan=0, posinf=1, neginf=-1), -0.5, 0.5)
    target = np.clip(np.nan_to_num(y, nan=0, posinf=1, neginf=-1), -0.5, 0.5)
    want = problem(cells, target, 2, loss)
    for name, layout in layouts(X):
        before = layout.copy()
        got = problem(layout, y, 2, loss)
        np.testing.assert_allclose(got.products, want.products, atol=1e-9, err_msg=name)
        np.testing.assert_allclose(got.columns.squares, want.columns.squares, atol=1e-9, err_msg=name)
        V = rng.standard_normal((50, 3))
        np.testing.assert_allclose(got.columns.correlations(V), cells.T @ V, atol=1e-9, err_msg=name)
        np.testing.assert_allclose(got.columns.gram(), cells.T @ cells, atol=1e-9, err_msg=name)
        assert got.score((1, 2)) == want.score((1, 2))  # bit for bit: the law is a function of the table
        now, then = (layout.data, before.data) if name == "csr" else (layout, before)
        np.testing.assert_array_equal(now, then)


def test_memory_map(tmp_path):
    X, y = table(np.random.default_rng(0), 40, 9)
    path = tmp_path / "x.npy"
    np.save(path, X.astype(np.float32))
    mapped = problem(np.load(path, mmap_mode="r"), y, 3)
    assert mapped.score((0, 4, 7)) == problem(X.astype(np.float32), y, 3).score((0, 4, 7))


def test_take_survives_its_cache():
    X, y = table(np.random.default_rng(0), 30, 100)
    made = problem(X, y, 2)
    made.columns._room = 4
    for wanted in ([1, 2, 3], [3, 4, 5], [0, 1, 2, 3, 4, 5, 6], [6, 6, 1]):
        np.testing.assert_array_equal(made.columns.take(wanted), X[:, wanted])


@pytest.mark.parametrize("loss", LOSSES)
def test_equal_columns_have_equal_scores_and_zero_columns_count(loss):
    X, y = table(np.random.default_rng(1), 80, 6, odd=True)
    made = problem(X, y, 2, loss)
    assert made.score((0, 4)) == made.score((1, 4))
    assert math.isfinite(made.score((2, 3)))
    assert made.score((2, 4)) >= made.score((0, 4)) - abs(made.score((0, 4)))
    flat = problem(np.zeros((80, 6)), np.zeros(80), 2, loss)
    assert flat.score((0, 1)) == pytest.approx(flat.origin, abs=flat.tau)


def test_ball_matters_and_collinear_columns_with_no_ridge():
    x = np.linspace(-0.5, 0.5, 11)
    X = np.stack([x, x, -x], axis=1)
    made = problem(X, 2 * x, 2, ridge=0.0, radius=10.0)
    assert made.score((0, 1)) == pytest.approx(made.score((0, 2)), abs=made.tau)
    tight = problem(X, x, 2, ridge=0.0, radius=0.1)
    b = 0.1 * math.sqrt(2)  # both columns share the ball
    assert tight.score((0, 1)) == pytest.approx(((x - b * x) ** 2).sum() / 2, abs=tight.tau)


def test_record_range_is_centred_for_small_radius():
    made = problem(*table(np.random.default_rng(0), 5, 4), 1, radius=0.1)
    assert made.reach == pytest.approx(0.05)
    assert made.record_range == pytest.approx(2 * 0.5 * 0.05)
    assert problem(*table(np.random.default_rng(0), 5, 4), 1, radius=3.0).record_range == pytest.approx(2.0)


def test_defaults_are_public_numbers():
    made = problem(*table(np.random.default_rng(0), 5, 8), 4)
    assert made.radius == pytest.approx(0.5 / (0.5 * 2))
    assert made.ridge == 1.0
    for loss in CLASSES:
        assert problem(*table(np.random.default_rng(0), 5, 8), 4, loss).reach == pytest.approx(1.0)


X4, Y4 = table(np.random.default_rng(0), 6, 4)
BAD = [
    {"size": 0}, {"size": 5}, {"size": True}, {"size": 1.0}, {"radius": 0.0}, {"radius": -1.0}, {"radius": math.nan},
    {"ridge": -1.0}, {"ridge": math.nan}, {"ridge": math.inf}, {"feature_bound": 0.0}, {"feature_bound": -1.0},
    {"target_bound": 0.0}, {"target_bound": math.inf}, {"target_bound": None}, {"loss": "none"},
    {"loss": "hinge", "target_bound": 0.5}, {"feature_bound": math.nan}, {"radius": 1e300, "feature_bound": 1e300},
    {"radius": 1e-320, "feature_bound": 1e-320},
]  # fmt: skip


@pytest.mark.parametrize("change", BAD, ids=str)
def test_parameters_are_checked_before_data_are_read(change):
    options = {"size": 2, "feature_bound": 0.5, "target_bound": 0.5, **change}
    with pytest.raises(ParameterError):
        SubsetProblem(X4, Y4, **options)


@pytest.mark.parametrize(
    ("X", "y"),
    [
        (X4, Y4[:5]),
        (X4[:, 0], Y4),
        (X4[:, :0], Y4),
        (X4.astype(str), Y4),
        (X4.astype(complex), Y4),
        (X4, Y4.astype(str)),
        (X4, None),
    ],
)
def test_shapes_and_types(X, y):
    with pytest.raises((DataError, ParameterError)) as caught:
        SubsetProblem(X, y, 1, feature_bound=0.5, target_bound=0.5)
    assert isinstance(caught.value, ConfideError)


@pytest.mark.parametrize("cell", ["odd", 10**400, None, [1, 2], 1j, np.zeros(2)], ids=str)
def test_no_cell_of_a_list_or_of_objects_decides_an_exception(cell):
    X, y = X4.astype(object), [*Y4.tolist()[:-1], cell]
    X[2, 1] = cell
    seen = loose.numbers(X)
    bounds = {"feature_bound": 0.5, "target_bound": 0.5}
    want = SubsetProblem(seen, loose.numbers(loose.vector_of(y)), 1, **bounds).score((1,))
    frame = pd.DataFrame(X, dtype=object)
    for given in (X, frame, [list(row) for row in X]):
        assert SubsetProblem(given, y, 1, **bounds).score((1,)) == want
    source, bound = bounded(frame, (0, 0.5))
    plain, _ = bounded(seen, (0, 0.5))
    scaled = [SubsetProblem(A, Y4, 1, feature_bound=bound, target_bound=0.5) for A in (source, plain)]
    assert scaled[0].score((1,)) == scaled[1].score((1,))


@pytest.mark.parametrize("kind", [str, complex])
def test_a_source_of_another_type_is_refused(kind):
    with pytest.raises(DataError, match="cells of type"):
        bounded(X4.astype(kind), (0, 0.5))


def test_size_limits_name_the_limit():
    with pytest.raises(UnsupportedError, match="64 columns"):
        SubsetProblem(np.zeros((2, 70)), np.zeros(2), 65, feature_bound=1.0, target_bound=1.0)


@pytest.mark.parametrize("support", [(0,), (0, 0), (0, 4), (-1, 2), (0, 1, 2)])
def test_supports_are_checked(support):
    with pytest.raises(ParameterError, match="support"):
        SubsetProblem(X4, Y4, 2, feature_bound=0.5, target_bound=0.5).score(support)


@pytest.mark.parametrize("seed", range(30))
def test_ball_problem_is_solved_to_rounding(seed):
    from confide.selection.kernels import ball_quadratic, quadratic_value

    rng = np.random.default_rng(seed)
    n, s = int(rng.choice([1, 3, 40])), int(rng.integers(1, 21))
    A = np.clip(rng.standard_normal((n, s)), -0.5, 0.5)
    if seed % 3 == 0:
        A[:, -1] = A[:, 0]
    if seed % 4 == 0:
        A[:, s // 2] = A[:, 0] + 1e-9 * rng.standard_normal(n)
    y = rng.uniform(-0.5, 0.5, n)
    G, c = A.T @ A, A.T @ y
    ridge, radius = float(rng.choice([0, 1e-9, 1.0, 1e6])), float(rng.choice([1e-3, 0.3, 50.0]))
    beta = np.empty(s)
    nu = ball_quadratic(G, c, ridge, radius, beta)
    value = quadratic_value(G, c, ridge, beta)
    assert nu >= 0
    assert beta @ beta <= radius**2 * (1 + 1e-14)
    # Weak duality at nearby multipliers, in extended precision by an eigenbasis of A itself.
    _, sigma, Vt = np.linalg.svd(A, full_matrices=True)
    values = np.concatenate([sigma**2, np.zeros(s - sigma.size)])
    turned = np.concatenate([(Vt @ c)[: sigma.size], np.zeros(s - sigma.size)])
    scale = n * 0.25 * (1 + s)
    dual = -math.inf
    for multiplier in (nu, nu * (1 + 1e-9), nu * (1 - 1e-9), nu + 1e-12 * scale, nu + 1e-9):
        L = values + ridge + multiplier
        if np.all(L > 0):
            dual = max(dual, -float(np.sum(turned**2 / (2 * L))) - multiplier * radius**2 / 2)
    assert value - dual <= 1e-9 * scale * max(radius**2, 1) + 1e-9 * radius


@pytest.mark.parametrize("loss", ["squared", "huber", "quantile"])
def test_scores_around_1e12(loss):
    rng = np.random.default_rng(0)
    X = np.clip(rng.standard_normal((50, 5)), -1, 1)
    y = X @ np.array([1e6, 0, 1e6, 0, 0])
    made = SubsetProblem(X, y, 2, loss, feature_bound=1.0, target_bound=1e6)
    from confide.selection import draw, law

    got = law(made, "exponential", 2.0, "add_remove_one")
    assert math.fsum(got.values()) == pytest.approx(1)
    assert max(got, key=got.__getitem__) == (0, 2)
    # Two of the quantile's lie within a step of the grid, 2^-22 of what one record can do: a tie.
    assert len(set(got.values())) == (9 if loss == "quantile" else 10)
    drawn = draw(made, "exponential", 2.0, "add_remove_one", random_state=0, size=2000)
    assert abs(np.mean([support == (0, 2) for support in drawn]) - got[(0, 2)]) < 0.05


def test_repeated_entries_of_a_csr_matrix_are_one_cell():
    # 0.4 + 0.4 is a cell of 0.8, clipped to 0.5: clipping entries would let one cell exceed its bound.
    repeated = csr_matrix(
        (np.array([0.4, 0.4, -0.3]), np.array([1, 1, 0]), np.array([0, 2, 3])), shape=(2, 2)
    )
    made = problem(repeated, np.array([0.5, 0.1]), 1)
    np.testing.assert_allclose(made.columns.take([0, 1]), [[0, 0.5], [-0.3, 0]])
    np.testing.assert_allclose(made.columns.squares, [0.09, 0.25])
    assert repeated.nnz == 3  # the caller's matrix is left as it was


def test_rounding_limits_are_public_numbers():
    from confide.selection.problem import MAX_ROWS, most_rows

    assert most_rows(24) == MAX_ROWS
    assert most_rows(64) == 2**26 // 104
    for loss, size, radius in itertools.product(LOSSES, (1, 5, 24, 64), (1 / 512, 1.0, 4.0)):
        made = problem(np.zeros((1, 64)), np.zeros(1), size, loss, radius / math.sqrt(size))
        worst = 2 * made.rounding * most_rows(size) + made.step
        # Without a closed form: the gap a score is solved to, and the rounding of what certifies it.
        worst += 0.0 if loss == "squared" else made.tolerance + made.rounding * most_rows(size)
        assert worst <= made.tau <= 2.0**-18 * made.record_range
        assert math.log2(made.step) == int(math.log2(made.step))


@pytest.mark.parametrize("loss", LOSSES)
def test_scores_lie_on_a_public_grid_just_above_what_was_computed(loss):
    X, y = table(np.random.default_rng(6), 50, 6)
    here, there = problem(X, y, 2, loss), problem(X[:7] * 0, y[:7], 2, loss)
    assert here.step == there.step
    assert here.tau == there.tau
    supports = np.array([(0, 1), (2, 5), (3, 4)])
    scores, values = here.centred_scores(supports), here._values(supports)
    assert np.all(scores / here.step == np.round(scores / here.step))
    assert np.all((values <= scores) & (scores < values + here.step))
    # What proves a score of at least T, and what does not.
    T = float(scores[0])
    low = here.limit(T)
    assert here.on_grid(low) == T
    assert here.on_grid(math.nextafter(low, -math.inf)) == T - here.step
