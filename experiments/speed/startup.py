"""Wall seconds of new processes: imports, first answers, the first JAX value and gradient, with and without caches."""

import importlib.util
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from typing import Any

_FIRST_JAX = """
from experiments.speed.startup import first_jax
first_jax({role!r})
"""
_EXPLAIN = (
    "-m optimize.cli explain --model llama3-70b --cluster h100 --tensor 8 --pipeline 4 --data 16 "
    "--sequence-parallel --recompute full --json"
).split()
MAX_FAILURE = 300  # characters of a failed command's message that are shown

CACHED = "cached"


SLOW = ("first JAX value", "first JAX gradient")
"""Processes that compile: they are timed in a third of the rounds."""


def starts(out: str) -> dict[str, Sequence[str]]:
    """Arguments of every process by name; one called `..., cached` finds a filled compilation cache. `out` is a
    directory for figures."""
    commands: dict[str, Sequence[str]] = {
        "python": ["-c", "pass"],
        "import numpy": ["-c", "import numpy"],
        "import costmodel": ["-c", "import costmodel; costmodel.evaluate"],
        "import jax": ["-c", "import jax"],
    }
    repeated: dict[str, Sequence[str]] = {name: ["-c", _FIRST_JAX.format(role=name.split()[-1])] for name in SLOW}
    if importlib.util.find_spec("optimize") and importlib.util.find_spec("optimize.cli"):
        repeated |= {"explain": _EXPLAIN, "explain --out": [*_EXPLAIN, "--out", out]}
    for name, arguments in repeated.items():
        commands |= {name: arguments, f"{name}, {CACHED}": arguments}
    return commands


def first_jax(role: str) -> None:
    """What a new process does for its first JAX result. Runs in the process that is timed."""
    import jax
    import numpy as np

    from costmodel.evaluators import compiled
    from costmodel.inputs import Plan, embed
    from experiments.speed.subject import cast, subject

    workload, cluster = subject()
    plan = Plan(data=128, tensor=8, pipeline=16, sequence_parallel=True)
    point = embed(plan, workload, float(cluster.tiers[0].usable_size), cluster.stack.habits)
    numbers = cast((compiled.anonymous(workload), compiled.anonymous(cluster), point))
    evaluator: Callable[..., Any] = compiled.value() if role == "value" else compiled.gradient()
    assert all(np.isfinite(leaf) for leaf in jax.tree.leaves(evaluator(*numbers)))


def seconds(repeats: int, thorough: bool, say: Callable[[str], None]) -> dict[str, Any]:
    """Median seconds of each process over `repeats` rounds (slow ones in a third of them), and why any failed.

    `thorough`: also the first JAX gradient, which compiles for seconds. Byte code is kept, as an installation has it.
    Rounds go through all processes, so that a busy minute touches all of them alike.
    """
    measured: dict[str, list[float]] = {}
    failed: dict[str, str] = {}
    with tempfile.TemporaryDirectory() as directory:
        environments = _environments(directory)
        processes = starts(os.path.join(directory, "out"))
        processes = {name: start for name, start in processes.items() if thorough or "gradient" not in name}
        for name, start in processes.items():  # fills the caches of compiled programs and of byte code
            if name not in SLOW:
                _, message = _time(start, environments[name.endswith(CACHED)])
                if message:
                    failed[name] = message
        for turn in range(repeats):
            say(f"new processes: round {turn + 1} of {repeats}")
            for name, start in processes.items():
                if name not in failed and (name not in SLOW or turn % 3 == 0):
                    elapsed, message = _time(start, environments[name.endswith(CACHED)])
                    measured.setdefault(name, []).append(elapsed)
                    if message:
                        failed[name] = message
    medians = {name: statistics.median(values) for name, values in measured.items() if name not in failed}
    return {"seconds": medians, "failed": failed, "repeats": repeats}


def _environments(directory: str) -> dict[bool, dict[str, str]]:
    """Environments of processes without and with a compilation cache."""
    cache = os.path.join(directory, CACHED)
    os.mkdir(cache)
    left_out = ("JAX_", "XDG_CACHE", "PYTHONDONTWRITEBYTECODE")
    plain = {name: value for name, value in os.environ.items() if not name.startswith(left_out)}
    plain["PYTHONPYCACHEPREFIX"] = os.path.join(directory, "bytecode")
    return {
        False: {**plain, "JAX_ENABLE_COMPILATION_CACHE": "false"},
        True: {
            **plain,
            "JAX_COMPILATION_CACHE_DIR": cache,
            "XDG_CACHE_HOME": cache,
            "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
            "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
        },
    }


def _time(arguments: Sequence[str], environment: dict[str, str]) -> tuple[float, str]:
    """Seconds from start to exit, and the message of a process that failed."""
    command = [sys.executable, *arguments]
    with tempfile.TemporaryDirectory() as empty:  # no programs from before, unless a cache is named
        environment = {"XDG_CACHE_HOME": empty, **environment}
        before = time.perf_counter()
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        elapsed = time.perf_counter() - before
    if not done.returncode:
        return elapsed, ""
    return elapsed, (done.stderr.strip() or done.stdout.strip() or f"exit status {done.returncode}")[-MAX_FAILURE:]
