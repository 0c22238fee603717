"""What Megatron can be told of a plan, and what goes together there (megatron.py has the source)."""

from collections.abc import Iterator

from costmodel.inputs import Plan, Workload, layers, options
from optimize.launch.framework import Alternative, has_expert_biases, has_experts, has_latents, has_sinks
from optimize.launch.megatron_words import MODULE_SETS, OPTIMIZERS, PRECISIONS

_ANY = {
    "zero_stage": (0, 1, 2, 3),
    "context_kind": ("ring", "all_to_all"),
    "recompute": ("none", "selective", "full", *MODULE_SETS),
    "overlap_data": (True, False),
    "overlap_context": (True,),
    "overlap_expert": (True, False),
    "precision": tuple(PRECISIONS),
    "gradient_dtype": ("fp32", "bf16", "fp16"),
    "state_dtype": ("fp32", "bf16", "fp16", "fp8"),
    "optimizer": OPTIMIZERS,
    "attention": ("flash", "unfused"),
    "loss": ("usual", "fused"),
    "fused_kernels": (True, False),
    "offload_optimizer": (0.0, 0.25, 0.5, 0.75, 1.0),
}
_SCHEDULES = (
    {"schedule": ("one_f_one_b",), "overlap_pipeline": (False,)},
    {"schedule": ("interleaved",), "overlap_pipeline": (True, False)},
)
_SEQUENCES = (
    {"sequence_parallel": (True,), "overlap_tensor": (True, False)},
    {"sequence_parallel": (False,), "overlap_tensor": (False,)},
)
ALTERNATIVES: tuple[Alternative, ...] = tuple(
    _ANY | schedule | sequence for schedule in _SCHEDULES for sequence in _SEQUENCES
)


def apart(table: Alternative) -> tuple[Alternative, ...]:
    """Plans that hide experts' traffic, as far as `_expert_overlap_rules` has them, and those that do not."""
    if set(table["overlap_expert"]) != {True, False}:
        return (table,)
    modes = [mode for mode in table["recompute"] if mode != "full" and "feed_forward" not in options.modules_of(mode)]
    hidden = {"overlap_expert": (True,), "recompute": tuple(modes)}
    hidden |= {"pipeline": (1,)} if "interleaved" not in table["schedule"] else {}
    return {**table, "overlap_expert": (False,)}, {**table, **hidden}


def rules(plan: Plan, workload: Workload | None) -> Iterator[str]:
    """What goes together, beyond the table."""
    yield from _number_rules(plan)
    if plan.zero_stage == 0 and plan.data_shard is not None:
        yield "`data_shard` is given with `zero_stage` 0; Megatron shares nothing then"
    if plan.optimizer != "adam" and plan.zero_stage:
        yield f"`optimizer` is {plan.optimizer}; Megatron divides the states of adam alone (`zero_stage` 0)"
    if plan.overlap_expert:
        yield from _expert_overlap_rules(plan)
    if plan.schedule == "interleaved" and plan.pipeline == 2 and not plan.overlap_pipeline:
        yield "`overlap_pipeline` is off with `pipeline` 2; Megatron interleaves two stages with overlap only"
    if plan.recompute_share < 1:
        yield from _share_rules(plan, None if workload is None else layers(workload))
    if workload is not None:
        yield from _job_rules(plan, workload)


def _job_rules(plan: Plan, workload: Workload) -> Iterator[str]:
    """What goes together with the model and its sequence."""
    if "gates" in options.modules_of(plan.recompute) and not has_experts(workload):
        yield f"`recompute` is {plan.recompute}; Megatron computes gates again alone for experts only"
    if "latent" in options.modules_of(plan.recompute) and not has_latents(workload):
        yield f"`recompute` is {plan.recompute}; Megatron computes latents again for latent attention only"
    if not has_experts(workload) and plan.expert * plan.expert_tensor > 1:
        yield f"`expert` is {plan.expert} for a model without experts"
    if plan.expert_tensor > 1 and has_expert_biases(workload):
        yield f"`expert_tensor` is {plan.expert_tensor} for experts with biases; Megatron does not divide those"
    if plan.context > 1 and plan.context_kind == "ring" and (workload.windows or has_sinks(workload)):
        yield "`context_kind` is ring for windows or sinks; Transformer Engine exchanges heads (all_to_all) for those"
    if plan.context > 1 and int(workload.sequence) % (2 * plan.context):
        yield f"`context` is {plan.context}; Megatron divides the sequence by twice that"


def _expert_overlap_rules(plan: Plan) -> Iterator[str]:
    """What `TransformerConfig` asks of `overlap_moe_expert_parallel_comm`."""
    wrong = {
        f"`expert` {plan.expert}": plan.expert == 1,
        f"`pipeline` {plan.pipeline} without virtual stages": plan.pipeline > 1 and plan.virtual_stages == 1,
        "full recompute": plan.recompute == "full",
        "recompute of the feed-forward": "feed_forward" in options.modules_of(plan.recompute),
        "fp32": plan.precision == "fp32",
    }
    for what, is_wrong in wrong.items():
        if is_wrong:
            yield f"`overlap_expert` is on with {what}; Megatron overlaps experts' traffic without that only"


def _number_rules(plan: Plan) -> Iterator[str]:
    """Number formats that Megatron's optimizers combine."""
    wide = {"fp32": ("fp32",), "fp16": ("fp32", "fp16")}.get(plan.precision, ("fp32", "bf16"))
    if plan.gradient_dtype not in wide:
        allowed = " or ".join(wide)
        yield f"`gradient_dtype` is {plan.gradient_dtype} with {plan.precision}; Megatron reduces in {allowed}"
    if plan.optimizer != "adam" or plan.zero_stage == 0:
        for name, usual in (("state_dtype", "fp32"), ("offload_optimizer", 0.0)):
            if (value := getattr(plan, name)) != usual:
                yield f"`{name}` is {value}; Megatron wants adam and `zero_stage` > 0 for that"


def _share_rules(plan: Plan, total: int | None) -> Iterator[str]:
    """Whole layers of each chunk, the same in all."""
    share = f"`recompute_share` is {plan.recompute_share:g}"
    if plan.recompute != "full":
        yield f"{share} with `recompute` {plan.recompute}; Megatron takes a share for full recompute only"
    if plan.stage_layers is not None:
        yield f"{share} with `stage_layers`; Megatron counts the same number of layers in every chunk"
    elif total is not None:
        each = total / (plan.pipeline * plan.virtual_stages)
        count = round(plan.recompute_share * each)
        if not count or abs(count / each - plan.recompute_share) > 1e-12:
            yield f"{share}; Megatron counts whole layers of the {each:g} in each chunk"


def elsewhere(plan: Plan) -> Iterator[str]:
    """The environment that `validate_args` wants, and what a plan does not decide."""
    yield "data, tokenizer, learning rate and the number of steps"
    if plan.zero_stage > 1:
        yield "CUDA_DEVICE_MAX_CONNECTIONS above 1 (8, say), which Megatron-FSDP wants"
    elif plan.overlap_expert:
        yield "CUDA_DEVICE_MAX_CONNECTIONS=32, which overlapped traffic of experts wants"
    elif plan.tensor > 1 or plan.context > 1:
        yield "CUDA_DEVICE_MAX_CONNECTIONS=1 before Blackwell, which tensor and context parallelism want"
