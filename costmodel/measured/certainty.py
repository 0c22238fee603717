r"""Whether a plan fits: the probability, and the margin that a probability asks for.

The logarithm of measured over predicted memory is normal about 0 with the standard deviation $\sigma$ of the software
(`Stack.memory_log_sd`, from calibration rows). So a plan of $M$ bytes fits into $L$ with the probability
$\Phi(\ln(L/M)/\sigma)$, and fits with probability $p$ where $M e^{z_p \sigma} \le L$. That factor is
`Stack.memory_margin`, which all bytes that are compared with a limit carry (`formulas.MemoryUse.needed_bytes`).
"""

import dataclasses
import math
from statistics import NormalDist

from costmodel.inputs import Cluster

FITS = 0.9
"""The probability of fitting that searches ask for where nobody says otherwise."""


def with_margin(cluster: Cluster, probability: float) -> Cluster:
    """The cluster on which a plan fits where it does with this probability. One half: as predicted."""
    if not 0.0 < probability < 1.0:
        raise ValueError(f"`margin` is {probability}; expected a probability between 0 and 1, both excluded")
    stack = cluster.stack
    margin = math.exp(NormalDist().inv_cdf(probability) * float(stack.memory_log_sd))
    return dataclasses.replace(cluster, stack=dataclasses.replace(stack, memory_margin=margin))


def fits_probability(peak_bytes: float, cluster: Cluster) -> float:
    """The probability that what is predicted to need `peak_bytes` fits into the accelerator's memory."""
    spare, log_sd = math.log(float(cluster.accelerator.hbm_bytes) / peak_bytes), float(cluster.stack.memory_log_sd)
    return float(spare >= 0) if log_sd == 0 else NormalDist().cdf(spare / log_sd)
