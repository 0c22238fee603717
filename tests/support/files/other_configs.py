"""Configurations of other houses as they are published, and totals worked out by hand from their dimensions.

The totals are ours. Published beside them, from memory of the models' cards and papers (2026-11-19): Granite 3.0 8B
"8.1B", 3B-A800M "3.3B"; Hunyuan 7B "7B"; ERNIE 4.5 0.3B "0.36B", 21B-A3B "21B"; Apertus 8B "8B"; AFM-4.5B "4.6B";
EXAONE 4.0 32B "30.95B" without embeddings; Command R "35B", Command R7B "8.0B"; StableLM
3B-4E1T 2,795,443,200, printed on its card; Falcon 7B 6.9 B; MPT 7B "6.7B"; DBRX "132B"; dots.llm1 "142B";
Qwen1.5-MoE-A2.7B "14.3B".
"""

from typing import Any

from tests.support.files.later_configs import UNTIED, config, sizes

_NO_BIAS = {"attention_bias": False}
_GRANITE = {
    "embedding_multiplier": 12.0, "logits_scaling": 16.0, "residual_multiplier": 0.22, "attention_multiplier": 0.01,
}  # fmt: skip
_MOE = {"output_router_logits": False, "router_aux_loss_coef": 0.001}
OTHER: dict[str, dict[str, Any]] = {
    "granite": config(
        "granite", **sizes(40, 4096, 12800, 32, 8, 49155), **_GRANITE, **_NO_BIAS, mlp_bias=False,
        tie_word_embeddings=True, rope_scaling=None,
    ),
    "granitemoe": config(
        "granitemoe", **sizes(32, 1536, 512, 24, 8, 49155), **_GRANITE, **_NO_BIAS, **_MOE, tie_word_embeddings=True,
        num_local_experts=40, num_experts_per_tok=8,
    ),
    "hunyuan_v1_dense": config(
        "hunyuan_v1_dense", **sizes(32, 4096, 14336, 32, 8, 128167), **_NO_BIAS, tie_word_embeddings=True, head_dim=128,
        use_qk_norm=True, attention_head_dim=128,
    ),
    "ernie4_5": config(
        "ernie4_5", **sizes(18, 1024, 3072, 16, 2, 103424), tie_word_embeddings=True, use_bias=False, head_dim=128,
    ),
    "ernie4_5_moe": config(
        "ernie4_5_moe", **sizes(28, 2560, 12288, 20, 4, 103424), tie_word_embeddings=True, use_bias=False,
        moe_num_experts=64, moe_k=6, moe_intermediate_size=1536, moe_num_shared_experts=2, moe_layer_start_index=1,
        moe_layer_end_index=-1, moe_layer_interval=1, moe_capacity=[64, 64, 64],
    ),
    "apertus": config(
        "apertus", **sizes(32, 4096, 21504, 32, 8, 131072), **UNTIED, **_NO_BIAS, mlp_bias=False, qk_norm=True,
        post_norm=False,
    ) | {"hidden_act": "xielu"},
    "arcee": config(
        "arcee", **sizes(36, 2560, 18432, 20, 4, 128004), **UNTIED, **_NO_BIAS, mlp_bias=False, head_dim=128,
    ) | {"hidden_act": "relu2"},
    "exaone4": config(
        "exaone4", **sizes(64, 5120, 27392, 40, 8, 102400), **UNTIED, head_dim=128, sliding_window=4096,
        sliding_window_pattern="LLLG", layer_types=(["sliding_attention"] * 3 + ["full_attention"]) * 16,
    ),
    "cohere": config(
        "cohere", **sizes(40, 8192, 22528, 64, 64, 256000), **_NO_BIAS, use_qk_norm=False, logit_scale=0.0625,
        layer_norm_eps=1e-5, tie_word_embeddings=True,
    ),
    "cohere2": config(
        "cohere2", **sizes(32, 4096, 14336, 32, 8, 256000), **_NO_BIAS, head_dim=128, logit_scale=0.25,
        layer_norm_eps=1e-5, sliding_window=4096, sliding_window_pattern=4, tie_word_embeddings=True,
        order_of_interleaved_layers="local_attn_first", use_parallel_block=True,
    ),
    "stablelm": config(
        "stablelm", **sizes(32, 2560, 6912, 32, 32, 50304), **UNTIED, use_qkv_bias=False, layer_norm_eps=1e-5,
        qk_layernorm=False, use_parallel_residual=False, partial_rotary_factor=0.25, hidden_dropout=0.0,
    ),
    "falcon": {
        "model_type": "falcon", "alibi": False, "attention_dropout": 0.0, "bias": False, "bos_token_id": 11,
        "hidden_dropout": 0.0, "hidden_size": 4544, "initializer_range": 0.02, "layer_norm_epsilon": 1e-5,
        "multi_query": True, "new_decoder_architecture": False, "num_attention_heads": 71, "num_hidden_layers": 32,
        "parallel_attn": True, "vocab_size": 65024, "apply_residual_connection_post_layernorm": False,
    },
    "mpt": {
        "model_type": "mpt", "d_model": 4096, "n_heads": 32, "n_layers": 32, "expansion_ratio": 4, "vocab_size": 50432,
        "max_seq_len": 2048, "no_bias": True, "learned_pos_emb": True, "resid_pdrop": 0, "emb_pdrop": 0,
        "norm_type": "low_precision_layernorm", "init_device": "cpu", "logit_scale": None, "verbose": 0,
        "attn_config": {"attn_type": "multihead_attention", "alibi": True, "qk_ln": False, "prefix_lm": False},
    },
    "dbrx": {
        "model_type": "dbrx", "d_model": 6144, "n_heads": 48, "n_layers": 40, "vocab_size": 100352,
        "max_seq_len": 32768, "emb_pdrop": 0.0, "resid_pdrop": 0.0, "output_router_logits": False,
        "router_aux_loss_coef": 0.05, "tie_word_embeddings": False,
        "attn_config": {"clip_qkv": 8, "kv_n_heads": 8, "model_type": "", "rope_theta": 500000},
        "ffn_config": {"ffn_hidden_size": 10752, "moe_num_experts": 16, "moe_top_k": 4, "moe_loss_weight": 0.05},
    },
    "dots1": config(
        "dots1", **sizes(62, 4096, 10944, 32, 32, 152064), **UNTIED, **_NO_BIAS, n_routed_experts=128,
        n_shared_experts=2, num_experts_per_tok=6, moe_intermediate_size=1408, first_k_dense_replace=1, n_group=1,
        topk_group=1, norm_topk_prob=True, routed_scaling_factor=2.5, scoring_func="noaux_tc", moe_layer_freq=1,
    ),
    "qwen2_moe": config(
        "qwen2_moe", **sizes(24, 2048, 5632, 16, 16, 151936), **UNTIED, **_MOE, num_experts=60, num_experts_per_tok=4,
        moe_intermediate_size=1408, shared_expert_intermediate_size=5632, decoder_sparse_step=1, mlp_only_layers=[],
        norm_topk_prob=False, use_sliding_window=False, sliding_window=32768, max_window_layers=21,
    ),
}  # fmt: skip
OTHER_PARAMETERS = {
    "granite": 8_170_848_256,
    "granitemoe": 3_298_793_472,
    "hunyuan_v1_dense": 7_504_568_320,
    "ernie4_5": 360_748_032,
    "ernie4_5_moe": 21_825_436_160,  # without the router's correction biases
    "apertus": 8_053_338_112,  # without two numbers of each activation
    "arcee": 4_619_184_640,
    "exaone4": 32_003_216_384,
    "cohere": 34_980_831_232,
    "cohere2": 8_028_033_024,
    "stablelm": 2_795_443_200,  # as printed
    "falcon": 6_921_720_704,
    "mpt": 6_649_286_656,
    "dbrx": 131_596_523_520,
    "dots1": 142_774_373_888,
    "qwen2_moe": 14_315_735_040,  # without the gate of the shared expert
}


def printed(configs: dict[str, dict[str, Any]]) -> dict[str, tuple[dict[str, Any], str]]:
    """Other sizes of a type, and the billions of parameters that were published, as they were printed."""
    return {name: ({**configs[kind], **changes}, billions) for name, (kind, changes, billions) in _PRINTED.items()}


_LAYERS_AS_ALWAYS = {"layer_types": None, "sliding_window": 1024}
_PRINTED: dict[str, tuple[str, dict[str, Any], str]] = {
    "glm-4.5, without prediction of more tokens": (
        "glm4_moe", sizes(92, 5120, 12288, 96, 8, 151552)
        | {"moe_intermediate_size": 1536, "n_routed_experts": 160, "first_k_dense_replace": 3, "use_qk_norm": True},
        "352.8",
    ),
    "deepseek-v2": (
        "deepseek_v2", sizes(60, 5120, 12288, 128, 128, 102400)
        | {"q_lora_rank": 1536, "n_routed_experts": 160, "moe_intermediate_size": 1536, "topk_group": 3, "n_group": 8}
        | {"topk_method": "group_limited_greedy"},
        "235.7",
    ),
    "mistral large 2": ("mistral", sizes(88, 12288, 28672, 96, 8, 32768) | {"sliding_window": None}, "122.6"),
    "mixtral-8x22b": ("mixtral", sizes(56, 6144, 16384, 48, 8, 32768), "140.6"),
    "gemma 3 27b, its text": (
        "gemma3_text", sizes(62, 5376, 21504, 32, 16, 262208) | _LAYERS_AS_ALWAYS | {"head_dim": 128}, "27.0",
    ),
    "gemma 2 9b": ("gemma2", sizes(42, 3584, 14336, 16, 8, 256000) | {"head_dim": 256}, "9.24"),
    "olmo 2 32b": ("olmo2", sizes(64, 5120, 27648, 40, 8, 100352), "32.2"),
    "qwen3-30b-a3b": ("qwen3_moe", sizes(48, 2048, 6144, 32, 4, 151936) | {"moe_intermediate_size": 768}, "30.5"),
    "qwen2-57b-a14b": (
        "qwen2_moe", sizes(28, 3584, 18944, 28, 4, 151936)
        | {"num_experts": 64, "num_experts_per_tok": 8, "moe_intermediate_size": 2560}
        | {"shared_expert_intermediate_size": 20480},
        "57.4",
    ),
    "command r+": ("cohere", sizes(64, 12288, 33792, 96, 8, 256000) | {"use_qk_norm": True}, "103.8"),
    "command a": ("cohere2", sizes(64, 12288, 36864, 96, 8, 256000), "111"),
    "apertus-70b": ("apertus", sizes(80, 8192, 43008, 64, 8, 131072), "70.6"),
    "granite 3.1 2b": ("granite", sizes(40, 2048, 8192, 32, 8, 49155), "2.53"),
    "mpt-30b": ("mpt", {"d_model": 7168, "n_heads": 64, "n_layers": 48}, "30.0"),
    "falcon-11b": (
        "falcon", {"hidden_size": 4096, "num_hidden_layers": 60, "num_attention_heads": 32, "num_kv_heads": 8}
        | {"new_decoder_architecture": True, "num_ln_in_parallel_attn": 1, "ffn_hidden_size": 16384} | UNTIED,
        "11.1",
    ),
    "llama 3.1 405b": ("llama", sizes(126, 16384, 53248, 128, 8, 128256), "405.9"),
}  # fmt: skip
