"""The variables of a design: degrees of the plan in log2, rates of the hardware in natural logarithms.

Hardware is four rates of one accelerator, each between the least and the most of the accelerators known by name, HBM
bytes, which are set to what the plan needs, and a count, which follows from the degrees. One array for each variable;
`Space` packs and unpacks at the edge.
"""

import dataclasses
import functools
from collections.abc import Mapping
from typing import Any

import numpy as np

from costmodel import Scalar
from costmodel.formulas import CurveRange, Curves, Hardware, as_floats, hardware_of, with_hardware
from costmodel.inputs import Cluster, Prices
from costmodel.specs import SpecError, cluster_names, load_cluster

RATES = ("flop_per_s", "hbm_bytes_per_s", "scale_up_bytes_per_s", "scale_out_bytes_per_s")
LEAST_SHARE = 0.5  # of the least accelerator known by name: cheaper parts than those that are sold for training


@dataclasses.dataclass(frozen=True)
class Ranges:
    """Rates in the order of `RATES`, and the most bytes of HBM."""

    low: np.ndarray
    high: np.ndarray
    most_hbm_bytes: float


@dataclasses.dataclass(frozen=True)
class Space:
    """What may be bought: a template for everything without a price, the curves, and the ranges of the rates."""

    template: Cluster  # floats, without prices
    prices: Prices  # life, busy share, electricity
    curves: Curves
    ranges: Ranges

    @property
    def domain(self) -> float:
        """Accelerators of one innermost domain that are bought, and that are usable."""
        return self.template.tiers[0].size

    def hardware(self, rates: np.ndarray, hbm_bytes: Scalar, accelerators: Scalar) -> Hardware:
        """From rates along the last axis."""
        named = dict(zip(RATES, np.moveaxis(np.asarray(rates, float), -1, 0), strict=True))
        own = dataclasses.replace(hardware_of(self.template), **named)
        return dataclasses.replace(own, hbm_bytes=hbm_bytes, accelerators=accelerators)

    def cluster(self, hardware: Hardware) -> Cluster:
        """The template with this hardware, its last tier as large as the cluster."""
        cluster = with_hardware(self.template, hardware)
        return sized(cluster, hardware.accelerators)


def sized(cluster: Cluster, accelerators: Scalar) -> Cluster:
    """The cluster with this count, and a last tier that holds it."""
    last = dataclasses.replace(cluster.tiers[-1], size=accelerators, usable_size=accelerators)
    return dataclasses.replace(cluster, accelerators=accelerators, tiers=(*cluster.tiers[:-1], last))


def whole_domains(cluster: Cluster) -> Cluster:
    """The cluster with every accelerator usable: what is designed has no odd ones in its domains."""
    tiers = tuple(dataclasses.replace(tier, size=tier.usable_size) for tier in cluster.tiers)
    return dataclasses.replace(cluster, tiers=tiers)


def space(template: Cluster, curves: CurveRange, ranges: Ranges | None = None) -> Space:
    """Raises `SpecError` for a template that cannot be varied."""
    if template.prices is None or len(template.tiers) < 2:
        raise SpecError(f"cluster {template.name}: expected a template with prices and two tiers or more")
    bare = whole_domains(as_floats(dataclasses.replace(template, prices=None)))
    return Space(bare, as_floats(template.prices.base), as_floats(curves.base), ranges or known_ranges())


@functools.cache
def known_ranges() -> Ranges:
    """Of the clusters known by name with all their numbers, two tiers or more, and FLOP/s of 16 bits."""
    found = [hardware_of(cluster) for cluster in known_clusters() if len(cluster.tiers) > 1]
    columns = np.array([[float(getattr(hardware, name)) for name in RATES] for hardware in found])
    most = max(float(hardware.hbm_bytes) for hardware in found)
    return Ranges(LEAST_SHARE * columns.min(axis=0), columns.max(axis=0), most)


def known_clusters() -> list[Cluster]:
    """Those that lack no number."""
    found = []
    for name in cluster_names():
        try:
            found.append(load_cluster(name))
        except SpecError:  # it can be listed, but not evaluated
            continue
    return found


def as_table(rates: np.ndarray) -> Mapping[str, Any]:
    """Rates by name."""
    return {name: float(value) for name, value in zip(RATES, rates, strict=True)}
