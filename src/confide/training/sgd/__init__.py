"""Engine `dpsgd` (Cond-DP): noisy gradient steps over conditioned public columns."""

from __future__ import annotations

from typing import TYPE_CHECKING

from confide.lazy import lazy

if TYPE_CHECKING:
    from confide.training.sgd.checkpoint import Snapshot as Snapshot
    from confide.training.sgd.fitting import fit as fit
    from confide.training.sgd.request import SGDRequest as SGDRequest
    from confide.training.sgd.result import SGDModel as SGDModel
    from confide.training.sgd.result import SGDResult as SGDResult

_WHERE = {
    "SGDModel": "result",
    "SGDRequest": "request",
    "SGDResult": "result",
    "Snapshot": "checkpoint",
    "fit": "fitting",
}

__all__ = sorted(_WHERE)  # pyright: ignore[reportUnsupportedDunderAll]


__getattr__, __dir__ = lazy(__name__, _WHERE)
