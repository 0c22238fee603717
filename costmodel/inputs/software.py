"""The habits of training software: what it does where neither plan nor model says, by class.

A class is a way to write training software, not a source of measurements; a `Stack` names it and holds its habits
beside the constants that were fitted to it. Evidence: K is the software's own documentation, C was chosen on
calibration rows, V on rows of validation (each is in the CHANGELOG).
"""

import dataclasses
from collections.abc import Mapping
from types import MappingProxyType

from costmodel.inputs import options
from costmodel.inputs.options import AttentionRow, PrecisionRow, RecomputeRow


@dataclasses.dataclass(frozen=True, kw_only=True)
class Habits:
    """What a class of software does. The first block are defaults of a plan; the others are physics of any plan.

    The defaults change nothing: operators and option rows are those of the tables.
    """

    # fields of `Plan`, where whoever reads or asks says nothing
    zero_stage: int = 1
    sequence_parallel: bool = True  # where tensor > 1
    recompute: str | None = None  # None: the least that fits in memory
    gradient_dtype: str = "fp32"
    overlap_data: bool = True
    overlap_tensor: bool = False
    overlap_pipeline: bool = False
    always_recomputes: bool = False  # K: MaxText's and Pax's own configurations set a policy other than none
    weighs_head: bool = False  # stages are cut by cost, the head among them
    # option rows
    attention: str = "flash_3"  # what "flash" means: the latest kernel of the die, or FlashAttention-2
    selective: RecomputeRow | None = None  # what "selective" means; None: as in Megatron, the attention's core
    offloaded_activations: float = 0.0  # share of the kept activations that waits in the host's memory, beside compute
    keeps_32bit_weights: bool = False  # the weights themselves are the optimizer's 32-bit copy (FSDP, MaxText)
    keeps_8bit_weights: bool = False  # under 8-bit precisions weights are held, gathered, and inputs saved, in 8 bits
    whole_inputs: bool = False  # without a pipeline, inputs of column-parallel layers are kept as they were gathered
    fused_kernels: bool = True  # norms and activations in one kernel each, where the plan wants them
    # operators (models.variants)
    eager: bool = False  # gates are kept after their activation too
    rotation_copies: float = 0.0  # of queries, in their own width, that an eager rotation leaves for the backward pass
    rotation_passes: bool = False  # the rotation is a chain of kernels
    norm_copies_bytes: float | None = None  # of unfused norms in 32 bits, per element; None: norms are one kernel
    norms_alone_fused: bool = False  # one kernel for each norm, beside other operators that are not fused
    gathered_loss: bool = False  # every tensor rank computes the loss on all logits, in 32 bits
    softmax_in_32_bits: bool = False
    drops_inputs: bool = False  # what recompute starts from waits in the host's memory
    # the host
    captured: float = 0.0  # share of the kernels that CUDA graphs hold: the host does not issue them again
    captured_iteration: bool = False  # a graph holds the whole step: no host work for experts, microbatches or the step
    # the model
    dropout: bool = False  # in models of GPT's kind
    memory: tuple[tuple[str, float], ...] = ()  # fields of the Stack that hold bytes outside tensors

    def precision_row(self, name: str) -> PrecisionRow:
        """The row of a precision as this software has it."""
        row = options.PRECISIONS[name]
        if self.keeps_8bit_weights and row.copy_bytes > 0:
            return dataclasses.replace(row, weight_bytes=1.0, copy_bytes=row.copy_bytes - 1.0, saved_inputs=0.5)
        if self.keeps_32bit_weights and row.master_bytes > 0:
            return dataclasses.replace(row, shared_master=1.0)
        return row

    def attention_row(self, name: str) -> AttentionRow:
        """The row of an attention kernel; `flash` is the one that this software calls."""
        return options.ATTENTIONS[self.attention if name == "flash" else name]

    def recompute_rows(self) -> dict[str, RecomputeRow]:
        """The rows of all modes as this software has them."""
        rows = options.RECOMPUTES | ({} if self.selective is None else {"selective": self.selective})
        left = 1.0 - self.offloaded_activations
        if left == 1.0:
            return rows
        kept = ("keep_core", "keep_rest")
        return {
            mode: dataclasses.replace(row, **{name: left * getattr(row, name) for name in kept})
            for mode, row in rows.items()
        }


# C: of the allocator, by the memory of nanotron's calibration rows: 0.3 GB that no tensor needs, 5 % of activations
_TORCH = {"workspace_bytes": 0.3e9, "fragmentation": 0.05}

FUSED_LOSS_BYTES = 4.0
"""Bytes of one logit where loss and gradient are one kernel: 16-bit logits, and their gradient in a second copy."""

UNFUSED_LOSS_BYTES = 14.0
"""16-bit logits, and in 32 bits logits, exponentials and gradient. C: nanotron's calibration rows."""

GATHERED_LOSS_BYTES = 18.0
"""As an unfused loss, with the 16-bit logits of all tensor ranks gathered, and their gradient. V: Hagemann's runs out
of memory (CHANGELOG)."""

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


def _memory(**fields: float) -> tuple[tuple[str, float], ...]:
    return tuple(fields.items())


SOFTWARE: Mapping[str, Habits] = MappingProxyType({
    # K: NeMo and Megatron-Bridge performance guides: distributed optimizer, overlap of all traffic, fused kernels,
    # gradients reduced in 16 bits (grad_reduce_in_fp32 off) and 8-bit weights (fp8_param_gather) in the recipes
    "megatron-core": Habits(
        recompute="none",
        gradient_dtype="bf16",
        overlap_tensor=True,
        overlap_pipeline=True,
        keeps_8bit_weights=True,
        memory=_memory(logit_bytes=8.0, **_TORCH),
    ),
    # K: Korthikanti 2022 and Narayanan 2021: plain data parallelism, scores in memory, 32-bit gradients
    "megatron-2022": Habits(
        zero_stage=0,
        sequence_parallel=False,
        overlap_data=False,
        attention="flash_2",
        dropout=True,
        memory=_memory(logit_bytes=8.0, **_TORCH),
    ),
    # K: torchtitan and llm-foundry documents: FSDP prefetches the next layer's weights
    "fsdp": Habits(
        zero_stage=3,
        attention="flash_2",
        fused_kernels=False,
        selective=TORCH_SELECTIVE,
        eager=True,
        keeps_32bit_weights=True,
        memory=_memory(logit_bytes=UNFUSED_LOSS_BYTES, **_TORCH),
    ),
    # K: DeepSpeed's documents: gradients in the weights' own type
    "deepspeed": Habits(
        zero_stage=3,
        sequence_parallel=False,
        gradient_dtype="fp16",
        attention="flash_2",
        dropout=True,
        memory=_memory(logit_bytes=12.0, **_TORCH),
    ),
    # K: nanotron's README: 32-bit accumulation, asynchronous column-linear layers
    "nanotron": Habits(
        zero_stage=0,
        recompute="none",
        overlap_data=False,
        attention="flash_2",
        whole_inputs=True,
        weighs_head=True,
        eager=True,
        rotation_copies=4.0,
        memory=_memory(logit_bytes=UNFUSED_LOSS_BYTES, **_TORCH),
    ),
    # K: MaxText's documents: FSDP over a slice, the compiler overlaps
    "xla": Habits(
        zero_stage=3,
        overlap_tensor=True,
        overlap_pipeline=True,
        selective=XLA_SELECTIVE,
        always_recomputes=True,
        keeps_32bit_weights=True,
        memory=_memory(**_XLA),
    ),
})  # fmt: skip
"""Classes of software by name: Megatron-Core (NeMo, Megatron-Bridge), Megatron-LM of 2020 to 2022 (and its DeepSpeed
branch), PyTorch's FSDP (torchtitan, llm-foundry), DeepSpeed, nanotron, and JAX compiled by XLA (MaxText, Pax)."""

ALSO_KNOWN_AS: Mapping[str, str] = MappingProxyType({
    "megatron": "megatron-core", "megatron-bridge": "megatron-core", "nemo": "megatron-core",
    "megatron-lm": "megatron-core", "megatron-deepspeed": "megatron-2022", "torchtitan": "fsdp",
    "llm-foundry": "fsdp", "pytorch": "fsdp", "maxtext": "xla", "jax": "xla", "pax": "xla",
})  # fmt: skip
"""Names of frameworks, and the class that each belongs to."""
