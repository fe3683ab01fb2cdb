"""Permute-and-flip over all supports, from the same envelope, without knowing the best.

McKenna & Sheldon 2020. Give every support an independent uniform U_S; the least of U_S exp(eta F_S) wins.
That is permute-and-flip: with q_S = exp(-eta (F_S - F_best)), S arrives at U_S q_S of the time scale 1 /
exp(eta F_best) and its coin comes up where that is below 1. The least of independent variables is found by
running their hazards: at time y, S has hazard 1 / (exp(eta F_S) - y). For any floor f below every score let
y = (1 - u) exp(eta f), u = exp(-k); then in the time k its hazard is

    q u / (u + (1 - q)(1 - u)) <= q <= v,    q = exp(-eta (F_S - f)), v = exp(-eta (bound_S - f)).

So one Poisson clock of rate sum v proposes, and S is taken with probability (q / v) u / (u + (1 - q)(1 - u)).
With f = F_best the clock asks every support before k ends, as on the design page. But any proven floor does
until y = exp(eta f): where the law is spread over many supports, one is taken long before. Only a draw that
still waits near u = 0 needs a higher floor, found by splitting buckets; it goes on from the same y.
"""

from __future__ import annotations

import heapq
import math

import numpy as np
import numpy.typing as npt
from numba import njit

from confide.mechanisms.discrete import bernoulli_log
from confide.mechanisms.stream import RandomStream
from confide.mechanisms.walk import full_exponent_uniform
from confide.selection.bounds import candidates
from confide.selection.envelope import Bucket, Envelope, EnvelopeError

Floats = npt.NDArray[np.float64]

#: Time k (1 - u = 0.63) after which a draw that still waits asks for a higher floor.
_LATE = 1.0


class Floor:
    """A number below every score, raised by splitting the bucket that holds it down.

    Parameters
    ----------
    envelope : Envelope
        Its partition is refined in place.

    Attributes
    ----------
    best : float
        Least score seen: an upper bound on the least of all.
    """

    def __init__(self, envelope: Envelope) -> None:
        self.envelope = envelope
        self.best = envelope.reference
        self._heap: list[tuple[float, int, Bucket]] = []
        self._serial = 0
        for bucket in envelope.buckets:
            self._push(bucket)

    @property
    def value(self) -> float:
        """The floor: no score is below it. Equal to `best` once that is proven.

        Scores lie on a grid and bounds are rounded up to it, so supports that tie with the best need not be
        told apart.
        """
        return min(self.best, self._heap[0][0])

    def _push(self, bucket: Bucket) -> None:
        problem = self.envelope.problem
        low = bucket.bound.base
        if bucket.left:
            top = candidates(bucket.bound.logs, bucket.left)
            top = top[np.argsort(-bucket.bound.logs[top], kind="stable")[: bucket.left]]
            low -= float(bucket.bound.logs[top].sum()) / self.envelope.eta * (1 + 1e-12)
            if low < self.best:
                self.best = min(
                    self.best, problem.centred_score(tuple(sorted((*bucket.pinned, *top.tolist()))))
                )
            low = float(problem.on_grid(low))
        else:
            self.best = min(self.best, low)
        heapq.heappush(self._heap, (low, self._serial, bucket))
        self._serial += 1

    def lift(self, target: float) -> float:
        """Split until the floor is at least `target`, or the best score is proven; return the floor.

        Best-first: the bucket with the lowest bound is split, on its own column. Ends, because single
        supports meet their own bound.
        """
        while self._heap[0][0] < min(target, self.best):
            _, _, bucket = heapq.heappop(self._heap)
            for child in self.envelope.children(bucket):
                self._push(child)
        self.envelope.replace([bucket for _, _, bucket in self._heap])
        return self.value


@njit(cache=True, nogil=True, error_model="numpy")
def _exponentials(words: npt.NDArray[np.uint64], out: Floats) -> int:
    """Fill `out` with unit exponentials; return how many words were read, -1 where they ran out."""
    position = 0
    for i in range(out.size):
        u, position = full_exponent_uniform(words, position)
        if u < 0.0:
            return -1
        out[i] = -math.log(u)
    return position


def exponentials(count: int, stream: RandomStream) -> Floats:
    """Draw unit exponentials within an absolute error of 2^-53."""
    out = np.empty(count)
    words = stream.bits(count + 8)
    while _exponentials(words, out) < 0:
        words = np.concatenate([words, stream.bits(8)])
        words.setflags(write=False)
    return out


def flip(envelope: Envelope, size: int, source: RandomStream) -> list[tuple[int, ...]]:
    """Draw `size` supports by permute-and-flip."""
    names = ("trials", "proposals", "coins", "clock")
    trials, proposals, coins, clock = (source.child(name) for name in names)
    result: list[tuple[int, ...]] = [()] * size
    if size == 0:
        return result
    envelope.refine(trials, draws=2 * size)
    eta, floor = envelope.eta, Floor(envelope)
    low = floor.value
    waiting, time = np.arange(size), np.zeros(size)
    while waiting.size:
        latest = float(time[waiting].max())
        if latest > _LATE and low < floor.best:
            # A higher floor puts the same y at an earlier k: half of 1 - u for each 0.7 nats.
            higher = floor.lift(low + math.log(2) / eta)
            passed = -np.expm1(-time[waiting]) * math.exp(-eta * (higher - low))
            time[waiting], low = -np.log1p(-passed), higher
            continue
        weights = envelope.log_weights
        top = float(weights.max())
        log_rate = top + math.log(float(np.exp(weights - top).sum())) + eta * (low - envelope.reference)
        time[waiting] += exponentials(waiting.size, clock) * math.exp(-log_rate)
        supports, log_bounds, nus = envelope.propose(waiting.size, proposals)
        screen = envelope.log_screen(supports, log_bounds, nus)
        kept = np.flatnonzero(bernoulli_log(screen, stream=coins))
        logs, scores = envelope.log_acceptance(supports[kept], log_bounds[kept])
        gap = scores - (low - envelope.reference)
        if not np.all(gap >= 0):
            raise EnvelopeError("A score lies below the proven floor.")
        # log of u / (u + (1 - q)(1 - u)) is -log(1 + (1 - q)(1 - u) / u).
        ratio = -np.expm1(-eta * gap) * np.expm1(time[waiting[kept]])
        coin = bernoulli_log(logs - screen[kept] - np.log1p(ratio), stream=coins)
        accepted = np.zeros(waiting.size, dtype=np.bool_)
        accepted[kept[coin]] = True
        for place, support in zip(waiting[accepted].tolist(), supports[accepted].tolist(), strict=True):
            result[place] = tuple(support)
        waiting = waiting[~accepted]
    return result
