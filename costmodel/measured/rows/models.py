"""The workload of a row, built once for each distinct set of dimensions."""

import dataclasses
import functools
from collections.abc import Callable, Mapping
from typing import Any

from costmodel.inputs import Workload
from costmodel.measured.rows import variants
from costmodel.measured.rows.columns import UNFUSED_WORDS, Columns, RowError
from costmodel.measured.rows.defaults import HABITS
from costmodel.measured.rows.variants import Variant
from costmodel.models import Latent, decoder, map_operators, moe_decoder
from costmodel.pytree import as_float, map_leaves

Facts = Mapping[str, float]
"""Numbers that notes and names give (notes.facts_of)."""
Keywords = tuple[tuple[str, Any], ...]
"""Arguments of a builder, hashable."""

_VOCABULARY_GPT, _VOCABULARY_LLAMA = 51_200, 32_000
_LARGEST = 10**9
_FIRST_FLASH = 1.6  # Dao 2023 (FlashAttention-2), figure 4: A100, causal, heads of 128, forward and backward at 2,048
"""Cells of `flash_attention` that say that the scores pass through memory."""

# Parts of a model's name, without blanks and dashes, and what no column holds. Sources: data/models.toml (DeepSeek-V3),
# config.json of moonshotai/Kimi-K2-Instruct and moonshotai/Moonlight-16B-A3B (latent ranks, first dense layer of 18,432
# and 11,264, one and two shared experts), of openai/gpt-oss-120b (heads of 64, window 128 on every second layer),
# of Qwen/Qwen3-* (heads of 128), of google/gemma-3-12b (heads of 256, window 1,024 on five layers of six).
_LATENT = Latent(query_rank=1536, key_value_rank=512, nope_size=128, rope_size=64, value_size=128)
_BY_NAME: tuple[tuple[str, Mapping[str, Any]], ...] = (
    ("deepseekv3", {"latent": _LATENT, "dense_layers": 3, "ffn": 18432, "shared_experts": 1}),
    ("kimik2", {"latent": _LATENT, "dense_layers": 1, "ffn": 18432, "shared_experts": 1}),
    ("moonlight", {"latent": _LATENT, "dense_layers": 1, "ffn": 11264, "shared_experts": 2}),
    ("gptoss", {"head_size": 64, "window": 128, "window_share": 0.5}),
    ("qwen3", {"head_size": 128}),
    ("gemma3", {"head_size": 256, "window": 1024, "window_share": 5 / 6}),
)


def workload(columns: Columns, facts: Facts, era: str) -> tuple[Workload, tuple[str, ...]]:
    """The workload and what was assumed for it. `era` is the software class (dropout in the early ones)."""
    by_name = _by_name(columns.text("model"))
    shared, assumed = _shared(columns, facts, by_name)
    if columns.count("experts"):
        builder, own = moe_decoder, _expert_keywords(columns, by_name)
    else:
        builder, own = decoder, _dense_keywords(columns, facts, era)
    software = _variants(columns, facts, era)
    batch = columns.count("global_batch_sequences")
    if batch is None:
        raise RowError("`global_batch_sequences` is empty; expected the sequences of one step")
    built = _built(builder, tuple((shared | own).items()), software)
    return dataclasses.replace(built, batch=float(batch)), assumed


@functools.lru_cache(maxsize=4096)
def _built(builder: Callable[..., Workload], keywords: Keywords, software: tuple[Variant, ...]) -> Workload:
    """One object for each distinct model, which batches rely on."""
    built = builder(name="row", batch=1, **dict(keywords))
    for variant in software:
        built = dataclasses.replace(built, blocks=map_operators(built.blocks, variant))
    return map_leaves(as_float, built)


def _by_name(model: str) -> Mapping[str, Any]:
    name = model.lower().replace(" ", "").replace("-", "").replace("_", "")
    return next((known for part, known in _BY_NAME if part in name), {})


def _shared(columns: Columns, facts: Facts, by_name: Mapping[str, Any]) -> tuple[dict[str, Any], tuple[str, ...]]:
    """What dense and expert models have alike: from the columns, from names where no column holds it, by default."""
    sizes = {name: columns.needed(name) for name in ("layers", "hidden", "heads", "ffn_hidden", "seq")}
    too_large = [name for name, size in sizes.items() if size > _LARGEST]
    if too_large:
        raise RowError(f"`{too_large[0]}` is {sizes[too_large[0]]}; expected at most {_LARGEST}")
    gated, vocabulary, assumed = bool(columns.flag("gated_ffn")), columns.count("vocab"), ()
    if vocabulary is None:
        vocabulary = _VOCABULARY_LLAMA if gated else _VOCABULARY_GPT
        assumed = (f"vocabulary {vocabulary}",)
    printed = int(facts.get("head_size", 0)) or sizes["hidden"] // sizes["heads"] or 1
    keywords = {
        "layers": sizes["layers"],
        "hidden": sizes["hidden"],
        "heads": sizes["heads"],
        "key_value_heads": min(columns.count("kv_heads") or sizes["heads"], sizes["heads"]),
        "head_size": by_name.get("head_size", printed),
        "vocabulary": vocabulary,
        "sequence": sizes["seq"],
        "tied": _tied(columns, gated),
        "causal_density": _density(columns, facts, by_name),
    }
    return keywords, assumed


def _expert_keywords(columns: Columns, by_name: Mapping[str, Any]) -> dict[str, Any]:
    if not columns.count("topk"):
        raise RowError("`topk` is empty; expected the experts of one token")
    return {
        "experts": columns.count("experts"),
        "top_k": columns.count("topk"),
        "expert_ffn": columns.needed("ffn_hidden"),
        "ffn": by_name.get("ffn"),
        "dense_layers": min(by_name.get("dense_layers", 0), columns.needed("layers") - 1),
        "shared_experts": by_name.get("shared_experts", 0),
        "latent": by_name.get("latent"),
    }


def _dense_keywords(columns: Columns, facts: Facts, era: str) -> dict[str, Any]:
    """Llama's kind where the feed-forward is gated, else GPT's: layer norms, biases and learned positions."""
    gated = bool(columns.flag("gated_ffn"))
    return {
        "ffn": columns.needed("ffn_hidden"),
        "gated": gated,
        "bias": not gated,
        "layer_norm": not gated,
        "learned_positions": not gated,
        "dropout": not gated and era in ("megatron_early", "deepspeed"),
        "parallel_block": bool(facts.get("parallel_block")),
    }


def _variants(columns: Columns, facts: Facts, era: str) -> tuple[Variant, ...]:
    """What the software of the row does otherwise, in the order in which it is applied."""
    habits, gated = HABITS[era], bool(columns.flag("gated_ffn"))
    prints_kernels = "unfused_attention" in facts  # the mark of eager software (evidence V: accuracy.md, section 6)
    eager = gated and (habits.eager or prints_kernels) and not facts.get("compiled")
    unfused_norms = gated and ("eager" in facts or facts.get("fused_norms") == 0.0)
    copies_bytes = 0.0 if columns.text("recompute") == "selective" else 10.0  # of a norm; the recompute drops them
    applies: tuple[tuple[Any, Variant], ...] = (
        (habits.whole_inputs and (columns.count("pp") or 1) == 1, variants.gathered_inputs),
        (habits.keeps_8bit_weights and _is_narrow(columns.text("precision").lower()), variants.narrow_inputs),
        (eager, variants.eager_activation),
        (unfused_norms, variants.norms_in_32_bits(copies_bytes)),
        (facts.get("fused_norms") == 1.0, variants.fused_norms),
        (gated and (prints_kernels or "eager" in facts), variants.rotation_passes),
        (prints_kernels, variants.loss_on_all_logits),
        (facts.get("framework_attention"), variants.softmax_in_32_bits),
        (facts.get("offloaded_projections"), variants.without_inputs),
        (eager and habits.rotation_copies > 0, variants.rotated(habits.rotation_copies)),
    )
    return tuple(variant for applied, variant in applies if applied)


def _is_narrow(precision: str) -> bool:
    return "8" in precision or "fp4" in precision


def _tied(columns: Columns, gated: bool) -> bool:
    """GPTs share embedding and head, and small models of the Llama kind do (Llama 3.2 1B and 3B)."""
    size = columns.number("params_B")
    return not gated or (size is not None and size < 4)


def _density(columns: Columns, facts: Facts, by_name: Mapping[str, Any]) -> float:
    r"""Share of the score matrix, in the time of FlashAttention-2; 1 for a kernel that computes the masked half too.

    One half, or under a window of $w$ (of the sequence) $w - w^2 / 2$ on the layers that have it, in the layers' mean.
    """
    if columns.text("flash_attention").lower() in UNFUSED_WORDS:
        return 1.0
    sequence = columns.needed("seq")
    # a window that the notes only name is a quarter of the sequence: an assumption
    window = by_name.get("window", sequence // 4 if facts.get("sliding_window") else 0)
    layers_share = by_name.get("window_share", 1.0) if 0 < window < sequence else 0.0
    seen = window / sequence
    density = layers_share * (seen - 0.5 * seen**2) + (1 - layers_share) * 0.5
    return (_FIRST_FLASH if facts.get("first_flash") else 1.0) * density
