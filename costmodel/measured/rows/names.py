"""Models by name: the dimensions of what is known, in whatever spelling a row has it."""

import functools
import re
from collections.abc import Mapping
from typing import Any

from costmodel.specs import DATA, read_rows, read_tables

SIZES = (
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
"""Columns that a model's name fills."""
_OF_TABLE = dict(
    zip(
        SIZES,
        "layers hidden heads key_value_heads head_size ffn gated vocabulary tied experts top_k".split(),
        strict=True,
    )
)
_RESPELLED = (  # in lower case, as each is written in names of models, files and flavours
    (r"^[\w.\-]+/(?=[^\s\d])", ""),  # an owner; `ViT-L/16` has none
    (r"llama[-_ ]?v(?=[234])", "llama"),
    (r"llama[-_ ]?3(?:[.][13](?!\d)|[-_]?[13](?=[-_ ]))", "llama3"),
    (r"llama[-_ ]?3[-_]?2(?=[-_ ])", "llama3.2"),
    (r"qwen[-_ ]?2[p_]?5(?=[-_ ])", "qwen2.5"),
    (r"gpt[-_ ]?[23](?=[-_ (]+\d)", "gpt"),
    (r"^ds[-_ ]?v(?=[23])|deepseek[-_ ]?v?(?=[23](?:[-_ (.]|$))", "deepseek-v"),
    (r"deepseek[-_ ]?v[23][-_ ]+16b", "deepseek-v2-lite"),  # torchtitan's 16B, MaxText's deepseek2-16b
    (r"deepseek[-_ ]?r1(?!.*distill)|deepseek-v3\.1(?!\d)", "deepseek-v3"),
    (r"deepseek-v2\.5", "deepseek-v2"),
    (r"kimi[-_ ]?k2\.[5-7]", "kimi-k2"),
    (r"bloomz(?![a-z])", "bloom"),
    (r"llama[-_ ](\d+b)[-_ (]*v([234])\b", r"llama\2-\1"),
    (r"olmo[-_ ]?2[-_ ]?\d{4}", "olmo2"),
    (r"command[-_ ]?r ?\+", "command-r-plus"),
    (r"^gpt[-_ ]*(?:3[-_ ]+)?530b", "mt-nlg-530b"),
    (r"megatron[-_ ]turing(?:[-_ ]?nlg)?", "mt-nlg"),
    (r"(?<![a-z])t(?:uring)?[-_ ]?nlg(?:[-_ (]*17(?:\.2)?b)?", "t-nlg-17b"),
    (r"[-_ ]moe(?=[-_ ]|$)", ""),
    (r"\b(?:instruct|chat|base|hf|it|pretrain(?:ing|ed)?|coder|math|text|dense|decoder|model|llm)\b(?=.)", ""),
)
_WHOLE = {
    "bloom": "bloom-176b",
    "gpt2": "gpt-124m",
    "gpt3": "gpt-175b",
    "mtnlg": "mt-nlg-530b",
    "palm": "palm-540b",
    "starcoder": "starcoder-15b",
    "tinyllama": "tinyllama-1.1b",
}
_OTHER_SIZE = re.compile(
    r"mini|small|medium|large|tiny|nano|micro|lite|air|flash|next|max|plus|vl|vision|omni|multimodal"
)
_NEWER = re.compile(r"[3-9](?!\d|[\d.]*b)")  # Mistral Large 3, of which the known one is no release
_NO_DIGIT = re.compile(r"[^\d.]|\.(?!\d)|\d[\d.]*b")


@functools.lru_cache(maxsize=4096)
def known_dimensions(model: str) -> Mapping[str, str]:
    """The columns of a model that is known by name, among the shipped models or in data/dimensions.csv: of the first
    words that are a name, the longest one."""
    words = _words(model)
    for start in range(len(words)):
        found = [key for key in _dimensions() if _begin_with(words[start:], key)]
        if found:
            return _dimensions()[max(found, key=len)]
    return {}


def _begin_with(words: list[str], key: str) -> bool:
    """Whether a name begins the words: up to the end of one of them or, in it, of its digits; what follows may be a
    size (`llama3` `8b`), but is no model of another size (`phi4` `mini`)."""
    name = "".join(words)
    is_newer = not key[-1].isdigit() and _NEWER.match(name, len(key))
    if not name.startswith(key) or is_newer or _OTHER_SIZE.match(name, len(key)):
        return False
    ends = {len("".join(words[:end])) for end in range(len(words) + 1)}
    return len(key) in ends or not key[-1].isdigit() or _NO_DIGIT.match(name, len(key)) is not None


def rough_sizes(known: Mapping[str, str]) -> tuple[float, float]:
    """About as many parameters as a known model has, and as many as a token meets."""
    layers, hidden, ffn, vocabulary = (
        float(known.get(name, 0)) for name in ("layers", "hidden", "ffn_hidden", "vocab")
    )
    of_expert = (2.0 + float(known.get("gated_ffn", 0))) * hidden * ffn
    inner = float(known.get("heads", 0)) * float(known.get("head_size") or 0) or hidden

    def parameters(experts: float) -> float:
        return layers * (4.0 * hidden * inner + experts * of_expert) + vocabulary * hidden

    return parameters(float(known.get("experts") or 1)), parameters(float(known.get("topk") or 1))


@functools.lru_cache(maxsize=4096)
def normal_name(model: str) -> str:
    """The name of a model without blanks, dashes, owners, dates and trimmings, in one of its spellings."""
    return "".join(_words(model))


def _words(model: str) -> list[str]:
    name = model.lower()
    for pattern, respelled in _RESPELLED:
        name = re.sub(pattern, respelled, name)
    words = re.split(r"[\s_\-(),:;]+", name.strip(" _-(),:;"))
    whole = _WHOLE.get("".join(words))
    return whole.split("-") if whole else words


@functools.cache
def _dimensions() -> Mapping[str, Mapping[str, str]]:
    known: dict[str, Mapping[str, str]] = {}
    for row in read_rows(DATA / "dimensions.csv", needed=("name", "hidden")):
        assert not isinstance(row, str), row
        sizes = {name: row[name] for name in (*SIZES, "seq") if row[name]}
        known |= {normal_name(name): sizes for name in row["name"].split("|")}
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
