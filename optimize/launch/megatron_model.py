"""A model's dimensions as flags of Megatron-LM, and back (megatron.py has the source).

Megatron adds biases to all linear layers unless told otherwise, and has layer norms, dropout of 0.1 and tied embeddings
by default; its feed-forward is four times as wide as the model, and with SwiGLU two thirds of that.
"""

import re
from collections.abc import Mapping
from typing import Any

from costmodel.models import Latent
from optimize.launch.dimensions import Dimensions

Settings = dict[str, Any]
SIZES = {
    "layers": "num-layers", "hidden": "hidden-size", "heads": "num-attention-heads", "vocabulary": "vocab-size",
}  # fmt: skip
RANKS = {
    "query_rank": "q-lora-rank", "key_value_rank": "kv-lora-rank", "nope_size": "qk-head-dim",
    "rope_size": "qk-pos-emb-head-dim", "value_size": "v-head-dim",
}  # fmt: skip
_SAID = frozenset(
    """
    layers hidden heads vocabulary head_size key_value_heads ffn gated layer_norm qkv_bias out_bias ffn_bias qk_norm
    learned_positions positions dropout tied experts top_k expert_ffn expert_groups shared_experts dense_layers latent
    query_key_norm causal_density
    """.split()
)


def model_flags(model: Dimensions | None, sequence: int) -> Settings | None:
    """Flags of the model; None where Megatron has no flags for it."""
    if model is None or not _tellable(model):
        return None
    settings: Settings = {flag: model[name] for name, flag in SIZES.items()}
    settings |= _attention(model, sequence) | _norms_and_biases(model)
    if "experts" in model:
        return settings | _experts(model)
    return settings | {"ffn-hidden-size": model["ffn"], "swiglu": model.get("gated", False)}


def _tellable(model: Dimensions) -> bool:
    biases = [model.get(name, False) for name in ("out_bias", "ffn_bias")]
    every = all(biases) and model.get("qkv_bias", False)
    windows = model.get("causal_density", 0.5) == 0.5
    return set(model) <= _SAID and windows and (every or not any(biases))


def _attention(model: Dimensions, sequence: int) -> Settings:
    learned = model.get("learned_positions", False)
    settings: Settings = {
        "max-position-embeddings": model.get("positions", sequence),
        "position-embedding-type": "learned_absolute" if learned else "rope",
    }
    if latent := model.get("latent"):
        ranks = {flag: getattr(latent, name) for name, flag in RANKS.items()}
        return settings | {"multi-latent-attention": True, "qk-layernorm": True} | ranks
    settings["kv-channels"] = model["head_size"]
    if model["key_value_heads"] != model["heads"]:
        settings |= {"group-query-attention": True, "num-query-groups": model["key_value_heads"]}
    return settings | {"qk-layernorm": model.get("qk_norm", False) or model.get("query_key_norm", False)}


def _norms_and_biases(model: Dimensions) -> Settings:
    dropout = 0.1 if model.get("dropout") else 0.0
    return {
        "normalization": "LayerNorm" if model.get("layer_norm") else "RMSNorm",
        "disable-bias-linear": not model.get("ffn_bias", False),
        "add-qkv-bias": model.get("qkv_bias", False) and not model.get("ffn_bias", False),
        "untie-embeddings-and-output-weights": not model.get("tied", False),
        "attention-dropout": dropout,
        "hidden-dropout": dropout,
    }


def _experts(model: Dimensions) -> Settings:
    settings: Settings = {
        "ffn-hidden-size": model.get("ffn", model["expert_ffn"]),
        "swiglu": True,
        "num-experts": model["experts"],
        "moe-router-topk": model["top_k"],
        "moe-ffn-hidden-size": model["expert_ffn"],
        "moe-grouped-gemm": True,
    }
    if dense := model.get("dense_layers"):
        settings["moe-layer-freq"] = f"([0]*{dense}+[1]*{model['layers'] - dense})"
    if shared := model.get("shared_experts"):
        settings["moe-shared-expert-intermediate-size"] = shared * model["expert_ffn"]
    return settings


OTHER_MODELS = (
    "hybrid-override-pattern", "hybrid-layer-pattern", "is-hybrid-model", "window-size", "encoder-num-layers",
    "decoder-num-layers", "linear-attention-type", "experimental-attention-variant", "attention-output-gate",
)  # fmt: skip
"""Flags of models that are not read here."""


def model_read(settings: Mapping[str, Any]) -> Dimensions | str:
    """The model that flags describe, as a builder's arguments; or what keeps it from being read."""
    if other := next((flag for flag in OTHER_MODELS if settings.get(flag)), None):
        return f"`{other}` describes a model that is not read from here"
    try:
        model = {name: _count(settings, flag) for name, flag in SIZES.items()}
        latent = settings.get("multi-latent-attention", False)
        looks = _latent_read(settings) if latent else _heads_read(settings, model)
        return model | looks | (_experts_read if settings.get("num-experts") else _dense_read)(settings, model)
    except ValueError as missing:
        return str(missing)


def _count(settings: Mapping[str, Any], flag: str, default: int | None = None) -> int:
    value = settings.get(flag, default)
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ValueError(f"`{flag}` is {'missing' if value is None else repr(value)}")
    return value


def _heads_read(settings: Mapping[str, Any], model: Dimensions) -> Dimensions:
    heads, groups = model["heads"], model["heads"]
    if settings.get("group-query-attention"):
        groups = _count(settings, "num-query-groups", 1)
    size, rest = divmod(model["hidden"], heads)
    size = _count(settings, "kv-channels", size if not rest else None)
    if heads % groups:
        raise ValueError(f"`num-query-groups` is {groups}, no divisor of the heads")
    return {"key_value_heads": groups, "head_size": size}


def _latent_read(settings: Mapping[str, Any]) -> Dimensions:
    if not settings.get("num-experts"):
        raise ValueError("`multi-latent-attention` without experts is not read from here")
    return {"latent": Latent(**{name: _count(settings, flag) for name, flag in RANKS.items()})}


def _flags_read(settings: Mapping[str, Any], model: Dimensions) -> Dimensions:
    """Norms, biases, positions and dropout of dense layers: those that are set."""
    rotary = settings.get("use-rotary-position-embeddings") or settings.get("use-rope-position-embeddings")
    positions = "rope" if rotary else settings.get("position-embedding-type", "learned_absolute")
    biased = not settings.get("disable-bias-linear", False)
    dropouts = [settings.get(f"{which}-dropout", 0.1) for which in ("attention", "hidden")]
    flags = {
        "bias": biased,
        "qkv_bias": not biased and settings.get("add-qkv-bias", False),
        "layer_norm": settings.get("normalization", "LayerNorm") == "LayerNorm",
        "qk_norm": bool(settings.get("qk-layernorm", False)),
        "learned_positions": positions == "learned_absolute",
        "dropout": any(dropouts),
        "tied": not settings.get("untie-embeddings-and-output-weights", False),
    }
    found: Dimensions = {name: True for name, is_set in flags.items() if is_set}
    if flags["learned_positions"]:
        found["positions"] = _count(settings, "max-position-embeddings")
    return found


def _width(settings: Mapping[str, Any], hidden: int) -> int:
    usual = 8 * hidden // 192 * 64 if settings.get("swiglu") else 4 * hidden
    return _count(settings, "ffn-hidden-size", usual)


def _dense_read(settings: Mapping[str, Any], model: Dimensions) -> Dimensions:
    gated = {"gated": True} if settings.get("swiglu") else {}
    return {"ffn": _width(settings, model["hidden"])} | gated | _flags_read(settings, model)


def _experts_read(settings: Mapping[str, Any], model: Dimensions) -> Dimensions:
    """Decoders with experts: RMS norms, gates and rotary positions, without biases and dropout."""
    flags = _flags_read(settings, model)
    tied, norms = flags.pop("tied", False), flags.pop("qk_norm", False)
    if flags or not settings.get("swiglu"):
        raise ValueError(f"a model of experts with {', '.join(flags) or 'no swiglu'} is not read from here")
    width = _width(settings, model["hidden"])
    found: Dimensions = {
        "experts": _count(settings, "num-experts"),
        "top_k": _count(settings, "moe-router-topk", 2),
        "expert_ffn": _count(settings, "moe-ffn-hidden-size", width),
    }
    if dense := _dense_layers(settings.get("moe-layer-freq", 1), model["layers"]):
        found |= {"dense_layers": dense, "ffn": width}
    if shared := settings.get("moe-shared-expert-intermediate-size"):
        found["shared_experts"], rest = divmod(_count({"s": shared}, "s"), found["expert_ffn"])
        if rest:
            raise ValueError("`moe-shared-expert-intermediate-size` is no multiple of an expert's width")
    if settings.get("moe-router-group-topk"):
        found["expert_groups"] = _count(settings, "moe-router-group-topk")
    latent = settings.get("multi-latent-attention")
    return found | ({"tied": True} if tied else {}) | ({"query_key_norm": True} if norms and not latent else {})


def _dense_layers(frequency: Any, layers: int) -> int:
    """Layers without experts, which come first: `1`, or `([0]*3+[1]*58)`."""
    if frequency in (1, "1"):
        return 0
    text = str(frequency).strip("()").replace(" ", "")
    kinds = "".join(kind * int(times[:6] or 1) for kind, times in re.findall(r"\[([01])\](?:\*(\d+))?", text))
    if not re.fullmatch(r"(\[[01]\](\*\d+)?\+?)+", text) or not re.fullmatch("0*1+", kinds) or len(kinds) != layers:
        raise ValueError(f"`moe-layer-freq` is {text[:40]!r}, other than dense layers first")
    return kinds.count("0")
