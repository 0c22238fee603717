"""Predicted log times of many cases and their derivatives by the unbounded variable of every fitted parameter."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from costmodel.evaluators import SUBGRADIENT, Dual
from costmodel.exact import Exact
from costmodel.formulas import cost
from costmodel.inputs import Habits, Kind
from costmodel.measured.fit.fitted import Fitted
from costmodel.measured.fit.parameters import LEVELS, PARAMETERS, SLOW, Group, Key, Parameter, designs
from costmodel.measured.fit.regimes import likely_slow
from costmodel.measured.rows import Batch, Case, stacked

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
        self.slow = np.zeros(len(cases))
        left = [case.cluster.stack.habits.host_shares for case in cases]
        self.hosted = {name: np.array([shares[name] for shares in left]) for name in Habits().host_shares}

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
        for name, left in self.hosted.items():
            leaves[name] = leaves[name] * left[at]
        return leaves


def _step_s(batch: Batch, leaves: Mapping[str, Any], sem: Any) -> Any:
    stack = dataclasses.replace(batch.cluster.stack, **leaves)
    with np.errstate(all="ignore"):
        return cost(batch.workload, dataclasses.replace(batch.cluster, stack=stack), batch.point, sem).step_s


def evaluator(fitted: Fitted, cases: Sequence[Case]) -> Evaluator:
    """An evaluator of the cases, each in the regime that its columns name."""
    own = Evaluator(cases)
    own.slow = likely_slow(fitted.regime_weights, cases)
    return own


def best_free(fitted: Fitted, cases: Sequence[Case]) -> dict[str, np.ndarray]:
    """The unbounded variable of each parameter, by case, at the deviations of a fit."""
    design = designs(fitted.keys, [group(case) for case in cases])
    return {p.name: float(p.free(p.centre)) + design[p.name].of(fitted.z) for p in PARAMETERS}


def linearised(fitted: Fitted, cases: Sequence[Case]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Log times, their Jacobian by the deviations, and the variance from groups that were never measured."""
    log_times, slopes = evaluator(fitted, cases).log_slopes(best_free(fitted, cases))
    groups = [group(case) for case in cases]
    jacobian, unseen = np.zeros((len(cases), len(fitted.z))), np.zeros(len(cases))
    keys = set(fitted.keys)
    for p in PARAMETERS:
        design = designs(fitted.keys, groups, (p,))[p.name]
        design.add(jacobian, slopes[p.name])
        missing = np.array([_missing(keys, p, g) for g in groups])
        unseen += missing * slopes[p.name] ** 2
    return log_times, jacobian, unseen


def _missing(keys: set[Key], parameter: Parameter, member: Group) -> float:
    """Prior variance of the deviations that are not among `keys`."""
    absent = [level for level in LEVELS if (parameter.name, level, member[level]) not in keys]
    return sum(getattr(parameter, level) ** 2 for level in absent)


EXPERTS = "_experts"


def scatter_class(case: Case) -> str:
    """The class whose scatter a case has: its software, and whether the model has experts."""
    return case.stack + (EXPERTS if any(op.kind == Kind.EXCHANGE for b in case.workload.blocks for op in b.ops) else "")
