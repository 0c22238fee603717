r"""A mix of jobs, one after another on one cluster: descent over all of them, then exact steps in turn.

At a count of accelerators: with the hardware fixed, every job's best plan is found by enumeration; with the plans
fixed, the hardware is a convex problem (`hardware.solve_hardware`). Both lower the same sum, and they alternate until
neither does. Memory is shared too, so plans are also looked for in more of it than the last ones need.

The bound of a count is that of all jobs on the same hardware (`_mix_bound`); of counts that are not looked at, that of
the products of all jobs on the fastest accelerators that the limits allow. The least over counts is reported.
"""

import dataclasses
import math
import time
from collections.abc import Callable

import numpy as np

from costmodel.inputs import Plan
from optimize.clusters.best_plan import best_plan
from optimize.clusters.counts import flop_bound_s
from optimize.clusters.descent import Relaxed, descend
from optimize.clusters.one_job import Cell, cells
from optimize.clusters.progress import TOLERANCE
from optimize.clusters.screening import warm_up
from optimize.clusters.several_jobs_bound import SharedBound, log_scale, shared_bound
from optimize.hardware import HardwareSolutions, hardware_problem, solve_plans
from optimize.lattice import Families
from optimize.question import RATES, Problem

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
        return float(np.log(self.solved.value[0]))


@dataclasses.dataclass(kw_only=True)
class MixFound:
    """What the search knows so far."""

    problem: Problem
    best: Mixed | None = None
    answers: dict[int, Mixed] = dataclasses.field(default_factory=dict)  # the best by count
    log_bounds: dict[int, float] = dataclasses.field(default_factory=dict)  # by count
    relaxed: Relaxed | None = None
    evaluations: int = 0
    turns: int = 0
    interrupted: bool = False

    @property
    def log_bound(self) -> float:
        """Nothing is below: the least over all counts."""
        return min([*self.log_bounds.values(), math.inf if self.best is None else self.best.log_value])


def search_mix(
    problem: Problem, seconds: float, seed: int = 0, told: Callable[[str], None] = lambda _: None
) -> MixFound:
    """Answers first, at the counts of the best relaxed points; then bounds, until the time is up."""
    end, found = time.monotonic() + seconds, MixFound(problem=problem)
    counts = _counts(problem)
    found.log_bounds = {count: _products_bound(problem, count) for count in counts}
    if not counts:
        return found
    try:
        _answers(found, counts, end - 0.4 * seconds, seed, told)
        bound_all(found, counts, end, told)
    except KeyboardInterrupt:  # what is known so far, with its bound, is an answer
        found.interrupted = True
    return found


def _answers(found: MixFound, counts: list[int], end: float, seed: int, told: Callable[[str], None]) -> list[int]:
    """At the counts nearest to the best relaxed point, which are returned."""
    problem = found.problem
    told("descent")
    compiling = warm_up([job.workload for job in problem.jobs], problem.space)
    found.relaxed = descend(problem, seed)
    found.evaluations += found.relaxed.evaluations
    compiling.join()
    near = found.relaxed.accelerators[0]
    order = sorted(counts, key=lambda count: abs(math.log(count / near)))[:COUNTS]
    for count in order:
        if time.monotonic() > end and found.best is not None:
            break
        told(f"{count:,} accelerators")
        alternate(found, count, found.relaxed.y(np.array([0]))[0])
    if found.best is not None:
        asked = hardware_problem(problem)
        found.best = dataclasses.replace(found.best, solved=solve_plans(asked, found.best.plans))
    return order


def _counts(problem: Problem) -> list[int]:
    """Counts that the limits can pay for."""
    return sorted({cell.accelerators for cell in cells(problem)})


def _products_bound(problem: Problem, count: int) -> float:
    """Logarithm of what the products of all jobs take at least, on the cheapest terms."""
    parts = [_products_s(problem, i, count) for i in range(len(problem.jobs))]
    return math.log(sum(parts) * _cheapest(problem, count)) + log_scale(problem)


def _products_s(problem: Problem, i: int, count: int) -> float:
    job = problem.jobs[i]
    step_s = flop_bound_s(job.workload, problem.space, problem.limits, float(count), problem.fixed)
    return job.weight * job.steps * step_s


def _cheapest(problem: Problem, count: int) -> float:
    """Dollars a second or watts of the least rates; 1 where the objective has no price."""
    cell = _cell(problem, 0, count)
    none = cell.left(np.zeros(1))
    low = np.log(problem.space.ranges.low)[None]
    return float(cell.price(none).of(cell.money.laws, low)[0]) * (1.0 if problem.fill else count)


def _cell(problem: Problem, i: int, count: int) -> Cell:
    """One job alone at one count."""
    own = dataclasses.replace(problem, jobs=(problem.jobs[i],))
    return Cell(own, count, int(problem.space.template.tiers[0].usable_size))


def alternate(found: MixFound, count: int, y: np.ndarray, turns: int = TURNS) -> None:
    """Exact steps in turn from some rates; keeps the answer if it is the best so far."""
    problem = found.problem
    lattices = [_cell(problem, i, count).families() for i in range(len(problem.jobs))]
    if not all(len(families) for families in lattices):
        found.log_bounds[count] = math.inf
        return
    cell = _cell(problem, 0, count)
    y, last = cell.reference(y), None
    hbm_bytes = problem.space.ranges.most_hbm_bytes / 2
    for _ in range(turns):
        answers = [_turn(found, lattices, count, y, share * hbm_bytes) for share in MEMORY]
        answers = [answer for answer in answers if answer is not None]
        if not answers:
            hbm_bytes = min(2 * hbm_bytes, problem.space.ranges.most_hbm_bytes)
            continue
        now = min(answers, key=lambda answer: answer.log_value)
        if last is not None and now.log_value >= last.log_value - 1e-4:
            break
        last = now
        hardware = now.solved.hardware(0)
        y = np.log([float(getattr(hardware, name)) for name in RATES])
        hbm_bytes = float(hardware.hbm_bytes) * (1 + 1e-9)
    if last is not None:
        found.answers[count] = last
    if last is not None and (found.best is None or last.log_value < found.best.log_value):
        found.best = last


def _turn(found: MixFound, lattices: list[Families], count: int, y: np.ndarray, hbm_bytes: float) -> Mixed | None:
    """The best plan of every job at this hardware, then the best hardware of these plans."""
    problem = found.problem
    hbm_bytes = min(hbm_bytes, problem.space.ranges.most_hbm_bytes)
    plans = []
    for job, families in zip(problem.jobs, lattices, strict=True):
        best = best_plan(job.workload, problem.space, families, y, hbm_bytes)
        found.evaluations += best.evaluations
        if best.plan is None:
            return None
        plans.append(best.plan)
    asked = hardware_problem(problem)
    solved = solve_plans(asked, plans, tolerance=TURN_TOLERANCE)
    found.evaluations += solved.evaluations
    found.turns += 1
    if not np.isfinite(solved.value[0]):
        return None
    return Mixed(accelerators=count, plans=tuple(plans), solved=solved)


def _shared(found: MixFound, count: int, end: float) -> SharedBound | None:
    """Every family of every job at this count, bounded on the hardware that the jobs share; None: nothing fits."""
    best = found.best
    assert best is not None
    if count not in found.answers:
        alternate(found, count, _rates(best), turns=1)
    if count not in found.answers:
        return None
    at = found.answers[count]
    domain = int(found.problem.space.template.tiers[0].usable_size)
    log_best = found.best.log_value if found.best is not None else best.log_value
    return shared_bound(found.problem, count, domain, at.plans, at.solved.hardware(0), log_best, end)


def _rates(mixed: Mixed) -> np.ndarray:
    hardware = mixed.solved.hardware(0)
    return np.log([float(getattr(hardware, name)) for name in RATES])


def bound_all(found: MixFound, counts: list[int], end: float, told: Callable[[str], None]) -> None:
    """Always what bounds least: a count's families at once, then job by job, then boxes of hardware apart."""
    searched: dict[int, list[SharedBound]] = {}
    final: set[int] = set()  # counts whose bound cannot be improved
    while found.best is not None and time.monotonic() < end:
        below = [n for n in counts if n not in final and found.log_bounds[n] < found.best.log_value - TOLERANCE]
        if not below:
            return
        count = min(below, key=lambda n: found.log_bounds[n])
        told(f"bound of {count:,} accelerators")
        if count not in searched:
            first = _shared(found, count, end)
            searched[count] = [] if first is None else [first]
            better = first is not None
        else:
            better = _narrow(found, searched[count], end)
        if not better:
            final.add(count)
        if searched[count]:
            bound = min(part.log_bound for part in searched[count])
            found.log_bounds[count] = max(found.log_bounds[count], bound)


def _narrow(found: MixFound, parts: list[SharedBound], end: float) -> bool:
    """One step on the box that bounds least: one job to the end, or two boxes; false: no step is left."""
    worst = min(parts, key=lambda part: part.log_bound)
    if worst.close_one(end):
        return True
    narrower = worst.split(end)
    if narrower:
        parts.remove(worst)
        parts += narrower
        found.evaluations += sum(search.evaluations for search in worst.searches)
    return bool(narrower)
