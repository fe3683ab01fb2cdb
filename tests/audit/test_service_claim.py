"""The answers of a service against its charge: each query is asked thrice, of which the total pays one.

Not a registered claim: the audit lies below the service, and imports nothing of it.
"""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from zlib import crc32

import numpy as np

from confide.audit import blackbox, neighbours
from confide.audit.neighbours import Rows
from confide.audit.promises import ledger as ledgers
from confide.audit.registry import Claim, Floats, Kind, Pair
from confide.errors import ConfideError
from confide.mechanisms import RandomStream, os_stream
from confide.prediction import CertifiedClassifier
from confide.privacy import Adjacency
from confide.service import Service, ServiceConfig

#: Rows, and queries of one account, whose nearest rows are divided: the row that differs decides their class.
_BASE = neighbours.table(9, 2, classes=True)
_QUERIES, _APART = 2, 1e-9


def _served(rows: Rows, count: int, stream: RandomStream) -> Floats:
    """Ask a service for so many accounts at once; return sums of the answers of each, and what it refused.

    Every query is asked as a new one, again, and by a second analyst, whose account pays anew where the total
    does not. The first one's account is spent then, and one query more is refused. Returned with the sums is
    what the total paid for each. The queries are neighbours of one point; answers to different queries are
    drawn apart. From the operating system whatever the stream is: a service draws from nowhere else.
    """
    model = CertifiedClassifier([-1.0, 1.0], (-1, 1), certificate="votes", neighbours=3).fit(rows.X, rows.y)
    size = _QUERIES * count
    asked = np.column_stack([np.full(size + 1, -1.0), -0.2 + _APART * np.arange(size + 1)])
    with ledgers.opened(3 * count) as (ledger, _):
        config = ServiceConfig.of(epsilon=Fraction(1, _QUERIES), rows=size)
        service = Service.open(model.model_, ledger, config)
        try:
            ann, bob = (service.analyst_of(service.grant(name, count)) for name in ("ann", "bob"))
            assert ann is not None
            assert bob is not None
            told = [
                service.answer(who, asked[:size].tolist(), name).values
                for who, name in ((ann, "new"), (ann, "again"), (bob, "new"))
            ]
            refused = 0.0
            try:
                service.answer(ann, asked[size:].tolist(), "more")
            except ConfideError as error:
                refused = float(crc32(type(error).__name__.encode()))
            paid = float(ledger.total().epsilon / count)
        finally:
            service.close()
    sums = np.array(told, dtype=np.float64).reshape(3, count, _QUERIES).sum(axis=2)
    return np.vstack([sums, np.full(count, paid), np.full(count, refused)]).T


def _turned() -> list[Pair]:
    """Return neighbours of which the class of the queries turns first."""
    query = np.array([[-1.0, -0.2]])

    def same(pair: Pair) -> bool:
        made = CertifiedClassifier([-1.0, 1.0], (-1, 1), certificate="votes", neighbours=3)
        told = [made.fit(rows.X, rows.y).stability(query)[0][0] for rows in (pair.here, pair.there)]
        return told[0] == told[1]

    return sorted(neighbours.pairs(_BASE, "replace_one"), key=same)


ANSWERS = Claim(
    "service.answers", Kind.ESTIMATOR, Fraction(1), Fraction(0), Adjacency.REPLACE_ONE,
    "answers are drawn once and told again; confide.service.answering", _turned,
    run=lambda rows, stream: _served(rows, 1, stream)[0], outputs=_served, replayed=False,
)  # fmt: skip


def attacked(count):
    return blackbox.check(ANSWERS, ANSWERS.pairs()[0], count, os_stream(), full=False, error=1e-6)


def test_answers_of_a_service_are_told_again():
    told = ANSWERS.sample(ANSWERS.pairs()[0].here, 50, os_stream())
    np.testing.assert_array_equal(told[:, 0], told[:, 1])
    np.testing.assert_array_equal(told[:, 0], told[:, 2])
    assert np.unique(told[:, 0]).size > 1
    np.testing.assert_array_equal(told[:, 3], 1)  # paid of the total
    assert (told[:, 4] > 0).all()  # refused


def test_a_service_that_draws_again_for_another_analyst_is_caught(monkeypatch):
    from confide.service.canonical import Names

    assert attacked(5_000).p_value > 1e-4
    named = Names.queries

    def apart(self, rows, analyst):
        self._apart = True
        return named(self, rows, analyst)

    monkeypatch.setattr(Names, "queries", apart)
    assert attacked(5_000).p_value < 1e-6


def test_more_answers_than_were_paid_have_no_place_in_the_claim():
    less = replace(ANSWERS, epsilon=ANSWERS.epsilon / 4)
    found = blackbox.check(less, less.pairs()[0], 2_000, os_stream(), full=False, error=1e-6)
    assert found.p_value < 1e-6
