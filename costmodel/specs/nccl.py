"""Reads what nccl-tests and rccl-tests print: one measured collective a line."""

import dataclasses
import re
from pathlib import Path

from costmodel.specs.files import SpecError, plain
from costmodel.specs.rows import text_of

_OPS = {
    "all_reduce": "all_reduce",
    "all_gather": "all_gather",
    "reduce_scatter": "reduce_scatter",
    "alltoall": "all_to_all",
    "sendrecv": "neighbour",
}
_LINE = re.compile(r"^\s*(\d+)\s+\d+\s+[a-z]\w*\s+\w+\s+-?\d+\s+([\d.]+)\s+[\d.]+\s+[\d.]+", re.MULTILINE)
_RANK = re.compile(r"^#\s+Rank\s+\d+", re.MULTILINE)


@dataclasses.dataclass(frozen=True, kw_only=True)
class CollectiveRow:
    """One measured call. `payload_bytes` is the undivided tensor; of an all-to-all, what one rank holds."""

    op: str
    payload_bytes: float
    ranks: int
    time_s: float
    domain: float = 0.0  # accelerators used of each innermost domain; 0: all that are usable


def is_nccl(path: str | Path) -> bool:
    """Whether a file looks like the output of nccl-tests rather than a table of rows."""
    return _LINE.search(text_of(path, f"rows ({plain(str(path))})")) is not None


def read_nccl(path: str | Path) -> list[CollectiveRow]:
    """Every line with a size and an out-of-place time; the ranks are the lines `# Rank`, the operation is named."""
    where = f"rows ({plain(str(path))})"
    text = text_of(path, where)
    ranks = len(_RANK.findall(text))
    if ranks < 2:
        raise SpecError(f"{where}: it names {ranks} ranks; expected two lines `# Rank ...` of nccl-tests or more")
    op = next((op for name, op in _OPS.items() if f"{name}_perf" in text or name in Path(path).name), None)
    if op is None:
        raise SpecError(f"{where}: it names no operation; expected one of {', '.join(f'{name}_perf' for name in _OPS)}")
    found = [(float(size), 1e-6 * float(time_us)) for size, time_us in _LINE.findall(text)]
    return [CollectiveRow(op=op, payload_bytes=s, ranks=ranks, time_s=t) for s, t in found if s > 0 and t > 0]
