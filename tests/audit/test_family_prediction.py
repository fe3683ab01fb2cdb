"""Members of the families of prediction: each holds, and distances that one of them overclaims are caught."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from confide.audit import claims, family, poison, price, replay
from confide.audit.family.prediction import MEMBERS
from confide.audit.finding import Verdict
from confide.mechanisms import seeded_stream
from confide.prediction import Ensemble, ensemble, persons
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


class Overclaimed:
    """A model whose distances are told otherwise."""

    def __init__(self, model, otherwise):
        self.model, self.otherwise = model, otherwise

    def stability(self, X):
        labels, k = self.model.stability(X)
        return labels, self.otherwise(k)


def quick(name):
    return poison.attack(of(name), budget=24)


@pytest.mark.parametrize(
    "otherwise",
    [lambda k: 4 * k + 3, lambda k: k + 1, lambda k: 2 * k, lambda k: np.maximum(k, 3)],
    ids=["4k + 3", "k + 1", "2k", "3 at least"],
)
@pytest.mark.parametrize(("name", "member"), ALL, ids=IDS)
def test_a_member_that_overclaims_is_caught_by_a_quick_audit(name, member, otherwise):
    target = member.target()
    broken = replace(target, fit=lambda rows: Overclaimed(target.fit(rows), otherwise))
    assert poison._attacked(of(name), broken, poison._FEWEST, 0).verdict is Verdict.BROKEN


def test_halves_that_are_whole_are_caught(monkeypatch):
    """A replaced row that may leave its member is two changes of members."""
    assert quick("prediction.ensemble").verdict is Verdict.HOLDS
    monkeypatch.setattr(Ensemble, "halves", False)
    found = quick("prediction.ensemble")
    assert found.verdict is Verdict.BROKEN
    assert found.note.startswith("votes that a row may leave: ")


@pytest.mark.parametrize("name", ["prediction.erm.add_remove_one", "prediction.votes", "prediction.ensemble"])
def test_rows_of_a_person_that_do_not_count_are_caught(monkeypatch, name):
    kept = persons.kept
    monkeypatch.setattr(persons, "kept", lambda rows, names, most, key: kept(rows, names, None, key))
    found = quick(name)
    assert found.verdict is Verdict.BROKEN
    assert found.note.startswith("persons ")


@pytest.mark.parametrize("name", ["prediction.erm", "prediction.votes", "prediction.ensemble"])
def test_distances_of_persons_that_are_those_of_rows_are_caught(monkeypatch, name):
    monkeypatch.setattr(persons, "changes", lambda certificate, rows: 1)
    assert quick(name).note.startswith("persons of ten rows: ")


def test_members_by_the_place_of_a_row_are_caught(monkeypatch):
    hashes = ensemble.hashes

    def by_place(rows, labels, ids, relation, key):
        return hashes(rows, labels, range(len(rows)), relation, key)

    monkeypatch.setattr(ensemble, "hashes", by_place)
    assert quick("prediction.ensemble").verdict is Verdict.BROKEN
