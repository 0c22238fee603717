r"""Measured kernels as observations of the constants: best matmuls, matmuls by size, attention by length, streams.

The logarithm of a rate is $\log P + \log \eta - \log(1 + s_0 r)$ of `roofline.py`, with
$r = \sqrt{P / P_0} \sum 1/n$ of a matmul; of one of the best shape (which fills all tiles) without the last term.
"""

import dataclasses
import re
from collections.abc import Mapping, Sequence

import numpy as np

from costmodel.formulas import larger
from costmodel.inputs import Accelerator, Cluster
from costmodel.measured.fit.parameters import PARAMETERS, Group
from costmodel.measured.rows import lenient
from costmodel.specs import die_of, family_of, load_cluster

_CLUSTERS = (
    (r"GB200", "gb200-nvl72", "gb200"),
    (r"B300", "b300", "b300"),
    (r"B200", "b200", "b200"),
    (r"H200|GH200", "h200", "h200"),
    (r"H100-80GB-SXM", "h100", "h100"),
    (r"A100-80GB-SXM", "a100-80gb", "a100"),
    (r"MI300X", "mi300x", "mi300x"),
    (r"MI325X", "mi325x", "mi325x"),
    (r"MI355X", "mi355x", "mi355x"),
    (r"Gaudi2", "gaudi2", "gaudi"),
    (r"Gaudi3", "gaudi3", "gaudi"),
    (r"TPU v6e", "tpu-v6e", "tpu"),
)
_FAR_BELOW = 0.4  # of the log, of a median: beyond what shapes and library versions differ by
_ATTENTION = r"FA2 fwd\+bwd causal|FA3 fwd causal|in-step fwd\+bwd"
_WITH_BACKWARD = 0.9  # rate of both passes over that of the forward alone. Source: Shah et al. 2024 (FA3), figures 5, 6
_SMALLEST = 3.0 / 3000.0  # reciprocal sizes of products that are long enough for launches not to matter
_SCATTER = {"matmul": 0.05, "attention": 0.10, "attention_2": 0.10, "hbm": 0.05}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Kernel:
    """One measurement: the log of its share of the peak is a sum of logs of constants, less a size's share."""

    kind: str
    group: Group  # stack empty: of the hardware, whatever software calls it
    log_share: float
    eight_bits: bool = False
    reciprocal_sizes: float = 0.0  # of a matmul as the units of `Stack.matmul_size0` have them

    @property
    def scatter(self) -> float:
        """Standard deviation of the logarithm."""
        return _SCATTER[self.kind]


def own_kernels(rows: Sequence[Mapping[str, str]], cluster: Cluster) -> list[Kernel]:
    """The observations of a user's own machine, whatever its table calls the accelerator."""
    chip = cluster.accelerator
    read = [_observed(row, chip, _group(family_of(chip.name)), r"fwd\+bwd") for row in rows]
    return [kernel for kernel in read if kernel is not None]


def kernels(rows: Sequence[Mapping[str, str]]) -> list[Kernel]:
    """The observations among the rows of the microbenchmarks' table.

    Products of a machine that stay far below what another one reaches on the same chip say that the machine is slow,
    not what the chip does.
    """
    read = [(row.get("source", ""), kernel) for row in rows if (kernel := _kernel(row)) is not None]
    shares: dict[tuple[str, bool], dict[str, list[float]]] = {}
    for source, kernel in read:
        if kernel.kind == "matmul":
            shares.setdefault(_format(kernel), {}).setdefault(source, []).append(kernel.log_share)
    slow = {
        (source, chip)
        for chip, by_source in shares.items()
        for source, own in by_source.items()
        if np.median(own) < max(map(max, by_source.values())) - _FAR_BELOW
    }
    return [kernel for source, kernel in read if kernel.kind != "matmul" or (source, _format(kernel)) not in slow]


def _format(kernel: Kernel) -> tuple[str, bool]:
    """The chip, and whether its units for 8 bits worked."""
    return kernel.group["family"], kernel.eight_bits


def _kernel(row: Mapping[str, str]) -> Kernel | None:
    known = next(((name, family) for words, name, family in _CLUSTERS if re.search(words, row["hardware"])), None)
    return None if known is None else _observed(row, load_cluster(known[0]).accelerator, _group(known[1]))


def _observed(
    row: Mapping[str, str],
    chip: Accelerator,
    group: Group,
    attention_op: str = _ATTENTION,
) -> Kernel | None:
    value = lenient(row, "value")
    if value is None:
        return None
    if row["kind"] == "gemm" and row["unit"] == "TFLOP/s":
        eight = row["dtype"] == "fp8"
        peak = chip.peak_8bit_flop_per_s if eight else chip.peak_16bit_flop_per_s
        share = float(np.log(1e12 * value / peak))
        if _sizes(row) > _SMALLEST:
            return None
        own = {"log_share": share, "eight_bits": eight, "reciprocal_sizes": float(larger(peak)) * _sizes(row)}
        return Kernel(kind="matmul", group=group, **own)
    if row["kind"] == "hbm" and row["op"].endswith("triad"):
        return Kernel(kind="hbm", group=group, log_share=float(np.log(1e12 * value / chip.hbm_bytes_per_s)))
    attention = row["unit"] == "TFLOP/s" and re.search(attention_op, row["op"])
    length = re.search(r"seq(\d+)", row["shape_or_bytes"])
    if attention and length and not re.search(r"headdim(64|256)", row["shape_or_bytes"]):
        kind = "attention_2" if "FA2" in row["op"] else "attention"
        both = 1.0 if "bwd" in row["op"] else _WITH_BACKWARD
        share = float(np.log(1e12 * both * value / chip.peak_16bit_flop_per_s))
        return Kernel(kind=kind, group=group, log_share=share, reciprocal_sizes=1.0 / float(length[1]))
    return None


def _group(family: str) -> Group:
    """Of the hardware, whatever software calls the kernel."""
    return {"die": die_of(family), "family": family, "stack": "", "fabric": ""}


def _sizes(row: Mapping[str, str]) -> float:
    """Sum of the reciprocals of a matmul's sizes; nothing for the best shape found, which fits the tiles."""
    numbers = re.findall(r"\d+", row["shape_or_bytes"])
    return 0.0 if "best shape" in row["op"] else sum(1.0 / float(n) for n in numbers[:3])


_TERMS = {
    "matmul": ("matmul_ceiling", "matmul_size0"),
    "attention": ("attention_ceiling", "attention_size0"),
    "attention_2": ("attention_2_ceiling", "attention_size0"),
}


def linearised_kernels(
    measured: Sequence[Kernel], free: Mapping[str, np.ndarray], scale: float
) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """Residuals of the logarithms in units in which `scale` is each kernel's scatter, and their derivatives by the
    unbounded variables, by kernel."""
    values = {p.name: p.value(free[p.name]) for p in PARAMETERS}
    logs, slopes = log_shares(measured, values)
    unit = scale / np.array([kernel.scatter for kernel in measured])
    found = unit * (logs - np.array([kernel.log_share for kernel in measured]))
    return found, {p.name: unit * slopes[p.name] * p.slope(values[p.name]) for p in PARAMETERS}


def log_shares(
    measured: Sequence[Kernel], values: Mapping[str, np.ndarray]
) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """Predicted logarithms, and their derivatives by the values of the constants."""
    result, slopes = np.zeros(len(measured)), {name: np.zeros(len(measured)) for name in values}
    inverse = np.array([kernel.reciprocal_sizes for kernel in measured])
    for kind in _SCATTER:
        at = np.array([kernel.kind == kind for kernel in measured])
        ceiling, size0 = _TERMS.get(kind, ("hbm_ceiling", None))
        result += at * np.log(values[ceiling])
        slopes[ceiling] += at / values[ceiling]
        if size0 is not None:
            result -= at * np.log1p(values[size0] * inverse)
            slopes[size0] -= at * inverse / (1 + values[size0] * inverse)
    eight = np.array([float(kernel.eight_bits) for kernel in measured])
    result += eight * np.log(values["matmul_8bit_ceiling"])
    slopes["matmul_8bit_ceiling"] += eight / values["matmul_8bit_ceiling"]
    return result, slopes
