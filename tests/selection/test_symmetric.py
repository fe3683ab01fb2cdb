"""Elementary symmetric polynomials against enumeration, and walks that reach what has probability 2^-200."""

from __future__ import annotations

import math
from itertools import combinations

import numpy as np
import pytest
from scipy.special import logsumexp
from scipy.stats import chisquare

from confide.mechanisms import seeded_stream
from confide.selection.bounds import symmetric, tree_of
from confide.selection.envelope import walk_all
from confide.selection.symmetric import fill_tree, log_symmetric, marginals


def brute(logs, t):
    return logsumexp([sum(logs[j] for j in T) for T in combinations(range(len(logs)), t)])


@pytest.mark.parametrize("spread", [0.0, 1.0, 30.0, 2000.0])
@pytest.mark.parametrize(("p", "t"), [(1, 1), (5, 0), (6, 3), (9, 9), (11, 4)])
def test_log_symmetric_and_tree(p, t, spread):
    logs = np.random.default_rng(p * 10 + t).normal(size=p) * spread + 1e4
    want = brute(logs, t)
    assert symmetric(logs, t) == pytest.approx(want, rel=1e-13, abs=1e-10)
    tree = tree_of(logs, t)
    fill_tree(logs, t, tree)
    assert tree[1, t] == pytest.approx(want, rel=1e-13, abs=1e-10)
    plain = log_symmetric(logs, t, np.empty(t + 1))
    assert math.isnan(plain) or plain == pytest.approx(want, rel=1e-13, abs=1e-10)


def test_columns_that_are_not_free_have_no_part():
    logs = np.array([0.0, -np.inf, 1.0, -np.inf, 2.0])
    assert symmetric(logs, 2) == pytest.approx(brute([0.0, 1.0, 2.0], 2))
    assert symmetric(logs, 4) == -np.inf


def test_marginals():
    logs = np.random.default_rng(0).normal(size=8) * 2
    weights = {T: math.exp(sum(logs[j] for j in T)) for T in combinations(range(8), 3)}
    total = sum(weights.values())
    chosen = np.array([5, 0, 3])
    out = np.empty(3)
    assert marginals(logs, 3, chosen, out) == pytest.approx(math.log(total))
    np.testing.assert_allclose(out, [sum(w for T, w in weights.items() if j in T) / total for j in chosen])


def test_walk_has_the_right_law():
    logs = np.array([0.0, 3.0, 1.0, -1.0, 2.0, 0.5, 0.5])
    subsets = list(combinations(range(7), 3))
    tree = tree_of(logs, 3)
    fill_tree(logs, 3, tree)
    drawn = np.sort(walk_all(tree, 3, 40_000, seeded_stream(5)), axis=1)
    index = {T: i for i, T in enumerate(subsets)}
    counts = np.bincount([index[tuple(row)] for row in drawn.tolist()], minlength=len(subsets))
    law = np.exp([sum(logs[j] for j in T) for T in subsets])
    assert chisquare(counts, 40_000 * law / law.sum()).pvalue > 1e-4


class Scripted:
    """A stream whose words are given, then ones."""

    certified = False

    def __init__(self, words):
        self.words = list(words)

    def bits(self, count):
        taken = self.words[:count] + [2**64 - 1] * (count - len(self.words[:count]))
        del self.words[:count]
        return np.array(taken, dtype=np.uint64)

    def child(self, name):
        return self


def test_every_subset_is_reachable():
    # Column 1 has probability e^-138 < 2^-199: the walk takes it when its uniform starts with 200 zero bits.
    logs = np.array([0.0, -138.0])
    tree = tree_of(logs, 1)
    fill_tree(logs, 1, tree)
    zero = walk_all(tree, 1, 1, Scripted([0, 0, 0, 1 << 55, 0]))
    one = walk_all(tree, 1, 1, Scripted([0, 0, 1 << 60, 0, 0]))
    assert zero.tolist() == [[1]]
    assert one.tolist() == [[0]]


def test_walk_goes_on_when_words_run_out():
    logs = np.zeros(40)
    tree = tree_of(logs, 7)
    fill_tree(logs, 7, tree)
    drawn = walk_all(tree, 7, 500, seeded_stream(1))
    assert all(len(set(row)) == 7 for row in drawn.tolist())


@pytest.mark.parametrize(("p", "t", "spread"), [(40, 5, 30.0), (64, 10, 3.0), (100, 4, 300.0), (700, 6, 1.0)])
def test_trees_and_walks_are_as_exact_as_epsilon_pays_for(p, t, spread):
    mpmath = pytest.importorskip("mpmath")
    logs = np.random.default_rng(p).exponential(size=p) * spread
    tree = tree_of(logs, t)
    fill_tree(logs, t, tree)
    units = 32 * (p + 64) * (t + 1) + 2**7 * float(np.sort(logs)[-t:].sum())  # confide.selection.exponent
    with mpmath.workdps(60):
        e = [mpmath.mpf(1)] + [mpmath.mpf(0)] * t
        for value in logs:
            x = mpmath.exp(mpmath.mpf(float(value)))
            for k in range(t, 0, -1):
                e[k] += x * e[k - 1]
        assert abs(mpmath.log(e[t]) - mpmath.mpf(float(tree[1, t]))) <= units * 2.0**-53
        # Down the tree to one subset: the product of the walk's step probabilities against its exact probability.
        subset = sorted(np.random.default_rng(1).choice(p, t, replace=False).tolist())
        size, log_p = tree.shape[0] // 2, 0.0

        def descend(node, first, width, k):
            nonlocal log_p
            if k == 0 or node >= size:
                return
            left = sum(first <= j < first + width // 2 for j in subset)
            terms = np.array(
                [tree[2 * node, i] + tree[2 * node + 1, k - i] - tree[node, k] for i in range(k + 1)]
            )
            log_p += terms[left] - np.log(np.exp(terms).sum())
            descend(2 * node, first, width // 2, left)
            descend(2 * node + 1, first + width // 2, width // 2, k - left)

        descend(1, 0, size, t)
        exact = sum(mpmath.mpf(float(logs[j])) for j in subset) - mpmath.log(e[t])
        assert abs(exact - mpmath.mpf(float(log_p))) <= units * 2.0**-53
