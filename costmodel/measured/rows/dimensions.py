"""Dimensions that a row does not print: those of the model it names, or what the others and the parameters leave."""

import functools
import math
import re
from collections.abc import Mapping
from typing import Any

from costmodel.measured.rows.columns import Columns
from costmodel.measured.rows.job_sizes import told_sequence
from costmodel.measured.rows.words import said
from costmodel.specs import DATA, read_rows, read_tables

_SIZES = (
    "layers",
    "hidden",
    "heads",
    "kv_heads",
    "head_size",
    "ffn_hidden",
    "gated_ffn",
    "vocab",
    "tied",
    "experts",
    "topk",
)
_OF_TABLE = dict(
    zip(
        _SIZES,
        "layers hidden heads key_value_heads head_size ffn gated vocabulary tied experts top_k".split(),
        strict=True,
    )
)
_GATED = re.compile(
    r"llama|mistral|mixtral|qwen|deepseek|gemma|yi-|phi-?[34]|kimi|moonlight|olmo|internlm|baichuan|palm"
)
_MIXTURE = re.compile(r"moe\b|mixture|experts?\b|\d+x\d|a\d+(?:\.\d+)?b\b|dbrx|switch|glam|gshard|arctic")
_OTHER_TOKENS = ("another|other|different tokenizer", "another|other|different vocabulary|vocab")
_HEAD, _WIDEST = 128, 2**17
_TYPICAL_ASPECT = 128.0  # width over layers: GPT-3 and Llama have 96 to 210


def filled(columns: Columns, facts: Mapping[str, float]) -> tuple[Columns, tuple[str, ...]]:
    """The row with all its dimensions, and what was taken from where; words count before names."""
    given = {name: columns.text(name) for name in (*_SIZES, "seq")}
    given |= {name: str(int(facts[name])) for name in ("layers", "kv_heads") if name in facts and not given[name]}
    assumed: list[str] = []
    told = None if given["seq"] else told_sequence(columns, facts)
    if told:
        given["seq"] = str(told)
        assumed.append(f"sequences of {told} tokens")
    by_name = _known_sizes(columns, given)
    missing = [name for name, cell in given.items() if not cell and by_name.get(name)]
    if missing:
        given |= {name: by_name[name] for name in missing}
        shown = [name for name in missing if name not in ("head_size", "tied", "experts", "topk")]
        assumed.extend([f"{', '.join(shown)} of {columns.text('model')}"] if shown else [])
    own = Columns({**columns.row, **given})
    more = _followed(own, assumed)
    return Columns({**own.row, **more}), tuple(assumed)


def _known_sizes(columns: Columns, given: Mapping[str, str]) -> Mapping[str, str]:
    """The dimensions of the model by its name; none where the row's own say that it is another."""
    known = known_dimensions(columns.text("model"))
    for name in ("hidden", "heads"):
        if given[name] and known and columns.number(name) != float(known[name]):
            return {}
    if said(columns.text("notes"), _OTHER_TOKENS):
        known = {name: size for name, size in known.items() if name != "vocab"}
    return known


@functools.lru_cache(maxsize=4096)
def known_dimensions(model: str) -> Mapping[str, str]:
    """The columns of a model that is known by name, among the shipped models or in data/dimensions.csv."""
    name, found = normal_name(model), ""
    for key in _dimensions():
        ending = r"(?=$|\D|\d[\d.]*b)" if key[-1].isdigit() else ""  # a size may follow a version
        if len(key) > len(found) and re.search(rf"(?<![a-z0-9]){re.escape(key)}{ending}", name):
            found = key
    return _dimensions().get(found, {})


def normal_name(model: str) -> str:
    """The name of a model without blanks, dashes, owners and dates, in one of its spellings."""
    name = re.sub(r"^[\w.\-]+/(?=\S)", "", model.lower())
    name = re.sub(r"llama[-_ ]?3\.[13](?!\d)", "llama3", name)
    name = re.sub(r"gpt[-_ ]?[23](?=[-_ ]\d)", "gpt", name)
    name = re.sub(r"^ds[-_ ]?v(?=[23])|deepseek[-_ ]?v(?=[23])", "deepseek-v", name)
    name = re.sub(r"deepseek[-_ ]?r1(?!.*distill)", "deepseek-v3", name)
    name = re.sub(r"olmo[-_ ]?2[-_ ]?\d{4}", "olmo2", name)
    name = re.sub(r"[-_ ]moe(?=[-_ ])", "", name)
    name = "bloom-176b" if name == "bloom" else name
    return re.sub(r"[\s_\-]+", "", re.sub(r"\s*\(.*", "", name))


@functools.cache
def _dimensions() -> Mapping[str, Mapping[str, str]]:
    known: dict[str, Mapping[str, str]] = {}
    for row in read_rows(DATA / "dimensions.csv", needed=("name", "hidden")):
        assert not isinstance(row, str), row
        known[normal_name(row["name"])] = {name: row[name] for name in (*_SIZES, "seq") if row[name]}
    for name, table in read_tables("models").items():
        if table.get("family", "decoder") in ("decoder", "moe", "encoder") and "hidden" in table:
            known[normal_name(name)] = _as_columns(table)
    whole = {re.sub(r"(?<=\db)a\d+b$", "", name): sizes for name, sizes in known.items()}  # `Qwen3 235B`
    return whole | known


def _as_columns(table: Mapping[str, Any]) -> dict[str, str]:
    sizes = {name: table.get(key) for name, key in _OF_TABLE.items()} | {"seq": table.get("sequence")}
    sizes["gated_ffn"] = int(bool(table.get("gated") or "experts" in table))
    sizes["ffn_hidden"] = table.get("expert_ffn", table.get("ffn"))
    sizes["kv_heads"] = table.get("key_value_heads", table["heads"])
    return {name: str(size) for name, size in sizes.items() if size is not None}


def _followed(columns: Columns, assumed: list[str]) -> dict[str, str]:
    """Dimensions that follow from the others: of a common shape, with as many parameters as the row says."""
    if all(columns.text(name) for name in ("layers", "hidden", "heads", "ffn_hidden", "gated_ffn")):
        return {}
    gated = _is_gated(columns)
    hidden, layers = columns.count("hidden"), columns.count("layers")
    size = _parameters(columns)
    of_experts = (columns.count("ep") or 1) > 1 or _MIXTURE.search(columns.text("model").lower()) is not None
    mixture = of_experts and not columns.count("experts")  # whose shape no size tells
    if (hidden is None or layers is None) and (size is None or mixture):
        return {} if columns.text("gated_ffn") else {"gated_ffn": str(int(gated))}
    hidden = hidden or _width(size or 0.0, layers, _vocabulary(columns))
    ffn = columns.count("ffn_hidden") or (math.ceil(8 * hidden / 3 / 256) * 256 if gated else 4 * hidden)
    each = 4.0 * hidden**2 + (3.0 if gated else 2.0) * hidden * ffn * (columns.count("experts") or 1)
    layers = layers or max(1, round(((size or 0.0) - (1 + gated) * _vocabulary(columns) * hidden) / each))
    heads = columns.count("heads") or max(1, hidden // _HEAD)
    sizes = {"layers": layers, "hidden": hidden, "heads": heads, "ffn_hidden": ffn, "gated_ffn": int(gated)}
    new = {name: str(value) for name, value in sizes.items() if not columns.text(name)}
    told = [f"{name} {cell}" for name, cell in new.items() if name != "gated_ffn"]
    assumed.extend([f"{', '.join(told)}: a common shape of this size"] if told else [])
    return new


def _is_gated(columns: Columns) -> bool:
    printed = columns.flag("gated_ffn")
    if printed is not None:
        return printed
    hidden, ffn = columns.number("hidden"), columns.number("ffn_hidden")
    if _GATED.search(columns.text("model").lower()) or columns.count("experts"):
        return True
    return bool(hidden and ffn and ffn != 4 * hidden)


def _vocabulary(columns: Columns) -> float:
    return columns.number("vocab") or 32_000.0


def _parameters(columns: Columns) -> float | None:
    """Parameters as the row prints them, in its column or in the model's name."""
    printed = columns.number("params_B")
    if printed:
        return 1e9 * printed
    found = re.search(r"(?<![\da-z.])(\d+(?:\.\d+)?)\s*([bmt])(?![a-z])", columns.text("model").lower())
    return float(found[1]) * {"b": 1e9, "m": 1e6, "t": 1e12}[found[2]] if found else None


def _width(size: float, layers: int | None, vocabulary: float) -> int:
    """The multiple of 128 whose decoder of so many layers, or of a typical aspect, comes nearest to the size."""

    def parameters(hidden: float) -> float:
        return 12.0 * (layers or hidden / _TYPICAL_ASPECT) * hidden**2 + vocabulary * hidden

    return min(range(_HEAD, _WIDEST, _HEAD), key=lambda hidden: abs(math.log(parameters(hidden) / max(size, 1.0))))
