"""`explain --plan train.sh`: the model, the job and the number of accelerators out of the script itself."""

import dataclasses
import json
import random

import pytest

from costmodel.evaluators.evaluate import evaluate
from costmodel.specs.files import SpecError
from costmodel.specs.loading import load_cluster
from costmodel.specs.rules import violations
from optimize.cli.explain import resolve
from optimize.launch.frameworks import FRAMEWORKS, canonical, launch
from optimize.status import CommandError
from tests.cli.test_cli import answer
from tests.support import often
from tests.support.files.configs import CONFIGS
from tests.support.files.launch_plans import plans

SCRIPT = r"""#!/bin/bash
GPUS_PER_NODE=8
NNODES=4
GPT_ARGS="
    --num-layers 32 --hidden-size 4096 --num-attention-heads 32 --group-query-attention --num-query-groups 8
    --ffn-hidden-size 14336 --swiglu --normalization RMSNorm --disable-bias-linear --attention-dropout 0.0
    --untie-embeddings-and-output-weights --position-embedding-type rope VOCABULARY --hidden-dropout 0.0
    --seq-length 8192 --max-position-embeddings 8192
    --tensor-model-parallel-size ${TP:-2} --pipeline-model-parallel-size 2 --sequence-parallel
    --micro-batch-size 1 --global-batch-size $((NNODES * 32)) --bf16 --use-distributed-optimizer
"
torchrun --nproc_per_node $GPUS_PER_NODE --nnodes $NNODES pretrain_gpt.py $GPT_ARGS --save $CHECKPOINT_PATH $@
"""


def script(folder, vocabulary="--vocab-size 128256"):
    path = folder / "train.sh"
    path.write_text(SCRIPT.replace("VOCABULARY", vocabulary))
    return str(path)


def test_a_script_that_says_its_model_needs_no_other(tmp_path):
    found = resolve({"plan": script(tmp_path), "cluster": "h100"})
    named = resolve({"plan": script(tmp_path), "cluster": "h100", "model": "llama3-8b"})
    assert found.workload.blocks == named.workload.blocks
    assert (found.workload.batch, found.workload.sequence, found.cluster.accelerators) == (128, 8192, 32)
    assert found.plan == named.plan
    assert (found.plan.tensor, found.plan.pipeline, found.plan.data) == (2, 2, 8)
    assert found.unread == ()


def test_the_same_model_stands_on_both_sides(tmp_path):
    from optimize.cli.explain import Request, ask

    other = tmp_path / "other.sh"
    other.write_text(SCRIPT.replace("VOCABULARY", "").replace("${TP:-2}", "4"))
    both = ask(Request(plan=script(tmp_path), cluster="h100", against=str(other)))
    assert both.against is not None
    assert both.against.plan.tensor == 4
    assert both.against.workload.blocks == both.workload.blocks


def test_what_the_script_leaves_out_is_named(tmp_path):
    with pytest.raises(
        (SpecError, CommandError), match="`model` is missing, and `vocab-size` is missing; expected --mo"
    ):
        resolve({"plan": script(tmp_path, ""), "cluster": "h100"})


@pytest.mark.parametrize("name", FRAMEWORKS)
def test_what_is_written_is_explained_as_the_plan_it_was_written_for(capsys, tmp_path, name):
    """Random legal plans, twenty of each framework by night: the same plan, and the same time of a step."""
    framework, machine, count = FRAMEWORKS[name], load_cluster("h100", 64, name), 64
    legal = [pair for pair in plans(framework) if not violations(canonical(pair[0]), pair[1], machine)]
    for plan, workload in random.Random(7).sample(legal, often(1, 20)):
        (tmp_path / framework.file).write_text(launch(name, plan, workload, machine))
        words = ("--cluster", "h100", "--accelerators", count, "--software", name, "--plan", tmp_path / framework.file)
        model = workload.name
        if model in CONFIGS:
            (tmp_path / f"{model}.json").write_text(json.dumps(CONFIGS[model]))
            model, words = tmp_path / f"{model}.json", (*words, "--sequence", int(workload.sequence))
        told = answer(capsys, "explain", "--model", model, *words)
        expected = evaluate(workload, machine, canonical(plan), checked=False)
        assert told["plan"] == json.loads(json.dumps(dataclasses.asdict(canonical(plan))))
        assert told["step_s"] == pytest.approx(float(expected.step_s), rel=1e-12)
        assert told["inputs"]["plan_not_read"] == []


def test_stages_of_a_model_from_huggingface(tmp_path):
    """torchtitan says layers of a stage less those of its ends: the file is read beside the model's own layers."""
    (tmp_path / "config.json").write_text(json.dumps(CONFIGS["llama"]))
    job = {"model": str(tmp_path / "config.json"), "cluster": "h100", "accelerators": 64, "sequence": 4096, "batch": 64}
    asked = resolve(
        {**job, "tensor": 2, "pipeline": 4, "schedule": "interleaved", "virtual_stages": 2, "zero_stage": 2}
    )
    text = launch("torchtitan", asked.plan, asked.workload, asked.cluster)
    (tmp_path / "titan.py").write_text(text)
    read = resolve(
        {name: job[name] for name in ("model", "cluster", "accelerators")} | {"plan": str(tmp_path / "titan.py")}
    )
    assert (read.plan, read.workload.batch, read.workload.sequence) == (canonical(asked.plan), 64, 4096)


def test_a_width_beyond_all_numbers_is_refused(tmp_path):
    script = SCRIPT.replace("VOCABULARY", "--vocab-size 128256").replace("--ffn-hidden-size 14336", "")
    (tmp_path / "train.sh").write_text(script.replace("--hidden-size 4096", f"--hidden-size 1{'0' * 400}"))
    with pytest.raises(SpecError, match="hidden"):
        resolve({"cluster": "h100", "plan": str(tmp_path / "train.sh")})
