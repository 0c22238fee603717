"""A mix of jobs, one after another on one cluster: answers first, then bounds of the counts, least first.

Every legal count has a bound from the start, by the products of its jobs; then bounds are raised at all counts together
(`bound`), to one share below the best answer after the other (`SHARES`): a count whose bound is above costs nothing.
"""

import math
import time
from collections.abc import Callable

import numpy as np

from optimize.clusters.counts import cells, flop_bound_s
from optimize.clusters.mixes.answers import MORE, Finder
from optimize.clusters.mixes.bound import CAP, open_counts, raise_bounds
from optimize.clusters.mixes.progress import MixProgress
from optimize.question import Left, Problem
from optimize.time_limit import until

ANSWERS, LEAST_S = 0.2, 3.0  # of the time, or if that is less so many seconds: until when answers are looked for
SHARES = (0.3, 0.1, 0.047, 0.028, 0.01, 0.003)  # of the value below the best answer: aims of bounds, one by one
BESIDE = 0.5  # of the time that bounds take: what answers may take beside them
LONG_S = 6.0  # from which a second for the convex program is worth while
Told = Callable[[str], None]


def search_mix(problem: Problem, seconds: float, seed: int = 0, told: Told = lambda _: None) -> MixProgress:
    """Search for answers; then raise bounds, until the time is up or nothing is below the best answer."""
    start, progress = time.monotonic(), MixProgress(problem=problem)
    counts = [cell.accelerators for cell in cells(problem)]
    progress.log_bounds = {count: products_bound(problem, count) for count in counts}
    if not counts:
        return progress
    try:
        with until(start + seconds):
            answered = start + max(ANSWERS * seconds, min(LEAST_S, 0.6 * seconds))
            told("evolution")
            finder = Finder(progress, seed)
            finder.run(answered, start + seconds)
            if seconds > LONG_S:
                finder.polish()
            _raise_bounds(progress, finder, start + seconds, told)
    except KeyboardInterrupt:  # what is known so far, with its bound, is an answer
        progress.interrupted = True
    finally:
        progress.close()
    return progress


def products_bound(problem: Problem, count: int) -> float:
    """Logarithm of what the products of all jobs take at least, on the cheapest terms."""
    seconds = [
        job.weight * problem.steps_on(job, float(count)) * flop_bound_s(problem, job, float(count))
        for job in problem.jobs
    ]
    money, (low, _) = problem.money, problem.ends
    none = np.zeros(())
    least_price = float(np.log(count * money.least(low, Left(none, none, none)))) if money.priced else 0.0
    return math.log(sum(seconds)) + least_price + problem.log_scale


def _raise_bounds(progress: MixProgress, finder: Finder, end: float, told: Told) -> None:
    """To every share in turn, at all counts together."""
    best = progress.best
    if best is None:
        return
    told("bounds of all counts")

    tilts, pools = open_counts(progress, finder.rows, best.log_value + CAP)
    for share in SHARES:
        told(f"bounds to {100 * share:.2g} %")
        began = time.monotonic()
        raise_bounds(progress, tilts, pools, share, finder, end)
        now = time.monotonic()
        if now < end:  # which counts may be better is another question than how good the best one is
            finder.evolve(MORE, min(end, now + BESIDE * (now - began)))
    progress.evaluations += sum(pool.evaluations for pool in pools)
