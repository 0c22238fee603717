"""The habits of training software: what it does where neither plan nor model says, by class.

A class is a way to write training software, not a source of measurements; a `Stack` names it and holds its habits
beside the constants that were fitted to it. Evidence: K is the software's own documentation, C was chosen on
calibration rows, V on rows of validation (each is in the CHANGELOG).
"""

import dataclasses
from collections.abc import Mapping
from types import MappingProxyType

from costmodel.inputs.options import RecomputeRow
from costmodel.inputs.stack import Habits

# C: of the allocator, by the memory of nanotron's calibration rows: 0.3 GB that no tensor needs, 5 % of activations
# Kept of other moments is half, between none and all. C: ml-engineering's logs .007 with it, .056 and .048 with these,
# BigScience 1B3's .102, .099 and .121; the others are equal
_TORCH = {"workspace_bytes": 0.3e9, "fragmentation": 0.05, "cached": 0.5}

DEEPSPEED_BUCKETS = {"workspace_bytes": 2.3e9}
"""Beside the allocator's 0.3 GB, buckets of 5e8 elements in 16 bits for reductions and gathers. K: DeepSpeed's defaults
`reduce_bucket_size` and `allgather_bucket_size`."""

FUSED_LOSS_BYTES = 4.0
"""Bytes of one logit where loss and gradient are one kernel: 16-bit logits, and their gradient in a second copy."""

UNFUSED_LOSS_BYTES = 14.0
"""16-bit logits, and in 32 bits logits, exponentials and gradient. C: nanotron's calibration rows. Where the 16-bit
logits are deleted before, PyTorch's tracker counts 12; 32-bit ones do not fit into what these leave."""

GATHERED_LOSS_BYTES = 18.0
"""As an unfused loss, with the 16-bit logits of all tensor ranks gathered, and their gradient. V: Hagemann's runs out
of memory (CHANGELOG)."""

EAGER_NORM_BYTES = 4.0
"""Of each element of a norm of Hugging Face's modules, beside 2: autograd keeps its input in 32 bits, and in 16 the
normalised one. K: what PyTorch itself saves (`tests/golden/eager_blocks.toml`)."""

# K: a compiler that lays out all memory before the run: no caching allocator, fused loss
_XLA = {"logit_bytes": FUSED_LOSS_BYTES, "workspace_bytes": 0.2e9, "fragmentation": 0.0}
# K: no context beside it; gathers product by product: one of 4 h^2 + 2 (4 h^2), or of 4 h^2 + 3 (8/3 h^2)
_XLA_ON_TPU = _XLA | {"context_bytes": 0.2e9, "communicator_bytes": 0.0, "gathered_share": 1.0 / 3.0}

TORCH_SELECTIVE = RecomputeRow(
    keep_core=1.0, keep_rest=0.35, redo_core=0.0, redo_rest=0.45, working_core=0.0, working_rest=1.0
)
"""K: torchtitan's selective operators: attention and every second product are kept, the others done again."""

XLA_SELECTIVE = RecomputeRow(
    keep_core=0.0, keep_rest=0.5, redo_core=1.0, redo_rest=0.38, working_core=1.0, working_rest=1.0
)
"""K: MaxText's `minimal` keeps the outputs of products. C: the share redone, by its v5p rows."""

XLA_OFFLOADED = RecomputeRow(
    keep_core=0.0, keep_rest=0.0, redo_core=1.0, redo_rest=0.75, working_core=1.0, working_rest=1.0
)
"""K: MaxText's `qkv_proj_offloaded`, and its recipes' `custom`: projections wait in the host's memory."""


def _memory(**fields: float) -> tuple[tuple[str, float], ...]:
    return tuple(fields.items())


# K: SimuMax's products on a B200: of one shape, what adds to a sum takes .45 of the passes over it longer than what
# does not (226 pairs in 16 bits, `tests/measured/test_laws.py`). Of software whose products add: Megatron's fusion
_SUMS_BESIDE = {"sums_exposed": 0.45}

# K: MaxText's documents: FSDP over a slice, the compiler overlaps
_COMPILED = Habits(
    zero_stage=3,
    overlap_tensor=True,
    overlap_pipeline=True,
    selective=XLA_SELECTIVE,
    always_recomputes=True,
    keeps_32bit_weights=True,
    memory=_memory(**_XLA_ON_TPU),
)
# K: JAX-Toolbox's `docs/GPU_performance.md` (bcbbfa5): gathers and reductions run ahead, as its containers and recipes
# set it, and are combined up to a layer; transfers of pipelines do so on demand only, and products that overlap
# their own collectives are in no recommended set. XLA's partitioner reduces gradients in the 16 bits of their products
# (tests/measured/test_compiled.py). The host does nothing within a step: one program holds it, and JAX starts the next
# before it has ended (docs.jax.dev, asynchronous dispatch)
_COMPILED_FOR_GPUS = dataclasses.replace(
    _COMPILED,
    gradient_dtype="bf16",
    overlap_tensor=False,
    overlap_pipeline=False,
    captured=1.0,
    captured_iteration=True,
    memory=_memory(**_XLA),
)

# K, `fp16_gradients`: Megatron's `arguments.py` sets `accumulate_allreduce_grads_in_fp32` under bf16 alone (v2.5 to
# core 0.15; `--fp32-allreduce` of v1.0 is off too), and NeMo `fp32_grad_accum`; DeepSpeed's are in the weights' type
# K, `widens_gradients`: `_copy_model_grads_to_main_grads` of Megatron's optimizers; 20 and 4 + 16 / d bytes of a
# parameter by its document of the distributed optimizer
# K, `updates_on_host`: DeepSpeed's CPUAdam, Megatron-Core's hybrid optimizer and FSDP's CPUOffload step on processors;
# MaxText's `optimizer_memory_host_offload` brings the states to the accelerator
SOFTWARE: Mapping[str, Habits] = MappingProxyType({
    # K: NeMo and Megatron-Bridge performance guides: distributed optimizer, overlap of all traffic, fused kernels,
    # gradients reduced in 16 bits (grad_reduce_in_fp32 off) and 8-bit weights (fp8_param_gather) in the recipes
    "megatron-core": Habits(
        recompute="none",
        gradient_dtype="bf16",
        fp16_gradients=True,
        widens_gradients=True,
        overlap_tensor=True,
        overlap_pipeline=True,
        loss="vocab_parallel",
        eager_experts=True,
        keeps_8bit_weights=True,
        updates_on_host=True,
        memory=_memory(logit_bytes=8.0, idle_gradients=1.0, **_SUMS_BESIDE, **_TORCH),
    ),
    # K: Korthikanti 2022 and Narayanan 2021: plain data parallelism, scores in memory
    "megatron-2022": Habits(
        zero_stage=0,
        fp16_gradients=True,
        widens_gradients=True,
        sequence_parallel=False,
        overlap_data=False,
        attention="flash_2",
        loss="vocab_parallel",
        dropout=True,
        updates_on_host=True,
        memory=_memory(logit_bytes=8.0, **_SUMS_BESIDE, **_TORCH),
    ),
    # K: torchtitan and llm-foundry documents: FSDP prefetches the next layer's weights
    "fsdp": Habits(
        zero_stage=3,
        attention="flash_2",
        loss="framework",
        fused_kernels=False,
        selective=TORCH_SELECTIVE,
        eager=True,
        keeps_32bit_weights=True,
        updates_on_host=True,
        memory=_memory(logit_bytes=UNFUSED_LOSS_BYTES, early_gradients=0.0, **_TORCH),
    ),
    # K: DeepSpeed's documents: gradients in the weights' own type; models are Hugging Face's own modules, run eagerly
    "deepspeed": Habits(
        zero_stage=3,
        sequence_parallel=False,
        gradient_dtype="bf16",
        fp16_gradients=True,
        attention="flash_2",
        loss="framework",
        dropout=True,
        eager=True,
        norm_copies_bytes=EAGER_NORM_BYTES,
        deepspeed_zero=True,
        updates_on_host=True,
        memory=_memory(adds_apart=1.0, logit_bytes=12.0, **_TORCH | DEEPSPEED_BUCKETS),
    ),
    # K: nanotron's README: 32-bit accumulation, asynchronous column-linear layers
    "nanotron": Habits(
        zero_stage=0,
        recompute="none",
        overlap_data=False,
        attention="flash_2",
        loss="vocab_parallel",
        whole_inputs=True,
        weighs_head=True,
        eager=True,
        waits_for_ranks=1.0,
        rotation_copies=4.0,
        memory=_memory(adds_apart=1.0, logit_bytes=UNFUSED_LOSS_BYTES, **_TORCH),
    ),
    "xla": _COMPILED,
    "xla-gpu": _COMPILED_FOR_GPUS,
})  # fmt: skip
"""Classes of software by name: Megatron-Core (NeMo, Megatron-Bridge), Megatron-LM of 2020 to 2022 (and its DeepSpeed
branch), PyTorch's FSDP (torchtitan, llm-foundry), DeepSpeed, nanotron, and JAX compiled by XLA (MaxText, Pax), for
TPUs, where it was measured, and for GPUs, where kernels and collectives are libraries' and nothing was."""

COMPILED = ("xla", "xla-gpu")
"""The classes of software that XLA compiles."""

NEVER_MEASURED = ("xla-gpu",)
"""Classes that no row of calibration is of: those of today stand for them (`measured/fit/newcomers.py`)."""

ALSO_KNOWN_AS: Mapping[str, str] = MappingProxyType({
    "megatron": "megatron-core", "megatron-bridge": "megatron-core", "nemo": "megatron-core",
    "megatron-lm": "megatron-core", "megatron-deepspeed": "megatron-2022", "torchtitan": "fsdp",
    "llm-foundry": "fsdp", "pytorch": "fsdp", "maxtext": "xla", "jax": "xla", "pax": "xla",
})  # fmt: skip
"""Names of frameworks, and the class that each belongs to."""
