"""The keys of each `model_type` of HuggingFace, and the function that reads them."""

from costmodel.specs.huggingface.experts import (
    read_mixtral,
    read_qwen3_moe,
)
from costmodel.specs.huggingface.keys import (
    DROPOUT,
    FEED_FORWARD,
    LABELS,
    LAYER_LIST,
    LAYER_TYPES,
    LAYERS,
    LLAMA,
    LLAMA_KEYS,
    NO_DROPOUT,
    OFF,
    ON,
    OPTIONAL_SIZE,
    RATIO,
    ROTARY,
    ROUTING,
    SIZE,
    SIZE_OR_NULL,
    STAGES,
    SWITCH,
    TENTH,
    TIED,
    WINDOWS,
    Reader,
    only,
    sizes,
)
from costmodel.specs.huggingface.readers import (
    read_bert,
    read_gpt2,
    read_llama,
    read_mbart,
    read_neox,
    read_swin,
    read_t5,
)
from costmodel.specs.huggingface.table_later import LATER
from costmodel.specs.huggingface.table_older import OLDER_READ
from costmodel.specs.huggingface.table_others import OTHERS_READ

_BERT_DROPOUT = dict.fromkeys(("hidden_dropout_prob", "attention_probs_dropout_prob"), DROPOUT)
_OF_FIRST = {"max_sequence_length"}  # of the first Llama's files
_GPT2_ALIASES = {
    "hidden_size": "n_embd",
    "num_hidden_layers": "n_layer",
    "num_attention_heads": "n_head",
    "max_position_embeddings": "n_positions",
    "n_ctx": "n_positions",
}
_MBART_FLAGS = {
    **dict.fromkeys(("add_final_layer_norm", "normalize_before", "normalize_embedding"), only(True)),
    **dict.fromkeys(("add_bias_logits", "do_blenderbot_90_layernorm", "static_position_embeddings"), only(False)),
    "extra_pos_embeddings": only(2),
    "is_encoder_decoder": only(True),
}

READERS: dict[str, Reader] = {
    "llama": Reader(read_llama, {**LLAMA_KEYS, "attention_bias": OFF, "mlp_bias": OFF}, LLAMA | _OF_FIRST),
    "mistral": Reader(read_llama, {**LLAMA_KEYS, "sliding_window": SIZE_OR_NULL, "layer_types": LAYER_TYPES}, LLAMA),
    "qwen2": Reader(
        lambda values, job: read_llama({**values, "qkv_bias": True}, job),
        {**LLAMA_KEYS, **WINDOWS, "layer_types": LAYER_TYPES},
        LLAMA | {"use_mrope"},
    ),
    "qwen3": Reader(
        lambda values, job: read_llama({**values, "qk_norm": True}, job),
        {**LLAMA_KEYS, **WINDOWS, "layer_types": LAYER_TYPES, "head_dim": SIZE, "attention_bias": OFF},
        LLAMA,
    ),
    "gemma": Reader(
        read_llama,
        {
            **LLAMA_KEYS,
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
            **LLAMA_KEYS,
            **sizes("num_local_experts", "num_experts_per_tok"),
            "sliding_window": SIZE_OR_NULL,
            "layer_types": LAYER_TYPES,
        },
        LLAMA | ROUTING,
        {"num_experts": "num_local_experts"},
    ),
    "qwen3_moe": Reader(
        read_qwen3_moe,
        {
            **LLAMA_KEYS,
            **WINDOWS,
            **sizes("num_experts", "num_experts_per_tok", "moe_intermediate_size", "head_dim"),
            "mlp_only_layers": LAYER_LIST,
            "decoder_sparse_step": only(1),
            "attention_bias": only(False),
            "layer_types": LAYER_TYPES,
        },
        LLAMA | ROUTING,
        {"num_local_experts": "num_experts"},
    ),
    "gpt2": Reader(
        read_gpt2,
        {
            **sizes("n_embd", "n_layer", "n_head", "n_positions", "vocab_size"),
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
            **LAYERS,
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
            **LAYERS,
            **sizes("max_position_embeddings", "type_vocab_size"),
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
            **sizes("d_model", "vocab_size", "max_position_embeddings"),
            **sizes("encoder_layers", "encoder_attention_heads", "encoder_ffn_dim"),
            **sizes("decoder_layers", "decoder_attention_heads", "decoder_ffn_dim"),
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
            **sizes("d_model", "d_kv", "d_ff", "num_layers", "num_heads", "vocab_size"),
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
            **sizes("image_size", "patch_size", "num_channels", "embed_dim", "window_size"),
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

READERS |= {"mt5": READERS["t5"], **LATER, **OTHERS_READ, **OLDER_READ}
