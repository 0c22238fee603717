"""Columns under the names that people give them: which known column each is, and its cells in that column's unit."""

import functools
import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from costmodel.measured.rows.headers.column_words import COLUMN_WORDS
from costmodel.measured.rows.headers.languages import in_english
from costmodel.measured.rows.headers.machines import counted, may_count, of_slurm
from costmodel.measured.rows.headers.quantities import COUNTED, is_unit, table_unit, with_unit
from costmodel.measured.rows.headers.rates import RATES, batch_tokens, chips_of, plain_number, step_s, tokens_of_chip
from costmodel.measured.rows.headers.spellings import CHIP, NAMES
from costmodel.measured.rows.headers.whole_runs import RUN_COLUMNS, run_meaning, step_of_run_s, tokens_in

_RATE = re.compile(
    r"(?:throughput |speed |train(?:ing)? )*(?:(?P<scale>[km]) ?)?(?:tgs|tps|wps"
    r"|(?P<what>tok(?:en)?s?|[ts](?= per s)|samples?|seq(?:uence)?s?|examples?|images?)(?= )"
    rf" ?(?:per )?(?P<chip>(?:{CHIP}) )?(?:per )?(?P<time>s|secs?|seconds?|day)(?P<each> (?:per )?(?:{CHIP}))?)"
    rf"(?P<last> per (?:{CHIP}))?"
)
_IN_FULL = {"k": ("thousand", "thousands"), "m": ("million", "millions"), "b": ("billion", "billions")}
_SCALES = {name: letter for letter in "kmb" for name in (letter, *_IN_FULL[letter])}
"""What stands in brackets behind a rate, by its letter; of billions a second none is read."""
_BARE_RATE = re.compile(r"(throughput |speed )?(?:tok(?:en)?s?|samples|seq(?:uence)?s)")  # `tokens_s`, `speed (tokens)`
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
    "two_memories",
    "hfu",
)
_BARE_CHIP = re.compile(r"gpu|accelerator|device|chip|card|npu|tpu|xpu")  # of which a column may hold the number
_WHOLE = re.compile(
    r"(?:system|cluster)(?:[ _]name)?|machine|partition|queue"
)  # which name the accelerator where nothing else does
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
    bare = _BARE_RATE.fullmatch(words)
    rate = _RATE.fullmatch(f"{words} per s" if bare and (unit == "s" or (bare[1] and not unit)) else words)
    if rate:
        scale = rate["scale"] or _SCALES.get(unit, "")
        return Meaning((_rate(rate),), f"{scale} {rate['time'] or 's'}".strip())
    bracket = re.search(r"\(([^)]*)\)", name)
    for listed in (name, bracket[1] if bracket else ""):
        several = re.split(r"[\s/,x|*-]+", re.sub(r"[()\[\]]", "", listed.lower()).strip())
        if len(several) > 1 and set(several) <= set(_DEGREES):
            return Meaning(tuple(_OF_DEGREES.get(each, each) for each in several))
    known = None if words in _NUMBERED and not unit else _known(words)
    found = _of_tokens(f"{words} {unit}".strip())
    if found is None and known is not None:
        found = Meaning((known,), unit if unit == "k" or (known in _WITH_UNITS and is_unit(known, unit)) else "")
    found = found or _of_bytes(words, unit) or _of_run(words, unit)
    if found is None and re.fullmatch(r"\w+(?:\.\w+)+|[a-z]+/\w+_\w+", name):  # of a setting in a section
        return _of_setting(re.split(r"[./]", name)[-1])
    return found


def _of_tokens(words: str) -> Meaning | None:
    """Batches in tokens, and sequences in tokens or thousands of them."""
    batch = re.fullmatch(r"(.*\bbatch\b.*?|gbs|b global)(?: in)?(?: ([km]))? (?:tok(?:en)?s?|t)", words)
    if batch and _known(batch[1]) in ("global_batch_sequences", "batch"):
        return Meaning(("batch_tokens",), batch[2] or "")
    length = re.fullmatch(r"(.*?)(?: in)?(?: (k))?(?: (?:tok(?:en)?s?|t))?", words)
    return Meaning(("seq",), length[2] or "") if length and _known(length[1]) == "seq" else None


def _of_bytes(words: str, unit: str) -> Meaning | None:
    """A peak of bytes is one of memory."""
    is_peak = words in ("peak", "max", "maximum") and unit in ("gb", "gib", "mb", "mib")
    return Meaning(("measured_mem_GB",), unit) if is_peak else None


def _of_run(words: str, unit: str) -> Meaning | None:
    found = run_meaning(words, unit)
    return None if found is None else Meaning((found[0],), found[1])


def _of_setting(name: str) -> Meaning | None:
    return Meaning((name,)) if name in COLUMN_WORDS else meaning(name)


def _known(words: str) -> str | None:
    return next((column for column, names in NAMES if re.fullmatch(names, words)), None)


def _plain(name: str) -> str:
    return re.sub(r"[\s_\-]+", "_", name.strip().lower())


_FLOP_RATES = ("measured_mfu", "measured_tflops_per_gpu")
_MOST_OF_A_NODE = 8  # accelerators; beside no more nodes than that, more are those of all
_NUMBERED = ("step", "iteration", "iter")  # which bare names count
_LOWER = {name.lower(): name for name in COLUMN_WORDS}


def _words(name: str) -> tuple[str, str]:
    """A column's name in plain words, and its unit: in brackets, or behind it (`step_time_ms`). A `b` is a batch of a
    step or, in Megatron's papers, of a rank; their `B` is that of a step."""
    if name.strip() == "b":
        return "batch", ""
    parted = r"(?<=[a-z])(?=[A-Z][a-z])|(?<=[a-z]{2})(?=[A-Z]{2})|(?<=[A-Z]{2})(?=[A-Z][a-z]{2})"  # GPUType, numGPUs
    text = in_english(re.sub(parted, " ", name.strip()).lower())
    bracket = re.search(r"[(\[]\s*([^)\]]+)\s*[)\]]\s*$", text)
    text = (text[: bracket.start()] if bracket else text).replace("/", " per ").replace("#", " num ")
    words = " ".join(re.sub(r"[^a-z0-9%]+", " ", text).split())
    words = re.sub(r"^num (?:of|num) ", "num ", words)
    unit = re.sub(r"\s+", " ", bracket[1]) if bracket else ""
    if unit in ("sequences", "seqs", "samples"):
        return words, ""
    each = re.fullmatch(
        r"(ms|milliseconds?|min|minutes?) (?:per )?((?:global )?(?:it|iter(?:ation)?|step|batch))", words
    )
    if each and not unit:
        return f"time per {each[2]}", each[1]
    if unit and table_unit(unit) is None and re.search(r"/|per|tok|sample|seq|flop", unit):
        return f"{words} {' '.join(re.sub(r'[^a-z0-9%]+', ' ', unit.replace('/', ' per ')).split())}".strip(), ""
    behind = re.search(r" (ms|msec|sec|secs|seconds|s|min|minutes|gb|gib|mb|mib|bytes|tokens|b|m)$", words)
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
        elif first not in _TO_NOTES and first not in RUN_COLUMNS:
            _put(given, first, cell, target.unit)
        notes += _as_notes(first, name, cell)
    if notes:
        given["notes"] = "; ".join(each for each in (given.get("notes") or "", *notes) if each.strip())
    return _with_machine(_with_run(_with_convention(given, row, meanings), meanings), meanings)


def _as_notes(column: str, name: str, cell: str) -> list[str]:
    """What a column tells in words; one of memory by its name, which says whether it is allocated or the device's."""
    if not cell:
        return []
    if column in _TO_NOTES:
        return [_TO_NOTES[column].format(cell)]
    return [_words(name)[0]] if column == "measured_mem_GB" else []


def _with_convention(given: dict[str, str], row: Mapping[str, str], meanings: Mapping[str, Meaning]) -> dict[str, str]:
    """The row with the names of the columns of its rates, which say how FLOP are counted (`HFU`, `MFU (6ND)`)."""
    told = [given.get("flops_convention") or ""]
    for name, target in meanings.items():
        column = _COLUMN_OF.get(target.columns[0], target.columns[0])
        cell = (row[name] or "").strip()
        bare = _OF_SHARE.sub("", cell)
        if column in _FLOP_RATES and bare and (given.get(column) or "").startswith(bare):
            said = _OF_SHARE.search(cell)  # `HFU 43.7 %` counts more than the column's name
            told.append(said[0] if said else name)
    return given | {"flops_convention": "; ".join(filter(None, told))} if len(told) > 1 else given


_OF_SHARE = re.compile(r"^[hm]fu\b[\s:=]*|\s*\(?[hm]fu\)?$", re.IGNORECASE)


def _with_run(given: dict[str, str], meanings: Mapping[str, Meaning]) -> dict[str, str]:
    """The row with the seconds of a step that its whole run makes, where it prints no others."""
    columns = ((name, target) for name, target in meanings.items() if target.columns[0] in RUN_COLUMNS)
    run: dict[str, tuple[str, str]] = {}
    for name, target in columns:
        run |= {target.columns[0]: (given[name] or "", target.unit)} | tokens_in(name)
    if not run or (given.get("measured_step_s") or "").strip():
        return given
    took_s = step_of_run_s(run, chips_of(given), batch_tokens(given))
    return given | {"measured_step_s": f"{took_s:.7g}" if took_s else ""}


def _with_machine(given: dict[str, str], meanings: Mapping[str, Meaning]) -> dict[str, str]:
    """The row with the accelerators' name or number out of the cell of the other, where it has no column for one."""
    if ("hardware" in given) == ("gpus" in given):
        return given
    has, lacks = ("gpus", "hardware") if "gpus" in given else ("hardware", "gpus")
    named = [name for name, target in meanings.items() if target.columns == (has,)] or [has]
    if lacks == "gpus" and not any(map(may_count, named)):
        return given
    if lacks == "hardware" and any(map(_NUMBERS_ONLY.match, named)):
        return given
    both = counted(given[has])
    name, number = both or (("", given[has]) if has == "gpus" else (given[has], ""))
    return given | {"hardware": name, "gpus": number}


_NUMBERS_ONLY = re.compile(r"\W*(?:n|no|nr|num|number|count|total|world|#)", re.IGNORECASE)
_SIZE = re.compile(r"\d[\d,]*k?", re.IGNORECASE)


def _turn(named: tuple[str, Meaning]) -> int:
    """Nodes are read before what they hold, rates after what a step is."""
    column = named[1].columns[0]
    return -1 if column in ("all_gpus", "nodes", "quantization") else int(column in (*RATES, "hfu"))


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
    if meant == "gpus" and "hardware" not in given and printed[:1].isalpha() and counted(printed) is None:
        given["hardware"] = printed  # `Accelerators: H100`
        return
    if meant == "quantization" and printed.lower() in ("none", "no", "false", "off"):
        return
    if meant == "hardware" and (of_node := of_slurm(printed)):
        printed, given["gpus_per_node"] = of_node
    nodes, is_of_nodes, _ = (given.get("gpus") or "").partition(" nodes")
    if meant == "gpus" and is_of_nodes and printed.isdigit() and nodes.isdigit():
        of_a_node = int(nodes) > 1 and int(printed) <= max(_MOST_OF_A_NODE, int(nodes) - 1)
        meant = "gpus_per_node" if of_a_node else "all_gpus"
    if meant in ("gpus", "all_gpus") and is_of_nodes and printed:
        given["gpus"] = ""
    column, cell = _known_cell(given, meant, printed, unit) if printed else (_COLUMN_OF.get(meant, meant), "")
    if meant in RATES and not cell and (rate := tokens_of_chip(given, meant, printed, unit)):
        given.setdefault("measured_tokens_per_s_per_gpu", rate)  # of steps whose batch only the row's words tell
    if cell and not (given.get(column) or "").strip():
        given[column] = cell
    given.setdefault(column, cell)


_COLUMN_OF = {
    "nodes": "gpus",
    "all_gpus": "gpus",
    "chip_memory": "gpu_mem_GB",
    "batch_tokens": "global_batch_sequences",
    "quantization": "precision",
    "two_memories": "measured_mem_GB",
    "hfu": "measured_mfu",
}
_COLUMN_OF |= dict.fromkeys(("zero", "sharded_optimizer"), "zero_stage_or_fsdp")
_COLUMN_OF |= dict.fromkeys(RATES, "measured_step_s")
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
        return column, step_s(given, meant, cell, unit)
    if column == "params_B":
        return column, _billions(cell, unit)
    if column in ("recompute", "zero_stage_or_fsdp", "oom"):
        flag = _FLAGS.get(cell.lower(), cell)
        return column, _WORDS_OF_FLAGS.get(meant, {}).get(flag, flag)
    if column == "vpp" and not re.search(r"\d", cell):
        return column, ""  # whether, not how many
    if meant == "chip_memory" and not float(plain_number(cell) or 0).is_integer():  # labels are whole numbers
        column = "measured_mem_GB"
    cell = _figure(meant, cell)
    return column, _thousands(column, cell) if unit == "k" else with_unit(cell, unit)


def _figure(meant: str, cell: str) -> str:
    """Of memory allocated and reserved the second, which is what the allocator holds; a share without its name."""
    if meant == "two_memories":
        return re.split(r"\s*/\s*", cell)[-1]
    return _OF_SHARE.sub("", cell) if meant in ("measured_mfu", "hfu") else cell


def _thousands(column: str, cell: str) -> str:
    """A cell that counts thousands, of tokens 1,024, in ones."""
    value = plain_number(cell)
    if value is None or not cell[-1:].isdigit():
        return cell
    return f"{value * (1024 if column == 'seq' else 1000):.10g}"


def _put_several(given: dict[str, str], columns: tuple[str, ...], cell: str) -> None:
    numbers = re.findall(r"\d+", cell)
    if len(numbers) == len(columns):
        for column, number in zip(columns, numbers, strict=True):
            given.setdefault(column, number)


def _billions(cell: str, unit: str) -> str:
    """Parameters in 1e9, of which a column may count millions or each."""
    value = plain_number(cell)
    if value is None:
        return cell
    if unit in ("m", "million", "millions") and value < COUNTED:
        return f"{value / 1e3:.7g}"
    return f"{value / 1e9:.7g}" if value >= COUNTED else cell
