"""Public names that make no claim of their own, each with the reason."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module

from confide.audit.registry import claims

_TYPE = "a value or a type: it draws nothing"
_PRICE = "public arithmetic of what a release costs or needs"
_PARAMETERS = "computed from public columns and parameters alone"
_STREAM = "the source of bits, not a release"
_SECRET = "a step inside a claimed release; its result is as secret as the data"
_READING = "reads or draws a picture of what was released"

_REASONS: dict[str, dict[str, str]] = {
    "mechanisms": {
        _STREAM: "EntropyError RandomStream is_certified os_stream seeded_stream",
        _PRICE: "choice_cost choice_error choice_probabilities false_stable grid_step noise_deviation "
        "padded_sensitivity split_epoch stable_threshold sum_error",
        _TYPE: "Statistic",
        _SECRET: "basic_tanh exp_negative full_exponent_uniform grid_sum round_toward_zero row_products "
        "row_squares row_sums",
    },
    "selection": {
        _TYPE: "GapCheck Loss ParquetMatrix Ranking SelectionResult Status SubsetProblem bounded",
        _PARAMETERS: "hinge huber logistic quantile squared",
        _SECRET: "best_by_mistakes best_supports",
    },
    "training": {
        _TYPE: "Bins Coefficients Geometry HybridResult LinearModel LinearProblem ModelResult "
        "SemiSensitiveFit Statistics Status TableModel TrainingResult",
        _PARAMETERS: "conditioning_matrix from_gram geometry forecast Forecast",
    },
    "prediction": {
        _TYPE: "FixedBatches HashedBatches Hyperparameters Intervals Recommendation",
        _READING: "accuracy_by_epsilon accuracy_by_queries boxes_figure distances_figure trace_intervals "
        "widths_figure",
        _PARAMETERS: "recommend recommend_from_margins",
    },
    "pipeline": {_TYPE: "SparseModel SparseResult", _READING: "load"},
    "tune": {_TYPE: "Status TuneResult"},
}
_OTHER: dict[str, str] = {
    "confide.prediction.private_scorer": "not private, and says so: it reads public rows alone",
    "selection.baseline:markov_chain": "labelled approximate and certified by nothing",
    "selection.baseline:best_subset": "labelled non-private: a reference",
    "event:group": "a size of a group, applied to another event",
    "event:approximate": "a pair of amounts that a caller states",
    "event:top_r": "priced as the exponential mechanism",
}

EXEMPT: dict[str, str] = _OTHER | {
    f"confide.{room}.{name}": reason
    for room, reasons in _REASONS.items()
    for reason, names in reasons.items()
    for name in names.split()
}


def promised() -> Iterator[str]:
    """Yield what must be claimed or exempt: public names of the rooms, and entries of their tables."""
    for room in _REASONS:
        for name in import_module(f"confide.{room}").__all__:
            yield f"confide.{room}.{name}"
    from confide.prediction.releases import _RELEASES, SPARSE_VECTOR
    from confide.privacy import mechanisms
    from confide.selection.exponent import MECHANISMS
    from confide.training.engines import names
    from confide.training.labels.request import METHODS
    from confide.training.request import ENGINES

    yield from (f"selection.mechanism:{name}" for name in MECHANISMS)
    for name in ("markov_chain", "lasso_votes", "screening", "enumeration", "best_subset"):
        yield f"selection.baseline:{name}"
    yield from (f"selection.loss:{name}" for name in ("squared", "hinge", "huber", "logistic", "quantile"))
    yield from (f"labels.method:{name}" for name in METHODS)
    yield from (f"training.engine:{name}" for name in {*ENGINES, *names(classes=True), *names(classes=False)})
    yield from (f"prediction.release:{name}" for name in (*_RELEASES, SPARSE_VECTOR))
    yield from (f"event:{name}" for name in mechanisms())


def missing() -> list[str]:
    """Return what neither a claim covers nor `EXEMPT` excuses."""
    covered = {name for claim in claims() for name in claim.covers}
    return sorted(set(promised()) - covered - set(EXEMPT))
