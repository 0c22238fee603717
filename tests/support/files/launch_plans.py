"""Plans that each framework can be told, for its files to be checked: every option of its tables at least once."""

import dataclasses
import itertools
from collections.abc import Iterator
from typing import Any

from costmodel.inputs import Workload
from costmodel.inputs.plan import Plan
from costmodel.specs.huggingface.config import from_config
from costmodel.specs.loading import load_cluster
from costmodel.specs.rules.violations import violations
from costmodel.specs.workloads import load_workload
from optimize.launch.framework import Framework
from tests.support.files.configs import CONFIGS

BATCH = 1024
MODELS = ("llama3-70b", "gpt3-175b", "mixtral-8x7b", "deepseek-v3", "qwen3-235b-a22b")
TYPES = ("gpt_oss", "gemma3_text", "glm4_moe", "deepseek_v2", "gemma2", "olmo3", "qwen2")
"""Types of HuggingFace, whose models have sinks, windows, norms and biases."""
DEGREES: tuple[dict[str, Any], ...] = (
    {"data": 64}, {"data": 16, "tensor": 4}, {"data": 8, "tensor": 2, "context": 4},
    {"data": 8, "tensor": 2, "pipeline": 4},
    {"data": 4, "tensor": 4, "context": 2, "pipeline": 2}, {"data": 16, "context": 4}, {"data": 16, "pipeline": 4},
)  # fmt: skip
CHANGES: tuple[dict[str, Any], ...] = (
    {}, {"sequence_parallel": True}, {"sequence_parallel": True, "overlap_tensor": True},
    {"sequence_parallel": True, "overlap_tensor": True, "precision": "fp8_tensor"}, {"recompute": "full"},
    {"recompute": "selective"}, {"recompute": "norms"}, {"recompute": "norms+feed_forward"},
    {"recompute": "full", "recompute_share": 0.5}, {"zero_stage": 0, "gradient_dtype": "bf16", "overlap_data": False},
    {"zero_stage": 0}, {"zero_stage": 2}, {"zero_stage": 3}, {"zero_stage": 3, "gradient_dtype": "bf16"},
    {"zero_stage": 3, "data_shard": 8}, {"data_shard": 8}, {"microbatch": 2}, {"overlap_data": False},
    {"precision": "fp8_block"}, {"precision": "mxfp8"}, {"precision": "nvfp4"}, {"precision": "fp16"},
    {"precision": "fp32"}, {"gradient_dtype": "bf16"}, {"state_dtype": "bf16"}, {"optimizer": "sgd", "zero_stage": 0},
    {"optimizer": "sgd"}, {"optimizer": "muon", "zero_stage": 0}, {"optimizer": "adafactor"}, {"attention": "unfused"},
    {"fused_kernels": False}, {"loss": "fused"},
    {"offload_optimizer": 0.5}, {"offload_optimizer": 1.0}, {"context_kind": "all_to_all"},
    {"expert": 8}, {"expert": 8, "overlap_expert": True}, {"expert": 4, "expert_tensor": 2},
    {"schedule": "gpipe", "zero_stage": 3}, {"schedule": "gpipe"}, {"schedule": "zb_v", "zero_stage": 2},
    {"schedule": "interleaved", "virtual_stages": 2}, {"zero_stage": 2, "recompute": "full"},
    {"schedule": "interleaved", "virtual_stages": 2, "overlap_pipeline": True, "sequence_parallel": True},
    {"schedule": "interleaved", "virtual_stages": 2, "expert": 8, "overlap_expert": True},
    {"zero_stage": 2, "offload_optimizer": 1.0, "offload_gradients": 1.0}, {"zero_stage": 3, "offload_weights": 1.0},
    {"overlap_context": False, "zero_stage": 2}, {"overlap_context": False, "zero_stage": 3},
)  # fmt: skip


def plans(framework: Framework, cluster: str = "h100") -> Iterator[tuple[Plan, Workload]]:
    """Plans of every degree and option that the framework can be told on the cluster, each with one of the models."""
    machine = load_cluster(cluster, 64)
    workloads = [load_workload(name, batch=BATCH) for name in MODELS]
    workloads += [from_config(CONFIGS[kind], "config.json", 4096, BATCH) for kind in TYPES]
    for number, (degrees, change) in enumerate(itertools.product(DEGREES, CHANGES)):
        for workload in (workloads[number % len(workloads)], workloads[0], workloads[2]):
            plan = dataclasses.replace(Plan(**degrees), **change)
            if not framework.cannot(plan, workload, machine) and not violations(plan, workload, machine):
                yield plan, workload
                break
