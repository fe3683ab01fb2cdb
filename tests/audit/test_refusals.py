"""Refusals of prediction: each stands, and none is there for another reason than its own."""

from __future__ import annotations

import numpy as np
import pytest

from confide.audit import refusals
from confide.errors import ParameterError
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


def test_what_a_certificate_is_given_is_noted():
    noted = refusals.Noted(Adjacency.REPLACE_ONE)
    X = np.ones((2, 1))
    noted.fit(X, [0, 1], ids=[b"a", b"b"])
    X[:] = 0
    assert noted.seen[0][0].tolist() == [[1.0], [1.0]]
    assert noted.stability(X)[1].tolist() == [0, 0]
