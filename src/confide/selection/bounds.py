"""Bounds of buckets for the squared loss: which point to linearise at, and the multiplier of the ball.

A `Bound` is all that a bucket needs: the value of `base`, the log-weights eta w_j of its free columns, what a
child starts from, and where to split. Everything here proposes: whatever it chooses, the bound holds.

Every bounder lowers its bases by `allowance` deltas (`SubsetProblem.rounding`), two at least: a score may
lie delta below the true one, and the sums of a decision, eta (F - bound) from logarithms, lose a few units of
n M. Margins that are relative to columns or y vanish with them, faster than what underflow takes; delta does
not. So no bound of a bucket lies above a score, and `EnvelopeError` is not an outcome; were it one, `draw`
would start anew with a larger allowance.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
import numpy.typing as npt

from confide.selection.gram import Gram
from confide.selection.problem import SubsetProblem
from confide.selection.quadratic import lagrange_scores, quadratic_bound, spread_of_rest
from confide.selection.symmetric import log_symmetric, marginals

Floats = npt.NDArray[np.float64]
Columns = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

_EMPTY = np.zeros(0, dtype=np.int64)
_NONE = np.zeros(0)
#: Deltas that a bound lies below what is proven of the true score.
ALLOWANCE = 2.0
#: Marginals below this do not enter the point that a bound is linearised at.
_LEAST_SHARE = 0.01
#: Log-weights of columns stay below this times eta M, so that their rounding is paid for (`exponent`).
LARGEST = 2.0**18
#: Nats of looseness from which it is worth an inverse to redistribute curvature.
_LOOSE = 1.5


@dataclass(frozen=True)
class Minorant:
    """A quadratic below the centred loss: constant - c'beta + kappa beta'X'X beta / 2, c = X'v.

    Attributes
    ----------
    constant : float
    c : float64 array [p]
    kappa : float
    length : float
        Norm of v, for the rounding of c.
    """

    constant: float
    c: Floats
    kappa: float
    length: float


@dataclass
class Bound:
    """A valid bound of one bucket: F_{I+T} >= base - sum over T of logs_j / eta (centred scores).

    Attributes
    ----------
    base : float
    logs : float64 array [p]
        eta w_j >= 0; -inf where a column is not free.
    mass : float
        -eta base + log e_t(exp(logs)): the log-weight, not yet relative to a reference.
    nu : float
        Multiplier of the ball.
    helpers, shares : int64, float64 arrays [a]
        Free columns that carry mass, and their marginals.
    loose : float
        Rough guess of the nats by which the bound misses typical members.
    split : int
        Column to split on.
    point : float64 array
        Coefficients on the pinned columns and the helpers that the bound was linearised at.
    minorant : Minorant, optional
        Where it depends on the bucket.
    sigma : float
        Curvature that every column gives to the helpers (`Gram.cover`); 0: none does.
    """

    base: float
    logs: Floats
    mass: float
    nu: float
    helpers: Columns = field(default_factory=lambda: _EMPTY)
    shares: Floats = field(default_factory=lambda: _NONE)
    loose: float = 0.0
    split: int = -1
    point: Floats = field(default_factory=lambda: _NONE)
    minorant: Minorant | None = None
    sigma: float = 0.0


#: mu and h of a bound that is being made.
Detail = tuple[Floats, Floats]
Pair = tuple[Bound, Detail]


def _mass(pair: Pair) -> float:
    return pair[0].mass


class Bounder(Protocol):
    """Computes bounds of buckets of one problem at one exponent."""

    def bound(self, pinned: Columns, free: Mask, left: int, guess: Bound | None) -> Bound:
        """Return a bound for the supports I + T, T a subset of `left` free columns."""
        ...

    def screen(self, supports: npt.NDArray[np.int64], nus: Floats) -> Floats | None:
        """Return cheap lower bounds on centred scores, [m], or None where there are none."""
        ...


def candidates(logs: Floats, count: int) -> Columns:
    """Return the positions of the `count` largest finite log-weights."""
    count = min(count, logs.size)
    top = np.argpartition(-logs, count - 1)[:count] if count < logs.size else np.arange(logs.size)
    return top[logs[top] > -np.inf]


def symmetric(logs: Floats, left: int) -> float:
    """Return log e_left of exp(logs), in log domain where needed."""
    value = log_symmetric(logs, left, np.empty(left + 1))
    if math.isnan(value):
        from confide.selection.symmetric import fill_tree

        tree = tree_of(logs, left)
        fill_tree(logs, left, tree)
        value = float(tree[1, left])
    return value


def tree_of(logs: Floats, left: int) -> Floats:
    """Return room for the tree of `logs`."""
    return np.empty((2 << max(0, (logs.size - 1).bit_length()), left + 1))


class QuadraticBounder:
    """Bounds for the squared loss, which is its own quadratic minorant.

    Parameters
    ----------
    problem : SubsetProblem
    eta : float
    gram : Gram
    allowance : float
    """

    def __init__(self, problem: SubsetProblem, eta: float, gram: Gram, allowance: float = ALLOWANCE) -> None:
        self.problem, self.eta, self.gram = problem, eta, gram
        self.allowance = allowance * problem.rounding
        self.minorant = Minorant(0.0, problem.products, 1.0, math.sqrt(float(problem.y @ problem.y)))
        #: Whether buckets with one free column use their exact Schur complements.
        self.exact_one = True
        self.longest = float(np.sqrt(gram.diagonal.max(initial=0.0)))
        #: Sums over n terms by BLAS, in any order (Higham 2002, 3.5), and a few operations more.
        self.unit = (problem.n + 256) * 2.0**-53
        self.tiny = 1e-7 * (float(gram.diagonal.mean()) + problem.feature_bound**2)

    def bound(self, pinned: Columns, free: Mask, left: int, guess: Bound | None) -> Bound:
        """Return a bound: multiplier and marginals improved from those of `guess`."""
        gram = self.gram
        gram.ensure(pinned)
        helpers, shares = self._inherit(free, left, guess)
        nu, sigma = (guess.nu, guess.sigma) if guess is not None else (0.0, 0.0)
        best = self._evaluate(pinned, free, left, nu, helpers, shares, sigma)
        # At the best multiplier the mean square norm equals radius^2, or nu = 0: search log(lambda + nu).
        if nu > 0 or self._describe(pinned, left, *best) > 0.8 * self.problem.radius**2:
            best = self._search(pinned, free, left, best, fresh=guess is None)
        if left > 1 or not self.exact_one:
            best = self._settle(pinned, free, left, best, 12 if guess is None else 3)
            if best[0].nu > 0:
                best = self._search(pinned, free, left, best, fresh=False)
            self._describe(pinned, left, *best)
            if gram.whole and best[0].loose > _LOOSE and best[0].sigma == 0:
                best = self._covered(pinned, free, left, best)
        self._describe(pinned, left, *best)
        return best[0]

    def _covered(self, pinned: Columns, free: Mask, left: int, best: Pair) -> Pair:
        """Try to take curvature from all columns and give it to the helpers."""
        bound = best[0]
        L = (self.problem.ridge + bound.nu) / self.minorant.kappa
        if self.tiny < L:
            for share in (0.25, 0.5):
                sigma = 2.0 ** math.floor(math.log2(share * L) + 0.5)
                trial = self._evaluate(pinned, free, left, bound.nu, bound.helpers, bound.shares, sigma)
                best = min(best, trial, key=_mass)
        if best[0].sigma > 0:
            best = self._settle(pinned, free, left, best, 3)
            best = self._search(pinned, free, left, best, fresh=False)
        return best

    def _settle(self, pinned: Columns, free: Mask, left: int, best: Pair, rounds: int) -> Pair:
        """Iterate marginals and point, half a step at a time: whole steps swing where columns compete."""
        for _ in range(rounds):
            bound = best[0]
            found = self._shares(bound, left)
            if found is None:
                break
            if bound.helpers.size:
                mixed = np.zeros(self.problem.p)
                mixed[bound.helpers] = bound.shares / 2
                mixed[found[0]] += found[1] / 2
                helpers = np.flatnonzero(mixed > _LEAST_SHARE / 2)
                found = helpers, mixed[helpers]
            trial = self._evaluate(pinned, free, left, bound.nu, *found, bound.sigma)
            gained = bound.mass - trial[0].mass
            if gained > 0:
                best = trial
            if not gained > 1e-2:
                break
        return best

    def _search(self, pinned: Columns, free: Mask, left: int, best: Pair, *, fresh: bool) -> Pair:
        ridge = self.problem.ridge
        least = max(ridge, self.tiny)
        step = 1.5 if fresh else 0.3
        for _ in range(14 if fresh else 7):
            bound = best[0]
            L = max(ridge + bound.nu, least)
            moved = False
            for factor in (math.exp(step), math.exp(-step)):
                nu = max(L * factor - ridge, 0.0)
                if nu == bound.nu:
                    continue
                trial = self._evaluate(pinned, free, left, nu, bound.helpers, bound.shares, bound.sigma)
                if trial[0].mass < bound.mass:
                    best, moved = trial, True
                    break
            if not moved:
                step /= 3
                if step < 0.03:
                    break
        return best

    def _inherit(self, free: Mask, left: int, guess: Bound | None) -> tuple[Columns, Floats]:
        if guess is None or (left < 2 and self.exact_one) or guess.helpers.size == 0:
            return _EMPTY, _NONE
        keep = free[guess.helpers]
        helpers, shares = guess.helpers[keep], guess.shares[keep]
        total = shares.sum()
        return helpers, np.clip(shares * min(1.0, left / total) if total > 0 else shares, _LEAST_SHARE, 1.0)

    def _shares(self, bound: Bound, left: int) -> tuple[Columns, Floats] | None:
        """Return the columns that carry the bucket's mass and their marginals."""
        chosen = candidates(bound.logs, 3 * left + 8)
        if chosen.size < left:
            return None
        shares = np.empty(chosen.size)
        if not math.isfinite(marginals(bound.logs, left, chosen, shares)):
            return None
        least = _LEAST_SHARE if self.gram.whole else 0.2
        keep = shares >= np.where(self.gram.slot[chosen] >= 0, _LEAST_SHARE, least)
        if not keep.any():
            return None
        self.gram.ensure(chosen[keep])
        return chosen[keep], shares[keep]

    def _evaluate(
        self,
        pinned: Columns,
        free: Mask,
        left: int,
        nu: float,
        helpers: Columns,
        shares: Floats,
        sigma: float,
    ) -> Pair:
        """Return the bound at one multiplier and point, not yet described, with mu and h."""
        gram, eta, problem = self.gram, self.eta, self.problem
        kappa = self.minorant.kappa
        one = left == 1 and self.exact_one
        if one:
            helpers, shares = _EMPTY, _NONE
        L = problem.ridge + nu
        extra = None
        if one or not 0 < sigma * kappa < 0.9 * L:
            sigma = 0.0
        else:
            uncertain = shares * (1 - shares)
            most = uncertain > 0.05 * uncertain.max(initial=0.0)
            cover = gram.cover(sigma, helpers[most])
            if cover is not None:
                extra = np.full(problem.p, -kappa * sigma)
                extra[helpers[most]] += kappa * cover
        if extra is None:
            sigma = 0.0
            theta = 0.0 if one else gram.theta(problem.size + helpers.size)
            extra = kappa * theta * gram.diagonal
            if self.tiny > L and theta == 0.0:
                L = self.tiny
                nu = L - problem.ridge
        point = np.zeros(pinned.size + helpers.size)
        logs, mu = np.empty(problem.p), np.zeros(problem.p)
        base, residual, spread = quadratic_bound(
            self.minorant.c, gram.diagonal, gram.rows, gram.slot, pinned, helpers, shares, free,
            kappa, extra, L, eta, self.tiny, one, point, logs, mu,
        )  # fmt: skip
        top = float(logs.max())
        if top > LARGEST * eta * problem.record_range:
            # Too large for the rounding that is paid for: a larger multiplier is as valid.
            nu = 2 * max(L, self.tiny) - problem.ridge
            return self._evaluate(pinned, free, left, nu, helpers, shares, 0.0)
        r = problem.radius
        base += self.minorant.constant
        base -= nu * r * r / 2 + residual * r * (1 + 1e-9) + self._margin(pinned, left, spread, base)
        mass = -eta * base + symmetric(logs, left)
        found = Bound(base, logs, mass, nu, helpers, shares, 0.0, -1, point, None, sigma)
        return found, (mu, extra)

    def _describe(self, pinned: Columns, left: int, bound: Bound, detail: Detail) -> float:
        """Set where to split and how loose the bound is; return the mean square norm of the coefficients.

        For proposals only: a typical member misses the bound by the variance of its coefficients around the
        point, seen by Q = kappa G - diag(h); the diagonal of Q is all that is looked at.
        """
        eta, kappa, (mu, extra) = self.eta, self.minorant.kappa, detail
        logs, chosen, shares = bound.logs, bound.helpers, bound.shares
        variance = shares * (1 - shares)
        if chosen.size == 0:
            chosen = candidates(logs, left + 8)
            shares = np.empty(chosen.size)
            marginals(logs, left, chosen, shares)
            variance = shares
        with np.errstate(divide="ignore", invalid="ignore", over="ignore", under="ignore"):
            beta = np.sqrt(2 * logs[chosen] / (eta * mu[chosen]))
        beta = np.where(np.isfinite(beta), np.minimum(beta, self.problem.radius), 0.0)
        rest = max(0.0, left - float(shares.sum()))
        square, loose = spread_of_rest(logs, mu, self.gram.diagonal, eta, kappa, extra, rest, chosen)
        square += float((bound.point[: pinned.size] ** 2).sum() + (shares * beta**2).sum())
        excess = variance * beta**2 * (kappa * self.gram.diagonal - extra)[chosen]
        if left == 1 and self.exact_one:
            bound.loose, bound.split = 0.001, int(chosen[np.argmax(logs[chosen])])
        else:
            bound.loose = eta / 2 * (loose + float(excess.sum()))
            bound.split = int(chosen[np.argmax(excess + 1e-12 * logs[chosen])])
        return square

    def screen(self, supports: npt.NDArray[np.int64], nus: Floats) -> Floats | None:
        """Return Lagrangian bounds on the scores of `supports` at multipliers `nus`, from kept products."""
        problem, minorant = self.problem, self.minorant
        if not self.gram.whole:
            return None
        self.gram.fill()
        out = np.empty(supports.shape[0])
        lagrange_scores(
            minorant.c, self.gram.rows, self.gram.slot, supports, minorant.kappa, problem.ridge, nus,
            problem.radius, out,
        )  # fmt: skip
        # Cholesky solves within s^2 units of the norm (Higham 2002, 10.4): on the ball, r^2 times that.
        norm = minorant.kappa * problem.size * self.longest**2 + problem.ridge + float(nus.max(initial=0.0))
        loss = self._margin(supports[0][:0], problem.size, 0.0, 0.0)
        loss += 8 * problem.size**2 * 2.0**-53 * norm * problem.radius**2
        return out + minorant.constant - 1e-11 * np.abs(out) - loss

    def _margin(self, pinned: Columns, left: int, spread: float, base: float) -> float:
        """Return what rounding of the products can move the bound by.

        Entries of X'X and X'y are within unit ||x_i|| ||x_j|| and unit ||x_j|| ||y|| of the true ones; on the
        ball sum |beta_j| ||x_j|| is at most radius times the root of the sum of squares over S.
        """
        d = self.gram.diagonal
        reach = self.problem.radius * math.sqrt(float(d[pinned].sum()) + left * self.longest**2)
        total = spread + reach
        rounding = self.minorant.kappa * total * total + total * self.minorant.length
        return 2 * self.unit * rounding + 1e-12 * abs(base) + self.allowance
