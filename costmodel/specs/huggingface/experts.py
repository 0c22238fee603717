"""How the values of each `model_type` of HuggingFace with experts are passed to the builder."""

from typing import Any

from costmodel.inputs import Workload
from costmodel.models import Latent, moe_decoder
from costmodel.specs import fail
from costmodel.specs.huggingface.keys import Job, Values, check_heads, chunked, usual, windowed, with_windows


def read_mixtral(values: Values, job: Job) -> Workload:
    """Mixtral: a decoder whose feed-forwards are experts in every layer."""
    return _routed(
        values,
        job,
        experts=values["num_local_experts"],
        expert_ffn=values["intermediate_size"],
        **_heads(values, job),
        **windowed(values, job.tokens(), job.where),
    )


def read_qwen3_moe(values: Values, job: Job, **style: Any) -> Workload:
    """Dense layers are counted where they come first."""
    dense = values["mlp_only_layers"]
    if sorted(dense) != list(range(len(dense))) or len(dense) >= values["num_hidden_layers"]:
        fail(job.where, "mlp_only_layers", list(dense), "an empty list, or the first layers in order")
    return _routed(
        values,
        job,
        experts=values["num_experts"],
        expert_ffn=values["moe_intermediate_size"],
        ffn=values["intermediate_size"],
        dense_layers=len(dense),
        **_heads(values, job),
        **({"query_key_norm": True} | style),
        **windowed(values, job.tokens(), job.where),
    )


def read_olmoe(values: Values, job: Job) -> Workload:
    """Norms of queries and keys that have scales for all heads."""
    return _with_whole_norms({**values, "head_dim": None}, job, values["num_experts"])


def read_minimax_m2(values: Values, job: Job) -> Workload:
    """The model, with modules of multi-token prediction where `mtp_num_layers` asks for them."""
    return _with_whole_norms(values, job, values["num_local_experts"])


def _with_whole_norms(values: Values, job: Job, experts: int) -> Workload:
    return _routed(
        values,
        job,
        experts=experts,
        expert_ffn=values["intermediate_size"],
        **_heads(values, job),
        query_key_norm=values.get("use_qk_norm", True),
        query_key_norm_whole=True,
        **windowed(values, job.tokens(), job.where),
    )


def read_deepseek(values: Values, job: Job) -> Workload:
    """Multi-token prediction as `mtp_num_layers` says. A token goes to `topk_group` groups, one to a node."""
    chosen, groups = values["topk_group"], values["n_group"]
    limited = values.get("topk_method") != "greedy" and chosen is not None and groups is not None and chosen < groups
    return _after_dense(
        values,
        job,
        expert_groups=chosen if limited else None,
        latent=Latent(
            query_rank=values["q_lora_rank"],
            key_value_rank=values["kv_lora_rank"],
            nope_size=values["qk_nope_head_dim"],
            rope_size=values["qk_rope_head_dim"],
            value_size=values["v_head_dim"],
        ),
    )


def read_gpt_oss(values: Values, job: Job) -> Workload:
    """Biases everywhere but in the norms, a sink for each head, windows on every other layer."""
    values = with_windows(values, "sliding_window", 2)
    return _routed(
        values,
        job,
        experts=values["num_local_experts"],
        expert_ffn=values["intermediate_size"],
        **_heads(values, job),
        qkv_bias=True,
        out_bias=True,
        expert_bias=True,
        attention_sinks=True,
        **windowed(values, job.tokens(), job.where),
    )


def read_glm4_moe(values: Values, job: Job) -> Workload:
    """The model, with modules of multi-token prediction where `mtp_num_layers` asks for them."""
    return _after_dense(
        values,
        job,
        **_heads(values, job),
        qkv_bias=values["attention_bias"],
        query_key_norm=values["use_qk_norm"],
    )


def read_llama4(values: Values, job: Job) -> Workload:
    """A shared expert beside the routed ones. Dense layers between those with experts are counted first."""
    values = with_windows(values, "attention_chunk_size", 4, "chunked_attention")
    step, layers = values["interleave_moe_layer_step"], values["num_hidden_layers"]
    routed = layers // step
    if not routed:
        fail(job.where, "interleave_moe_layer_step", step, f"at most the {layers} layers")
    return _routed(
        values,
        job,
        experts=values["num_local_experts"],
        expert_ffn=values["intermediate_size"],
        ffn=values["intermediate_size_mlp"],
        dense_layers=layers - routed,
        shared_experts=1,
        **_heads(values, job),
        qkv_bias=values["attention_bias"],
        out_bias=values["attention_bias"],
        causal_density=chunked(values, job.tokens(), job.where),
    )


def read_ernie_moe(values: Values, job: Job) -> Workload:
    """A shared expert, several experts wide, in all layers but the first few."""
    first, last = values["moe_layer_start_index"], values["moe_layer_end_index"]
    if last not in (-1, values["num_hidden_layers"] - 1):
        fail(job.where, "moe_layer_end_index", last, "-1, or the last layer")
    renamed = {
        "first_k_dense_replace": first,
        "n_routed_experts": values["moe_num_experts"],
        "n_shared_experts": values["moe_num_shared_experts"] or 0,
        "num_experts_per_tok": values["moe_k"],
    }
    return _after_dense({**values, **renamed}, job, **_heads(values, job))


def read_dots1(values: Values, job: Job) -> Workload:
    """Norms of queries and keys by head."""
    return _after_dense(
        values,
        job,
        **_heads(values, job),
        query_key_norm=True,
        **windowed({**values, "use_sliding_window": False}, job.tokens(), job.where),
    )


def read_qwen2_moe(values: Values, job: Job) -> Workload:
    """Qwen3's without norms of queries and keys, with biases of queries, keys and values, and a shared expert."""
    shared, rest = divmod(values["shared_expert_intermediate_size"], values["moe_intermediate_size"])
    if rest:
        value = values["shared_expert_intermediate_size"]
        fail(job.where, "shared_expert_intermediate_size", value, "a multiple of `moe_intermediate_size`")
    style = {"qkv_bias": values["qkv_bias"], "shared_experts": shared, "query_key_norm": False}
    return read_qwen3_moe(values, job, **style)


def read_dbrx(values: Values, job: Job) -> Workload:
    """Widths of attention and experts in objects of their own."""
    inner, experts = values["attn_config"], values["ffn_config"]
    given = {
        "hidden_size": values["d_model"],
        "num_hidden_layers": values["n_layers"],
        "num_attention_heads": values["n_heads"],
        "num_key_value_heads": inner["kv_n_heads"],
        "intermediate_size": experts["ffn_hidden_size"],
        "num_local_experts": experts["moe_num_experts"],
        "num_experts_per_tok": experts["moe_top_k"],
        "head_dim": None,
    }
    return read_mixtral({**values, **given}, job)


def _heads(values: Values, job: Job) -> dict[str, Any]:
    """Heads of keys and values, and the size of all, checked."""
    check_heads(values, job.where)
    return {"key_value_heads": values["num_key_value_heads"], "head_size": values["head_dim"]}


def _after_dense(values: Values, job: Job, **others: Any) -> Workload:
    """Experts, some of them shared, in all layers but the first few."""
    if values["first_k_dense_replace"] >= values["num_hidden_layers"]:
        fail(job.where, "first_k_dense_replace", values["first_k_dense_replace"], "fewer than `num_hidden_layers`")
    return _routed(
        values,
        job,
        experts=values["n_routed_experts"],
        expert_ffn=values["moe_intermediate_size"],
        ffn=values["intermediate_size"],
        dense_layers=values["first_k_dense_replace"],
        shared_experts=values["n_shared_experts"],
        **others,
    )


def _routed(values: Values, job: Job, *, experts: int, **others: Any) -> Workload:
    """What all of them have alike."""
    if values["num_experts_per_tok"] > experts:
        fail(job.where, "num_experts_per_tok", values["num_experts_per_tok"], f"at most the {experts} experts")
    return moe_decoder(
        **usual(values, job),
        sequence=job.tokens(),
        experts=experts,
        top_k=values["num_experts_per_tok"],
        mtp_layers=values.get("mtp_num_layers") or 0,
        **others,
    )
