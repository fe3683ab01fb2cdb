"""Numeric labels by RR-on-Bins: a prior over public cells, the best bins for it, the exact channel."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

from confide.errors import ParameterError
from confide.mechanisms import RandomStream
from confide.privacy import Event
from confide.training.labels.channel import Channel, split_share
from confide.training.labels.labels import Codes, Floats, LabelRange, PrivateLabels, released_counts
from confide.training.labels.rr_on_bins import Bins, rr_on_bins


@dataclass(frozen=True)
class BinnedLabels:
    """RR-on-Bins over public cells.

    Attributes
    ----------
    range : LabelRange
    epsilon : Fraction
        Total: of the prior, where it is released, and of the channel.
    cells : tuple of float [k]
        Public label values, increasing; a label counts as the nearest.
    share : Fraction
        Of epsilon for the prior; 0 where `prior` is given.
    prior : tuple of float [k] or None
        Public weights of the cells; None releases a histogram.
    debias : bool
        Hand out the inverse channel's numbers instead of the bins' outputs, so that the mean of a private
        label is the mean of its bin under the prior.

    Notes
    -----
    Proof. The histogram has L1 sensitivity 2 under REPLACE_LABEL and discrete Laplace noise of scale
    2 / epsilon_1: epsilon_1. Given it, bins and channel are fixed, and a label meets the channel once:
    epsilon_2. Sequential composition: epsilon_1 + epsilon_2 = epsilon, as rationals. De-biasing maps each
    output to a number that the released prior decides: post-processing.

    =========================  =====================================================================
    edge case                  what happens
    =========================  =====================================================================
    NaN, text                  the middle of the range
    labels outside the bounds  the end
    no rows                    no labels; the prior is still released and charged
    one bin is best            every output is the same number
    =========================  =====================================================================
    """

    range: LabelRange
    epsilon: Fraction
    cells: tuple[float, ...]
    share: Fraction
    prior: tuple[float, ...] | None
    debias: bool

    def __post_init__(self) -> None:
        check_share(self.epsilon, self.share, public=self.prior is not None)
        if self.prior is not None:
            rr_on_bins(self.prior, self.cells, self.epsilon)

    @property
    def numeric(self) -> bool:
        """Labels are numbers."""
        return True

    @property
    def amounts(self) -> tuple[Fraction, Fraction]:
        """(epsilon, 0)."""
        return self.epsilon, Fraction(0)

    @property
    def event(self) -> Event:
        """A discrete Laplace histogram, then one pure channel: its size follows from the histogram."""
        return prior_and_channel(self.epsilon, self.share)

    def codes(self, y: Any) -> Codes:
        """Return the nearest cell of each label, int64 [n]."""
        values = np.array(self.cells)
        edges = values[:-1] / 2 + values[1:] / 2
        return np.searchsorted(edges, self.range.bounded(y), side="right").astype(np.int64)

    def plain(self, y: Any) -> Floats:
        """Return the labels within their bounds."""
        return self.range.bounded(y)

    def response(self, counts: npt.ArrayLike) -> tuple[Bins, Channel, Floats]:
        """Return the bins for a prior, their channel, and the number handed out for each output."""
        _, epsilon = split_share(self.epsilon, self.share)
        found = rr_on_bins(counts, self.cells, epsilon)
        channel = Channel.of(len(found.bins), epsilon)
        if self.debias:
            return found, channel, channel.unbiased(found.means(counts, self.cells))
        return found, channel, np.array([b.output for b in found.bins])

    def release(self, y: Any, stream: RandomStream) -> PrivateLabels:
        """Return one number a label."""
        codes = self.codes(y)
        first, _ = split_share(self.epsilon, self.share)
        if self.prior is None:
            counts = released_counts(codes, len(self.cells), first, stream)
        else:
            counts = np.array(self.prior)
        found, channel, outputs = self.response(counts)
        drawn = channel.draw(found.codes()[codes], stream.child("label channel"))
        return PrivateLabels(outputs[drawn], counts, found, channel)


def check_share(epsilon: Fraction, share: Fraction, *, public: bool) -> None:
    """Refuse a share of epsilon that leaves nothing for the prior or the channel, or noise beyond 2^50."""
    if public:
        if share != 0:
            raise ParameterError(
                f"The 'prior_share' parameter is {float(share)!r} beside a public prior.",
                "Pass prior_share=0: a public prior costs nothing.",
            )
        return
    if not 0 < share < 1:
        raise ParameterError(
            f"The 'prior_share' parameter is {float(share)!r}.",
            "Pass a share in (0, 1) of epsilon for the prior, or a public 'prior'.",
        )
    first = split_share(epsilon, share)[0]
    if first * 2**48 < 1:
        raise ParameterError(
            f"The 'epsilon' parameter leaves {float(first):.3g} for the prior.",
            "Pass a larger epsilon or prior_share.",
        )


def prior_and_channel(epsilon: Fraction, share: Fraction) -> Event:
    """Return the event of a released histogram (where the share is not 0) and a channel chosen by it."""
    first, rest = split_share(epsilon, share)
    channel = Event.of("pure", epsilon=str(rest))
    if first == 0:
        return channel
    return Event.sequence((Event.of("discrete_laplace", epsilon=str(first)), channel))
