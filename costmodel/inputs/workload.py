"""What is trained: repeated blocks of operators with exact sizes, for one sequence and undivided.

Sizes are Python integers where they come from files, so that totals of parameters and FLOP are exact; they may
as well be traced scalars, and then everything here is differentiable with respect to the architecture.
"""

from collections.abc import Iterable, Iterator
from enum import StrEnum

from costmodel.calls import strict
from costmodel.pytree import pytree, static
from costmodel.semantics import Scalar, total


class Kind(StrEnum):
    """What an operator does, and so how its sizes are read.

    kind        rows (m)        inner (k)     columns (n)          groups
    matmul      tokens          contraction   outputs              independent products
    attention   query rows      head size     key rows             heads
    memory      tokens          -             elements per token   -        (bound by memory: a residual, a copy)
    norm        tokens          -             elements per token   -        (bound by memory)
    activation  tokens          -             elements per token   -        (bound by memory)
    product     activations     contraction   activations          independent products (a matmul without weights)
    loss        tokens          -             logits per token     -
    lookup      tokens          -             table rows x width   -        (a gather: moves only the rows it uses)
    sync        tokens          -             elements per token   -        (edge of a tensor-parallel region)
    exchange    tokens          -             elements per token   -        (to the experts' ranks, or back)
    gather      tokens          -             elements per token   -        (to the ranks of one expert, or back)
    """

    MATMUL = "matmul"
    ATTENTION = "attention"
    MEMORY = "memory"
    NORM = "norm"
    ACTIVATION = "activation"
    PRODUCT = "product"
    LOSS = "loss"
    LOOKUP = "lookup"
    SYNC = "sync"
    EXCHANGE = "exchange"
    GATHER = "gather"


class Position(StrEnum):
    """The pipeline stages that hold a block: all of them, the first one only, the last one only."""

    LAYER = "layer"
    FIRST = "first"
    LAST = "last"


class Split(StrEnum):
    """What divides a size: a degree of the plan, or a share that follows from several (`counts.split_shares`)."""

    TENSOR = "tensor"
    CONTEXT = "context"
    EXPERT = "expert"
    EXPERT_TENSOR = "expert_tensor"
    ROUTED = "routed"  # rows of experts: their mesh's ranks over all that share a batch
    SEQUENCE = "sequence"  # the tensor ranks, under sequence parallelism


class Role(StrEnum):
    """Which recompute option drops a saved tensor: the block's own input, the inside of the attention, the rest."""

    INPUT = "input"
    CORE = "core"
    REST = "rest"


class Module(StrEnum):
    """Parts of a layer that a plan may compute again alone; none: only with the whole layer."""

    NONE = ""
    NORMS = "norms"  # outputs of norms, which the products after them would keep
    GATES = "gates"  # outputs of activation functions
    LATENT = "latent"  # queries, keys and values, up from their latents
    FEED_FORWARD = "feed_forward"  # everything else of feed-forward and experts, with what is sent to them


class AttentionKernel(StrEnum):
    """The kernels that save a tensor of the attention's core."""

    ANY = ""
    FLASH = "flash"
    UNFUSED = "unfused"


# Words are checked where an object is made. Only static fields are looked at: leaves may be tracers, or the
# placeholders of which JAX rebuilds trees.
_KINDS, _POSITIONS, _SPLITS, _ROLES, _KERNELS, _MODULES = map(
    frozenset, (Kind, Position, Split, Role, AttentionKernel, Module)
)


def _unknown(what: str, field: str, words: Iterable[str], allowed: Iterable[str]) -> ValueError:
    """The error of a word that is no member."""
    unknown = next(word for word in words if word not in allowed)
    expected = ", ".join(sorted(repr(str(name)) for name in allowed))
    return ValueError(f"{what}: `{field}` is {unknown!r}; expected one of {expected}")


@pytree
class Size:
    """Elements along one dimension, and by what the plan divides them.

    `limit` is the number of pieces beyond which the tensor split stops and pieces are replicated: the number of
    key-value heads under grouped-query attention.
    """

    value: Scalar
    split: tuple[Split, ...] = static(default=())
    limit: Scalar | None = None

    def __post_init__(self) -> None:
        if not _SPLITS.issuperset(self.split):
            raise _unknown("size", "split", self.split, _SPLITS)


LOGITS = "logits"
"""Name of the output head's operator, which may share its matrix with the embedding."""

Sizes = tuple[Size, ...]
"""Parts laid side by side along one dimension: their sum."""


@pytree
class Saved:
    """What an operator keeps for its backward pass, per microbatch.

    `role` says which recompute option drops it, `attention` which kernels save it.
    """

    rows: Sizes
    columns: Sizes
    groups: Sizes = ()
    activations: Scalar = 1.0  # elements in the activation's own type
    fixed_bytes: Scalar = 0.0  # bytes per element of a type of its own (masks, row maxima)
    role: Role = static(default=Role.REST)
    module: Module = static(default=Module.NONE)  # whose output it is
    attention: AttentionKernel = static(default=AttentionKernel.ANY)

    def __post_init__(self) -> None:
        if self.role not in _ROLES:
            raise _unknown("saved tensor", "role", (self.role,), _ROLES)
        if self.attention not in _KERNELS:
            raise _unknown("saved tensor", "attention", (self.attention,), _KERNELS)
        if self.module not in _MODULES:
            raise _unknown("saved tensor", "module", (self.module,), _MODULES)


@pytree
class Op:
    """One operator, for one sequence; its `kind` says what its sizes mean.

    `parameters` are those outside a weight matrix (norms, biases). `touches_*` count how often an element moves through
    the memory of the accelerator in a fused kernel, in units of the activation's type. An operator that is not
    `trained` (0) has no weight gradient, no gradient memory and no optimizer state. `forward` and `backward` say in
    which pass a sync communicates: one in both stands for the two edges of a region.
    """

    name: str = static()
    kind: Kind = static()
    rows: Sizes
    columns: Sizes
    inner: Sizes = ()
    groups: Sizes = ()
    key_values: Sizes = ()  # attention: elements of keys and values together, per key row
    density: Scalar = 1.0  # attention: share of the score matrix that is computed (causal: one half)
    parameters: Sizes = ()
    trained: Scalar = 1
    matrices: int = static(default=1)  # weight matrices that lie side by side in `columns`
    spread: Scalar = 1.0  # exchange: at most this share of the payload leaves the innermost domain (limited routing)
    copies: int = static(default=1)  # exchange: experts that a token is sent to
    arranges: bool = static(default=False)  # memory: puts these copies in the order of experts, or back
    touches_forward: Scalar = 0.0
    touches_backward: Scalar = 0.0
    single: Scalar = 0.0  # 1: one kernel in any software, for there is nothing to fuse
    forward: bool = static(default=True)
    backward: bool = static(default=True)
    module: Module = static(default=Module.NONE)  # that it is computed again with
    saved: tuple[Saved, ...] = ()

    def __post_init__(self) -> None:
        if self.kind not in _KINDS:
            raise _unknown(f'operator "{self.name}"', "kind", (self.kind,), _KINDS)
        if self.module not in _MODULES:
            raise _unknown(f'operator "{self.name}"', "module", (self.module,), _MODULES)


@pytree
class Block:
    """Operators that follow one another, `repeats` times, on the pipeline stages of its `position`.

    `forwards` counts the forward passes of each microbatch, of which the last one is trained and the others keep
    nothing (recycling).
    """

    name: str = static()
    position: Position = static(default=Position.LAYER)
    ops: tuple[Op, ...]
    repeats: Scalar = 1
    forwards: Scalar = 1

    def __post_init__(self) -> None:
        if self.position not in _POSITIONS:
            raise _unknown(f'block "{self.name}"', "position", (self.position,), _POSITIONS)


@strict
@pytree
class Workload:
    """One training job: the model as blocks, the sequence length and the global batch in sequences."""

    name: str = static()
    blocks: tuple[Block, ...]
    sequence: Scalar
    batch: Scalar
    hidden: Scalar  # elements per token that cross a stage boundary
    tied: Scalar = 0  # 1 where the operator `LOGITS` reuses the embedding's weights
    embeds_again: Scalar = 0  # 1 where what follows the layers looks up the embedding too: modules of further tokens
    expert_imbalance: Scalar = 1.0  # load of the busiest rank's experts over the mean
    adapted: bool = static(default=False)  # operators are those of a software already (`models.run_by`)
    windows: tuple[int, int] | None = static(default=None)  # tokens, and one layer in how many without (0: none)
    pieces: int = static(default=1)  # in which its layers are cut already (`models.in_pieces`)


PIECES = ", branch "
"""Between the name of a block and the number of one of its branches, a block of the pieces that it is cut into."""


def are_pieces(name: str) -> bool:
    """Whether a block holds pieces of the layers of the block before it, by its name."""
    return PIECES in name


def whole(sizes: Sizes) -> Scalar:
    """The undivided number of elements along one dimension; 1 for none."""
    return total(size.value for size in sizes) if sizes else 1


def is_expert(op: Op) -> bool:
    """Whether the operator's weights are divided over the expert mesh instead of the tensor ranks."""
    return any(Split.EXPERT in size.split for size in (*op.groups, *op.inner))


def weight_elements(op: Op) -> Scalar:
    """Elements of the operator's weight matrix, undivided."""
    match op.kind:
        case Kind.MATMUL:
            return whole(op.inner) * whole(op.columns) * whole(op.groups)
        case Kind.LOOKUP:
            return whole(op.inner) * whole(op.columns)
        case _:
            return 0


def parameters(workload: Workload) -> Scalar:
    """All parameters, the tied head counted once. Exact where sizes are integers."""
    return total(block.repeats * _own_parameters(workload, op) for block, op in _operators(workload))


def trained_parameters(workload: Workload) -> Scalar:
    """Parameters that have a gradient and optimizer states."""
    pairs = _operators(workload)
    return total(block.repeats * op.trained * _own_parameters(workload, op) for block, op in pairs)


def _operators(workload: Workload) -> Iterator[tuple[Block, Op]]:
    return ((block, op) for block in workload.blocks for op in block.ops)


def active_parameters(workload: Workload) -> Scalar:
    """Parameters that work on one token: of the experts, those that it is sent to."""
    idle = total(
        block.repeats * weight_elements(op) * (1 - whole(op.rows) / workload.sequence)
        for block in workload.blocks
        for op in block.ops
        if is_expert(op) and op.kind == Kind.MATMUL
    )
    return parameters(workload) - idle


def _own_parameters(workload: Workload, op: Op) -> Scalar:
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
    return 1 + op.trained if op.kind == Kind.MATMUL else 2


def _forward_flop(op: Op) -> Scalar:
    match op.kind:
        case Kind.MATMUL:
            return 2 * whole(op.rows) * weight_elements(op)
        case Kind.PRODUCT:
            return 2 * whole(op.rows) * whole(op.inner) * whole(op.columns) * whole(op.groups)
        case Kind.ATTENTION:
            return 4 * op.density * whole(op.rows) * whole(op.columns) * whole(op.inner) * whole(op.groups)
        case _:
            return 0
