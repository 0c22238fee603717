"""The best plans of a search improved: layers by stage, recompute by layer and microbatch (`plan --layers`)."""

import dataclasses
from typing import Any

from costmodel.inputs import Cluster, Plan, Workload
from optimize import units
from optimize.layers.find_layers import LayersResult, find_layers
from optimize.plans import PlanResult
from optimize.status import CommandError, Status

TRIED = 3  # of the plans of the answer, of different degrees
SECONDS = 5.0  # for each


@dataclasses.dataclass(frozen=True, kw_only=True)
class ImprovedLayers:
    """The best of what was tried; `best` is None where no plan of the answer has a pipeline to try it on."""

    best: LayersResult | None
    plan: dict[str, Any]  # fields of `Plan`, without the recompute, which is by layer
    gain: float  # how much shorter the step is than the best plan's as played out; negative where it is longer

    def as_json(self) -> dict[str, Any]:
        """The value of the key `layers`."""
        if self.best is None:
            return {"plan": None, "message": self.message}
        names = ("stage_layers", "recompute_by_block", "microbatch", "step_s", "lower_bound_s", "gap", "peak_bytes")
        values = {name: getattr(self.best, name) for name in (*names, "evaluations", "seconds", "seed")}
        return {"plan": self.plan, **values, "gain": self.gain, "message": self.message}

    @property
    def message(self) -> str:
        """The improvement in one line."""
        best = self.best
        if best is None:
            return "layers: no plan told has a pipeline on which layers could be placed one by one within memory"
        again = [name for name in best.recompute_by_block if name != "none"]
        kinds = " and ".join(f"{name} of {again.count(name)}" for name in sorted(set(again))) or "none"
        degrees = ",".join(str(self.plan[name]) for name in ("tensor", "context", "pipeline", "data"))
        placed = units.shorten_runs(",".join(map(str, best.stage_layers)))
        change = f"{units.percent(abs(self.gain))} {'shorter' if self.gain > 0 else 'longer'} than the best plan's"
        return (
            f"layers: t,c,p,d {degrees}, 1F1B, layers of each stage {placed}, recompute {kinds} of "
            f"{len(best.recompute_by_block)} layers, microbatch {best.microbatch}: a step of "
            f"{units.scaled(best.step_s, units.SECONDS)}, {change}; no division of these layers is more than "
            f"{units.percent(max(best.gap, 1e-3))} better"
        )


def improve_layers(workload: Workload, cluster: Cluster, result: PlanResult) -> ImprovedLayers:
    """Try the first plans of different degrees that have a pipeline; compare the best with the best plan as played."""
    chosen: dict[tuple[int, ...], Plan] = {}
    for ranked in result.plans:
        degrees = tuple(getattr(ranked.plan, name) for name in ("tensor", "context", "pipeline", "data", "expert"))
        if ranked.plan.pipeline > 1:
            chosen.setdefault(degrees, ranked.plan)
    tried = [(_improved(workload, cluster, plan), plan) for plan in list(chosen.values())[:TRIED]]
    fitting = [(layers, plan) for layers, plan in tried if layers is not None and layers.status is Status.ok]
    if not fitting:
        return ImprovedLayers(best=None, plan={}, gain=0.0)
    best, plan = min(fitting, key=lambda pair: pair[0].step_s)
    placed = {"schedule": "one_f_one_b", "virtual_stages": 1, "stage_layers": best.stage_layers}
    fields = dataclasses.asdict(plan) | placed | {"microbatch": best.microbatch}
    for name in ("recompute", "recompute_share"):
        fields.pop(name)
    played = result.plans[0].validation.pipeline
    best_s = result.plans[0].step_s if played is None else played.step_s
    if played is not None and played.ordered_s is not None:  # each stage with its own kinds of layer here too
        best_s += played.ordered_s - played.played_s
    return ImprovedLayers(best=best, plan=fields, gain=1 - best.step_s / best_s)


def _improved(workload: Workload, cluster: Cluster, plan: Plan) -> LayersResult | None:
    try:
        return find_layers(workload, cluster, plan, seconds=SECONDS, descent=False)
    except CommandError:  # it offloads, or has more stages than layers
        return None
