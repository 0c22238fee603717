"""Launch files as people see them: their text, what tells them apart, what is said of a wrong one."""

import dataclasses
import math
import re
import time

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from costmodel.inputs.plan import Plan
from costmodel.specs.files import SpecError
from costmodel.specs.huggingface.config import from_config
from costmodel.specs.loading import load_cluster
from costmodel.specs.workloads import load_workload
from optimize.launch.frameworks import FRAMEWORKS, Known, framework_of, launch, read
from optimize.launch.plan_files import read_plan_file
from tests.support import GOLDEN
from tests.support.files.configs import CONFIGS

LAUNCH = GOLDEN / "launch"
DENSE = Plan(data=16, tensor=8, pipeline=4, sequence_parallel=True, microbatch=1)
EXPERTS = Plan(data=64, pipeline=4, expert=32, microbatch=1)
PLANS = {
    ("megatron", "dense"): {
        "virtual_stages": 5, "schedule": "interleaved", "overlap_tensor": True, "overlap_pipeline": True,
        "recompute": "full", "recompute_share": 0.5, "precision": "fp8_block",
    },
    ("megatron", "experts"): {"stage_layers": (16, 16, 15, 14), "state_dtype": "bf16"},
    ("megatron-bridge", "dense"): {"recompute": "selective", "zero_stage": 0, "precision": "mxfp8"},
    ("megatron-bridge", "experts"): {
        "stage_layers": (16, 16, 15, 14), "zero_stage": 3, "data_shard": 32, "gradient_dtype": "bf16",
    },
    ("torchtitan", "dense"): {"virtual_stages": 5, "schedule": "interleaved", "recompute": "full", "zero_stage": 2},
    ("torchtitan", "experts"): {"stage_layers": (15, 16, 16, 14), "zero_stage": 2},
    ("maxtext", "dense"): {
        "schedule": "gpipe", "overlap_tensor": True, "recompute": "selective", "precision": "fp8_tensor",
    },
    ("maxtext", "experts"): {"pipeline": 1, "data": 256, "zero_stage": 3, "precision": "fp8_tensor"},
    ("deepspeed", "dense"): {"sequence_parallel": False, "recompute": "full"},
    ("deepspeed", "experts"): {"pipeline": 1, "data": 128, "context": 2, "context_kind": "all_to_all", "zero_stage": 2},
}  # fmt: skip
MODELS = {"dense": (DENSE, "llama3-70b", 512), "experts": (EXPERTS, "deepseek-v3", 256)}
TITLES = [f"{name}-{model}" for name, model in PLANS]


def written(name, model):
    plan, title, batch = MODELS[model]
    plan = dataclasses.replace(plan, **PLANS[name, model])
    workload = load_workload(title, batch=batch)
    return plan, workload, launch(name, plan, workload, load_cluster("h100", plan.accelerators))


@pytest.mark.parametrize(("name", "model"), PLANS, ids=TITLES)
def test_the_text_is_the_one_that_was_read_over(name, model):
    """Files that were compared with each framework's own options by eye. One that changes is to be read over again."""
    plan, workload, text = written(name, model)
    assert FRAMEWORKS[name].cannot(plan, workload) == ()
    assert text == (LAUNCH / f"{name}-{model}.txt").read_text()


@pytest.mark.parametrize(("name", "model"), PLANS, ids=TITLES)
def test_files_are_told_apart_by_their_content(name, model):
    text = written(name, model)[2]
    found = framework_of(text)
    assert found is not None
    assert found.name == name
    parsed = {each.name: options_of(each, text) for each in FRAMEWORKS.values()}
    assert [each for each, options in parsed.items() if options & FRAMEWORKS[each].signs] == [name]


def options_of(framework, text):
    try:
        return {option for _, settings in framework.parse(text) for option in settings}
    except SpecError:
        return set()


@pytest.mark.parametrize("text", ["", "{}", "tensor = 8\npipeline = 2\n", '{"plan": {"tensor": 8}}', "hello --world"])
def test_other_files_are_not_launch_files(text):
    assert framework_of(text) is None
    with pytest.raises(SpecError, match="not a launch file; expected one of megatron, "):
        read(text)


def test_an_answer_that_holds_a_launch_file_is_not_one():
    assert framework_of('{"plan": {"tensor": 8}, "launch": "--tensor-model-parallel-size 8"}') is None


SCRIPT = r"""
#!/bin/bash
# what people write: variables, arrays, a torchrun in front
export CUDA_DEVICE_MAX_CONNECTIONS=1
TP=8
PP=${PP:-4}
PP=4
NODES=16
MODEL_PARALLEL_ARGS=(
    --tensor-model-parallel-size $TP   # in a node
    --pipeline-model-parallel-size=${PP}
    --sequence-parallel
)
TRAINING_ARGS=(
    --micro-batch-size 1 --global_batch_size 1536
    --bf16 --lr 6.0e-5 --train-iters 500000
    --moe-expert-capacity-factor 1.25
    --recompute-activations
    --use-distributed-optimizer --overlap-grad-reduce --overlap-param-gather
)
torchrun --nproc-per-node 8 --nnodes $NODES pretrain_gpt.py ${MODEL_PARALLEL_ARGS[@]} ${TRAINING_ARGS[@]} \
    --num-layers 96 --seq-length 2048
"""


def test_a_shell_script_of_someone_else():
    found = read(SCRIPT, "train.sh", Known(accelerators=128))
    told = {"tensor": 8, "pipeline": 4, "data": 4, "sequence_parallel": True, "recompute": "selective", "zero_stage": 1}
    assert told.items() <= found.fields.items()
    assert found.facts == {"batch": 1536, "sequence": 2048, "layers": 96, "accelerators": 128}
    assert found.unread == ("moe-expert-capacity-factor",)


def test_the_yaml_of_overrides_reads_as_their_words_do():
    yaml = "model:\n  tensor_model_parallel_size: 4  # in a node\n  sequence_parallel: true\n"
    yaml += "train:\n  global_batch_size: 64\n"
    words = "python run.py model.tensor_model_parallel_size=4 model.sequence_parallel=true train.global_batch_size=64"
    first, second = (read(text, "overrides", Known(accelerators=8)) for text in (yaml, words))
    assert first.fields == second.fields
    assert first.fields["tensor"] == 4
    assert first.facts == second.facts == {"batch": 64, "accelerators": 8}


def test_flags_of_torchtitan_read_as_assignments_do():
    flags = "./run_train.sh --parallelism.tensor_parallel_degree 2 --parallelism.data_parallel_shard_degree=4"
    lines = "def use(c):\n  c.parallelism.tensor_parallel_degree = 2\n  c.parallelism.data_parallel_shard_degree = 4\n"
    assert read(flags).fields == read(lines).fields
    assert read(flags).fields["data"] == 4


def test_older_names_of_torchtitan():
    text = "--parallelism.data_parallel_shard_degree 4 --training.local_batch_size 2 --training.seq_len 4096"
    found = read(text + " --training.global_batch_size 16")
    assert (found.fields["microbatch"], found.facts["batch"], found.facts["sequence"]) == (2, 16, 4096)


def test_sizes_that_deepspeed_leaves_to_be_derived():
    found = read('{"train_batch_size": 64, "train_micro_batch_size_per_gpu": 2}', "ds.json", Known(accelerators=8))
    assert (found.fields["data"], found.fields["microbatch"], found.facts["batch"]) == (8, 2, 64)
    auto = read(
        '{"train_micro_batch_size_per_gpu": 2, "gradient_accumulation_steps": 4}', "ds.json", Known(accelerators=8)
    )
    assert auto.facts["batch"] == 64


def test_axes_that_maxtext_fills_by_itself():
    """`ici_fsdp_parallelism` is -1 where it is not given: all that is left."""
    text = "python3 -m maxtext.train base.yml ici_tensor_parallelism=4 per_device_batch_size=1 max_target_length=2048"
    found = read(text, "run.sh", Known(accelerators=32))
    assert (found.fields["data"], found.fields["zero_stage"], found.fields["microbatch"]) == (8, 3, 4)
    assert found.facts["batch"] == 32


@pytest.mark.parametrize("slices", [8, 64])
def test_maxtexts_mesh_multiplies_to_the_devices(slices):
    """Inside a slice to its size, between slices to their number: whatever the plan."""
    cluster = load_cluster("h100", 256)
    tiers = (dataclasses.replace(cluster.tiers[0], size=slices, usable_size=slices), *cluster.tiers[1:])
    workload = load_workload("llama3-70b", batch=512)
    for tensor, context, pipeline, zero in ((8, 1, 1, 3), (2, 4, 4, 3), (16, 1, 2, 1), (1, 1, 1, 3), (4, 2, 8, 0)):
        data = 256 // (tensor * context * pipeline)
        plan = Plan(data=data, tensor=tensor, context=context, pipeline=pipeline, zero_stage=zero)
        text = launch("maxtext", plan, workload, dataclasses.replace(cluster, tiers=tiers))
        sizes = {line.split(":")[0]: int(line.split()[1]) for line in text.splitlines() if "_parallelism" in line}
        inner, outer = (math.prod(v for name, v in sizes.items() if name.startswith(part)) for part in ("ici", "dcn"))
        assert (inner, outer) == (slices, 256 // slices)


ERRORS = {
    "--tensor-model-parallel-size zero": "`tensor-model-parallel-size` is 'zero'; expected an integer >= 1",
    "--micro-batch-size 1 --fp8-format hybrid --fp8-recipe mine": "`fp8-recipe` is 'mine'; expected one of delayed, ",
    "--micro-batch-size $MBS": "`micro-batch-size` is '$MBS'; expected an integer >= 1",
    "--micro-batch-size 1 --num-layers-per-virtual-pipeline-stage 2": "expected `num-layers` with it",
    "--micro-batch-size 1 --pipeline-model-parallel-layout 'Etx|tL'": "`pipeline-model-parallel-layout` is 'Etx|tL'",
    "--micro-batch-size 1 --exp-avg-dtype bf16": "`exp-avg-sq-dtype` is None; expected bf16",
    "train.micro_batch_size=1 mixed_precision=mine": "`mixed_precision` is 'mine'; expected one of fp16_mixed, ",
    "train.micro_batch_size=1 model.cp_comm_type=allgather": "`model.cp_comm_type` is 'allgather'; expected one of p2p",
    "--training.local_batch_size 1 --parallelism.pipeline_parallel_schedule DualPipeV": "is 'DualPipeV'; expected one",
    "--parallelism.pipeline_parallel_degree 2": "pipeline_parallel_degree` is 2; expected the model's layers",
    "ici_tensor_parallelism: 0": "`ici_tensor_parallelism` is 0; expected an integer >= 1",
    "per_device_batch_size: 1\nremat_policy: custom": "`remat_policy` is 'custom'; expected one of minimal_with",
    '{"train_batch_size": 7, "train_micro_batch_size_per_gpu": 2, "gradient_accumulation_steps": 1}': (
        "`train_batch_size` gives 7 for all data ranks; expected a multiple of 2"
    ),
    '{"zero_optimization": {"stage": 4}}': "`zero_optimization.stage` is 4; expected one of 0, 1, 2, 3",
    '{"zero_optimization": ': "not valid JSON",
    "--micro-batch-size 'open": "not valid shell text",
}


@pytest.mark.parametrize("text", ERRORS)
def test_a_wrong_option_is_named_with_its_file_in_one_line(text):
    with pytest.raises(SpecError) as refusal:
        read(text, "my_launch")
    message = str(refusal.value)
    assert message.startswith("my_launch: ")
    assert ERRORS[text] in message
    assert "\n" not in message


def test_accelerators_that_the_degrees_do_not_divide():
    with pytest.raises(
        SpecError, match="f: `accelerators` is 100; expected a multiple of tensor x context x pipeline, 8"
    ):
        read("--tensor-model-parallel-size 8", "f", Known(accelerators=100))


def test_an_unknown_launcher_is_named():
    with pytest.raises(SpecError, match="`launch` is 'megatronn'; did you mean megatron"):
        launch("megatronn", DENSE, load_workload("llama3-70b"), load_cluster("h100", 512))


def test_what_a_framework_cannot_be_told_stands_at_the_head():
    plan = dataclasses.replace(DENSE, schedule="zb_h1", optimizer="adafactor")
    text = launch("megatron", plan, load_workload("llama3-70b", batch=512), load_cluster("h100", 512))
    assert "# not said below: `schedule` is 'zb_h1'; Megatron-LM can be told " in text
    assert "# not said below: `optimizer` is 'adafactor'; Megatron-LM can be told 'adam' or 'sgd' or 'muon'" in text
    assert "adafactor" not in text.split("--", 1)[1]


JUNK = (
    "",
    "0",
    "-1",
    "x",
    "1e400",
    "nan",
    "[1,2]",
    "null",
    "true",
    "9" * 30,
    "2.5",
    "'",
    "a=b=c",
    "(((",
    "$HOME",
    "{}",
)


@given(
    st.sampled_from(sorted(path.name for path in LAUNCH.iterdir())),
    st.lists(st.tuples(st.integers(0, 40), st.sampled_from(JUNK)), min_size=1, max_size=3),
)
@example("maxtext-dense.txt", [(4, "nan")])
def test_spoilt_files_give_a_plan_or_one_line(name, spoils):
    """Values replaced by anything: an answer, or a `SpecError`, and nothing that takes long."""
    lines = (LAUNCH / name).read_text().splitlines()
    for at, junk in spoils:
        lines[at % len(lines)] = re.sub(r"([=: ])[^=: ]+( \\|,)?$", rf"\g<1>{junk}\2", lines[at % len(lines)])
    text, refused = "\n".join(lines), ""
    try:
        assert read(text, name, Known(layers=80, accelerators=512)).fields["tensor"] >= 1
    except SpecError as error:
        refused = str(error)
    assert "\n" not in refused
    assert refused == "" or refused.startswith(f"{name}: ")


@pytest.mark.parametrize("name", ["megatron", "megatron-bridge", "maxtext", "torchtitan", "deepspeed"])
def test_what_of_the_model_is_left_to_others_is_said(name):
    """A model that no option describes (sinks and windows of gpt-oss), and one whose sizes the file holds."""
    plan, cluster = Plan(data=8, zero_stage=3), load_cluster("h100", 8)
    unsaid = from_config(CONFIGS["gpt_oss"], "config.json", 512, 8)
    said = load_workload("llama3-8b", batch=8)
    texts = [launch(name, plan, workload, cluster) for workload in (unsaid, said)]
    heads = [[line for line in text.splitlines() if "outside this file" in line] for text in texts]
    assert any("model" in line for line in heads[0])
    sizes = name in ("megatron", "megatron-bridge", "maxtext")
    assert any("what of the model does not change its cost" in line for line in heads[1]) == sizes


def test_a_head_of_many_digits_is_read_at_once():
    text = launch("megatron", Plan(data=8, tensor=4), load_workload("llama3-8b", batch=8), load_cluster("h100", 32))
    started = time.process_time()
    assert read("# equipoise:" + "9" * 20_000 + "\n" + text, "job.txt").fields["tensor"] == 4
    assert time.process_time() - started < 1.0


OF_OTHERS = {
    "nanotron": "parallelism:\n  dp: 8\ntokens:\n  batch_accumulation_per_replica: 8\n",
    "LLM Foundry": "global_train_batch_size: 1024\ndevice_train_microbatch_size: 8\n",
    "Accelerate": "compute_environment: LOCAL_MACHINE\ndistributed_type: FSDP\n",
    "Axolotl": "base_model: meta-llama/Llama-3.1-8B\nsequence_len: 8192\n",
    "Hugging Face's Trainer": '{"per_device_train_batch_size": 2, "gradient_accumulation_steps": 8}',
}


@pytest.mark.parametrize("name", [*OF_OTHERS, "YAML"])
def test_configurations_of_other_software_are_refused_by_name(name, tmp_path):
    path = tmp_path / ("plan.json" if "Trainer" in name else "plan.yaml")
    path.write_text(OF_OTHERS.get(name, "hosts: 3\n"))
    with pytest.raises(SpecError, match=rf"`plan` is (?:a configuration of {name}, which is not read|{name} in which)"):
        read_plan_file(str(path), {"model": "llama3-8b"})


def test_a_plan_of_deepspeed_is_nobody_elses(tmp_path):
    path = tmp_path / "ds.json"
    path.write_text('{"train_micro_batch_size_per_gpu": 2, "zero_optimization": {"stage": 3}}')
    fields, _ = read_plan_file(str(path), {"model": "llama3-8b"})
    assert (fields["microbatch"], fields["zero_stage"]) == (2, 3)
