"""Latency: can k, or another analyst's cached answer, be told from how long an answer takes?

Requests of two kinds, one row each and every row new to the asker, are sent in pairs, which of the two first
by a coin. Then two classifiers see the latency of each alone: the latency itself in its better direction, and
boosted trees on it (cross-fitted, so that shape counts and not only order). Of the area under each one's curve
the upper end of a two-sided 95 % interval (DeLong) is what counts.

With the schedule on this is the promise. With it off it shows what the fixed work alone leaves.
"""

from __future__ import annotations

import gc
import json
import random
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
from numpy.typing import NDArray

from _service_client import Client
from _service_load import overruns
from _service_part import Part
from _service_server import command
from _service_world import NUMBERS, World, cells, grant, records, world
from confide.prediction import CertifiedModel

BOUND = 0.52
#: Of the answer schedule, in ms: the default, and none.
SCHEDULES = (100.0, 0.0)
#: Of the asker, each with its own pairs: an answer takes a tenth of a second, and others ask at any time.
CONNECTIONS = 4


def near_and_far(model: Any, count: int, seed: int) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Return rows of k = 0, and rows of a k in the upper half; numbers of both are spelt alike."""
    left, right, found = cells(4 * count, seed), cells(4 * count, seed + 1), {}
    low, high = np.zeros(4 * count), np.ones(4 * count)

    def between(share: NDArray[Any]) -> dict[str, Any]:
        numbers = {name: np.round((1 - share) * left[name] + share * right[name], 9) for name in NUMBERS}
        return {**left, **numbers}

    def stability(frame: dict[str, Any]) -> tuple[NDArray[Any], NDArray[Any]]:
        return model.certified.stability(model.queries(frame))

    far, k = stability(between(low))
    keep = np.flatnonzero(k > np.median(k))[:count]
    found["far"] = {name: column[keep] for name, column in between(low).items()}
    opposite = far != stability(between(high))[0]
    for _ in range(24):
        middle = (low + high) / 2
        same = stability(between(middle))[0] == far
        low, high = np.where(same, middle, low), np.where(same, high, middle)
    frame = between(low)
    keep = np.flatnonzero((stability(frame)[1] == 0) & opposite)[:count]
    found["near"] = {name: column[keep] for name, column in frame.items()}
    if min(len(found["near"]["age"]), len(found["far"]["age"])) < count:
        raise RuntimeError("too few rows of k = 0 were found")
    return records(found["near"]), records(found["far"])


def interleaved(port: int, key: str, first: list[Any], second: list[Any], seed: int) -> NDArray[np.float64]:
    """Return latencies in seconds, shape (pairs, 2), of pairs shared among `CONNECTIONS`."""
    times = np.zeros((len(first), 2))
    requests = [[json.dumps({"row": row}).encode() for row in pair] for pair in zip(first, second)]

    def ask(place: int) -> None:
        client, coin = Client(port), random.Random(seed + place)
        for warm in cells_to_rows(20, seed + 77 + place):
            client.ask(json.dumps({"row": warm}).encode(), key)
        for pair in range(place, len(requests), CONNECTIONS):
            for kind in (0, 1) if coin.random() < 0.5 else (1, 0):
                begun = time.perf_counter()
                status, _ = client.ask(requests[pair][kind], key)
                times[pair, kind] = time.perf_counter() - begun
                if status != 200:
                    raise RuntimeError(f"status {status}")
        client.close()

    gc.collect()
    gc.disable()
    try:
        with ThreadPoolExecutor(CONNECTIONS) as pool:
            list(pool.map(ask, range(CONNECTIONS)))
    finally:
        gc.enable()
    return times


def cells_to_rows(count: int, seed: int) -> list[dict[str, Any]]:
    """Return rows that nobody else asks about."""
    return records(cells(count, seed))


def area(scores: NDArray[np.float64], kinds: NDArray[Any]) -> tuple[float, float]:
    """Return the area under the curve, and its standard error (DeLong, DeLong & Clarke-Pearson 1988)."""
    from scipy.stats import rankdata

    first, second = scores[kinds == 0], scores[kinds == 1]
    ranks = rankdata(scores)
    above = (ranks[kinds == 1] - rankdata(second)) / first.size
    below = 1 - (ranks[kinds == 0] - rankdata(first)) / second.size
    error = np.sqrt(above.var(ddof=1) / second.size + below.var(ddof=1) / first.size)
    return float(above.mean()), float(error)


def told_apart(times: NDArray[np.float64]) -> dict[str, tuple[float, float]]:
    """Return area and its upper bound, by classifier."""
    from sklearn.ensemble import HistGradientBoostingClassifier
    from sklearn.model_selection import KFold
    from threadpoolctl import threadpool_limits

    pairs = times.shape[0]
    latency, kinds = times.T.ravel(), np.repeat([0, 1], pairs)
    learned = np.zeros(2 * pairs)
    for train, test in KFold(5, shuffle=True, random_state=0).split(np.zeros((pairs, 1))):
        both, other = np.r_[train, train + pairs], np.r_[test, test + pairs]
        model = HistGradientBoostingClassifier(max_iter=50, max_depth=3, random_state=0)
        with threadpool_limits(1):
            model.fit(latency[both, None], kinds[both])
        learned[other] = model.decision_function(latency[other, None])
    found = {}
    for name, scores, either in (("latency", latency, True), ("boosted trees", learned, False)):
        value, error = area(scores, kinds)
        value = max(value, 1 - value) if either else value
        found[name] = (value, value + 1.96 * error)
    return found


def measure(here: World, pairs: int, schedule: float, what: str) -> dict[str, Any]:
    """Return latencies of one contrast, what can be told from them, and overruns."""
    model, ledger = CertifiedModel.load(here.model), here.ledger()
    key, other, owner = (grant(ledger, name) for name in ("ann", "bob", "owner"))
    near, far = near_and_far(model, pairs, seed=5)
    with command(here, here.settings(ledger, schedule_ms=schedule)) as server:
        if what == "k":
            first, second = near, far
        else:  # the same kind of rows, half of them asked by another analyst before
            first, second = far, near_and_far(model, pairs, seed=7)[1]
            client = Client(server.port)
            for start in range(0, pairs, 500):
                part = second[start : start + 500]
                if client.ask(json.dumps({"rows": part}).encode(), other)[0] != 200:
                    raise RuntimeError("the other analyst was refused")
            client.close()
        late = overruns(server.port, owner)
        times = interleaved(server.port, key, first, second, seed=1)
        late = overruns(server.port, owner) - late
    return {"times": times, "told": told_apart(times), "late": late}


def run(kind: str, full: bool, place: str | None) -> Part:
    """Measure both contrasts, with the schedule and without."""
    part, pairs = Part(), 10_000 if full else 100
    names = {"k": "k = 0, k large", "cache": "new to all, another analyst's"}
    part.say(
        "| schedule | kinds | median ms | 99 % ms | AUC of latency (95 % upper) | of boosted trees | overruns | "
        "target |",
        "|---|---|---|---|---|---|---|---|",
    )
    with world(kind, place, people=5_000) as here:
        for schedule in SCHEDULES:
            for what, name in names.items():
                found = measure(here, pairs, schedule, what)
                told, times = found["told"], 1000 * found["times"]
                worst = max(upper for _, upper in told.values())
                verdict = part.hold(f"{name}: upper bound <= {BOUND}", worst <= BOUND) if schedule else ""
                half, most = np.median(times, axis=0), np.quantile(times, 0.99, axis=0)
                part.say(
                    f"| {f'{schedule:g} ms' if schedule else 'off'} | {name} | {half[0]:.2f}, {half[1]:.2f} | "
                    f"{most[0]:.2f}, {most[1]:.2f} | "
                    + " | ".join(f"{value:.4f} ({upper:.4f})" for value, upper in told.values())
                    + f" | {found['late']} | {verdict} |"
                )
    part.say(
        "", f"{2 * pairs:,} requests a line, {pairs:,} of each kind, {CONNECTIONS} connections, one worker."
    )
    return part
