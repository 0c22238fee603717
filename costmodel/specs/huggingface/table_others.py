"""The keys of models of other houses in HuggingFace, and the function that reads them.

Layer norms without a bias are counted as norms with a scale. Multipliers of embeddings, logits and residuals cost
nothing; the gate of Qwen2's shared expert (a product of one column) and Apertus's two numbers of an activation are left
out.
"""

from costmodel.specs import Check, one_of
from costmodel.specs.huggingface.experts import read_dbrx, read_dots1, read_ernie_moe, read_mixtral, read_qwen2_moe
from costmodel.specs.huggingface.keys import (
    LAYER_LIST,
    LAYER_TYPES,
    LLAMA,
    LLAMA_KEYS,
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
    nullable,
    only,
    sizes,
)
from costmodel.specs.huggingface.readers import (
    read_cohere,
    read_exaone4,
    read_falcon,
    read_llama,
    read_mpt,
    read_stablelm,
    read_ungated,
)

_GRANITE = LLAMA | {"embedding_multiplier", "logits_scaling", "residual_multiplier", "attention_multiplier"}
_COHERE = {**LLAMA_KEYS, "attention_bias": OFF, "tie_word_embeddings": TIED}
_MPT_ATTENTION = Check(
    "an object whose `attn_type` is multihead_attention or multiquery_attention, without `qk_ln` and `prefix_lm`",
    lambda value: (
        isinstance(value, dict)
        and value.get("attn_type", "multihead_attention") in ("multihead_attention", "multiquery_attention")
        and not any(value.get(name) for name in ("qk_ln", "prefix_lm"))
    ),
)
_DBRX_ATTENTION = Check(
    "an object with an integer `kv_n_heads`",
    lambda value: isinstance(value, dict) and SIZE.accepts(value.get("kv_n_heads")),
)
_DBRX_EXPERTS = Check(
    "an object with integers `ffn_hidden_size`, `moe_num_experts` and `moe_top_k`",
    lambda value: (
        isinstance(value, dict)
        and all(SIZE.accepts(value.get(name)) for name in ("ffn_hidden_size", "moe_num_experts", "moe_top_k"))
    ),
)
_DBRX_ALIASES = {
    "hidden_size": "d_model",
    "num_hidden_layers": "n_layers",
    "num_attention_heads": "n_heads",
    "max_position_embeddings": "max_seq_len",
}

OTHERS_READ: dict[str, Reader] = {
    "granite": Reader(read_llama, {**LLAMA_KEYS, "attention_bias": OFF, "mlp_bias": OFF}, _GRANITE),
    "granitemoe": Reader(
        read_mixtral,
        {**LLAMA_KEYS, **sizes("num_local_experts", "num_experts_per_tok"), "attention_bias": only(False)},
        _GRANITE | ROUTING,
    ),
    "hunyuan_v1_dense": Reader(
        lambda values, job: read_llama({**values, "qk_norm": True}, job),
        {**LLAMA_KEYS, "attention_bias": OFF, "use_qk_norm": only(True)},
        LLAMA | {"attention_head_dim", "eod_token_id", "mlp_bias", "use_cla", "cla_share_factor"},
    ),
    "ernie4_5": Reader(
        read_llama,
        {**LLAMA_KEYS, "head_dim": absent(SIZE, 128), "use_bias": only(False), "tie_word_embeddings": TIED},
        LLAMA | {"compression_ratio", "fuse_rms_norm"},
    ),
    "ernie4_5_moe": Reader(
        read_ernie_moe,
        {
            **LLAMA_KEYS,
            **sizes("moe_num_experts", "moe_k", "moe_intermediate_size"),
            "moe_num_shared_experts": nullable(Check("0, or an integer >= 1", lambda n: SIZE.accepts(n) or n == 0)),
            "moe_layer_start_index": SIZE,
            "moe_layer_end_index": absent(Check("-1, or the last layer", lambda value: type(value) is int), -1),
            "moe_layer_interval": only(1),
            "use_bias": only(False),
            "tie_word_embeddings": TIED,
        },
        LLAMA | ROUTING | {"moe_capacity", "moe_gate", "moe_norm_min", "moe_use_aux_free", "fuse_rms_norm"},
        {"num_experts": "moe_num_experts", "num_experts_per_tok": "moe_k"},
    ),
    "apertus": Reader(
        lambda values, job: read_ungated({**values, "qk_norm": True}, job),
        {**LLAMA_KEYS, "attention_bias": OFF, "mlp_bias": OFF, "hidden_act": only("xielu"), "qk_norm": only(True)},
        LLAMA | {"post_norm"},
    ),
    "arcee": Reader(
        read_ungated,
        {**LLAMA_KEYS, "attention_bias": OFF, "mlp_bias": OFF, "hidden_act": only("relu2")},
        LLAMA,
    ),
    "exaone4": Reader(
        read_exaone4,
        {
            **LLAMA_KEYS,
            "sliding_window": SIZE_OR_NULL,
            "sliding_window_pattern": absent(nullable(Check("LLLG, or 4", lambda value: value in ("LLLG", 4))), None),
            "layer_types": LAYER_TYPES,
        },
        LLAMA,
    ),
    "cohere": Reader(
        read_cohere, {**_COHERE, "use_qk_norm": OFF}, LLAMA | {"layer_norm_eps", "logit_scale", "use_gated_activation"}
    ),
    "cohere2": Reader(
        read_cohere,
        {
            **_COHERE,
            "sliding_window": SIZE,
            "sliding_window_pattern": absent(SIZE, 4),
            "layer_types": LAYER_TYPES,
            "use_qk_norm": only(False),
        },
        LLAMA
        | frozenset(
            """
            cache_implementation layer_norm_eps layer_switch logit_scale order_of_interleaved_layers
            position_embedding_type rotary_pct use_embedding_sharing use_gated_activation use_parallel_block
            use_parallel_embedding
            """.split()
        ),
        {"_sliding_window_pattern": "sliding_window_pattern"},
    ),
    "stablelm": Reader(
        read_stablelm,
        {
            **LLAMA_KEYS,
            **dict.fromkeys(("use_qkv_bias", "qk_layernorm", "use_parallel_residual"), OFF),
            "hidden_dropout": NO_DROPOUT,
        },
        LLAMA | {"layer_norm_eps"},
    ),
    "falcon": Reader(
        read_falcon,
        {
            **sizes("vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads"),
            "num_kv_heads": OPTIONAL_SIZE,
            "ffn_hidden_size": OPTIONAL_SIZE,
            "num_ln_in_parallel_attn": OPTIONAL_SIZE,
            "new_decoder_architecture": OFF,
            **dict.fromkeys(("multi_query", "parallel_attn"), SWITCH),
            "bias": only(False),
            **dict.fromkeys(("attention_dropout", "hidden_dropout"), NO_DROPOUT),
            "tie_word_embeddings": TIED,
        },
        ROTARY | {"activation", "alibi", "apply_residual_connection_post_layernorm", "layer_norm_epsilon"},
    ),
    "mpt": Reader(
        read_mpt,
        {
            **sizes("d_model", "n_heads", "n_layers", "expansion_ratio", "vocab_size"),
            "attn_config": _MPT_ATTENTION,
            "no_bias": only(True),
            "resid_pdrop": NO_DROPOUT,
            "tie_word_embeddings": TIED,
            "norm_type": absent(one_of(("low_precision_layernorm", "layernorm")), "low_precision_layernorm"),
        },
        frozenset(
            """
            emb_pdrop embedding_fraction init_config init_device layer_norm_epsilon learned_pos_emb logit_scale
            max_seq_len verbose
            """.split()
        ),
        {"hidden_size": "d_model", "num_hidden_layers": "n_layers", "num_attention_heads": "n_heads"},
    ),
    "dbrx": Reader(
        read_dbrx,
        {
            **sizes("d_model", "n_heads", "n_layers", "vocab_size"),
            "attn_config": _DBRX_ATTENTION,
            "ffn_config": _DBRX_EXPERTS,
            "tie_word_embeddings": OFF,
        },
        ROUTING | ROTARY | {"emb_pdrop", "max_seq_len", "resid_pdrop"},
        _DBRX_ALIASES,
    ),
    "dots1": Reader(
        read_dots1,
        {
            **LLAMA_KEYS,
            **sizes("n_routed_experts", "n_shared_experts", "num_experts_per_tok", "moe_intermediate_size"),
            "first_k_dense_replace": SIZE,
            "n_group": only(1),
            "topk_group": only(1),
            "attention_bias": only(False),
            "layer_types": LAYER_TYPES,
            "sliding_window": OPTIONAL_SIZE,
            "max_window_layers": OPTIONAL_SIZE,
        },
        LLAMA | ROUTING | {"moe_layer_freq", "use_sliding_window"},
        {"num_local_experts": "n_routed_experts"},
    ),
    "qwen2_moe": Reader(
        read_qwen2_moe,
        {
            **LLAMA_KEYS,
            **WINDOWS,
            **sizes("num_experts", "num_experts_per_tok", "moe_intermediate_size", "shared_expert_intermediate_size"),
            "mlp_only_layers": absent(LAYER_LIST, ()),
            "decoder_sparse_step": only(1),
            "layer_types": LAYER_TYPES,
            "qkv_bias": ON,
        },
        LLAMA | ROUTING | {"use_mrope"},
        {"num_local_experts": "num_experts"},
    ),
}
