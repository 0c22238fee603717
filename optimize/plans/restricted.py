"""The best plan that one launcher can run: `equipoise plan --only megatron`.

What a launcher can be told is a table of alternatives (`launch/framework.py`). Each is a lattice of its own, with the
fields that it allows; what lies beyond the table (`Framework.cannot`) is left out of each one's best.
"""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

from costmodel.inputs import Cluster, Plan, Workload
from costmodel.specs import SpecError, nearest
from optimize.lattice import Lattice, plan_precision
from optimize.launch import FRAMEWORKS, FREE, Framework
from optimize.plans import exhaustive
from optimize.plans.best import Best, Entry
from optimize.plans.find_plan import PlanResult, Ranked, find_plan
from optimize.plans.plan_values import PlanValue
from optimize.status import CommandError, Status

SEARCHED = (
    "tensor", "context", "pipeline", "data", "expert", "expert_tensor", "microbatch", "schedule", "virtual_stages",
    "zero_stage", "sequence_parallel", "context_kind", "recompute",
)  # fmt: skip
"""Fields of which a lattice takes sets."""
JUDGED = ("domain", "data_shard", "stage_layers")
"""Fields that follow from others in a lattice: plans that ask too much are left out one by one."""
AMONG = (16, 1024)
"""Plans that are looked at, for each one told, for those that can be launched."""

_DEFAULTS = {field.name: field.default for field in dataclasses.fields(Plan)}
Search = Callable[[Lattice, PlanValue, int], Best]


def find_plan_for(
    name: str,
    workload: Workload,
    cluster: Cluster,
    *,
    fixed: Mapping[str, Any] | None = None,
    top: int = 10,
    search: Search = exhaustive.search,
    **options: Any,
) -> tuple[PlanResult, PlanResult | None]:
    """The answer of `find_plan` for plans that the framework can be told; and that for all, unless it was stopped."""
    if name not in FRAMEWORKS:
        raise SpecError(f"`only` is {name!r}; {nearest(name, FRAMEWORKS)}")
    framework, given = FRAMEWORKS[name], dict(fixed or {})
    results, why = [], None
    for alternative in framework.alternatives:
        narrowed = narrow(given, alternative, plan_precision(cluster))
        if narrowed is None:
            continue
        tellable = search_tellable(framework, workload, search)
        try:
            results.append(find_plan(workload, cluster, fixed=narrowed, top=top, search=tellable, **options))
        except CommandError as error:
            why = error if why is None or error.status is Status.infeasible else why
        if results and results[-1].status is Status.incomplete:
            break  # interrupted: what is known so far is the answer
    if not results:
        message = "no plan that keeps what is fixed" if why is None else why.message
        raise CommandError(Status.infeasible, f"for {framework.title}: {message}")
    result, every = _merged(results, top), None
    if result.status is Status.ok:
        every = find_plan(workload, cluster, fixed=given, top=1, search=search, **options)
        every = None if every.status is Status.incomplete else every
    return result, every


def restriction_cost(result: PlanResult, best_of_all: PlanResult | None) -> float | None:
    """How much worse the objective is, relative to the best of all plans; None where that is not known."""
    if best_of_all is None:
        return None
    return _internal(result, result.value) / _internal(best_of_all, best_of_all.value) - 1


def narrow(
    fixed: Mapping[str, Any], alternative: Mapping[str, tuple[Any, ...]], usual: Mapping[str, Any]
) -> dict[str, Any] | None:
    """What is fixed, and what the alternative allows; None where the two exclude each other.

    Overlap is left to the lattice, which has it wherever there is traffic, unless it is not allowed.
    """
    fields = dict(fixed)
    for name in _DEFAULTS:
        given = fixed.get(name)
        allowed = alternative.get(name, () if name in FREE else (_DEFAULTS[name],))
        if name in JUDGED or not allowed:
            continue
        if given is not None:
            wanted = given if isinstance(given, set | frozenset) else (given,)
            allowed = tuple(value for value in allowed if value in wanted)
            if not allowed:
                return None
        if given is None and name.startswith("offload_") and 0.0 not in allowed:
            return None  # offload is not searched: only where it is asked for
        if name in SEARCHED:
            fields[name] = allowed[0] if len(allowed) == 1 else frozenset(allowed)
        elif given is None and not (name.startswith("overlap_") and True in allowed):
            preferred = usual.get(name, _DEFAULTS[name])
            fields[name] = preferred if preferred in allowed else allowed[0]
    return fields


def search_tellable(framework: Framework, workload: Workload, search: Search) -> Search:
    """A search whose best plans are those that the framework can be told."""

    def keeps(lattice: Lattice, entry: Entry) -> bool:
        return not framework.cannot(lattice.plan(entry.index), workload)

    def run(lattice: Lattice, value: PlanValue, top: int) -> Best:
        best, kept = Best(), []
        for factor in AMONG:
            best = search(lattice, value, factor * top)
            kept = [entry for entry in best.top if keeps(lattice, entry)]
            if kept or len(best.top) < factor * top:
                break
        if best.top and not kept:
            why = "; ".join(framework.cannot(lattice.plan(best.top[0].index), workload))
            raise CommandError(Status.infeasible, f"none of the {len(best.top)} best plans can be told: {why}")
        levels = {level: entry for level, entry in best.levels.items() if keeps(lattice, entry)}
        return dataclasses.replace(best, top=tuple(kept[:top]), levels=levels)

    return run


def _merged(results: list[PlanResult], top: int) -> PlanResult:
    """The best of several searches of one objective; the lowest bound holds for all of them."""
    best = min(results, key=lambda result: _internal(result, result.value))
    bound = min(_internal(result, result.lower_bound) for result in results)
    plans: dict[Plan, Ranked] = {}
    for ranked in sorted((r for result in results for r in result.plans), key=lambda r: _internal(best, r.value)):
        plans.setdefault(ranked.plan, dataclasses.replace(ranked, gap=_internal(best, ranked.value) / bound - 1))
    cells: dict[tuple[int, int], float] = {}
    for result in results:
        for cell, value in result.cells.items():
            cells[cell] = min(cells.get(cell, value), value, key=lambda value: _internal(best, value))
    status = results[-1].status  # the last one, if any, was interrupted
    return dataclasses.replace(
        best,
        status=status,
        message=status.value,
        cells=cells,
        legal_cells=frozenset().union(*(result.legal_cells for result in results)),
        plans=tuple(plans.values())[:top],
        lower_bound=bound if _internal(best, 2.0) == 2.0 else 1 / bound,
        gap=_internal(best, best.value) / bound - 1,
        plans_in_lattice=sum(result.plans_in_lattice for result in results),
        evaluations=sum(result.evaluations for result in results),
        fitting=sum(result.fitting for result in results),
        seconds=sum(result.seconds for result in results),
    )


def _internal(result: PlanResult, value: float) -> float:
    """A value as a search compares it: less is better."""
    return 1 / value if result.maximised else value
