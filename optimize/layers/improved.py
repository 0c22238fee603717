"""The best plans of a search improved: layers by stage, recompute by layer and microbatch (`plan --layers`).

Two ways are tried: 1F1B with any division of the layers, and the plan's own schedule (`own_schedule`). The best plan
takes part, so that the answer is never slower than it.
"""

import dataclasses
import itertools
import time
from collections.abc import Mapping
from typing import Any

from costmodel.inputs import SCHEDULES, Cluster, Plan, Workload, layers
from optimize import units
from optimize.lattice import even_layers
from optimize.layers.find_layers import LayersResult, find_layers
from optimize.layers.own_schedule import played_step_s, with_own_schedule
from optimize.plans import PlanResult
from optimize.status import CommandError, Status

TRIED = 3  # of the plans of the answer, of different degrees
SECONDS = 5.0  # for each
_NAMES = ("stage_layers", "recompute_by_block", "microbatch", "step_s", "lower_bound_s", "gap", "peak_bytes")
_NAMES += ("evaluations", "seconds", "seed")


@dataclasses.dataclass(frozen=True, kw_only=True)
class ImprovedLayers:
    """The best of what was tried; `best` is None where no plan of the answer has a pipeline to try it on."""

    best: Mapping[str, Any] | None  # by `_NAMES`; without a bound where the schedule is not 1F1B
    plan: dict[str, Any]  # fields of `Plan`, without the recompute, which is by layer
    gain: float  # how much shorter the step is than the best plan's as played out

    def as_json(self) -> dict[str, Any]:
        """The value of the key `layers`."""
        if self.best is None:
            return {"plan": None, "message": self.message}
        return {"plan": self.plan, **self.best, "gain": self.gain, "message": self.message}

    def launched(self, workload: Workload) -> tuple[Plan, ...]:
        """The placement as plans that a launch file may say, the exact one first; none where it gains nothing.

        The last one computes every layer again as any of them is, which fits wherever the placement does.
        """
        if self.best is None or self.gain <= 0:
            return ()
        modes = tuple(self.best["recompute_by_block"])
        used = sorted(set(modes) - {"none"}) or ["none"]
        whole = Plan(**self.plan, recompute=used[0] if len(used) == 1 else "full")
        share = 1 - modes.count("none") / len(modes)
        exact = dataclasses.replace(whole, recompute_share=share) if 0 < share < 1 else whole
        return (exact, whole) if _recompute_of(workload, exact) == modes else (whole,)

    @property
    def message(self) -> str:
        """The improvement in one line."""
        best = self.best
        if best is None:
            return "layers: no plan told has a pipeline on which layers could be placed one by one within memory"
        again = [name for name in best["recompute_by_block"] if name != "none"]
        kinds = " and ".join(f"{name} of {again.count(name)}" for name in sorted(set(again))) or "none"
        degrees = ",".join(str(self.plan[name]) for name in ("tensor", "context", "pipeline", "data"))
        schedule = SCHEDULES[self.plan["schedule"]].short or self.plan["schedule"]
        schedule += f" x{self.plan['virtual_stages']}" if self.plan["virtual_stages"] > 1 else ""
        placed = units.shorten_runs(",".join(map(str, best["stage_layers"])))
        change = (
            f"{units.percent(self.gain)} shorter than the best plan's" if self.gain > 0 else "that of the best plan"
        )
        said = (
            f"layers: t,c,p,d {degrees}, {schedule}, layers of each stage {placed}, recompute {kinds} of "
            f"{len(best['recompute_by_block'])} layers, microbatch {best['microbatch']}: a step of "
            f"{units.scaled(best['step_s'], units.SECONDS)}, {change}"
        )
        if best["gap"] is None:
            return said
        return f"{said}; no division of these layers under 1F1B is more than {_gap(best)} better"


def _gap(best: Mapping[str, Any]) -> str:
    return units.percent(max(best["gap"], 1e-3))


def improve_layers(workload: Workload, cluster: Cluster, result: PlanResult) -> ImprovedLayers:
    """Try the first plans of different degrees that have a pipeline; compare the best with the best plan as played."""
    chosen: dict[tuple[int, ...], Plan] = {}
    for ranked in result.plans:
        degrees = tuple(getattr(ranked.plan, name) for name in ("tensor", "context", "pipeline", "data", "expert"))
        if ranked.plan.pipeline > 1:
            chosen.setdefault(degrees, ranked.plan)
    if not chosen:
        return ImprovedLayers(best=None, plan={}, gain=0.0)
    plans, best_s = list(chosen.values())[:TRIED], played_step_s(result.plans[0].validation)
    placed = [_placed(workload, cluster, plan) for plan in plans]
    kept = [_kept(workload, cluster, plan) for plan in {result.plans[0].plan: None, **dict.fromkeys(plans)}]
    best, fields = min(itertools.chain(kept, filter(None, placed)), key=lambda pair: pair[0]["step_s"])
    return ImprovedLayers(best=best, plan=fields, gain=1 - best["step_s"] / best_s)


def _kept(workload: Workload, cluster: Cluster, plan: Plan) -> tuple[dict[str, Any], dict[str, Any]]:
    """The plan's own schedule: what is told of it, and its fields."""
    start = time.perf_counter()
    best, evaluations = with_own_schedule(workload, cluster, plan)
    own = best.plan
    told = (_layers_of(workload, own), _recompute_of(workload, own), own.microbatch, played_step_s(best), None, None)
    values: dict[str, Any] = dict(
        zip(_NAMES, (*told, best.peak_bytes, evaluations, time.perf_counter() - start, 0), strict=True)
    )
    return values, _fields(own)


def _layers_of(workload: Workload, plan: Plan) -> tuple[int, ...]:
    count = layers(workload)
    return plan.stage_layers or even_layers(count, plan.pipeline) or (count // plan.pipeline,) * plan.pipeline


def _recompute_of(workload: Workload, plan: Plan) -> tuple[str, ...]:
    """The mode of each layer: on every stage the first ones compute again."""
    names: list[str] = []
    for held in _layers_of(workload, plan):
        again = round(plan.recompute_share * held)
        names += [plan.recompute] * again + ["none"] * (held - again)
    return tuple(names)


def _placed(workload: Workload, cluster: Cluster, plan: Plan) -> tuple[dict[str, Any], dict[str, Any]] | None:
    """1F1B with any division of the layers; None where there is none that fits."""
    try:
        best: LayersResult = find_layers(workload, cluster, plan, seconds=SECONDS, descent=False)
    except CommandError:  # it offloads, or has more stages than layers
        return None
    if best.status is not Status.ok:
        return None
    placed = {"schedule": "one_f_one_b", "virtual_stages": 1, "stage_layers": best.stage_layers}
    own = dataclasses.replace(plan, **placed, microbatch=best.microbatch)
    return {name: getattr(best, name) for name in _NAMES}, _fields(own)


def _fields(plan: Plan) -> dict[str, Any]:
    fields = dataclasses.asdict(plan)
    return {name: value for name, value in fields.items() if name not in ("recompute", "recompute_share")}
