r"""A mix of jobs, one after another on one cluster: descent over all of them, then exact steps in turn.

At a count of accelerators: with the hardware fixed, every job's best plan is found by enumeration; with the plans
fixed, the hardware is a convex problem (`hardware.solve_hardware`). Both lower the same sum, and they alternate until
neither does. Memory is shared too, so plans are also looked for in more of it than the last ones need.

The bound of a count is the sum over jobs of what each could reach alone, on its own best hardware:

$$\min_h \sum_j w_j \min_p T_j(p, h) \ge \sum_j w_j \min_{h, p} T_j(p, h)$$

It is true, and its gap is how much the jobs disagree about the hardware.
"""

import dataclasses
import math
import time
from collections.abc import Callable

import numpy as np

from costmodel.plan import Plan
from optimize.counts_of_accelerators import flop_bound_s
from optimize.families import Families
from optimize.fixed_hardware import best_plan
from optimize.hardware import HardwareSolutions
from optimize.joint import Cell, Progress, cells, close, round_to, scan
from optimize.problem import Problem
from optimize.screen import warm_up
from optimize.shadow import hardware_problem, solve_plans
from optimize.solve import Relaxed, descend
from optimize.space import RATES

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
    log_bounds: dict[int, float] = dataclasses.field(default_factory=dict)  # by count
    relaxed: Relaxed | None = None
    evaluations: int = 0
    turns: int = 0

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
    told("descent")
    compiling = warm_up([job.workload for job in problem.jobs], problem.space)
    found.relaxed = descend(problem, seed)
    found.evaluations += found.relaxed.evaluations
    compiling.join()
    near = found.relaxed.accelerators[0]
    order = sorted(counts, key=lambda count: abs(math.log(count / near)))
    for count in order[:COUNTS]:
        if time.monotonic() > end - 0.4 * seconds and found.best is not None:
            break
        told(f"{count:,} accelerators")
        alternate(found, count, found.relaxed.y(np.array([0]))[0])
    if found.best is not None:
        asked = hardware_problem(problem)
        found.best = dataclasses.replace(found.best, solved=solve_plans(asked, found.best.plans))
    for count in sorted(counts, key=lambda count: (count not in order[:COUNTS], found.log_bounds[count])):
        if time.monotonic() > end:
            break
        if found.best is None or found.log_bounds[count] < found.best.log_value:
            told(f"bound of {count:,} accelerators")
            bound_count(found, count, end)
    return found


def _counts(problem: Problem) -> list[int]:
    """Counts that the limits can pay for."""
    return sorted({cell.accelerators for cell in cells(problem)})


def _products_bound(problem: Problem, count: int) -> float:
    """Logarithm of what the products of all jobs take at least, on the cheapest terms."""
    parts = [_products_s(problem, i, count) for i in range(len(problem.jobs))]
    return math.log(sum(parts) * _cheapest(problem, count))


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


def alternate(found: MixFound, count: int, y: np.ndarray) -> None:
    """Exact steps in turn from some rates; keeps the answer if it is the best so far."""
    problem = found.problem
    lattices = [_cell(problem, i, count).families() for i in range(len(problem.jobs))]
    if not all(len(families) for families in lattices):
        found.log_bounds[count] = math.inf
        return
    cell = _cell(problem, 0, count)
    y, last = cell.reference(y), None
    hbm_bytes = problem.space.ranges.most_hbm_bytes / 2
    for _ in range(TURNS):
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


def bound_count(found: MixFound, count: int, end: float) -> None:
    """The sum over jobs of what each reaches alone at this count; jobs not reached in time count by their products."""
    problem = found.problem
    bounds = [math.log(_products_s(problem, i, count) * _cheapest(problem, count)) for i in range(len(problem.jobs))]
    for i, job in enumerate(problem.jobs):
        if time.monotonic() > end:
            break
        alone = _alone(found, i, count, end)
        if alone.best is None and not math.isfinite(alone.log_bound):  # no plan of this job can be built
            found.log_bounds[count] = math.inf
            return
        bounds[i] = max(bounds[i], math.log(job.weight) + alone.log_bound)
        found.evaluations += alone.evaluations
        found.log_bounds[count] = max(found.log_bounds[count], float(np.log(np.exp(bounds).sum())))
        if found.best is not None and found.log_bounds[count] >= found.best.log_value:
            return


def _alone(found: MixFound, i: int, count: int, end: float) -> Progress:
    """One job at one count: the best hardware of its own, certified as far as the time goes."""
    cell = _cell(found.problem, i, count)
    alone = Progress(cell.problem)
    assert found.relaxed is not None
    alone.relaxed = dataclasses.replace(found.relaxed, jobs=(found.relaxed.jobs[i],))
    round_to(alone, cell)
    scan(alone, cell)
    close(alone, end)
    return alone
