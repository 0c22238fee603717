"""The best cluster of real parts: which accelerator known by name, how many, how fast a network between domains.

Hardware is not varied here but enumerated, so the answer is exhaustive: a count whose products alone take longer than
the best answer so far is dismissed, of the others every plan is evaluated. The gap that remains is 0 unless time is up.
"""

import dataclasses
import time
from collections.abc import Iterator

import numpy as np

from costmodel.cluster import Cluster
from costmodel.cost import as_floats
from costmodel.curves import hardware_of
from costmodel.economics import economics
from costmodel.plan import Plan
from optimize.counts_of_accelerators import grid
from optimize.families import Families
from optimize.joint import TOLERANCE, expand_indices
from optimize.lattice import lattice
from optimize.objective import Job, Limits, Objective, Quantities, minimised
from optimize.screen import BATCH, FLOAT32_SLACK, screen, tangents_of
from optimize.space import RATES, Ranges, Space, known_clusters, sized

NETWORKS_BYTES_PER_S = (25e9, 50e9, 100e9)  # InfiniBand of 200, 400 and 800 Gb/s per accelerator
"""Speeds that are sold under the name of one network (HDR, NDR, XDR); priced in proportion, as `prices.toml` says."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Part:
    """One cluster of the catalogue with one network, of so many accelerators."""

    cluster: Cluster  # with prices, sized
    domain: int
    bound: float  # logarithm of the minimised value, by the products alone

    @property
    def accelerators(self) -> int:
        return int(self.cluster.accelerators)


@dataclasses.dataclass(frozen=True, kw_only=True)
class PartsFound:
    """The best of the catalogue. `log_bound`: nothing is below."""

    best: Part | None
    plan: Plan | None
    log_value: float
    log_bound: float
    evaluations: int
    by_name: dict[str, float]  # best logarithm of each cluster that was looked at
