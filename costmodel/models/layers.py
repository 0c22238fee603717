"""Layers of transformers: attention and feed-forward, as every family of them uses them."""

import dataclasses

from costmodel.inputs import Kind, Module, Op, Role, Saved, Size, Split
from costmodel.models.pieces import TOKENS, Heads, Style, activation, core, linear, norm, residual, sync
from costmodel.semantics import Scalar


def attention(style: Style, heads: Heads, name: str = "attention") -> tuple[Op, ...]:
    """Self-attention with its norm, its projections and its residual; keys lie on the queries' own tokens."""
    tokens, hidden = style.tokens, style.hidden
    columns, whole = heads.query + heads.key_value, (Size(value=hidden),)
    projections = (heads.heads + 2 * heads.key_value_heads) * heads.head_size
    bias = projections if style.qkv_bias else None
    return (
        norm(f"{name} norm", tokens, hidden, style.layer_norm, role=Role.INPUT),
        linear(
            "qkv" if name == "attention" else f"{name} qkv",
            tokens,
            whole,
            columns,
            bias=bias,
            matrices=3,
            of=Module.NORMS,
        ),
        *((_query_key_norm(style, heads, name),) if style.qk_norm else ()),
        core(name, tokens, heads, style.dropout),
        *closing(style, heads, name),
    )


def causal_density(window: int, share: float, tokens: Scalar) -> Scalar:
    r"""Share of the score matrix under a causal mask, where a `share` of the layers looks at `window` tokens alone.

    With $w$ the window over the sequence, $w - w^2 / 2$ on those layers and one half on the others, in the mean.
    """
    beyond = window / tokens - 1
    seen = window / tokens - (beyond + abs(beyond)) / 2  # at most all: sizes may be traced, so nothing branches on them
    return 0.5 + share * (seen - seen**2 / 2 - 0.5)


def windows(
    window: int | None, full_every: int | None, layers: Scalar, tokens: Scalar, density: Scalar
) -> tuple[tuple[int, int] | None, Scalar]:
    """Windows as a workload has them, and the density under them; without a `window` the one that is given."""
    if window is None:
        return None, density
    share = (layers - layers // full_every) / layers if full_every else 1.0
    return (window, full_every or 0), causal_density(window, share, tokens)


def cross_attention(style: Style, heads: Heads) -> tuple[Op, ...]:
    """Attention of the decoder's tokens to the encoder's output (`heads.keys` tokens)."""
    tokens, hidden, name = style.tokens, style.hidden, "cross attention"
    whole, ratio = (Size(value=hidden),), heads.keys / tokens
    width = heads.heads * heads.head_size, 2 * heads.key_value_heads * heads.head_size
    query_bias, key_value_bias = width if style.qkv_bias else (None, None)
    scores = core(name, tokens, heads, style.dropout, moved=ratio, saved=heads.query)
    key_rows = (Size(value=heads.keys, split=TOKENS),)
    return (
        norm(f"{name} norm", tokens, hidden, style.layer_norm),
        linear(f"{name} query", tokens, whole, heads.query, bias=query_bias),
        linear(f"{name} key value", heads.keys, whole, heads.key_value, bias=key_value_bias, matrices=2),
        _also_saving(scores, Saved(rows=key_rows, columns=heads.key_value)),
        *closing(style, heads, name),
    )


def closing(style: Style, heads: Heads, name: str) -> tuple[Op, ...]:
    """The output projection and the residual."""
    tokens, hidden = style.tokens, style.hidden
    bias = hidden if style.out_bias else None
    return (
        linear(f"{name} out", tokens, heads.query, (Size(value=hidden),), input_split=TOKENS, bias=bias),
        sync(f"{name} sync", tokens, hidden),
        *_norm_after(style, name),
        residual(f"{name} residual", tokens, hidden, style.dropout),
    )


def feed_forward(style: Style, ffn: Scalar, gated: bool = False) -> tuple[Op, ...]:
    """Norm, one or two products up, activation, product down, residual."""
    tokens, hidden, gates = style.tokens, style.hidden, 2 if gated else 1
    whole, middle = (Size(value=hidden),), (Size(value=ffn, split=(Split.TENSOR,)),)
    opened = (Size(value=gates * ffn, split=(Split.TENSOR,)),)
    up, down = (gates * ffn, hidden) if style.ffn_bias else (None, None)
    feed = Module.FEED_FORWARD
    return (
        norm("ffn norm", tokens, hidden, style.layer_norm),
        linear("ffn up", tokens, whole, opened, bias=up, matrices=gates, module=feed, of=Module.NORMS),
        activation("activation", tokens, middle, opened, float(gates)),
        linear("ffn down", tokens, middle, whole, input_split=TOKENS, bias=down, module=feed, of=Module.GATES),
        sync("ffn sync", tokens, hidden),
        *_norm_after(style, "ffn"),
        residual("ffn residual", tokens, hidden, style.dropout),
    )


def _norm_after(style: Style, name: str) -> tuple[Op, ...]:
    """A norm of what a branch adds, where the style has one."""
    return (norm(f"{name} norm after", style.tokens, style.hidden, style.layer_norm),) if style.norms_after else ()


def in_parallel(style: Style, heads: Heads, ffn: Scalar, gated: bool = False) -> tuple[Op, ...]:
    """Attention and feed-forward beside each other: they share one norm, one sync and one residual."""
    *attended, _sync, _residual = attention(style, heads)
    return (*attended, *feed_forward(style, ffn, gated)[1:])


def _query_key_norm(style: Style, heads: Heads, name: str) -> Op:
    """RMS norms of queries and keys with one scale of a head's size each."""
    rows = (Size(value=style.tokens, split=TOKENS),)
    keys = heads.key_value_heads * heads.head_size
    columns = (*heads.query, Size(value=keys, split=(Split.TENSOR,), limit=heads.key_value_heads))
    scales = columns if style.qk_norm_whole else (Size(value=2 * heads.head_size),)
    return Op(
        name=f"{name} query key norm",
        kind=Kind.NORM,
        rows=rows,
        columns=columns,
        parameters=scales,
        touches_forward=2.0,
        touches_backward=3.0,  # read the input and the gradient, write
        saved=(Saved(rows=rows, columns=columns),),
    )


def _also_saving(op: Op, other: Saved) -> Op:
    return dataclasses.replace(op, saved=(*op.saved, other))
