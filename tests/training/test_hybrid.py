"""Hybrid baseline: one charge for two phases, a start that is post-processing, steps that keep their bound."""

import warnings

import numpy as np
import pytest

from confide.errors import ParameterError, RefusedError, UnsupportedError
from confide.ledger import Ledger
from confide.privacy import PLDAccountant
from confide.training import hybrid
from confide.training.hybrid import fit_hybrid, warm_start
from confide.training.labels.labels import PrivateLabels
from confide.training.labels.request import BinnedLabels
from confide.training.sgd import SGDRequest
from confide.training.sgd.fitting import prepare

rng = np.random.default_rng(5)
N = 400
X = np.column_stack([rng.normal(size=(N, 3)), np.ones(N)])
X = np.column_stack([X, X[:, 0] - X[:, 1]])  # constant and collinear columns
SECRET = rng.uniform(-1, 1, size=(N, 2))
Y = np.clip(X[:, 0] + 0.5 * X[:, 2] + SECRET[:, 0] + 0.1 * rng.normal(size=N), -4, 4)
BOUNDS = (-4.0, 4.0)


def request(**changes):
    options = {"epsilon": 1, "delta": 1e-6, "target_bounds": BOUNDS, "random_state": 3, "steps": 20}
    return SGDRequest(**{**options, **changes})


def semi_sensitive(**changes):
    return request(adjacency="replace_private_part", private_bounds=[(-1, 1)] * 2, **changes)


def test_guarantee_is_that_of_both_phases_together():
    found = fit_hybrid(X, None, Y, request(), share=0.3)
    assert (found.guarantee.epsilon, float(found.guarantee.delta)) == (1, 1e-6)
    composed = PLDAccountant().compose(found.guarantee.event).epsilon(1e-6)
    # The composed loss lies below the sum, and above what either phase spends alone.
    assert 0.7 < composed <= 1.0 + 1e-9
    alone = found.accounting.event
    assert PLDAccountant().compose(alone).epsilon(1e-6) == pytest.approx(0.7, rel=1e-6)


def test_ledger_is_charged_once(tmp_path):
    ledger = Ledger.open(
        f"sqlite:///{tmp_path}/l.db", dataset="d", epsilon=1, delta=1e-6, adjacency="replace_label"
    )
    asked = request(random_state=None, recorded=True)
    found = fit_hybrid(X, None, Y, asked, ledger=ledger)
    assert found.entry is not None
    assert (ledger.total().epsilon, float(ledger.total().delta)) == (1, 1e-6)
    read = []

    class Unread:
        shape = (N,)

        def __array__(self, *_, **__):
            read.append(True)
            return Y

    with pytest.raises(RefusedError):
        fit_hybrid(X, None, Unread(), asked, ledger=ledger)
    assert not read


@pytest.mark.parametrize("conditioning", ["identity", "spectral", ("power", 0.5), "optimal"])
def test_start_is_the_ridge_regression_in_every_conditioning(conditioning):
    from sklearn.linear_model import RidgeCV

    ready = prepare(X, None, N, request(conditioning=conditioning))
    labels = Y / 4 + rng.normal(size=N)
    theta = warm_start(ready, labels)
    Z = (X - X.mean(axis=0)) / np.where(X.std(axis=0) < 1e-12, 1, X.std(axis=0))
    oracle = RidgeCV(alphas=np.logspace(-2, 6, 25)).fit(Z, labels).predict(Z)
    model = ready.released(theta, ready.stages[0].matrix)
    np.testing.assert_allclose(model.outputs(X), oracle, atol=1e-8)


@pytest.mark.parametrize(
    "options", [{}, {"model": "mlp", "hidden": (4,), "embedding": 3}, {"batch_size": 50}]
)
def test_without_privacy_it_fits(options):
    asked = semi_sensitive(epsilon=np.inf, delta=0, nonprivate=True, **{**options, "steps": 150})
    found = fit_hybrid(X, SECRET, Y, asked)
    assert "nonprivate" in found.guarantee.assumptions
    start = np.mean((found.start.predict(X, np.zeros_like(SECRET)) - Y) ** 2)
    end = np.mean((found.model.predict(X, SECRET) - Y) ** 2)
    # The second phase explains what private columns add: a third of a unit of variance.
    assert end < start - 0.2
    assert start < 0.6 * Y.var()


def test_start_ignores_private_columns_and_true_labels(monkeypatch):
    monkeypatch.setattr(
        BinnedLabels, "release", lambda self, y, stream: PrivateLabels(np.sin(np.arange(len(y))))
    )
    one = fit_hybrid(X, SECRET, Y, semi_sensitive())
    two = fit_hybrid(X, SECRET[::-1].copy(), Y[::-1].copy(), semi_sensitive())
    np.testing.assert_array_equal(one.start.parameters, two.start.parameters)
    assert not np.array_equal(one.model.parameters, two.model.parameters)


@pytest.mark.parametrize("far", [4.0, 1e6, 1e308, np.nan])
@pytest.mark.parametrize("kind", ["label", "private"])
def test_replayed_steps_move_by_at_most_their_sensitivity(monkeypatch, far, kind):
    """Given the same private labels and answers, neighbours' statistics are within what the noise covers."""
    monkeypatch.setattr(
        BinnedLabels, "release", lambda self, y, stream: PrivateLabels(np.sin(np.arange(len(y))))
    )
    kept = []
    answers = np.random.default_rng(0)

    def recorder(multiplier, stream, *, steps):
        trace = []
        kept.append(trace)

        def answer(statistic):
            trace.append(statistic)
            if len(kept) == 1:
                value = statistic.value * statistic.step
                given.append(value + answers.normal(size=value.shape) * statistic.sensitivity)
            return given[len(trace) - 1]

        return answer

    given = []
    monkeypatch.setattr(hybrid, "step_answer", recorder)
    y, private = Y.copy(), SECRET.copy()
    y[7] = -far
    if kind == "private":
        private[7] = far
    asked = request() if kind == "label" else semi_sensitive()
    for labels, secret in ((Y, SECRET), (y, private)):
        fit_hybrid(X, None if kind == "label" else secret, labels, asked)
    moved = 0.0
    for a, b in zip(*kept, strict=True):
        assert (a.step, a.sensitivity) == (b.step, b.sensitivity)
        distance = float(np.linalg.norm((a.value - b.value) * a.step))
        assert distance <= a.sensitivity
        moved = max(moved, distance / a.sensitivity)
    assert moved > 0.05


def test_rows_beyond_doubles_and_missing_cells_warn_of_nothing():
    y, private = Y.astype(object), SECRET.copy()
    y[0], y[1], private[0], private[1] = "text", 1e308, 1e308, np.nan
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = fit_hybrid(X, private, y, semi_sensitive())
    assert np.isfinite(found.model.parameters).all()


def test_more_columns_than_rows():
    wide = rng.normal(size=(30, 50))
    found = fit_hybrid(wide, None, Y[:30], request())
    assert np.isfinite(found.model.predict(wide)).all()


def test_seed_repeats_and_none_does_not():
    one, two = (fit_hybrid(X, None, Y, request()) for _ in range(2))
    np.testing.assert_array_equal(one.model.parameters, two.model.parameters)
    assert "seeded" in one.guarantee.assumptions
    fresh = fit_hybrid(X, None, Y, request(random_state=None))
    assert not np.array_equal(one.start.parameters, fresh.start.parameters)
    assert "seeded" not in fresh.guarantee.assumptions


@pytest.mark.parametrize(
    ("changes", "options", "error"),
    [
        ({"target_bounds": None, "classes": (0, 1)}, {}, UnsupportedError),
        ({"adjacency": "replace_one", "private_bounds": [(-1, 1)] * 5}, {}, UnsupportedError),
        ({"rows_per_unit": 2}, {}, UnsupportedError),
        ({}, {"share": 0}, ParameterError),
        ({}, {"share": 1}, ParameterError),
        ({}, {"share": float("nan")}, ParameterError),
        ({"recorded": True}, {}, ParameterError),
    ],
)
def test_refusals_come_before_any_data(changes, options, error):
    with pytest.raises(error):
        fit_hybrid(None, None, None, request(**changes), **options)


@pytest.mark.parametrize("public", [None, np.zeros((N, 0))])
def test_no_public_columns_are_refused(public):
    with pytest.raises(UnsupportedError, match="warm start"):
        fit_hybrid(public, None, Y, request())


def test_the_second_phase_of_a_linear_model_takes_small_steps():
    from confide.training.hybrid import _phases

    assert _phases(request(steps=100), 0.5)[1].rate == pytest.approx(0.01)
    assert _phases(request(steps=100, learning_rate=0.2), 0.5)[1].rate == 0.2
    assert _phases(request(steps=100, model="mlp"), 0.5)[1].rate == pytest.approx(0.03)
