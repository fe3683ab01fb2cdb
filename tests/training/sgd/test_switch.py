"""Switching conditioning: the function stays, for singular C too."""

import math

import numpy as np
import pytest

from confide.errors import ParameterError, UnsupportedError
from confide.training.release import drive
from confide.training.sgd.engine import State, steps
from confide.training.sgd.factorisation import FactorisationMachine
from confide.training.sgd.linear import Linear
from confide.training.sgd.mlp import MLP
from confide.training.sgd.optimizers import Adam, Average, Momentum
from confide.training.sgd.switch import STAGES, Kind, check_blocks, kinds, mapping, stages

from .helpers import LOSSES, account, problem, rows_of, start

N, P = 60, 5


def design(rank=P, seed=0):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(N, rank)) @ rng.normal(size=(rank, P)) * np.geomspace(1, 0.1, P)


def outputs(model, theta, X, C):
    values = X if C is None else X @ C.T
    if model.constant:
        values = np.concatenate([values, np.ones((N, 1))], axis=1)
    return model.forward(np, theta, rows_of(model, values, P))[0]


MODELS = [Linear(P), Linear(P, 3), MLP(P, 0, (6, 4), 3), MLP(P, 0, (6,), activation="gelu")]


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("rank", [P, 3])
@pytest.mark.parametrize(
    "kind", [("spectral", "identity"), ("spectral", "power"), ("power", "ridge"), ("optimal", "identity")]
)
def test_the_function_does_not_jump(model, rank, kind):
    X = design(rank)
    first, second = stages(X, (Kind(0, kind[0]), Kind(1, kind[1])))
    theta = start(model).parameters
    before = outputs(model, theta, X, first.matrix)
    mapping(model.blocks, P, second.change)(theta)
    np.testing.assert_allclose(outputs(model, theta, X, second.matrix), before, rtol=1e-6, atol=1e-7)


def test_a_switch_to_what_sees_less_is_refused(monkeypatch):
    blind = np.diag([1.0, 1.0, 1.0, 1.0, 0.0])
    monkeypatch.setattr("confide.training.sgd.switch.conditioning_matrix", lambda *_, **__: blind)
    with pytest.raises(UnsupportedError, match="blind"):
        stages(design(), (Kind(0, "identity"), Kind(1, "spectral")))


@pytest.mark.parametrize("optimizer", [Adam, Momentum])
def test_a_run_switches_state_and_all(optimizer):
    X = design()
    y = np.clip(X @ np.ones(P), -1, 1)
    model = MLP(P, 0, (4,), 3, activation="tanh")
    task = problem(model, LOSSES["squared"], X, None, y, account(steps=6), clip=0.5)
    made = stages(X, kinds("spectral", 0.5, 0.1, 3, 6, 1))
    state = State(model.initial(0), optimizer(0.9) if optimizer is Momentum else Adam(), Average(0))
    seen, clips = [], []

    def watch(now, matrix):
        seen.append((now.step, outputs(model, now.parameters, X, matrix)))
        clips.append(now.clip)

    engine = steps(task, made, np.full(6, 0.05), state, None, watch)
    statistic = next(engine)
    for _ in range(3):
        statistic = engine.send(statistic.value * statistic.step)
    # Step 4's statistic is asked for: the switch has happened, and moved nothing.
    np.testing.assert_allclose(outputs(model, state.parameters, X, None), seen[-1][1], rtol=1e-8, atol=1e-9)
    assert (not state.optimizer.state) == (optimizer is Adam)
    drive(_rest(engine, statistic), lambda s: s.value * s.step)
    assert clips[0] == clips[2] != clips[3]
    assert np.isfinite(outputs(model, state.averaged, X, None)).all()


def _rest(engine, statistic):
    try:
        while True:
            answer = yield statistic
            statistic = engine.send(answer)
    except StopIteration:
        return


def test_averages_are_mapped():
    X = design()
    y = np.clip(X @ np.ones(P), -1, 1)
    model = Linear(P)
    task = problem(model, LOSSES["squared"], X, None, y, account(steps=4), clip=0.5)
    made = stages(X, kinds("spectral", 0.5, 0.1, 2, 4, 1))
    state, curve = State(model.initial(0), Momentum(), Average(0)), []

    def watch(now, C):
        curve.append((outputs(model, now.parameters, X, C), outputs(model, now.averaged, X, C)))

    drive(steps(task, made, np.full(4, 0.05), state, None, watch), lambda s: s.value * s.step)
    # The model is linear: the mean of functions is the function of the mean, across the switch.
    np.testing.assert_allclose(curve[-1][1], np.mean([f for f, _ in curve], axis=0), rtol=1e-9)


def test_schedules():
    assert kinds("spectral", 0.5, 0.1, None, 10, 1) == (Kind(0, "spectral", 0.5, 0.1),)
    assert kinds("spectral", 0.5, 0.1, 2, 100, 7)[1] == Kind(14, "identity")
    for epochs in (2.0, np.int64(2), np.float64(2)):
        assert kinds("spectral", 0.5, 0.1, epochs, 100, 7)[1] == Kind(14, "identity")
    assert kinds("spectral", 0.5, 0.1, 1.0, 100, 7)[1] == Kind(7, "identity")
    for share in (0.25, np.float32(0.25)):
        assert kinds("power", 0.5, 0.1, share, 100, 7)[1] == Kind(25, "identity")
    anneal = kinds("spectral", 0.5, 0.1, "anneal", 100, 1)
    assert [k.start for k in anneal] == [0, 20, 40, 60, 80]
    assert [k.power for k in anneal[:-1]] == [1.0, 0.75, 0.5, 0.25]
    assert anneal[-1].kind == "identity"
    assert len(anneal) == STAGES
    for switch, kind in (
        (0, "spectral"),
        (1.5, "spectral"),
        (math.inf, "spectral"),
        (np.array([1, 2]), "spectral"),
        ("anneal", "ridge"),
        (True, "power"),
        (math.nan, "power"),
    ):
        with pytest.raises(ParameterError):
            kinds(kind, 0.5, 0.1, switch, 10, 1)


def test_a_factorisation_machine_cannot_be_reexpressed():
    with pytest.raises(UnsupportedError):
        check_blocks(FactorisationMachine(3).blocks)
