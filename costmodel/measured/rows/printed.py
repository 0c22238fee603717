"""Cells as people print them: a number among words becomes the number, and its words become notes.

`8 (VPP 6)`, `cp=2 (ring)`, `MBS=4`, `64 routed + 2 shared`, `16 nodes x 8 GPUs`, `4M tokens`, `MQA`, `4h`.
"""

import functools
import math
import re
from collections.abc import Mapping

from costmodel.measured.rows.columns import as_number
from costmodel.measured.rows.words import numbered

_NUMBERS = (
    *("gpus", "gpus_per_node", "gpu_mem_GB", "params_B", "layers", "hidden", "heads", "kv_heads", "head_size"),
    *("ffn_hidden", "vocab", "seq", "global_batch_sequences", "micro_batch", "tp", "cp", "pp", "vpp", "dp", "ep"),
    *("experts", "topk"),
)
_AMONG_WORDS = re.compile(
    r"(?!none|no\b|not\b)(?:[a-z][a-z _\-]*?[\s=:\-]*)?"  # MBS=, top-
    r"(?P<number>[~\u2248]?\s*\d+(?:,\d{3})*(?:\.\d+)?\s*(?:[kmbgt]|gi?b)?)\b"
    r"(?P<rest>\s*[(\[;+].*|\s*/\s*[a-z].*|,?\s+(?!or\b|to\b|then\b|later\b|and\b|x\b|vs\b|per\b)[a-z@].*)?",
    re.IGNORECASE,
)
_OF_NODES = re.compile(
    r"(\d+)\s*(?:nodes?|hosts?|servers?|machines?)?\s*[x*\u00d7]\s*(\d+)\b(.*)"
    r"|(\d+)\s*(?:nodes?|hosts?|servers?|machines?)\s*(?:of|with)\s*(\d+)\b(.*)",
    re.IGNORECASE,
)
_NODES_ALONE = re.compile(r"(\d+)\s*(?:nodes?|hosts?|servers?|machines?)", re.IGNORECASE)
_BOXES = re.compile(r"(\d+)\s*[x*\u00d7]?\s*(?:dgx|hgx)\b\s*(2\b|spark|station|gb)?.*", re.IGNORECASE)
_OF_A_BOX = {None: 8, "2": 16, "spark": 1}  # accelerators; of others nobody knows
_TIMES_NAME = re.compile(r"(\d+)\s*[x*\u00d7]\s*[a-z].*", re.IGNORECASE)  # 8 x H100
_BLOCK = re.compile(r"(?:full\W+)?block\W+(\d+)(?:\s*layers?)?\W*", re.IGNORECASE)  # Megatron's `--recompute-method`
_VERSION = re.compile(r"(?:v|(?:yes|true|on)\W+v?)([1-4])[\d.x]*\W*", re.IGNORECASE)  # v3, yes (2.x)
_OF_A_RANK = re.compile(
    r"(\d+)\s*(?:(?:seqs?|sequences?|samples?)\s*)?(?:per|/)\s*(?:gpu|device|rank|chip|core)\b(.*)", re.I
)
_PRODUCT = re.compile(r"(\d+)\s*[x*\u00d7]\s*(\d+)")
_TIMES_HIDDEN = re.compile(
    r"(\d+(?:\.\d+)?)\s*(?:[x*]\s*(?:h|d|hidden|d_model|hidden_size)?|h|d|hidden|d_model|hidden_size)", re.IGNORECASE
)
_HEADS_OF_KEYS = re.compile(r"(\d+)\s*(?:q(?:uery)?)?\s*[/|]\s*(\d+)(?:\s*(?:kv|key.?value))?(?:\s*heads?)?")
_EXPERTS_TIMES = re.compile(r"\d+\s*x\s*\d")
_LONG, _DIGITS = 400, re.compile(r"(\d{40})\d+")  # what is no name and no number is slow to search
_TOKENS = re.compile(r"tok", re.IGNORECASE)
_OF_OTHERS = re.compile(r"tok|node|host|server|machine", re.IGNORECASE)  # what a column's number does not count


_SOME = re.compile(
    r"(?<!average )\b(\d+) (?:out )?of (?:the |its |all )?(\d+) (?:gpus|accelerators|chips|devices|cards|npus)"
    r" (?:(?:are|were) )?(?:used|in use)(?=\W*$|\s*[,;.:|)]|\s(?:here|for (?:the |this )?(?:\w*training|run|job))\b)",
    re.IGNORECASE,
)


def plain(row: Mapping[str, str]) -> Mapping[str, str]:
    """The row with numbers alone in the columns of numbers, and what else stands there in its notes; of accelerators
    those that are used (`288 of 300 GPUs used`)."""
    some = _SOME.search(row.get("notes") or "")
    if some and some[2] == (row.get("gpus") or "").strip() and 0 < int(some[1]) < int(some[2]):
        row = {**row, "gpus": some[1]}
    if any(len(cell or "") > _LONG for cell in row.values()):
        row = {name: _shortened(name, cell or "") for name, cell in row.items()}
    cells = {name: " ".join((row.get(name) or "").split()) for name in _NUMBERS}
    worded = {name: cell for name, cell in cells.items() if cell and not _is_number(cell)}
    batch = cells["global_batch_sequences"]
    worded |= {"global_batch_sequences": batch} if _OF_A_RANK.fullmatch(batch) else {}
    block = _BLOCK.fullmatch((row.get("recompute") or "").strip())
    version = _VERSION.fullmatch((row.get("flash_attention") or "").strip())
    if not worded and block is None and version is None:
        return row
    given, words = dict(row), [row.get("notes") or ""]
    if version:
        given["flash_attention"] = f"FlashAttention-{version[1]}"
    if block:
        given["recompute"] = "full"
        words.append(f"recompute num layers {block[1]}")
    for name, cell in worded.items():
        given[name], rest = _read(name, cell, given)
        words += [rest] if rest else []
    return given | {"notes": "; ".join(word for word in words if word)}


_OF_A_SIZE = re.compile(r"(?:\b(?:for|of|at)\s(?:the\s)?|^\s*)(\d+(?:\.\d+)?)\s?[Bb]\b(?!\s?(?:tok|param))")
_SAME_SIZE = 1.2


def of_own_size(row: Mapping[str, str]) -> Mapping[str, str]:
    """The row without what its notes tell of other sizes where they tell of its own: `no AC for 7B, full for 70B`."""
    notes = row.get("notes") or ""
    own = as_number((row.get("params_B") or "").lower(), 1e-9)
    if not own or not _OF_A_SIZE.search(notes):
        return row
    parts = re.split(r"(?<=[;,|])", notes)
    sizes = [[float(size) for size in _OF_A_SIZE.findall(part)] for part in parts]
    is_own = [any(own / _SAME_SIZE < size < own * _SAME_SIZE for size in each) for each in sizes]
    if not any(is_own):
        return row
    kept = (part for part, each, mine in zip(parts, sizes, is_own, strict=True) if mine or not each)
    return {**row, "notes": "".join(kept)}


def _shortened(name: str, cell: str) -> str:
    return cell[:_LONG] if name in ("hardware", "model") else _DIGITS.sub(r"\1", cell)


@functools.lru_cache(maxsize=4096)
def _is_number(cell: str) -> bool:
    return cell.isdigit() or (as_number(cell.lower()) is not None and not _OF_OTHERS.search(cell))


def _read(name: str, cell: str, row: Mapping[str, str]) -> tuple[str, str]:
    """The number of a cell and the words that it leaves; the cell itself where it holds no single number."""
    if name == "gpus":
        return _accelerators(cell, row)
    if name in ("heads", "kv_heads") and (of_heads := _heads(name, cell.lower())):
        return of_heads
    if name == "params_B" and _EXPERTS_TIMES.match(cell):  # 8x7B is a name
        return "", ""
    times = _TIMES_HIDDEN.fullmatch(cell) if name == "ffn_hidden" else None
    hidden = as_number((row.get("hidden") or "").lower()) if times else None
    if times:
        return f"{float(times[1]) * hidden:g}" if hidden else "", ""
    if name == "global_batch_sequences" and (
        of_batch := _batch(cell, as_number((row.get("seq") or "").lower(), binary=True))
    ):
        return of_batch
    if name == "gpus_per_node" and (named := _TIMES_NAME.fullmatch(cell)):
        return named[1], ""
    found = _AMONG_WORDS.fullmatch(cell)
    if found is None or (name == "seq" and _is_of_each(found)):
        return cell, ""
    rest = _bare(found["rest"])
    return found["number"].strip(), f"context parallel {rest}" if name == "cp" and rest else rest


def _batch(cell: str, sequence: float | None) -> tuple[str, str] | None:
    """`2 per GPU`, `16 x 8`, `512 x 2048` beside sequences of 2,048, and tokens; None where it is none of these."""
    of_rank, product = _OF_A_RANK.fullmatch(cell), _PRODUCT.fullmatch(cell)
    if of_rank:
        return "", f"local batch size {of_rank[1]}; {_bare(of_rank[2])}"
    if product:
        sizes = [int(size) for size in product.groups()]
        if sequence in sizes:
            sizes.remove(int(sequence))
        return str(math.prod(sizes)), ""
    of_tokens = _TOKENS.search(cell) and not re.search(r"\(.*tok", cell)
    return ("", f"batch of {cell}") if of_tokens else None


def _heads(name: str, cell: str) -> tuple[str, str] | None:
    """`MQA`, `MHA`, and heads beside those of keys (`32 / 8 KV`); None where it is none of these."""
    if name == "kv_heads":
        return {"mqa": ("1", ""), "multi-query": ("1", ""), "mha": ("", ""), "multi-head": ("", "")}.get(cell)
    both = _HEADS_OF_KEYS.fullmatch(cell)
    return (both[1], f"{both[2]} kv heads") if both else None


def _accelerators(cell: str, row: Mapping[str, str]) -> tuple[str, str]:
    """`8x8`, `16 nodes x 8 GPUs`, `4x8 H100`, `16 nodes of 8`, `32 nodes`, `256 GPUs (32 nodes)`."""
    cell = re.sub(r"(?<=[a-zA-Z])[_-]+|[_-]+(?=[a-zA-Z])", " ", cell)
    cell = numbered(cell.lower())
    boxes = _BOXES.fullmatch(cell)
    if boxes:
        each = _OF_A_BOX.get(boxes[2])
        return (str(each * int(boxes[1])), "") if each else (cell, "")
    told = re.search(r"(\d+)\s*(?:gpus|accelerators|chips)\b", cell)
    if told and _NODES_ALONE.match(cell) and not _OF_NODES.fullmatch(cell):  # 4 nodes (32 GPUs)
        return told[1], ""
    found = _OF_NODES.fullmatch(cell)
    if found:
        nodes, each = (int(size) for size in found.groups() if size and size.isdigit())
        return str(nodes * each), ""
    named = _TIMES_NAME.fullmatch(cell)
    if named and not _OF_OTHERS.search(cell):  # 64x H100
        return named[1], ""
    each = as_number((row.get("gpus_per_node") or "").lower())
    alone = _NODES_ALONE.fullmatch(cell)
    if alone and each:
        return f"{int(alone[1]) * each:g}", ""
    among = _AMONG_WORDS.fullmatch(cell)
    if among is None or alone or _is_of_each(among):
        return cell, ""
    return among["number"].strip(), _bare(among["rest"])


def _is_of_each(found: re.Match[str]) -> bool:
    """Whether a number among words is that of a part: `8/node`, `8192/gpu`."""
    return (found["rest"] or "").lstrip().startswith("/")


def _bare(rest: str | None) -> str:
    return re.sub(r"[()\[\]]", " ", rest or "").strip(" +,;")
