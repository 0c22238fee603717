"""The workload of a row, built once for each distinct set of dimensions."""

import dataclasses
import functools
from collections.abc import Mapping
from typing import Any

from costmodel.inputs import Workload
from costmodel.measured.rows import variants
from costmodel.measured.rows.columns import Columns, RowError
from costmodel.measured.rows.defaults import HABITS
from costmodel.models import Latent, decoder, moe_decoder
from costmodel.pytree import as_float, map_leaves

_VOCABULARY_GPT, _VOCABULARY_LLAMA = 51_200, 32_000
_LARGEST = 10**9
_FIRST_FLASH = 1.6  # Dao 2023 (FlashAttention-2), figure 4: A100, causal, heads of 128, forward and backward at 2,048
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
    attention_work: float = 1.0  # time of the fused attention over that of FlashAttention-2
    whole_scores: bool = False  # a kernel that computes the masked half of the scores too
    whole_inputs: bool = False  # inputs of sequence-parallel regions are saved gathered (nanotron)
    narrow_inputs: bool = False  # linear layers save their inputs as they were cast, in 8 bits (Transformer Engine)
    eager: bool = False  # what a framework without a compiler saves beside the fused kernels' tensors
    rotation_copies: float = 0.0
    fused_norms: bool = False  # among operators that are not
    rotation_passes: bool = False  # of queries and keys, in the framework's operators
    unfused_norms: bool = False  # RMS norms written in the framework's operators, in 32 bits
    unfused_softmax: bool = False  # attention in the framework's operators, with its softmax in 32 bits
    offloaded_inputs: bool = False  # those of the layers wait in the host's memory
    norm_copies_bytes: float = 10.0  # an element, of unfused norms; selective recompute drops them
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
        attention_work=_FIRST_FLASH if facts.get("first_flash") else 1.0,
        whole_scores=columns.text("flash_attention").lower() in UNFUSED_WORDS,
        whole_inputs=HABITS[era].whole_inputs and (columns.count("pp") or 1) == 1,
        narrow_inputs=HABITS[era].keeps_8bit_weights and _is_narrow(columns.text("precision").lower()),
        eager=eager,
        unfused_norms=bool(gated) and ("eager" in facts or facts.get("fused_norms") == 0.0),
        norm_copies_bytes=0.0 if columns.text("recompute") == "selective" else 10.0,
        fused_norms=facts.get("fused_norms") == 1.0,
        rotation_passes=bool(gated) and (prints_kernels or "eager" in facts),
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
    density = 1.0 if d.whole_scores else d.attention_work * causal_density(d)
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
        (d.parallel_block, variants.in_parallel),
        (d.whole_inputs, variants.gathered),
        (d.narrow_inputs, variants.narrow),
        (d.eager, variants.eager),
        (d.unfused_norms, functools.partial(variants.norms_in_32_bits, d.norm_copies_bytes)),
        (d.fused_norms, variants.fused_norms),
        (d.rotation_passes, variants.rotation),
        (d.whole_loss, variants.loss_on_all_logits),
        (d.unfused_softmax, variants.softmax_in_32_bits),
        (d.offloaded_inputs, variants.without_inputs),
        (d.rotation_copies > 0, functools.partial(variants.rotated, d.rotation_copies)),
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
