"""Families of cost functions: one call each that gives several values, and random legal arguments for it."""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from costmodel.formulas import collectives, curves, pipeline, placement, roofline
from costmodel.formulas.counts import AttentionCount, MatmulCount, MemoryCount
from costmodel.formulas.held import share
from costmodel.formulas.memory import in_flight
from costmodel.formulas.timing import exposed_s, overlapped_s
from costmodel.inputs.embedding import embed
from costmodel.inputs.hardware import Accelerator, Tier
from costmodel.inputs.plan import Plan, PlanPoint
from costmodel.inputs.schedules import schedule_rows
from costmodel.inputs.stack import Stack
from costmodel.models.decoder import decoder
from costmodel.semantics import Semantics, total
from tests.support.strategies import (
    ACCELERATOR,
    STACK,
    TIER,
    Array,
    Range,
    draw,
)
from tests.support.trees import with_offload

TEMPLATE = with_offload(
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


def uniform(ranges: Mapping[str, Range]) -> Callable[[np.random.Generator, int], dict[str, Array]]:
    """A sampler of log-uniform independent arguments."""
    return lambda rng, n: draw(rng, ranges, n)


def _fields(cls: type, values: Mapping[str, Any], prefix: str = "", **others: Any) -> Any:
    names = [f.name for f in dataclasses.fields(cls) if f"{prefix}{f.name}" in values]
    return cls(**{name: values[f"{prefix}{name}"] for name in names}, **others)


# network: collectives, and ranks over tiers

_RANKS = {"inner_ranks": (1.05, 64.0), "middle_ranks": (1.05, 32.0), "outer_ranks": (1.05, 512.0)}
_NETWORK_STACK = (
    "link_ceiling", "network_ceiling", "peer_ceiling", "collective_s", "ring_step_s", "all_reduce_tree", "tree_hop",
    "network_hop", "collective_ramp", "chunk_fill",
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


def network_values(a: Args, sem: Semantics) -> Values:
    tiers = tuple(_fields(Tier, a, f"{where}_", name=where, size=1.0, usable_size=1.0) for where in _WHERE)
    ranks, stack = tuple(a[name] for name in _RANKS), _fields(Stack, a)
    laws = {
        name: getattr(collectives, name)(ranks, tiers, stack, sem)
        for name in ("all_gather", "all_reduce", "all_to_all", "neighbour")
    }
    mixed = collectives.blend(laws["all_gather"], laws["all_to_all"], a["weight"])
    again = collectives.repeat(laws["all_gather"], a["calls"])
    values = {f"collectives.{name}": _time(law, a, sem) for name, law in laws.items()}
    busy = total(law.by_tier[i] for law in laws.values() for i in range(3))
    return values | {
        "collectives.time_s": collectives.time_s(laws["all_gather"], a["payload_bytes"], sem),
        "collectives.blend": _time(mixed, a, sem),
        "collectives.repeat": _time(again, a, sem),
        "collectives.parted": _time(collectives.parted(laws["neighbour"], a["weight"], sem), a, sem),
        "collectives.in_turn": _time(collectives.in_turn(laws["all_gather"], laws["all_to_all"]), a, sem),
        "collectives.all_gather:by_tier": busy,
    }


def _time(law: collectives.Law, a: Args, sem: Semantics) -> Array:
    return collectives.time_s(law, a["payload_bytes"], sem, a["calls"])


PLACEMENT = {
    "group": (1.05, 1000.0),
    "stride": (1.05, 1000.0),
    "domain": (2.0, 72.0),
    "inner_size": (8.0, 72.0),
    "middle_size": (100.0, 1000.0),
}


def placement_values(a: Args, sem: Semantics) -> Values:
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
    "matmul_ceiling", "matmul_8bit_ceiling", "matmul_4bit_ceiling", "matmul_size0", "sized_at_flop_per_s",
    "attention_ceiling", "attention_backward_ratio", "attention_size0", "cast_passes", "context_imbalance",
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
        TEMPLATE.attention,
        flash=a["flash"],
        score_touches_forward=a["score_touches"],
        score_touches_backward=2 * a["score_touches"],
    )
    return dataclasses.replace(
        TEMPLATE,
        precision=dataclasses.replace(TEMPLATE.precision, **{k: v for k, v in a.items() if k in _PRECISION}),
        attention=attention,
        fused_kernels=a["fused_kernels"],
        gradient_bytes=a["gradient_bytes"],
    )


def kernel_values(a: Args, sem: Semantics) -> Values:
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
        "roofline.rates:fill": speed.matmul_fill_s_per_flop,
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

SMALL: dict[str, Range] = {
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


def _streams(a: Args) -> pipeline.Streams:
    zero = 0.0 * a["share"]
    return pipeline.Streams(
        **dict.fromkeys(("reads_s", "weights_s", "activations_s", "gradients_s", "sums_s"), zero),
        s_per_byte=zero,
        hidden=a["share"],
        layers=zero,
    )


def small_values(a: Args, sem: Semantics) -> Values:
    both = (a["compute_s"], a["traffic_s"], a["share"], a["contention"], sem)
    values = {
        "timing.overlapped_s": overlapped_s(*both),
        "timing.exposed_s": exposed_s(*both),
        "counts.share": share(a["share"], a["ranks"]),
        "pipeline.streamed_s": pipeline.streamed_s(a["compute_s"], a["traffic_s"], _streams(a), sem),
    }
    for name, row in schedule_rows().items():
        point = dataclasses.replace(TEMPLATE, schedule=row, pipeline=a["pipeline"], virtual_stages=a["virtual_stages"])
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
SOLD: dict[str, Range] = {
    "flop_per_s": (1e13, 1e16),
    "hbm_bytes": (1e10, 1e12),
    "hbm_bytes_per_s": (3e11, 3e13),
    "scale_up_bytes_per_s": (2e10, 2e12),
    "scale_out_bytes_per_s": (2e9, 2e11),
    "second_memory_bytes": (1e10, 1e12),
}
_FACTORS = ("server_factor", "server_draw_factor", "training_draw", "idle_draw", "facility_factor")
CURVES: dict[str, Range] = {
    **SOLD,
    "accelerators": (8.0, 1e5),
    "idle": (0.01, 1.0),
    **{f"{law}.amount": (10.0, 1e4) for law in _LAWS},
    **{f"{law}.reference_{quantity}": SOLD[quantity] for law, quantity in _LAWS.items()},
    **{f"{law}.exponent": (0.2, 1.5) for law in _LAWS},
    **dict.fromkeys(_FACTORS, (0.1, 2.0)),
}


def curve_values(a: Args, sem: Semantics) -> Values:
    del sem
    laws = {
        law: curves.PowerLaw(
            amount=a[f"{law}.amount"], reference=a[f"{law}.reference_{quantity}"], exponent=a[f"{law}.exponent"]
        )
        for law, quantity in _LAWS.items()
    }
    found = curves.Curves(**laws, **{name: a[name] for name in _FACTORS})
    hardware = curves.Hardware(**{name: a[name] for name in SOLD}, accelerators=a["accelerators"])
    return {
        "curves.capital_usd": curves.capital_usd(hardware, found),
        "curves.meter_w": curves.meter_w(hardware, found, a["idle"]),
        "curves.chip_usd": curves.chip_usd(hardware, found),
        "curves.chip_w": curves.chip_w(hardware, found),
    }
