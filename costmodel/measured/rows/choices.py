"""What the row chooses among a few: recompute, formats of numbers, attention kernels, pipeline schedules."""

import re
from collections.abc import Mapping
from typing import Any

from costmodel.inputs import Habits
from costmodel.measured.rows.columns import NO_WORDS, YES_WORDS, Columns, RowError
from costmodel.measured.rows.words import Table, chosen, clauses, meanings, said

_TOO_OLD_FOR_BF16 = ("v100",)
_ELSEWHERE = re.compile(r"grad|accum|master|optimi[sz]er|reduc|peak|state|memory|logit|loss|norm")


def recompute(
    columns: Columns, facts: Mapping[str, float], habits: Habits, layers: int, pipeline: int, assumed: list[str]
) -> tuple[dict[str, Any], bool]:
    """Mode and share, and whether the row leaves it open."""
    mode = _recompute_mode(columns)
    if mode is None:
        if habits.recompute is not None:
            assumed.append(f"recompute {habits.recompute}")
        return {"recompute": habits.recompute or "none"}, True
    if mode == "selective" or (mode == "full" and facts.get("selective_layers")):
        return selective(facts), False
    held = _recomputed_layers(columns, facts)
    if mode == "full" and held:
        share = min(1.0, held * pipeline * (columns.count("vpp") or 1) / layers)
        return {"recompute": "full", "recompute_share": share}, False
    return {"recompute": mode}, False


def _recomputed_layers(columns: Columns, facts: Mapping[str, float]) -> float:
    """Layers of a virtual stage that are computed again; 0: all."""
    found = re.search(r"(\d+) layers?|num[ _]layers\D{0,3}(\d+)", columns.text("recompute").lower())
    return float(found[1] or found[2]) if found else facts.get("recompute_layers", 0.0)


def _recompute_mode(columns: Columns) -> str | None:
    """As the column says, in any wording; else as the notes do."""
    cell, notes = columns.text("recompute"), columns.text("notes")
    if not cell:
        return _of(notes, meanings.RECOMPUTES, denied="none")
    if cell.lower() in NO_WORDS or re.match(r"none\b", cell.lower()):
        return "none"
    mode = "full" if cell.lower() in YES_WORDS else _of(cell, meanings.RECOMPUTE_CELLS, denied="none")
    if mode is None:
        raise RowError(f"`recompute` is {cell!r}; expected none, selective, full or nothing")
    return mode


def selective(facts: Mapping[str, float]) -> dict[str, Any]:
    """Every second layer where the notes say so; else what the software calls selective."""
    if facts.get("selective_layers"):
        return {"recompute": "full", "recompute_share": 0.5}
    return {"recompute": "selective"}


def _of(text: str, table: Table, denied: str | None = None) -> str | None:
    """What the text chooses of a table; `denied` where all that it names is denied."""
    value = chosen(text, table)
    if value is not None:
        return str(value)
    is_denied = denied is not None and said(text, tuple(phrase for phrase, _ in table)) is False
    return denied if is_denied else None


def precision(columns: Columns, family: str, assumed: list[str]) -> str:
    """The format of the matmuls; of 8 bits as the notes say how they are scaled."""
    cell, notes = columns.text("precision"), columns.text("notes")
    usual = "fp16" if family in _TOO_OLD_FOR_BF16 else "bf16"
    value = _of(cell or _about_products(notes), meanings.PRECISIONS)
    if value is None and cell:
        names = "nvfp4, mxfp8, fp8, int8, bf16, fp16, fp32, tf32"
        raise RowError(f"`precision` is {cell.lower()!r}; expected one of {names}")
    if value is None:
        assumed.append(usual)
        return usual
    if value == "fp8_tensor" and "int8" not in cell.lower():
        finer = _of(notes, meanings.PRECISIONS)
        value = finer if finer in ("fp8_block", "mxfp8") else value
    return usual if value == "16" else value


def _about_products(notes: str) -> str:
    """The notes without what they say of gradients, states and reductions."""
    return "; ".join(clause for clause in clauses(notes) if not _ELSEWHERE.search(clause))


def gradient_type(columns: Columns) -> str | None:
    """The format in which gradients add up, where the notes say it."""
    return _of(columns.text("notes"), meanings.GRADIENTS)


_ALONE = {"3": "flash_3", "4": "flash_3", "2": "flash_2", "2.0": "flash_2", "ck": "flash_2"}
_ALONE |= dict.fromkeys(("eager", "math", "naive", "vanilla", "standard"), "unfused")  # words of a cell of their own


def attention(columns: Columns, facts: Mapping[str, float]) -> str:
    """The kernel that the row names; the one that its software calls where it names none."""
    if facts.get("framework_attention"):
        return "framework"
    cell, notes = columns.text("flash_attention"), columns.text("notes")
    if cell.lower() in NO_WORDS:
        return "unfused"
    if cell.lower() in _ALONE:
        return _ALONE[cell.lower()]
    kernel = _of(cell, meanings.ATTENTIONS, denied="unfused")
    if kernel is None or kernel == "flash":
        kernel = _of(notes, meanings.ATTENTIONS, denied=None if kernel else "unfused") or kernel
    if kernel == "unfused" and cell.lower() in YES_WORDS:
        return "flash"
    return kernel or "flash"


def schedule(columns: Columns) -> str | None:
    """The pipeline schedule that the row names."""
    return _of(f"{columns.text('schedule')} | {columns.text('notes')}", meanings.SCHEDULES)
