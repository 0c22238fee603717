"""What `equipoise plan --layers` adds: the best plans' layers by stage, recompute by layer and microbatch improved."""

import dataclasses
from typing import Any

from optimize import units
from optimize.layers import LayersResult, find_layers
from optimize.plans import PlanInputs, PlanResult
from optimize.status import CommandError, Status

TRIED = 3  # of the plans told, of different degrees
SECONDS = 5.0  # for each


@dataclasses.dataclass(frozen=True, kw_only=True)
class ImprovedLayers:
    """The best of what was tried; `found` is None where no plan told has a pipeline that it could be tried on."""

    found: LayersResult | None
    plan: dict[str, Any]  # fields of `Plan`, without the recompute, which is by layer
    gain: float  # how much shorter the step is than the best plan's as played out; negative where it is longer

    def as_json(self) -> dict[str, Any]:
        """The value of the key `layers`."""
        if self.found is None:
            return {"plan": None, "message": self.said}
        told = ("stage_layers", "recompute_by_block", "microbatch", "step_s", "lower_bound_s", "gap", "peak_bytes")
        values = {name: getattr(self.found, name) for name in (*told, "evaluations", "seconds", "seed")}
        return {"plan": self.plan, **values, "gain": self.gain, "message": self.said}

    @property
    def said(self) -> str:
        """In one line."""
        if self.found is None:
            return "layers: no plan told has a pipeline on which layers could be placed one by one within memory"
        found, again = self.found, [name for name in self.found.recompute_by_block if name != "none"]
        kinds = " and ".join(f"{name} of {again.count(name)}" for name in sorted(set(again))) or "none"
        degrees = ",".join(str(self.plan[name]) for name in ("tensor", "context", "pipeline", "data"))
        placed = units.shorten_runs(",".join(map(str, found.stage_layers)))
        change = f"{units.percent(abs(self.gain))} {'shorter' if self.gain > 0 else 'longer'} than the best plan's"
        return (
            f"layers: t,c,p,d {degrees}, 1F1B, layers of each stage {placed}, recompute {kinds} of "
            f"{len(found.recompute_by_block)} layers, microbatch {found.microbatch}: a step of "
            f"{units.scaled(found.step_s, units.SECONDS)}, {change}; no division of these layers is more than "
            f"{units.percent(max(found.gap, 1e-3))} better"
        )


def as_json(layers: ImprovedLayers | None) -> dict[str, Any]:
    """The key of the answer, where it was asked for."""
    return {} if layers is None else {"layers": layers.as_json()}


def said(layers: ImprovedLayers | None) -> tuple[str, ...]:
    """Lines below the table."""
    return () if layers is None else (layers.said,)


def improve(inputs: PlanInputs, result: PlanResult) -> ImprovedLayers | None:
    """Try the first plans of different degrees that have a pipeline; compare the best with the best plan as played."""
    if not inputs.layers:
        return None
    chosen: dict[tuple[int, ...], Any] = {}
    for ranked in result.plans:
        degrees = tuple(getattr(ranked.plan, name) for name in ("tensor", "context", "pipeline", "data", "expert"))
        if ranked.plan.pipeline > 1:
            chosen.setdefault(degrees, ranked.plan)
    tried = [(_found(inputs, plan), plan) for plan in list(chosen.values())[:TRIED]]
    fitting = [(found, plan) for found, plan in tried if found is not None and found.status is Status.ok]
    if not fitting:
        return ImprovedLayers(found=None, plan={}, gain=0.0)
    found, plan = min(fitting, key=lambda pair: pair[0].step_s)
    placed = {"schedule": "one_f_one_b", "virtual_stages": 1, "stage_layers": found.stage_layers}
    fields = dataclasses.asdict(plan) | placed | {"microbatch": found.microbatch}
    for name in ("recompute", "recompute_share"):
        fields.pop(name)
    played = result.plans[0].validation.pipeline
    best_s = result.plans[0].step_s if played is None else played.step_s
    if played is not None and played.ordered_s is not None:  # each stage with its own kinds of layer here too
        best_s += played.ordered_s - played.played_s
    return ImprovedLayers(found=found, plan=fields, gain=1 - found.step_s / best_s)


def _found(inputs: PlanInputs, plan: Any) -> LayersResult | None:
    try:
        return find_layers(inputs.workload, inputs.cluster, plan, seconds=SECONDS, descent=False)
    except CommandError:  # it offloads, or has more stages than layers
        return None
