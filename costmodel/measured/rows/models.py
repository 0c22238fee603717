"""The workload of a row, built once for each distinct set of dimensions."""

import dataclasses
import functools
from collections.abc import Callable, Mapping
from typing import Any

from costmodel.inputs import Habits, Workload
from costmodel.measured.rows.columns import Columns, RowError
from costmodel.measured.rows.names import known_dimensions, normal_name
from costmodel.measured.rows.words import chosen, kinds, said
from costmodel.models import Latent, causal_density, decoder, encoder_decoder, moe_decoder
from costmodel.pytree import as_float, map_leaves

Facts = Mapping[str, float]
"""Numbers that notes and names give (notes.facts_of)."""
Keywords = tuple[tuple[str, Any], ...]
"""Arguments of a builder, hashable."""

_VOCABULARY_GPT, _VOCABULARY_LLAMA, _CLASSES = 51_200, 32_000, 1_000
_LARGEST = 10**9
_FEW_EXPERTS = 16  # of which a token takes two (Mixtral, Grok), of more eight (DeepSeek, Qwen)

# Parts of a model's name, without blanks and dashes, and what no column holds. Sources: data/models.toml (DeepSeek-V3),
# config.json of moonshotai/Kimi-K2-Instruct, moonshotai/Moonlight-16B-A3B and deepseek-ai/DeepSeek-V2 (latent ranks,
# first dense layer of 18,432, 11,264 and 12,288, one, two and two shared experts; of eight groups of experts a token of
# DeepSeek-V3 reaches four, one of DeepSeek-V2 three), of openai/gpt-oss-120b (heads of 64, window 128 on every second
# layer, biases of experts), of Qwen/Qwen3-* (heads of 128), of google/gemma-3-12b (heads of 256, window 1,024 on five
# layers of six); of Gemma 2 and 4 (a feed-forward beside the experts, three times as wide) and Llama 4 (every second
# layer of Maverick is dense: here the first half) MaxText's configs/models; of GLM 4.5 Megatron-Bridge's.
_LATENT = Latent(query_rank=1536, key_value_rank=512, nope_size=128, rope_size=64, value_size=128)
_WIDE = Latent(query_rank=2048, key_value_rank=512, nope_size=192, rope_size=64, value_size=256)  # of GLM-5
_PLAIN_QUERIES = dataclasses.replace(_LATENT, query_rank=None)  # of Moonlight and DeepSeek-V2-Lite
_BY_NAME: tuple[tuple[str, Mapping[str, Any]], ...] = (
    ("deepseekv3", {"expert_groups": 4, "latent": _LATENT, "dense_layers": 3, "ffn": 18432, "shared_experts": 1}),
    ("deepseekv2lite", {"latent": _PLAIN_QUERIES, "dense_layers": 1, "ffn": 10944, "shared_experts": 2}),
    ("deepseekv2", {"expert_groups": 3, "latent": _LATENT, "dense_layers": 1, "ffn": 12288, "shared_experts": 2}),
    ("glm5", {"latent": _WIDE, "dense_layers": 3, "ffn": 12288, "shared_experts": 1}),
    ("ling1t", {"head_size": 128, "dense_layers": 4, "ffn": 18432, "shared_experts": 1}),
    ("ring1t", {"head_size": 128, "dense_layers": 4, "ffn": 18432, "shared_experts": 1}),
    ("kimik2", {"latent": _LATENT, "dense_layers": 1, "ffn": 18432, "shared_experts": 1}),
    ("moonlight", {"latent": _PLAIN_QUERIES, "dense_layers": 1, "ffn": 11264, "shared_experts": 2}),
    ("gptoss", {"head_size": 64, "window": 128, "window_share": 0.5, "biased": True}),
    ("qwen3", {"head_size": 128}),
    ("gemma3", {"head_size": 256, "window": 1024, "window_share": 5 / 6}),
    ("gemma4", {"head_size": 256, "window": 1024, "window_share": 5 / 6, "shared_experts": 3}),
    ("gemma2", {"head_size": 256, "window": 4096, "window_share": 1 / 2}),
    ("llama4maverick", {"dense_layers": 24, "ffn": 16384, "shared_experts": 1}),
    ("llama417b128e", {"dense_layers": 24, "ffn": 16384, "shared_experts": 1}),
    ("llama4", {"shared_experts": 1}),
    ("glm4.5air", {"head_size": 128, "dense_layers": 1, "ffn": 10944, "shared_experts": 1}),
    ("deepseekmoe", {"dense_layers": 1, "ffn": 10944, "shared_experts": 2}),
    ("deepseek16b", {"dense_layers": 1, "ffn": 10944, "shared_experts": 2}),
    ("qwen257b", {"shared_experts": 8}),
    ("qwen1.5a2.7b", {"shared_experts": 4}),
    ("hunyuanlarge", {"shared_experts": 1}),
    ("hunyuana52b", {"shared_experts": 1}),
    ("ernie4.5300b", {"dense_layers": 3, "ffn": 28672}),
    ("hunyuana13b", {"shared_experts": 1}),
    ("ernie4.521b", {"dense_layers": 1, "ffn": 12288, "shared_experts": 2}),
    ("dots.llm1", {"dense_layers": 1, "ffn": 10944, "shared_experts": 2}),
    ("glm4.", {"head_size": 128, "dense_layers": 3, "ffn": 12288, "shared_experts": 1}),
)


def workload(columns: Columns, facts: Facts, habits: Habits) -> tuple[Workload, tuple[str, ...]]:
    """The workload and what was assumed for it."""
    by_name = _by_name(columns.text("model"))
    shared, assumed = _shared(columns, facts, by_name)
    if said(columns.text("model"), kinds.TWO_STACKS):
        builder, own = encoder_decoder, _two_stacks(columns, shared)
        shared = {name: size for name, size in shared.items() if name != "key_value_heads"}
    elif columns.count("experts"):
        builder, own = moe_decoder, _expert_keywords(columns, facts, by_name)
        assumed += () if columns.count("topk") or facts.get("top_k") else (f"{own['top_k']} experts of one token",)
    else:
        builder, own = decoder, _dense_keywords(columns, facts, habits)
    batch = columns.count("global_batch_sequences")
    if batch is None:
        raise RowError("`global_batch_sequences` is empty; expected the sequences of one step")
    built = _built(builder, tuple((shared | own).items()))
    return dataclasses.replace(built, batch=float(batch)), assumed


@functools.lru_cache(maxsize=4096)
def _built(builder: Callable[..., Workload], keywords: Keywords) -> Workload:
    """One object for each distinct model, which batches rely on."""
    return map_leaves(as_float, builder(name="row", batch=1, **dict(keywords)))


def _by_name(model: str) -> Mapping[str, Any]:
    name = normal_name(model)
    return next((known for part, known in _BY_NAME if part in name), {})


def _shared(columns: Columns, facts: Facts, by_name: Mapping[str, Any]) -> tuple[dict[str, Any], tuple[str, ...]]:
    """What dense and expert models have alike: from the columns, from names where no column holds it, by default."""
    sizes = {name: columns.needed(name) for name in ("layers", "hidden", "heads", "ffn_hidden", "seq")}
    too_large = [name for name, size in sizes.items() if size > _LARGEST]
    if too_large:
        raise RowError(f"`{too_large[0]}` is {sizes[too_large[0]]}; expected at most {_LARGEST}")
    gated, vocabulary, assumed = bool(columns.flag("gated_ffn")), columns.count("vocab"), ()
    model, encoder = columns.text("model"), said(columns.text("model"), kinds.ENCODERS)
    partly = chosen(model, kinds.PARTLY_KNOWN)
    of_pictures = said(model, (*kinds.VISION, *kinds.DIFFUSION))
    if vocabulary is None:
        vocabulary = _CLASSES if of_pictures else _VOCABULARY_LLAMA if gated else _VOCABULARY_GPT
        assumed = (f"vocabulary {vocabulary}",)
    assumed += ("attention without a causal mask: an encoder",) if encoder else ()
    assumed += (str(partly),) if partly else ()
    assumed += ("attention to all tokens: its sparse one is not modelled",) if said(model, kinds.SPARSE) else ()
    encoder = encoder or said(model, kinds.DIFFUSION)
    printed = int(facts.get("head_size", 0)) or columns.count("head_size") or by_name.get("head_size")
    keywords = {
        "layers": sizes["layers"],
        "hidden": sizes["hidden"],
        "heads": sizes["heads"],
        "key_value_heads": min(columns.count("kv_heads") or sizes["heads"], sizes["heads"]),
        "head_size": printed or sizes["hidden"] // sizes["heads"] or 1,
        "vocabulary": vocabulary,
        "sequence": sizes["seq"],
        "tied": not facts.get("untied") and _tied(columns, gated),
        "causal_density": 1.0 if encoder else _density(columns, facts, by_name),
    }
    return keywords, assumed


def check_sizes(columns: Columns) -> None:
    """Models of which columns hold the most need them: no name of theirs fills in what is missing."""
    model, names = columns.text("model"), ("layers", "hidden", "heads")
    known, about = known_dimensions(model), chosen(model, kinds.PARTLY_KNOWN)
    if (
        known
        and said(model, kinds.TWO_STACKS)
        and all(columns.number(name) in (None, float(known[name])) for name in names)
    ):
        return
    missing = [name for name in names if not columns.text(name)]
    if about and missing:
        raise RowError(f"`{missing[0]}` is empty; expected an integer above 0: {model!r} is no decoder alone")


def _two_stacks(columns: Columns, shared: Mapping[str, Any]) -> dict[str, Any]:
    """Encoder and decoder of as many layers as the row says, of each or of both: what comes nearer to the parameters.

    The target is a quarter of the sequence, as in T5 (Raffel et al. 2020, section 3.1.4: 512 and 114 tokens).
    """
    hidden, ffn, gated = columns.needed("hidden"), columns.needed("ffn_hidden"), bool(columns.flag("gated_ffn"))
    inner, size = shared["heads"] * shared["head_size"], columns.number("params_B")
    of_layer = 6.0 * hidden * inner + (3.0 if gated else 2.0) * hidden * ffn  # in the mean of both sides
    each = shared["layers"]
    if size and each > 1 and 1e9 * size < 1.5 * each * of_layer + shared["vocabulary"] * hidden:
        each //= 2
    target = max(1, shared["sequence"] // 4)
    return {"ffn": ffn, "gated": gated, "layers": each, "decoder_sequence": target, "relative_buckets": 32}


def _expert_keywords(columns: Columns, facts: Facts, by_name: Mapping[str, Any]) -> dict[str, Any]:
    experts = columns.needed("experts")
    layers, experts_of_one = columns.needed("layers"), columns.count("topk") or int(facts.get("top_k", 0))
    told = layers // 2 if facts.get("alternate_experts") else int(facts.get("first_dense", 0))
    dense = int(facts.get("dense_layers", 0)) or told or by_name.get("dense_layers", 0)
    return {
        "experts": experts,
        "top_k": min(experts_of_one or (2 if experts <= _FEW_EXPERTS else 8), experts),
        "expert_ffn": columns.needed("ffn_hidden"),
        "ffn": by_name.get("ffn"),
        "dense_layers": min(dense, layers - 1),
        "shared_experts": int(facts.get("shared_experts", by_name.get("shared_experts", 0))),
        "latent": by_name.get("latent"),
        "expert_groups": by_name.get("expert_groups"),
        "expert_bias": bool(by_name.get("biased")),
        "mtp_layers": _modules(facts),
    }


def _modules(facts: Facts) -> int:
    """Modules of multi-token prediction: as many as the words say, or one (as DeepSeek-V3 has)."""
    return int(facts.get("mtp_layers", 0) or facts.get("multi_token", 0))


def _dense_keywords(columns: Columns, facts: Facts, habits: Habits) -> dict[str, Any]:
    """Llama's kind where the feed-forward is gated, else GPT's: layer norms, biases and learned positions."""
    gated = bool(columns.flag("gated_ffn"))
    return {
        "ffn": columns.needed("ffn_hidden"),
        "gated": gated,
        "bias": not gated,
        "layer_norm": not gated,
        "learned_positions": not gated,
        "dropout": not gated and habits.dropout,
        "parallel_block": bool(facts.get("parallel_block")),
        "mtp_layers": _modules(facts),
    }


def _tied(columns: Columns, gated: bool) -> bool:
    """GPTs share embedding and head, and small models of the Llama kind do (Llama 3.2 1B and 3B)."""
    said, size = columns.flag("tied"), columns.number("params_B")
    return said if said is not None else not gated or (size is not None and size < 4)


def _density(columns: Columns, facts: Facts, by_name: Mapping[str, Any]) -> float:
    """Share of the score matrix that the mask leaves."""
    sequence = columns.needed("seq")
    # a window that the notes only name is a quarter of the sequence: an assumption
    printed = int(facts.get("window", 0)) or sequence // 4
    window = by_name.get("window", printed if facts.get("sliding_window") else 0)
    share = by_name.get("window_share", 1.0) if 0 < window < sequence else 0.0
    return causal_density(window, share, sequence)
