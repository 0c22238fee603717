"""The workload of a row, built once for each distinct set of dimensions."""

import dataclasses
import functools
from collections.abc import Mapping
from typing import Any

from costmodel._pytree import as_float, map_leaves
from costmodel.models._pieces import SPREAD, TOKENS
from costmodel.models.decoder import decoder
from costmodel.models.moe import Latent, moe_decoder
from costmodel.rows.columns import Columns, RowError
from costmodel.rows.defaults import HABITS
from costmodel.workload import LOGITS, Block, Op, Saved, Size, Workload

_VOCABULARY_GPT, _VOCABULARY_LLAMA = 51_200, 32_000
_LARGEST = 10**9
UNFUSED_WORDS = ("0", "no", "0.0", "false", "none")
"""Cells of `flash_attention` that say that the scores pass through memory."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Dimensions:
    """All that decides the workload but its batch."""

    layers: int
    hidden: int
    heads: int
    key_value_heads: int
    head_size: int
    ffn: int
    gated: bool
    vocabulary: int
    sequence: int
    experts: int = 0
    top_k: int = 0
    dense_layers: int = 0
    dense_ffn: int = 0
    shared_experts: int = 0
    latent: Latent | None = None
    imbalance: float = 1.0
    gpt: bool = False  # layer norms and biases
    dropout: bool = False
    tied: bool = False
    parallel_block: bool = False
    whole_scores: bool = False  # a kernel that computes the masked half of the scores too
    whole_inputs: bool = False  # inputs of sequence-parallel regions are saved gathered (nanotron)
    narrow_inputs: bool = False  # linear layers save their inputs as they were cast, in 8 bits (Transformer Engine)
    eager: bool = False  # what a framework without a compiler saves beside the fused kernels' tensors
    rotation_copies: float = 0.0
    unfused_norms: bool = False  # RMS norms written in the framework's operators, in 32 bits
    unfused_softmax: bool = False  # attention in the framework's operators, with its softmax in 32 bits
    offloaded_inputs: bool = False  # those of the layers wait in the host's memory
    whole_loss: bool = False  # logits are gathered from the tensor ranks before the loss
    window: int = 0  # tokens of a sliding window on every layer; 0: all before
    window_share: float = 1.0  # layers that have the window


# Parts of a model's name, without blanks and dashes, and what no column holds. Sources: data/models.toml (DeepSeek-V3),
# config.json of moonshotai/Kimi-K2-Instruct and moonshotai/Moonlight-16B-A3B (latent ranks, first dense layer of 18,432
# and 11,264, one and two shared experts), of openai/gpt-oss-120b (heads of 64, window 128 on every second layer),
# of Qwen/Qwen3-* (heads of 128), of google/gemma-3-12b (heads of 256, window 1,024 on five layers of six).
_LATENT = Latent(query_rank=1536, key_value_rank=512, nope_size=128, rope_size=64, value_size=128)
_BY_NAME: tuple[tuple[str, Mapping[str, Any]], ...] = (
    ("deepseekv3", {"latent": _LATENT, "dense_layers": 3, "dense_ffn": 18432, "shared_experts": 1}),
    ("kimik2", {"latent": _LATENT, "dense_layers": 1, "dense_ffn": 18432, "shared_experts": 1}),
    ("moonlight", {"latent": _LATENT, "dense_layers": 1, "dense_ffn": 11264, "shared_experts": 2}),
    ("gptoss", {"head_size": 64, "window": 128, "window_share": 0.5}),
    ("qwen3", {"head_size": 128}),
    ("gemma3", {"head_size": 256, "window": 1024, "window_share": 5 / 6}),
)


def workload(columns: Columns, facts: Mapping[str, float], era: str) -> tuple[Workload, tuple[str, ...]]:
    """The workload and what was assumed for it. `era` is the software class (dropout in the early ones)."""
    dimensions, assumed = dimensions_of(columns, facts, era)
    batch = columns.count("global_batch_sequences")
    if batch is None:
        raise RowError("`global_batch_sequences` is empty; expected the sequences of one step")
    return dataclasses.replace(_built(dimensions), batch=float(batch)), assumed


def dimensions_of(columns: Columns, facts: Mapping[str, float], era: str) -> tuple[Dimensions, tuple[str, ...]]:
    """Sizes from the columns, from names where no column holds them, and by default."""
    sizes = {name: columns.needed(name) for name in ("layers", "hidden", "heads", "ffn_hidden", "seq")}
    too_large = [name for name, size in sizes.items() if size > _LARGEST]
    if too_large:
        raise RowError(f"`{too_large[0]}` is {sizes[too_large[0]]}; expected at most {_LARGEST}")
    gated, vocabulary, assumed = columns.flag("gated_ffn"), columns.count("vocab"), ()
    gpt = not gated
    if vocabulary is None:
        vocabulary = _VOCABULARY_GPT if gpt else _VOCABULARY_LLAMA
        assumed = (f"vocabulary {vocabulary}",)
    name = columns.text("model").lower().replace(" ", "").replace("-", "").replace("_", "")
    known = next((facts_ for part, facts_ in _BY_NAME if part in name), {})
    experts = columns.count("experts") or 0
    if experts and not columns.count("topk"):
        raise RowError("`topk` is empty; expected the experts of one token")
    head_size = int(facts.get("head_size", 0)) or sizes["hidden"] // sizes["heads"] or 1
    prints_kernels = "unfused_attention" in facts  # the mark of eager software (evidence V: accuracy.md, section 6)
    eager = bool(gated) and (HABITS[era].eager or prints_kernels) and not facts.get("compiled")
    values: dict[str, Any] = dict(
        layers=sizes["layers"],
        hidden=sizes["hidden"],
        heads=sizes["heads"],
        key_value_heads=min(columns.count("kv_heads") or sizes["heads"], sizes["heads"]),
        head_size=head_size,
        ffn=sizes["ffn_hidden"],
        gated=bool(gated),
        vocabulary=vocabulary,
        sequence=sizes["seq"],
        experts=experts,
        top_k=columns.count("topk") or 0,
        gpt=gpt and not experts,
        dropout=gpt and era in ("megatron_early", "deepspeed"),
        tied=_tied(columns, gpt),
        parallel_block=bool(facts.get("parallel_block")),
        whole_scores=columns.text("flash_attention").lower() in UNFUSED_WORDS,
        whole_inputs=HABITS[era].whole_inputs and (columns.count("pp") or 1) == 1,
        narrow_inputs=HABITS[era].keeps_8bit_weights and _is_narrow(columns.text("precision").lower()),
        eager=eager,
        unfused_norms=bool(gated) and facts.get("fused_kernels") == 0.0,
        whole_loss=prints_kernels,
        offloaded_inputs=bool(facts.get("offloaded_projections")),
        unfused_softmax=bool(facts.get("framework_attention")),
        rotation_copies=HABITS[era].rotation_copies if eager else 0.0,
        window=_window(facts, sizes["seq"]),
    )
    values |= known
    values["dense_layers"] = min(values.get("dense_layers", 0), sizes["layers"] - 1)
    if not 0 < values["window"] < sizes["seq"]:
        values |= {"window": 0, "window_share": 1.0}
    return Dimensions(**values), assumed


def _is_narrow(precision: str) -> bool:
    return "8" in precision or "fp4" in precision


def _window(facts: Mapping[str, float], sequence: int) -> int:
    """Tokens of a window that the notes only name: a quarter of the sequence, an assumption."""
    return sequence // 4 if facts.get("sliding_window") else 0


def _tied(columns: Columns, gpt: bool) -> bool:
    """GPTs share embedding and head, and small models of the Llama kind do (Llama 3.2 1B and 3B)."""
    size = columns.number("params_B")
    return gpt or (size is not None and size < 4)


@functools.lru_cache(maxsize=4096)
def _built(d: Dimensions) -> Workload:
    density = 1.0 if d.whole_scores else causal_density(d)
    if d.experts:
        built = moe_decoder(
            layers=d.layers,
            hidden=d.hidden,
            heads=d.heads,
            vocabulary=d.vocabulary,
            sequence=d.sequence,
            batch=1,
            experts=d.experts,
            top_k=d.top_k,
            expert_ffn=d.ffn,
            ffn=d.dense_ffn or None,
            dense_layers=d.dense_layers,
            shared_experts=d.shared_experts,
            key_value_heads=d.key_value_heads,
            head_size=d.head_size,
            latent=d.latent,
            imbalance=d.imbalance,
            tied=d.tied,
            causal_density=density,
        )
    else:
        built = decoder(
            layers=d.layers,
            hidden=d.hidden,
            heads=d.heads,
            ffn=d.ffn,
            vocabulary=d.vocabulary,
            sequence=d.sequence,
            batch=1,
            key_value_heads=d.key_value_heads,
            head_size=d.head_size,
            gated=d.gated,
            bias=d.gpt,
            layer_norm=d.gpt,
            learned_positions=d.gpt,
            dropout=d.dropout,
            tied=d.tied,
            causal_density=density,
        )
    built = dataclasses.replace(built, name="row", tied=float(d.tied))
    changes = (
        (d.parallel_block, _in_parallel),
        (d.whole_inputs, _gathered),
        (d.narrow_inputs, _narrow),
        (d.eager, _eager),
        (d.unfused_norms, _norms_in_32_bits),
        (d.whole_loss, _loss_on_all_logits),
        (d.unfused_softmax, _softmax_in_32_bits),
        (d.offloaded_inputs, _without_inputs),
        (d.rotation_copies > 0, functools.partial(_rotated, d.rotation_copies)),
    )
    for applies, change in changes:
        if applies:
            built = dataclasses.replace(built, blocks=tuple(map(change, built.blocks)))
    return map_leaves(as_float, built)


def causal_density(d: Dimensions) -> float:
    """Share of the score matrix: one half, or $w/s - w^2 / 2 s^2$ under a window of w, in the mean over the layers."""
    share = d.window / d.sequence
    windowed = share - 0.5 * share**2 if d.window else 0.5
    return d.window_share * windowed + (1 - d.window_share) * 0.5


def _in_parallel(block: Block) -> Block:
    """Attention and feed-forward beside each other: one norm, one residual and one pair of syncs less."""
    dropped = ("ffn norm", "attention sync", "attention residual")
    return dataclasses.replace(block, ops=tuple(op for op in block.ops if op.name not in dropped))


def _gathered(block: Block) -> Block:
    """Inputs of column-parallel layers kept as they were gathered, and not gathered again.

    Source: nanotron, `tensor_parallel/functional.py`, without `recompute_allgather`. Its calibration rows hold
    runs with and without: without a pipeline most are so, with one most are not (the cause is unknown).
    """

    def whole(op: Op) -> Op:
        kept = (dataclasses.replace(saved, rows=tuple(map(own_tokens, saved.rows))) for saved in op.saved)
        return dataclasses.replace(op, saved=tuple(kept))

    def own_tokens(size: Size) -> Size:
        return dataclasses.replace(size, split=TOKENS) if size.split == SPREAD else size

    return dataclasses.replace(block, ops=tuple(whole(op) if op.kind == "matmul" else op for op in block.ops))


def _narrow(block: Block) -> Block:
    """Inputs of linear layers saved in 8 bits. Source: NVIDIA Transformer Engine, `LayerNormLinear` and `Linear`."""

    def half(op: Op) -> Op:
        if op.kind != "matmul" or op.name == LOGITS:
            return op
        return dataclasses.replace(op, saved=tuple(dataclasses.replace(s, activations=0.5) for s in op.saved))

    return dataclasses.replace(block, ops=tuple(map(half, block.ops)))


def _eager(block: Block) -> Block:
    """Autograd of unfused modules keeps the gate after its activation too."""

    def more(op: Op) -> Op:
        if op.name != "activation" or not op.saved:
            return op
        return dataclasses.replace(op, saved=(*op.saved, dataclasses.replace(op.saved[0], columns=op.columns)))

    return dataclasses.replace(block, ops=tuple(map(more, block.ops)))


def _rotated(copies: float, block: Block) -> Block:
    """Queries and keys before and after their rotation, and the parts that are put together again."""

    def more(op: Op) -> Op:
        if op.kind != "attention":
            return op
        kept = Saved(rows=op.saved[0].rows, columns=op.saved[0].columns[:1], activations=copies)
        return dataclasses.replace(op, saved=(*op.saved, kept))

    return dataclasses.replace(block, ops=tuple(map(more, block.ops)))


def _norms_in_32_bits(block: Block) -> Block:
    """Input and normalised input in 32 bits, and in 16 before the scale: 10 bytes per element of each norm.

    Forward a cast (2 bytes read, 4 written), a square (8), a mean (4), a product with the inverse root (8), a cast (6)
    and one with the weights (4): 36 bytes an element, 18 touches, of which `Stack.unfused_touches` counts two for each
    one here. Backward twice that.
    """

    def more(op: Op) -> Op:
        if not op.name.endswith(" norm") or not op.saved:
            return op
        copies = dataclasses.replace(op.saved[0], activations=0.0, fixed_bytes=10.0, role="rest")
        return dataclasses.replace(op, saved=(*op.saved, copies), touches_forward=9.0, touches_backward=18.0)

    return dataclasses.replace(block, ops=tuple(map(more, block.ops)))


def _loss_on_all_logits(block: Block) -> Block:
    """Every tensor rank holds the logits of the whole vocabulary (evidence V: reference/accuracy.md, section 6)."""

    def whole(op: Op) -> Op:
        columns = tuple(dataclasses.replace(size, split=()) for size in op.columns)
        return dataclasses.replace(op, columns=columns) if op.kind == "loss" else op

    return dataclasses.replace(block, ops=tuple(map(whole, block.ops)))


def _softmax_in_32_bits(block: Block) -> Block:
    """Masked scores in 16 bits and their softmax in 32, beside the probabilities: 6 bytes more for each score."""

    def more(kept: Saved) -> Saved:
        return dataclasses.replace(kept, fixed_bytes=kept.fixed_bytes + 6.0) if kept.role == "core" else kept

    ops = (dataclasses.replace(op, saved=tuple(map(more, op.saved))) for op in block.ops)
    return dataclasses.replace(block, ops=tuple(ops))


def _without_inputs(block: Block) -> Block:
    """The block without the inputs that it would keep for its recomputation."""
    ops = (dataclasses.replace(op, saved=tuple(k for k in op.saved if k.role != "input")) for op in block.ops)
    return dataclasses.replace(block, ops=tuple(ops))
