"""The families that take a whole job: a workload, a cluster and a point, of named numbers."""

import dataclasses

import numpy as np

from costmodel.formulas import traffic
from costmodel.formulas.breakdown import Breakdown, Term, breakdown
from costmodel.formulas.cost import Parts, parts
from costmodel.formulas.counts import BlockCounts
from costmodel.formulas.memory import StageMemory
from costmodel.formulas.timing import issue_s
from costmodel.inputs.cluster import Cluster
from costmodel.inputs.plan import PlanPoint
from costmodel.inputs.stack import Stack
from costmodel.inputs.workload import Workload, model_flop
from costmodel.models.decoder import decoder
from costmodel.semantics import Semantics, total
from tests.support.families import (
    TEMPLATE,
    Args,
    Values,
)
from tests.support.strategies import (
    ARCHITECTURE,
    Array,
    cluster_batch,
    point_batch,
    sizes_batch,
)
from tests.support.trees import flatten, unflatten

# the whole job: everything that needs a workload, a cluster and a point

TIERS = 3


def job_sample(rng: np.random.Generator, n: int) -> dict[str, Array]:
    point, batch = point_batch(rng, n, mixed=True, relaxed=True, uneven=True)
    return job_args(sizes_batch(rng, n, 3 * point.pipeline), batch, cluster_batch(rng, n, TIERS), point)


def job_args(sizes: Args, batch: Array, cluster: Cluster, point: PlanPoint) -> dict[str, Array]:
    """The named arguments of the family `job`, all of one shape."""
    named = {**sizes, "batch": batch, **flatten(cluster, "cluster"), **flatten(point, "point")}
    n = max(np.size(value) for value in named.values())
    return {name: np.array(np.broadcast_to(value, (n,)), dtype=float) for name, value in named.items()}


def job_of(a: Args) -> tuple[Workload, Cluster, PlanPoint]:
    """The three arguments of `costmodel.cost`."""
    sizes = {name: a[name] for name in (*ARCHITECTURE, "key_value_heads", "batch")}
    workload = decoder(hidden=a["heads"] * a["head_size"], **sizes, gated=True, bias=True, dropout=True)
    return workload, unflatten(_CLUSTER, a, "cluster"), unflatten(TEMPLATE, a, "point")


_CLUSTER = cluster_batch(np.random.default_rng(0), 1, TIERS)


def job_values(workload: Workload, cluster: Cluster, point: PlanPoint, sem: Semantics) -> Values:
    """The values of the family `job`."""
    done = parts(workload, cluster, point, sem)
    layer, first = done.counts.blocks[1], done.times.blocks[1]
    held, outer = done.memory.first, traffic.tiers_in_training(cluster, point, cluster.stack, sem)[1]
    return {
        "counts.counts:flop": total(c.flop for c in layer.matmuls),
        "counts.counts:parameters": layer.parameters,
        "counts.counts:saved_bytes": layer.saved.input + layer.saved.core + layer.saved.rest,
        "counts.counts:boundary_bytes": done.counts.boundary_bytes,
        "counts.counts:microbatches": done.counts.microbatches,
        **_traffic(layer, point, cluster.stack, done.times.laws, sem),
        "traffic.tiers_in_training": outer.oversubscription,
        "timing.issue_s": issue_s(layer, point, done.times.laws, cluster.stack, sem)[0],
        "timing.timing:ring": first.backward.ring_s,
        "timing.timing": first.forward_s + first.backward_s + first.weights.seconds,
        "roofline.block_times": first.forward.matmul_s,
        "pipeline.pipeline_s": done.step.passes_s,
        **{name: getattr(done.step.work, field) for name, field in STEP.items()},
        **{f"offload.streams:{name}": getattr(done.times.streams, name) for name in STREAMS},
        "optimizer.update_traffic_s": done.step.work.update_traffic_s,
        **{f"memory.stage_memory:{name}": getattr(held, name) for name in HELD},
        "memory.memory": done.memory.peak_bytes,
        "cost.cost:step_s": done.step.step_s,
        "cost.cost:peak_bytes": done.memory.peak_bytes,
        "breakdown.Breakdown:mfu": _ratios(workload, cluster, point, done).mfu,
        "breakdown.Breakdown:tokens_per_s": _ratios(workload, cluster, point, done).tokens_per_s,
    }


def _ratios(workload: Workload, cluster: Cluster, point: PlanPoint, done: Parts) -> Breakdown:
    """A breakdown of a single term: its ratios, without the compilation of all its terms."""
    step = Term(name="step", limit_names=(), exposed_s=done.step.step_s, hidden_s=0.0, limits=())
    flop = model_flop(workload) * workload.batch / point.accelerators
    return Breakdown(
        terms=(step,),
        memory=done.memory,
        limit_bytes=cluster.accelerator.hbm_bytes,
        second_limit_bytes=cluster.accelerator.second_memory_bytes,
        model_flop=flop,
        hardware_flop=flop,
        peak_flop_per_s=cluster.accelerator.peak_16bit_flop_per_s,
        tokens=workload.batch * workload.sequence,
    )


def report_values(workload: Workload, cluster: Cluster, point: PlanPoint, sem: Semantics) -> Values:
    """The values of the family `report`."""
    report = breakdown(workload, cluster, point, parts(workload, cluster, point, sem), sem)
    return {f"breakdown.breakdown:{name}": getattr(report, name) for name in ("step_s", "hfu")}


def _traffic(block: BlockCounts, point: PlanPoint, stack: Stack, laws: traffic.Laws, sem: Semantics) -> Values:
    """Traffic of one block and microbatch, before any overlap."""
    sync_s, context_s = traffic.sync_s(block, laws, stack, sem), traffic.context_s(block, point, laws, sem)
    sharded_s = traffic.sharded_s(block, point, laws, sem)
    times = (*sync_s, *context_s, *sharded_s, traffic.tokens_s(block, laws, stack, sem))
    return dict(zip(TRAFFIC, times, strict=True))


TRAFFIC = (
    "traffic.sync_s:forward", "traffic.sync_s:backward", "traffic.context_s:ring", "traffic.context_s:exchange",
    "traffic.sharded_s:gather", "traffic.sharded_s:reduce", "traffic.tokens_s",
)  # fmt: skip
STEP = {
    "traffic.gradient_traffic_s": "gradient_traffic_s",
    "optimizer.optimizer_s": "optimizer_s",
    "optimizer.host_update_s": "host_update_s",
    "optimizer.orthogonal_s": "orthogonal_s",
    "traffic.busiest_links_s": "links_s",
}
STREAMS = ("reads_s", "weights_s", "activations_s", "gradients_s", "sums_s")
HELD = tuple(f.name for f in dataclasses.fields(StageMemory))
