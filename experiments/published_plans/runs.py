"""Published plans of large runs, each with its software: what `evaluate` says of them beside what was published."""

import dataclasses
import math
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import costmodel
from costmodel.inputs import Cluster, Plan, Workload, model_flop
from costmodel.models import decoder
from costmodel.specs import load_cluster, load_workload, plan_from

RUNS = Path(__file__).with_suffix(".toml")
_RATES = {"nvfp4": "4bit", "bf16": "16bit", "fp16": "16bit"}  # every other precision: 8 bits


@dataclasses.dataclass(frozen=True, kw_only=True)
class PublishedRun:
    """One published run."""

    name: str
    workload: Workload
    cluster: Cluster
    plan: Plan
    published_s: float
    source: str
    assumed: str
    miss: str  # why the prediction is known to be off
    fitted: bool


def runs() -> list[PublishedRun]:
    """All runs of the file, in its order."""
    return [_run(table) for table in tomllib.loads(RUNS.read_text(encoding="utf-8"))["run"]]


def _run(table: Mapping[str, Any]) -> PublishedRun:
    sizes = {"sequence": table["sequence"], "batch": table["batch"]}
    workload = load_workload(table["model"], **sizes) if "model" in table else decoder(**table["dimensions"], **sizes)
    cluster = load_cluster(table["cluster"], accelerators=table["accelerators"], software=table["software"])
    for key, tier, unit in (("node_gb_per_s", 0, 1e9), ("network_gbit_per_s", len(cluster.tiers) - 1, 1.25e8)):
        if key in table:
            own = dataclasses.replace(cluster.tiers[tier], bandwidth_bytes_per_s=unit * table[key])
            cluster = dataclasses.replace(cluster, tiers=(*cluster.tiers[:tier], own, *cluster.tiers[tier + 1 :]))
    plan = plan_from(table["plan"], f"runs.toml, {table['name']}")
    return PublishedRun(
        name=f"{table['name']}, {table['accelerators']:,} {table['cluster']}",
        workload=workload,
        cluster=cluster,
        plan=plan,
        published_s=_published_s(table, workload, cluster, plan),
        source=table["source"],
        assumed=table.get("assumed", ""),
        miss=table.get("miss", ""),
        fitted=table.get("fitted", False),
    )


def _published_s(table: Mapping[str, Any], workload: Workload, cluster: Cluster, plan: Plan) -> float:
    """Seconds of a step: printed, or from the printed tokens a second or share of the peak (causal model FLOP)."""
    if "step_s" in table:
        return float(table["step_s"])
    if "tokens_per_s" in table:
        return table["batch"] * table["sequence"] / (table["tokens_per_s"] * table["accelerators"])
    peak = float(getattr(cluster.accelerator, f"peak_{_RATES.get(plan.precision, '8bit')}_flop_per_s"))
    return float(model_flop(workload)) * table["batch"] / (table["accelerators"] * peak * table["mfu"])


def predicted() -> list[dict[str, Any]]:
    """One line for each run: seconds of both, and log of predicted over published."""
    lines = []
    for run in runs():
        found = costmodel.evaluate(run.workload, run.cluster, run.plan)
        step_s = float(found.step_s)
        lines.append(
            {
                "run": run.name,
                "software": run.cluster.stack.software,
                "published_s": run.published_s,
                "predicted_s": step_s,
                "error": math.log(step_s / run.published_s),
                "gib": float(found.memory.peak_bytes) / 2**30,
                "largest": max(found.terms, key=lambda term: term.exposed_s).name,
                "fitted": run.fitted,
                "assumed": run.assumed,
                "miss": run.miss,
                "source": run.source,
            }
        )
    return lines
