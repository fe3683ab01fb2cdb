"""Fits from arrays: models, adjacencies, bad input, ledgers and snapshots."""

import math
from dataclasses import replace

import numpy as np
import pytest

from confide.errors import BudgetError, DataError, ParameterError, RefusedError, UnsupportedError
from confide.ledger import Ledger
from confide.privacy import Adjacency
from confide.training import TableModel
from confide.training.result import Status
from confide.training.sgd import SGDRequest, Snapshot, checkpoint, fit, fitting

RNG = np.random.default_rng(0)
N = 400
X = RNG.normal(size=(N, 4)) * [1, 0.5, 0.2, 0.1]
Z = RNG.uniform(0, 2, size=(N, 2))
Y = np.clip(X @ [1, 1, 2, 4] + Z[:, 0] - 1 + 0.1 * RNG.normal(size=N), -4, 4)
NONE = {"epsilon": math.inf, "nonprivate": True, "delta": 0}


def request(**options):
    base = {"epsilon": 2, "delta": 1e-6, "target_bounds": (-4, 4), "random_state": 0, "steps": 20}
    return SGDRequest(**{**base, **options})


def error_of(result, private=True, y=Y):
    found = result.model.predict(X, Z if private else None)
    return float(np.mean((found - y) ** 2)) / float(np.var(y))


@pytest.mark.parametrize(
    "options",
    [
        {"learning_rate": 0.05, "steps": 300},
        {"learning_rate": 0.02, "steps": 600, "batch_size": 50},
        {"optimizer": "sgd", "learning_rate": 0.02, "steps": 300, "clip": 100.0},
        {"model": "mlp", "hidden": (8,), "embedding": 4, "learning_rate": 0.03, "steps": 300},
        {"model": "mlp", "hidden": (8,), "activation": "gelu", "learning_rate": 0.03, "steps": 300},
        {"model": "fm", "rank": 2, "learning_rate": 0.02, "steps": 300},
        {"learning_rate": 0.05, "steps": 300, "switch": 0.5},
        {"learning_rate": 0.05, "steps": 300, "switch": "anneal"},
    ],
)
def test_without_noise_every_model_learns(options):
    result = fit(
        X, Z, Y, request(**NONE, private_bounds=[(0, 2)] * 2, adjacency="replace_private_part", **options)
    )
    assert error_of(result) < 0.03
    assert result.status is Status.NONPRIVATE
    assert result.guarantee.epsilon == math.inf


@pytest.mark.parametrize("adjacency", list(Adjacency))
@pytest.mark.parametrize("batch", [None, 40])
def test_private_fits_under_every_relation(adjacency, batch):
    public = adjacency in (Adjacency.REPLACE_LABEL, Adjacency.REPLACE_PRIVATE_PART)
    options = {"adjacency": adjacency, "batch_size": batch, "epsilon": 1, "steps": 5}
    if adjacency is Adjacency.ADD_REMOVE_ONE:
        options["rows"] = 512
    if public:
        result = fit(X, None, Y, request(**options))
    else:
        both = np.concatenate([X, Z], axis=1)
        result = fit(None, both, Y, request(**options, private_bounds=[(-3, 3)] * 4 + [(0, 2)] * 2))
    assert result.guarantee.adjacency is adjacency
    assert result.guarantee.epsilon == 1
    assert result.guarantee.assumptions == ("seeded", "unrecorded")
    assert result.accounting.accountant == ("gaussian" if batch is None else "pld")
    found = result.model.predict(*((X, None) if public else (None, both)))
    assert ((found >= -4) & (found <= 4)).all()


def test_epsilon_is_met_by_the_event():
    from confide.privacy import PLDAccountant

    for batch in (None, 40):
        result = fit(X, None, Y, request(batch_size=batch, epsilon=1, steps=5))
        event = result.guarantee.event
        assert PLDAccountant().compose(event).epsilon(1e-6) <= 1


def test_labels_are_read_alike_in_both_shapes_and_clipped():
    one = fit(X, None, Y, request())
    with pytest.warns(Warning, match="column-vector"):
        two = fit(X, None, Y[:, None], request())
    np.testing.assert_array_equal(one.model.parameters, two.model.parameters)
    far = Y.copy()
    far[:3] = [math.inf, -math.inf, math.nan]
    near = Y.copy()
    near[:3] = [4.0, -4.0, 0.0]
    np.testing.assert_array_equal(
        fit(X, None, far, request()).model.parameters, fit(X, None, near, request()).model.parameters
    )


def test_classes():
    y = np.where(Y > 0, "yes", "no")
    asked = {"classes": ("no", "yes"), "target_bounds": None, "steps": 200, "learning_rate": 0.1}
    result = fit(X, None, y, request(**NONE, **asked))
    assert (result.model.predict(X) == y).mean() > 0.8
    np.testing.assert_allclose(result.model.predict_proba(X).sum(axis=1), 1)
    three = np.digitize(Y, [-0.5, 0.5])
    for model in ("linear", "mlp"):
        asked = {
            "classes": (0, 1, 2),
            "target_bounds": None,
            "model": model,
            "steps": 200,
            "learning_rate": 0.1,
        }
        result = fit(X, None, three, request(**NONE, **asked, hidden=(8,)))
        assert (result.model.predict(X) == three).mean() > 0.65
        assert result.model.predict_proba(X).shape == (N, 3)
    # One class only, and cells that are no class: an ordinary fit.
    odd = np.array([None, ["no"], 3.5, "no"] * (N // 4), dtype=object)
    asked = {"classes": ("no", "yes"), "target_bounds": None}
    assert set(fit(X, None, odd, request(epsilon=50, **asked)).model.predict(X)) <= {"no", "yes"}


def test_awkward_designs():
    constant, double = np.ones((N, 1)), np.concatenate([X, X, np.zeros((N, 2))], axis=1)
    wide = RNG.normal(size=(6, 20))
    far = X.copy()
    far[0] = 1e308
    for design, y in ((constant, Y), (double, Y), (wide, Y[:6]), (far, Y), (X[:1], Y[:1])):
        for options in ({}, {"batch_size": 3}, {"model": "mlp", "hidden": (3,)}, {"clip": None}):
            if design is not wide and "batch_size" in options:
                continue
            result = fit(design, None, y, request(**options, epsilon=0.5, steps=3))
            assert np.isfinite(result.model.predict(design)).all()


def test_private_cells_of_any_size_meet_the_same_path():
    from confide.training.sgd.fitting import prepare

    bounds = [(0, 2)] * 2
    asked = request(private_bounds=bounds, adjacency="replace_private_part")
    for cell in (1e6, 1e308, math.inf, -math.inf, math.nan):
        odd = Z.copy()
        odd[3] = cell
        assert np.isfinite(fit(X, odd, Y, asked).model.parameters).all()
    assert prepare(X, Z, N, asked).clip == prepare(X, np.full_like(Z, 1e300), N, asked).clip


def test_weights_need_a_cap_and_cost_it():
    with pytest.raises(ParameterError, match="weight_cap"):
        fit(X, None, Y, request(), sample_weight=np.ones(N))
    plain = fit(X, None, Y, request(**NONE, clip=1.0))
    ones = fit(X, None, Y, request(**NONE, clip=1.0, weight_cap=2), sample_weight=np.ones(N))
    np.testing.assert_allclose(plain.model.parameters, ones.model.parameters)
    odd = np.ones(N)
    odd[:3] = [math.nan, -5, 1e308]
    known = np.ones(N)
    known[:3] = [0, 0, 2]
    a, b = (fit(X, None, Y, request(weight_cap=2), sample_weight=w) for w in (odd, known))
    np.testing.assert_array_equal(a.model.parameters, b.model.parameters)


def test_a_declared_bound_stands_in_place_of_clipping():
    bound = fit(X, None, Y, request(clip=None, gradient_bound=3.0))
    clip = fit(X, None, Y, request(clip=3.0))
    np.testing.assert_array_equal(bound.model.parameters, clip.model.parameters)
    with pytest.raises(ParameterError, match="gradient_bound"):
        request(clip=1.0, gradient_bound=3.0)


def test_traces_and_averages():
    seen = []
    result = fit(X, None, Y, request(average=0), trace=4, hook=lambda point: seen.append(point.step))
    assert [p.step for p in result.trace] == seen == [5, 10, 15, 20]
    np.testing.assert_array_equal(result.trace[-1].model.parameters, result.model.parameters)
    curve = result.learning_curve(lambda model: float(np.mean((model.predict(X) - Y) ** 2)))
    assert [step for step, _ in curve] == seen
    averaged = fit(X, None, Y, request(average=0.5))
    assert not np.array_equal(averaged.model.parameters, result.model.parameters)


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"epsilon": 0}, ParameterError),
        ({"epsilon": math.inf}, ParameterError),
        ({"delta": 0}, ParameterError),
        ({"adjacency": "rows"}, ParameterError),
        ({"target_bounds": None}, ParameterError),
        ({"classes": (0, 1)}, ParameterError),
        ({"target_bounds": None, "classes": (0,)}, ParameterError),
        ({"target_bounds": (1, 1)}, ParameterError),
        ({"private_bounds": [(0, math.inf)]}, ParameterError),
        ({"model": "forest"}, ParameterError),
        ({"model": "fm", "switch": 2}, UnsupportedError),
        ({"model": "fm", "target_bounds": None, "classes": (0, 1, 2)}, UnsupportedError),
        ({"conditioning": "whiten"}, ParameterError),
        ({"conditioning": ("power", 2)}, ParameterError),
        ({"optimizer": "lbfgs"}, ParameterError),
        ({"learning_rate": -1}, ParameterError),
        ({"schedule": "step"}, ParameterError),
        ({"steps": 0}, ParameterError),
        ({"clip": -1}, ParameterError),
        ({"clip": "median"}, ParameterError),
        ({"average": 1}, ParameterError),
        ({"rank": 0}, ParameterError),
        ({"adjacency": "add_remove_one"}, ParameterError),
        ({"rows": 5}, ParameterError),
        ({"random_state": -1}, ParameterError),
        ({"init_seed": "a"}, ParameterError),
        ({"weight_cap": -1}, ParameterError),
    ],
)
def test_requests_are_checked(options, error):
    with pytest.raises(error):
        request(**options)


def test_data_are_checked_by_public_facts_alone():
    with pytest.raises(DataError, match="private_bounds"):
        fit(X, Z, Y, request())
    with pytest.raises(UnsupportedError, match="no column is public"):
        fit(X, None, Y, request(adjacency="replace_one"))
    with pytest.raises(DataError, match="NaN"):
        fit(np.full((3, 2), math.nan), None, Y[:3], request())
    with pytest.raises(ParameterError, match="batch_size"):
        fit(X, None, Y, request(batch_size=-1))
    with pytest.raises(DataError, match="columns"):
        fit(X, None, Y, request()).model.predict(X[:, :2])
    with pytest.raises(ParameterError, match="recorded"):
        fit(X, None, Y, request(recorded=True))


@pytest.fixture
def ledger(tmp_path):
    return Ledger.open(
        f"sqlite:///{tmp_path}/ledger.db", dataset="d", epsilon=4, delta=1e-5, adjacency="replace_label"
    )


def stopped(at, ledger, path, monkeypatch):
    """A run that dies at step `at`, before anything beyond its last snapshot was shown to anybody."""

    class Died(Exception):
        pass

    asked, watch = request(recorded=ledger is not None, random_state=None), fitting._Keeper.watch

    def dying(self, state, matrix):
        if state.step == at:
            raise Died
        watch(self, state, matrix)

    monkeypatch.setattr(fitting._Keeper, "watch", dying)
    with pytest.raises(Died):
        fit(X, None, Y, asked, ledger=ledger, checkpoint=path, every=5)
    monkeypatch.setattr(fitting._Keeper, "watch", watch)
    return asked


def test_a_fit_is_charged_once_and_before_anything_private_is_read(ledger):
    result = fit(X, None, Y, request(recorded=True, random_state=None), ledger=ledger)
    assert result.entry is not None
    assert result.guarantee.assumptions == ()
    assert ledger.total().epsilon == 2

    class Unreadable:
        shape = (N,)

        def __array__(self, *_, **__):
            raise AssertionError("read before the charge")

    with pytest.raises(BudgetError):
        fit(X, None, Unreadable(), request(epsilon=3, recorded=True, random_state=None), ledger=ledger)
    assert ledger.total().epsilon == 2


def test_resuming_continues_the_same_entry(ledger, tmp_path, monkeypatch):
    path = tmp_path / "run.npz"
    asked = stopped(12, ledger, path, monkeypatch)
    assert Snapshot.load(path).step == 10
    assert ledger.total().epsilon == 2
    result = fit(X, None, Y, asked, ledger=ledger, resume=path)
    assert ledger.total().epsilon == 2
    assert np.isfinite(result.model.parameters).all()
    with pytest.raises(RefusedError, match="one continuation"):  # pitfall F33
        fit(X, None, Y, asked, ledger=ledger, resume=path)
    assert ledger.total().epsilon == 2
    fit(X, None, Y, asked, ledger=ledger, resume=path, recharge=True)
    assert ledger.total().epsilon == 4
    with pytest.raises(BudgetError):
        fit(X, None, Y, asked, ledger=ledger, resume=path, recharge=True)


def test_a_snapshot_that_the_run_left_behind_is_refused(ledger, tmp_path):
    path, kept = tmp_path / "run.npz", tmp_path / "kept.npz"
    asked = request(recorded=True, random_state=None)

    def hook(point):
        if point.step == 10:  # the snapshot of step 5 is still there, and its turn is taken
            kept.write_bytes(path.read_bytes())

    fit(X, None, Y, asked, ledger=ledger, checkpoint=path, every=5, trace=20, hook=hook)
    assert Snapshot.load(kept).step == 5
    for snapshot in (kept, path):
        with pytest.raises(RefusedError):
            fit(X, None, Y, asked, ledger=ledger, resume=snapshot)


def test_a_resumed_run_without_noise_equals_the_whole(tmp_path):
    asked = request(**NONE, switch=0.5, steps=20, random_state=None)
    whole = fit(X, None, Y, asked)
    path = tmp_path / "run.npz"
    fit(X, None, Y, asked, checkpoint=path, every=10)  # stops being written at step 10, the switch
    state = Snapshot.load(path)
    assert state.step == 10
    checkpoint._TAKEN.discard(f"dpsgd {state.run} 10")  # as if the run had died before its result
    again = fit(X, None, Y, asked, resume=path)
    np.testing.assert_allclose(again.model.parameters, whole.model.parameters, rtol=1e-12)


@pytest.mark.parametrize("booked", [False, True])
def test_an_edited_snapshot_is_refused(booked, ledger, tmp_path, monkeypatch):
    path, book = tmp_path / "run.npz", ledger if booked else None
    asked = stopped(12, book, path, monkeypatch)
    kept = Snapshot.load(path)
    arrays = {**kept.arrays, "parameters": kept.arrays["parameters"] + 1e-9}
    forged = [replace(kept, step=0), replace(kept, step=11), replace(kept, step=5), replace(kept, arrays=arrays),
              replace(kept, run="0" * 32)]  # fmt: skip
    for snapshot in forged * 2:  # asking does not make it known
        for recharge in (False, True):
            with pytest.raises(RefusedError, match="not those of the run"):
                fit(X, None, Y, asked, ledger=book, resume=snapshot, recharge=recharge)
    fit(X, None, Y, asked, ledger=book, resume=path)
    if booked:
        assert ledger.total().epsilon == 2


@pytest.mark.parametrize("booked", [False, True])
def test_other_labels_do_not_go_on_under_the_charge(booked, ledger, tmp_path, monkeypatch):
    path, book = tmp_path / "run.npz", ledger if booked else None
    asked = stopped(12, book, path, monkeypatch)
    other = Y.copy()
    other[7] = -other[7]
    with pytest.raises(RefusedError, match="private cells"):
        fit(X, None, other, asked, ledger=book, resume=path)
    fit(X, None, other, asked, ledger=book, resume=path, recharge=True)
    if booked:
        assert ledger.total().epsilon == 4


def test_snapshots_hold_released_values_alone_and_fit_one_request(tmp_path):
    path = tmp_path / "run.npz"
    fit(X, None, Y, request(), checkpoint=path, every=5)
    snapshot = Snapshot.load(path)
    assert set(snapshot.arrays) <= {
        "parameters",
        "scalars",
        "mean",
        "optimizer_first",
        "optimizer_second",
        "optimizer_count",
    }
    for asked, design in ((request(steps=30), X), (request(), X * 2.5 + X[:, [0]])):
        with pytest.raises(DataError, match="another request"):
            fit(design, None, Y, asked, resume=path)
    path.write_bytes(b"no snapshot")
    with pytest.raises(DataError, match="no snapshot"):
        Snapshot.load(path)
    with pytest.raises(ParameterError, match="every"):
        fit(X, None, Y, request(), checkpoint=path)


@pytest.mark.parametrize("value", [True, math.nan, math.inf, "1", 0, -1])
@pytest.mark.parametrize("name", ["weight_cap", "batch_size"])
def test_numbers_that_are_none_are_refused(name, value):
    with pytest.raises(ParameterError, match=name):
        request(**{name: value})


@pytest.mark.parametrize(
    "changes",
    [
        *({"momentum": value} for value in (True, math.nan, 1, -0.1, "0.9")),
        *({"average": value} for value in (True, math.nan, 1, "0.5")),
        *({"fit_intercept": value} for value in (1, "no", None)),
        *({"target_bounds": value} for value in ((False, True), ("0", "1"), (0, math.inf), (math.nan, 1))),
        *({"target_bounds": None, "classes": value} for value in ([1, 1, 2], [1], "ab", [[1], [2]], [0, False])),
    ],
    ids=str,
)  # fmt: skip
def test_options_of_another_type_are_refused(changes):
    with pytest.raises(ParameterError, match=r"bounds|" + next(reversed(changes))):
        request(**changes)


@pytest.mark.parametrize("options", [{}, {"model": "mlp", "hidden": (4,)}, {"model": "fm"}])
def test_a_model_of_arrays_is_saved(options, tmp_path):
    asked = request(private_bounds=[(0, 2)] * 2, adjacency="replace_private_part", **options)
    model = fit(X, Z, Y, asked).model
    model.save(tmp_path / "model.json")
    again = TableModel.load(tmp_path / "model.json")
    np.testing.assert_array_equal(again.predict(np.hstack([X, Z])), model.predict(X, Z))


def test_default_learning_rates():
    root = math.sqrt(20)
    assert request().rate == pytest.approx(0.3 / root)
    assert request(model="mlp").rate == pytest.approx(0.3 / root)
    assert request(target_bounds=None, classes=(0, 1)).rate == pytest.approx(1 / root)
    assert request(learning_rate=0.7).rate == 0.7
    X_far = np.random.default_rng(1).normal(size=(300, 8))
    y = np.clip(X_far @ np.ones(8), -4, 4)
    errors = {}
    for rate in (None, 1 / math.sqrt(100)):  # little epsilon for few rows: small steps do less harm
        asked = [request(epsilon=0.5, steps=100, learning_rate=rate, random_state=seed) for seed in range(6)]
        errors[rate] = np.mean(
            [np.mean((fit(X_far, None, y, a).model.predict(X_far) - y) ** 2) for a in asked]
        )
    assert errors[None] < 0.8 * errors[1 / math.sqrt(100)]
