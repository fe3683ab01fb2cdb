"""Which s of p columns matter, under pure epsilon-DP. `select` is the front door on tables."""

from __future__ import annotations

from typing import TYPE_CHECKING

from confide.lazy import lazy

if TYPE_CHECKING:
    from confide.selection.baselines.front import baseline as baseline
    from confide.selection.baselines.front import baseline_law as baseline_law
    from confide.selection.draws import draw as draw
    from confide.selection.enumeration import law as law
    from confide.selection.estimator import SubsetSelector as SubsetSelector
    from confide.selection.front import select as select
    from confide.selection.gap import GapCheck as GapCheck
    from confide.selection.gap import gap_condition as gap_condition
    from confide.selection.losses import Loss as Loss
    from confide.selection.losses import hinge as hinge
    from confide.selection.losses import huber as huber
    from confide.selection.losses import logistic as logistic
    from confide.selection.losses import quantile as quantile
    from confide.selection.losses import squared as squared
    from confide.selection.problem import SubsetProblem as SubsetProblem
    from confide.selection.ranking import Ranking as Ranking
    from confide.selection.ranking import best_by_mistakes as best_by_mistakes
    from confide.selection.ranking import best_supports as best_supports
    from confide.selection.result import SelectionResult as SelectionResult
    from confide.selection.result import Status as Status
    from confide.selection.wide import ParquetMatrix as ParquetMatrix
    from confide.selection.wide import bounded as bounded

#: Public name -> module. Loaded on first use, so that importing the room stays cheap.
_WHERE = {
    "GapCheck": "gap",
    "Loss": "losses",
    "ParquetMatrix": "wide",
    "Ranking": "ranking",
    "SelectionResult": "result",
    "Status": "result",
    "SubsetProblem": "problem",
    "SubsetSelector": "estimator",
    "best_by_mistakes": "ranking",
    "best_supports": "ranking",
    "baseline": "baselines",
    "baseline_law": "baselines",
    "bounded": "wide",
    "draw": "draws",
    "gap_condition": "gap",
    "hinge": "losses",
    "huber": "losses",
    "law": "enumeration",
    "logistic": "losses",
    "quantile": "losses",
    "select": "front",
    "squared": "losses",
}

__all__ = sorted(_WHERE)  # pyright: ignore[reportUnsupportedDunderAll]


__getattr__, __dir__ = lazy(__name__, _WHERE)
