"""What the row chooses among a few: recompute, formats of numbers, attention kernels, pipeline schedules."""

import functools
import re
from collections.abc import Mapping, Sequence
from typing import Any

from costmodel.inputs import Habits
from costmodel.measured.rows.columns import NO_WORDS, YES_WORDS, Columns, RowError, cells
from costmodel.measured.rows.words import Table, chosen, clauses, meanings, numbered, said

_remembered = functools.lru_cache(maxsize=4096)  # rows of one source say the same words
_TOO_OLD = ("v100",)  # for bf16 and FlashAttention
_ELSEWHERE = re.compile(
    r"grad|accum|master|optimi[sz]er|optim\b|adam|muon|lion|sgd|moment|bitsandbytes|reduc|peak|state|memory|logit|loss|norm|attention|attn|gather|comm|dispatch"
    r"|\b(?:first|last|embeddings?|head|router|rope|kv|cache)\b"
)


def recompute(
    columns: Columns, facts: Mapping[str, float], habits: Habits, layers: int, pipeline: int, assumed: list[str]
) -> tuple[dict[str, Any], bool]:
    """Mode and share, and whether the row leaves it open."""
    mode = _recompute_mode(columns)
    if mode is None:
        if habits.recompute is not None:
            assumed.append(f"recompute {habits.recompute}")
        return {"recompute": habits.recompute or "none"}, True
    told = columns.text("recompute").lower() or _of_layers(_beside(columns))
    share = _recomputed_share(told)
    if mode != "none" and (facts.get("selective_layers") or (share and (share < 1 or mode != "selective"))):
        return {"recompute": "full", "recompute_share": share or 0.5}, False
    if mode == "full":
        held = _recomputed_layers(columns, facts)
        virtual = columns.count("vpp") or facts.get("virtual_stages", 1.0)
        share = min(1.0, held * pipeline * virtual / layers) if held else 1.0
        return {"recompute": "full", "recompute_share": share}, False
    return {"recompute": mode}, False


_PARTS_OF_1 = {"half": 2, "halve": 2, "third": 3, "quarter": 4, "fourth": 4, "fifth": 5, "sixth": 6, "eighth": 8}
_PART = r"(?:(\d)[\s-])?\b(half|halve|third|quarter|fourth|fifth|sixth|eighth)s?"
_OF_LAYERS = r"(?:of )?(?:the |all |its )?(?:\w+ )?(?:layers?|blocks?)\b"
_FRACTION = re.compile(rf"(?:^|[(,] ?)(?:an? |every |each )?{_PART}(?=$|\))|(?<!the ){_PART}(?= {_OF_LAYERS}| of$)")
_ONE_IN = re.compile(r"(?:one|1)[ _-]in[ _-](\d+)")
_SECOND = ("every|each other|second|two layer*|block*", "alternat* layer*|block*", "half & layer*|block*")


def _recomputed_share(cell: str) -> float | None:
    """The share of the layers that a cell names: `16/80 layers`, `8 of 32`, `50 %`, `every second layer`."""
    cell = _ONE_IN.sub(r"1 of \1", numbered(cell.replace("_", " ")))
    found = re.search(r"(\d+)\s*(?:/|(?:out )?of(?: every| each| the| its)?)\s*(\d+)", cell)
    if found and 0 < int(found[1]) <= int(found[2]):
        return int(found[1]) / int(found[2])
    named = _FRACTION.search(cell)
    if named:
        return min(1.0, int(named[1] or named[3] or 1) / _PARTS_OF_1[named[2] or named[4]])
    found = re.search(r"(?:every|each) (\d+)(?:st|nd|rd|th)? (?:layer|block)", cell)
    if found and int(found[1]) > 0:
        return 1 / int(found[1])
    found = re.search(r"(\d+(?:\.\d+)?)\s*%", cell)
    if found and 0 < float(found[1]) <= 100:
        return float(found[1]) / 100
    return 0.5 if said(cell, _SECOND) else None


@_remembered
def _of_layers(notes: str) -> str:
    """The clauses of the notes that tell of how many layers something is computed again."""
    told, before = [], ""
    for clause in clauses(notes):
        share_of_it = re.fullmatch(r"\d+ (?:out )?of (?:the )?\d+ layers?(?: per \w+)?", clause)
        if re.search(r"layer|block|ratio|fraction|share|proportion|\b(?:1|one)[ -]in[ -]\d", clause) and said(
            before if share_of_it else clause, meanings.RECOMPUTED
        ):
            told.append(clause)
        before = clause
    return "; ".join(told)


def _recomputed_layers(columns: Columns, facts: Mapping[str, float]) -> float:
    """Layers of a virtual stage that are computed again; 0: all, as in groups of so many (K: Megatron's `uniform`)."""
    cell = columns.text("recompute").lower()
    if "uniform" in cell or facts.get("uniform_recompute"):
        return 0.0
    found = re.search(r"(\d+) (?:layers?|blocks?)|num[ _]layers\D{0,3}(\d+)", cell)
    return float(found[1] or found[2]) if found else facts.get("recompute_layers", 0.0)


def _recompute_mode(columns: Columns) -> str | None:
    """As the column says, in any wording; else as the notes do."""
    cell = columns.text("recompute")
    if not cell:
        return _of(_about_recompute(_beside(columns)), meanings.RECOMPUTES, denied="none")
    if re.sub(r"\s*\([^()]*\)$", "", cell.lower()) in NO_WORDS or re.match(
        r"none\b|0\s?(?:%|layers?\b|blocks?\b)", cell.lower()
    ):
        return "none"
    if _EXPERTS.fullmatch(cell.lower()):
        return "selective"
    is_share = cell.lower() in YES_WORDS or _recomputed_share(cell.lower()) is not None
    mode = _of(cell, meanings.RECOMPUTE_CELLS, denied="none") or ("full" if is_share else None)
    if mode is None:
        raise RowError(f"`recompute` is {cell!r}; expected none, selective, full or nothing")
    return mode


_EXPERTS = re.compile(r"(?:the )?(?:moe|experts?)(?: layers?)?(?: only)?")  # and nothing of the attention


def _beside(columns: Columns) -> str:
    """The other cells that tell of recompute: `FSDP + activation checkpointing`."""
    return cells(columns.row, "zero_stage_or_fsdp", "notes")


_SAVED = re.compile(
    r"\b(?:steps?|iterations?|tokens?|epochs?|sav(?:e|ed|es|ing)|async\w*|distributed|stor\w+|disks?|lustre|restart\w*|resum\w*"
    r"|minutes?|hours?|overhead|from a)\b"
)
_OF_ACTIVATIONS = re.compile(
    r"activation|gradient|grad\b|recomput|remat|policy|layer|block|sav(?:e|es|ed|ing) (?:\w+ )?memory"
)


_FLASH = re.compile(r"\bflash[\s\-]?att\w*")  # beside it, not what is computed again


@_remembered
def _about_recompute(notes: str) -> str:
    """The notes without the checkpoints that are written to disk."""

    def is_file(clause: str) -> bool:
        return "checkpoint" in clause and bool(_SAVED.search(clause)) and not _OF_ACTIVATIONS.search(clause)

    return "; ".join(_FLASH.sub("", clause) for clause in clauses(notes) if not is_file(clause))


_THIS_ROW = re.compile(r"\b(?:this|the present) (?:row|run|line|entry|column|bar)\b")


@_remembered
def _of_this_row(text: str) -> str:
    """The clauses that say that they tell of this row, beside others that tell of several."""
    return "; ".join(clause for clause in clauses(text) if _THIS_ROW.search(clause)) if "this" in text else ""


def _of(text: str, table: Table, denied: str | None = None) -> str | None:
    """What the text chooses of a table; `denied` where all that it names is denied."""
    value = chosen(_of_this_row(text), table) or chosen(text, table)
    if value is not None:
        return str(value)
    is_denied = denied is not None and said(text, tuple(phrase for phrase, _ in table)) is False
    return denied if is_denied else None


def precision(columns: Columns, family: str, types: Sequence[str], assumed: list[str]) -> str:
    """The format of the matmuls; of 8 bits as the notes say how they are scaled. Submissions to MLPerf take 8 bits
    where the accelerator multiplies them as floats, whether or not they say so.

    Source: mlcommons/training_results_v5.1, the logs and configurations of the three rows that print no format.
    """
    cell, notes = columns.text("precision"), columns.text("notes")
    usual = "fp16" if family in _TOO_OLD else "bf16"
    value = _of(_about_products(cell), meanings.PRECISIONS) or _of(cell, meanings.PRECISIONS)
    if not cell:
        value = _of(_about_products(notes), meanings.PRECISIONS[:-1])  # where a bare 16 is any number
    if value is None and cell:
        names = "nvfp4, mxfp8, fp8, int8, bf16, fp16, fp32, tf32"
        raise RowError(f"`precision` is {cell.lower()!r}; expected one of {names}")
    if value is None:
        tuned = _of(f"{columns.text('source')} | {notes}", meanings.SUBMISSIONS) if "fp8" in types else None
        assumed.append("8 bits, as submissions to MLPerf have them" if tuned else usual)
        return tuned or usual
    if value == "fp8_tensor" and "int8" not in cell.lower():
        finer = _of(notes, meanings.PRECISIONS)
        value = finer if finer in ("fp8_block", "mxfp8") else _of(notes, meanings.SCALINGS) or value
    return usual if value == "16" else value


_PARTS = re.compile(
    r"[(+]|\b(?:with|except|excluding|besides|apart from|other than)\b|\band (?=(?:bf|fp|nvfp|mxfp|float|bfloat)\d)"
)


@_remembered
def _about_products(text: str) -> str:
    """The text without what it says of gradients, states and reductions, and of a few layers or other operators."""
    split = (_PARTS.split(clause) for clause in clauses(text))
    return "; ".join(" ".join(part for part in parts if not _ELSEWHERE.search(part)) for parts in split)


def of_update(columns: Columns, usual_gradients: str, is_narrow: bool) -> dict[str, str]:
    """The format in which gradients add up, the optimizer and the format of its states, where the notes say them; those
    of an optimizer without 32-bit weights are in theirs."""
    gradients, optimizer, states = _update_words(columns.text("notes"))
    return {
        "gradient_dtype": gradients or usual_gradients,
        "optimizer": optimizer or "adam",
        "state_dtype": states or ("bf16" if is_narrow else "fp32"),
    }


@_remembered
def _update_words(notes: str) -> tuple[str | None, ...]:
    return tuple(_of(notes, table) for table in (meanings.GRADIENTS, meanings.OPTIMIZERS, meanings.STATES))


_CORE = re.compile(r"\bcore[\s\-]*attention")
_VERSION, _KERNEL = re.compile(r"\bcu-?dnn[\s:=v]*\d[\d.]*"), re.compile(r"att|fused|flash|sdpa")
_ALONE = {"3": "flash_3", "4": "flash_3", "2": "flash_2", "2.0": "flash_2", "ck": "flash_2"}
_ALONE |= dict.fromkeys(("eager", "math", "naive", "vanilla", "standard"), "unfused")  # words of a cell of their own


def attention(columns: Columns, facts: Mapping[str, float], family: str) -> str:
    """The kernel that the row names; the one that its software calls where it names none, but on V100, which
    FlashAttention does not support (K: its README)."""
    if facts.get("framework_attention"):
        return "framework"
    cell, notes = columns.text("flash_attention"), _without_versions(columns.text("notes"))
    if cell.lower() in NO_WORDS:
        return "unfused"
    alone = re.sub(r"^(?:py)?torch\s|\sattention$", "", cell.lower())
    if alone in _ALONE:
        return _ALONE[alone]
    kernel = _of(cell, meanings.ATTENTIONS, denied="unfused")
    if kernel is None or kernel == "flash":
        kernel = _of(notes, meanings.ATTENTIONS, denied=None if kernel else "unfused") or kernel
    if kernel == "unfused" and cell.lower() in YES_WORDS:
        return "flash"
    return kernel or ("unfused" if family in _TOO_OLD and cell.lower() not in YES_WORDS else "flash")


@_remembered
def _without_versions(notes: str) -> str:
    """The notes without cuDNN's version among those of the software, which is no attention kernel, and without what is
    computed again of the attention, whatever its kernel."""
    told = (clause if _KERNEL.search(clause) else _VERSION.sub("", clause) for clause in clauses(notes))
    return "; ".join(_CORE.sub("", clause) if said(clause, meanings.RECOMPUTED) else clause for clause in told)


def dispatcher(columns: Columns) -> str | None:
    """What sends tokens to experts, where the notes say it."""
    return _of(columns.text("notes"), meanings.DISPATCHERS)


def schedule(columns: Columns) -> str | None:
    """The pipeline schedule that the row names, or else its source."""
    return _of(_about_schedule(columns), meanings.SCHEDULES) or _of(columns.text("source"), meanings.SCHEDULES)


def folded(columns: Columns) -> str:
    """The variant of ZB-V that the row names; the plain one without a name."""
    return _of(_about_schedule(columns), meanings.FOLDED) or ""


def _about_schedule(columns: Columns) -> str:
    return f"{columns.text('schedule')} | {columns.text('notes')}"
