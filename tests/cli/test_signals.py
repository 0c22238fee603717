"""A signal at any moment ends a command with the documented status: nothing breaks, nothing is left behind."""

import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from costmodel.specs import write_table
from tests.clusters.test_design_cli import FEW, MODEL
from tests.support import ROOT, often
from tests.support.row_by_hand import ROW

ENDED = {signal.SIGINT: (0, 3, 4, 130), signal.SIGTERM: (0, 3, 4, 130, 143, -signal.SIGTERM)}
"""An answer, none, none in time, or that of a signal; before a process begins to run it dies of SIGTERM itself."""
START = "import sys, optimize.cli; print('begun', flush=True); optimize.cli.main(sys.argv[1:])"
BROKEN = ("Traceback", "terminate called", "Fatal", "Exception ignored", "Aborted")


def commands(folder: Path) -> dict[str, tuple[float, list[str]]]:
    """Seconds in which each is cut, and its words."""
    (folder / "model.toml").write_text(MODEL)
    own = [{**ROW, "micro_batch": str(n), "measured_step_s": str(2.0 + n)} for n in (1, 2, 4)]
    write_table(folder / "rows.csv", list(own[0]), [list(row.values()) for row in own])
    rows, out = str(folder / "rows.csv"), str(folder / "out")
    job = ["--model", "llama3-8b", "--cluster", "h100", "--accelerators", "64"]
    little = ["--model", str(folder / "model.toml"), "--tokens", "1e9", "--budget-usd", "3e5", *FEW]
    return {
        "explain": (2.0, ["explain", *job, "--out", out]),
        "plan": (5.0, ["plan", *job, "--out", out]),
        "predict": (2.0, ["predict", rows, "--out", f"{out}.csv"]),
        "calibrate": (8.0, ["calibrate", rows, "--out", f"{out}.toml"]),
        "design": (
            12.0,
            ["design", *little, "--accelerators", "16", "--cluster", "h100", "--seconds", "8", "--out", out],
        ),
    }


@pytest.mark.parametrize("name", ["explain", "plan", "predict", "calibrate", "design"])
def test_a_signal_at_any_moment(name, tmp_path):
    """SIGTERM and SIGINT at random moments, 50 times for each command by night."""
    most_s, words = commands(tmp_path)[name]
    before, draw, wrong = sorted(tmp_path.iterdir()), random.Random(7), []
    for number in range(often(2, 50)):
        sent, moment_s = (signal.SIGTERM, signal.SIGINT)[number % 2], draw.uniform(0.05, most_s)
        status, err = _interrupted(words, sent, moment_s)
        left = [path.name for path in tmp_path.iterdir() if path not in before and path.name.startswith(".")]
        if status not in ENDED[sent] or any(word in err for word in BROKEN) or left:
            wrong.append((sent.name, round(moment_s, 2), status, err[-300:], left))
    assert wrong == []


def _interrupted(words: list[str], sent: signal.Signals, moment_s: float) -> tuple[int, str]:
    command = [sys.executable, "-c", START, *words]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=ROOT, text=True) as running:
        assert running.stdout is not None
        running.stdout.readline()
        time.sleep(moment_s)
        running.send_signal(sent)
        _, err = running.communicate(timeout=120)
    return running.returncode, err
