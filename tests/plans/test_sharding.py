"""One search in several processes, killed and interrupted: the same answer, nothing done twice, no endless wait."""

import dataclasses
import functools
import json
import signal
import socket
import subprocess
import sys
import time

import pytest

from optimize.lattice.enumeration import lattice
from optimize.plans import exhaustive, processes
from optimize.plans.exhaustive import Best, search
from optimize.plans.find_in_lattice import find_in_lattice
from optimize.plans.inputs import Sharding
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


def test_another_number_of_processes_goes_on_too(small_chunks, monkeypatch, tmp_path):
    """What the first of two processes did alone is not done again by three that follow."""
    monkeypatch.setattr(processes, "joined", lambda best, *_: best)
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
    started = [_start("--any"), *(_start(*shared, "--process", str(i)) for i in (1, 2))]
    alone, first, second = (_answer(process)[0] for process in started)
    for key in ("plan", "plans", "value", "gap", "lower_bound_s", "evaluations", "fitting", "simplest", "runner_ups"):
        assert first[key] == second[key], key
    for key in (
        "plan",
        "plans",
        "value",
        "gap",
        "simplest",
    ):  # one process looks in the order of bounds, and ends sooner
        assert alone[key] == first[key], key
    assert alone["evaluations"] < first["evaluations"] == first["plans_in_lattice"]


_DIES = """
import sys, optimize.plans.processes as processes, os, signal, jax
def die(*_, **__): os.kill(os.getpid(), signal.SIGKILL)
def meet(*a, meet=jax.distributed.initialize, **k): meet(*a, **k); die()
moment = sys.argv.pop(1)
if moment == "met": jax.distributed.initialize = meet
elif moment == "searched": processes.joined = die
else: setattr(processes, moment, die)
import optimize.cli
optimize.cli.main(sys.argv[1:])
"""


@pytest.mark.parametrize("moment", ["connect", "met", "search_shared", "searched"])
def test_a_killed_process_is_reported(moment):
    """The other one ends by itself, with a status and one line, soon after its time limit."""
    shared = ("--processes", "2", "--coordinator", _address())
    first = _start(*shared, "--process", "1", "--wait", "8")
    command = [sys.executable, "-c", _DIES, moment, *ASK, *shared, "--process", "2", "--wait", "30"]
    with subprocess.Popen(command, cwd=ROOT, stderr=subprocess.DEVNULL) as second:
        start = time.perf_counter()
        told, err = _answer(first)
        assert time.perf_counter() - start < 8 + 5 + STARTED_S
    assert second.returncode == -signal.SIGKILL
    assert (first.returncode, told["status"]) == (Status.incomplete.exit_status, "incomplete")
    assert "process 1 of 2" in told["message"]
    assert "did not answer" in told["message"]
    assert told["message"] in err
