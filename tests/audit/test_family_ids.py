"""Members with odd ids: all hold, and what a cell of an id decides is seen: a refusal, or a word."""

from __future__ import annotations

import time
import warnings
from itertools import islice

import pytest

from confide.audit import claims, family, replay, sides
from confide.audit.family.ids import FAMILIES
from confide.audit.finding import Verdict
from confide.errors import DataError
from confide.prediction import ids

from .members import verdicts

CLAIMS = {claim.name: claim for claim in claims("prediction") if claim.name in FAMILIES}
MEMBERS = {
    member.name: member
    for claim in CLAIMS.values()
    for member in family.variants(claim)
    if "[odd ids" in member.name
}


def quick(member):
    """Return what a quick audit finds: on the first pair, results and what stands beside them."""
    return replay.check(member, islice(member.pairs(), 1), kind=sides.Sitting, beside=sides.beside)


def test_every_family_is_one_of_a_claim():
    assert set(CLAIMS) == set(FAMILIES)
    assert len(MEMBERS) == sum(map(len, FAMILIES.values()))


@pytest.mark.parametrize("name", MEMBERS)
def test_a_member_holds(name):
    told, paid = verdicts(MEMBERS[name])
    every = replay.check(MEMBERS[name], MEMBERS[name].pairs(), kind=sides.Sitting, beside=sides.beside)
    for found in (told, paid, every):
        assert found.verdict is Verdict.HOLDS, found.note
        assert "error" not in found.note
    assert every.tried == 8


def refused(cell):
    """Break: what is no int, str or bytes is refused, as it was once."""
    if isinstance(cell, bool) or not isinstance(cell, int | str | bytes):
        raise DataError("The ids are not all int, str or bytes.", "Convert them to text.")


def mentioned(cell):
    """Break: a word on what is not text."""
    if not isinstance(cell, str | bytes):
        warnings.warn("Some ids are odd.", stacklevel=2)


@pytest.mark.parametrize("decide", [refused, mentioned])
@pytest.mark.parametrize("name", MEMBERS)
def test_what_a_cell_decides_is_seen(name, decide, monkeypatch):
    true = ids._name

    def broken(cell):
        decide(cell)
        return true(cell)

    monkeypatch.setattr(ids, "_name", broken)
    assert quick(MEMBERS[name]).verdict is Verdict.BROKEN


def test_a_quick_audit_spends_little_on_them():
    for member in MEMBERS.values():
        quick(member)  # imports, kernels
    begun = time.process_time()
    for member in MEMBERS.values():
        verdicts(member)
    assert time.process_time() - begun < 3  # measured: well under one
