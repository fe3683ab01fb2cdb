"""Members of the families of selection whose input is the law that a sampler realises, choice by choice.

`replay` takes a draw of a support for one from the law that `confide.selection.law` tells, and draws that
are counted show what is frequent alone. Here the sampler is walked: each of its choices among finitely many
things is answered by every one of them in turn, and the probabilities along a path multiply to that of its
support. A support is then drawn from this law by `weighted_choice`, whose log-ratios replay holds against
epsilon.

==================================  ======================================================================
edge case                           what happens
==================================  ======================================================================
a thing of probability 0            not followed
a sampler that rejects proposals    not walked: its choices have no end (`exponential`, `permute_and_flip`)
an outcome that no path has         of weight 0
==================================  ======================================================================
"""

from __future__ import annotations

import inspect
import math
from collections import defaultdict
from collections.abc import Callable, Iterator
from functools import partial
from itertools import combinations
from typing import Any

import numpy as np

from confide.audit.family.selection import far
from confide.audit.family.variant import Families, Variant
from confide.audit.neighbours import Rows
from confide.audit.recorded import Mechanism
from confide.audit.registry import Floats, Pair, Run
from confide.audit.replay import Recorder, recording
from confide.mechanisms import RandomStream, seeded_stream, weighted_choice
from confide.selection import SubsetProblem, draw
from confide.selection.baselines import LassoVotes, baseline

Support = tuple[int, ...]
#: Further lists of one relation: half of the columns, R and epsilon.
_LISTS = ((1, 2, 1), (3, 5, 1), (2, 4, 8), (2, 4, 0.1))
#: Draws one support for a problem.
Sampler = Callable[[SubsetProblem, RandomStream], Support]


class Path(Recorder):
    """Answers choices along a path: by its numbers, and beyond its end by the first of what there is."""

    def __init__(self) -> None:
        super().__init__()
        self.taken: list[int] = []
        self._widths: list[int] = []
        self.log_mass = 0.0

    def begin(self) -> None:
        """Begin at the root."""
        self._widths, self.log_mass = [], 0.0

    def advance(self) -> bool:
        """Go on to the next path, in order; False after the last one."""
        while self.taken and self.taken[-1] + 1 >= self._widths[len(self.taken) - 1]:
            self.taken.pop()
        if self.taken:
            self.taken[-1] += 1
        return bool(self.taken)

    def call(
        self, mechanism: Mechanism, run: Callable[..., Any], args: Any, named: Any, extra: Any = None
    ) -> Any:
        """Answer a choice; let every other function run."""
        answer = _ANSWERS.get(mechanism.name)
        if answer is None:
            return run(*args, **named)
        bound = inspect.signature(run).bind(*args, **named)
        bound.apply_defaults()
        return answer(self, bound.arguments)

    def pick(self, logs: Floats) -> int:
        """Return the place that the path takes among things with these logarithms of weights."""
        able, depth = np.flatnonzero(logs > -math.inf), len(self._widths)
        self._widths.append(able.size)
        if depth == len(self.taken):
            self.taken.append(0)
        place = int(able[self.taken[depth]])
        top = float(logs.max())
        self.log_mass += float(logs[place]) - top - math.log(np.exp(logs - top).sum())
        return place


def _weighted(path: Path, given: dict[str, Any]) -> Any:
    logs = given["log_weights"]
    if logs is None:
        with np.errstate(divide="ignore"):
            logs = np.log(np.array([float(weight) for weight in given["weights"]]))
    place, size = path.pick(np.asarray(logs, dtype=np.float64)), given["size"]
    return place if size is None else np.full(size, place, dtype=np.int64)


def _uniform(path: Path, given: dict[str, Any]) -> Any:
    return np.full(given["count"], path.pick(np.zeros(given["total"])), dtype=np.uint64)


_ANSWERS: dict[str, Callable[[Path, dict[str, Any]], Any]] = {
    "weighted_choice": _weighted,
    "uniform_integers": _uniform,
}


def realised(sampler: Sampler, problem: SubsetProblem) -> dict[Support, float]:
    """Return the probability of each support that a sampler's choices lead to, from the whole tree of them.

    Parameters
    ----------
    sampler : function (problem, stream) -> support
        Makes finitely many choices, of one thing each.
    problem : SubsetProblem
    """
    law: dict[Support, float] = defaultdict(float)
    path, more, stream = Path(), True, seeded_stream(0)
    with recording(path):
        while more:
            path.begin()
            support = sampler(problem, stream)
            law[tuple(map(int, support))] += math.exp(path.log_mass)
            more = path.advance()
    return dict(law)


def _walked(sampler: Sampler, size: int) -> Run:
    """Return a run that draws one support from the law that a sampler realises."""

    def run(rows: Rows, stream: RandomStream) -> Floats:
        problem = SubsetProblem(rows.X, rows.y, size, ridge=0.0, feature_bound=1.0, target_bound=1.0)
        law = realised(sampler, problem)
        supports = list(combinations(range(problem.p), size))
        with np.errstate(divide="ignore"):
            logs = np.log(np.array([law.get(support, 0.0) for support in supports]))
        return np.array(supports[weighted_choice(log_weights=logs, stream=stream)], dtype=np.float64)

    return run


def _listed(top: int | None, epsilon: float, relation: str) -> Sampler:
    def sampler(problem: SubsetProblem, stream: RandomStream) -> Support:
        return draw(problem, "top_r", epsilon, relation, top=top, random_state=stream)[0]

    return sampler


def _other(method: Any, epsilon: float) -> Sampler:
    def sampler(problem: SubsetProblem, stream: RandomStream) -> Support:
        return baseline(problem, method, epsilon, "replace_one", random_state=stream).supports[0]

    return sampler


def _one(pair: Callable[[], Pair]) -> Callable[[], list[Pair]]:
    return lambda: [pair()]


def _lists(relation: str) -> Iterator[Variant]:
    """Yield `top_r` by lists that end at the best columns, among the others and before the last.

    Of a table for supports of `half` columns as many fit few rows, as many fit many, and the last none: of
    single columns the first kind is rarely drawn, and a list that ends there leaves a tail as rare.
    """
    lists = ((2, 4, 1), (2, 3, 1), *(() if relation == "add_remove_one" else _LISTS))
    for half, top, epsilon in lists:
        more: Any = {"few": 300, "many": 600} if epsilon < 1 else {}
        yield Variant(
            f"walked, {relation}, top {top} of {2 * half + 1}, epsilon {epsilon}",
            _walked(_listed(top, epsilon, relation), 1),
            _one(partial(far, relation, half, **more)),
            relation,
            epsilon,
        )


def _peeled(method: Any, size: int, epsilon: float = 1) -> Variant:
    run, pair = _walked(_other(method, epsilon), size), partial(far, "replace_one", size, few=20, many=40)
    return Variant(f"walked, {method}, size {size}, epsilon {epsilon}", run, _one(pair), epsilon=epsilon)


def _voted(size: int, blocks: int, epsilon: float) -> Variant:
    """Return votes of which one turns from a column that no other block votes for to that of all others."""

    def pair() -> Pair:
        X = np.tile([0.0, 1.0, 0.0, 0.0], (3 * blocks, 1))
        X[0::blocks] = 0.0
        base, (first, other) = Rows(X, np.ones(3 * blocks)), np.eye(4)[:2]
        return Pair("a block's vote turns", base.replaced(first, 1.0), base.replaced(other, 1.0))

    run = _walked(_other(LassoVotes(blocks=blocks), epsilon), size)
    return Variant(
        f"walked, LassoVotes(blocks={blocks}), size {size}, epsilon {epsilon}",
        run,
        _one(pair),
        epsilon=epsilon,
    )


FAMILIES: Families = {
    **{f"selection.top_r.{each}": tuple(_lists(each)) for each in ("replace_one", "add_remove_one")},
    "selection.enumeration": (_peeled("enumeration", 1), _peeled("enumeration", 2)),
    "selection.screening": (_peeled("screening", 1), _peeled("screening", 2, 8), _peeled("screening", 3)),
    "selection.lasso_votes": (_voted(1, 2, 1), _voted(2, 5, 4)),
}  # fmt: skip
