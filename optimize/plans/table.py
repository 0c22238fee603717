"""`plans.csv.gz`: every plan that a search looked at, as it goes along, up to a stated number of rows."""

import gzip
import io

import numpy as np

from costmodel.formulas import Cost
from costmodel.inputs import SCHEDULES
from optimize.lattice import Chunk, recompute_names

MOST_ROWS = 2_000_000
"""Some 20 MB. Larger searches write their first plans; `result.json` says how many of how many."""

DEGREES = ("tensor", "context", "pipeline", "data", "expert", "expert_tensor", "microbatch", "domain", "virtual_stages")
OPTIONS = ("schedule", "zero_stage", "data_shard", "sequence_parallel", "context_kind", "recompute", "recompute_share")
HEADER = (*DEGREES, *OPTIONS, "step_s", "peak_bytes", "fits")

POINT = ("peak_bytes", "step_s", "tensor", "context", "pipeline")
"""What a figure of all plans needs of each."""


class PlanTable:
    """Rows in memory, compressed. `data_shard` 0 means all of data x context; figures are those of float32."""

    def __init__(self, most_rows: int = MOST_ROWS) -> None:
        self.most_rows, self.rows, self.seen = most_rows, 0, 0
        self._buffer = io.BytesIO()
        self._file = gzip.GzipFile(fileobj=self._buffer, mode="wb", compresslevel=1, mtime=0)
        self._file.write((",".join(HEADER) + "\n").encode())
        self._points: list[np.ndarray] = []

    def add(self, chunk: Chunk, costs: Cost, needed: np.ndarray) -> None:
        """The plans of one chunk."""
        self.seen += len(chunk)
        count = min(len(chunk), self.most_rows - self.rows)
        if count <= 0:
            return
        self.rows += count
        arrays = _columns(chunk, costs, needed)
        chosen = [arrays[HEADER.index(name)][:count] for name in POINT]
        self._points.append(np.stack([column.astype(np.float32) for column in chosen]))
        columns = [column[:count].tolist() for column in arrays]
        lines = (",".join(map(str, row)) for row in zip(*columns, strict=True))
        self._file.write(("\n".join(lines) + "\n").encode())

    def points(self) -> np.ndarray:
        """Columns `POINT` of every row, in order."""
        return np.concatenate(self._points, axis=1) if self._points else np.zeros((len(POINT), 0), np.float32)

    def content(self) -> bytes:
        """The whole file. Nothing is added afterwards."""
        self._file.close()
        return self._buffer.getvalue()


def _columns(chunk: Chunk, costs: Cost, needed: np.ndarray) -> list[np.ndarray]:
    c = dict(chunk.columns)
    c["schedule"] = np.array(list(SCHEDULES))[c["schedule"]]
    c["recompute"] = np.array(recompute_names(chunk.lattice.fixed))[c["recompute"]]
    c["context_kind"] = np.array(["ring", "all_to_all"])[c["all_to_all"]]
    peak_bytes = costs.peak_bytes.astype(float) / float(chunk.lattice.cluster.stack.memory_margin)
    figures = [np.round(costs.step_s.astype(float), 7), peak_bytes.astype(np.int64)]
    return [*(c[name] for name in (*DEGREES, *OPTIONS)), *figures, (needed <= 1).astype(int)]
