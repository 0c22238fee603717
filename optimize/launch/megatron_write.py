"""A plan as the options of Megatron's core, under the names of Megatron-LM's flags (megatron.py has their source)."""

from costmodel.inputs import Plan, options
from optimize.launch.framework import Job, Settings, router_groups
from optimize.launch.layout import layout
from optimize.launch.megatron_model import model_flags
from optimize.launch.megatron_words import (
    FSDP_GRADIENTS,
    LOSS,
    LOSS_KERNELS,
    MODULES,
    OPTIMIZERS,
    PRECISIONS,
    SHARDING,
    UNFUSED,
)


def megatron_settings(job: Job) -> Settings:
    """All flags of a plan, in the order of Megatron's own groups."""
    plan = job.plan
    settings: Settings = {
        "tensor-model-parallel-size": plan.tensor,
        "pipeline-model-parallel-size": plan.pipeline,
        "context-parallel-size": plan.context,
        "micro-batch-size": plan.microbatch,
        "global-batch-size": job.batch,
        "seq-length": job.sequence,
    }
    if plan.context > 1:
        settings["cp-comm-type"] = "p2p" if plan.context_kind == "ring" else "a2a"
    if job.has_experts:
        settings |= {"expert-model-parallel-size": plan.expert, "expert-tensor-parallel-size": plan.expert_tensor}
        settings |= {"moe-token-dispatcher-type": "alltoall"}
    settings |= _switches(plan) | _stages(job) | _recompute(job) | _shards(plan) | _numbers(plan)
    settings |= model_flags(job.model, job.sequence, router_groups(job)) or {}
    return {name: value for name, value in settings.items() if value is not None and value is not False}


def _switches(plan: Plan) -> Settings:
    return {
        "sequence-parallel": plan.sequence_parallel,
        "tp-comm-overlap": plan.overlap_tensor,
        "overlap-moe-expert-parallel-comm": plan.overlap_expert,
        "attention-backend": "flash" if plan.attention.startswith("flash") else "unfused",
        **dict.fromkeys(UNFUSED, not plan.fused_kernels),
        LOSS: plan.loss == "fused" or None,
        LOSS_KERNELS: "te" if plan.loss == "fused" else None,
    }


def _stages(job: Job) -> Settings:
    plan = job.plan
    settings: Settings = {}
    if plan.stage_layers is not None:
        settings["pipeline-model-parallel-layout"] = layout(plan, job.layers)
    elif plan.virtual_stages > 1:
        settings["num-virtual-stages-per-pipeline-rank"] = plan.virtual_stages
    if plan.virtual_stages > 1 and not plan.overlap_pipeline:
        settings["no-overlap-p2p-communication"] = True
    return settings


def _recompute(job: Job) -> Settings:
    plan = job.plan
    if plan.recompute == "none":
        return {}
    if plan.recompute == "selective":
        return {"recompute-granularity": "selective", "recompute-modules": "core_attn"}
    if modules := options.modules_of(plan.recompute):
        words = [word for name in modules for word in MODULES[name] if job.has_experts or word != "moe"]
        return {"recompute-granularity": "selective", "recompute-modules": words if len(words) > 1 else words[0]}
    settings: Settings = {"recompute-granularity": "full", "recompute-method": "uniform", "recompute-num-layers": 1}
    if plan.recompute_share < 1 and plan.stage_layers is None:
        each = job.layers // (plan.pipeline * plan.virtual_stages)
        settings |= {"recompute-method": "block", "recompute-num-layers": max(1, round(plan.recompute_share * each))}
        settings |= {"num-layers": job.layers}
    return settings


def _shards(plan: Plan) -> Settings:
    settings: Settings = {"use-distributed-optimizer": plan.zero_stage > 0}
    if plan.zero_stage > 1:
        settings |= {"use-megatron-fsdp": True, "data-parallel-sharding-strategy": SHARDING[plan.zero_stage]}
        settings |= {"ckpt-format": "fsdp_dtensor"}
        settings |= dict.fromkeys(FSDP_GRADIENTS, plan.gradient_dtype)
    if plan.data_shard is not None:
        settings["num-distributed-optimizer-instances"] = plan.data * plan.context // plan.data_shard
    settings["overlap-grad-reduce"] = plan.overlap_data
    settings["overlap-param-gather"] = plan.overlap_data and plan.zero_stage > 0
    return settings


def _numbers(plan: Plan) -> Settings:
    settings: Settings = {"optimizer": plan.optimizer if plan.optimizer in OPTIMIZERS else None}
    settings |= PRECISIONS[plan.precision]
    bf16 = "bf16" in settings and plan.gradient_dtype == "bf16"
    settings["grad-reduce-in-bf16"] = bf16 and plan.zero_stage < 2
    settings["accumulate-allreduce-grads-in-fp32"] = plan.precision == "fp16" and plan.gradient_dtype == "fp32"
    if plan.state_dtype != "fp32":
        settings |= {"use-precision-aware-optimizer": True}
        settings |= {"exp-avg-dtype": plan.state_dtype, "exp-avg-sq-dtype": plan.state_dtype}
    if plan.offload_optimizer:
        settings |= {"use-precision-aware-optimizer": True, "optimizer-cpu-offload": True}
        settings |= {"optimizer-offload-fraction": plan.offload_optimizer}
    return settings
