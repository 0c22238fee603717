"""Starts measuring processes and reads their answers."""

import json
import os
import subprocess
import sys
import time
from typing import Any


def cores() -> list[int]:
    """The cores that this process may use."""
    return sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else list(range(os.cpu_count() or 1))


def measure(role: str, on: list[int], **order: Any) -> dict[str, Any]:
    """One worker's answer."""
    return _finish(_start(role, on, {}, order))


def _start(role: str, on: list[int], flags: dict[str, str], order: dict[str, Any]) -> "subprocess.Popen[str]":
    command = [sys.executable, "-m", "experiments.speed.worker", json.dumps({"role": role, "cores": on, **order})]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True, env={**os.environ, **flags})


def _finish(process: "subprocess.Popen[str]", line: str | None = None) -> dict[str, Any]:
    out, errors = process.communicate(line)
    if process.returncode:
        raise RuntimeError(f"a measuring process failed: {errors.strip()[-2000:]}")
    return json.loads(out.splitlines()[-1])


def shared_windows(processes: list[list[int]], devices: int, **order: Any) -> float:
    """Evaluations a second of all processes together, in the best of several windows of time."""
    flags = {"XLA_FLAGS": f"--xla_force_host_platform_device_count={devices}"} if devices > 1 else {}
    running = [_start("windows", on, flags, {"devices": devices, **order}) for on in processes]
    for process in running:
        assert process.stdout is not None
        if process.stdout.readline().strip() != "ready":
            raise RuntimeError(f"a measuring process failed: {process.communicate()[1].strip()[-2000:]}")
    begin = time.time() + 0.2
    for process in running:
        assert process.stdin is not None
        process.stdin.write(f"{begin}\n")
        process.stdin.flush()
    counts = [_finish(process)["counts"] for process in running]
    return max(map(sum, zip(*counts, strict=True))) / order["window_s"]


def two_cores(on: list[int], batch: int, window_s: float, windows: int, seed: int) -> dict[str, float]:
    """Evaluations a second on two cores, in three ways."""
    order = {"window_s": window_s, "windows": windows, "seed": seed}
    return {
        "one process, XLA's own threads": shared_windows([on], 1, batch=batch, **order),
        "one process, two devices": shared_windows([on], 2, batch=batch // 2, **order),
        "two pinned processes": shared_windows([[core] for core in on], 1, batch=batch, **order),
    }
