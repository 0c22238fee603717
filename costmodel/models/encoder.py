"""Encoders: BERT with its masked-language-model head (Devlin et al. 2019)."""

from costmodel.inputs import Block, Op, Position, Size, Workload
from costmodel.models.layers import attention, feed_forward
from costmodel.models.pieces import Heads, Style, activation, embedding, head, integral, linear, norm
from costmodel.semantics import Scalar


def encoder(
    *,
    name: str = "encoder",
    layers: Scalar,
    hidden: Scalar,
    heads: Scalar,
    ffn: Scalar,
    vocabulary: Scalar,
    sequence: Scalar,
    batch: Scalar,
    positions: Scalar | None = None,
    token_types: Scalar = 2,
    dropout: bool = True,
    tied: bool = True,
) -> Workload:
    """A bidirectional transformer that predicts masked tokens; the loss is over all tokens, as implementations do it.

    Post-norm: the norms stand after the residuals, which costs the same; the embedding's norm stands for the first.
    `positions` is the length of the learned table, the sequence if it is not given. Without the pooler.
    """
    style = Style(
        hidden=hidden,
        tokens=sequence,
        layer_norm=True,
        dropout=dropout,
        qkv_bias=True,
        out_bias=True,
        ffn_bias=True,
    )
    looks = Heads(heads=heads, key_value_heads=heads, head_size=integral(hidden / heads), keys=sequence)
    rows = (sequence if positions is None else positions) + token_types
    table = embedding("embedding", sequence, hidden, vocabulary, (Size(value=rows * hidden),))
    blocks = (
        Block(
            name="embedding",
            position=Position.FIRST,
            ops=(*table, norm("embedding norm", sequence, hidden, layer_norm=True)),
        ),
        Block(name="layer", ops=attention(style, looks) + feed_forward(style, ffn), repeats=layers),
        head(_transform(sequence, hidden), sequence, hidden, vocabulary, bias=True),
    )
    return Workload(name=name, blocks=blocks, sequence=sequence, batch=batch, hidden=hidden, tied=1 if tied else 0)


def _transform(tokens: Scalar, hidden: Scalar) -> tuple[Op, ...]:
    """Dense layer, activation and norm before the logits, replicated over the tensor ranks."""
    width = (Size(value=hidden),)
    return (
        linear("head transform", tokens, width, width, bias=hidden),
        activation("head activation", tokens, width, width, 1.0),
        norm("head norm", tokens, hidden, layer_norm=True),
    )
