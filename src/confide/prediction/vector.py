"""The sparse vector: stable queries are free inside a paid epoch, which ends with the first unstable one."""

from __future__ import annotations

import threading
from collections.abc import Callable
from fractions import Fraction

import numpy as np
from numpy.typing import ArrayLike

from confide.errors import ParameterError, RefusedError
from confide.mechanisms.above_threshold import SparseVector, split_epoch, stable_threshold
from confide.mechanisms.stream import RandomStream
from confide.mechanisms.stream import stream as as_stream
from confide.prediction.laws import Labels, checked, class_count, positive_epsilon, small_delta, whole
from confide.privacy import Event
from confide.privacy.exact import Amount

#: The answer to a query that the epoch calls unstable.
UNSTABLE = -1
#: Queries whose noise is drawn together; the rest of a block is thrown away when an epoch ends.
_BLOCK = 256

Charge = Callable[[Event], object]


class StableAnswers:
    """Answers by paid epochs of the sparse vector.

    Parameters
    ----------
    epsilon : amount
        e1 + e2 of an epoch, split near 1 : 2^(2/3).
    delta : amount
        delta_0 of an epoch, in (0, 1): bounds the probability that an unstable query is answered as if
        stable.
    classes : int
    charge : callable
        Called with the event of one epoch before anything of it is drawn; it raises if the budget refuses. A
        ledger's reservation, or ``lambda event: None`` where the epochs were reserved before.
    threshold : int, optional
        At least the least one for `delta`, the default: 46 at (1, 1e-6), 460 at (0.1, 1e-6).
    stream : RandomStream, optional

    Notes
    -----
    *An epoch is (e1 + e2, delta_0)-DP*, however many queries it answers. Let D, D' be neighbours, and follow
    the adaptive queries up to the first whose certified classes differ. Until there the answers are
    post-processing of the sparse vector's bits on k of sensitivity 1, which are (e1 + e2)-DP
    (`confide.mechanisms.above_threshold`). There k = 0 on both tables. Call the epoch failed if this query is
    "stable", which needs N - R > threshold for its own noise N, independent of all that chose it, and the
    threshold's R: probability at most delta_0 by the marginal law of (N, R), and later queries exist only in
    a failed epoch. Without failure the whole transcript is that of the bits. So no factor for the number of
    queries.

    The state is secret (`to_bytes`); whoever restores none opens and pays another epoch.

    ====================================  ==============================================================
    edge case                             what happens
    ====================================  ==============================================================
    no queries                            no epoch opens, nothing is charged
    the charge is refused at the start    its exception passes
    refused after some answers            the answers so far are returned, fewer than the queries
    two threads                           one after the other; each epoch is charged once
    process ends inside an epoch          the next one opens and pays another
    pickle, copy                          TypeError: two epochs of one state would cost more
    ====================================  ==============================================================
    """

    def __init__(
        self,
        epsilon: Amount,
        delta: Amount,
        classes: int,
        *,
        charge: Charge,
        threshold: int | None = None,
        stream: RandomStream | None = None,
    ) -> None:
        self._epsilon, self._delta = positive_epsilon(epsilon), small_delta(delta, positive=True)
        self._classes = class_count(classes)
        least = stable_threshold(self._delta, *split_epoch(self._epsilon))
        self._threshold = least if threshold is None else whole(threshold, "threshold", least)
        self._charge = charge
        self._stream = as_stream(stream)
        self._epoch: SparseVector | None = None
        self._opened = 0
        self._lock = threading.Lock()

    @property
    def event(self) -> Event:
        """One epoch."""
        return Event.of(
            "sparse_vector", epsilon=str(self._epsilon), delta=str(self._delta), threshold=self._threshold
        )

    @property
    def epsilon(self) -> Fraction:
        """e1 + e2 of an epoch."""
        return self._epsilon

    @property
    def delta(self) -> Fraction:
        """delta_0 of an epoch."""
        return self._delta

    @property
    def threshold(self) -> int:
        """The public threshold."""
        return self._threshold

    @property
    def opened(self) -> int:
        """How many epochs were opened, and charged, by this object."""
        return self._opened

    def answer(self, labels: ArrayLike, k: ArrayLike) -> Labels:
        """Answer queries in order.

        Parameters
        ----------
        labels, k : int arrays [q]
            What `stability` returned.

        Returns
        -------
        int64 array [at most q]
            The certified class, or `UNSTABLE` (-1), after which the next query opens another epoch. Fewer
            than q where the charge of an epoch was refused.
        """
        chosen, distances = checked(labels, k, self._classes)
        told: list[int] = []
        with self._lock:
            while len(told) < chosen.size and self._ready(bool(told)):
                told += self._within(chosen[len(told) :], distances[len(told) :])
        return np.array(told, dtype=np.int64)

    def until_unstable(self, labels: ArrayLike, k: ArrayLike) -> Labels:
        """Answer queries in order within one epoch, up to and including the first unstable one.

        An epoch is opened, and charged, if none is open.
        """
        chosen, distances = checked(labels, k, self._classes)
        told: list[int] = []
        with self._lock:
            if chosen.size:
                self._ready(False)
            while len(told) < chosen.size and UNSTABLE not in told[-1:]:
                told += self._within(chosen[len(told) :], distances[len(told) :])
        return np.array(told, dtype=np.int64)

    def _within(self, labels: Labels, k: Labels) -> list[int]:
        """Answer the first block of queries, up to the end of the open epoch."""
        assert self._epoch is not None
        stable = self._epoch.above_many(np.minimum(k[:_BLOCK], 1 << 61).tolist())
        return [
            int(label) if above else UNSTABLE
            for label, above in zip(labels[: len(stable)], stable, strict=True)
        ]

    def _ready(self, some_answered: bool) -> bool:
        """Open and charge an epoch if none is open; False where it is refused after some answers."""
        if self._epoch is not None and self._epoch.open:
            return True
        try:
            self._charge(self.event)
        except RefusedError:
            if some_answered:
                return False
            raise
        child = self._stream.child(f"epoch {self._opened}")
        self._epoch = SparseVector(self._threshold, *split_epoch(self._epsilon), stream=child)
        self._opened += 1
        return True

    def to_bytes(self) -> bytes:
        """Return the secret state of the open epoch; empty where none is open."""
        with self._lock:
            return self._epoch.to_bytes() if self._epoch is not None and self._epoch.open else b""

    def resume(self, state: bytes) -> None:
        """Continue the epoch of `to_bytes`, already charged; the caller sees to it that only one does.

        Raises
        ------
        ParameterError
            If the state is not readable; then the next query opens and pays an epoch.
        """
        with self._lock:
            self._epoch = None
            if not state:
                return
            epoch = SparseVector.from_bytes(state, stream=self._stream)
            if epoch.threshold != self._threshold or epoch.epsilon != self._epsilon:
                raise ParameterError(
                    "The stored epoch has another threshold or epsilon.", "Open and pay another epoch."
                )
            self._epoch = epoch

    def __reduce_ex__(self, protocol: object) -> str:
        raise TypeError("StableAnswers holds a secret that must not exist twice: use to_bytes for its store")
