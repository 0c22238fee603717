"""What is trained: repeated blocks of operators with exact sizes, for one sequence and undivided.

Sizes are Python integers where they come from files, so that totals of parameters and FLOP are exact; they may
as well be traced scalars, and then everything here is differentiable with respect to the architecture.
"""

from collections.abc import Iterator

from costmodel.pytree import pytree, static
from costmodel.semantics import Scalar, total


@pytree
class Size:
    """Elements along one dimension, and the shares (`counts.Shares`) by which the plan divides them.

    `limit` is the number of pieces beyond which the tensor split stops and pieces are replicated: the number of
    key-value heads under grouped-query attention.
    """

    value: Scalar
    split: tuple[str, ...] = static(default=())
    limit: Scalar | None = None


LOGITS = "logits"
"""Name of the output head's operator, which may share its matrix with the embedding."""

Sizes = tuple[Size, ...]
"""Parts laid side by side along one dimension: their sum."""


@pytree
class Saved:
    """What an operator keeps for its backward pass, per microbatch.

    `role` says which recompute option drops it: `input` is the block's own input, `core` the inside of the attention,
    `rest` everything else. `attention` names the kernel (`flash`, `unfused`) that saves it, or is empty for both.
    """

    rows: Sizes
    columns: Sizes
    groups: Sizes = ()
    activations: Scalar = 1.0  # elements in the activation's own type
    fixed_bytes: Scalar = 0.0  # bytes per element of a type of its own (masks, row maxima)
    role: str = static(default="rest")
    attention: str = static(default="")


@pytree
class Op:
    """One operator, for one sequence.

    kind       rows (m)        inner (k)     columns (n)          groups
    matmul     tokens          contraction   outputs              independent products
    attention  query rows      head size     key rows             heads
    memory     tokens          -             elements per token   -
    product    activations     contraction   activations          independent products (a matmul without weights)
    loss       tokens          -             logits per token     -
    lookup     tokens          -             table rows x width   -        (a gather: moves only the rows it uses)
    sync       tokens          -             elements per token   -        (edge of a tensor-parallel region)
    exchange   tokens          -             elements per token   -        (to the ranks that hold the experts, or back)
    gather     tokens          -             elements per token   -        (to the ranks that share an expert, or back)

    `parameters` are those outside a weight matrix (norms, biases). `touches_*` count how often an element moves through
    the memory of the accelerator in a fused kernel, in units of the activation's type. An operator that is not
    `trained` (0) has no weight gradient, no gradient memory and no optimizer state. `forward` and `backward` say in
    which pass a sync communicates: one in both stands for the two edges of a region.
    """

    name: str = static()
    kind: str = static()
    rows: Sizes
    columns: Sizes
    inner: Sizes = ()
    groups: Sizes = ()
    key_values: Sizes = ()  # attention: elements of keys and values together, per key row
    density: Scalar = 1.0  # attention: share of the score matrix that is computed (causal: one half)
    parameters: Sizes = ()
    trained: Scalar = 1
    matrices: int = static(default=1)  # weight matrices that lie side by side in `columns`
    spread: Scalar = 1.0  # exchange: share of the payload that leaves the innermost domain once copies are sent once
    touches_forward: Scalar = 0.0
    touches_backward: Scalar = 0.0
    forward: bool = static(default=True)
    backward: bool = static(default=True)
    saved: tuple[Saved, ...] = ()


@pytree
class Block:
    """Operators that follow one another, `repeats` times; `position` says which pipeline stages hold them.

    `forwards` counts the forward passes of each microbatch, of which the last one is trained and the others keep
    nothing (recycling).
    """

    name: str = static()
    position: str = static(default="layer")  # "layer" on all stages, "first" or "last" on that stage only
    ops: tuple[Op, ...]
    repeats: Scalar = 1
    forwards: Scalar = 1


@pytree
class Workload:
    """One training job: the model as blocks, the sequence length and the global batch in sequences."""

    name: str = static()
    blocks: tuple[Block, ...]
    sequence: Scalar
    batch: Scalar
    hidden: Scalar  # elements per token that cross a stage boundary
    tied: Scalar = 0  # 1 where the operator `LOGITS` reuses the embedding's weights
    expert_imbalance: Scalar = 1.0  # load of the busiest rank's experts over the mean


def whole(sizes: Sizes) -> Scalar:
    """The undivided number of elements along one dimension; 1 for none."""
    return total(size.value for size in sizes) if sizes else 1


def is_expert(op: Op) -> bool:
    """Whether the operator's weights are divided over the expert mesh instead of the tensor ranks."""
    return any("expert" in size.split for size in (*op.groups, *op.inner))


def weight_elements(op: Op) -> Scalar:
    """Elements of the operator's weight matrix, undivided."""
    match op.kind:
        case "matmul":
            return whole(op.inner) * whole(op.columns) * whole(op.groups)
        case "lookup":
            return whole(op.inner) * whole(op.columns)
        case _:
            return 0


def parameters(workload: Workload) -> Scalar:
    """All parameters, the tied head counted once. Exact where sizes are integers."""
    return total(block.repeats * _own_parameters(workload, block, op) for block, op in _operators(workload))


def trained_parameters(workload: Workload) -> Scalar:
    """Those that have a gradient and optimizer states."""
    pairs = _operators(workload)
    return total(block.repeats * op.trained * _own_parameters(workload, block, op) for block, op in pairs)


def _operators(workload: Workload) -> Iterator[tuple[Block, Op]]:
    return ((block, op) for block in workload.blocks for op in block.ops)


def active_parameters(workload: Workload) -> Scalar:
    """Parameters that work on one token: of the experts, those that it is sent to."""
    idle = total(
        block.repeats * weight_elements(op) * (1 - whole(op.rows) / workload.sequence)
        for block in workload.blocks
        for op in block.ops
        if is_expert(op) and op.kind == "matmul"
    )
    return parameters(workload) - idle


def _own_parameters(workload: Workload, block: Block, op: Op) -> Scalar:
    vectors = whole(op.parameters) if op.parameters else 0
    shared = workload.tied if op.name == LOGITS else 0
    return weight_elements(op) * (1 - shared) + vectors


def model_flop(workload: Workload) -> Scalar:
    r"""FLOP per sequence of a forward and a backward pass without recompute: $3 \sum 2mkn + 3 \sum 4 s^2 d$.

    Six times the parameters that enter a matmul (the output head, not the input embedding) per token, and the
    attention by the share of the score matrix that is computed: causal attention counts half. Forward
    passes without a gradient are counted.
    """
    return total(
        block.repeats * (block.forwards + _backwards(op)) * _forward_flop(op) for block, op in _operators(workload)
    )


def _backwards(op: Op) -> Scalar:
    """Products of the backward pass for each one forward: a frozen matrix has no weight gradient."""
    return 1 + op.trained if op.kind == "matmul" else 2


def _forward_flop(op: Op) -> Scalar:
    match op.kind:
        case "matmul":
            return 2 * whole(op.rows) * weight_elements(op)
        case "product":
            return 2 * whole(op.rows) * whole(op.inner) * whole(op.columns) * whole(op.groups)
        case "attention":
            return 4 * op.density * whole(op.rows) * whole(op.columns) * whole(op.inner) * whole(op.groups)
        case _:
            return 0
