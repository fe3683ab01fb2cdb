"""Keys of analysts and of the owner, and how often each may ask.

A key is ``confide_<prefix>_<secret>``: the prefix finds its row, the secret has 256 random bits. The store
holds SHA-256 of the whole; stretching would add nothing to that many bits. Keys are compared in constant
time, a missing row against a hash that nothing has.

======================================  ================================================================
edge case                               what happens
======================================  ================================================================
no such key, malformed, revoked         None, after the same comparison
rotated, revoked                        refused by the next transaction and the next reading, by all workers;
                                        what else a request is told for a second depends on itself alone
the prefix of a key in use              looked up like any other: only the whole key is remembered
an analyst is granted again             other limits, a new key; the old one is revoked
revoked, then granted again             a new key; the account keeps what it spent
granted, rotated, revoked               an entry of the chain: the act, the name, the public parts of the keys
granted by an older version             no entry of its beginning; that of its end names it
a key that this process has not found   a token of the worker's bucket, given back if somebody has the key
the bucket is empty                     the valid keys are listed, once a second at most; one that is there
                                        is looked up, any other is `UnknownKeys` until the next list
an analyst's key while others guess     found already, or listed: never refused for their sake; granted since
                                        the last list: within its second
the monitor's key                       the counters of /metrics; everywhere else as a key that nobody has,
                                        but counted in its rate
an analyst of an older version who is   keeps its key, which is not rotated: the name is the monitor's
named like the monitor
a revoked key, again and again          as one that nobody has: it was forgotten when a look-up failed
the store fails as keys are listed      told to who asked; listed again a second later
======================================  ================================================================
"""

from __future__ import annotations

import hashlib
import hmac
import math
import re
import secrets
import threading
import time
from dataclasses import dataclass, field
from typing import Any

from confide.errors import ParameterError, RefusedError
from confide.ledger import Ledger, chain
from confide.ledger.handle import Parts
from confide.ledger.keys import KINDS
from confide.ledger.names import name_of, one_spelling
from confide.ledger.operations import Grant, KeyAct
from confide.ledger.session import Session
from confide.privacy import exact
from confide.privacy.exact import Amount
from confide.service.records import METRICS, OWNER, Analyst, TooManyRequests, UnknownKeys
from confide.service.tables import prepare

_KEY = re.compile(r"confide_([0-9a-f]{16})_([A-Za-z0-9_-]{43})")
_NOTHING = bytes(32)
#: Of the column `owner`: whose key it is, where it is no analyst's.
_OWNER, _MONITOR = KINDS[OWNER], KINDS[METRICS]
#: Seconds for which a process trusts an analyst's key. A request checks again as it is charged or reads.
_FRESH = 1.0
#: Look-ups of keys that nobody has, of one worker: a second in the long run, and at once.
GUESSES, AT_ONCE = 10.0, 100.0
#: Seconds between lists of the valid keys, where more are asked for.
LISTED = 1.0
_ROW = (
    "SELECT name, owner, digest FROM confide_service_key "
    "WHERE dataset_id = ? AND prefix = ? AND revoked IS NULL"
)
_DIGESTS = "SELECT digest FROM confide_service_key WHERE dataset_id = ? AND revoked IS NULL"
_REVOKE = "UPDATE confide_service_key SET revoked = ? WHERE dataset_id = ? AND name = ? AND revoked IS NULL"
_INSERT = (
    "INSERT INTO confide_service_key (dataset_id, prefix, name, owner, digest, created) "
    "VALUES (?, ?, ?, ?, ?, ?)"
)
_KINDS_OF = "SELECT owner FROM confide_service_key WHERE dataset_id = ? AND name = ? AND revoked IS NULL"
_EVER = "SELECT prefix FROM confide_service_key WHERE dataset_id = ? AND name = ?"
_LIVE = (
    "SELECT prefix FROM confide_service_key "
    "WHERE dataset_id = ? AND name = ? AND revoked IS NULL ORDER BY prefix"
)


@dataclass(slots=True, eq=False)
class Issue:
    """Give out a key, with an account or without, in one transaction; older keys of the name end."""

    name: str
    prefix: str
    digest: bytes
    grant: Grant | None
    living: bool  #: whether there must be a key already (a rotation)

    def apply(self, session: Session) -> None:
        """Decide and write."""
        old = _living(session, self.name)
        if self.living and not old:
            raise _no_key(self.name)
        if self.living and self.name == METRICS and not _monitors(session):
            raise RefusedError(
                f"The key of {METRICS!r} is that of an analyst of an older version, and the name is now "
                "the monitor's.",
                f"Grant the analyst another name, then: `confide ledger revoke {METRICS}`.",
            )
        if self.grant is not None:
            self.grant.apply(session)
        act = "rotated" if self.living else "granted"
        KeyAct(act, self.name, _public(self.prefix), old).apply(session)
        # At once, so that what follows in the same transaction finds this key and not the old ones.
        now = _end(session, self.name)
        kind = KINDS.get(self.name, 0)
        row = (session.dataset.id, self.prefix, self.name, kind, self.digest, now)
        session.store.execute(session.connection, _INSERT, row)


@dataclass(slots=True, eq=False)
class Revoke:
    """End the keys of a name; the account stays as it is."""

    name: str

    def apply(self, session: Session) -> None:
        """Decide and write."""
        old = _living(session, self.name)
        if not old:
            raise _no_key(self.name)
        KeyAct("revoked", self.name, None, old).apply(session)
        _end(session, self.name)


def _living(session: Session, name: str) -> tuple[str, ...]:
    """Return the public parts of a name's valid keys."""
    rows = session.store.rows(session.connection, _LIVE, (session.dataset.id, name))
    return tuple(_public(row[0]) for row in rows)


def _monitors(session: Session) -> bool:
    """Return whether all valid keys of the monitor's name are the monitor's."""
    rows = session.store.rows(session.connection, _KINDS_OF, (session.dataset.id, METRICS))
    return all(row[0] == _MONITOR for row in rows)


def _end(session: Session, name: str) -> str:
    now = chain.now()
    session.store.execute(session.connection, _REVOKE, (now, session.dataset.id, name))
    return now


def _public(prefix: str) -> str:
    """Return the part of a key that tells it from others and opens nothing."""
    return f"confide_{prefix}"


def grant(ledger: Ledger, name: str, epsilon: Amount, delta: Amount = 0) -> str:
    """Give an analyst an account with these limits and a key; return the key, which is shown this once.

    For `OWNER` the account is the owner's own, for questions asked on the owner's page.

    Raises
    ------
    ParameterError, LedgerError
    """
    name = name_of(name, "analyst")
    if name == METRICS:
        raise ParameterError(
            f"The name {METRICS!r} is that of the monitor, which has no account.",
            "Pass epsilon=0 for its key, or name the analyst otherwise.",
        )
    budget = ledger.budget
    allowed = budget.sub_limit(epsilon, delta)
    unlimited = isinstance(epsilon, float) and epsilon == float("inf")
    words = ("inf", "inf") if unlimited else (str(exact(epsilon, "epsilon")), str(exact(delta, "delta")))
    return _issue(ledger, name, Grant(name, *words, allowed), False)


def rotate(ledger: Ledger, name: str) -> str:
    """Return a new key of an analyst, or of `OWNER`; the old one ends.

    Raises
    ------
    RefusedError
        If the name has no key.
    """
    return _issue(ledger, name_of(name, "analyst"), None, True)


def owner_key(ledger: Ledger) -> str:
    """Return a new key of the owner; an old one ends."""
    return _issue(ledger, OWNER, None, False)


def metrics_key(ledger: Ledger) -> str:
    """Return a new key of the monitor, which may read /metrics and nothing else; an old one ends."""
    return _issue(ledger, METRICS, None, False)


def revoke(ledger: Ledger, name: str) -> None:
    """End the keys of an analyst.

    Raises
    ------
    RefusedError
        If the name has no key.
    """
    parts = ledger.parts()
    prepare(parts.store)
    parts.run(Revoke(name_of(name, "analyst")))


def holds(ledger: Ledger, name: str) -> bool | None:
    """Return whether a name has a valid key; None where it never had any."""
    parts = ledger.parts()
    prepare(parts.store)
    place = (parts.dataset.id, one_spelling(name))
    with parts.store.reading() as connection:
        if parts.store.row(connection, _LIVE, place) is not None:
            return True
        return None if parts.store.row(connection, _EVER, place) is None else False


def _issue(ledger: Ledger, name: str, account: Grant | None, living: bool) -> str:
    parts = ledger.parts()
    prepare(parts.store)
    prefix, secret = secrets.token_hex(8), secrets.token_urlsafe(32)
    key = f"confide_{prefix}_{secret}"
    parts.run(Issue(name, prefix, _digest(key), account, living))
    return key


def _digest(key: str) -> bytes:
    return hashlib.sha256(key.encode("ascii")).digest()


def _no_key(name: str) -> RefusedError:
    return RefusedError(
        f"There is no key of {name!r:.80}.", "Grant one: `confide ledger grant NAME --epsilon ... --key`."
    )


class Keyring:
    """Finds whose a key is. Shared by threads.

    Whoever guesses has no rate of an analyst, and each guess would be a look at the store. So look-ups that
    fail are bounded for all together, by a bucket that depends on such requests alone. It must lock nobody
    out who has a key: hence the list.
    """

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        #: By digest of the whole key: that a prefix is known would show in the time of a guess.
        self._known: dict[bytes, tuple[float, Analyst]] = {}
        #: Digests of keys that were found or listed: looked up without a token.
        self._held: set[bytes] = set()
        self._guesses = Limiter(GUESSES, AT_ONCE)
        self._listing = threading.Lock()
        self._listed = -math.inf

    def analyst_of(self, key: object) -> Analyst | None:
        """Return who holds a key, or None.

        Raises
        ------
        UnknownKeys
            Where too many keys were asked for that nobody has; never of a key that was valid a second ago.
        """
        found = _KEY.fullmatch(key) if isinstance(key, str) and key.isascii() else None
        if found is None:
            hmac.compare_digest(_digest("none"), _NOTHING)
            return None
        digest, now = _digest(found[0]), time.monotonic()
        known = self._known.get(digest)
        if known is not None and now - known[0] < _FRESH:
            return known[1]
        counted = digest not in self._held and self._counted(digest)
        row = self._row(found[1])
        if not hmac.compare_digest(digest, _NOTHING if row is None else bytes(row[2])) or row is None:
            self._known.pop(digest, None)
            self._held.discard(digest)
            return None
        if counted:
            self._guesses.give("")
        self._held.add(digest)
        analyst = Analyst(row[0], found[1], row[1] == _OWNER, row[1] == _MONITOR)
        if not (
            analyst.owner or analyst.monitor
        ):  # whose key is asked for anew each time: no transaction checks it again
            self._known[digest] = (now, analyst)
        return analyst

    def _counted(self, digest: bytes) -> bool:
        """Take a token for a key that was not found yet; without one return False if it is listed.

        Raises
        ------
        UnknownKeys
        """
        try:
            self._guesses.take("")
            return True
        except TooManyRequests:
            pass
        with self._listing:
            now = time.monotonic()
            if now - self._listed >= LISTED:
                self._listed = now  # before it is read: a store that fails is not asked more often
                self._held = self._digests()
            if digest in self._held:
                return False
        raise UnknownKeys(self._listed + LISTED - now)

    def _digests(self) -> set[bytes]:
        store, number = self._parts.store, self._parts.dataset.id
        with store.reading() as connection:
            return {bytes(row[0]) for row in store.rows(connection, _DIGESTS, (number,))}

    def _row(self, prefix: str) -> Any:
        store, number = self._parts.store, self._parts.dataset.id
        with store.reading() as connection:
            return store.row(connection, _ROW, (number, prefix))


@dataclass
class Limiter:
    """Token buckets, one an analyst: `burst` requests at once, `rate` a second in the long run.

    Its state is when who asked, nothing else.
    """

    rate: float
    burst: float
    _held: dict[str, tuple[float, float]] = field(default_factory=dict, repr=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def take(self, name: str) -> None:
        """Count one request.

        Raises
        ------
        TooManyRequests
        """
        with self._lock:
            now = time.monotonic()
            tokens, since = self._held.get(name, (self.burst, now))
            tokens = min(self.burst, tokens + (now - since) * self.rate)
            if tokens < 1:
                self._held[name] = (tokens, now)
                raise TooManyRequests((1 - tokens) / self.rate)
            self._held[name] = (tokens - 1, now)

    def give(self, name: str) -> None:
        """Take one request back that does not count."""
        with self._lock:
            tokens, since = self._held[name]
            self._held[name] = (min(self.burst, tokens + 1), since)


def request_name(value: object) -> str:
    """Return a request id: 1 to 200 printable letters.

    Raises
    ------
    ParameterError
        Without the value.
    """
    if not isinstance(value, str) or not 0 < len(value) <= 200 or not value.isprintable():
        raise ParameterError("The request id is not valid.", "Pass 1 to 200 printable letters.")
    return value
