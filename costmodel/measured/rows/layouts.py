"""The plan of a row: what it prints, what its words mean, and the habits of its software for the rest."""

import math
import re
from collections.abc import Mapping
from typing import Any

from costmodel.inputs import SOFTWARE, Habits, Plan
from costmodel.measured.rows.columns import UNFUSED_WORDS, Columns, RowError, software_words
from costmodel.measured.rows.records import Machine
from costmodel.measured.rows.stages import by_cost, stage_layers

OPEN_RECOMPUTE, OPEN_MICROBATCH, OPEN_LAYOUT = "recompute", "microbatch", "layout"
"""Marks of what a row does not print (`Case.open`)."""


def layout(
    columns: Columns,
    facts: Mapping[str, float],
    machine: Machine,
    software: str,
    habits: Habits,
    layers: int,
    batch: int,
) -> tuple[Plan, tuple[str, ...], tuple[str, ...]]:
    """The plan of a row, what was assumed for it, and the marks of what stays open.

    Not all rules of `violations` need to hold: `cost` is defined beside them too.
    """
    assumed: list[str] = []
    degrees = _degrees(columns, machine, batch, assumed)
    zero = _sharding(columns, facts, machine, software, degrees, assumed)
    micro = _microbatch(columns, degrees, software, zero["zero_stage"], batch, assumed)
    stages = _stages(columns, habits, degrees["pipeline"], layers, assumed)
    recompute, is_open = _recompute(columns, facts, habits, layers, degrees["pipeline"], assumed)
    number = _numbers(columns, facts, software, assumed)
    expert = _experts(columns, facts, degrees, assumed)
    overlap = _overlap(facts, habits)
    tensor = degrees["tensor"] > 1
    printed = columns.flag("sp")
    sequence_parallel = tensor and (habits.sequence_parallel if printed is None else printed)
    offload = _offload(facts, software)
    given: dict[str, Any] = degrees | zero | stages | recompute | number | expert | overlap | offload
    plan = Plan(
        **given,
        microbatch=micro,
        domain=machine.domain,
        sequence_parallel=sequence_parallel,
        fused_kernels=habits.fused_kernels,
    )
    unknown = {
        OPEN_RECOMPUTE: is_open,
        OPEN_MICROBATCH: columns.count("micro_batch") is None,
        OPEN_LAYOUT: columns.count("tp") is None and columns.count("pp") is None and plan.zero_stage < 3,
    }
    return plan, tuple(assumed), tuple(mark for mark, is_unknown in unknown.items() if is_unknown)


def _degrees(columns: Columns, machine: Machine, batch: int, assumed: list[str]) -> dict[str, int]:
    """Tensor, context, pipeline as printed, one where not; the rest of the accelerators are data ranks."""
    accelerators = columns.needed("gpus")
    tensor, context, pipeline = (columns.count(name) or 1 for name in ("tp", "cp", "pp"))
    missing = [name for name in ("tp", "pp") if columns.count(name) is None]
    printed = columns.count("dp") or 0
    if missing == ["tp"] and printed > 1 and accelerators % (context * pipeline * printed) == 0:
        tensor, missing = accelerators // (context * pipeline * printed), []
        assumed.append(f"tp {tensor}, what the other degrees leave")
    if missing:
        assumed.append(" ".join(f"{name} 1" for name in missing))
    data, rest = columns.count("dp"), tensor * context * pipeline
    if rest > accelerators:
        raise RowError(f"`tp` x `cp` x `pp` is {rest}; expected at most the {accelerators} of `gpus`")
    if data is None or data * rest != accelerators:
        if data is not None:
            assumed.append(f"{accelerators // rest} data ranks, because tp x cp x pp x dp is not gpus")
        data = max(1, accelerators // rest)
    if batch < data and data % batch == 0 and "cp" not in missing:
        context, data = context * (data // batch), batch
        assumed.append(f"context {context}: there are fewer sequences than ranks")
    return {"tensor": tensor, "context": context, "pipeline": pipeline, "data": data}


# The first pattern that is found in the cell: ZeRO stage.
_ZERO = (
    (r"zero-?\s*0|^0$|^none|^ddp$|^dp$", 0),
    (r"zero-?\s*2|shard_grad_op", 2),
    (r"zero-?\s*1|^1$|distributed ?optimizer", 1),
    (r"zero-?\s*3|fsdp|hsdp|full_shard", 3),
)


def _sharding(
    columns: Columns,
    facts: Mapping[str, float],
    machine: Machine,
    software: str,
    degrees: Mapping[str, int],
    assumed: list[str],
) -> dict[str, Any]:
    """ZeRO's stage and the ranks that share weights."""
    cell = columns.text("zero_stage_or_fsdp").lower()
    stage = next((stage for pattern, stage in _ZERO if re.search(pattern, cell)), None)
    if stage is None:
        stage = max(SOFTWARE[software].zero_stage, int(facts.get("optimizer_sharded", 0.0)))
        assumed.append(f"ZeRO {stage}")
    if stage == 2 and degrees["pipeline"] > 1:
        assumed.append("gradients reduced once a step")  # which `ZeroRow.under` does
    if stage == 3 and degrees["pipeline"] > 1 and software == "fsdp":
        stage = 1  # torchtitan's default (`reshard_after_forward_policy`), so that no microbatch gathers again
        assumed.append("weights stay gathered under the pipeline")
    ranks = degrees["data"] * degrees["context"]
    if stage == 0:
        return {"zero_stage": 0}
    shard = _shard(cell, machine, degrees, ranks)
    return {"zero_stage": stage, "data_shard": shard if 0 < shard < ranks and ranks % shard == 0 else None}


def _shard(cell: str, machine: Machine, degrees: Mapping[str, int], ranks: int) -> int:
    """Ranks that share weights, as the cell prints them; over a slice of a torus, or a node of hybrid sharding."""
    printed = re.search(r"group (\d+)|over (\d+) gpus|fsdp (\d+)|ici=(\d+)|x (\d+)-way fsdp", cell)
    if printed and "1" not in printed.groups():
        return int(next(group for group in printed.groups() if group))
    if "hsdp" in cell:
        return machine.domain // degrees["tensor"]
    if machine.slice_size < math.prod(degrees.values()):
        return machine.slice_size // (degrees["tensor"] * degrees["pipeline"])
    return ranks


def _microbatch(
    columns: Columns, degrees: Mapping[str, int], software: str, zero: int, batch: int, assumed: list[str]
) -> int:
    """Sequences of a microbatch as printed; open: all of the rank under FSDP, else 4 (C: Narayanan's table 1), piped 1.

    torchtitan makes as many microbatches as there are stages (K: its `pipeline_parallel_microbatches`).
    """
    own = max(1, batch // degrees["data"])
    printed = columns.count("micro_batch")
    if printed is None:
        alone = own if zero == 3 else min(4, own)
        piped = max(1, own // degrees["pipeline"]) if software == "fsdp" else 1
        printed = alone if degrees["pipeline"] == 1 else piped
        assumed.append(f"microbatch {printed}")
    if printed > own:
        assumed.append(f"microbatch {own}: a rank has no more sequences")
    return min(printed, own)


def _stages(columns: Columns, habits: Habits, pipeline: int, layers: int, assumed: list[str]) -> dict[str, Any]:
    """Virtual stages, and layers of each stage where they do not divide, or where the software weighs the head."""
    virtual, chosen = columns.count("vpp"), dict[str, Any]()
    if virtual is None and "interleaved" in columns.text("notes").lower() and layers % (2 * pipeline) == 0:
        virtual = 2
        assumed.append("2 virtual stages: interleaved, how many is not printed")
    virtual = virtual or 1
    if pipeline > 1 and virtual > 1:
        chosen |= {"virtual_stages": virtual, "schedule": "interleaved"}
    if habits.weighs_head and pipeline > 1:
        chosen["stage_layers"] = by_cost(layers, pipeline, _head_in_layers(columns))
        assumed.append("stages by cost, the head among them")
    elif pipeline > layers:
        raise RowError(f"`pp` is {pipeline}; expected at most the {layers} layers")
    elif layers % pipeline:
        chosen["stage_layers"] = stage_layers(layers, pipeline)
        assumed.append("uneven stages")
    return chosen


def _recompute(
    columns: Columns, facts: Mapping[str, float], habits: Habits, layers: int, pipeline: int, assumed: list[str]
) -> tuple[dict[str, Any], bool]:
    """Mode and share, and whether the row leaves it open."""
    cell = columns.text("recompute").lower()
    if not cell:
        if habits.recompute is not None:
            assumed.append(f"recompute {habits.recompute}")
        return {"recompute": habits.recompute or "none"}, True
    if cell not in ("none", "selective", "full"):
        raise RowError(f"`recompute` is {cell!r}; expected none, selective, full or nothing")
    if cell == "selective":
        return selective(facts), False
    if cell == "full" and "recompute_layers" in facts:
        virtual = columns.count("vpp") or 1
        share = min(1.0, facts["recompute_layers"] * pipeline * virtual / layers)
        return {"recompute": "full", "recompute_share": share}, False
    return {"recompute": cell}, False


def selective(facts: Mapping[str, float]) -> dict[str, Any]:
    """Every second layer where the notes say so; else what the software calls selective."""
    if facts.get("selective_layers"):
        return {"recompute": "full", "recompute_share": 0.5}
    return {"recompute": "selective"}


def _offload(facts: Mapping[str, float], software: str) -> dict[str, float]:
    """An optimizer in the host's memory; DeepSpeed keeps the gradients beside it (K: ZeRO-Offload)."""
    if not facts.get("host_optimizer"):
        return {}
    return {"offload_optimizer": 1.0, "offload_gradients": float(software == "deepspeed")}


_PRECISIONS = (
    ("nvfp4", "nvfp4"),
    ("mxfp8", "mxfp8"),
    ("fp8", "fp8_tensor"),
    ("int8", "fp8_tensor"),
    ("bf16", "bf16"),
    ("fp16", "fp16"),
    ("fp32", "fp32"),
    ("tf32", "fp32"),
)


def _numbers(columns: Columns, facts: Mapping[str, float], software: str, assumed: list[str]) -> dict[str, Any]:
    """The formats of numbers, and how attention is computed."""
    cell = columns.text("precision").lower()
    precision = next((name for word, name in _PRECISIONS if word in cell), None)
    if cell and precision is None:
        raise RowError(f"`precision` is {cell!r}; expected one of {', '.join(word for word, _ in _PRECISIONS)}")
    if precision is None:
        assumed.append("bf16")
    gradient = "bf16" if own_zero(columns, facts, software) else SOFTWARE[software].gradient_dtype
    return {
        "precision": precision or "bf16",
        "attention": _attention(columns, facts),
        "gradient_dtype": "fp32" if facts.get("wide_gradients") else gradient,
        "loss": "chunked" if facts.get("chunked_loss") else "usual",
        "master_weights": not facts.get("pure_narrow"),
    }


def _attention(columns: Columns, facts: Mapping[str, float]) -> str:
    """The kernel that the row names; fused where it names none."""
    if facts.get("framework_attention"):
        return "framework"
    cell = columns.text("flash_attention").lower()
    if cell in UNFUSED_WORDS:
        return "unfused"
    if facts.get("first_flash"):
        return "flash_1"
    return next((name for pattern, name in _KERNELS if re.search(pattern, cell)), "flash")


# the first pattern that the cell holds: the latest kernels of a die, FlashAttention-2; else what the software calls
_KERNELS = (
    (r"(fa|flash[-_ ]?attention|flash)[-_ v]*[34]|^[34]$|cudnn|\bte\b|transformer[- ]engine|splash|pallas", "flash_3"),
    (r"(fa|flash[-_ ]?attention|flash)[-_ v]*2|^2(\.0)?$|sdpa|triton", "flash_2"),
)


def own_zero(columns: Columns, facts: Mapping[str, float], software: str) -> bool:
    """Software that names its ZeRO stage and is no Megatron: as DeepSpeed, gradients in the weights' own type."""
    cell = columns.text("zero_stage_or_fsdp").lower()
    named = "zero-1" in cell and "megatron" not in software_words(columns.row)
    return software == "megatron-2022" and (named or bool(facts.get("optimizer_sharded")))


def _experts(
    columns: Columns, facts: Mapping[str, float], degrees: Mapping[str, int], assumed: list[str]
) -> dict[str, int]:
    """Ranks over which experts are divided. Undivided, each is shared by the tensor ranks (K: Megatron-Core's default
    `expert_tensor_parallel_size`); divided, each is whole on its rank (its recipes)."""
    experts, ranks = columns.count("experts"), degrees["tensor"] * degrees["context"] * degrees["data"]
    if not experts:
        return {}
    printed = columns.count("ep")
    if printed == 1 and facts.get("fast_dispatcher"):
        printed = None  # a dispatcher between ranks that hold different experts
    expert = printed or next(n for n in range(min(experts, ranks), 0, -1) if experts % n == 0 and ranks % n == 0)
    if printed is None:
        assumed.append(f"experts over {expert} ranks")
    while ranks % expert or expert > experts:
        expert -= 1
    if printed and expert != printed:
        assumed.append(f"experts over {expert} ranks: {printed} does not divide them")
    return {"expert": expert, "expert_tensor": degrees["tensor"] if expert == 1 else 1}


def _overlap(facts: Mapping[str, float], habits: Habits) -> dict[str, bool]:
    if facts.get("no_overlap"):
        return dict.fromkeys(("overlap_data", "overlap_tensor", "overlap_pipeline", "overlap_expert"), False)
    return {
        "overlap_data": bool(facts.get("overlap_data", habits.overlap_data)) and not facts.get("no_overlap_data"),
        "overlap_tensor": bool(facts.get("async_tp", habits.overlap_tensor)),
        "overlap_pipeline": bool(facts.get("overlap_pipeline", habits.overlap_pipeline)),
        "overlap_expert": bool(facts.get("overlap_expert", 0.0)),
    }


def _head_in_layers(columns: Columns) -> float:
    """Cost of the head over that of a layer: $V h / (4 h^2 + 3 h f)$, as nanotron weighs its blocks."""
    hidden = columns.needed("hidden")
    return (columns.count("vocab") or 0) / (4 * hidden + 3 * columns.needed("ffn_hidden"))
