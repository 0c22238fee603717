"""What a row leaves open, by software class: the stated defaults of `predict`.

Each class is a way to write training software, not a source; a row names its class by words that any source may use
(notes.stack_of). Evidence: K is the software's own documentation, C was chosen on calibration rows.
"""

import dataclasses
from collections.abc import Mapping

from costmodel.inputs import AttentionRow, RecomputeRow

STACKS = ("nanotron", "fsdp", "megatron_early", "megatron_core", "xla", "deepspeed")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Habits:
    """What a class of software does where the row does not say."""

    zero_stage: int
    sequence_parallel: bool  # where tensor > 1
    attention: str
    recompute: str | None  # None: the least that fits in memory
    gradient_dtype: str
    overlap_data: bool
    overlap_tensor: bool
    overlap_pipeline: bool
    fused_kernels: bool
    selective: RecomputeRow | None  # what "selective" means; None: as in Megatron, the attention's core
    whole_inputs: bool = False  # variants.gathered_inputs
    always_recomputes: bool = False  # K: MaxText's and Pax's own configurations set a policy other than none
    keeps_32bit_weights: bool = False  # the weights themselves are the optimizer's 32-bit copy (FSDP, MaxText)
    keeps_8bit_weights: bool = False  # under 8-bit precisions the weights are held, and gathered, in 8 bits
    weighs_head: bool = False  # stages.by_cost
    eager: bool = False  # variants.eager_activation
    rotation_copies: float = 0.0  # of queries, in their own width, that an eager rotation leaves for the backward pass
    memory: Mapping[str, float]  # fields of the Stack that hold bytes outside tensors


# C: of the allocator, by the memory of nanotron's calibration rows: 0.3 GB that no tensor needs, 5 % of activations
_TORCH = {"workspace_bytes": 0.3e9, "fragmentation": 0.05}

FRAMEWORK_ATTENTION = AttentionRow(flash=0.0, score_touches_forward=14.0, score_touches_backward=20.0)
"""Scores through the framework's operators: written (1), masked (2), cast up (3), softmax in 32 bits (4), cast down
(3), read (1); backward the same for their gradients, with two more products. K: counted, in touches of two bytes."""

FUSED_LOSS_BYTES = 4.0
"""Bytes of one logit where loss and gradient are one kernel: 16-bit logits, and their gradient in a second copy."""

# K: a compiler that lays out all memory before the run: no caching allocator, no context beside it, fused loss
_XLA = {
    "logit_bytes": FUSED_LOSS_BYTES,
    "context_bytes": 0.2e9,
    "workspace_bytes": 0.2e9,
    "fragmentation": 0.0,
    "communicator_bytes": 0.0,
}

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

UNFUSED_LOSS_BYTES = 14.0
"""16-bit logits, and in 32 bits logits, exponentials and gradient. C: nanotron's calibration rows."""

GATHERED_LOSS_BYTES = 18.0
"""The same of an unfused loss with the 16-bit logits of all tensor ranks gathered, and their gradient. V: Hagemann's
runs out of memory (CHANGELOG)."""

HABITS = {
    # K: Korthikanti 2022 and Narayanan 2021: plain data parallelism, scores in memory, 32-bit gradients
    "megatron_early": Habits(
        zero_stage=0,
        sequence_parallel=False,
        attention="flash",
        recompute=None,
        gradient_dtype="fp32",
        overlap_data=False,
        overlap_tensor=False,
        overlap_pipeline=False,
        fused_kernels=True,
        selective=None,
        memory={"logit_bytes": 8.0, **_TORCH},
    ),
    # K: NeMo and Megatron-Bridge performance guides: distributed optimizer, overlap of all traffic, fused kernels,
    # gradients reduced in 16 bits (grad_reduce_in_fp32 off) and 8-bit weights (fp8_param_gather) in the recipes
    "megatron_core": Habits(
        zero_stage=1,
        sequence_parallel=True,
        attention="flash",
        recompute="none",
        gradient_dtype="bf16",
        overlap_data=True,
        overlap_tensor=True,
        overlap_pipeline=True,
        fused_kernels=True,
        selective=None,
        keeps_8bit_weights=True,
        memory={"logit_bytes": 8.0, **_TORCH},
    ),
    # K: nanotron's README: 32-bit accumulation, asynchronous column-linear layers
    "nanotron": Habits(
        zero_stage=0,
        sequence_parallel=True,
        attention="flash",
        recompute="none",
        gradient_dtype="fp32",
        overlap_data=False,
        overlap_tensor=False,
        overlap_pipeline=False,
        fused_kernels=True,
        selective=None,
        whole_inputs=True,
        weighs_head=True,
        eager=True,
        rotation_copies=4.0,
        memory={"logit_bytes": UNFUSED_LOSS_BYTES, **_TORCH},
    ),
    # K: torchtitan and llm-foundry documents: FSDP prefetches the next layer's weights
    "fsdp": Habits(
        zero_stage=3,
        sequence_parallel=True,
        attention="flash",
        recompute=None,
        gradient_dtype="fp32",
        overlap_data=True,
        overlap_tensor=False,
        overlap_pipeline=False,
        fused_kernels=False,
        selective=TORCH_SELECTIVE,
        eager=True,
        keeps_32bit_weights=True,
        memory={"logit_bytes": UNFUSED_LOSS_BYTES, **_TORCH},
    ),
    # K: DeepSpeed's documents: gradients in the weights' own type
    "deepspeed": Habits(
        zero_stage=3,
        sequence_parallel=False,
        attention="flash",
        recompute=None,
        gradient_dtype="fp16",
        overlap_data=True,
        overlap_tensor=False,
        overlap_pipeline=False,
        fused_kernels=True,
        selective=None,
        memory={"logit_bytes": 12.0, **_TORCH},
    ),
    # K: MaxText's documents: FSDP over a slice, the compiler overlaps
    "xla": Habits(
        zero_stage=3,
        sequence_parallel=True,
        attention="flash",
        recompute=None,
        gradient_dtype="fp32",
        overlap_data=True,
        overlap_tensor=True,
        overlap_pipeline=True,
        fused_kernels=True,
        selective=XLA_SELECTIVE,
        always_recomputes=True,
        keeps_32bit_weights=True,
        memory=_XLA,
    ),
}


def selective_row(facts: Mapping[str, float], habits: Habits) -> RecomputeRow | None:
    """What the software of a row means by selective; None: the attention's core."""
    if habits.selective is XLA_SELECTIVE and facts.get("offloaded_projections"):
        return XLA_OFFLOADED
    return habits.selective
