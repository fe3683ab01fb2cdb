"""The Gaussian mechanism's exact privacy curve, and its calibration (Balle & Wang 2018).

For noise N(0, sigma^2 I) on a statistic of L2 sensitivity Delta, with mu = Delta / sigma,

    delta(epsilon) = Phi(mu/2 - epsilon/mu) - e^epsilon Phi(-mu/2 - epsilon/mu)

is attained (theorem 8 of Balle & Wang, "Improving the Gaussian mechanism for differential privacy",
ICML 2018). Written with a = epsilon/mu - mu/2, b = a + mu and the Mills ratio R(x) = Phi(-x)/phi(x), it is

    delta = phi(a) (R(a) - R(b)),    because  e^epsilon phi(b) = phi(a),

so that nothing overflows for epsilon up to several hundred and the relative error stays near one ulp
divided by mu. Every result is rounded to the safe side: sigma and epsilon up, verified by evaluating the
curve again with its error added.
"""

from __future__ import annotations

import math
from fractions import Fraction

from confide.errors import CalibrationError, ParameterError
from confide.privacy.exact import Amount, exact, round_up

_SQRT2 = math.sqrt(2.0)
_SQRT_PI_2 = math.sqrt(math.pi / 2.0)
_LOG_SQRT_2PI = 0.5 * math.log(2.0 * math.pi)
#: Relative error allowed to one Mills ratio (scipy's erfcx is correct to a few ulp).
_MILLS_ERROR = 1e-15


def _log_mills(x: float) -> float:
    """Return log(Phi(-x)/phi(x)) for any finite x."""
    from scipy.special import erfcx, log_ndtr

    if x < -30.0:  # erfcx overflows below about -26.6 / sqrt(2) * sqrt(2)
        return float(log_ndtr(-x)) + 0.5 * x * x + _LOG_SQRT_2PI
    return math.log(_SQRT_PI_2) + math.log(float(erfcx(x / _SQRT2)))


def gaussian_delta(epsilon: float, noise_multiplier: float) -> float:
    """Return the smallest delta of the Gaussian mechanism at `epsilon`, rounded up.

    Parameters
    ----------
    epsilon : float
        >= 0.
    noise_multiplier : float
        sigma / L2 sensitivity, > 0; infinity gives 0.

    Returns
    -------
    float
        An upper bound within a relative 1e-11 / mu of the true value (mu = 1 / noise_multiplier).
    """
    if not epsilon >= 0:
        raise ParameterError(f"The 'epsilon' parameter is {epsilon!r}.", "Pass a number >= 0.")
    if not noise_multiplier > 0:
        raise ParameterError(
            f"The 'noise_multiplier' parameter is {noise_multiplier!r}.", "Pass a positive number."
        )
    if math.isinf(noise_multiplier):
        return 0.0
    mu = 1.0 / noise_multiplier
    a = epsilon / mu - mu / 2.0
    b = epsilon / mu + mu / 2.0
    log_phi = -0.5 * a * a - _LOG_SQRT_2PI
    log_first = log_phi + _log_mills(a)
    log_second = log_phi + _log_mills(b)
    # a carries a relative rounding error of about 3 ulp of its two terms, and phi(a) R(a) changes by at most
    # (|a| + 1) per unit of a: this is the dominating error far out in the tail.
    slip = 4e-16 * (epsilon / mu + mu) * (abs(min(a, 0.0)) + 1.0) + 4.0 * _MILLS_ERROR
    slip += 4e-16 * (abs(log_phi) + abs(log_first))
    first = math.exp(min(log_first, 0.0))
    gap = -math.expm1(min(log_second - log_first, 0.0))
    return min(1.0, first * (gap + 2.0 * slip) * (1.0 + 2.0 * slip) + 5e-324)


def _parameters(epsilon: Amount | None, delta: Amount, sensitivity: float) -> tuple[float, float]:
    eps = float(exact(epsilon, "epsilon")) if epsilon is not None else 0.0
    fraction = exact(delta, "delta")
    if epsilon is not None and eps <= 0:
        raise ParameterError(f"The 'epsilon' parameter is {epsilon!r}.", "Pass a positive number.")
    if not 0 < fraction < 1:
        raise ParameterError(
            f"The 'delta' parameter is {delta!r}.",
            "The Gaussian mechanism needs 0 < delta < 1; take it well below 1 / (number of units).",
        )
    if not (isinstance(sensitivity, int | float) or hasattr(sensitivity, "__float__")) or not (
        0 <= float(sensitivity) < math.inf
    ):
        raise ParameterError(f"The 'sensitivity' parameter is {sensitivity!r}.", "Pass a finite number >= 0.")
    number = float(fraction)
    # The float nearest to delta may lie above it.
    if Fraction(number) > fraction:
        number = math.nextafter(number, 0.0)
    return eps, number


def gaussian_sigma(epsilon: Amount, delta: Amount, sensitivity: float = 1.0) -> float:
    """Return the least noise deviation with (epsilon, delta)-DP, rounded up.

    Parameters
    ----------
    epsilon : amount
        > 0.
    delta : amount
        In (0, 1).
    sensitivity : float
        L2 sensitivity of the statistic, >= 0, in its own unit; the result has the same unit.

    Returns
    -------
    float
        sigma with delta(epsilon; sigma) <= delta, at most a relative 1e-10 above the optimum for epsilon in
        [1e-3, 100] and delta >= 1e-15.

    Raises
    ------
    ParameterError
        For an epsilon of 0, a delta outside (0, 1), or a sensitivity that is not finite.

    Examples
    --------
    >>> round(gaussian_sigma(1, 1e-6), 6)
    4.224679
    """
    eps, number = _parameters(epsilon, delta, sensitivity)
    # Delta falls monotonically in the noise multiplier; widen the bracket until it holds the target (F13).
    low, high = 1.0, 1.0
    for _ in range(400):
        if gaussian_delta(eps, high) <= number:
            break
        high *= 2.0
    else:
        raise CalibrationError(
            f"No noise level below 2^400 gives epsilon = {epsilon!r} at delta = {delta!r}.",
            "Ask for a larger epsilon or delta.",
        )
    for _ in range(400):
        if gaussian_delta(eps, low) > number:
            break
        low /= 2.0
    while high > low * (1.0 + 4e-16):
        middle = math.sqrt(low) * math.sqrt(high)
        if not low < middle < high:
            break
        if gaussian_delta(eps, middle) <= number:
            high = middle
        else:
            low = middle
    # The safe end of the bracket (F12), and one more ulp for the product.
    return math.nextafter(high * float(sensitivity) * (1.0 + 2e-15), math.inf) if sensitivity else 0.0


def gaussian_epsilon(sigma: float, delta: Amount, sensitivity: float = 1.0) -> float:
    """Return the least epsilon of the Gaussian mechanism at `delta`, rounded up.

    Zero where delta is at least the total variation between the two outputs (F10). `sigma` = 0 with a
    positive sensitivity costs infinity (F29).
    """
    _, number = _parameters(None, delta, sensitivity)
    if not sigma >= 0:
        raise ParameterError(f"The 'sigma' parameter is {sigma!r}.", "Pass a number >= 0.")
    if sensitivity == 0:
        return 0.0
    if sigma == 0:
        return math.inf
    multiplier = sigma / float(sensitivity) * (1.0 - 2e-16)
    if gaussian_delta(0.0, multiplier) <= number:
        return 0.0
    low, high = 0.0, 1.0
    while gaussian_delta(high, multiplier) > number:
        low, high = high, high * 2.0
        if high > 1e300:
            return math.inf
    while True:
        middle = 0.5 * (low + high)
        if not low < middle < high:
            break
        if gaussian_delta(middle, multiplier) <= number:
            high = middle
        else:
            low = middle
    return float(round_up(high, digits=13))
