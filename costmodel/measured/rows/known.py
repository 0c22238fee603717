"""The machine behind the name that a driver gives its devices."""

from costmodel.inputs import Cluster
from costmodel.measured.rows.columns import Columns, RowError
from costmodel.measured.rows.hardware import machine, squeezed
from costmodel.measured.rows.other_accelerators import other_accelerator

_RENAMED = (("v6 lite", "v6e"), ("TPU7x", "TPU v7x"))


def known_cluster(device: str, accelerators: int, per_node: int) -> Cluster | None:
    """So many accelerators of that name, with the tiers that they reach; None where no data sheet of them is here."""
    for theirs, ours in _RENAMED:
        device = device.replace(theirs, ours)
    cells = {"hardware": device, "gpus": str(accelerators), "gpus_per_node": str(per_node)}
    if other_accelerator(squeezed(device)) is not None:
        return None  # its links are not known
    try:
        cluster = machine(Columns(cells)).cluster
    except RowError:
        return None
    reached = next((i for i, tier in enumerate(cluster.tiers) if tier.usable_size >= accelerators), None)
    if reached is None:
        return None
    return Cluster(
        name=cluster.name,
        accelerator=cluster.accelerator,
        tiers=cluster.tiers[: reached + 1],
        accelerators=float(accelerators),
        stack=cluster.stack,
    )
