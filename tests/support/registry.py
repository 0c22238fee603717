"""Every public cost function, one entry each: how to call it with named numbers, and what it must do with each.

A family is one call that gives several values; its arguments are named scalars (or arrays) whose suffix is the SI unit.
An entry `module.function` or `module.function:value` is one of these values with its declared monotonicity. Tests go
over `REGISTRY`; `tests/formulas/test_form.py` checks that no public function of a formula module is missing.
"""

# pyright: reportArgumentType=false
import dataclasses
import fnmatch

from costmodel.inputs.schedules import SCHEDULES
from tests.support.families import (
    CURVES,
    KERNEL,
    NETWORK,
    PLACEMENT,
    SMALL,
    SOLD,
    Family,
    curve_values,
    kernel_values,
    network_values,
    placement_values,
    small_values,
    uniform,
)
from tests.support.jobs import (
    HELD,
    STEP,
    STREAMS,
    TRAFFIC,
    job_of,
    job_sample,
    job_values,
    report_values,
)
from tests.support.strategies import (
    ARCHITECTURE,
)


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


FAMILIES = {
    "network": Family(uniform(NETWORK), network_values),
    "placement": Family(uniform(PLACEMENT), placement_values),
    "kernel": Family(uniform(KERNEL), kernel_values),
    "small": Family(uniform(SMALL), small_values),
    "curves": Family(uniform(CURVES), curve_values),
    "job": Family(job_sample, lambda a, sem: job_values(*job_of(a), sem)),
    "report": Family(job_sample, lambda a, sem: report_values(*job_of(a), sem)),
}

_LINK = {
    "unit": "_s",
    "rises": (
        "payload_bytes",
        "calls",
        "*latency_s",
        "collective_s",
        "ring_step_s",
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
    "falls": (*_PEAKS, "sized_at_flop_per_s", "hbm_bytes_per_s", "matmul_*ceiling", "hbm_ceiling"),
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
        "*.sync_rank_s", "*.ring_step_s",
        "*.jitter_s", "*.update_passes", "*.cast_passes", "*.congestion", "*.collective_s", "*.chunk_fill",
        "*.collective_ramp", "*.tree_hop", "*.network_hop", "*_size0", "*.context_imbalance",
        "*.attention_backward_ratio",
        "*.unfused_touches", "*.contention", "*.regather_exposed", "point.gradient_bytes", "point.state_bytes",
        "point.precision.*_bytes", "point.precision.operand_share",
        "point.precision.casts", "point.zero.gathers*",
        "point.zero.reduces*", "point.recompute.*", "point.offload.weights", "point.offload.activations",
        "point.attention.score*", "point.optimizer.*",
    ),
    "falls": ("*_per_s", "*_ceiling", "*.in_network_reduction", "*.hide_*", "point.overlap.*", "point.fused_kernels"),
}  # fmt: skip
_MEMORY = {
    "unit": "_bytes",
    "rises": (
        *_SIZES, "cluster.stack.*_bytes", "*.fragmentation", "*.update_copies", "*.memory_margin",
        "point.*_bytes", "point.microbatch",
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
    "collectives.parted": Entry("network", **_LINK | {"rises": (*_LINK["rises"], "weight")}),
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
    "roofline.rates:fill": Entry("kernel", "_s_per_flop", ("at_*bit",), (*_PEAKS, "sized_at*", "matmul_*ceiling")),
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
    "pipeline.streamed_s": Entry("small", "_s", ("*_s",), ("share",)),
    "counts.share": Entry("small", "", (), ("share", "ranks")),
    **{f"memory.in_flight:{name}": Entry("small", "", ("microbatches", "remaining", "pipeline")) for name in SCHEDULES},
}
_PRICE = {"unit": "", "rises": (*SOLD, "*.amount", "server_factor"), "falls": ("*.reference*",)}
_POWER = {
    "unit": "",
    "rises": (*SOLD, "*.amount", "*draw*", "facility_factor"),
    "falls": ("*.reference*",),
}
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
    "counts.counts:boundary_bytes": Entry("job", "_bytes", (*_SIZE_RISES, "*.activation_bytes"), ("point.context",)),
    "counts.counts:microbatches": Entry("job", "", ("batch", "point.tensor", "point.pipeline"), ("point.microbatch",)),
    **{name: Entry("job", **_TIME) for name in TRAFFIC},
    "traffic.tiers_in_training": Entry("job", "", ("*.congestion",), ("*.scale_out_ceiling",)),
    "timing.issue_s": Entry("job", "_s", ("*.host_kernel_s", "point.precision.casts")),
    "timing.timing:ring": Entry("job", **_TIME),
    "timing.timing": Entry("job", **_TIME),
    "roofline.block_times": Entry("job", **_TIME),
    "pipeline.pipeline_s": Entry("job", **_TIME),
    **{name: Entry("job", **_TIME) for name in STEP},
    **{f"offload.streams:{name}": Entry("job", **_TIME) for name in STREAMS},
    "optimizer.update_traffic_s": Entry("job", **_TIME),
    **{f"memory.stage_memory:{name}": Entry("job", **_MEMORY) for name in HELD},
    "memory.memory": Entry("job", **_MEMORY),
    "cost.cost:step_s": Entry("job", **_TIME),
    "cost.cost:peak_bytes": Entry("job", **_MEMORY),
    "breakdown.Breakdown:mfu": Entry("job", **_UTILISATION),
    "breakdown.Breakdown:tokens_per_s": Entry("job", "_per_s", _TIME["falls"], _UTILISATION["falls"]),
    "breakdown.breakdown:step_s": Entry("report", **_TIME),
    "breakdown.breakdown:hfu": Entry("report", "", _UTILISATION["rises"]),
}
REGISTRY: dict[str, Entry] = {**_NETWORK_ENTRIES, **_KERNEL_ENTRIES, **_CURVES_ENTRIES, **_JOB_ENTRIES}
