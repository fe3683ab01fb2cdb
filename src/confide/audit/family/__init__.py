"""Members of each claim's family that are like it but for shape, amounts, relation or a rare option.

A break behind a branch shows only to a run that takes the branch: more columns than two, a hundred steps,
three classes, an epsilon of 8. `options` has what is changed one at a time on the claim's own tables; here
every member brings what it needs.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from importlib import import_module

from confide.audit.registry import Claim
from confide.privacy import Adjacency, exact

#: Modules of this package that have `FAMILIES`.
ROOMS = (
    "training", "training_ends", "selection", "selection_drawn", "selection_earlier", "prediction",
    "pipeline", "tuning", "resumed", "texts", "files", "ids", "labels",
)  # fmt: skip


def variants(claim: Claim) -> Iterator[Claim]:
    """Yield the members of a claim's family, not registered."""
    for room in ROOMS:
        for variant in import_module(f"{__name__}.{room}").FAMILIES.get(claim.name, ()):
            yield replace(
                claim,
                name=f"{claim.name}[{variant.name}]",
                run=variant.run,
                pairs=variant.pairs or claim.pairs,
                adjacency=Adjacency.parse(variant.adjacency or claim.adjacency),
                epsilon=claim.epsilon if variant.epsilon is None else exact(variant.epsilon, "epsilon"),
                delta=claim.delta if variant.delta is None else exact(variant.delta, "delta"),
                outputs=None,
                law=None,
                search=None,
                # Its own tables are built for it: random ones of the claim's shape are not.
                fuzzed=claim.fuzzed and variant.pairs is None,
            )
