"""One request, decided inside one transaction of the ledger: charge, answers, cache and record, or nothing.

The distances are computed before, for all rows, cached or not. Inside the transaction the noise is drawn for
all rows, before anything is looked up by it, and the answers of all rows are formed in one pass over arrays;
those that are not needed are thrown away. So the work depends on the number of rows alone.

===========================================  ===========================================================
event                                        outcome
===========================================  ===========================================================
refused                                      nothing is drawn, nothing is charged
a crash before the commit                    nothing happened: ask again
a crash after it, or a lost answer           the same request id gives the same answer, at no cost
the request id with other rows               `RequestReused`
the request id after the model or the        `RequestOfAnotherModel`: what it was answered is not this
settings of an answer changed                model's, and is not told
a query of this analyst's own past           its answer, at no cost, whatever the request id
nothing in the request is new                its id is stored, its answers are not once more
a query of another's past                    that answer; this analyst's account pays, the total does not;
                                             under the sparse vector it is new and both pay (`.epochs`)
the same query twice in one request          one draw, one price
the same query in two requests at once       one draw: transactions come one after the other
the key was revoked meanwhile                `KeyRevoked`
the entropy source is broken                 the whole transaction fails; nobody in it is answered
===========================================  ===========================================================
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from confide.errors import ConfideError, RefusedError
from confide.ledger.budget import Vector
from confide.ledger.session import Session, read_vector, write_vector
from confide.mechanisms.choice import uniform_integers
from confide.mechanisms.stream import RandomStream
from confide.prediction.laws import Labels, Law, Release
from confide.service.cache import Record, Shelf
from confide.service.canonical import NAME_BYTES
from confide.service.records import Analyst, KeyRevoked, RequestOfAnotherModel, RequestReused
from confide.service.terms import Terms

#: Stored instead of a class.
UNSTABLE, UNANSWERED = -1, -2


class Told(NamedTuple):
    """What a request came to: stored answers, cost and account as vectors, and whether it is a replay."""

    answers: NDArray[np.int32]
    cost: Vector
    spent: Vector
    allowed: Vector
    replayed: bool


class Drawing(Protocol):
    """A release whose draws take the same steps whatever the distances are."""

    def draw(self, labels: Labels, k: Labels, stream: RandomStream) -> Labels:
        """Return one answer a row."""
        ...


class LevelDrawing:
    """Draws from a `Law` by levels: noise first, one comparison a row after it.

    Noise is a uniform integer U below 2^bits and, where there are more than two classes, one of the C - 1
    others. A wrong class is told where U < t_k, t_k = (C - 1) u_k, which falls with k: where k is below L(U),
    the number of levels with t_k > U. L is found from U alone. So each wrong class has probability u_k
    exactly, as in `Law.draw`, and the steps that see k are one comparison and one selection over arrays.
    """

    def __init__(self, law: Law) -> None:
        self.law = law
        self._rising = [(law.classes - 1) * unit for unit in reversed(law.units)]

    def draw(self, labels: Labels, k: Labels, stream: RandomStream) -> Labels:
        """See `Drawing`."""
        law, count, rising = self.law, labels.size, self._rising
        levels = len(rising)
        numbers = uniform_integers(1 << law.bits, count, stream)
        others = np.asarray(uniform_integers(law.classes - 1, count, stream)).astype(np.int64)
        bars = np.array([levels - bisect_right(rising, int(u)) for u in numbers], dtype=np.int64)
        wrong = others + (others >= labels)
        return np.where(np.minimum(k, levels - 1) < bars, wrong, labels)


class PlainDrawing:
    """Draws by the release itself: one that draws all noise first (`ptr`)."""

    def __init__(self, release: Release) -> None:
        self._release = release

    def draw(self, labels: Labels, k: Labels, stream: RandomStream) -> Labels:
        """See `Drawing`."""
        return self._release.draw(labels, k, stream=stream)


def drawing_of(release: Release) -> Drawing:
    """Return how a release is drawn from here."""
    return LevelDrawing(release) if isinstance(release, Law) else PlainDrawing(release)


class DrawingFailedError(Exception):
    """Noise could not be drawn after a charge was decided: the transaction must not be committed."""


@contextmanager
def drawing() -> Iterator[None]:
    """Turn every error of a draw into one that fails the whole transaction, without a fact of it."""
    try:
        yield
    except ConfideError:
        raise DrawingFailedError from None


@dataclass(slots=True, eq=False)
class Asked:
    """One request.

    `apply` decides, draws, charges and writes; what kinds of requests do is in their `decide`.

    Attributes
    ----------
    terms : Terms
    analyst : Analyst
    name : bytes
        Of (analyst, request id).
    queries : list of bytes
        Names, one a row.
    content : bytes
        Name of the release, then of all of them in order.
    labels, k : int64 arrays
        Of the model; secret.
    stream : RandomStream
    """

    terms: Terms
    analyst: Analyst
    name: bytes
    queries: list[bytes]
    content: bytes
    labels: Labels
    k: Labels
    stream: RandomStream

    @staticmethod
    def gather(session: Session, operations: Any) -> None:
        """Read for a group at once (`confide.ledger.session.Operation`)."""
        Shelf.of(session).load(operations)

    def apply(self, session: Session) -> Any:
        """Decide, draw, charge and write; count a refusal."""
        try:
            return self.decide(session)
        except KeyRevoked:  # from nobody we know
            raise
        except RefusedError:
            Shelf.of(session).count(self.analyst.name, (0, 0, 0, 0, 1))
            raise

    def decide(self, session: Session) -> Any:
        """Return the outcome, or refuse before anything was drawn or changed."""
        raise NotImplementedError

    def begin(self, session: Session) -> tuple[Shelf, Told | None]:
        """Return the shelf, and what the request came to before, if it did.

        Raises
        ------
        KeyRevoked, RequestOfAnotherModel, RequestReused
        """
        shelf = Shelf.of(session)
        if self.analyst.prefix not in shelf.prefixes:
            raise KeyRevoked("The key is not valid.", "Use the newest key.")
        record = shelf.requests.get(self.name)
        if record is None:
            return shelf, None
        if record.content[:NAME_BYTES] != self.content[:NAME_BYTES]:
            raise RequestOfAnotherModel(
                "This request id was answered by another model, or under other settings.",
                "Nothing was charged. Use a new request id; it will be charged.",
            )
        if record.content != self.content:
            raise RequestReused(
                "This request id was used for other rows.", "Nothing was charged. Use a new request id."
            )
        answers = np.frombuffer(record.answers, dtype="<i4")
        if not record.answers:  # nothing was new: its queries hold them
            answers = np.array([_answer(shelf, query) for query in self.queries], dtype="<i4")
        return shelf, self._result(session, answers, read_vector(record.cost), True)

    def finish(
        self, session: Session, shelf: Shelf, answers: Labels, cost: Vector, paid: int, drawn: int
    ) -> Told:
        """Write the record; return what the request came to.

        Where nothing was new the answers lie with their queries, and are not written again: a free request
        costs the store a row of fixed size, whatever it asks.
        """
        stored = answers.astype("<i4")
        held = stored.tobytes() if paid or drawn else b""
        record = Record(self.content, held, write_vector(cost))
        shelf.answer(self.name, record, self.analyst.name, (len(self.queries), paid, drawn))
        return self._result(session, stored, cost, False)

    def _result(self, session: Session, answers: NDArray[np.int32], cost: Vector, replayed: bool) -> Told:
        account = session.account(self.analyst.name)
        nothing = tuple(type(part)(0) for part in cost)
        if account is None:
            return Told(answers, cost, nothing, nothing, replayed)
        return Told(answers, cost, account.spent, account.allowed, replayed)


@dataclass(slots=True, eq=False)
class Ask(Asked):
    """A request whose rows are each answered by one release."""

    drawn_by: Drawing

    def decide(self, session: Session) -> Told:
        """See `Asked`."""
        shelf, before = self.begin(session)
        if before is not None:
            return before
        name, queries = self.analyst.name, self.queries
        new: dict[bytes, int] = {}
        drawn = 0
        for row, query in enumerate(queries):
            known = shelf.told(query)
            if query not in new and (known is None or name not in known[0]):
                new[query] = row
                drawn += known is None
        payment = self.terms.charge(session, shelf, name, len(new), drawn)
        with drawing():
            fresh = self.drawn_by.draw(self.labels, self.k, self.stream).tolist()
        if new:
            payment.apply(session, shelf)
        for query, row in new.items():
            known = shelf.told(query)
            shelf.tell(query, name, fresh[row] if known is None else known[1])
        told = np.array([_answer(shelf, query) for query in queries], dtype=np.int64)
        return self.finish(session, shelf, told, payment.cost.vector, len(new), drawn)


def _answer(shelf: Shelf, query: bytes) -> int:
    known = shelf.told(query)
    assert known is not None
    return known[1]
