"""A model's dimensions as overrides of a Megatron-Bridge recipe, and back (megatron_bridge.py has the source).

They are those of Megatron-LM's flags under other names. Norms behind the branches belong to the layers of Gemma's
recipes (src/megatron/bridge/models/gemma/gemma2_provider.py and gemma3_provider.py at 067f987d): a field that they
alone have tells them from others. Positions that are learned are as many as the sequence here. A recipe's activation
is a function, which no override can set.
"""

import re
from collections.abc import Mapping
from typing import Any

from optimize.launch import megatron_model
from optimize.launch.dimensions import Dimensions
from optimize.launch.framework import Job, Settings
from optimize.launch.megatron_model import RANKS

_NAMES = {
    "hidden-size": "hidden_size",
    "ffn-hidden-size": "ffn_hidden_size",
    "num-attention-heads": "num_attention_heads",
    "num-query-groups": "num_query_groups",
    "kv-channels": "kv_channels",
    "vocab-size": "vocab_size",
    "swiglu": "gated_linear_unit",
    "normalization": "normalization",
    "qk-layernorm": "qk_layernorm",
    "add-qkv-bias": "add_qkv_bias",
    "position-embedding-type": "position_embedding_type",
    "attention-dropout": "attention_dropout",
    "hidden-dropout": "hidden_dropout",
    "window-size": "window_size",
    "window-attn-skip-freq": "window_attn_skip_freq",
    "softmax-type": "softmax_type",
    "num-experts": "num_moe_experts",
    "moe-router-topk": "moe_router_topk",
    "moe-grouped-gemm": "moe_grouped_gemm",
    "moe-ffn-hidden-size": "moe_ffn_hidden_size",
    "moe-shared-expert-intermediate-size": "moe_shared_expert_intermediate_size",
    "moe-router-num-groups": "moe_router_num_groups",
    "moe-router-group-topk": "moe_router_group_topk",
    **{rank: rank.replace("-", "_") for rank in RANKS.values()},
}
MODEL = {flag: f"model.{name}" for flag, name in _NAMES.items()}
"""What a model is like, where it is written under another name than in Megatron-LM's flags."""
PATTERN, CAPPED = "model.interleaved_attn_pattern", "model.attn_logit_softcapping"
"""Fields of Gemma 3 and of Gemma 2 alone."""
OTHERS = frozenset(
    {
        "model.add_bias_linear", "model.share_embeddings_and_output_weights", "model.moe_layer_freq", PATTERN, CAPPED,
        "model.final_logit_softcapping",
    }
)  # fmt: skip
_OFF = ("swiglu", "qk-layernorm", "add-qkv-bias")


def model_settings(job: Job, flags: Settings) -> Settings:
    """What the model is like, out of Megatron-LM's `flags`; nothing where neither these nor a recipe have it."""
    own = _gemma(job.model or {})
    if own:
        plain = {name: value for name, value in (job.model or {}).items() if name != "norms_after"}
        flags = flags | (megatron_model.model_flags(plain, job.sequence) or {})
        flags = {flag: value for flag, value in flags.items() if value is not None and value is not False}
    learned = flags.get("position-embedding-type") == "learned_absolute"
    if "hidden-size" not in flags or learned and flags["max-position-embeddings"] != job.sequence:
        return {}
    settings = {name: flags[flag] for flag, name in MODEL.items() if flag in flags}
    settings |= {name: False for flag, name in MODEL.items() if flag in _OFF and flag not in flags}
    settings |= {"model.num_layers": flags["num-layers"], "model.add_bias_linear": "disable-bias-linear" not in flags}
    settings["model.share_embeddings_and_output_weights"] = "untie-embeddings-and-output-weights" not in flags
    if "quick-geglu" in flags:
        settings[MODEL["swiglu"]] = True
    if "kv-lora-rank" in flags:
        settings.setdefault(MODEL["q-lora-rank"], None)
    if window := flags.get("window-size"):
        settings[MODEL["window-size"]] = [int(tokens) for tokens in window.split(",")]
    if frequency := flags.get("moe-layer-freq"):
        dense, others = map(int, re.findall(r"\*(\d+)", frequency))
        settings["model.moe_layer_freq"] = [0] * dense + [1] * others
    return settings | own


def _gemma(model: Dimensions) -> Settings:
    """The fields that only Gemma's recipes have; nothing for other models."""
    window, every = model.get("window"), model.get("full_every")
    if not model.get("norms_after") or not window or not every or model.get("qkv_bias"):
        return {}
    if model.get("qk_norm"):
        return {PATTERN: [every - 1, 1], MODEL["window-size"]: window, MODEL["window-attn-skip-freq"]: None}
    return {CAPPED: 50.0, MODEL["window-attn-skip-freq"]: None} if every == 2 else {}


def model_read(settings: Mapping[str, Any]) -> Dimensions | str:
    """The model, where the overrides say all of it."""
    if "model.hidden_size" not in settings:
        return "a recipe, which is not in the file, describes the model"
    flags = {flag: settings[name] for flag, name in MODEL.items() if settings.get(name) is not None}
    if "kv-lora-rank" in flags:
        flags["multi-latent-attention"] = True
    biased, tied = (
        settings.get(f"model.{name}") for name in ("add_bias_linear", "share_embeddings_and_output_weights")
    )
    flags |= {"disable-bias-linear": biased is False, "untie-embeddings-and-output-weights": tied is False}
    flags |= {
        "num-layers": settings.get("model.num_layers"),
        "max-position-embeddings": settings.get("model.seq_length"),
    }
    frequency = settings.get("model.moe_layer_freq")
    if isinstance(frequency, list):
        flags["moe-layer-freq"] = "+".join(f"[{kind}]" for kind in frequency)
    gemma = _gemma_read(settings, flags)
    model = megatron_model.model_read(flags | {"group-query-attention": "num-query-groups" in flags})
    return model if isinstance(model, str) else model | gemma


def _gemma_read(settings: Mapping[str, Any], flags: Settings) -> Dimensions:
    """Norms behind the branches; the windows become those of Megatron-LM's `flags`."""
    pattern, window = settings.get(PATTERN), flags.get("window-size")
    if isinstance(pattern, list) and pattern[1:] == [1] and type(pattern[0]) is int and type(window) is int:
        flags |= {"window-size": f"{window - 1},0", "window-attn-skip-freq": pattern[0] + 1}
        return {"norms_after": True}
    if settings.get(CAPPED) is not None:
        flags |= {"window-attn-skip-freq": 2}
        return {"norms_after": True}
    return {}
