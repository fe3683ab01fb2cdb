"""Processes that the race and kill tests start: forks from one light parent, so that 200 are cheap.

Usage: ``worker.py race HANDLE PROCESSES THREADS AMOUNT`` or ``worker.py kill HANDLE KILLS SEED``; prints JSON.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import threading
import time

from confide.errors import BudgetError
from confide.ledger import Ledger, Request
from confide.privacy.event import Event
from confide.privacy.guarantee import Guarantee


def charge_of(amount):
    return Guarantee(amount, 0, "replace_one", "row", Event.of("pure", epsilon=float(amount)))


def race(handle, processes, threads, amount):
    """Let all threads of all processes charge until they are refused; return how many were accepted."""
    go_read, go_write = os.pipe()
    out_read, out_write = os.pipe()
    pids = []
    for _ in range(processes):
        pid = os.fork()
        if pid == 0:
            os.close(go_write)
            code = 1
            try:
                ledger, charge = Ledger.from_handle(handle), charge_of(amount)
                counts, errors = [], []

                def run(ledger=ledger, charge=charge, counts=counts, errors=errors):
                    count = 0
                    try:
                        while True:
                            ledger.reserve(charge)
                            count += 1
                    except BudgetError:
                        counts.append(count)
                    except BaseException as error:
                        errors.append(repr(error))

                os.read(go_read, 1)  # returns for all when the parent closes its end
                pool = [threading.Thread(target=run) for _ in range(threads)]
                for thread in pool:
                    thread.start()
                for thread in pool:
                    thread.join()
                os.write(out_write, (json.dumps({"accepted": sum(counts), "errors": errors}) + "\n").encode())
                code = 0
            finally:
                os._exit(code)
        pids.append(pid)
    os.close(go_read)
    os.close(out_write)
    os.close(go_write)
    with os.fdopen(out_read) as lines:
        answers = [json.loads(line) for line in lines]
    codes = [os.waitpid(pid, 0)[1] for pid in pids]
    return {
        "accepted": sum(answer["accepted"] for answer in answers),
        "answers": len(answers),
        "errors": [error for answer in answers for error in answer["errors"]],
        "codes": codes,
    }


def kill(handle, kills, seed):
    """Kill a charging child `kills` times at random moments; return what the children acknowledged."""
    draw = random.Random(seed)
    acknowledged, settled = [], []
    for number in range(kills):
        read, write = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.close(read)
            try:
                _charge_forever(Ledger.from_handle(handle), write, number)
            finally:
                os._exit(1)
        os.close(write)
        with os.fdopen(read) as lines:
            # One in four dies while it opens the store or makes its first charge, the others amid many.
            text = "" if number % 4 == 0 else lines.readline()
            time.sleep(draw.uniform(0.0, 0.03))
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            text += lines.read()
        for line in text.splitlines(keepends=True):
            if line.endswith("\n"):
                word, place = line.split()
                (acknowledged if word == "charged" else settled).append(place)
    return {"acknowledged": acknowledged, "settled": settled}


def _charge_forever(ledger, write, number):
    charge = charge_of("0.001")

    def run(name):
        step = 0
        while True:
            step += 1
            if step % 5 == 0:
                for done in ledger.charge_many([Request(charge, secret=b"s")] * 3):
                    os.write(write, f"charged {done.id}\n".encode())
                continue
            done = ledger.reserve(charge, label=name, key=f"{number}-{name}-{step}")
            os.write(write, f"charged {done.id}\n".encode())
            ledger.settle(done, secret=name.encode())
            os.write(write, f"settled {done.id}\n".encode())

    threading.Thread(target=run, args=("a",), daemon=True).start()
    run("b")


if __name__ == "__main__":
    kind, handle, *rest = sys.argv[1:]
    Ledger.from_handle(handle).preview(charge_of("0.001"))  # load everything once, before the forks
    if kind == "race":
        print(json.dumps(race(handle, int(rest[0]), int(rest[1]), rest[2])))
    else:
        print(json.dumps(kill(handle, int(rest[0]), int(rest[1]))))
