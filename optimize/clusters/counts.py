"""Which numbers of accelerators a design looks at, and which of them cannot hold the best answer."""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from costmodel.formulas import as_floats, rates
from costmodel.inputs import Cluster, Plan, Workload, embed, model_flop
from optimize.clusters.tangents import Laws, left, money
from optimize.question import RATES, Limits, Space

STEPS = (4, 5, 6, 7)  # of an octave: counts of a domain times 2**i times a quarter of these


def grid(limits: Limits, domain: int, least_usd: float, least_w: float) -> list[int]:
    """Multiples of the domain, four for each octave, as many as the limits can pay for."""
    most = limits.accelerators or math.inf
    if limits.budget_usd is not None and not limits.rent:
        most = min(most, limits.budget_usd / least_usd)
    if limits.power_w is not None:
        most = min(most, limits.power_w / least_w)
    found = {part for part in (1, 2, 4) if part < domain and domain % part == 0} if domain <= most else set()
    octaves = range(-2, max(0, math.ceil(math.log2(max(1.0, min(most, 2**22) / domain)))) + 1)
    found |= {domain * step * 2**i // 4 for i in octaves if i >= 0 for step in STEPS}
    found |= {domain * part for part in (1, 2, 3)}
    return sorted(count for count in found if count <= most)


def between(low: int, high: int, domain: int) -> list[int]:
    """Multiples of the domain strictly between two counts whose prime factors are 2, 3, 5 and 7."""
    return [domain * k for k in range(low // domain + 1, -(-high // domain)) if _smooth(k)]


def _smooth(value: int) -> bool:
    for prime in (2, 3, 5, 7):
        while value % prime == 0:
            value //= prime
    return value == 1


def products_s(workload: Workload, cluster: Cluster, fixed: Mapping[str, Any]) -> float:
    """Seconds in which one accelerator could do the products of a step at the best rate of a kernel."""
    precision = fixed.get("precision", "bf16")
    point = embed(Plan(precision=precision if isinstance(precision, str) else "nvfp4"), workload, 1.0)
    speed = rates(as_floats(cluster.accelerator), point, cluster.stack)
    fastest = min(speed.matmul_s_per_flop, speed.attention_s_per_flop)
    return float(model_flop(workload) * workload.batch * fastest)


def flop_bound_s(
    workload: Workload, space: Space, limits: Limits, accelerators: float, fixed: Mapping[str, Any]
) -> float:
    """No plan on so many accelerators takes fewer seconds: its products alone, on the fastest that limits allow."""
    priced = money(space, float(space.template.tiers[0].usable_size))
    have = left(priced, limits, np.array([accelerators]), np.zeros(1))
    low, high = np.log(space.ranges.low), np.log(space.ranges.high)
    fastest = np.exp(largest_alone(priced.laws, have.usd, have.watt, low, high)[0, 0])
    slower = float(space.template.accelerator.peak_16bit_flop_per_s) / fastest
    return products_s(workload, space.template, fixed) * slower / accelerators


def largest_alone(laws: Laws, usd: np.ndarray, watt: np.ndarray, low: np.ndarray, high: np.ndarray) -> np.ndarray:
    """The most of each rate where the limits pay for the least of the others: the best corner of the box."""
    ends = np.broadcast_to(high, (len(usd), len(RATES))).copy()
    for limit, amount, exponent in ((usd, laws.usd, laws.usd_exponent), (watt, laws.watt, laws.watt_exponent)):
        least = amount * np.exp(exponent * low)
        spare = np.maximum(limit[:, None] - (least.sum() - least), 1e-300)
        with np.errstate(divide="ignore"):
            ends = np.minimum(ends, np.where(amount > 0, np.log(spare / np.maximum(amount, 1e-300)) / exponent, np.inf))
    return np.maximum(ends, low)
