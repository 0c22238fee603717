"""One search in several processes, killed and interrupted: the same answer, nothing done twice, no endless wait."""

import dataclasses
import functools
import json
import signal
import socket
import subprocess
import sys
import time

import numpy as np
import pytest

from optimize.lattice.enumeration import lattice
from optimize.others import Sharding
from optimize.plans import exhaustive
from optimize.plans.exhaustive import Best, search
from optimize.plans.find_in_lattice import find_in_lattice
from optimize.plans.plan_values import plan_value
from optimize.plans.processes import search_shared
from optimize.status import Status
from tests.support import ROOT
from tests.support.builders import cluster, small_decoder

ASK = ("plan", "--model", "llama3-8b", "--cluster", "h100", "--accelerators", "32", "--top", "4", "--any", "--json")
MACHINE = cluster(16)
WHOLE = lattice(small_decoder(layers=6, batch=48), MACHINE, {"context_kind": "ring"})
STEP = plan_value("step_s", WHOLE.workload, MACHINE, [8])


@pytest.fixture
def small_chunks(monkeypatch) -> list[int]:
    """Chunks of 4,096 plans; the list holds the first plan of each that is evaluated."""
    evaluated, make = [], exhaustive.evaluator

    def counting(whole):
        evaluate = make(whole)

        def count(chunk):
            evaluated.append(int(chunk.indices[0]))
            return evaluate(chunk)

        return count

    monkeypatch.setattr(exhaustive, "CHUNK", 4096)
    monkeypatch.setattr(exhaustive, "evaluator", counting)
    return evaluated


def _search(whole, value, top, checkpoint, **share) -> Best:
    return search_shared(whole, value, top, sharding=Sharding(checkpoint=checkpoint, **share))


def _interrupted_after(monkeypatch, chunks: int):
    """Ctrl-C while the next chunk is evaluated."""
    make = exhaustive.evaluator

    def limited(whole):
        evaluate, left = make(whole), [chunks]

        def one(chunk):
            left[0] -= 1
            if left[0] < 0:
                raise KeyboardInterrupt
            return evaluate(chunk)

        return one

    monkeypatch.setattr(exhaustive, "evaluator", limited)


def test_an_interrupted_search_goes_on_where_it_was(small_chunks, monkeypatch, tmp_path):
    expected, total = search(WHOLE, STEP, 5), exhaustive.chunk_count(WHOLE)
    assert total > 4
    small_chunks.clear()
    with monkeypatch.context() as once:
        _interrupted_after(once, 3)
        part = _search(WHOLE, STEP, 5, tmp_path)
    assert part.evaluated == 3 * 4096
    resumed = _search(WHOLE, STEP, 5, tmp_path)
    assert resumed == expected
    assert sorted(small_chunks) == [4096 * i for i in range(total)]  # each once, before or after
    small_chunks.clear()
    assert _search(WHOLE, STEP, 5, tmp_path) == expected
    assert small_chunks == []
    assert [path.suffix for path in tmp_path.iterdir()] == [".json"]


def test_ten_interruptions_at_random_moments_do_nothing_twice(small_chunks, monkeypatch, tmp_path):
    monkeypatch.setattr(exhaustive, "CHUNK", 256)
    expected, total = search(WHOLE, STEP, 5), exhaustive.chunk_count(WHOLE)
    small_chunks.clear()
    moments = np.random.default_rng(3).integers(0, total // 10, 10)
    for moment in moments:
        with monkeypatch.context() as once:
            _interrupted_after(once, int(moment))
            _search(WHOLE, STEP, 5, tmp_path)
    assert len(small_chunks) == moments.sum()
    assert _search(WHOLE, STEP, 5, tmp_path) == expected
    assert sorted(small_chunks) == [256 * i for i in range(total)]


def test_ten_deaths_at_random_moments_leave_the_answer(tmp_path):
    """By SIGKILL and by SIGTERM, between the start of the process and its end."""
    ask = (*ASK[:2], "llama3-70b", *ASK[3:6], "1024", *ASK[7:], "--checkpoint", str(tmp_path))
    draws = np.random.default_rng(4)
    for number, moment_s in enumerate(draws.uniform(0.2, 1.4, 10)):
        command = [sys.executable, "-m", "optimize.cli", *ask]
        with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as running:
            time.sleep(moment_s)
            running.send_signal((signal.SIGKILL, signal.SIGTERM)[number % 2])
    answers = []
    for words in (ask, ask[:-2]):
        command = [sys.executable, "-m", "optimize.cli", *words]
        answers.append(json.loads(subprocess.run(command, cwd=ROOT, capture_output=True, text=True).stdout))
    for key in ("status", "plan", "plans", "value", "gap", "lower_bound_s", "simplest"):
        assert answers[0][key] == answers[1][key], key


def test_another_number_of_processes_goes_on_too(small_chunks, tmp_path):
    """What the first of two processes did alone is not done again by three that follow."""
    expected = search(WHOLE, STEP, 5)
    small_chunks.clear()
    _search(WHOLE, STEP, 5, tmp_path, processes=2, process=0)
    parts = [_search(WHOLE, STEP, 5, tmp_path, processes=3, process=i) for i in range(3)]
    joined = Best()
    for part in parts:
        joined = joined.merged(part, 5)
    assert joined == expected
    assert len(small_chunks) == len(set(small_chunks)) == exhaustive.chunk_count(WHOLE)


def test_notes_of_another_question_are_not_read(small_chunks, tmp_path):
    _search(WHOLE, STEP, 5, tmp_path)
    small_chunks.clear()
    assert _search(WHOLE, STEP, 3, tmp_path) == search(WHOLE, STEP, 3)
    faster = dataclasses.replace(WHOLE.cluster.accelerator, hbm_bytes_per_s=3e12)
    other = lattice(WHOLE.workload, dataclasses.replace(MACHINE, accelerator=faster), {"context_kind": "ring"})
    found = _search(other, STEP, 5, tmp_path)
    assert found.top[0].value < search(WHOLE, STEP, 5).top[0].value
    assert len(list(tmp_path.iterdir())) == 3
    next(iter(tmp_path.iterdir())).write_text("{")  # a broken file is done again
    assert _search(WHOLE, STEP, 5, tmp_path) == search(WHOLE, STEP, 5)


def test_the_best_so_far_has_a_true_bound(small_chunks, monkeypatch):
    workload, machine = WHOLE.workload, MACHINE
    best = find_in_lattice(workload, machine, fixed={"context_kind": "ring"})
    _interrupted_after(monkeypatch, 2)
    part = find_in_lattice(
        workload, machine, fixed={"context_kind": "ring"}, search=functools.partial(search_shared, sharding=Sharding())
    )
    assert part.status is Status.incomplete
    assert part.evaluations == 2 * 4096
    assert part.lower_bound <= best.value <= part.value
    assert part.gap == pytest.approx(part.value / part.lower_bound - 1)


STARTED_S = 15.0  # what a busy machine may take to start a process and to search, which takes two


def _address() -> str:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{free.getsockname()[1]}"


def _start(*words: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "optimize.cli", *ASK, *words]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT)


def _answer(running: subprocess.Popen[str], timeout_s: float = 120):
    out, err = running.communicate(timeout=timeout_s)
    return json.loads(out), err


def test_two_processes_return_the_list_of_one():
    shared = ("--processes", "2", "--coordinator", _address())
    started = [_start("--any"), *(_start(*shared, "--process", str(i)) for i in (0, 1))]
    alone, first, second = (_answer(process)[0] for process in started)
    for key in ("plan", "plans", "value", "gap", "lower_bound_s", "evaluations", "fitting", "simplest", "runner_ups"):
        assert first[key] == second[key], key
    for key in ("plan", "plans", "value", "gap", "simplest"):
        assert alone[key] == first[key], key
    assert alone["evaluations"] <= first["evaluations"] <= first["plans_in_lattice"]


_ENDS = """
import sys, os, signal, optimize.cli, optimize.cli.plan as plan, optimize.plans.processes as processes
victim, moment = int(sys.argv.pop(1)), sys.argv.pop(1)
def end(*_, **__): os.kill(os.getpid(), victim)
meet, joined, answer = plan.connect, processes.joined, plan._search
def met(*a): meet(*a); end()
def told(*a): joined(*a); end()
def answered(*a): answer(*a); end()
if moment == "connect": plan.connect = end
elif moment == "met": plan.connect = met
elif moment == "search_shared": plan.search_shared = end
elif moment == "searched": processes.joined = end
elif moment == "told": processes.joined = told
elif moment == "answered": plan._search = answered
optimize.cli.main(sys.argv[1:])
"""


def _two(victim: int, sent: signal.Signals, moment: str):
    """One of two processes gets a signal at a moment; what the other one says, how long after, and both statuses."""
    shared = ("--processes", "2", "--coordinator", _address(), "--wait", "8")
    other = _start(*shared, "--process", str(1 - victim))
    command = [sys.executable, "-c", _ENDS, str(int(sent)), moment, *ASK, *shared, "--process", str(victim)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as ended:
        start = time.perf_counter()
        told, err = _answer(other)
        took_s = time.perf_counter() - start
    return told, err, took_s, other.returncode, ended.returncode


@pytest.mark.parametrize("victim", [0, 1])
@pytest.mark.parametrize("moment", ["connect", "met", "search_shared", "searched"])
def test_a_killed_process_is_reported(victim, moment):
    """The other one ends by itself, with a status and one line, soon after its time limit, whichever is killed."""
    told, err, took_s, status, ended = _two(victim, signal.SIGKILL, moment)
    assert took_s < 8 + 5 + STARTED_S
    assert ended == -signal.SIGKILL
    assert (status, told["status"]) == (Status.incomplete.exit_status, "incomplete")
    assert f"process {1 - victim} of 2" in told["message"]
    assert "did not answer" in told["message"]
    assert err == f"equipoise: {told['message']}\n"


@pytest.mark.parametrize("victim", [0, 1])
@pytest.mark.parametrize("sent", [signal.SIGKILL, signal.SIGTERM])
def test_who_has_the_answer_needs_nobody_any_more(victim, sent):
    """One that ends after all were told takes no answer from the other."""
    told, err, _, status, ended = _two(victim, sent, "answered")
    assert (status, told["status"], err) == (0, "ok", "")
    assert ended != 0


@pytest.mark.parametrize("victim", [0, 1])
def test_one_that_ends_before_all_is_looked_at_leaves_the_best_so_far(victim):
    """What frameworks take beside the lattice is a search of its own."""
    told, err, _, status, _ = _two(victim, signal.SIGKILL, "told")
    assert (status, told["status"], err) == (130, "incomplete", "")
    assert told["plan"]
    assert told["gap"] >= 0


def test_processes_with_different_questions_are_refused():
    shared = ("--processes", "2", "--coordinator", _address())
    running = [_start(*shared, "--process", "0"), _start(*shared, "--process", "1", "--batch", "64")]
    told = [_answer(process)[0] for process in running]
    assert [each["status"] for each in told] == ["bad_input", "bad_input"]
    assert all("process 1 of 2 searches something else than process 0" in each["message"] for each in told)


def test_two_with_one_number_are_refused():
    shared = ("--processes", "3", "--coordinator", _address(), "--wait", "20")
    running = [_start(*shared, "--process", number) for number in ("0", "1", "1")]
    told = [_answer(process)[0] for process in running]
    assert told[0]["status"] == "bad_input"
    assert "process 1 of 3 has come; expected 3 with the numbers 0 to 2, each once" in told[0]["message"]
    assert [each["status"] for each in told[1:]] == ["incomplete", "incomplete"]
