"""Encoder-decoders: mBART (Liu et al. 2020) and T5 (Raffel et al. 2020), with their large shared vocabularies."""

import dataclasses

from costmodel.inputs import Block, Kind, Op, Position, Size, Workload
from costmodel.models.layers import attention, cross_attention, feed_forward
from costmodel.models.pieces import TOKENS, Heads, Style, embedding, head, integral, norm, sync
from costmodel.semantics import Scalar


def encoder_decoder(
    *,
    name: str = "encoder_decoder",
    layers: Scalar,
    hidden: Scalar,
    heads: Scalar,
    ffn: Scalar,
    vocabulary: Scalar,
    sequence: Scalar,
    batch: Scalar,
    decoder_layers: Scalar | None = None,
    decoder_sequence: Scalar | None = None,
    decoder_heads: Scalar | None = None,
    decoder_ffn: Scalar | None = None,
    head_size: Scalar | None = None,
    positions: Scalar | None = None,
    relative_buckets: Scalar | None = None,
    gated: bool = False,
    bias: bool = False,
    layer_norm: bool = False,
    embedding_norm: bool = False,
    learned_positions: bool = False,
    dropout: bool = False,
    tied: bool = True,
    causal_density: float = 0.5,
) -> Workload:
    """`layers` and `sequence` are the encoder's; the decoder's are the same where they are not given.

    One table serves both embeddings, and the head where it is `tied`. Learned tables of positions have `positions` rows
    on each side (the sequence if not given); `relative_buckets` is the size of T5's table of relative positions, which
    each side has once. Both embeddings stand on the first stage; the encoder's output travels on with the decoder's
    activations, so a stage boundary is the mean over layers.
    """
    target = sequence if decoder_sequence is None else decoder_sequence
    down = layers if decoder_layers is None else decoder_layers
    read = Heads(
        heads=heads,
        key_value_heads=heads,
        head_size=integral(hidden / heads if head_size is None else head_size),
        keys=sequence,
    )
    written = _decoder_heads(read, hidden, decoder_heads, head_size, target, causal_density)
    style = Style(
        hidden=hidden,
        tokens=sequence,
        layer_norm=layer_norm,
        dropout=dropout,
        qkv_bias=bias,
        out_bias=bias,
        ffn_bias=bias,
    )
    rows = (sequence + target if positions is None else 2 * positions) if learned_positions else 0
    others = rows * hidden + (0 if relative_buckets is None else relative_buckets * (read.heads + written.heads))
    first = embedding("embedding", sequence, hidden, vocabulary, (Size(value=others),) if others else ())
    blocks = (
        Block(name="embedding", position=Position.FIRST, ops=first + _entry(style, target, embedding_norm)),
        Block(name="encoder layer", ops=attention(style, read) + feed_forward(style, ffn, gated), repeats=layers),
        _decoder_layer(style, written, target, ffn if decoder_ffn is None else decoder_ffn, gated, down),
        head(_finals(style, target), target, hidden, vocabulary),
    )
    crossing = hidden * (layers * sequence + down * (sequence + target)) / ((layers + down) * sequence)
    return Workload(
        name=name, blocks=blocks, sequence=sequence, batch=batch, hidden=integral(crossing), tied=1 if tied else 0
    )


def _decoder_heads(
    read: Heads, hidden: Scalar, heads: Scalar | None, head_size: Scalar | None, target: Scalar, density: float
) -> Heads:
    heads = read.heads if heads is None else heads
    size = integral(hidden / heads if head_size is None else head_size)
    return Heads(heads=heads, key_value_heads=heads, head_size=size, keys=target, density=density)


def _decoder_layer(style: Style, own: Heads, target: Scalar, ffn: Scalar, gated: bool, repeats: Scalar) -> Block:
    """Causal attention, attention to the encoder's output, feed-forward."""
    written = dataclasses.replace(style, tokens=target)
    read = dataclasses.replace(own, keys=style.tokens, density=1.0)
    ops = attention(written, own) + cross_attention(written, read) + feed_forward(written, ffn, gated)
    return Block(name="decoder layer", ops=ops, repeats=repeats)


def _entry(style: Style, target: Scalar, embedding_norm: bool) -> tuple[Op, ...]:
    """The decoder's rows of the shared table, and mBART's norms of both embeddings."""
    rows = (Size(value=target, split=TOKENS),)
    lookup = Op(
        name="decoder embedding",
        kind=Kind.MEMORY,
        rows=rows,
        columns=(Size(value=style.hidden),),
        touches_forward=2.0,
        touches_backward=2.0,
    )
    norms = (
        norm("embedding norm", style.tokens, style.hidden, style.layer_norm),
        norm("decoder embedding norm", target, style.hidden, style.layer_norm),
    )
    return (
        lookup,
        sync("decoder embedding sync", target, style.hidden, backward=False),
        *(norms if embedding_norm else ()),
    )


def _finals(style: Style, target: Scalar) -> tuple[Op, ...]:
    """The final norms of both sides."""
    return (
        norm("encoder final norm", style.tokens, style.hidden, style.layer_norm),
        norm("final norm", target, style.hidden, style.layer_norm),
    )
