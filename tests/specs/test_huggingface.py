"""Published configurations give the published totals; wrong ones give one clear line."""

import json
import math
import random

import pytest

from costmodel.inputs.workload import Workload, model_flop, parameters
from costmodel.models.decoder import decoder
from costmodel.specs.files import SpecError
from costmodel.specs.huggingface.config import from_config
from costmodel.specs.huggingface.names import NESTED, OTHERS, STATE_SPACES
from costmodel.specs.huggingface.table import READERS
from costmodel.specs.workloads import load_workload
from tests.support.files.configs import CONFIGS, PARAMETERS
from tests.support.files.latest_configs import OTHER_SIZES
from tests.support.files.other_configs import printed

SEEDS = range(220)


def read(config, sequence: int | None = 512, batch: int | None = 8):
    return from_config(config, "config.json", None if config.get("model_type") == "swin" else sequence, batch)


@pytest.mark.parametrize("kind", CONFIGS)
def test_published_configurations_give_published_totals(kind):
    assert parameters(read(CONFIGS[kind])) == PARAMETERS[kind]


@pytest.mark.parametrize("name", OTHER_SIZES)
def test_other_sizes_of_a_type(name):
    config, total = OTHER_SIZES[name]
    assert parameters(read(config)) == total


@pytest.mark.parametrize("name", printed(CONFIGS))
def test_totals_are_those_that_were_printed(name):
    config, billions = printed(CONFIGS)[name]
    digits = len(billions.partition(".")[2])
    assert f"{parameters(read(config)) / 1e9:.{digits}f}" == billions


def test_what_smollm3_leaves_out_is_what_its_class_has():
    """Its embeddings are tied, and its class has no `max_window_layers`."""
    dropped = ("tie_word_embeddings", "max_window_layers", "sliding_window", "use_sliding_window")
    assert read({k: v for k, v in CONFIGS["smollm3"].items() if k not in dropped}) == read(CONFIGS["smollm3"])


def test_every_reader_has_a_published_configuration():
    assert set(READERS) | set(NESTED) == set(CONFIGS) | set(NESTED.values()) | {"mt5"}


@pytest.mark.parametrize("kind", CONFIGS)
def test_a_file_is_read_as_the_mapping_is(kind, tmp_path):
    path = tmp_path / "config.json"
    path.write_text(json.dumps(CONFIGS[kind]))
    built = load_workload(path, sequence=None if kind == "swin" else 512, batch=8)
    assert parameters(built) == PARAMETERS[kind]
    assert built.batch == 8


def test_without_a_model_type_the_architecture_says_it():
    config = {key: value for key, value in CONFIGS["llama"].items() if key != "model_type"}
    assert parameters(read(config)) == PARAMETERS["llama"]


def test_the_same_workload_as_the_named_one():
    mine = read(CONFIGS["llama"], sequence=8192, batch=512)
    assert mine.blocks == load_workload("llama3-8b").blocks
    assert read(CONFIGS["mbart"], sequence=1024, batch=256).blocks == load_workload("mbart-large").blocks
    assert read(CONFIGS["bert"], sequence=512, batch=256).blocks == load_workload("bert-base").blocks
    for kind, name in (("mixtral", "mixtral-8x7b"), ("qwen3_moe", "qwen3-235b-a22b"), ("deepseek_v3", "deepseek-v3")):
        named = load_workload(name)
        assert read(CONFIGS[kind], sequence=named.sequence, batch=named.batch).blocks == named.blocks


def test_windows_shorten_the_attention():
    """Mistral: each token looks at 4,096 tokens or all before it, whichever are fewer."""
    whole = {**CONFIGS["mistral"], "sliding_window": None}
    tokens, window = 16384, 4096
    seen = sum(min(t, window) for t in range(1, tokens + 1)) / tokens**2
    difference = model_flop(read(whole, tokens)) - model_flop(read(CONFIGS["mistral"], tokens))
    expected = 3 * 32 * 4 * tokens**2 * 4096 * (0.5 - seen)
    assert difference == pytest.approx(expected, rel=1e-3)
    assert model_flop(read(whole, 2048)) == model_flop(read(CONFIGS["mistral"], 2048))


def test_old_and_new_names_of_a_key():
    new = {key: value for key, value in CONFIGS["gpt2"].items() if key not in ("n_embd", "n_layer", "n_ctx")}
    assert parameters(read({**new, "hidden_size": 768, "num_hidden_layers": 12})) == PARAMETERS["gpt2"]
    experts = {key: value for key, value in CONFIGS["mixtral"].items() if key != "num_local_experts"}
    assert parameters(read({**experts, "num_experts": 8})) == PARAMETERS["mixtral"]
    later = {key: value for key, value in CONFIGS["deepseek_v3"].items() if key != "num_nextn_predict_layers"}
    later = {**later, "num_mtp_layers": 1, "rope_parameters": {}, "dtype": "bfloat16"}
    assert parameters(read(later)) == PARAMETERS["deepseek_v3"]
    assert parameters(read({**later, "mtp_num_layers": 0})) == PARAMETERS["deepseek_v3"]
    assert parameters(read({**later, "mtp_num_layers": 1})) == 671_026_404_352 + 11_610_067_968
    with pytest.raises(SpecError, match="`n_ctx` is 512; expected 1024, as `n_positions`"):
        read({**CONFIGS["gpt2"], "n_ctx": 512})


@pytest.mark.parametrize(
    ("kind", "change", "words"),
    [
        ("llama", {"model_type": "lama"}, "did you mean llama"),
        ("llama", {"model_type": 3}, "`model_type` is 3"),
        ("llama", {"num_hidden_layers": -2}, "`num_hidden_layers` is -2; expected an integer from 1"),
        ("llama", {"num_key_value_heads": 7}, "`num_key_value_heads` is 7; expected a divisor"),
        ("llama", {"hidden_size": float("nan")}, "`hidden_size` is nan"),
        ("llama", {"swiglu_limit": 7.0}, "`swiglu_limit` is 7.0, a key that is not understood"),
        ("llama", {"add_cross_attention": True}, "`add_cross_attention` is true; expected false or null"),
        ("gpt2", {"n_head": 7}, "`n_head` is 7; expected a divisor of `n_embd` \\(768\\)"),
        ("bert", {"position_embedding_type": "relative_key"}, "expected 'absolute'"),
        ("t5", {"feed_forward_proj": "swish"}, "`feed_forward_proj` is 'swish'"),
        ("swin", {"window_size": 9}, "`window_size` is 9; expected a divisor of the side of 56"),
        ("swin", {"num_heads": [3, 6]}, "`num_heads` is"),
        ("qwen3_moe", {"mlp_only_layers": [3]}, "`mlp_only_layers` is \\[3\\]; expected an empty list"),
        ("qwen3_moe", {"decoder_sparse_step": 2}, "`decoder_sparse_step` is 2; expected 1"),
        ("deepseek_v3", {"q_lora_rank": None}, "`q_lora_rank` is None"),
        ("deepseek_v3", {"first_k_dense_replace": 61}, "fewer than `num_hidden_layers`"),
        ("mixtral", {"num_experts_per_tok": 9}, "at most the 8 experts"),
        ("qwen3", {"layer_types": ["full_attention"]}, "one for each of the 28 layers"),
        ("qwen3", {"layer_types": ["linear_attention"] * 28}, "`layer_types` is"),
        ("phi3", {"full_attn_mod": 2}, "`full_attn_mod` is 2; expected 1"),
        ("minimax_m2", {"attn_type_list": [0, 1]}, "`attn_type_list` is \\[0, 1\\]; expected a list of ones"),
        ("minimax_m2", {"shared_intermediate_size": 8192}, "`shared_intermediate_size` is 8192; expected 0"),
        ("seed_oss", {"attention_out_bias": True}, "`attention_out_bias` is true; expected false"),
        (
            "qwen2_moe",
            {"moe_intermediate_size": 1400},
            "`shared_expert_intermediate_size` is 5632",
        ),
    ],
)
def test_wrong_configurations(kind, change, words):
    with pytest.raises(SpecError, match=words):
        read({**CONFIGS[kind], **change})


@pytest.mark.parametrize("kind", sorted(STATE_SPACES))
def test_state_spaces_are_refused_by_name(kind):
    with pytest.raises(
        SpecError, match=f"`model_type` is '{kind}', whose layers of state spaces or linear attention are"
    ):
        read({**CONFIGS["llama"], "model_type": kind})


@pytest.mark.parametrize("kind", sorted(OTHERS) + ["gemma33", "llama5", "qwen4", "phi4", "gpt3", "bart", "mistral4"])
def test_no_architecture_is_taken_for_a_misspelling_of_another(kind):
    with pytest.raises(SpecError) as refusal:
        read({**CONFIGS["llama"], "model_type": kind})
    assert "which is not read; expected one of apertus, " in str(refusal.value)
    assert "did you mean" not in str(refusal.value)


@pytest.mark.parametrize(("wrong", "right"), [("lama", "llama"), ("mistrall", "mistral"), ("gpt_oos", "gpt_oss")])
def test_misspellings_are_named(wrong, right):
    with pytest.raises(SpecError, match=f"did you mean {right}"):
        read({**CONFIGS["llama"], "model_type": wrong})


def test_chunks_and_windows_of_later_models_shorten_the_attention():
    for kind, tokens in (("llama4", 65536), ("gemma3_text", 8192), ("gpt_oss", 8192), ("olmo3", 16384)):
        blocks = read(CONFIGS[kind], tokens).blocks
        density = next(op.density for block in blocks for op in block.ops if op.name == "attention")
        inside = {"llama4": 0.75, "gemma3_text": 22 / 26, "gpt_oss": 0.5, "olmo3": 0.75}[kind]
        assert 0.5 * (1 - inside) < density < 0.5 * (1 - inside) + 0.2
    short = next(op.density for op in read(CONFIGS["llama4"], 4096).blocks[1].ops if op.name == "attention")
    assert short == 0.5


def test_a_text_part_is_needed():
    with pytest.raises(SpecError, match="`text_config` is missing; expected the part of llama4"):
        read({"model_type": "llama4", "vision_config": {}})


def test_gpt2_without_its_dropout():
    config = {key: value for key, value in CONFIGS["gpt2"].items() if key != "resid_pdrop"}
    assert read(config) == read(CONFIGS["gpt2"])


def test_what_the_file_does_not_hold():
    with pytest.raises(SpecError, match="`sequence` is missing"):
        read(CONFIGS["llama"], sequence=None)
    with pytest.raises(SpecError, match="`batch` is missing"):
        read(CONFIGS["llama"], batch=None)
    with pytest.raises(SpecError, match="at most the 1024 positions"):
        read(CONFIGS["gpt2"], sequence=2048)
    with pytest.raises(SpecError, match="an image has 3136 tokens"):
        from_config(CONFIGS["swin"], "config.json", 512, 8)


@pytest.mark.parametrize("kind", CONFIGS)
def test_a_dropped_key_is_an_error_unless_it_changes_nothing(kind):
    """A file without a key means the same as with it, or is refused: no silent default."""
    whole = read(CONFIGS[kind])
    for key in CONFIGS[kind]:
        rest = {other: value for other, value in CONFIGS[kind].items() if other != key}
        said = outcome(rest, sequence=None if kind == "swin" else 512)
        assert said == whole or f"`{key}` is missing" in str(said), key


def outcome(config, sequence: int | None) -> Workload | str:
    """The workload, or the message that there is none."""
    try:
        return from_config(config, "config.json", sequence, 8)
    except SpecError as error:
        return str(error)


WRONG = (
    None, True, False, "", "12", "a\nb", [], {}, [1, "x"], {"a": 1}, 0, -1, 1.5, 4096.0, 10**19, 10**17, 7, 1e300,
    10**400, float("nan"), float("inf"), -float("inf"),
)  # fmt: skip


def fuzzed(seed):
    """A configuration with one to three keys dropped, changed, renamed or added."""
    draw = random.Random(seed)
    config = dict(CONFIGS[draw.choice(list(CONFIGS))])
    for _ in range(draw.randint(1, 3)):
        key = draw.choice(list(config))
        kind = draw.choice(("drop", "change", "change", "change", "rename", "add"))
        if kind == "drop":
            del config[key]
        elif kind == "rename":
            config[f"{key}_"] = config.pop(key)
        else:
            config[key if kind == "change" else f"key {seed}"] = draw.choice(WRONG)
    return config


@pytest.mark.parametrize("seed", SEEDS)
def test_fuzzed_configurations_give_an_answer_or_one_clear_line(seed):
    config = fuzzed(seed)
    said = outcome(config, sequence=None if "embed_dim" in config else 512)
    if isinstance(said, str):
        assert said.startswith("config.json: ")
        assert said.isprintable()
        assert "`" in said
        assert len(said) < 1500
    else:
        assert parameters(said) > 0
        assert math.isfinite(float(model_flop(said)))


def test_a_decoder_of_qwen3_has_norms_of_queries_and_keys():
    plain = decoder(layers=1, hidden=64, heads=4, ffn=64, vocabulary=10, sequence=8, batch=1)
    normed = decoder(layers=1, hidden=64, heads=4, ffn=64, vocabulary=10, sequence=8, batch=1, qk_norm=True)
    assert parameters(normed) - parameters(plain) == 2 * 16
