"""What answers cost together, and what one may cost.

Answers are asked adaptively, at one epsilon and delta each. By Kairouz, Oh & Viswanath 2015 (theorem 3.3;
adaptivity by Murtagh & Vadhan 2016) Q runs of an (eps, delta_0)-DP mechanism are, for every slack d, exactly

    (compose(eps, Q, d), 1 - (1 - delta_0)^Q (1 - d))-DP.

Where epsilon itself is chosen adaptively use `confide.privacy.ZCDPFilter` or `RDPFilter`.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from confide.errors import ParameterError
from confide.prediction.laws import Release, small_delta, whole
from confide.privacy import Adjacency, Event, Guarantee, compose, exact, split
from confide.privacy.exact import Amount


@dataclass(frozen=True)
class Answers:
    """The cost of a number of answers together.

    Attributes
    ----------
    epsilon : Fraction
    delta : Fraction
    event : Event
    """

    epsilon: Fraction
    delta: Fraction
    event: Event

    def guarantee(
        self, adjacency: Adjacency | str, unit: str = "row", assumptions: tuple[str, ...] = ()
    ) -> Guarantee:
        """Return the guarantee under one adjacency."""
        return Guarantee(self.epsilon, self.delta, adjacency, unit, self.event, assumptions)


def answers(release: Release, count: int, delta: Amount = 0) -> Answers:
    """Return the cost of `count` answers by one release.

    Parameters
    ----------
    release : Release
    count : int
        Q >= 1.
    delta : amount
        Slack d of the composition, in [0, 1); 0 adds epsilons.

    Returns
    -------
    Answers

    Examples
    --------
    >>> from confide.prediction.response import response_law
    >>> round(float(answers(response_law("0.204", 2), 100, 1e-5).epsilon), 2)
    9.99
    """
    number, slack = whole(count, "count", 1), small_delta(delta)
    epsilon = exact(compose(release.epsilon, number, slack), "epsilon")
    return Answers(epsilon, _total_delta(release.delta, number, slack), release.event.times(number))


def per_answer(epsilon: Amount, delta: Amount, count: int, *, each_delta: Amount = 0) -> float:
    """Return the epsilon of each of `count` answers within a total (epsilon, delta), rounded down.

    Parameters
    ----------
    epsilon, delta : amount
        Total.
    count : int
        Q >= 1.
    each_delta : amount
        delta_0 of each answer; what it leaves of the total is the slack of the composition.

    Raises
    ------
    ParameterError
        If the answers' own deltas exceed the total.

    Examples
    --------
    >>> round(per_answer(10, 1e-5, 100), 3)
    0.204
    """
    number, total = whole(count, "count", 1), small_delta(delta)
    own = small_delta(each_delta, name="each_delta")
    used = min(Fraction(1), number * own)
    if used > total:
        raise ParameterError(
            f"The answers' own deltas add up to {float(used):.3g}, above the 'delta' of {float(total):.3g}.",
            "Pass a smaller 'each_delta'.",
        )
    return split(epsilon, total - used, number)


def _total_delta(each: Fraction, count: int, slack: Fraction) -> Fraction:
    """Return at least 1 - (1 - each)^count (1 - slack), with 1 - (1 - each)^count <= count each.

    The power would have count times the digits; the difference is below (count each)^2 / 2.
    """
    own = min(Fraction(1), count * each)
    return own + slack * (1 - own)
