"""Which ranks share weights, gradients and states: ZeRO's stage and the size of its groups, in any wording."""

import math
import re
from collections.abc import Mapping
from typing import Any

from costmodel.inputs import SOFTWARE
from costmodel.measured.rows.columns import NO_WORDS, Columns, software_words
from costmodel.measured.rows.records import Machine
from costmodel.measured.rows.words import chosen, meanings, said

_HYBRID = ("hsdp", "hybrid shard*|fsdp|sdp", "shard* within|inside each|a|one|the? node|host", "intra node shard*|fsdp")
_PLAIN = re.compile(r"^(none|no|ddp|dp|data parallel\w*|off|false|plain)\b(?!\s*\+)")


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
    if not cell and said(columns.text("notes"), _HYBRID):
        cell = "hybrid shard"
    stage = stage_of(cell)
    if stage is None:
        stage = max(SOFTWARE[software].zero_stage, int(facts.get("optimizer_sharded", 0.0)))
        assumed.append(f"ZeRO {stage}")
    if stage == 2 and degrees["pipeline"] > 1:
        assumed.append("gradients reduced once a step")  # which `ZeroRow.under` does
    if stage == 3 and degrees["pipeline"] > 1 and software == "fsdp":
        stage = 1  # torchtitan's default (`reshard_after_forward_policy`), so that no microbatch gathers again
        assumed.append("weights stay gathered under the pipeline")
    ranks = degrees["data"] * degrees["context"]
    if stage == 0:
        return {"zero_stage": 0}
    shard = _shard(cell.lower(), machine, degrees, ranks)
    return {"zero_stage": stage, "data_shard": shard if 0 < shard < ranks and ranks % shard == 0 else None}


def stage_of(cell: str) -> int | None:
    """The stage of ZeRO that a cell means; None where it says none."""
    bare = re.match(r"([0-3])\b", cell)
    if bare:
        return int(bare[1])
    stage = chosen(cell, meanings.SHARDINGS)
    if stage is None and (_PLAIN.match(cell.lower().replace("_", " ")) or cell.lower() in NO_WORDS):
        return 0
    return None if stage is None else int(str(stage))


def own_zero(columns: Columns, facts: Mapping[str, float], software: str) -> bool:
    """Software that names its ZeRO stage and is no Megatron: as DeepSpeed, gradients in the weights' own type."""
    cell = columns.text("zero_stage_or_fsdp")
    by_name = stage_of(cell) == 1 and "optimizer" not in cell.lower()
    named = by_name and "megatron" not in software_words(columns.row).lower()
    return software == "megatron-2022" and (named or bool(facts.get("optimizer_sharded")))


_GROUPS = (
    r"group (?:of |size )?(\d+)|over (\d+) (?:gpus|ranks|chips|devices|accelerators)|fsdp (\d+)|ici=(\d+)"
    r"|x (\d+)-way fsdp|(\d+)-way (?:fsdp|shard)|shard(?:ing)?[ _-]?(?:size|degree|group)[ =:]*(\d+)"
    r"|dp_shard[ =:]*(\d+)"
)


def _shard(cell: str, machine: Machine, degrees: Mapping[str, int], ranks: int) -> int:
    """Ranks that share weights, as the cell prints them; over a slice of a torus, or a node of hybrid sharding."""
    printed = re.search(_GROUPS, cell)
    if printed and "1" not in printed.groups():
        return int(next(group for group in printed.groups() if group))
    if said(cell, _HYBRID):
        return machine.domain // degrees["tensor"]
    if machine.slice_size < math.prod(degrees.values()):
        return machine.slice_size // (degrees["tensor"] * degrees["pipeline"])
    return ranks
