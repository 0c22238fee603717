"""Configurations of 2024 and 2025 as they are published, of types that came last, and totals worked out by hand.

Published beside the totals, from memory of the models' cards (2026-11-19): Kimi K2 "1T", its files 1,026,408,232,448
with 60 x 384 correction biases of routers; MiniMax-M2 "230B" (its files hold scales of float8 besides); Gemma 2 27B
27.2 B; GLM-4-32B-0414 "32B"; OLMoE 6.9 B; Seed-OSS "36B"; SmolLM3 3.08 B; Phi-4-mini 3.8 B; Phi-4 14.7 B.
"""

from typing import Any

from tests.support.files.later_configs import LATER, UNTIED, config, sizes

_K2 = {
    **sizes(61, 7168, 18432, 64, 64, 163840), "kv_lora_rank": 512, "q_lora_rank": 1536, "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64, "v_head_dim": 128, "n_routed_experts": 384, "moe_intermediate_size": 2048, "n_group": 1,
    "topk_group": 1, "topk_method": "noaux_tc", "num_experts_per_tok": 8, "num_nextn_predict_layers": 0,
    "routed_scaling_factor": 2.827, "scoring_func": "sigmoid", "norm_topk_prob": True, "seq_aux": True, "ep_size": 1,
    "n_shared_experts": 1, "first_k_dense_replace": 1, "moe_layer_freq": 1, "aux_loss_alpha": 0.001,
}  # fmt: skip
LATEST: dict[str, dict[str, Any]] = {
    "kimi_k2": config("kimi_k2", **_K2, **UNTIED, attention_bias=False, auto_map={}),
    "minimax_m2": config(
        "minimax_m2", **sizes(62, 3072, 1536, 48, 8, 200064), **UNTIED, head_dim=128, num_local_experts=256,
        num_experts_per_tok=8, attn_type_list=[1] * 62, mtp_transformer_layers=1, num_mtp_modules=3, use_mtp=True,
        qk_norm_type="per_layer", use_qk_norm=True, rotary_dim=64, scoring_func="sigmoid", use_routing_bias=True,
        shared_intermediate_size=0, sliding_window=None, output_router_logits=False, router_aux_loss_coef=0.001,
        router_jitter_noise=0.0,
    ),
    "gemma2": config(
        "gemma2", **sizes(46, 4608, 36864, 32, 16, 256000), head_dim=128, attention_bias=False, sliding_window=4096,
        sliding_window_size=4096, attn_logit_softcapping=50.0, final_logit_softcapping=30.0, query_pre_attn_scalar=144,
        cache_implementation="hybrid", hidden_activation="gelu_pytorch_tanh",
    ),
    "glm4": config(
        "glm4", **sizes(61, 6144, 23040, 48, 2, 151552), **UNTIED, head_dim=128, attention_bias=False,
        partial_rotary_factor=0.5,
    ),
    "olmoe": config(
        "olmoe", **sizes(16, 2048, 1024, 16, 16, 50304), **UNTIED, attention_bias=False, clip_qkv=None,
        norm_topk_prob=False, num_experts=64, num_experts_per_tok=8, output_router_logits=False,
        router_aux_loss_coef=0.01, rope_scaling=None,
    ),
    "seed_oss": config(
        "seed_oss", **sizes(64, 5120, 27648, 80, 8, 155136), **UNTIED, head_dim=128, attention_bias=True,
        attention_out_bias=False, mlp_bias=False, residual_dropout=0.1,
    ) | {"attention_dropout": 0.1},
    "smollm3": config(
        "smollm3", **sizes(36, 2048, 11008, 16, 4, 128256), tie_word_embeddings=True, attention_bias=False,
        mlp_bias=False, layer_types=["full_attention"] * 36, max_window_layers=28, no_rope_layer_interval=4,
        no_rope_layers=[1, 1, 1, 0] * 9, pretraining_tp=2, sliding_window=None, use_sliding_window=False,
    ),
}  # fmt: skip
LATEST_PARAMETERS = {
    "kimi_k2": 1_026_408_209_408,  # without the router's correction biases
    "minimax_m2": 228_689_748_992,  # without multi-token prediction and correction biases
    "gemma2": 27_227_128_320,  # 27b
    "glm4": 32_566_081_536,  # 32B
    "olmoe": 6_919_161_856,
    "seed_oss": 36_151_104_512,
    "smollm3": 3_075_098_624,
}
_PHI_4_MINI = {
    **sizes(32, 3072, 8192, 24, 8, 200064), "full_attn_mod": 1, "interpolate_factor": 1, "lm_head_bias": False,
    "mlp_bias": False, "sliding_window": 262144, "partial_rotary_factor": 0.75, "tie_word_embeddings": True,
}  # fmt: skip
_GPT_OSS = {
    "num_hidden_layers": 36, "num_local_experts": 128, "layer_types": ["sliding_attention", "full_attention"] * 18,
}  # fmt: skip
OTHER_SIZES: dict[str, tuple[dict[str, Any], int]] = {
    "phi-4-mini": (LATER["phi3"] | _PHI_4_MINI, 3_836_021_760),
    "phi-4": (LATER["phi3"] | sizes(40, 5120, 17920, 40, 10, 100352) | {"sliding_window": None}, 14_659_507_200),
    "gpt-oss-120b": (LATER["gpt_oss"] | _GPT_OSS, 116_829_156_672),
}  # fmt: skip
"""Other sizes of types above, with keys that those leave out."""
