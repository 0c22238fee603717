"""One row of measurements as a person writes it, read or refused; and where the bulk sets are, if anywhere."""

import csv
import io
from pathlib import Path

import pytest

from costmodel.measured.rows import (
    Case,
    Unreadable,
    case,
)
from tests.support import SHARED

_PLACES = (SHARED / "measurements", Path("/work/shared/measurements"))
BULK = next((place for place in _PLACES if place.is_dir()), None)
needs_bulk = pytest.mark.skipif(BULK is None, reason="the bulk measurements are not beside the project")

ROW = {
    "source": "somebody's Megatron-LM table",
    "hardware": "A100-80GB-SXM",
    "gpus": "64",
    "gpus_per_node": "8",
    "interconnect_note": "8x200 Gb/s HDR InfiniBand per node",
    "model": "GPT 22B",
    "layers": "48",
    "hidden": "6144",
    "heads": "64",
    "kv_heads": "64",
    "ffn_hidden": "24576",
    "gated_ffn": "0",
    "vocab": "51200",
    "seq": "2048",
    "global_batch_sequences": "64",
    "micro_batch": "2",
    "tp": "8",
    "sp": "1",
    "cp": "1",
    "pp": "2",
    "vpp": "1",
    "dp": "4",
    "zero_stage_or_fsdp": "none (DDP)",
    "recompute": "selective",
    "precision": "fp16",
    "flash_attention": "0",
    "notes": "",
}


def read(**changes: str) -> Case:
    found = case(ROW | changes)
    assert isinstance(found, Case), found
    return found


def refused(**changes: str) -> str:
    found = case(ROW | changes)
    assert isinstance(found, Unreadable), found
    assert "\n" not in found.reason
    return found.reason


def bulk_rows(split: str) -> list[dict[str, str]]:
    assert BULK is not None
    with open(BULK / f"{split}.csv", newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def table(tmp_path: Path, rows: list[dict[str, str]], *broken: str) -> Path:
    text = io.StringIO()
    writer = csv.DictWriter(text, list(ROW), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    path = tmp_path / "rows.csv"
    path.write_text(text.getvalue() + "".join(broken), encoding="utf-8")
    return path
