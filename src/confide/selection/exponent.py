"""The exponent of a law: epsilon per unit of score, after everything that the computation costs.

Computed scores, rounded up to their public grid, lie within [F - delta, F - delta + tau] of the true ones
(`problem.most_rows`), so a record moves a computed score by a number in [-tau, M + tau], up to a part that is
the same for every support: a range of M + 2 tau. So does the score of
`top_r` (`confide.selection.listed`), and that of `mistakes` where the gap condition holds
(`confide.selection.gap`).

- ADD_REMOVE_ONE: eta = eps / (M + 2 tau), for every mechanism (a monotone score: McSherry & Talwar 2007;
  McKenna & Sheldon 2020, section 3.2).
- REPLACE_ONE: the range is twice as wide, eta = eps / (2 (M + 2 tau)). REPLACE_PRIVATE_PART and REPLACE_LABEL
  are special cases of it.

Float slack. The draw realises its law up to a factor exp(+-2 kappa) at every outcome, which costs 4 kappa
(`confide.mechanisms.choice_cost`); eta uses epsilon less that. The parts of kappa:

- a weight e_t of p terms: sums and products of positive numbers, at most 4 roundings a term and level of the
  tree, and exp and log with at most 4 units each: 32 (p + 64) (size + 1) units, walks included;
- rounding of logarithms. Log-weights of columns are at most LARGEST eta M (bounders see to it), scores differ
  by at most n M: fewer than 2^19 epsilon nats in all for n <= 2^20, rounded at most 2^7 times on the way from
  a table to a decision (20 levels of a tree, a sum of `size`, the acceptance): 2^(19 + 7 - 53) epsilon.

`top_r` and `mistakes` draw by `confide.mechanisms.weighted_choice`, which adds no error to the logarithms it
is given: eta times a difference of scores, rounded twice, plus the logarithm of an integer below 2^p, wrong
by at most 4 units of p, and one more rounding of the sum. Together below the same kappa.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from confide.errors import ParameterError, UnsupportedError
from confide.mechanisms import choice_cost
from confide.privacy import Adjacency, exact
from confide.selection.problem import SubsetProblem, check_rows

MECHANISMS = ("exponential", "permute_and_flip", "top_r", "mistakes")


def check_mechanism(mechanism: Any) -> str:
    """Return the mechanism's name.

    Raises
    ------
    ParameterError
    """
    if isinstance(mechanism, str) and mechanism in MECHANISMS:
        return mechanism
    raise ParameterError(
        f"The 'mechanism' parameter is {mechanism!r:.80}.", f"Pass one of {', '.join(map(repr, MECHANISMS))}."
    )


def slack(problem: SubsetProblem, epsilon: Fraction) -> Fraction:
    """Return kappa: the draw's law is within exp(+-2 kappa) of the intended one at every support."""
    units = 32 * (problem.p + 64) * (problem.size + 1)
    return Fraction(units, 2**53) + epsilon / 2**27


def exponent(problem: SubsetProblem, mechanism: str, epsilon: Any, adjacency: Adjacency | str) -> float:
    """Return eta, the exponent per unit of computed score, rounded down.

    Raises
    ------
    ParameterError
        For an unknown mechanism or adjacency, and for an epsilon that is not positive and finite.
    UnsupportedError
        Where epsilon is so small that float slack would use more than a thousandth of it; for more rows than
        the rounding proof covers, unless their number is secret.
    """
    check_mechanism(mechanism)
    relation = Adjacency.parse(adjacency)
    if relation is not Adjacency.ADD_REMOVE_ONE:
        check_rows(problem.size, problem.n)
    amount = exact(epsilon, "epsilon")
    if amount == 0:
        raise ParameterError("The 'epsilon' parameter is 0.", "Pass a positive epsilon.")
    cost = choice_cost(slack(problem, amount))
    if cost * 1000 > amount:
        raise UnsupportedError(
            f"The 'epsilon' parameter is {epsilon!r}: rounding would use a thousandth of it.",
            "Pass a larger epsilon, or fewer columns.",
        )
    width = problem.record_range + 2 * problem.tau
    factor = 1 if relation is Adjacency.ADD_REMOVE_ONE else 2
    return float((amount - cost) / (factor * Fraction(width))) * (1 - 2.0**-50)
