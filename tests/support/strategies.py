"""Random inputs over the legal domain: batches for vectorised tests, and the same ranges as hypothesis strategies.

Every physical quantity is log-uniform. Batches are drawn from a seeded generator: arrays of `n` values in every leaf.
"""

import dataclasses
from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import Any

import numpy as np
from hypothesis import strategies as st

from costmodel.inputs import options
from costmodel.inputs.cluster import Cluster
from costmodel.inputs.hardware import Accelerator, Tier
from costmodel.inputs.plan import Offload, PlanPoint
from costmodel.inputs.schedules import SCHEDULES, schedule_rows
from costmodel.inputs.stack import Stack
from costmodel.inputs.workload import Workload
from costmodel.models.decoder import decoder

Array = Any
Range = tuple[float, float]

PEAKS = {f"peak_{bits}bit_flop_per_s": (1e13, 1e16) for bits in (32, 16, 8, 4)}
ACCELERATOR: dict[str, Range] = {**PEAKS, "hbm_bytes": (1e10, 1e12), "hbm_bytes_per_s": (3e11, 3e13)}
SECOND_MEMORY: dict[str, Range] = {
    "second_memory_bytes": (1e10, 1e13),
    "second_memory_bytes_per_s": (1e10, 1e12),
    "host_bytes_per_s": (1e10, 1e12),
}
TIER: dict[str, Range] = {
    "bandwidth_bytes_per_s": (2e9, 2e12),
    "latency_s": (1e-7, 1e-4),
    "oversubscription": (1.0, 8.0),
    "in_network_reduction": (1e-2, 1.0),
}
STACK: dict[str, Range] = {
    "matmul_ceiling": (0.3, 1.0),
    "matmul_8bit_ceiling": (0.3, 1.0),
    "matmul_4bit_ceiling": (0.3, 1.0),
    "matmul_size0": (10.0, 1000.0),
    "sized_at_flop_per_s": (1e13, 1e16),
    "attention_ceiling": (0.2, 1.0),
    "attention_backward_ratio": (2.0, 4.0),
    "attention_size0": (50.0, 5000.0),
    "context_imbalance": (1e-2, 1.0),
    "unfused_touches": (1.0, 4.0),
    "cast_passes": (0.1, 1.0),
    "hbm_ceiling": (0.3, 1.0),
    "kernel_s": (1e-7, 1e-4),
    "host_kernel_s": (1e-7, 1e-4),
    "sync_rank_s": (1e-7, 1e-3),
    "routing_s": (1e-7, 1e-3),
    "microbatch_s": (1e-5, 1e-1),
    "step_s": (1e-4, 1e-1),
    "jitter_s": (1e-5, 1e-1),
    "update_passes": (1.0, 4.0),
    "link_ceiling": (0.3, 1.0),
    "scale_up_ceiling": (0.3, 1.0),
    "network_ceiling": (0.3, 1.0),
    "peer_ceiling": (0.3, 1.0),
    "scale_out_ceiling": (0.3, 1.0),
    "congestion": (1e-3, 0.3),
    "collective_s": (1e-7, 1e-3),
    "ring_step_s": (1e-7, 1e-4),
    "all_reduce_tree": (1e-2, 1.0),
    "tree_hop": (1.0, 50.0),
    "network_hop": (1.0, 50.0),
    "collective_ramp": (1e-2, 5.0),
    "chunk_fill": (1e-2, 1.0),
    "contention": (1e-2, 1.0),
    "regather_exposed": (1e-2, 1.0),
    "hide_tensor": (1e-2, 1.0),
    "hide_context": (1e-2, 1.0),
    "hide_expert": (1e-2, 1.0),
    "hide_data": (1e-2, 1.0),
    "hide_pipeline": (1e-2, 1.0),
    "context_bytes": (1e8, 1e10),
    "workspace_bytes": (1e8, 1e10),
    "communicator_bytes": (1e7, 1e9),
    "fragmentation": (1e-2, 0.3),
    "logit_bytes": (2.0, 16.0),
    "update_copies": (1e-2, 1.0),
    "hide_offload": (1e-2, 1.0),
    "host_ceiling": (1e-2, 1.0),
    "memory_log_sd": (1e-2, 0.3),
    "memory_margin": (1.0, 1.5),
}
ARCHITECTURE: dict[str, Range] = {
    "layers": (1, 200),
    "heads": (4, 256),
    "head_size": (32, 256),
    "ffn": (1024, 131072),
    "vocabulary": (2000, 300000),
    "sequence": (128, 1048576),
}
DOMAINS = (8.0, 8.0, 64.0, 72.0)  # sizes of the innermost tier
DEGREES = (1, 1, 2, 3, 4, 6, 8, 16)
TABLES: dict[str, Mapping[Any, Any]] = {
    "schedule": schedule_rows(),
    "zero": options.ZERO_STAGES,
    "recompute": options.RECOMPUTES,
    "precision": options.PRECISIONS,
    "optimizer": options.OPTIMIZERS,
    "attention": options.ATTENTIONS,
}


def double() -> AbstractContextManager[None]:
    """JAX in float64 inside a `with`; the name of the switch moved between the versions supported."""
    import jax

    if hasattr(jax, "enable_x64"):
        return jax.enable_x64(True)
    from jax.experimental import enable_x64  # pyright: ignore[reportAttributeAccessIssue]

    return enable_x64()


def log_uniform(rng: np.random.Generator, bounds: Range, n: int) -> Array:
    """`n` draws, uniform in the logarithm."""
    return np.exp(rng.uniform(np.log(bounds[0]), np.log(bounds[1]), n))


def draw(rng: np.random.Generator, ranges: Mapping[str, Range], n: int) -> dict[str, Array]:
    """One batch for each name."""
    return {name: log_uniform(rng, bounds, n) for name, bounds in ranges.items()}


def cluster_batch(rng: np.random.Generator, n: int, tiers: int = 2) -> Cluster:
    """Clusters with innermost domains of 8, 64 and 72, then 16 of those, then everything. `accelerators` is nominal."""
    inner = rng.choice(DOMAINS, n)
    sizes = (inner, 16 * inner, np.full(n, 1e6))[-tiers:] if tiers == 3 else (inner, np.full(n, 1e6))
    found = Cluster(
        name="random",
        accelerator=Accelerator(name="random", **draw(rng, ACCELERATOR, n)),
        tiers=tuple(
            Tier(name=f"tier{i}", size=size, usable_size=size, **draw(rng, TIER, n)) for i, size in enumerate(sizes)
        ),
        accelerators=np.full(n, 1e6),
        stack=Stack(name="random", **draw(rng, STACK, n)),
    )
    second = dataclasses.replace(found.accelerator, **draw(rng, SECOND_MEMORY, n))
    return dataclasses.replace(found, accelerator=second)


def workload_batch(rng: np.random.Generator, n: int, batch: Array, least_layers: Array = 1.0, **flags: Any) -> Workload:
    """Random decoders. `least_layers` by plan, so that no stage is without."""
    sizes = sizes_batch(rng, n, least_layers)
    return decoder(hidden=sizes["heads"] * sizes["head_size"], batch=batch, **sizes, **flags)


def sizes_batch(rng: np.random.Generator, n: int, least_layers: Array = 1.0) -> dict[str, Array]:
    """Random whole sizes of decoders, with fewer key-value heads than heads."""
    sizes = {name: np.round(values) for name, values in draw(rng, ARCHITECTURE, n).items()}
    sizes["layers"] = np.maximum(sizes["layers"], np.ceil(least_layers))
    sizes["key_value_heads"] = np.ceil(sizes["heads"] / rng.choice([1.0, 4.0, 8.0], n))
    return sizes


def rows_batch(table: Mapping[Any, Any], chosen: Array) -> Any:
    """Rows of one table, one for each index, as arrays in the fields."""
    rows = list(table.values())
    fields = [f.name for f in dataclasses.fields(rows[0])]
    return type(rows[0])(**{name: np.array([getattr(row, name) for row in rows])[chosen] for name in fields})


def _rows_named(table: Mapping[Any, Any], names: Array) -> Any:
    return rows_batch(table, np.array([list(table).index(name) for name in names]))


def mix_rows(rng: np.random.Generator, table: Mapping[Any, Any], n: int, mixed: bool) -> Any:
    """Random rows; where `mixed`, random mixtures of two."""
    first, second = (rows_batch(table, rng.integers(len(table), size=n)) for _ in range(2))
    weight = rng.uniform(0, 1, n) * mixed
    fields = [f.name for f in dataclasses.fields(first)]
    return type(first)(**{k: (1 - weight) * getattr(first, k) + weight * getattr(second, k) for k in fields})


def _microbatches(rng: np.random.Generator, names: Array, pipeline: Array, n: int) -> Array:
    """What each schedule needs: H1 at least as many as stages, H2 nearly twice, V twice, interleaved a multiple."""
    free = np.round(log_uniform(rng, (1, 256), n))
    least = np.select(
        [names == name for name in SCHEDULES], [s.least_microbatches(pipeline) for s in SCHEDULES.values()]
    )
    multiple = pipeline * np.ceil(free / pipeline)
    return np.where(names == "interleaved", multiple, np.maximum(free, least))


def point_batch(
    rng: np.random.Generator, n: int, *, mixed: bool = False, relaxed: bool = False, uneven: bool = False
) -> tuple[PlanPoint, Array]:
    """Legal points over all option rows, and the global batch of each. `relaxed` degrees lie between the integers.

    Schedules are never mixed: their legal numbers of microbatches differ.
    """
    degrees = {
        name: rng.choice(DEGREES, n).astype(float) for name in ("tensor", "context", "pipeline", "inner", "outer")
    }
    if relaxed:
        degrees = {name: degree * rng.uniform(1.05, 1.9, n) for name, degree in degrees.items()}
    tensor, context, pipeline, inner, outer = degrees.values()
    data, microbatch = inner * outer, rng.choice([1.0, 2.0, 4.0], n) * (rng.uniform(1, 1.9, n) if relaxed else 1.0)
    names = rng.choice(list(SCHEDULES), n)
    several = _rows_named(schedule_rows(), names)
    names[(several.interleaves + several.both_ways > 0) & (pipeline < 1.99)] = "one_f_one_b"
    microbatches = _microbatches(rng, names, pipeline, n) * (rng.uniform(1.01, 1.5, n) if relaxed else 1.0)
    tables = {name: mix_rows(rng, table, n, mixed) for name, table in TABLES.items() if name != "schedule"}
    sharded = np.where(rng.random(n) < 0.5, inner, data) * context
    sharded = np.maximum(1.01, data * context * rng.uniform(0.5, 0.95, n)) if relaxed else sharded  # one rank or more
    switches = {name: rng.integers(2, size=n).astype(float) for name in _SWITCHES}
    overlap = options.OverlapRow(**{f.name: switches.pop(f.name) for f in dataclasses.fields(options.OverlapRow)})
    extra = _uneven_layers(rng, pipeline * np.isin(names, ("gpipe", "one_f_one_b")), n) if uneven else {}
    point = PlanPoint(
        accelerators=tensor * context * data * pipeline,
        tensor=tensor,
        context=context,
        pipeline=pipeline,
        virtual_stages=np.where(names == "interleaved", rng.choice([2.0, 3.0, 4.0], n), 1.0),
        microbatch=microbatch,
        domain=rng.choice([4.0, 8.0], n),
        copies=data * context / sharded,
        gradient_bytes=rng.choice([2.0, 4.0], n),
        state_bytes=rng.choice([1.0, 2.0, 4.0], n),
        schedule=_rows_named(schedule_rows(), names),
        overlap=overlap,
        **switches,
        **tables,
        **extra,
        offload=Offload(**{f.name: _shares(rng, n) for f in dataclasses.fields(Offload)}),
    )
    return point, microbatches * data * microbatch


_SWITCHES = ("sequence_parallel", "context_ring", "fused_kernels", "tensor", "context", "data", "pipeline", "expert")


def _shares(rng: np.random.Generator, n: int) -> Array:
    """Half of them nothing, the others anything up to all."""
    return rng.integers(2, size=n) * np.minimum(1.0, rng.uniform(0, 1.2, n))


def _uneven_layers(rng: np.random.Generator, pipeline: Array, n: int) -> dict[str, Array]:
    """Fewer layers on the first and the last stage, and so more on the others."""
    less = rng.integers(3, size=(2, n)) * (pipeline > 2)
    more = (less[0] + less[1]) / np.maximum(pipeline - 2, 1)
    return {"extra_layers_first": -1.0 * less[0], "extra_layers_last": -1.0 * less[1], "extra_layers_middle": more}


def quantities(bounds: Range) -> st.SearchStrategy[float]:
    """One log-uniform positive quantity."""
    return st.floats(np.log(bounds[0]), np.log(bounds[1])).map(lambda x: float(np.exp(x)))


def named(ranges: Mapping[str, Range]) -> st.SearchStrategy[dict[str, float]]:
    """One quantity for each name."""
    return st.fixed_dictionaries({name: quantities(bounds) for name, bounds in ranges.items()})
