"""Input that nobody meant: schemathesis on the OpenAPI document, and rows that are malformed on purpose.

Schemathesis makes cases of the document, fitting and unfitting, and holds every answer to it: no 5xx, only
documented statuses, types, headers and bodies; unfitting input is refused, fitting input is not, keys matter.

Malformed rows carry a marker where the fault is. The answer must be 4xx, name the field, and hold the marker
nowhere: not in its body or headers, and neither may the log of the server or any file of its folder.
"""

from __future__ import annotations

import http.client
import json
import random
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from _service_part import Part
from _service_server import Server, command
from _service_world import COLUMNS, NUMBERS, World, environment, grant, rows, world

CASES, MALFORMED = 20_000, 2_000
TEXTS = ("ward", "smoker")


def schemathesis(here: World, cases: int) -> dict[str, int]:
    """Run rounds of other seeds until there were so many cases; return what was counted."""
    st = shutil.which("st") or str(Path(sys.executable).with_name("st"))
    if not Path(st).exists():
        raise RuntimeError("schemathesis is not installed: pip install schemathesis")
    counts = {"cases": 0, "failing": 0, "errors": 0, "rounds": 0}
    ledger = here.ledger()
    key = grant(ledger, "ann")
    with command(here, here.settings(ledger, schedule_ms=0)) as server:
        while counts["cases"] < cases:
            left, report = cases - counts["cases"], here.folder / "schemathesis.json"
            line = [st, "run", f"http://127.0.0.1:{server.port}/openapi.json"]
            line += ["-H", f"Authorization: Bearer {key}", "--checks", "all"]
            line += ["--phases", "examples,coverage,fuzzing", "--continue-on-failure", "--no-shrink"]
            line += ["--max-examples", str(min(5_000, max(50, left))), "--seed", str(1 + counts["rounds"])]
            line += ["--suppress-health-check", "all", "--report-json-path", str(report)]
            done = subprocess.run(
                line, capture_output=True, text=True, env=environment(), cwd=here.folder, check=False
            )
            if done.returncode not in (0, 1) or not report.exists():
                raise RuntimeError(done.stdout[-2000:] + done.stderr[-2000:])
            told = json.loads(report.read_text())
            counts["cases"] += told["test_cases"]["generated"]
            counts["failing"] += told["test_cases"]["with_failures"]
            counts["errors"] += len(told["errors"])
            counts["rounds"] += 1
            if told["failures"] or told["errors"]:
                print(done.stdout[-6000:])
            report.unlink()
        faults = server.log.read_text().count("ERROR")
    return {**counts, "faults": faults}


def run(kind: str, full: bool, place: str | None) -> Part:
    """Let schemathesis make its cases."""
    part = Part()
    with world(kind, place, people=2_000) as here:
        found = schemathesis(here, CASES if full else 300)
    verdict = part.hold(
        "no 5xx, no violation of the document", not (found["failing"] or found["errors"] or found["faults"])
    )
    part.say(
        "| cases | rounds | cases that failed a check | errors | faults in the log | target |",
        "|---|---|---|---|---|---|",
        f"| {found['cases']:,} | {found['rounds']} | {found['failing']} | {found['errors']} | {found['faults']} | "
        f"{verdict} |",
    )
    return part


# ---- rows that are wrong ------------------------------------------------------------------------------


class Faults:
    """Makes malformed rows; every wrong value holds a marker of its own."""

    def __init__(self, seed: int) -> None:
        self.draw = random.Random(seed)
        self.good = rows(400, seed=seed)
        self.markers: list[str] = []

    def marker(self) -> str:
        self.markers.append(f"zq{self.draw.getrandbits(64):016x}")
        return self.markers[-1]

    def row(self) -> tuple[dict[str, Any], str]:
        """Return a malformed row and the name of the field at fault."""
        row, draw = dict(self.draw.choice(self.good)), self.draw
        kind = draw.choice(("type", "category", "missing", "unknown", "label", "range"))
        if kind == "missing":
            name = draw.choice(list(row))
            del row[name]
        elif kind == "unknown":
            name = draw.choice(("Age", "patient", "ward ", "bmi_", f"x{draw.randrange(99)}"))
            row[name] = self.marker()
        elif kind == "label":
            name = "ill"
            row[name] = self.marker()
        elif kind == "category":
            name = draw.choice(TEXTS)
            row[name] = draw.choice(
                (self.marker(), [self.marker()], {self.marker(): 1}, f"north {self.marker()}")
            )
        elif kind == "range":
            name = draw.choice(NUMBERS)
            row[name] = (
                draw.choice((10**308 * 17, -(10**320))) if draw.random() < 0.5 else f"1e5 {self.marker()}"
            )
        else:
            name = draw.choice(NUMBERS)
            row[name] = draw.choice(
                (
                    self.marker(),
                    [self.marker()],
                    {"value": self.marker()},
                    True,
                    "41",
                    f"<b>{self.marker()}</b>",
                )
            )
        return row, name

    def body(self) -> tuple[bytes, str]:
        """Return a body with one malformed row among good ones, and the name of the field at fault."""
        row, name = self.row()
        if self.draw.random() < 0.5:
            return json.dumps({"row": row}).encode(), name
        asked = [*self.draw.choices(self.good, k=self.draw.randrange(5)), row]
        self.draw.shuffle(asked)
        return json.dumps({"rows": asked}).encode(), name

    def broken(self) -> bytes:
        """Return a body that is no request at all."""
        text, row = self.marker(), json.dumps(self.draw.choice(self.good))
        return self.draw.choice(
            (
                f"{text}", f'"{text}"', f'["{text}"]', f'{{"row": {row}, "row": "{text}"}}', f'{{"rows": "{text}"}}',
                f'{{"rows": []}}{text}', f'{{"row": {row}, "{text}/": 1}}', f'{{"row": {row}, "request_id": "{text} /"}}',
                f'{{"row": {row}', '{"row": ' + "[" * 100_000, f'{{"row": {{"age": NaN, "ward": "{text}"}}}}',
                f'{{"row": {{"age": 1e999, "ward": "{text}"}}}}', f'{{"row": {{"age": {"9" * 5000}}}}}',
                f'{{"rows": [{",".join([row] * 1001)}]}}', f'{{"row": {row}, "rows": ["{text}"]}}',
            )
        ).encode() + self.draw.choice((b"", b"", b"\xff"))  # fmt: skip


def ask(server: Server, key: str, body: bytes, kind: str = "application/json") -> tuple[int, str]:
    """Return the status, and headers and body as one text."""
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
    try:
        connection.request(
            "POST", "/v1/predict", body, {"Content-Type": kind, "Authorization": f"Bearer {key}"}
        )
        response = connection.getresponse()
        return response.status, f"{response.getheaders()}\n{response.read().decode()}"
    finally:
        connection.close()


def check(here: World, count: int, seed: int = 0) -> dict[str, list[str]]:
    """Send so many malformed rows and half as many broken bodies; return what went wrong, by kind."""
    wrong: dict[str, list[str]] = {"accepted, or 5xx": [], "field not named": [], "value said back": []}
    ledger, faults = here.ledger(), Faults(seed)
    key = grant(ledger, "ann")
    with command(here, here.settings(ledger, schedule_ms=0)) as server:
        for number in range(count + count // 2):
            body, name = faults.body() if number < count else (faults.broken(), "")
            status, told = ask(server, key, body)
            if not 400 <= status < 500:
                wrong["accepted, or 5xx"].append(f"{status}: {name}, fault {number}")
            elif name and not any(
                item["field"] in (name, "(a name that is not shown)")
                for item in json.loads(told.split("\n", 1)[1]).get("errors", ())
            ):
                wrong["field not named"].append(f"{name}, fault {number}")
            if any(marker in told for marker in faults.markers[-3:]):
                wrong["value said back"].append(f"fault {number}")
        kept = b"".join(path.read_bytes() for path in here.folder.rglob("*") if path.is_file())
        wrong["value said back"] += [f"a file holds {m}" for m in faults.markers if m.encode() in kept]
    if ledger.total().epsilon:
        wrong["accepted, or 5xx"].append("something was charged")
    return wrong


def malformed(kind: str, full: bool, place: str | None) -> Part:
    """Send malformed rows."""
    part, count = Part(), MALFORMED if full else 100
    assert set(COLUMNS) == {*NUMBERS, *TEXTS, "ill"}
    with world(kind, place, people=2_000) as here:
        wrong = check(here, count)
    part.say("| what | of | wrong | target |", "|---|---|---|---|")
    for what, found in wrong.items():
        of = (
            f"{count:,} rows"
            if what == "field not named"
            else f"{count:,} rows, {count // 2:,} broken bodies"
        )
        part.say(f"| {what} | {of} | {len(found)} | {part.hold(f'{what}: none', not found)} |")
    part.say(*(f"- {line}" for found in wrong.values() for line in found[:10]))
    return part
