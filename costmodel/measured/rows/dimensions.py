"""Dimensions that a row does not print: those of the model it names, or what the others and the parameters leave."""

import functools
import math
import re
from collections.abc import Mapping

from costmodel.measured.rows.columns import Columns, RowError
from costmodel.measured.rows.job_sizes import told_sequence
from costmodel.measured.rows.names import SIZES, known_dimensions, rough_sizes
from costmodel.measured.rows.words import clauses, kinds, meanings, said
from costmodel.specs import show

_GATED = re.compile(
    r"llama|mistral|mixtral|qwen|deepseek|gemma|yi-|phi-?[34]|kimi|moonlight|olmo|internlm|baichuan|palm"
)
_MIXTURE = re.compile(
    r"moe\b|mixture|experts?\b|\d+x\d|a\d+(?:\.\d+)?b\b|dbrx|switch|glam|gshard|arctic|grok|jamba|longcat|mini-?max"
    r"|deepseek-?v[2-9]|kimi|\bling\b|\bring\b|\bstep-?[3-9]|ernie-?4\.5-(?:300|424|21|28)b|hunyuan-(?:large|a)|qwen3-next"
)
_OTHER_TOKENS = ("another|other|different tokenizer", "another|other|different vocabulary|vocab")
_HEAD, _WIDEST = 128, 2**17
_ASPECTS = ((0.8e9, 56.0), (3e9, 80.0))  # width over layers below so many parameters: GPT-3 XL has 85, medium 43
_TYPICAL_ASPECT = 128.0  # of larger ones: GPT-3 and Llama have 96 to 210
_LAYERS_OF_IT = re.compile(
    r"\b(\d+)[\s\-]*(?:(?:transformer|decoder|hidden)[\s\-]*)?(?:layers?|l)\b(?!\s*(?:dense|moe))"
)
_NOT_OF_IT = r"(?!\s(?:per|of|are|is|dense|moe|each|on|in|shared|active|activated|parallel\w*)\b)"
_SIZE_WORDS = {  # a bare noun behind its number only at the start of a clause
    "layers": rf"^(\d+)[\s\-]*(?:(?:transformer|decoder|hidden)\s)?layers?\b{_NOT_OF_IT}|^layers?\s?[=:]?\s?(\d+)"
    r"|\b(?:num|n) layers?\s?[=:]?\s?(\d+)|\bl\s?=\s?(\d+)",
    "hidden": r"\b(?:hidden(?: size| dim\w*)?|d ?model|n embd|width|h)\s?(?:of|[=:])?\s?(\d{3,5})(?![\d.])"
    r"|\blayers x (\d{3,5})\b",
    "heads": r"^(\d+) (?:attention |query )?heads?\b|\b(?:num|n)(?: attention)? heads?\s?[=:]?\s?(\d+)",
    "ffn_hidden": r"\b(?:ffn|mlp|d ff|d ffn|d expert|intermediate|expert (?:hidden|ffn))(?: hidden)?(?: size| dim\w*)?"
    r"\s?[=:]?\s?(\d{3,6})\b",
    "experts": rf"(?:^|\(|\bmoe(?: with|,)?\s)(\d+) (?:small |routed )?experts?\b{_NOT_OF_IT}|\be\s?=\s?(\d+)",
    "topk": r"\btop[\s\-]?k?\s?[=:]?\s?(\d+)\b|\bk\s?=\s?(\d+)\b",
}
_OF_A_PART = re.compile(r"offload|dense|stage|chunk")
_NEAR = 0.1  # of layers: what sizes are rounded by, and vocabularies leave open
_ANOTHER_SIZE = 2.2  # times as many parameters as the known model has, or as few: another model of its family


def filled(columns: Columns, facts: Mapping[str, float]) -> tuple[Columns, tuple[str, ...]]:
    """The row with all its dimensions, and what was taken from where; words count before names."""
    given = {name: columns.text(name) for name in (*SIZES, "seq")}
    given |= {name: str(int(facts[name])) for name in ("layers", "kv_heads") if name in facts and not given[name]}
    if not given["layers"] and facts.get("stage_layers") and (columns.count("pp") or 1) > 1:
        given["layers"] = str(columns.needed("pp") * int(facts["stage_layers"]))
    if not all(given[name] for name in ("layers", "hidden", "heads", "ffn_hidden")):
        given |= {name: size for name, size in _told(columns).items() if not given[name]}
    of_it = _LAYERS_OF_IT.search(columns.text("model").lower())  # 4 layers of Llama 3 8B
    given["layers"] = given["layers"] or (of_it[1] if of_it else "")
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


def _told(columns: Columns) -> Mapping[str, str]:
    """Sizes in the notes; beside a known model those of another of its family, not `10 layers` of something alone."""
    told = _in_words(columns.text("notes"))
    known = known_dimensions(columns.text("model")) or _of_family(columns)
    is_another = {"layers", "hidden"} <= {*told} and any(told[name] != known.get(name) for name in ("layers", "hidden"))
    return told if is_another or not known else {}


@functools.lru_cache(maxsize=4096)
def _in_words(notes: str) -> Mapping[str, str]:
    """Sizes of the model that the notes tell: `24 layers, hidden 1024, 64 experts top-1`, not those of a part of it."""
    told: dict[str, str] = {}
    for clause in clauses(notes):
        if said(clause, meanings.RECOMPUTED) or _OF_A_PART.search(clause):
            continue
        found = {name: re.search(pattern, clause) for name, pattern in _SIZE_WORDS.items()}
        told = {name: next(filter(None, place.groups())) for name, place in found.items() if place} | told
    return told if {"layers", "hidden"} & {*told} else {}


def _known_sizes(columns: Columns, given: Mapping[str, str]) -> Mapping[str, str]:
    """The dimensions of the model by its name; none where the row's own say that it is another."""
    known = known_dimensions(columns.text("model")) or _of_family(columns)
    for name in ("hidden", "heads"):
        if given[name] and known and columns.number(name) != float(known[name]):
            return {}
    told = None if given["layers"] else _parameters(columns)
    if (
        known
        and "experts" not in known
        and not columns.count("experts")
        and _MIXTURE.search(columns.text("model").lower())
    ):
        return {}
    sides = 2.0 if said(columns.text("model"), kinds.TWO_STACKS) else 1.0
    if told and known and all(_is_far(told / sides, size) for size in rough_sizes(known)):
        return {}
    if said(columns.text("notes"), _OTHER_TOKENS):
        known = {name: size for name, size in known.items() if name != "vocab"}
    return known


def _is_far(told: float, size: float) -> bool:
    return abs(math.log(told / size)) > math.log(_ANOTHER_SIZE)


def _of_family(columns: Columns) -> Mapping[str, str]:
    """The dimensions of a family whose size another column says (`Llama 3` and 70)."""
    family, size = columns.text("model"), columns.number("params_B")
    if not family or not size or re.search(r"\d[bm]\b", family.lower()):
        return {}
    sizes = dict.fromkeys(f"{each:g}" for each in (size, round(size), int(size), round(size, 1)))
    return next((known for each in sizes if (known := known_dimensions(f"{family} {each}b"))), {})


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
        raise RowError(_unknown(columns, mixture))
    layers, hidden, ffn = _shape(columns, size or 0.0, gated)
    heads = columns.count("heads") or max(1, hidden // _HEAD)
    sizes = {"layers": layers, "hidden": hidden, "heads": heads, "ffn_hidden": ffn, "gated_ffn": int(gated)}
    new = {name: str(value) for name, value in sizes.items() if not columns.text(name)}
    told = [f"{name} {cell}" for name, cell in new.items() if name != "gated_ffn"]
    assumed.extend([f"{', '.join(told)}: a common shape of this size"] if told else [])
    return new


def _shape(columns: Columns, size: float, gated: bool) -> tuple[int, int, int]:
    """Layers, width and feed-forward: what is printed of them, and the rest of a common shape of this size, in layers
    that the printed stages divide evenly where some are near."""
    vocabulary, printed = _vocabulary(columns), columns.count("layers")
    hidden = columns.count("hidden") or _width(size, printed, vocabulary)
    ffn, each = _feed_forward(columns, hidden, gated)
    layers = (size - (1 + gated) * vocabulary * hidden) / each
    even = _even(layers, columns)
    if printed or even == max(1, round(layers)):
        return printed or even, hidden, ffn
    hidden = columns.count("hidden") or _width(size, even, vocabulary)
    return even, hidden, _feed_forward(columns, hidden, gated)[0]


def _even(layers: float, columns: Columns) -> int:
    """The next number of layers that the virtual stages, or else the stages, divide evenly, or else the next one."""
    stages, virtual = columns.count("pp") or 1, columns.count("vpp") or 1
    near = (each * max(1, round(layers / each)) for each in (stages * virtual, stages))
    return next((even for even in near if abs(even - layers) < _NEAR * layers), max(1, round(layers)))


def _feed_forward(columns: Columns, hidden: int, gated: bool) -> tuple[int, float]:
    """Its width, and the parameters of a layer."""
    ffn = columns.count("ffn_hidden") or (math.ceil(8 * hidden / 3 / 256) * 256 if gated else 4 * hidden)
    return ffn, 4.0 * hidden**2 + (3.0 if gated else 2.0) * hidden * ffn * (columns.count("experts") or 1)


def _unknown(columns: Columns, mixture: bool) -> str:
    """What would have to be printed of a model that no name and no size makes known."""
    name, lacking = columns.text("model"), [size for size in ("layers", "hidden") if not columns.text(size)]
    told = f"{show(name)}, which is not known by name" if name else "empty"
    return f"`model` is {told}; expected {' and '.join(f'`{size}`' for size in lacking)}" + (
        ", `experts` and `ffn_hidden` of this mixture" if mixture else ", or `params_B`"
    )


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
    found = re.search(r"(?:(?<![\da-z.])|(?<=\br))(\d+(?:\.\d+)?)\s*([bmt])(?![a-z])", columns.text("model").lower())
    return float(found[1]) * {"b": 1e9, "m": 1e6, "t": 1e12}[found[2]] if found else None


def _width(size: float, layers: int | None, vocabulary: float) -> int:
    """The multiple of 128 whose decoder of so many layers, or of a typical aspect, comes nearest to the size."""

    aspect = next((aspect for below, aspect in _ASPECTS if size < below), _TYPICAL_ASPECT)

    def parameters(hidden: float) -> float:
        return 12.0 * (layers or hidden / aspect) * hidden**2 + vocabulary * hidden

    return min(range(_HEAD, _WIDEST, _HEAD), key=lambda hidden: abs(math.log(parameters(hidden) / max(size, 1.0))))
