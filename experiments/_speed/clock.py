"""Timing on a machine that others use too: the best of many runs."""

import time
from collections.abc import Callable
from typing import Any


def best_s(run: Callable[[], Any], seconds: float, least: int = 3) -> float:
    """The shortest of all runs that fit into `seconds` (at least `least`), after one that warms up."""
    run()
    shortest, runs, started = float("inf"), 0, time.perf_counter()
    while runs < least or time.perf_counter() - started < seconds:
        before = time.perf_counter()
        run()
        shortest = min(shortest, time.perf_counter() - before)
        runs += 1
    return shortest
