"""`dpsgd` (`confide.training.sgd`) at the front doors."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from confide.errors import ParameterError, UnsupportedError
from confide.privacy import Adjacency, Guarantee
from confide.training.engines.ask import Ask, Charge, Job, warn_of_delta
from confide.training.engines.result import ModelResult
from confide.training.sgd.batches import rate_of
from confide.training.sgd.fitting import fit as fit_sgd
from confide.training.sgd.request import SGDRequest

#: Options of some models alone, and the models that use them.
_LAYERS = frozenset({"hidden", "activation", "embedding", "rank"})
_USED = {"linear": frozenset(), "fm": frozenset({"rank"}), "mlp": _LAYERS - {"rank"}}


@dataclass(frozen=True)
class DPSGD:
    """A validated request; with Poisson batches the event of its guarantee awaits the number of rows."""

    ask: Ask
    request: SGDRequest

    def quote(self, job: Job) -> Guarantee:
        """Return what `fit` charges: the number of rows decides how often a batch takes each."""
        rows = job.n if self.request.rows is None else self.request.rows
        _, rate = rate_of(self.request.batch_size, max(1, rows))
        return self.request.guarantee(self.request.account(rate))

    def fit(self, job: Job, charge: Charge) -> ModelResult:
        """Charge and fit."""
        ask = self.ask
        request = replace(self.request, private_bounds=job.private_bounds)
        if ask.adjacency is not Adjacency.ADD_REMOVE_ONE:
            warn_of_delta(ask.delta, job.n)
        found = fit_sgd(
            job.public if job.public.shape[1] else None,
            job.private if job.private_bounds else None,
            job.labels,
            request,
            ledger=charge.ledger,
            table=charge.table,
            analyst=charge.analyst,
            label=charge.label,
        )
        model = found.model if ask.classes is None else replace(found.model, classes=ask.classes)
        book = found.accounting
        facts = {
            "model": request.model,
            "steps": request.steps,
            "parameters": int(found.model.parameters.size),
            "clip": found.clip,
            "noise_multiplier": book.multiplier,
            "sampling_probability": book.sampling_probability,
            "accountant": book.accountant,
        }
        return ModelResult(model, found.guarantee, found.status, "dpsgd", facts, found.entry or "")


def make(ask: Ask) -> DPSGD:
    """Check a request."""
    if ask.leverage is not None or ask.shrinkage is not True:
        raise UnsupportedError(
            "The engine 'dpsgd' knows neither 'leverage' nor 'shrinkage'.", "Leave them out."
        )
    if ask.assumptions:
        raise UnsupportedError(
            "The engine 'dpsgd' takes no declared number of rows a person from arrays.",
            "Use confide.train on a table with an id column, which enforces it.",
        )
    epsilon, delta = ask.amounts()
    if delta == 0 and not math.isinf(epsilon):
        raise ask.no_delta()
    unused = sorted(name for name in _LAYERS - _USED.get(ask.model, _LAYERS) if name in ask.options)
    if unused:
        raise ParameterError(
            f"The model {ask.model!r} does not use {', '.join(map(repr, unused))}.",
            "Leave it out, or pass the model that uses it: 'rank' is of 'fm', the others of 'mlp'.",
        )
    widths = ask.options.get("hidden", ())
    if not isinstance(widths, list | tuple):
        raise ParameterError(
            f"The 'hidden' parameter is {widths!r:.80}.", "Pass the widths of the layers, such as (64, 32)."
        )
    hidden = {"hidden": tuple(widths)} if widths else {}
    request = SGDRequest(
        ask.epsilon,
        ask.delta,
        ask.adjacency,
        target_bounds=ask.target_bounds,
        # Numbers of classes; the model is given their names after the fit.
        classes=None if ask.classes is None else tuple(range(len(ask.classes))),
        model=ask.model,
        fit_intercept=bool(ask.fit_intercept),
        conditioning=ask.conditioning,
        rows=ask.max_rows if ask.adjacency is Adjacency.ADD_REMOVE_ONE else None,
        rows_per_unit=ask.rows_per_unit,
        random_state=ask.random_state,
        recorded=ask.recorded,
        unit=ask.unit,
        declaration=ask.declaration,
        nonprivate=ask.nonprivate,
        **{**ask.options, **hidden},
    )
    return DPSGD(ask, request)
