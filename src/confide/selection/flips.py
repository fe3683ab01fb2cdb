"""Permute-and-flip over all supports, from the same envelope (McKenna & Sheldon 2020).

Give every support S an independent uniform arrival u_S and a coin that comes up with probability
p_S = exp(-eta (F_S - F_best)); the first arrival whose coin comes up wins. Proposals v_S = exp(-eta (bound_S -
F_best)) >= p_S form one Poisson clock of rate Z = sum v: at time k, u = exp(-k) is the share of supports of
p = 1 that have not been asked yet, and S is taken with probability p_S / v_S times u / (u + (1 - p_S)(1 - u)).

F_best must be the least of the scores. What is proven is that every true score is at least the best computed
one less tau; scores below that best one count as equal to it, which keeps every score within [F, F + tau].
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
from confide.selection.envelope import Bucket, Envelope

Floats = npt.NDArray[np.float64]


def prove_best(envelope: Envelope) -> float:
    """Split until no support can beat the best computed score by more than tau; return that score.

    Best-first: the bucket with the lowest possible score is split, on its own column. Ends because single
    supports meet their own bound.
    """
    problem, eta = envelope.problem, envelope.eta
    best = envelope.reference
    heap: list[tuple[float, int, Bucket]] = []
    closed: list[Bucket] = []
    serial = 0

    def push(bucket: Bucket) -> None:
        nonlocal best, serial
        floor = bucket.bound.base
        if bucket.left:
            top = candidates(bucket.bound.logs, bucket.left)
            floor -= float(bucket.bound.logs[top].sum()) / eta
            if floor < best:
                best = min(best, problem.centred_score(tuple(sorted((*bucket.pinned, *top.tolist())))))
        else:
            best = min(best, floor)
        heapq.heappush(heap, (floor, serial, bucket))
        serial += 1

    for bucket in envelope.buckets:
        push(bucket)
    while heap and heap[0][0] < best - problem.tau:
        bucket = heapq.heappop(heap)[2]
        for child in envelope.children(bucket):
            push(child)
    closed += [bucket for _, _, bucket in heap]
    envelope.replace(closed)
    return best


@njit(cache=True, nogil=True)
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
    """Draw `size` supports by permute-and-flip; each in fewer than 2 / acceptance proposals on average."""
    names = ("trials", "proposals", "coins", "clock")
    trials, proposals, coins, clock = (source.child(name) for name in names)
    result: list[tuple[int, ...]] = [()] * size
    if size == 0:
        return result
    best = prove_best(envelope) - envelope.reference
    envelope.refine(trials, draws=2 * size)
    eta = envelope.eta
    top = float(envelope.log_weights.max())
    log_rate = top + math.log(float(np.exp(envelope.log_weights - top).sum())) + eta * best
    pace = math.exp(-log_rate)
    waiting = np.arange(size)
    time = np.zeros(size)
    while waiting.size:
        time[waiting] += exponentials(waiting.size, clock) * pace
        supports, log_bounds, nus = envelope.propose(waiting.size, proposals)
        screen = envelope.log_screen(supports, log_bounds, nus)
        kept = np.flatnonzero(bernoulli_log(screen, stream=coins))
        logs, scores = envelope.log_acceptance(supports[kept], log_bounds[kept])
        gap = np.maximum(scores - best, 0.0)
        # Scores below the best count as the best.
        logs = np.minimum(logs, -eta * best - log_bounds[kept])
        ratio = -np.expm1(-eta * gap) * np.expm1(time[waiting[kept]])
        coin = bernoulli_log(logs - screen[kept] - np.log1p(ratio), stream=coins)
        accepted = np.zeros(waiting.size, dtype=np.bool_)
        accepted[kept[coin]] = True
        for place, support in zip(waiting[accepted].tolist(), supports[accepted].tolist(), strict=True):
            result[place] = tuple(support)
        waiting = waiting[~accepted]
    return result
