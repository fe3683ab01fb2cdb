"""Members on Parquet files: all hold and read their rows; what is lost between chunks is seen."""

from __future__ import annotations

import pytest

from confide.audit import claims, family
from confide.audit.family.files import FAMILIES
from confide.audit.finding import Verdict
from confide.schema import scan
from confide.schema.persons import PersonLimiter

from .members import coefficients_take_all, verdicts

CLAIMS = {claim.name: claim for claim in claims() if claim.name in FAMILIES}
MEMBERS = {
    member.name: member
    for claim in CLAIMS.values()
    for member in family.variants(claim)
    if "Parquet" in member.name or "in a file" in member.name
}


def test_every_family_is_one_of_a_claim():
    assert set(CLAIMS) == set(FAMILIES)
    assert len(MEMBERS) == sum(map(len, FAMILIES.values()))


@pytest.mark.parametrize("name", MEMBERS)
def test_a_member_holds(name):
    told, paid = verdicts(MEMBERS[name])
    assert told.verdict is Verdict.HOLDS, told.note
    assert paid.verdict is Verdict.HOLDS, paid.note
    assert "error" not in told.note + paid.note
    assert told.moved > 0.02


def persons_anew_in_each_chunk(patch):
    true = scan.build
    patch.setattr(
        scan,
        "build",
        lambda schema, part, limiter, *rest, **how: true(schema, part, PersonLimiter(2), *rest, **how),
    )


BREAKS = {
    "persons": (persons_anew_in_each_chunk, "ids in three chunks, adassp, replace_one"),
    "persons that come": (persons_anew_in_each_chunk, "ids in three chunks, adassp, add_remove_one"),
    "coefficients": (coefficients_take_all, "select_and_fit"),
}


@pytest.mark.parametrize("name", BREAKS)
def test_a_break_is_seen(name, monkeypatch):
    apply, where = BREAKS[name]
    members = [member for member in MEMBERS.values() if where in member.name]
    apply(monkeypatch)
    assert members
    for member in members:
        assert any(one.verdict is Verdict.BROKEN for one in verdicts(member)), member.name
