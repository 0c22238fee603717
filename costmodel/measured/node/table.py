"""The table of what was measured, in the columns of the published microbenchmarks."""

import dataclasses
from collections.abc import Sequence

COLUMNS = (
    "source", "source_ref", "trust", "hardware", "n_devices", "nodes", "interconnect", "kind", "op", "dtype",
    "shape_or_bytes", "value", "unit", "busbw_GBps", "notes",
)  # fmt: skip
LINEAR = "jax linear fwd+bwd"
"""The operation of products as a linear layer has them: the result, and both gradients."""
_BUS = {"all_reduce": 2.0, "all_gather": 1.0, "reduce_scatter": 1.0, "alltoall": 1.0}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Measured:
    """One thing that was measured: seconds for each device, all of them busy at once.

    `sizes` are elements, but bytes of a collective and of a stream. `plain` marks what was written out in JAX's own
    operators where a fused kernel could be.
    """

    kind: str  # gemm | attention | hbm | elementwise | optimizer | overhead | collective
    op: str
    dtype: str = ""
    sizes: tuple[tuple[str, int], ...] = ()
    seconds: float
    work: float = 0.0  # FLOP of a product, bytes of a stream, bytes of a collective
    ranks: int = 1
    nodes: int = 1
    plain: bool = False

    @property
    def bus_bytes_per_s(self) -> float:
        """A collective's bus bandwidth as in nccl-tests: what every link carries, whatever the number of ranks."""
        share = 1.0 if self.op == "sendrecv" else _BUS[self.op] * (self.ranks - 1) / self.ranks
        return share * self.work / self.seconds


def as_rows(measured: Sequence[Measured], hardware: str, interconnect: str, date: str) -> list[list[str]]:
    """The rows of the table, in the order of `COLUMNS`."""
    return [_row(each, hardware, interconnect, date) for each in measured]


def _row(each: Measured, hardware: str, interconnect: str, date: str) -> list[str]:
    value, unit = _value(each)
    bus = f"{each.bus_bytes_per_s / 1e9:.4g}" if each.kind == "collective" else ""
    shape = f"{int(each.work)}" if each.kind in ("collective", "hbm") else " ".join(f"{n}{v}" for n, v in each.sizes)
    notes = "median of several calls, all devices busy" + ("; written out in JAX operators" if each.plain else "")
    return [
        "own measurement", f"equipoise measure, {date}", "primary", hardware, str(each.ranks), str(each.nodes),
        interconnect, each.kind, each.op, each.dtype, shape, f"{value:.6g}", unit, bus, notes,
    ]  # fmt: skip


def _value(each: Measured) -> tuple[float, str]:
    if each.kind == "gemm":
        return each.work / each.seconds / 1e12, "TFLOP/s"
    if each.kind == "hbm":
        return each.work / each.seconds / 1e12, "TB/s"
    return 1e6 * each.seconds, "us"
