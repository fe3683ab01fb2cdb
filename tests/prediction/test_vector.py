"""Epochs of the sparse vector: when they are paid, what they say, and how often they err."""

import copy
import pickle
import threading
from fractions import Fraction

import numpy as np
import pytest

from confide.errors import BudgetError, ParameterError
from confide.ledger import Ledger
from confide.mechanisms import false_stable, seeded_stream, split_epoch
from confide.prediction import IntervalTraining, StronglyConvexERM, VoteGap
from confide.prediction.vector import UNSTABLE, StableAnswers
from confide.privacy import Guarantee, pure_cost


class Purse:
    """A budget of a number of epochs."""

    def __init__(self, epochs=10**9):
        self.left, self.events = epochs, []

    def __call__(self, event):
        if not self.left:
            raise BudgetError("The budget is spent.")
        self.left -= 1
        self.events.append(event)


def stable(purse, epsilon=1, delta=1e-6, classes=3, seed=0, **options):
    return StableAnswers(epsilon, delta, classes, charge=purse, stream=seeded_stream(seed), **options)


def test_thresholds_of_the_page():
    assert stable(Purse()).threshold == 46
    assert stable(Purse(), epsilon=0.1).threshold == 460
    e1, e2 = split_epoch(1)
    assert false_stable(46, e1, e2) <= Fraction(1, 10**6) < false_stable(45, e1, e2)


def test_stable_queries_are_free_inside_one_epoch():
    purse = Purse()
    answerer = stable(purse)
    labels = np.arange(5000) % 3
    assert np.array_equal(answerer.answer(labels, np.full(5000, 200)), labels)
    assert answerer.opened == len(purse.events) == 1
    event = purse.events[0]
    assert (event["epsilon"], event["threshold"]) == ("1", 46)
    assert pure_cost(event) is None
    Guarantee(answerer.epsilon, answerer.delta, "replace_one", "row", event)


def test_each_unstable_query_closes_a_paid_epoch():
    purse = Purse()
    answerer = stable(purse)
    k = np.array([200, 0, 200, 0, 0, 200])
    assert answerer.answer(np.full(6, 2), k).tolist() == [2, UNSTABLE, 2, UNSTABLE, UNSTABLE, 2]
    assert len(purse.events) == 4


def test_nothing_is_drawn_before_the_charge_and_a_refusal_keeps_what_was_told():
    purse = Purse(1)
    answerer = stable(purse)
    assert answerer.answer([], []).shape == (0,)
    assert purse.events == []
    assert answerer.answer([1, 1, 1], [200, 0, 200]).tolist() == [1, UNSTABLE]
    with pytest.raises(BudgetError):
        answerer.answer([1], [200])
    assert answerer.opened == 1


def test_an_unstable_query_is_rarely_told():
    # Rate of "stable" at k = 0 against false_stable, with epochs that have told stable queries before.
    e1, e2 = split_epoch(1)
    delta = 0.05
    wrong, runs = 0, 4000
    answerer = StableAnswers(1, delta, 2, charge=lambda event: None, stream=seeded_stream(3))
    chance = float(false_stable(answerer.threshold, e1, e2))
    for _ in range(runs):
        told = answerer.answer([1, 1, 1], [10**6, 10**6, 0])
        wrong += told[-1] != UNSTABLE
        if told[-1] != UNSTABLE:
            answerer.answer([1], [0])
            answerer.resume(b"")
    assert wrong <= runs * chance + 4 * np.sqrt(runs * chance)


def test_privacy_of_a_short_epoch_by_simulation():
    # D: k = (threshold + 1, 0), D': (threshold, 0) and other classes at the second query.
    def transcripts(k, labels, seed):
        counts: dict[tuple[int, ...], int] = {}
        answerer = StableAnswers(1, 0.1, 2, charge=lambda event: None, stream=seeded_stream(seed))
        for _ in range(2000):
            told = tuple(answerer.answer(labels, k).tolist())
            counts[told] = counts.get(told, 0) + 1
            answerer.resume(b"")
        return counts

    t = StableAnswers(1, 0.1, 2, charge=lambda event: None).threshold
    first, second = transcripts([t + 1, 0], [1, 1], 1), transcripts([t, 0], [1, 0], 2)
    for a, b in ((first, second), (second, first)):
        excess = sum(max(0.0, n / 2000 - np.e * b.get(told, 0) / 2000) for told, n in a.items())
        assert excess <= 0.1 + 4 * np.sqrt(1 / 2000)


def test_state_goes_on_and_a_lost_one_pays():
    purse = Purse()
    answerer = stable(purse)
    answerer.answer([1], [200])
    state = answerer.to_bytes()
    again = stable(purse)
    again.resume(state)
    again.answer([1], [200])
    assert len(purse.events) == 1
    lost = stable(purse)
    lost.resume(b"")
    lost.answer([1], [200])
    assert len(purse.events) == 2
    with pytest.raises(ParameterError, match="another threshold"):
        stable(purse, epsilon=2).resume(state)
    with pytest.raises(ParameterError, match="not readable"):
        again.resume(b"{}")
    again.answer([1], [200])
    assert len(purse.events) == 3
    for duplicate in (copy.copy, copy.deepcopy, pickle.dumps):
        with pytest.raises(TypeError, match="must not exist twice"):
            duplicate(answerer)


def clouds(rows, seed):
    """The law of the golden Blobs: two clouds with squares and cubes as features, in half-widths."""
    rng = np.random.default_rng(seed)
    y = rng.integers(2, size=rows)
    x = np.where(y == 1, -1.25, 1.25)[:, None] + 0.35 * rng.standard_normal((rows, 2))
    return widths(np.hstack([x, x**2, x**3])), y


def widths(X):
    return np.clip(X / np.repeat(2.5 ** np.arange(1.0, 4.0), 2), -1, 1)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["erm", "votes", "boxes"])
def test_a_hundred_thousand_answers_for_ten_and_a_hundred_thousandth(golden, tmp_path, name):
    """Trained on the golden rows, fresh rows of their law are asked; a ledger of (10, 1e-5) pays as epochs open.

    Unstable queries, and all that come after the last epoch, count as half right: a coin answers them.
    """
    folder = golden / "prediction"
    held = [folder / f"blobs_lr_{kind}.npz" for kind in ("full", "extract")]
    case = np.load(next(path for path in held if path.exists()))
    certificate, epsilon = {
        "erm": (StronglyConvexERM(400.0, feature_norm=0.75, constant=0.0), Fraction(1)),
        "votes": (VoteGap(201, 2, (-1, 1)), Fraction(2)),
        "boxes": (IntervalTraining([6, 1], {"learning_rate": 2.0, "clip": 0.06}, 150, init=np.zeros(7)), Fraction(10, 3)),
    }[name]  # fmt: skip
    rows, truth = clouds(100_000, 1)
    labels, k = certificate.fit(widths(case["batch0_x"]), case["batch0_y"]).stability(rows)
    ledger = Ledger.open(f"sqlite:///{tmp_path}/spent.db", dataset="clouds", epsilon=10, delta=1e-5,
                         adjacency="replace_one")  # fmt: skip

    def charge(event):
        ledger.charge(Guarantee(epsilon, Fraction(1, 10**6), "replace_one", "row", event))

    answerer = StableAnswers(epsilon, Fraction(1, 10**6), 2, charge=charge)
    told = answerer.answer(labels, k)
    told = np.concatenate([told, np.full(truth.size - told.size, UNSTABLE)])
    accuracy = np.where(told == UNSTABLE, 0.5, told == truth).mean()
    assert answerer.opened <= 10 / epsilon
    assert ledger.total().epsilon == answerer.opened * epsilon
    assert accuracy >= 0.99


def test_threads_share_epochs():
    purse = Purse()
    answerer = stable(purse)
    threads = [threading.Thread(target=lambda: answerer.answer([1] * 50, [300] * 50)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(purse.events) == 1


def test_bad_parameters():
    for options in ({"delta": 0}, {"epsilon": 0}, {"classes": 1}, {"threshold": 45}):
        with pytest.raises(ParameterError):
            stable(Purse(), **options)
    with pytest.raises(ParameterError, match="stability"):
        stable(Purse()).answer([0.5], [3])
