"""Megatron-LM: flags of `pretrain_gpt.py`.

Names: NVIDIA/Megatron-LM, megatron/training/arguments.py at 000c4ac (stored copy; since 2026 many flags are generated
from dataclasses under the same names) and megatron/core/model_parallel_config.py at 02aa3ee. Megatron takes the world
size from its environment: the number of accelerators stands in the first comment, and data parallelism follows.

How fields are read: ZeRO 1 is `--use-distributed-optimizer`; 2 and 3 are Megatron-FSDP's sharding strategies; ranks
that share weights are all over `--num-distributed-optimizer-instances`. Partial full recompute is the method `block`,
which counts layers of each chunk. Optimizer states on the host (`--optimizer-cpu-offload`) are also updated there.
Overlapped transfers between stages exist with interleaving only, overlapped tensor traffic with sequence parallelism
only (`validate_args`). An expert's tensor degree is that of the layer unless given.
"""

from collections.abc import Iterator

from costmodel.inputs import Plan, Workload, layers
from optimize.launch import text as _text
from optimize.launch.framework import Alternative, Framework, has_experts
from optimize.launch.megatron_read import megatron_fields
from optimize.launch.megatron_write import OPTIMIZERS, PRECISIONS, megatron_settings

_ANY = {
    "zero_stage": (0, 1, 2, 3),
    "context_kind": ("ring", "all_to_all"),
    "recompute": ("none", "selective", "full"),
    "overlap_data": (True, False),
    "overlap_context": (True,),
    "overlap_expert": (True, False),
    "precision": tuple(PRECISIONS),
    "gradient_dtype": ("fp32", "bf16", "fp16"),
    "state_dtype": ("fp32", "bf16", "fp16", "fp8"),
    "optimizer": OPTIMIZERS,
    "attention": ("flash", "unfused"),
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


def rules(plan: Plan, workload: Workload | None) -> Iterator[str]:
    """What goes together, beyond the table."""
    yield from number_rules(plan)
    if plan.zero_stage == 0 and plan.data_shard is not None:
        yield "`data_shard` is given with `zero_stage` 0; Megatron shares nothing then"
    if plan.optimizer == "muon" and plan.zero_stage:
        yield "`optimizer` is muon; Megatron's does not divide its states (`zero_stage` 0)"
    if plan.schedule == "interleaved" and plan.pipeline == 2 and not plan.overlap_pipeline:
        yield "`overlap_pipeline` is off with `pipeline` 2; Megatron interleaves two stages with overlap only"
    if plan.recompute_share < 1:
        yield from _share_rules(plan, None if workload is None else layers(workload))
    if workload is not None and not has_experts(workload) and plan.expert * plan.expert_tensor > 1:
        yield f"`expert` is {plan.expert} for a model without experts"
    if workload is not None and plan.context > 1 and int(workload.sequence) % (2 * plan.context):
        yield f"`context` is {plan.context}; Megatron divides the sequence by twice that"


def number_rules(plan: Plan) -> Iterator[str]:
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
    """The environment that `validate_args` wants."""
    if plan.zero_stage > 1:
        yield "CUDA_DEVICE_MAX_CONNECTIONS is not 1, which Megatron-FSDP wants"
    elif plan.tensor > 1 or plan.context > 1:
        yield "CUDA_DEVICE_MAX_CONNECTIONS=1 before Blackwell, which tensor and context parallelism want"


ABOUT_MODEL = frozenset(
    "num-layers hidden-size ffn-hidden-size num-attention-heads group-query-attention num-query-groups kv-channels "
    "max-position-embeddings position-embedding-type use-rotary-position-embeddings rotary-base rotary-percent "
    "swiglu normalization norm-epsilon disable-bias-linear add-qkv-bias untie-embeddings-and-output-weights num- "
    "experts moe-ffn-hidden-size moe-router-topk moe-layer-freq moe-shared-expert-intermediate-size vocab-size "
    "tokenizer-type tokenizer-model data-path split mock-data data-cache-path num-workers train-iters train-samples "
    "lr min-lr lr-decay-style lr-decay-iters lr-warmup-iters lr-warmup-fraction weight-decay clip-grad adam-beta1 "
    "adam-beta2 adam-eps init-method-std attention-dropout hidden-dropout seed save load save-interval ckpt-format "
    "log-interval log-throughput eval-interval eval-iters tensorboard-dir wandb-project wandb-exp-name distributed- "
    "backend distributed-timeout-minutes transformer-impl nnodes nproc-per-node node-rank rdzv-backend rdzv- "
    "endpoint master-addr master-port use-mcore-models moe-grouped-gemm moe-permute-fusion moe-router-load- "
    "balancing-type moe-aux-loss-coeff moe-router-dtype moe-router-num-groups moe-router-group-topk moe-router- "
    "score-function moe-router-enable-expert-bias moe-router-topk-scaling-factor multi-latent-attention q-lora-rank "
    "kv-lora-rank qk-head-dim qk-pos-emb-head-dim v-head-dim qk-layernorm no-gradient-accumulation-fusion manual-gc "
    "manual-gc-interval".split()
)

FRAMEWORK = Framework(
    name="megatron",
    title="Megatron-LM",
    file="launch-megatron.sh",
    alternatives=ALTERNATIVES,
    settings=megatron_settings,
    fields=megatron_fields,
    rules=rules,
    elsewhere=elsewhere,
    dump=_text.dump_flags,
    parse=_text.parse_flags,
    recognises=lambda text: any(f"--{name}" in text for name in ("tensor-model-parallel-size", "micro-batch-size")),
    about_model=ABOUT_MODEL,
)
