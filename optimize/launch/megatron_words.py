"""Words of Megatron's core for the options of a plan, as they are written and read."""

import itertools
from typing import Any

PRECISIONS: dict[str, dict[str, Any]] = {
    "fp32": {},
    "fp16": {"fp16": True},
    "bf16": {"bf16": True},
    "fp8_tensor": {"bf16": True, "fp8-format": "hybrid", "fp8-recipe": "delayed"},
    "fp8_block": {"bf16": True, "fp8-format": "e4m3", "fp8-recipe": "blockwise"},
    "mxfp8": {"bf16": True, "fp8-format": "e4m3", "fp8-recipe": "mxfp8"},
    "nvfp4": {"bf16": True, "fp4-format": "e2m1", "fp4-recipe": "nvfp4"},
}
SIGNS = frozenset(
    {
        "tensor-model-parallel-size", "pipeline-model-parallel-size", "context-parallel-size",
        "expert-model-parallel-size", "micro-batch-size", "global-batch-size",
    }
)  # fmt: skip
"""Flags of degrees and of batches."""
OPTIMIZERS = ("adam", "sgd", "muon")
SHARDING = {2: "optim_grads", 3: "optim_grads_params"}
FSDP_GRADIENTS = ("megatron-fsdp-main-grads-dtype", "megatron-fsdp-grad-comm-dtype")
"""The types in which Megatron-FSDP holds and sends gradients; `auto`, their default, is the weights' own."""
UNFUSED = ("no-masked-softmax-fusion", "no-bias-gelu-fusion", "no-bias-swiglu-fusion", "no-bias-dropout-fusion")

LOSS, LOSS_KERNELS = "cross-entropy-loss-fusion", "cross-entropy-fusion-impl"
"""A fused loss, and whose: `native` (which saves next to nothing: inputs/options.py), `te`, or `linear` with the head.
Source: megatron/core/model_parallel_config.py."""

MODULES = {
    "norms": ("layernorm",),
    "gates": ("moe_act",),
    "latent": ("mla_up_proj",),
    "feed_forward": ("mlp", "moe"),
}
"""Modules that are computed again alone, in the words of `recompute_modules`."""

MODULE_SETS = tuple("+".join(c) for n in range(1, 5) for c in itertools.combinations(MODULES, n))
