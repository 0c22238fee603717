"""The answer of a search for plans: the best few, what is around them, and several searches as one."""

import dataclasses
from collections.abc import Mapping
from typing import Any

from costmodel import Shown
from costmodel.inputs import Cluster, Plan, Workload
from optimize.diagnosis import Elasticity, Validation
from optimize.lattice import LEFT_OUT
from optimize.launch import canonical
from optimize.plans.runner_ups import RunnerUp
from optimize.status import Status


@dataclasses.dataclass(frozen=True, kw_only=True)
class Ranked:
    """One plan of the answer, scored in float64 and validated."""

    plan: Plan
    value: float  # as the objective reports it
    gap: float  # over the lower bound
    step_s: float
    mfu: float
    peak_bytes: float
    reason: str
    validation: Validation


@dataclasses.dataclass(frozen=True, kw_only=True)
class PlanResult(Shown):
    """The answer. `lower_bound` holds for every plan that is searched and fits; of `not_searched` it says nothing."""

    status: Status
    message: str
    objective: str
    unit: str
    maximised: bool  # whether a larger value is better
    value: float
    lower_bound: float
    lower_bound_s: float  # of the step
    gap: float
    plans: tuple[Ranked, ...]  # best first
    simplest: Ranked | None  # of those within 1 %, where it is not the best itself
    elasticities: tuple[Elasticity, ...]
    runner_ups: tuple[RunnerUp, ...]  # the best of other tensor and pipeline degrees
    cells: Mapping[tuple[int, int], float]  # the best value of each tensor and pipeline degree that fits
    legal_cells: frozenset[tuple[int, int]]
    restriction: float | None  # how much worse the fixed fields make the value, relative to the best of all plans
    plans_in_lattice: int
    evaluations: int
    fitting: int
    seconds: float
    seed: int
    versions: Mapping[str, str]
    workload: Workload
    cluster: Cluster
    fixed: Mapping[str, Any]
    margin: float  # the probability that plans must fit with

    @property
    def not_searched(self) -> tuple[str, ...]:
        """Legal plans that neither `lower_bound` nor `gap` is about, in words."""
        return LEFT_OUT

    @property
    def plan(self) -> Plan:
        """The best plan."""
        return self.plans[0].plan


def restriction_cost(result: PlanResult, best_of_all: PlanResult | None) -> float | None:
    """How much worse the objective is, relative to the best of all plans; None where that is not known."""
    if best_of_all is None:
        return None
    return compared(result, result.value) / compared(best_of_all, best_of_all.value) - 1


def compared(result: PlanResult, value: float) -> float:
    """A value as searches compare it: less is better."""
    return 1 / value if result.maximised else value


def lowered(result: PlanResult, bound: float) -> PlanResult:
    """With a bound of more plans than its own."""
    own, bound = compared(result, result.value), min(bound, compared(result, result.lower_bound))
    plans = (dataclasses.replace(each, gap=compared(result, each.value) / bound - 1) for each in result.plans)
    return dataclasses.replace(
        result,
        plans=tuple(plans),
        lower_bound=compared(result, bound),
        lower_bound_s=result.plans[0].step_s * bound / own,
        gap=own / bound - 1,
    )


def incomplete(result: PlanResult) -> PlanResult:
    """Of a search that was interrupted."""
    return dataclasses.replace(result, status=Status.incomplete, message=Status.incomplete.value)


def merged(results: list[PlanResult], top: int) -> PlanResult:
    """The best of several searches of one objective; the lowest bound holds for all of them."""
    best = min(results, key=lambda result: compared(result, result.value))
    bound = min(compared(result, result.lower_bound) for result in results)
    plans: dict[Plan, Ranked] = {}
    for ranked in sorted((r for result in results for r in result.plans), key=lambda r: compared(best, r.value)):
        gap = compared(best, ranked.value) / bound - 1  # idle options make no other plan
        plans.setdefault(canonical(ranked.plan), dataclasses.replace(ranked, gap=gap))
    cells: dict[tuple[int, int], float] = {}
    for result in results:
        for cell, value in result.cells.items():
            cells[cell] = min(cells.get(cell, value), value, key=lambda value: compared(best, value))
    status = results[-1].status  # the last one, if any, was interrupted
    return dataclasses.replace(
        best,
        status=status,
        message=status.value,
        cells=cells,
        legal_cells=frozenset().union(*(result.legal_cells for result in results)),
        plans=tuple(plans.values())[:top],
        lower_bound=bound if compared(best, 2.0) == 2.0 else 1 / bound,
        gap=compared(best, best.value) / bound - 1,
        plans_in_lattice=sum(result.plans_in_lattice for result in results),
        evaluations=sum(result.evaluations for result in results),
        fitting=sum(result.fitting for result in results),
        seconds=sum(result.seconds for result in results),
    )
