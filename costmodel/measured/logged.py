"""The memory that a row prints: of which bytes, of which stage, and what the software does before the first step."""

from collections.abc import Sequence

import numpy as np

from costmodel.evaluators import memory_by_stage
from costmodel.exact import Exact
from costmodel.formulas import peak
from costmodel.inputs import PRECISIONS, Position, parameters
from costmodel.measured.rows import (
    ALLOCATED,
    DEVICE,
    FIRST,
    FULLEST,
    LAST,
    TENSORS,
    Case,
    Figures,
    shown_bytes,
)

_EXACT = Exact(np)


def held_in_order(cases: Sequence[Case], figures: Figures) -> Figures:
    """The figures with the memory of each stage's own layers, where a pipeline cuts a model of several kinds of them:
    `evaluated` spreads every kind evenly over the stages."""
    peak_bytes, shown = figures.peak_bytes.copy(), figures.shown_bytes.copy()
    for i, case in enumerate(cases):
        if case.plan.pipeline > 1 and sum(block.position == Position.LAYER for block in case.workload.blocks) > 1:
            first, *middle, last = memory_by_stage(case.workload, case.cluster, case.plan)
            peak_bytes[i] = max(peak(stage, _EXACT) for stage in (first, *middle, last))
            shown[..., i] = shown_bytes((first, last, *middle), case.cluster, 1)[..., 0]
    return figures._replace(peak_bytes=peak_bytes, shown_bytes=shown)


def logged_bytes(cases: Sequence[Case], figures: Figures) -> np.ndarray:
    """The memory that each row prints, by what its words mean: of the device as nvidia-smi shows it, of the allocator's
    tensors alone (`max_allocated`), or all that the allocator holds, where nothing is said; of the fullest stage where
    it is the largest of many ranks, of the last one, or of the first, whose log or node is looked at otherwise.

    C: with the first stage 1B3's rows with a pipeline are off by .050, with the fullest by .089 (90th percentiles .092
    and .229), nanotron's by .056 and .059 (.20 and .26). The allocator's peaks are of the whole process.
    """
    of_device, of_tensors, of_all, of_last, of_first = (
        np.array([bool(case.facts.get(name)) for case in cases], bool)
        for name in ("device_memory", "allocated_memory", "memory_of_all", "memory_of_last", "memory_of_first")
    )
    alone = np.array([case.plan.pipeline == 1 for case in cases], bool)
    what = np.where(of_device, DEVICE, np.where(of_tensors, ALLOCATED, TENSORS))
    where = np.where(alone | of_all, FULLEST, np.where(of_last & ~of_first, LAST, FIRST))
    shown = figures.shown_bytes[what, where, np.arange(len(cases))]
    loaded_bytes = np.array([_loaded_bytes(case) for case in cases], float)
    return np.where(of_device, shown, np.maximum(shown, loaded_bytes))


def _loaded_bytes(case: Case) -> float:
    """Whole weights that lie on the accelerator before ZeRO 3 divides them, if they fit there.

    K: DeepSpeed's `engine.py`, `_configure_distributed_model`, moves the module to the device before `stage3.py` takes
    its parts, unless it was built under `zero.Init` (as what does not fit has to be).
    """
    plan = case.plan
    if case.stack != "deepspeed" or plan.zero_stage < 3:
        return 0.0
    whole_bytes = PRECISIONS[plan.precision].weight_bytes * parameters(case.workload) / (plan.tensor * plan.pipeline)
    return float(whole_bytes) if whole_bytes < case.cluster.accelerator.hbm_bytes else 0.0
