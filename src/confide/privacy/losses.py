"""What one run of a mechanism costs under each calculus, one handler a mechanism.

A handler returns a `Loss`: a bound under every calculus for which one is known, None elsewhere. Composition
is not done here: the accountants add the losses of a multiset of events, so that a count cannot get lost
(a `count` did, in the randomised-response event of a well-known accountant).

===================== ============================================= =========================================
mechanism             parameters                                    guarantee of one run
===================== ============================================= =========================================
gaussian              noise_multiplier = sigma / L2 sensitivity     Balle-Wang curve; 1/(2 nm^2)-zCDP; the
                                                                    rounded Gaussian too (post-processing)
discrete_gaussian     noise_multiplier                              1/(2 nm^2)-zCDP only (CKS 2020, th. 4)
laplace               epsilon                                       eps; continuous Laplace of scale Delta/eps
discrete_laplace      epsilon                                       eps
pure                  epsilon                                       eps, any mechanism; eps^2/2-zCDP
exponential           epsilon                                       eps, range-bounded; eps^2/8-zCDP
permute_and_flip      epsilon                                       eps; eps^2/2-zCDP (not eps^2/8: F16)
top_r                 epsilon, top                                  as exponential: it is one, on other scores
                                                                    (proof in confide.selection.listed)
mistakes              epsilon                                       as exponential, on tables with the gap
                                                                    condition (confide.selection.gap)
randomized_response   epsilon, classes                              eps, with its own loss distribution
approximate           epsilon, delta                                (eps, delta)
response              epsilon, delta, classes                       an answer of confide.prediction: (eps,
                                                                    delta), pure eps where delta = 0
sparse_vector         epsilon, delta, threshold                     (eps, delta): an epoch of it
smooth_cauchy         epsilon                                       eps
smooth_laplace        epsilon, delta                                (eps, delta)
propose_test_release  epsilon, delta, classes                       (eps, delta)
group                 size; its parts                               size times a pure epsilon, size^2 times
                                                                    rho and mu^2 of the parts
poisson_gaussian      noise_multiplier, sampling_probability,       Gaussian noise on a Poisson-sampled sum;
                      adjacency                                     nm in units of the clip norm, for
                                                                    replacement the pair (c, -c)
random_stopping       eta, gamma; its parts                         the best of a random number of runs
                                                                    (`confide.privacy.random_stopping`)
===================== ============================================= =========================================

References
----------
Bun & Steinke 2016, proposition 1.4 (eps-DP is eps^2/2-zCDP). Cesar & Rogers 2021, lemma 3.4 (bounded range,
hence eps^2/8). Canonne, Kamath & Steinke 2020, theorem 4 (discrete Gaussian).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache
from typing import Any

import numpy as np

from confide.errors import ParameterError, UnsupportedError
from confide.privacy.adjacency import Adjacency
from confide.privacy.event import COMPOSED, RANDOM_STOPPING, Event
from confide.privacy.exact import exact
from confide.privacy.guarantee import group_amounts
from confide.privacy.random_stopping import Stopping

Orders = np.ndarray
Pld = Any


@dataclass(frozen=True)
class Loss:
    """Bounds on one run; each is None where no bound is known.

    Attributes
    ----------
    pure : Fraction
        Pure epsilon.
    approximate : (Fraction, Fraction)
        An (epsilon, delta) pair that holds at a fixed delta.
    rho : Fraction
        zCDP.
    mu_squared : Fraction
        GDP parameter squared, for mechanisms that are exactly Gaussian.
    renyi : callable
        Maps integer orders >= 2 to Renyi divergences.
    distribution : callable
        Maps (grid interval, count) to the privacy loss distribution of `count` runs, pessimistic.
    span : float
        Largest loss of one run that the distribution has to represent, for the choice of the grid.
    moments : (float, float)
        Mean and variance of the loss of one run, roughly: how the range grows under composition.
    """

    pure: Fraction | None = None
    approximate: tuple[Fraction, Fraction] | None = None
    rho: Fraction | None = None
    mu_squared: Fraction | None = None
    renyi: Callable[[Orders], np.ndarray] | None = None
    distribution: Callable[[float, int], Pld] | None = None
    span: float = 0.0
    moments: tuple[float, float] = (0.0, 0.0)


Handler = Callable[[Event], Loss]
_HANDLERS: dict[str, Handler] = {}


def handles(name: str) -> Callable[[Handler], Handler]:
    """Register the handler of a mechanism; a name may be taken once."""

    def register(handler: Handler) -> Handler:
        if name in _HANDLERS:
            raise ValueError(f"the mechanism {name!r} has a handler already")
        _HANDLERS[name] = handler
        return handler

    return register


def mechanisms() -> tuple[str, ...]:
    """Return the registered mechanism names, sorted."""
    return tuple(sorted(_HANDLERS))


def loss(event: Event) -> Loss:
    """Return the loss of one run of a primitive event (its count is ignored).

    Raises
    ------
    UnsupportedError
        For a mechanism without a handler; the message names it.
    """
    try:
        handler = _HANDLERS[event.mechanism]
    except KeyError:
        raise UnsupportedError(
            f"No cost is known for the mechanism {event.mechanism!r}.",
            f"Use one of {', '.join(mechanisms())}.",
        ) from None
    return handler(event)


def primitives(event: Event, factor: int = 1) -> Iterator[tuple[Event, int]]:
    """Yield the primitive events inside `event` with their total counts (zero counts left out)."""
    count = event.count * factor
    if count == 0:
        return
    if event.mechanism == COMPOSED:
        for part in event.parts:
            yield from primitives(part, count)
    else:
        yield Event(event.mechanism, event.parameters, 1, event.parts), count


def total_loss(event: Event, name: str) -> Fraction | None:
    """Return the sum over all parts of an additive loss (pure, rho, mu_squared); None where one has none."""
    total = Fraction(0)
    for primitive, count in primitives(event):
        amount = getattr(loss(primitive), name)
        if amount is None:
            return None
        total += amount * count
    return total


def _amount(event: Event, name: str) -> Fraction:
    value = event.get(name)
    if value is None or isinstance(value, bool):
        raise ParameterError(
            f"The event {event.mechanism!r} has no usable parameter {name!r}.", "Pass a finite number >= 0."
        )
    return exact(value, name)


def _multiplier(event: Event) -> Fraction:
    """Return the noise multiplier as the binary number that the sampler uses, not its decimal."""
    value = event.get("noise_multiplier")
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise ParameterError(
            f"The event {event.mechanism!r} has no usable 'noise_multiplier'.", "Pass a number >= 0."
        )
    if isinstance(value, float):
        if not (math.isfinite(value) and value >= 0):
            raise ParameterError(f"The 'noise_multiplier' is {value!r}.", "Pass a finite number >= 0.")
        return Fraction(value)
    return exact(value, "noise_multiplier")


def _relation(adjacency: Adjacency) -> Any:
    from dp_accounting.privacy_accountant import NeighboringRelation

    if adjacency is Adjacency.ADD_REMOVE_ONE:
        return NeighboringRelation.ADD_OR_REMOVE_ONE
    return NeighboringRelation.REPLACE_ONE


def _pld() -> Any:
    from dp_accounting.pld import privacy_loss_distribution

    return privacy_loss_distribution


def _pair(epsilon: Fraction, delta: Fraction) -> Callable[[float, int], Pld]:
    def distribution(interval: float, count: int) -> Pld:
        from dp_accounting.pld import common

        parameters = common.DifferentialPrivacyParameters(float(epsilon), float(delta))
        return _pld().from_privacy_parameters(parameters, interval).self_compose(count)

    return distribution


def _pure_renyi(epsilon: Fraction) -> Callable[[Orders], np.ndarray]:
    """Renyi divergence of binary randomised response, which dominates every eps-DP mechanism."""
    e = float(epsilon) * (1.0 + 2e-16)

    def renyi(orders: Orders) -> np.ndarray:
        # log of (e^(a e) + e^((1 - a) e)) / (1 + e^e), over a - 1; the large exponent is taken out.
        inside = np.log1p(np.exp((1.0 - 2.0 * orders) * e)) - math.log1p(math.exp(-e))
        value = ((orders - 1.0) * e + inside) / (orders - 1.0)
        return np.minimum(np.minimum(value, e), orders * e * e / 2.0)

    return renyi


def _pure(epsilon: Fraction, rho: Fraction) -> Loss:
    return Loss(
        pure=epsilon,
        approximate=(epsilon, Fraction(0)),
        rho=rho,
        renyi=_pure_renyi(epsilon),
        distribution=_pair(epsilon, Fraction(0)),
        span=float(epsilon),
        moments=_pair_moments(epsilon),
    )


def _pair_moments(epsilon: Fraction) -> tuple[float, float]:
    e = float(epsilon)
    return e * math.tanh(e / 2.0), e * e


@handles("pure")
@handles("smooth_cauchy")
def _pure_event(event: Event) -> Loss:
    epsilon = _amount(event, "epsilon")
    return _pure(epsilon, epsilon**2 / 2)


@handles("permute_and_flip")
def _permute_and_flip(event: Event) -> Loss:
    return _pure_event(event)


@handles("exponential")
def _exponential(event: Event) -> Loss:
    epsilon = _amount(event, "epsilon")
    return _pure(epsilon, epsilon**2 / 8)


@handles("top_r")
def _top_r(event: Event) -> Loss:
    return _exponential(event)


@handles("mistakes")
def _mistakes(event: Event) -> Loss:
    return _exponential(event)


@handles("laplace")
def _laplace(event: Event) -> Loss:
    epsilon = _amount(event, "epsilon")
    base = _pure(epsilon, epsilon**2 / 2)
    if epsilon == 0:
        return base

    def distribution(interval: float, count: int) -> Pld:
        single = _pld().from_laplace_mechanism(1.0 / float(epsilon), value_discretization_interval=interval)
        return single.self_compose(count)

    return replace(base, distribution=distribution)


@handles("discrete_laplace")
def _discrete_laplace(event: Event) -> Loss:
    # On a fine grid the pair is close to the continuous one; randomised response is always an upper bound.
    return _pure_event(event)


@handles("randomized_response")
def _randomized_response(event: Event) -> Loss:
    epsilon = _amount(event, "epsilon")
    classes = event.get("classes", 2)
    if not isinstance(classes, int) or isinstance(classes, bool) or classes < 2:
        raise ParameterError(
            f"The 'classes' of a randomized response is {classes!r}.", "Pass an integer >= 2."
        )
    base = _pure(epsilon, epsilon**2 / 2)

    def distribution(interval: float, count: int) -> Pld:
        flip = classes / (math.exp(float(epsilon)) + classes - 1.0)
        single = _pld().from_randomized_response(
            flip,
            classes,
            value_discretization_interval=interval,
            neighboring_relation=_relation(Adjacency.REPLACE_ONE),
        )
        return single.self_compose(count)

    return base if epsilon == 0 else replace(base, distribution=distribution)


@handles("approximate")
@handles("response")
@handles("sparse_vector")
@handles("smooth_laplace")
@handles("propose_test_release")
def _approximate(event: Event) -> Loss:
    epsilon, delta = _amount(event, "epsilon"), _amount(event, "delta")
    if delta == 0:
        return _pure(epsilon, epsilon**2 / 2)
    return _of_pair(epsilon, delta)


def _of_pair(epsilon: Fraction, delta: Fraction) -> Loss:
    """Return the loss of which nothing but a pair is known."""
    return Loss(
        approximate=(epsilon, delta),
        distribution=_pair(epsilon, delta),
        span=float(epsilon),
        moments=_pair_moments(epsilon),
    )


@handles("gaussian")
def _gaussian(event: Event) -> Loss:
    multiplier = _multiplier(event)
    return Loss() if multiplier == 0 else _of_mu_squared(1 / multiplier**2)


def _of_mu_squared(mu_squared: Fraction) -> Loss:
    """Return the loss of a Gaussian mechanism with (sensitivity / sigma)^2 = `mu_squared`."""
    mu = math.sqrt(float(mu_squared)) * (1.0 + 4e-16)

    def distribution(interval: float, count: int) -> Pld:
        deviation = 1.0 / (mu * math.sqrt(count)) * (1.0 - 4e-16)
        return _pld().from_gaussian_mechanism(deviation, value_discretization_interval=interval)

    return Loss(
        rho=mu_squared / 2,
        mu_squared=mu_squared,
        renyi=lambda orders: orders * float(mu_squared / 2) * (1.0 + 4e-16),
        distribution=distribution,
        span=mu * mu / 2.0 + 10.0 * mu,
        moments=(mu * mu / 2.0, mu * mu),
    )


@handles("discrete_gaussian")
def _discrete_gaussian(event: Event) -> Loss:
    multiplier = _multiplier(event)
    if multiplier == 0:
        return Loss()
    rho = 1 / (2 * multiplier**2)
    return Loss(rho=rho, renyi=lambda orders: orders * float(rho) * (1.0 + 4e-16))


@handles("poisson_gaussian")
def _poisson_gaussian(event: Event) -> Loss:
    multiplier = _multiplier(event)
    probability = _amount(event, "sampling_probability")
    adjacency = Adjacency.parse(str(event.get("adjacency", "")))
    if probability > 1:
        raise ParameterError(
            f"The 'sampling_probability' of an event is {float(probability)!r}.", "Pass a number in [0, 1]."
        )
    if probability == 0:
        return _pure(Fraction(0), Fraction(0))
    if multiplier == 0:
        return Loss()
    shift = 1 if adjacency is Adjacency.ADD_REMOVE_ONE else 2
    if probability == 1:  # a full batch is the plain Gaussian (F09)
        return _gaussian(Event.of("gaussian", noise_multiplier=str(multiplier / shift)))

    def distribution(interval: float, count: int) -> Pld:
        single = _pld().from_gaussian_mechanism(
            float(multiplier) * (1.0 - 4e-16),
            value_discretization_interval=interval,
            sampling_prob=float(probability),
            neighboring_relation=_relation(adjacency),
        )
        return single.self_compose(count)

    def renyi(orders: Orders) -> np.ndarray:
        return _sampled_renyi(float(probability), float(multiplier) * (1.0 - 4e-16), tuple(orders.tolist()))

    mu = shift / float(multiplier)
    # chi-square divergence q^2 (e^(mu^2) - 1) bounds the loss's mean, and roughly its variance, per run.
    spread = min(mu * mu, float(probability) ** 2 * math.expm1(min(mu * mu, 50.0)))
    return Loss(
        renyi=renyi if adjacency is Adjacency.ADD_REMOVE_ONE else None,
        distribution=distribution,
        span=mu * mu / 2.0 + 10.0 * mu,
        moments=(spread, spread),
    )


@lru_cache(maxsize=64)
def _sampled_renyi(probability: float, multiplier: float, orders: tuple[float, ...]) -> np.ndarray:
    """Renyi divergences of the Poisson-sampled Gaussian at integer orders, add/remove, rounded up.

    Theorem 5 of Mironov, Talwar & Zhang 2019: with A_a the sum over k of C(a, k) (1-q)^(a-k) q^k
    e^(k(k-1)/(2 sigma^2)), the divergence is log A_a / (a - 1), in both directions (their theorem 4).
    dp-accounting has the same sum in a Python loop, too slow for orders in the thousands (F11).
    """
    from scipy.special import gammaln, logsumexp

    values = np.empty(len(orders))
    for index, order in enumerate(orders):
        k = np.arange(order + 1.0)
        choose = gammaln(order + 1.0) - gammaln(k + 1.0) - gammaln(order - k + 1.0)
        terms = choose + (order - k) * math.log1p(-probability) + k * math.log(probability)
        terms += (k * k - k) / (2.0 * multiplier * multiplier)
        # Errors of the log-binomials, a few ulp of log(order!), are added before the division.
        slack = 8e-16 * (float(gammaln(order + 1.0)) + 1.0)
        values[index] = max(0.0, float(np.asarray(logsumexp(terms))) + slack) / (order - 1.0)
    return values


@handles("group")
def _group(event: Event) -> Loss:
    # Pure epsilon: Dwork & Roth 2014, theorem 2.2. zCDP: Bun & Steinke 2016, proposition 1.9. GDP: Dong, Roth
    # & Su 2022, theorem 3 (mu-GDP is size mu-GDP for groups).
    size = event.get("size")
    if not isinstance(size, int) or isinstance(size, bool) or size < 1:
        raise ParameterError(f"The 'size' of a group event is {size!r}.", "Pass an integer >= 1.")
    whole = Event.sequence(event.parts)
    pure, rho, mu_squared = (total_loss(whole, name) for name in ("pure", "rho", "mu_squared"))
    if pure is not None:
        result = _pure(size * pure, (size * size) * (rho if rho is not None else pure**2 / 2))
    elif mu_squared is not None:
        result = _of_mu_squared(size * size * mu_squared)
    elif rho is not None:
        scaled = size * size * rho
        result = Loss(rho=scaled, renyi=lambda orders: orders * float(scaled) * (1.0 + 4e-16))
    else:
        result = Loss()
    pair = _total_pair(whole)
    if pure is None and pair is not None:
        together, slack = group_amounts(*pair, size)
        assert isinstance(together, Fraction)
        bound = _of_pair(together, slack)
        result = replace(bound, rho=result.rho, mu_squared=result.mu_squared, renyi=result.renyi)
    return result


@handles(RANDOM_STOPPING)
def _random_stopping(event: Event) -> Loss:
    # Parts are about disjoint units: the costliest counts. A Gaussian run has no pair and no rho here;
    # `Stopping.delta` turns its curve into a pair.
    law = Stopping.of_event(event)
    if not event.parts:
        raise ParameterError("A random-stopping event has no parts.", "Say what one run does.")
    pures = [total_loss(part, "pure") for part in event.parts]
    pairs = [_total_pair(part) for part in event.parts]
    curves = [_total_renyi(part) for part in event.parts]
    result = Loss()
    if all(pure is not None for pure in pures):
        whole = law.pure(max(pure for pure in pures if pure is not None))
        result = _pure(whole, whole**2 / 2)
    elif all(pair is not None for pair in pairs):
        totals = [law.approximate(*pair) for pair in pairs if pair is not None]
        result = _of_pair(max(pair[0] for pair in totals), max(pair[1] for pair in totals))
    if any(curve is None for curve in curves):
        return result
    known = result.renyi

    def renyi(orders: Orders) -> np.ndarray:
        total = law.renyi(orders, np.max([curve(orders) for curve in curves if curve], axis=0))
        return total if known is None else np.minimum(total, known(orders))

    return replace(result, renyi=renyi)


def _total_pair(event: Event) -> tuple[Fraction, Fraction] | None:
    """Return the sums of epsilon and delta over all parts; None where one has none."""
    epsilon = delta = Fraction(0)
    for primitive, count in primitives(event):
        pair = loss(primitive).approximate
        if pair is None:
            return None
        epsilon, delta = epsilon + pair[0] * count, delta + pair[1] * count
    return epsilon, delta


def _total_renyi(event: Event) -> Callable[[Orders], np.ndarray] | None:
    """Return the sum of Renyi divergences over all parts; None where one has none."""
    curves = [(loss(primitive).renyi, count) for primitive, count in primitives(event)]
    if any(curve is None for curve, _ in curves):
        return None
    return lambda orders: sum((n * curve(orders) for curve, n in curves if curve), np.zeros(orders.shape))
