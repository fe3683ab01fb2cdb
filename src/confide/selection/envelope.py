"""The bucket envelope: a partition of all supports, each part with an additive bound, and proposals from it.

A bucket (I, O) holds the supports that contain I and avoid O. Buckets are split until proposals are accepted
often enough; how far is a matter of time, never of the law (selection.md, "The exact draw").
"""

from __future__ import annotations

import heapq
import math
import time
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from confide.mechanisms import weighted_choice
from confide.mechanisms.stream import RandomStream
from confide.selection.bounds import Bound, Bounder, candidates, tree_of
from confide.selection.problem import SubsetProblem
from confide.selection.symmetric import fill_tree, walk_many

#: Bytes of trees that are kept, and of buckets that `refine` makes by default.
_TREES = 1 << 28
_BUCKETS = 1 << 31
#: What a bound and the least splitting that is worth while take, in trial proposals.
_BOUND, _LEAST = 20, 500

Floats = npt.NDArray[np.float64]
Supports = npt.NDArray[np.int64]


@dataclass(eq=False)
class Bucket:
    """Supports that contain `pinned` and avoid `excluded`, with `left` columns to choose.

    Attributes
    ----------
    pinned, excluded : tuple of int
    left : int
        0 for a single support, whose bound is its score.
    bound : Bound
    log_weight : float
        Relative to the envelope's reference score.
    """

    pinned: tuple[int, ...]
    excluded: tuple[int, ...]
    left: int
    bound: Bound
    log_weight: float
    tree: Floats | None = field(default=None, repr=False)

    @property
    def priority(self) -> float:
        """Log of the weight that is expected to be rejected."""
        if self.left == 0 or self.bound.split < 0:
            return -math.inf
        return self.log_weight + math.log(-math.expm1(-max(self.bound.loose, 1e-4)))


class EnvelopeError(ArithmeticError):
    """A bound was above a score: a defect, never clipped (selection.md, 6)."""


class Envelope:
    """Buckets over all supports of a problem, at one exponent.

    Parameters
    ----------
    problem : SubsetProblem
    eta : float
    bounder : Bounder
    """

    def __init__(self, problem: SubsetProblem, eta: float, bounder: Bounder) -> None:
        self.problem, self.eta, self.bounder = problem, eta, bounder
        self.buckets: list[Bucket] = []
        self.reference = 0.0
        self._heap: list[tuple[float, int, Bucket]] = []
        self._serial = 0
        self._log_weights: Floats | None = None
        self._room = _TREES
        self._work = 0
        root = self._make((), (), problem.size, None)
        assert root is not None
        self.reference = self._best_guess(root)
        root.log_weight += eta * self.reference
        self._add(root)

    def _best_guess(self, bucket: Bucket) -> float:
        """Return the score of the support that the bound likes best."""
        top = candidates(bucket.bound.logs, bucket.left) if bucket.left else np.zeros(0, dtype=np.int64)
        return self.problem.centred_score(tuple(sorted((*bucket.pinned, *top.tolist()))))

    def _make(
        self, pinned: tuple[int, ...], excluded: tuple[int, ...], left: int, guess: Bound | None
    ) -> Bucket | None:
        spare = self.problem.p - len(pinned) - len(excluded) - left
        if spare < 0:
            return None
        if spare == 0 and left:
            taken = {*pinned, *excluded}
            pinned = (*pinned, *(j for j in range(self.problem.p) if j not in taken))
            left = 0
        if left == 0:
            score = self.problem.centred_score(tuple(sorted(pinned)))
            bound = Bound(score, np.zeros(0), -self.eta * score, 0.0)
            return Bucket(pinned, excluded, 0, bound, -self.eta * (score - self.reference))
        free = np.ones(self.problem.p, dtype=np.bool_)
        free[list(pinned)] = False
        free[list(excluded)] = False
        self._work += _BOUND
        bound = self.bounder.bound(np.array(pinned, dtype=np.int64), free, left, guess)
        return Bucket(pinned, excluded, left, bound, bound.mass + self.eta * self.reference)

    def _add(self, bucket: Bucket) -> None:
        self.buckets.append(bucket)
        self._log_weights = None
        if bucket.priority > -math.inf:
            heapq.heappush(self._heap, (-bucket.priority, self._serial, bucket))
            self._serial += 1

    def replace(self, buckets: list[Bucket]) -> None:
        """Take another partition of all supports."""
        self.buckets, self._heap = [], []
        for bucket in buckets:
            self._add(bucket)

    def split(self, count: int) -> int:
        """Split the `count` buckets that are expected to waste most; return how many were."""
        gone: set[int] = set()
        done = 0
        while done < count and self._heap:
            _, _, bucket = heapq.heappop(self._heap)
            gone.add(id(bucket))
            self._room += 0 if bucket.tree is None else bucket.tree.nbytes
            for child in self.children(bucket):
                self._add(child)
            done += 1
        if gone:
            self.buckets = [bucket for bucket in self.buckets if id(bucket) not in gone]
            self._log_weights = None
        return done

    def children(self, bucket: Bucket) -> list[Bucket]:
        """Return the parts with and without the bucket's split column."""
        j = bucket.bound.split
        made = (
            self._make((*bucket.pinned, j), bucket.excluded, bucket.left - 1, bucket.bound),
            self._make(bucket.pinned, (*bucket.excluded, j), bucket.left, bucket.bound),
        )
        return [child for child in made if child is not None]

    @property
    def log_weights(self) -> Floats:
        """Log-weights of the buckets, relative to the reference score."""
        if self._log_weights is None:
            self._log_weights = np.array([bucket.log_weight for bucket in self.buckets])
        return self._log_weights

    def propose(self, count: int, stream: RandomStream) -> tuple[Supports, Floats, Floats]:
        """Draw supports with probability proportional to exp(-eta bound).

        Returns
        -------
        supports : int64 array [count, size]
            Rows sorted.
        log_bounds : float64 array [count]
            -eta (bound - reference) of each.
        nus : float64 array [count]
            Multipliers of the ball of their buckets.
        """
        chosen = weighted_choice(log_weights=self.log_weights, size=count, stream=stream)
        supports = np.empty((count, self.problem.size), dtype=np.int64)
        log_bounds, nus = np.empty(count), np.empty(count)
        order = np.argsort(chosen, kind="stable")
        for part in np.split(order, np.flatnonzero(np.diff(chosen[order])) + 1):
            bucket = self.buckets[int(chosen[part[0]])]
            fixed = len(bucket.pinned)
            supports[part, :fixed] = bucket.pinned
            log_bounds[part] = -self.eta * (bucket.bound.base - self.reference)
            nus[part] = bucket.bound.nu
            if bucket.left:
                drawn = walk_all(self._tree(bucket), bucket.left, part.size, stream)
                supports[part, fixed:] = drawn
                log_bounds[part] += bucket.bound.logs[drawn].sum(axis=1)
        return np.sort(supports, axis=1), log_bounds, nus

    def _tree(self, bucket: Bucket) -> Floats:
        """Return the tree of a bucket, kept while there is room."""
        if bucket.tree is not None:
            return bucket.tree
        tree = tree_of(bucket.bound.logs, bucket.left)
        fill_tree(bucket.bound.logs, bucket.left, tree)
        if self._room >= tree.nbytes:
            self._room -= tree.nbytes
            bucket.tree = tree
        return tree

    def log_screen(self, supports: Supports, log_bounds: Floats, nus: Floats) -> Floats:
        """Return log-probabilities of a first, cheap test: never below those of acceptance."""
        lower = self.bounder.screen(supports, nus) if len(supports) else None
        if lower is None:
            return np.zeros(len(supports))
        # A single support's own bound is its score, above what the screen knows.
        return np.minimum(-self.eta * (lower - self.reference) - log_bounds, 0.0)

    def log_acceptance(self, supports: Supports, log_bounds: Floats) -> tuple[Floats, Floats]:
        """Return the log-probabilities of acceptance (at most 0), and the scores less the reference.

        Raises
        ------
        EnvelopeError
            If a bound lies above a score.
        """
        unique, places = np.unique(supports, axis=0, return_inverse=True)
        found = (self.problem.known_scores(unique) - self.reference)[places.reshape(-1)]
        result = -self.eta * found - log_bounds
        # A single support meets its own bound by the same operations: exactly 0.
        if not np.all(result <= 0):
            raise EnvelopeError("A bound lies above a score.")
        return result, found

    def acceptance(self, count: int, stream: RandomStream) -> float:
        """Return the mean acceptance of `count` trial proposals, which are thrown away."""
        supports, log_bounds, nus = self.propose(count, stream)
        logs = self.log_screen(supports, log_bounds, nus)
        # Where the screen leaves hardly anything, its own mean says enough.
        kept = np.flatnonzero(logs > -30)
        if kept.size:
            logs[kept], _ = self.log_acceptance(supports[kept], log_bounds[kept])
        return float(np.exp(logs).mean())

    def refine(
        self,
        stream: RandomStream,
        *,
        acceptance: float | None = None,
        draws: int = 1,
        seconds: float = math.inf,
        most: int | None = None,
    ) -> float:
        """Split until proposals are accepted often enough; return the last estimate.

        Parameters
        ----------
        stream : RandomStream
            For trial proposals.
        acceptance : float, optional
            Share to reach; by default until `draws` accepted proposals are expected to take less work than
            the splitting took (so that the whole takes at most about twice the least). Work is counted, not
            timed: the same random words draw the same result, however busy the machine is.
        seconds, most : float, int
            Limits of time and buckets (by default 2 GB of them): they change when to stop, never the law.
        """
        start, begun = time.perf_counter(), self._work
        if most is None:
            most = max(32, min(1 << 16, _BUCKETS // (8 * self.problem.p)))
        batch = 8
        while True:
            share = self.acceptance(24, stream)
            self._work += 24
            if acceptance is not None:
                # 24 trials are cheap and noisy: confirm what they promise.
                enough = share >= acceptance and (share := self.acceptance(200, stream)) >= acceptance
            else:
                enough = share >= 0.5 or draws <= share * max(self._work - begun, _LEAST)
            if enough or time.perf_counter() - start > seconds or len(self.buckets) >= most:
                return share
            if self.split(batch) == 0:
                return share
            batch = min(batch + batch // 2, 512)


def walk_all(tree: Floats, left: int, count: int, stream: RandomStream) -> Supports:
    """Draw `count` subsets of `left` columns from a bucket's tree, int64 [count, left]."""
    out = np.empty((count, left), dtype=np.int64)
    words = stream.bits(count * left * (tree.shape[0].bit_length() + 2))
    done = position = 0
    while True:
        done, position = walk_many(tree, left, words, position, out, done)
        if done == count:
            return out
        # Unread words stay in front: dropping them would bias what comes next.
        words = np.concatenate([words[position:], stream.bits(64 + words.size // 4)])
        words.setflags(write=False)
        position = 0
