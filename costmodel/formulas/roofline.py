r"""Rooflines: seconds of one operator from its counts.

$$T = \max\big(\frac{W}{\eta P}(1 + s_0(\tfrac1m + \tfrac1k + \tfrac1n)), \frac{Q}{\beta}\big) + \alpha$$

for a matmul of $W$ FLOP and $Q$ bytes: a rational, monotone efficiency (Williams et al. 2009 with half-performance
lengths after Hockney), a posynomial in the reciprocals of the rates. $s_0$ stands for tile and wave quantisation in
$m$ and $n$ and for the pipeline fill in $k$, in the mean over shapes; it does not reproduce single steps.
"""

from costmodel.formulas.counts import AttentionCount, BlockCounts, MatmulCount, MemoryCount
from costmodel.inputs import Accelerator, PlanPoint, Stack
from costmodel.pytree import pytree
from costmodel.semantics import Scalar, Semantics, total


@pytree
class Rates:
    """Seconds per FLOP and per byte that kernels reach on one accelerator under one precision."""

    matmul_s_per_flop: Scalar
    attention_s_per_flop: Scalar
    memory_s_per_byte: Scalar
    update_s_per_flop: Scalar  # matmuls of the optimizer, in 16 bits


@pytree
class BlockTimes:
    """Compute seconds of one block and microbatch. `weights` is the weight-gradient half of the backward matmuls."""

    matmul_forward_s: Scalar
    matmul_backward_s: Scalar
    weights_s: Scalar
    attention_forward_s: Scalar
    attention_backward_s: Scalar
    memory_forward_s: Scalar
    memory_backward_s: Scalar


def rates(accelerator: Accelerator, point: PlanPoint, stack: Stack) -> Rates:
    """Achievable rates. The fused attention computes in 16 bits (32 under fp32) whatever the matmuls' precision.

    Under a power cap the clock falls for all arithmetic alike; the memory has a clock of its own.
    """
    row, slower = point.precision, 1.0 / accelerator.sustained_clock
    inverse_16bit = 1.0 / accelerator.peak_16bit_flop_per_s
    inverse_32bit = 1.0 / accelerator.peak_32bit_flop_per_s
    at_8bit = row.at_8bit / (stack.matmul_8bit_ceiling * accelerator.peak_8bit_flop_per_s)
    narrow = at_8bit + row.at_4bit / (stack.matmul_4bit_ceiling * accelerator.peak_4bit_flop_per_s)
    wide = row.at_32bit * inverse_32bit
    return Rates(
        matmul_s_per_flop=slower * (wide + row.at_16bit * inverse_16bit + narrow) / stack.matmul_ceiling,
        attention_s_per_flop=slower * (wide + (1 - row.at_32bit) * inverse_16bit) / stack.attention_ceiling,
        memory_s_per_byte=1.0 / (stack.hbm_ceiling * accelerator.hbm_bytes_per_s),
        update_s_per_flop=slower * inverse_16bit / stack.matmul_ceiling,
    )


def block_times(block: BlockCounts, point: PlanPoint, speed: Rates, stack: Stack, sem: Semantics) -> BlockTimes:
    """Seconds of one block, operator class by operator class."""
    matmuls = [matmul_s(count, point, speed, stack, sem) for count in block.matmuls]
    attentions = [attention_s(count, point, speed, stack, sem) for count in block.attentions]
    memories = [memory_s(count, point, speed, stack) for count in block.memories]
    return BlockTimes(
        matmul_forward_s=total(product for product, _ in matmuls),
        matmul_backward_s=total(product for product, _ in matmuls),
        weights_s=total(weights for _, weights in matmuls),
        attention_forward_s=total(forward for forward, _ in attentions),
        attention_backward_s=total(backward for _, backward in attentions),
        memory_forward_s=total(forward for forward, _ in memories),
        memory_backward_s=total(backward for _, backward in memories),
    )


@pytree
class Roof:
    """The two sides of one roofline: seconds at the arithmetic units and at the memory."""

    compute_s: Scalar
    memory_s: Scalar


def matmul_roof(count: MatmulCount, point: PlanPoint, speed: Rates, stack: Stack) -> Roof:
    """Of the forward product, and of the input gradient: in the mean of both, half of what passes is written.

    What is read has been cast to the format of the products.
    """
    read = point.precision.operand_share
    compute_s = count.flop * speed.matmul_s_per_flop * (1 + stack.matmul_size0 * count.reciprocal_sizes)
    operand_bytes = 0.5 * (1 + read) * count.operand_bytes
    moved_bytes = operand_bytes + read * point.precision.weight_bytes * count.weight_elements
    return Roof(compute_s=compute_s, memory_s=speed.memory_s_per_byte * moved_bytes)


def cast_s(count: MatmulCount, point: PlanPoint, speed: Rates, stack: Stack) -> Scalar:
    """Seconds to cast what the forward product reads (for the input gradient as long, in the mean).

    The other two products use the same casts. Gathered weights (ZeRO 3) are cast after each gather; others once a step.
    """
    row = point.precision
    activations_bytes = 0.5 * row.cast_bytes * (count.operand_bytes / row.activation_bytes)
    weights_bytes = point.zero.weights * row.weight_cast_bytes * count.weight_elements
    moved_bytes = stack.cast_passes * (activations_bytes + weights_bytes)
    return speed.memory_s_per_byte * moved_bytes + row.casts * stack.kernel_s


def matmul_s(count: MatmulCount, point: PlanPoint, speed: Rates, stack: Stack, sem: Semantics) -> tuple[Scalar, Scalar]:
    """Seconds of the forward product with its casts (the input gradient takes as long) and of the weight gradient.

    The weight gradient is added to an accumulator in the gradient's type, which is read and written.
    """
    roof = matmul_roof(count, point, speed, stack)
    read_bytes = point.precision.operand_share * count.operand_bytes
    accumulated_bytes = read_bytes + 2.0 * point.gradient_bytes * count.weight_elements
    product_s = sem.maximum(roof.compute_s, roof.memory_s)
    weights_s = sem.maximum(roof.compute_s, speed.memory_s_per_byte * accumulated_bytes)
    product_s = product_s + cast_s(count, point, speed, stack)
    return product_s + stack.kernel_s, count.trained * (weights_s + stack.kernel_s)


def attention_roof(count: AttentionCount, speed: Rates, stack: Stack) -> Roof:
    """Of the forward pass, without the score matrix that unfused attention moves through memory (`score_s`)."""
    slope = 1 + stack.attention_size0 * count.reciprocal_keys
    compute_s = count.flop * speed.attention_s_per_flop * slope * busiest(count, stack)
    return Roof(compute_s=compute_s, memory_s=speed.memory_s_per_byte * count.operand_bytes)


def score_s(count: AttentionCount, point: PlanPoint, speed: Rates, stack: Stack) -> Scalar:
    """One pass of the score matrix through memory."""
    pass_s = speed.memory_s_per_byte * count.score_elements * point.precision.activation_bytes
    return pass_s * busiest(count, stack)


def busiest(count: AttentionCount, stack: Stack) -> Scalar:
    """Scores of the busiest context rank over the mean: $2 - 1/c$ for contiguous chunks under a causal mask.

    1 where each rank holds an early chunk and the late one that pairs with it, as Megatron-LM
    (`get_batch_on_this_cp_rank`), ring-flash-attention (zigzag) and Llama 3 do. Source: Brandon et al. 2023 (striped).
    """
    return 1 + stack.context_imbalance * count.uneven


def attention_s(
    count: AttentionCount, point: PlanPoint, speed: Rates, stack: Stack, sem: Semantics
) -> tuple[Scalar, Scalar]:
    """Seconds forward and backward. Fused: scores stay on chip and are computed again in the backward pass.

    Unfused: twice the forward FLOP backward, and the score matrix passes through memory. Source: Dao et al. 2022.
    """
    row = point.attention
    roof, pass_s = attention_roof(count, speed, stack), score_s(count, point, speed, stack)
    backward_flop = row.flash * stack.attention_backward_ratio + (1 - row.flash) * 2.0
    forward_s = sem.maximum(roof.compute_s, roof.memory_s) + row.score_touches_forward * pass_s
    both_s = sem.maximum(backward_flop * roof.compute_s, 2.0 * roof.memory_s)
    backward_s = both_s + row.score_touches_backward * pass_s
    return forward_s + stack.kernel_s, backward_s + stack.kernel_s


def memory_s(count: MemoryCount, point: PlanPoint, speed: Rates, stack: Stack) -> tuple[Scalar, Scalar]:
    """Seconds forward and backward of an operator that only moves data."""
    passes = point.fused_kernels + (1 - point.fused_kernels) * stack.unfused_touches
    s_per_byte = passes * speed.memory_s_per_byte
    return s_per_byte * count.forward_bytes + stack.kernel_s, s_per_byte * count.backward_bytes + stack.kernel_s
