"""Columns under the names that people give them: which known column each is."""

import functools
import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from costmodel.measured.rows.headers.cells import is_format, unit_alone
from costmodel.measured.rows.headers.column_words import COLUMN_WORDS
from costmodel.measured.rows.headers.languages import in_english
from costmodel.measured.rows.headers.quantities import is_unit, table_unit
from costmodel.measured.rows.headers.rates import RATES
from costmodel.measured.rows.headers.spellings import CHIP, NAMES
from costmodel.measured.rows.headers.whole_runs import run_meaning

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
TO_NOTES = {
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
    r"(?:system|cluster)(?:[ _]name)?|machine|partition|queue|instance|server|vm|platform|sku"
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
    words, unit = words_of(name)
    bare = _BARE_RATE.fullmatch(words)
    rate = _RATE.fullmatch(f"{words} per s" if bare and (unit == "s" or (bare[1] and not unit)) else words)
    if rate:
        scale = rate["scale"] or _SCALES.get(unit, "")
        return Meaning((_rate(rate),), f"{scale} {rate['time'] or 's'}".strip())
    if several := _of_several(name):
        return several
    known = None if words in _NUMBERED and not unit else _known(words)
    found = _of_tokens(f"{words} {unit}".strip())
    if found is None and known is not None:
        found = Meaning((known,), unit if unit == "k" or (known in _WITH_UNITS and is_unit(known, unit)) else "")
    return found or _of_bytes(words, unit) or _of_run(words, unit) or _of_part(name)


def _of_tokens(words: str) -> Meaning | None:
    """Batches in tokens, and sequences in tokens or thousands of them."""
    batch = re.fullmatch(r"(.*\bbatch\b.*?|gbs|b global|global)(?: in)?(?: ([km]))? (?:tok(?:en)?s?|t)", words)
    if batch and (batch[1] == "global" or _known(batch[1]) in ("global_batch_sequences", "batch")):
        return Meaning(("batch_tokens",), batch[2] or "")
    length = re.fullmatch(r"(.*?)(?: in)?(?: (k))?(?: (?:tok(?:en)?s?|t))?", words)
    return Meaning(("seq",), length[2] or "") if length and _known(length[1]) == "seq" else None


def _of_bytes(words: str, unit: str) -> Meaning | None:
    """A peak of bytes is one of memory."""
    size = unit or words
    is_peak = words in ("peak", "max", "maximum") and size in ("gb", "gib", "mb", "mib") or words in ("gb", "gib")
    return Meaning(("measured_mem_GB",), size) if is_peak else None


def _of_run(words: str, unit: str) -> Meaning | None:
    found = run_meaning(words, unit)
    return None if found is None else Meaning((found[0],), found[1])


def _of_several(name: str) -> Meaning | None:
    """Degrees in one column (`TP/PP/DP`), and nodes with their accelerators."""
    bracket = re.search(r"\(([^)]*)\)", name)
    for listed in (name, bracket[1] if bracket else ""):
        several = re.split(r"[\s/,x\u00d7|*-]+", re.sub(r"[()\[\]]", "", listed.lower()).strip())
        if len(several) > 1 and set(several) <= set(_DEGREES):
            return Meaning(tuple(_OF_DEGREES.get(each, each) for each in several))
    product = _PRODUCT.fullmatch(name.strip().lower())
    if product is None:
        return None
    return Meaning(("nodes", "gpus_per_node") if product[1] else ("gpus_per_node", "nodes"))


def _of_part(name: str) -> Meaning | None:
    """What the unit behind a name that says little means, or a setting's own name behind its section."""
    if alone := unit_alone(name):
        return meaning(alone)
    in_section = re.fullmatch(r"\w+(?:\.\w+)*\.[a-z]\w*(?: [\w ()/]+)?|[a-z]+/\w+_\w+", name)
    if in_section is None:
        return None
    *_, section, last = re.split(r"[./]", name)
    if last in _SAYS_NOTHING:
        return meaning(f"{section} {last}")
    return _of_setting(last) or (meaning(f"{section} {last}") if name.count(".") > 1 else None)


def _of_setting(name: str) -> Meaning | None:
    return Meaning((name,)) if name in COLUMN_WORDS else meaning(name)


def _known(words: str) -> str | None:
    turned = _BEHIND.sub(r"\2 \1", words)  # `batch size global`
    return next((column for each in (words, turned) for column, names in NAMES if re.fullmatch(names, each)), None)


def _plain(name: str) -> str:
    return re.sub(r"[\s_\-]+", "_", name.strip().lower())


_SAYS_NOTHING = ("size", "degree", "dim")  # without its section
_BEHIND = re.compile(r"(.+) (global|total|micro|local|max|peak|avg|mean)")
_HOSTS, _CHIPS = (
    r"(?:nodes?|hosts?|servers?)",
    r"(?:gpus?|accelerators?|devices?|chips?)(?:\s*(?:/|per)\s*(?:node|host))?",
)
_PRODUCT = re.compile(rf"(?:#\s*)?(?:({_HOSTS})\s*[x\u00d7*]\s*{_CHIPS}|{_CHIPS}\s*[x\u00d7*]\s*{_HOSTS})")
_NUMBERED = ("step", "iteration", "iter")  # which bare names count
_LOWER = {name.lower(): name for name in COLUMN_WORDS}


def words_of(name: str) -> tuple[str, str]:
    """A column's name in plain words, and its unit: in brackets, or behind it (`step_time_ms`). A `b` is a batch of a
    step or, in Megatron's papers, of a rank; their `B` is that of a step."""
    if name.strip() == "b":
        return "batch", ""
    parted = r"(?<=[a-z])(?=[A-Z][a-z])|(?<=[a-z]{2})(?=[A-Z]{2})|(?<=[A-Z]{2})(?=[A-Z][a-z]{2})"  # GPUType, numGPUs
    text = in_english(re.sub(parted, " ", name.strip()).lower())
    text = re.sub(r"\b(time|mem(?:ory)?)\s*/\s*(ms|s|sec|min|g(?:i?b)|m(?:i?b))$", r"\1 (\2)", text)  # time/ms
    bracket = re.search(r"[(\[]\s*([^)\]]+)\s*[)\]]\s*$", text)
    text = (text[: bracket.start()] if bracket else text).replace("/", " per ").replace("#", " num ")
    words = " ".join(re.sub(r"[^a-z0-9%]+", " ", text).split())
    words = re.sub(r"^num (?:of|num) ", "num ", words)
    unit = re.sub(r"\s+", " ", bracket[1]) if bracket else ""
    if unit in ("sequences", "seqs", "samples") or (unit == "seq" and "batch" in words):
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


@functools.lru_cache(maxsize=256)
def unread(header: Sequence[str]) -> tuple[str, ...]:
    """The columns whose names mean none that is known."""
    others = (name for name in header if name.strip() and name not in COLUMN_WORDS and meaning(name) is None)
    return tuple(name for name in others if not is_format(name))


@functools.lru_cache(maxsize=256)
def understood(header: Sequence[str]) -> Mapping[str, Meaning]:
    """Columns that are known under other names; of two that mean the same one, the first."""
    found: dict[str, Meaning] = {}
    taken = {name for name in header if name in COLUMN_WORDS}
    bare = [name for name in header if _BARE_CHIP.fullmatch(name.strip().lower())]
    whole = [name for name in header if _WHOLE.fullmatch(name.strip().lower())]
    for name in (*(name for name in header if name not in (*bare, *whole)), *bare, *whole):
        target = Meaning(("gpus",)) if name in bare and "hardware" in taken else meaning(name)
        if target is None or (set(target.columns) & taken and target.columns[0] not in TO_NOTES):
            continue
        found[name] = target
        taken |= set(target.columns)
    before = header[header.index("#") - 1] if "#" in header[1:] else ""
    if not taken & {"gpus", "all_gpus", "nodes"} and "hardware" in (before, *found.get(before, ((),))[0]):
        found["#"] = Meaning(("gpus",))
    return found


def column_readings(header: Sequence[str]) -> Mapping[str, str]:
    """What is read of columns that are not known ones but mean them, in words."""
    found = understood(tuple(header))
    beside = {"gpus": "of each up to eight beside several nodes"} if Meaning(("nodes",)) in found.values() else {}
    beside |= {"chip_memory": "fractions as measured_mem_GB"}

    def reading(meant: str) -> str:
        return ", ".join((COLUMN_OF.get(meant, meant), *([beside[meant]] if meant in beside else [])))

    told = {name: f"as {' and '.join(map(reading, found[name].columns))}" for name in found}
    others = (name for name in header if name not in found and meaning(name) is not None)
    told |= dict.fromkeys(others, "not read, as a known one is there")
    return {name: reading for name, reading in told.items() if reading != f"as {_plain(name)}"}  # `GPUs`, `Model`


COLUMN_OF = {
    "nodes": "gpus",
    "all_gpus": "gpus",
    "chip_memory": "gpu_mem_GB",
    "batch_tokens": "global_batch_sequences",
    "quantization": "precision",
    "two_memories": "measured_mem_GB",
    "hfu": "measured_mfu",
    "flavor": "model",
}
COLUMN_OF |= dict.fromkeys(("zero", "sharded_optimizer"), "zero_stage_or_fsdp")
COLUMN_OF |= dict.fromkeys(RATES, "measured_step_s")
