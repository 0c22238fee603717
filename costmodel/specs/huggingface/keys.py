"""Keys of HuggingFace configurations: what each may hold, and those that do not change the cost of training."""

import dataclasses
import json
from collections.abc import Callable, Mapping
from typing import Any

from costmodel.inputs import Workload
from costmodel.models import causal_density
from costmodel.specs import COUNT, FLAG, POSITIVE, SHARE, Check, SpecError, fail, is_count, one_of


def absent(check: Check, default: Any) -> Check:
    """The same of a key that HuggingFace leaves out, with its own default. (Others it always writes: a file without
    one of them was cut.)"""
    return dataclasses.replace(check, default=default)


def nullable(check: Check) -> Check:
    """The same, or null."""
    return Check(f"{check.expected}, or null", check.accepts, keep=check.keep, optional=True)


_KINDS = ("full_attention", "sliding_attention", "chunked_attention")
SIZE, RATIO, SWITCH, DROPOUT = COUNT, POSITIVE, FLAG, SHARE
SIZE_OR_NULL = nullable(COUNT)
TIED = absent(FLAG, True)  # left out where true
OFF, ON = absent(FLAG, False), absent(FLAG, True)
NO_DROPOUT, TENTH = absent(SHARE, 0.0), absent(SHARE, 0.1)
OPTIONAL_SIZE = absent(SIZE_OR_NULL, None)
STAGES = Check(
    "a list of 1 to 8 integers >= 1",
    lambda value: isinstance(value, list | tuple) and 0 < len(value) <= 8 and all(map(is_count, value)),
    keep=tuple,
)
LABELS = Check("an object of at least one label", lambda value: isinstance(value, Mapping) and len(value) > 0, keep=len)
LAYER_TYPES = Check(
    f"a list of {', '.join(_KINDS)}",
    lambda value: isinstance(value, list | tuple) and all(item in _KINDS for item in value),
    keep=tuple,
    optional=True,
    default=None,
)
LAYER_LIST = Check(
    "a list of numbers of layers",
    lambda value: (
        isinstance(value, list | tuple) and all(is_count(item) or (item == 0 and type(item) is int) for item in value)
    ),
    keep=tuple,
)
MODULES = {
    "mtp_num_layers": absent(Check("0, or an integer >= 1", lambda n: COUNT.accepts(n) or n == 0, optional=True), 0)
}
"""Modules of multi-token prediction that are trained, as Megatron calls them. (`num_nextn_predict_layers` are those of
published weights, which transformers neither loads nor trains.)"""
FEED_FORWARD = absent(one_of(("relu", "gelu", "gated-gelu", "gated-silu", "gated-relu")), "relu")


def only(*values: Any) -> Check:
    """A key that this model understands at certain values alone."""
    words = " or ".join(repr(value) if isinstance(value, str) else json.dumps(value) for value in values)
    return Check(
        words, lambda value: any(value is v or (value == v and type(value) is type(v)) for v in values), default=None
    )


# Of the base class (generation, tokens, labels, bookkeeping): in every family.
IGNORED = frozenset(
    """
    _name_or_path _num_labels _attn_implementation _attn_implementation_autoset _commit_hash attn_implementation
    activation_dropout architectures auto_map bad_words_ids begin_suppress_tokens bos_token_id chunk_size_feed_forward
    classif_dropout classifier_dropout custom_pipelines decoder_start_token_id diversity_penalty do_sample dtype
    early_stopping encoder_no_repeat_ngram_size eos_token_id exponential_decay_length_penalty finetuning_task
    forced_bos_token_id forced_eos_token_id force_bos_token_to_be_generated gradient_checkpointing id2label label2id
    initializer_factor initializer_range init_std
    language length_penalty max_length max_new_tokens min_length model_type name no_repeat_ngram_size num_beam_groups
    num_beams num_labels num_return_sequences output_attentions output_hidden_states output_past output_scores
    pad_token_id prefix problem_type quantization_config remove_invalid_values repetition_penalty return_dict
    return_dict_in_generate sep_token_id suppress_tokens task_specific_params temperature tf_legacy_loss
    tokenizer_class top_k top_p torch_dtype torchscript transformers_version typical_p unk_token_id unsloth_version
    use_bfloat16 use_cache
    """.split()
)
# Structure that the base class may switch on, and that no family here counts.
BASE: dict[str, Check] = {
    "add_cross_attention": only(False, None),
    "cross_attention_hidden_size": only(None),
    "is_decoder": only(False, None),
    "is_encoder_decoder": only(False, None),
    "pruned_heads": Check("an empty object", lambda value: value in ({}, None), default=None),
    "tie_encoder_decoder": only(False, None),
}
ROTARY = frozenset(
    """
    max_position_embeddings original_max_position_embeddings partial_rotary_factor rope_parameters rope_scaling
    rope_theta rotary_emb_base rotary_pct
    """.split()
)
LLAMA = ROTARY | {"hidden_act", "hidden_activation", "pretraining_tp", "rms_norm_eps"}


def sizes(*names: str) -> dict[str, Check]:
    """Sizes of these names."""
    return dict.fromkeys(names, SIZE)


LAYERS = sizes("hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "vocab_size")
LLAMA_KEYS = {
    **LAYERS,
    "num_key_value_heads": SIZE_OR_NULL,
    "tie_word_embeddings": SWITCH,
    "attention_dropout": NO_DROPOUT,
    "head_dim": OPTIONAL_SIZE,
}
WINDOWS = {"use_sliding_window": SWITCH, "sliding_window": SIZE_OR_NULL, "max_window_layers": SIZE}
ROUTING = frozenset(
    """
    aux_loss_alpha ep_size n_group norm_topk_prob num_mtp_layers num_nextn_predict_layers output_router_logits
    qk_head_dim rope_interleave routed_scaling_factor router_aux_loss_coef router_jitter_noise scoring_func seq_aux
    topk_method
    """.split()
)

Values = dict[str, Any]


@dataclasses.dataclass(frozen=True)
class Job:
    """What a config.json does not say."""

    where: str
    sequence: int | None
    batch: int

    def tokens(self, most: int | None = None) -> int:
        """The sequence, which a table of positions may limit."""
        if self.sequence is None:
            raise SpecError(missing(self.where, "sequence"))
        if most is not None and self.sequence > most:
            fail(self.where, "sequence", self.sequence, f"at most the {most} positions of the model")
        return self.sequence


@dataclasses.dataclass(frozen=True)
class Reader:
    """How one `model_type` is read."""

    build: Callable[[Values, Job], Workload]
    keys: Mapping[str, Check]
    ignored: frozenset[str] = frozenset()
    aliases: Mapping[str, str] = dataclasses.field(default_factory=dict)  # another name of a key, to the key


def usual(values: Values, job: Job) -> dict[str, Any]:
    """What most families call alike, as builders take it."""
    return {
        "layers": values["num_hidden_layers"],
        "hidden": values["hidden_size"],
        "heads": values["num_attention_heads"],
        "vocabulary": values["vocab_size"],
        "batch": job.batch,
        "tied": values["tie_word_embeddings"],
    }


def missing(where: str, field: str) -> str:
    """The message about a size that must be given beside the file."""
    return f"{where}: `{field}` is missing; expected {COUNT.expected} beside the config.json, which does not hold it"


def check_divides(values: Values, heads: str, width: str, where: str) -> None:
    """Raise unless the number of heads divides the width."""
    if values[width] % values[heads]:
        fail(where, heads, values[heads], f"a divisor of `{width}` ({values[width]})")


def check_heads(values: Values, where: str) -> None:
    """Heads divide the width unless their size is given, and key-value heads divide the heads."""
    heads, key_value_heads = values["num_attention_heads"], values["num_key_value_heads"]
    if values.get("head_dim") is None:
        check_divides(values, "num_attention_heads", "hidden_size", where)
    if key_value_heads is not None and heads % key_value_heads:
        fail(where, "num_key_value_heads", key_value_heads, f"a divisor of `num_attention_heads` ({heads})")


def with_windows(values: Values, window: str, every: int, kind: str = "sliding_attention") -> Values:
    """The values with windows on all layers but each `every`-th where `layer_types` does not say it."""
    count = values["num_hidden_layers"]
    kinds = tuple("full_attention" if layer % every == every - 1 else kind for layer in range(count))
    renamed = tuple(each.replace("chunked", "sliding") for each in values.get("layer_types") or kinds)
    return {**values, "layer_types": renamed, "sliding_window": values[window]}


def chunked(values: Values, tokens: int, where: str) -> float:
    """Share of the score matrix where some layers look at the tokens of their own chunk alone."""
    chunk, kinds, count = values["sliding_window"], values["layer_types"], values["num_hidden_layers"]
    if len(kinds) != count:
        fail(where, "layer_types", list(kinds), f"one for each of the {count} layers")
    inside = kinds.count("sliding_attention") / count
    return 0.5 * (1 - inside + inside * min(1.0, (chunk or tokens) / tokens))


def windowed(values: Values, tokens: int, where: str) -> dict[str, Any]:
    """Windows on some layers as a builder's arguments; where they follow no pattern, the density that they leave."""
    window, layers = values.get("sliding_window"), values["num_hidden_layers"]
    kinds = values.get("layer_types")
    if kinds is not None and len(kinds) != layers:
        fail(where, "layer_types", list(kinds), f"one for each of the {layers} layers")
    if kinds is not None:
        inside = [kind == "sliding_attention" for kind in kinds]
        if any(inside) and window is None:
            fail(where, "sliding_window", window, COUNT.expected)
    elif not values.get("use_sliding_window", True):
        inside = [False] * layers
    else:
        inside = [layer >= values.get("max_window_layers", 0) for layer in range(layers)]
    if window is None or not any(inside):
        return {}
    every = 0 if all(inside) else inside.index(False) + 1
    if inside == [not every or layer % every != every - 1 for layer in range(layers)]:
        return {"window": window, "full_every": every or None}
    return {"causal_density": causal_density(window, sum(inside) / layers, tokens)}
