"""Wall seconds of new processes: imports, first answers, the first JAX value and gradient, with and without caches."""

import importlib.util
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

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


class Start(NamedTuple):
    """A process to time: its arguments, whether it finds a filled compilation cache, and how often (a share)."""

    arguments: Sequence[str]
    cached: bool = False
    slow: bool = False


def starts(out: str) -> dict[str, Start]:
    """Every process, by name. `out` is a directory for figures."""
    commands = {
        "python": Start(["-c", "pass"]),
        "import numpy": Start(["-c", "import numpy"]),
        "import costmodel": Start(["-c", "import costmodel; costmodel.evaluate"]),
        "import jax": Start(["-c", "import jax"]),
        "first JAX value": Start(["-c", _FIRST_JAX.format(role="value")], slow=True),
        "first JAX value, cached": Start(["-c", _FIRST_JAX.format(role="value")], cached=True),
        "first JAX gradient": Start(["-c", _FIRST_JAX.format(role="gradient")], slow=True),
        "first JAX gradient, cached": Start(["-c", _FIRST_JAX.format(role="gradient")], cached=True),
    }
    if importlib.util.find_spec("optimize") and importlib.util.find_spec("optimize.cli"):
        commands["explain"] = Start(_EXPLAIN)
        commands["explain, cached"] = Start(_EXPLAIN, cached=True)
        commands["explain --out"] = Start([*_EXPLAIN, "--out", out])
        commands["explain --out, cached"] = Start([*_EXPLAIN, "--out", out], cached=True)
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

    `thorough`: also the first JAX gradient, which compiles for seconds, and with byte code and files warm.
    Rounds go through all processes, so that a busy minute touches all of them alike.
    """
    measured: dict[str, list[float]] = {}
    failed: dict[str, str] = {}
    with tempfile.TemporaryDirectory() as directory:
        environments = _environments(directory)
        processes = starts(os.path.join(directory, "out"))
        processes = {name: start for name, start in processes.items() if thorough or "gradient" not in name}
        for name, start in processes.items():  # fills the caches of compiled programs and of byte code
            if start.cached or (thorough and not start.slow):
                _, message = _time(start, environments[start.cached])
                if message:
                    failed[name] = message
        for turn in range(repeats):
            say(f"new processes: round {turn + 1} of {repeats}")
            for name, start in processes.items():
                if name not in failed and (not start.slow or turn % 3 == 0):
                    elapsed, message = _time(start, environments[start.cached])
                    measured.setdefault(name, []).append(elapsed)
                    if message:
                        failed[name] = message
    medians = {name: statistics.median(values) for name, values in measured.items() if name not in failed}
    return {"seconds": medians, "failed": failed, "repeats": repeats}


def _environments(directory: str) -> dict[bool, dict[str, str]]:
    """Environments of processes without and with a compilation cache."""
    cache = os.path.join(directory, CACHED)
    os.mkdir(cache)
    plain = {name: value for name, value in os.environ.items() if not name.startswith(("JAX_", "XDG_CACHE"))}
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


def _time(start: Start, environment: dict[str, str]) -> tuple[float, str]:
    """Seconds from start to exit, and the message of a process that failed."""
    command = [sys.executable, *start.arguments]
    with tempfile.TemporaryDirectory() as empty:  # no programs from before, unless a cache is named
        environment = {"XDG_CACHE_HOME": empty, **environment}
        before = time.perf_counter()
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        elapsed = time.perf_counter() - before
    if not done.returncode:
        return elapsed, ""
    return elapsed, (done.stderr.strip() or done.stdout.strip() or f"exit status {done.returncode}")[-MAX_FAILURE:]
