"""Launch files as people write them: some hundred excerpts in the style of the frameworks' repositories.

Each is written for this test (none is copied): an idiom in which options are held, times what they say. None may be
read otherwise than a shell, a YAML or a TOML reader would; what such a reader could not resolve is refused with its
line.
"""

import itertools
import json
import re

import pytest

from costmodel.specs.files import SpecError
from optimize.launch.frameworks import Known, read

KNOWN = Known(layers=32, accelerators=256)

# options of Megatron-LM in each way in which its users' scripts hold them: `{}` stands for the options
IDIOMS = {
    "array": "ARGS=(\n    {}\n)\ntorchrun --nproc_per_node 8 pretrain_gpt.py ${{ARGS[@]}}",
    "quoted array": 'ARGS=( {} )\ntorchrun pretrain_gpt.py "${{ARGS[@]}}" --save $DIR',
    "quoted string": 'GPT_ARGS="\n    {}\n"\ntorchrun $DISTRIBUTED pretrain_gpt.py $GPT_ARGS',
    "string with continued lines": 'OPTIONS=" \\\n    {} \\\n"\npython -u pretrain_gpt.py ${{OPTIONS}} $@',
    "added": 'ARGS="--bf16"\nARGS+=" {}"\neval torchrun train.py $ARGS',
    "added to an array": "A=()\nA+=(--bf16)\nA+=({})\nsrun python train.py ${{A[*]}}",
    "said in a command": "torchrun --nnodes 4 \\\n  pretrain_gpt.py \\\n  {}",
    "a command in quotes": "srun --container-image=x bash -c 'python pretrain_gpt.py {} --bf16'",
    "a command in a variable": 'run_cmd="cd x && python -u pretrain_gpt.py {}"\nsrun -l sh -c "${{run_cmd}}"',
    "a command that is handed to a shell": (
        'export LAUNCHER="torchrun \\\n --nnodes 4 \\\n "\nexport CMD=" \\\n  `pwd`/pretrain_gpt.py \\\n  {} \\\n  "\n'
        "echo $CMD\nclear; srun --jobid $ID bash -c '$LAUNCHER --node_rank $SLURM_PROCID $CMD' 2>&1 | tee main.log"
    ),
    "a heredoc": "sbatch <<EOF\n#SBATCH -N 4\nsrun python pretrain_gpt.py {}\nEOF\n",
    "a function": "launch() {{\n  local CMD=\"torchrun pretrain_gpt.py {}\"\n  $CMD\n}}\nlaunch",
    "in one branch of a known case": (
        'MODEL=8b\ncase $MODEL in\n  8b) ARGS="{}" ;;\n  *) ARGS="--tensor-model-parallel-size 64" ;;\nesac\n'
        "torchrun train.py $ARGS"
    ),
    "in one branch of a known test": (
        'FAST=1\nif [ "$FAST" == "1" ]; then ARGS="{}"; else ARGS=""; fi\npython t.py $ARGS'
    ),
    "only held": 'MODEL_ARGS="{}"\nDATA_ARGS="--mock-data"\n',
}  # fmt: skip
SETTINGS = {
    "numbers": ("", "--tensor-model-parallel-size 4 --pipeline-model-parallel-size 2 --micro-batch-size 2 "
                "--global-batch-size 512 --seq-length 4096"),
    "variables": ("TP=4\nPP=2\nMBS=2\nSEQ=4096\n", "--tensor-model-parallel-size $TP "
                  "--pipeline-model-parallel-size ${PP} --micro-batch-size ${MBS} --global-batch-size=512 "
                  "--seq-length $SEQ"),
    "defaults": ("", "--tensor-model-parallel-size ${TP:-4} --pipeline-model-parallel-size ${PP:-2} "
                 "--micro-batch-size ${MBS-2} --global-batch-size ${GBS:-512} --seq-length ${SEQ:=4096}"),
    "sums": ("GPUS=8\nTP=$((GPUS / 2))\nexport PP=$(( TP - 2 ))\n", "--tensor-model-parallel-size $TP "
             "--pipeline-model-parallel-size $PP --micro-batch-size 2 --global-batch-size $((128 * TP)) "
             "--seq-length $((4 * 1024))"),
    "underscores": ("", "--tensor_model_parallel_size 4 --pipeline_model_parallel_size 2 --micro_batch_size 2 "
                    "--global_batch_size 512 --seq_length 4096"),
}  # fmt: skip
EXCEPT = {("a command in quotes", "variables"), ("a command in quotes", "sums")}  # whose variables no shell would see
MEGATRON = [pair for pair in itertools.product(IDIOMS, SETTINGS) if pair not in EXCEPT]


@pytest.mark.parametrize(("idiom", "setting"), MEGATRON, ids=[" of ".join(pair) for pair in MEGATRON])
def test_megatrons_options_are_read_wherever_they_are_held(idiom, setting):
    before, options = SETTINGS[setting]
    found = read(
        f"#!/bin/bash\n# --tensor-model-parallel-size 1\n{before}{IDIOMS[idiom].format(options)}\n", "t", KNOWN
    )
    told = {"tensor": 4, "pipeline": 2, "microbatch": 2, "data": 32}
    assert found.framework == "megatron"
    assert told.items() <= found.fields.items()
    assert (found.facts["batch"], found.facts["sequence"]) == (512, 4096)


UNRESOLVED = {
    "a variable of nobody": ("--tensor-model-parallel-size $TP", "`tensor-model-parallel-size` is '$TP'", 1),
    "an argument": ("TP=$1\n--tensor-model-parallel-size $TP", "'$1'; expected an integer >= 1 (line 2)", 2),
    "a loop": ("for tp in 1 2 4; do\n python t.py --tensor-model-parallel-size $tp\ndone", "is '$tp'", 2),
    "a program": ("N=$(nproc)\npython t.py --micro-batch-size $N", "`micro-batch-size` is '$(nproc)'", 2),
    "an unknown test": (
        'if [ "$BIG" = "1" ]; then TP=8; else TP=2; fi\npython t.py --tensor-model-parallel-size $TP', "is '$TP'", 2,
    ),
    "an unknown case": (
        'case $1 in\n 8b) A="--tensor-model-parallel-size 1";;\n 70b) A="--tensor-model-parallel-size 8";;\nesac\nt $A',
        "`tensor-model-parallel-size` depends on branches", 5,
    ),
    "options added in an unknown test": (
        'A="--micro-batch-size 1"\nif [[ $SP ]]; then\n  A="$A --sequence-parallel"\nfi\nrun.py $A',
        "`sequence-parallel` depends on branches that the file does not decide (line 3)", 3,
    ),
    "two launches": (
        "python t.py --micro-batch-size 1\npython t.py --micro-batch-size 2\n", "lines 1 and 2 launch with", 1,
    ),
    "nothing at all": (
        "# none\nARGS=$(cat --micro-batch-size)\n", "line 2: no degree of Megatron-LM and no batch", 2,
    ),
    "a list of options without values": ("x --micro-batch-size --bf16", "`micro-batch-size` is true", 1),
}  # fmt: skip


@pytest.mark.parametrize("case", UNRESOLVED)
def test_what_nobody_could_resolve_is_refused_with_its_line(case):
    text, words, line = UNRESOLVED[case]
    with pytest.raises(SpecError) as refusal:
        read(text, "train.sh", KNOWN)
    message = str(refusal.value)
    assert words in message
    assert re.search(r"lines? \d+", message)
    assert f"line {line}" in message or f"lines {line}" in message


def test_options_that_leave_the_cost_alone_need_not_be_decided():
    text = 'A="--micro-batch-size 1"\nif [ -f $X ]; then A="$A --load $X"; fi\n'
    text += 'if [ $Y ]; then A+=" --mine 3"; fi\nrun.py $A'
    found = read(text, "t", KNOWN)
    assert found.fields["microbatch"] == 1
    assert found.unread == ("mine",)


BRIDGE = "model.tensor_model_parallel_size={0} model.pipeline_model_parallel_size={1} train.global_batch_size={2}"
BRIDGE_IDIOMS = {
    "words": "uv run python run_recipe.py --recipe llama3_8b " + BRIDGE,
    "quoted string": f'CLI_OVERRIDES=" \\\n  {BRIDGE} \\\n"\nCMD="python run.py $CLI_OVERRIDES"\nsrun bash -c "$CMD"',
    "array": f"OVERRIDES=(\n  {BRIDGE}\n)\ntorchrun run.py ${{{{OVERRIDES[@]}}}}",
    "plus signs": "python run.py " + BRIDGE.replace("model.", "++model."),
    "yaml": (
        "model:\n  tensor_model_parallel_size: {0}  # inside a node\n  pipeline_model_parallel_size: {1}\n"
        "train:\n  global_batch_size: {2}\n"
    ),
}
MAXTEXT = "ici_tensor_parallelism={0} dcn_data_parallelism={1} per_device_batch_size={2}"
MAXTEXT_IDIOMS = {
    "words": "python3 -m maxtext.train base.yml run_name=$RUN " + MAXTEXT + " ici_fsdp_parallelism=-1",
    "exported flags": 'export LIBTPU_INIT_ARGS="--xla_a=true --xla_b=1"\npython3 train.py base.yml ' + MAXTEXT,
    "quoted string": f'OPTS="{MAXTEXT}"\nbash -c "python3 -m maxtext.train base.yml $OPTS"',
    "yaml": (
        "base_config: base.yml\nhardware: gpu  # parallelism.tensor: not here\nici_tensor_parallelism: {0}\n"
        "dcn_data_parallelism: {1}\nper_device_batch_size: {2}\nremat_policy: 'full'\n"
    ),
}
NUMBERS = ((4, 2, 256), (8, 1, 64))


@pytest.mark.parametrize("numbers", NUMBERS)
@pytest.mark.parametrize("idiom", BRIDGE_IDIOMS)
def test_bridges_overrides(idiom, numbers):
    found = read(BRIDGE_IDIOMS[idiom].format(*numbers), "t", KNOWN)
    assert found.framework == "megatron-bridge"
    assert (found.fields["tensor"], found.fields["pipeline"], found.facts["batch"]) == numbers
    assert "model.context_parallel_size (a recipe's)" in found.unread


@pytest.mark.parametrize("numbers", NUMBERS)
@pytest.mark.parametrize("idiom", MAXTEXT_IDIOMS)
def test_maxtexts_values(idiom, numbers):
    tensor, data, each = numbers
    found = read(MAXTEXT_IDIOMS[idiom].format(tensor, data, each), "t", KNOWN)
    assert found.framework == "maxtext"
    assert (found.fields["tensor"], found.fields["microbatch"]) == (tensor, each * tensor)
    assert found.facts["batch"] == each * 256


TOML = """
[job]
description = "{name}"
[model]
name = "{name}"
flavor = "{flavor}"
[training]
local_batch_size = {local}
seq_len = 8192
[parallelism]
data_parallel_shard_degree = -1
tensor_parallel_degree = {tensor}  # inside a node
[activation_checkpoint]
mode = "{mode}"
"""
PYTHON = """
def {name}() -> Trainer.Config:
    return Trainer.Config(
        training=TrainingConfig(local_batch_size={local}, seq_len=8192),
        parallelism=ParallelismConfig(tensor_parallel_degree={tensor}, data_parallel_shard_degree=-1),
        activation_checkpoint={mode},
    )
"""


@pytest.mark.parametrize("tensor", [1, 4])
@pytest.mark.parametrize("mode", ["full", "none", "selective"])
def test_torchtitans_toml_of_released_versions(tensor, mode):
    text = TOML.format(name="llama3", flavor="70B", local=2, tensor=tensor, mode=mode)
    found = read(text, "t.toml", KNOWN)
    assert (found.framework, found.fields["tensor"], found.fields["microbatch"]) == ("torchtitan", tensor, 2)
    assert found.fields["recompute"] == ("full" if mode == "full" else "none")
    assert ("activation_checkpoint.mode" in found.unread) == (mode == "selective")
    assert found.model == {"name": "llama3-70b"}
    assert found.facts["sequence"] == 8192


@pytest.mark.parametrize("mode", ["FullAC.Config()", "None"])
def test_torchtitans_registry(mode):
    text = PYTHON.format(name="mine", local=2, tensor=4, mode=mode)
    found = read(text, "t.py", KNOWN)
    assert (found.fields["tensor"], found.fields["microbatch"]) == (4, 2)
    assert found.fields["recompute"] == ("full" if "Full" in mode else "none")
    with pytest.raises(SpecError, match=r"lines 2 and 9 launch with different `parallelism.tensor_parallel_degree`"):
        read(text + PYTHON.format(name="other", local=2, tensor=8, mode=mode), "t.py", KNOWN)


def test_torchtitans_default_batch_is_that_of_the_release():
    text = "[parallelism]\ntensor_parallel_degree = 2\n[training]\nseq_len = 2048\n"
    assert read(text, "t.toml", KNOWN).fields["microbatch"] == 8


@pytest.mark.parametrize("stage", [0, 1, 2, 3])
@pytest.mark.parametrize("auto", [False, True])
def test_deepspeeds_files(stage, auto):
    content = {"train_micro_batch_size_per_gpu": 2, "gradient_accumulation_steps": 1, "bf16": {"enabled": True}}
    content |= {"zero_optimization": {"stage": stage}, "train_batch_size": "auto" if auto else 512}
    found = read(json.dumps(content), "ds.json", KNOWN)
    assert (found.fields["zero_stage"], found.fields["data"], found.facts["batch"]) == (stage, 256, 512)


@pytest.mark.parametrize("text", ["[1, 2]", '{"bf16": {"enabled": true}}', '{"model": "parallelism."}'])
def test_json_of_something_else_is_no_launch_file(text):
    with pytest.raises(SpecError):
        read(text)


OLDER = "--data-impl mmap --tensor-model-parallel-size 4 --pipeline-model-parallel-size 2 --micro-batch-size 2 "
OLD_FLAGS = {
    "": {"recompute": "none", "attention": "unfused", "zero_stage": 0},
    "--checkpoint-activations --checkpoint-num-layers 1": {"recompute": "full", "attention": "unfused"},
    "--activations-checkpoint-method block --activations-checkpoint-num-layers 8": {"recompute_share": 0.5},
    "--use-flash-attn-v2": {"attention": "flash"},
    "--deepspeed --deepspeed_config x.json --zero-stage 1 --fp16": {"zero_stage": 1, "precision": "fp16"},
    "--deepspeed --zero-stage 0 --bf16": {"zero_stage": 1, "gradient_dtype": "fp32"},
    "--deepspeed --zero-stage 0 --fp16": {"zero_stage": 0, "gradient_dtype": "fp16"},
    "--recompute-activations": {"recompute": "selective"},
}


@pytest.mark.parametrize("flags", OLD_FLAGS)
def test_flags_of_older_megatron_and_its_forks(flags):
    found = read(OLDER + flags, "train.slurm", KNOWN)
    assert OLD_FLAGS[flags].items() <= found.fields.items()
    assert found.unread == ()


KEYED = """
ENV_VARS:
  CUDA_DEVICE_MAX_CONNECTIONS: 1
MODEL_ARGS:
  # degrees
  --tensor-model-parallel-size: 4  # in a node
  --pipeline-model-parallel-size: 2
  --micro-batch-size: 2
  --global-batch-size: 512
  --sequence-parallel: true
  --fp16: false
  --recompute-granularity: selective
  --recompute-modules: "[layernorm mlp]"
  --data-path: ${DATA}/x
"""


def test_flags_as_keys_of_yaml():
    found = read(KEYED, "model_config.yaml", KNOWN)
    told = {"tensor": 4, "pipeline": 2, "microbatch": 2, "sequence_parallel": True, "precision": "fp32"}
    assert (told | {"recompute": "norms+feed_forward"}).items() <= found.fields.items()
    assert found.facts["batch"] == 512
    again = KEYED + "MODEL_ARGS_2:\n  --tensor-model-parallel-size: 8\n"
    with pytest.raises(SpecError, match="lines 4 and 15 launch with different"):
        read(again, "model_config.yaml", KNOWN)


NO_TRAINING = {
    "python3 -m maxtext.inference.decode per_device_batch_size=1 ici_tensor_parallelism=8": "no degree of MaxText",
    "python3 -m maxtext.trainers.post_train.rl.train_rl per_device_batch_size=1": "no degree of MaxText",
    "python tools/checkpoint/convert.py --tensor-model-parallel-size 4": "no degree of Megatron-LM",
    "python run.py --tensor-model-parallel-size 4 --num-tokens-to-generate 30": "where this generates text",
    "trainer:\n  devices: 8\nmodel:\n  micro_batch_size: 4\n  tensor_model_parallel_size: 2\n": "NeMo 1 are not read",
    "python x.py --model-recipe-name a --tensor-model-parallel-size 2": "names a recipe of Megatron-Bridge",
}


@pytest.mark.parametrize("text", NO_TRAINING)
def test_what_trains_nothing_or_is_for_another_framework_is_refused(text):
    with pytest.raises(SpecError, match=re.escape(NO_TRAINING[text])):
        read(text, "run.sh", KNOWN)


def test_a_command_that_decodes_beside_one_that_trains():
    """The one that trains is read; two that train otherwise are none, whatever differs of what is read."""
    train = "python3 -m maxtext.train base.yml per_device_batch_size=1 max_target_length={}\n"
    decode = (
        "python3 -m maxtext.inference.decode per_device_batch_size=4 max_target_length=16 ici_tensor_parallelism=8\n"
    )
    found = read(train.format(4096) + decode, "test.sh", KNOWN)
    assert (found.facts["sequence"], found.fields["tensor"]) == (4096, 1)
    with pytest.raises(SpecError, match="lines 1 and 2 launch with different `max_target_length`"):
        read(train.format(4096) + train.format(8192), "test.sh", KNOWN)


def test_what_a_recipe_decides_is_said_to_be_its():
    found = read("python t.py model.tensor_model_parallel_size=4 train.global_batch_size=64", "sft.sh", KNOWN)
    assert (found.fields["zero_stage"], found.fields["overlap_data"], found.fields["precision"]) == (1, True, "bf16")
    for name in ("train.micro_batch_size", "ddp.use_distributed_optimizer", "mixed_precision"):
        assert f"{name} (a recipe's)" in found.unread


@pytest.mark.parametrize(
    ("flags", "loss", "unread"),
    [
        ("", "usual", False),
        ("--cross-entropy-loss-fusion", "usual", False),
        ("--cross-entropy-loss-fusion --cross-entropy-fusion-impl native", "usual", False),
        ("--cross-entropy-loss-fusion --cross-entropy-fusion-impl te", "fused", False),
        ("--cross-entropy-fusion-impl te", "usual", False),
        ("--cross-entropy-loss-fusion --cross-entropy-fusion-impl linear", "usual", True),
        ('--cross-entropy-loss-fusion --cross-entropy-fusion-impl "$kernels"', "usual", True),
    ],
)
def test_the_fused_loss_is_transformer_engines(flags, loss, unread):
    """By Megatron's own fusion, its default, next to nothing is saved; other kernels are told."""
    text = f"torchrun pretrain_gpt.py --tensor-model-parallel-size 2 --micro-batch-size 1 {flags} --bf16"
    found = read(text, known=KNOWN)
    assert (found.fields["loss"], "cross-entropy-fusion-impl" in found.unread) == (loss, unread)


@pytest.mark.parametrize(("more", "loss"), [("", "fused"), (" model.cross_entropy_loss_fusion=false", "usual")])
def test_a_recipe_has_fusion_on_and_says_whose(more, loss):
    text = f"model.tensor_model_parallel_size=2 model.cross_entropy_fusion_impl=te{more} train.micro_batch_size=1"
    assert read(text, known=KNOWN).fields["loss"] == loss
