"""Twelve measured runs of Megatron-LM on A100 by `explain`, with their software."""

import numpy as np

from costmodel import specs
from costmodel.inputs.plan import Plan
from optimize.diagnosis.explain import explain

# Megatron-LM on A100: model, accelerators, batch, tensor, pipeline, chunks, microbatch, recompute, seconds
MEGATRON = (
    ("gpt-22b", 8, 4, 8, 1, 1, 4, "full", 1.42),
    ("gpt-22b", 8, 4, 8, 1, 1, 4, "selective", 1.10),
    ("gpt3-175b", 64, 64, 8, 8, 3, 1, "full", 18.13),
    ("gpt3-175b", 64, 64, 8, 8, 3, 1, "selective", 13.75),
    ("mt-nlg-530b", 280, 280, 8, 35, 3, 1, "full", 49.05),
    ("mt-nlg-530b", 280, 280, 8, 35, 3, 1, "selective", 37.83),
    ("megatron-1t", 512, 512, 8, 64, 1, 1, "full", 94.42),
    ("megatron-1t", 512, 512, 8, 64, 1, 1, "selective", 71.49),
    ("mt-nlg-530b", 2240, 2240, 8, 35, 3, 1, "selective", 39.15),
    ("gpt3-175b", 1536, 1536, 8, 12, 1, 1, "full", 20.83),
    ("mt-nlg-530b", 2520, 2520, 8, 35, 1, 1, "full", 54.08),
    ("megatron-1t", 3072, 3072, 8, 64, 1, 1, "full", 102.63),
)
"""arXiv 2205.05198, table 5 and section 6.3; arXiv 2104.04473, tables 1 and 2: unfused attention, no ZeRO."""


def test_megatron_of_2022_on_a100_by_its_software():
    errors = []
    for model, accelerators, batch, tensor, pipeline, chunks, microbatch, recompute, measured_s in MEGATRON:
        plan = Plan(
            data=accelerators // (tensor * pipeline), tensor=tensor, pipeline=pipeline, virtual_stages=chunks,
            schedule="interleaved" if chunks > 1 else "one_f_one_b", microbatch=microbatch, recompute=recompute,
            sequence_parallel=recompute == "selective", zero_stage=0, overlap_data=False, precision="fp16",
            gradient_dtype="fp16", attention="unfused",
        )  # fmt: skip
        cluster = specs.load_cluster("a100-80gb", accelerators=accelerators, software="megatron-2022")
        told = explain(specs.load_workload(model, sequence=2048, batch=batch), cluster, plan)
        errors.append(abs(float(told.breakdown.step_s) / measured_s - 1))
    assert np.mean(errors) <= 0.04, np.round(errors, 3)
