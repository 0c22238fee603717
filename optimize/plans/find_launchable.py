"""The best plan that some framework can launch, and the best of each framework: what `equipoise plan` asks for."""

import dataclasses
from collections.abc import Mapping
from typing import Any

from costmodel.inputs import Cluster, Workload
from costmodel.measured import FITS, with_margin
from optimize.lattice import SEARCHED, Lattice, lattice, plan_precision
from optimize.plans.bounded import Found, best_below, ordered
from optimize.plans.find_plan import find_plan, find_plan_for
from optimize.plans.launchable import best_for_each, best_of_any, parts_of, told_by
from optimize.plans.plan_values import PlanValue, plan_value
from optimize.plans.result import PlanResult
from optimize.status import Status


def find_launchable(
    workload: Workload,
    cluster: Cluster,
    *,
    fixed: Mapping[str, Any] | None = None,
    objective: str = "step_s",
    tokens: float | None = None,
    margin: float = FITS,
    **options: Any,
) -> tuple[PlanResult, dict[str, Found]]:
    """The answer of `find_plan` for plans that some framework can launch, and the value and best plan of each.

    The runners-up are those of the framework that has the best plan. Where none can launch anything with what is fixed,
    the answer is that for all plans, and the second is empty.
    """
    given, machine = dict(fixed or {}), with_margin(cluster, margin)
    question: dict[str, Any] = {"objective": objective, "tokens": tokens, "margin": margin, **options}
    whole, value = _valued(workload, machine, plan_precision(cluster) | given, objective, tokens)
    parts, known = parts_of(ordered(whole)) if len(whole) else {}, dict[Any, Any]()
    each = best_for_each(parts, value, known)
    if not each:
        return find_plan(workload, cluster, fixed=given, unrestricted=True, **question), each
    winner = min(each, key=lambda name: each[name][0])

    def better(fields: Mapping[str, Any], reached: float) -> bool:
        part = next((part for own, part in parts[winner] if own == fields), None)
        return part is not None and best_below(part, value, reached, told_by(winner, part), known)[0] is not None

    result, _ = find_plan_for(winner, workload, cluster, fixed=given, better=better, **question)
    free = {name: kept for name, kept in whole.fixed.items() if name not in SEARCHED}  # what no search would change
    if free.keys() != whole.fixed.keys() and result.status is Status.ok:
        all_of, own = _valued(workload, machine, free, objective, tokens)
        freer = best_of_any(parts_of(ordered(all_of)), own, each[winner][0])
        cost = 0.0 if freer is None else each[winner][0] / freer[1][0] - 1
        result = dataclasses.replace(result, restriction=cost)
    return result, each


def _valued(
    workload: Workload, cluster: Cluster, fixed: Mapping[str, Any], objective: str, tokens: float | None
) -> tuple[Lattice, PlanValue]:
    """All plans, and what they are compared by."""
    whole = lattice(workload, cluster, fixed)
    return whole, plan_value(objective, workload, cluster, sorted(set(whole.rows["domain"].tolist())), tokens)
