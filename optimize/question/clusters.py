"""What a question reads of whole clusters: those known by name, their size, their bill, the least that a step takes."""

import dataclasses
import functools
import math
from collections.abc import Mapping

from costmodel import Scalar, as_floats
from costmodel.formulas import Busy, Economics, economics, hardware_of, spare_share
from costmodel.inputs import Cluster
from costmodel.specs import SpecError, cluster_names, load_cluster
from optimize.question.quantities import Quantities
from optimize.question.rates import RATES

LEAST_SHARE = 0.5  # of the least accelerator known by name: cheaper parts than those that are sold for training


def sized(cluster: Cluster, accelerators: Scalar) -> Cluster:
    """The cluster with this count, and a last tier that holds it."""
    last = dataclasses.replace(cluster.tiers[-1], size=accelerators, usable_size=accelerators)
    return dataclasses.replace(cluster, accelerators=accelerators, tiers=(*cluster.tiers[:-1], last))


FAILURES = ("low", "base", "high")
"""Cases of how often parts fail and how long that lasts (prices.toml)."""


def failing(cluster: Cluster, case: str, repair_s: float | None = None) -> Cluster:
    """The cluster that fails as in one of the cases of its prices; "none": never.

    `repair_s`: until what failed is back, for which spares are bought (default: of the prices, which ship none).
    """
    if cluster.prices is None:
        return cluster
    names = ("accelerator_failure_s", "job_failure_s", "restart_s", "checkpoint_bytes_per_s", "checkpoint_stall")
    names = (*names, "slow_accelerator_s", "slow_for_s", "slow_by")
    never = dict.fromkeys(("accelerator_failure_s", "job_failure_s", "slow_accelerator_s"), math.inf)
    own = never if case == "none" else {name: getattr(getattr(cluster.prices, case), name) for name in names}
    own |= {} if repair_s is None else {"server_repair_s": repair_s}
    base = dataclasses.replace(cluster.prices.base, **own)
    return dataclasses.replace(cluster, prices=dataclasses.replace(cluster.prices, base=base))


def whole_domains(cluster: Cluster) -> Cluster:
    """The cluster with every accelerator usable: what is designed has no odd ones in its domains."""
    tiers = tuple(dataclasses.replace(tier, size=tier.usable_size) for tier in cluster.tiers)
    return dataclasses.replace(cluster, tiers=tiers)


@functools.cache
def known_clusters() -> tuple[Cluster, ...]:
    """Clusters known by name that lack no number."""
    clusters = []
    for name in cluster_names():
        try:
            clusters.append(load_cluster(name))
        except SpecError:  # it can be listed, but not evaluated
            continue
    return tuple(clusters)


@functools.cache
def known_bounds() -> Mapping[str, tuple[float, float]]:
    """The least and the most of each rate, and of HBM bytes, among known clusters of two tiers or more."""
    known = [hardware_of(cluster) for cluster in known_clusters() if len(cluster.tiers) > 1]
    columns = {name: [float(getattr(hardware, name)) for hardware in known] for name in (*RATES, "hbm_bytes")}
    bounds = {name: (LEAST_SHARE * min(columns[name]), max(columns[name])) for name in RATES}
    return bounds | {"hbm_bytes": (1.0, max(columns["hbm_bytes"]))}


def quantities(cluster: Cluster, domain: int, train_s: float, rent: bool, load: float = 1.0) -> Quantities:
    """What limits and objectives read of a cluster with prices; nan where one is not known (and none is asked for).

    Servers draw `load` of what is usual in training.
    """
    assert cluster.prices is not None
    size = float(cluster.tiers[0].size)
    usual = second_of(cluster, domain, 1.0)
    money = usual if load == 1.0 else second_of(cluster, domain, load)
    usd_per_s = money.rental_usd if rent else money.owned_usd
    return Quantities(
        train_s=train_s,
        usd_per_s=math.nan if usd_per_s is None else float(usd_per_s),
        meter_w=math.nan if money.draw is None else float(money.draw.meter_w),
        capital_usd=math.nan if money.bill is None else float(money.bill.usd),
        accelerators=float(cluster.accelerators) * max(1.0, size / domain),
        spares=float(cluster.accelerators) * spare_share(as_floats(cluster.prices.base)),
        usual_w=math.nan if usual.draw is None else float(usual.draw.meter_w),
        carbon_g_per_j=float(cluster.prices.base.carbon_g_per_j),
    )


def second_of(cluster: Cluster, domain: int, load: float) -> Economics:
    """A second of training on a cluster with prices whose servers draw `load` of what is usual: linear in the load."""
    assert cluster.prices is not None
    prices = dataclasses.replace(cluster.prices.base, idle_load=load)
    return economics(cluster, prices, float(cluster.accelerators), domain, 1.0, 1.0, Busy(**_NOTHING))


_NOTHING = {"compute_s": 0.0, "hbm_s": 0.0, "links_s": 0.0}
