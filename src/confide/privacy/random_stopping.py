"""Private selection by random stopping: run a private mechanism a secret number of times, show the best run.

Each run Q picks a candidate at random, fits it and scores it; its output is (candidate, model, score). The
number of runs K is drawn from a truncated negative binomial law (eta > -1, 0 < gamma <= 1), k = 1, 2, ...,

    P(K = k) proportional to (1 - gamma)^k (eta)(eta + 1)...(eta + k - 1) / k!  (logarithmic law for eta = 0),

and the run of the highest score is the whole output. eta = 1 is the geometric law of Liu & Talwar 2019.

Theorem. Let delta_Q(e) be the privacy profile of Q: P(Q in S) <= exp(e) P(Q' in S) + delta_Q(e) for all S
and all ordered pairs of neighbours. If e1 >= 0 has exp(e1) >= 1 + (1/gamma - 1) delta_Q(e1), then for all
e >= 0

    delta(e + (1 + eta) e1) <= E[K] delta_Q(e).

Proof. With F(x) = E[x^K], a total preorder by scores and ties settled by the first of the tied runs,
P(y) = Q(y) / Q(T) (F(Q(<= T)) - F(Q(< T))), T the class of outputs tied with y (given that the best class
is T, the first run in it has the law of Q on T). That is P(y) = Q(y) E_U F'(q), q = Q(< T) + U Q(T), U
uniform. For this law F'(x) = E[K] (gamma / (1 - (1 - gamma) x))^(1 + eta), so that with a = 1 - q, the
probability of a randomised upper set of outputs, F'(q) / F'(q') = ((gamma + (1 - gamma) a') / (gamma + (1 -
gamma) a))^(1 + eta), and a' <= exp(e1) a + delta_Q(e1) makes the ratio in the bracket at most exp(e1) by
the choice of e1. Hence P'(y) = Q'(y) E_U F'(q') >= Q'(y) exp(-(1 + eta) e1) E_U F'(q), and

    P(y) - exp(e + (1 + eta) e1) P'(y) <= E_U F'(q) (Q(y) - exp(e) Q'(y)),    F'(q) <= F'(1) = E[K].

Sum the positive parts over y. (Sums become integrals for general outputs.)  QED

For pure epsilon the smallest e1 is log((1 + E + g E) / (1 + E + g)), E = e^epsilon, g = 1/gamma - 1: less
than epsilon, so the cost is below the (2 + eta) epsilon of Papernot & Steinke 2022 (corollary 3), and
epsilon itself for one run. For Gaussian runs the profile is the exact curve of Balle & Wang, and e1 is far
below epsilon: candidates that are seldom the best are paid for at a low price. Renyi divergences are those
of Papernot & Steinke, theorem 2.

Parts of the event are mechanisms on disjoint units (a fit and its score on held-out units): one unit is in
one of them, and the costlier one counts. The number of runs that were made is secret, and so are all runs
but the best; the time that they take is not protected.

===============================  =====================================================================
edge case                        what happens
===============================  =====================================================================
gamma = 1                        one run, at the price of one run
delta of a run of 0              pure epsilon, total pure too
expected runs of 10^6            allowed; delta is multiplied by it
eta <= -1, gamma 0, above 1      ParameterError
===============================  =====================================================================

References
----------
Liu & Talwar, "Private selection from private candidates", STOC 2019. Papernot & Steinke, "Hyperparameter
tuning with Renyi differential privacy", ICLR 2022. The theorem is of the kind of Koskela, Redberg & Wang,
"Privacy profiles for private selection", ICML 2024.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from confide.errors import ParameterError
from confide.privacy.event import RANDOM_STOPPING, Event
from confide.privacy.exact import Amount, exact, round_up
from confide.privacy.gaussian import gaussian_delta

#: Maps epsilon >= 0 to an upper bound on delta.
Profile = Callable[[float], float]
#: Most expected runs.
MOST_RUNS = 10**6
_UP = 1.0 + 1e-12


@dataclass(frozen=True)
class Stopping:
    """The law of the number of runs.

    Attributes
    ----------
    eta : Fraction
        Shape in (-1, 1]; 0 is the logarithmic law, 1 the geometric.
    gamma : Fraction
        In (0, 1]; 1 is one run.
    """

    eta: Fraction
    gamma: Fraction

    def __post_init__(self) -> None:
        if not (-1 < self.eta <= 1 and 0 < self.gamma <= 1):
            raise ParameterError(
                f"The law of the number of runs has eta = {self.eta} and gamma = {self.gamma}.",
                "Pass -1 < eta <= 1 and 0 < gamma <= 1.",
            )

    @classmethod
    def of_event(cls, event: Event) -> Stopping:
        """Return the law that an event's parameters name."""
        values = []
        for name in ("eta", "gamma"):
            value = event.get(name)
            try:
                if isinstance(value, bool) or not isinstance(value, int | str):
                    raise ValueError
                values.append(Fraction(value))
            except (ValueError, ZeroDivisionError):
                raise ParameterError(
                    f"The {name!r} of a random-stopping event is {value!r:.80}.", "Pass a rational number."
                ) from None
        return cls(*values)

    def event(self, *parts: Event) -> Event:
        """Describe a selection whose runs do `parts`, each to units of its own."""
        parameters = (("eta", str(self.eta)), ("gamma", str(self.gamma)))
        return Event(RANDOM_STOPPING, parameters, 1, parts)

    @property
    def mean(self) -> float:
        """E[K], rounded up."""
        g, eta = float(self.gamma), float(self.eta)
        if self.gamma == 1:
            return 1.0
        if g == 1:  # gamma within half an ulp of 1
            return 1.0 + 1e-9
        if eta == 0:
            value = (1 - g) / (g * -math.log(g))
        else:
            value = eta * (1 - g) / (g * -math.expm1(eta * math.log(g)))
        return max(1.0, value * (1 + 1e-9))

    def probability(self, k: int) -> float:
        """P(K = k), k >= 1, in floating point."""
        g, eta = float(self.gamma), float(self.eta)
        if g == 1:
            return float(k == 1)
        first = (1 - g) / -math.log(g) if eta == 0 else eta * (1 - g) / math.expm1(-eta * math.log(g))
        return first * math.prod((1 - g) * (j + eta) / (j + 1) for j in range(1, k))

    def acceptance(self, k: int) -> Fraction:
        """Return prod_{j < k} (j + eta) / (j + 1), exact: accepting geometric proposals so gives this law."""
        value = Fraction(1)
        for j in range(1, k):
            value *= (j + self.eta) / (j + 1)
        return value

    def widening(self, profile: Profile) -> float:
        """Return (1 + eta) e1, rounded up, e1 the smallest that the theorem allows (to 1e-9)."""
        if self.gamma == 1:
            return 0.0
        g = float((1 - self.gamma) / self.gamma) * _UP

        def allowed(e: float) -> bool:
            return math.expm1(e) >= g * profile(e) * _UP

        low, high = 0.0, 1.0
        while not allowed(high):
            low, high = high, 2 * high
            if high > 1e3:
                return math.inf
        while high - low > 1e-10 + 1e-10 * high:
            middle = (low + high) / 2
            low, high = (low, middle) if allowed(middle) else (middle, high)
        return (1 + float(self.eta)) * high * _UP

    def delta(self, epsilon: float, profile: Profile) -> float:
        """Return a bound on delta of the whole selection at `epsilon`, for runs of this profile."""
        left = epsilon - self.widening(profile)
        return min(1.0, self.mean * profile(left * (1 - 1e-15)) * _UP) if left >= 0 else 1.0

    def pure(self, epsilon: Fraction) -> Fraction:
        """Return the total pure epsilon for runs that are epsilon-DP, rounded up; for one run epsilon."""
        if self.gamma == 1 or epsilon == 0:
            return epsilon
        return epsilon + round_up(self.widening(pure_profile(epsilon)), digits=12)

    def approximate(self, epsilon: Fraction, delta: Fraction) -> tuple[Fraction, Fraction]:
        """Return the total (epsilon, delta) for runs that are (epsilon, delta)-DP, rounded up."""
        if delta == 0:
            return self.pure(epsilon), delta
        if self.gamma == 1:
            return epsilon, delta
        widening = self.widening(pure_profile(epsilon, delta))
        if not math.isfinite(widening):
            return epsilon, Fraction(1)
        return epsilon + round_up(widening, digits=12), min(Fraction(1), delta * round_up(self.mean))

    def renyi(self, orders: np.ndarray, divergences: np.ndarray) -> np.ndarray:
        """Return Renyi divergences of the selection from those of a run (Papernot & Steinke, theorem 2).

        d(a) + (1 + eta) (1 - 1/b) d(b) + (1 + eta) log(1/gamma) / b + log E[K] / (a - 1), for the best b:
        one of the orders, or 1, where the second term is 0.
        """
        if self.gamma == 1:
            return divergences
        logs = -math.log(float(self.gamma)) * _UP
        others = np.append((1 - 1 / orders) * divergences + logs / orders, logs)
        own = (1 + float(self.eta)) * float(others.min())
        return (divergences + own + math.log(self.mean) / (orders - 1)) * _UP


def gaussian_profile(mu: float) -> Profile:
    """Return the profile of a Gaussian mechanism of sensitivity / sigma = `mu`, rounded up."""
    return lambda epsilon: gaussian_delta(epsilon, 1.0 / mu * (1 - 4e-16))


def pure_profile(epsilon: Fraction, delta: Fraction = Fraction(0)) -> Profile:
    """Return the profile of randomised response that fails with `delta`: it dominates (epsilon, delta)-DP."""
    top, lost = float(epsilon) * (1 + 4e-16), float(delta) * (1 + 4e-16)

    def profile(e: float) -> float:
        inside = max(0.0, -math.expm1(min(0.0, e - top))) / (1 + math.exp(-top))
        return min(1.0, (lost + (1 - lost) * inside) * (1 + 1e-14)) if e < top else lost

    return profile


def stopping(expected_runs: Amount, eta: Amount | Fraction = 0) -> Stopping:
    """Return the law of that shape with a mean just below `expected_runs`.

    Parameters
    ----------
    expected_runs : amount
        >= 1, at most 10^6.
    eta : amount
        In (-1, 1]; 0 and below have heavier tails, and are cheaper.

    Raises
    ------
    ParameterError
    """
    runs = exact(expected_runs, "expected_runs")
    if not 1 <= runs <= MOST_RUNS:
        raise ParameterError(
            f"The 'expected_runs' parameter is {expected_runs!r}.",
            f"Pass a number between 1 and {MOST_RUNS}.",
        )
    shape = Fraction(eta)
    low, high = 0, 1 << 60  # the mean falls as gamma grows: the smallest gamma of mean <= runs
    while high - low > 1:
        middle = (low + high) // 2
        if Stopping(shape, Fraction(middle, 1 << 60)).mean <= float(runs):
            high = middle
        else:
            low = middle
    return Stopping(shape, Fraction(high, 1 << 60))
