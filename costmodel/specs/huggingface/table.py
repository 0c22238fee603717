"""The keys of each `model_type` of HuggingFace, and the function that reads them."""

from costmodel.specs import Check, one_of
from costmodel.specs.huggingface.experts import (
    read_deepseek,
    read_glm4_moe,
    read_gpt_oss,
    read_llama4,
    read_mixtral,
    read_qwen3_moe,
)
from costmodel.specs.huggingface.keys import (
    DROPOUT,
    FEED_FORWARD,
    LABELS,
    LAYER_LIST,
    LAYER_TYPES,
    LLAMA,
    NO_DROPOUT,
    OFF,
    ON,
    OPTIONAL_SIZE,
    RATIO,
    ROTARY,
    SIZE,
    SIZE_OR_NULL,
    STAGES,
    SWITCH,
    TENTH,
    TIED,
    Reader,
    absent,
    only,
)
from costmodel.specs.huggingface.readers import (
    read_bert,
    read_gemma3,
    read_gpt2,
    read_llama,
    read_mbart,
    read_nemotron,
    read_neox,
    read_olmo2,
    read_olmo3,
    read_swin,
    read_t5,
)


def _sizes(*names: str) -> dict[str, Check]:
    return dict.fromkeys(names, SIZE)


_LAYERS = _sizes("hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "vocab_size")
_LLAMA_KEYS = {
    **_LAYERS,
    "num_key_value_heads": SIZE_OR_NULL,
    "tie_word_embeddings": SWITCH,
    "attention_dropout": NO_DROPOUT,
    "head_dim": OPTIONAL_SIZE,
}
_WINDOWS = {"use_sliding_window": SWITCH, "sliding_window": SIZE_OR_NULL, "max_window_layers": SIZE}
_BERT_DROPOUT = dict.fromkeys(("hidden_dropout_prob", "attention_probs_dropout_prob"), DROPOUT)
_GPT2_ALIASES = {
    "hidden_size": "n_embd",
    "num_hidden_layers": "n_layer",
    "num_attention_heads": "n_head",
    "max_position_embeddings": "n_positions",
    "n_ctx": "n_positions",
}
_ROUTING = frozenset(
    """
    aux_loss_alpha ep_size n_group norm_topk_prob num_mtp_layers num_nextn_predict_layers output_router_logits
    qk_head_dim rope_interleave routed_scaling_factor router_aux_loss_coef router_jitter_noise scoring_func seq_aux
    topk_method
    """.split()
)
_MBART_FLAGS = {
    **dict.fromkeys(("add_final_layer_norm", "normalize_before", "normalize_embedding"), only(True)),
    **dict.fromkeys(("add_bias_logits", "do_blenderbot_90_layernorm", "static_position_embeddings"), only(False)),
    "extra_pos_embeddings": only(2),
    "is_encoder_decoder": only(True),
}

READERS: dict[str, Reader] = {
    "llama": Reader(read_llama, {**_LLAMA_KEYS, "attention_bias": OFF, "mlp_bias": OFF}, LLAMA),
    "mistral": Reader(read_llama, {**_LLAMA_KEYS, "sliding_window": SIZE_OR_NULL, "layer_types": LAYER_TYPES}, LLAMA),
    "qwen2": Reader(
        lambda values, job: read_llama({**values, "qkv_bias": True}, job),
        {**_LLAMA_KEYS, **_WINDOWS, "layer_types": LAYER_TYPES},
        LLAMA | {"use_mrope"},
    ),
    "qwen3": Reader(
        lambda values, job: read_llama({**values, "qk_norm": True}, job),
        {**_LLAMA_KEYS, **_WINDOWS, "layer_types": LAYER_TYPES, "head_dim": SIZE, "attention_bias": OFF},
        LLAMA,
    ),
    "gemma": Reader(
        read_llama,
        {
            **_LLAMA_KEYS,
            "head_dim": SIZE,
            "tie_word_embeddings": TIED,
            "attention_bias": OFF,
            "use_bidirectional_attention": only(False, None),
        },
        LLAMA,
    ),
    "mixtral": Reader(
        read_mixtral,
        {
            **_LLAMA_KEYS,
            **_sizes("num_local_experts", "num_experts_per_tok"),
            "sliding_window": SIZE_OR_NULL,
            "layer_types": LAYER_TYPES,
        },
        LLAMA | _ROUTING,
        {"num_experts": "num_local_experts"},
    ),
    "qwen3_moe": Reader(
        read_qwen3_moe,
        {
            **_LLAMA_KEYS,
            **_WINDOWS,
            **_sizes("num_experts", "num_experts_per_tok", "moe_intermediate_size", "head_dim"),
            "mlp_only_layers": LAYER_LIST,
            "decoder_sparse_step": only(1),
            "attention_bias": only(False),
            "layer_types": LAYER_TYPES,
        },
        LLAMA | _ROUTING,
        {"num_local_experts": "num_experts"},
    ),
    "deepseek_v3": Reader(
        read_deepseek,
        {
            **_LAYERS,
            **_sizes("n_routed_experts", "n_shared_experts", "num_experts_per_tok", "moe_intermediate_size"),
            **_sizes("q_lora_rank", "kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim"),
            **_sizes("first_k_dense_replace", "topk_group"),
            "tie_word_embeddings": SWITCH,
            "moe_layer_freq": only(1),
            "attention_bias": only(False),
        },
        LLAMA | _ROUTING | {"attention_dropout", "head_dim", "num_key_value_heads"},
        {"num_local_experts": "n_routed_experts"},
    ),
    "gpt2": Reader(
        read_gpt2,
        {
            **_sizes("n_embd", "n_layer", "n_head", "n_positions", "vocab_size"),
            **dict.fromkeys(("resid_pdrop", "attn_pdrop"), TENTH),
            "n_inner": OPTIONAL_SIZE,
            "tie_word_embeddings": TIED,
        },
        frozenset(
            """
            activation_function embd_pdrop layer_norm_epsilon n_special predict_special_tokens
            reorder_and_upcast_attn scale_attn_by_inverse_layer_idx
            scale_attn_weights summary_activation summary_first_dropout summary_proj_to_labels summary_type
            summary_use_proj
            """.split()
        ),
        _GPT2_ALIASES,
    ),
    "gpt_neox": Reader(
        read_neox,
        {
            **_LAYERS,
            **dict.fromkeys(("attention_dropout", "hidden_dropout"), NO_DROPOUT),
            "tie_word_embeddings": SWITCH,
            "attention_bias": ON,
            "use_parallel_residual": ON,
        },
        ROTARY | {"hidden_act", "layer_norm_eps"},
        {"attention_probs_dropout_prob": "attention_dropout", "hidden_dropout_prob": "hidden_dropout"},
    ),
    "bert": Reader(
        read_bert,
        {
            **_LAYERS,
            **_sizes("max_position_embeddings", "type_vocab_size"),
            **_BERT_DROPOUT,
            "tie_word_embeddings": TIED,
            "position_embedding_type": only("absolute"),
        },
        frozenset(
            """
            directionality hidden_act layer_norm_eps pooler_fc_size pooler_num_attention_heads pooler_num_fc_layers
            pooler_size_per_head pooler_type
            """.split()
        ),
    ),
    "mbart": Reader(
        read_mbart,
        {
            **_sizes("d_model", "vocab_size", "max_position_embeddings"),
            **_sizes("encoder_layers", "encoder_attention_heads", "encoder_ffn_dim"),
            **_sizes("decoder_layers", "decoder_attention_heads", "decoder_ffn_dim"),
            **dict.fromkeys(("dropout", "attention_dropout"), DROPOUT),
            **_MBART_FLAGS,
            "tie_word_embeddings": TIED,
        },
        frozenset({"activation_function", "decoder_layerdrop", "encoder_layerdrop", "scale_embedding"}),
        {
            "hidden_size": "d_model",
            "num_hidden_layers": "encoder_layers",
            "num_attention_heads": "encoder_attention_heads",
        },
    ),
    "t5": Reader(
        read_t5,
        {
            **_sizes("d_model", "d_kv", "d_ff", "num_layers", "num_heads", "vocab_size"),
            "num_decoder_layers": OPTIONAL_SIZE,
            "relative_attention_num_buckets": SIZE,
            "feed_forward_proj": FEED_FORWARD,
            "dropout_rate": DROPOUT,
            "tie_word_embeddings": TIED,
            "is_encoder_decoder": only(True),
        },
        frozenset(
            """
            classifier_dropout dense_act_fn is_gated_act layer_norm_epsilon n_positions relative_attention_max_distance
            """.split()
        ),
        {"hidden_size": "d_model", "num_hidden_layers": "num_layers", "num_attention_heads": "num_heads"},
    ),
    "swin": Reader(
        read_swin,
        {
            **_sizes("image_size", "patch_size", "num_channels", "embed_dim", "window_size"),
            **dict.fromkeys(("depths", "num_heads"), STAGES),
            **_BERT_DROPOUT,
            "mlp_ratio": RATIO,
            "qkv_bias": SWITCH,
            "use_absolute_embeddings": SWITCH,
            "id2label": LABELS,
        },
        frozenset(
            """
            drop_path_rate encoder_stride hidden_act hidden_size layer_norm_eps num_hidden_layers num_layers
            out_features out_indices path_norm stage_names
            """.split()
        ),
        {"num_attention_heads": "num_heads"},
    ),
}
"""By `model_type`. A new one is a function that calls a builder, and a row here."""

READERS["mt5"] = READERS["t5"]

_PLAIN = {**_LLAMA_KEYS, "head_dim": SIZE, "attention_bias": OFF}
_LATER = LLAMA | {"rope_local_base_freq", "attn_logit_softcapping", "final_logit_softcapping", "query_pre_attn_scalar"}
READERS |= {
    "phi3": Reader(
        read_llama,
        {**_LLAMA_KEYS, "sliding_window": SIZE_OR_NULL, "attention_bias": OFF, "resid_pdrop": NO_DROPOUT},
        LLAMA | {"embd_pdrop"},
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
    "olmo2": Reader(read_olmo2, {**_LLAMA_KEYS, "attention_bias": OFF}, LLAMA),
    "olmo3": Reader(
        read_olmo3, {**_LLAMA_KEYS, "attention_bias": OFF, "sliding_window": SIZE, "layer_types": LAYER_TYPES}, LLAMA
    ),
    "ministral3": Reader(read_llama, {**_LLAMA_KEYS, "sliding_window": SIZE_OR_NULL, "head_dim": SIZE}, LLAMA),
    "nemotron": Reader(
        read_nemotron,
        {**_LLAMA_KEYS, "attention_bias": OFF, "mlp_bias": OFF, "hidden_act": only("relu2")},
        ROTARY | {"norm_eps", "rms_norm_eps", "rope_percent", "rope_percentage"},
    ),
    "qwen2_5_vl_text": Reader(
        lambda values, job: read_llama({**values, "qkv_bias": True}, job),
        {**_LLAMA_KEYS, **_WINDOWS, "layer_types": LAYER_TYPES},
        LLAMA | {"use_mrope"},
    ),
    "qwen3_vl_text": Reader(lambda values, job: read_llama({**values, "qk_norm": True}, job), _PLAIN, LLAMA),
    "qwen3_vl_moe_text": Reader(
        read_qwen3_moe,
        {
            **_PLAIN,
            **_sizes("num_experts", "num_experts_per_tok", "moe_intermediate_size"),
            "mlp_only_layers": LAYER_LIST,
            "decoder_sparse_step": only(1),
            "attention_bias": only(False),
        },
        LLAMA | _ROUTING,
    ),
    "gpt_oss": Reader(
        read_gpt_oss,
        {
            **_LLAMA_KEYS,
            **_sizes("num_local_experts", "num_experts_per_tok", "head_dim", "sliding_window"),
            "attention_bias": only(True),
            "layer_types": LAYER_TYPES,
        },
        LLAMA | _ROUTING | {"experts_per_token", "initial_context_length", "swiglu_limit"},
        {"num_experts": "num_local_experts"},
    ),
    "glm4_moe": Reader(
        read_glm4_moe,
        {
            **_LLAMA_KEYS,
            **_sizes("n_routed_experts", "n_shared_experts", "num_experts_per_tok", "moe_intermediate_size"),
            **_sizes("first_k_dense_replace", "head_dim"),
            **dict.fromkeys(("attention_bias", "use_qk_norm"), SWITCH),
        },
        LLAMA | _ROUTING | {"topk_group"},
    ),
    "deepseek_v2": Reader(
        read_deepseek,
        {
            **READERS["deepseek_v3"].keys,
            **dict.fromkeys(("q_lora_rank", "topk_group"), SIZE_OR_NULL),
            "topk_method": one_of(("greedy", "group_limited_greedy")),
        },
        READERS["deepseek_v3"].ignored - {"topk_method"},
    ),
    "llama4_text": Reader(
        read_llama4,
        {
            **_PLAIN,
            **_sizes("num_local_experts", "num_experts_per_tok", "intermediate_size_mlp", "interleave_moe_layer_step"),
            "attention_chunk_size": SIZE_OR_NULL,
            "layer_types": LAYER_TYPES,
            "tie_word_embeddings": OFF,
        },
        LLAMA
        | _ROUTING
        | frozenset(
            """
            attn_scale attn_temperature_tuning cache_implementation floor_scale for_llm_compressor moe_layers
            no_rope_layer_interval no_rope_layers use_qk_norm
            """.split()
        ),
    ),
}
