"""A search ends when it is told to, by the clock or by a signal, with the best so far and a bound that is true."""

import contextlib
import dataclasses
import json
import math
import re
import signal
import subprocess
import sys
import threading
import time
from typing import Any

import pytest

from optimize.cli import design as design_command
from optimize.cli import run
from optimize.clusters import one_job
from optimize.status import CommandError, Status
from optimize.time_limit import TimeUpError, until
from tests.clusters.test_design_cli import FEW, MODEL
from tests.clusters.test_joint import problem
from tests.support import ROOT


def test_the_body_ends_at_the_moment():
    start, ended = time.monotonic(), []
    with until(start + 0.2):
        while True:
            time.sleep(10.0)
    assert time.monotonic() - start < 2.0
    with until(time.monotonic() + 60.0):
        ended.append("in time")
    assert ended
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)


def test_a_moment_that_is_not_heard_comes_again():
    """As inside a callback of the garbage collector, which drops what is raised there."""
    start = time.monotonic()
    with until(start + 0.1):
        with contextlib.suppress(TimeUpError):
            time.sleep(10.0)
        time.sleep(10.0)
    assert time.monotonic() - start < 3.0


def test_in_another_thread_nothing_happens():
    ended = []

    def work() -> None:
        with until(time.monotonic() + 1e-3):
            time.sleep(0.05)
            ended.append("whole")

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert ended == ["whole"]


@pytest.mark.parametrize("seconds", [0.05, 0.7])
def test_a_search_that_is_cut_short_has_a_true_bound(seconds):
    start = time.monotonic()
    found = one_job.search(problem(), seconds)
    assert time.monotonic() - start < seconds + 5.0  # a loaded machine; where it is quiet, a tenth of a second
    assert not found.finished
    least = math.inf if found.best is None else found.best.log_value
    assert found.log_bound <= min(least, 14.0)


def test_what_reading_takes_is_of_the_time_that_is_given(monkeypatch, capsys, tmp_path):
    (tmp_path / "model.toml").write_text(MODEL)
    words = [
        "design",
        "--model",
        str(tmp_path / "model.toml"),
        "--tokens",
        "1e9",
        "--budget-usd",
        "3e5",
        *FEW,
        "--json",
    ]
    given = []

    def searched(inputs: Any) -> Any:
        given.append(inputs.seconds)
        raise CommandError(Status.incomplete, "nothing was searched")

    monkeypatch.setattr(design_command, "DESIGN", dataclasses.replace(design_command.DESIGN, run=searched))
    for taken_s in (3.0, 100.0):
        assert run([*words, "--seconds", "10"], time.perf_counter() - taken_s) == Status.incomplete.exit_status
        assert json.loads(capsys.readouterr().out)["seconds"] >= taken_s
    assert 1.0 < given[0] <= 7.0
    assert given[1] == 5.0  # half, however late


def test_a_little_time_is_kept_from_the_start_of_the_process():
    words = "design --model megatron-1t --tokens 20e12 --budget-usd 5e8 --power-mw 50 --json --seconds 2".split()
    command, start = [sys.executable, "-m", "optimize.cli", *words], time.monotonic()
    told = subprocess.run(command, capture_output=True, cwd=ROOT, text=True, check=False)
    taken_s = time.monotonic() - start
    assert told.returncode in (0, 4)  # the latter, no answer yet, on a loaded machine
    answer = json.loads(told.stdout)
    assert abs(answer["seconds"] - taken_s) < 1.0 + 0.5 * taken_s
    assert "meets the limits" not in answer["message"]
    if answer.get("value") is not None:
        assert 0 < answer["lower_bound"] <= answer["value"]
        assert any(re.search(r"time was up at a gap of [0-9.]+ %;", note) for note in answer["notes"])


def test_what_so_many_evaluations_end_is_the_same_again(monkeypatch):
    """Whatever else runs there: no clock is asked."""
    monkeypatch.setattr(one_job, "EVOLVED", 700)
    asked, work = problem(), 900
    first, second = (one_job.search(asked, 600.0, work=work) for _ in range(2))
    assert (first.log_bound, first.evaluations) == (second.log_bound, second.evaluations)
    assert first.best is not None
    assert second.best is not None
    assert (first.best.log_value, first.best.plan) == (second.best.log_value, second.best.plan)
    assert work <= first.evaluations
    assert first.log_bound < first.best.log_value - first.tolerance  # it was not finished
    assert not first.late


def test_a_signal_ends_a_design_with_the_best_so_far(tmp_path):
    (tmp_path / "model.toml").write_text(MODEL)
    script = (
        "import functools, sys, time, optimize.clusters.one_job as one\n"
        "close, seen = one.close, []\n"
        "def slow(*arguments):\n"
        "    if len(seen) == 1: print('one', file=sys.stderr, flush=True); time.sleep(60)\n"
        "    seen.append(1); return close(*arguments)\n"
        "one.close, one.descend = slow, functools.partial(one.descend, each=2, steps=3)\n"
        "import optimize.cli; optimize.cli.main(sys.argv[1:])\n"
    )
    words = ["design", "--model", str(tmp_path / "model.toml"), "--tokens", "1e9", "--budget-usd", "3e5", *FEW]
    words += ["--accelerators", "16", "--cluster", "h100", "--seconds", "600", "--json"]
    command = [sys.executable, "-c", script, *words]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=ROOT, text=True) as running:
        assert running.stderr is not None
        assert running.stderr.readline() == "one\n"
        running.send_signal(signal.SIGTERM)
        out, _ = running.communicate(timeout=60)
    told = json.loads(out)
    assert (running.returncode, told["status"]) == (130, "incomplete")
    assert 0 < told["lower_bound"] < told["value"]
    assert "interrupted: the best so far" in told["notes"]
