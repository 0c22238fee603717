"""Degrees of parallelism: as columns or words print them, as the others and the batch leave them, else one."""

import math
import re
from collections.abc import Mapping

from costmodel.measured.rows.columns import Columns, RowError, cells
from costmodel.measured.rows.words import said

_WORDS = {"tp": "tensor", "cp": "context", "pp": "pipeline", "dp": "data"}


def degree(columns: Columns, facts: Mapping[str, float], name: str) -> int | None:
    """A degree of the column, else of the words where the accelerators divide by it and by what columns print."""
    printed = columns.count(name)
    told = int(facts.get(_WORDS[name], 0))
    if name == "cp" and (printed or 1) == 1 and facts.get("whole_heads"):  # which some count as sequence parallelism
        told = told or _number_in(columns.text("sp"))
        printed = None if told > 1 and _divides(columns, told, name) else printed
    if printed is not None:
        return printed
    if name == "cp" and told == facts.get("sequence_ranks") == columns.count("tp"):
        return None  # Megatron's, of the tensor ranks
    if name == "pp" and not told and facts.get("stage_layers"):
        told = (columns.count("layers") or 0) // int(facts["stage_layers"])
    if name == "tp" and not told and facts.get("tensor_in_node"):
        told = columns.count("gpus_per_node") or 0
    return told if told and _divides(columns, told, name) else None


def is_printed(columns: Columns, facts: Mapping[str, float]) -> bool:
    """Whether the row says how tensors or layers are divided: also by as many data ranks as there are accelerators."""
    told = any(columns.count(name) is not None or name in facts for name in ("tp", "pp", "tensor", "pipeline"))
    return told or degree(columns, facts, "dp") == columns.needed("gpus")


def _divides(columns: Columns, told: int, name: str) -> bool:
    others = (columns.count(each) or 1 for each in _WORDS if each != name)
    return columns.needed("gpus") % (told * math.prod(others)) == 0


def _number_in(cell: str) -> int:
    found = re.search(r"\d+", cell)
    return int(found[0]) if found else 0


def degrees_of(
    columns: Columns, facts: Mapping[str, float], domain: int, batch: int, assumed: list[str]
) -> dict[str, int]:
    """Tensor, context, pipeline as printed, one where not; the rest of the accelerators are data ranks."""
    accelerators = columns.needed("gpus")
    known = {name: degree(columns, facts, name) for name in _WORDS}
    tensor, context, pipeline = (known[name] or 1 for name in ("tp", "cp", "pp"))
    missing = [name for name in ("tp", "pp") if known[name] is None]
    printed = known["dp"] or 0
    others = context * tensor * pipeline * printed
    is_left = missing == ["tp"] or (missing == ["pp"] and not _are_copies(columns))
    if is_left and printed > 1 and accelerators % others == 0:
        left = accelerators // others
        tensor, pipeline = (left, pipeline) if missing == ["tp"] else (tensor, left)
        assumed.append(f"{missing.pop()} {left}, what the other degrees leave")
    if missing:
        if len(missing) == 2:
            tensor, pipeline = _by_batch(columns, facts, accelerators // context, domain, batch)
        assumed.append(" ".join(f"{name} {dict(tp=tensor, pp=pipeline)[name]}" for name in missing))
    data, rest = known["dp"], tensor * context * pipeline
    if rest > accelerators:
        raise RowError(f"`tp` x `cp` x `pp` is {rest}; expected at most the {accelerators} of `gpus`")
    if data is None or data * rest != accelerators:
        if data is not None:
            assumed.append(f"{accelerators // rest} data ranks, because tp x cp x pp x dp is not gpus")
        data = max(1, accelerators // rest)
    if batch < data and data % batch == 0:
        context, data = context * (data // batch), batch
        assumed.append(f"context {context}: there are fewer sequences than ranks")
    return {"tensor": tensor, "context": context, "pipeline": pipeline, "data": data}


def _are_copies(columns: Columns) -> bool:
    """Whether data ranks may be copies of what FSDP divides among others: `DP 4 x FSDP 16`."""
    return bool(said(cells(columns.row, "zero_stage_or_fsdp", "notes"), _FSDP))


_FSDP = ("fsdp|fsdp2|hsdp", "dp? shard #", "full*|hybrid shard*")


def _by_batch(columns: Columns, facts: Mapping[str, float], ranks: int, domain: int, batch: int) -> tuple[int, int]:
    """Tensor and pipeline degrees that nobody prints, as far as the batch tells: as many ranks hold one copy of the
    model as are left beside those that microbatches and their number need, or that there are sequences for."""
    micro = columns.count("micro_batch") or int(facts.get("micro_batch", 0)) or int(facts.get("local_batch", 0))
    data, printed = ranks, columns.count("dp") or int(facts.get("data", 0))
    printed = 0 if _are_copies(columns) else printed or int(ranks // facts.get("model_ranks", ranks + 1.0))
    if printed > 1 and ranks % printed == 0:
        data = printed
    elif micro and facts.get("accumulation") and batch % int(micro * facts["accumulation"]) == 0:
        data = batch // int(micro * facts["accumulation"])
    elif facts.get("context_parallel") == 0:
        data = min(batch, ranks)
    if data < 1 or ranks % data:
        return 1, 1
    each = ranks // data
    tensor = math.gcd(each, domain)
    if each // tensor > batch // data:  # stages would wait for microbatches that there are not
        tensor = math.gcd(each, columns.count("heads") or domain)
    return tensor, each // tensor


def printed_microbatch(columns: Columns, facts: Mapping[str, float], pipeline: int) -> int | None:
    """Sequences of a microbatch as printed; those of a rank at a time where no pipeline cuts them further."""
    printed = columns.count("micro_batch") or int(facts.get("micro_batch", 0))
    return printed or (int(facts.get("local_batch", 0)) if pipeline == 1 else 0) or None
