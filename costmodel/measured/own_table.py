"""A user's table of kernels and collectives, in the columns of the published microbenchmarks."""

import csv
from collections.abc import Mapping, Sequence
from pathlib import Path

from costmodel.measured.rows import lenient
from costmodel.specs import CollectiveRow, SpecError, plain, read_text

_NEEDED = ("kind", "op", "dtype", "shape_or_bytes", "value", "unit")
_LAWS = {
    "all_reduce": "all_reduce",
    "all_gather": "all_gather",
    "reduce_scatter": "reduce_scatter",
    "alltoall": "all_to_all",
    "sendrecv": "neighbour",
}


def is_microbenchmarks(path: str | Path) -> bool:
    """Whether a file's first line names such columns."""
    return set(_NEEDED) <= set(next(csv.reader(read_text(path).splitlines()[:1]), []))


def read_microbenchmarks(path: str | Path) -> list[Mapping[str, str]]:
    """The rows, by column."""
    rows: list[Mapping[str, str]] = [*csv.DictReader(read_text(path).splitlines())]
    short = next((i for i, row in enumerate(rows) if any(row.get(name) is None for name in _NEEDED)), None)
    if short is not None:
        raise SpecError(f"rows ({plain(str(path))}): row {short + 1} has fewer cells than the header")
    return rows


def collectives_of(rows: Sequence[Mapping[str, str]]) -> list[CollectiveRow]:
    """The collectives by size in bytes: their times in microseconds, or bus bandwidths as nccl-tests define them."""
    read = [_collective(row) for row in rows if row["kind"] == "collective" and row["op"] in _LAWS]
    return [row for row in read if row is not None]


def _collective(row: Mapping[str, str]) -> CollectiveRow | None:
    ranks, value = int(lenient(row, "n_devices") or 0), lenient(row, "value")
    if ranks < 2 or value is None or not row["shape_or_bytes"].isdigit():
        return None
    size, nodes = float(row["shape_or_bytes"]), lenient(row, "nodes") or 1.0
    if row["unit"] == "us":
        time_s = 1e-6 * value
    elif row["unit"] == "GB/s busbw":
        time_s = _bus_factor(row["op"], ranks) * size / (1e9 * value)
    else:
        return None
    return CollectiveRow(
        op=_LAWS[row["op"]], payload_bytes=size, ranks=ranks, time_s=time_s, domain=ranks / nodes if nodes > 1 else 0.0
    )


def _bus_factor(op: str, ranks: int) -> float:
    """Bus bandwidth over payload / time."""
    return 1.0 if op == "sendrecv" else (2.0 if op == "all_reduce" else 1.0) * (ranks - 1) / ranks
