"""The memory that a row prints: of which bytes, of which stage, and what the software does before the first step."""

from collections.abc import Sequence

import numpy as np

from costmodel.evaluators import memory_by_stage
from costmodel.exact import Exact
from costmodel.formulas import allocated_bytes, device_bytes, peak
from costmodel.inputs import Position
from costmodel.measured.rows import Case, Figures

_EXACT = Exact(np)


def held_in_order(cases: Sequence[Case], figures: Figures) -> Figures:
    """The figures with the memory of each stage's own layers, where a pipeline cuts a model of several kinds of them:
    `evaluated` spreads every kind evenly over the stages."""
    kept = Figures(*(values.copy() for values in figures))
    for i, case in enumerate(cases):
        if case.plan.pipeline > 1 and sum(block.position == Position.LAYER for block in case.workload.blocks) > 1:
            stack = case.cluster.stack
            stages = memory_by_stage(case.workload, case.cluster, case.plan)
            kept.peak_bytes[i] = max(peak(stage, _EXACT) for stage in stages)
            kept.device_bytes[i] = max(device_bytes(stage, stack, _EXACT) for stage in stages)
            kept.tensor_bytes[i] = kept.device_bytes[i] - stack.context_bytes - stages[0].buffers_bytes
            kept.allocated_bytes[i] = max(allocated_bytes(stage, stack, _EXACT) for stage in stages)
    return kept


def logged_bytes(cases: Sequence[Case], figures: Figures) -> np.ndarray:
    """The memory that each row prints, by what its words mean: of the device as nvidia-smi shows it, of the allocator's
    tensors alone (`max_allocated`), or all that the allocator holds, where nothing is said."""
    of_device = np.array([bool(case.facts.get("device_memory")) for case in cases], bool)
    of_tensors = np.array([bool(case.facts.get("allocated_memory")) for case in cases], bool)
    return np.where(
        of_device, figures.device_bytes, np.where(of_tensors, figures.allocated_bytes, figures.tensor_bytes)
    )
