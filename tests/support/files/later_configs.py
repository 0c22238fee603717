"""Later configurations of HuggingFace as they are published, and totals worked out by hand from their dimensions.

The totals below are ours. Beside them stands what was published, read on 2026-11-19 in stored public text: gpt-oss
card (arXiv 2508.10925) 20.9 B; Phi-3 report (arXiv 2404.14219, abstract) 3.8 B; DeepSeek-V2-Lite card 15.7 B, 27
layers, 2,048 wide, heads of 16, 2 shared and 64 routed experts of 1,408; Qwen2.5-7B card 7.61 B, 6.53 B without
embeddings; Qwen3-8B card 8.2 B, 6.95 B without; Qwen3-30B-A3B card 30.5 B; Llama 4 Scout card 109 B with the part of
images; GLM-4.5 card, Air: 106 B; Mistral-Small-3.1 card 24 B with the part of images (Small 3, the same text part:
23.6 B by its files); Ministral 3 3B (NVIDIA's Megatron-Bridge pages) 3.4 B of text, 26 layers, 3,072 wide;
Minitron-4B card "4B", 3,072 wide, ffn of 9,216; OLMo 2 7B card "7B", 32 layers, 4,096 wide, 32 heads. Of Gemma 3 only
1B, and 4.3 B with the part of images (4B), were found, of OLMo 3 nothing: their totals are worked out by hand alone.
"""

from typing import Any

_USUAL: dict[str, Any] = {
    "attention_dropout": 0.0, "bos_token_id": 1, "eos_token_id": 2, "hidden_act": "silu", "initializer_range": 0.02,
    "max_position_embeddings": 131072, "rms_norm_eps": 1e-06, "rope_theta": 10000.0, "torch_dtype": "bfloat16",
    "transformers_version": "4.57.0", "use_cache": True,
}  # fmt: skip


def config(kind: str, **keys: Any) -> dict[str, Any]:
    """What all have, and what one has besides."""
    return {"model_type": kind, **_USUAL, **keys}


def sizes(layers: int, hidden: int, ffn: int, heads: int, key_value_heads: int, vocabulary: int) -> dict[str, int]:
    return {
        "num_hidden_layers": layers, "hidden_size": hidden, "intermediate_size": ffn, "num_attention_heads": heads,
        "num_key_value_heads": key_value_heads, "vocab_size": vocabulary,
    }  # fmt: skip


UNTIED = {"tie_word_embeddings": False}
_SCOUT = {
    **sizes(48, 5120, 8192, 40, 8, 202048), **UNTIED, "head_dim": 128, "attention_bias": False,
    "attention_chunk_size": 8192, "interleave_moe_layer_step": 1, "intermediate_size_mlp": 16384,
    "num_experts_per_tok": 1, "num_local_experts": 16, "router_aux_loss_coef": 0.001, "router_jitter_noise": 0.0,
    "use_qk_norm": True, "no_rope_layers": [], "attn_temperature_tuning": True, "floor_scale": 8192,
}  # fmt: skip
_QWEN3_VL = {**sizes(36, 4096, 12288, 32, 8, 151936), "head_dim": 128, "attention_bias": False}
_QWEN3_VL_MOE = {
    **sizes(48, 2048, 6144, 32, 4, 151936), "head_dim": 128, "attention_bias": False, "decoder_sparse_step": 1,
    "mlp_only_layers": [], "moe_intermediate_size": 768, "norm_topk_prob": True, "num_experts": 128,
    "num_experts_per_tok": 8,
}  # fmt: skip
_SMALL_3 = {**sizes(40, 5120, 32768, 32, 8, 131072), "head_dim": 128, "sliding_window": None}

LATER: dict[str, dict[str, Any]] = {
    "gpt_oss": config(
        "gpt_oss", **sizes(24, 2880, 2880, 64, 8, 201088), **UNTIED, head_dim=64, attention_bias=True,
        layer_types=["sliding_attention", "full_attention"] * 12, sliding_window=128, num_local_experts=32,
        num_experts_per_tok=4, experts_per_token=4, swiglu_limit=7.0, initial_context_length=4096,
        output_router_logits=False, router_aux_loss_coef=0.9, quantization_config={"quant_method": "mxfp4"},
    ),
    "gemma3_text": config(
        "gemma3_text", **sizes(26, 1152, 6912, 4, 1, 262144), head_dim=256, attention_bias=False,
        hidden_activation="gelu_pytorch_tanh", query_pre_attn_scalar=256, rope_local_base_freq=10000,
        sliding_window=512, sliding_window_pattern=6, attn_logit_softcapping=None, final_logit_softcapping=None,
    ),
    "gemma3": {
        "architectures": ["Gemma3ForConditionalGeneration"], "model_type": "gemma3", "mm_tokens_per_image": 256,
        "boi_token_index": 255999, "image_token_index": 262144, "vision_config": {"hidden_size": 1152},
        "text_config": {
            "hidden_size": 2560, "intermediate_size": 10240, "model_type": "gemma3_text", "num_hidden_layers": 34,
            "sliding_window": 1024, "rope_scaling": {"factor": 8.0, "rope_type": "linear"},
        },
    },
    "phi3": config(
        "phi3", **sizes(32, 3072, 8192, 32, 32, 32064), **UNTIED, attention_bias=False, embd_pdrop=0.0,
        resid_pdrop=0.0, sliding_window=2047, original_max_position_embeddings=4096,
    ),
    "deepseek_v2": config(
        "deepseek_v2", **sizes(27, 2048, 10944, 16, 16, 102400), **UNTIED, attention_bias=False,
        aux_loss_alpha=0.001, first_k_dense_replace=1, kv_lora_rank=512, moe_intermediate_size=1408, moe_layer_freq=1,
        n_group=1, n_routed_experts=64, n_shared_experts=2, norm_topk_prob=False, num_experts_per_tok=6,
        q_lora_rank=None, qk_nope_head_dim=128, qk_rope_head_dim=64, routed_scaling_factor=1.0,
        scoring_func="softmax", seq_aux=True, topk_group=1, topk_method="greedy", v_head_dim=128,
    ),
    "olmo2": config("olmo2", **sizes(32, 4096, 11008, 32, 32, 100352), **UNTIED, attention_bias=False),
    "olmo3": config(
        "olmo3", **sizes(32, 4096, 11008, 32, 32, 100278), **UNTIED, attention_bias=False, sliding_window=4096,
        layer_types=[*["sliding_attention"] * 3, "full_attention"] * 8,
    ),
    "ministral3": config(
        "ministral3", **sizes(26, 3072, 9216, 32, 8, 131072), tie_word_embeddings=True, head_dim=128,
        sliding_window=None, rope_parameters={"rope_type": "yarn"},
    ),
    "mistral3": {
        "architectures": ["Mistral3ForConditionalGeneration"], "model_type": "mistral3", **UNTIED,
        "image_token_index": 10, "spatial_merge_size": 2, "text_config": config("mistral", **_SMALL_3),
        "vision_config": {"model_type": "pixtral"},
    },
    "nemotron": config(
        "nemotron", **sizes(32, 3072, 9216, 24, 8, 256000), **UNTIED, attention_bias=False, mlp_bias=False,
        head_dim=128, norm_eps=1e-05, partial_rotary_factor=0.5,
    ) | {"hidden_act": "relu2"},
    "qwen2_5_vl": config(
        "qwen2_5_vl", **sizes(28, 3584, 18944, 28, 4, 152064), **UNTIED, max_window_layers=28, sliding_window=32768,
        use_sliding_window=False, vision_config={"depth": 32}, vision_start_token_id=1, image_token_id=5,
        video_token_id=6,
    ),
    "qwen3_vl": {
        "model_type": "qwen3_vl", **UNTIED, "text_config": config("qwen3_vl_text", **_QWEN3_VL),
        "vision_config": {"depth": 27}, "image_token_id": 1,
    },
    "qwen3_vl_moe": {
        "model_type": "qwen3_vl_moe", **UNTIED, "text_config": config("qwen3_vl_moe_text", **_QWEN3_VL_MOE),
        "vision_config": {"depth": 27},
    },
    "glm4_moe": config(
        "glm4_moe", **sizes(46, 4096, 10944, 96, 8, 151552), **UNTIED, attention_bias=True, first_k_dense_replace=1,
        head_dim=128, moe_intermediate_size=1408, n_group=1, n_routed_experts=128, n_shared_experts=1,
        norm_topk_prob=True, num_experts_per_tok=8, num_nextn_predict_layers=1, partial_rotary_factor=0.5,
        routed_scaling_factor=1.0, topk_group=1, use_qk_norm=False,
    ),
    "llama4": {
        "architectures": ["Llama4ForConditionalGeneration"], "model_type": "llama4", **UNTIED,
        "boi_token_index": 200080, "text_config": config("llama4_text", **_SCOUT), "vision_config": {},
    },
}  # fmt: skip
LATER_PARAMETERS = {
    "gpt_oss": 20_914_757_184,  # 20b
    "gemma3_text": 999_885_952,  # 1b
    "gemma3": 3_880_263_168,  # 4b, its text
    "phi3": 3_821_079_552,  # mini, 4k
    "deepseek_v2": 15_706_484_224,  # Lite
    "olmo2": 7_298_617_344,
    "olmo3": 7_298_011_136,
    "ministral3": 3_429_006_336,  # 3B, its text
    "mistral3": 23_572_403_200,  # Small 3.1, its text
    "nemotron": 4_190_509_056,  # Minitron 4B
    "qwen2_5_vl": 7_615_616_512,  # 7B, its text
    "qwen3_vl": 8_190_735_360,
    "qwen3_vl_moe": 30_532_122_624,
    "glm4_moe": 106_852_245_504,  # Air, without the router's correction biases
    "llama4": 107_769_861_120,  # Scout, its text
}
