"""Repetition: what 10,000 repeats of a query, and 50 analysts together, learn beyond the declared budget.

Two tables differ in one row. Between the boundaries of their two models lie queries that have another class
on each table, with k = 0 on both: the worst case that a release protects. Each is asked 10,000 times by one
analyst (under new request ids, and under the same) and by 49 others, of a service on each table. The attacker
sees all answers, and says which table it is by the share of one class among them, at the best threshold.

Measured epsilon: the largest log of (lower bound of the probability of an event on one table / upper bound on
the other), over events and both directions; Clopper-Pearson, so that all of them hold together with 95 %. It
must not pass what is declared. That the attack has teeth is shown on draws that are not remembered.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from _service_part import Part
from _service_world import NUMBERS, World, cells, certified, records, table, world
from confide.service import Service, ServiceConfig

#: Shares of one class at which the attacker may decide.
THRESHOLDS = (0.05, 0.25, 0.5, 0.75, 0.95)
CONFIDENCE = 0.95


def neighbours(people: int, seed: int = 0) -> tuple[Any, Any]:
    """Return the models of two tables that differ in one row."""
    frame = table(people, seed)
    other = {name: column.copy() for name, column in frame.items()}
    changed = {"age": 18, "bmi": 14, "pulse": 40, "glucose": 2, "hour": 0, "ward": "north", "smoker": "no"}
    for name, cell in changed.items():
        frame[name][0] = cell
        other[name][0] = COLUMN_ENDS.get(name, cell)
    frame["ill"] = frame["ill"].astype(object)
    frame["ill"][0], other["ill"][0] = "ill", "ill"
    return certified(frame), certified(other)


#: The other end of each number: the changed row moves as far as it can.
COLUMN_ENDS = {"age": 98, "bmi": 54, "pulse": 180, "glucose": 30, "hour": 24, "smoker": "yes"}


def between(models: tuple[Any, Any], count: int, seed: int) -> tuple[dict[str, Any], list[NDArray[Any]]]:
    """Return queries whose class differs between the models, and their classes on each."""
    many = 4 * count
    left, right = cells(many, seed), cells(many, seed + 1)

    def frame(share: NDArray[Any]) -> dict[str, Any]:
        return {**left, **{name: (1 - share) * left[name] + share * right[name] for name in NUMBERS}}

    def crossing(model: Any) -> NDArray[Any]:
        low, high = np.zeros(many), np.ones(many)
        start = model.certified.stability(model.queries(frame(low)))[0]
        for _ in range(50):
            middle = (low + high) / 2
            same = model.certified.stability(model.queries(frame(middle)))[0] == start
            low, high = np.where(same, middle, low), np.where(same, high, middle)
        return low

    held = frame((crossing(models[0]) + crossing(models[1])) / 2)
    told = [model.certified.stability(model.queries(held)) for model in models]
    keep = np.flatnonzero((told[0][0] != told[1][0]) & (told[0][1] == 0) & (told[1][1] == 0))[:count]
    if keep.size < count:
        raise RuntimeError(f"only {keep.size} queries lie between the models")
    return {name: column[keep] for name, column in held.items()}, [labels[keep] for labels, _ in told]


def shares(service: Service, asked: list[Any], second: NDArray[Any], repeats: int, analysts: int) -> Any:
    """Ask again and again; return the share of the second model's class among all answers, a query.

    Raises
    ------
    RuntimeError
        If anything was charged twice.
    """
    classes, seen, count = service.model.classes[second], np.zeros(len(asked)), 0
    everyone = [f"analyst{number}" for number in range(analysts)]
    known = {name: service.analyst_of(service.grant(name, 10**6)) for name in everyone}
    first = known[everyone[0]]
    for number in range(repeats):
        told = service.answer(first, asked, f"request {number // 2}")  # each id twice
        seen += np.array(told.values) == classes
        count += 1
    for name in everyone[1:]:
        seen += np.array(service.answer(known[name], asked, "again").values) == classes
        count += 1
    price = service.config.epsilon * len(asked)
    if service.ledger.total().epsilon != price:
        raise RuntimeError(f"the total was charged {service.ledger.total()}, not {price}")
    for name in everyone:
        if service.ledger.account(name).spent.epsilon != price:
            raise RuntimeError(f"{name} was charged {service.ledger.account(name).spent}, not {price}")
    return seen / count


def measured(first: NDArray[Any], second: NDArray[Any]) -> float:
    """Return the epsilon that holds with confidence, from one share a query on each table."""
    from scipy.stats import beta

    level = (1 - CONFIDENCE) / (4 * 2 * len(THRESHOLDS))
    best = 0.0
    for bar in THRESHOLDS:
        for events in ((first >= bar, second >= bar), (first < bar, second < bar)):
            hits, sizes = [int(event.sum()) for event in events], [event.size for event in events]
            lower = [beta.ppf(level, h, n - h + 1) if h else 0.0 for h, n in zip(hits, sizes)]
            upper = [beta.ppf(1 - level, h + 1, n - h) if h < n else 1.0 for h, n in zip(hits, sizes)]
            for one, two in ((0, 1), (1, 0)):
                if lower[one]:
                    best = max(best, math.log(lower[one] / upper[two]))
    return best


def attack(
    here: World, epsilon: Fraction, queries: int, repeats: int, analysts: int, people: int = 2_000
) -> dict[str, Any]:
    """Return what was measured, remembered and not."""
    models = neighbours(people)
    frame, labels = between(models, queries, seed=11)
    asked = records(frame)
    found, fresh = [], []
    for model, own in zip(models, labels):
        config = ServiceConfig.of(epsilon=str(epsilon), rate=1e9, burst=10**9)
        service = Service.open(model, here.ledger(), config)
        found.append(shares(service, asked, labels[1], repeats, analysts))
        nobody = np.zeros(queries, dtype=np.int64)  # k
        drawn = [
            service._drawing.draw(own, nobody, service._stream) == labels[1] for _ in range(min(repeats, 200))
        ]
        fresh.append(np.mean(drawn, axis=0))
        service.close()
    return {
        "measured": measured(*found),
        "fresh": measured(*fresh),
        "same": bool(all(np.isin(share, (0.0, 1.0)).all() for share in found)),
        "declared": float(epsilon),
        "queries": queries,
    }


def run(kind: str, full: bool, place: str | None) -> Part:
    """Attack under a small and a large epsilon."""
    part = Part()
    queries, repeats, analysts = (400, 10_000, 50) if full else (100, 20, 5)
    part.say(
        "| declared epsilon | queries | repeats by one, analysts | every answer the same | measured epsilon (95 %) | "
        "of draws that are not remembered | target |",
        "|---|---|---|---|---|---|---|",
    )
    with world(kind, place, people=2_000) as here:
        for epsilon in (Fraction(1), Fraction(2)) if full else (Fraction(1),):
            found = attack(here, epsilon, queries, repeats, analysts)
            verdict = part.hold(
                f"epsilon {epsilon}: measured <= declared", found["measured"] <= epsilon and found["same"]
            )
            part.say(
                f"| {epsilon} | {queries} | {repeats:,}, {analysts} | {'yes' if found['same'] else 'NO'} | "
                f"{found['measured']:.3f} | {found['fresh']:.3f} | {verdict} |"
            )
    part.say(
        "",
        "The total was charged once a query, and each account once, to the last digit. Draws that are not "
        f"remembered: {min(repeats, 200)} a query, as a service without its cache would give.",
    )
    return part
