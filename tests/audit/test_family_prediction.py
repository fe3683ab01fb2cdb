"""Members of the families of prediction: each holds, and distances that one of them overclaims are caught."""

from __future__ import annotations

import numpy as np
import pytest

from confide.audit import claims, family, poison, price, replay
from confide.audit.family.prediction import MEMBERS
from confide.audit.finding import Verdict
from confide.mechanisms import seeded_stream
from confide.privacy import Adjacency

ALL = [(claim, member) for claim, members in MEMBERS.items() for member in members]
IDS = [f"{claim}[{member.name}]" for claim, member in ALL]


def of(name):
    return next(claim for claim in claims(name) if claim.name == name)


@pytest.mark.parametrize(("name", "member"), ALL, ids=IDS)
def test_a_member_is_replayed_priced_and_poisoned(name, member):
    claim = of(name)
    variant = next(one for one in family.variants(claim) if one.name == f"{name}[{member.name}]")
    assert claim.adjacency is Adjacency(member.adjacency)
    assert replay.check(variant, variant.pairs()[:2]).verdict is Verdict.HOLDS
    till, shown = price.price(variant, variant.pairs()[0].here)
    assert shown.error == ""
    assert not list(price.dishonest(variant, till))
    assert set(np.unique(variant.run(variant.pairs()[0].here, seeded_stream(0)))) <= set(member.classes)


@pytest.mark.parametrize(("name", "member"), ALL, ids=IDS)
def test_distances_are_positive_and_the_paths_agree(name, member):
    target = member.target()
    _, k = target.fit(target.table).stability(target.queries)
    assert k.max() >= 1
    search = poison.Search(target, of(name).adjacency, 1)
    search.told(target.table)
    assert search.faults == []
