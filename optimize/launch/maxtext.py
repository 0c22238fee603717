"""MaxText: values for `base.yml`, as a YAML file or as `name=value` words.

Names: AI-Hypercomputer/maxtext, src/maxtext/configs/base.yml at 000b810 (stored copy), its mesh axes and its
`logical_axis_rules`. Each degree is split into its part inside a slice (`ici_`, whose product is the slice) and its
part between slices (`dcn_`, whose product is their number), from the inside out: tensor, context, expert, fsdp, data,
pipeline. A slice is a TPU torus, or the innermost domain of other clusters.

How fields are read: the axes fsdp, context and expert divide all dense weights (rule `embed`), so they are ZeRO 3;
the axis data alone replicates them (ZeRO 0), and with `shard_optimizer_over_data` it is ZeRO 1. Expert ranks hold
sequences of their own (rule `activation_batch`): data parallelism is data x fsdp x expert, and an expert's matrices
are divided by the tensor axes of its layer (rule `mlp_moe`). The axis tensor_sequence is sequence parallelism. The
pipeline runs all forward passes before the backward ones: GPipe, and gradient accumulation without a pipeline.
`remat_policy` minimal_with_context keeps every product and the attention (none), minimal all but the attention's
inside (selective).

Products overlap with tensor traffic under Transformer Engine's 8-bit recipes alone, with one process for each GPU.
All-to-all of heads (ulysses) is for TPUs, which take rings with Tokamax's kernels only. Values of base.yml are read
where a file says nothing.
"""

import math
from collections.abc import Iterator
from typing import Any

from costmodel.inputs import Plan, Workload
from optimize.launch import text as _text
from optimize.launch.framework import (
    Alternative,
    Framework,
    Job,
    Known,
    Reader,
    Settings,
    divided,
    has_experts,
    has_sinks,
)
from optimize.launch.maxtext_model import MODEL_NAMES, model_read, model_settings

AXES = ("tensor", "tensor_sequence", "context", "expert", "fsdp", "data", "pipeline")
"""Axes of the mesh, from the inside out."""
REMATS = {"none": "minimal_with_context", "selective": "minimal", "full": "full"}
KINDS = {("ring", True): "ring", ("ring", False): "all_gather", ("all_to_all", True): "ulysses"}
OPTIMIZERS = {"adam": "adamw", "sgd": "sgd", "muon": "muon"}
PRECISIONS: dict[str, Settings] = {
    "fp32": {"dtype": "float32", "quantization": ""},
    "bf16": {"dtype": "bfloat16", "quantization": ""},
    "fp8_tensor": {"dtype": "bfloat16", "quantization": "fp8"},
    "mxfp8": {"dtype": "bfloat16", "quantization": "te_mxfp8"},
}
OVERLAPPED = {"fp8_tensor": "te_fp8_delayedscaling", "mxfp8": "te_mxfp8"}
"""Recipes whose products overlap with tensor traffic."""
NOT_ACCUMULATED = ("fp8", "te_fp8_delayedscaling")
"""Recipes of 8 bits that take no accumulated gradients (types.py); Transformer Engine has one that does, on GPUs."""
QUANTIZATIONS = {
    "": None, "fp8": "fp8_tensor", "fp8_full": "fp8_tensor", "fp8_gpu": "fp8_tensor", "te_mxfp8": "mxfp8",
    "te_fp8_delayedscaling": "fp8_tensor", "te_fp8_currentscaling": "fp8_tensor",
}  # fmt: skip
DTYPES = {"fp32": "float32", "bf16": "bfloat16"}

_ANY = {
    "context_kind": ("ring", "all_to_all"),
    "recompute": tuple(REMATS),
    "recompute_share": (1.0,),
    "overlap_data": (True,),
    "overlap_context": (True, False),
    "precision": tuple(PRECISIONS),
    "gradient_dtype": tuple(DTYPES),
    "optimizer": tuple(OPTIMIZERS),
    "attention": ("flash", "unfused"),
    "virtual_stages": (1,),
    "stage_layers": (None,),
}
_STAGES = ({"schedule": ("gpipe",)}, {"pipeline": (1,), "schedule": ("one_f_one_b",)})
_SEQUENCES = (
    {"sequence_parallel": (True,), "overlap_tensor": (False,)},
    {"sequence_parallel": (True,), "overlap_tensor": (True,), "precision": tuple(OVERLAPPED)},
    {"sequence_parallel": (False,), "overlap_tensor": (False,)},
)
_SHARDS = (
    {"zero_stage": (3,)},
    {"zero_stage": (0, 1), "context": (1,), "expert": (1,), "data_shard": (None,)},
)
ALTERNATIVES: tuple[Alternative, ...] = tuple(
    _ANY | stages | sequences | shards for shards in _SHARDS for stages in _STAGES for sequences in _SEQUENCES
)


def maxtext_settings(job: Job) -> Settings:
    """The mesh, then the batch, then everything else."""
    plan = job.plan
    inner, outer = _split(_degrees(plan), job.slice_size)
    accumulated = plan.pipeline == 1
    count = int(plan.microbatches(job.batch))
    batch = plan.microbatch * plan.data if accumulated else job.batch
    settings: Settings = {f"ici_{axis}_parallelism": inner[axis] for axis in AXES}
    settings |= {f"dcn_{axis}_parallelism": outer[axis] for axis in AXES}
    settings |= {
        "per_device_batch_size": batch / job.accelerators,
        "gradient_accumulation_steps": count if accumulated else 1,
        "max_target_length": job.sequence,
    }
    if not accumulated:
        settings |= {"num_pipeline_microbatches": count}
        settings |= {"num_layers_per_pipeline_stage": max(1, job.layers // plan.pipeline), "num_pipeline_repeats": 1}
    if plan.context > 1:
        settings["context_parallel_strategy"] = KINDS[plan.context_kind, plan.overlap_context]
    settings |= _machine(job) | {
        "shard_optimizer_over_data": plan.zero_stage == 1,
        "remat_policy": REMATS.get(plan.recompute, REMATS["none"]),
        "te_comm_gemm_overlap": "full" if plan.overlap_tensor and plan.precision in OVERLAPPED else "disabled",
        "opt_type": OPTIMIZERS.get(plan.optimizer, "adamw"),
        "grad_dtype": DTYPES.get(plan.gradient_dtype, "float32"),
        **PRECISIONS.get(plan.precision, PRECISIONS["bf16"]),
    }
    if plan.overlap_tensor and plan.precision in OVERLAPPED:
        settings["quantization"] = OVERLAPPED[plan.precision]
    if settings["quantization"] in NOT_ACCUMULATED and settings["gradient_accumulation_steps"] > 1:
        settings["quantization"] = "te_fp8_currentscaling"
    return settings | (model_settings(job) or {})


def _machine(job: Job) -> Settings:
    """The hardware and its attention kernels: Tokamax's for context parallelism on TPUs, cuDNN's on GPUs."""
    plan, fused = job.plan, job.plan.attention.startswith("flash")
    if job.machine == "tpu":
        settings: Settings = {"hardware": "tpu", "attention": "flash" if fused else "dot_product"}
        exchanged = {"context_parallel_load_balance": False} if plan.context_kind == "all_to_all" else {}
        return settings | ({"use_tokamax_splash": True} | exchanged if plan.context > 1 and fused else {})
    settings = {"hardware": "gpu_multiprocess" if plan.overlap_tensor else "gpu"}
    settings |= {"attention": "cudnn_flash_te" if fused else "dot_product"}
    return settings | ({"packing": False} if plan.context > 1 else {"max_segments_per_seq": 32} if fused else {})


def _degrees(plan: Plan) -> dict[str, int]:
    """Sizes of the mesh axes."""
    shared, experts = plan.zero_stage == 3, math.gcd(plan.data, plan.expert)
    copies = math.gcd(plan.data * plan.context // plan.data_shard, plan.data // experts) if plan.data_shard else 1
    groups = copies if shared else plan.data // experts
    return {
        "tensor": 1 if plan.sequence_parallel else plan.tensor,
        "tensor_sequence": plan.tensor if plan.sequence_parallel else 1,
        "context": plan.context,
        "expert": experts,
        "fsdp": plan.data // (groups * experts),
        "data": groups,
        "pipeline": plan.pipeline,
    }


def _split(degrees: dict[str, int], slice_size: int) -> tuple[dict[str, int], dict[str, int]]:
    """Inside and between slices: each axis takes what is left of the slice and divides it."""
    room, inner = slice_size, {}
    for axis in AXES:
        inner[axis] = math.gcd(degrees[axis], room)
        room //= inner[axis]
    return inner, {axis: degrees[axis] // inner[axis] for axis in AXES}


def maxtext_fields(reader: Reader, known: Known) -> dict[str, Any]:
    """The same, backwards."""
    sizes = {axis: _size(reader, axis) for axis in AXES}
    tensor, sequence = sizes["tensor"] or 1, sizes["tensor_sequence"] or 1
    if tensor > 1 and sequence > 1:
        raise reader.wrong("ici_tensor_sequence_parallelism", "1 beside a tensor axis")
    experts, context = sizes["expert"] or 1, sizes["context"] or 1
    ranks = (sizes["data"] or 1) * (sizes["fsdp"] or 1) * experts
    zero = _zero_stage(reader, sizes)
    fields: dict[str, Any] = {
        "tensor": tensor * sequence,
        "sequence_parallel": sequence > 1,
        "context": context,
        "expert": experts,
        "expert_tensor": tensor * sequence if experts > 1 or known.has_experts else 1,
        "pipeline": sizes["pipeline"] or 1,
        "zero_stage": zero,
        "copies": sizes["data"] if zero == 3 else None,
        "sequence": reader.count("max_target_length"),
    }
    if None not in sizes.values():
        fields |= {"data": ranks, "accelerators": math.prod(size or 1 for size in sizes.values())}
    kinds = {name: pair for pair, name in KINDS.items()}
    kind, overlaps = reader.word("context_parallel_strategy", kinds, ("ring", False))
    fields |= {"context_kind": kind, "overlap_context": overlaps or context == 1}
    return fields | _batch_read(reader, fields, known) | _options_read(reader)


def _size(reader: Reader, axis: str) -> int | None:
    """Both parts of an axis; None where one is left open (-1), as fsdp inside a slice and data between are at first."""
    size = 1
    for part, default in (("ici", -1 if axis == "fsdp" else 1), ("dcn", -1 if axis == "data" else 1)):
        name = f"{part}_{axis}_parallelism"
        reader.used.add(name)
        value = reader.settings.get(name, default)
        if value == -1:
            return None
        size *= reader.count(name, 1)
    return size


def _zero_stage(reader: Reader, sizes: dict[str, int | None]) -> int:
    divided_by = [sizes[axis] for axis in ("fsdp", "context", "expert")]
    over_data = reader.flag("shard_optimizer_over_data")
    if any(size is None or size > 1 for size in divided_by):
        return 3
    return 1 if over_data or sizes["data"] == 1 else 0


def _batch_read(reader: Reader, fields: dict[str, Any], known: Known) -> dict[str, Any]:
    """Sequences of a microbatch and of a step; nothing where the number of devices is not known."""
    each, steps = reader.number("per_device_batch_size"), reader.one("gradient_accumulation_steps")
    automatic = reader.settings.get("num_pipeline_microbatches", -1) == -1
    reader.used |= {"num_pipeline_microbatches", "num_layers_per_pipeline_stage"}
    stages = fields["pipeline"]
    if reader.settings.get("num_pipeline_repeats", -1) not in (-1, 1):
        raise reader.wrong("num_pipeline_repeats", "1: circular pipelines have no schedule here")
    reader.used.add("num_pipeline_repeats")
    schedule = {"schedule": "gpipe" if stages > 1 else "one_f_one_b"}
    devices = fields.get("accelerators") or known.accelerators
    if each is None or devices is None:
        return schedule
    data = devices // (fields["tensor"] * fields["context"] * stages)
    total = round(each * devices)
    parts = 1 if stages == 1 else stages if automatic else reader.one("num_pipeline_microbatches")
    if abs(total - each * devices) > 1e-6 or not total:
        raise reader.wrong("per_device_batch_size", f"a whole number of sequences over {devices} devices")
    share = divided(reader, "per_device_batch_size", total, data * parts, "the sequences of a step")
    return schedule | {"microbatch": share, "batch": total * steps}


def _options_read(reader: Reader) -> dict[str, Any]:
    modes = {name: mode for mode, name in REMATS.items()}
    narrow, dtype = reader.raw("quantization"), reader.word("dtype", {v: k for k, v in DTYPES.items()}, "bf16")
    if narrow not in (None, *QUANTIZATIONS):
        raise reader.wrong("quantization", f"nothing or one of {', '.join(filter(None, QUANTIZATIONS))}")
    backends = {"autoselected": "flash", "flash": "flash", "cudnn_flash_te": "flash", "dot_product": "unfused"}
    return {
        "recompute": reader.word("remat_policy", modes, "full"),
        "precision": QUANTIZATIONS[narrow or ""] or dtype,
        "gradient_dtype": reader.word("grad_dtype", {v: k for k, v in DTYPES.items()}, "fp32"),
        "optimizer": reader.word("opt_type", {v: k for k, v in OPTIMIZERS.items()}, "adam"),
        "attention": reader.word("attention", backends, "flash"),
        "overlap_tensor": reader.word("te_comm_gemm_overlap", {"disabled": False, "full": True}, False),
    }


def rules(plan: Plan, workload: Workload | None) -> Iterator[str]:
    """What goes together, beyond the table."""
    if plan.data % plan.expert:
        yield f"`expert` is {plan.expert}; MaxText's expert ranks are data ranks ({plan.data})"
    if plan.expert > 1 and plan.expert_tensor != plan.tensor:
        yield f"`expert_tensor` is {plan.expert_tensor}; MaxText divides experts by the tensor axis, {plan.tensor}"
    if plan.pipeline == 1 and plan.schedule == "gpipe":
        yield "`schedule` is gpipe with `pipeline` 1; MaxText accumulates gradients then"
    if plan.zero_stage == 3 and (plan.data_shard or plan.data * plan.context) == 1:
        yield "`zero_stage` is 3 on one data rank, or in groups of one; nothing is shared"
    if plan.data_shard is not None and plan.data_shard % (plan.context * plan.expert):
        yield f"`data_shard` is {plan.data_shard}; MaxText shares weights over all context and expert ranks"
    if workload is not None:
        yield from _job_rules(plan, workload)


def machine_rules(plan: Plan, workload: Workload | None, machine: str) -> Iterator[str]:
    """What the kernels of a machine ask for."""
    accumulates = workload is not None and plan.pipeline == 1 and plan.microbatches(int(workload.batch)) > 1
    if machine == "tpu" and plan.precision == "fp8_tensor" and accumulates:
        yield "`precision` is fp8_tensor with more than one microbatch; MaxText accumulates no gradients then on TPUs"
    exchanged = plan.context > 1 and plan.context_kind == "all_to_all"
    if machine == "gpu" and exchanged:
        yield "`context_kind` is all_to_all; MaxText exchanges heads (ulysses) on TPUs only"
    if machine == "gpu" and plan.attention != "unfused" and workload is not None and has_sinks(workload):
        yield f"`attention` is {plan.attention} for heads with sinks; MaxText has those unfused only on GPUs"
    if machine == "tpu" and plan.context > 1 and workload is not None and has_sinks(workload):
        yield f"`context` is {plan.context} for heads with sinks; MaxText divides them on GPUs only"
    if machine == "tpu" and plan.overlap_tensor:
        yield "`overlap_tensor` is on; MaxText overlaps tensor traffic on GPUs only"
    if machine == "tpu" and plan.context > 1 and plan.attention == "unfused":
        yield f"`attention` is {plan.attention} with `context` {plan.context}; MaxText divides it in flash on TPUs"


def _job_rules(plan: Plan, workload: Workload) -> Iterator[str]:
    if has_experts(workload) and plan.expert == 1 and plan.expert_tensor != plan.tensor:
        yield f"`expert_tensor` is {plan.expert_tensor}; MaxText divides experts by the tensor axis, {plan.tensor}"
    if plan.context > 1 and int(workload.sequence) % plan.context**2:
        yield f"`context` is {plan.context}; MaxText divides the sequence by its square"
    count = plan.microbatches(int(workload.batch))
    if plan.pipeline > 1 and count % plan.pipeline:
        yield f"there are {count:g} microbatches; MaxText wants a multiple of `pipeline` {plan.pipeline}"


def elsewhere(plan: Plan) -> Iterator[str]:
    """How the processes are started."""
    if plan.overlap_tensor:
        yield "one process for each GPU, which overlapped tensor traffic wants"


FRAMEWORK = Framework(
    name="maxtext",
    title="MaxText",
    version="e591f30c (2026-08-22)",
    file="launch-maxtext.yml",
    alternatives=ALTERNATIVES,
    settings=maxtext_settings,
    fields=maxtext_fields,
    rules=rules,
    elsewhere=elsewhere,
    machine_rules=machine_rules,
    model=model_read,
    dump=_text.dump_yaml,
    parse=_text.parse_pairs,
    signs=frozenset(f"{part}_{axis}_parallelism" for part in ("ici", "dcn") for axis in AXES)
    | {"per_device_batch_size", "num_pipeline_microbatches"},
    hint=r"\b(?:ici|dcn)_\w+_parallelism\b|\bper_device_batch_size\b",
    about_model=frozenset(
        "base_config model_name run_name base_output_directory dataset_path dataset_type dataset_name tokenizer_path "
        "tokenizer_type steps learning_rate warmup_steps_fraction enable_checkpointing async_checkpointing "
        "checkpoint_period profiler log_period "
        "weight_dtype hardware packing max_segments_per_seq use_tokamax_splash context_parallel_load_balance "
        "adam_b1 adam_b2 adam_eps adam_weight_decay gradient_clipping_threshold scan_layers".split()
    )
    | MODEL_NAMES,
)
