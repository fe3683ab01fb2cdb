"""Private answers from models that were trained without noise: certified stability, and what is released."""

from __future__ import annotations

from typing import TYPE_CHECKING

from confide.lazy import lazy

if TYPE_CHECKING:
    from confide.prediction.intervals.batches import FixedBatches as FixedBatches
    from confide.prediction.intervals.batches import HashedBatches as HashedBatches
    from confide.prediction.intervals.certificate import IntervalTraining as IntervalTraining
    from confide.prediction.intervals.hyperparameters import Hyperparameters as Hyperparameters
    from confide.prediction.intervals.training import Intervals as Intervals
    from confide.prediction.intervals.training import train_intervals as train_intervals
    from confide.prediction.response import response_probabilities as response_probabilities

#: Public name -> module. Loaded on first use, so that importing the room stays cheap.
_WHERE = {
    "FixedBatches": "intervals.batches",
    "HashedBatches": "intervals.batches",
    "Hyperparameters": "intervals.hyperparameters",
    "IntervalTraining": "intervals.certificate",
    "Intervals": "intervals.training",
    "train_intervals": "intervals.training",
    "response_probabilities": "response",
}

__all__ = sorted(_WHERE)  # pyright: ignore[reportUnsupportedDunderAll]


__getattr__, __dir__ = lazy(__name__, _WHERE)
