"""Private answers from models that were trained without noise: certified stability, and what is released."""

from __future__ import annotations

from typing import TYPE_CHECKING

from confide.lazy import lazy

if TYPE_CHECKING:
    from confide.prediction.budgets import answers as answers
    from confide.prediction.budgets import per_answer as per_answer
    from confide.prediction.ensemble import Ensemble as Ensemble
    from confide.prediction.ensemble import ensemble_distance as ensemble_distance
    from confide.prediction.erm import StronglyConvexERM as StronglyConvexERM
    from confide.prediction.estimator import CertifiedClassifier as CertifiedClassifier
    from confide.prediction.front import certify as certify
    from confide.prediction.intervals.ball import BallTraining as BallTraining
    from confide.prediction.intervals.batches import FixedBatches as FixedBatches
    from confide.prediction.intervals.batches import HashedBatches as HashedBatches
    from confide.prediction.intervals.certificate import IntervalTraining as IntervalTraining
    from confide.prediction.intervals.hybrid import HybridTraining as HybridTraining
    from confide.prediction.intervals.hyperparameters import Hyperparameters as Hyperparameters
    from confide.prediction.intervals.training import Intervals as Intervals
    from confide.prediction.intervals.training import train_intervals as train_intervals
    from confide.prediction.model import CertifiedModel as CertifiedModel
    from confide.prediction.persons import Persons as Persons
    from confide.prediction.pictures import accuracy_by_epsilon as accuracy_by_epsilon
    from confide.prediction.pictures import accuracy_by_queries as accuracy_by_queries
    from confide.prediction.pictures import boxes_figure as boxes_figure
    from confide.prediction.pictures import distances_figure as distances_figure
    from confide.prediction.pictures import trace_intervals as trace_intervals
    from confide.prediction.pictures import widths_figure as widths_figure
    from confide.prediction.recommend_front import recommend as recommend
    from confide.prediction.recommend_margins import recommend_from_margins as recommend_from_margins
    from confide.prediction.recommendation import Recommendation as Recommendation
    from confide.prediction.releases import release_of as release_of
    from confide.prediction.response import response_law as response_law
    from confide.prediction.response import response_probabilities as response_probabilities
    from confide.prediction.scoring import private_scorer as private_scorer
    from confide.prediction.vector import StableAnswers as StableAnswers
    from confide.prediction.votes import TeacherVotes as TeacherVotes
    from confide.prediction.votes import VoteGap as VoteGap
    from confide.prediction.votes import vote_gap as vote_gap

#: Public name -> module. Loaded on first use, so that importing the room stays cheap.
_WHERE = {
    "widths_figure": "pictures",
    "trace_intervals": "pictures",
    "distances_figure": "pictures",
    "boxes_figure": "pictures",
    "accuracy_by_queries": "pictures",
    "accuracy_by_epsilon": "pictures",
    "BallTraining": "intervals.ball",
    "FixedBatches": "intervals.batches",
    "HashedBatches": "intervals.batches",
    "HybridTraining": "intervals.hybrid",
    "Hyperparameters": "intervals.hyperparameters",
    "IntervalTraining": "intervals.certificate",
    "Intervals": "intervals.training",
    "train_intervals": "intervals.training",
    "response_probabilities": "response",
    "CertifiedClassifier": "estimator",
    "CertifiedModel": "model",
    "Ensemble": "ensemble",
    "Persons": "persons",
    "StableAnswers": "vector",
    "StronglyConvexERM": "erm",
    "TeacherVotes": "votes",
    "VoteGap": "votes",
    "answers": "budgets",
    "certify": "front",
    "ensemble_distance": "ensemble",
    "per_answer": "budgets",
    "private_scorer": "scoring",
    "Recommendation": "recommendation",
    "recommend": "recommend_front",
    "recommend_from_margins": "recommend_margins",
    "release_of": "releases",
    "response_law": "response",
    "vote_gap": "votes",
}

__all__ = sorted(_WHERE)  # pyright: ignore[reportUnsupportedDunderAll]


__getattr__, __dir__ = lazy(__name__, _WHERE)
