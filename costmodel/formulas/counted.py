"""What `counts` counts, as records: one block, one microbatch, one accelerator."""

from costmodel.inputs import Module, ModuleRow, Position
from costmodel.pytree import pytree, static
from costmodel.semantics import Scalar, total


@pytree
class MatmulCount:
    """One matrix product, forward; its two backward products have the same FLOP and sizes, permuted."""

    name: str = static()
    flop: Scalar
    operand_bytes: Scalar  # input and output
    weight_elements: Scalar  # of the matrix, or of the second operand
    reciprocal_sizes: Scalar  # 1/m + 1/k + 1/n
    trained: Scalar = 1.0  # 0: no weight gradient
    module: Module = static(default=Module.NONE)


@pytree
class AttentionCount:
    """The attention's core, forward: scores, softmax, weighted values."""

    name: str = static()
    flop: Scalar
    operand_bytes: Scalar  # queries, keys, values, output
    score_elements: Scalar  # computed elements of the score matrix
    reciprocal_keys: Scalar
    uneven: Scalar = 0.0  # what the busiest rank of a ring of contiguous chunks does beyond the mean, over the mean
    ring_bytes: Scalar  # keys and values of this rank: one hop of the context ring
    exchange_bytes: Scalar  # queries, keys, values and output: the all-to-alls over heads


@pytree
class MemoryCount:
    """An operator bound by memory: bytes through it, forward and backward."""

    name: str = static()
    module: Module = static(default=Module.NONE)
    forward_bytes: Scalar
    backward_bytes: Scalar
    single: Scalar = 0.0  # 1: one kernel in any software


@pytree
class SavedBytes:
    """Activations that a block keeps per microbatch, by what drops them (workload.Saved)."""

    input: Scalar
    core: Scalar
    rest: Scalar  # of what no module of the plan drops alone
    modules: ModuleRow | None = None  # of the others, where the plan drops some


@pytree
class BlockCounts:
    """One block, one microbatch, one accelerator."""

    name: str = static()
    position: Position = static()
    syncs: int = static()  # edges of tensor-parallel regions in the forward pass
    backward_syncs: int = static()
    exchanges: int = static(default=0)  # dispatches and returns of tokens to experts, in the forward pass
    gathers: int = static(default=0)  # over the ranks that share an expert
    repeats: Scalar
    forwards: Scalar = 1.0  # forward passes of a microbatch, of which the last keeps activations
    matmuls: tuple[MatmulCount, ...]
    attentions: tuple[AttentionCount, ...]
    memories: tuple[MemoryCount, ...]
    sync_bytes: Scalar  # payload of all `syncs` together
    backward_sync_bytes: Scalar
    exchange_bytes: Scalar  # payload of all `exchanges` together
    exchange_spread: Scalar
    exchange_copies: int = static(default=1)
    experts: Scalar = 0.0  # on this rank, those that are products
    gather_bytes: Scalar
    parameters: Scalar  # of one block on this rank, experts apart, before ZeRO
    trained_parameters: Scalar  # those of them with a gradient and optimizer states
    expert_parameters: Scalar
    trained_expert_parameters: Scalar
    matrix_parameters: Scalar  # those that enter a matmul
    head_parameters: Scalar  # those that a tied head shares with the embedding
    trained_head_parameters: Scalar
    orthogonal_flop: Scalar  # of one Newton-Schulz iteration over the trained matrices on this rank, experts apart
    expert_orthogonal_flop: Scalar
    saved: SavedBytes
    flowing_bytes: Scalar  # gradients of the input and the output of the widest product after an activation function
    logits: Scalar  # elements


@pytree
class OpCounts:
    """All blocks, and what follows from the plan alone."""

    blocks: tuple[BlockCounts, ...]
    microbatches: Scalar  # of one pipeline in one step
    boundary_bytes: Scalar  # activation that crosses a stage boundary, of all tensor ranks
    tied: Scalar  # 1 where the head reuses the embedding's weights
    embeds_again: Scalar  # 1 where the last stage needs the embedding

    @property
    def layers(self) -> tuple[BlockCounts, ...]:
        """The repeated blocks, of all kinds."""
        return tuple(block for block in self.blocks if block.position == Position.LAYER)

    @property
    def layer_count(self) -> Scalar:
        """Layers of all kinds together."""
        return total(block.repeats for block in self.layers)

    @property
    def has_experts(self) -> bool:
        """Whether any block sends tokens to experts."""
        return any(block.exchanges for block in self.blocks)
