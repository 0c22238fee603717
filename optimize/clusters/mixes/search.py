"""A mix of jobs, one after another on one cluster: answers first, then bounds of the counts, least first.

Bounds are raised in rounds, each to a share below the best answer (`SHARES`): what is further below is looked at first,
and a count whose bound is above costs nothing. The counts of the grid come first; when all of them are bounded, the
others follow, and the answer lists which the bound covers.
"""

import math
import time
from collections.abc import Callable

import numpy as np

from optimize.clusters.counts import flop_bound_s, near_grid
from optimize.clusters.mixes.answers import Finder
from optimize.clusters.mixes.bound import count_bound
from optimize.clusters.mixes.job_plans import rows_of_job
from optimize.clusters.mixes.progress import MixProgress
from optimize.question import Left, Problem
from optimize.time_limit import until

ANSWERS = 0.45  # of the time: until when answers are looked for
SHARES = (0.03, 0.01, 0.003, 5e-4)  # of the value, below the best answer, to which bounds are raised one after another
Told = Callable[[str], None]


def search_mix(problem: Problem, seconds: float, seed: int = 0, told: Told = lambda _: None) -> MixProgress:
    """Search for answers; then raise bounds, until the time is up or nothing is below the best answer."""
    start, progress = time.monotonic(), MixProgress(problem=problem)
    counts, progress.others = near_grid(problem)
    progress.log_bounds = {count: products_bound(problem, count) for count in counts}
    if not counts:
        return progress
    try:
        with until(start + seconds):
            every = np.sort([*counts, *progress.others])
            rows = [rows_of_job(problem, job, every) for job in problem.jobs]
            finder = Finder(progress, rows, every.tolist(), seed)
            finder.run(counts, start + ANSWERS * seconds, told)
            _raise_bounds(progress, finder, start + seconds, told)
    except KeyboardInterrupt:  # what is known so far, with its bound, is an answer
        progress.interrupted = True
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
    """To every share in turn: the counts that are covered, then the others."""
    for share in SHARES:
        tried: set[int] = set()
        while progress.best is not None and time.monotonic() < end:
            target = progress.best.log_value + math.log1p(-share)
            below = [n for n in progress.counts if progress.log_bounds[n] < target and n not in tried]
            if not below:
                break
            count = min(below, key=lambda n: progress.log_bounds[n])
            tried.add(count)
            _raise(progress, finder, count, share, end, told)
        _cover(progress, finder, share, end, told)


def _raise(progress: MixProgress, finder: Finder, count: int, share: float, end: float, told: Told) -> None:
    """One count, after a look at it where that has not been taken."""
    best = progress.best
    assert best is not None
    told(f"bound of {count:,} accelerators")
    if count not in finder.looked:
        finder.look(count, best.y)
        best = progress.best or best
    known, target = progress.answers.get(count, best), best.log_value + math.log1p(-share)
    bound = count_bound(progress.problem, count, known, target, end)
    progress.log_bounds[count] = max(progress.log_bounds.get(count, -math.inf), bound)


def _cover(progress: MixProgress, finder: Finder, share: float, end: float, told: Told) -> None:
    """Counts beside the grid, nearest to the best first: each is covered once its bound is above the share."""
    if progress.best is None or time.monotonic() > end:
        return
    here = math.log(progress.best.accelerators)
    for count in sorted(progress.others, key=lambda n: (abs(math.log(n) - here), n)):
        if time.monotonic() > end:
            return
        target = progress.best.log_value + math.log1p(-share)
        bound = products_bound(progress.problem, count)
        if bound < target:
            told(f"bound of {count:,} accelerators")
            bound = count_bound(progress.problem, count, progress.answers.get(count, progress.best), target, end)
        if bound >= target - 1e-9 or bound >= progress.log_bound:
            progress.log_bounds[count] = bound
            progress.others = tuple(n for n in progress.others if n != count)
