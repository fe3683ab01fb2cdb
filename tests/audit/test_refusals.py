"""Refusals of prediction: each stands, and none is there for another reason than its own."""

from __future__ import annotations

import numpy as np
import pytest

from confide.audit import refusals
from confide.errors import ParameterError
from confide.prediction import front, persons
from confide.privacy import Adjacency


@pytest.mark.parametrize(("number", "name"), list(enumerate(name for name, _, _ in refusals.CALLS)), ids=str)
def test_a_call_is_refused_and_the_one_beside_it_is_not(number, name):
    _, wrong, right = refusals.CALLS[number]
    assert refusals.refused(wrong)
    assert not refusals.refused(right)


def test_other_errors_are_no_refusals():
    def fails():
        raise ZeroDivisionError

    def refuses():
        raise ParameterError("It is.", "Pass another.")

    with pytest.raises(ZeroDivisionError):
        refusals.refused(fails)
    assert refusals.refused(refuses)
    assert list(refusals.calls()) == [True] * 2 * len(refusals.CALLS)


def test_rows_of_persons_count():
    kept, counted = list(refusals.kept()), list(refusals.counted())
    assert (len(kept), len(counted)) == (5 * (2 * len(Adjacency) + 1), 8 * (5 * 3 + 6))
    assert all(kept)
    assert all(counted)
    tabled = list(refusals.tabled())
    assert len(tabled) == len(Adjacency) * (2 + 5)
    assert all(tabled)


def numbered(table, recipe, certificate, X, y):
    """Train by the ids of a table where persons come and go, too."""
    ids = np.concatenate([part.ids for part in table.chunks()])
    return persons.Persons(certificate, table.schema.max_rows_per_id).fit(X, y, ids=ids)


@pytest.mark.parametrize(
    ("where", "other", "failed"),
    [
        ("_fit", lambda table, recipe, certificate, X, y: certificate.fit(X, y), {0, 7, 14, 21}),
        ("_fit", numbered, {2, 3, 4, 5}),  # the last number is nobody else's
        ("per_person", lambda certificate, rows: certificate, {0}),
        ("Persons", lambda certificate, rows, key: certificate, {7, 14, 21}),
    ],
    ids=["rows", "numbers", "rows that come and go", "rows that change"],
)
def test_tables_whose_persons_are_not_counted_are_told(monkeypatch, where, other, failed):
    monkeypatch.setattr(front, where, other)
    assert {place for place, holds in enumerate(refusals.tabled()) if not holds} == failed


@pytest.mark.parametrize("more", [-1, 1])
def test_persons_of_fewer_rows_and_smaller_distances_are_no_fault(monkeypatch, more):
    monkeypatch.setattr(front, "Persons", lambda *given: persons.Persons(given[0], given[1] + more, given[2]))
    assert all(refusals.tabled())


def test_what_a_certificate_is_given_is_noted():
    noted = refusals.Noted(Adjacency.REPLACE_ONE)
    X = np.ones((2, 1))
    noted.fit(X, [0, 1], ids=[b"a", b"b"])
    X[:] = 0
    assert noted.seen[0][0].tolist() == [[1.0], [1.0]]
    assert noted.stability(X)[1].tolist() == [0, 0]
