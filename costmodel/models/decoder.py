"""Dense decoders: GPT (learned positions, biases, dropout) and Llama (grouped-query attention, gated FFN)."""

from costmodel.inputs import Block, Position, Size, Workload
from costmodel.models.layers import attention, feed_forward, in_parallel, windows
from costmodel.models.multi_token import modules
from costmodel.models.pieces import Heads, Style, embedding, head, integral, norm
from costmodel.semantics import Scalar


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
    positions: Scalar | None = None,
    gated: bool = False,
    bias: bool = False,
    qkv_bias: bool = False,
    out_bias: bool = False,
    ffn_bias: bool = False,
    qk_norm: bool = False,
    qk_norm_whole: bool = False,
    norms_after: bool = False,
    layer_norm: bool = False,
    learned_positions: bool = False,
    parallel_block: bool = False,
    dropout: bool = False,
    tied: bool = False,
    causal_density: float = 0.5,
    window: int | None = None,
    full_every: int | None = None,
    mtp_layers: int = 0,
) -> Workload:
    """A decoder-only transformer. Sizes may be traced scalars; flags decide the structure.

    `bias` adds one to every linear layer of the blocks (`qkv_bias`, `out_bias`, `ffn_bias` to some) and to layer norms
    (`layer_norm`; otherwise RMS norms with a scale only). `positions` is the length of a learned table of positions,
    the sequence if it is not given. `qk_norm_whole` gives the norm of queries and keys (`qk_norm`) scales for all heads
    (OLMo 2); `norms_after` adds a norm before each residual (Gemma 3). In a `parallel_block` attention and feed-forward
    stand beside each other. A `window` is what layers look at but each `full_every`-th, which look at all before them.
    `mtp_layers` are modules of multi-token prediction (multi_token.py).
    """
    style = Style(
        hidden=hidden,
        tokens=sequence,
        layer_norm=layer_norm,
        dropout=dropout,
        qkv_bias=bias or qkv_bias,
        out_bias=bias or out_bias,
        ffn_bias=bias or ffn_bias,
        qk_norm=qk_norm,
        qk_norm_whole=qk_norm_whole,
        norms_after=norms_after,
    )
    looked, density = windows(window, full_every, layers, sequence, causal_density)
    looks = Heads(
        heads=heads,
        key_value_heads=heads if key_value_heads is None else key_value_heads,
        head_size=integral(hidden / heads if head_size is None else head_size),
        keys=sequence,
        density=density,
    )
    table = (Size(value=(sequence if positions is None else positions) * hidden),) if learned_positions else ()
    if parallel_block:
        layer = in_parallel(style, looks, ffn, gated)
    else:
        layer = attention(style, looks) + feed_forward(style, ffn, gated)
    entry = embedding("embedding", sequence, hidden, vocabulary, table)
    final = norm("final norm", sequence, hidden, layer_norm)
    blocks = (
        Block(name="embedding", position=Position.FIRST, ops=entry),
        Block(name="layer", ops=layer, repeats=layers),
        *(modules(layer, sequence, hidden, vocabulary, mtp_layers) if mtp_layers else ()),
        head((final,), sequence, hidden, vocabulary),
    )
    return Workload(
        name=name,
        blocks=blocks,
        sequence=sequence,
        batch=batch,
        hidden=hidden,
        tied=1 if tied else 0,
        embeds_again=1 if mtp_layers else 0,
        windows=looked,
    )
