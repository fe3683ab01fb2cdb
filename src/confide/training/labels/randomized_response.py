"""Randomised response with prior for classes: only the k likeliest labels are told apart.

Ghazi, Golowich, Kumar, Manurangsi & Zhang, "Deep Learning with Label Differential Privacy" (NeurIPS 2021):
RRTop-k answers among the k labels of largest prior, by k-ary randomised response if the true label is one of
them and uniformly else; the output is right with probability e^eps / (e^eps + k - 1) times their prior mass,
and the best k maximises that (their theorem 6: no epsilon-DP map does better under the prior).
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

from confide.errors import ParameterError
from confide.mechanisms import RandomStream
from confide.privacy import Event
from confide.privacy.exact import Amount
from confide.training.labels.binned import check_share, prior_and_channel
from confide.training.labels.channel import Channel, split_share
from confide.training.labels.labels import Codes, PrivateLabels, released_counts


def best_count(prior: npt.ArrayLike, epsilon: Amount) -> int:
    """Return the number k of likeliest labels to answer among.

    Parameters
    ----------
    prior : array [K]
        Weights >= 0, any order and scale. All 0 counts as uniform.
    epsilon : amount
        Of the channel, >= 0.

    Returns
    -------
    int
        The smallest maximiser of mass(k likeliest) / (1 + e^-eps (k - 1)). At epsilon = 0 that is 1: the
        likeliest label always, whatever the true one.

    Raises
    ------
    ParameterError
    """
    weights = np.asarray(prior, dtype=np.float64)
    if weights.ndim != 1 or weights.size == 0 or not np.isfinite(weights).all() or weights.min() < 0:
        raise ParameterError(
            "The prior is no list of finite weights >= 0.", "Pass one weight for each class."
        )
    if weights.max() == 0:
        weights = np.ones_like(weights)
    ordered = np.sort(weights / weights.max())[::-1]
    lie = Channel.of(weights.size, epsilon).lie
    right = np.cumsum(ordered) / (1.0 + lie * np.arange(weights.size))
    # Sums of equal priors may differ by rounding: the first within that of the best.
    return int(np.flatnonzero(right >= right.max() * (1.0 - 1e-12))[0]) + 1


@dataclass(frozen=True)
class RandomizedResponse:
    """Classes by randomised response with prior.

    Attributes
    ----------
    classes : tuple
        Public class set; a label outside it counts as the first.
    epsilon : Fraction
        Total: of the prior, where it is released, and of the channel.
    share : Fraction
        Of epsilon for the prior; 0 where `prior` is given.
    prior : tuple of float or None
        Public weights of the classes; None releases class counts.

    Notes
    -----
    The prior is public, or a release that is charged: it is never computed from the label that it is used on
    without paying (pitfall F56). The proof is that of `BinnedLabels`, with `Channel`'s for labels that are
    not told apart.
    """

    classes: tuple[Any, ...]
    epsilon: Fraction
    share: Fraction
    prior: tuple[float, ...] | None

    def __post_init__(self) -> None:
        check_share(self.epsilon, self.share, public=self.prior is not None)
        if self.prior is not None:
            if len(self.prior) != len(self.classes):
                raise ParameterError(
                    f"The prior has {len(self.prior)} weights for {len(self.classes)} classes.",
                    "Pass one for each class.",
                )
            best_count(self.prior, self.epsilon)

    @property
    def numeric(self) -> bool:
        """Labels are classes."""
        return False

    @property
    def amounts(self) -> tuple[Fraction, Fraction]:
        """(epsilon, 0)."""
        return self.epsilon, Fraction(0)

    @property
    def event(self) -> Event:
        """Released class counts (where the prior is not public), then one pure channel."""
        return prior_and_channel(self.epsilon, self.share)

    def codes(self, y: Any) -> Codes:
        """Return the place of each label in `classes`, int64 [n]; 0 for anything else."""
        place = {value: i for i, value in reversed(list(enumerate(self.classes)))}

        def code(cell: Any) -> int:
            try:
                return place.get(cell, 0)
            except Exception:  # an unhashable cell is no class, and no cell may raise
                return 0

        return np.fromiter((code(cell) for cell in y), dtype=np.int64)

    def plain(self, y: Any) -> Any:
        """Return members of the class set."""
        return np.array(self.classes)[self.codes(y)]

    def response(self, counts: npt.ArrayLike) -> tuple[Codes, Channel]:
        """Return which classes a prior tells apart (likeliest first) and their channel."""
        _, epsilon = split_share(self.epsilon, self.share)
        order = np.argsort(-np.asarray(counts, dtype=np.float64), kind="stable")
        k = best_count(counts, epsilon)
        return order[:k].astype(np.int64), Channel.of(k, epsilon)

    def release(self, y: Any, stream: RandomStream) -> PrivateLabels:
        """Return one class a label."""
        codes = self.codes(y)
        first, _ = split_share(self.epsilon, self.share)
        if self.prior is None:
            counts = released_counts(codes, len(self.classes), first, stream)
        else:
            counts = np.array(self.prior)
        top, channel = self.response(counts)
        place = np.full(len(self.classes), -1, dtype=np.int64)
        place[top] = np.arange(top.size)
        drawn = channel.draw(place[codes], stream.child("label channel"))
        told = tuple(self.classes[i] for i in top)
        return PrivateLabels(np.array(self.classes)[top[drawn]], counts, told, channel)
