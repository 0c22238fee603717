"""Megatron-Bridge: overrides of a recipe, `model.tensor_model_parallel_size=8` and so on, or the YAML of them.

Names: NVIDIA-NeMo/Megatron-Bridge, src/megatron/bridge/training/config.py at 003e863 (sections), comm_overlap.py at
0685ff5 and mixed_precision.py at 0509780 (recipes by name); the fields of `model`, `ddp` and `optimizer` are those of
Megatron's core, megatron/core/model_parallel_config.py at 02aa3ee. A recipe has defaults of its own, so every option
that a plan decides is written, off as well as on (`OFF`); the usual loss is the recipe's. Where a file does not say
them, bf16 and a distributed optimizer with overlap are read, as recipes of pretraining have them.

`comm_overlap` is written as null: a section that a recipe has resets the fields of `model` and `ddp` to values of its
own, and one that it has not cannot be overridden field by field. The fields themselves are written instead; those of a
section are read, and win. Megatron-FSDP takes the type of its gradients from a field that no override can set, so they
have that of the weights.
"""

from collections.abc import Iterator
from typing import Any

from costmodel.inputs import Plan, Workload
from costmodel.specs import SpecError
from optimize.launch import megatron_rules
from optimize.launch import text as _text
from optimize.launch.framework import Alternative, Framework, Job, Known, Reader, Settings
from optimize.launch.megatron_bridge_model import MODEL, OTHERS, model_read, model_settings
from optimize.launch.megatron_read import megatron_fields
from optimize.launch.megatron_words import LOSS, LOSS_KERNELS, PRECISIONS, SIGNS, UNFUSED
from optimize.launch.megatron_write import megatron_settings

NAMES = {
    "tensor-model-parallel-size": "model.tensor_model_parallel_size",
    "pipeline-model-parallel-size": "model.pipeline_model_parallel_size",
    "num-virtual-stages-per-pipeline-rank": "model.virtual_pipeline_model_parallel_size",
    "pipeline-model-parallel-layout": "model.pipeline_model_parallel_layout",
    "context-parallel-size": "model.context_parallel_size",
    "cp-comm-type": "model.cp_comm_type",
    "expert-model-parallel-size": "model.expert_model_parallel_size",
    "expert-tensor-parallel-size": "model.expert_tensor_parallel_size",
    "moe-token-dispatcher-type": "model.moe_token_dispatcher_type",
    "sequence-parallel": "model.sequence_parallel",
    "attention-backend": "model.attention_backend",
    LOSS: "model.cross_entropy_loss_fusion",
    LOSS_KERNELS: "model.cross_entropy_fusion_impl",
    "recompute-granularity": "model.recompute_granularity",
    "recompute-modules": "model.recompute_modules",
    "recompute-method": "model.recompute_method",
    "recompute-num-layers": "model.recompute_num_layers",
    "num-layers": "model.num_layers",
    "seq-length": "model.seq_length",
    "overlap-moe-expert-parallel-comm": "model.overlap_moe_expert_parallel_comm",
    "tp-comm-overlap": "model.tp_comm_overlap",
    "micro-batch-size": "train.micro_batch_size",
    "global-batch-size": "train.global_batch_size",
    "use-distributed-optimizer": "ddp.use_distributed_optimizer",
    "use-megatron-fsdp": "ddp.use_megatron_fsdp",
    "data-parallel-sharding-strategy": "ddp.data_parallel_sharding_strategy",
    "num-distributed-optimizer-instances": "ddp.num_distributed_optimizer_instances",
    "overlap-grad-reduce": "ddp.overlap_grad_reduce",
    "overlap-param-gather": "ddp.overlap_param_gather",
    "optimizer": "optimizer.optimizer",
    "use-precision-aware-optimizer": "optimizer.use_precision_aware_optimizer",
    "optimizer-cpu-offload": "optimizer.optimizer_cpu_offload",
    "optimizer-offload-fraction": "optimizer.optimizer_offload_fraction",
    "ckpt-format": "checkpoint.ckpt_format",
}
DEGREES = sum(flag.endswith("parallel-size") for flag in SIGNS)
SWITCHES = (
    "sequence-parallel", "tp-comm-overlap", "use-distributed-optimizer", "use-megatron-fsdp", "overlap-grad-reduce",
    "overlap-param-gather",
)  # fmt: skip
TWICE = {
    "model.seq_length": "dataset.seq_length",
    "ddp.use_distributed_optimizer": "optimizer.use_distributed_optimizer",
    "ddp.overlap_param_gather": "optimizer.overlap_param_gather",
}
"""Options that two sections repeat."""
SECTION = {
    "model.tp_comm_overlap": "comm_overlap.tp_comm_overlap",
    "model.overlap_moe_expert_parallel_comm": "comm_overlap.overlap_moe_expert_parallel_comm",
    "model.overlap_p2p_comm": "comm_overlap.overlap_p2p_comm",
    "ddp.overlap_grad_reduce": "comm_overlap.overlap_grad_reduce",
    "ddp.overlap_param_gather": "comm_overlap.overlap_param_gather",
}
"""Fields that the section `comm_overlap` sets, where a recipe or a file has one."""
OFF: Settings = {
    "model.virtual_pipeline_model_parallel_size": None,
    "model.pipeline_model_parallel_layout": None,
    "model.num_layers_in_first_pipeline_stage": None,
    "model.num_layers_in_last_pipeline_stage": None,
    "model.account_for_embedding_in_pipeline_split": False,
    "model.account_for_loss_in_pipeline_split": False,
    "model.overlap_p2p_comm": False,
    "model.batch_p2p_comm": True,
    "model.overlap_moe_expert_parallel_comm": False,
    "model.delay_wgrad_compute": False,
    "model.recompute_granularity": None,
    "model.recompute_method": None,
    "model.recompute_num_layers": None,
    "model.recompute_modules": None,
    "ddp.num_distributed_optimizer_instances": 1,
    "optimizer.use_precision_aware_optimizer": False,
    "optimizer.optimizer_cpu_offload": False,
    "comm_overlap": None,
}
"""What a recipe may have left set, as it is where a plan says nothing of it."""
FUSIONS = ("model.bias_activation_fusion", "model.masked_softmax_fusion", "model.bias_dropout_fusion")
RECIPES = {
    "fp16_mixed": "fp16",
    "bf16_mixed": "bf16",
    "bf16_with_fp8_delayed_scaling_mixed": "fp8_tensor",
    "bf16_with_fp8_subchannel_scaling_mixed": "fp8_block",
    "bf16_with_mxfp8_mixed": "mxfp8",
    "bf16_with_nvfp4_mixed": "nvfp4",
}
_READ_AS = {"bf16_with_fp8_current_scaling_mixed": "fp8_tensor"}
_LIMITED = {"precision": tuple(RECIPES.values()), "state_dtype": ("fp32",)}
_GRADIENTS = (
    {"zero_stage": (0, 1), "gradient_dtype": ("fp32", "fp16")},
    {"zero_stage": (2, 3), "gradient_dtype": ("bf16", "fp16")},
)
ALTERNATIVES: tuple[Alternative, ...] = tuple(
    {**allowed, **_LIMITED, **gradients} for allowed in megatron_rules.ALTERNATIVES for gradients in _GRADIENTS
)
DIVIDED = ("use-distributed-optimizer", "overlap-grad-reduce", "overlap-param-gather")
"""What recipes of pretraining have on (src/megatron/bridge/recipes/common.py)."""
DECIDED = ("train.micro_batch_size", "model.recompute_granularity", "mixed_precision", NAMES[DIVIDED[0]])
"""Options of a recipe that are told where a file leaves them to it."""
NEMO = ("trainer.devices", "trainer.num_nodes", "model.micro_batch_size", "model.activations_checkpoint_method")
"""Options of NeMo 1, whose sections have the same names."""
P2P = "model.overlap_p2p_comm"


def bridge_settings(job: Job) -> Settings:
    """The flags of Megatron-LM under their names here, switches spelled out."""
    flags = megatron_settings(job)
    flags |= {switch: False for switch in SWITCHES if switch not in flags}
    settings = OFF | {NAMES[flag]: value for flag, value in flags.items() if flag in NAMES}
    settings |= model_settings(job, flags)
    if isinstance(module := settings["model.recompute_modules"], str):
        settings["model.recompute_modules"] = [module]
    if job.plan.virtual_stages > 1:
        settings |= {"model.virtual_pipeline_model_parallel_size": job.plan.virtual_stages}
        settings |= {P2P: job.plan.overlap_pipeline, "model.batch_p2p_comm": not job.plan.overlap_pipeline}
    if job.plan.overlap_expert:
        settings["model.moe_shared_expert_overlap"] = False
    settings |= dict.fromkeys(FUSIONS, job.plan.fused_kernels)
    settings |= {second: settings[first] for first, second in TWICE.items()}
    recipes = {precision: recipe for recipe, precision in RECIPES.items()}
    return settings | {"mixed_precision": recipes.get(job.plan.precision, "bf16_mixed")}


def bridge_fields(reader: Reader, known: Known) -> dict[str, Any]:
    """Back to Megatron-LM's flags, and from those to the plan."""
    said = _said(reader)
    reader = Reader(said, reader.where).sharing(reader)
    flags = {flag: value for flag, name in NAMES.items() if (value := reader.raw(name)) is not None}
    reader.used.update(OFF)
    if isinstance(modules := flags.get("recompute-modules"), list) and len(modules) == 1:
        flags["recompute-modules"] = modules[0]
    if "pipeline-model-parallel-layout" in flags:
        flags.pop("num-virtual-stages-per-pipeline-rank", None)
    virtual = flags.get("num-virtual-stages-per-pipeline-rank", 1) != 1 or "pipeline-model-parallel-layout" in flags
    if not reader.flag(P2P, default=virtual):
        flags["no-overlap-p2p-communication"] = True
    if not any([reader.flag(name, default=True) for name in FUSIONS]):
        flags |= dict.fromkeys(UNFUSED, True)
    flags = {flag: True for flag in (*DIVIDED, LOSS) if NAMES[flag] not in said} | flags
    flags |= PRECISIONS[reader.word("mixed_precision", _hyphened(RECIPES | _READ_AS), "bf16")]
    fields = megatron_fields(Reader(flags, reader.where, shown=NAMES, text=reader.text), known)
    left = [NAMES[flag] for flag in SIGNS if flag.endswith("parallel-size") and flag not in flags]
    if len(left) == DEGREES:
        raise SpecError(f"{reader.where}: no degree is said, which a recipe decides; expected {min(left)} and others")
    reader.more += [f"{name} (a recipe's)" for name in sorted(left) if "expert" not in name or known.has_experts]
    reader.more += [f"{name} (a recipe's)" for name in DECIDED if name not in said]
    return fields


def _said(reader: Reader) -> Settings:
    """The options, those of the section `comm_overlap` under the names of the others."""
    if name := next((name for name in NEMO if reader.has(name)), ""):
        raise reader.wrong(name, "a recipe of Megatron-Bridge: configurations of NeMo 1 are not read")
    said = dict(reader.settings)
    said |= {first: value for first, second in SECTION.items() if (value := reader.raw(second)) is not None}
    for first, second in TWICE.items():
        if reader.raw(second) is not None and said.get(first) not in (None, reader.settings[second]):
            raise reader.wrong(second, f"what `{first}` is")
    return said


def _hyphened(recipes: dict[str, str]) -> dict[str, str]:
    """Recipes are registered under both spellings."""
    return recipes | {name.replace("_", "-"): value for name, value in recipes.items()}


def rules(plan: Plan, workload: Workload | None) -> Iterator[str]:
    """Rules of Megatron, and the gradients that the recipes of number formats reduce."""
    yield from megatron_rules.rules(plan, workload)
    own = "fp16" if plan.precision == "fp16" else "fp32" if plan.zero_stage < 2 else "bf16"
    if plan.gradient_dtype != own:
        yield f"`gradient_dtype` is {plan.gradient_dtype}; the recipe for {plan.precision} reduces in {own}"


def elsewhere(plan: Plan) -> Iterator[str]:
    """The environment that Megatron wants, the recipe, and what overrides cannot set."""
    yield from megatron_rules.elsewhere(plan)
    yield "a recipe of the same family of models, behind which these words stand"
    if plan.precision == "fp8_block":
        yield "cfg.mixed_precision.fp8 = 'e4m3' on the object of that recipe, which is hybrid"


FRAMEWORK = Framework(
    name="megatron-bridge",
    title="Megatron-Bridge",
    version="067f987d (2026-08-22)",
    file="launch-megatron-bridge.txt",
    alternatives=ALTERNATIVES,
    settings=bridge_settings,
    fields=bridge_fields,
    rules=rules,
    apart=megatron_rules.apart,
    elsewhere=elsewhere,
    model=model_read,
    dump=_text.dump_overrides,
    parse=_text.parse_overrides,
    signs=frozenset(NAMES[flag] for flag in SIGNS),
    hint=r"model_parallel_size\s*[=:]|train\.(?:micro|global)_batch_size",
    about_model=frozenset(MODEL.values())
    | OTHERS
    | frozenset(
        "model.moe_shared_expert_overlap train.train_iters train.eval_iters "
        "train.eval_interval optimizer.lr optimizer.min_lr optimizer.weight_decay optimizer.adam_beta1 "
        "optimizer.adam_beta2 scheduler.lr_warmup_iters scheduler.lr_decay_iters logger.log_interval checkpoint.save "
        "checkpoint.load checkpoint.save_interval dataset.path dataset.blend rng.seed tokenizer.tokenizer_type".split()
    ),
)
