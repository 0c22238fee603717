"""Timing on a machine that others use too: the best of many runs."""

import time
from collections.abc import Callable, Sequence
from typing import Any


def best_s(run: Callable[[], Any], seconds: float, least: int = 3) -> float:
    """The shortest of all runs that fit into `seconds` (at least `least`), after one that warms up."""
    return best_sum_s([run], seconds, least)


def best_sum_s(runs: Sequence[Callable[[], Any]], seconds: float, least: int = 3) -> float:
    """The sum over `runs` of the shortest of each, in rounds through all of them: an interruption spoils one alone."""
    for run in runs:
        run()
    shortest, rounds, started = [float("inf")] * len(runs), 0, time.perf_counter()
    while rounds < least or time.perf_counter() - started < seconds:
        for index, run in enumerate(runs):
            before = time.perf_counter()
            run()
            shortest[index] = min(shortest[index], time.perf_counter() - before)
        rounds += 1
    return sum(shortest)
