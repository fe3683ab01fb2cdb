"""Mechanisms of other sizes and amounts: more than 64 things, 65 to 1,000 cells, an epsilon of 0.1 and of 8.

The claims of `confide.audit.promises.mechanisms` are made at one amount on small inputs. A break behind a
branch shows only to a draw that takes the branch, so here each mechanism is drawn as it is elsewhere: its
law, at these amounts, is held against the amounts (layer "exact"), its draws against the law ("law of
draws"), and its noise against what its parameters name ("noise"). Where law and parameters come from the code
under attack (the split of an epoch, the scale of a release) they are computed anew.

====================  ================================================================================
mechanism             what is other
====================  ================================================================================
discrete_laplace      scales 1/8, 10 and, whole draws, 65 at a time
discrete_gaussian     deviations 1/2 and 30
rounded_gaussian      deviations 0.3 and 50
weighted_choice       65, 100 and 1,000 things, the likely ones last; as logarithms that are rational or
                      floats, far apart, and as integer weights, also beyond 2^63
sparse_vector         epsilon 0.1 and 8; 200 queries, at once and five a call
laplace_release       65 and 1,000 cells, epsilon 0.1 and 8, with the sensitivity by the dimension
gaussian_release      65 and 1,000 cells, multipliers 0.2 and 30
selection             78 and 126 supports, epsilon 0.1, 1 and 8, of each mechanism that draws them
====================  ================================================================================
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from fractions import Fraction
from itertools import product
from typing import Any

import numpy as np

from confide.audit import blackbox, neighbours, noise
from confide.audit.exact import certain, excess, nearly
from confide.audit.finding import Finding, Verdict
from confide.audit.neighbours import Rows
from confide.audit.promises import mechanisms as room
from confide.audit.registry import Claim, Floats, Law, Pair
from confide.mechanisms import (
    RandomStream,
    SparseVector,
    Statistic,
    discrete_gaussian,
    discrete_laplace,
    gaussian_release,
    laplace_release,
    rounded_gaussian,
    split_epoch,
    stable_threshold,
    weighted_choice,
)
from confide.privacy import gaussian_epsilon, round_up, zcdp_epsilon
from confide.selection import SubsetProblem, draw, law

_DELTA = Fraction(1, 1000)
_EPSILONS = Fraction(1, 10), Fraction(8)
_SIZES = 65, 100, 1000
_CELLS = 65, 1000
#: Of the draws of a claim of that room, one in so many for each of its members; of the noise of epochs.
_SHARE, _EPOCHS = 4, 40
#: Relative error of a law of supports in double precision.
_LAWS = 1e-9
_STEP = 0.25
#: Queries of an epoch, and of one call of it.
_MANY, _A_CALL = 200, 5


def _member(claim: Claim, what: str, epsilon: Any, draw: Callable[..., Any], **how: Any) -> Claim:
    name = f"{claim.name}[{what}]"
    how = {"law": None, "pairs": lambda: room.UNIT, **how}
    return replace(claim, name=name, epsilon=Fraction(epsilon), search=None, **room.vectorised(draw), **how)


def _noises(claim: Claim, kind: str) -> Iterator[Claim]:
    makers: dict[str, tuple[Callable[..., Any], Callable[[Any], Any], tuple[tuple[Any, Any], ...]]] = {
        "discrete_laplace": (
            lambda scale, size, stream: discrete_laplace(scale, size, stream=stream),
            lambda scale: room.laplace_law(1 / scale),
            tuple((epsilon, 1 / epsilon) for epsilon in _EPSILONS),
        ),
        "discrete_gaussian": (
            lambda sigma, size, stream: discrete_gaussian(sigma, size, stream=stream),
            room.gaussian_law,
            tuple(
                (zcdp_epsilon(1 / (2 * sigma**2), _DELTA), sigma) for sigma in (Fraction(1, 2), Fraction(30))
            ),
        ),
        "rounded_gaussian": (
            lambda sigma, size, stream: rounded_gaussian(sigma, 1.0, size, stream=stream),
            room.rounded_law,
            tuple((round_up(gaussian_epsilon(sigma, _DELTA)), sigma) for sigma in (0.3, 50.0)),
        ),
    }
    draw, law, amounts = makers[kind]
    for epsilon, scale in amounts:
        yield _member(
            claim, f"{float(scale):g}", epsilon,
            lambda value, size, stream, scale=scale: value + draw(scale, size, stream), law=law(scale),
        )  # fmt: skip


def _laplaces(claim: Claim) -> Iterator[Claim]:
    yield from _noises(claim, "discrete_laplace")

    def in_parts(value: int, size: int, stream: RandomStream) -> Any:
        parts = [
            discrete_laplace(2, min(_CELLS[0], size - i), stream=stream) for i in range(0, size, _CELLS[0])
        ]
        return value + np.concatenate(parts)

    yield _member(claim, "65 at a time", claim.epsilon, in_parts, law=claim.law)


def _scores(count: int) -> Pair:
    """Return scores whose last ones are as likely as the first, and neighbours that all move by 1."""
    there = [(5 * i) % 7 - (8 if 3 <= i < count - 8 and i % 16 else 0) for i in range(count)]
    here = [score + (1 if i % 2 else -1) for i, score in enumerate(there)]
    return Pair(f"{count} scores", here, there)


def _choices(claim: Claim) -> Iterator[Claim]:
    def rational(factor: Fraction) -> Callable[..., Any]:
        return lambda scores, size, stream: weighted_choice(
            log_weights=[factor * score for score in scores], size=size, stream=stream
        )

    def floats(factor: Fraction) -> Callable[..., Any]:
        return lambda scores, size, stream: weighted_choice(
            log_weights=float(factor) * np.array(scores), size=size, stream=stream
        )

    def softmax(factor: Fraction) -> Callable[[list[int]], Law]:
        return lambda scores: room.softmax(scores, factor)

    half = Fraction(1, 2)
    for count in _SIZES:
        pairs = (_scores(count),)
        how = {"pairs": lambda pairs=pairs: pairs, "law": softmax(half)}
        yield _member(claim, f"{count} things, floats", 1, floats(half), **how)
        if count < _SIZES[-1]:
            yield _member(claim, f"{count} things, rational", 1, rational(half), **how)
    for epsilon, factor in ((Fraction(1, 8), Fraction(1, 16)), (Fraction(8), Fraction(4))):
        pairs = (_scores(_SIZES[0]), *room.SCORES)
        how = {"pairs": lambda pairs=pairs: pairs, "law": softmax(factor)}
        yield _member(claim, f"epsilon {float(epsilon):g}, floats", epsilon, floats(factor), **how)
        yield _member(claim, f"epsilon {float(epsilon):g}, rational", epsilon, rational(factor), **how)
    yield from _weighed(claim)


def _weighed(claim: Claim) -> Iterator[Claim]:
    """Yield choices by integers: of neighbours, the smallest and largest are 2 to 5, less than e to 1."""

    def draw(weights: list[int], size: int, stream: RandomStream) -> Any:
        return weighted_choice(weights, size=size, stream=stream)

    def law(weights: list[int]) -> Law:
        return certain({float(i): Fraction(weight, sum(weights)) for i, weight in enumerate(weights)})

    for count, times in ((3, 1), (_SIZES[0], 1), (_SIZES[0], 2**61), (_SIZES[2], 3)):
        here = [times * (4 if i % 3 else 5) for i in range(count)]
        there = [times * (5 if i % 3 else 4) for i in range(count)]
        pairs = (Pair(f"{count} weights", here, there),)
        name = f"{count} integers" + (" beyond 2^63" if sum(here) >= 2**63 else "")
        yield _member(claim, name, 1, draw, pairs=lambda pairs=pairs: pairs, law=law)


def _epochs(claim: Claim) -> Iterator[Claim]:
    """Yield epochs of other amounts, and of 200 queries, a third of which ends after the 64th."""
    long = (14,) * _MANY  # held against draws alone: laws at 1 are the claim's
    for epsilon, asked, moved, a_call in (
        (_EPSILONS[0], (2, 1, 0), (1, 0, 1), _MANY),
        (_EPSILONS[1], (1, 1, 0, 1), (0, 0, 1, 0), _MANY),
        (Fraction(1), long, long, _MANY),
        (Fraction(1), long, long, _A_CALL),
    ):
        e1, e2 = split_epoch(epsilon)
        if e1 + e2 > epsilon or min(e1, e2) <= 0:
            raise ValueError(f"An epoch of {epsilon} is split into {e1} and {e2}.")
        bar = stable_threshold(_DELTA, e1, e2)

        def outputs(
            queries: list[int], count: int, stream: RandomStream, made: Any = (bar, e1, e2, a_call)
        ) -> Floats:
            *how, a_call = made
            epochs = (SparseVector(*how, stream=stream.child(str(i))) for i in range(count))
            return np.array([_above(epoch, queries, a_call) for epoch in epochs], dtype=np.float64)

        pair = Pair("around the threshold", [bar + k for k in asked], [bar + k for k in moved])
        law = (room.lasting_law if len(asked) == _MANY else room.sparse_law)(bar, e1, e2)
        name = f"epsilon {float(epsilon):g}, {len(asked)} queries"
        name += f", {a_call} a call" if a_call < len(asked) else ""
        yield replace(
            claim, name=f"{claim.name}[{name}]", epsilon=epsilon,
            pairs=lambda pair=pair: (pair,), law=law, search=None,
            outputs=outputs, run=lambda queries, stream, outputs=outputs: outputs(queries, 1, stream)[0],
        )  # fmt: skip


def _above(epoch: SparseVector, queries: list[int], a_call: int) -> int:
    """Return how many queries, so many a call, are above until the first that is not."""
    told = 0
    for start in range(0, len(queries), a_call):
        if not epoch.open:
            break
        told += sum(epoch.above_many(queries[start : start + a_call]))
    return told


def _released(claim: Claim) -> Iterator[Claim]:
    """Yield releases of many cells at amounts of their own, as many at once as make so many numbers."""

    def laplace(statistic: Statistic, amount: Any, stream: RandomStream) -> Any:
        return laplace_release(statistic, amount, stream=stream)

    def in_l1(statistic: Statistic, amount: Any, stream: RandomStream) -> Any:
        return laplace_release(statistic, amount, l1_sensitivity=1.0, stream=stream)

    def gaussian(statistic: Statistic, amount: Any, stream: RandomStream) -> Any:
        return gaussian_release(statistic, amount, stream=stream)

    def whole(release: Callable[..., Any], amount: Any) -> Callable[..., Any]:
        def draw(value: Any, size: int, stream: RandomStream) -> Floats:
            statistic = Statistic(value, _STEP, 1.0, "audit")
            times = range(-(-size // value.size))
            return np.concatenate([release(statistic, amount, stream.child(str(i))) for i in times])[:size]

        return draw

    made = (laplace, in_l1) if claim.name == "mechanisms.laplace_release" else (gaussian,)
    amounts = _EPSILONS if len(made) == 2 else (Fraction(1, 5), Fraction(30))
    for cells, release, amount in product(_CELLS, made, amounts):
        pairs = (Pair(f"{cells} cells", np.zeros(cells, dtype=np.int64), None),)
        what = f"{cells} cells, {float(amount):g}, {release.__name__}"
        yield _member(claim, what, claim.epsilon, whole(release, amount), pairs=lambda pairs=pairs: pairs)


def _supports(claim: Claim) -> Iterator[Claim]:
    """Yield draws of supports, more than 64 of them."""
    mechanism = claim.name.split(".")[1]
    for columns, size, epsilon in ((13, 2, Fraction(1)), (9, 4, _EPSILONS[0]), (9, 4, _EPSILONS[1])):

        def asked(rows: Rows, size: int = size, epsilon: Fraction = epsilon) -> tuple[Any, ...]:
            problem = SubsetProblem(rows.X, rows.y, size, ridge=0.0, feature_bound=1.0, target_bound=1.0)
            return problem, mechanism, epsilon, "replace_one"

        def outputs(rows: Rows, count: int, stream: RandomStream, asked: Any = asked) -> Floats:
            return np.array(draw(*asked(rows), random_state=stream, size=count), dtype=np.float64)

        def known(rows: Rows, asked: Any = asked) -> Law:
            return nearly({tuple(map(float, s)): p for s, p in law(*asked(rows)).items()}, _LAWS)

        pairs = tuple(neighbours.pairs(neighbours.table(12, columns), "replace_one")[:1])
        name = f"{math.comb(columns, size)} supports, epsilon {float(epsilon):g}"
        yield _member(claim, name, epsilon, outputs, law=known, pairs=lambda pairs=pairs: pairs)


#: Claim -> its members.
MEMBERS: dict[str, Callable[[Claim], Iterator[Claim]]] = {
    "mechanisms.discrete_laplace": _laplaces,
    "mechanisms.discrete_gaussian": lambda claim: _noises(claim, "discrete_gaussian"),
    "mechanisms.rounded_gaussian": lambda claim: _noises(claim, "rounded_gaussian"),
    "mechanisms.weighted_choice": _choices,
    "mechanisms.sparse_vector": _epochs,
    "mechanisms.laplace_release": _released,
    "mechanisms.gaussian_release": _released,
    **{f"selection.{name}.replace_one": _supports for name in ("exponential", "permute_and_flip", "top_r")},
}


def members(claim: Claim) -> tuple[Claim, ...]:
    """Return a mechanism with other sizes and amounts; not registered, and none for other claims."""
    return tuple(MEMBERS[claim.name](claim)) if claim.name in MEMBERS else ()


def exactly(claim: Claim, found: Finding | None) -> Finding | None:
    """Return what the exact layer found of a claim, joined with the laws of its members."""
    if found is None:
        return None
    for member in members(claim):
        assert member.law is not None
        for pair in (pair for pair in member.pairs() if pair.here != pair.there):
            one, other = member.law(pair.here), member.law(pair.there)
            found = replace(found, tried=found.tried + 1)
            passed = any(excess(*s, member.epsilon)[0] > member.delta for s in ((one, other), (other, one)))
            if passed and found.verdict is Verdict.HOLDS:
                note = f"{member.name}: {pair.name} costs more"
                found = replace(found, verdict=Verdict.BROKEN, note=note)
    return found


def drawn(claim: Claim, found: Finding | None, count: int, stream: RandomStream) -> Finding | None:
    """Return what draws of a claim showed, joined with those of its members."""
    count = count // _SHARE if claim.name.startswith("mechanisms.") else 2 * count
    return _joined(
        found,
        (
            blackbox.fit(member, next(iter(member.pairs())), count, stream.child(member.name))
            for member in members(claim)
            if found is not None
        ),
    )


def noised(claim: Claim, found: Finding | None, stream: RandomStream, *, full: bool) -> Finding | None:
    """Return what the noise of a claim showed, joined with that of its members."""
    if found is None:
        return None
    share = _EPOCHS if claim.name == "mechanisms.sparse_vector" else _SHARE
    some = (replace(m, draws=claim.draws // share, quick=claim.quick // share) for m in members(claim))
    pairs = ((member, next(iter(member.pairs()))) for member in some)
    return _joined(
        found, (noise.check(member, pair, stream.child(member.name), full=full) for member, pair in pairs)
    )


def _joined(found: Finding | None, others: Iterator[Finding | None]) -> Finding | None:
    """Return one finding: the least p-value, times how many there are."""
    told = [found, *others] if found is not None else []
    known = [one for one in told if one is not None]
    if found is None or len(known) == 1:
        return found
    tried = sum(one.tried for one in known)
    return replace(found, tried=tried, p_value=min(1.0, len(known) * min(one.p_value for one in known)))
