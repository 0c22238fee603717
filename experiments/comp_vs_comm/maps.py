"""Beyond the paper, by gradient: what a layer's time depends on, and where communication stops mattering."""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from costmodel.evaluators import SUBGRADIENT, log_gradient
from costmodel.inputs import Cluster
from experiments.comp_vs_comm import layer

RATES = ("FLOP/s", "HBM bandwidth", "scale-up bandwidth", "scale-out bandwidth")
_STEPS = 40
_LEAST, _MOST = 1e-3, 1e5  # what a ratio of hardware is looked for in, times what the cluster has


def laws(sizes: layer.Sizes) -> dict[str, dict[str, np.ndarray]]:
    """Elasticities of edge and slack by the sizes of a layer on elementary hardware."""

    def of(quantity: Callable[..., Any]) -> dict[str, np.ndarray]:
        def formula(at: Mapping[str, Any]) -> Any:
            workload = layer.bare(layer.one_layer(at))
            return quantity(layer.counted(workload, layer.elementary(), at, SUBGRADIENT)[0])

        return log_gradient(formula, sizes)[1]

    return {"edge": of(layer.edge), "slack": of(layer.slack)}


def elasticities(cluster: Cluster, sizes: layer.Sizes) -> dict[str, np.ndarray]:
    """d log(time of the layer) / d log(rate) for each of `RATES`, on every point of `sizes`."""

    def formula(at: Mapping[str, Any]) -> Any:
        times = layer.counted(layer.one_layer(sizes), _scaled(cluster, at), sizes, SUBGRADIENT)[1]
        return layer.compute_s(times) + layer.serialized_s(times)

    shape = np.broadcast(*sizes.values()).shape
    return log_gradient(formula, dict.fromkeys(RATES, np.ones(shape)))[1]


def _scaled(cluster: Cluster, at: Mapping[str, Any]) -> Cluster:
    chip, inner, *outer = cluster.accelerator, *cluster.tiers
    peaks = {name: getattr(chip, name) * at["FLOP/s"] for name in layer.PEAKS}
    chip = dataclasses.replace(chip, **peaks, hbm_bytes_per_s=chip.hbm_bytes_per_s * at["HBM bandwidth"])
    tiers = [_faster(inner, at["scale-up bandwidth"]), *(_faster(each, at["scale-out bandwidth"]) for each in outer)]
    return dataclasses.replace(cluster, accelerator=chip, tiers=tuple(tiers))


def _faster(tier: Any, factor: Any) -> Any:
    return dataclasses.replace(tier, bandwidth_bytes_per_s=tier.bandwidth_bytes_per_s * factor)


def factor_at(quantity: Callable[..., Any], target: float, cluster: Cluster, sizes: layer.Sizes) -> np.ndarray:
    """The growth of FLOP/s over bandwidth at which `quantity(counts, times)` reaches `target`: Newton in logarithms.

    The quantity grows with the factor. NaN where it does not reach the target within the range: latency alone keeps
    it above, or nothing brings it there.
    """
    factor = np.ones(np.broadcast(*sizes.values()).shape)
    workload = layer.one_layer(sizes)

    def formula(at: Mapping[str, Any]) -> Any:
        return quantity(*layer.counted(workload, layer.evolved(cluster, at["factor"]), sizes, SUBGRADIENT))

    for _ in range(_STEPS):
        value, slopes = log_gradient(formula, {"factor": factor})
        move = (np.log(target) - value) / np.maximum(slopes["factor"], 1e-3)
        factor = np.clip(factor * np.exp(np.clip(move, -2.0, 2.0)), _LEAST, _MOST)
    reached = np.abs(log_gradient(formula, {"factor": factor})[0] - np.log(target)) < 1e-6
    return np.where(reached, factor, np.nan)
