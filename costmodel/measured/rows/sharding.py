"""Which ranks share weights, gradients and states: ZeRO's stage and the size of its groups, in any wording."""

import math
import re
from collections.abc import Mapping
from typing import Any

from costmodel.inputs import SOFTWARE
from costmodel.measured.rows.columns import NO_WORDS, Columns, cells, software_words
from costmodel.measured.rows.records import Machine
from costmodel.measured.rows.words import chosen, clauses, meanings, said

_HYBRID = ("hsdp", "hybrid shard*|fsdp|sdp", "intra node shard*|fsdp")
_HYBRID += ("shard*|fsdp|mics within|inside each|a|one|the? node|host",)
_PLAIN = re.compile(
    r"^(none|no|(?:local|torch) ?ddp|(?:(?:pure|vanilla) )?d?dp|data parallel\w*|off|false|plain|replicat\w*)\b"
    r"(?!\s*\+)"
)
_UNDIVIDED = (
    "weight*|param* is|are? replicated|whole on|across|over every|each|all|dp|data*",
    "ddp",
    "plain|pure data parallel*",
    "data parallel* only",
    "distributed data parallel*",
    "no sharding",
)
_OF_SHARDING = (*_HYBRID, *_UNDIVIDED, "zero optimi*? stage? 0|1|2|3", "zero redundancy|offload*|infinity|plus")
_OF_SHARDING += ("fsdp|fsdp2|hsdp", "full*|hybrid shard*", "shard* & optimizer|weight*|param*", "shard grad op")
_OF_SHARDING += (
    "sharding|deep_speed stage 0|1|2|3",
    "shard*|partition* & group|degree|size",
    "mics",
    "replica* & shard*",
)
_OF_SHARDING += (
    "zero~ dp|data_parallel*|optimi*",
    "way|gpu|rank|device shard*|group",
    "no zero",
    "z1|z2|z3",
    "param*|weight* is|are? shard*|partition*|split|divided",
    "sharded data parallel*",
)
_OF_SHARDING += (
    "dist|distributed|sharded fused? optimizer|optim|opt|adam*",
    "replicate",
    "data_parallel|dp shard",
    "reshard*",
)
_GATHERED = ("reshard* after? forward", "weights are? resharded")  # denied: as under ZeRO 2
_BY_DEFAULT = ("reshard* after? forward policy? default", "default reshard*")
_KEPT = ("param*|weight* kept|stay|left gathered|whole|after",)  # the same, said
_OF_SHARDING += _KEPT
_OF_SHARDING += (
    "shard* over|across|among|within # node|gpu|rank|device|chip",
    "replica|copy|copies per|on|in|over every|each? # node|gpu|rank|device|chip",
)
_OF_SHARDING += tuple(phrase for phrase, _ in meanings.SHARDINGS if not phrase.startswith(("optim", "sharding?")))
_PLUS_PLUS = ("zero ++|plus_plus", "qwz|hpz|qgz")
_OF_SHARDING += ("qwz|hpz|qgz",)
_OF_MODEL = re.compile(r"\b(?:tp|tensor|column|row|pp|pipeline|experts?|vocab\w*)\b")
_OF_DATA = re.compile(r"zero|fsdp|hsdp|sdp|mics|\bdp\b|data|optim|replica|shard \d|hybrid|distributed")
_NAMED_3 = re.compile(r"^3\b|(?:zero|stage)\W*3", re.IGNORECASE)
_ZERO = re.compile(r"(?:^|\b(?:with|and|plus|using)\s|[+&]\s?)zero\W*$")  # of which nobody says the stage


def sharding(
    columns: Columns,
    facts: Mapping[str, float],
    machine: Machine,
    software: str,
    degrees: Mapping[str, int],
    assumed: list[str],
) -> dict[str, Any]:
    """ZeRO's stage and the ranks that share weights."""
    cell = columns.text("zero_stage_or_fsdp")
    told, stage = _told(columns, cell)
    if stage is None:
        stage = max(SOFTWARE[software].zero_stage, int(facts.get("optimizer_sharded", 0.0)))
        assumed.append(f"ZeRO {stage}")
    if stage == 2 and degrees["pipeline"] > 1:
        assumed.append("gradients reduced once a step")  # which `ZeroRow.under` does
    if stage == 3 and degrees["pipeline"] > 1 and software == "fsdp" and not _gathers_again(told, cell):
        stage = 1  # torchtitan's default (`reshard_after_forward_policy`), so that no microbatch gathers again
        assumed.append("weights stay gathered under the pipeline")
    if said(told, _PLUS_PLUS) or said(cell, _PLUS_PLUS):
        assumed.append("ZeRO++: that its traffic is in fewer bits, and partly inside nodes, is not counted")
    ranks = degrees["data"] * degrees["context"]
    if stage == 0:
        return {"zero_stage": 0}
    shard = _shard(cell.lower(), told.lower(), machine, degrees, ranks)
    if shard == degrees["data"] and "group" not in cell:  # a mesh, which context ranks share too (K: torchtitan's)
        shard = ranks
    return {"zero_stage": stage, "data_shard": shard if 0 < shard < ranks and ranks % shard == 0 else None}


def _gathers_again(*texts: str) -> bool:
    return any(said(text, _GATHERED) and not said(text, _BY_DEFAULT) for text in texts)


def _told(columns: Columns, cell: str) -> tuple[str, int | None]:
    """What the words tell of sharding, and the stage that the cell means, or else they do."""
    told, by_words = _in_words(columns.text("notes"))
    if by_words is None:
        told, by_words = _in_words(cells(columns.row, "source", "notes"))
    stage = stage_of(cell) if cell else by_words
    keeps = stage == 3 and not _NAMED_3.search(cell) and (by_words == 2 or _keeps_weights(told))
    return told, 2 if keeps else stage


def is_fully_sharded(columns: Columns) -> bool:
    """Whether the row says that all ranks share the weights, as where neither tensors nor layers need be divided."""
    return _told(columns, columns.text("zero_stage_or_fsdp"))[1] == 3


def stage_of(cell: str) -> int | None:
    """The stage of ZeRO that a cell means; None where it says none."""
    bare = re.match(r"([0-3])\b", cell)
    if bare:
        return int(bare[1])
    if _PLAIN.match(cell.lower().replace("_", " ")) or cell.lower() in NO_WORDS:
        return _stage(cell) or 0
    return _stage(cell)


def _stage(text: str) -> int | None:
    """The stage by its name; by what is divided and gathered where nothing names it."""
    stage = chosen(text, meanings.SHARDINGS)
    if stage is None and re.search(r"\bshard\w*(?:\W+(?:degree|size|group))?\W+\d", text.lower().replace("_", " ")):
        stage = 3  # `dp replicate 4 shard 64`
    if stage == 3 and _keeps_weights(text):
        return 2
    if stage is None and any(_ZERO.search(clause) for clause in clauses(text)):
        return 1
    if stage is None:
        return 0 if said(text, _UNDIVIDED) or said(text, _NAMES) is False else None
    return int(str(stage))


def _keeps_weights(text: str) -> bool:
    """Whether gathered weights stay until the backward pass, as under ZeRO 2."""
    return said(text, _GATHERED) is False or bool(said(text, _KEPT))


_NAMES = tuple(phrase for phrase, _ in meanings.SHARDINGS)


def _in_words(text: str) -> tuple[str, int | None]:
    """The clauses of the words that speak of sharding, and the stage of ZeRO that they mean."""

    def is_of_sharding(clause: str) -> bool:
        if _OF_MODEL.search(clause) and not _OF_DATA.search(clause):  # weights divided by tensor ranks
            return False
        return said(clause, _OF_SHARDING) is not None or _ZERO.search(clause) is not None

    told = "; ".join(filter(is_of_sharding, clauses(text)))
    return told, _stage(told)


def own_zero(columns: Columns, facts: Mapping[str, float], software: str) -> bool:
    """Software that names its ZeRO stage and is no Megatron: as DeepSpeed, gradients in the weights' own type."""
    cell = columns.text("zero_stage_or_fsdp")
    by_name = stage_of(cell) == 1 and "optimizer" not in cell.lower()
    named = by_name and "megatron" not in software_words(columns.row).lower()
    return software == "megatron-2022" and (named or bool(facts.get("optimizer_sharded")))


_RANKS = "(?:gpus|ranks|chips|devices|accelerators|replicas)"
_GROUPS = (
    rf"(\d+) {_RANKS} (?:per|in each) (?:\w+ )?group|groups? (?:of |size )?(\d+)"
    r"|(\d+)[ -](?:gpus?|ranks?|chips?|devices?|cards?|way) (?:\w+ )?(?:group|partition|island|hybrid)"
    r"|(?:shard\w*|partition\w*) (?:[\w()]+ ){0,3}?(?:group|size|degree|domain)s?(?: of| size| is|[ =:])* (\d+)"
    r"|mics\W+(?:[a-z]+\W+){0,2}(\d+)\b(?!\.\d|\s?x|\s?nodes)"
    rf"|(?:over|within|across|among) (?:the |all )?(\d+) {_RANKS}"
    r"|shard\w* (?:over|across|among|in|on) (?:the )?(\d+)\b(?! ?(?:nodes|x))|zero\W?\d size (\d+)"
    r"|fsdp\d?(?: *[=x] *| +(?!2\b))(\d+)|ici=(\d+)|x (\d+)-way fsdp|(\d+)-way (?:fsdp|shard)"
    r"|shard(?:ing)?[ _-]?(?:size|degree|group)[ =:]*(\d+)|(?:dp_)?shard[ _=:-]+(\d+)\b"
    rf"|(?:replica|copy|copies) (?:per|in|on|over|of) (?:every |each )?(\d+) {_RANKS}"
    r"|\d+\s?x\s?(\d+) \(replicate x shard\)|(\d+)\s?x\s?\d+ \(shard x replicate\)"
)
_COPIES = re.compile(r"replicat\w*[ _=:x]*(\d+)(?! x)|(\d+)[ -]?(?:way )?(?:replicas?|replicat\w+)\b")


def _group(text: str, ranks: int) -> int | None:
    """Ranks that share weights, or that are left by so many copies."""
    printed = re.search(_GROUPS, text)
    if printed and "1" not in printed.groups():
        return int(next(group for group in printed.groups() if group))
    copies = _COPIES.search(text)
    number = int(copies[1] or copies[2]) if copies else 0
    return ranks // number if number else None


_NODES = re.compile(
    r"(\b(?:shard(?:s|ed|ing)?|replicas?|copy|copies|groups?|islands?) "
    r"(?:\w+ ){0,2}?(?:over|within|across|per|of|every|each) )"
    r"(\d+)[ -]nodes?\b"
)


def _of_nodes(text: str, machine: Machine) -> str:
    """The text with nodes counted in ranks."""
    per_node = int(machine.cluster.tiers[0].size)
    return _NODES.sub(lambda found: f"{found[1]}{int(found[2]) * per_node} ranks", text)


def _shard(cell: str, told: str, machine: Machine, degrees: Mapping[str, int], ranks: int) -> int:
    """Ranks that share weights, as the cell prints them, else the words; over a slice of a torus, or a node of hybrid
    sharding."""
    printed = _group(_of_nodes(cell, machine), ranks) or _group(_of_nodes(told, machine), ranks)
    if printed:
        return printed
    if said(cell, _HYBRID) or said(told, _HYBRID):
        return machine.domain // degrees["tensor"]
    if machine.slice_size < math.prod(degrees.values()):
        return machine.slice_size // (degrees["tensor"] * degrees["pipeline"])
    return ranks
