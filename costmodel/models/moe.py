"""Mixture-of-experts decoders: Mixtral, Qwen3-MoE, and DeepSeek-V3 with latent attention and shared experts.

Routed experts lie on a mesh of their own (expert_tensor x expert, folded into tensor x context x data): their weights
are divided over it, and every token travels to its `top_k` experts and back.
"""

import dataclasses

from costmodel.inputs import Block, Kind, Module, Op, Position, Role, Saved, Size, Split, Workload
from costmodel.models.layers import attention as whole_attention
from costmodel.models.layers import feed_forward, windows
from costmodel.models.multi_token import modules
from costmodel.models.pieces import (
    CLAMPED,
    EXPERT_BIAS,
    SPREAD,
    TOKENS,
    Heads,
    Style,
    core,
    embedding,
    head,
    linear,
    norm,
    residual,
    sync,
)

OWN = (Split.CONTEXT, Split.TENSOR)  # tokens of one rank: divided over tensor ranks too, under sequence parallelism
ARRIVED = (Split.ROUTED, Split.EXPERT)  # rows that arrive at one rank's experts, all of them together


@dataclasses.dataclass(frozen=True, kw_only=True)
class Latent:
    """Latent attention (DeepSeek-AI 2024): queries, keys and values come out of low-rank projections."""

    query_rank: int | None  # None: queries come straight out of the hidden state
    key_value_rank: int
    nope_size: int  # part of a head without positions
    rope_size: int  # part with positions, shared by all heads in the keys
    value_size: int


def moe_decoder(
    *,
    name: str = "moe",
    layers: int,
    hidden: int,
    heads: int,
    vocabulary: int,
    sequence: int,
    batch: int,
    experts: int,
    top_k: int,
    expert_ffn: int,
    ffn: int | None = None,
    dense_layers: int = 0,
    shared_experts: int = 0,
    key_value_heads: int | None = None,
    head_size: int | None = None,
    latent: Latent | None = None,
    query_key_norm: bool = False,
    query_key_norm_whole: bool = False,
    qkv_bias: bool = False,
    out_bias: bool = False,
    expert_bias: bool = False,
    attention_sinks: bool = False,
    tied: bool = False,
    expert_groups: int | None = None,
    imbalance: float = 1.0,
    causal_density: float = 0.5,
    window: int | None = None,
    full_every: int | None = None,
    mtp_layers: int = 0,
) -> Workload:
    """A decoder whose layers beyond the first `dense_layers` (of width `ffn`) choose `top_k` of `experts` experts.

    `expert_groups` bounds the innermost domains that one token is sent to (node-limited routing). `imbalance` is the
    load of the busiest rank's experts over the mean, or the capacity factor where tokens beyond it are dropped.
    `expert_bias` gives router and experts biases, `attention_sinks` each head a score beside its keys (gpt-oss).
    `query_key_norm_whole` gives the norm of queries and keys (`query_key_norm`) scales for all heads (OLMoE, MiniMax).
    A `window` is what layers look at but each `full_every`-th, which look at all before them. `mtp_layers` are modules
    of multi-token prediction, each with a layer of experts (multi_token.py).
    """
    style = Style(hidden=hidden, tokens=sequence, qkv_bias=qkv_bias, out_bias=out_bias)
    looked, density = windows(window, full_every, layers, sequence, causal_density)
    if latent is None:
        size = head_size or hidden // heads
        kv = key_value_heads or heads
        looks = Heads(heads=heads, key_value_heads=kv, head_size=size, keys=sequence, density=density)
        attention = whole_attention(style, looks)
        scaled = (
            Size(value=(heads + kv) * size, split=(Split.TENSOR,)) if query_key_norm_whole else Size(value=2 * size)
        )
        attention += (_head_norms(size, scaled),) if query_key_norm else ()
        attention = _with_sinks(attention) if attention_sinks else attention
    else:
        attention = _latent_attention(sequence, hidden, heads, latent, density)
    shared = shared_experts * expert_ffn
    routed = _experts(sequence, hidden, experts, top_k, expert_ffn, shared, expert_groups)
    routed = _with_biases(routed, experts) if expert_bias else routed
    dense = feed_forward(style, ffn or expert_ffn, True)
    kinds = (("dense layer", dense, dense_layers), ("expert layer", routed, layers - dense_layers))
    blocks = tuple(Block(name=kind, ops=attention + ops, repeats=repeats) for kind, ops, repeats in kinds if repeats)
    entry = Block(name="embedding", position=Position.FIRST, ops=embedding("embedding", sequence, hidden, vocabulary))
    blocks += modules(attention + routed, sequence, hidden, vocabulary, mtp_layers) if mtp_layers else ()
    final = norm("final norm", sequence, hidden, layer_norm=False)
    return Workload(
        name=name,
        blocks=(entry, *blocks, head((final,), sequence, hidden, vocabulary)),
        sequence=sequence,
        batch=batch,
        hidden=hidden,
        tied=1 if tied else 0,
        embeds_again=1 if mtp_layers else 0,
        windows=looked,
        expert_imbalance=imbalance,
    )


def _head_norms(head_size: int, scales: Size) -> Op:
    """Norms of queries and keys by head: their scales alone, the passes are fused with the rotation."""
    return Op(
        name="query, key norm",
        kind=Kind.NORM,
        rows=(Size(value=0),),
        columns=(Size(value=head_size),),
        parameters=(scales,),
    )


def _with_sinks(attention: tuple[Op, ...]) -> tuple[Op, ...]:
    """One more parameter for each head: a score that takes part in the softmax."""
    return tuple(dataclasses.replace(op, parameters=op.groups) if op.kind == Kind.ATTENTION else op for op in attention)


def _with_biases(routed: tuple[Op, ...], experts: int) -> tuple[Op, ...]:
    """Biases of the router and of every expert's products."""

    def biased(op: Op) -> Op:
        if op.name == "router":
            return dataclasses.replace(op, parameters=op.columns)
        if op.groups and op.kind == Kind.MATMUL:
            width = experts * sum(int(size.value) for size in op.columns)
            split = (Split.EXPERT, *(part for size in op.columns for part in size.split))
            return dataclasses.replace(op, parameters=(Size(value=width, split=split),))
        return dataclasses.replace(op, name=CLAMPED) if op.kind == Kind.ACTIVATION else op

    ops = list(map(biased, routed))
    last = next(i for i, op in enumerate(ops) if op.name == "return gather")
    return (*ops[:last], _added(ops[last]), *ops[last:])


def _added(back: Op) -> Op:
    """The bias of the experts' outputs, weighted as the router says."""
    return Op(
        name=EXPERT_BIAS,
        kind=Kind.MEMORY,
        rows=back.rows,
        columns=back.columns,
        touches_forward=2.0,
        touches_backward=2.0,
        module=Module.FEED_FORWARD,
    )


def _latent_attention(sequence: int, hidden: int, heads: int, latent: Latent, density: float) -> tuple[Op, ...]:
    """Projections down to the ranks are replicated over tensor ranks; those up to the heads are divided."""
    whole, key_size = (Size(value=hidden),), latent.nope_size + latent.rope_size
    query_rank = () if latent.query_rank is None else (Size(value=latent.query_rank),)
    value_rank = (Size(value=latent.key_value_rank),)
    down = (*query_rank, Size(value=latent.key_value_rank + latent.rope_size))
    queries = (Size(value=heads * key_size, split=(Split.TENSOR,)),)
    opened = (Size(value=heads * (latent.nope_size + latent.value_size), split=(Split.TENSOR,)),)
    key_values = (Size(value=heads * (key_size + latent.value_size), split=(Split.TENSOR,)),)
    values = (Size(value=heads * latent.value_size, split=(Split.TENSOR,)),)
    norms = Op(
        name="latent norms",
        kind=Kind.NORM,
        rows=(Size(value=sequence, split=TOKENS),),
        columns=query_rank + value_rank,
        parameters=query_rank + value_rank,
        touches_forward=2.0,
        touches_backward=4.0,
    )
    looks = Heads(
        heads=heads,
        key_value_heads=heads,
        head_size=(key_size + latent.value_size) / 2,
        keys=sequence,
        density=density,
    )
    return (
        norm("attention norm", sequence, hidden, layer_norm=False, role=Role.INPUT),
        linear("latent down", sequence, whole, down, of=Module.NORMS),
        norms,
        linear("query up", sequence, query_rank, queries, input_split=TOKENS, module=Module.LATENT)
        if query_rank
        else dataclasses.replace(linear("query", sequence, whole, queries), saved=()),  # the input that is kept below
        linear("key value up", sequence, value_rank, opened, input_split=TOKENS, module=Module.LATENT),
        core(
            "attention",
            sequence,
            looks,
            dropout=False,
            saved=queries + key_values,
            key_values=key_values,
            of=Module.LATENT,
        ),
        linear("attention out", sequence, values, whole, input_split=TOKENS),
        sync("attention sync", sequence, hidden),
        residual("attention residual", sequence, hidden, dropout=False),
    )


def _experts(
    sequence: int, hidden: int, experts: int, top_k: int, ffn: int, shared: int, expert_groups: int | None
) -> tuple[Op, ...]:
    """Router, dispatch, grouped products, return; beside them the shared experts as one dense feed-forward."""
    whole, groups = (Size(value=hidden),), (Size(value=experts, split=(Split.EXPERT,)),)
    opened, middle = ((Size(value=n * ffn, split=(Split.EXPERT_TENSOR,)),) for n in (2, 1))
    arrived = (Size(value=sequence * top_k, split=ARRIVED),)
    sent = (Size(value=sequence * top_k, split=OWN),)
    spread = 1.0 if expert_groups is None else min(1.0, expert_groups / top_k)
    router = Op(
        name="router",
        kind=Kind.MATMUL,
        rows=(Size(value=sequence, split=SPREAD),),
        inner=whole,
        columns=(Size(value=experts),),
        module=Module.FEED_FORWARD,
    )
    ops = (
        norm("ffn norm", sequence, hidden, layer_norm=False),
        router,
        _moved("permute", sent, whole, top_k),
        Op(name="dispatch", kind=Kind.EXCHANGE, rows=sent, columns=whole, spread=spread, copies=int(top_k)),
        Op(name="dispatch gather", kind=Kind.GATHER, rows=arrived, columns=whole),
        _grouped("expert up", sequence * top_k / experts, whole, opened, groups, arrived, 2, Module.FEED_FORWARD),
        _activation("expert activation", arrived, middle, opened),
        _grouped("expert down", sequence * top_k / experts, middle, whole, groups, arrived, 1, Module.GATES),
        Op(name="return gather", kind=Kind.GATHER, rows=arrived, columns=whole),
        Op(name="return", kind=Kind.EXCHANGE, rows=sent, columns=whole, spread=spread, copies=int(top_k)),
        _moved("unpermute", sent, whole, top_k),
        residual("ffn residual", sequence, hidden, dropout=False),
    )
    if not shared:
        return ops
    _norm, *beside, _residual = feed_forward(Style(hidden=hidden, tokens=sequence), shared, True)
    return (*ops, *beside)


def _grouped(
    name: str, rows: float, inner: tuple, columns: tuple, groups: tuple, arrived: tuple, matrices: int, of: Module
) -> Op:
    """One product for each expert on the rank; the input of all of them, an output of the module `of`, is saved."""
    return Op(
        name=name,
        kind=Kind.MATMUL,
        rows=(Size(value=rows, split=(Split.ROUTED,)),),
        inner=inner,
        columns=columns,
        groups=groups,
        matrices=matrices,
        module=Module.FEED_FORWARD,
        saved=(Saved(rows=arrived, columns=inner, module=of),),
    )


def _activation(name: str, rows: tuple, middle: tuple, opened: tuple) -> Op:
    return Op(
        name=name,
        kind=Kind.ACTIVATION,
        rows=rows,
        columns=middle,
        touches_forward=3.0,
        touches_backward=5.0,
        module=Module.GATES,
        saved=(Saved(rows=rows, columns=opened, module=Module.FEED_FORWARD),),
    )


def _moved(name: str, rows: tuple, columns: tuple, top_k: int) -> Op:
    """Tokens copied into the order of their experts, or back, as around an all-to-all (`counts.touches`)."""
    passes = 3.0 + 1.0 / top_k
    return Op(
        name=name,
        kind=Kind.MEMORY,
        rows=rows,
        columns=columns,
        touches_forward=passes,
        touches_backward=passes,
        single=1.0,
        copies=int(top_k),
        arranges=True,
        module=Module.FEED_FORWARD,
    )
