"""Counters over workers, and their text."""

from __future__ import annotations

import subprocess
import sys
import threading

from confide.service.metrics import OVERRUNS, ROWS, Counters, exposition


def test_counts_of_all_workers_add_up_and_outlive_them(tmp_path):
    here, there = Counters(tmp_path), Counters(tmp_path)
    here.request("predict", 200)
    there.request("predict", 204)
    there.request("predict", 503)
    here.request("something else", 404)
    code = (
        "import sys; from confide.service.metrics import Counters; c = Counters(sys.argv[1]);"
        "[c.add('rows', 5) for _ in range(1000)]"
    )
    subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=True)
    sums = here.sums()
    assert sums == there.sums()
    assert sums["predict 2xx"] == 2
    assert sums["predict 5xx"] == 1
    assert sums["other 4xx"] == 1
    assert sums[ROWS] == 5000


def test_threads_lose_no_count():
    counters = Counters()
    threads = [
        threading.Thread(target=lambda: [counters.add(OVERRUNS) for _ in range(2000)]) for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert counters.sums()[OVERRUNS] == 16_000


def test_a_file_of_another_kind_is_left_aside(tmp_path):
    counters = Counters(tmp_path)
    (tmp_path / "short.counts").write_bytes(b"123")
    assert set(counters.sums().values()) == {0}


def test_labels_are_escaped():
    text = exposition({"model": 'a"b\\c\nd'}, {"answer_epsilon": 0.1}, None)
    assert 'confide_info{model="a\\"b\\\\c d"} 1' in text.splitlines()
    assert "confide_answer_epsilon 0.1" in text.splitlines()
