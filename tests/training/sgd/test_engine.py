"""The loop: empty batches, rows that overflow, noise, optimizers, averages."""

import math

import numpy as np
import pytest

from confide.errors import ParameterError
from confide.mechanisms import Statistic, gaussian_release
from confide.mechanisms.stream import seeded_stream
from confide.training.release import drive, exact_answer
from confide.training.sgd.batches import poisson_batches, rate_of
from confide.training.sgd.engine import State, steps
from confide.training.sgd.linear import Linear
from confide.training.sgd.mlp import MLP
from confide.training.sgd.optimizers import Adam, Average, Momentum, learning_rates, make_optimizer
from confide.training.sgd.release import step_answer
from confide.training.sgd.switch import Stage

from .helpers import LOSSES, account, first, problem, start


def small(n=30, p=3, seed=0):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, p)), rng.uniform(-1, 1, n)


def test_empty_batches_get_their_noise_and_count():
    # n = 5, q = 0.01: 95 % of the batches are empty (pitfall F25).
    X, y = small(5, 2)
    count = 1000
    scale, q = rate_of(0.05, 5)
    book = account(steps=count, q=q)
    task = problem(Linear(2), LOSSES["squared"], X, None, y, book)
    state = State(task.model.initial(0), Momentum(), Average(count))
    batches = poisson_batches(5, scale, seeded_stream(1))
    sizes, noises = [], []
    answer = step_answer(book.multiplier, seeded_stream(2), steps=count)

    def record(statistic):
        sizes.append(int(np.abs(statistic.value).sum() > 0))
        noises.append(answer(statistic) - statistic.value * statistic.step)
        return noises[-1] + statistic.value * statistic.step

    drive(steps(task, (Stage(),), np.full(count, 0.01), state, batches), record)
    assert state.step == count == len(noises)
    assert 0.93 < 1 - np.mean(sizes) < 0.97
    assert np.all(np.abs(noises).sum(axis=1) > 0)
    assert np.isfinite(state.parameters).all()
    # The charge is that of 5,000 rows at the same rate.
    assert book.event == account(steps=count, q=rate_of(50, 5000)[1]).event or q == rate_of(50, 5000)[1]


def test_a_row_that_overflows_contributes_nothing_and_leaves_the_others_alone():
    X, y = small()
    for model in (Linear(3), MLP(3, hidden=(4,), embedding=2), MLP(3, hidden=(4,), activation="gelu")):
        with np.errstate(all="raise"):
            for cell in (1e308, -1e308, math.inf, math.nan):
                far = X.copy()
                far[4] = cell
                for q, batch in ((1.0, None), (0.5, np.arange(30))):
                    book = account(q=q)
                    one = first(
                        problem(model, LOSSES["squared"], far, None, y, book), batch, state=start(model)
                    )
                    kept = np.delete(np.arange(30), 4)
                    rest = first(
                        problem(model, LOSSES["squared"], X[kept], None, y[kept], book, rows=30),
                        None if batch is None else np.arange(29),
                        state=start(model),
                    )
                    gap = one.value * one.step - rest.value * rest.step
                    if cell in (1e308, -1e308) and isinstance(model, Linear):
                        assert np.linalg.norm(gap) <= 1.0  # zero or a clipped vector
                    else:
                        assert np.abs(gap).max() <= 2 * max(one.step, rest.step)


def test_a_zero_table_and_a_table_of_no_use_still_get_noise():
    for model, X in ((Linear(2, intercept=False), np.zeros((6, 2))), (Linear(2), np.full((6, 2), np.inf))):
        task = problem(model, LOSSES["squared"], X, None, np.ones(6), account(), clip=1.0)
        found = first(task)
        assert not found.value.any()
        assert found.sensitivity > 0


def test_no_columns_at_all_fit_an_intercept():
    y = np.linspace(-1, 0, 50)
    task = problem(Linear(0), LOSSES["squared"], np.zeros((50, 0)), None, y, account(), clip=5.0)
    state = State(np.zeros(1), Momentum(), Average(200))
    batch = steps(task, (Stage(),), np.full(200, 0.1), state)
    drive(batch, lambda s: s.value * s.step)
    np.testing.assert_allclose(state.parameters, [-0.5], atol=1e-3)


def test_the_mean_divides_by_a_public_constant():
    # D with n = 100 and D' with n = 99 give identical configuration under add/remove (pitfall F22).
    rng = np.random.default_rng(0)
    Z, y = rng.uniform(-1, 1, (100, 2)), rng.uniform(-1, 1, 100)
    found = [
        first(
            problem(
                Linear(2),
                LOSSES["squared"],
                np.zeros((n, 0)),
                Z[:n],
                y[:n],
                account("add_remove_one"),
                rows=128,
            )
        )
        for n in (100, 99)
    ]
    assert found[0].step == found[1].step
    assert found[0].sensitivity == found[1].sensitivity


def test_answers_are_those_of_the_grid_release():
    value = np.arange(-5, 5)
    release = Statistic(value, 2.0**-20, 3.0, "dpsgd")
    answer = step_answer(2.0, seeded_stream(3), steps=4000)
    noise = np.array([answer(release) for _ in range(4000)]) - value * release.step
    assert (noise / release.step == np.round(noise / release.step)).all()
    assert noise.std() == pytest.approx(6.0, rel=0.02)
    assert abs(np.corrcoef(noise[:-1, 0], noise[1:, 0])[0, 1]) < 0.06
    assert np.unique(noise, axis=0).shape[0] == 4000  # no draw is used twice (pitfall F32)
    same = gaussian_release(release, 2.0, stream=seeded_stream(3).child("dpsgd/0"))
    np.testing.assert_array_equal(same, step_answer(2.0, seeded_stream(3), steps=1)(release))
    assert step_answer(0.0, seeded_stream(0), steps=1) is exact_answer


def test_noise_ahead_follows_a_changing_sensitivity():
    answer = step_answer(1.0, seeded_stream(5), steps=3000)
    wide, narrow = [], []
    for k in range(1500):
        scale = 8.0 if k % 3 == 0 else 1.0
        got = answer(Statistic(np.zeros(3, dtype=np.int64), 2.0**-16, scale, "dpsgd"))
        (wide if scale == 8.0 else narrow).extend(got.tolist())
    assert np.std(wide) == pytest.approx(8.0, rel=0.1)
    assert np.std(narrow) == pytest.approx(1.0, rel=0.1)


def test_optimizers():
    theta = np.array([1.0, -2.0])
    sgd = make_optimizer("sgd", momentum=0.5)
    sgd.step(theta, np.array([1.0, 0.0]), 0.1)
    sgd.step(theta, np.array([1.0, 0.0]), 0.1)
    np.testing.assert_allclose(theta, [1.0 - 0.1 - 0.15, -2.0])
    adam = make_optimizer("adam")
    theta = np.zeros(2)
    adam.step(theta, np.array([3.0, -1e-3]), 0.1)
    np.testing.assert_allclose(theta, [-0.1, 0.1], rtol=1e-4)
    assert isinstance(adam, Adam)
    for name, options in (("rmsprop", {}), ("sgd", {"momentum": 1.0}), ("adam", {"betas": (0.9, 1.0)})):
        with pytest.raises(ParameterError):
            make_optimizer(name, **options)


def test_averages_and_rates():
    average = Average(2)
    for step in range(1, 6):
        average.add(step, np.array([float(step)]))
    assert average.value(np.zeros(1)).tolist() == [4.0]
    assert Average(3).value(np.array([7.0])).tolist() == [7.0]
    np.testing.assert_allclose(
        learning_rates(2.0, 4, "cosine"), [2.0, 1 + math.sqrt(0.5), 1.0, 1 - math.sqrt(0.5)]
    )
    for rate, schedule in ((0, "constant"), (math.nan, "constant"), (1.0, "linear"), (True, "constant")):
        with pytest.raises(ParameterError):
            learning_rates(rate, 3, schedule)


@pytest.mark.parametrize("clip", [0, -1, math.nan, 1e61, -math.inf])
def test_clip_norms_are_checked(clip):
    X, y = small()
    with pytest.raises(ParameterError, match="clip"):
        problem(Linear(3), LOSSES["squared"], X, None, y, account(), clip=clip)
