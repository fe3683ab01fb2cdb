"""A piece: a variant known to be broken, its correct sibling, and the layers that must tell them apart."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from confide.audit import blackbox, entropy, exact, price, replay, sides, sweep
from confide.audit.finding import Finding
from confide.audit.registry import Claim, Kind, Pair
from confide.mechanisms import RandomStream
from confide.privacy import Adjacency
from confide.privacy import exact as exact_amount

#: Error of one statistical layer on one piece: 20 runs of all siblings stay below 1e-3 together.
LEVEL = 1e-6
#: Replays of one claim: a difference may show after some answers alone.
_REPLAYS = 24
#: A sweep as in a quick audit, of all cells, and without a clock.
_REACH = sweep.Reach(40, 1 << 10, 58, 0.0)


@dataclass(frozen=True)
class Piece:
    """One known-bad variant.

    Parameters
    ----------
    name : str
    flaw : str
        What is wrong with it, in a sentence, and where it is known from.
    broken, sibling : function () -> Claim
        The same promise, of the variant and of what is right. Neither is registered.
    caught_by : tuple of str
        Layers that must catch it, of ``"exact"``, ``"entropy"``, ``"black box"``, ``"replay"``,
        ``"side channels"``, ``"support"``.
    """

    name: str
    flaw: str
    broken: Callable[[], Claim] = field(repr=False)
    sibling: Callable[[], Claim] = field(repr=False)
    caught_by: tuple[str, ...]


def claim(
    name: str,
    epsilon: Any,
    delta: Any,
    adjacency: Adjacency | str,
    pairs: Iterable[Pair],
    run: Callable[[Any, RandomStream], Any],
    **how: Any,
) -> Claim:
    """Return a claim that is not registered."""
    amounts = exact_amount(epsilon, "epsilon"), exact_amount(delta, "delta")
    tried = tuple(pairs)
    return Claim(
        f"museum.{name}", Kind.MECHANISM, *amounts, Adjacency.parse(adjacency), "", lambda: tried, run,
        **{"quick": 20_000, **how},
    )  # fmt: skip


def vectorised(draw: Callable[[Any, int, RandomStream], Any]) -> dict[str, Any]:
    """Return `run` and `outputs` of a draw (table, size, stream)."""
    return {"run": lambda table, stream: draw(table, 1, stream), "outputs": draw}


def attack(promise: Claim, stream: RandomStream, *, seed: int = 0) -> dict[str, Finding]:
    """Try a claim, registered or not, by every layer on its own pairs; statistical layers on the first.

    These are left out for a claim without draws (`Claim.quick` 0).
    """
    pairs = list(promise.pairs())
    often = pairs * max(1, _REPLAYS // len(pairs))
    found = {
        "exact": exact.check(promise, pairs, search=False),
        "entropy": entropy.check(promise),
        "replay": replay.check(promise, often, seed=seed),
        "price": price.check(promise, pairs, seed=seed),
        "side channels": sweep.joined(
            sides.check(promise, pairs, seed=seed), sweep.check(promise, _REACH, seed=seed)
        ),
    }
    if promise.quick:
        found["black box"] = blackbox.check(
            promise, pairs[0], promise.quick, stream.child("black box"), full=False, error=LEVEL
        )
        found["support"] = sides.support(
            promise, pairs[0], min(promise.quick, 20_000), stream.child("support"), error=LEVEL
        )
    return {layer: finding for layer, finding in found.items() if finding is not None}


def catchers(found: dict[str, Finding], level: float = LEVEL) -> tuple[str, ...]:
    """Return the layers that break the claim."""
    return tuple(layer for layer, finding in found.items() if sides.rejects(finding, level))


@dataclass(frozen=True)
class Shown:
    """What the audit made of a piece.

    Parameters
    ----------
    piece : Piece
    caught : tuple of str
        Layers that called the variant broken.
    accused : tuple of str
        Layers that called its sibling broken: none should.
    measured : float
        Largest lower bound on the variant's epsilon; NaN where only layers that measure none caught it.
    """

    piece: Piece
    caught: tuple[str, ...]
    accused: tuple[str, ...]
    measured: float

    @property
    def right(self) -> bool:
        """Whether every layer that must catch the variant did, and none accused the sibling."""
        return set(self.piece.caught_by) <= set(self.caught) and not self.accused

    def to_dict(self) -> dict[str, Any]:
        """Return plain values; an infinite bound as text."""
        bound = None if math.isnan(self.measured) else self.measured
        return {
            "piece": self.piece.name,
            "flaw": self.piece.flaw,
            "caught_by": list(self.caught),
            "must_be_caught_by": list(self.piece.caught_by),
            "sibling_accused_by": list(self.accused),
            "measured": "infinite" if bound is not None and math.isinf(bound) else bound,
            "right": self.right,
        }


def show(piece: Piece, stream: RandomStream) -> Shown:
    """Attack a piece and its sibling."""
    found = attack(piece.broken(), stream.child("broken"))
    caught = catchers(found)
    bounds = [found[layer].measured for layer in caught if not math.isnan(found[layer].measured)]
    accused = catchers(attack(piece.sibling(), stream.child("sibling")))
    return Shown(piece, caught, accused, max(bounds, default=math.nan))
