"""Accelerators that no cluster of ours has: as one that is like them, with the rates of their own data sheet; and
accelerators of which a row counts the dies or cores."""

import dataclasses
import functools
import re
from collections.abc import Mapping

from costmodel.inputs import Cluster
from costmodel.measured.rows.words import said
from costmodel.specs import DATA, read_rows

_PARTS_IN_WORDS = ("gcd", "neuron core", "one|single die|core", "graphics die")
# Names, GiB of a whole accelerator, how many a host has, and into how many parts frameworks see it: dies of AMD and
# Huawei, cores of AWS (of Trainium 2 and 3 pairs of them, LNC 2, by default: awsdocs-neuron), cores of a TPU (which
# names of slices up to v5p count: docs.cloud.google.com/tpu).
_DIVIDED = (
    (r"mi250|frontier|lumi", 128, 4, (2,)),
    (r"910c", 128, 8, (2,)),
    (r"trn1|trainium(?![23])", 32, 16, (2,)),
    (r"trn2|trainium2", 96, 16, (4, 8)),
    (r"trn3|trainium3", 144, 16, (4, 8)),
    (r"tpuv?2|^v2", 16, 4, (2,)),
    (r"tpuv?3|^v3", 32, 4, (2,)),
    (r"tpuv?4|^v4", 32, 0, (2,)),
    (r"v5p", 95, 0, (2,)),
)
_SLICE_OF_CORES = re.compile(r"v(?:[234]|5p)(\d{1,5})(?!\d|chips|gb)")


def other_accelerator(name: str, memory_gb: float | None = None) -> Mapping[str, str] | None:
    """The data sheet of an accelerator by its name without blanks and dashes, and by the memory on its label where it
    was made with several; None where none is known."""
    label = name if memory_gb is None else f"{name},{memory_gb:g}gb"
    return next((sheet for sheet in _sheets() if re.search(sheet["pattern"], label)), None)


@functools.cache
def _sheets() -> tuple[Mapping[str, str], ...]:
    rows = read_rows(DATA / "other_accelerators.csv", needed=("pattern", "like"))
    return tuple(row for row in rows if not isinstance(row, str))


def host_of(name: str) -> int | None:
    """Whole accelerators of a host, where frameworks count their parts."""
    return next((hosted or None for pattern, _, hosted, _ in _DIVIDED if re.search(pattern, name)), None)


def parts_of(name: str, printed: str, notes: str, memory_gb: float | None, per_node: int | None, counted: int) -> int:
    """Into how many parts the accelerators are divided of which a row counts `counted`: by how many a host has, by the
    memory on the label, by the name of the slice, or by its words. One: they are counted whole."""
    found = next(((gib, hosted, parts) for pattern, gib, hosted, parts in _DIVIDED if re.search(pattern, name)), None)
    if found is None:
        return 1
    gib, hosted, parts = found
    of_slice, words = _SLICE_OF_CORES.search(name), f"{printed} | {notes}"
    if (of_slice is not None and int(of_slice[1]) == 2 * counted) or re.search(r"\b\d+ chips", printed):
        return 1
    by_host = [part for part in parts if per_node == hosted * part]
    by_memory = [part for part in parts if memory_gb and 0.9 < memory_gb * part / gib < 1.1]
    in_words = said(words, _PARTS_IN_WORDS) or (of_slice is not None and int(of_slice[1]) == counted)
    return next(iter(by_host or by_memory or (parts if in_words and per_node != hosted else ())), 1)


def divided(cluster: Cluster, parts: int) -> Cluster:
    """The cluster of as many parts of each of its accelerators; those of one are linked as it is with others."""
    if parts == 1:
        return cluster
    chip, of_chip = cluster.accelerator, 1.0 / parts
    rates = ("peak_32bit", "peak_16bit", "peak_8bit", "peak_4bit")
    given = {f"{name}_flop_per_s": of_chip * getattr(chip, f"{name}_flop_per_s") for name in rates}
    given |= {name: of_chip * getattr(chip, name) for name in ("hbm_bytes", "hbm_bytes_per_s")}
    power_w = None if chip.power_w is None else of_chip * chip.power_w
    tiers = tuple(
        dataclasses.replace(
            tier,
            size=parts * tier.size,
            usable_size=parts * tier.usable_size,
            bandwidth_bytes_per_s=of_chip * tier.bandwidth_bytes_per_s,
        )
        for tier in cluster.tiers
    )
    chip = dataclasses.replace(chip, power_w=power_w, **given)
    return dataclasses.replace(cluster, accelerator=chip, tiers=tiers)


def as_other(cluster: Cluster, sheet: Mapping[str, str]) -> Cluster:
    """The cluster with the accelerators of the sheet, and its links: along every axis of a torus."""
    peak, peak_8bit = (1e12 * float(sheet[name]) for name in ("tflop_16bit", "tflop_8bit"))
    like = cluster.accelerator
    chip = dataclasses.replace(
        like,
        peak_32bit_flop_per_s=1e12 * float(sheet.get("tflop_32bit") or 0.0)
        or like.peak_32bit_flop_per_s * peak / like.peak_16bit_flop_per_s,
        peak_16bit_flop_per_s=peak,
        peak_8bit_flop_per_s=peak_8bit,
        peak_4bit_flop_per_s=peak_8bit,
        hbm_bytes=2.0**30 * float(sheet["hbm_gib"]),
        hbm_bytes_per_s=1e12 * float(sheet["hbm_tb_per_s"]),
        power_w=None,
    )
    kind, link = cluster.tiers[0].name.partition("-")[0], 1e9 * float(sheet["link_gb_per_s"])
    *_, outer = cluster.tiers
    network = 1e9 * float(sheet.get("network_gbit_per_s") or 0.0) / 8 or outer.bandwidth_bytes_per_s
    tiers = tuple(
        dataclasses.replace(tier, bandwidth_bytes_per_s=link if tier.name.startswith(kind) else network)
        for tier in cluster.tiers
    )
    return dataclasses.replace(cluster, accelerator=chip, tiers=tiers)
