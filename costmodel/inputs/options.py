"""The options of a plan as rows of numbers: one row for each ZeRO stage, recompute mode and so on (schedules.py too).

A formula multiplies by these numbers and never asks which option it is, so a batch may mix all of them in one
compiled program, and a mixture of rows is a relaxed option.
"""

import dataclasses

from costmodel.pytree import pytree
from costmodel.semantics import Scalar


@pytree
class ZeroRow:
    """What a ZeRO stage divides over the ranks that share weights (1: divided), and its traffic per microbatch."""

    shards: Scalar = 0.0  # 1 where anything is divided
    weights: Scalar = 0.0
    gradients: Scalar = 0.0
    states: Scalar = 0.0
    gathers_once: Scalar = 0.0  # all-gathers of the weights per step
    reduces_once: Scalar = 0.0  # reduce-scatters of the gradients per step
    gathers_per_microbatch: Scalar = 0.0
    reduces_per_microbatch: Scalar = 0.0
    once_under_pipeline: Scalar = 0.0  # 1 where a pipeline reduces whole gradients once a step, not every microbatch

    def under(self, piped: Scalar) -> "ZeroRow":
        """The row under a pipeline (1) or without (0).

        Gradients of ZeRO 2 add up over the microbatches of a pipeline and are reduced once a step. Source: MegaScale
        (Jiang et al. 2024), section 3.2; Llama 3 (Grattafiori et al. 2024), section 3.3.2.
        """
        once = self.once_under_pipeline * piped
        return dataclasses.replace(
            self,
            gradients=(1 - once) * self.gradients,
            reduces_once=self.reduces_once + once * self.reduces_per_microbatch,
            reduces_per_microbatch=(1 - once) * self.reduces_per_microbatch,
        )


ZERO_STAGES = {
    0: ZeroRow(),
    1: ZeroRow(shards=1.0, states=1.0, gathers_once=1.0, reduces_once=1.0),
    2: ZeroRow(
        shards=1.0, gradients=1.0, states=1.0, gathers_once=1.0, reduces_per_microbatch=1.0, once_under_pipeline=1.0
    ),
    3: ZeroRow(
        shards=1.0, weights=1.0, gradients=1.0, states=1.0, gathers_per_microbatch=2.0, reduces_per_microbatch=1.0
    ),
}


@pytree
class MethodRow:
    """How data ranks that hold whole weights (ZeRO 0) agree: what is left of the all-reduce of gradients, and memory.

    Parts at the same places of all ranks can be summed on their way; of unlike places every rank gathers those of all
    the others, which takes n/2 times as much of each link as a sum. Payloads as published: target.METHODS.
    """

    payload: Scalar = 1.0  # elements that a rank sends, over all
    unlike: Scalar = 0.0  # 1 where they lie at other places on every rank
    per_step: Scalar = 1.0  # exchanges: less than one where ranks go on alone in between
    state_bytes: Scalar = 0.0  # kept for each trained parameter besides: shifts, estimates

    def gradient_share(self, ranks: Scalar) -> Scalar:
        """Bytes of the exchange over those of all gradients."""
        return self.payload * (1 - self.unlike + self.unlike * ranks / 2)


@pytree
class ModuleRow:
    """A number for each module (workload.Module). In a plan: the share of the layers in which its outputs are dropped
    and computed again."""

    norms: Scalar = 0.0
    gates: Scalar = 0.0
    latent: Scalar = 0.0
    feed_forward: Scalar = 0.0

    def scaled(self, factor: Scalar) -> "ModuleRow":
        """All numbers times a factor."""
        return ModuleRow(**{name: factor * getattr(self, name) for name in MODULES})


MODULES = tuple(f.name for f in dataclasses.fields(ModuleRow))  # pyright: ignore[reportArgumentType]


@pytree
class RecomputeRow:
    """Shares of the saved activations that are kept, and of the forward work that the backward pass repeats."""

    keep_core: Scalar = 0.0
    keep_rest: Scalar = 0.0
    redo_core: Scalar = 0.0
    redo_rest: Scalar = 0.0
    working_core: Scalar = 0.0  # 1 where one block's dropped activations come back while its backward pass runs
    working_rest: Scalar = 0.0


RECOMPUTES = {
    "none": RecomputeRow(keep_core=1.0, keep_rest=1.0),
    "selective": RecomputeRow(keep_rest=1.0, redo_core=1.0, working_core=1.0),
    "full": RecomputeRow(redo_core=1.0, redo_rest=1.0, working_core=1.0, working_rest=1.0),
}


def modules_of(recompute: str) -> tuple[str, ...]:
    """The modules that a plan's `recompute` names, joined by `+`; none for the modes of `RECOMPUTES`.

    Everything is kept but their outputs. Source: Megatron-Core's `recompute_modules` (layernorm, moe_act, mla_up_proj,
    mlp, moe); DeepSeek-AI 2024 (V3), section 3.2.3.
    """
    names = tuple(recompute.split("+"))
    return names if set(names) <= set(MODULES) and len(set(names)) == len(names) else ()


@pytree
class PrecisionRow:
    """Bytes of the number formats, and which of the accelerator's peaks the matmuls run at."""

    weight_bytes: Scalar
    activation_bytes: Scalar
    master_bytes: Scalar  # float32 copy of the weights beside the optimizer states
    at_32bit: Scalar
    at_16bit: Scalar
    at_8bit: Scalar
    at_4bit: Scalar
    operand_share: Scalar = 1.0  # bytes of an operand as products read it, with its scales, over those of its own type
    cast_bytes: Scalar = 0.0  # read and written to cast one element of an activation or its gradient
    casts: Scalar = 0.0  # kernels that do it
    copy_bytes: Scalar = 0.0  # per element of a weight matrix: cast copies that stay until the next update
    weight_cast_bytes: Scalar = 0.0  # read and written to make them
    saved_inputs: Scalar = 1.0  # share of their own bytes in which inputs of products wait for the backward pass
    shared_master: Scalar = 0.0  # 1 where divided weights are the 32-bit copy itself (ZeRO 3)


def _precision(width: int, *, weight_bytes: float = 2.0, master_bytes: float = 4.0, **casts: float) -> PrecisionRow:
    at = {f"at_{w}bit": float(w == width) for w in (32, 16, 8, 4)}
    activation_bytes = max(2.0, width / 8)
    return PrecisionRow(
        weight_bytes=weight_bytes, activation_bytes=activation_bytes, master_bytes=master_bytes, **at, **casts
    )


def _narrow(
    width: int, *, scale_bytes: float = 0.0, weight_scale_bytes: float = 0.0, casts: float = 1.0
) -> PrecisionRow:
    """A format that 16-bit tensors are cast to before each product; scales are bytes per element.

    A cast reads the tensor and writes it twice, along rows and along columns, because the three products of a layer
    contract different dimensions; one more kernel reads it before where the whole tensor's maximum is needed. Weights
    are cast once a step (under ZeRO 3 after every gather). Nothing is fused into the operator before, saved activations
    and all traffic stay in 16 bits. Source: NVIDIA Transformer Engine, "Low precision training" (usages, caching).
    """
    element_bytes, weight_bytes = width / 8 + scale_bytes, width / 8 + weight_scale_bytes
    return _precision(
        width,
        operand_share=element_bytes / 2.0,
        cast_bytes=2.0 * casts + 2.0 * element_bytes,
        casts=casts,
        copy_bytes=2.0 * weight_bytes,
        weight_cast_bytes=2.0 * casts + 2.0 * weight_bytes,
    )


PRECISIONS = {
    "fp32": _precision(32, weight_bytes=4.0, master_bytes=0.0),
    "fp16": _precision(16),
    "bf16": _precision(16),
    "fp8_tensor": _narrow(8),  # scales from the steps before (delayed scaling)
    # float32 scales of 1 x 128 elements, of weights 128 x 128. Source: DeepSeek-AI 2024 (V3), arXiv 2412.19437
    "fp8_block": _narrow(8, scale_bytes=4.0 / 128.0, weight_scale_bytes=4.0 / 128.0**2),
    # scales of 8 bits for 32 elements. Source: OCP Microscaling Formats 1.0
    "mxfp8": _narrow(8, scale_bytes=1.0 / 32.0, weight_scale_bytes=1.0 / 32.0),
    # scales of 8 bits for 16 elements under one of the tensor, from its maximum. Source: NVIDIA 2025 (NVFP4)
    "nvfp4": _narrow(4, scale_bytes=1.0 / 16.0, weight_scale_bytes=1.0 / 16.0, casts=2.0),
}
PRECISION_TYPES = {
    "fp32": "fp32", "fp16": "fp16", "bf16": "bf16",
    "fp8_tensor": "fp8", "fp8_block": "fp8", "mxfp8": "mxfp8", "nvfp4": "nvfp4",
}  # fmt: skip


@pytree
class OptimizerRow:
    """What an optimizer keeps for each parameter, and what its update reads and computes."""

    states: Scalar  # numbers of the plan's `state_dtype`
    edge_states: Scalar = 0.0  # additional ones of embedding and head
    own_bytes: Scalar = 0.0  # states in a format of the optimizer's own, whatever the plan says
    gradient_reads: Scalar = 1.0
    orthogonalisations: Scalar = 0.0  # Newton-Schulz iterations on every matrix of the layers


OPTIMIZERS = {
    "sgd": OptimizerRow(states=1.0),  # with momentum
    "adam": OptimizerRow(states=2.0),
    # a byte for each state and a float32 scale for each block of 2,048 (Dettmers et al. 2022, arXiv 2110.02861)
    "adam_8bit": OptimizerRow(states=0.0, own_bytes=2.0 * (1.0 + 4.0 / 2048.0)),
    # no momentum; the second moment as sums over rows and over columns: 1/m + 1/n numbers for each parameter, here of
    # 2,048 x 2,048 (larger matrices: fewer). The gradient is read for the sums, for the clipping and for the update.
    # Source: Shazeer and Stern 2018, sections 3 and 6
    "adafactor": OptimizerRow(states=2.0 / 2048.0, gradient_reads=3.0),
    # one momentum; embedding and head are left to Adam. Source: Jordan et al. 2024 (five iterations)
    "muon": OptimizerRow(states=1.0, edge_states=1.0, orthogonalisations=5.0),
}

DTYPE_BYTES = {"fp32": 4.0, "bf16": 2.0, "fp16": 2.0, "fp8": 1.0}


@pytree
class AttentionRow:
    """A kernel of the attention: fused (`flash`) or materialised; touches are passes over the score matrix, in elements
    of the activations."""

    flash: Scalar
    score_touches_forward: Scalar
    score_touches_backward: Scalar
    second: Scalar = 0.0  # 1 for kernels of FlashAttention-2's generation, which have a rate of their own on each die
    work: Scalar = 1.0  # time of the kernel over that of its generation


ATTENTIONS = {
    "flash": AttentionRow(flash=1.0, score_touches_forward=0.0, score_touches_backward=0.0),
    # forward: scores written, softmax in and out, dropout in and out with its mask, read by the second product;
    # backward: dropout and softmax gradients in and out, probabilities and score gradients read by three products
    "unfused": AttentionRow(flash=0.0, score_touches_forward=6.5, score_touches_backward=9.5),
    # the framework's own operators: scores written (1), masked (2), cast up (3), softmax in 32 bits (4), cast down (3),
    # read (1); backward the same for their gradients, with two more products
    "framework": AttentionRow(flash=0.0, score_touches_forward=14.0, score_touches_backward=20.0),
    # Dao 2023 (FlashAttention-2), figure 4: A100, causal, heads of 128, forward and backward at 2,048
    "flash_1": AttentionRow(flash=1.0, score_touches_forward=0.0, score_touches_backward=0.0, second=1.0, work=1.6),
    "flash_2": AttentionRow(flash=1.0, score_touches_forward=0.0, score_touches_backward=0.0, second=1.0),
    # FlashAttention-3 and 4, cuDNN's, Pallas's: written for the die that they run on
    "flash_3": AttentionRow(flash=1.0, score_touches_forward=0.0, score_touches_backward=0.0),
}


_ALIGNED = 8  # elements of 16 bits that tensor cores take at once
_UNALIGNED_WORK = 10.0


def alignment_work(row: AttentionRow, head_size: float) -> float:
    """Time of a kernel for heads of a size over that of the next multiple of 8 elements.

    Fused kernels compute on heads that are padded to it. Products of unfused attention whose rows are not aligned to 16
    bytes run without tensor cores (NVIDIA, matrix multiplication background: alignment); C: BLOOM's tuning rows with
    heads of 108, 150 and 450, which take 24, 32 and 23 % longer a step than those with multiples of 8.
    """
    padded = _ALIGNED * -(-head_size // _ALIGNED)
    return padded / head_size if row.flash or padded == head_size else _UNALIGNED_WORK


@pytree
class LossRow:
    """Passes of the loss over the logits, in elements of the activations, and its bytes at their peak, for each logit
    and for each element of the head's input."""

    touches_forward: Scalar
    touches_backward: Scalar
    own: Scalar = 0.0  # 1: `Stack.logit_bytes` for each logit
    logit_bytes: Scalar = 0.0
    input_bytes: Scalar = 0.0
    single: Scalar = 0.0  # 1: so many passes in any software


LOSSES = {
    "usual": LossRow(touches_forward=3.0, touches_backward=2.0, own=1.0),  # as the software has it
    "framework": LossRow(touches_forward=11.0, touches_backward=13.0, logit_bytes=14.0, single=1.0),
    "vocab_parallel": LossRow(touches_forward=19.0, touches_backward=7.0, logit_bytes=8.0, single=1.0),
    "fused": LossRow(touches_forward=3.0, touches_backward=2.0, logit_bytes=4.0, single=1.0),
    "chunked": LossRow(touches_forward=3.0, touches_backward=0.0, input_bytes=6.0, single=1.0),
}
r"""How the loss is computed, with its passes over logits of 16 bits, each a read or a write of two bytes a logit.

$$q_F = \tfrac12 \sum_{k \in F} (r_k + w_k), \quad q_B = \tfrac12 \sum_{k \in B} (r_k + w_k)$$

with the bytes that kernel $k$ reads and writes for each logit; what is one number a token does not count.

- *framework*: PyTorch's `cross_entropy(logits.float())`, kernel by kernel. Forward a cast (2 read, 4 written) and
  `log_softmax`, whose kernel reads a row longer than shared memory three times, for its maximum, its sum and its
  result (12, 4). Backward `nll_loss` fills a gradient (0, 4), `log_softmax` reads the gradient for its sum and with
  the result again (4 + 8, 4), and a cast (4, 2). Source: ATen, `SoftMax.cu` (`cunn_SoftMaxForward`,
  `cunn_SoftMaxBackward`). At the peak it holds logits in 16 and in 32 bits, their logarithms and a gradient.
- *vocab_parallel*: Megatron's, on divided logits. Forward a cast (2, 4), the maximum (4, 0), and in place a difference
  (4, 4), its exponential (4, 4), a sum (4, 0) and a quotient (4, 4); backward a product in place (4, 4) and a cast (4,
  2). Source: Megatron-LM, `tensor_parallel/cross_entropy.py`; nanotron has the same. Its own fusion
  (`fused_cross_entropy.py`, compiled) joins cast and maximum, and difference, exponential and sum, but writes what is
  changed in place twice: 15 and 9, which is not another row.
- *fused*: forward one kernel for the sum (2, 0) and one that leaves the gradient in place of the logits (2, 2),
  backward a product (2, 2). Source: Transformer Engine, `triton/cross_entropy.py`; Liger's is the same,
  FlashAttention's and what compilers make of it read once less. 16-bit logits, and their gradient in a second copy.
- *chunked*: head and loss in one operator over chunks of tokens: the same two kernels, and no logits for the backward
  pass. In 16 bits, at most twice as many logits at a time as the input has elements, and the input's gradient. Source:
  Liger-Kernel (Hsu et al. 2024), `fused_linear_cross_entropy`.

Limit: with activations of 32 bits casts fall away and other passes keep their bytes, so that the first two make 2.4 to
3.5 times as many here.
"""


@pytree
class DispatcherRow:
    """How tokens go to their experts and back."""

    own: Scalar = 0.0  # 1: `Stack.sent_once` says how many copies for one domain are sent there once
    once: Scalar = 0.0  # share of them where the plan says it, and of those for one accelerator
    sent: Scalar = 1.0  # bytes over those of the activations' own type, in the mean of the way there and the way back
    gathering: Scalar = 0.0  # 1: every rank gets all tokens of the group, and sums are scattered
    sorts: Scalar = 1.0  # 1: copies are put in order before they leave and where they arrive; 0: where they arrive


DISPATCHERS = {
    "usual": DispatcherRow(own=1.0),  # as the software's users run it
    "all_to_all": DispatcherRow(),
    "all_gather": DispatcherRow(gathering=1.0, sorts=0.0),
    # DeepEP, HybridEP: one copy to each accelerator, over the network to each domain
    "fused": DispatcherRow(once=1.0, sorts=0.0),
    # DeepSeek-AI 2024 (V3), 3.3.2: tokens, and gradients, leave in 8 bits and come back in 16
    "fused_8bit": DispatcherRow(once=1.0, sent=0.75, sorts=0.0),
}


@pytree
class OverlapRow:
    """1 for each kind of traffic that may run beside compute."""

    tensor: Scalar
    context: Scalar
    data: Scalar
    pipeline: Scalar
    expert: Scalar = 0.0
