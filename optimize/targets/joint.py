"""The best pair of shape and batch with its cluster and its plan, and a bound over all pairs, plans, counts, hardware.

1. Evolution gives every pair whose products alone do not dismiss it a first value, the best of them better ones.
2. Of every pair all rows of degrees on all counts are bounded (`clusters.open_counts`).
3. What stays more than 30 % below the best answer of any pair is searched plan by plan, as in a design, pair by pair,
   then what is 10 % below, and so on.

At a fixed shape and batch the tokens are a constant, so that each pair is a design of its own, and the least of their
bounds is one over all of them: true whenever the search stops, for every legal count of each.
"""

import functools
import math
import time
from collections.abc import Callable, Sequence

from optimize.clusters import (
    BRIEFLY,
    EVOLVED,
    TOLERANCE,
    Progress,
    by_count,
    cells,
    levels_of,
    narrow,
    offer_evolved,
    open_counts,
    rows_of,
)
from optimize.question import Problem
from optimize.time_limit import until

STRIDE = 2  # of the levels of a design: each costs every pair a few steps, however little is below it
SHAPES = 5  # besides the one whose products are the fewest, that evolution tries


def search_pairs(
    problems: Sequence[Problem],
    products: Sequence[float],
    seconds: float,
    seed: int = 0,
    told: Callable[[str], None] = lambda _: None,
    tolerance: float = TOLERANCE,
    work: float = math.inf,
) -> tuple[int | None, list[Progress]]:
    """The pair with the best answer (None: none was found), and what is known of each.

    `products`: bounds of each by its products alone (logarithms). `work`: evaluations of all together.
    """
    end = time.monotonic() + seconds
    known = [Progress(problem, tolerance) for problem in problems]
    for progress, bound in zip(known, products, strict=True):
        progress.unseen = {0: bound}  # all of its counts
    try:
        with until(end):
            told("evolution of pairs")
            _evolve(known, products, seed)
            if _best(known) is not None:  # else the design of the first tells why there is none
                _below_the_best(known, _in_order(known, products), told, "rows of pairs", _open, work)
                for level in levels_of(tolerance)[::-STRIDE][::-1]:  # of all pairs: the gap falls steadily
                    own = sorted(range(len(known)), key=lambda i: known[i].log_bound)
                    step = functools.partial(narrow, end=end, levels=(level,))
                    _below_the_best(known, own, told, f"to {100 * level:.2g} %, plans of pairs", step, work)
    except KeyboardInterrupt:  # what is known so far, with its bound, is an answer
        for progress in known:
            progress.interrupted = True
    for progress in known:
        progress.late = time.monotonic() >= end
    return _best(known), known


def _evolve(known: list[Progress], products: Sequence[float], seed: int) -> None:
    """First answers: of every batch with one shape, then of some shapes with the best of these batches."""
    order = sorted(range(len(known)), key=lambda i: products[i])
    shape, batch = (lambda i: known[i].problem.job.workload.name), (lambda i: known[i].problem.job.workload.batch)
    tried = [i for i in order if shape(i) == shape(order[0])]
    _first_answers(known, products, tried, seed)
    best = _best(known)
    same = [i for i in order if i not in tried and (best is None or batch(i) == batch(best))]
    _first_answers(known, products, same[:SHAPES], seed)


def _first_answers(known: list[Progress], products: Sequence[float], tried: list[int], seed: int) -> None:
    for i in tried:
        if products[i] < _least(known):
            offer_evolved(known[i], seed, EVOLVED if _best(known) is None else BRIEFLY)


def _below_the_best(
    known: list[Progress],
    order: list[int],
    told: Callable[[str], None],
    what: str,
    step: Callable[[Progress], None],
    work: float,
) -> None:
    """Work at each pair, at nothing that is above the best answer of all, with what others left of the evaluations."""
    for done, i in enumerate(order, 1):
        told(f"{what}: {done} of {len(known)}")
        progress, own, best = known[i], known[i].best, _best(known)
        assert best is not None
        progress.best = known[best].best
        progress.work = progress.evaluations + work - sum(each.evaluations for each in known)
        try:
            step(progress)
        finally:
            if progress.best is not None and progress.best.cell.problem is not progress.problem:
                progress.best = own


def _open(progress: Progress) -> None:
    rows = rows_of(progress.problem)
    every = cells(progress.problem, rows)
    progress.counts = tuple(cell.accelerators for cell in every)
    progress.unseen = by_count(every)
    open_counts(progress, rows)


def _best(known: Sequence[Progress]) -> int | None:
    found = [i for i, progress in enumerate(known) if progress.best is not None]
    return min(found, key=lambda i: _value(known[i])) if found else None


def _value(progress: Progress) -> float:
    return math.inf if progress.best is None else progress.best.log_value


def _least(known: Sequence[Progress]) -> float:
    return min(map(_value, known))


def _in_order(known: list[Progress], products: Sequence[float]) -> list[int]:
    """The best first; those without an answer by their bounds."""
    return sorted(range(len(known)), key=lambda i: (_value(known[i]), products[i]))


def over_all(known: list[Progress], best: int) -> Progress:
    """The record of the best pair, with the bound of all of them and what that is over."""
    progress = known[best]
    progress.dismissed = min(each.log_bound for each in known)
    progress.evaluations = sum(each.evaluations for each in known)
    progress.counts = progress.counts or tuple(cell.accelerators for cell in cells(progress.problem))
    progress.over = f"each of {len(known)} pairs of shape and batch, " if len(known) > 1 else ""
    progress.unseen = {count: bound for count, bound in progress.unseen.items() if count}
    return progress
