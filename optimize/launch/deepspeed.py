"""DeepSpeed: its configuration file.

Names: deepspeedai/DeepSpeed, docs/_pages/config-json.md at 00376da, deepspeed/runtime/zero/config.py at 1b88ac3,
zero/offload_config.py at 1978617 and runtime/constants.py at 088be89. The batch is train_micro_batch_size_per_gpu x
gradient_accumulation_steps x data ranks; data ranks, and so the number of accelerators, follow from it.

What DeepSpeed takes outside the file: the pipeline, as `PipelineModule(layers, num_stages=...)`, whose number of
stages the file repeats under `pipeline.stages`; recompute, in the model's code (`deepspeed.checkpointing.checkpoint`),
for which a section `activation_checkpointing` stands here; the tensor degree is AutoTP's `tensor_parallel.autotp_size`,
the context degree that of Ulysses (`sequence_parallel_size` beside `data_parallel_size`), the expert degree AutoEP's.
ZeRO 2 and 3 do not go with a pipeline (PipelineEngine), AutoEP not with AutoTP. `overlap_comm` belongs to ZeRO.
`mics_shard_size`, ranks that shared weights under ZeRO 3 (MiCS), is read from older files; 0.19 has none. Without a
pipeline's topology DeepSpeed takes AutoTP's ranks for data ranks when it checks the batch, so that `train_batch_size`
is left out with them. `offload_optimizer` takes the gradients along under ZeRO 2 and 3, and its update is the host's.

JSON has no comments: what other files say at their head stands under the key `equipoise`, which DeepSpeed leaves alone.
"""

from collections.abc import Iterator
from typing import Any

from costmodel.inputs import Plan, Workload
from optimize.launch import text as _text
from optimize.launch.framework import Alternative, Framework, Job, Known, Reader, Settings, divided, has_experts

OPTIMIZERS = {"adam": "AdamW", "sgd": "SGD", "muon": "Muon", "adafactor": "Adafactor"}
PRECISIONS = ("fp32", "fp16", "bf16")
ZERO = "zero_optimization."
UNTESTED = ("sgd", "adafactor")
"""Optimizers that DeepSpeed takes under ZeRO only where it is told so."""

_ANY = {
    "domain": (None,),
    "virtual_stages": (1,),
    "stage_layers": (None,),
    "expert_tensor": (1,),
    "recompute": ("none", "full"),
    "recompute_share": (1.0,),
    "precision": PRECISIONS,
    "gradient_dtype": PRECISIONS,
    "optimizer": tuple(OPTIMIZERS),
    "overlap_data": (True, False),
    "offload_optimizer": (0.0,),
    "offload_weights": (0.0,),
}
_HOST = {"offload_optimizer": (1.0,), "offload_gradients": (1.0,)}
_SHARDS = (
    {"zero_stage": (0,), "data_shard": (None,), "overlap_data": (False,), "gradient_dtype": ("bf16", "fp16")},
    {"zero_stage": (0,), "data_shard": (None,), "overlap_data": (False,), "precision": ("fp32",)},
    {"zero_stage": (1,), "data_shard": (None,)},
    {"zero_stage": (1,), "data_shard": (None,), "offload_optimizer": (1.0,)},
    {"zero_stage": (2,), "pipeline": (1,), "data_shard": (None,)},
    {"zero_stage": (2,), "pipeline": (1,), "data_shard": (None,), **_HOST},
    {"zero_stage": (3,), "pipeline": (1,), "data_shard": (None,), "offload_weights": (0.0, 1.0)},
    {"zero_stage": (3,), "pipeline": (1,), "data_shard": (None,), "offload_weights": (0.0, 1.0), **_HOST},
)
ALTERNATIVES: tuple[Alternative, ...] = tuple(
    _ANY | shards | context for context in ({"context": (1,)}, {"context_kind": ("all_to_all",)}) for shards in _SHARDS
)


def deepspeed_settings(job: Job) -> Settings:
    """Dotted names of the file's sections."""
    plan = job.plan
    whole = {} if plan.tensor > 1 and plan.pipeline == 1 else {"train_batch_size": job.batch}
    settings: Settings = whole | {
        "train_micro_batch_size_per_gpu": plan.microbatch,
        "gradient_accumulation_steps": int(plan.microbatches(job.batch)),
        ZERO + "stage": plan.zero_stage,
        ZERO + "overlap_comm": plan.overlap_data and plan.zero_stage > 0,
    }
    for share, section in ((plan.offload_optimizer, "offload_optimizer"), (plan.offload_weights, "offload_param")):
        settings |= {f"{ZERO}{section}.device": "cpu", f"{ZERO}{section}.pin_memory": True} if share else {}
    settings |= {"bf16.enabled": plan.precision == "bf16", "fp16.enabled": plan.precision == "fp16"}
    settings |= {"data_types.grad_accum_dtype": plan.gradient_dtype}
    settings |= {"optimizer.type": OPTIMIZERS.get(plan.optimizer, "AdamW")}
    if plan.optimizer in UNTESTED and plan.zero_stage:
        settings["zero_allow_untested_optimizer"] = True
    return settings | _elsewhere(job)


def _elsewhere(job: Job) -> Settings:
    """Degrees, which DeepSpeed takes in sections of their own, and what the model's code does."""
    plan, settings = job.plan, {}
    if plan.tensor > 1:
        settings["tensor_parallel.autotp_size"] = plan.tensor
    if plan.context > 1:
        settings |= {"sequence_parallel_size": plan.context, "data_parallel_size": plan.data}
    if job.has_experts:
        settings |= {"expert_parallel.enabled": True, "expert_parallel.autoep_size": plan.expert}
    if plan.pipeline > 1:
        settings["pipeline.stages"] = plan.pipeline
    if plan.recompute == "full":
        settings |= {"activation_checkpointing.partition_activations": False}
        settings |= {"activation_checkpointing.number_checkpoints": job.layers}
    return settings


def deepspeed_fields(reader: Reader, known: Known) -> dict[str, Any]:
    """The same, backwards. Of the three sizes of a batch any one may be left out, if the accelerators are known."""
    tensor, context = reader.one("tensor_parallel.autotp_size"), reader.one("sequence_parallel_size")
    stages, expert = reader.few("pipeline.stages"), reader.one("expert_parallel.autoep_size")
    reader.flag("expert_parallel.enabled")
    stage = reader.word(ZERO + "stage", {i: i for i in range(4)}, 0)
    sections = [name for name in reader.settings if name.startswith("activation_checkpointing")]
    reader.used.update(sections)
    fields: dict[str, Any] = {
        "tensor": tensor,
        "context": context,
        "context_kind": "all_to_all" if context > 1 else "ring",
        "pipeline": stages,
        "expert": expert,
        "zero_stage": stage,
        "overlap_data": reader.flag(ZERO + "overlap_comm", default=stage == 3),
        "recompute": "full" if sections else "none",
        "optimizer": _optimizer(reader),
    }
    if reader.settings.get(ZERO + "mics_shard_size", -1) != -1:
        fields["data_shard"] = reader.count(ZERO + "mics_shard_size")
    reader.used.add(ZERO + "mics_shard_size")
    for name, section in (("offload_optimizer", "offload_optimizer"), ("offload_weights", "offload_param")):
        fields[name] = reader.word(f"{ZERO}{section}.device", {"none": 0.0, "cpu": 1.0}, 0.0)
        reader.flag(f"{ZERO}{section}.pin_memory")
    fields["offload_gradients"] = fields["offload_optimizer"] if stage > 1 else 0.0
    return fields | _numbers_read(reader) | _batch_read(reader, known, tensor * context * stages)


def _optimizer(reader: Reader) -> str:
    names = {"adam": "adam", "adamw": "adam"} | {name.lower(): plain for plain, name in OPTIMIZERS.items()}
    written = reader.raw("optimizer.type")
    if written is not None and str(written).lower() not in names:
        raise reader.wrong("optimizer.type", f"one of {', '.join(OPTIMIZERS.values())}")
    return names.get(str(written).lower(), "adam")


def _numbers_read(reader: Reader) -> dict[str, Any]:
    brain, half = reader.flag("bf16.enabled"), reader.flag("fp16.enabled")
    precision = "bf16" if brain else "fp16" if half else "fp32"
    types = {name: name for name in PRECISIONS}
    return {"precision": precision, "gradient_dtype": reader.word("data_types.grad_accum_dtype", types, precision)}


def _batch_read(reader: Reader, known: Known, inside: int) -> dict[str, Any]:
    names = ("train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps")
    batch, each, steps = (None if reader.settings.get(name) == "auto" else reader.count(name) for name in names)
    reader.used.update((*names, "data_parallel_size"))
    data = None if known.accelerators is None else known.accelerators // inside
    if batch and each and steps:
        data = divided(reader, names[0], batch, each * steps, "all data ranks")
    elif data and each and steps:
        batch = each * steps * data
    elif data and batch and (each or steps):
        other = divided(reader, names[0], batch, data * (each or steps or 1), "all data ranks")
        each = each or other
    fields: dict[str, Any] = {"microbatch": each or 1, "batch": batch}
    return fields if data is None else fields | {"data": data, "accelerators": data * inside}


def rules(plan: Plan, workload: Workload | None) -> Iterator[str]:
    """What goes together, beyond the table."""
    if plan.zero_stage == 0 and plan.overlap_data:
        yield "`overlap_data` is true with `zero_stage` 0; DeepSpeed overlaps ZeRO's traffic only"
    if plan.zero_stage == 0 and plan.gradient_dtype != plan.precision:
        wanted = f"{plan.precision} with `zero_stage` 0"
        yield f"`gradient_dtype` is {plan.gradient_dtype}; DeepSpeed adds gradients up in {wanted}"
    if plan.context > 1 and plan.pipeline > 1:
        yield f"`context` is {plan.context} with `pipeline` {plan.pipeline}; Ulysses goes without a pipeline's topology"
    if plan.expert > 1 and plan.tensor > 1:
        yield f"`expert` is {plan.expert} with `tensor` {plan.tensor}; AutoEP does not go with AutoTP"
    if plan.zero_stage == 3 and plan.expert > 1 and plan.context > 1:
        yield "`context` is divided too; AutoEP under ZeRO 3 goes without sequence parallelism"
    if workload is not None and has_experts(workload) and plan.tensor > 1 and plan.expert == 1:
        yield f"`tensor` is {plan.tensor} for a model with experts; AutoEP does not go with AutoTP"


def elsewhere(plan: Plan) -> Iterator[str]:
    """What the training script does."""
    yield "the model and the length of its sequences, in the training script"
    if plan.pipeline > 1 and plan.tensor > 1:
        degrees = f"num_pp={plan.pipeline}, num_mp={plan.tensor}, num_dp={plan.data}"
        yield f"PipelineModule(layers, topology=PipeModelDataParallelTopology({degrees})) in the training script"
    elif plan.pipeline > 1:
        yield f"PipelineModule(layers, num_stages={plan.pipeline}) in the training script"
    if plan.recompute == "full":
        yield "deepspeed.checkpointing.checkpoint around every layer of the model"
    if plan.context > 1:
        yield "attention that exchanges heads (DeepSpeed-Ulysses) in the model"
    if plan.optimizer == "adafactor":
        yield "an Adafactor of PyTorch's, passed to deepspeed.initialize"


FRAMEWORK = Framework(
    name="deepspeed",
    title="DeepSpeed",
    version="0.19.8",
    file="launch-deepspeed.json",
    alternatives=ALTERNATIVES,
    settings=deepspeed_settings,
    fields=deepspeed_fields,
    rules=rules,
    elsewhere=elsewhere,
    dump=_text.dump_json,
    parse=_text.parse_json,
    signs=frozenset(
        {
            "train_batch_size",
            "train_micro_batch_size_per_gpu",
            "gradient_accumulation_steps",
            ZERO + "stage",
            "tensor_parallel.autotp_size",
            "sequence_parallel_size",
        }
    ),
    hint=r'"(?:train_micro_batch_size_per_gpu|train_batch_size|zero_optimization)"',
    about_model=frozenset(
        "gradient_clipping steps_per_print wall_clock_breakdown optimizer.params.lr optimizer.params.betas "
        "optimizer.params.eps optimizer.params.weight_decay scheduler.type scheduler.params.warmup_min_lr "
        "scheduler.params.warmup_max_lr scheduler.params.warmup_num_steps fp16.loss_scale fp16.loss_scale_window "
        "fp16.initial_scale_power fp16.hysteresis fp16.min_loss_scale zero_allow_untested_optimizer "
        "expert_parallel.preset_model optimizer.params equipoise".split()
    ),
)
