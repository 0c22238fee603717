"""The cells of one measured row as numbers and words."""

import math
import re
from collections.abc import Mapping

from costmodel.measured.rows.headers import COUNTED, measured
from costmodel.specs import show

NO_WORDS = ("0", "0.0", "no", "n", "false", "off", "none", "disabled", "disable", "unused", "without")
NO_WORDS += ("not used", "not enabled", "not supported", "w/o", "\u2717", "\u2718")
YES_WORDS = ("1", "1.0", "yes", "y", "true", "on", "enabled", "enable", "used", "with", "\u2713", "\u2714")
NOTHING = (
    "",
    "-",
    "--",
    "\u2013",
    "\u2014",
    "?",
    "n/a",
    "na",
    "nan",
    "null",
    "nil",
    "unknown",
    "n.a.",
    "tbd",
    "default",
)
"""Words of a cell for no, for yes, and for what is not said."""
_OPEN = re.compile(
    r"(?:not|un|never|nowhere)[\s-]?(?:stated|printed|given|listed|known|specified|mentioned|reported|disclosed"
    r"|published|applicable|available|clear)\.?|n/?[sr]|auto|varies|various"
)
_KINDS = {
    "gated_ffn": (("swiglu", "geglu", "reglu", "gated", "glu"), ("gelu", "relu", "squared", "plain", "mlp")),
    "sp": (("ulysses", "ring", "megatron", "sp", "tp"), ()),
}
"""Words of a flag's own for yes and for no."""
_SOFTWARE = ("source", "zero_stage_or_fsdp", "flash_attention", "notes")
_NONE_IS_ZERO = ("tp", "cp", "pp", "vpp", "dp", "ep", "experts", "topk", "kv_heads", "vocab", "micro_batch")
_BINARY = ("seq", "gpus", "hidden", "ffn_hidden")  # columns whose thousands are 1,024
_SCALES = {"": 1.0, "k": 1e3, "m": 1e6, "b": 1e9, "g": 1e9, "t": 1e12}
_UNITS = (
    r"gib|gb|tokens?|toks?|seqs?|sequences?|samples?|gpus?|chips?|devices?|cores?|accelerators?|layers?|l|heads?|stages?|ways?"
    r"|parameters?|params?|experts?|ranks?|nodes?|per (?:node|host|gpu|device|rank)|s|sec|seconds?|billion"
)


class RowError(ValueError):
    """Why one row cannot be modelled, in one line."""


class Columns:
    """Typed access to the cells of a row. An empty cell is None; a cell that cannot be right is a `RowError`."""

    def __init__(self, row: Mapping[str, str]) -> None:
        self.row = row

    def text(self, name: str) -> str:
        """The cell, stripped; an absent column, and a word for what is not said, is an empty cell."""
        cell = (self.row.get(name) or "").strip()
        return "" if cell.lower() in NOTHING or _OPEN.fullmatch(cell.lower()) else cell

    def number(self, name: str) -> float | None:
        """A finite number above zero, with or without its unit, or None for a cell that says none."""
        text = self.text(name)
        if not text or text.lower() == "none":
            return None
        value = as_number(text.lower(), 1e-9 if name == "params_B" else 1.0, name in _BINARY)
        if value is None:
            raise RowError(f"`{name}` is {show(text)}; expected a number or nothing")
        if value == 0 and name in _NONE_IS_ZERO:
            return None
        if name == "params_B" and value >= COUNTED:
            value *= 1e-9
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
        """Yes, no, or None for a cell that says neither; a degree above one is a yes."""
        text = self.text(name).lower()
        if not text:
            return None
        words = re.split(r"[\s(,;:]+", text)
        first = words[0]
        if words[-1] == "gated":  # SiLU gated, not gated
            first = "no" if {"not", "non", "no"} & {*words} else "yes"
        if {text, first} & {*YES_WORDS, *_KINDS.get(name, ((), ()))[0]}:
            return True
        if {text, first} & {*NO_WORDS, *_KINDS.get(name, ((), ()))[1]}:
            return False
        degree = as_number(text)
        if degree is None or degree < 0:
            raise RowError(f"`{name}` is {show(text)}; expected 0, 1 or nothing")
        return degree >= 1


def as_number(text: str, scaled: float = 1.0, binary: bool = False) -> float | None:
    """`8`, `1,024`, `4k`, `80 GB`, `64 GPUs`, `2-way`. An amount with its letter is `scaled`: `8B` parameters are
    eight of their column; `4k` tokens of a sequence are 4,096, and `16K` accelerators 16,384."""
    try:
        return float(text.replace("_", "x"))  # 1_000 is nobody's number
    except ValueError:
        pass
    power = re.fullmatch(r"(\d{1,3})\s*(?:\^|\*\*)\s*(\d{1,2})", text)
    if power:
        return float(power[1]) ** int(power[2])
    found = re.fullmatch(rf"[~\u2248]?\s*(\d+(?:,\d{{3}})*(?:\.\d+)?)\s*([kmbgt]?)[\s-]*(?:{_UNITS})?", text)
    if not found:
        return None
    letter = found[2]
    scale = 1024.0 ** (1 + "km".index(letter)) if binary and letter in ("k", "m") else _SCALES[letter]
    return float(found[1].replace(",", "")) * scale * (scaled if letter else 1.0)


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
    """A number above zero in the unit of its column, or None for anything else: of columns that no prediction reads."""
    value = measured(name, row.get(name) or "")
    return value if value is not None and math.isfinite(value) and value > 0 else None


def words(row: Mapping[str, str], *names: str) -> str:
    """Cells put together in lower case, to look for words in."""
    return re.sub(r"\s+", " ", " | ".join(row.get(name) or "" for name in names)).lower()


def cells(row: Mapping[str, str], *names: str) -> str:
    """Cells put together as they are, to read meanings in."""
    return " | ".join(row.get(name) or "" for name in names)


def software_words(row: Mapping[str, str]) -> str:
    """What names the software; a formula for FLOP/s after Megatron's paper does not."""
    return _FORMULA.sub("", cells(row, *_SOFTWARE))


_FORMULA = re.compile(
    r"megatron[ -]?(lm)?('s)?[ -]?((t?flops?|tflop/s|paper)[ -]?)?(formula|convention|estimate)", re.IGNORECASE
)
