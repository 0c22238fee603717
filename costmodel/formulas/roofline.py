r"""Rooflines: seconds of one operator from its counts.

$$T = \max\big(\frac{W}{\eta P}(1 + s(\tfrac1m + \tfrac1k + \tfrac1n)), \frac{Q}{\beta}\big) + \alpha, \quad
s = s_0 \sqrt{P / P_0}$$

for a matmul of $W$ FLOP and $Q$ bytes: a rational, monotone efficiency (Williams et al. 2009 with half-performance
lengths after Hockney), a posynomial in the reciprocals of the rates. $s$ stands for tile and wave quantisation in
$m$ and $n$ and for the pipeline fill in $k$, in the mean over shapes; it does not reproduce single steps. Faster units
need larger products: a fill is a latency, $P$ times which is a length, while tiles stay what they are. Measured
(microbenchmarks, squares of 2,048 to 8,192): about 100 on A100, 190 to 240 on TPU v7x, H100 and GB200 in 8 bits, six to
sixteen times as fast; of the powers 0, 1/2 and 1 the middle one is the best on classes of software left out of the fit.
"""

from costmodel.formulas.counted import AttentionCount, BlockCounts, MatmulCount, MemoryCount
from costmodel.inputs import MODULES, Accelerator, ModuleRow, PlanPoint, Stack
from costmodel.pytree import pytree
from costmodel.semantics import Scalar, Semantics, total


@pytree
class Rates:
    """Seconds per FLOP and per byte that kernels reach on one accelerator under one precision."""

    matmul_s_per_flop: Scalar
    attention_s_per_flop: Scalar
    memory_s_per_byte: Scalar
    update_s_per_flop: Scalar  # matmuls of the optimizer, in 16 bits
    matmul_fill_s_per_flop: Scalar  # what tiles and fills add for each reciprocal of a size, over `matmul_size0`


@pytree
class Roof:
    """One operator in one pass: seconds of each resource. The longer of the first two counts, and all of the others."""

    compute_s: Scalar  # at the arithmetic units
    memory_s: Scalar  # of the memory beside them
    aside_s: Scalar = 0.0  # of the memory before or after: casts, the score matrix
    casts_s: Scalar = 0.0  # launches of casts
    launch_s: Scalar

    def seconds(self, sem: Semantics) -> Scalar:
        """What the operator takes."""
        return sem.maximum(self.compute_s, self.memory_s) + (self.aside_s + self.casts_s) + self.launch_s


def larger(peak_flop_per_s: Scalar, sized_at_flop_per_s: Scalar = Stack.sized_at_flop_per_s) -> Scalar:
    """How much larger products have to be on units of this peak than on those of `Stack.matmul_size0`."""
    return peak_flop_per_s**0.5 / sized_at_flop_per_s**0.5  # apart: slopes stay within float32


def rates(accelerator: Accelerator, point: PlanPoint, stack: Stack) -> Rates:
    """Achievable rates. The fused attention computes in 16 bits (32 under fp32) whatever the matmuls' precision.

    Under a power cap the clock falls for all arithmetic alike; the memory has a clock of its own.
    """
    row, slower = point.precision, 1.0 / accelerator.sustained_clock
    inverse_16bit = 1.0 / accelerator.peak_16bit_flop_per_s
    inverse_32bit = 1.0 / accelerator.peak_32bit_flop_per_s
    at_8bit = row.at_8bit / (stack.matmul_8bit_ceiling * accelerator.peak_8bit_flop_per_s)
    narrow = at_8bit + row.at_4bit / (stack.matmul_4bit_ceiling * accelerator.peak_4bit_flop_per_s)
    wide, second = row.at_32bit * inverse_32bit, point.attention.second
    attention = (1 - second) / stack.attention_ceiling + second / stack.attention_2_ceiling
    at = stack.sized_at_flop_per_s
    filled = wide * larger(accelerator.peak_32bit_flop_per_s, at)
    filled = filled + row.at_16bit * inverse_16bit * larger(accelerator.peak_16bit_flop_per_s, at)
    narrow_filled = at_8bit * larger(accelerator.peak_8bit_flop_per_s, at)
    narrow_filled = narrow_filled + (narrow - at_8bit) * larger(accelerator.peak_4bit_flop_per_s, at)
    return Rates(
        matmul_s_per_flop=slower * (wide + row.at_16bit * inverse_16bit + narrow) / stack.matmul_ceiling,
        attention_s_per_flop=slower * (wide + (1 - row.at_32bit) * inverse_16bit) * attention,
        memory_s_per_byte=1.0 / (stack.hbm_ceiling * accelerator.hbm_bytes_per_s),
        update_s_per_flop=slower * inverse_16bit / stack.matmul_ceiling,
        matmul_fill_s_per_flop=slower * (filled + narrow_filled) / stack.matmul_ceiling,
    )


def block_times(
    block: BlockCounts, point: PlanPoint, speed: Rates, stack: Stack, sem: Semantics
) -> tuple[tuple[Scalar, ...], tuple[Scalar, ...], Scalar]:
    """Seconds of the matmuls, the attention and what only moves data of one block and microbatch, forward and backward,
    and of the weight gradients: the half of the backward matmuls that a schedule may split off."""
    matmuls = [matmul_s(count, point, speed, stack, sem) for count in block.matmuls]
    attentions = [attention_s(count, point, speed, stack, sem) for count in block.attentions]
    memories = [memory_s(count, point, speed, stack) for count in block.memories]
    products_s = total(product_s for product_s, _ in matmuls)
    forward, backward = ([total(times[i] for times in each) for each in (attentions, memories)] for i in (0, 1))
    return (products_s, *forward), (products_s, *backward), total(weights_s for _, weights_s in matmuls)


def module_times(block: BlockCounts, point: PlanPoint, speed: Rates, stack: Stack, sem: Semantics) -> ModuleRow:
    """Seconds of one forward pass over the operators of each module, without traffic."""
    return ModuleRow(
        **{
            name: total(matmul_s(c, point, speed, stack, sem)[0] for c in block.matmuls if c.module == name)
            + total(memory_s(c, point, speed, stack)[0] for c in block.memories if c.module == name)
            for name in MODULES
        }
    )


def matmul_roofs(count: MatmulCount, point: PlanPoint, speed: Rates, stack: Stack) -> tuple[Roof, Roof]:
    """The forward product with its casts (the input gradient is as long), and the weight gradient.

    What products read has been cast to their format. In the mean of forward product and input gradient, half of what
    passes is written. The weight gradient is added to an accumulator in the gradient's type, which is read and written:
    a share of that beside the product, as the tiles of an output end together.
    """
    row, read = point.precision, point.precision.operand_share
    filling = stack.matmul_size0 * count.reciprocal_sizes * speed.matmul_fill_s_per_flop
    compute_s = count.flop * (speed.matmul_s_per_flop + filling)
    operand_bytes = 0.5 * (1 + read) * count.operand_bytes
    moved_bytes = operand_bytes + read * row.weight_bytes * count.weight_elements
    sums, apart = 2.0 * point.gradient_bytes, stack.adds_apart
    written = (1 - apart) * (1 - stack.sums_exposed) * sums + apart * row.activation_bytes
    accumulated_bytes = read * count.operand_bytes + written * count.weight_elements
    added = (1 - apart) * stack.sums_exposed * sums + apart * (row.activation_bytes + sums)
    added_bytes = added * count.weight_elements
    aside_s, casts_s = cast_s(count, point, speed, stack)
    product = Roof(
        compute_s=compute_s,
        memory_s=speed.memory_s_per_byte * moved_bytes,
        aside_s=aside_s,
        casts_s=casts_s,
        launch_s=stack.kernel_s,
    )
    weights_s = speed.memory_s_per_byte * accumulated_bytes
    added_s = speed.memory_s_per_byte * added_bytes
    return product, Roof(compute_s=compute_s, memory_s=weights_s, aside_s=added_s, launch_s=stack.kernel_s)


def cast_s(count: MatmulCount, point: PlanPoint, speed: Rates, stack: Stack) -> tuple[Scalar, Scalar]:
    """Seconds to cast what the forward product reads (for the input gradient as long, in the mean), and of launches.

    The other two products use the same casts. Gathered weights (ZeRO 3) are cast after each gather; others once a step.
    """
    row = point.precision
    activations_bytes = 0.5 * row.cast_bytes * (count.operand_bytes / row.activation_bytes)
    weights_bytes = point.zero.weights * row.weight_cast_bytes * count.weight_elements
    moved_bytes = stack.cast_passes * (activations_bytes + weights_bytes)
    return speed.memory_s_per_byte * moved_bytes, row.casts * stack.kernel_s


def matmul_s(count: MatmulCount, point: PlanPoint, speed: Rates, stack: Stack, sem: Semantics) -> tuple[Scalar, Scalar]:
    """Seconds of the forward product with its casts (the input gradient takes as long) and of the weight gradient."""
    product, weights = matmul_roofs(count, point, speed, stack)
    return product.seconds(sem), count.trained * weights.seconds(sem)


def attention_roofs(count: AttentionCount, point: PlanPoint, speed: Rates, stack: Stack) -> tuple[Roof, Roof]:
    """Forward and backward. Fused: scores stay on chip and are computed again in the backward pass.

    Unfused: twice the forward FLOP backward, and the score matrix passes through memory. Source: Dao et al. 2022.
    """
    row, pass_s = point.attention, score_s(count, point, speed, stack)
    slope = 1 + stack.attention_size0 * count.reciprocal_keys
    compute_s = row.work * count.flop * speed.attention_s_per_flop * slope * busiest(count, stack)
    operands_s = speed.memory_s_per_byte * count.operand_bytes
    backward_flop = row.flash * stack.attention_backward_ratio + (1 - row.flash) * 2.0
    forward = Roof(
        compute_s=compute_s,
        memory_s=operands_s,
        aside_s=row.score_touches_forward * pass_s,
        launch_s=stack.kernel_s,
    )
    backward = Roof(
        compute_s=backward_flop * compute_s,
        memory_s=2.0 * operands_s,
        aside_s=row.score_touches_backward * pass_s,
        launch_s=stack.kernel_s,
    )
    return forward, backward


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
    """Seconds forward and backward."""
    forward, backward = attention_roofs(count, point, speed, stack)
    return forward.seconds(sem), backward.seconds(sem)


def memory_roofs(count: MemoryCount, point: PlanPoint, speed: Rates, stack: Stack) -> tuple[Roof, Roof]:
    """Forward and backward, of an operator that only moves data."""
    apart = (1 - point.fused_kernels) * (1 - count.single)
    passes = 1 + apart * (stack.unfused_touches - 1)
    s_per_byte = passes * speed.memory_s_per_byte
    forward_s, backward_s = s_per_byte * count.forward_bytes, s_per_byte * count.backward_bytes
    return (
        Roof(compute_s=0.0, memory_s=forward_s, launch_s=stack.kernel_s),
        Roof(compute_s=0.0, memory_s=backward_s, launch_s=stack.kernel_s),
    )


def memory_s(count: MemoryCount, point: PlanPoint, speed: Rates, stack: Stack) -> tuple[Scalar, Scalar]:
    """Seconds forward and backward: there is no arithmetic to compare with."""
    forward, backward = memory_roofs(count, point, speed, stack)
    return forward.memory_s + forward.launch_s, backward.memory_s + backward.launch_s
