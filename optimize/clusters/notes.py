"""What is told beside the figures of a design: what its bound covers, what was left out, and why there is no answer."""

import dataclasses
import math

from optimize import units
from optimize.clusters.answers import Answer, misses
from optimize.clusters.infeasible import in_the_way, why_infeasible
from optimize.clusters.mixes import MixProgress
from optimize.clusters.one_job import search as search_one
from optimize.clusters.progress import Progress
from optimize.clusters.real_parts import PartsProgress
from optimize.question import SECONDS_A_DAY, Objective, Problem
from optimize.status import CommandError, Status

LEAST_S = 10.0  # in which the least of what is limited is looked for, where the limit is too low
_ALONE = {
    "carbon_g": (Objective.carbon, 1e6, "carbon-t", "t"),
    "deadline_s": (Objective.time, SECONDS_A_DAY, "deadline-days", "days"),
}


def told_counts(search: Progress | MixProgress) -> str:
    """The counts that a bound is about: those that have a legal plan, in whole domains."""
    others = search.others if isinstance(search, Progress) else ()  # of mixes every count is bounded
    if not others:
        return f"every legal count of accelerators ({len(search.counts)})"
    return f"{len(search.counts)} of {len(search.counts) + len(others)} legal counts of accelerators"


def nothing(problem: Problem, search: Progress | MixProgress | None, parts: PartsProgress) -> CommandError:
    """There is no answer: none is possible, or time was up, or a signal came, before one was found."""
    if parts.interrupted or (search is not None and search.interrupted):
        return CommandError(Status.incomplete, "interrupted before there was an answer")
    if problem.limits.rent:
        status = Status.infeasible if parts.finished else Status.out_of_time
        return CommandError(status, _nothing_rented(problem, parts))
    searched, looked = search is None or search.finished, parts.finished
    if told := _too_low(problem):
        status = Status.infeasible if looked else Status.out_of_time
        return CommandError(status, told if looked else f"{told}; {_unfinished(parts)}")
    if (searched and looked) or in_the_way(problem):
        return CommandError(Status.infeasible, why_infeasible(problem, searched))
    told = why_infeasible(problem)
    return CommandError(Status.out_of_time, told if looked else f"{told}; {_unfinished(parts)}")


def _too_low(problem: Problem) -> str:
    """The least of CO2 or of days for one job, where a limit is below that; nothing where neither is in the way."""
    for name, (objective, scale, option, unit) in _ALONE.items():
        most = getattr(problem.limits, name)
        if most is None or len(problem.jobs) > 1 or problem.fill and objective is Objective.time:
            continue  # (the fastest is told, late or not)
        limits = dataclasses.replace(problem.limits, **{name: None})
        found = search_one(dataclasses.replace(problem, objective=objective, limits=limits), LEAST_S)
        if found.best is not None and found.log_bound > math.log(most):
            least = math.exp(found.best.log_value) / scale
            told = f"`{option.replace('-', '_')}` is {most / scale:.4g}; with rates of any size the least for"
            enough = f"--{option} {units.rounded_up(least):g} is possible"
            what = f"{problem.job.workload.name} within the other limits is {least:.4g} {unit}"
            return f"{told} {what}; {enough}"
    return ""


def _nothing_rented(problem: Problem, parts: PartsProgress) -> str:
    told = f"no cluster of real parts whose rental price is known trains {problem.job.workload.name} within the limits"
    if not parts.finished:
        return f"{told} among those looked at; {_unfinished(parts)}"
    return f"{told}; expected more `budget_usd`, or more `deadline_days`"


def _unfinished(parts: PartsProgress) -> str:
    if not parts.listed:
        return "time was up before clusters of real parts were looked at"
    if not parts.left_over:
        return "plans of all jobs that meet the limits together were not found on real parts, and are not ruled out"
    left = f"{parts.left_over:,} of {parts.candidates:,}"
    return f"time was up for {left} clusters of real parts: more `seconds` may find a better one"


def notes(
    problem: Problem,
    continuous: Answer | None,
    catalogue: Answer | None,
    left_out: tuple[str, ...],
    search: Progress | MixProgress | None,
    parts: PartsProgress,
) -> tuple[str, ...]:
    """What the figures do not say."""
    said = _left_out(problem, left_out)
    if problem.limits.rent:
        said.append("rates of any size have no rental price: real parts only")
    elif continuous is None:
        finished = search is not None and search.finished
        said.append(f"no cluster of any rates: {why_infeasible(problem, finished)}")
    elif isinstance(search, Progress) and search.others:
        said.append(f"rates of any size: the bound is over {told_counts(search)}; there was no time for the others")
    said += _late(search, continuous)
    if (search is not None and search.interrupted) or parts.interrupted:
        said.append("interrupted: the best so far")
    if not parts.finished:
        said.append(_unfinished(parts))
    elif catalogue is None:
        said.append("no cluster of real parts whose price and power are known meets the limits")
    for answer in (continuous, catalogue):
        said += missed(answer)
    return tuple(said)


def _late(search: Progress | MixProgress | None, continuous: Answer | None) -> list[str]:
    """That the clock ended a search, and not its gap: another time it may end elsewhere."""
    if continuous is None or not isinstance(search, Progress) or not search.late:
        return []
    gap = units.percent(continuous.gap)
    return [f"rates of any size: time was up at a gap of {gap}; asked again, it may be another"]


def _left_out(problem: Problem, names: tuple[str, ...]) -> list[str]:
    """Which plans are not searched, and which limit the bounds leave out."""
    said = [f"plans with {', '.join(names)} only: all of them would be too many here"] if names else []
    said.append("plans whose weights are shared by all data ranks or inside one domain (`plan` searches other shares)")
    if problem.limits.carbon_g is not None and len(problem.jobs) > 1:
        said.append("the bounds of several jobs are those without the limit of CO2, which the answers meet")
    return said


def missed(answer: Answer | None) -> list[str]:
    """The limits that an answer breaks, by how much, and what would be enough."""
    said = []
    for name in misses(answer):
        assert answer is not None
        missed = f"{answer.name}: `{name}` is missed by {100 * math.expm1(answer.residuals[name]):.1f} %"
        days = answer.quantities.train_s / SECONDS_A_DAY
        tonnes = answer.quantities.carbon_g / 1e6
        enough = {"deadline_s": f"; --deadline-days {math.ceil(10 * days) / 10:g} is met"}
        enough |= {"carbon_g": f"; --carbon-t {units.rounded_up(tonnes):g} is met"}
        said.append(missed + enough.get(name, ""))
    return said
