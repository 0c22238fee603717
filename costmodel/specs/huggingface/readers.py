"""How the values of each `model_type` of HuggingFace are passed to a builder."""

from costmodel.inputs import Workload
from costmodel.models import decoder, encoder, encoder_decoder, swin
from costmodel.specs import fail
from costmodel.specs.huggingface.keys import Job, Values, check_divides, check_heads, usual, windowed, with_windows


def read_llama(values: Values, job: Job) -> Workload:
    """Llama and its kin: RMS norms, rotary positions, gated feed-forward, grouped queries.

    Whatever else `values` has of a decoder's flags is passed on.
    """
    check_heads(values, job.where)
    tokens, bias = job.tokens(), values.get("attention_bias", False)
    return decoder(
        **usual(values, job),
        key_value_heads=values["num_key_value_heads"],
        head_size=values.get("head_dim"),
        ffn=values["intermediate_size"],
        sequence=tokens,
        gated=values.get("gated", True),
        parallel_block=values.get("parallel_block", False),
        layer_norm=values.get("layer_norm", False),
        qkv_bias=bias or values.get("qkv_bias", False),
        out_bias=bias,
        ffn_bias=values.get("mlp_bias", False),
        qk_norm=values.get("qk_norm", False),
        qk_norm_whole=values.get("qk_norm_whole", False),
        norms_after=values.get("norms_after", False),
        dropout=values["attention_dropout"] > 0,
        **windowed(values, tokens, job.where),
    )


def read_gemma2(values: Values, job: Job) -> Workload:
    """Norms before and after each branch; windows on every other layer."""
    return read_llama({**with_windows(values, "sliding_window", 2), "norms_after": True}, job)


def read_glm4(values: Values, job: Job) -> Workload:
    """Norms before and after each branch; the biases are those of queries, keys and values."""
    biased = {"qkv_bias": values["attention_bias"], "attention_bias": False}
    return read_llama({**values, **biased, "norms_after": True}, job)


def read_seed_oss(values: Values, job: Job) -> Workload:
    """Llama with biases of queries, keys and values, and with dropout."""
    biased = {"qkv_bias": values["attention_bias"], "attention_bias": False}
    dropout = max(values["attention_dropout"], values["residual_dropout"])
    return read_llama({**values, **biased, "attention_dropout": dropout}, job)


def read_gemma3(values: Values, job: Job) -> Workload:
    """Norms before and after each branch and of queries and keys; windows on five of six layers."""
    values = with_windows(values, "sliding_window", values["sliding_window_pattern"])
    return read_llama({**values, "qk_norm": True, "norms_after": True}, job)


def read_olmo2(values: Values, job: Job) -> Workload:
    """Norms after each branch, counted before it; those of queries and keys have scales for all heads."""
    return read_llama({**values, "qk_norm": True, "qk_norm_whole": True}, job)


def read_olmo3(values: Values, job: Job) -> Workload:
    """OLMo 2 with windows on three of four layers."""
    return read_olmo2(with_windows(values, "sliding_window", 4), job)


def read_ungated(values: Values, job: Job) -> Workload:
    """Llama with one product up (xIELU, squared ReLU)."""
    return read_llama({**values, "gated": False}, job)


def read_exaone4(values: Values, job: Job) -> Workload:
    """Norms after each branch, counted before it, and of queries and keys; windows on three of four layers, or none."""
    if values["sliding_window"] is not None:
        values = with_windows(values, "sliding_window", 4)
    return read_llama({**values, "qk_norm": True}, job)


def read_cohere(values: Values, job: Job) -> Workload:
    """Attention and feed-forward in parallel; norms of queries and keys have scales for all heads."""
    if values.get("sliding_window_pattern") is not None:
        values = with_windows(values, "sliding_window", values["sliding_window_pattern"])
    norms = bool(values["use_qk_norm"])
    return read_llama({**values, "parallel_block": True, "qk_norm": norms, "qk_norm_whole": norms}, job)


def read_stablelm(values: Values, job: Job) -> Workload:
    """Layer norms with a bias; norms of queries and keys have scales for all heads."""
    norms = values["qk_layernorm"]
    style = {"qk_norm": norms, "qk_norm_whole": norms, "layer_norm": True, "qkv_bias": values["use_qkv_bias"]}
    dropout = max(values["attention_dropout"], values["hidden_dropout"])
    parallel = values["use_parallel_residual"]
    return read_llama({**values, **style, "parallel_block": parallel, "attention_dropout": dropout}, job)


def read_falcon(values: Values, job: Job) -> Workload:
    """Attention and feed-forward in parallel behind one layer norm with a bias, no gate."""
    later, norms = values["new_decoder_architecture"], values["num_ln_in_parallel_attn"]
    if not (later or values["parallel_attn"]):
        fail(job.where, "parallel_attn", values["parallel_attn"], "true")
    if later and norms != 1:
        fail(job.where, "num_ln_in_parallel_attn", norms, "1: two norms before one branch each are not counted here")
    heads, few = values["num_attention_heads"], values["num_kv_heads"]
    if later and few is None:
        few = heads
    given = {
        "intermediate_size": values["ffn_hidden_size"] or 4 * values["hidden_size"],
        "num_key_value_heads": few if later else 1 if values["multi_query"] else heads,
        "attention_dropout": max(values["attention_dropout"], values["hidden_dropout"]),
    }
    return read_llama({**values, **given, "gated": False, "parallel_block": True, "layer_norm": True}, job)


def read_mpt(values: Values, job: Job) -> Workload:
    """No biases, no gate, slopes by distance instead of positions."""
    few = values["attn_config"].get("attn_type") == "multiquery_attention"
    given = {
        "hidden_size": values["d_model"],
        "num_hidden_layers": values["n_layers"],
        "num_attention_heads": values["n_heads"],
        "num_key_value_heads": 1 if few else values["n_heads"],
        "intermediate_size": values["expansion_ratio"] * values["d_model"],
        "attention_dropout": values["resid_pdrop"],
    }
    return read_ungated({**values, **given}, job)


def read_nemotron(values: Values, job: Job) -> Workload:
    """Layer norms with a bias, a squared activation without a gate."""
    check_heads(values, job.where)
    return decoder(
        **usual(values, job),
        key_value_heads=values["num_key_value_heads"],
        head_size=values["head_dim"],
        ffn=values["intermediate_size"],
        sequence=job.tokens(),
        qkv_bias=values["attention_bias"],
        out_bias=values["attention_bias"],
        ffn_bias=values["mlp_bias"],
        layer_norm=True,
        dropout=values["attention_dropout"] > 0,
    )


def read_gpt2(values: Values, job: Job) -> Workload:
    """GPT-2: learned positions, layer norms, biases everywhere."""
    check_divides(values, "n_head", "n_embd", job.where)
    return decoder(
        layers=values["n_layer"],
        hidden=values["n_embd"],
        heads=values["n_head"],
        key_value_heads=values.get("key_value_heads"),
        ffn=values["n_inner"] or 4 * values["n_embd"],
        vocabulary=values["vocab_size"],
        sequence=job.tokens(values["n_positions"]),
        batch=job.batch,
        positions=values["n_positions"],
        bias=True,
        layer_norm=True,
        learned_positions=True,
        dropout=max(values["resid_pdrop"], values["attn_pdrop"]) > 0,
        tied=values["tie_word_embeddings"],
    )


def read_neox(values: Values, job: Job) -> Workload:
    """The parallel formulation of its blocks is counted as the sequential one."""
    check_divides(values, "num_attention_heads", "hidden_size", job.where)
    return decoder(
        **usual(values, job),
        ffn=values["intermediate_size"],
        sequence=job.tokens(),
        qkv_bias=values["attention_bias"],
        out_bias=values["attention_bias"],
        ffn_bias=True,
        layer_norm=True,
        dropout=max(values["attention_dropout"], values["hidden_dropout"]) > 0,
    )


def read_bert(values: Values, job: Job) -> Workload:
    """BERT: an encoder under the head of masked tokens."""
    check_divides(values, "num_attention_heads", "hidden_size", job.where)
    return encoder(
        **usual(values, job),
        ffn=values["intermediate_size"],
        sequence=job.tokens(values["max_position_embeddings"]),
        positions=values["max_position_embeddings"],
        token_types=values["type_vocab_size"],
        dropout=max(values["hidden_dropout_prob"], values["attention_probs_dropout_prob"]) > 0,
    )


def read_mbart(values: Values, job: Job) -> Workload:
    """Both sides at the sequence; two more rows than positions in each table."""
    for heads in ("encoder_attention_heads", "decoder_attention_heads"):
        check_divides(values, heads, "d_model", job.where)
    return encoder_decoder(
        layers=values["encoder_layers"],
        decoder_layers=values["decoder_layers"],
        hidden=values["d_model"],
        heads=values["encoder_attention_heads"],
        decoder_heads=values["decoder_attention_heads"],
        ffn=values["encoder_ffn_dim"],
        decoder_ffn=values["decoder_ffn_dim"],
        vocabulary=values["vocab_size"],
        sequence=job.tokens(values["max_position_embeddings"]),
        batch=job.batch,
        positions=values["max_position_embeddings"] + 2,
        bias=True,
        layer_norm=True,
        embedding_norm=True,
        learned_positions=True,
        dropout=max(values["dropout"], values["attention_dropout"]) > 0,
        tied=values["tie_word_embeddings"],
    )


def read_t5(values: Values, job: Job) -> Workload:
    """Both sides at the sequence."""
    return encoder_decoder(
        layers=values["num_layers"],
        decoder_layers=values["num_decoder_layers"] or values["num_layers"],
        hidden=values["d_model"],
        heads=values["num_heads"],
        head_size=values["d_kv"],
        ffn=values["d_ff"],
        vocabulary=values["vocab_size"],
        sequence=job.tokens(),
        batch=job.batch,
        relative_buckets=values["relative_attention_num_buckets"],
        gated=values["feed_forward_proj"].startswith("gated"),
        dropout=values["dropout_rate"] > 0,
        tied=values["tie_word_embeddings"],
    )


def read_swin(values: Values, job: Job) -> Workload:
    """Windows are no larger than their stage, as in the published code; images that need padding are errors."""
    where, depths, heads = job.where, values["depths"], values["num_heads"]
    image, patch, window = values["image_size"], values["patch_size"], values["window_size"]
    if len(heads) != len(depths):
        fail(where, "num_heads", list(heads), f"a list of {len(depths)}, one for each of `depths`")
    if image % (patch * 2 ** (len(depths) - 1)):
        fail(where, "image_size", image, f"a multiple of {patch * 2 ** (len(depths) - 1)}, a patch of the last stage")
    sides = [image // patch // 2**stage for stage in range(len(depths))]
    for stage, (side, count) in enumerate(zip(sides, heads, strict=True)):
        if side % min(window, side):
            fail(where, "window_size", window, f"a divisor of the side of {side} tokens at stage {stage + 1}")
        if values["embed_dim"] * 2**stage % count:
            fail(where, "num_heads", list(heads), f"a divisor of the width at stage {stage + 1}")
    if job.sequence not in (None, sides[0] ** 2):
        fail(where, "sequence", job.sequence, f"none: an image has {sides[0] ** 2} tokens")
    ffn_ratio = values["mlp_ratio"]
    if not (ffn_ratio * values["embed_dim"]).is_integer():
        fail(where, "mlp_ratio", ffn_ratio, "a whole number when multiplied by `embed_dim`")
    return swin(
        depths=depths,
        hidden=values["embed_dim"],
        heads=heads,
        image=image,
        window=tuple(min(window, side) for side in sides),
        batch=job.batch,
        patch=patch,
        channels=values["num_channels"],
        classes=values["id2label"],
        ffn_ratio=ffn_ratio,
        qkv_bias=values["qkv_bias"],
        absolute_positions=values["use_absolute_embeddings"],
        dropout=max(values["hidden_dropout_prob"], values["attention_probs_dropout_prob"]) > 0,
    )
