"""Swin transformers (Liu et al. 2021): stages of attention in windows, with patches merged between them."""

from costmodel.inputs import Block, Kind, Op, Position, Role, Size, Split, Workload
from costmodel.models.layers import attention, feed_forward
from costmodel.models.pieces import TOKENS, Heads, Style, integral, linear, norm
from costmodel.semantics import Scalar, total


def swin(
    *,
    name: str = "swin",
    depths: tuple[Scalar, ...],
    hidden: Scalar,
    heads: tuple[Scalar, ...],
    image: Scalar,
    window: tuple[Scalar, ...],
    batch: Scalar,
    patch: Scalar = 4,
    channels: Scalar = 3,
    classes: Scalar = 1000,
    ffn_ratio: float = 4.0,
    qkv_bias: bool = True,
    absolute_positions: bool = False,
    dropout: bool = False,
) -> Workload:
    """A classifier of square images. `hidden` is the width of the first stage; `depths`, `heads` and `window` (the side
    of a window in tokens) are those of each.

    A sequence is an image of (image / patch)^2 tokens. Each stage halves both sides and doubles the width. Windows must
    divide the sides at every stage; the shift and its mask are not counted. A context split divides the windows: it is
    counted with the key-value traffic of full attention, more than the halo that windows need. A stage boundary of the
    pipeline is the mean over layers.
    """
    side = integral(image / patch)
    tokens = side * side
    blocks = [_patches(tokens, patch, channels, hidden, absolute_positions)]
    for stage, (depth, count, reach) in enumerate(zip(depths, heads, window, strict=True)):
        here, width = integral(tokens / 4**stage), hidden * 2**stage
        style = Style(
            hidden=width,
            tokens=here,
            layer_norm=True,
            dropout=dropout,
            qkv_bias=qkv_bias,
            out_bias=True,
            ffn_bias=True,
        )
        ops = _layer(style, count, reach, integral(ffn_ratio * width))
        if stage:
            blocks.append(Block(name=f"stage {stage + 1} entry", ops=_merging(here, width) + ops))
        blocks.append(Block(name=f"stage {stage + 1}", ops=ops, repeats=depth - 1 if stage else depth))
    last = len(depths) - 1
    blocks.append(_classifier(integral(tokens / 4**last), hidden * 2**last, classes))
    # a stage holds tokens / 4^i of hidden x 2^i elements: 2^-i of the first
    crossing = hidden * total(depth / 2**stage for stage, depth in enumerate(depths)) / total(depths)
    return Workload(name=name, blocks=tuple(blocks), sequence=tokens, batch=batch, hidden=integral(crossing))


def _layer(style: Style, heads: Scalar, window: Scalar, ffn: Scalar) -> tuple[Op, ...]:
    looks = Heads(heads=heads, key_value_heads=heads, head_size=integral(style.hidden / heads), keys=window * window)
    return (_relative_positions(window, heads), *attention(style, looks), *feed_forward(style, ffn))


def _relative_positions(window: Scalar, heads: Scalar) -> Op:
    """A learned bias for each head and distance, gathered into the scores of one window."""
    keys = window * window
    return Op(
        name="relative positions",
        kind=Kind.MEMORY,
        rows=(Size(value=keys),),
        columns=(Size(value=keys * heads, split=(Split.TENSOR,)),),
        parameters=(Size(value=(2 * window - 1) ** 2 * heads, split=(Split.TENSOR,)),),
        touches_forward=2.0,
        touches_backward=2.0,
    )


def _patches(tokens: Scalar, patch: Scalar, channels: Scalar, hidden: Scalar, absolute_positions: bool) -> Block:
    """A product of each patch's pixels, with a norm."""
    pixels, positions = (Size(value=patch * patch * channels),), tokens * hidden if absolute_positions else 0
    product = linear("patches", tokens, pixels, (Size(value=hidden),), input_split=TOKENS, bias=hidden + positions)
    return Block(
        name="patches", position=Position.FIRST, ops=(product, norm("patch norm", tokens, hidden, layer_norm=True))
    )


def _merging(tokens: Scalar, width: Scalar) -> tuple[Op, ...]:
    """Four neighbours of half the width become one token. The product is replicated over the tensor ranks."""
    before = 2 * width
    return (
        norm("merging norm", tokens, before, layer_norm=True, role=Role.INPUT),
        linear("merging", tokens, (Size(value=before),), (Size(value=width),)),
    )


def _classifier(tokens: Scalar, width: Scalar, classes: Scalar) -> Block:
    """Final norm, mean over the tokens, class scores of one row."""
    one = (Size(value=1),)
    scores = Op(
        name="classes",
        kind=Kind.MATMUL,
        rows=one,
        inner=(Size(value=width),),
        columns=(Size(value=classes),),
        parameters=(Size(value=classes),),
    )
    loss = Op(
        name="loss",
        kind=Kind.LOSS,
        rows=one,
        columns=(Size(value=classes),),
    )
    final = norm("final norm", tokens, width, layer_norm=True)
    return Block(name="head", position=Position.LAST, ops=(final, scores, loss))
