"""A model's dimensions as values of MaxText's `base.yml`, and back (maxtext.py has the source)."""

from collections.abc import Mapping
from typing import Any

from costmodel.models import Latent
from optimize.launch.dimensions import Dimensions

Settings = dict[str, Any]
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
DENSE = frozenset("layers hidden heads vocabulary head_size key_value_heads ffn gated tied qk_norm".split())
MODEL_NAMES = frozenset(SIZES.values()) | frozenset(RANKS.values()) | frozenset(
    """
    base_num_kv_heads base_mlp_dim base_moe_mlp_dim head_dim decoder_block mlp_activations logits_via_embedding
    num_experts num_experts_per_tok shared_experts first_num_dense_layers attention_type use_qk_norm enable_dropout
    topk_routing_group n_routing_groups normalization_layer_epsilon rope_max_timescale trainable_position_size
    """.split()
)  # fmt: skip


def model_settings(model: Dimensions | None) -> Settings | None:
    """Values of the model; None where MaxText has no block for it."""
    block = None if model is None else _block(model)
    if model is None or block is None:
        return None
    settings: Settings = {name: model[field] for field, name in SIZES.items()}
    settings |= {"decoder_block": block, "logits_via_embedding": model.get("tied", False), "enable_dropout": False}
    settings |= {"mlp_activations": ["silu", "linear"] if model.get("gated", "experts" in model) else ["gelu"]}
    if latent := model.get("latent"):
        settings |= {"attention_type": "mla", "base_num_kv_heads": model["heads"]}
        settings |= {name: getattr(latent, field) for field, name in RANKS.items()}
    else:
        settings |= {"base_num_kv_heads": model["key_value_heads"], "head_dim": model["head_size"]}
        settings |= {"use_qk_norm": model.get("qk_norm", model.get("query_key_norm", False))}
    if "experts" not in model:
        return settings | {"base_mlp_dim": model["ffn"]}
    return settings | _experts(model)


def _block(model: Dimensions) -> str | None:
    """The style of MaxText's decoder layers."""
    if "experts" in model:
        plain = model.get("causal_density", 0.5) == 0.5
        shared = "shared_experts" in model or "dense_layers" in model
        if "latent" in model:
            return "deepseek"
        return None if shared or not plain else "qwen3_moe" if model.get("query_key_norm") else "mixtral"
    if not set(model) <= DENSE:
        return None
    return "qwen3" if model.get("qk_norm") else "llama2"


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
        known = named if named in NAMED else ALSO.get(named)
        return {"name": known} if known else f"`model_name` {named} is not known here"
    if not settings.keys() & {*SIZES.values(), "base_mlp_dim"}:
        return "it names no model"
    values = BASE | dict(settings)
    if values["decoder_block"] not in ("llama2", "mistral", "qwen3", "mixtral", "qwen3_moe", "deepseek"):
        return f"`decoder_block` {values['decoder_block']} is not read from here"
    try:
        return _read(values)
    except ValueError as wrong:
        return str(wrong)


def _read(values: Settings) -> Dimensions:
    model: Dimensions = {field: _count(values, name) for field, name in SIZES.items()}
    if values.get("attention_type") == "mla":
        model["latent"] = Latent(**{field: _count(values, name) for field, name in RANKS.items()})
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
