"""Strongly convex ERM: the solver's promise, the two properties, attacks, the curvature version, speed."""

import time
import warnings
from fractions import Fraction

import numpy as np
import pytest
from scipy.optimize import minimize

from confide.errors import DataError, ParameterError, UnsupportedError
from confide.prediction.certificate import steady
from confide.prediction.ensemble import Ensemble
from confide.prediction.erm import StronglyConvexERM, lengths
from confide.prediction.erm_losses import HuberHinge, Logistic, softmax_steepest
from confide.prediction.erm_solver import (
    BinaryObjective,
    SoftmaxObjective,
    accuracy,
    block_sum,
    descend,
    minimise,
    norm,
)
from confide.prediction.erm_steps import steps_of
from confide.prediction.persons import PerPerson
from confide.prediction.rows import unit_rows

from .helpers import blobs, change, check_neighbours  # isort: skip

ADJACENCIES = ["add_remove_one", "replace_one", "replace_label"]
LOSSES = [Logistic(), HuberHinge()]


def problem(n=300, p=4, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, p))
    X /= np.maximum(1, np.linalg.norm(X, axis=1, keepdims=True))
    return X, np.where(X[:, 0] + 0.3 * rng.normal(size=n) > 0, 1.0, -1.0)


@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: loss.name)
def test_losses_are_what_they_say(loss):
    z = np.linspace(-6, 6, 4001)
    h = z[1] - z[0]
    for sign in (-1.0, 1.0):
        y = np.full(z.size, sign)
        value, slope, bend = loss.value(z, y), loss.slope(z, y), loss.bend(z, y)
        np.testing.assert_allclose(np.gradient(value, h)[1:-1], slope[1:-1], atol=2 * h)
        assert np.abs(slope).max() <= 1
        assert bend.max() <= loss.curvature + 1e-15
        assert np.all(np.diff(slope) >= -1e-15)
        assert np.all(np.abs(np.diff(slope)) <= loss.curvature * h * (1 + 1e-9))
        assert np.all(value[:1] >= 0)
    assert loss.value(np.zeros(1), np.ones(1))[0] == pytest.approx(loss.at_zero)
    turned = np.abs(loss.slope(z, np.ones(z.size)) - loss.slope(z, -np.ones(z.size)))
    assert turned.max() <= loss.relabelled + 1e-15
    assert turned.max() >= loss.relabelled - 1e-3
    # Least curvature over an interval, and the largest of these over centres, by a fine search.
    for u in (0.0, 0.1, 0.45, 1.0, 3.0):
        least = loss.least_bend(z, np.ones(z.size), np.full(1, u))
        for i in range(0, z.size, 400):
            grid = np.linspace(z[i] - u, z[i] + u, 101)
            assert least[i] <= loss.bend(grid, np.ones(101)).min() + 1e-15
        assert least.max() <= loss.most_least_bend(np.full(1, u))[0] + 1e-15


@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: loss.name)
@pytest.mark.parametrize("ridge", [0.05, 1.0, 40.0])
def test_the_solver_reaches_its_distance(loss, ridge):
    X, y = problem()
    a = accuracy(300, 4, ridge, at_zero=loss.at_zero, slope=1, curvature=loss.curvature, shift=2)
    objective = BinaryObjective(X, y, loss, ridge)
    w = minimise(objective, a)
    assert norm(objective.gradient(w)) / ridge <= a.tolerance
    # A second solver, of another kind, lies as near.
    other = minimize(objective.value, np.zeros(4), jac=objective.gradient, method="L-BFGS-B",
                     options={"ftol": 1e-15, "gtol": 1e-9, "maxiter": 5000}).x  # fmt: skip
    assert np.linalg.norm(other - w) <= a.tolerance + np.linalg.norm(objective.gradient(other)) / ridge
    assert np.linalg.norm(w) <= a.weights / 2


def test_softmax_reaches_its_distance_and_is_the_logistic_of_two_classes():
    X, signs = problem()
    y = (signs > 0).astype(np.int64)
    a = accuracy(300, 8, 2.0, at_zero=np.log(2), slope=2**0.5, curvature=0.5, shift=3)
    objective = SoftmaxObjective(X, y, 2, 2.0)
    w = minimise(objective, a)
    assert norm(objective.gradient(w)) / 2.0 <= a.tolerance
    # ||W||^2 of opposite rows: w_1 - w_0 has half the ridge.
    b = accuracy(300, 4, 1.0, at_zero=np.log(2), slope=1, curvature=0.25, shift=2)
    binary = minimise(BinaryObjective(X, signs, Logistic(), 1.0), b)
    np.testing.assert_allclose(w[4:] - w[:4], binary, atol=1e-4)


@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: loss.name)
def test_the_fallback_reaches_it_too(loss):
    X, y = problem(60)
    a = accuracy(60, 4, 3.0, at_zero=loss.at_zero, slope=1, curvature=loss.curvature, shift=2)
    objective = BinaryObjective(X, y, loss, 3.0)
    by_newton = minimise(objective, a)
    for target in (a.tolerance * 3.0 - a.gradient_error, -1.0):  # the second is never met: the steps end it
        w = descend(objective, a, target)
        assert np.linalg.norm(w - by_newton) <= 2 * a.tolerance

    class Stuck:
        """A Newton step that leads nowhere."""

        ridge, smooth = objective.ridge, objective.smooth
        start, value, gradient = objective.start, objective.value, objective.gradient

        def direction(self, w, gradient):
            return np.full_like(w, np.nan)

        def along(self, w, step):
            return lambda t: np.nan

    assert np.linalg.norm(minimise(Stuck(), a) - by_newton) <= 2 * a.tolerance


def test_block_sums_are_exact_where_plain_ones_are_not():
    rng = np.random.default_rng(0)
    values = rng.normal(size=5000) * 10.0 ** rng.integers(-8, 8, 5000)
    total = block_sum(5000, (), lambda b: np.asarray(values[b].sum()))
    import math

    assert abs(float(total) - math.fsum(values.tolist())) <= 1e-13 * np.abs(values).sum()


@pytest.mark.parametrize("adjacency", ADJACENCIES)
@pytest.mark.parametrize("loss", ["logistic", "huber_hinge"])
def test_sound_and_lipschitz_binary(adjacency, loss):
    X, y = blobs(120, seed=1, spread=0.2)
    Q = np.random.default_rng(2).uniform(-1, 1, (400, 2))
    for ridge, feature_norm in ((0.4, None), (2.0, 1.0), (8.0, 1.4)):
        certificate = StronglyConvexERM(ridge, loss=loss, adjacency=adjacency, feature_norm=feature_norm,
                                        max_rows=1000, curvature_levels=32)  # fmt: skip
        checks, largest = check_neighbours(certificate, X, y, Q, adjacency=adjacency,
                                           rng=np.random.default_rng(3), pairs=6, steps=3, extreme=True)  # fmt: skip
        assert checks == 6 * 3 * 400
    assert largest >= 3


@pytest.mark.parametrize("adjacency", ADJACENCIES)
def test_sound_and_lipschitz_softmax(adjacency):
    X, y = blobs(300, classes=4, seed=4, spread=0.15)
    Q = np.random.default_rng(5).uniform(-1, 1, (400, 2))
    certificate = StronglyConvexERM(3.0, 4, adjacency=adjacency, feature_norm=1.0, max_rows=1000)
    _, largest = check_neighbours(certificate, X, y, Q, adjacency=adjacency, rng=np.random.default_rng(6),
                                  pairs=8, steps=2, extreme=True)  # fmt: skip
    assert largest >= 2


@pytest.mark.parametrize("loss", ["logistic", "huber_hinge"])
@pytest.mark.parametrize("adjacency", ADJACENCIES)
def test_directed_attacks_change_no_certified_class(adjacency, loss):
    # Replace, add or relabel the rows that push most against the query, up to k of them, and retrain.
    X, y = blobs(60, seed=7, spread=0.5)
    Q = np.random.default_rng(8).uniform(-1, 1, (40, 2))
    certificate = StronglyConvexERM(2.0, loss=loss, adjacency=adjacency, feature_norm=1.5, max_rows=1000,
                                    curvature_levels=40)  # fmt: skip
    model = certificate.fit(X, y)
    labels, k = model.stability(Q)
    attacked = 0
    for q in np.argsort(k)[-12:]:
        count = int(k[q])
        if count == 0:
            continue
        push = model.rows(X) @ model.rows(Q[q : q + 1])[0]
        helps = np.where(y == labels[q], push, -push)  # rows that hold the class up
        worst = np.argsort(-helps)[:count]
        A, b = X.copy(), y.copy()
        if adjacency == "add_remove_one":
            A, b = (
                np.vstack([X, np.repeat(Q[q : q + 1], count, 0)]),
                np.append(y, np.full(count, 1 - labels[q])),
            )
        elif adjacency == "replace_one":
            A[worst], b[worst] = Q[q], 1 - labels[q]
        else:
            b[worst] = 1 - b[worst]
        assert certificate.fit(A, b).stability(Q[q : q + 1])[0][0] == labels[q]
        attacked += count
    assert attacked >= 12


def test_curvature_certifies_more_and_is_nested():
    X, y = blobs(300, p=3, seed=9, spread=0.3)
    Q = np.random.default_rng(10).uniform(-1, 1, (500, 3))
    certificate = StronglyConvexERM(6.0, feature_norm=1.5, curvature_levels=40)
    model = certificate.fit(X, y)
    _, k = model.stability(Q)
    queries = model.rows(Q)
    margin = np.abs(queries @ model.weights[0])
    plain = model.plain(queries, margin)
    assert np.all(k >= plain)
    assert np.mean(k > plain) > 0.3
    # H_i(D') >= H_{i+1}(D), matrix by matrix, on random neighbours with extreme rows.
    rng = np.random.default_rng(11)
    for _ in range(5):
        A, b, _ids = change(X, y, range(300), "replace_one", 2, rng, extreme=True)
        other = certificate.fit(A, b)
        for i in range(0, 38, 3):
            ours = np.linalg.inv(model.levels.factors[i + 1].T @ model.levels.factors[i + 1])
            theirs = np.linalg.inv(other.levels.factors[i].T @ other.levels.factors[i])
            assert np.linalg.eigvalsh(theirs - ours)[0] >= -1e-9
            assert other.levels.scales[i] <= model.levels.scales[i + 1]


def test_plain_distance_is_the_formula():
    X, y = blobs(50, seed=12)
    model = StronglyConvexERM(2.0, feature_norm=1.0, curvature_levels=0).fit(X, y)
    Q = np.random.default_rng(13).uniform(-1, 1, (200, 2))
    _, k = model.stability(Q)
    queries = model.rows(Q)
    ratio = np.abs(queries @ model.weights[0]) / lengths(queries)
    size, radius, expected = np.linalg.norm(model.weights), 0.0, np.zeros(200)
    for _ in range(60):
        radius += 2 / (1 + np.exp(-(size + radius + 2 / 2.0))) / 2.0
        expected += radius < ratio
    assert np.array_equal(k, expected)
    assert np.all(k >= np.ceil(ratio / (2.0 / 2.0)) - 1)  # the page's s = 2 ||x|| / Lambda
    assert model.precision.tolerance < 1e-5
    longest = {a: StronglyConvexERM(2.0, adjacency=a).fit(X, y).steps.longest for a in ADJACENCIES}
    assert longest["replace_one"] == pytest.approx(1.0, rel=1e-4)
    assert 0.5 < longest["replace_label"] < longest["add_remove_one"] < 0.501
    assert StronglyConvexERM(2.0, 3).fit(X, y).steps.longest == pytest.approx(2**0.5, rel=1e-4)


def test_steps_beyond_those_that_are_followed():
    a = accuracy(10, 3, 1.0, at_zero=1, slope=1, curvature=1, shift=1)
    steps = steps_of(lambda u: 2.0 * Logistic().steepest(u), 0.1, 1e3, a)
    assert np.all(np.diff(steps.totals) <= steps.longest)
    k = np.arange(1, 3 * steps.totals.size)
    reach = np.where(k <= steps.totals.size, steps.totals[np.minimum(k, steps.totals.size) - 1],
                     steps.totals[-1] + (k - steps.totals.size) * steps.longest)  # fmt: skip
    assert np.array_equal(steps.distances(reach * (1 + 1e-9)), k)
    assert np.array_equal(steps.distances(reach * (1 - 1e-9)), k - 1)
    assert steps.distances(np.array([0.0, np.inf])).tolist()[0] == 0
    assert steps.distances(np.array([np.inf]))[0] >= 2**23


@pytest.mark.parametrize("classes", [2, 3, 10])
def test_slopes_are_bounded_where_weights_are(classes):
    rng = np.random.default_rng(classes)
    for u in (0.0, 0.3, 1.0, 4.0):
        worst = 0.0
        for _ in range(3000):
            W = rng.normal(size=(classes, 3)) * rng.choice([0.3, 1, 3], size=(classes, 1))
            W *= u / np.linalg.norm(W)
            x = rng.normal(size=3)
            z = W @ (x / np.linalg.norm(x))
            p = np.exp(z - z.max()) / np.exp(z - z.max()).sum()
            worst = max(worst, *(np.linalg.norm(p - np.eye(classes)[c]) for c in range(classes)))
        assert worst <= softmax_steepest(u, classes) * (1 + 1e-12)
        assert worst >= 0.8 * softmax_steepest(u, classes)
    assert softmax_steepest(1.0, 2) == pytest.approx(2**0.5 * Logistic().steepest(2**0.5))
    for loss in LOSSES:
        for u in (0.0, 0.7, 5.0):
            z = np.linspace(-u, u, 1001)
            slopes = np.abs([loss.slope(z, np.ones(1001)), loss.slope(z, -np.ones(1001))])
            assert slopes.max() == pytest.approx(loss.steepest(u))


def test_radii_are_nested_between_neighbours():
    X, y = blobs(60, seed=20)
    rng = np.random.default_rng(21)
    for adjacency in ADJACENCIES:
        certificate = StronglyConvexERM(1.5, adjacency=adjacency, feature_norm=1.0, max_rows=1000)
        model = certificate.fit(X, y)
        for _ in range(20):
            A, b, _ids = change(X, y, range(60), adjacency, 2, rng, extreme=True)
            other = certificate.fit(A, b)
            moved = np.linalg.norm(other.weights - model.weights)
            assert moved <= model.steps.totals[0]
            assert np.all(other.steps.totals[:-1] + moved <= model.steps.totals[1:])
            assert np.all(other.steps.changes[:-1] <= model.steps.changes[1:])


@pytest.mark.parametrize("classes", [2, 3])
def test_degenerate_tables_take_the_same_path(classes):
    Q = np.zeros((3, 2))
    certificate = StronglyConvexERM(1.0, classes, adjacency="add_remove_one", max_rows=100)
    labels, k = certificate.fit(np.zeros((0, 2)), []).stability(Q)
    assert labels.tolist() == k.tolist() == [0, 0, 0]
    certificate.fit([[np.nan, np.inf]], [1]).stability([[np.nan, 1e308]])
    certificate.fit(np.ones((9, 2)), np.ones(9)).stability(Q)
    # A label that is no class counts as the first.
    a = certificate.fit([[1, 0], [0, 1]], [0, 7]).stability(Q)
    b = certificate.fit([[1, 0], [0, 1]], [0, 0]).stability(Q)
    assert np.array_equal(a, b)
    centred = StronglyConvexERM(1.0, classes, constant=0).fit([[1, 0], [0, 1]], [0, 1])
    assert centred.stability(Q)[1].tolist() == [0, 0, 0]


def test_bad_parameters():
    for options in ({"ridge": 0}, {"ridge": np.nan}, {"ridge": 1, "classes": 1}, {"ridge": 1, "max_rows": 0},
                    {"ridge": 1, "adjacency": "rows"}, {"ridge": 1, "curvature_levels": -1}):  # fmt: skip
        with pytest.raises(ParameterError):
            StronglyConvexERM(**options)
    with pytest.raises(UnsupportedError, match="two classes"):
        StronglyConvexERM(1, 3, loss="logistic")
    with pytest.raises(UnsupportedError, match="'loss' parameter is 'probit'"):
        StronglyConvexERM(1, loss="probit")
    X, y = blobs(10)
    for options in ({"feature_norm": 0}, {"constant": -1}, {"feature_bounds": (1, -1)}, {"feature_bounds": (0, np.inf)},
                    {"feature_bounds": (np.zeros(3), np.ones(3))}):  # fmt: skip
        with pytest.raises(ParameterError):
            StronglyConvexERM(1, **options).fit(X, y)
    with pytest.raises(DataError, match="not one label for each row"):
        StronglyConvexERM(1).fit(X, y[:3])
    with pytest.raises(DataError, match="columns"):
        StronglyConvexERM(1).fit(X, y).stability(np.zeros((2, 3)))


@pytest.mark.parametrize("columns", [2, 30, 120])
@pytest.mark.parametrize("ridge", [3.0, 150.0])
def test_steady_distances_are_the_distances(columns, ridge):
    X, y = blobs(600, p=columns, seed=3)
    model = StronglyConvexERM(ridge).fit(X, y)
    for count in (0, 1, 7, 1300):
        Q = np.random.default_rng(count).uniform(-1, 1, (count, columns))
        Q[: count // 3] *= 1e-3
        labels, k = model.stability(Q)
        again, steadily = steady(model, Q)
        np.testing.assert_array_equal(labels, again)
        assert k.dtype == steadily.dtype
        # Products are formed in another order: a distance may move where its sum meets the margin to 1e-13.
        assert np.count_nonzero(k != steadily) <= count // 500
        assert np.all(np.abs(k - steadily) <= 1)
    assert np.unique(k).size > 1


def test_steady_work_does_not_stop_at_the_margin(monkeypatch):
    X, y = blobs(300, p=4, seed=5)
    levels = StronglyConvexERM(60.0).fit(X, y).levels
    queries = np.full((3, levels.factors.shape[1]), 0.5)
    seen = []
    real = np.cumsum
    monkeypatch.setattr(
        np, "cumsum", lambda values, axis: seen.append(values.shape) or real(values, axis=axis)
    )
    for margin in (0.0, 1e-6, 0.3, 1e6):
        levels.steady(queries, np.full(3, margin))
    assert seen == [(len(levels.scales), 3)] * 4


def test_steady_passes_through_ensembles_and_persons():
    X, y = blobs(400, p=3, seed=6)
    Q = np.random.default_rng(1).uniform(-1, 1, (50, 3))
    ids = np.arange(400) // 2
    for certificate, names in (
        (Ensemble(StronglyConvexERM(40.0), 5), None),
        (PerPerson(StronglyConvexERM(40.0), 2), ids),
    ):
        model = certificate.fit(X, y, ids=names)
        for one, other in zip(model.stability(Q), steady(model, Q)):
            np.testing.assert_array_equal(one, other)


def test_ten_thousand_queries_take_a_tenth_of_a_second():
    X, y = blobs(5000, p=30, seed=14)
    model = StronglyConvexERM(150.0).fit(X, y)
    Q = np.random.default_rng(15).uniform(-1, 1, (10_000, 30))
    model.stability(Q[:10])
    start = time.process_time()
    model.stability(Q)
    assert time.process_time() - start < 1.0  # a guard; benchmarks/prediction_speed.py measures


@pytest.mark.parametrize("declared", [1, 49, 50, 1000, 1 << 24])
@pytest.mark.parametrize("classes", [2, 3])
def test_no_declared_number_tells_a_secret_number_of_rows(classes, declared):
    """49 and 50 rows fit alike, and small declared numbers change nothing: rounding covers 2^24 rows."""
    X, y = blobs(50, seed=1, spread=0.2)
    options = {"adjacency": "add_remove_one", "curvature_levels": 8}
    fits = [
        StronglyConvexERM(2.0, classes, max_rows=rows, **options).fit(X[:n], y[:n])
        for n in (49, 50)
        for rows in (declared, 1 << 24)
    ]
    assert len({fit.precision for fit in fits}) == 1
    for one, other in (fits[:2], fits[2:]):
        assert np.array_equal(one.stability(X)[1], other.stability(X)[1])


@pytest.mark.parametrize("loss", ["logistic", "huber_hinge", "softmax"])
def test_the_size_of_a_query_says_nothing(loss):
    """Audited: at 1e-170 its norm underflowed, and k was 2^30 on both of two neighbours."""
    certificate = StronglyConvexERM(10.0, 2, (-1, 1), loss=loss, constant=0.0)
    for labels in ([0], [1]):
        model = certificate.fit([[0.9]], labels)
        told, k = model.stability([[0.5], [1e-140], [1e-170], [1e-300], [1e-310], [5e-324], [0.0]])
        assert k.tolist() == [0] * 7
        assert told[:4].tolist() == labels * 4
    X, y = blobs(200, p=3, seed=5, spread=0.2)
    model = StronglyConvexERM(10.0, 2, (-1, 1), loss=loss, constant=0.0).fit(X, y)
    Q = np.random.default_rng(1).uniform(-1, 1, (50, 3))
    first = model.stability(Q / 8)
    assert first[1].max() >= 5
    for scale in (
        2.0**-300,
        2.0**-520,
        2.0**-900,
    ):  # no bit changes but for those of the unit ball's rounding
        told, k = model.stability(Q * scale)
        assert np.array_equal(told, first[0])
        assert np.abs(k - first[1]).max() <= 1


@pytest.mark.parametrize("loss", ["logistic", "softmax"])
def test_tiny_queries_are_sound_and_lipschitz(loss):
    rng = np.random.default_rng(3)
    X, y = blobs(30, p=2, seed=4)
    Q = rng.uniform(-1, 1, (40, 2)) * 10.0 ** -rng.uniform(100, 323, (40, 2))
    certificate = StronglyConvexERM(6.0, 2, (-1, 1), loss=loss, constant=0.0)
    check_neighbours(certificate, X, y, Q, adjacency="replace_one", rng=rng, pairs=25, steps=3)


@pytest.mark.parametrize("norm_", [1e-155, 1e-170, 5e-324, 1e308])
@pytest.mark.parametrize("constant", [0.0, 1e-200, None, 1e308])
def test_rows_stay_in_the_unit_ball_at_any_norm(norm_, constant):
    """Audited: squares of rows below 1e-162 vanished, and rows had norms up to 2.2."""
    shape = unit_rows((-1, 1), 5, feature_norm=norm_, constant=constant)
    cells = np.array([[1e-162] * 5, [1e-170] * 5, [5e-324, 1e-160, 0, 0, 0], [1.0] * 5, [0.0] * 5,
                      [np.inf, 1e300, np.nan, -1e-155, 1e-154]])  # fmt: skip
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        rows = shape(cells)
    assert all(sum(Fraction(cell) ** 2 for cell in row.tolist()) <= 1 for row in rows)


@pytest.mark.parametrize("layout", [np.ascontiguousarray, np.asfortranarray])
def test_a_row_is_mapped_by_itself(layout):
    """A norm from `np.sum` was rounded otherwise for a table of one row, where columns lie first in memory."""
    for p in range(2, 40):
        X, shape = np.random.default_rng(p).uniform(-1, 1, size=(3, p)), unit_rows((-1, 1), p)
        for i in range(3):
            np.testing.assert_array_equal(shape(layout(X[i : i + 1]))[0], shape(layout(X))[i])
