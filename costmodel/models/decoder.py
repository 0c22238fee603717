"""Dense decoders: GPT (learned positions, biases, dropout) and Llama (grouped-query attention, gated FFN)."""

from costmodel.semantics import Scalar
from costmodel.workload import Block, Op, Saved, Size, Sizes, Workload

TOKENS = ("context",)  # the split of token rows inside a tensor-parallel region
SPREAD = ("context", "sequence")  # outside it: also over the tensor ranks, under sequence parallelism


def decoder(
    *,
    name: str = "decoder",
    layers: Scalar,
    hidden: Scalar,
    heads: Scalar,
    ffn: Scalar,
    vocabulary: Scalar,
    sequence: Scalar,
    batch: Scalar,
    key_value_heads: Scalar | None = None,
    head_size: Scalar | None = None,
    gated: bool = False,
    bias: bool = False,
    layer_norm: bool = False,
    learned_positions: bool = False,
    dropout: bool = False,
    tied: bool = False,
    causal_density: float = 0.5,
) -> Workload:
    """A decoder-only transformer. Sizes may be traced scalars; flags decide the structure.

    `bias` adds one to every linear layer and to layer norms (`layer_norm`; otherwise RMS norms with a scale only).
    """
    head_size = hidden / heads if head_size is None else head_size
    if isinstance(head_size, float) and head_size.is_integer():
        head_size = int(head_size)
    key_value_heads = heads if key_value_heads is None else key_value_heads
    width = {"hidden": hidden, "bias": bias, "layer_norm": layer_norm, "dropout": dropout}
    attention = _attention(sequence, heads, key_value_heads, head_size, causal_density, **width)
    feed_forward = _feed_forward(sequence, ffn, gated, **width)
    layer = Block(name="layer", ops=attention + feed_forward, repeats=layers)
    positions = (Size(value=sequence * hidden),) if learned_positions else ()
    blocks = (
        _embedding(sequence, hidden, vocabulary, positions),
        layer,
        _head(sequence, hidden, vocabulary, layer_norm),
    )
    return Workload(name=name, blocks=blocks, sequence=sequence, batch=batch, hidden=hidden, tied=1 if tied else 0)


def _norm(name: str, sequence: Scalar, hidden: Scalar, layer_norm: bool, role: str) -> Op:
    rows, columns = (Size(value=sequence, split=SPREAD),), (Size(value=hidden),)
    return Op(
        name=name,
        kind="memory",
        rows=rows,
        columns=columns,
        parameters=(Size(value=(2 if layer_norm else 1) * hidden),),
        touches_forward=2.0,  # read, write
        touches_backward=4.0,  # read the input, the gradient and the other branch's gradient; write
        saved=(Saved(rows=rows, columns=columns, role=role),),
    )


def _linear(
    name: str, sequence: Scalar, inner: Sizes, columns: Sizes, *, input_split: tuple[str, ...], bias: Scalar | None
) -> Op:
    """A linear layer that saves its input, divided by `input_split` (`SPREAD` where it is gathered again)."""
    return Op(
        name=name,
        kind="matmul",
        rows=(Size(value=sequence, split=TOKENS),),
        inner=inner,
        columns=columns,
        parameters=() if bias is None else (Size(value=bias),),
        saved=(Saved(rows=(Size(value=sequence, split=input_split),), columns=inner),),
    )


def _sync(name: str, sequence: Scalar, hidden: Scalar) -> Op:
    """The edge of a tensor-parallel region: an all-reduce, or its two halves under sequence parallelism."""
    return Op(name=name, kind="sync", rows=(Size(value=sequence, split=TOKENS),), columns=(Size(value=hidden),))


def _residual(name: str, sequence: Scalar, hidden: Scalar, dropout: bool) -> Op:
    rows, columns = (Size(value=sequence, split=SPREAD),), (Size(value=hidden),)
    mask = (Saved(rows=rows, columns=columns, activations=0.0, fixed_bytes=1.0),)
    return Op(
        name=name,
        kind="memory",
        rows=rows,
        columns=columns,
        touches_forward=3.0,  # read the branch and the stream, write the stream
        touches_backward=1.0,
        saved=mask if dropout else (),
    )


def _attention(
    sequence: Scalar,
    heads: Scalar,
    key_value_heads: Scalar,
    head_size: Scalar,
    density: float,
    *,
    hidden: Scalar,
    bias: bool,
    layer_norm: bool,
    dropout: bool,
) -> tuple[Op, ...]:
    query = (Size(value=heads * head_size, split=("tensor",)),)
    key_value = (Size(value=2 * key_value_heads * head_size, split=("tensor",), limit=key_value_heads),)
    whole = (Size(value=hidden),)
    projections = heads * head_size + 2 * key_value_heads * head_size
    return (
        _norm("attention norm", sequence, hidden, layer_norm, role="input"),
        _linear("qkv", sequence, whole, query + key_value, input_split=SPREAD, bias=projections if bias else None),
        _core(sequence, heads, head_size, density, query + key_value, key_value, dropout),
        _linear("attention out", sequence, query, whole, input_split=TOKENS, bias=hidden if bias else None),
        _sync("attention sync", sequence, hidden),
        _residual("attention residual", sequence, hidden, dropout),
    )


def _core(
    sequence: Scalar,
    heads: Scalar,
    head_size: Scalar,
    density: float,
    inputs: Sizes,
    key_value: Sizes,
    dropout: bool,
) -> Op:
    """Scores, softmax and weighted values. Unfused, it saves the probabilities (2 bytes; with dropout 5)."""
    rows, keys = (Size(value=sequence, split=TOKENS),), (Size(value=sequence),)
    groups = (Size(value=heads, split=("tensor",)),)
    return Op(
        name="attention",
        kind="attention",
        rows=rows,
        inner=(Size(value=head_size),),
        columns=keys,
        groups=groups,
        key_values=key_value,
        density=density,
        saved=(
            Saved(rows=rows, columns=inputs),
            Saved(
                rows=rows,
                columns=keys,
                groups=groups,
                activations=2.0 if dropout else 1.0,
                fixed_bytes=1.0 if dropout else 0.0,
                role="core",
                attention="unfused",
            ),
            Saved(rows=rows, columns=groups, activations=0.0, fixed_bytes=4.0, attention="flash"),
        ),
    )


def _feed_forward(
    sequence: Scalar, ffn: Scalar, gated: bool, *, hidden: Scalar, bias: bool, layer_norm: bool, dropout: bool
) -> tuple[Op, ...]:
    gates = 2 if gated else 1
    whole, middle = (Size(value=hidden),), (Size(value=ffn, split=("tensor",)),)
    opened = (Size(value=gates * ffn, split=("tensor",)),)
    rows = (Size(value=sequence, split=TOKENS),)
    activation = Op(
        name="activation",
        kind="memory",
        rows=rows,
        columns=middle,
        touches_forward=gates + 1.0,  # read each input, write the output
        touches_backward=2.0 * gates + 1.0,  # read the inputs and the gradient, write the inputs' gradients
        saved=(Saved(rows=rows, columns=opened),),
    )
    return (
        _norm("ffn norm", sequence, hidden, layer_norm, role="rest"),
        _linear("ffn up", sequence, whole, opened, input_split=SPREAD, bias=gates * ffn if bias else None),
        activation,
        _linear("ffn down", sequence, middle, whole, input_split=TOKENS, bias=hidden if bias else None),
        _sync("ffn sync", sequence, hidden),
        _residual("ffn residual", sequence, hidden, dropout),
    )


def _embedding(sequence: Scalar, hidden: Scalar, vocabulary: Scalar, positions: Sizes) -> Block:
    lookup = Op(
        name="embedding",
        kind="lookup",
        rows=(Size(value=sequence, split=TOKENS),),
        inner=(Size(value=vocabulary, split=("tensor",)),),
        columns=(Size(value=hidden),),
        parameters=positions,
        touches_forward=2.0,
        touches_backward=2.0,
    )
    return Block(name="embedding", position="first", ops=(lookup, _sync("embedding sync", sequence, hidden)))


def _head(sequence: Scalar, hidden: Scalar, vocabulary: Scalar, layer_norm: bool) -> Block:
    """Final norm, logits over a divided vocabulary, and the loss on float32 logits."""
    logits = (Size(value=vocabulary, split=("tensor",)),)
    loss = Op(
        name="loss",
        kind="loss",
        rows=(Size(value=sequence, split=TOKENS),),
        columns=logits,
        touches_forward=3.0,  # cast, maximum and sum over float32 logits, in units of the activation type
        touches_backward=2.0,
    )
    return Block(
        name="head",
        position="last",
        ops=(
            _norm("final norm", sequence, hidden, layer_norm, role="rest"),
            _linear("logits", sequence, (Size(value=hidden),), logits, input_split=SPREAD, bias=None),
            _sync("head sync", sequence, hidden),
            loss,
        ),
    )
