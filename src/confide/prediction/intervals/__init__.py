"""Certificate `interval` (abstract gradient training): boxes of parameters through training."""

from __future__ import annotations

from typing import TYPE_CHECKING

from confide.lazy import lazy

if TYPE_CHECKING:
    from confide.prediction.intervals.ball import BallTraining as BallTraining
    from confide.prediction.intervals.batches import FixedBatches as FixedBatches
    from confide.prediction.intervals.batches import HashedBatches as HashedBatches
    from confide.prediction.intervals.certificate import IntervalTraining as IntervalTraining
    from confide.prediction.intervals.hybrid import HybridTraining as HybridTraining
    from confide.prediction.intervals.hyperparameters import Hyperparameters as Hyperparameters
    from confide.prediction.intervals.network import Network as Network
    from confide.prediction.intervals.training import Intervals as Intervals
    from confide.prediction.intervals.training import train_intervals as train_intervals

_WHERE = {
    "BallTraining": "ball",
    "FixedBatches": "batches",
    "HashedBatches": "batches",
    "HybridTraining": "hybrid",
    "Hyperparameters": "hyperparameters",
    "IntervalTraining": "certificate",
    "Intervals": "training",
    "Network": "network",
    "train_intervals": "training",
}

__all__ = sorted(_WHERE)  # pyright: ignore[reportUnsupportedDunderAll]


__getattr__, __dir__ = lazy(__name__, _WHERE)
