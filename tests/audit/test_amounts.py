"""Mechanisms of other sizes and amounts: each holds, and a break that acts there alone is seen."""

from __future__ import annotations

import math
import sys
from fractions import Fraction
from functools import wraps

import numpy as np
import pytest

from confide.audit import amounts, exact, run
from confide.audit.finding import Verdict
from confide.audit.promises import mechanisms as room
from confide.audit.registry import claims
from confide.mechanisms import above_threshold, choice, discrete, gaussian, grid
from confide.selection import draws
from confide.selection import exponent as selection_exponent

#: p-value below which nothing that holds is seen in these tests.
LEAST = 1e-7


def seen(layer, name, *, full=False):
    whole = name if "." in name else f"mechanisms.{name}"
    told = run._attack(run.Cell(whole, layer), full=full, error=1e-6, seed=5)
    assert told is not None
    return told.verdict is Verdict.BROKEN or told.p_value < LEAST


LAYERS = [
    *(("exact", name) for name in ("discrete_laplace", "discrete_gaussian", "rounded_gaussian",
                                   "weighted_choice", "sparse_vector")),
    *(("law of draws", name) for name in ("discrete_laplace", "discrete_gaussian", "rounded_gaussian",
                                          "weighted_choice", "sparse_vector")),
    *(("noise", name) for name in ("discrete_laplace", "laplace_release", "gaussian_release", "sparse_vector")),
]  # fmt: skip


@pytest.mark.parametrize(("layer", "name"), LAYERS)
def test_a_mechanism_holds_at_all_sizes_and_amounts(layer, name):
    (claim,) = (claim for claim in claims("mechanisms") if claim.name == f"mechanisms.{name}")
    assert len({member.name for member in amounts.members(claim)}) == len(amounts.members(claim)) > 1
    assert not seen(layer, name)


def test_amounts_are_nearly_reached():
    """Laws that lie far below what they claim would hide a break."""
    for claim in claims("mechanisms"):
        for member in amounts.members(claim):
            if member.law is not None and member.name.partition("[")[0] != "mechanisms.sparse_vector":
                worst = max(
                    exact.measured(member.law(p.here), member.law(p.there), member.delta)
                    for p in member.pairs()
                )
                assert worst > 0.25 * float(member.epsilon)


def everywhere(patch, true, other):
    """Put a function in the place of another wherever it is held, and in recordings."""
    for module in [m for name, m in sys.modules.items() if name.startswith("confide.") and m is not None]:
        for key, value in list(vars(module).items()):
            if value is true:
                patch.setattr(module, key, other)
    patch.setattr("confide.audit.replay._wrapped", {})


def size_of(size):
    return int(np.prod(np.atleast_1d(np.array(size))))


def quiet_beyond_64(patch):
    """Half of the noise from the 65th cell on of a release."""
    true = grid.discrete_laplace

    def noise(scale, size, *, stream=None):
        told = true(scale, size, stream=stream)
        if told.ndim == 1:
            told[64:] //= 2
        return told

    patch.setattr(grid, "discrete_laplace", noise)


def quiet_gaussian_beyond_64(patch):
    true = grid.rounded_gaussian

    def noise(sigma, step, size, *, stream=None):
        told = true(sigma, step, size, stream=stream)
        if told.ndim == 1:
            told[64:] //= 2
        return told

    patch.setattr(grid, "rounded_gaussian", noise)


def repeated_beyond_64(patch):
    """Noise of the first 64 cells is used again."""
    true = grid.rounded_gaussian

    def noise(sigma, step, size, *, stream=None):
        told = true(sigma, step, size, stream=stream)
        return np.resize(told[:64], told.shape) if told.ndim == 1 else told

    patch.setattr(grid, "rounded_gaussian", noise)


def less_by_the_dimension(patch):
    """The sensitivity by the dimension is that of 64 cells at most."""
    true = grid.root_up
    patch.setattr(grid, "root_up", lambda square: true(min(square, Fraction(64))))


def half_at_large_amounts(patch):
    true = grid.discrete_laplace
    patch.setattr(
        grid, "discrete_laplace",
        lambda scale, size, *, stream=None: true(scale / (2 if scale < 1 else 1), size, stream=stream),
    )  # fmt: skip


def half_at_small_amounts(patch):
    true = grid.rounded_gaussian
    patch.setattr(
        grid, "rounded_gaussian",
        lambda sigma, step, size, *, stream=None: true(
            sigma * (0.9 if sigma > 10 else 1), step, size, stream=stream
        ),
    )  # fmt: skip


def scales(owner, name, change):
    def apply(patch):
        true = getattr(owner, name)

        @wraps(true)
        def noise(scale, *rest, stream=None):
            return true(scale * Fraction(change(scale)), *rest, stream=stream)

        everywhere(patch, true, noise)

    return apply


def few_at_a_time(patch):
    true = discrete.discrete_laplace

    @wraps(true)
    def noise(scale, size, *, stream=None):
        told = true(scale, size, stream=stream)
        return told // 2 if size_of(size) == 65 else told

    everywhere(patch, true, noise)


def walks(change):
    def apply(patch):
        true = choice._by_logarithms

        def drawn(logarithms, count, source):
            return true(change(logarithms), count, source)

        patch.setattr(choice, "_by_logarithms", drawn)

    return apply


def without_the_last(logs):
    return logs if len(logs) <= 64 or not isinstance(logs, np.ndarray) else logs[:64]


def without_the_last_rationals(logs):
    return logs if len(logs) <= 64 or isinstance(logs, np.ndarray) else logs[:64]


def steeper(logs):
    if len(logs) <= 64 or isinstance(logs, np.ndarray):
        return logs
    return [2 * value for value in logs]


def steeper_where_wide(logs):
    if not isinstance(logs, np.ndarray) or logs.max() - logs.min() < 20:
        return logs
    return 2 * logs


def integers_in_turn(patch):
    true = choice._by_integers
    patch.setattr(
        choice, "_by_integers",
        lambda weights, count, source: np.minimum(true(weights, count, source), 63),
    )  # fmt: skip


def large_integers_alike(patch):
    true = choice.uniform_integers

    def drawn(total, count, source):
        told = true(total, count, source)
        return told if isinstance(told, np.ndarray) else [value >> 3 << 3 if i % 2 else value // 2
                                                          for i, value in enumerate(told)]  # fmt: skip

    patch.setattr(choice, "uniform_integers", drawn)


def splits(change):
    def apply(patch):
        true = above_threshold.split_epoch

        def split(epsilon, *rest):
            e1, e2 = true(epsilon, *rest)
            return (2 * e1, e2) if change(Fraction(epsilon)) else (e1, e2)

        everywhere(patch, true, split)

    return apply


def after_64_queries(patch):
    true = above_threshold.SparseVector.above_many

    def above_many(epoch, queries):
        told = true(epoch, queries[:64])
        return told if len(queries) <= 64 or not all(told) else [*told, *[True] * (len(queries) - 64)]

    patch.setattr(above_threshold.SparseVector, "above_many", above_many)


def quieter(when):
    """Half of the noise of queries in calls of an epoch that are not its first."""

    def apply(patch):
        true, plain = above_threshold.SparseVector.above_many, above_threshold.discrete_laplace

        def above_many(epoch, queries):
            late = when(epoch._answered)

            def noise(scale, size, *, stream=None):
                return plain(scale / (2 if late else 1), size, stream=stream)

            with pytest.MonkeyPatch.context() as inner:
                inner.setattr(above_threshold, "discrete_laplace", noise)
                return true(epoch, queries)

        patch.setattr(above_threshold.SparseVector, "above_many", above_many)

    return apply


def steeper_of_many(patch):
    """A steeper law of draws where there are more than 64 supports."""
    true = draws.exponent

    def exponent(problem, *rest):
        return true(problem, *rest) * (4 if math.comb(problem.p, problem.size) > 64 else 1)

    patch.setattr(draws, "exponent", exponent)


def exponents(change):
    def apply(patch):
        true = selection_exponent.exponent

        def exponent(problem, mechanism, epsilon, adjacency):
            return true(problem, mechanism, epsilon, adjacency) * change(Fraction(epsilon))

        everywhere(patch, true, exponent)

    return apply


BREAKS = {
    "many supports": (steeper_of_many, "law of draws", "selection.exponential.replace_one"),
    "many supports, flips": (steeper_of_many, "law of draws", "selection.permute_and_flip.replace_one"),
    "many supports, listed": (steeper_of_many, "law of draws", "selection.top_r.replace_one"),
    "supports at 8": (
        exponents(lambda epsilon: 8 if epsilon > 4 else 1), "exact", "selection.exponential.replace_one",
    ),
    "supports at 0.1": (
        exponents(lambda epsilon: 8 if epsilon < 1 else 1), "exact", "selection.exponential.replace_one",
    ),
    "quiet beyond 64": (quiet_beyond_64, "noise", "laplace_release"),
    "quiet gaussian beyond 64": (quiet_gaussian_beyond_64, "noise", "gaussian_release"),
    "repeated beyond 64": (repeated_beyond_64, "noise", "gaussian_release"),
    "less by the dimension": (less_by_the_dimension, "noise", "laplace_release"),
    "half at large amounts": (half_at_large_amounts, "noise", "laplace_release"),
    "less at small amounts": (half_at_small_amounts, "noise", "gaussian_release"),
    "discrete laplace at 8": (
        scales(discrete, "discrete_laplace", lambda scale: Fraction(3, 4) if scale < 1 else 1),
        "law of draws", "discrete_laplace",
    ),
    "discrete laplace at 0.1": (
        scales(discrete, "discrete_laplace", lambda scale: Fraction(3, 4) if scale > 9 else 1),
        "noise", "discrete_laplace",
    ),
    "discrete laplace, 65 at a time": (few_at_a_time, "noise", "discrete_laplace"),
    "discrete gaussian, small": (
        scales(discrete, "discrete_gaussian", lambda scale: Fraction(3, 4) if scale < 1 else 1),
        "law of draws", "discrete_gaussian",
    ),
    "discrete gaussian, large": (
        scales(discrete, "discrete_gaussian", lambda scale: Fraction(3, 4) if scale > 9 else 1),
        "noise", "discrete_gaussian",
    ),
    "rounded gaussian, small": (
        scales(gaussian, "rounded_gaussian", lambda scale: Fraction(3, 4) if scale < 1 else 1),
        "law of draws", "rounded_gaussian",
    ),
    "rounded gaussian, large": (
        scales(gaussian, "rounded_gaussian", lambda scale: Fraction(3, 4) if scale > 9 else 1),
        "noise", "rounded_gaussian",
    ),
    "floats without the last": (walks(without_the_last), "law of draws", "weighted_choice"),
    "rationals without the last": (walks(without_the_last_rationals), "law of draws", "weighted_choice"),
    "steeper rationals": (walks(steeper), "law of draws", "weighted_choice"),
    "steeper at large amounts": (walks(steeper_where_wide), "law of draws", "weighted_choice"),
    "integers to 64": (integers_in_turn, "law of draws", "weighted_choice"),
    "large integers": (large_integers_alike, "law of draws", "weighted_choice"),
    "split at 8": (splits(lambda epsilon: epsilon > 4), "exact", "sparse_vector"),
    "split at 0.1": (splits(lambda epsilon: epsilon < 1), "exact", "sparse_vector"),
    "quieter from the second call on": (
        quieter(lambda answered: answered > 0), "law of draws", "sparse_vector",
    ),
    "quieter after 20 answers": (quieter(lambda answered: answered >= 20), "law of draws", "sparse_vector"),
    "true after 64 queries": (after_64_queries, "law of draws", "sparse_vector"),
}  # fmt: skip


#: Noise that is rarely other than 0, and a law that is nearly uniform: seen by the draws of a full audit.
FULL = ("discrete laplace at 8", "many supports, listed")


@pytest.mark.parametrize("name", BREAKS)
def test_a_break_beyond_64_or_at_other_amounts_is_seen(monkeypatch, name):
    apply, layer, mechanism = BREAKS[name]
    apply(monkeypatch)
    assert seen(layer, mechanism, full=name in FULL)


@pytest.mark.parametrize("name", BREAKS)
def test_it_is_not_seen_by_the_claim_alone(monkeypatch, name):
    """Otherwise members show nothing new."""
    apply, layer, mechanism = BREAKS[name]
    monkeypatch.setattr(amounts, "MEMBERS", {})
    apply(monkeypatch)
    assert not seen(layer, mechanism, full=name in FULL)


def test_laws_of_other_deviations_sum_to_1():
    for sigma in (Fraction(1, 2), Fraction(2), Fraction(30)):
        total = sum(high for _, high in room.gaussian_law(sigma)(7).values())
        assert 1 <= total < 1 + Fraction(1, 1 << 100)
    for sigma in (0.3, 2.0, 50.0):
        total = sum(high for _, high in room.rounded_law(sigma)(7).values())
        assert 1 <= total < 1 + 1e-9
