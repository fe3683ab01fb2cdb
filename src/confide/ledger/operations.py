"""The operations that append to a chain; each is decided inside a `confide.ledger.session.Session`."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, NamedTuple

from confide.errors import LedgerError, ParameterError, RefusedError
from confide.ledger import chain
from confide.ledger.budget import Vector, fits, refusal, text, unknown_analyst
from confide.ledger.chain import Mark
from confide.ledger.pricing import Price
from confide.ledger.records import Request, Reservation, Update
from confide.ledger.session import Account, Session, write_vector
from confide.privacy.guarantee import Guarantee


class Own(NamedTuple):
    """What an analyst's account is charged where the total is charged something else."""

    vector: Vector
    terms: str  #: canonical JSON of the amounts by component


@dataclass(slots=True, eq=False)  # not frozen: that would take a tenth of a group's time
class Charge:
    """Spend: one `reserved` entry, or a `charged` one where the outcome is kept at once."""

    price: Price
    analyst: str | None
    label: str
    key: str | None
    version: int | None
    secret: bytes | None
    settle: bool
    request: str | None  #: the request key as stored: an analyst's own
    own: Own | None = None  #: what the analyst's account pays, where that differs from the total

    def apply(self, session: Session) -> tuple[Mark, dict[str, Any] | None, bool, int | None]:
        """Return (mark, stored fields where the key was used before, whether it is settled, version)."""
        request = self.request
        if request is not None:
            found = session.entry("request", request)
            if found is not None:
                return self._replay(session, found)
        dataset, budget, vector = session.dataset, session.dataset.budget, self.price.vector
        total = fits(session.spent, vector, budget.limit)
        if total is None:
            raise refusal(
                budget, f"the budget of dataset {dataset.name!r}", session.spent, vector, budget.limit
            )
        account_words = "null"
        if self.analyst is not None:
            account = session.account(self.analyst)
            if account is None:
                raise unknown_analyst(self.analyst)
            part = vector if self.own is None else self.own.vector
            spent = fits(account.spent, part, account.allowed)
            if spent is None:
                owner = f"the account of analyst {self.analyst!r}"
                raise refusal(budget, owner, account.spent, part, account.allowed)
            account.spent = spent
            session.set_account(self.analyst, account)
            account_words = '{{"allowed":"{}","spent":"{}"}}'.format(*account.words())
        session.spent, session.words = total, write_vector(total)
        version = session.last_version() if self.version is None else self.version
        mac = "null"
        if self.secret is not None:
            sequence = session.sequence + 1
            mac = f'"{chain.secret_mac(dataset.tag_key, sequence, self.secret)}"'
            session.secrets.append((dataset.id, sequence, self.secret))
        kind = chain.CHARGED if self.settle else chain.RESERVED
        own = "" if self.own is None else f'"account_charge":{self.own.terms},'
        # The canonical body, spliced: encoding the guarantee anew would take most of a group's time.
        body = (
            f'{{"accepted":{chain.canonical(self.price.accepted) if self.price.accepted else "[]"},'
            f'"account":{account_words},{own}"analyst":{_text(self.analyst)},{self.price.terms},'
            f'"kind":"{kind}","label":{_text(self.label)},"previous":"{session.hash}","request":{_text(self.key)},'
            f'"secret":{mac},"sequence":{session.sequence + 1},"spent":"{session.words}",'
            f'"time":"{session.time}","version":{"null" if version is None else version}}}'
        )
        mark = session.append_body(kind, body, request, None, self.analyst)
        if request is not None:
            session.requests[request] = mark.sequence
        return mark, None, self.settle, version

    def _replay(self, session: Session, found: Any) -> tuple[Mark, dict[str, Any], bool, int | None]:
        sequence, fields, hash_ = found
        mine = json.loads(f"{{{self.price.terms}}}")
        if any(fields[name] != mine[name] for name in mine) or fields["label"] != self.label:
            raise RefusedError(
                f"The request key {self.key!r:.80} was used for another charge.",
                "Use a new key for a new request.",
            )
        settled = fields["kind"] == chain.CHARGED or session.entry("settles", sequence) is not None
        return Mark(sequence, hash_), fields, settled, fields["version"]


@dataclass(frozen=True)
class Settle:
    """Mark a reservation as done, and keep its secret."""

    sequence: int
    hash: str
    secret: bytes | None
    version: int | None = None

    def apply(self, session: Session) -> int:
        """Return the sequence number of the settling entry."""
        found = _reserved(session, self.sequence, self.hash)
        mac = None
        if self.secret is not None:
            mac = chain.secret_mac(session.dataset.tag_key, self.sequence, self.secret)
        done = found if found[1]["kind"] == chain.CHARGED else session.entry("settles", self.sequence)
        if done is not None:
            if done[1]["secret"] != mac:
                raise LedgerError(
                    f"Reservation {self.sequence} is settled already, with another outcome.",
                    "A reservation pays for one release; reserve again for another.",
                )
            return done[0]
        if self.secret is not None:
            session.secrets.append((session.dataset.id, self.sequence, self.secret))
        fields = {"reservation": self.sequence, "secret": mac, "version": self.version}
        return session.append(chain.SETTLED, fields, settles=self.sequence).sequence


@dataclass(frozen=True)
class Keep:
    """Replace the secret of a settled reservation: state that moves on under one charge."""

    sequence: int
    hash: str
    secret: bytes

    def apply(self, session: Session) -> tuple[Mark, dict[str, Any], bool, int | None]:
        """Return (mark of the reservation, its fields, True, its version)."""
        found = _reserved(session, self.sequence, self.hash)
        if found[1]["kind"] != chain.CHARGED and session.entry("settles", self.sequence) is None:
            raise LedgerError(f"Reservation {self.sequence} is not settled.", "Settle it first.")
        mac = chain.secret_mac(session.dataset.tag_key, self.sequence, self.secret)
        session.append(chain.KEPT, {"of": self.sequence, "secret": mac})
        place = (session.dataset.id, self.sequence)
        session.secrets = [entry for entry in session.secrets if entry[:2] != place]
        session.statements.append(
            ("DELETE FROM confide_secret WHERE dataset_id = ? AND sequence = ?", place),
        )
        sql = "INSERT INTO confide_secret (dataset_id, sequence, secret) VALUES (?, ?, ?)"
        session.statements.append((sql, (*place, self.secret)))
        return Mark(self.sequence, self.hash), found[1], True, found[1]["version"]


def _reserved(session: Session, sequence: int, hash_: str) -> tuple[int, dict[str, Any], str]:
    found = session.entry("sequence", sequence)
    if found is None or found[2] != hash_ or found[1]["kind"] not in chain.SPENDING:
        raise LedgerError(
            f"Dataset {session.dataset.name!r} holds no reservation {sequence} of that hash.",
            "Pass the object that `reserve` returned, on the same ledger.",
        )
    return found


@dataclass(frozen=True)
class Grant:
    """Give an analyst an account, or other limits; what was spent stays spent."""

    name: str
    epsilon: str
    delta: str
    allowed: Vector

    def apply(self, session: Session) -> Mark:
        """Return the entry's place."""
        old = session.account(self.name)
        spent = tuple(Fraction(0) for _ in self.allowed) if old is None else old.spent
        session.set_account(self.name, Account(self.allowed, spent, old is None or old.new))
        names = session.dataset.budget.names
        fields = {
            "analyst": self.name,
            "epsilon": self.epsilon,
            "delta": self.delta,
            "limit": dict(zip(names, map(text, self.allowed))),
        }
        return session.append(chain.GRANTED, fields, analyst=self.name)


@dataclass(frozen=True)
class KeyAct:
    """Note that keys of a holder began or ended: who could ask in whose name, and when.

    The keys belong to a room above, which writes its own tables in the same transaction. No account changes,
    and the entry holds nothing by which a key could be guessed.
    """

    act: str  #: of `chain.ACTS`
    holder: str
    key: str | None  #: public part of the key that begins, if one does
    ended: tuple[str, ...]  #: public parts of those that end

    def apply(self, session: Session) -> Mark:
        """Return the entry's place."""
        fields = {"act": self.act, "holder": self.holder, "key": self.key, "ended": list(self.ended)}
        return session.append(chain.KEY, fields)


def same_schema(dataset: str, bound: str, asked: str) -> None:
    """Refuse a table that protects something else than the dataset's earlier ones."""
    if bound != asked:
        raise LedgerError(
            f"The dataset {dataset!r} was declared with schema {bound[:12]}, not {asked[:12]}: other secrets "
            "(label, private columns, id or unit).",
            "Use the schema it was opened with, or give the other table a dataset name of its own.",
        )


@dataclass(frozen=True)
class Bind:
    """Name the schema and the content that the next charges are about."""

    schema_digest: str
    tag: str

    def apply(self, session: Session) -> int:
        """Return the version number; a tag that was seen before keeps its number.

        An entry is written in either case: whether private cells are those of the last time does not show in
        how many entries there are, which results and reports name.
        """
        versions = session.versions()
        for digest, _ in versions:
            same_schema(session.dataset.name, digest, self.schema_digest)
        seen = next((number for number, held in enumerate(versions, start=1) if held[1] == self.tag), None)
        number = seen or len(versions) + 1
        session.append(
            chain.VERSION, {"schema_digest": self.schema_digest, "tag": self.tag, "version": number}
        )
        if seen is not None:
            return number
        versions.append((self.schema_digest, self.tag))
        session.statements.append(
            (
                "INSERT INTO confide_version (dataset_id, version, schema_digest, tag) VALUES (?, ?, ?, ?)",
                (session.dataset.id, number, self.schema_digest, self.tag),
            )
        )
        return number


def operation_of(request: Request | Update, price: Callable[..., Price], settle: bool) -> Charge | Keep:
    """Return what `request` asks for, checked and priced before any store is touched."""
    if isinstance(request, Update):
        request.check()
        return Keep(request.reservation.sequence, request.reservation.hash, request.secret)
    request.check()
    if request.secret is not None and not settle:
        raise ParameterError("A request that is only reserved has a secret.", "Keep it with `settle`.")
    return Charge(
        price(request.guarantee, request.accept),
        request.analyst,
        request.label,
        request.key,
        request.version,
        request.secret,
        settle,
        None if request.key is None else chain.canonical([request.analyst, request.key]),
    )


def reservation_of(
    dataset: str,
    request: Request | Update,
    mark: Mark,
    stored: dict[str, Any] | None,
    settled: bool,
    version: int | None,
) -> Reservation:
    """Return the caller's record of what `Charge.apply` or `Keep.apply` returned."""
    if isinstance(request, Update):
        return replace(request.reservation, settled=True)
    guarantee = request.guarantee if stored is None else Guarantee.from_dict(stored["guarantee"])
    return Reservation(
        dataset,
        *mark,
        guarantee,
        request.analyst,
        request.label,
        request.key,
        version,
        settled,
        stored is not None,
    )


def _text(value: str | None) -> str:
    return "null" if value is None else chain.canonical(value)
