"""What frameworks refuse, or read otherwise than meant: each is written right, or said to be impossible beforehand.

The real parsers were fed with such files (`.ci/nightly` does it again where the packages are): each case here was a
fault once.
"""

import json
import subprocess

import pytest

from costmodel.inputs.plan import Plan
from costmodel.specs.huggingface.config import from_config
from costmodel.specs.loading import load_cluster
from costmodel.specs.workloads import load_workload
from optimize.launch.frameworks import FRAMEWORKS, Known, framework_at, launch, read
from optimize.launch.text import parse_overrides
from tests.support.files.configs import CONFIGS

DENSE = {"data": 8, "tensor": 4, "pipeline": 2, "sequence_parallel": True}
EXPERTS = {"data": 32, "tensor": 1, "pipeline": 2, "expert": 8}
WORKLOADS = {"dense": load_workload("llama3-70b", batch=256), "experts": load_workload("mixtral-8x7b", batch=256)}


def of(name, model="dense", cluster="h100", version=None, **fields):
    """What the framework cannot be told of a plan, and the file."""
    plan = Plan(**{**(DENSE if model == "dense" else EXPERTS), **fields})
    machine, workload = load_cluster(cluster, plan.accelerators), WORKLOADS[model]
    said = framework_at(name, version).cannot(plan, workload, machine)
    return " ".join(said), launch(name, plan, workload, machine, version)


REFUSED = {
    "experts' overlap, pipeline": ("megatron", "experts", {"overlap_expert": True}, "`pipeline` 2 without"),
    "experts' overlap, full recompute": (
        "megatron", "experts", {"pipeline": 1, "overlap_expert": True, "recompute": "full"}, "with full recompute",
    ),
    "experts' overlap, fp32": (
        "megatron-bridge", "experts", {"pipeline": 1, "overlap_expert": True, "precision": "fp32"}, "with fp32",
    ),
    "experts' overlap, no experts apart": (
        "megatron", "experts", {"pipeline": 1, "overlap_expert": True, "expert": 1, "expert_tensor": 2}, "`expert` 1",
    ),
    "sgd with the distributed optimizer": ("megatron", "dense", {"optimizer": "sgd"}, "states of adam alone"),
    "bridge: gradients of Megatron-FSDP in 32 bits": (
        "megatron-bridge", "dense", {"zero_stage": 3, "pipeline": 1}, "`gradient_dtype`",
    ),
    "deepspeed: ranks that share weights": (
        "deepspeed", "dense",
        {"pipeline": 1, "zero_stage": 3, "data_shard": 4, "sequence_parallel": False}, "`data_shard`",
    ),
    "deepspeed: ZeRO 0 adds up in the weights' type": (
        "deepspeed", "dense",
        {"zero_stage": 0, "overlap_data": False, "sequence_parallel": False}, "`gradient_dtype` is",
    ),
    "maxtext: heads exchanged on GPUs": (
        "maxtext", "dense",
        {"pipeline": 1, "context": 2, "context_kind": "all_to_all", "zero_stage": 3}, "on TPUs only",
    ),
    "maxtext: products overlap in 8 bits alone": (
        "maxtext", "dense", {"schedule": "gpipe", "overlap_tensor": True}, "`overlap_tensor`",
    ),
    "torchtitan 0.3.0: gradients in bf16": (
        "torchtitan", "dense", {"gradient_dtype": "bf16", "zero_stage": 2}, "`gradient_dtype`",
    ),
    "torchtitan 0.3.0: deferred reduction": ("torchtitan", "dense", {"zero_stage": 1}, "`zero_stage` is 1"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_what_a_framework_refuses_is_said_beforehand(case):
    name, model, fields, words = REFUSED[case]
    said, text = of(name, model, **fields)
    assert words in said
    assert said.split("; ")[0].split("`")[1] in text  # named at the head of the file


@pytest.mark.parametrize("name", FRAMEWORKS)
def test_the_head_names_the_version(name):
    framework = FRAMEWORKS[name]
    head = of(name)[1].splitlines()[:4]
    assert any(f"written for {framework.title} {framework.version}" in line for line in head)


def test_maxtext_names_the_hardware_and_overlaps_where_it_may():
    assert "hardware: gpu\n" in of("maxtext", schedule="gpipe")[1]
    assert "te_comm_gemm_overlap: disabled" in of("maxtext", schedule="gpipe", overlap_tensor=True)[1]
    said, text = of("maxtext", schedule="gpipe", overlap_tensor=True, precision="fp8_tensor")
    assert said == ""
    lines = ("te_comm_gemm_overlap: full", "quantization: te_fp8_delayedscaling", "hardware: gpu_multiprocess")
    assert all(line in text for line in lines)
    assert "one process for each GPU" in text


@pytest.mark.parametrize("kind", ["ring", "all_to_all"])
def test_maxtext_on_tpus_takes_tokamax(kind):
    plan = {"pipeline": 1, "context": 2, "context_kind": kind, "zero_stage": 3}
    said, text = of("maxtext", cluster="tpu-v5p", **plan)
    assert said == ""
    assert "hardware: tpu" in text
    assert "use_tokamax_splash: true" in text
    assert ("context_parallel_load_balance: false" in text) == (kind == "all_to_all")


def test_fsdps_gradients_have_flags_of_their_own():
    text = of("megatron", zero_stage=3, pipeline=1)[1]
    assert "--megatron-fsdp-main-grads-dtype fp32" in text
    assert read(text).fields["gradient_dtype"] == "fp32"
    bare = "\n".join(line for line in text.splitlines() if "-grads-dtype" not in line and "-grad-comm" not in line)
    assert read(bare).fields["gradient_dtype"] == "bf16"  # Megatron's own default is the type of the weights


def test_bridge_writes_what_a_recipe_may_have_left_set():
    ((_, settings),) = parse_overrides(of("megatron-bridge")[1])
    assert settings["comm_overlap"] is None
    off = (
        "virtual_pipeline_model_parallel_size", "recompute_method", "recompute_num_layers", "recompute_modules",
        "pipeline_model_parallel_layout", "recompute_granularity",
    )  # fmt: skip
    assert all(settings[f"model.{name}"] is None for name in off)
    assert settings["ddp.num_distributed_optimizer_instances"] == 1
    assert settings["optimizer.use_precision_aware_optimizer"] is False
    overlapped = {"pipeline": 4, "data": 16, "virtual_stages": 2, "schedule": "interleaved", "overlap_expert": True}
    ((_, experts),) = parse_overrides(of("megatron-bridge", "experts", **overlapped)[1])
    assert experts["model.overlap_moe_expert_parallel_comm"] is True
    assert experts["model.moe_shared_expert_overlap"] is False


@pytest.mark.parametrize("field", ["model", "comm_overlap"])
def test_bridges_overlap_of_experts_is_read_from_both_sections(field):
    words = f"model.tensor_model_parallel_size=1 train.micro_batch_size=1 {field}.overlap_moe_expert_parallel_comm=true"
    assert read(words).fields["overlap_expert"] is True


def test_a_shell_leaves_bridges_words_as_they_are():
    text = of("megatron-bridge", stage_layers=(39, 41))[1]
    words = " ".join(line for line in text.splitlines() if not line.startswith("#"))
    out = subprocess.run(["bash", "-c", f"printf '%s\\n' {words}"], capture_output=True, text=True, check=True).stdout
    assert 'model.pipeline_model_parallel_layout="Et*39|t*41L"' in out.splitlines()


def test_deepspeed_counts_tensor_ranks_as_data_ranks():
    """Without a topology; with a pipeline the note has one."""
    plan = {"data": 16, "pipeline": 1, "sequence_parallel": False}
    text = of("deepspeed", **plan)[1]
    assert "train_batch_size" not in json.loads(text)
    found = read(text)
    assert (found.fields["data"], found.facts["batch"], found.facts["accelerators"]) == (16, 256, 64)
    piped = of("deepspeed", sequence_parallel=False)[1]
    assert json.loads(piped)["train_batch_size"] == 256
    assert "PipeModelDataParallelTopology(num_pp=2, num_mp=4, num_dp=8)" in piped


@pytest.mark.parametrize("optimizer", ["sgd", "adafactor", "adam"])
def test_deepspeed_is_told_of_optimizers_that_it_has_not_tested(optimizer):
    content = json.loads(of("deepspeed", optimizer=optimizer, sequence_parallel=False)[1])
    assert content.get("zero_allow_untested_optimizer", False) == (optimizer != "adam")


def test_torchtitan_is_written_for_its_release_or_for_what_follows():
    released, later = of("torchtitan", zero_stage=2)[1], of("torchtitan", zero_stage=2, version="main")[1]
    for name in ("local_batch_size = 32", "global_batch_size", "seq_len", "pipeline_parallel_microbatch_size = 1"):
        assert name in released
        assert name not in later
    for name in ("num_tokens_per_train_step", "num_pp_microbatches", "max_context_length", "fsdp_defer"):
        assert name in later
        assert name not in released


NAMED = ("llama3-70b", "mixtral-8x7b", "deepseek-v3", "gpt3-175b", "qwen3-235b-a22b")
DECODERS = sorted(
    set(CONFIGS) - {"bert", "mbart", "swin", "t5"} - {"gemma3", "llama4", "mistral3", "qwen3_vl", "qwen3_vl_moe"}
)
NOT_SAID = {
    "megatron": {
        "cohere", "cohere2", "falcon", "gemma2", "gemma3_text", "glm4", "minimax_m2", "olmo2", "olmo3", "olmoe",
        "gptj", "phi",
    },
    "megatron-bridge": {
        "cohere", "cohere2", "falcon", "glm4", "gpt2", "minimax_m2", "olmo2", "olmo3", "olmoe", "gpt_bigcode", "gptj",
        "opt", "phi",
    },
    "maxtext": {
        "cohere", "cohere2", "dots1", "ernie4_5_moe", "exaone4", "falcon", "qwen2_moe", "stablelm",
        "gpt3-175b", "glm4", "glm4_moe", "gpt2", "gpt_neox", "minimax_m2", "mistral", "nemotron", "olmo2", "olmoe",
        "phi3", "seed_oss", "bloom", "gpt_bigcode", "gptj", "opt", "phi", "starcoder2",
    },
}  # fmt: skip
"""Models of which options do not say something: norms, biases, windows, learned positions, parallel branches."""


@pytest.mark.parametrize("name", NOT_SAID)
@pytest.mark.parametrize("model", [*NAMED, *DECODERS])
def test_the_model_stands_in_the_file(name, model):
    """Its dimensions, so that the file is complete; read back, they build the same model."""
    named = model in NAMED
    workload = load_workload(model, batch=64) if named else from_config(CONFIGS[model], "config.json", 512, 64)
    plan = Plan(data=8, zero_stage=3, gradient_dtype="bf16")
    text = launch(name, plan, workload, load_cluster("h100", 8))
    found = read(text, name, Known())
    if model in NOT_SAID[name]:
        assert isinstance(found.model, str)
        assert "the model, which these options do not say" in text or "a recipe" in text
    else:
        assert workload_of(found).blocks == workload.blocks


def test_windows_and_sinks_of_gpt_oss_are_flags_of_megatron():
    """As its own script for gpt-oss-120b has them; a plan that its kernels refuse is refused before."""
    workload = from_config(CONFIGS["gpt_oss"], "config.json", 4096, 64)
    text = launch("megatron", Plan(data=8), workload, load_cluster("h100", 8))
    for flag in ("--window-size 127,0", "--window-attn-skip-freq 2", "--softmax-type learnable", "--quick-geglu"):
        assert flag in text
    assert "--disable-bias-linear" not in text
    exchanged = Plan(data=4, context=2, context_kind="all_to_all")
    for plan, word in ((Plan(data=4, context=2), "ring"), (Plan(data=4, tensor=2, expert_tensor=2), "biases")):
        assert word in " ".join(FRAMEWORKS["megatron"].cannot(plan, workload))
    assert FRAMEWORKS["megatron"].cannot(exchanged, workload) == ()


def test_a_pattern_of_windows_that_is_none_is_not_read():
    text = "--micro-batch-size 1 --num-layers 4 --hidden-size 64 --num-attention-heads 4 --vocab-size 512 --swiglu "
    text += "--position-embedding-type rope --window-size 127,0 --window-attn-skip-freq "
    first, *others = [read(text + pattern).model for pattern in ("2", "'[1,0]*2'", "'([1]+[0])*2'", "'[1,0,1,0]'")]
    assert not isinstance(first, str)
    assert (first["window"], first["full_every"]) == (128, 2)
    assert all(model == first for model in others)
    for pattern in ("'[0,1]*2'", "'[1,0]*3'", "'[1,2]*2'", "x", "'([1]*99999)*99999'"):
        assert "window-attn-skip-freq" in read(text + pattern).model


def workload_of(found):
    from optimize.launch.dimensions import build

    assert not isinstance(found.model, str), found.model
    return build(found.model, found.facts["sequence"], 64)


def test_a_number_format_is_not_chosen_for_what_goes_with_it():
    """MaxText overlaps tensor traffic in 8 bits alone; the search stays in 16."""
    from optimize.plans.restricted import narrowed

    framework, usual = FRAMEWORKS["maxtext"], {"precision": "bf16"}
    kept = narrowed(framework, {}, usual)
    assert 0 < len(kept) < len(framework.alternatives)
    assert all(fields["precision"] == "bf16" for fields in kept)
    assert all(
        fields["precision"] == "fp8_tensor" for fields in narrowed(framework, {"precision": "fp8_tensor"}, usual)
    )
    assert narrowed(framework, {}, {"precision": "fp16"})


def test_what_random_plans_found_the_parsers_to_refuse():
    """Latents computed again without latent attention, and weights shared in groups of one."""
    assert "latent attention only" in of("megatron", "experts", recompute="latent")[0]
    assert "nothing is shared" in of("maxtext", pipeline=1, zero_stage=3, data_shard=1)[0]
    several = of("maxtext", pipeline=1, zero_stage=3, precision="fp8_tensor")
    assert several[0] == ""
    assert "quantization: te_fp8_currentscaling" in several[1]
    narrow = {"pipeline": 1, "data": 16, "zero_stage": 3, "precision": "fp8_tensor", "cluster": "tpu-v5p"}
    assert "accumulates no gradients" in of("maxtext", **narrow)[0]
    assert "accumulates" not in of("maxtext", microbatch=16, **narrow)[0]
    latent = load_workload("deepseek-v3", batch=64)
    assert FRAMEWORKS["megatron"].cannot(Plan(data=8, recompute="latent"), latent) == ()
