"""The measured seconds of a case: as printed, or from the FLOP/s of tables that print nothing else."""

import dataclasses

from costmodel.rows import Case
from costmodel.rows.columns import lenient
from costmodel.workload import Block, Workload, model_flop

_FULL_ATTENTION = ("MaxText README tables",)  # before MaxText's pull request 1988 (measurements/README.md, section 1)


def measured_step_s(case: Case) -> float | None:
    """Printed, or the model FLOP of the source's convention over its FLOP/s."""
    if case.measured_step_s is not None or case.source not in _FULL_ATTENTION:
        return case.measured_step_s
    tera, accelerators = lenient(case.row, "measured_tflops_per_gpu"), case.cluster.accelerators
    if tera is None:
        return None
    flop = model_flop(_unmasked(case.workload)) * case.workload.batch
    return flop / (1e12 * tera * accelerators)


def _unmasked(workload: Workload) -> Workload:
    def unmasked(block: Block) -> Block:
        return dataclasses.replace(block, ops=tuple(dataclasses.replace(op, density=1.0) for op in block.ops))

    return dataclasses.replace(workload, blocks=tuple(map(unmasked, workload.blocks)))
