from __future__ import annotations

import copy
import json
import math
import pickle
import sys
import threading
from fractions import Fraction

import mpmath
import numpy as np
import pytest

from confide.errors import ParameterError, UnsupportedError
from confide.mechanisms.above_threshold import (
    SparseVector,
    false_stable,
    sparse_vector,
    split_epoch,
    stable_threshold,
)
from confide.mechanisms.stream import os_stream, seeded_stream


@pytest.mark.parametrize(("epsilon", "theta"), [(1, 46), (0.1, 460)])
def test_thresholds_of_the_design_page(epsilon, theta: int) -> None:
    e1, e2 = split_epoch(epsilon)
    assert e1 + e2 == Fraction(str(epsilon))
    assert float(e2 / e1) == pytest.approx(2 ** (2 / 3), rel=1e-3)
    assert stable_threshold(1e-6, e1, e2) == theta


def test_the_split_is_near_the_best_one() -> None:
    """1 : 2^(2/3) has the least variance; the least threshold (1 : 2 here) is within 2 % of it."""
    ours = stable_threshold(1e-6, *split_epoch(Fraction(1, 100)))
    others = [stable_threshold(1e-6, Fraction(s, 2000), Fraction(20 - s, 2000)) for s in range(3, 14)]
    assert min(others) <= ours <= 1.02 * min(others)


@pytest.mark.parametrize(
    ("theta", "e1", "e2"),
    [
        (0, Fraction(1), Fraction(2)),  # equal ratios
        (7, Fraction(1), Fraction(2) + Fraction(1, 10**24)),  # nearly equal
        (46, Fraction(38, 100), Fraction(62, 100)),
        (20, Fraction(3), Fraction(1)),
        (3, Fraction(1, 3), Fraction(5)),
        (0, Fraction(90), Fraction(300)),
    ],
)
def test_false_stable_is_the_tail_rounded_up(theta: int, e1: Fraction, e2: Fraction) -> None:
    with mpmath.workprec(400):
        a = mpmath.exp(-mpmath.mpf(e2.numerator) / e2.denominator / 2)
        b = mpmath.exp(-mpmath.mpf(e1.numerator) / e1.denominator)

        def tail(y: int):
            return b**y / (1 + b) if y >= 1 else 1 - b ** (1 - y) / (1 + b)

        reach = int(150 / min(e1, e2 / 2)) + theta
        direct = sum(a ** abs(x) * tail(theta + 1 - x) for x in range(-reach, reach)) * (1 - a) / (1 + a)
        got = false_stable(theta, e1, e2)
        ratio = mpmath.mpf(got.numerator) / got.denominator / direct
        assert 1 - mpmath.mpf(10) ** -50 <= ratio <= 1 + mpmath.mpf(2) ** -60


def test_threshold_is_the_smallest() -> None:
    theta = stable_threshold("0.001", 1, 2)
    assert false_stable(theta, 1, 2) <= Fraction(1, 1000) < false_stable(theta - 1, 1, 2)
    assert stable_threshold("0.9", 1, 2) == 0


def test_rate_of_wrong_answers() -> None:
    wrong = 0
    source = seeded_stream(1)
    for i in range(20_000):
        wrong += SparseVector(4, 1, 2, stream=source.child(str(i))).above(0)
    p = float(false_stable(4, 1, 2))
    assert abs(wrong - 20_000 * p) < 6 * math.sqrt(20_000 * p)


def test_stable_queries_are_free_and_the_first_unstable_one_ends_the_epoch() -> None:
    epoch = sparse_vector(1, 1e-6, stream=seeded_stream(1))
    assert epoch.threshold == 46
    assert epoch.epsilon == 1
    assert all(epoch.above_many([200] * 500))
    assert epoch.open
    answers = epoch.above_many([200, 0, 200])
    assert answers == [True, False]
    assert not epoch.open
    assert epoch.answered == 502
    with pytest.raises(UnsupportedError, match="closed"):
        epoch.above(200)


def test_state_survives_a_store_and_is_used_again() -> None:
    epoch = SparseVector(50, "0.4", "0.6", stream=seeded_stream(3))
    epoch.above_many([400, 400])
    stored = epoch.to_bytes()
    again = SparseVector.from_bytes(stored, stream=seeded_stream(4))
    assert again.to_bytes() == stored
    assert (again.threshold, again.epsilon, again.answered, again.open) == (50, 1, 2, True)
    # The same rho: with no query noise to speak of, both change their answer at the same query.
    rho = json.loads(stored)["rho"]
    sharp = json.dumps({**json.loads(stored), "e2": "2000"}).encode()
    for query, expected in ((50 + rho, False), (51 + rho, True)):
        assert SparseVector.from_bytes(sharp, stream=seeded_stream(5)).above(query) is expected


@pytest.mark.parametrize("stored", [False, True])
def test_threads_get_one_below_between_them(stored: bool) -> None:
    """The epoch's price covers one "below": threads that ask at once must not each be given theirs."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)  # so that a missing lock shows within a few rounds
    try:
        for _ in range(30):
            epoch = SparseVector(10**6, 1, 1)
            if stored:
                epoch = SparseVector.from_bytes(epoch.to_bytes())
            answers: list[bool | None] = []
            barrier = threading.Barrier(8)

            def ask(epoch=epoch, answers=answers, barrier=barrier) -> None:
                barrier.wait()
                try:
                    answers.append(epoch.above(0))
                except UnsupportedError:
                    answers.append(None)

            threads = [threading.Thread(target=ask) for _ in range(8)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            assert answers.count(False) == 1
            assert answers.count(None) == 7
            assert epoch.answered == 1
    finally:
        sys.setswitchinterval(before)


def test_a_seeded_epoch_cannot_become_certified() -> None:
    with pytest.raises(ParameterError, match="seeded"):
        SparseVector.from_bytes(SparseVector(5, 1, 1, stream=seeded_stream(1)).to_bytes(), stream=os_stream())
    assert SparseVector.from_bytes(SparseVector(5, 1, 1).to_bytes()).certified


@pytest.mark.parametrize("damaged", [b"", b"{}", b"\xff", b"[]", b'{"format": 9}', b"null"])
def test_damaged_states_are_refused_without_quoting_them(damaged: bytes) -> None:
    with pytest.raises(ParameterError, match="not readable"):
        SparseVector.from_bytes(damaged)


@pytest.mark.parametrize("clone", [copy.copy, copy.deepcopy, pickle.dumps])
def test_the_secret_is_not_copied(clone) -> None:
    with pytest.raises(TypeError, match="to_bytes"):
        clone(SparseVector(5, 1, 1))


def test_the_secret_is_not_shown() -> None:
    epoch = SparseVector(5, 1, 1, stream=seeded_stream(1))
    assert repr(epoch) == "SparseVector(threshold=5, epsilon=2, open=True)"
    assert not hasattr(epoch, "__dict__")
    assert not hasattr(epoch, "rho")


@pytest.mark.parametrize("bad", [1.5, math.nan, True, "3", None])
def test_bad_queries_are_refused_without_closing(bad) -> None:
    epoch = SparseVector(5, 1, 1)
    with pytest.raises(ParameterError, match="integer"):
        epoch.above(bad)
    assert epoch.open
    assert isinstance(epoch.above(np.int64(10_000)), bool)


@pytest.mark.parametrize(
    "bad", [{"threshold": -1}, {"threshold": 1.5}, {"e1": 0}, {"e2": 0}, {"e1": math.nan}, {"e2": math.inf}]
)
def test_bad_parameters_are_refused(bad) -> None:
    with pytest.raises(ParameterError):
        SparseVector(**{"threshold": 5, "e1": 1, "e2": 1, **bad})


def test_bad_deltas_and_low_thresholds_are_refused() -> None:
    for delta in (0, 1, math.nan, 2):
        with pytest.raises(ParameterError, match="delta"):
            sparse_vector(1, delta)
    with pytest.raises(ParameterError, match="46"):
        sparse_vector(1, 1e-6, threshold=45)
    assert sparse_vector(1, 1e-6, threshold=60).threshold == 60


def test_privacy_of_a_whole_sequence_by_enumeration() -> None:
    """P(above ... above, below) on neighbouring query sequences, ratio at most e^(e1 + e2)."""
    e1, e2, theta = 0.7, 1.1, 2
    a, b = math.exp(-e2 / 2), math.exp(-e1)

    def noise_above(y: int) -> float:  # P(N > y)
        return a ** (y + 1) / (1 + a) if y >= 0 else 1 - a ** (-y) / (1 + a)

    def sequence(queries: list[int]) -> float:
        total = 0.0
        for rho in range(-60, 61):
            p = (1 - b) / (1 + b) * b ** abs(rho)
            for q in queries[:-1]:
                p *= noise_above(theta + rho - q)
            total += p * (1 - noise_above(theta + rho - queries[-1]))
        return total

    for queries in ([3], [5, 0], [9, 9, 9, 9, 1], [2] * 12, [0] * 6):
        base = sequence(queries)
        for moves in ([1] * len(queries), [-1] * len(queries), [-1] * (len(queries) - 1) + [1]):
            other = sequence([q + m for q, m in zip(queries, moves, strict=True)])
            assert abs(math.log(other / base)) <= e1 + e2 + 1e-12
