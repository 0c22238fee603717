"""The best cluster for a job or several with their plans, of any rates, and beside it the best of real parts.

`design` answers both for one question. For one job the continuous answer is certified by `one_job.search`, for several
it is that of `mixes.search_mix` with a bound over the hardware that they share; the catalogue is enumerated
(`real_parts.search_parts`). Every plan that is reported has been validated on its cluster in float64.
"""

import dataclasses
import math
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from costmodel.formulas import CurveRange
from costmodel.inputs import Cluster
from costmodel.measured import FITS, with_margin
from costmodel.specs import (
    COUNT_FROM_0,
    LEAF,
    MAPPING,
    PROBABILITY,
    Check,
    an,
    anchored,
    expecting,
    load_curves,
    one_of,
)
from optimize.clusters import one_job
from optimize.clusters.answers import Answer, DesignResult, answer_of, continuous_answer, misses
from optimize.clusters.frontier import (
    FACTORS,
    SWEPT,
    frontier,
    holding,
    monotone,
    point_of,
    runners_up,
    swept_limit,
    used_of,
)
from optimize.clusters.mixes import MixProgress, search_mix
from optimize.clusters.notes import missed, notes, nothing, told_counts
from optimize.clusters.progress import TOLERANCE, Progress
from optimize.clusters.real_parts import PartsProgress, search_parts
from optimize.hardware import shadow_prices, solve_plans
from optimize.lattice import thinned
from optimize.question import LIMITED, Job, Limits, Objective, Problem, design_problem, failing
from optimize.status import CommandError, Status
from optimize.versions import versions

CONTINUOUS_SHARE, PARTS_SHARE, FRONTIER_SHARE = 0.7, 0.87, 0.92  # of the time, until which each may take
LEAST_S = 0.5  # of real parts, however little time there is
Told = Callable[[str], None]
_CHECKS = {
    "jobs": Check(
        'a list of one or more Jobs, such as [Job(workload=load_workload("llama3-8b"), tokens=1e12)]',
        lambda value: isinstance(value, Sequence) and len(value) > 0 and all(isinstance(job, Job) for job in value),
    ),
    "limits": dataclasses.replace(
        an(Limits, "Limits(budget_usd=1e6)"),
        accepts=lambda value: (
            isinstance(value, Limits) and all((own := getattr(value, name)) is None or LEAF(own) for name in LIMITED)
        ),
    ),
    "curves": an(CurveRange, "load_curves()"),
    "objective": an(Objective, "Objective.time"),
    "failures": one_of(("none", "low", "base", "high")),
    "margin": PROBABILITY,
    "seed": COUNT_FROM_0,
    "sweep": dataclasses.replace(one_of(("", *SWEPT)), words=f"one of {', '.join(SWEPT)}, or empty", optional=True),
    "work": Check("a number > 0", lambda value: LEAF(value) or type(value) is float and value == math.inf),
    **dict.fromkeys(("fixed", "bounds"), MAPPING),
    **dict.fromkeys(("seconds", "repair_s", "tolerance"), LEAF),
}


@expecting(**_CHECKS)
def design(
    jobs: Sequence[Job],
    limits: Limits,
    *,
    template: Cluster,
    curves: CurveRange | None = None,
    objective: Objective = Objective.time,
    fixed: Mapping[str, Any] | None = None,
    bounds: Mapping[str, tuple[float, float]] | None = None,
    seconds: float = 60.0,
    seed: int = 0,
    sweep: str | None = None,
    margin: float = FITS,
    failures: str = "base",
    repair_s: float | None = None,
    progress: Told = lambda _: None,
    known: Progress | None = None,
    tolerance: float = TOLERANCE,
    work: float = math.inf,
) -> DesignResult:
    """The best cluster of any rates, and the best of real parts. Raises `CommandError` where neither can be.

    `template` gives domains, latencies and software; `curves` prices and powers (default: those that ship, at the price
    level of the template, as the command has them); `fixed` holds fields of plans that are not searched; `bounds` the
    least and the most of each rate and of HBM bytes (default: of the accelerators known by name). Every plan fits with
    the probability `margin` (`find_plan`), on designed hardware and on real parts. `failures`: none, low, base or high,
    the case of the prices whose interruptions lengthen training; `repair_s`: until a server that failed is back, for
    which spares are bought. `known`: the search for the best cluster of any rates, where that has been
    (`targets.joint`). What ends by `tolerance` (a gap) or after `work` evaluations (of each search and of each point of
    the frontier, which an empty `sweep` leaves out) is the same on every machine; what `seconds` ends is told.
    """
    curves = curves or anchored(load_curves(), template)
    start, template = time.monotonic(), failing(with_margin(template, margin), failures, repair_s)
    jobs, limits = _with_only_deadline(jobs, limits)
    wanted: dict[str, Any] = {"jobs": tuple(jobs), "limits": limits, "objective": objective, "fixed": fixed or {}}
    asked = design_problem(template, curves, bounds, **wanted)
    kept, left_out = thinned([job.workload for job in jobs], asked.machine, asked.fixed)
    problem = dataclasses.replace(asked, fixed=kept)
    searched = CONTINUOUS_SHARE * seconds
    ending = {"tolerance": tolerance, "work": work}
    continuous, search = _continuous(problem, template, curves, searched, seed, progress, known, ending)
    progress("real parts")
    stopped = search is not None and search.interrupted
    rest_s = 0.0 if stopped else max(LEAST_S, start + PARTS_SHARE * seconds - time.monotonic())
    parts = search_parts(problem.jobs, limits, objective, rest_s, kept, margin, failures, repair_s, work)
    stopped = stopped or parts.interrupted
    catalogue = _catalogue(problem, parts) if parts.plans else None
    if continuous is None and catalogue is None:
        if stopped:
            raise KeyboardInterrupt  # there is nothing to answer with
        raise nothing(problem, search, parts)
    _check_met(continuous, catalogue)
    one = search if isinstance(search, Progress) and continuous is not None else None
    points: tuple[Mapping[str, Any], ...] = ()
    if one is not None and continuous is not None:
        end = start if stopped else start + FRONTIER_SHARE * seconds
        progress("descent")
        one_job.compare(one, end - time.monotonic(), seed)
        progress("frontier")
        points = _frontier(problem, one, continuous, end - time.monotonic(), seed, sweep, work)
    status = Status.incomplete if stopped else Status.ok
    return DesignResult(
        status=status,
        message=status.value,
        objective=objective,
        limits=limits,
        continuous=continuous,
        catalogue=catalogue,
        frontier=points,
        runners_up=() if one is None else runners_up(problem, one),
        counts=() if search is None or continuous is None else search.counts,
        relaxed=search.relaxed if isinstance(search, Progress) else None,
        others=() if one is None else one.others,
        notes=notes(problem, continuous, catalogue, left_out, search, parts),
        seconds=time.monotonic() - start,
        seed=seed,
        versions=versions(),
        jobs=tuple(jobs),
        template=template,
    )


def _with_only_deadline(jobs: Sequence[Job], limits: Limits) -> tuple[Sequence[Job], Limits]:
    """The deadline of the only job as that of the cluster, which searches for one job read."""
    if len(jobs) != 1 or jobs[0].deadline_s is None:
        return jobs, limits
    ends_s = (jobs[0].weight * jobs[0].deadline_s, limits.deadline_s or math.inf)
    return (dataclasses.replace(jobs[0], deadline_s=None),), dataclasses.replace(limits, deadline_s=min(ends_s))


def _continuous(
    problem: Problem,
    template: Cluster,
    curves: CurveRange,
    seconds: float,
    seed: int,
    told: Told,
    known: Progress | None,
    ending: Mapping[str, float],
) -> tuple[Answer | None, Progress | MixProgress | None]:
    """The best cluster of any rates, and the search that it comes from. Rates of any size cannot be rented."""
    if problem.limits.rent:
        return None, None
    if len(problem.jobs) > 1:
        return _several(problem, template, curves, seconds, seed, told)
    return _one(problem, template, curves, seconds, seed, told, known, ending)


def _one(
    problem: Problem,
    template: Cluster,
    curves: CurveRange,
    seconds: float,
    seed: int,
    told: Told,
    known: Progress | None,
    ending: Mapping[str, float],
) -> tuple[Answer | None, Progress]:
    """One job: certified over all plans, counts and hardware."""
    start = time.monotonic()
    search = one_job.search(problem, seconds, seed, told, None, **ending) if known is None else known
    if search.best is None:
        return None, search
    best, solved = search.best, solve_plans(problem, (search.best.plan,))
    if not np.isfinite(solved.value[0]) and not problem.fill:  # the cheapest plan is late: the fastest may not be
        told("plans that meet the deadline")
        rest_s = max(LEAST_S, seconds - (time.monotonic() - start))
        asked = dataclasses.replace(problem, objective=Objective.time)
        fast = one_job.search(asked, rest_s, seed, told, search, **ending)
        best = fast.best or best
        solved = solve_plans(problem, (best.plan,))
    hardware = problem.hardware(np.exp(best.y), best.hbm_bytes, float(best.cell.accelerators))
    limits = problem.limits
    better = math.log(solved.value[0]) < best.log_value or limits.deadline_s is not None or limits.carbon_g is not None
    if np.isfinite(solved.value[0]) and better:
        hardware = solved.hardware(0)  # the same plan, its hardware solved to the end
    hardware = holding(problem, (best.plan,), dataclasses.replace(hardware, hbm_bytes=best.hbm_bytes * (1 + 1e-12)))
    answer = continuous_answer(
        problem,
        template,
        curves,
        hardware,
        (best.plan,),
        log_bound=search.log_bound,
        evaluations=search.evaluations + solved.evaluations,
        shadow_prices={} if search.interrupted else shadow_prices(problem, (best.plan,), solved, again=not search.late),
        bound_is=f"{search.over}every plan on {told_counts(search)} was bounded over all hardware within the limits",
    )
    return answer, search


def _several(
    problem: Problem, template: Cluster, curves: CurveRange, seconds: float, seed: int, told: Told
) -> tuple[Answer | None, MixProgress]:
    """Several jobs: exact steps in turn, and a bound over the hardware that they share."""
    end, search = time.monotonic() + seconds, search_mix(problem, seconds, seed, told=told)
    if search.best is None:
        return None, search
    in_time = time.monotonic() < end
    best, solved = search.best, solve_plans(problem, search.best.plans)
    hardware = problem.hardware(np.exp(best.y), best.hbm_bytes, float(best.accelerators))
    if np.isfinite(solved.value[0]) and math.log(solved.value[0]) < best.log_value:
        hardware = solved.hardware(0)
    answer = continuous_answer(
        problem,
        template,
        curves,
        holding(problem, best.plans, dataclasses.replace(hardware, hbm_bytes=float(hardware.hbm_bytes) * (1 + 1e-9))),
        best.plans,
        log_bound=search.log_bound,
        evaluations=search.evaluations + solved.evaluations,
        shadow_prices={} if search.interrupted else shadow_prices(problem, best.plans, solved, again=in_time),
        bound_is=f"every plan of every job on {told_counts(search)} was bounded over the hardware that the jobs share",
    )
    return answer, search


def _catalogue(problem: Problem, parts: PartsProgress) -> Answer:
    """The answer of the best cluster of real parts."""
    assert parts.best is not None
    cluster, chip = parts.best.cluster, parts.best.cluster.accelerator
    hardware = {
        "flop_per_s": float(chip.peak_16bit_flop_per_s),
        "hbm_bytes_per_s": float(chip.hbm_bytes_per_s),
        "scale_up_bytes_per_s": float(cluster.tiers[0].bandwidth_bytes_per_s),
        "scale_out_bytes_per_s": float(cluster.tiers[-1].bandwidth_bytes_per_s),
        "hbm_bytes": float(chip.hbm_bytes),
        "accelerators": parts.best.bought,
    }
    return answer_of(
        problem,
        cluster,
        parts.best.domain,
        parts.plans,
        hardware=hardware,
        name=parts.best.name,
        log_bound=parts.log_bound,
        evaluations=parts.evaluations,
        shadow_prices={},
        bound_is="every plan on every part known by name, on four counts an octave, was evaluated or bounded",
    )


def _frontier(
    problem: Problem,
    search: Progress,
    answer: Answer,
    seconds: float,
    seed: int,
    sweep: str | None,
    work: float,
) -> tuple[Mapping[str, Any], ...]:
    """The objective over one limit, around the value that was asked for, or else what the answer uses of it."""
    limit, best = swept_limit(problem) if sweep is None else sweep, search.best
    if not limit or best is None:
        return ()
    at = getattr(problem.limits, limit)
    if at is None:
        at = used_of(limit, problem, best)
    values = [at * factor for factor in FACTORS]
    points: list[Mapping[str, Any]] = []
    if seconds > 0:
        points = frontier(one_job.search, problem, limit, values, seconds, search, seed, work)
    own = {**point_of(limit, problem, search)}
    own |= {
        name: getattr(answer, name) for name in ("value", "lower_bound", "gap")
    }  # as it is told beside the frontier
    own["hardware"] = {name: answer.hardware[name] for name in own["hardware"]}
    return tuple(monotone([*points, own], limit, problem.objective.maximised))


def _check_met(continuous: Answer | None, catalogue: Answer | None) -> None:
    """Raise where every answer breaks a limit. (These are the fastest: what they miss, all miss.)"""
    answers = [answer for answer in (continuous, catalogue) if answer is not None]
    if answers and all(misses(answer) for answer in answers):
        nearest = min(answers, key=lambda answer: max(answer.residuals.values()))
        raise CommandError(Status.infeasible, f"no answer meets the limits; the nearest, {missed(nearest)[0]}")
