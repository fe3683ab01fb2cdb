"""The sections of the page about the ledger, and about checking the report."""

from __future__ import annotations

import json
from fractions import Fraction
from typing import Any

from confide.privacy import Event, glossed, show
from confide.report.html import Safe, code, join, name, table, tag
from confide.report.regression import Account, Facts, LedgerFacts
from confide.report.words import gaussian_multiplier

#: Charges on the page, the newest; `confide ledger show` has all.
MOST_CHARGES = 50


def section(ledger: LedgerFacts | None) -> tuple[str, str, Safe]:
    """Return anchor, heading and body of the ledger's section."""
    known = ledger is not None and any(account.before is not None for account in ledger.accounts)
    heading = "The ledger, before and after" if known else "The ledger"
    if ledger is None:
        words = "No ledger was given to this report, so it cannot say what else was spent on the table."
        return "ledger", heading, tag("p", words)
    intro = tag(
        "p",
        "The budget of dataset ",
        tag("strong", name(ledger.dataset)),
        f" ({ledger.terms}). A charge is written down before any secret is read, and is never given back. "
        "All amounts add up exactly.",
    )
    parts: list[object] = [intro, _balances(ledger), _charges(ledger)]
    own = ledger.own or "not identified"
    entries = "1 entry" if ledger.entries == 1 else f"{ledger.entries} entries"
    parts.append(
        tag(
            "p",
            "Entry of this release: ",
            code(own),
            f". The chain has {entries}; hash of the last: ",
            code(ledger.head),
            ".",
            class_="line",
        )
    )
    if ledger.refused:
        parts.append(tag("p", ledger.refused, class_="note"))
    for assumption in ledger.assumptions:
        if assumption == "rollback undetected":
            words = (
                "The ledger's own promise rests on an assumption: rollback undetected (no counter is kept "
                "outside the store, so restoring an old copy of it would go unseen)"
            )
        else:
            words = f"Some of these charges rest on an assumption: {glossed(assumption)}"
        parts.append(tag("p", f"{words}.", class_="note"))
    return "ledger", heading, join(*parts)


def _balances(ledger: LedgerFacts) -> Safe:
    known = any(account.before is not None for account in ledger.accounts)
    owned = any(account.own is not None for account in ledger.accounts)
    rows: list[tuple[object, ...]] = []
    for account in ledger.accounts:
        for index, part in enumerate(ledger.parts):
            rows.append(_balance(account, part, index, known, owned))
    before = ("spent before",) if known else ()
    own = ("this release",) if owned else ()
    head = ("account", "", "limit", *before, *own, "spent in total", "left")
    return table(
        "Limits, spending and what is left, by account", head, rows, numbers=tuple(range(2, len(head)))
    )


def _balance(account: Account, part: str, index: int, known: bool, owned: bool) -> tuple[object, ...]:
    before = () if not known else ("" if account.before is None else account.before.get(part, ""),)
    own = () if not owned else ("\u2013" if account.own is None else account.own.get(part, ""),)
    title = name(account.name) if index == 0 else ""
    middle = (account.limit.get(part, ""), *before, *own)
    return (title, part, *middle, account.spent[part], account.remaining[part])


def _charges(ledger: LedgerFacts) -> Safe | None:
    if not ledger.charges:
        return None
    shown = ledger.charges[-MOST_CHARGES:]
    amounts = tuple(shown[0]["charge"])
    rows: list[tuple[object, ...]] = []
    for charge in shown:
        mark = tag("strong", " (this release)") if charge["id"] == ledger.own else None
        what = join(name(charge["label"] or charge["mechanism"]), mark)
        figures = (_amount(charge, part) for part in amounts)
        rows.append((code(charge["id"]), what, name(charge["analyst"] or "–"), *figures, charge["status"]))
    caption = "Charges in the order of the chain; an entry's name is its number and the start of its hash"
    if len(shown) < len(ledger.charges):
        caption += f"; the last {len(shown)} of {len(ledger.charges)}"
    head = ("entry", "what for", "analyst", *amounts, "status")
    return table(caption, head, rows, numbers=tuple(range(3, 3 + len(amounts))))


def _amount(charge: dict[str, Any], part: str) -> str:
    text = charge["charge"][part]
    return "infinite" if text == "inf" else show(Fraction(text))


def checks(facts: Facts, handle: str) -> tuple[str, str, Safe]:
    """Return anchor, heading and body of the section that says how to check and repeat the report."""
    guarantee = facts.guarantee
    parts: list[object] = [*ledger_check(facts.ledger, handle)]
    noise = noise_check(guarantee, facts.noise_multiplier, void=bool(facts.void))
    if noise:
        amounts = f"epsilon={guarantee['epsilon']!r}, delta={guarantee['delta']!r}"
        parts += [
            *noise,
            tag(
                "p",
                "To repeat the fit: a new release with fresh noise and a charge of its own. It will "
                "differ by about the error bars above, and that is the point. ",
            ),
            _commands(f"confide.train(confide.Table.read(FILE, SCHEMA), {amounts}, ledger=LEDGER)"),
        ]
    model = join("released model (canonical JSON of ", code("result.model.to_dict()"), ")")
    parts += identity(guarantee, facts.model_digest, model)
    return "check", "Check it yourself", join(*parts)


def ledger_check(ledger: LedgerFacts | None, handle: str) -> list[Safe]:
    """Return how to check the ledger; nothing without one."""
    if ledger is None:
        return []
    place = handle or ledger.handle
    where = " (in the folder of this report)" if place != ledger.handle else ""
    return [
        tag("p", f"That the ledger is whole, and says what stands here{where}:"),
        _commands(f"confide ledger show --verify --ledger {_shell(place)}"),
    ]


def noise_check(guarantee: dict[str, Any], multiplier: float, *, void: bool) -> list[Safe]:
    """Return how to check the noise of Gaussian releases; nothing of other events, or without a guarantee."""
    gaussian = gaussian_multiplier(Event.from_dict(guarantee["event"])) is not None
    if void or not gaussian or "inf" in guarantee["epsilon"]:
        return []
    return [
        tag(
            "p",
            "That the noise suffices for this epsilon and delta, without Confide: the condition of "
            "Balle and Wang (2018, theorem 8) on the noise multiplier s, which must print True:",
        ),
        _commands(
            'python -c "from math import exp; from scipy.stats import norm; '
            f"s, e, d = {multiplier!r}, {guarantee['epsilon']}, {guarantee['delta']}; "
            'print(norm.cdf(.5/s - e*s) - exp(e)*norm.cdf(-.5/s - e*s) <= d*(1 + 1e-9))"'
        ),
    ]


def identity(guarantee: dict[str, Any], digest: str, what: object) -> list[Safe]:
    """Return the guarantee for machines, and the hash of what was released."""
    text = json.dumps(guarantee, sort_keys=True, separators=(",", ":"))
    return [
        tag("p", "The guarantee, for machines:"),
        tag("pre", tag("code", text)),
        tag("p", "SHA-256 of the ", what, ": ", code(digest), ".", class_="line"),
    ]


def _commands(*lines: str) -> Safe:
    return tag("pre", tag("code", "\n".join(lines)))


def _shell(text: str) -> str:
    import shlex

    return shlex.quote(text)
