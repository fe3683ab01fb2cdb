"""What answers cost together, and what one may cost.

Answers are asked adaptively, at one epsilon and delta each. By Kairouz, Oh & Viswanath 2015 (theorem 3.3;
adaptivity by Murtagh & Vadhan 2016) Q runs of an (eps, delta_0)-DP mechanism are, for every slack d, exactly

    (compose(eps, Q, d), 1 - (1 - delta_0)^Q (1 - d))-DP.

Where epsilon itself is chosen adaptively use `confide.privacy.ZCDPFilter` or `RDPFilter`.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

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
    return _split(exact(epsilon, "epsilon"), total - used, number)


@lru_cache(maxsize=256)
def _split(epsilon: Fraction, slack: Fraction, count: int) -> float:
    """Return `split`, which takes a second at a count of 100,000."""
    return split(epsilon, slack, count)


@dataclass(frozen=True)
class Terms:
    """What each answer spends, and the slack of their composition.

    Attributes
    ----------
    epsilon : amount
    slack : amount
    """

    epsilon: Amount
    slack: Amount


def terms_of(
    count: int, epsilon: Amount | None, delta: Amount, slack: Amount, total: tuple[Amount, Amount] | None
) -> Terms:
    """Return the terms of answers from those of one, or from their total.

    Parameters
    ----------
    count : int
        Answers, or epochs.
    epsilon, delta, slack : amount
        Of one answer; of the composition.
    total : pair of amounts, optional
        (epsilon, delta) of all: what the answers' own deltas leave of its delta is the slack.

    Raises
    ------
    ParameterError
        Unless either `epsilon` or `total` is given; for a slack beside a total.
    """
    if total is None:
        if epsilon is None:
            raise ParameterError(
                "Neither 'epsilon' nor 'total' is given.",
                "Pass epsilon, of one answer, or total=(epsilon, delta), of all together.",
            )
        return Terms(epsilon, slack)
    if epsilon is not None or small_delta(slack, name="slack"):
        name = "epsilon" if epsilon is not None else "slack"
        raise ParameterError(f"Both '{name}' and 'total' are given.", f"Leave '{name}' out: it follows.")
    try:
        all_epsilon, all_delta = total
    except (TypeError, ValueError):
        raise ParameterError(f"The 'total' parameter is {total!r:.80}.", "Pass (epsilon, delta).") from None
    each = per_answer(all_epsilon, all_delta, count, each_delta=delta)
    left = small_delta(all_delta) - count * small_delta(delta)
    # Past the largest epsilon of an answer there is nothing to buy.
    return Terms(min(each, 1000.0), left)


def _total_delta(each: Fraction, count: int, slack: Fraction) -> Fraction:
    """Return at least 1 - (1 - each)^count (1 - slack), with 1 - (1 - each)^count <= count each.

    The power would have count times the digits; the difference is below (count each)^2 / 2.
    """
    own = min(Fraction(1), count * each)
    return own + slack * (1 - own)
