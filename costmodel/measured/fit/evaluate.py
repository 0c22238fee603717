"""Predicted log times of many cases and their derivatives by the unbounded variable of every fitted parameter."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from costmodel.evaluators import SUBGRADIENT, Dual
from costmodel.formulas import cost
from costmodel.measured.fit.parameters import LEVELS, PARAMETERS, SLOW, Group, Parameter
from costmodel.measured.rows import Batch, Case, stacked
from costmodel.semantics import Exact

Free = Mapping[str, np.ndarray]
"""The unbounded variable of each parameter, by case."""


def group(case: Case) -> Group:
    """What decides the constants of a case."""
    return {level: getattr(case, level) for level in LEVELS}


class Evaluator:
    """Cases stacked once, evaluated many times under different constants. `slow` marks the second regime (1)."""

    def __init__(self, cases: Sequence[Case], parameters: Sequence[Parameter] = PARAMETERS) -> None:
        self.cases, self.parameters = cases, parameters
        self.batches: list[Batch] = stacked(cases)
        graphs = np.array([case.facts.get("cuda_graphs", 0.0) for case in cases])
        self.slow = np.zeros(len(cases))
        self.issued = 1.0 - graphs  # what is captured in a graph is not issued again

    def centre(self, parameter: Parameter) -> np.ndarray:
        """Unbounded variable of each case where every deviation is zero."""
        return np.full(len(self.cases), parameter.free(parameter.centre))

    def values(self, free: Free) -> dict[str, np.ndarray]:
        """The leaves of each case's stack."""
        return {name: part.value for name, part in self._leaves(free, slice(None)).items()}

    def log_times(self, free: Free) -> np.ndarray:
        """Log seconds of each case."""
        result = np.empty(len(self.cases))
        for batch in self.batches:
            leaves = {name: part.value for name, part in self._leaves(free, batch.indices).items()}
            result[batch.indices] = np.log(_step_s(batch, leaves, Exact(np)))
        return result

    def log_slopes(self, free: Free) -> tuple[np.ndarray, dict[str, np.ndarray]]:
        """Log seconds of each case, and their derivatives by each unbounded variable."""
        result = np.empty(len(self.cases))
        slopes = {p.name: np.zeros(len(self.cases)) for p in self.parameters}
        for batch in self.batches:
            step_s = _step_s(batch, self._leaves(free, batch.indices), SUBGRADIENT)
            result[batch.indices] = np.log(step_s.value)
            for name, part in step_s.parts.items():
                slopes[name][batch.indices] = part / step_s.value
        return result, slopes

    def _leaves(self, free: Free, at: Any) -> dict[str, Dual]:
        """Leaves of the stack with their derivatives by the unbounded variables."""
        leaves = {}
        for p in self.parameters:
            value = p.value(free[p.name][at])
            leaves[p.name] = Dual(value, {p.name: p.slope(value)})
        slower = leaves.pop(SLOW) * self.slow[at]
        leaves["microbatch_s"] = leaves["microbatch_s"] + slower
        leaves["host_kernel_s"] = leaves["host_kernel_s"] * self.issued[at]
        return leaves


def _step_s(batch: Batch, leaves: Mapping[str, Any], sem: Any) -> Any:
    stack = dataclasses.replace(batch.cluster.stack, **leaves)
    with np.errstate(all="ignore"):
        return cost(batch.workload, dataclasses.replace(batch.cluster, stack=stack), batch.point, sem).step_s
