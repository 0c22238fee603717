"""The cluster of a row, its accelerator by name and its fabric by the interconnect's note; the machine of a device."""

import dataclasses
import functools
import re

from costmodel.inputs import Cluster, Tier
from costmodel.measured.rows.columns import Columns, RowError
from costmodel.measured.rows.other_accelerators import as_other, divided, host_of, other_accelerator, parts_of
from costmodel.measured.rows.records import Machine
from costmodel.measured.rows.words import between_nodes, clauses, inside
from costmodel.pytree import as_float, map_leaves
from costmodel.specs import load_cluster, show

# The first pattern that is found in the hardware's name, without blanks and dashes: cluster and family of parameters.
_KNOWN = (
    (r"gb300", "gb300-nvl72", "gb300"),
    (r"gb200|a4x", "gb200-nvl72", "gb200"),
    (r"b300|p6b300", "b300", "b300"),
    (r"b200|p6b200|a4high", "b200", "b200"),
    (r"h200|gh200|p5en?\.|a3ultra", "h200", "h200"),
    (r"h800", "h800", "h100"),
    (r"h100.*(hbm2e|lowertdp)", "h100-96gb", "h100-96gb"),
    (r"h100|p5\.|a3mega|a3high|^eos", "h100", "h100"),
    (r"a100.*80g", "a100-80gb", "a100"),
    (r"a100.*(?<!\d)40g|a100.*320g|p4d\.|nd96asr|a2high|perlmutter|polaris|juwels", "a100-40gb", "a100"),
    (r"a100|p4de\.|nd96amsr|a2ultra|^selene", "a100-80gb", "a100"),
    (r"v100|p3(?:dn)?\.|dgx1v?$|^summit", "v100", "v100"),
    (r"^dgx2$", "v100-16", "v100"),
    (r"mi300", "mi300x", "mi300x"),
    (r"mi325", "mi325x", "mi325x"),
    (r"mi355", "mi355x", "mi355x"),
    (r"v5e|v5lite", "tpu-v5e", "tpu"),
    (r"v5p", "tpu-v5p", "tpu"),
    (r"v6e|trillium", "tpu-v6e", "tpu"),
    (r"v7x?|tpu7x?|ironwood", "tpu-v7x", "tpu"),
    (r"tpu.*v4|^v4", "tpu-v4", "tpu"),
    (r"gaudi2|hl225", "gaudi2", "gaudi"),
    (r"gaudi3|hl325", "gaudi3", "gaudi"),
    (r"trainium2|trn2", "trainium2", "trainium"),
)


def machine(columns: Columns, power_w: float | None = None) -> Machine:
    """The machine of a row, whose accelerators may be capped at so many watts."""
    if re.fullmatch(r"\d+\s*(?:node|host|server|machine)s?", columns.text("gpus")) and not columns.text(
        "gpus_per_node"
    ):
        told = f"`gpus` is {show(columns.text('gpus'))} and `gpus_per_node` empty"
        raise RowError(f"{told}; expected a number of accelerators, or those of a node")
    accelerators = columns.needed("gpus")
    if accelerators > 2**24:
        raise RowError(f"`gpus` is {accelerators}; expected at most {2**24}")
    name = squeezed(columns.text("hardware"))
    memory_gb, per_node = columns.number("gpu_mem_GB"), columns.count("gpus_per_node")
    printed = f"{columns.text('hardware')} | {columns.row.get('gpus')}"
    note = columns.text("interconnect_note")
    if not _SLICES.search(note.lower()):  # which other words tell too
        note = f"{note}; {_told_slices(columns.text('notes'))}" if "tpu" in name else note
    parts = parts_of(name, printed, columns.text("notes"), memory_gb, per_node, accelerators)
    host = host_of(name)
    return _machine(
        name,
        memory_gb,
        note,
        columns.text("zero_stage_or_fsdp").lower(),
        accelerators,
        per_node or (host * parts if host else None),
        columns.text("hardware"),
        parts,
        power_w,
    )


def squeezed(hardware: str) -> str:
    """The name of an accelerator without blanks, dashes and makers; a comma parts what follows of its memory."""
    name = re.sub(r"[\s\-,(]+(\d+\s*g(?:i?b?|o)\b)", r",\1", _MAKERS.sub("", hardware.lower()))
    return re.sub(r"[\s\-]", "", name)


_MAKERS = re.compile(
    r"\b(?:nvidia|tesla|geforce|amd|instinct|intel|habana|huawei|google|cloud|aws|moore threads|mtt)\b"
)


@functools.lru_cache(maxsize=4096)
def _machine(
    name: str,
    memory_gb: float | None,
    note: str,
    sharding: str,
    accelerators: int,
    per_node: int | None,
    printed: str,
    parts: int,
    power_w: float | None,
) -> Machine:
    sheet = other_accelerator(name, memory_gb)
    cluster_name, family = _known(name, memory_gb, printed) if sheet is None else (sheet["like"], sheet["family"])
    cluster = map_leaves(as_float, dataclasses.replace(_shipped(cluster_name), prices=None))
    if sheet is not None:
        cluster = as_other(cluster, sheet)
    cluster = _capped(divided(cluster, parts), power_w)
    if parts == 1:
        cluster = _of_size(cluster, memory_gb or _gigabytes(printed) or (16.0 if _SMALL.match(name) else None))
    cluster = _in_racks(dataclasses.replace(cluster, accelerators=float(accelerators)), name)
    if family == "tpu":
        found = _torus(cluster, family, note, sharding, accelerators, parts)
    else:
        found = _nodes(
            cluster, family, note, accelerators, per_node, joined=_ULTRA.search(f"{name} {note.lower()}") is not None
        )
    told = () if sheet is None else (f"{printed} as {cluster_name}, by its data sheet",)
    told += () if parts == 1 else (f"accelerators counted by dies or cores, {parts} of each",)
    return dataclasses.replace(found, assumed=(*told, *found.assumed))


def _capped(cluster: Cluster, power_w: float | None) -> Cluster:
    """The cluster under a power cap: speed as the cap to the 0.8th power (data/accelerators.toml, h100-96gb)."""
    rated_w = cluster.accelerator.power_w
    if power_w is None or rated_w is None or not 0.3 < power_w / rated_w < 1:
        return cluster
    clock = cluster.accelerator.sustained_clock * (power_w / rated_w) ** 0.8
    return dataclasses.replace(cluster, accelerator=dataclasses.replace(cluster.accelerator, sustained_clock=clock))


_USUAL = 1.1  # labels are capacities in GB or GiB, before or after what the driver keeps
_OTHER = 0.4  # below it the figure is of another memory
_SEVERAL = 1.9  # beyond it the figure is of a node, or of both chips of a board
_REPORTED = 0.995  # of GiB on the label: 81,559 MiB of 80
_SMALL = re.compile(r"p3\.|summit")  # machines of V100 with 16 GB
_V100_16 = 16160 / 16384  # data/accelerators.toml, v100-16gb


def _gigabytes(printed: str) -> float | None:
    """What the name of an accelerator says of its memory (`A100 64GB` of Leonardo, `H100 64GB` of MareNostrum 5)."""
    found = _MEMORY.search(printed)
    if found is None or ("GH200" in printed.upper() and found[1] in _OF_GRACE):
        return None
    return float(found[1] or found[2])


_MEMORY = re.compile(
    r"(?<!\d)(\d+)[\s\-]?(?:GB|gb|GiB|Go)(?!/s|ps|it|\d)"  # neither Gb nor a `GB200`
    r"|(?<![\dx])(?=(?:16|32|40|64|80|96|141|192)[Gg]\b)(\d+)"
)
_OF_GRACE = ("120", "240", "480")  # GB of the processor beside it


def _of_size(cluster: Cluster, memory_gb: float | None) -> Cluster:
    """The cluster with accelerators of the memory on their label, where they were made with more or less of it."""
    chip = cluster.accelerator
    ratio = (memory_gb or 0.0) * 2**30 / float(chip.hbm_bytes)
    if memory_gb is None or not (_OTHER < ratio < 1 / _USUAL or _USUAL < ratio < _SEVERAL):
        return cluster
    share = _V100_16 if chip.name == "v100-32gb" and memory_gb == 16 else _REPORTED
    chip = dataclasses.replace(chip, hbm_bytes=share * memory_gb * 2**30)
    return dataclasses.replace(cluster, accelerator=chip)


def _in_racks(cluster: Cluster, name: str) -> Cluster:
    """The cluster with racks of the size in its name, where they are smaller (`GB200 NVL36`; two `NVL36x2` are one)."""
    found, (inner, *others) = re.search(r"gb\d+.*nvl(\d+)(?!\d|x2)", name), cluster.tiers
    if found is None or int(found[1]) >= int(inner.size):
        return cluster
    size = float(found[1])
    inner = dataclasses.replace(inner, size=size, usable_size=min(float(inner.usable_size), size))
    return dataclasses.replace(cluster, tiers=(inner, *others))


@functools.cache
def _shipped(name: str) -> Cluster:
    return load_cluster(name)


def _known(name: str, memory_gb: float | None, printed: str) -> tuple[str, str]:
    for pattern, cluster, family in _KNOWN:
        if re.search(pattern, name):
            if cluster.startswith("a100") and (memory_gb == 40 or (memory_gb == 80 and "perlmutter" in name)):
                return f"a100-{memory_gb:g}gb", family
            return cluster, family
    told = f"is {show(printed)}; no figures of this accelerator are known" if printed else "is empty"
    raise RowError(f"`hardware` {told}; expected one such as H100-80GB-SXM, MI300X, TPU v5p or Trainium 2")


def _nodes(cluster: Cluster, family: str, note: str, accelerators: int, per_node: int | None, joined: bool) -> Machine:
    """Nodes (or racks) of one tier, or of the axes of a torus and what joins several of them; a fabric between them."""
    inner, *between, outer = cluster.tiers
    assumed: tuple[str, ...] = ()
    rack = inner.size > 16 and "nodes of" not in note
    between = between if joined else between[:-1]
    domain = int(inner.usable_size) if rack or between else (per_node or int(inner.size))
    if not rack and domain != inner.size:
        inner = dataclasses.replace(inner, size=float(domain), usable_size=float(domain))
    host = per_node or int(min(8, inner.size))
    printed_bytes_per_s = between_nodes(note, host, float(outer.bandwidth_bytes_per_s))
    if printed_bytes_per_s is None and accelerators > domain:
        assumed = (f"{8e-9 * outer.bandwidth_bytes_per_s:g} Gb/s per accelerator between nodes",)
    outer = dataclasses.replace(outer, bandwidth_bytes_per_s=printed_bytes_per_s or outer.bandwidth_bytes_per_s)
    usual = float(inner.bandwidth_bytes_per_s)
    inner = dataclasses.replace(inner, bandwidth_bytes_per_s=inside(note, usual) or usual)
    outer = dataclasses.replace(
        outer, size=float(max(accelerators, domain)), usable_size=float(max(accelerators, domain))
    )
    fabric = "node" if accelerators <= (between[-1].size if between else domain) else _fabric(note, cluster.name)
    return Machine(
        cluster=dataclasses.replace(cluster, tiers=(inner, *(t for t in between if t.size < accelerators), outer)),
        family=family,
        fabric=fabric,
        domain=domain,
        slice_size=accelerators,
        assumed=assumed,
    )


def _fabric(note: str, cluster: str) -> str:
    note = note.lower()
    for word in ("efa", "roce", "slingshot", "ethernet", "rdma"):
        if word in note:
            return {"rdma": "roce"}.get(word, word)
    if cluster.startswith("trainium"):
        return "efa"
    if "infiniband" in note or "dgx" in note or not cluster.startswith(("mi", "gaudi")):
        return "infiniband"
    return "roce"


def _torus(cluster: Cluster, family: str, note: str, sharding: str, accelerators: int, parts: int) -> Machine:
    """A slice of a torus, with one tier for each axis, and the data-centre network between slices."""
    axes = [tier for tier in cluster.tiers if tier.name.startswith("ici")]
    outer = [tier for tier in cluster.tiers if not tier.name.startswith("ici")]
    pod = _PODS.get(cluster.accelerator.name)  # beyond which a job has several slices
    largest = parts * pod if pod else int(axes[-1].size) if outer else accelerators
    count, size = _slices(note, sharding, accelerators, largest)
    reached = [min(int(axis.size), size) for axis in axes[:-1]] + [size]
    tiers: list[Tier] = []
    for axis, to in zip(axes, reached, strict=True):
        if not tiers or to > tiers[-1].size:
            tiers.append(dataclasses.replace(axis, size=float(to), usable_size=float(to)))
    if count > 1:
        between = (
            outer[0] if outer else dataclasses.replace(axes[-1], name="datacentre", bandwidth_bytes_per_s=_DATACENTRE)
        )
        tiers.append(dataclasses.replace(between, size=float(accelerators), usable_size=float(accelerators)))
    return Machine(
        cluster=dataclasses.replace(cluster, tiers=tuple(tiers)),
        family=family,
        fabric="ici" if count == 1 else "datacentre",
        domain=int(tiers[0].size),
        slice_size=size,
    )


_SLICES = re.compile(r"(?<![\w.\-])(\d+)\s*(?:slice\(?s?\)?|pods?)(?: of (\d+))?\b")
_ULTRA = re.compile(r"ultra(?![\s\-]*cluster)")  # an UltraServer joins instances; UltraClusters are networks
_PODS = {"tpu-v5p": 8960, "tpu-v7x": 9216}  # docs.cloud.google.com/tpu; of the others the last axis is the pod's
_DATACENTRE = 3.125e9  # of TPU v4, whose pages print none: that of v5e, 100 Gb/s for 4 chips (data/clusters.toml)


_OF_OTHER_SLICES = re.compile(r"\b(?:compared|than|versus|vs|unlike|one of|kubernetes|k8s|gke)\b")


def _told_slices(notes: str) -> str:
    """What the notes tell of slices or pods, but for those of others and Kubernetes' pods."""
    found = ((clause, _SLICES.search(clause)) for clause in clauses(notes))
    return next((each[0] for clause, each in found if each and not _OF_OTHER_SLICES.search(clause)), "")


def _slices(note: str, sharding: str, accelerators: int, largest: int) -> tuple[int, int]:
    """Number of slices and chips in each."""
    printed = _SLICES.search(note.lower())
    if printed and 0 < int(printed[1]) < accelerators and accelerators % int(printed[1]) == 0:
        size = accelerators // int(printed[1])
        if printed[2] is None or int(printed[2]) == size:
            return int(printed[1]), size
    over = re.search(r"dcn=(\d+)", sharding)
    if over and accelerators % int(over[1]) == 0:
        return int(over[1]), accelerators // int(over[1])
    if accelerators > largest and accelerators % largest == 0:
        return accelerators // largest, largest
    return 1, accelerators


_RENAMED = (("v6 lite", "v6e"), ("TPU7x", "TPU v7x"))  # names that drivers give devices, as rows have them


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
