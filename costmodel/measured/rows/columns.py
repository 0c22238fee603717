"""The cells of one measured row as numbers and words."""

import math
import re
from collections.abc import Mapping

from costmodel.specs import show

UNFUSED_WORDS = ("0", "no", "0.0", "false", "none")
"""Words of the column `flash_attention` for attention through the framework's operators."""
_SOFTWARE = ("source", "zero_stage_or_fsdp", "flash_attention", "notes")


class RowError(ValueError):
    """Why one row cannot be modelled, in one line."""


class Columns:
    """Typed access to the cells of a row. An empty cell is None; a cell that cannot be right is a `RowError`."""

    def __init__(self, row: Mapping[str, str]) -> None:
        self.row = row

    def text(self, name: str) -> str:
        """The cell, stripped; an absent column is an empty cell."""
        return (self.row.get(name) or "").strip()

    def number(self, name: str) -> float | None:
        """A finite number above zero, or None for an empty cell."""
        text = self.text(name)
        if not text:
            return None
        try:
            value = float(text)
        except ValueError:
            raise RowError(f"`{name}` is {show(text)}; expected a number or nothing") from None
        if not math.isfinite(value) or value <= 0 or value > 1e12:
            raise RowError(f"`{name}` is {show(text)}; expected a number above 0 and at most 1e12")
        return value

    def count(self, name: str) -> int | None:
        """An integer above zero, or None for an empty cell."""
        value = self.number(name)
        if value is not None and value != int(value):
            raise RowError(f"`{name}` is {show(self.text(name))}; expected an integer")
        return None if value is None else int(value)

    def needed(self, name: str) -> int:
        """An integer that must be there."""
        value = self.count(name)
        if value is None:
            raise RowError(f"`{name}` is empty; expected an integer above 0")
        return value

    def flag(self, name: str) -> bool | None:
        """Yes, no, or None for an empty cell."""
        text = self.text(name).lower()
        if text in ("", "?"):
            return None
        if text in ("1", "1.0", "true", "yes"):
            return True
        if text in ("0", "0.0", "false", "no"):
            return False
        raise RowError(f"`{name}` is {show(text)}; expected 0, 1 or nothing")


def measured_step_s(row: Mapping[str, str]) -> float | None:
    """Seconds of the step as printed, or from tokens a second where only they are."""
    step_s = lenient(row, "measured_step_s")
    if step_s:
        return step_s
    names = ("measured_tokens_per_s_per_gpu", "gpus", "global_batch_sequences", "seq")
    rate, accelerators, batch, sequence = (lenient(row, name) for name in names)
    if rate and accelerators and batch and sequence:
        return batch * sequence / (rate * accelerators)
    return None


def lenient(row: Mapping[str, str], name: str) -> float | None:
    """A number above zero, or None for anything else: of columns that no prediction reads."""
    try:
        value = float(row.get(name) or "")
    except ValueError:
        return None
    return value if math.isfinite(value) and value > 0 else None


def words(row: Mapping[str, str], *names: str) -> str:
    """Cells put together in lower case, to look for words in."""
    return re.sub(r"\s+", " ", " | ".join(row.get(name) or "" for name in names)).lower()


def software_words(row: Mapping[str, str]) -> str:
    """What names the software; a formula for FLOP/s after Megatron's paper does not."""
    return re.sub(r"megatron[ -](flops )?formula", "", words(row, *_SOFTWARE))
