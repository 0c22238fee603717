"""The constants of a measured node as what is known before its first training steps are: for `calibrate`.

Kernels inside a step run as they did alone, but for caches that others have emptied and shapes that were not measured:
each constant has a width of its own, and all rates one in common.
"""

import dataclasses
from collections.abc import Sequence

import numpy as np

from costmodel.inputs import Cluster, Stack
from costmodel.measured.fit import PARAMETERS, SHARED, Evaluator, Key, Parameter
from costmodel.measured.rows import Case

COMMON = 0.2
"""Width, of a logarithm, of what all rates of a node have in common between kernels alone and a training step."""
_RATES = ("matmul_ceiling", "attention_ceiling", "hbm_ceiling")
_WIDTHS = {"matmul_ceiling": 0.1, "hbm_ceiling": 0.15, "matmul_size0": 0.3}
_OTHERS = 0.4  # of a logarithm
_SMALLEST, _LARGEST_SHARE = 1e-9, 0.98  # so that logarithms and logits are finite


@dataclasses.dataclass(frozen=True, kw_only=True)
class OwnConstants:
    """Deviations from the constants of each case's own stack, all zero so far, and the factor of their covariance."""

    keys: tuple[Key, ...]
    z: np.ndarray
    factor: np.ndarray

    def free(self, cases: Sequence[Case]) -> dict[str, np.ndarray]:
        """The unbounded variable of each parameter, by case."""
        return {p.name: np.array([_free(p, case.cluster.stack) for case in cases]) for p in PARAMETERS}

    def evaluator(self, cases: Sequence[Case]) -> Evaluator:
        """An evaluator of the cases, in the ordinary regime."""
        return Evaluator(cases)


def own_constants(stack: Stack) -> OwnConstants:
    """What a measured stack leaves open."""
    slopes = np.array([_log_slope(p, stack) for p in PARAMETERS])
    own = np.array([_WIDTHS.get(p.name, _OTHERS) for p in PARAMETERS])
    common = np.array([COMMON * (p.name in _RATES) for p in PARAMETERS])
    scale = 1.0 / (slopes * np.array([p.shared for p in PARAMETERS]))
    covariance = (np.diag(own**2) + np.outer(common, common)) * np.outer(scale, scale)
    return OwnConstants(
        keys=tuple((p.name, SHARED, "") for p in PARAMETERS),
        z=np.zeros(len(PARAMETERS)),
        factor=np.linalg.cholesky(covariance),
    )


def carried(before: Stack, after: Stack, cluster: Cluster) -> Cluster:
    """A cluster of the same node (other devices of it) whose constants move as those of `before` did."""
    values = {}
    for p in PARAMETERS:
        if hasattr(before, p.name):
            moved = _free(p, after) - _free(p, before)
            values[p.name] = float(p.value(np.array(_free(p, cluster.stack) + moved)))
    return dataclasses.replace(cluster, stack=dataclasses.replace(cluster.stack, **values))


def _free(parameter: Parameter, stack: Stack) -> float:
    value = max(float(getattr(stack, parameter.name, _SMALLEST)), _SMALLEST)
    return float(parameter.free(min(value, _LARGEST_SHARE) if parameter.share else value))


def _log_slope(parameter: Parameter, stack: Stack) -> float:
    """Derivative of the value's logarithm by its unbounded variable."""
    value = parameter.value(np.array(_free(parameter, stack)))
    return float(parameter.slope(value) / value)
