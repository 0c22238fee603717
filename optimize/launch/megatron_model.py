"""A model's dimensions as flags of Megatron-LM, and back (megatron.py has the source).

Megatron adds biases to all linear layers unless told otherwise, and has layer norms, dropout of 0.1 and tied embeddings
by default; its feed-forward is four times as wide as the model, and with SwiGLU two thirds of that. Layers look at a
window of keys (`--window-size` has those before a token, without itself) but each `--window-attn-skip-freq`-th. gpt-oss
is written as examples/post_training/modelopt/conf/openai/gpt-oss-120b.sh at d98e8a64 has it: a learnable sink for each
head, clamped gates, biases everywhere.

No flags of `pretrain_gpt.py` have norms behind the branches (Gemma 2 and 3, GLM-4) and norms of queries and keys with
scales for all heads (OLMo 2 and 3, OLMoE, MiniMax-M2).
"""

import ast
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
    query_key_norm causal_density window full_every attention_sinks expert_bias
    """.split()
)
_GROUPS = ("moe-router-num-groups", "moe-router-group-topk")
_CLAMPED: Settings = {"quick-geglu": True, "glu-linear-offset": 1.0, "activation-func-clamp-value": 7.0}
"""Gates of gpt-oss."""


def model_flags(model: Dimensions | None, sequence: int, groups: tuple[int, int] | None = None) -> Settings | None:
    """Flags of the model; None where Megatron has no flags for it. `groups` of experts are those of `router_groups`."""
    if model is None or not _tellable(model):
        return None
    settings: Settings = {flag: model[name] for name, flag in SIZES.items()}
    settings |= _attention(model, sequence) | _norms_and_biases(model)
    if "experts" in model:
        return settings | _experts(model) | dict(zip(_GROUPS, groups or (), strict=False))
    return settings | {"ffn-hidden-size": model["ffn"], "swiglu": model.get("gated", False)}


def _tellable(model: Dimensions) -> bool:
    biases = [model.get(name, False) for name in ("out_bias", "expert_bias" if "experts" in model else "ffn_bias")]
    if "experts" in model and any(biases) and ("shared_experts" in model or "dense_layers" in model):
        return False
    every = all(biases) and model.get("qkv_bias", False)
    windows = model.get("causal_density", 0.5) == 0.5
    return set(model) <= _SAID and windows and (every or not any(biases))


def _attention(model: Dimensions, sequence: int) -> Settings:
    learned = model.get("learned_positions", False)
    settings: Settings = {
        "max-position-embeddings": model.get("positions", sequence),
        "position-embedding-type": "learned_absolute" if learned else "rope",
    }
    if window := model.get("window"):
        settings |= {"window-size": f"{window - 1},0", "window-attn-skip-freq": model.get("full_every")}
    if latent := model.get("latent"):
        ranks = {flag: getattr(latent, name) for name, flag in RANKS.items()}
        return settings | {"multi-latent-attention": True, "qk-layernorm": True} | ranks
    if model.get("attention_sinks"):
        settings["softmax-type"] = "learnable"
    settings["kv-channels"] = model["head_size"]
    if model["key_value_heads"] != model["heads"]:
        settings |= {"group-query-attention": True, "num-query-groups": model["key_value_heads"]}
    return settings | {"qk-layernorm": model.get("qk_norm", False) or model.get("query_key_norm", False)}


def _norms_and_biases(model: Dimensions) -> Settings:
    dropout = 0.1 if model.get("dropout") else 0.0
    biased = model.get("ffn_bias", False) or model.get("expert_bias", False)
    return {
        "normalization": "LayerNorm" if model.get("layer_norm") else "RMSNorm",
        "disable-bias-linear": not biased,
        "add-qkv-bias": model.get("qkv_bias", False) and not biased,
        "untie-embeddings-and-output-weights": not model.get("tied", False),
        "attention-dropout": dropout,
        "hidden-dropout": dropout,
    }


def _experts(model: Dimensions) -> Settings:
    settings: Settings = {
        "ffn-hidden-size": model.get("ffn", model["expert_ffn"]),
        **(_CLAMPED if model.get("attention_sinks") else {"swiglu": True}),
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


MOST_LAYERS = 100_000
PADDED = ("padded-vocab-size", "pad-vocab-size-to")
"""Flags of the rows of the embedding, where a tokenizer has the vocabulary."""
OTHER_MODELS = (
    "hybrid-override-pattern", "hybrid-layer-pattern", "is-hybrid-model", "encoder-num-layers", "img-h",
    "decoder-num-layers", "linear-attention-type", "experimental-attention-variant", "attention-output-gate",
    "moe-latent-size",
)  # fmt: skip
"""Flags of models that are not read here."""


def model_read(settings: Mapping[str, Any]) -> Dimensions | str:
    """The model that flags describe, as a builder's arguments; or what keeps it from being read."""
    if other := next((flag for flag in OTHER_MODELS if settings.get(flag)), None):
        return f"`{other}` describes a model that is not read from here"
    try:
        padded = [settings[flag] for flag in PADDED if settings.get(flag) is not None]
        settings = settings if settings.get("vocab-size") or not padded else {**settings, "vocab-size": padded[0]}
        model = {name: _count(settings, flag) for name, flag in SIZES.items()}
        latent = settings.get("multi-latent-attention", False)
        looks = _latent_read(settings) if latent else _heads_read(settings, model)
        looks |= _windows_read(settings, model["layers"])
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
    ranks: Dimensions = {name: _count(settings, flag) for name, flag in RANKS.items() if name != "query_rank"}
    query = settings.get("q-lora-rank")
    return {"latent": Latent(query_rank=None if query is None else _count(settings, "q-lora-rank"), **ranks)}


def _windows_read(settings: Mapping[str, Any], layers: int) -> Dimensions:
    """Windows on all layers but each so-manieth; a list of layers counts where it has that form."""
    size, every = settings.get("window-size"), settings.get("window-attn-skip-freq")
    if size is None:
        return {}
    matched = re.fullmatch(r"[\[(]?\s*(\d{1,9})\s*,\s*0\s*[\])]?", str(size))
    if matched is None:
        raise ValueError(f"`window-size` is {str(size)[:40]!r}, other than the tokens before one and 0")
    before = int(matched[1])
    if every is None:
        return {"window": before + 1}
    kinds = _pattern(str(every), layers)
    step = kinds.find("0") + 1
    if step < 2 or kinds != "".join("01"[layer % step != step - 1] for layer in range(layers)):
        raise ValueError(f"`window-attn-skip-freq` is {str(every)[:40]!r}, other than each so-manieth layer")
    return {"window": before + 1, "full_every": step}


def _pattern(text: str, layers: int) -> str:
    """A zero or a one for each layer: of `3` that every third is 0, or `([1]*2+[0])*4`."""
    if re.fullmatch(r"\d{1,9}", text):
        return "".join("01"[layer % int(text) != int(text) - 1] for layer in range(layers)) if int(text) else ""
    try:
        return _spelled(ast.parse(text.replace(" ", ""), mode="eval").body)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return ""


def _spelled(node: ast.expr) -> str:
    """Lists of zeros and ones, their sums and multiples."""
    if isinstance(node, ast.List):
        kinds = [each.value for each in node.elts if isinstance(each, ast.Constant) and each.value in (0, 1)]
        return "".join(map(str, map(int, kinds))) if len(kinds) == len(node.elts) else ""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return _spelled(node.left) + _spelled(node.right)
    times = node.right.value if isinstance(node, ast.BinOp) and isinstance(node.right, ast.Constant) else None
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult) and isinstance(times, int):
        kinds = _spelled(node.left)
        if len(kinds) * times <= MOST_LAYERS:  # a product of products may be of any length
            return kinds * times
    raise ValueError(ast.dump(node))


def _flags_read(settings: Mapping[str, Any]) -> Dimensions:
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
        "attention_sinks": settings.get("softmax-type", "vanilla") == "learnable",
    }
    if settings.get("softmax-type") == "off-by-one":
        raise ValueError("`softmax-type` is 'off-by-one', which is not read from here")
    found: Dimensions = {name: True for name, is_set in flags.items() if is_set}
    if flags["learned_positions"]:
        found["positions"] = _count(settings, "max-position-embeddings")
    return found


def _width(settings: Mapping[str, Any], hidden: int) -> int:
    usual = 8 * hidden // 192 * 64 if settings.get("swiglu") else 4 * hidden
    return _count(settings, "ffn-hidden-size", usual)


def _dense_read(settings: Mapping[str, Any], model: Dimensions) -> Dimensions:
    gated = {"gated": True} if settings.get("swiglu") or settings.get("quick-geglu") else {}
    flags = _flags_read(settings)
    if "attention_sinks" in flags:
        raise ValueError("`softmax-type` learnable without experts is not read from here")
    return {"ffn": _width(settings, model["hidden"])} | gated | flags


def _experts_read(settings: Mapping[str, Any], model: Dimensions) -> Dimensions:
    """Decoders with experts: RMS norms, gates and rotary positions, without dropout."""
    flags = _flags_read(settings)
    kept = {name: True for name in ("tied", "qkv_bias", "attention_sinks") if flags.pop(name, False)}
    norms, biased = flags.pop("qk_norm", False), flags.pop("bias", False)
    if flags or not (settings.get("swiglu") or settings.get("quick-geglu")):
        raise ValueError(f"a model of experts with {', '.join(flags) or 'no swiglu'} is not read from here")
    if biased:
        kept |= dict.fromkeys(("qkv_bias", "out_bias", "expert_bias"), True)
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
    if biased and found.keys() & {"dense_layers", "shared_experts"}:
        raise ValueError("a model of experts with dense layers or shared experts and biases is not read from here")
    latent = settings.get("multi-latent-attention")
    return found | kept | ({"query_key_norm": True} if norms and not latent else {})


def _dense_layers(frequency: Any, layers: int) -> int:
    """Layers without experts, which come first: `1`, or `([0]*3+[1]*58)`."""
    if frequency in (1, "1"):
        return 0
    kinds = _pattern(str(frequency), layers) if "[" in str(frequency) else ""
    if not re.fullmatch("0*1+", kinds) or len(kinds) != layers:
        raise ValueError(f"`moe-layer-freq` is {str(frequency)[:40]!r}, other than dense layers first")
    return kinds.count("0")
