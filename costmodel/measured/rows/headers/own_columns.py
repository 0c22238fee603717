"""Columns under the names that people give them: which known column each is, and its cells in that column's unit."""

import functools
import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from costmodel.measured.rows.headers.column_words import COLUMN_WORDS
from costmodel.measured.rows.headers.quantities import COUNTED, seconds, table_unit, with_unit
from costmodel.measured.rows.headers.spellings import CHIP, NAMES

_RATE = re.compile(
    r"(?:throughput |speed |train(?:ing)? )*(?:(?P<scale>[km]) )?(?:tgs|tps|wps"
    r"|(?P<what>tok(?:en)?s?|[ts](?= per s)|samples?|seq(?:uence)?s?|examples?|images?)"
    rf" ?(?:per )?(?P<chip>(?:{CHIP}) )?(?:per )?(?P<time>s|secs?|seconds?|day)(?P<each> (?:per )?(?:{CHIP}))?)"
    rf"(?P<last> per (?:{CHIP}))?"
)
_FLAGS = {"1": "1", "true": "1", "yes": "1", "oom": "1", "0": "0", "false": "0", "no": "0"}
_TO_NOTES = {
    "accumulation": "gradient accumulation {}",
    "local_batch": "local batch size {}",
    "batch": "batch size {}",
    "virtual_layers": "num layers per virtual pipeline stage {}",
    "notes": "{}",
}
_WITH_UNITS = (
    "params_B",
    "gpu_mem_GB",
    "chip_memory",
    "measured_step_s",
    "measured_mem_GB",
    "measured_tflops_per_gpu",
    "measured_mfu",
)
_BARE_CHIP = re.compile(r"gpu|accelerator|device|chip|npu|tpu|xpu")  # of which a column may hold the number
_WHOLE = re.compile(r"system|cluster|machine")  # which name the accelerator where nothing else does
_DEGREES = ("tp", "pp", "cp", "dp", "ep", "vpp", "gbs", "mbs")
_OF_DEGREES = {"gbs": "global_batch_sequences", "mbs": "micro_batch"}


class Meaning(NamedTuple):
    """What a column is: the known one, or more of them where its cells hold several numbers; and its unit."""

    columns: tuple[str, ...]
    unit: str = ""


@functools.lru_cache(maxsize=4096)
def meaning(name: str) -> Meaning | None:
    """The known column that a name means; None where it is one itself, or none."""
    if name in COLUMN_WORDS or not name.strip():
        return None
    if _plain(name) in _LOWER:
        return Meaning((_LOWER[_plain(name)],))
    words, unit = _words(name)
    rate = _RATE.fullmatch(words)
    if rate:
        return Meaning((_rate(rate),), f"{rate['scale'] or ''} {rate['time'] or 's'}".strip())
    bracket = re.search(r"\(([^)]*)\)", name)
    for listed in (name, bracket[1] if bracket else ""):
        several = re.split(r"[\s/,x|*-]+", re.sub(r"[()\[\]]", "", listed.lower()).strip())
        if len(several) > 1 and set(several) <= set(_DEGREES):
            return Meaning(tuple(_OF_DEGREES.get(each, each) for each in several))
    of_tokens = re.fullmatch(r"(.*\bbatch\b.*?|gbs)(?: in)?(?: ([km]))? (?:tok(?:en)?s?|t)", f"{words} {unit}".strip())
    if of_tokens and _known(of_tokens[1]) in ("global_batch_sequences", "batch"):
        return Meaning(("batch_tokens",), of_tokens[2] or "")
    known = None if words in _NUMBERED and not unit else _known(words)
    if known is None and re.fullmatch(r"\w+(?:\.\w+)+|[a-z]+/\w+_\w+", name):  # of a setting in a section
        return _of_setting(re.split(r"[./]", name)[-1])
    return None if known is None else Meaning((known,), unit if known in _WITH_UNITS else "")


def _of_setting(name: str) -> Meaning | None:
    return Meaning((name,)) if name in COLUMN_WORDS else meaning(name)


def _known(words: str) -> str | None:
    return next((column for column, names in NAMES if re.fullmatch(names, words)), None)


def _plain(name: str) -> str:
    return re.sub(r"[\s_\-]+", "_", name.strip().lower())


_MOST_OF_A_NODE = 8  # accelerators; beside no more nodes than that, more are those of all
_NUMBERED = ("step", "iteration", "iter")  # which bare names count
_LOWER = {name.lower(): name for name in COLUMN_WORDS}


def _words(name: str) -> tuple[str, str]:
    """A column's name in plain words, and its unit: in brackets, or behind it (`step_time_ms`). A `b` is a batch of a
    step or, in Megatron's papers, of a rank; their `B` is that of a step."""
    if name.strip() == "b":
        return "batch", ""
    parted = r"(?<=[a-z])(?=[A-Z][a-z])|(?<=[a-z]{2})(?=[A-Z]{2})|(?<=[A-Z]{2})(?=[A-Z][a-z]{2})"  # GPUType, numGPUs
    text = re.sub(parted, " ", name.strip()).lower()
    bracket = re.search(r"[(\[]\s*([^)\]]+)\s*[)\]]\s*$", text)
    text = (text[: bracket.start()] if bracket else text).replace("/", " per ").replace("#", " num ")
    words = " ".join(re.sub(r"[^a-z0-9%]+", " ", text).split())
    words = re.sub(r"^num (?:of|num) ", "num ", words)
    unit = re.sub(r"\s+", " ", bracket[1]) if bracket else ""
    if unit in ("sequences", "seqs", "samples"):
        return words, ""
    if unit and table_unit(unit) is None and re.search(r"/|per|tok|sample|seq|flop", unit):
        return f"{words} {' '.join(re.sub(r'[^a-z0-9%]+', ' ', unit.replace('/', ' per ')).split())}".strip(), ""
    behind = re.search(r" (ms|msec|sec|secs|seconds|s|min|minutes|gb|gib|mb|mib|tokens|b|m)$", words)
    if not unit and behind and len(words) > len(behind[0]) and not words[: behind.start()].endswith(" per"):
        return words[: behind.start()], behind[1]
    return words, unit


def _rate(found: re.Match[str]) -> str:
    if re.search(r"[tw]ps$", found[0]):
        return "logged_tokens"
    of_chip = found[0].endswith("tgs") or found["chip"] or found["each"] or found["last"]
    what = "tokens" if (found["what"] or "t").startswith("t") else "samples"
    return f"{what}_per_gpu" if of_chip else what


def translated(row: Mapping[str, str]) -> dict[str, str]:
    """The row with what its own columns mean in the known ones, which count where they are there and say something."""
    given: dict[str, str] = dict(row)
    notes: list[str] = []
    meanings = understood(tuple(row))
    for name, target in sorted(meanings.items(), key=_turn):
        cell = (row[name] or "").strip()
        if len(name.strip()) == 1 and not _SIZE.fullmatch(cell):
            continue  # a letter of papers is a size
        first, *others = target.columns
        if first == "local_batch" and any("accumulation" in each.columns for each in meanings.values()):
            first = "micro_batch"
        if others:
            _put_several(given, target.columns, cell)
        elif first in _TO_NOTES:
            notes += [_TO_NOTES[first].format(cell)] if cell else []
        else:
            _put(given, first, cell, target.unit)
    if notes:
        given["notes"] = "; ".join(each for each in (given.get("notes") or "", *notes) if each.strip())
    return given


_SIZE = re.compile(r"\d[\d,]*k?", re.IGNORECASE)


def _turn(named: tuple[str, Meaning]) -> int:
    """Nodes are read before what they hold, rates after what a step is."""
    column = named[1].columns[0]
    return -1 if column in ("all_gpus", "nodes") else int(column in _RATES)


@functools.lru_cache(maxsize=256)
def understood(header: Sequence[str]) -> Mapping[str, Meaning]:
    """Columns that are known under other names; of two that mean the same one, the first."""
    found: dict[str, Meaning] = {}
    taken = {name for name in header if name in COLUMN_WORDS}
    bare = [name for name in header if _BARE_CHIP.fullmatch(name.strip().lower())]
    whole = [name for name in header if _WHOLE.fullmatch(name.strip().lower())]
    for name in (*(name for name in header if name not in (*bare, *whole)), *bare, *whole):
        target = Meaning(("gpus",)) if name in bare and "hardware" in taken else meaning(name)
        if target is None or (set(target.columns) & taken and target.columns[0] not in _TO_NOTES):
            continue
        found[name] = target
        taken |= set(target.columns)
    return found


def column_readings(header: Sequence[str]) -> Mapping[str, str]:
    """What is read of columns that are not known ones but mean them, in words."""
    found = understood(tuple(header))
    beside = {"gpus": "of each up to eight beside several nodes"} if Meaning(("nodes",)) in found.values() else {}
    beside |= {"chip_memory": "fractions as measured_mem_GB"}

    def reading(meant: str) -> str:
        return ", ".join((_COLUMN_OF.get(meant, meant), *([beside[meant]] if meant in beside else [])))

    told = {name: f"as {' and '.join(map(reading, found[name].columns))}" for name in found}
    others = (name for name in header if name not in found and meaning(name) is not None)
    told |= dict.fromkeys(others, "not read, as a known one is there")
    return {name: reading for name, reading in told.items() if reading != f"as {_plain(name)}"}  # `GPUs`, `Model`


def _put(given: dict[str, str], meant: str, printed: str, unit: str) -> None:
    """The cell in its known column and unit. What is there already stays; beside several nodes, up to eight devices
    and fewer than nodes are those of one."""
    nodes, is_of_nodes, _ = (given.get("gpus") or "").partition(" nodes")
    if meant == "gpus" and is_of_nodes and printed.isdigit() and nodes.isdigit():
        of_a_node = int(nodes) > 1 and int(printed) <= max(_MOST_OF_A_NODE, int(nodes) - 1)
        meant = "gpus_per_node" if of_a_node else "all_gpus"
    if meant in ("gpus", "all_gpus") and is_of_nodes and printed:
        given["gpus"] = ""
    column, cell = _known_cell(given, meant, printed, unit) if printed else (_COLUMN_OF.get(meant, meant), "")
    if cell and not (given.get(column) or "").strip():
        given[column] = cell
    given.setdefault(column, cell)


_COLUMN_OF = {
    "nodes": "gpus",
    "all_gpus": "gpus",
    "chip_memory": "gpu_mem_GB",
    "batch_tokens": "global_batch_sequences",
}
_COLUMN_OF |= dict.fromkeys(("zero", "sharded_optimizer"), "zero_stage_or_fsdp")
_RATES = ("tokens", "logged_tokens", "tokens_per_gpu", "samples", "samples_per_gpu", "steps")
_COLUMN_OF |= dict.fromkeys(_RATES, "measured_step_s")
_WORDS_OF_FLAGS = {
    "recompute": {"1": "full", "0": "none"},
    "zero_stage_or_fsdp": {"1": "FSDP", "0": "none"},
    "sharded_optimizer": {"1": "distributed optimizer", "0": "none"},
    "zero": {str(stage): f"ZeRO-{stage}" for stage in range(4)},
}


def _known_cell(given: Mapping[str, str], meant: str, cell: str, unit: str) -> tuple[str, str]:
    """The known column of what a column means, and its cell there."""
    column = _COLUMN_OF.get(meant, meant)
    if meant in ("nodes", "batch_tokens"):
        return column, f"{cell} {unit}{'nodes' if meant == 'nodes' else 'tokens'}"
    if column == "measured_step_s" and meant != column:
        return column, _step_s(given, meant, cell, unit)
    if column == "params_B":
        return column, _billions(cell, unit)
    if column in ("recompute", "zero_stage_or_fsdp", "oom"):
        flag = _FLAGS.get(cell.lower(), cell)
        return column, _WORDS_OF_FLAGS.get(meant, {}).get(flag, flag)
    if column == "vpp" and not re.search(r"\d", cell):
        return column, ""  # whether, not how many
    if meant == "chip_memory" and not float(_plain_number(cell) or 0).is_integer():  # labels are whole numbers
        column = "measured_mem_GB"
    return column, with_unit(cell, unit)


def _put_several(given: dict[str, str], columns: tuple[str, ...], cell: str) -> None:
    numbers = re.findall(r"\d+", cell)
    if len(numbers) == len(columns):
        for column, number in zip(columns, numbers, strict=True):
            given.setdefault(column, number)


def _step_s(given: Mapping[str, str], rate: str, cell: str, unit: str) -> str:
    """Seconds of a step from a rate, where its row says how much a step is; nothing where it does not."""
    *scale, time = unit.split() or ["s"]
    value, batch = _plain_number(f"{cell}{''.join(scale)}"), _plain_number(given.get("global_batch_sequences") or "")
    sequence, chips = _plain_number(given.get("seq") or ""), _chips(given)
    of_sequences = batch if rate.startswith("samples") else batch and sequence and batch * sequence
    amount = 1.0 if rate == "steps" else of_sequences
    of_rank = rate == "logged_tokens" and any(_TITAN.search(each or "") for each in given.values())
    each = chips if of_rank or rate.endswith("per_gpu") else 1.0
    if not (value and amount and each):
        return ""
    return f"{amount * seconds(time) / (value * each):.7g}"


_TITAN = re.compile(
    r"torch[\s\-_]?titan", re.IGNORECASE
)  # K: its `tps` and `wps` are a device's (docs/performance.md: 2,162 at 61.1 % MFU)


def _chips(given: Mapping[str, str]) -> float | None:
    nodes, each = (given.get("gpus") or "").removesuffix(" nodes"), _plain_number(given.get("gpus_per_node") or "")
    count = _plain_number(nodes)
    return count if nodes == given.get("gpus") else count and each and count * each


def _plain_number(cell: str) -> float | None:
    """A plain number, with its thousands; None for anything else."""
    found = re.fullmatch(r"(.*?\d\.?)\s*([km]?)", cell.strip().replace(",", "").lower())
    try:
        value = float(found[1]) * {"": 1.0, "k": 1e3, "m": 1e6}[found[2]] if found else 0.0
    except ValueError:
        return None
    return value if value > 0 else None


def _billions(cell: str, unit: str) -> str:
    """Parameters in 1e9, of which a column may count millions or each."""
    value = _plain_number(cell)
    if value is None:
        return cell
    if unit in ("m", "million", "millions") and value < COUNTED:
        return f"{value / 1e3:.7g}"
    return f"{value / 1e9:.7g}" if value >= COUNTED else cell
