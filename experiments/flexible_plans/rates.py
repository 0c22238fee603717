"""Which rate of the hardware would make a losing order of work win, and at what price: by gradients, and exactly.

For one model of each family: the fastest plan, and the fastest of every other order (no pipeline, each schedule,
interlaced, pieces in turn). Gradients of the logarithms of both makespans by that of each rate say which way to go;
where both take the same time is read off their curves, and the price curves say what the rate costs more.
"""

import dataclasses
import math
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from costmodel import Exact, parts
from costmodel.evaluators import prepare
from costmodel.formulas import capital_usd, hardware_of, with_hardware
from costmodel.inputs import SCHEDULES, Cluster, Workload
from costmodel.models import co_sharded
from costmodel.specs import load_curves
from experiments.flexible_plans.interlaced import interlaced
from experiments.flexible_plans.spaces import COUNTS, SIZES, FittingPlan, flexible, with_host, workload

RATES: Mapping[str, str] = {
    "FLOP/s": "flop_per_s",
    "memory bandwidth": "hbm_bytes_per_s",
    "NVLink": "scale_up_bytes_per_s",
    "network": "scale_out_bytes_per_s",
}
ASKED = {"gpt 8k": 32, "swin": 16, "t5": 32, "alphafold2": 32}
"""One model of each family, and the accelerators."""
FURTHEST = 8.0  # times the rate, or a part of it
GRID = FURTHEST ** np.linspace(-1.0, 1.0, 17)
_STEP = 0.01


def order_of(found: FittingPlan) -> str:
    """What kind of order a plan is."""
    if found.pieces == 0:
        return "interlaced"
    schedule = SCHEDULES[found.plan.schedule].short
    interleaved = " interleaved" if found.plan.virtual_stages > 1 else ""
    kind = f"{schedule}{interleaved}, {found.plan.pipeline} stages" if found.plan.pipeline > 1 else "no pipeline"
    return kind if found.pieces == 1 else f"{kind}, in pieces"


def switches(name: str) -> Iterator[dict[str, Any]]:
    """Each model's losing order nearest to the winner by any rate, and its factors."""
    for family, accelerators in ASKED.items():
        cluster = with_host(name, accelerators)
        job = workload(family, SIZES[family][COUNTS.index(accelerators)])
        found = flexible(job, cluster, family)
        best: dict[str, FittingPlan] = {}
        for each in found:
            best.setdefault(order_of(each).split(",")[0], each)
        winner, *losers = best.values()
        for loser in losers[:3]:
            yield _switch(job, cluster, family, winner, loser)


def _switch(job: Workload, cluster: Cluster, family: str, winner: FittingPlan, loser: FittingPlan) -> dict[str, Any]:
    curves, slopes, factors = {}, {}, {}
    for rate, field in RATES.items():
        both = [steps_s(job, cluster, family, each, field) for each in (winner, loser)]
        slopes[rate] = [float(np.log(each[-1] / each[-2]) / (2 * _STEP)) for each in both]
        behind = both[1][:-2] / both[0][:-2]
        curves[rate] = behind.tolist()
        factors[rate] = switch_at(np.log(behind))
    prices = {rate: _added_usd(cluster, RATES[rate], factor) for rate, factor in factors.items() if factor}
    cheapest = min(prices, key=prices.__getitem__, default=None)
    return {
        "family": family,
        "model": job.name,
        "accelerators": int(cluster.accelerators),
        "winner": {"words": order_of(winner), "step_s": winner.step_s, "plan": winner.words},
        "loser": {"words": order_of(loser), "step_s": loser.step_s, "plan": loser.words},
        "behind": loser.step_s / winner.step_s,
        "slopes": slopes,
        "curves": curves,
        "factors": factors,
        "prices": prices,
        "by": cheapest,
        "usd": None if cheapest is None else prices[cheapest],
    }


def steps_s(job: Workload, cluster: Cluster, family: str, found: FittingPlan, field: str) -> np.ndarray:
    """Seconds of a plan of any kind at `GRID` times one rate, and a little below and above the rate."""
    factors = np.append(GRID, np.exp([-_STEP, _STEP]))
    if found.pieces == 0:
        return np.asarray(interlaced(job, scaled(cluster, field, factors), found.plan)[0])
    blocks = ("stage 1", "stage 2 entry", "stage 2") if family == "swin" else None
    cut = job if found.pieces == 1 else co_sharded(job, found.pieces, blocks)
    numbers, machine, point = prepare(cut, scaled(cluster, field, factors), found.plan)
    with np.errstate(all="ignore"):
        found_s = parts(numbers, machine, point, Exact(np)).step.step_s
    return np.broadcast_to(found_s, factors.shape)


def scaled(cluster: Cluster, field: str, factor: Any) -> Cluster:
    """The cluster with one rate so many times as high."""
    hardware = hardware_of(cluster)
    return with_hardware(cluster, dataclasses.replace(hardware, **{field: factor * getattr(hardware, field)}))


def switch_at(behind: np.ndarray) -> float | None:
    """The factor nearest to 1 where the logarithm of a ratio over `GRID` is zero, on a line between two points."""
    logs, found = np.log(GRID), []
    for at in np.flatnonzero(np.sign(behind[1:]) * np.sign(behind[:-1]) < 0):
        share = behind[at] / (behind[at] - behind[at + 1])
        found.append(float(logs[at] + share * (logs[at + 1] - logs[at])))
    return math.exp(min(found, key=abs)) if found else None


def _added_usd(cluster: Cluster, field: str, factor: float) -> float:
    """What the changed rate adds to the purchase of an accelerator; less than nothing for a lower rate."""
    curves = load_curves().base
    changed, now = (capital_usd(hardware_of(each), curves) for each in (scaled(cluster, field, factor), cluster))
    return float(changed - now) / float(cluster.accelerators)
