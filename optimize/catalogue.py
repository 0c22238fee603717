"""`equipoise models` and `equipoise clusters`: what is known by name."""

from typing import Any

from costmodel.cluster import Cluster
from costmodel.plan import layers
from costmodel.specs import cluster_names, load_cluster, load_workload, model_names, read_tables
from costmodel.workload import active_parameters, model_flop, parameters


def models() -> list[dict[str, Any]]:
    """Every named model with its exact totals; `active_parameters` are those that work on one token.

    Sizes that a family does not have are null; those that differ between stages are lists.
    """
    tables, found = read_tables("models"), []
    for name in model_names():
        workload, table = load_workload(name), tables[name]
        count = int(parameters(workload))
        sizes = {"layers": layers(workload)} | {key: table.get(key) for key in ("hidden", "heads", "vocabulary")}
        found.append(
            {"name": name, "parameters": count, "active_parameters": int(active_parameters(workload)), **sizes}
            | {"sequence": workload.sequence, "batch": workload.batch}
            | {"flop_per_token": model_flop(workload) / workload.sequence}
            | {"family": table.get("family", "decoder"), "size_note": table.get("size_note")}
            | {"source": table.get("source"), "date": table.get("date")}
        )
    return found


def clusters() -> list[dict[str, Any]]:
    """Every named cluster: its accelerator and its tiers from the inside out."""
    tables = read_tables("clusters")
    return [_cluster(load_cluster(name), tables[name]) for name in cluster_names()]


def _cluster(cluster: Cluster, table: dict[str, Any]) -> dict[str, Any]:
    chip = cluster.accelerator
    return {
        "name": cluster.name,
        "accelerator": chip.name,
        "peak_16bit_flop_per_s": chip.peak_16bit_flop_per_s,
        "hbm_bytes": chip.hbm_bytes,
        "hbm_bytes_per_s": chip.hbm_bytes_per_s,
        "types": list(chip.types),
        "default_accelerators": cluster.accelerators,
        "tiers": [
            {
                "name": tier.name,
                "size": tier.size if tier is not cluster.tiers[-1] else None,
                "usable_size": tier.usable_size if tier is not cluster.tiers[-1] else None,
                "bandwidth_bytes_per_s": tier.bandwidth_bytes_per_s,
                "latency_s": tier.latency_s,
            }
            for tier in cluster.tiers
        ],
        "source": table.get("source"),
        "date": table.get("date"),
    }
