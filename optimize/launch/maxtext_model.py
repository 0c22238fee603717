"""A model's dimensions as values of MaxText's `base.yml`, and back (maxtext.py has the source).

A `decoder_block` has norms, biases and windows of its own (src/maxtext/models at e591f30c): gemma2 counts its layers in
pairs, gemma3 has no window on every sixth layer, gpt_oss on every second; norms of queries and keys with scales for all
heads belong to the names olmo3-7b and olmo3-32b alone.
"""

from collections.abc import Mapping
from typing import Any

from costmodel.models import Latent
from optimize.launch.dimensions import Dimensions
from optimize.launch.framework import Job, Settings, router_groups

SIZES = {
    "layers": "base_num_decoder_layers", "hidden": "base_emb_dim", "heads": "base_num_query_heads",
    "vocabulary": "vocab_size",
}  # fmt: skip
RANKS = {
    "query_rank": "q_lora_rank", "key_value_rank": "kv_lora_rank", "nope_size": "qk_nope_head_dim",
    "rope_size": "qk_rope_head_dim", "value_size": "v_head_dim",
}  # fmt: skip
BASE: Settings = {
    "base_num_decoder_layers": 16, "base_emb_dim": 2048, "base_num_query_heads": 16, "base_num_kv_heads": 16,
    "base_mlp_dim": 7168, "head_dim": 128, "vocab_size": 32000, "decoder_block": "llama2",
}  # fmt: skip
"""Values of base.yml, where a file has none."""
NAMED = {
    "llama2-7b", "llama2-13b", "llama2-70b", "llama3-8b", "llama3-70b", "llama3-405b", "mixtral-8x7b", "mixtral-8x22b",
    "qwen3-235b-a22b", "gpt3-175b",
}  # fmt: skip
"""Models that MaxText and this package know under the same name."""
ALSO = {f"llama3.1-{size}": f"llama3-{size}" for size in ("8b", "70b", "405b")} | {
    "llama3.3-70b": "llama3-70b",
    "deepseek3-671b": "deepseek-v3",
}
_SIZES = frozenset("layers hidden heads vocabulary head_size key_value_heads ffn gated tied".split())
_EXPERTS = _SIZES | {"experts", "top_k", "expert_ffn", "causal_density"}
_WINDOWS = frozenset({"window", "full_every"})
_BIASES = frozenset({"qkv_bias", "out_bias", "expert_bias", "attention_sinks"})
BLOCKS: dict[str, tuple[frozenset[str], Dimensions]] = {
    "llama2": (_SIZES, {}),
    "qwen2": (_SIZES | {"qkv_bias"}, {"qkv_bias": True}),
    "qwen3": (_SIZES | {"qk_norm"}, {"qk_norm": True}),
    "gemma2": (_SIZES | _WINDOWS | {"norms_after"}, {"norms_after": True, "full_every": 2}),
    "gemma3": (
        _SIZES | _WINDOWS | {"norms_after", "qk_norm"}, {"norms_after": True, "qk_norm": True, "full_every": 6},
    ),
    "mixtral": (_EXPERTS, {}),
    "qwen3_moe": (_EXPERTS | {"query_key_norm"}, {"query_key_norm": True}),
    "gpt_oss": (_EXPERTS | _WINDOWS | _BIASES, {"full_every": 2, **dict.fromkeys(_BIASES, True)}),
    "deepseek": (_EXPERTS | {"latent", "dense_layers", "shared_experts", "expert_groups"}, {}),
}  # fmt: skip
"""The dimensions that a block may have, and those that it has always."""
_GATES = {"gpt_oss": ["sigmoid", "linear"], "gemma2": ["gelu", "linear"], "gemma3": ["gelu", "linear"]}
_STYLE: dict[str, Settings] = {
    "gemma2": {"use_post_attn_norm": True, "use_post_ffw_norm": True},
    "gemma3": {"use_post_attn_norm": True, "use_post_ffw_norm": True},
    "qwen2": {"attention_bias": True},
    "gpt_oss": {
        "attention_bias": True, "attention_sink": True, "mlp_bias": True, "routed_bias": True,
        "mlp_activations_limit": 7.0, "inhomogeneous_layer_cycle_interval": 2,
    },
}  # fmt: skip
"""What is written beside a block."""
_GROUPS = ("n_routing_groups", "topk_routing_group")
_OLMO3: Dimensions = {
    "vocabulary": 100278, "head_size": 128, "gated": True, "qk_norm": True, "qk_norm_whole": True, "window": 4096,
    "full_every": 4,
}  # fmt: skip
OLMO3: dict[str, Dimensions] = {
    "olmo3-7b": {"layers": 32, "hidden": 4096, "heads": 32, "key_value_heads": 32, "ffn": 11008, **_OLMO3},
    "olmo3-32b": {"layers": 64, "hidden": 5120, "heads": 40, "key_value_heads": 8, "ffn": 27648, **_OLMO3},
}
"""Models that can be named only."""
MODEL_NAMES = frozenset(SIZES.values()) | frozenset(RANKS.values()) | frozenset(
    """
    base_num_kv_heads base_mlp_dim base_moe_mlp_dim head_dim decoder_block mlp_activations logits_via_embedding
    num_experts num_experts_per_tok shared_experts first_num_dense_layers attention_type use_qk_norm enable_dropout
    topk_routing_group n_routing_groups normalization_layer_epsilon rope_max_timescale trainable_position_size
    sliding_window_size attention_bias attention_sink mlp_bias routed_bias mlp_activations_limit use_post_attn_norm
    use_post_ffw_norm inhomogeneous_layer_cycle_interval
    """.split()
)  # fmt: skip


def model_settings(job: Job) -> Settings | None:
    """Values of the model; None where MaxText has no block for it."""
    model = job.model
    if model is None:
        return None
    if named := next((name for name, known in OLMO3.items() if model == known), None):
        return {"model_name": named}
    block = next((block for block in BLOCKS if _fits(model, block)), None)
    if block is None or block == "gemma2" and model["layers"] % 2:
        return None
    settings: Settings = {name: model[field] for field, name in SIZES.items()}
    if block == "gemma2":
        settings[SIZES["layers"]] //= 2
    settings |= {"decoder_block": block, "logits_via_embedding": model.get("tied", False), "enable_dropout": False}
    gated = _GATES.get(block, ["silu", "linear"])
    settings |= {"mlp_activations": gated if model.get("gated", "experts" in model) else ["gelu"]}
    settings |= _STYLE.get(block, {}) | ({"sliding_window_size": model["window"]} if "window" in model else {})
    if latent := model.get("latent"):
        settings |= {"attention_type": "mla", "base_num_kv_heads": model["heads"]}
        settings |= {name: getattr(latent, field) or 0 for field, name in RANKS.items()}
    else:
        settings |= {"base_num_kv_heads": model["key_value_heads"], "head_dim": model["head_size"]}
        settings |= {"use_qk_norm": model.get("qk_norm", model.get("query_key_norm", False))}
    if "experts" not in model:
        return settings | {"base_mlp_dim": model["ffn"]}
    return settings | _experts(model) | dict(zip(_GROUPS, router_groups(job) or (), strict=False))


def _fits(model: Dimensions, block: str) -> bool:
    """Whether decoder layers of this style make the model."""
    allowed, always = BLOCKS[block]
    plain = model.get("causal_density", 0.5) == 0.5 and ("experts" in model) == ("experts" in allowed)
    latent = ("latent" in model) == (block == "deepseek")
    return plain and latent and set(model) <= allowed and always.items() <= model.items()


def _experts(model: Dimensions) -> Settings:
    settings: Settings = {
        "base_mlp_dim": model.get("ffn", model["expert_ffn"]),
        "base_moe_mlp_dim": model["expert_ffn"],
        "num_experts": model["experts"],
        "num_experts_per_tok": model["top_k"],
    }
    names = {"dense_layers": "first_num_dense_layers", "shared_experts": "shared_experts"}
    return settings | {name: model[field] for field, name in names.items() if field in model}


def model_read(settings: Mapping[str, Any]) -> Dimensions | str:
    """The model that values describe, as a builder's arguments or a known name; or what keeps it from being read."""
    named = settings.get("model_name", "default")
    if named != "default":
        if named in OLMO3:
            return dict(OLMO3[named])
        known = named if named in NAMED else ALSO.get(named)
        return {"name": known} if known else f"`model_name` {named} is not known here"
    if not settings.keys() & {*SIZES.values(), "base_mlp_dim"}:
        return "it names no model"
    values = BASE | dict(settings)
    if values["decoder_block"] not in (*BLOCKS, "mistral"):
        return f"`decoder_block` {values['decoder_block']} is not read from here"
    try:
        return _read(values)
    except ValueError as wrong:
        return str(wrong)


def _read(values: Settings) -> Dimensions:
    model: Dimensions = {field: _count(values, name) for field, name in SIZES.items()}
    model |= _style_read(values)
    if values["decoder_block"] == "gemma2":
        model["layers"] *= 2
    if values.get("attention_type") == "mla":
        ranks = {field: _count(values, name) for field, name in RANKS.items() if field != "query_rank"}
        query = values.get(RANKS["query_rank"]) or None
        model["latent"] = Latent(query_rank=query and _count(values, RANKS["query_rank"]), **ranks)
    else:
        model |= {"key_value_heads": _count(values, "base_num_kv_heads"), "head_size": _count(values, "head_dim")}
    if values.get("logits_via_embedding"):
        model["tied"] = True
    ffn = _count(values, "base_mlp_dim")
    if values.get("num_experts", 1) == 1:
        if "latent" in model:
            raise ValueError("`attention_type` mla without experts is not read from here")
        gated = {"gated": True} if len(values.get("mlp_activations", ("silu", "linear"))) == 2 else {}
        return model | gated | {"ffn": ffn} | ({"qk_norm": True} if values.get("use_qk_norm") else {})
    return model | _experts_read(values, ffn)


def _style_read(values: Settings) -> Dimensions:
    """Norms, biases and windows of a block, as far as the sizes beside it do not say them."""
    block = values["decoder_block"]
    said = {name: set_to for name, set_to in _STYLE.get(block, {}).items() if name.startswith(("use_", "attention_"))}
    if wrong := next((name for name, set_to in said.items() if values.get(name, False) != set_to), None):
        raise ValueError(f"`{wrong}` is {values.get(wrong, False)} in a `decoder_block` {block}")
    if block != "qwen2" and values.get("attention_bias") and block != "gpt_oss":
        raise ValueError(f"`attention_bias` in a `decoder_block` {block} is not read from here")
    always = {name: value for name, value in BLOCKS.get(block, BLOCKS["llama2"])[1].items() if "norm" not in name}
    windows = {"window": _count(values, "sliding_window_size")} if "full_every" in always else {}
    return always | windows | ({"norms_after": True} if block.startswith("gemma") else {})


def _experts_read(values: Settings, ffn: int) -> Dimensions:
    own = values.get("base_moe_mlp_dim", -1)
    found: Dimensions = {
        "experts": _count(values, "num_experts"),
        "top_k": _count({"num_experts_per_tok": 1} | values, "num_experts_per_tok"),
        "expert_ffn": ffn if own == -1 else _count(values, "base_moe_mlp_dim"),
    }
    if values.get("first_num_dense_layers"):
        found |= {"dense_layers": _count(values, "first_num_dense_layers"), "ffn": ffn}
    if values.get("shared_experts"):
        found["shared_experts"] = _count(values, "shared_experts")
    if values.get("topk_routing_group", -1) != -1:
        found["expert_groups"] = _count(values, "topk_routing_group")
    return found | ({"query_key_norm": True} if values.get("use_qk_norm") else {})


def _count(values: Mapping[str, Any], name: str) -> int:
    value = values.get(name)
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ValueError(f"`{name}` is {'missing' if value is None else repr(value)}")
    return value
