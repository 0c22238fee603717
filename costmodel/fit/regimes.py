r"""A second regime of one software class, named from the columns of a row alone.

Rows of nanotron come in two kinds: ordinary, and slower by about a second for every slot of the pipeline
($m + p - 1$), for a reason that the rows do not hold (the same configuration was measured at 19 and at 89 s). A
logistic rule over the plan's logarithms says which kind a row is likely to be.
"""

import dataclasses
from collections.abc import Sequence

import numpy as np

from costmodel.rows import Case

CLASS = "nanotron"
_RIDGE = 1.0  # variance of a weight's prior over that of the label


@dataclasses.dataclass(frozen=True)
class Rule:
    """Weights of `features`; a row is slow where their sum is positive."""

    weights: tuple[float, ...]

    def probability(self, cases: Sequence[Case]) -> np.ndarray:
        """That each case is slow; 0 outside the class."""
        if not len(cases):
            return np.zeros(0)
        at = np.array([case.stack == CLASS for case in cases])
        return at / (1.0 + np.exp(-features(cases) @ np.array(self.weights)))


def features(cases: Sequence[Case]) -> np.ndarray:
    """One row a case: 1, and what the regime may hang on."""
    table = []
    for case in cases:
        plan, size = case.plan, float(case.workload.hidden)
        slots = plan.microbatches(float(case.workload.batch)) + plan.pipeline - 1  # pyright: ignore[reportArgumentType]
        logs = [np.log2(x) for x in (plan.tensor, plan.pipeline, plan.data, plan.microbatch, slots, size / 4096)]
        flags = [plan.pipeline > 1, plan.tensor * plan.data > 8, plan.tensor > 8, plan.zero_stage > 0]
        both = [
            (plan.pipeline > 1) * logs[0],
            (plan.pipeline > 1) * logs[2],
            (plan.zero_stage > 0) * (plan.pipeline > 1),
        ]
        table.append([1.0, *logs, *flags, *both])
    return np.array(table, float)


def fit_rule(cases: Sequence[Case], slow: np.ndarray) -> Rule:
    """Logistic regression with a ridge, by Newton's method. `slow` may hold probabilities."""
    at = np.array([case.stack == CLASS for case in cases])
    if not at.any():
        return Rule(tuple([0.0] * features(cases[:1]).shape[1]))
    x, label = features([case for case in cases if case.stack == CLASS]), slow[at]
    weights = np.zeros(x.shape[1])
    prior = _RIDGE * np.eye(len(weights)) / 10.0
    for _ in range(50):
        p = 1.0 / (1.0 + np.exp(-x @ weights))
        gradient = x.T @ (p - label) + prior @ weights
        move = np.linalg.solve((x * (p * (1 - p))[:, None]).T @ x + prior, gradient)
        weights = weights - move
        if np.abs(move).max() < 1e-10:
            break
    return Rule(tuple(float(w) for w in weights))
