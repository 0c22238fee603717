"""What only the words of a row say: software, kernels, losses, overlap, graphs, changed blocks and so on."""

import functools
import re
from collections.abc import Iterable, Mapping

from costmodel.measured.rows.columns import NO_WORDS, cells, software_words
from costmodel.measured.rows.words import absent, clauses, meanings, named, number, other_than_pretraining, said
from costmodel.specs import compiled_for

OPEN_SOFTWARE = "software"
"""The mark of a row that does not name its software (`Case.open`)."""
_OLD_HARDWARE = ("v100", "a100")
_OF_SOURCE = (
    "fused_loss",
    "engine_loss",
    "chunked_loss",
    "fused_layers",
    "hugging_face",
    "fused_norms",
    "device_memory",
    "allocated_memory",
    "memory_of_last",
    "whole_heads",
    "shared_accumulation",
)
"""Facts that a source's name tells."""
_OF_RELEASE = ("engine_loss",)
"""Facts that a release tells, which a citation may name too."""
_BESIDE_RECOMPUTE = ("offloaded_projections", "offloaded_activations")
"""Facts that the cell of recompute tells: what goes to the host's memory instead."""
_DEEPSPEED = (("deep speed", True),)
_OVERLAPS = ("overlap_data", "async_tp", "overlap_pipeline", "overlap_expert")


def stack_of(row: Mapping[str, str], family: str, divided: bool, software: str | None = None) -> tuple[str, bool]:
    """The software class: by the words of the row, else the one that was named for rows that do not say theirs, else
    by the hardware and whether tensors or layers are divided; and whether anything named it."""
    if family in ("tpu", "trainium"):
        return compiled_for(family), True
    megatron = megatron_on(family)
    name = named(software_words(row), meanings.SOFTWARE_NAMES) or software
    cell = row.get("zero_stage_or_fsdp") or ""
    if name == "fsdp" and named(cell, _DEEPSPEED) and named(cell, meanings.SOFTWARE_NAMES) != "fsdp":
        name = "deepspeed"  # in a table of both
    if name is not None:
        of_hardware = {"megatron-2022": megatron, "xla": compiled_for(family)}
        return of_hardware.get(str(name), str(name)), True
    return megatron if divided or megatron == "megatron-2022" else "fsdp", False


def megatron_on(family: str) -> str:
    """The class of Megatron on hardware of its time."""
    return "megatron-2022" if family in _OLD_HARDWARE else "megatron-core"


def facts_of(row: Mapping[str, str]) -> dict[str, float]:
    """What notes and names say, by meaning: 1 for what is so, 0 for what is denied, or a number. What nobody says is
    absent."""
    facts = _in_words(cells(row, "notes", "zero_stage_or_fsdp", "model", "sp"))
    by_software = _flags(cells(row, "notes", "source"), _OF_SOURCE)
    by_software |= _flags(cells(row, "notes", "source", "source_ref"), _OF_RELEASE)
    by_notes = {name: facts[name] for name in _OF_SOURCE if name in facts}  # which deny what the name says
    return facts | _flags(row.get("recompute") or "", _BESIDE_RECOMPUTE) | by_software | by_notes


_SETTING = re.compile(r"[a-z][\w .\-/]{1,39}", re.IGNORECASE)
_VALUE = re.compile(r"\d{1,4}|(?!\d)\S[^;|]{0,39}")
_SWITCHED = {"yes": "true", "on": "true", "no": "false", "off": "false"}
_OF_GRAPHS = ("cuda_graphs", "captured_iteration", "offloaded_all", "offload_layers")
_SIZES = ("dense_layers", "first_dense", "shared_experts", "mtp_layers", "multi_token", "window", "sliding_window")


def settings(row: Mapping[str, str], names: Iterable[str]) -> tuple[str, ...]:
    """The cells of columns that no known one means, as settings, where the words of these say anything."""
    cells = ((name, (row.get(name) or "").strip()) for name in names if _SETTING.fullmatch(name.strip()))
    told = (_setting(name.strip(), cell) for name, cell in cells if _VALUE.fullmatch(cell))
    return tuple(filter(None, told))


@functools.lru_cache(maxsize=4096)
def _setting(name: str, cell: str) -> str:
    """`cpu_offload=true`, `shared experts=2`, or nothing where it says nothing, or degrees, which have columns."""
    switched = _SWITCHED.get(cell.lower(), cell)
    flag = {"1": "true", "0": "false"}.get(switched, switched)
    is_worded = not flag.isdigit() and flag.lower() not in NO_WORDS
    if is_worded and other_than_pretraining("", "", f"{name}={flag}"):
        return f"{name}={flag}"
    is_size = cell.isdigit() and int(cell) > 1
    told = {*_SIZES} if is_size else {*_SIZES, *_OF_GRAPHS, *meanings.FLAGS}
    for value in dict.fromkeys((flag, switched)):
        facts = _in_words(f"{name}={value}")
        if facts and told.issuperset(facts) and (not is_size or float(cell) in facts.values()):
            return f"{name}={value}"
    return ""


@functools.lru_cache(maxsize=4096)
def _in_words(text: str) -> dict[str, float]:
    facts = _flags(text, tuple(name for name in meanings.FLAGS if name not in ("graphs", "whole_graph", "overlap_any")))
    facts |= _general_overlap(text, facts) | _general_offload(facts) | _graphs(text) | _numbers(text)
    return facts | _additions(text) | _kernel(text)


def _flags(text: str, names: tuple[str, ...]) -> dict[str, float]:
    verdicts = {name: said(text, meanings.FLAGS[name]) for name in names}
    return {name: float(verdict) for name, verdict in verdicts.items() if verdict is not None}


def _general_overlap(text: str, facts: Mapping[str, float]) -> dict[str, float]:
    """Overlap of communication in general, where none is named."""
    general = said(text, meanings.FLAGS["overlap_any"])
    if general is None or any(name in facts for name in _OVERLAPS):
        return {}
    return dict.fromkeys(_OVERLAPS[:3] if general else _OVERLAPS, float(general))


def _general_offload(facts: Mapping[str, float]) -> dict[str, float]:
    """What goes to the host's memory where it is not named: the optimizer's states (K: ZeRO-Offload)."""
    is_named = "host_optimizer" in facts or facts.get("offloaded_activations") or facts.get("offloaded_weights")
    general = ("host_optimizer", "offloaded_all")
    return dict.fromkeys(general, facts["offload_any"]) if "offload_any" in facts and not is_named else {}


def _numbers(text: str) -> dict[str, float]:
    found = {name: number(text, phrases) for name, phrases in meanings.NUMBERS.items()}
    if found["stage_layers"]:  # unless they are those that are computed again
        found["stage_layers"] = number(_not_recomputed(text), meanings.NUMBERS["stage_layers"])
    if found["ulysses"] and found["ring"]:  # heads and sequences are both divided
        found["context"] = found["ulysses"] * found["ring"]
    elif found["head_parallel"]:
        found["context"] = found["head_parallel"] * (found["ring"] or found["context"] or 1.0)
    elif not found["context"] and found["sequence_ranks"] != found["tensor"]:  # equal ones are Megatron's
        found["context"] = found["sequence_ranks"]
    if not found["pipeline"]:
        found["pipeline"] = next(
            (float(clause.split()[0]) for clause in clauses(text) if _STAGES.fullmatch(clause)), None
        )
    if not found["local_batch"] and not found["micro_batch"]:
        own = filter(None, map(_PER_RANK.fullmatch, clauses(text)))
        found["local_batch"] = next((float(each[1]) for each in own), None)
    undivided = [name for name, words in meanings.ABSENT.items() if not found[name] and absent(text, words)]
    return {name: value for name, value in found.items() if value} | dict.fromkeys(undivided, 1.0)


_PER_RANK = re.compile(r"(\d+) (?:per|a|on each) (?:gpu|device|rank)")
_STAGES = re.compile(r"\d+ stages")  # and nothing else in the clause


def _not_recomputed(text: str) -> str:
    return "; ".join(clause for clause in clauses(text) if not said(clause, meanings.RECOMPUTED))


def _graphs(text: str) -> dict[str, float]:
    """CUDA graphs: of a whole iteration, which leaves the host nothing to do, or of parts of a layer."""
    verdict = said(text, meanings.FLAGS["graphs"])
    if said(text, meanings.FLAGS["whole_graph"]):
        return {"cuda_graphs": 1.0, "captured_iteration": 1.0}
    if not verdict:
        return {} if verdict is None else {"cuda_graphs": 0.0}
    some = re.search(r"graphs?[^;\[]*(\[[^]]*'[^]]*\])", text.lower())  # a list of captured modules
    return {"cuda_graphs": 0.25 if some and "'attn'" not in some[1] else 0.75}


_ABLATION = (
    ("parallel transformer block", {"parallel_block": 1.0}),
    ("sliding window", {"sliding_window": 1.0}),
    ("tp overlap", {"async_tp": 1.0}),
    ("pp overlap", {"overlap_pipeline": 1.0}),
    ("dp overlap", {"overlap_data": 1.0}),
    ("efficient operators", {"fused_kernels": 1.0}),
    ("misc", {}),
    ("lamb", {}),
)


def _additions(text: str) -> dict[str, float]:
    """A table of additions, one on top of the other (MegaScale's): a row has all up to its own."""
    _, ablation, rest = text.lower().partition("ablation:")
    if not ablation:
        return {}
    steps = [i for i, (name, _) in enumerate(_ABLATION) if name in rest]
    facts: dict[str, float] = {"parallel_block": 0.0, "sliding_window": 0.0}
    for _, added in _ABLATION[: (steps[-1] + 1) if steps else 0]:
        facts |= added
    return facts


def _kernel(text: str) -> dict[str, float]:
    """`kernel=flash_attention2 + RMS kernel`: the attention, and whether norms are fused; the rest is not."""
    kernel = re.search(r"\bkernel=([^;|]*)", text.lower())
    if not kernel:
        return {}
    return {
        "fused_kernels": 0.0,
        "fused_norms": float("rms" in kernel[1]),
        "unfused_attention": float("flash" not in kernel[1]),
    } | ({"framework_attention": 1.0} if "torch" in kernel[1] else {})
