"""Members of the families of prediction: each holds, and distances that one of them overclaims are caught."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from confide.audit import claims, family, poison, price, replay
from confide.audit.family.prediction import MEMBERS
from confide.audit.finding import Verdict
from confide.mechanisms import seeded_stream
from confide.prediction import Ensemble, StronglyConvexERM, ensemble, erm_losses, front, persons, votes
from confide.prediction.erm_losses import HuberHinge
from confide.privacy import Adjacency

ALL = [(claim, member) for claim, members in MEMBERS.items() for member in members]
TABLES = "tables of persons of ten rows"
IDS = [f"{claim}[{member.name}]" for claim, member in ALL]


def of(name):
    return next(claim for claim in claims(name) if claim.name == name)


@pytest.mark.parametrize(("name", "member"), ALL, ids=IDS)
def test_a_member_is_replayed_priced_and_poisoned(name, member):
    claim = of(name)
    variant = next(one for one in family.variants(claim) if one.name == f"{name}[{member.name}]")
    assert variant.adjacency is Adjacency(member.adjacency)
    assert claim.adjacency is variant.adjacency or member.name.startswith("private parts")
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


@pytest.mark.parametrize("name", [claim for claim, member in ALL if member.name == TABLES])
def test_tables_of_persons_whose_distances_are_those_of_rows_are_caught(monkeypatch, name):
    def of_rows(table, recipe, certificate, X, y):
        return certificate.fit(X, y)

    monkeypatch.setattr(front, "_fit", of_rows)
    assert quick(name).note.startswith(f"{TABLES}: ")


@pytest.mark.parametrize(
    ("name", "where", "other"),
    [
        ("prediction.erm.add_remove_one", "per_person", lambda certificate, rows: certificate),
        ("prediction.persons", "Persons", lambda certificate, rows, key: certificate),
        ("prediction.erm.replace_label", "Persons", lambda certificate, rows, key: certificate),
    ],
)
def test_tables_of_persons_without_their_bound_are_caught(monkeypatch, name, where, other):
    monkeypatch.setattr(front, where, other)
    assert quick(name).note.startswith(f"{TABLES}: ")


def test_members_by_the_place_of_a_row_are_caught(monkeypatch):
    hashes = ensemble.hashes

    def by_place(rows, labels, ids, relation, key):
        return hashes(rows, labels, range(len(rows)), relation, key)

    monkeypatch.setattr(ensemble, "hashes", by_place)
    assert quick("prediction.ensemble").verdict is Verdict.BROKEN


def test_rows_that_change_their_ids_and_count_once_are_caught(monkeypatch):
    gap = votes.vote_gap
    monkeypatch.setattr(votes, "vote_gap", lambda counts, influence=2: gap(counts, 2))
    assert quick("prediction.teachers").note.startswith("rows that change their ids: ")


@pytest.mark.parametrize("name", ["prediction.votes", "prediction.teachers"])
@pytest.mark.parametrize("lost", [False, True], ids=["every tie", "ties of the second class"])
def test_ties_that_count_a_change_too_many_are_caught(monkeypatch, name, lost):
    """Where the number of votes is odd no two of two classes tie."""
    gap = votes.vote_gap

    def tied(counts, influence=2):
        labels, k = gap(counts, influence)
        ordered = np.sort(counts, axis=1)
        even = (ordered[:, -1] - ordered[:, -2]) % 2 == 0
        return labels, k + (even & ((labels == 1) | (not lost)))

    monkeypatch.setattr(votes, "vote_gap", tied)
    assert quick(name).note.startswith("an even number: ")


def test_labels_that_turn_for_less_than_they_move_are_caught(monkeypatch):
    monkeypatch.setattr(erm_losses, "HuberHinge", lambda: HuberHinge(relabelled=0.5))
    assert quick("prediction.erm.replace_label").note.startswith("huber hinge: ")


def test_private_parts_that_move_less_than_rows_are_caught(monkeypatch):
    true = StronglyConvexERM.gradient_shift.fget

    def shift(self):
        return 1.0 if self.adjacency is Adjacency.REPLACE_PRIVATE_PART else true(self)

    monkeypatch.setattr(StronglyConvexERM, "gradient_shift", property(shift))
    assert quick("prediction.erm").note.startswith("private parts: ")


@pytest.mark.parametrize("name", ["prediction.interval", "prediction.hybrid"])
def test_rows_of_a_person_in_a_batch_that_are_rounded_down_are_caught(monkeypatch, name):
    monkeypatch.setattr(
        persons, "_in_one_batch", lambda batches, rows: max(1, rows // getattr(batches, "count", 1))
    )
    assert quick(name).note.startswith("more rows of a person than batches: ")
