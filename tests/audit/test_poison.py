"""Poisoning: it must turn what is certified for too long, and count changes as the relation does."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from confide.audit import claims, poison
from confide.audit.finding import Verdict
from confide.audit.neighbours import Rows
from confide.privacy import Adjacency

TARGETS = [claim for claim in claims("prediction") if claim.target is not None]
VOTES = next(claim for claim in TARGETS if claim.name == "prediction.votes")


class Claimed:
    """A model whose distances are told otherwise."""

    def __init__(self, model, otherwise):
        self.model, self.otherwise = model, otherwise

    def stability(self, X):
        labels, k = self.model.stability(X)
        return labels, self.otherwise(k)


def overclaimed(otherwise):
    fit = VOTES.target.fit
    return replace(VOTES, target=replace(VOTES.target, fit=lambda rows: Claimed(fit(rows), otherwise)))


class Served:
    """A model whose other path, that of the service, tells otherwise."""

    def __init__(self, model, otherwise):
        self.stability, self.otherwise = model.stability, otherwise

    def steady(self, X):
        return self.otherwise(*self.stability(X))


def told(seen=(1.0, -1.0), ks=(2, 0), served=None, steady=None):
    labels = np.array(seen), np.array(ks), np.array(served or seen), np.array(steady or ks)
    return poison.Told(*labels)


@pytest.mark.parametrize(
    ("otherwise", "fault"),
    [
        (lambda labels, k: (labels, k + 1), "the distance that 'steady' tells"),
        (lambda labels, k: (labels, 2 * k), "the distance that 'steady' tells"),
        (lambda labels, k: (-labels, k), "the class that 'steady' tells"),
    ],
)
def test_the_path_of_the_service_is_held_against_the_other(otherwise, fault):
    fit = VOTES.target.fit
    broken = replace(VOTES, target=replace(VOTES.target, fit=lambda rows: Served(fit(rows), otherwise)))
    found = poison.attack(broken, budget=24)
    assert found.verdict is Verdict.BROKEN
    assert fault in found.note


def test_the_path_of_the_service_is_attacked_by_itself():
    """Two apart are found on one table, and on two: one distance too many, where both paths agree."""
    search = poison.Search(VOTES.target, VOTES.adjacency, 10)
    search.compare(told(steady=(9, 0)), told((-1.0, -1.0), (0, 0), steady=(1, 0)), 3, "a heap")
    assert [fault.partition(":")[0] for fault in search.faults] == ["a heap, by 'steady'"] * 2


def test_one_distance_that_is_one_apart_is_rounding():
    search = poison.Search(VOTES.target, VOTES.adjacency, 10)
    search._agree(told(steady=(3, 0)))
    assert search.faults == []
    search._agree(told(steady=(3, 0)))
    assert len(search.faults) == 1


@pytest.mark.parametrize(
    ("answers", "fault"),
    [
        (lambda labels, k: np.where(k > 0, labels[::-1], -1), "a class that is not the model's"),
        (lambda labels, k: labels, "certified for no change"),
    ],
)
def test_stable_answers_are_attacked(monkeypatch, answers, fault):
    search = poison.Search(VOTES.target, VOTES.adjacency, 10)
    search._agree(told(ks=(1, 0)))
    assert search.faults == []
    monkeypatch.setattr(poison.StableAnswers, "answer", lambda self, labels, k: answers(labels, k))
    search._agree(told(ks=(1, 0)))
    assert len(search.faults) == 1
    assert fault in search.faults[0]


@pytest.mark.parametrize("claim", TARGETS, ids=lambda claim: claim.name)
def test_certified_distances_hold(claim):
    found = poison.attack(claim, budget=40, seed=1)
    assert found.verdict is Verdict.HOLDS, found.note
    assert found.tried >= 40


@pytest.mark.slow
@pytest.mark.parametrize("claim", TARGETS, ids=lambda claim: claim.name)
def test_certified_distances_hold_at_length(claim):
    found = poison.attack(claim, budget=300, seed=2)
    assert found.verdict is Verdict.HOLDS, found.note
    assert "closest call" in found.note


@pytest.mark.parametrize(
    "otherwise",
    [
        lambda k: k + 1,  # one too many: the last change turns it
        lambda k: 2 * k,
        lambda k: np.where(k < 3, k, 9),
    ],
)
def test_distances_that_are_too_large_are_found(otherwise):
    found = poison.attack(overclaimed(otherwise), budget=40)
    assert found.verdict is Verdict.BROKEN
    assert "changes turn" in found.note or "changes move the distance" in found.note


def test_distances_that_are_sound_and_jump_are_found():
    """On a coarse grid, as published: never too large, and neighbours report 2 and 5."""
    found = poison.attack(overclaimed(lambda k: np.where(k >= 5, 5, np.minimum(k, 2))), budget=40)
    assert found.verdict is Verdict.BROKEN
    assert "move the distance" in found.note


def test_a_path_ends_where_one_more_change_turns_the_answer():
    """Of a model that turns at 6 changes: 1, what is certified, one more, doubled, halved; then the rest."""

    class Turned:
        def __init__(self, rows):
            self.y = rows.y

        def stability(self, X):
            gone = int((self.y != VOTES.target.table.y).sum())
            return np.full(len(X), -1.0 if gone >= 6 else 1.0), np.full(len(X), max(0, 3 - abs(gone - 2)))

    target = replace(VOTES.target, fit=Turned)
    search = poison.Search(target, VOTES.adjacency, 100)

    def made(count):
        y = target.table.y.copy()
        y[:count] = -y[:count]
        return Rows(target.table.X, y)

    path = poison.Path(search, 0, {0: search.told(target.table)}, made)
    assert len(list(path.turned(40))) == len(path.told) - 1
    assert list(path.told) == [0, 1, 2, 4, 8, 6, 5]
    assert list(path.filled()) == [True, True]
    assert list(path.told)[-2:] == [3, 7]
    assert search.faults == []


def test_a_path_that_never_turns_ends_with_the_table():
    target = replace(VOTES.target, fit=lambda rows: Claimed(VOTES.target.fit(VOTES.target.table), abs))
    search = poison.Search(target, VOTES.adjacency, 100)
    path = poison.Path(search, 0, {0: search.told(target.table)}, lambda count: target.table)
    assert len(list(path.turned(40))) < 10
    assert max(path.told) == 40


def test_items_are_taken_from_both_ends():
    assert poison._ends_first([1, 2, 3, 4, 5]) == [1, 5, 2, 4, 3]
    assert poison._ends_first([1, 2]) == [1, 2]
    assert poison._ends_first([]) == []


def test_the_closest_call_of_votes_is_tight():
    """A vote gap is exact: k + 1 changes turn the answer."""
    found = poison.attack(VOTES, budget=300)
    assert found.note.endswith("closest call: 2 changes turned one certified for 1")


@pytest.mark.parametrize("relation", list(Adjacency))
def test_changes_are_what_the_relation_allows(relation):
    table = Rows(np.arange(12.0).reshape(6, 2) / 12, np.array([1.0, -1, 1, -1, 1, -1]))
    made = poison.changed(table, relation, 2, np.array([9.0, 9.0]), -1.0)
    if relation is Adjacency.ADD_REMOVE_ONE:
        assert made.y.size == 5
        more = poison.changed(table, relation, -1, np.array([9.0, 9.0]), -1.0)
        np.testing.assert_array_equal(more.X[:-1], table.X)
        assert more.y.size == 7
        return
    differs = (made.y != table.y) | (made.X != table.X).any(axis=1)
    assert differs.tolist() == [False, False, True, False, False, False]
    assert (made.X != table.X).any() == (relation is not Adjacency.REPLACE_LABEL)
    target = replace(VOTES.target, table=table)
    search = poison.Search(target, relation, 10)
    planted = poison._planted(search, table, [0, 2, 4, 1, 3, 5], np.array([9.0, 9.0]), -1.0, 3)
    assert ((planted.y != table.y) | (planted.X != table.X).any(axis=1)).sum() == 3


def test_claims_without_a_model_are_left_alone():
    assert poison.attack(claims("selection.mistakes")[0], budget=10) is None
