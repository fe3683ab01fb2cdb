"""Laws of answers at small and large amounts, where a table of probabilities may be wrong that is right at 1.

The claims of `confide.audit.promises.prediction` are made at an epsilon of 1. Here each release is attacked
at an epsilon of 0.1 and of 8, with the deltas 1e-6 and 1e-12 where it takes one: its exact law on
neighbouring distances, near 0, where it changes and far away (layer "exact"), what it says it costs, and
draws held against the law ("law of draws"). An epoch of the sparse vector has two of these pairs of amounts.

The same release with a larger epsilon and a larger delta is made just before each law is asked for: a table
that is kept by less than what it depends on is another one then, of more than the claim. Any class may be the
answer where a test of `ptr` is not passed, which hides a delta of epsilon / C; it is attacked at the least
epsilon there is as well, 2^-50.

=================================  =======================================================================
release                            its law here
=================================  =======================================================================
response, global, cauchy, laplace  the integers that are drawn from
ptr                                P(N > threshold - k) enclosed, N discrete Laplace; the public threshold
sparse vector                      as that of the claim, of the threshold that `StableAnswers` shows
=================================  =======================================================================
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from functools import cache, partial
from itertools import product
from typing import Any

import numpy as np

from confide.audit import blackbox
from confide.audit.exact import certain, excess
from confide.audit.finding import Finding, Verdict
from confide.audit.promises.mechanisms import sparse_law
from confide.audit.registry import Claim, Floats, Law, Pair
from confide.mechanisms import RandomStream, seeded_stream, split_epoch
from confide.mechanisms.enclosure import exp_minus
from confide.prediction import StableAnswers, release_of
from confide.prediction.releases import SPARSE_VECTOR
from confide.prediction.vector import UNSTABLE
from confide.privacy import Event

#: Amounts, and what is made before each of them.
_EPSILONS = Fraction(1, 10), Fraction(8)
_DELTAS = Fraction(1, 10**6), Fraction(1, 10**12)
_BEFORE = 9, Fraction(1, 50)
#: The least epsilon of `ptr`, at which answers of any class hide no delta.
_LEAST = Fraction(1, 1 << 50)
#: Claim -> its release, the number of classes, and whether it takes a delta.
RELEASES: dict[str, tuple[str, int, bool]] = {
    "prediction.response.2": ("response", 2, False),
    "prediction.response.10": ("response", 10, False),
    "prediction.response.3": ("response", 3, True),
    "prediction.global.5": ("global", 5, False),
    "prediction.cauchy.2": ("cauchy", 2, False),
    "prediction.laplace.2": ("laplace", 2, True),
    "prediction.ptr.3": ("ptr", 3, True),
    "prediction.sparse_vector": (SPARSE_VECTOR, 2, True),
}
#: Releases of any number of classes.
_ANY_CLASSES = ("response", "global", "ptr")
#: Steps of the distance that are tried one by one; then each is a part longer than the one before.
_NEAR, _PART, _FAR = 24, 8, 4_000
#: Steps around a place where a law changes.
_AROUND = 3
#: Of the draws of epochs that the claim's own law is held against, one in so many.
_SHARE = 15
_BITS = 320
Answered = tuple[int, int]


def amounts(claim: Claim) -> tuple[Claim, ...]:
    """Return a claim about a release with other amounts each; not registered, and none for other claims."""
    if claim.name not in RELEASES:
        return ()
    name, classes, approximate = RELEASES[claim.name]
    if name == SPARSE_VECTOR:
        return tuple(_epochs(claim, classes, *each) for each in zip(_EPSILONS, _DELTAS, strict=True))
    deltas = _DELTAS if approximate else (Fraction(0),)
    epsilons = (*_EPSILONS, _LEAST) if name == "ptr" else _EPSILONS
    return tuple(_release(claim, name, classes, *each) for each in product(epsilons, deltas))


def _named(claim: Claim, epsilon: Fraction, delta: Fraction) -> Claim:
    name = f"{claim.name}[epsilon {float(epsilon):g}, delta {float(delta):g}]"
    return replace(claim, name=name, epsilon=epsilon, delta=delta, search=None)


def _made(name: str, classes: int, epsilon: Fraction, delta: Fraction) -> Any:
    """Return a release, others of which were made just before."""
    if name in _ANY_CLASSES:
        release_of(name, epsilon, classes + 1, delta)
    for more, lost in ((_BEFORE[0], delta), (epsilon, _BEFORE[1]), _BEFORE):
        release_of(name, more, classes, lost if delta else 0)
    return release_of(name, epsilon, classes, delta)


def _release(claim: Claim, name: str, classes: int, epsilon: Fraction, delta: Fraction) -> Claim:
    def outputs(told: Answered, count: int, stream: RandomStream) -> Floats:
        labels, k = np.full(count, told[0]), np.full(count, told[1])
        return _made(name, classes, epsilon, delta).draw(labels, k, stream=stream).astype(np.float64)

    def law(told: Answered) -> Law:
        return _law(_made(name, classes, epsilon, delta), told)

    def pairs() -> Iterator[Pair]:
        made = _made(name, classes, epsilon, delta)
        # The first is the one that is drawn from: another scale shows there.
        usual = _spread(epsilon) + getattr(made, "threshold", 0)
        for k in dict.fromkeys((usual, *_steps(_turn(made)))):
            yield Pair(f"distance {k} against {k + 1}", (0, k), (0, k + 1))
        yield Pair("classes differ", (0, 0), (1, 0))

    return replace(
        _named(claim, epsilon, delta), pairs=pairs, outputs=outputs, law=law,
        run=lambda told, stream: outputs(told, 1, stream),
    )  # fmt: skip


def _law(release: Any, told: Answered) -> Law:
    label, k = told
    if hasattr(release, "threshold"):
        return _tested(release, label, k)
    wrong, others = release.wrong(k), release.classes - 1
    table = {float(c): wrong for c in range(release.classes)}
    return certain(table | {float(label): 1 - others * wrong})


def _tested(release: Any, label: int, k: int) -> Law:
    """Return the law of the class where k + N > threshold, and of any class elsewhere."""
    above, most = _beyond(release.epsilon, release.threshold - k)
    wrong = (1 - most) / release.classes, (1 - above) / release.classes
    table = {float(c): wrong for c in range(release.classes)}
    return table | {float(label): (above + wrong[1], most + wrong[0])}


def _beyond(epsilon: Fraction, y: int) -> tuple[Fraction, Fraction]:
    """Enclose P(N > y), N discrete Laplace of scale 1 / epsilon: q^m / (1 + q) is the tail from m >= 1 on."""
    (q, q_up), (tail, tail_up) = _exp(epsilon), _exp(epsilon * (y + 1 if y >= 0 else -y))
    low, high = tail / (1 + q_up), tail_up / (1 + q)
    return (low, high) if y >= 0 else (1 - high, 1 - low)


def _exp(amount: Fraction) -> tuple[Fraction, Fraction]:
    low, high = exp_minus(amount, _BITS)
    return Fraction(low, 1 << _BITS), Fraction(high, 1 << _BITS)


def _spread(epsilon: Fraction) -> int:
    """Return about the scale of the noise, and 1 at least."""
    return max(1, round(1 / epsilon))


def _turn(release: Any) -> int:
    """Return the distance near which a law changes: the end of its table, or its threshold."""
    return release.threshold if hasattr(release, "threshold") else len(release.units) - 1


def _steps(turn: int) -> list[int]:
    """Return distances that are held against the next one: the first, those at the turn, few others."""
    found, k = set(range(_NEAR)), _NEAR
    while k < _FAR:
        found.add(k)
        k += k // _PART
    return sorted(found | set(range(max(0, turn - _AROUND), turn + _AROUND)))


def _opened(classes: int, epsilon: Fraction, delta: Fraction, stream: RandomStream) -> StableAnswers:
    """Return what opens epochs, another one of which was made just before."""
    StableAnswers(epsilon, _BEFORE[1], classes, charge=_free, stream=stream)
    return StableAnswers(epsilon, delta, classes, charge=_free, stream=stream)


def _epochs(claim: Claim, classes: int, epsilon: Fraction, delta: Fraction) -> Claim:
    made = partial(_opened, classes, epsilon, delta)

    def outputs(asked: list[Answered], count: int, stream: RandomStream) -> Floats:
        labels, k = np.array(asked).T
        rows, answers = np.full((count, k.size), -2.0), None
        for i, row in enumerate(rows):
            answers = answers or made(stream.child(f"object {i}"))
            told = answers.until_unstable(labels, k)
            row[: told.size] = told
            if UNSTABLE not in told:  # the epoch stays open: another object opens a new one
                answers = None
        return rows

    @cache
    def counts(k: tuple[int, ...]) -> Any:
        return sparse_law(made(seeded_stream(0)).threshold, *split_epoch(epsilon))(list(k))

    def law(asked: list[Answered]) -> Law:
        labels, k = (tuple(side) for side in np.array(asked).T.tolist())
        told: dict[Any, Any] = {"beyond": counts(k)["beyond"]}
        for i in range(len(k) + 1):
            row = [float(c) for c in (*labels[:i], *[-1] * (i < len(k)), *[-2] * (len(k) - i - 1))]
            told[tuple(row) if len(row) > 1 else row[0]] = counts(k)[float(i)]
        return told

    def pairs() -> Iterator[Pair]:
        k = made(seeded_stream(0)).threshold + _spread(epsilon)
        yield Pair("one distance rises, the last falls", [(0, k), (0, k)], [(0, k + 1), (0, k - 1)])
        yield Pair("classes differ", [(0, 0)], [(1, 0)])

    return replace(
        _named(claim, epsilon, delta), pairs=pairs, outputs=outputs, law=law,
        run=lambda asked, stream: outputs(asked, 1, stream)[0],
    )  # fmt: skip


def _free(event: Event) -> None:
    """Charge nothing."""


def _said(claim: Claim) -> Iterator[str]:
    """Yield what a release says of itself that it was not asked for."""
    name, classes, _ = RELEASES[claim.name.partition("[")[0]]
    if name == SPARSE_VECTOR:
        made: Any = _opened(classes, claim.epsilon, claim.delta, seeded_stream(0))
    else:
        made = _made(name, classes, claim.epsilon, claim.delta)
        if made.classes != classes:
            yield "a release of another number of classes than was asked for"
    asked = {"epsilon": claim.epsilon, "delta": claim.delta}
    for what, amount in asked.items():
        told = dict(made.event.parameters).get(what, amount)
        if getattr(made, what) != amount or Fraction(told) != amount:
            yield f"a release of another {what} than was asked for"


def exactly(claim: Claim, found: Finding | None) -> Finding | None:
    """Return what the exact layer found of a claim, joined with its release at other amounts."""
    if found is None:
        return None
    for other in amounts(claim):
        faults, pairs = list(_said(other)), list(other.pairs())
        faults += [f"{pair.name} costs more" for pair in pairs if _passes(other, pair)]
        found = replace(found, tried=found.tried + len(pairs))
        if faults and found.verdict is Verdict.HOLDS:
            found = replace(found, verdict=Verdict.BROKEN, note=f"{other.name}: {faults[0]}")
    return found


def _passes(claim: Claim, pair: Pair) -> bool:
    assert claim.law is not None
    here, there = claim.law(pair.here), claim.law(pair.there)
    sides = (here, there), (there, here)
    return any(excess(one, other, claim.epsilon)[0] > claim.delta for one, other in sides)


def drawn(claim: Claim, found: Finding | None, count: int, stream: RandomStream) -> Finding | None:
    """Return what draws of a claim showed, joined with those of its release at other amounts.

    The p-value is the least one, times how many there are.
    """
    others = amounts(claim) if found is not None else ()
    count = max(1, count // _SHARE) if claim.name == "prediction.sparse_vector" else count
    told = [
        blackbox.fit(other, next(iter(other.pairs())), count, stream.child(other.name)) for other in others
    ]
    for one in told:
        assert found is not None
        assert one is not None
        found = replace(found, tried=found.tried + one.tried, p_value=min(found.p_value, one.p_value))
    return found and replace(found, p_value=min(1.0, (1 + len(told)) * found.p_value))
