"""What a user asks of a label privatiser, validated before any label is read and any budget is written."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from confide.errors import ParameterError, UnsupportedError
from confide.privacy import NONPRIVATE, SEEDED, UNRECORDED, Adjacency, Event, Guarantee, exact
from confide.schema.loose import declared_classes
from confide.training.labels.additive import GaussianLabels, LaplaceLabels
from confide.training.labels.binned import BinnedLabels
from confide.training.labels.labels import LabelRange, Privatizer
from confide.training.labels.randomized_response import RandomizedResponse
from confide.training.labels.rounding import RoundedLabels
from confide.training.problem import SUPPORTED, check_bounds

#: Share of epsilon for a prior that is not given.
PRIOR_SHARE = 0.1
#: Cells of the label's range for RR-on-Bins.
CELLS = 32


@dataclass(frozen=True)
class LabelRequest:
    """A validated request.

    Attributes
    ----------
    method : Privatizer
    guarantee : Guarantee
        What will be charged.
    seed : int or None
    """

    method: Privatizer
    guarantee: Guarantee
    seed: int | None

    @property
    def nonprivate(self) -> bool:
        """Whether nothing is protected."""
        return self.guarantee.epsilon == math.inf


def label_request(
    method: str,
    epsilon: Any,
    delta: Any,
    *,
    options: Mapping[str, Any],
    adjacency: Adjacency | str,
    random_state: Any,
    recorded: bool,
    nonprivate: bool,
) -> LabelRequest:
    """Check every parameter and build the privatiser.

    Parameters
    ----------
    method : str
        A key of `METHODS`.
    epsilon, delta : amount
        Total. ``epsilon=inf`` only with ``nonprivate=True``.
    options : mapping
        target_bounds, classes, prior, prior_share, cells, debias: those that are None are not set. One that
        the method does not know is refused.

    Raises
    ------
    ParameterError, UnsupportedError
    """
    if method not in METHODS:
        raise UnsupportedError(
            f"The 'method' parameter is {method!r:.80}.", f"Pass one of {', '.join(map(repr, METHODS))}."
        )
    build, known = METHODS[method]
    given = {name: value for name, value in options.items() if value is not None}
    unknown = sorted(set(given) - set(known))
    if unknown:
        raise ParameterError(
            f"The method {method!r} does not use {', '.join(map(repr, unknown))}.",
            f"Leave it out; {method!r} takes {', '.join(map(repr, known))}.",
        )
    relation = check_label_adjacency(adjacency)
    seed = check_seed(random_state)
    marks = (() if recorded else (UNRECORDED,)) + (() if seed is None else (SEEDED,))
    if check_infinite(epsilon, nonprivate):
        stand_in = build(Fraction(1), Fraction(1, 10**6) if method == "gaussian" else Fraction(0), given)
        event = Event.of("gaussian", noise_multiplier=0.0)
        return LabelRequest(
            stand_in, Guarantee(math.inf, 0, relation, "row", event, (*marks, NONPRIVATE)), seed
        )
    amount = exact(epsilon, "epsilon")
    if amount == 0:
        raise ParameterError("The 'epsilon' parameter is 0.", "Pass a positive epsilon.")
    chosen = build(amount, exact(delta, "delta"), given)
    return LabelRequest(chosen, Guarantee(*chosen.amounts, relation, "row", chosen.event, marks), seed)


def check_label_adjacency(adjacency: Adjacency | str) -> Adjacency:
    """Return a relation under which neighbours share everything but labels (and unused private columns)."""
    relation = Adjacency.parse(adjacency)
    if relation not in SUPPORTED:
        raise UnsupportedError(
            f"Label privatisers have no proof under {relation.value!r}: the features stay as they are.",
            "Pass adjacency='replace_label', or 'replace_private_part' with public features only.",
        )
    return relation


def check_infinite(epsilon: Any, nonprivate: Any) -> bool:
    """Return whether epsilon is inf, which must come together with ``nonprivate=True``; refuse None."""
    if epsilon is None:
        raise ParameterError(
            "The 'epsilon' parameter is None.",
            "Pass the total epsilon of this fit: no amount of privacy is right by default.",
        )
    infinite = isinstance(epsilon, float) and epsilon == math.inf
    if infinite != bool(nonprivate):
        raise ParameterError(
            f"The 'epsilon' parameter is {epsilon!r:.80} with nonprivate={nonprivate!r}.",
            "Pass a finite epsilon, or epsilon=inf together with nonprivate=True for a fit without privacy.",
        )
    return infinite


def check_seed(random_state: Any) -> int | None:
    """Return the noise seed: None, or an int for tests."""
    if random_state is None:
        return None
    if (
        isinstance(random_state, int | np.integer)
        and not isinstance(random_state, bool)
        and random_state >= 0
    ):
        return int(random_state)
    raise ParameterError(
        f"The 'random_state' parameter is a {type(random_state).__name__}.",
        "Pass None (operating system entropy, the only certified state) or an int >= 0 for tests.",
    )


def label_range(options: Mapping[str, Any]) -> LabelRange:
    """Return the declared range of a numeric label."""
    if "target_bounds" not in options:
        raise ParameterError(
            "The 'target_bounds' parameter is None.",
            "Pass bounds (lo, hi) of the label from knowledge; they are never read from the data.",
        )
    return LabelRange(*check_bounds(options["target_bounds"]))


def _pure(delta: Fraction, method: str) -> None:
    if delta != 0:
        raise ParameterError(
            f"The 'delta' parameter is {float(delta)!r} for {method!r}, which needs none.", "Pass delta=0."
        )


def _prior(options: Mapping[str, Any], size: int) -> tuple[Fraction, tuple[float, ...] | None]:
    """Return (share of epsilon for the prior, public prior or None)."""
    share = options.get("prior_share")
    if "prior" not in options:
        return exact(PRIOR_SHARE if share is None else share, "prior_share"), None
    given = options["prior"]
    if isinstance(given, str) and given == "uniform":
        weights: tuple[float, ...] = (1.0,) * size
    else:
        try:
            weights = tuple(float(weight) for weight in given)
        except (TypeError, ValueError):
            raise ParameterError(
                f"The 'prior' parameter is {given!r:.80}.", f"Pass None, 'uniform', or {size} weights."
            ) from None
    return exact(0 if share is None else share, "prior_share"), weights


def _cells(value: Any, labels: LabelRange) -> tuple[float, ...]:
    """Return public label values: middles of equal cells, or those given."""
    if isinstance(value, int | np.integer) and not isinstance(value, bool):
        if not 1 <= value <= 4096:
            raise ParameterError(f"The 'cells' parameter is {value!r}.", "Pass a number in 1 .. 4096.")
        middles = (np.arange(value) + 0.5) / value
        return tuple((labels.lower + (labels.upper - labels.lower) * middles).tolist())
    given: Any = value
    try:
        points = tuple(float(point) for point in given)
    except (TypeError, ValueError):
        points = ()
    if not 1 <= len(points) <= 4096:
        raise ParameterError(
            f"The 'cells' parameter is {value!r:.80}.",
            "Pass how many, or up to 4,096 increasing label values.",
        )
    return points


def _binned(epsilon: Fraction, delta: Fraction, options: Mapping[str, Any]) -> BinnedLabels:
    _pure(delta, "rr_on_bins")
    labels = label_range(options)
    cells = _cells(options.get("cells", CELLS), labels)
    if not np.isfinite(np.array(cells)).all() or (np.diff(np.array(cells)) <= 0).any():
        raise ParameterError("The 'cells' are not finite and increasing.", "Sort them, without ties.")
    debias = options.get("debias", True)
    if not isinstance(debias, bool):
        raise ParameterError(f"The 'debias' parameter is {debias!r:.80}.", "Pass True or False.")
    share, prior = _prior(options, len(cells))
    return BinnedLabels(labels, epsilon, cells, share, prior, debias)


def _response(epsilon: Fraction, delta: Fraction, options: Mapping[str, Any]) -> RandomizedResponse:
    _pure(delta, "randomized_response")
    values = declared_classes(options.get("classes"))
    share, prior = _prior(options, len(values))
    return RandomizedResponse(values, epsilon, share, prior)


def _rounded(epsilon: Fraction, delta: Fraction, options: Mapping[str, Any]) -> RoundedLabels:
    _pure(delta, "rounding")
    return RoundedLabels(label_range(options), epsilon)


def _gaussian(epsilon: Fraction, delta: Fraction, options: Mapping[str, Any]) -> GaussianLabels:
    return GaussianLabels(label_range(options), epsilon, delta)


def _laplace(epsilon: Fraction, delta: Fraction, options: Mapping[str, Any]) -> LaplaceLabels:
    _pure(delta, "laplace")
    return LaplaceLabels(label_range(options), epsilon)


_Build = Callable[[Fraction, Fraction, Mapping[str, Any]], Privatizer]
#: Methods of this package, with the options that each takes. A new one is a file and a line here.
METHODS: dict[str, tuple[_Build, tuple[str, ...]]] = {
    "rr_on_bins": (_binned, ("target_bounds", "prior", "prior_share", "cells", "debias")),
    "rounding": (_rounded, ("target_bounds",)),
    "gaussian": (_gaussian, ("target_bounds",)),
    "laplace": (_laplace, ("target_bounds",)),
    "randomized_response": (_response, ("classes", "prior", "prior_share")),
}
