"""How far predictions of memory are off, by software: what `Stack.memory_log_sd` holds."""

from collections.abc import Sequence

import numpy as np

from costmodel.measured.fit import scatter
from costmodel.measured.logged import held_in_order, logged_bytes
from costmodel.measured.rows import Case, evaluated, lightened


def memory_errors(cases: Sequence[Case]) -> tuple[list[Case], np.ndarray]:
    """The cases whose row prints a memory, and log(measured / predicted) of each."""
    known = [case for case in cases if case.measured_mem_bytes]
    if not known:
        return [], np.empty(0)
    run = lightened(known)
    predicted = logged_bytes(run, held_in_order(run, evaluated(run)))
    return known, np.log(np.array([float(case.measured_mem_bytes or np.nan) for case in known]) / predicted)


def memory_scatter(cases: Sequence[Case]) -> dict[str, float]:
    """Standard deviation of that logarithm by software ("": any other), as `fit.scatter` has it of times: a robust
    scale by source, bias included, drawn towards that of all."""
    known, errors = memory_errors(cases)
    return scatter(known, errors, lambda case: case.stack) if known else {}
