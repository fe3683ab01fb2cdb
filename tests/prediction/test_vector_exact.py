"""The sparse vector's privacy in exact rationals: all short epochs, long ones, and wrong variants that fail.

With a = e^(-e2 / 2) and b = e^(-e1) rational, every probability is: a factor P(N > y) or P(N <= y) is geometric
in rho outside of a window, so sums over rho are finite sums and geometric series.

An analyst is adaptive, but inside an epoch there is one live branch: all stable so far, each with a class that
both tables share. Whatever it asks next is a fixed query on that branch, so all sequences of queries are all
strategies, up to the first query whose classes differ. Answered "stable" there, the tables are told apart, and
what follows does not matter: the whole probability of it counts as excess.
"""

import itertools
import math
from fractions import Fraction
from functools import cache

import numpy as np
import pytest

from confide.mechanisms import above_threshold, false_stable, seeded_stream, split_epoch
from confide.prediction.vector import UNSTABLE, StableAnswers

F = Fraction
#: (a, b, theta).
NOISES = [(F(1, 2), F(3, 4), 2), (F(2, 3), F(1, 2), 3), (F(4, 5), F(9, 10), 1)]
#: What one query may be on two neighbours: (k, k', whether the classes differ).
MOVES = [(k, j, False) for k in range(6) for j in (k - 1, k, k + 1) if j >= 0] + [(0, 0, True)]


@cache
def mass(a, b, theta, factors):
    """P(for all (k, above): k + N > theta + R, or <=), fresh N ~ a each, one R ~ b. Exact."""
    window = theta + max((k for k, _ in factors), default=0) + 1
    total = F(0)
    for rho in range(-window, window + 1):
        term = b ** abs(rho)
        for k, above in factors:
            y = theta + rho - k
            tail = a ** (y + 1) / (1 + a) if y >= 0 else 1 - a ** (-y) / (1 + a)
            term *= tail if above else 1 - tail
        total += term
    for side in (1, -1):
        # In x = a^|rho|: above on the right and below on the left are c x, the others 1 - c x.
        terms = [F(1)]
        for k, above in factors:
            c = (a ** (theta + 1 - k) if side > 0 else a ** (k - theta)) / (1 + a)
            grows = above == (side > 0)
            zero, one = (F(0), c) if grows else (F(1), -c)
            terms = [zero * low + one * high for low, high in zip([*terms, 0], [0, *terms])]
        for power, coefficient in enumerate(terms):
            ratio = b * a**power
            total += coefficient * ratio ** (window + 1) / (1 - ratio)
    return (1 - b) / (1 + b) * total


def epoch(a, b, theta):
    """The law of one epoch: (k, class) of each query -> {answers: probability}."""

    def law(queries):
        found, so_far = {}, ()
        for i, (k, _) in enumerate(queries):
            told = tuple(label for _, label in queries[:i])
            found[(*told, UNSTABLE)] = mass(a, b, theta, (*so_far, (k, False)))
            so_far = (*so_far, (k, True))
        found[tuple(label for _, label in queries)] = mass(a, b, theta, so_far)
        return found

    return law


def excess(law, sequence, growth):
    """The least delta of (log growth, delta)-DP for one sequence of queries on two neighbours."""
    here = law([(k, 0) for k, _, _ in sequence])
    there = law([(j, int(turned)) for _, j, turned in sequence])
    both = [(here.get(x, 0), there.get(x, 0)) for x in {*here, *there}]
    return max(
        sum(max(F(0), p - growth * q) for p, q in pairs) for pairs in (both, [(q, p) for p, q in both])
    )


def growth_of(a, b):
    """e^(e1 + e2)."""
    return 1 / (a * a * b)


@pytest.mark.parametrize(("a", "b", "theta"), NOISES)
def test_the_law_is_a_law_and_delta_is_that_of_the_mechanism(a, b, theta):
    law = epoch(a, b, theta)
    for queries in ([(3, 0)], [(5, 0), (0, 1)], [(2, 0), (9, 1), (4, 0)]):
        found = law(queries)
        assert sum(found.values()) == 1
        assert min(found.values()) > 0
    e1, e2 = F(-math.log(b)), F(-2 * math.log(a))
    assert float(mass(a, b, theta, ((0, True),))) == pytest.approx(
        float(false_stable(theta, e1, e2)), rel=1e-12
    )
    # By sums over rho alone, without the series.
    direct = sum(
        (1 - b) / (1 + b) * b ** abs(rho) * np.prod([float(_above(a, theta + rho - k)) for k in (4, 1)])
        for rho in range(-400, 401)
    )
    assert float(mass(a, b, theta, ((4, True), (1, True)))) == pytest.approx(float(direct), rel=1e-9)


def _above(a, y):
    return a ** (y + 1) / (1 + a) if y >= 0 else 1 - a ** (-y) / (1 + a)


@pytest.mark.parametrize(("a", "b", "theta"), NOISES)
def test_all_epochs_of_three_queries(a, b, theta):
    """All 18 * 17^2 sequences and the shorter ones: excess 0 where classes agree, at most delta_0 where they differ."""
    law, growth = epoch(a, b, theta), growth_of(a, b)
    delta = mass(a, b, theta, ((0, True),))
    worst, sequences = F(0), 0
    agreeing = [move for move in MOVES if not move[2]]
    for length in (1, 2, 3):
        # Nothing matters after the query whose classes differ.
        for sequence in itertools.product(*[agreeing] * (length - 1), MOVES):
            found = excess(law, sequence, growth)
            assert found == 0 if not sequence[-1][2] else found <= delta
            worst, sequences = max(worst, found), sequences + 1
    assert sequences == 18 * (1 + 17 + 17**2)
    assert worst == delta  # attained: the query comes first


@pytest.mark.parametrize(("a", "b", "theta"), NOISES)
def test_delta_needs_no_factor_for_the_stable_queries_before(a, b, theta):
    """n stable queries at each pair of distances, then one whose classes differ, n up to 24, exactly."""
    law, growth, flip = epoch(a, b, theta), growth_of(a, b), (0, 0, True)
    delta = mass(a, b, theta, ((0, True),))
    for k, j in ((0, 1), (1, 2), (theta + 2, theta + 1), (theta + 8, theta + 7)):
        found = [excess(law, [(k, j, False)] * n + [flip], growth) for n in (0, 1, 2, 6, 24)]
        assert found[0] == delta
        assert all(later < delta for later in found[1:])
        assert all(x >= y for x, y in itertools.pairwise(found))  # stable answers before it only help


def test_delta_after_a_million_stable_queries():
    """Survivors of n queries have a low bar, and the next query is wrong for most of them; few survive."""
    e1, e2 = (float(e) for e in split_epoch(1))
    a, b, theta = math.exp(-e2 / 2), math.exp(-e1), 46
    rho = np.arange(-400, 401)
    weight = (1 - b) / (1 + b) * b ** np.abs(rho)

    def above(k):
        y = theta + rho - k
        return np.where(y >= 0, a ** (np.maximum(y, 0) + 1) / (1 + a), 1 - a ** np.maximum(-y, 0) / (1 + a))

    delta = float(false_stable(theta, *split_epoch(1)))
    assert weight @ above(0) == pytest.approx(delta, rel=1e-9)
    for k in (0, 20, 46, 60, 80):
        for n in (1, 100, 10_000, 1_000_000):
            survives = above(k) ** n
            wrong = weight @ (survives * above(0))
            assert wrong <= delta * (1 + 1e-9)
    # The conditional rate does grow: it is the joint one that is bounded.
    survives = above(20) ** 1_000_000
    assert (weight @ (survives * above(0))) / (weight @ survives) > 1e3 * delta


def no_threshold_noise(a, b, theta):
    def law(queries):
        found, left, told = {}, F(1), ()
        for k, label in queries:
            stable = _above(a, theta - k)
            found[(*told, UNSTABLE)] = left * (1 - stable)
            left, told = left * stable, (*told, label)
        return {**found, told: left}

    return law


def one_noise_for_all_queries(a, b, theta):
    # k + N > theta + R with one N: P(stable at all of ks) = P(stable at the least).
    def law(queries):
        found, told, left = {}, (), F(1)
        for i, (_, label) in enumerate(queries):
            least = mass(a, b, theta, ((min(k for k, _ in queries[: i + 1]), True),))
            found[(*told, UNSTABLE)] = left - least
            left, told = least, (*told, label)
        return {**found, told: left}

    return law


def values_with_the_noise(a, b, theta):
    # Tells k + N where it is stable: here only the outcomes with all of them at most 9 are listed.
    def law(queries):
        found = {}
        for values in itertools.product(range(10), repeat=len(queries)):
            p = _at_most(b, min(values) - theta - 1)
            for value, (k, _) in zip(values, queries):
                p *= (1 - a) / (1 + a) * a ** abs(value - k)
            found[values] = p
        return found

    return law


def _at_most(b, y):
    return b ** (-y) / (1 + b) if y < 0 else 1 - b ** (y + 1) / (1 + b)


def an_epoch_that_goes_on(a, b, theta):
    def law(queries):
        return {
            tuple(label if stable else UNSTABLE for stable, (_, label) in zip(bits, queries)): mass(
                a, b, theta, tuple((k, stable) for stable, (k, _) in zip(bits, queries))
            )
            for bits in itertools.product((True, False), repeat=len(queries))
        }

    return law


def half_the_noise_of_queries(a, b, theta):
    return epoch(a * a, b, theta)


def a_fresh_threshold_for_each_query(a, b, theta):
    def law(queries):
        found, left, told = {}, F(1), ()
        for k, label in queries:
            stable = mass(a, b, theta, ((k, True),))
            found[(*told, UNSTABLE)] = left * (1 - stable)
            left, told = left * stable, (*told, label)
        return {**found, told: left}

    return law


#: Moves in one direction, and against the threshold's, at distances near it and far above.
SUSPECTS = [
    [(k, j, False) for k, j in moves]
    for moves in (
        [(0, 1), (0, 1), (0, 1)],
        [(4, 3), (4, 3), (4, 3)],
        [(1, 0), (0, 1), (0, 1)],
        [(3, 2), (2, 3)],
        [(1, 0), (12, 13), (12, 13)],
        [(1, 0), (1, 0), (12, 13), (12, 13)],
        [(1, 0), (12, 13)],
    )
]
WRONG = [no_threshold_noise, one_noise_for_all_queries, values_with_the_noise, an_epoch_that_goes_on,
         half_the_noise_of_queries]  # fmt: skip


@pytest.mark.parametrize("variant", WRONG, ids=lambda variant: variant.__name__)
def test_the_check_convicts_known_wrong_variants(variant):
    a, b, theta = F(1, 2), F(3, 4), 2
    law, growth = variant(a, b, theta), growth_of(a, b)
    found, ours = (
        max(excess(kind, sequence, growth) for sequence in SUSPECTS) for kind in (law, epoch(a, b, theta))
    )
    assert found > 0
    assert ours == 0


def test_a_fresh_threshold_is_convicted_by_longer_epochs():
    a, b, theta = F(1, 2), F(3, 4), 2
    wrong = excess(a_fresh_threshold_for_each_query(a, b, theta), [(3, 2, False)] * 12, growth_of(a, b))
    assert wrong > 0
    assert excess(epoch(a, b, theta), [(3, 2, False)] * 12, growth_of(a, b)) == 0


def test_a_lower_threshold_is_convicted():
    a, b, theta = F(1, 2), F(3, 4), 4
    delta = mass(a, b, theta, ((0, True),))
    assert excess(epoch(a, b, theta - 1), [(0, 0, True)], growth_of(a, b)) > delta


def test_the_code_decides_as_the_law_says(monkeypatch):
    """Replay: every rho and noise of a window is put in place of what is drawn."""
    asked = []

    def scripted(scale, size, *, stream=None):
        asked.append((scale, size))
        return np.array([script.pop(0) for _ in range(size)])

    monkeypatch.setattr(above_threshold, "discrete_laplace", scripted)
    e1, e2 = split_epoch(1)
    theta = StableAnswers(1, F(1, 3), 3, charge=print).threshold
    for rho, first, second in itertools.product(range(-3, 4), repeat=3):
        for k in ((theta, theta + 1), (theta + 2, 0)):
            script = [rho, first, second]
            asked.clear()
            answerer = StableAnswers(1, F(1, 3), 3, charge=lambda event: None, stream=seeded_stream(0))
            told = answerer.until_unstable([2, 1], list(k)).tolist()
            stable = [k[0] + first > theta + rho, k[1] + second > theta + rho]
            expected = [UNSTABLE] if not stable[0] else [2, 1 if stable[1] else UNSTABLE]
            assert told == expected
            assert asked == [(1 / e1, 1), (2 / e2, 2)]
            assert script == []
