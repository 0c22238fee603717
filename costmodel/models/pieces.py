"""Pieces of a model: operators and blocks as every builder uses them, for one sequence and undivided."""

import dataclasses

from costmodel.inputs import LOGITS, AttentionKernel, Block, Kind, Module, Op, Position, Role, Saved, Size, Sizes, Split
from costmodel.semantics import Scalar

TOKENS = (Split.CONTEXT,)  # the split of token rows inside a tensor-parallel region
SPREAD = (Split.CONTEXT, Split.SEQUENCE)  # outside it: also over the tensor ranks, under sequence parallelism

EXPERT_BIAS, CLAMPED = "expert bias", "clamped expert activation"
"""Names of operators that a software may compute in its own way (variants.py)."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Style:
    """What all layers of one side of a model have alike: width, tokens in a sequence, and flags."""

    hidden: Scalar
    tokens: Scalar
    layer_norm: bool = False  # with a bias; otherwise RMS norms with a scale only
    dropout: bool = False
    qkv_bias: bool = False
    out_bias: bool = False
    ffn_bias: bool = False
    qk_norm: bool = False  # an RMS norm over each head's query and key
    qk_norm_whole: bool = False  # with scales for all heads
    norms_after: bool = False  # another norm before each residual


@dataclasses.dataclass(frozen=True, kw_only=True)
class Heads:
    """Heads of one attention, and what they look at."""

    heads: Scalar
    key_value_heads: Scalar
    head_size: Scalar
    keys: Scalar  # key rows that each query row meets
    density: Scalar = 1.0
    split: tuple[Split, ...] = (Split.TENSOR,)

    @property
    def query(self) -> Sizes:
        """Elements of the queries of one token."""
        return (Size(value=self.heads * self.head_size, split=self.split),)

    @property
    def key_value(self) -> Sizes:
        """Elements of keys and values of one key row, together."""
        value = 2 * self.key_value_heads * self.head_size
        return (Size(value=value, split=self.split, limit=self.key_value_heads),)


def integral(value: Scalar) -> Scalar:
    """A quotient of integers as an integer again, where it is one."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def norm(name: str, tokens: Scalar, width: Scalar, layer_norm: bool, role: Role = Role.REST) -> Op:
    """A layer norm or an RMS norm outside tensor-parallel regions, which saves its input under `role`.

    A layer norm is one kernel of the framework's own (PyTorch's `native_layer_norm`); an RMS norm written out is more.
    """
    rows, columns = (Size(value=tokens, split=SPREAD),), (Size(value=width),)
    return Op(
        name=name,
        kind=Kind.NORM,
        rows=rows,
        columns=columns,
        parameters=(Size(value=(2 if layer_norm else 1) * width),),
        touches_forward=2.0,  # read, write
        touches_backward=4.0,  # read the input, the gradient and the other branch's gradient; write
        single=float(layer_norm),
        module=Module.NORMS,
        saved=(Saved(rows=rows, columns=columns, role=role),),
    )


def linear(
    name: str,
    tokens: Scalar,
    inner: Sizes,
    columns: Sizes,
    *,
    input_split: tuple[Split, ...] = SPREAD,
    bias: Scalar | None = None,
    matrices: int = 1,
    module: Module = Module.NONE,
    of: Module = Module.NONE,
) -> Op:
    """A linear layer that saves its input, divided by `input_split` (`SPREAD` where it is gathered again).

    `module` is what it is computed again with, `of` whose output its input is.
    """
    return Op(
        name=name,
        kind=Kind.MATMUL,
        rows=(Size(value=tokens, split=TOKENS),),
        inner=inner,
        columns=columns,
        parameters=() if bias is None else (Size(value=bias),),
        matrices=matrices,
        module=module,
        saved=(Saved(rows=(Size(value=tokens, split=input_split),), columns=inner, module=of),),
    )


def sync(name: str, tokens: Scalar, width: Scalar, forward: bool = True, backward: bool = True) -> Op:
    """The edges of a tensor-parallel region: an all-reduce in each pass, or its two halves under sequence parallelism.

    A region that begins or ends with divided words has one edge alone, and its all-reduce in one pass alone.
    """
    rows, columns = (Size(value=tokens, split=TOKENS),), (Size(value=width),)
    return Op(name=name, kind=Kind.SYNC, rows=rows, columns=columns, forward=forward, backward=backward)


def residual(name: str, tokens: Scalar, width: Scalar, dropout: bool = False) -> Op:
    """The sum of a branch and the stream beside it; with dropout it saves a mask of one byte an element."""
    rows, columns = (Size(value=tokens, split=SPREAD),), (Size(value=width),)
    mask = (Saved(rows=rows, columns=columns, activations=0.0, fixed_bytes=1.0),)
    return Op(
        name=name,
        kind=Kind.MEMORY,
        rows=rows,
        columns=columns,
        touches_forward=3.0,  # read the branch and the stream, write the stream
        touches_backward=1.0,
        single=float(not dropout),
        saved=mask if dropout else (),
    )


def activation(name: str, tokens: Scalar, width: Sizes, opened: Sizes, inputs: float) -> Op:
    """An elementwise function of `inputs` tensors of the same width, which it saves (`opened` columns together)."""
    rows = (Size(value=tokens, split=TOKENS),)
    return Op(
        name=name,
        kind=Kind.ACTIVATION,
        rows=rows,
        columns=width,
        touches_forward=inputs + 1.0,  # read each input, write the output
        touches_backward=2.0 * inputs + 1.0,  # read the inputs and the gradient, write the inputs' gradients
        single=float(inputs == 1.0),
        module=Module.GATES,
        saved=(Saved(rows=rows, columns=opened, module=Module.FEED_FORWARD),),
    )


def core(
    name: str,
    tokens: Scalar,
    heads: Heads,
    dropout: bool,
    *,
    moved: Scalar = 1,
    saved: Sizes | None = None,
    key_values: Sizes | None = None,
    of: Module = Module.NONE,
) -> Op:
    """Scores, softmax and weighted values. Unfused, it saves the probabilities (2 bytes; with dropout 5).

    `moved` is the number of key rows for each query row that are read: 1 where queries and keys are the same tokens.
    """
    rows, keys = (Size(value=tokens, split=TOKENS),), (Size(value=heads.keys),)
    groups = (Size(value=heads.heads, split=heads.split),)
    if key_values is None:
        key_values = tuple(dataclasses.replace(size, value=moved * size.value) for size in heads.key_value)
    return Op(
        name=name,
        kind=Kind.ATTENTION,
        rows=rows,
        inner=(Size(value=heads.head_size),),
        columns=keys,
        groups=groups,
        key_values=key_values,
        density=heads.density,
        saved=(
            Saved(rows=rows, columns=heads.query + heads.key_value if saved is None else saved, module=of),
            Saved(
                rows=rows,
                columns=keys,
                groups=groups,
                activations=2.0 if dropout else 1.0,
                fixed_bytes=1.0 if dropout else 0.0,
                role=Role.CORE,
                attention=AttentionKernel.UNFUSED,
            ),
            Saved(rows=rows, columns=groups, activations=0.0, fixed_bytes=4.0, attention=AttentionKernel.FLASH),
        ),
    )


def embedding(name: str, tokens: Scalar, hidden: Scalar, vocabulary: Scalar, others: Sizes = ()) -> tuple[Op, ...]:
    """A table divided by its rows; `others` are parameters beside it, such as positions."""
    lookup = Op(
        name=name,
        kind=Kind.LOOKUP,
        rows=(Size(value=tokens, split=TOKENS),),
        inner=(Size(value=vocabulary, split=(Split.TENSOR,)),),
        columns=(Size(value=hidden),),
        parameters=others,
        touches_forward=2.0,
        touches_backward=2.0,
    )
    return (lookup, sync(f"{name} sync", tokens, hidden, backward=False))


def head(before: tuple[Op, ...], tokens: Scalar, hidden: Scalar, vocabulary: Scalar, bias: bool = False) -> Block:
    """What stands `before` it, logits over a divided vocabulary, and the loss on float32 logits."""
    logits = (Size(value=vocabulary, split=(Split.TENSOR,)),)
    loss = Op(
        name="loss",
        kind=Kind.LOSS,
        rows=(Size(value=tokens, split=TOKENS),),
        columns=logits,
    )
    product = linear(LOGITS, tokens, (Size(value=hidden),), logits, bias=vocabulary if bias else None)
    edge = sync("head sync", tokens, hidden, forward=False)
    return Block(name="head", position=Position.LAST, ops=(*before, edge, product, loss))
