"""Configurations of 2021 to 2024 as they are published (transformers d56c55b, the models' cards), and their totals.

Published totals, from which ours leave out the biases of heads and BLOOM's norm of the embedding: OPT 6.7B
6,658,473,984; BLOOM 176,247,271,424 (28,672 of the norm); GPT-J 6,050,882,784 (50,400 of the head); StarCoder
15,517,456,384; Phi-2 2,779,683,840 (51,200 of the head); StarCoder2 3B 3,030,371,328; Baichuan2 7B 7,505,973,248;
InternLM2 7B 7,737,708,544; Qwen 7B 7,721,324,544; ChatGLM3 6B 6,243,584,000.
"""

from typing import Any

from tests.support.files.later_configs import UNTIED, config, sizes

_SUMMARY = {"summary_activation": None, "summary_first_dropout": 0.1, "summary_type": "cls_index"}
OLDER: dict[str, dict[str, Any]] = {
    "opt": {
        "model_type": "opt", "vocab_size": 50272, "hidden_size": 4096, "num_hidden_layers": 32, "ffn_dim": 16384,
        "num_attention_heads": 32, "max_position_embeddings": 2048, "word_embed_proj_dim": 4096, "dropout": 0.1,
        "attention_dropout": 0.0, "layerdrop": 0.0, "do_layer_norm_before": True, "_remove_final_layer_norm": False,
        "activation_function": "relu", "init_std": 0.02, "prefix": "</s>",
    },
    "bloom": {
        "model_type": "bloom", "n_embed": 14336, "n_layer": 70, "num_attention_heads": 112, "vocab_size": 250880,
        "attention_dropout": 0.0, "hidden_dropout": 0.0, "apply_residual_connection_post_layernorm": False,
        "attention_softmax_in_fp32": True, "bias_dropout_fusion": True, "layer_norm_epsilon": 1e-05,
        "masked_softmax_fusion": True, "offset_alibi": 100, "pretraining_tp": 4, "seq_length": 2048,
        "skip_bias_add": True, "skip_bias_add_qkv": False,
    },
    "gptj": {
        "model_type": "gptj", "n_embd": 4096, "n_layer": 28, "n_head": 16, "n_positions": 2048, "vocab_size": 50400,
        "resid_pdrop": 0.0, "attn_pdrop": 0.0, "embd_pdrop": 0.0, "n_inner": None, "rotary": True, "rotary_dim": 64,
        "activation_function": "gelu_new", "scale_attn_weights": True, "tie_word_embeddings": False, **_SUMMARY,
    },
    "gpt_bigcode": {
        "model_type": "gpt_bigcode", "n_embd": 6144, "n_layer": 40, "n_head": 48, "n_positions": 8192, "n_inner": 24576,
        "vocab_size": 49152, "resid_pdrop": 0.1, "attn_pdrop": 0.1, "embd_pdrop": 0.1, "multi_query": True,
        "activation_function": "gelu", "attention_softmax_in_fp32": True, "inference_runner": 0, "pad_key_length": True,
        "validate_runner_input": True, **_SUMMARY,
    },
    "phi": config(
        "phi", **sizes(32, 2560, 10240, 32, 32, 51200), **UNTIED, attention_dropout=0.0, resid_pdrop=0.0,
        embd_pdrop=0.0, layer_norm_eps=1e-05, qk_layernorm=False, partial_rotary_factor=0.4,
    ),
    "starcoder2": config(
        "starcoder2", **sizes(30, 3072, 12288, 24, 2, 49152), attention_dropout=0.0, residual_dropout=0.0,
        embedding_dropout=0.1, use_bias=True, mlp_type="default", norm_type="layer_norm", norm_epsilon=1e-05,
        sliding_window=4096, tie_word_embeddings=True,
    ),
    "baichuan": config(
        "baichuan", **sizes(32, 4096, 11008, 32, 32, 125696), **UNTIED, model_max_length=4096, z_loss_weight=0,
    ),
    "internlm2": config("internlm2", **sizes(32, 4096, 14336, 32, 8, 92544), **UNTIED, bias=False),
    "qwen": {
        "model_type": "qwen", "hidden_size": 4096, "intermediate_size": 22016, "num_hidden_layers": 32,
        "num_attention_heads": 32, "vocab_size": 151936, "kv_channels": 128, "no_bias": True, "attn_dropout_prob": 0.0,
        "emb_dropout_prob": 0.0, "rotary_pct": 1.0, "seq_length": 8192, "use_flash_attn": "auto", "bf16": False,
        "use_dynamic_ntk": True, "use_logn_attn": True, "onnx_safe": None, "tie_word_embeddings": False,
    },
    "chatglm": {
        "model_type": "chatglm", "hidden_size": 4096, "ffn_hidden_size": 13696, "num_layers": 28, "kv_channels": 128,
        "num_attention_heads": 32, "padded_vocab_size": 65024, "multi_query_attention": True,
        "multi_query_group_num": 2, "add_qkv_bias": True, "add_bias_linear": False, "rmsnorm": True,
        "post_layer_norm": True, "attention_dropout": 0.0, "hidden_dropout": 0.0, "original_rope": True,
        "apply_residual_connection_post_layernorm": False, "layernorm_epsilon": 1e-05, "seq_length": 8192,
        "quantization_bit": 0, "tie_word_embeddings": False,
    },
}  # fmt: skip

OLDER_PARAMETERS = {
    "opt": 6_658_473_984,
    "bloom": 176_247_242_752,
    "gptj": 6_050_832_384,
    "gpt_bigcode": 15_517_456_384,
    "phi": 2_779_632_640,
    "starcoder2": 3_030_371_328,
    "baichuan": 7_505_973_248,
    "internlm2": 7_737_708_544,
    "qwen": 7_721_324_544,
    "chatglm": 6_243_584_000,
}
