"""Draws of a baseline, its exact law for small problems, and what it guarantees."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Protocol

import numpy as np

from confide.errors import ParameterError
from confide.mechanisms.stream import RandomStream, is_certified
from confide.mechanisms.stream import stream as random_stream
from confide.privacy import SEEDED, UNRECORDED, Adjacency, Event, Guarantee, exact
from confide.privacy.guarantee import NONPRIVATE
from confide.selection.problem import SubsetProblem

Support = tuple[int, ...]
Amount = Fraction | float

#: The assumption of a finite Markov chain.
MIXED = "the chain has mixed"


class Method(Protocol):
    """Settings of a baseline: checked when made, they read no data until `draw` or `law`."""

    @property
    def name(self) -> str:
        """Name in tables."""
        ...

    def charge(
        self, problem: SubsetProblem, epsilon: Amount, adjacency: Adjacency
    ) -> tuple[Amount, Event, tuple[str, ...]]:
        """Return epsilon, event and assumptions of one release; raise what `draw` would refuse."""
        ...

    def draw(
        self, problem: SubsetProblem, epsilon: Any, adjacency: Adjacency, size: int, source: RandomStream
    ) -> list[Support]:
        """Draw `size` supports, one release each."""
        ...

    def law(self, problem: SubsetProblem, epsilon: Any, adjacency: Adjacency) -> dict[Support, float]:
        """Return the probability of every support."""
        ...


@dataclass(frozen=True)
class BaselineResult:
    """Supports drawn by a baseline.

    Attributes
    ----------
    method : str
    supports : tuple of sorted tuples of column numbers
        One release each.
    guarantee : Guarantee
        Of each release.
    """

    method: str
    supports: tuple[Support, ...]
    guarantee: Guarantee

    @property
    def label(self) -> str:
        """What the guarantee is worth: "pure", "approximate" (not certified) or "non-private"."""
        if NONPRIVATE in self.guarantee.assumptions:
            return "non-private"
        return "approximate" if MIXED in self.guarantee.assumptions else "pure"


def baseline(
    problem: SubsetProblem,
    method: str | Method,
    epsilon: Any,
    adjacency: Adjacency | str,
    *,
    random_state: int | RandomStream | None = None,
    size: int = 1,
) -> BaselineResult:
    """Draw supports with a method of others, for comparison.

    Parameters
    ----------
    problem : SubsetProblem
    method : str or settings object
        "markov_chain", "lasso_votes", "screening", "enumeration", "best_subset" with their default settings,
        or one of `confide.selection.baselines`, such as ``MarkovChain(steps=10**5)``.
    epsilon : amount
        Of each release; ``math.inf`` for "best_subset", and for it alone.
    adjacency : Adjacency or str
    random_state : None, int or RandomStream
        None draws from the operating system; anything else is for tests.
    size : int
        Independent releases.

    Returns
    -------
    BaselineResult

    Raises
    ------
    ParameterError
        For a parameter outside its domain, before any data is read.
    UnsupportedError
        For a relation or a size that the method does not cover.
    """
    if isinstance(size, bool) or not isinstance(size, int | np.integer) or size < 0:
        raise ParameterError(f"The 'size' parameter is {size!r:.80}.", "Pass the number of releases, >= 0.")
    chosen = _method(method)
    relation = Adjacency.parse(adjacency)
    amount = _amount(chosen, epsilon)
    source = random_stream(random_state)
    cost, event, assumptions = chosen.charge(problem, amount, relation)
    marks = (*assumptions, UNRECORDED) if is_certified(source) else (*assumptions, UNRECORDED, SEEDED)
    guarantee = Guarantee(cost, 0, relation, "row", event, marks)
    drawn = chosen.draw(problem, amount, relation, int(size), source)
    return BaselineResult(chosen.name, tuple(drawn), guarantee)


def baseline_law(
    problem: SubsetProblem, method: str | Method, epsilon: Any, adjacency: Adjacency | str
) -> dict[Support, float]:
    """Return the probability of every support under the law that `baseline` realises, by enumeration.

    Parameters
    ----------
    problem, method, epsilon, adjacency
        As for `baseline`.

    Returns
    -------
    dict of {sorted tuple of column numbers: probability}

    Raises
    ------
    ParameterError, UnsupportedError
        As `baseline`; past 200,000 supports (2,000 for a Markov chain).
    """
    chosen = _method(method)
    relation = Adjacency.parse(adjacency)
    amount = _amount(chosen, epsilon)
    chosen.charge(problem, amount, relation)
    return chosen.law(problem, amount, relation)


def _amount(method: Method, epsilon: Any) -> Amount:
    """Return epsilon: infinite for a method that is not private, positive and finite for the others."""
    infinite = isinstance(epsilon, float) and epsilon == math.inf
    if method.name == "best_subset":
        if not infinite:
            raise ParameterError(
                f"The 'epsilon' parameter is {epsilon!r:.80}; best subset selection is not private.",
                "Pass math.inf, to say that no privacy is asked.",
            )
        return math.inf
    amount = exact(epsilon, "epsilon")
    if amount == 0:
        raise ParameterError("The 'epsilon' parameter is 0.", "Pass a positive epsilon.")
    return amount


def _method(method: str | Method) -> Method:
    from confide.selection.baselines.chain import MarkovChain
    from confide.selection.baselines.reference import BestSubset, Enumeration
    from confide.selection.baselines.screening import Screening
    from confide.selection.baselines.votes import LassoVotes

    known: dict[str, type[Any]] = {
        made.name: made for made in (MarkovChain, LassoVotes, Screening, Enumeration, BestSubset)
    }
    if isinstance(method, str):
        if method in known:
            return known[method]()
    elif isinstance(method, tuple(known.values())):
        return method
    raise ParameterError(
        f"The 'method' parameter is {method!r:.80}.",
        f"Pass one of {', '.join(map(repr, known))}, or an object of confide.selection.baselines.",
    )
