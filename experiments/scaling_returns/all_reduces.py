"""The published figure of NCCL's all-reduce on nodes of 8 H100, beside the collectives of the cluster that ships."""

import dataclasses
import tomllib
from pathlib import Path
from typing import Any

import numpy as np

from costmodel import load_cluster
from costmodel.measured import log_errors
from costmodel.specs import CollectiveRow

SOURCE = Path(__file__).with_name("all_reduce.toml")


def compared(name: str = "h100") -> dict[str, Any]:
    """Bus bandwidth by nodes and payload, published and ours, and mean errors of 32 MiB and more and of 4 MiB and more.

    The constants of the cluster were fitted to these figures among others: this says how well one law holds them.
    """
    table, cluster = tomllib.loads(SOURCE.read_text(encoding="utf-8")), load_cluster(name, accelerators=4096)
    rows = [
        (part["nodes"], mib, rate)
        for part in table["nodes"]
        for mib, rate in zip(part["payload_mib"], part["bus_gb_per_s"], strict=True)
    ]
    nodes, mib, published = np.array(rows, float).T
    ranks = table["ranks_per_node"] * nodes
    wire_bytes = 2 * (ranks - 1) / ranks * mib * 2**20
    asked = [
        CollectiveRow(op="all_reduce", payload_bytes=size * 2**20, ranks=int(n), time_s=wire / (1e9 * rate))
        for n, size, wire, rate in zip(ranks, mib, wire_bytes, published, strict=True)
    ]
    ours = published * np.exp(-log_errors(asked, cluster, cluster.stack))
    errors, large = np.abs(ours / published - 1), mib >= 32
    columns = {"nodes": nodes, "payload_mib": mib, "published_gb_per_s": published, "ours_gb_per_s": ours}
    return {
        "rows": [dict(zip(columns, map(float, row), strict=True)) for row in zip(*columns.values(), strict=True)],
        "error_large": float(errors[large].mean()),
        "error_all": float(errors.mean()),
        "worst_large": float(errors[large].max()),
        "source": table["source"],
    }


def without_latency(cluster: Any) -> Any:
    """The cluster with collectives that take only as long as their bytes: what cannot explain the published loss."""
    tiers = tuple(dataclasses.replace(tier, latency_s=0.0) for tier in cluster.tiers)
    stack = dataclasses.replace(cluster.stack, collective_s=0.0, collective_ramp=0.0)
    return dataclasses.replace(cluster, tiers=tiers, stack=stack)
