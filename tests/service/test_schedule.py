"""The public schedule of answers: times on a grid of arrival and number of rows, whatever happens inside."""

from __future__ import annotations

import asyncio
import logging
import math
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from confide.errors import ParameterError
from confide.service import schedule as module
from confide.service.schedule import KEPT, NONE, Schedule

STEP = 0.025


@pytest.mark.parametrize(("rows", "points"), [(0, 1), (1, 1), (100, 1), (101, 2), (1000, 10), (10_000, 100)])
def test_the_time_is_a_function_of_the_number_of_rows(rows, points):
    schedule = Schedule(STEP, 0.00025)
    assert schedule.points(rows) == points
    assert schedule.due(7.0, rows) == 7.0 + points * STEP


@pytest.mark.parametrize(
    ("now", "leaves", "late"),
    [
        (7.0, 7.5, False),  # ready at once
        (7.5, 7.5, False),  # ready at its time to the tick
        (7.5000001, 8.0, True),  # ready later
        (9.25, 9.5, True),
    ],
)
def test_edge_cases(now, leaves, late):
    assert Schedule(0.5).next_point(7.0, 1, now) == (leaves, late)


def test_a_step_of_zero_is_no_schedule():
    schedule = Schedule(0)
    assert schedule.next_point(7.0, 5, 9.0) == (7.0, False)
    assert schedule.assumption == NONE
    assert Schedule(STEP).assumption == KEPT


@pytest.mark.parametrize("bad", [-1, math.nan, math.inf])
def test_bad_steps_are_refused(bad):
    with pytest.raises(ParameterError):
        Schedule(bad)
    with pytest.raises(ParameterError):
        Schedule(STEP, bad)


@given(st.floats(1e-3, 10), st.floats(0, 0.1), st.floats(0, 1e6), st.integers(0, 1000), st.floats(0, 100))
def test_an_answer_never_leaves_before_its_time_nor_off_the_grid(step, row, arrival, rows, took):
    schedule = Schedule(step, row)
    leaves, late = schedule.next_point(arrival, rows, arrival + took)
    assert leaves >= schedule.due(arrival, rows)
    assert leaves >= arrival + took or not late
    steps = (leaves - arrival) / step
    assert abs(steps - round(steps)) < 1e-6 * max(1, steps) + 1e-9 * arrival / step
    assert late == (arrival + took > schedule.due(arrival, rows))


def test_waiting_ends_on_time_and_an_overrun_is_counted_and_told_once_in_a_while(caplog, monkeypatch):
    monkeypatch.setattr(Schedule, "tolerance", 1.0)  # a busy machine wakes late
    counted = []
    schedule = Schedule(0.02, overrun=lambda: counted.append(1))

    async def answer(work):
        arrival = time.monotonic()
        await asyncio.sleep(work)
        await schedule.wait(arrival, 1)
        return time.monotonic() - arrival

    assert asyncio.run(answer(0)) >= 0.02
    assert not counted
    with caplog.at_level(logging.WARNING):
        taken = [asyncio.run(answer(0.05)) for _ in range(3)]
        assert all(time_ >= 0.06 for time_ in taken)
        assert len(counted) == 3
        assert [record.getMessage() for record in caplog.records] == [
            "answers left after their time: 1 since the last such line; raise --schedule-ms"
        ]
        monkeypatch.setattr(module, "QUIET_SECONDS", 0)
        asyncio.run(answer(0.05))
        assert "time: 3 since" in caplog.records[-1].getMessage()


def test_an_answer_that_is_woken_late_leaves_at_a_point_of_the_grid_and_is_counted(monkeypatch):
    clock, late, counted = [0.0], iter([0.03, 0.0]), []

    async def sleep(seconds):
        clock[0] += seconds + next(late)

    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: clock[0]))
    monkeypatch.setattr(module, "asyncio", SimpleNamespace(sleep=sleep))
    asyncio.run(Schedule(0.05, overrun=lambda: counted.append(1)).wait(0.0, 1))
    assert clock[0] == pytest.approx(0.1)  # woken at 0.08 instead of 0.05
    assert counted == [1]


@pytest.mark.parametrize(("step", "tolerance"), [(1, 0.005), (0.025, 0.005), (0.01, 0.002), (0, 0)])
def test_the_width_of_a_point_is_public_and_a_fifth_of_a_step_at_most(step, tolerance):
    assert Schedule(step).tolerance == pytest.approx(tolerance)


def test_all_waits_for_its_time_but_a_request_without_a_key(service_of):
    service, client, headers, row, refused = service_of(schedule_ms=60)

    def taken(**body):
        start = time.monotonic()
        response = client.post("/v1/predict", json=body, headers=headers)
        return response.status_code, time.monotonic() - start

    start = time.monotonic()
    assert client.post("/v1/predict", json={"row": row}).status_code == 401
    assert time.monotonic() - start < 0.06
    status, seconds = taken(row={})
    assert (status, seconds >= 0.06) == (422, True)
    for _ in range(3):
        status, seconds = taken(row=row)
        assert (status, seconds >= 0.06) == (200, True)
    service.raised = refused
    status, seconds = taken(row=row)
    assert (status, seconds >= 0.06) == (403, True)
    start = time.monotonic()
    client.get("/v1/budget", headers=headers)
    assert time.monotonic() - start >= 0.06


def test_an_overrun_is_named_by_the_guarantee_from_then_on(service_of, monkeypatch):
    monkeypatch.setattr(Schedule, "tolerance", 1.0)  # a busy machine wakes late
    service, client, headers, row, _ = service_of(schedule_ms=200)
    told = client.get("/v1/guarantee").json()
    assert told["assumptions"] == [KEPT]
    assert KEPT in told["sentence"]
    answer = service.answer

    def slow(*arguments):
        time.sleep(0.25)
        return answer(*arguments)

    service.answer = slow
    client.post("/v1/predict", json={"row": row}, headers=headers)
    told = client.get("/v1/guarantee").json()
    (named,) = told["assumptions"]
    assert named.startswith("1 answer since 20")
    assert "assumes that their lateness did not depend on the data, and says so for good" in named
    assert named in told["sentence"]
    assert KEPT not in told["sentence"]
    assert service.overruns == 1
    counts = client.get("/metrics", headers={"Authorization": "Bearer owner-key"}).text
    assert "confide_schedule_overruns_total 1" in counts.splitlines()


@pytest.mark.parametrize("path", ["/v1/guarantee", "/metrics"])
@pytest.mark.parametrize("headers", [{}, {"Authorization": "Bearer owner-key"}])
def test_what_reads_the_store_without_a_key_is_on_the_schedule(service_of, path, headers, monkeypatch):
    monkeypatch.setattr(Schedule, "tolerance", 1.0)  # a busy machine wakes late
    service, client, *_ = service_of(schedule_ms=200)
    guarantee, threads = service.guarantee, []

    def told():
        threads.append(threading.current_thread())
        return guarantee()

    def slow():
        time.sleep(0.25)
        return guarantee()

    def taken():
        start = time.monotonic()
        response = client.get(path, headers=headers)
        assert response.status_code == 200
        return time.monotonic() - start

    service.guarantee = told
    first = taken()
    assert first >= 0.2
    assert "worker" in threads[0].name.lower()  # not on the loop, where others' answers wait
    assert service.overruns == 0 or first >= 0.4  # of a machine too busy
    counted = client.app.state.front.counters.sums
    before, unkeyed = service.overruns, counted()["strangers"]
    service.guarantee = slow
    client.app.state.front._promise = None
    assert taken() >= 0.4
    # What reads no key is no answer of the table: it is late, and apart.
    keyed = path == "/metrics" and bool(headers)
    assert service.overruns == before + keyed
    assert counted()["strangers"] == unkeyed + (not keyed)


def test_a_store_that_fails_is_told_on_the_schedule(service_of):
    from confide.errors import LedgerError

    service, client, *_ = service_of(schedule_ms=60)

    def gone():
        raise LedgerError("SECRET", "SECRET")

    service.guarantee = gone
    for path in ("/v1/guarantee", "/metrics"):
        start = time.monotonic()
        response = client.get(path)
        assert (response.status_code, "SECRET" in response.text) == (503, False)
        assert time.monotonic() - start >= 0.06


def test_the_guarantee_is_read_once_a_second_however_many_ask(service_of, monkeypatch):
    from confide.service import app

    clock = [100.0]
    service, client, *_ = service_of()
    front, guarantee, read = client.app.state.front, service.guarantee, []
    service.guarantee = lambda: read.append(1) or guarantee()
    with monkeypatch.context() as patch:
        patch.setattr(app, "time", SimpleNamespace(monotonic=lambda: clock[0]))
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(lambda _: front.promise(), range(64)))
        assert len(read) == 1
        clock[0] += 1.0
        front.promise()
        assert len(read) == 2


def test_a_worker_reads_along(service_of):
    from confide.errors import LedgerError
    from confide.service.worker import keep_up

    service, client, *_ = service_of()
    front, guarantee, read = client.app.state.front, service.guarantee, []

    def told():
        read.append(1)
        if len(read) == 1:
            raise LedgerError("away", "wait")  # it goes on
        return guarantee()

    service.guarantee = told

    async def some():
        task = asyncio.create_task(keep_up(front, 0.01))
        while len(read) < 2:
            await asyncio.sleep(0.01)
        task.cancel()

    asyncio.run(asyncio.wait_for(some(), 10))


@pytest.fixture
def service_of():
    import importlib.util
    from pathlib import Path

    from fastapi.testclient import TestClient

    spec = importlib.util.spec_from_file_location("service_fake", Path(__file__).with_name("fake.py"))
    fake = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(fake)

    def make(**settings):
        service, app = fake.made(**settings)
        headers = {"Authorization": "Bearer alice-key"}
        return service, TestClient(app), headers, fake.GOOD, fake.RAISED["total"][0]

    return make
