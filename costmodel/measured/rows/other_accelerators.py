"""Accelerators that no cluster of ours has: as one that is like them, with the rates of their own data sheet."""

import dataclasses
import functools
import re
from collections.abc import Mapping

from costmodel.inputs import Cluster
from costmodel.measured.rows.words import said
from costmodel.specs import DATA, read_rows

_HALVES = ("gcd", "neuron core", "one|single die|core", "graphics die")


def other_accelerator(name: str) -> Mapping[str, str] | None:
    """The data sheet of an accelerator by its name without blanks and dashes; None where none is known."""
    return next((sheet for sheet in _sheets() if re.search(sheet["pattern"], name)), None)


@functools.cache
def _sheets() -> tuple[Mapping[str, str], ...]:
    rows = read_rows(DATA / "other_accelerators.csv", needed=("pattern", "like"))
    return tuple(row for row in rows if not isinstance(row, str))


def as_other(cluster: Cluster, sheet: Mapping[str, str], words: str) -> Cluster:
    """The cluster with the accelerators of the sheet; with half of each where the row counts their two dies."""
    share = 0.5 if said(words, _HALVES) else 1.0
    peak, peak_8bit = (1e12 * share * float(sheet[name]) for name in ("tflop_16bit", "tflop_8bit"))
    chip = dataclasses.replace(
        cluster.accelerator,
        peak_16bit_flop_per_s=peak,
        peak_8bit_flop_per_s=peak_8bit,
        peak_4bit_flop_per_s=peak_8bit,
        hbm_bytes=2.0**30 * share * float(sheet["hbm_gib"]),
        hbm_bytes_per_s=1e12 * share * float(sheet["hbm_tb_per_s"]),
        power_w=None,
    )
    link = 1e9 * share * float(sheet["link_gb_per_s"])
    inner = dataclasses.replace(cluster.tiers[0], bandwidth_bytes_per_s=link)
    return dataclasses.replace(cluster, accelerator=chip, tiers=(inner, *cluster.tiers[1:]))
