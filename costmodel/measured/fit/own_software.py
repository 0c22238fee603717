r"""What is known of software before its first row: the fit, and how far one software lies from the next.

Each constant has a deviation of its own, and all of them one in common: a machine that is uniformly slower by a factor
$e^s$ has all rates divided and all times multiplied by it. Both are normal and belong to no die, class or fabric, so
they widen the covariance of the shared deviations, and whatever they are found to be holds for every accelerator.
"""

import dataclasses

import numpy as np

from costmodel.measured.fit.fitted import Fitted
from costmodel.measured.fit.parameters import PARAMETERS, SHARED, Parameter

OWN = 0.6
"""Width of a constant's own deviation over that between software classes. Chosen on calibration rows, each source left
out of the fit and three of its rows given."""
COMMON = 0.12
"""Standard deviation of the logarithm of the common factor. Chosen in the same way."""
_STEP = 0.15  # of that logarithm, over which a share's slope is taken: it must stay below 1
_RATES = (
    "matmul_ceiling", "attention_ceiling", "attention_2_ceiling", "hbm_ceiling", "scale_up_ceiling",
    "scale_out_ceiling",
)  # fmt: skip


def of_own_software(fitted: Fitted, own: float = OWN, common: float = COMMON) -> Fitted:
    """The fit as it is known of software that it never saw."""
    at = [fitted.keys.index((p.name, SHARED, "")) for p in PARAMETERS]
    covariance = fitted.factor @ fitted.factor.T
    covariance[at, at] += [(own * _width(p) / p.shared) ** 2 for p in PARAMETERS]
    along = common * common_direction(fitted)
    return dataclasses.replace(fitted, factor=np.linalg.cholesky(covariance + np.outer(along, along)))


def common_direction(fitted: Fitted) -> np.ndarray:
    """How each deviation changes with the logarithm of a common factor of all times."""
    direction = np.zeros(len(fitted.z))
    for p in PARAMETERS:
        j = fitted.keys.index((p.name, SHARED, ""))
        direction[j] = _slope(p, float(p.value(p.free(p.centre) + p.shared * fitted.z[j]))) / p.shared
    return direction


def _slope(parameter: Parameter, value: float) -> float:
    """Change of the unbounded variable with the logarithm of the factor."""
    if parameter.name in _RATES:
        return float(parameter.free(value * np.exp(-_STEP)) - parameter.free(value)) / _STEP
    return float(parameter.name.endswith("_s"))


def _width(parameter: Parameter) -> float:
    """Width of a software's own deviation: that between classes or dies, else half of the shared uncertainty."""
    return max(parameter.stack, parameter.die, 0.5 * parameter.shared)
