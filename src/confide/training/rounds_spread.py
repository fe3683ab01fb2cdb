"""How far labels lie from the predictions of `rounds`, and what share of them a window holds.

Each round releases a second moment of what its window shows. Alone it cannot tell a narrow law with long
tails from a wider one without: a window of one deviation sees 60 % of the rows and none of their tails. Hence
all rounds are read together. With r the residual about the newest predictions, round j saw about r + u_i'd_j,
d_j the difference of two released estimates: its expected moment, under a family of laws for r, is compared
with the released one, and what the laws say of r is averaged by their likelihood. Rounds with wide windows
tell of tails, as far as their noise allows; where all windows had to be narrow, the deviation of a skewed
residual is told up to a third too low.

Laws. r is normal, or a mixture of two normals about 0, the wider of which holds a few rows. For each of them
E u clip(r) = p E u r, p the share inside the window, if rows and residuals are jointly normal given the part
of the mixture (Bussgang 1952), whatever the distance of the predictions: so division by p makes a clipped
round unbiased. The family need not be true for that: within the window a density is nearly flat, so that
E v^2 is nearly 1 - 2p/3 for all of them.

Everything here is a function of public rows and released values.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from confide.training.problem import PublicStep
from confide.training.rounds_clip import SHARES, Window

Floats = npt.NDArray[np.float64]

#: Deviations of a normal part, and of the residual, that are compared, in half-ranges of the label.
SCALES, _FINE = np.geomspace(0.001, 4.0, 70), np.geomspace(0.002, 1.5, 300)
#: No residual lies beyond.
_FAR = 1e3
#: Before anything is known a residual has a deviation of a quarter of its half-range, give or take 2.5 times.
_TYPICAL, _SPREAD = 0.25, 0.9
#: Laws of the residual: rows in the wider part, its deviation over that of the other, and prior weight.
_LAWS = ((0.0, 1.0, 0.4), (0.1, 3.0, 0.2), (0.04, 5.0, 0.2), (0.2, 4.0, 0.2))
#: Laws are not the truth. Relative error of what a moment owes to the residual: always, by hidden share, and
#: by unevenness of the weights of rows, with which the residual's deviation may go.
_TRUST, _HIDDEN, _UNEVEN = 0.02, 0.2, 0.3
#: Relative error, by hidden share, of what a moment owes to what the predictions have explained since.
_EXPLAINED = 2.0
#: Correlation that c may have with o where predictions are as wrong as a model that is not the truth.
_MISFIT = 0.1
#: Correlation of c with the rest of o, mean and deviation: near bounds of the label, residuals of a linear
#: fit point inward, as o does.
_INWARD = (0.3, 0.2)


@dataclass(frozen=True)
class Moment:
    """What a round tells of E c^2 / h^2, c = clip(t) - g = h v + o with o = centre - g.

    That is E v^2 + 2 E v o / h + E o^2 / h^2. E v^2 is released and E o^2 is public. Where o is linear in
    the columns, o = a'u + rest, the cross term follows from the released sums of u v; where these are noisier
    than predictions are wrong, the prior says more: labels lie about predictions, whatever these are, so that
    E v a'u = -E (a'u)^2 / h. The two are weighed by their precisions. For the rest, E c rest = 0 is put in.

    Attributes
    ----------
    value, deviation : float
        The moment, and the deviation of its error but for the rest.
    rest : float
        Root of E rest^2, over h.
    """

    value: float
    deviation: float
    rest: float


def read_moment(
    step: PublicStep,
    sigma: float,
    square: float,
    sums: Floats,
    window: Window,
    offsets: Floats,
    curvature: float,
    prior: Floats,
) -> Moment:
    """Return the moment that a round's answer holds.

    Parameters
    ----------
    step : PublicStep
    sigma : float
        Deviation of the noise in each released number.
    square : float
        Released sum 2 kappa_i v_i^2.
    sums : ndarray of shape (k,)
        Released sum w_i u_i v_i.
    window : Window
    offsets, curvature : ndarray of shape (k,) and float
        sum w_i u_i o_i and sum w_i o_i^2, public once the predictions are.
    prior : ndarray of shape (k, k)
        Covariance of what is unknown about the predictions' coefficients.
    """
    mass, weight, half = step.mass, 2.0 * step.kappa, window.half
    slope = np.linalg.solve(step.A, offsets)
    linear = float(slope @ offsets) / mass / half**2
    whole = curvature / mass / half**2
    noise = sigma * float(np.linalg.norm(np.linalg.solve(step.plan.factor, slope))) / mass / half
    doubt = math.sqrt(max(float(offsets @ prior @ offsets), 0.0)) / mass / half**2
    doubt = math.hypot(doubt, _MISFIT * math.sqrt(max(linear, 0.0)))
    # Weight of what was released of the linear part; without an offset there is nothing to ask.
    belief = doubt**2 / (doubt**2 + noise**2) if doubt > 0 else 0.0
    cross = belief * (float(slope @ sums) / mass / half + linear) - whole
    left = math.hypot(belief * noise, (1 - belief) * doubt)
    return Moment(
        square / weight / mass + 2 * cross + whole,
        math.hypot(sigma / weight / mass, 2 * left),
        math.sqrt(max(whole - linear, 0.0)),
    )


@dataclass(frozen=True)
class Spread:
    """What the second moments tell.

    Attributes
    ----------
    scale : float
        Deviation of the label about the predictions, in half-ranges.
    inside : float
        p: share of rows whose label the newest window does not clip, held in `SHARES`.
    """

    scale: float
    inside: float


@dataclass(frozen=True)
class Reading:
    """The second moment of one round.

    Attributes
    ----------
    moment : Moment
    window : Window
    theta : ndarray of shape (k,)
        Predictions of the round are clip(u_i' theta, -1, 1).
    weights : ndarray of shape (m,)
        Of the sample of rows, summing to 1.
    metric : ndarray of shape (k, k)
        Weighted mean of u u' over all rows.
    """

    moment: Moment
    window: Window
    theta: Floats
    weights: Floats
    metric: Floats

    def expected(self, rows: Floats, theta: Floats) -> tuple[Floats, Floats]:
        """Return the moment and the share inside that labels N(u' theta, s^2) would have, s in `SCALES`.

        A sample of the rows stands for all, but what lies between the predictions then and now is often more
        than the residual: its mean square is that of all rows.
        """
        g = np.clip(rows @ self.theta, -1.0, 1.0)
        moved = theta - self.theta
        step = rows @ moved
        sampled = float(self.weights @ step**2)
        if sampled > 0:
            step *= math.sqrt(max(float(moved @ self.metric @ moved), 0.0) / sampled)
        # Bounds of the label cut windows and never labels: there is nothing beyond them that a window hides.
        low = np.where(g - self.window.clip > -1.0, -self.window.clip, -_FAR)
        high = np.where(g + self.window.clip < 1.0, self.window.clip, _FAR)
        square, inside = _clipped(low, high, step)
        return self.weights @ square / self.window.half**2, self.weights @ inside


def _clipped(low: Floats, high: Floats, at: Floats) -> tuple[Floats, Floats]:
    """Return E clip(r, low, high)^2 and P(low < r < high), r ~ N(at, s^2): a row each, s in `SCALES`."""
    from scipy.special import ndtr

    low, high, at = low[:, None], high[:, None], at[:, None]
    a, b = (low - at) / SCALES, (high - at) / SCALES
    below, above = ndtr(a), ndtr(-b)
    at_a, at_b = (np.exp(-(x**2) / 2) / math.sqrt(2 * math.pi) for x in (a, b))
    inside = 1 - below - above
    square = at**2 * inside + 2 * at * SCALES * (at_a - at_b) + SCALES**2 * (inside + a * at_a - b * at_b)
    return square + low**2 * below + high**2 * above, inside


@dataclass(frozen=True)
class Evidence:
    """The readings so far, oldest first, on a sample of public rows (m, k)."""

    rows: Floats
    readings: tuple[Reading, ...] = ()

    def add(self, reading: Reading) -> Evidence:
        """Return the evidence with one more reading."""
        return Evidence(self.rows, (*self.readings, reading))

    def about(self, theta: Floats, covariance: Floats | None = None) -> Spread:
        """Return the spread of labels about clip(u' theta, -1, 1), and the share inside the newest window.

        Parameters
        ----------
        theta : ndarray of shape (k,)
        covariance : ndarray of shape (k, k), optional
            Of what is unknown about theta: how far theta explains what earlier predictions left is as open.
        """
        laws = [_Law(*law) for law in _LAWS]
        prior = -0.5 * (np.log(_FINE / _TYPICAL) / _SPREAD) ** 2
        logs = np.array([math.log(law.prior) + prior for law in laws])
        inside = np.ones_like(SCALES)
        for reading in self.readings:
            seen, inside = reading.expected(self.rows, theta)
            image = reading.metric @ (theta - reading.theta)
            open_ = 0.0 if covariance is None else max(float(image @ covariance @ image), 0.0)
            noise = math.hypot(reading.moment.deviation, 2 * math.sqrt(open_) / reading.window.half**2)
            uneven = math.sqrt(max(reading.weights.size * float(np.sum(reading.weights**2)) - 1.0, 0.0))
            for row, law in zip(logs, laws, strict=True):
                mean, hidden = law.mean(seen), 1.0 - law.mean(inside)
                own = np.maximum(mean - seen[0], 0.0)
                turned = 2 * reading.moment.rest * np.sqrt(mean)
                trust = (_TRUST + _HIDDEN * hidden + _UNEVEN * uneven) * own + _EXPLAINED * hidden * seen[0]
                width = np.sqrt(noise**2 + trust**2 + (_INWARD[1] * turned) ** 2)
                z = (reading.moment.value - mean + _INWARD[0] * turned) / width
                row -= 0.5 * z**2 + np.log(width)
        mass = np.exp(logs - logs.max())
        mass /= mass.sum()
        share = float(np.sum(mass * np.array([law.mean(inside) for law in laws])))
        scale = math.exp(float(np.sum(mass * np.log(_FINE))))
        return Spread(scale, min(max(share, SHARES[0]), SHARES[1]))


def lifted(readings: tuple[Reading, ...], rows: Floats) -> Evidence:
    """Return readings of the mean alone as those of a fit: first the constant's coordinate, and U'U = I."""
    m, k = rows.shape
    return Evidence(
        rows,
        tuple(
            Reading(
                r.moment, r.window, r.theta[0] * np.eye(k)[0], np.full(m, 1.0 / m), r.metric[0, 0] * np.eye(k)
            )
            for r in readings
        ),
    )


@dataclass(frozen=True)
class _Law:
    """A law of mean 0 and variance 1: `rows` of them have `ratio` times the deviation of the others."""

    rows: float
    ratio: float
    prior: float

    def mean(self, curve: Floats) -> Floats:
        """Return the mean of a curve on `SCALES` over the law of each deviation in `_FINE`."""
        logs = np.log(SCALES)
        core = np.log(_FINE) - math.log(1 - self.rows + self.rows * self.ratio**2) / 2
        wide = np.interp(core + math.log(self.ratio), logs, curve)
        return (1 - self.rows) * np.interp(core, logs, curve) + self.rows * wide
