"""Laws of answers over every pair of neighbours, exactly, and draws from the operating system's randomness."""

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from scipy.stats import beta

from confide.errors import ParameterError
from confide.mechanisms.enclosure import exp_minus
from confide.mechanisms.stream import is_certified, os_stream
from confide.prediction.ptr import propose_test_release
from confide.prediction.response import global_law, response_law
from confide.prediction.smooth import cauchy_law, laplace_law
from confide.privacy import exact

CLASSES = (2, 3, 10, 100)
EPSILONS = ("0.01", "0.03", "0.1", "0.3", "1", "2", "3")
DELTAS = ("0", "1e-9", "1e-6", "0.01", "0.2")


def growth(epsilon, bits=400):
    """(numerator, denominator) of a rational at most e^epsilon."""
    return 1 << bits, exp_minus(exact(epsilon), bits)[1]


def answers(classes, units, one, label, k):
    """The law of one answer as (probability, how many classes have it) for label, its rival, the others."""
    wrong = units[min(k, len(units) - 1)]
    right = one - (classes - 1) * wrong
    first, second = (right, wrong) if label == 0 else (wrong, right)
    return ((first, 1), (second, 1), (wrong, classes - 2))


def excess(here, there, e, one, delta):
    """one * den(delta) * (sum over answers of max(0, P - e Q) - delta), in units of 1 / den(e); exact integers.

    The sum is the largest P(S) - e Q(S) over all sets S of answers.
    """
    top, bottom = e
    total = sum(many * max(0, p * bottom - top * q) for (p, many), (q, _) in zip(here, there, strict=True))
    return total * delta.denominator - delta.numerator * one * bottom


@pytest.mark.parametrize("delta", DELTAS)
@pytest.mark.parametrize("classes", CLASSES)
@pytest.mark.parametrize("epsilon", EPSILONS)
def test_every_pair_of_neighbours_at_every_distance(epsilon, classes, delta):
    """Same class at k and k - 1, k, k + 1; two classes where both distances are 0."""
    law = response_law(epsilon, classes, delta)
    e, one, d = growth(epsilon), 1 << law.bits, Fraction(delta)
    assert law.epsilon == exact(epsilon)
    assert law.delta == d
    table = [answers(classes, law.units, one, 0, k) for k in range(len(law.units) + 1)]
    for law_of_k in table:
        assert sum(p * many for p, many in law_of_k) == one
        assert min(p for p, many in law_of_k if many) >= 0
    for k, other in itertools.pairwise(range(len(table))):
        assert excess(table[k], table[other], e, one, d) <= 0
        assert excess(table[other], table[k], e, one, d) <= 0
    rival = answers(classes, law.units, one, 1, 0)
    assert excess(table[0], rival, e, one, d) <= 0
    assert excess(rival, table[0], e, one, d) <= 0
    # The pair of two classes is tight: a share of 2^-140 less for each other class would break it.
    less = [law.units[0] - (law.units[0] >> 140)]
    assert excess(answers(classes, less, one, 0, 0), answers(classes, less, one, 1, 0), e, one, d) > 0


@pytest.mark.parametrize("delta", DELTAS)
@pytest.mark.parametrize("classes", CLASSES)
def test_no_level_can_be_surer(classes, delta):
    """Optimal: each level's wrong classes have the least probability that the level below allows."""
    law = response_law("0.3", classes, delta)
    e, one, d = growth("0.3"), 1 << law.bits, Fraction(delta)
    for k in range(min(60, len(law.units) - 1)):
        less = [*law.units[: k + 1], law.units[k + 1] - max(1, law.units[k] >> 140)]
        if less[-1] < 0:
            break
        here, there = (answers(classes, less, one, 0, level) for level in (k, k + 1))
        assert max(excess(here, there, e, one, d), excess(there, here, e, one, d)) > 0


def test_sets_of_answers_by_enumeration():
    # The sum of positive parts against all subsets of three classes.
    law = response_law("0.3", 3, "0.01")
    e, one = growth("0.3"), 1 << law.bits
    factor = Fraction(*e)
    for k, j, label in ((0, 1, 0), (5, 4, 0), (0, 0, 1)):
        here, there = answers(3, law.units, one, 0, k), answers(3, law.units, one, label, j)
        sets = itertools.chain.from_iterable(itertools.combinations(range(3), size) for size in range(4))
        worst = max(sum(Fraction(here[i][0]) - factor * there[i][0] for i in chosen) for chosen in sets)
        assert excess(here, there, e, one, Fraction(0)) == worst * e[1]


@pytest.mark.parametrize("classes", CLASSES)
def test_the_check_convicts_the_simple_law_and_a_smaller_epsilon(classes):
    # q e^(-eps k), q = (C - 1) / (E + C - 1), is not eps-DP once C > 1 + E^2.
    e, one = growth("0.3"), 1 << 192
    simple = [one * e[1] ** (k + 1) // (e[0] + (classes - 1) * e[1]) // e[0] ** k for k in range(40)]
    table = [answers(classes, simple, one, 0, k) for k in range(40)]
    worst = max(excess(table[k + 1], table[k], e, one, Fraction(0)) for k in range(39))
    slack = 2 * classes * e[0]  # two units of rounding
    assert (worst > slack) == (classes > 1 + math.exp(0.6))
    law = response_law("0.3", classes)
    table = [answers(classes, law.units, one, 0, k) for k in range(40)]
    pairs = [*itertools.pairwise(table), *itertools.pairwise(table[::-1])]
    assert max(excess(a, b, growth("0.2999"), one, Fraction(0)) for a, b in pairs) > 0


@pytest.mark.parametrize("epsilon", EPSILONS)
@pytest.mark.parametrize("classes", CLASSES)
def test_the_baseline_on_every_pair(classes, epsilon):
    law = global_law(epsilon, classes)
    e, one = growth(epsilon), 1 << law.bits
    here, there = (answers(classes, law.units, one, label, 0) for label in (0, 1))
    assert excess(here, there, e, one, Fraction(0)) <= 0


def clopper_pearson(hits, runs, error):
    """Bounds of a rate that fail with probability at most `error`."""
    low = beta.ppf(error / 2, hits, runs - hits + 1) if hits else 0.0
    high = beta.ppf(1 - error / 2, hits + 1, runs - hits) if hits < runs else 1.0
    return low, high


@pytest.mark.parametrize(
    ("law", "levels"),
    [(response_law("0.1", 2), (0, 1, 5, 20)), (response_law("1", 2), (0, 1, 3, 9)),
     (response_law("0.3", 10), (0, 1, 4)), (response_law("0.3", 3, "0.01"), (0, 3, 10**6)),
     (global_law("1", 5), (0, 7))],
    ids=lambda value: repr(value) if not isinstance(value, tuple) else "",
)  # fmt: skip
def test_draws_of_the_operating_system_follow_the_law(law, levels):
    """Each class's exact interval at an error of 1e-9, and chi-square of all classes: false alarms never."""
    source, runs = os_stream(), 40_000
    assert is_certified(source)
    for k in levels:
        label = k % law.classes
        drawn = law.draw(np.full(runs, label), np.full(runs, k), stream=source)
        counts = np.bincount(drawn, minlength=law.classes)
        p = law.probabilities(k)
        chances = np.full(law.classes, p.wrong[k])
        chances[label] = p[k]
        assert chances.sum() == pytest.approx(1, rel=1e-12)
        for hits, chance in zip(counts, chances, strict=True):
            low, high = clopper_pearson(int(hits), runs, 1e-9)
            assert low <= chance <= high
        expected = runs * chances
        if expected.min() >= 5:
            statistic = float(np.sum((counts - expected) ** 2 / expected))
            # 1e-9 of chi-square by Laurent & Massart 2000: x = 21 gives d + 2 sqrt(d x) + 2 x.
            d = law.classes - 1
            assert statistic <= d + 2 * math.sqrt(21 * d) + 42


def test_the_draw_is_the_table_integer_by_integer(monkeypatch):
    """Every integer of a small table is drawn once: each class gets its units exactly."""
    import confide.prediction.laws as laws

    small = laws.Law(response_law("1", 4).event, exact(1), Fraction(0), 4, 8, (50, 11, 0))
    monkeypatch.setattr(laws, "uniform_integers", lambda total, count, stream: np.arange(total)[:count])
    for k, unit in enumerate(small.units):
        for label in range(4):
            drawn = small.draw(np.full(256, label), np.full(256, k))
            counts = np.bincount(drawn, minlength=4)
            expected = np.full(4, unit)
            expected[label] = 256 - 3 * unit
            assert counts.tolist() == expected.tolist()


SMOOTH = [
    *((cauchy_law, (epsilon,)) for epsilon in ("0.0001", "0.01", "0.3", "1", "5", "20", "100", "1000")),
    *((laplace_law, (epsilon, delta))
      for delta in ("1e-12", "1e-6", "1e-3", "0.05", "0.5", "0.99")
      for epsilon in ("0.01", "0.3", "1", "3", "10", "24.6", "25", "46.5", "50", "92", "100", "1000")),
]  # fmt: skip


def check_law(law):
    e, one = growth(law.epsilon), 1 << law.bits
    table = [answers(2, law.units, one, 0, k) for k in range(len(law.units) + 1)]
    for here, there in itertools.pairwise(table):
        assert excess(here, there, e, one, law.delta) <= 0
        assert excess(there, here, e, one, law.delta) <= 0
    rival = answers(2, law.units, one, 1, 0)
    assert excess(table[0], rival, e, one, law.delta) <= 0
    assert excess(rival, table[0], e, one, law.delta) <= 0


@pytest.mark.parametrize(
    ("make", "arguments"), SMOOTH, ids=lambda part: getattr(part, "__name__", None) or str(part)
)
def test_smooth_laws_on_every_pair_of_neighbours(make, arguments):
    """Audited: Laplace noise needed up to 43 delta where epsilon was 3.2 to 4 ln(2/delta)."""
    law = make(*arguments)
    assert (law.epsilon, law.delta) == (exact(arguments[0]), exact((*arguments, 0)[1]))
    check_law(law)


@pytest.mark.parametrize("delta", ["1e-12", "1e-6", "1e-3", "0.05"])
def test_laplace_noise_in_the_range_where_its_own_law_fails(delta):
    logarithm, bound = math.log(2 / float(delta)), 0
    for share in np.linspace(2.8, 4.2, 29).tolist():
        epsilon = f"{share * logarithm:.6f}"
        law = laplace_law(epsilon, delta)
        check_law(law)
        beta_ = float(epsilon) / (2 * logarithm)
        own = [math.exp(-float(epsilon) * math.exp(beta_ * k) / 4) / 2 for k in range(3)]
        bound += own[0] > math.exp(float(epsilon)) * own[1] + float(delta)
        assert law.probabilities(2).wrong[1] >= own[1] * (1 - 1e-6)
    assert bound or float(delta) > 1e-4  # the range is met: there the noise alone is refuted


@pytest.mark.parametrize("delta", ["1e-12", "1e-6", "0.05", "0.5"])
@pytest.mark.parametrize("epsilon", ["0.01", "0.3", "1", "5", "40"])
def test_propose_test_release_in_rationals(epsilon, delta):
    """With powers of e^-epsilon that are enclosed within a relative 2^-150."""
    release = propose_test_release(epsilon, delta, 3)
    bits = 200 + math.ceil(float(epsilon) * (release.threshold + 70) * 1.4427)

    def power(exponent):
        return Fraction(exp_minus(exact(epsilon) * exponent, bits)[0], 1 << bits)

    q = power(1)

    def passes(k):  # P(N >= m) = q^m / (1 + q) for m >= 1
        gap = release.threshold - k
        return power(gap + 1) / (1 + q) if gap >= 0 else 1 - power(-gap) / (1 + q)

    room = 1 + Fraction(1, 1 << 100)
    assert passes(0) <= exact(delta) * room
    steps = range(0, release.threshold + 60, max(1, release.threshold // 100))
    for k in steps:
        for a, b in ((k, k + 1), (k + 1, k)):
            here, there = passes(a), passes(b)
            assert here <= there / q * room
            assert 1 - here <= (1 - there) / q * room
            right = here + (1 - here) / 3, there + (1 - there) / 3
            assert right[0] <= right[1] / q * room
    p = release.probabilities(5)
    assert p[5] == pytest.approx(float(passes(5) + (1 - passes(5)) / 3), rel=1e-9)


def test_an_epsilon_without_noise_is_refused_before_a_charge():
    with pytest.raises(ParameterError, match="2\\^-50"):
        propose_test_release(Fraction(1, 1 << 51), "1e-6", 2)
    assert propose_test_release(Fraction(1, 1 << 50), "1e-6", 2).draw([0], [0]).shape == (1,)
