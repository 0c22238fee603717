r"""A mix of jobs, one after another on one cluster: descent over all of them, then exact steps in turn.

At a count of accelerators: with the hardware fixed, all plans of every job are enumerated; with the plans
fixed, the hardware is a convex problem (`hardware.solve_hardware`). Both lower the same sum, and they alternate until
neither does. Memory is shared too, so plans are also looked for in more of it than the last ones need.

The bound of a count is that of all jobs on the same hardware (`several_jobs_bound`); of counts that are not looked at,
that of the products of all jobs on the fastest accelerators that the limits allow. The least over counts is reported.
"""

import dataclasses
import math
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from costmodel.inputs import Plan
from optimize.clusters.best_plan import SECONDS, Worth, best_plan
from optimize.clusters.bounding import families_of, reference
from optimize.clusters.counts import flop_bound_s, near_grid
from optimize.clusters.descent import descend
from optimize.clusters.progress import TOLERANCE, Cell, Relaxed
from optimize.clusters.screening import warm_up
from optimize.hardware import HardwareSolutions, solve_plans
from optimize.lattice import Families
from optimize.question import RATES, Problem
from optimize.time_limit import until

Bound = Callable[..., Any]
"""`several_jobs_bound.shared_bound`: what is left of a count, with its bound, and steps that raise it."""
TURNS = 6  # of re-planning and re-solving
TURN_TOLERANCE = 1e-3  # of the hardware of one turn
MEMORY = (1.0, 1.5)  # of what the last plans need, offered to the next ones
COUNTS = 6  # looked at for answers, nearest to the relaxed ones first


@dataclasses.dataclass(frozen=True, kw_only=True)
class Mixed:
    """One cluster with a plan for each job."""

    accelerators: int
    plans: tuple[Plan, ...]
    solved: HardwareSolutions

    @property
    def log_value(self) -> float:
        """Logarithm of the minimised value."""
        return float(np.log(self.solved.value[0]))


@dataclasses.dataclass(kw_only=True)
class MixProgress:
    """What a search for several jobs knows so far."""

    problem: Problem
    best: Mixed | None = None
    answers: dict[int, Mixed] = dataclasses.field(default_factory=dict)  # the best by count
    log_bounds: dict[int, float] = dataclasses.field(default_factory=dict)  # by count
    relaxed: Relaxed | None = None
    evaluations: int = 0
    turns: int = 0
    interrupted: bool = False
    others: tuple[int, ...] = ()  # counts that have legal plans too, and were not looked at

    @property
    def finished(self) -> bool:
        """Whether everything was looked at: without an answer, there is none."""
        return not self.others and not any(np.isfinite(list(self.log_bounds.values())))

    @property
    def counts(self) -> tuple[int, ...]:
        """Numbers of accelerators that the bound is about."""
        return tuple(sorted(self.log_bounds))

    @property
    def log_bound(self) -> float:
        """The logarithm that nothing is below: the least over all counts."""
        return min([*self.log_bounds.values(), math.inf if self.best is None else self.best.log_value])


def search_mix(
    problem: Problem, bound: Bound, seconds: float, seed: int = 0, told: Callable[[str], None] = lambda _: None
) -> MixProgress:
    """Search for answers at the counts of the best relaxed points; then raise bounds, until the time is up."""
    end, progress = time.monotonic() + seconds, MixProgress(problem=problem)
    counts, progress.others = near_grid(problem)
    progress.log_bounds = {count: _products_bound(problem, count) for count in counts}
    if not counts:
        return progress
    try:
        with until(end):
            _answers(progress, counts, end - 0.4 * seconds, seed, told)
            bound_all(progress, bound, counts, end, told)
    except KeyboardInterrupt:  # what is known so far, with its bound, is an answer
        progress.interrupted = True
    return progress


def _answers(progress: MixProgress, counts: list[int], end: float, seed: int, told: Callable[[str], None]) -> None:
    """At the counts nearest to the best relaxed point."""
    problem = progress.problem
    told("descent")
    warm_up(problem)
    progress.relaxed = descend(problem, seed)
    progress.evaluations += progress.relaxed.evaluations
    near = progress.relaxed.accelerators[0]
    for count in sorted(counts, key=lambda count: abs(math.log(count / near)))[:COUNTS]:
        if time.monotonic() > end and progress.best is not None:
            break
        told(f"{count:,} accelerators")
        alternate(progress, count, progress.relaxed.y(np.array([0]))[0])
    if progress.best is not None:
        solved = solve_plans(problem, progress.best.plans)
        progress.best = dataclasses.replace(progress.best, solved=solved)


def _products_bound(problem: Problem, count: int) -> float:
    """Logarithm of what the products of all jobs take at least, on the cheapest terms."""
    seconds = [
        job.weight * problem.steps_on(job, float(count)) * flop_bound_s(problem, job, float(count))
        for job in problem.jobs
    ]
    return math.log(sum(seconds) * _cheapest(problem, count)) + problem.log_scale


def _cheapest(problem: Problem, count: int) -> float:
    """Dollars a second or watts of the least rates; 1 where the objective has no price."""
    none = _cell(problem, 0, count).left(np.zeros(1))
    return 1.0 if problem.fill else float(problem.money.least(problem.ends[0][None], none)[0]) * count


def _cell(problem: Problem, i: int, count: int) -> Cell:
    """One job alone at one count."""
    return Cell(dataclasses.replace(problem, jobs=(problem.jobs[i],)), count)


def alternate(progress: MixProgress, count: int, y: np.ndarray, turns: int = TURNS) -> None:
    """Take exact steps in turn from some rates; keep the answer if it is the best so far."""
    problem = progress.problem
    lattices = [families_of(_cell(problem, i, count)) for i in range(len(problem.jobs))]
    if not all(len(families) for families in lattices):
        progress.log_bounds[count] = math.inf
        return
    y, last = reference(_cell(problem, 0, count), y), None
    hbm_bytes = problem.most_hbm_bytes / 2
    for _ in range(turns):
        answers = [_turn(progress, lattices, count, y, share * hbm_bytes) for share in MEMORY]
        answers = [answer for answer in answers if answer is not None]
        if not answers:
            hbm_bytes = min(2 * hbm_bytes, problem.most_hbm_bytes)
            continue
        now = min(answers, key=lambda answer: answer.log_value)
        if last is not None and now.log_value >= last.log_value - 1e-4:
            break
        last = now
        y, hbm_bytes = _rates(now), float(now.solved.hardware(0).hbm_bytes) * (1 + 1e-9)
    if last is not None:
        progress.answers[count] = last
    if last is not None and (progress.best is None or last.log_value < progress.best.log_value):
        progress.best = last


def _turn(progress: MixProgress, lattices: list[Families], count: int, y: np.ndarray, hbm_bytes: float) -> Mixed | None:
    """The best plan of every job at this hardware, then the best hardware of these plans."""
    problem = progress.problem
    hbm_bytes = min(hbm_bytes, problem.most_hbm_bytes)
    plans = []
    for job, families in zip(problem.jobs, lattices, strict=True):
        worth = _worth(problem, y, hbm_bytes)
        _, plan, evaluations = best_plan(job.workload, problem.machine, families, y, hbm_bytes, worth=worth)
        progress.evaluations += evaluations
        if plan is None:
            return None
        plans.append(plan)
    solved = solve_plans(problem, plans, tolerance=TURN_TOLERANCE)
    progress.evaluations += solved.evaluations
    progress.turns += 1
    if not np.isfinite(solved.value[0]):
        return None
    return Mixed(accelerators=count, plans=tuple(plans), solved=solved)


def _worth(problem: Problem, y: np.ndarray, hbm_bytes: float) -> Worth:
    """What seconds are worth on this hardware, for one accelerator."""
    if not problem.money.priced:
        return SECONDS
    have = problem.money.left(problem.limits, np.ones(1), np.array([hbm_bytes]))
    second, drawn = problem.money.seconds(y[None], have)
    return float(second[0]), float(drawn[0]), problem.loads


def _shared(progress: MixProgress, bound: Bound, count: int, end: float) -> Any:
    """Every family of every job at this count, bounded on the hardware that the jobs share; None: nothing fits."""
    best = progress.best
    assert best is not None
    if count not in progress.answers:
        alternate(progress, count, _rates(best), turns=1)
    if count not in progress.answers:
        return None
    at = progress.answers[count]
    log_best = progress.best.log_value if progress.best is not None else best.log_value
    return bound(progress.problem, count, at.plans, at.solved.hardware(0), log_best, end)


def _rates(mixed: Mixed) -> np.ndarray:
    hardware = mixed.solved.hardware(0)
    return np.log([float(getattr(hardware, name)) for name in RATES])


def bound_all(progress: MixProgress, bound: Bound, counts: list[int], end: float, told: Callable[[str], None]) -> None:
    """Raise always the least bound: a count's families at once, then job by job, then boxes of hardware apart."""
    searched: dict[int, list[Any]] = {}
    final: set[int] = set()  # counts whose bound cannot be improved
    while progress.best is not None and time.monotonic() < end:
        below = [n for n in counts if n not in final and progress.log_bounds[n] < progress.best.log_value - TOLERANCE]
        if not below:
            return
        count = min(below, key=lambda n: progress.log_bounds[n])
        told(f"bound of {count:,} accelerators")
        if count not in searched:
            first = _shared(progress, bound, count, end)
            searched[count] = [] if first is None else [first]
            better = first is not None
        else:
            better = _narrow(progress, searched[count], end)
        if not better:
            final.add(count)
        if searched[count]:
            least = min(part.log_bound for part in searched[count])
            progress.log_bounds[count] = max(progress.log_bounds[count], least)


def _narrow(progress: MixProgress, parts: list[Any], end: float) -> bool:
    """One step on the box that bounds least: one job to the end, or two boxes; false: no step is left."""
    worst = min(parts, key=lambda part: part.log_bound)
    if worst.close_one(end):
        return True
    narrower = worst.split(end)
    if narrower:
        parts.remove(worst)
        parts += narrower
        progress.evaluations += sum(search.evaluations for search in worst.searches)
    return bool(narrower)
