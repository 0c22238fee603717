"""`explain --plan train.sh`: the model, the job and the number of accelerators out of the script itself."""

import pytest

from costmodel.specs.files import SpecError
from optimize.cli.explain import resolve
from optimize.status import CommandError

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
