"""The fabrics of the collectives in microbenchmarks.csv, as clusters, and their rows by fabric and operation."""

import csv
import dataclasses
from collections.abc import Iterable
from pathlib import Path

from costmodel.inputs.cluster import Cluster
from costmodel.inputs.hardware import Tier
from costmodel.inputs.stack import Stack
from costmodel.measured.collective_fit import CollectiveRow
from costmodel.specs.loading import load_cluster

OPS = {
    "all_reduce": "all_reduce",
    "all_gather": "all_gather",
    "reduce_scatter": "reduce_scatter",
    "alltoall": "all_to_all",
    "sendrecv": "neighbour",
}
# (hardware, start of the interconnect's text): named cluster, outer bytes/s per accelerator (as the text says, or the
# NICs of measurements/README.md section 3), rate of all-reduces in the switches if not the cluster's
FABRICS: dict[tuple[str, str], tuple[str, float, float | None]] = {
    ("A100-80GB-SXM", "AWS p4de"): ("a100-80gb", 6.25e9, None),
    ("A100-80GB-SXM", "NVSwitch"): ("a100-80gb", 25e9, None),
    ("A100-40GB-SXM", "OCI BM.GPU4.8"): ("a100-40gb", 25e9, None),
    ("H100-80GB-SXM", "AWS p5"): ("h100", 50e9, None),
    ("H100-80GB-SXM", "GCP A3 Mega"): ("h100", 25e9, 0.0),
    ("H100-80GB-SXM", "DGX H100"): ("h100", 50e9, None),
    ("H100-80GB-SXM", "OCI"): ("h100", 50e9, None),
    ("H100-80GB-SXM", "NVSwitch"): ("h100", 50e9, None),
    ("H200", "NVSwitch"): ("h200", 50e9, None),
    ("B200", "GCP A4"): ("b200", 50e9, None),
    ("B200", "HGX B200"): ("b200", 50e9, None),
    ("GB200", "NVL72"): ("gb200-nvl72", 50e9, None),
    ("GB200", "two NVL72"): ("gb200-nvl72", 100e9, None),
    ("GB200", "three NVL72"): ("gb200-nvl72", 100e9, None),
    ("GB300", "NVL72"): ("gb200-nvl72", 100e9, None),
    ("MI355X", "XGMI"): ("b200", 50e9, 0.0),
}
INNER_BYTES_PER_S = {"MI355X": 535.5e9}


def cluster_of(hardware: str, interconnect: str) -> Cluster:
    """The cluster of a fabric, with a hundred innermost domains."""
    (key,) = [key for key in FABRICS if key[0] == hardware and interconnect.startswith(key[1])]
    name, outer_bytes_per_s, saved = FABRICS[key]
    # the shipped stacks hold fits to these rows: start from the defaults
    cluster = dataclasses.replace(load_cluster(name, accelerators=6400), stack=Stack())
    inner, outer = cluster.tiers
    changes = {} if saved is None else {"in_network_reduction": saved}
    inner_bytes_per_s = INNER_BYTES_PER_S.get(hardware, inner.bandwidth_bytes_per_s)
    tiers: tuple[Tier, ...] = (
        dataclasses.replace(inner, bandwidth_bytes_per_s=inner_bytes_per_s, **changes),
        dataclasses.replace(outer, bandwidth_bytes_per_s=outer_bytes_per_s),
    )
    return dataclasses.replace(cluster, tiers=tiers)


def measured(path: Path) -> dict[tuple[str, str, str], list[CollectiveRow]]:
    """Rows by hardware, interconnect and operation; a second software environment is a fabric of its own."""
    found: dict[tuple[str, str, str], list[CollectiveRow]] = {}
    with path.open() as file:
        for row in _usable(csv.DictReader(file)):
            environment = ", second environment" if "_v2" in row["notes"] else ""
            key = (row["hardware"], row["interconnect"] + environment, row["op"])
            found.setdefault(key, []).append(_row(row))
    return found


def _usable(rows: Iterable[dict[str, str]]) -> Iterable[dict[str, str]]:
    """Collectives of known hardware, by size in bytes, whose bandwidth is not printed as zero."""
    for row in rows:
        if row["kind"] == "collective" and row["op"] in OPS and row["n_devices"] and row["shape_or_bytes"].isdigit():
            if row["unit"] == "us" or float(row["busbw_GBps"]) > 0:
                yield row


def _row(row: dict[str, str]) -> CollectiveRow:
    ranks, payload_bytes = int(row["n_devices"]), float(row["shape_or_bytes"])
    if row["unit"] == "us":
        time_s = float(row["value"]) * 1e-6
    else:
        time_s = bus_factor(row["op"], ranks) * payload_bytes / (float(row["busbw_GBps"]) * 1e9)
    return CollectiveRow(op=OPS[row["op"]], payload_bytes=payload_bytes, ranks=ranks, time_s=time_s)


def bus_factor(op: str, ranks: int) -> float:
    """Bus bandwidth over payload / time, as nccl-tests define it."""
    return {"all_reduce": 2.0, "sendrecv": ranks / (ranks - 1)}.get(op, 1.0) * (ranks - 1) / ranks
