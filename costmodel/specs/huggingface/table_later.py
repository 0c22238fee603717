"""The keys of later models of HuggingFace, since 2023, and the function that reads them."""

from costmodel.specs import Check, one_of
from costmodel.specs.huggingface.experts import (
    read_deepseek,
    read_glm4_moe,
    read_gpt_oss,
    read_llama4,
    read_minimax_m2,
    read_olmoe,
    read_qwen3_moe,
)
from costmodel.specs.huggingface.keys import (
    LAYER_LIST,
    LAYER_TYPES,
    LAYERS,
    LLAMA,
    LLAMA_KEYS,
    MODULES,
    NO_DROPOUT,
    OFF,
    ON,
    OPTIONAL_SIZE,
    ROTARY,
    ROUTING,
    SIZE,
    SIZE_OR_NULL,
    SWITCH,
    TIED,
    WINDOWS,
    Reader,
    absent,
    only,
    sizes,
)
from costmodel.specs.huggingface.readers import (
    read_gemma2,
    read_gemma3,
    read_glm4,
    read_llama,
    read_nemotron,
    read_olmo2,
    read_olmo3,
    read_seed_oss,
)

_PLAIN = {**LLAMA_KEYS, "head_dim": SIZE, "attention_bias": OFF}
_LATER = LLAMA | {"rope_local_base_freq", "attn_logit_softcapping", "final_logit_softcapping", "query_pre_attn_scalar"}
_DEEPSEEK = Reader(
    read_deepseek,
    {
        **LAYERS,
        **MODULES,
        **sizes("n_routed_experts", "n_shared_experts", "num_experts_per_tok", "moe_intermediate_size"),
        **sizes("q_lora_rank", "kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim"),
        **sizes("first_k_dense_replace", "topk_group", "n_group"),
        "tie_word_embeddings": SWITCH,
        "moe_layer_freq": only(1),
        "attention_bias": only(False),
    },
    LLAMA | ROUTING | {"attention_dropout", "head_dim", "num_key_value_heads"},
    {"num_local_experts": "n_routed_experts"},
)

LATER: dict[str, Reader] = {
    "deepseek_v3": _DEEPSEEK,
    "kimi_k2": _DEEPSEEK,
    "phi3": Reader(
        read_llama,
        {
            **LLAMA_KEYS,
            **dict.fromkeys(("attention_bias", "lm_head_bias", "mlp_bias"), only(False)),
            "sliding_window": SIZE_OR_NULL,
            "resid_pdrop": NO_DROPOUT,
            "full_attn_mod": only(1),
        },
        LLAMA | {"embd_pdrop", "interpolate_factor"},
    ),
    "gemma3_text": Reader(
        read_gemma3,
        {
            **_PLAIN,
            "sliding_window": SIZE,
            "sliding_window_pattern": absent(SIZE, 6),
            "layer_types": LAYER_TYPES,
            "tie_word_embeddings": TIED,
            "use_bidirectional_attention": only(False, None),
        },
        _LATER | {"cache_implementation"},
        {"_sliding_window_pattern": "sliding_window_pattern"},
    ),
    "olmo2": Reader(read_olmo2, {**LLAMA_KEYS, "attention_bias": OFF}, LLAMA),
    "olmo3": Reader(
        read_olmo3, {**LLAMA_KEYS, "attention_bias": OFF, "sliding_window": SIZE, "layer_types": LAYER_TYPES}, LLAMA
    ),
    "ministral3": Reader(read_llama, {**LLAMA_KEYS, "sliding_window": SIZE_OR_NULL, "head_dim": SIZE}, LLAMA),
    "nemotron": Reader(
        read_nemotron,
        {**LLAMA_KEYS, "attention_bias": OFF, "mlp_bias": OFF, "hidden_act": only("relu2")},
        ROTARY | {"norm_eps", "rms_norm_eps", "rope_percent", "rope_percentage"},
    ),
    "qwen2_5_vl_text": Reader(
        lambda values, job: read_llama({**values, "qkv_bias": True}, job),
        {**LLAMA_KEYS, **WINDOWS, "layer_types": LAYER_TYPES},
        LLAMA | {"use_mrope"},
    ),
    "qwen3_vl_text": Reader(lambda values, job: read_llama({**values, "qk_norm": True}, job), _PLAIN, LLAMA),
    "qwen3_vl_moe_text": Reader(
        read_qwen3_moe,
        {
            **_PLAIN,
            **sizes("num_experts", "num_experts_per_tok", "moe_intermediate_size"),
            "mlp_only_layers": LAYER_LIST,
            "decoder_sparse_step": only(1),
            "attention_bias": only(False),
        },
        LLAMA | ROUTING,
    ),
    "gpt_oss": Reader(
        read_gpt_oss,
        {
            **LLAMA_KEYS,
            **sizes("num_local_experts", "num_experts_per_tok", "head_dim", "sliding_window"),
            "attention_bias": only(True),
            "layer_types": LAYER_TYPES,
        },
        LLAMA | ROUTING | {"experts_per_token", "initial_context_length", "swiglu_limit"},
        {"num_experts": "num_local_experts"},
    ),
    "glm4_moe": Reader(
        read_glm4_moe,
        {
            **LLAMA_KEYS,
            **MODULES,
            **sizes("n_routed_experts", "n_shared_experts", "num_experts_per_tok", "moe_intermediate_size"),
            **sizes("first_k_dense_replace", "head_dim"),
            **dict.fromkeys(("attention_bias", "use_qk_norm"), SWITCH),
        },
        LLAMA | ROUTING | {"topk_group"},
    ),
    "deepseek_v2": Reader(
        read_deepseek,
        {
            **_DEEPSEEK.keys,
            **dict.fromkeys(("q_lora_rank", "topk_group", "n_group"), SIZE_OR_NULL),
            "topk_method": one_of(("greedy", "group_limited_greedy")),
        },
        _DEEPSEEK.ignored - {"topk_method"},
    ),
    "llama4_text": Reader(
        read_llama4,
        {
            **_PLAIN,
            **sizes("num_local_experts", "num_experts_per_tok", "intermediate_size_mlp", "interleave_moe_layer_step"),
            "attention_chunk_size": SIZE_OR_NULL,
            "layer_types": LAYER_TYPES,
            "tie_word_embeddings": OFF,
        },
        LLAMA
        | ROUTING
        | frozenset(
            """
            attn_scale attn_temperature_tuning cache_implementation floor_scale for_llm_compressor moe_layers
            no_rope_layer_interval no_rope_layers use_qk_norm
            """.split()
        ),
    ),
    "gemma2": Reader(
        read_gemma2,
        {**_PLAIN, "sliding_window": SIZE, "layer_types": LAYER_TYPES, "tie_word_embeddings": TIED},
        _LATER | {"cache_implementation", "sliding_window_size"},
    ),
    "glm4": Reader(read_glm4, {**_PLAIN, "attention_bias": SWITCH}, LLAMA),
    "smollm3": Reader(
        read_llama,
        {
            **LLAMA_KEYS,
            **dict.fromkeys(("attention_bias", "mlp_bias", "use_sliding_window"), OFF),
            "sliding_window": OPTIONAL_SIZE,
            "layer_types": LAYER_TYPES,
            "tie_word_embeddings": TIED,
        },
        LLAMA | {"max_window_layers", "no_rope_layers", "no_rope_layer_interval"},
    ),
    "seed_oss": Reader(
        read_seed_oss,
        {
            **_PLAIN,
            **dict.fromkeys(("attention_out_bias", "mlp_bias"), only(False)),
            "attention_bias": SWITCH,
            "residual_dropout": NO_DROPOUT,
        },
        LLAMA,
    ),
    "olmoe": Reader(
        read_olmoe,
        {**LLAMA_KEYS, **sizes("num_experts", "num_experts_per_tok"), "attention_bias": only(False)},
        LLAMA | ROUTING | {"clip_qkv"},
        {"num_local_experts": "num_experts"},
    ),
    "minimax_m2": Reader(
        read_minimax_m2,
        {
            **LLAMA_KEYS,
            **MODULES,
            **sizes("num_local_experts", "num_experts_per_tok", "head_dim"),
            "sliding_window": SIZE_OR_NULL,
            "attn_type_list": Check(
                "a list of ones: full attention in every layer",
                lambda value: isinstance(value, list | tuple) and all(kind == 1 for kind in value),
                optional=True,
                default=None,
            ),
            "qk_norm_type": only("per_layer"),
            "shared_intermediate_size": Check("0", lambda value: value == 0, default=0),
            "use_qk_norm": ON,
        },
        LLAMA
        | ROUTING
        | frozenset("mtp_transformer_layers num_mtp_modules rotary_dim use_mtp use_routing_bias".split()),
        {"num_experts": "num_local_experts"},
    ),
}
