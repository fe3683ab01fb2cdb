"""The service without its HTTP: a certified model, a ledger, keys, and answers that are given exactly once.

>>> service = Service.open(model, ledger, ServiceConfig(epsilon="0.1"))  # doctest: +SKIP
>>> key = service.grant("ann", epsilon=3)  # shown once  # doctest: +SKIP
>>> analyst = service.analyst_of(key)  # doctest: +SKIP
>>> service.answer(analyst, [{"age": 61, "region": "north"}], "request-1").values  # doctest: +SKIP
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from functools import partial
from typing import Any

from confide.errors import ParameterError
from confide.ledger import Ledger
from confide.ledger.budget import left
from confide.prediction.certificate import steady
from confide.prediction.model import CertifiedModel, check_queries
from confide.prediction.releases import release_of
from confide.privacy import Event, Guarantee
from confide.privacy.exact import Amount
from confide.service import keys
from confide.service.amounts import float_above, float_below
from confide.service.answering import UNANSWERED, UNSTABLE, Ask, DrawingFailedError, Told, drawing_of
from confide.service.canonical import Names, Reader, model_digest
from confide.service.conditions import Conditions, Lateness
from confide.service.config import ServiceConfig
from confide.service.epochs import AskStable, Place, stream_of, threshold_of
from confide.service.epochs import held as epoch_held
from confide.service.reading import booked, overview, view
from confide.service.records import (
    ANSWERED,
    Analyst,
    Answers,
    BudgetView,
    KeyRevoked,
    Overview,
    Promise,
    RandomBitsFailed,
)
from confide.service.records import UNANSWERED as NOT_ANSWERED
from confide.service.records import UNSTABLE as NOT_STABLE
from confide.service.schedule import late
from confide.service.tables import prepare
from confide.service.terms import Terms


class Service:
    """A private prediction service on one ledger. Make one with `open`; threads may share it.

    Every decision is made inside a transaction of the ledger's store, so that several processes, and hosts on
    PostgreSQL, may serve one store (`confide.service.answering`, `confide.service.epochs`).

    Attributes
    ----------
    model : CertifiedModel
    ledger : Ledger
    config : ServiceConfig
    overruns : int
        Answers of this process that left after their time; `overran` counts.
    """

    def __init__(self, model: CertifiedModel, ledger: Ledger, config: ServiceConfig) -> None:
        self.model, self.ledger, self.config = model, ledger, config
        self.overruns = 0
        self._lock = threading.Lock()
        self._parts = parts = ledger.parts()
        names = Names(parts.dataset.tag_key, model_digest(model), config)
        self._names = names
        self._read = Reader(model, config.rows)
        self._terms = Terms(model, config, parts, names)
        self._terms.prepare()
        self._conditions, self._lateness = Conditions(parts), Lateness(parts)
        self._ring = keys.Keyring(parts)
        self._limiter = keys.Limiter(config.rate / config.workers, max(1.0, config.burst / config.workers))
        self._stream = stream_of()
        self._place: Place | None = None
        self._threshold = 0
        self._drawing: Any = None
        if config.stable:
            self._threshold = threshold_of(config)
            self._place = Place(parts.directory, parts.dataset.ledger_id)
            if config.then:
                self._drawing = drawing_of(release_of(config.then, config.then_epsilon, len(model.classes)))
        else:
            law = release_of(config.release, config.epsilon, len(model.classes), config.delta)
            self._drawing = drawing_of(law)

    @classmethod
    def open(cls, model: CertifiedModel, ledger: Ledger, config: ServiceConfig) -> Service:
        """Return a service; creates its tables in the ledger's store where they are absent.

        Raises
        ------
        ParameterError, UnsupportedError
            If the configuration has no release, or the model no canonical form.
        RefusedError, LedgerError
            If the ledger takes no such charge, or belongs to a table with other secrets.
        """
        if model.random_state is not None:
            raise ParameterError(
                "The model has a 'random_state'.", "Serve a model without: noise is the operating system's."
            )
        if model.schema is not None:
            ledger.check_schema(model.schema.secrets)
        service = cls(model, ledger, config)
        prepare(service._parts.store)
        return service

    # -- keys ------------------------------------------------------------------------------------------

    def grant(self, name: str, epsilon: Amount, delta: Amount = 0) -> str:
        """Give an analyst an account under the total, and a key: shown once, stored as a hash."""
        return keys.grant(self.ledger, name, epsilon, delta)

    def rotate(self, name: str) -> str:
        """Return a new key of a name; the old one ends."""
        return keys.rotate(self.ledger, name)

    def revoke(self, name: str) -> None:
        """End the keys of a name."""
        keys.revoke(self.ledger, name)

    def owner_key(self) -> str:
        """Return a new key of the owner; the old one ends."""
        return keys.owner_key(self.ledger)

    def analyst_of(self, key: object) -> Analyst | None:
        """Return whose key this is, or None; compares in constant time."""
        return self._ring.analyst_of(key)

    def admit(self, analyst: Analyst) -> None:
        """Count a request in the analyst's rate; call it before anything else is done for the request.

        Raises
        ------
        TooManyRequests
        """
        self._limiter.take(analyst.name)

    # -- answers ---------------------------------------------------------------------------------------

    def answer(self, analyst: Analyst, rows: Sequence[Any], request_id: str) -> Answers:
        """Answer rows, exactly once: see the table of `confide.service.answering`.

        Parameters
        ----------
        analyst : Analyst
            From `analyst_of`.
        rows : sequence of dict
            Raw fields of the model's schema; lists of numbers for a model on arrays. 1 to ``config.rows``.
        request_id : str
            The analyst's own name of the request, 1 to 200 printable letters.

        Raises
        ------
        ParameterError, RowError
            Malformed; nothing is stored of it.
        KeyRevoked, RequestReused, BudgetError, RefusedError
            Refused as a whole: nothing was drawn or charged.
        LedgerError
            If the store failed. The outcome may be unknown: ask again with the same request id.
        """
        _asks(analyst)
        name = self._names.request(analyst.name, keys.request_name(request_id))
        matrix = self._read(rows)
        check_queries(self.model.certified, matrix)
        queries = self._names.queries(matrix, analyst.name)
        labels, k = steady(self.model.certified, matrix)
        common = (
            self._terms, analyst, name, queries, self._names.content(queries), labels, k, self._stream
        )  # fmt: skip
        if self._place is None:
            return self._result(self._run(Ask(*common, self._drawing)))
        told, mark = self._run(AskStable(*common, self._place, self._threshold, self._drawing))
        self._place.witness(mark)
        return self._result(told)

    def _run(self, operation: Any) -> Any:
        try:
            return self._parts.run(operation)
        except DrawingFailedError:
            raise RandomBitsFailed(
                "The source of random bits failed.",
                "Nothing was charged; ask again with the same request id.",
            ) from None

    def _result(self, told: Told) -> Answers:
        budget, classes = self._parts.dataset.budget, self.model.classes.tolist()
        stored = told.answers.tolist()
        return Answers(
            tuple(classes[place] if place >= 0 else None for place in stored),
            tuple(_STATES.get(place, ANSWERED) for place in stored),
            budget.spending(told.cost),
            budget.spending(left(told.spent, told.allowed)),
            told.replayed,
        )

    def check(self) -> None:
        """Check that the store can be read and holds what was seen of it before.

        Raises
        ------
        LedgerError
        """
        self.ledger.check()

    # -- views -----------------------------------------------------------------------------------------

    def budget(self, analyst: Analyst) -> BudgetView:
        """Return the analyst's own account.

        Raises
        ------
        KeyRevoked
            If the key ended meanwhile, and of the monitor, which has no account.
        RefusedError, LedgerError
        """
        _asks(analyst)
        held = None
        if self._place is not None:
            held = partial(
                epoch_held,
                terms=self._terms,
                place=self._place,
                threshold=self._threshold,
                analyst=analyst.name,
            )
        return view(self._parts, self._terms, analyst, held)

    def overview(self, points: int = 500) -> Overview:
        """Return everything, for the owner; `points` of history at most."""
        return overview(self._parts, points)

    def amounts(self) -> dict[str, float]:
        """Return what of the total is spent and left, by name, for the owner's monitor.

        Raises
        ------
        LedgerError
            If the store cannot be read, or was rolled back.
        """
        self.check()
        spent, rest = self.ledger.total(), self.ledger.remaining()
        found = {
            "total_epsilon_spent": float_above(spent.epsilon),
            "total_epsilon_left": float_below(rest.epsilon),
            "total_delta_spent": float_above(spent.delta),
        }
        if spent.rho is not None and rest.rho is not None:
            found |= {
                "total_rho_spent": float_above(spent.rho),
                "total_rho_left": float_below(rest.rho),
            }
        return found

    def overbooked(self) -> str:
        """Return what to tell the owner where an analyst may learn what was unstable for others; else empty.

        That is where the total may refuse what an account covers, under the sparse vector: what an epoch
        costs until its end depends on the table then.
        """
        budget = self._parts.dataset.budget
        most = booked(self._parts) if self.config.stable else ()
        if all(part <= whole for part, whole in zip(most, budget.limit, strict=False)):
            return ""
        return (
            f"The limits of all accounts, with what was charged to none, add up to {budget.spending(most)}, "
            f"above the ledger's total of {budget.spending(budget.limit)}. Near the total's end a refusal, "
            "and 'total_exhausted', show an analyst what was unstable for others. That depends on the table; "
            "the total covers it, no account does. Grant smaller limits (confide ledger grant NAME --epsilon "
            "...), or create a ledger whose total is the sum."
        )

    def guarantee(self) -> Promise:
        """Return what the service promises: of one answer, and of all answers to everybody.

        It rests on the assumptions of every charge that the ledger holds, and names an answer that left late
        for ever.

        Raises
        ------
        LedgerError
            If the store cannot be read, or was rolled back: it no longer holds all that its total paid for.
        """
        self.check()
        budget, config = self._parts.dataset.budget, self.config
        answer = self._terms.of_one()
        others = self._conditions.names()
        assumptions = tuple(dict.fromkeys((*answer.assumptions, *self.ledger.assumptions, *others)))
        found = self._lateness.ever()
        told = "" if found is None else late(*found)
        assumptions += (told,) if told else ()
        total = Guarantee(
            budget.epsilon,
            budget.delta if not budget.nonprivate else 0,
            budget.adjacency,
            budget.unit,
            Event.sequence((answer.event,)),
            (*assumptions, *(("nonprivate",) if budget.nonprivate else ())),
            answer.declaration,
        )
        what = "epoch of stable answers" if config.stable else "answer"
        sentence = (
            f"All answers to all analysts together, and all else that the ledger of this table has paid for: "
            f"{total} Each new {what} costs {self._each()}.{self._block()}"
        )
        return Promise(answer, total, sentence, assumptions, told)

    def _each(self) -> str:
        budget, config = self._parts.dataset.budget, self.config
        told = str(budget.spending(self._terms.own(1).vector))
        if config.then:
            told += f", and an unstable answer, which ends one, {budget.spending(self._terms.then(1).vector)}"
        return told + (f" for {config.analyst_block} answers" if config.analyst_block > 1 else "")

    def _block(self) -> str:
        size = self.config.block
        if size == 1:
            return ""
        price = self._parts.dataset.budget.spending(self._terms.price(1).vector)
        return f" The total pays {price} for each block of {size} answers, when its first one is drawn."

    def overran(self) -> None:
        """Count an answer that left after its time: the guarantee names it from now on."""
        with self._lock:
            self.overruns += 1
        self._lateness.note()

    def close(self) -> None:
        """Give up the place of this process's epochs, and end what is being written."""
        self._lateness.close()
        if self._place is not None:
            self._place.close()


def _asks(analyst: Analyst) -> None:
    """Refuse the monitor, whose key is for the counters alone, also where an account has its name."""
    if analyst.monitor:
        raise KeyRevoked("The monitor's key is for the counters alone.", "Use the key of an analyst.")


_STATES = {UNSTABLE: NOT_STABLE, UNANSWERED: NOT_ANSWERED}
