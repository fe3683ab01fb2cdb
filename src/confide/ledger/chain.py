"""The hash chain: canonical entries, each holding the hash of the one before.

An entry's *body* is canonical JSON (sorted keys, no spaces, ASCII) that holds its sequence number, kind,
time and the hash of the previous body; its hash is the SHA-256 of that text. An export can be verified
by anyone: the hash of line n is the ``previous`` of line n + 1. The body also states what has been spent in
all (``spent``) and, where it concerns an analyst, that account (``account``): a charge compares the stored
balances with the last entries, so that an edited balance buys nothing. A charge costs total and account the
same (``charge``), unless it states what the account paid (``account_charge``).

What the chain detects: a changed, removed, inserted or reordered entry, and balances that the entries do
not add up to. What it cannot: a tail cut off together with its balances (the counter kept outside the
store does: `confide.ledger.counter`), or a whole chain forged by someone who may write the store and the
counter both.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import time
from typing import Any, NamedTuple

#: ``previous`` of the first entry.
GENESIS = "0" * 64

CREATED = "created"
GRANTED = "granted"
RESERVED = "reserved"
CHARGED = "charged"
SETTLED = "settled"
KEPT = "kept"
VERSION = "version"
KEY = "key"
KINDS = (CREATED, GRANTED, RESERVED, CHARGED, SETTLED, KEPT, VERSION, KEY)
#: Kinds that spend.
SPENDING = (RESERVED, CHARGED)
#: What was done in a `KEY` entry: a key given with an account, or for another one, or only ended.
ACTS = ("granted", "rotated", "revoked")


class Mark(NamedTuple):
    """A place in the chain: the entry's sequence number (1, 2, ...) and hash."""

    sequence: int
    hash: str


_encode = json.JSONEncoder(sort_keys=True, separators=(",", ":"), check_circular=False).encode


def canonical(value: Any) -> str:
    """Return the canonical JSON text of plain values."""
    return _encode(value)


def digest(body: str) -> str:
    """Return the hash of an entry's body, 64 hexadecimal digits."""
    return hashlib.sha256(body.encode("ascii")).hexdigest()


def entry_body(kind: str, sequence: int, previous: str, fields: dict[str, Any]) -> str:
    """Return the canonical body of an entry of any kind."""
    return canonical({**fields, "kind": kind, "previous": previous, "sequence": sequence, "time": now()})


def now() -> str:
    """Return the time in UTC, to the millisecond, as ISO 8601 text."""
    seconds = time.time()
    return f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(seconds))}.{int(seconds % 1 * 1000):03d}Z"


def secret_mac(key: bytes, sequence: int, secret: bytes) -> str:
    """Return a keyed hash that binds a secret to its reservation.

    Keyed, because an export shows it and a secret may be guessable (a class, a count).
    """
    return hmac.digest(key, b"confide secret %d:" % sequence + secret, "sha256").hex()
