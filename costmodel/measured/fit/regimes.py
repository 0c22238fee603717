r"""A second regime of one software class, named from the columns of a row alone.

Rows of nanotron come in two kinds: ordinary, and slower by about a second for every slot of the pipeline
($m + p - 1$), for a reason that the rows do not hold (the same configuration was measured at 19 and at 89 s). A
logistic rule over the plan's logarithms says which kind a row is likely to be.
"""

from collections.abc import Sequence

import numpy as np

from costmodel.measured.fit.parameters import TWO_REGIMES, Weights
from costmodel.measured.rows import Case

_RIDGE = 1.0  # chosen by five-fold cross-validation on calibration rows: 85 % right, 81 % without the products
_VARIABLES = 10


def slow_probability(weights: Weights, cases: Sequence[Case]) -> np.ndarray:
    """The probability that each case is slow; 0 outside the class."""
    if not len(cases):
        return np.zeros(0)
    at = np.array([case.stack == TWO_REGIMES for case in cases])
    return at / (1.0 + np.exp(-features(cases) @ np.array(weights)))


def likely_slow(weights: Weights, cases: Sequence[Case]) -> np.ndarray:
    """1 for the cases that are more likely slow than not, else 0."""
    return (slow_probability(weights, cases) > 0.5).astype(float)


def features(cases: Sequence[Case]) -> np.ndarray:
    """One row a case: 1, the logarithms of the plan's degrees and whether they cross a node, and all their products."""
    table = []
    for case in cases:
        plan, size = case.plan, float(case.workload.hidden)
        logs = [np.log2(x) for x in (plan.tensor, plan.pipeline, plan.data, plan.microbatch, size / 4096)]
        flags = [plan.tensor > 8, plan.pipeline > 1, plan.accelerators > 64, plan.tensor * plan.data > 8]
        table.append([*logs, *map(float, flags), float(plan.zero_stage)])
    own = np.array(table, float).reshape(len(cases), _VARIABLES)
    products = [own[:, i] * own[:, j] for i in range(_VARIABLES) for j in range(i, _VARIABLES)]
    return np.column_stack([np.ones(len(cases)), own, *products])


def fit_weights(cases: Sequence[Case], slow: np.ndarray) -> Weights:
    """Logistic regression by Newton's method, with a ridge on the weights of standardised features."""
    at = np.array([case.stack == TWO_REGIMES for case in cases])
    if not at.any():
        return (0.0,) * features(cases[:1]).shape[1]
    raw, label = features([case for case in cases if case.stack == TWO_REGIMES]), slow[at]
    mean, scale = raw.mean(axis=0), raw.std(axis=0) + 1e-9
    mean[0], scale[0] = 0.0, 1.0
    x, weights, prior = (raw - mean) / scale, np.zeros(raw.shape[1]), _RIDGE * np.eye(raw.shape[1])
    for _ in range(50):
        p = 1.0 / (1.0 + np.exp(-x @ weights))
        move = np.linalg.solve((x * (p * (1 - p))[:, None]).T @ x + prior, x.T @ (p - label) + prior @ weights)
        weights = weights - move
        if np.abs(move).max() < 1e-10:
            break
    weights = weights / scale
    weights[0] -= weights @ mean
    return tuple(float(w) for w in weights)
