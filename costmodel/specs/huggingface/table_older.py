"""The keys of models of 2021 to 2024 in HuggingFace that other houses copied little of, and how they are read.

Biases of output heads (GPT-J, Phi) and BLOOM's norm of the embedding are left out: at most one part in 50,000 of the
parameters.
"""

from typing import Any

from costmodel.inputs import Workload
from costmodel.models import decoder
from costmodel.specs import fail
from costmodel.specs.huggingface.keys import (
    LLAMA,
    LLAMA_KEYS,
    NO_DROPOUT,
    OFF,
    ON,
    OPTIONAL_SIZE,
    ROTARY,
    SIZE_OR_NULL,
    SWITCH,
    TENTH,
    TIED,
    Job,
    Reader,
    Values,
    check_divides,
    only,
    sizes,
    usual,
)
from costmodel.specs.huggingface.readers import read_gpt2, read_llama

_SUMMARIES = "summary_activation summary_first_dropout summary_proj_to_labels summary_type summary_use_proj".split()
_GPT_NAMES = {"hidden_size": "n_embd", "num_hidden_layers": "n_layer", "num_attention_heads": "n_head"}
_KEYS_AS_HEADS = {**LLAMA_KEYS, "num_key_value_heads": OPTIONAL_SIZE, "tie_word_embeddings": OFF}
_IN_32_BITS = frozenset({"attention_softmax_in_fp32", "scale_attention_softmax_in_fp32", "softmax_in_fp32"})


def _opt(values: Values, job: Job) -> Workload:
    """OPT: GPT with two more rows than positions in its table."""
    check_divides(values, "num_attention_heads", "hidden_size", job.where)
    projected = values["word_embed_proj_dim"]
    if projected not in (None, values["hidden_size"]):
        fail(job.where, "word_embed_proj_dim", projected, f"`hidden_size` ({values['hidden_size']})")
    positions = values["max_position_embeddings"]
    return decoder(
        **usual(values, job),
        ffn=values["ffn_dim"],
        sequence=job.tokens(positions),
        positions=positions + 2,
        bias=True,
        layer_norm=True,
        learned_positions=True,
        dropout=max(values["dropout"], values["attention_dropout"]) > 0,
    )


def _gpt(values: Values, job: Job, **style: Any) -> Workload:
    """GPT's sizes without a table of positions."""
    check_divides(values, "n_head", "n_embd", job.where)
    return decoder(
        layers=values["n_layer"],
        hidden=values["n_embd"],
        heads=values["n_head"],
        ffn=values["n_inner"] or 4 * values["n_embd"],
        vocabulary=values["vocab_size"],
        sequence=job.tokens(),
        batch=job.batch,
        layer_norm=True,
        tied=values["tie_word_embeddings"],
        **style,
    )


def _bloom(values: Values, job: Job) -> Workload:
    """BLOOM: biases everywhere, slopes by distance instead of positions."""
    given = {**values, "n_embd": values["n_embed"], "n_head": values["num_attention_heads"]}
    return _gpt(given, job, bias=True, dropout=max(values["hidden_dropout"], values["attention_dropout"]) > 0)


def _gptj(values: Values, job: Job) -> Workload:
    """GPT-J: attention and feed-forward in parallel, biases of the feed-forward alone."""
    dropout = max(values["resid_pdrop"], values["attn_pdrop"]) > 0
    return _gpt(values, job, parallel_block=True, ffn_bias=True, dropout=dropout)


def _bigcode(values: Values, job: Job) -> Workload:
    """StarCoder: GPT-2 with one head of keys and values."""
    return read_gpt2({**values, "key_value_heads": 1 if values["multi_query"] else None}, job)


def _biased(values: Values, job: Job) -> Workload:
    """Layer norms and no gate, all linear layers with a bias where `use_bias` says so (StarCoder 2)."""
    bias = values["use_bias"]
    dropout = max(values["attention_dropout"], values["residual_dropout"])
    style = {"gated": False, "layer_norm": True, "attention_bias": bias, "mlp_bias": bias}
    return read_llama({**values, **style, "attention_dropout": dropout}, job)


def _phi(values: Values, job: Job) -> Workload:
    """Phi 1 and 2: biases everywhere, attention and feed-forward in parallel."""
    return _biased({**values, "use_bias": True, "parallel_block": True, "residual_dropout": values["resid_pdrop"]}, job)


def _qwen(values: Values, job: Job) -> Workload:
    """The first Qwen, whose feed-forward has half its `intermediate_size` on each side of the gate."""
    both = values["intermediate_size"]
    if both % 2:
        fail(job.where, "intermediate_size", both, "an even number: both sides of the gate")
    given = {"intermediate_size": both // 2, "head_dim": values["kv_channels"], "num_key_value_heads": None}
    return read_llama({**values, **given, "qkv_bias": True, "attention_dropout": values["attn_dropout_prob"]}, job)


def _chatglm(values: Values, job: Job) -> Workload:
    """ChatGLM 2 and 3 and GLM-4 9B, in the names of Megatron."""
    given = {
        "intermediate_size": values["ffn_hidden_size"],
        "num_hidden_layers": values["num_layers"],
        "num_key_value_heads": values["multi_query_group_num"] if values["multi_query_attention"] else None,
        "head_dim": values["kv_channels"],
        "vocab_size": values["padded_vocab_size"],
        "qkv_bias": values["add_qkv_bias"],
        "attention_dropout": max(values["attention_dropout"], values["hidden_dropout"]),
    }
    return read_llama({**values, **given}, job)


OLDER_READ: dict[str, Reader] = {
    "opt": Reader(
        _opt,
        {
            **sizes("vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "ffn_dim"),
            **sizes("max_position_embeddings"),
            "word_embed_proj_dim": OPTIONAL_SIZE,
            "dropout": TENTH,
            "attention_dropout": NO_DROPOUT,
            "layerdrop": only(0.0, 0),
            **dict.fromkeys(("do_layer_norm_before", "enable_bias", "layer_norm_elementwise_affine"), only(True)),
            "_remove_final_layer_norm": only(False),
            "tie_word_embeddings": TIED,
        },
        frozenset({"activation_function"}),
    ),
    "bloom": Reader(
        _bloom,
        {
            **sizes("n_embed", "n_layer", "num_attention_heads", "vocab_size"),
            **dict.fromkeys(("attention_dropout", "hidden_dropout"), NO_DROPOUT),
            "n_inner": OPTIONAL_SIZE,
            "apply_residual_connection_post_layernorm": only(False),
            "tie_word_embeddings": TIED,
        },
        _IN_32_BITS
        | frozenset(
            """
            bias_dropout_fusion layer_norm_epsilon masked_softmax_fusion offset_alibi pretraining_tp seq_length
            skip_bias_add skip_bias_add_qkv slow_but_exact
            """.split()
        ),
        {"hidden_size": "n_embed", "n_head": "num_attention_heads", "num_hidden_layers": "n_layer"},
    ),
    "gptj": Reader(
        _gptj,
        {
            **sizes("n_embd", "n_layer", "n_head", "vocab_size"),
            **dict.fromkeys(("resid_pdrop", "attn_pdrop"), NO_DROPOUT),
            "n_inner": OPTIONAL_SIZE,
            "tie_word_embeddings": OFF,
        },
        frozenset(
            "activation_function embd_pdrop layer_norm_epsilon n_ctx n_positions rotary rotary_dim scale_attn_weights"
            " max_position_embeddings".split()
            + _SUMMARIES
        ),
        _GPT_NAMES,
    ),
    "gpt_bigcode": Reader(
        _bigcode,
        {
            **sizes("n_embd", "n_layer", "n_head", "n_positions", "vocab_size"),
            **dict.fromkeys(("resid_pdrop", "attn_pdrop"), TENTH),
            "n_inner": OPTIONAL_SIZE,
            "multi_query": ON,
            "tie_word_embeddings": TIED,
        },
        _IN_32_BITS
        | frozenset(
            """
            activation_function embd_pdrop inference_runner layer_norm_epsilon max_batch_size max_sequence_length
            pad_key_length pre_allocate_kv_cache scale_attn_weights validate_runner_input
            """.split()
            + _SUMMARIES
        ),
        {**_GPT_NAMES, "max_position_embeddings": "n_positions"},
    ),
    "phi": Reader(
        _phi,
        {**LLAMA_KEYS, "resid_pdrop": NO_DROPOUT, "qk_layernorm": only(False)},
        LLAMA | {"embd_pdrop", "layer_norm_eps"},
    ),
    "starcoder2": Reader(
        _biased,
        {
            **LLAMA_KEYS,
            "tie_word_embeddings": TIED,
            "use_bias": ON,
            "residual_dropout": NO_DROPOUT,
            "sliding_window": SIZE_OR_NULL,
            "mlp_type": only("default"),
            "norm_type": only("layer_norm"),
        },
        LLAMA | _IN_32_BITS | {"embedding_dropout", "norm_epsilon"},
    ),
    "baichuan": Reader(read_llama, _KEYS_AS_HEADS, LLAMA | {"model_max_length", "z_loss_weight"}),
    "internlm2": Reader(read_llama, {**LLAMA_KEYS, "bias": only(False)}, LLAMA),
    "qwen": Reader(
        _qwen,
        {
            **sizes("hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "vocab_size"),
            **sizes("kv_channels"),
            "no_bias": only(True),
            "attn_dropout_prob": NO_DROPOUT,
            "tie_word_embeddings": OFF,
        },
        LLAMA
        | _IN_32_BITS
        | frozenset(
            """
            bf16 emb_dropout_prob fp16 fp32 layer_norm_epsilon onnx_safe scale_attn_weights seq_length
            use_cache_kernel use_cache_quantization use_dynamic_ntk use_flash_attn use_logn_attn
            """.split()
        ),
    ),
    "chatglm": Reader(
        _chatglm,
        {
            **sizes("hidden_size", "ffn_hidden_size", "num_layers", "num_attention_heads", "padded_vocab_size"),
            **sizes("kv_channels", "multi_query_group_num"),
            "multi_query_attention": SWITCH,
            "add_qkv_bias": SWITCH,
            **dict.fromkeys(("add_bias_linear", "apply_residual_connection_post_layernorm"), only(False)),
            **dict.fromkeys(("rmsnorm", "post_layer_norm"), only(True)),
            **dict.fromkeys(("attention_dropout", "hidden_dropout"), NO_DROPOUT),
            "tie_word_embeddings": OFF,
        },
        ROTARY
        | _IN_32_BITS
        | frozenset(
            """
            apply_query_key_layer_scaling bias_dropout_fusion fp32_residual_connection interleaved_qkv
            layernorm_epsilon original_rope pre_seq_len prefix_projection quantization_bit rope_ratio seq_length
            vocab_size
            """.split()
        ),
    ),
}
"""By `model_type`."""
