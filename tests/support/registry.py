"""Every public cost function, one entry each: how to call it with named numbers, and what it must do with each.

A family is one call that gives several values; its arguments are named scalars (or arrays) whose suffix is the SI unit.
An entry `module.function` or `module.function:value` is one of these values with its declared monotonicity. Tests go
over `REGISTRY`; `tests/formulas/test_form.py` checks that no public function of a formula module is missing.
"""

import dataclasses
import fnmatch
import itertools
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from costmodel.formulas import collectives, curves, offload, placement, roofline, traffic
from costmodel.formulas.breakdown import Breakdown, Term, breakdown
from costmodel.formulas.cost import Parts, parts
from costmodel.formulas.counts import AttentionCount, BlockCounts, MatmulCount, MemoryCount, share
from costmodel.formulas.memory import StageMemory, in_flight
from costmodel.formulas.timing import exposed_s, issue_s, overlapped_s
from costmodel.inputs.cluster import Accelerator, Cluster, Tier
from costmodel.inputs.plan import Plan, PlanPoint, embed, with_offload
from costmodel.inputs.schedules import SCHEDULES, schedule_rows
from costmodel.inputs.stack import Stack
from costmodel.inputs.workload import Workload, model_flop
from costmodel.models.decoder import decoder
from costmodel.semantics import Semantics, total
from tests.support.strategies import (
    ACCELERATOR,
    ARCHITECTURE,
    STACK,
    TIER,
    Array,
    Range,
    cluster_batch,
    draw,
    point_batch,
    sizes_batch,
)

_TEMPLATE = with_offload(
    embed(Plan(), decoder(layers=2, hidden=64, heads=2, ffn=64, vocabulary=64, sequence=8, batch=1), 8)
)
_PRECISION = (
    "activation_bytes", "weight_bytes", "at_32bit", "at_16bit", "at_8bit", "at_4bit", "operand_share", "cast_bytes",
    "casts",
)  # fmt: skip

Args = Mapping[str, Array]
Values = dict[str, Array]


@dataclasses.dataclass(frozen=True)
class Family:
    """One call: random legal arguments (`sample`, batches of n) and the values that it returns by entry name."""

    sample: Callable[[np.random.Generator, int], dict[str, Array]]
    call: Callable[[Args, Semantics], Values]


@dataclasses.dataclass(frozen=True)
class Entry:
    """One value of a family. Patterns name the arguments in which it never falls and never rises."""

    family: str
    unit: str  # the suffix of the value
    rises: tuple[str, ...] = ()
    falls: tuple[str, ...] = ()

    def direction(self, argument: str) -> int:
        """1 where the value never falls in the argument, -1 where it never rises, 0 where nothing is declared."""

        def declared(patterns: tuple[str, ...]) -> bool:
            return any(fnmatch.fnmatch(argument, pattern) for pattern in patterns)

        return declared(self.rises) - declared(self.falls)


def flatten(tree: Any, prefix: str = "") -> dict[str, Array]:
    """Leaves by path. The last part of a path is the name of the field, and so carries the unit."""
    if dataclasses.is_dataclass(tree) and not isinstance(tree, type):
        fields = [f.name for f in dataclasses.fields(tree) if not f.metadata.get("static")]
        return _merge(flatten(getattr(tree, name), f"{prefix}.{name}") for name in fields)
    if isinstance(tree, tuple):
        return _merge(flatten(item, f"{prefix}.{i}") for i, item in enumerate(tree))
    return {} if tree is None else {prefix.lstrip("."): tree}


def unflatten(template: Any, values: Mapping[str, Any], prefix: str = "") -> Any:
    """`template` with its leaves replaced by `values` of the same paths."""
    if dataclasses.is_dataclass(template) and not isinstance(template, type):
        fields = [f.name for f in dataclasses.fields(template) if not f.metadata.get("static")]
        new = {name: unflatten(getattr(template, name), values, f"{prefix}.{name}") for name in fields}
        return dataclasses.replace(template, **new)
    if isinstance(template, tuple):
        return tuple(unflatten(item, values, f"{prefix}.{i}") for i, item in enumerate(template))
    return template if template is None else values[prefix.lstrip(".")]


def _merge(parts_: Any) -> dict[str, Array]:
    return dict(itertools.chain.from_iterable(part.items() for part in parts_))


def uniform(ranges: Mapping[str, Range]) -> Callable[[np.random.Generator, int], dict[str, Array]]:
    """A sampler of log-uniform independent arguments."""
    return lambda rng, n: draw(rng, ranges, n)


def _fields(cls: type, values: Mapping[str, Any], prefix: str = "", **others: Any) -> Any:
    names = [f.name for f in dataclasses.fields(cls) if f"{prefix}{f.name}" in values]
    return cls(**{name: values[f"{prefix}{name}"] for name in names}, **others)


# network: collectives, and ranks over tiers

_RANKS = {"inner_ranks": (1.05, 64.0), "middle_ranks": (1.05, 32.0), "outer_ranks": (1.05, 512.0)}
_NETWORK_STACK = (
    "link_ceiling", "network_ceiling", "peer_ceiling", "collective_s", "all_reduce_tree", "tree_hop",
    "collective_ramp", "chunk_fill",
)  # fmt: skip
_WHERE = ("inner", "middle", "outer")
NETWORK: dict[str, Range] = {
    **_RANKS,
    "payload_bytes": (1e2, 1e11),
    "calls": (1.0, 100.0),
    "weight": (0.01, 1.0),
    **{f"{where}_{name}": bounds for where in _WHERE for name, bounds in TIER.items()},
    **{name: STACK[name] for name in _NETWORK_STACK},
}


def _network(a: Args, sem: Semantics) -> Values:
    tiers = tuple(_fields(Tier, a, f"{where}_", name=where, size=1.0, usable_size=1.0) for where in _WHERE)
    ranks, stack = tuple(a[name] for name in _RANKS), _fields(Stack, a)
    laws = {
        name: getattr(collectives, name)(ranks, tiers, stack, sem)
        for name in ("all_gather", "all_reduce", "all_to_all", "neighbour")
    }
    mixed = collectives.blend(laws["all_gather"], laws["all_to_all"], a["weight"])
    again = collectives.repeat(laws["all_gather"], a["calls"])
    values = {f"collectives.{name}": _time(law, a) for name, law in laws.items()}
    busy = total(law.by_tier[i] for law in laws.values() for i in range(3))
    return values | {
        "collectives.time_s": collectives.time_s(laws["all_gather"], a["payload_bytes"], 1.0),
        "collectives.blend": _time(mixed, a),
        "collectives.repeat": _time(again, a),
        "collectives.in_turn": _time(collectives.in_turn(laws["all_gather"], laws["all_to_all"]), a),
        "collectives.all_gather:by_tier": busy,
    }


def _time(law: collectives.Law, a: Args) -> Array:
    return collectives.time_s(law, a["payload_bytes"], a["calls"])


_PLACEMENT = {
    "group": (1.05, 1000.0),
    "stride": (1.05, 1000.0),
    "domain": (2.0, 72.0),
    "inner_size": (8.0, 72.0),
    "middle_size": (100.0, 1000.0),
}


def _placement(a: Args, sem: Semantics) -> Values:
    tiers = tuple(
        Tier(name=where, size=size, usable_size=size, bandwidth_bytes_per_s=1.0, latency_s=1.0)
        for where, size in zip(_WHERE, (a["inner_size"], a["middle_size"], 1e6), strict=True)
    )
    ranks = placement.ranks_by_tier(a["group"], a["stride"], tiers, a["domain"], sem)
    sizes = placement.domain_sizes(tiers, a["domain"])
    return {
        "placement.ranks_by_tier:inner": ranks[0],
        "placement.ranks_by_tier:middle": ranks[1],
        "placement.ranks_by_tier:outer": ranks[2],
        "placement.ranks_by_tier:product": ranks[0] * ranks[1] * ranks[2],
        "placement.domain_sizes:middle": sizes[1],
    }


# kernels: rooflines of counts that are given

_KERNEL_STACK = (
    "matmul_ceiling", "matmul_8bit_ceiling", "matmul_4bit_ceiling", "matmul_size0", "attention_ceiling",
    "attention_backward_ratio", "attention_size0", "cast_passes", "context_imbalance",
    "unfused_touches", "hbm_ceiling", "kernel_s",
)  # fmt: skip
_SHARES: dict[str, Range] = {
    name: (0.05, 0.95) for name in ("at_32bit", "at_16bit", "at_8bit", "at_4bit", "flash", "fused_kernels")
}
KERNEL: dict[str, Range] = {
    "work_flop": (1e6, 1e18),
    "operand_bytes": (1e3, 1e12),
    "weight_elements": (1e3, 1e10),
    "score_elements": (1e3, 1e10),
    "reciprocal_size": (1e-6, 1e-1),
    "activation_bytes": (1.0, 4.0),
    "weight_bytes": (1.0, 4.0),
    "gradient_bytes": (1.0, 4.0),
    "operand_share": (0.25, 1.0),
    "cast_bytes": (0.1, 6.0),
    "casts": (0.1, 2.0),
    "score_touches": (0.1, 6.0),
    "uneven": (0.01, 1.0),
    **_SHARES,
    **{name: bounds for name, bounds in ACCELERATOR.items() if name.endswith("_per_s")},
    **{name: STACK[name] for name in _KERNEL_STACK},
}


def _kernel_point(a: Args) -> PlanPoint:
    """The fields of a point that rooflines read."""
    attention = dataclasses.replace(
        _TEMPLATE.attention,
        flash=a["flash"],
        score_touches_forward=a["score_touches"],
        score_touches_backward=2 * a["score_touches"],
    )
    return dataclasses.replace(
        _TEMPLATE,
        precision=dataclasses.replace(_TEMPLATE.precision, **{k: v for k, v in a.items() if k in _PRECISION}),
        attention=attention,
        fused_kernels=a["fused_kernels"],
        gradient_bytes=a["gradient_bytes"],
    )


def _kernels(a: Args, sem: Semantics) -> Values:
    point, stack = _kernel_point(a), _fields(Stack, a)
    accelerator = _fields(Accelerator, a, name="random", hbm_bytes=1.0)
    speed = roofline.rates(accelerator, point, stack)
    product = MatmulCount(
        name="product",
        flop=a["work_flop"],
        operand_bytes=a["operand_bytes"],
        weight_elements=a["weight_elements"],
        reciprocal_sizes=a["reciprocal_size"],
    )
    core = AttentionCount(
        name="core",
        flop=a["work_flop"],
        operand_bytes=a["operand_bytes"],
        score_elements=a["score_elements"],
        reciprocal_keys=a["reciprocal_size"],
        uneven=a["uneven"],
        ring_bytes=0.0,
        exchange_bytes=0.0,
    )
    moved = MemoryCount(name="moved", forward_bytes=a["operand_bytes"], backward_bytes=2 * a["operand_bytes"])
    matmul = roofline.matmul_s(product, point, speed, stack, sem)
    attention = roofline.attention_s(core, point, speed, stack, sem)
    streamed = roofline.memory_s(moved, point, speed, stack)
    return {
        "roofline.rates:matmul": speed.matmul_s_per_flop,
        "roofline.rates:attention": speed.attention_s_per_flop,
        "roofline.rates:memory": speed.memory_s_per_byte,
        "roofline.rates:update": speed.update_s_per_flop,
        "roofline.matmul_roofs": roofline.matmul_roofs(product, point, speed, stack)[0].compute_s,
        "roofline.attention_roofs": roofline.attention_roofs(core, point, speed, stack)[0].compute_s,
        "roofline.memory_roofs": roofline.memory_roofs(moved, point, speed, stack)[0].memory_s,
        "roofline.score_s": roofline.score_s(core, point, speed, stack),
        "roofline.busiest": roofline.busiest(core, stack),
        "roofline.cast_s": total(roofline.cast_s(product, point, speed, stack)),
        "roofline.matmul_s:product": matmul[0],
        "roofline.matmul_s:weights": matmul[1],
        "roofline.attention_s:forward": attention[0],
        "roofline.attention_s:backward": attention[1],
        "roofline.memory_s:forward": streamed[0],
        "roofline.memory_s:backward": streamed[1],
    }


# overlap, memory in flight, shares

_SMALL: dict[str, Range] = {
    "compute_s": (1e-6, 1e2),
    "traffic_s": (1e-6, 1e2),
    "share": (0.01, 1.0),
    "contention": (0.01, 1.0),
    "microbatches": (1.0, 512.0),
    "remaining": (1.0, 64.0),
    "pipeline": (1.05, 64.0),
    "virtual_stages": (1.0, 8.0),
    "ranks": (1.0, 1024.0),
}


def _streams(a: Args) -> offload.Streams:
    zero = 0.0 * a["share"]
    return offload.Streams(
        reads_s=zero, weights_s=zero, activations_s=zero, s_per_byte=zero, hidden=a["share"], layers=zero
    )


def _small(a: Args, sem: Semantics) -> Values:
    both = (a["compute_s"], a["traffic_s"], a["share"], a["contention"], sem)
    values = {
        "timing.overlapped_s": overlapped_s(*both),
        "timing.exposed_s": exposed_s(*both),
        "counts.share": share(a["share"], a["ranks"]),
        "offload.streamed_s": offload.streamed_s(a["compute_s"], a["traffic_s"], _streams(a), sem),
    }
    for name, row in schedule_rows().items():
        point = dataclasses.replace(_TEMPLATE, schedule=row, pipeline=a["pipeline"], virtual_stages=a["virtual_stages"])
        values[f"memory.in_flight:{name}"] = in_flight(point, a["microbatches"], a["remaining"], sem)
    return values


# price and power of hardware

_LAWS = {
    "flop_usd": "flop_per_s",
    "hbm_usd": "hbm_bytes",
    "hbm_rate_usd": "hbm_bytes_per_s",
    "scale_up_usd": "scale_up_bytes_per_s",
    "scale_out_usd": "scale_out_bytes_per_s",
    "second_memory_usd": "second_memory_bytes",
    "flop_w": "flop_per_s",
    "hbm_rate_w": "hbm_bytes_per_s",
    "scale_out_w": "scale_out_bytes_per_s",
}
_SOLD: dict[str, Range] = {
    "flop_per_s": (1e13, 1e16),
    "hbm_bytes": (1e10, 1e12),
    "hbm_bytes_per_s": (3e11, 3e13),
    "scale_up_bytes_per_s": (2e10, 2e12),
    "scale_out_bytes_per_s": (2e9, 2e11),
    "second_memory_bytes": (1e10, 1e12),
}
_FACTORS = ("server_factor", "server_draw_factor", "training_draw", "idle_draw", "facility_factor")
CURVES: dict[str, Range] = {
    **_SOLD,
    "accelerators": (8.0, 1e5),
    "idle": (0.01, 1.0),
    **{f"{law}.amount": (10.0, 1e4) for law in _LAWS},
    **{f"{law}.reference_{quantity}": _SOLD[quantity] for law, quantity in _LAWS.items()},
    **{f"{law}.exponent": (0.2, 1.5) for law in _LAWS},
    **dict.fromkeys(_FACTORS, (0.1, 2.0)),
}


def _curves(a: Args, sem: Semantics) -> Values:
    del sem
    laws = {
        law: curves.PowerLaw(
            amount=a[f"{law}.amount"], reference=a[f"{law}.reference_{quantity}"], exponent=a[f"{law}.exponent"]
        )
        for law, quantity in _LAWS.items()
    }
    found = curves.Curves(**laws, **{name: a[name] for name in _FACTORS})
    hardware = curves.Hardware(**{name: a[name] for name in _SOLD}, accelerators=a["accelerators"])
    return {
        "curves.capital_usd": curves.capital_usd(hardware, found),
        "curves.meter_w": curves.meter_w(hardware, found, a["idle"]),
        "curves.chip_usd": curves.chip_usd(hardware, found),
        "curves.chip_w": curves.chip_w(hardware, found),
    }


# the whole job: everything that needs a workload, a cluster and a point

TIERS = 3


def _job_sample(rng: np.random.Generator, n: int) -> dict[str, Array]:
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
    return workload, unflatten(_CLUSTER, a, "cluster"), unflatten(_TEMPLATE, a, "point")


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
        **_traffic(layer, point, cluster.stack, done.times.laws),
        "traffic.tiers_in_training": outer.oversubscription,
        "timing.issue_s": issue_s(layer, point, cluster.stack)[0],
        "timing.timing:ring": first.backward.ring_s,
        "timing.timing": first.forward_s + first.backward_s + first.weights.seconds,
        "roofline.block_times": first.forward.matmul_s,
        "pipeline.pipeline_s": done.step.passes_s,
        **{name: getattr(done.step.work, field) for name, field in _STEP.items()},
        **{f"offload.streams:{name}": getattr(done.times.streams, name) for name in _STREAMS},
        "optimizer.update_traffic_s": done.step.work.update_traffic_s,
        **{f"memory.stage_memory:{name}": getattr(held, name) for name in _HELD},
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


def _traffic(block: BlockCounts, point: PlanPoint, stack: Stack, laws: traffic.Laws) -> Values:
    """Traffic of one block and microbatch, before any overlap."""
    sync_s, context_s = traffic.sync_s(block, laws, stack), traffic.context_s(block, point, laws)
    sharded_s = traffic.sharded_s(block, point, laws)
    times = (*sync_s, *context_s, *sharded_s, traffic.tokens_s(block, laws, stack))
    return dict(zip(_TRAFFIC, times, strict=True))


_TRAFFIC = (
    "traffic.sync_s:forward", "traffic.sync_s:backward", "traffic.context_s:ring", "traffic.context_s:exchange",
    "traffic.sharded_s:gather", "traffic.sharded_s:reduce", "traffic.tokens_s",
)  # fmt: skip
_STEP = {
    "traffic.gradient_traffic_s": "gradient_traffic_s",
    "optimizer.optimizer_s": "optimizer_s",
    "optimizer.orthogonal_s": "orthogonal_s",
    "traffic.busiest_links_s": "links_s",
}
_STREAMS = ("reads_s", "weights_s", "activations_s")
_HELD = tuple(f.name for f in dataclasses.fields(StageMemory))

FAMILIES = {
    "network": Family(uniform(NETWORK), _network),
    "placement": Family(uniform(_PLACEMENT), _placement),
    "kernel": Family(uniform(KERNEL), _kernels),
    "small": Family(uniform(_SMALL), _small),
    "curves": Family(uniform(CURVES), _curves),
    "job": Family(_job_sample, lambda a, sem: job_values(*job_of(a), sem)),
    "report": Family(_job_sample, lambda a, sem: report_values(*job_of(a), sem)),
}

_LINK = {
    "unit": "_s",
    "rises": (
        "payload_bytes",
        "calls",
        "*latency_s",
        "collective_s",
        "collective_ramp",
        "chunk_fill",
        "*oversubscription",
    ),  # fmt: skip
    "falls": ("*_bytes_per_s", "*_ceiling"),
}
_PEAKS = ("peak_*bit_flop_per_s",)
_MATMUL = {
    "rises": (
        "work_flop",
        "operand_bytes",
        "weight_elements",
        "reciprocal_size",
        "*t_bytes",
        "operand_share",
        "casts",
        "cast_passes",
        "at_*bit",
        "*_size0",
        "kernel_s",
    ),
    "falls": (*_PEAKS, "hbm_bytes_per_s", "matmul_*ceiling", "hbm_ceiling"),
}
_ATTENTION = {
    "rises": (
        "work_flop",
        "operand_bytes",
        "score_*",
        "reciprocal_size",
        "activation_bytes",
        "uneven",
        "context_imbalance",
        "attention_*0",
        "kernel_s",
    ),
    "falls": (*_PEAKS, "hbm_bytes_per_s", "attention_ceiling", "hbm_ceiling"),
}
_STREAM = {"rises": ("operand_bytes", "unfused_touches", "kernel_s"), "falls": ("fused_kernels", "hbm_*")}
_SIZES = (*ARCHITECTURE, "key_value_heads", "batch")
_TIME = {
    "unit": "_s",
    "rises": (
        *_SIZES, "*.latency_s", "*.oversubscription", "*kernel_s", "*.routing_s", "*.microbatch_s", "*.step_s",
        "*.jitter_s", "*.update_passes", "*.cast_passes", "*.congestion", "*.collective_s", "*.chunk_fill",
        "*.collective_ramp", "*.tree_hop", "*_size0", "*.context_imbalance", "*.attention_backward_ratio",
        "*.unfused_touches", "*.contention", "*.regather_exposed", "point.gradient_bytes", "point.state_bytes",
        "point.precision.*_bytes", "point.precision.operand_share",
        "point.precision.casts", "point.zero.gathers*",
        "point.zero.reduces*", "point.recompute.*", "point.offload.*", "point.attention.score*", "point.optimizer.*",
    ),
    "falls": ("*_per_s", "*_ceiling", "*.in_network_reduction", "*.hide_*", "point.overlap.*", "point.fused_kernels"),
}  # fmt: skip
_MEMORY = {
    "unit": "_bytes",
    "rises": (
        *_SIZES, "cluster.stack.*_bytes", "*.fragmentation", "*.update_copies", "point.*_bytes", "point.microbatch",
        "point.recompute.keep*", "point.recompute.working*", "point.optimizer.*",
    ),
    "falls": ("point.sequence_parallel", "point.zero.gradients", "point.zero.states", "*_per_s"),
}  # fmt: skip
_SIZE_RISES = ("heads", "head_size", "key_value_heads", "sequence", "point.microbatch")
_SIZE_FALLS = ("point.context", "point.tensor", "point.sequence_parallel")
_UTILISATION = {"unit": "", "rises": _TIME["falls"][1:], "falls": _TIME["rises"][len(_SIZES) :]}

_NETWORK_ENTRIES = {
    "collectives.all_gather": Entry("network", **_LINK),
    "collectives.all_reduce": Entry("network", **_LINK | {"falls": (*_LINK["falls"], "*_in_network_reduction")}),
    "collectives.all_to_all": Entry("network", **_LINK),
    "collectives.neighbour": Entry("network", **_LINK | {"rises": (*_LINK["rises"], "*_ranks")}),
    "collectives.time_s": Entry("network", **_LINK),
    "collectives.blend": Entry("network", **_LINK),
    "collectives.repeat": Entry("network", **_LINK),
    "collectives.in_turn": Entry("network", **_LINK),
    "collectives.all_gather:by_tier": Entry("network", "_s_per_byte", ("*oversubscription",), _LINK["falls"]),
    "placement.ranks_by_tier:inner": Entry("placement", "", ("group", "domain"), ("stride",)),
    "placement.ranks_by_tier:middle": Entry("placement", "", ("group", "middle_size"), ("inner_size",)),
    "placement.ranks_by_tier:outer": Entry("placement", "", ("group", "stride", "inner_size"), ("domain", "middle_*")),
    "placement.ranks_by_tier:product": Entry("placement", "", ("group",)),
    "placement.domain_sizes:middle": Entry("placement", "", ("domain", "middle_size"), ("inner_size",)),
}
_KERNEL_ENTRIES = {
    "roofline.rates:matmul": Entry("kernel", "_s_per_flop", ("at_*bit",), (*_PEAKS, "matmul_*ceiling")),
    "roofline.rates:attention": Entry("kernel", "_s_per_flop", (), (*_PEAKS, "attention_ceiling")),
    "roofline.rates:memory": Entry("kernel", "_s_per_byte", (), ("hbm_*",)),
    "roofline.rates:update": Entry("kernel", "_s_per_flop", (), (*_PEAKS, "matmul_ceiling")),
    "roofline.matmul_roofs": Entry("kernel", "_s", **_MATMUL),
    "roofline.attention_roofs": Entry("kernel", "_s", **_ATTENTION),
    "roofline.memory_roofs": Entry("kernel", "_s", **_STREAM),
    "roofline.score_s": Entry("kernel", "_s", ("score_elements", "activation_bytes", "uneven"), ("hbm_*",)),
    "roofline.busiest": Entry("kernel", "", ("uneven", "context_imbalance")),
    "roofline.cast_s": Entry("kernel", "_s", ("operand_bytes", "cast*", "kernel_s"), ("activation_bytes", "hbm_*")),
    "roofline.matmul_s:product": Entry("kernel", "_s", **_MATMUL),
    "roofline.matmul_s:weights": Entry("kernel", "_s", **_MATMUL),
    "roofline.attention_s:forward": Entry("kernel", "_s", **_ATTENTION),
    "roofline.attention_s:backward": Entry("kernel", "_s", **_ATTENTION),
    "roofline.memory_s:forward": Entry("kernel", "_s", **_STREAM),
    "roofline.memory_s:backward": Entry("kernel", "_s", **_STREAM),
    "timing.overlapped_s": Entry("small", "_s", ("*_s", "contention"), ("share",)),
    "timing.exposed_s": Entry("small", "_s", ("traffic_s", "contention"), ("compute_s", "share")),
    "offload.streamed_s": Entry("small", "_s", ("*_s",), ("share",)),
    "counts.share": Entry("small", "", (), ("share", "ranks")),
    **{f"memory.in_flight:{name}": Entry("small", "", ("microbatches", "remaining", "pipeline")) for name in SCHEDULES},
}
_PRICE = {"unit": "", "rises": (*_SOLD, "*.amount", "server_factor"), "falls": ("*.reference*",)}
_POWER = {"unit": "", "rises": (*_SOLD, "*.amount", "*draw*", "facility_factor"), "falls": ("*.reference*",)}
_CURVES_ENTRIES = {
    "curves.capital_usd": Entry("curves", **_PRICE | {"rises": (*_PRICE["rises"], "accelerators")}),
    "curves.chip_usd": Entry("curves", **_PRICE),
    "curves.meter_w": Entry("curves", **_POWER | {"rises": (*_POWER["rises"], "accelerators")}),
    "curves.chip_w": Entry("curves", **_POWER),
}
_JOB_ENTRIES = {
    "counts.counts:flop": Entry("job", "", (*_SIZE_RISES, "ffn"), ("point.context", "point.tensor")),
    "counts.counts:parameters": Entry("job", "", ("heads", "head_size", "key_value_heads", "ffn"), ("point.tensor",)),
    "counts.counts:saved_bytes": Entry("job", "_bytes", (*_SIZE_RISES, "ffn", "*.activation_bytes"), _SIZE_FALLS),
    "counts.counts:boundary_bytes": Entry("job", "_bytes", (*_SIZE_RISES, "*.activation_bytes"), _SIZE_FALLS),
    "counts.counts:microbatches": Entry("job", "", ("batch", "point.tensor", "point.pipeline"), ("point.microbatch",)),
    **{name: Entry("job", **_TIME) for name in _TRAFFIC},
    "traffic.tiers_in_training": Entry("job", "", ("*.congestion",), ("*.scale_out_ceiling",)),
    "timing.issue_s": Entry("job", "_s", ("*.host_kernel_s", "point.precision.casts")),
    "timing.timing:ring": Entry("job", **_TIME),
    "timing.timing": Entry("job", **_TIME),
    "roofline.block_times": Entry("job", **_TIME),
    "pipeline.pipeline_s": Entry("job", **_TIME),
    **{name: Entry("job", **_TIME) for name in _STEP},
    **{f"offload.streams:{name}": Entry("job", **_TIME) for name in _STREAMS},
    "optimizer.update_traffic_s": Entry("job", **_TIME),
    **{f"memory.stage_memory:{name}": Entry("job", **_MEMORY) for name in _HELD},
    "memory.memory": Entry("job", **_MEMORY),
    "cost.cost:step_s": Entry("job", **_TIME),
    "cost.cost:peak_bytes": Entry("job", **_MEMORY),
    "breakdown.Breakdown:mfu": Entry("job", **_UTILISATION),
    "breakdown.Breakdown:tokens_per_s": Entry("job", "_per_s", _TIME["falls"], _UTILISATION["falls"]),
    "breakdown.breakdown:step_s": Entry("report", **_TIME),
    "breakdown.breakdown:hfu": Entry("report", "", _UTILISATION["rises"]),
}
REGISTRY: dict[str, Entry] = {**_NETWORK_ENTRIES, **_KERNEL_ENTRIES, **_CURVES_ENTRIES, **_JOB_ENTRIES}
