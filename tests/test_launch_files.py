"""Launch files as people see them: their text, what tells them apart, what is said of a wrong one."""

import dataclasses

import pytest

from costmodel.plan import Plan
from costmodel.specs import SpecError, load_cluster, load_workload
from optimize.export import FRAMEWORKS, Known, framework_of, launch, read

DENSE = Plan(data=16, tensor=8, pipeline=4, virtual_stages=5, schedule="interleaved", sequence_parallel=True)
DENSE = dataclasses.replace(DENSE, overlap_tensor=True, overlap_pipeline=True, recompute="full", recompute_share=0.5)
EXPERTS = Plan(data=64, pipeline=4, expert=32, zero_stage=1, microbatch=1, stage_layers=(16, 16, 15, 14))

GOLDEN = {
    "megatron": """\
# equipoise: llama3-70b on h100, 512 accelerators, for Megatron-LM
--tensor-model-parallel-size 8 \\
--pipeline-model-parallel-size 4 \\
--context-parallel-size 1 \\
--micro-batch-size 1 \\
--global-batch-size 512 \\
--seq-length 8192 \\
--sequence-parallel \\
--tp-comm-overlap \\
--attention-backend flash \\
--num-virtual-stages-per-pipeline-rank 5 \\
--recompute-granularity full \\
--recompute-method block \\
--recompute-num-layers 2 \\
--num-layers 80 \\
--use-distributed-optimizer \\
--overlap-grad-reduce \\
--overlap-param-gather \\
--optimizer adam \\
--bf16
""",
}


def dense(name, **changes):
    plan = dataclasses.replace(DENSE, **changes)
    return launch(name, plan, load_workload("llama3-70b", batch=512), load_cluster("h100", plan.accelerators))


def experts(name, **changes):
    plan = dataclasses.replace(EXPERTS, **changes)
    return launch(name, plan, load_workload("deepseek-v3", batch=256), load_cluster("h100", plan.accelerators))


if __name__ == "__main__":
    for name in FRAMEWORKS:
        print("=======", name)
        print(dense(name))
        print(experts(name))
