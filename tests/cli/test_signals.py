"""A signal at any moment ends a command with the documented status: nothing breaks, nothing half is left behind."""

import json
import os
import random
import signal
import socket
import subprocess
import sys
import time
import tomllib
from pathlib import Path

import pytest

from costmodel.specs import write_table
from tests.clusters.test_design_cli import FEW, MODEL
from tests.support import ROOT, often
from tests.support.row_by_hand import ROW

ENDED = {signal.SIGINT: (0, 3, 4, 130), signal.SIGTERM: (0, 3, 4, 130, 143)}
"""An answer, none, none in time, or that of a signal."""
ENDS_S = 2.0  # after the signal, on a machine that does nothing else
START = """
import importlib, runpy, sys
process = importlib.import_module("optimize.cli.main")
hear = process._hear
def begun(heard): hear(heard); print("begun", flush=True)
process._hear, sys.argv = begun, sys.argv[1:]
runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
"""
NAMES = ("explain", "plan", "predict", "calibrate", "measure", "design", "plan of two processes", "experiments")
GIVEN = ("model.toml", "rows.csv", "results")
BROKEN = ("Traceback", "terminate called", "Fatal", "Exception ignored", "Aborted")


def commands(folder: Path) -> dict[str, list[list[str]]]:
    """Words of the processes of each, which run in the folder."""
    (folder / "model.toml").write_text(MODEL)
    own = [{**ROW, "micro_batch": str(n), "measured_step_s": str(2.0 + n)} for n in (1, 2, 4)]
    write_table(folder / "rows.csv", list(own[0]), [list(row.values()) for row in own])
    job = ["--model", "llama3-8b", "--cluster", "h100", "--accelerators", "64"]
    little = ["--model", "model.toml", "--tokens", "1e9", "--budget-usd", "3e5", "--accelerators", "16", *FEW]
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
    shared = ["plan", *job, "--fix", "schedule=gpipe", "--processes", "2", "--coordinator", address, "--wait", "20"]
    told: dict[str, list[list[str]]] = {
        "explain": [["explain", *job, "--out", "out"]],
        "plan": [["plan", *job, "--out", "out"]],
        "predict": [["predict", "rows.csv", "--out", "out.csv"]],
        "calibrate": [["calibrate", "rows.csv", "--out", "out.toml"]],
        "measure": [["measure", "--seconds", "2", "--out", "out.toml", "--table", "out.csv"]],
        "design": [["design", *little, "--cluster", "h100", "--seconds", "8", "--out", "out"]],
        "plan of two processes": [[*shared, "--process", n, "--out", f"out{n}"] for n in ("0", "1")],
        "experiments": [["run", "comp_vs_comm"]],
    }
    module = {name: "experiments" if name == "experiments" else "optimize.cli" for name in told}
    return {name: [[module[name], *words] for words in each] for name, each in told.items()}


def begun(words: list[str], folder: Path) -> "subprocess.Popen[str]":
    """A process that hears signals."""
    settings, pipe = {**os.environ, "PYTHONPATH": str(ROOT)}, subprocess.PIPE
    command = [sys.executable, "-c", START, *words]
    running = subprocess.Popen(command, stdout=pipe, stderr=pipe, cwd=folder, text=True, env=settings)
    assert running.stdout is not None
    assert running.stdout.readline() == "begun\n"
    return running


def whole_s(each: list[list[str]], folder: Path) -> float:
    """How long they take that nobody interrupts."""
    running, start = [begun(words, folder) for words in each], time.monotonic()
    told = [(process.communicate(timeout=300), process.returncode) for process in running]
    assert [status for _, status in told] == [0] * len(each), told
    return time.monotonic() - start


def what_broke(each: list[list[str]], folder: Path, sent: signal.Signals, moment_s: float) -> tuple[list[str], float]:
    """What is wrong with how they end that are sent a signal at a moment, and how long that takes."""
    running, wrong = [begun(words, folder) for words in each], []
    time.sleep(moment_s)
    for process in running:
        process.send_signal(sent)
    start = time.monotonic()
    for process in running:
        _, err = process.communicate(timeout=120)
        if process.returncode not in ENDED[sent] or any(word in err for word in BROKEN):
            wrong.append(f"status {process.returncode}: {err[-300:]}")
    late_s = time.monotonic() - start
    left = [path for path in (*folder.glob("results/*"), *folder.iterdir()) if path.name not in GIVEN]
    wrong += [f"half: {path}" for path in left if half(path)]
    return wrong, late_s


def half(path: Path) -> bool:
    """Whether this is not a whole result."""
    if path.name.startswith("."):
        return True
    if path.is_dir():
        inside = {own.name for own in path.iterdir()}
        return not {"result.json", "index.html"} <= inside or not json.loads((path / "result.json").read_text())
    if path.suffix == ".toml":
        return not tomllib.loads(path.read_text()).keys() >= {"cluster", "stack"}
    return not path.read_text().endswith("\n")


@pytest.mark.parametrize("name", NAMES)
def test_a_signal_at_any_moment(name, tmp_path):
    """SIGTERM and SIGINT at random moments from the start to the end, 50 times for each command by night."""
    each = commands(tmp_path)[name]
    usual_s, draw, wrong = whole_s(each, tmp_path), random.Random(7), []
    for number in range(often(2, 50)):
        sent, moment_s = (signal.SIGTERM, signal.SIGINT)[number % 2], draw.uniform(0.0, usual_s)
        found, late_s = what_broke(each, tmp_path, sent, moment_s)
        if found or late_s > ENDS_S + usual_s:
            wrong.append((sent.name, round(moment_s, 2), f"ended {late_s:.1f} s later", *found))
    assert wrong == []


JOINED = """
import os, signal, sys
from optimize.cli.measure import Request, _join
signal.signal(signal.SIGTERM, lambda *_: sys.exit(7))
_join(Request(processes=1, process=0, coordinator=sys.argv[1]))
os.kill(os.getpid(), signal.SIGTERM)
"""


def test_processes_that_measure_together_hear_sigterm():
    """JAX's notice of preemptions would take the signal, and the run would go on to its end."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
    settings = {**os.environ, "PYTHONPATH": str(ROOT)}
    ended = subprocess.run([sys.executable, "-c", JOINED, address], env=settings, capture_output=True, timeout=120)
    assert ended.returncode == 7, ended.stderr
