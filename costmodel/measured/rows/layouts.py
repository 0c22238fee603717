"""The plan of a row: what it prints, what its words mean, and the habits of its software for the rest."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from costmodel.inputs import SCHEDULES, SOFTWARE, Habits, Plan
from costmodel.measured.rows.choices import attention, dispatcher, folded, of_update, precision, recompute, schedule
from costmodel.measured.rows.columns import Columns, RowError, software_words
from costmodel.measured.rows.degrees import degrees_of, is_printed, printed_microbatch
from costmodel.measured.rows.records import Machine
from costmodel.measured.rows.sharding import own_zero, sharding
from costmodel.measured.rows.words import clauses, meanings, named

OPEN_RECOMPUTE, OPEN_MICROBATCH, OPEN_LAYOUT, OPEN_PRECISION = "recompute", "microbatch", "layout", "precision"
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
    degrees = degrees_of(columns, facts, machine.domain, batch, assumed)
    zero = sharding(columns, facts, machine, software, degrees, assumed)
    micro = _microbatch(columns, facts, degrees, software, zero["zero_stage"], batch, assumed)
    stages = _stages(columns, facts, habits, degrees["pipeline"], layers, assumed)
    mode, is_open = recompute(columns, facts, habits, layers, degrees["pipeline"], assumed)
    number = _numbers(columns, facts, software, machine, assumed)
    expert = _experts(columns, facts, degrees, assumed)
    overlap = _overlap(facts, habits)
    tensor = degrees["tensor"] > 1
    printed = columns.flag("sp")
    printed = facts.get("sequence_parallel", habits.sequence_parallel) if printed is None else printed
    offload = _offload(facts, software)
    given: dict[str, Any] = degrees | zero | stages | mode | number | expert | overlap | offload
    plan = Plan(
        **given,
        microbatch=micro,
        domain=machine.domain,
        sequence_parallel=tensor and bool(printed) and not facts.get("whole_sequences"),
        fused_kernels=habits.fused_kernels,
    )
    unknown = {
        OPEN_RECOMPUTE: is_open,
        OPEN_MICROBATCH: "accumulation" not in facts and not printed_microbatch(columns, facts, plan.pipeline),
        OPEN_PRECISION: f"{plan.precision}" in assumed,
        OPEN_LAYOUT: not is_printed(columns, facts)
        and (plan.zero_stage < 3 or _is_withheld(columns, machine, assumed)),
    }
    return plan, tuple(assumed), tuple(mark for mark, is_unknown in unknown.items() if is_unknown)


_WITHHELD = re.compile(
    r"\b(?:layout|plan|strategy|parallel\w*|degrees?)\b.*\b(?:not|un|never)[\s-]?(?:\w+ )?"
    r"(?:printed|given|stated|listed|published|disclosed|known|specified|reported)\b"
)


def _is_withheld(columns: Columns, machine: Machine, assumed: Sequence[str]) -> bool:
    """Whether notes say that the layout is told nowhere, of GPUs whose sharding only the software's habit tells."""
    is_habit = "ZeRO 3" in assumed and machine.family not in ("tpu", "trainium")
    return is_habit and any(_WITHHELD.search(clause) for clause in clauses(columns.text("notes")))


def _microbatch(
    columns: Columns,
    facts: Mapping[str, float],
    degrees: Mapping[str, int],
    software: str,
    zero: int,
    batch: int,
    assumed: list[str],
) -> int:
    """Sequences of a microbatch as printed; open: all of the rank under FSDP, else 4 (C: Narayanan's table 1), piped 1.

    torchtitan makes as many microbatches as there are stages (K: its `pipeline_parallel_microbatches`).
    """
    own = max(1, batch // degrees["data"])
    printed = printed_microbatch(columns, facts, degrees["pipeline"])
    if printed is None and facts.get("accumulation"):
        printed = max(1, round(own / facts["accumulation"]))
    if printed is None:
        alone = own if zero == 3 else min(4, own)
        piped = max(1, own // degrees["pipeline"]) if software == "fsdp" else 1
        printed = alone if degrees["pipeline"] == 1 else piped
        assumed.append(f"microbatch {printed}")
    if printed > own:
        assumed.append(f"microbatch {own}: a rank has no more sequences")
    return min(printed, own)


def _stages(
    columns: Columns, facts: Mapping[str, float], habits: Habits, pipeline: int, layers: int, assumed: list[str]
) -> dict[str, Any]:
    """Schedule, virtual stages, and layers of each stage where they do not divide, or the software weighs the head."""
    chosen = _schedule(columns, facts, pipeline, layers, assumed)
    if habits.weighs_head and pipeline > 1:
        chosen["stage_layers"] = by_cost(layers, pipeline, _head_in_layers(columns))
        assumed.append("stages by cost, the head among them")
    elif pipeline > layers:
        raise RowError(f"`pp` is {pipeline}; expected at most the {layers} layers")
    elif layers % pipeline:
        chosen["stage_layers"] = stage_layers(layers, pipeline)
        assumed.append("uneven stages")
    return chosen


def _schedule(
    columns: Columns, facts: Mapping[str, float], pipeline: int, layers: int, assumed: list[str]
) -> dict[str, Any]:
    """The schedule that the row names, and its virtual stages."""
    virtual, named = columns.count("vpp") or int(facts.get("virtual_stages", 0)) or None, schedule(columns)
    if pipeline == 1:
        return {}
    if virtual is None and facts.get("virtual_layers"):
        virtual = max(1, round(layers / (pipeline * facts["virtual_layers"])))
    if virtual is None and named == "interleaved" and facts.get("stage_layers"):
        virtual = max(1, round(layers / (pipeline * facts["stage_layers"])))
    if virtual is None and named == "interleaved":
        most = layers // pipeline
        even = next((v for v in range(2, most + 1) if layers % (v * pipeline) == 0), None)
        virtual = even or (2 if most > 1 else None)
        if virtual is not None:
            assumed.append(f"{virtual} virtual stages: interleaved, how many is not printed")
    if named == "zb_v" and folded(columns):
        assumed.append("time as ZB-V's, whose bubbles are fewer")
    if named is not None and not SCHEDULES[named].interleaves and named != "one_f_one_b":
        return {"schedule": named}
    return {"virtual_stages": virtual, "schedule": "interleaved"} if (virtual or 1) > 1 else {}


def _offload(facts: Mapping[str, float], software: str) -> dict[str, float]:
    """An optimizer in the host's memory; DeepSpeed keeps the gradients beside it (K: ZeRO-Offload). Weights too."""
    with_weights = facts.get("offloaded_weights") or (software == "fsdp" and facts.get("offloaded_all"))
    weights = {"offload_weights": 1.0} if with_weights else {}  # K: PyTorch's `CPUOffload` is of both
    if not facts.get("host_optimizer"):
        return weights
    share = min(1.0, facts.get("offload_share", 1.0))
    return {"offload_optimizer": share, "offload_gradients": share * float(software == "deepspeed")} | weights


def _numbers(
    columns: Columns, facts: Mapping[str, float], software: str, machine: Machine, assumed: list[str]
) -> dict[str, Any]:
    """The formats of numbers, which of them are kept, and how attention and the loss are computed."""
    products = precision(columns, machine.family, machine.cluster.accelerator.types, assumed)
    usual = "deepspeed" if own_zero(columns, facts, software) else _named_software(columns, software)
    is_narrow = bool(facts.get("pure_narrow")) and not facts.get("wide_masters")
    update = of_update(columns, "bf16" if is_narrow else SOFTWARE[usual].gradients_in(products), is_narrow)
    if products == update["gradient_dtype"] == "fp16":
        assumed.append("gradients in fp16")
    return {
        "precision": products,
        "attention": attention(columns, facts, machine.family),
        "loss": _loss(facts, software),
        "master_weights": not is_narrow,
        "context_kind": "all_to_all" if facts.get("whole_heads") else "ring",
    } | update


def _named_software(columns: Columns, software: str) -> str:
    """The class whose formats of gradients a row has, by what it names: Megatron-LM and what starts it add them up as
    that of 2022 on new hardware too (K: its `arguments.py`), recipes of NeMo and Megatron-Bridge in 16 bits."""
    name = named(software_words(columns.row), meanings.SOFTWARE_NAMES) if software == "megatron-core" else None
    return str(name or software)


def _loss(facts: Mapping[str, float], software: str) -> str:
    """Chunked, in one kernel or as the software has it. Megatron's own fusion is as its class has it (`LOSSES`), but
    where it calls Transformer Engine's. A compiled model has no compiled loss (K: torchtitan compiled blocks first)."""
    if facts.get("chunked_loss"):
        return "chunked"
    return "fused" if facts.get("engine_loss" if software.startswith("megatron") else "fused_loss") else "usual"


def _experts(
    columns: Columns, facts: Mapping[str, float], degrees: Mapping[str, int], assumed: list[str]
) -> dict[str, Any]:
    """Ranks over which experts are divided, and what sends tokens to them. Undivided, each is shared by the tensor
    ranks (K: Megatron-Core's default `expert_tensor_parallel_size`); divided, each is whole on its rank (its recipes).
    """
    experts, ranks = columns.count("experts"), degrees["tensor"] * degrees["context"] * degrees["data"]
    if not experts:
        return {}
    printed = columns.count("ep") or int(facts.get("expert", 0)) or None
    if printed == 1 and facts.get("fast_dispatcher"):
        printed = None  # a dispatcher between ranks that hold different experts
    expert = printed or next(n for n in range(min(experts, ranks), 0, -1) if experts % n == 0 and ranks % n == 0)
    if printed is None:
        assumed.append(f"experts over {expert} ranks")
    while ranks % expert or expert > experts:
        expert -= 1
    if printed and expert != printed:
        assumed.append(f"experts over {expert} ranks: {printed} does not divide them")
    shared = int(facts.get("expert_tensor", 0)) or (degrees["tensor"] if expert == 1 else 1)
    shared = shared if ranks % (expert * shared) == 0 else 1
    named = dispatcher(columns)
    chosen = "fused" if facts.get("fast_dispatcher") else named or "usual"
    return {"expert": expert, "expert_tensor": shared, "dispatcher": chosen}


def _overlap(facts: Mapping[str, float], habits: Habits) -> dict[str, bool]:
    return {
        "overlap_data": bool(facts.get("overlap_data", habits.overlap_data)),
        "overlap_tensor": bool(facts.get("async_tp", habits.overlap_tensor)),
        "overlap_pipeline": bool(facts.get("overlap_pipeline", habits.overlap_pipeline)),
        "overlap_expert": bool(facts.get("overlap_expert", habits.overlap_expert)),
    }


def _head_in_layers(columns: Columns) -> float:
    """Cost of the head over that of a layer: $V h / (4 h^2 + 3 h f)$, as nanotron weighs its blocks."""
    hidden = columns.needed("hidden")
    return (columns.count("vocab") or 0) / (4 * hidden + 3 * columns.needed("ffn_hidden"))


def by_cost(layers: int, pipeline: int, head: float) -> tuple[int, ...]:
    """Layers of each stage where one closes as soon as the cost so far exceeds its share of the whole.

    Source: nanotron, `build_model` in models/base.py. Late stages may be left with the head alone, or with nothing.
    """
    held, stage = [0] * pipeline, 0
    share = (layers + head) / pipeline
    for layer in range(1, layers + 1):
        held[stage] += 1
        if layer > share * (stage + 1) and stage < pipeline - 1:
            stage += 1
    return tuple(held)


def stage_layers(layers: int, pipeline: int) -> tuple[int, ...]:
    """Embedding and head count as layers where that makes stages even, as in Megatron; else some have one more."""
    if (layers + 2) % pipeline == 0:
        each = (layers + 2) // pipeline
        return (each - 1, *(each for _ in range(pipeline - 2)), each - 1)
    each, more = divmod(layers, pipeline)
    return tuple(each + (1 <= i <= more if more < pipeline - 1 else i < more) for i in range(pipeline))
