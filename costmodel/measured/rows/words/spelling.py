"""Text as phrases take it: small letters, degrees each beside its name, numbers in digits, words in English."""

import math
import re

from costmodel.measured.rows.words.languages import in_english

_NUMBERS = {"two": "2", "three": "3", "four": "4", "six": "6", "eight": "8", "ten": "10", "sixteen": "16"}
_NUMBERS |= {"five": "5", "twelve": "12", "thirty-two": "32", "sixty-four": "64"}
_ONE = re.compile(r"\b(?:(?:an?|one|only) )?(?:one|single)(?=[\s-](?:sequence|sample|micro|mtp))")
_NUMBER_WORDS = re.compile(rf"\b(?:{'|'.join(sorted(_NUMBERS, key=len, reverse=True))})\b")


def numbered(text: str) -> str:
    """The text, in lower case, with small numbers in digits."""
    return _ONE.sub("1", _NUMBER_WORDS.sub(lambda found: _NUMBERS[found[0]], text))


def _in_full(thousands: re.Match[str]) -> str:
    return f"{thousands[1]}{1024 * int(thousands[2])}"


_OF_FACTORS = re.compile(
    r"\b(gbs|global batch(?: size)?)(?: derived)?\s*(?:=|:|of|as)?\s*(\d{1,4}(?:\s*[x*]\s*\d{1,4})+)(?![\w.])"
)


def _multiplied(found: re.Match[str]) -> str:
    return f"{found[1]} {math.prod(map(int, re.findall(r'[0-9]+', found[2])))}"


def spelt(text: str) -> str:
    """The text in lower case, camel case parted, without quotes, in one spelling of blanks, dashes and negations."""
    text = _MICRO.sub("micro batch size ", text) if _LETTERED.search(text) else text
    text = _RATE.sub("Gb/s", re.sub(r"(?<=[a-z]{2})(?=[A-Z][a-z])", " ", text)).replace("\u00d7", "x").lower()
    text = re.sub(r"[_\"'`{}]", " ", text)  # also of settings in JSON and YAML
    text = numbered(in_english(text))
    if "gbs" in text or "global batch" in text:
        text = _OF_FACTORS.sub(_multiplied, text)
    for sign, expression, plain in _RESPELT:
        if sign in text:
            text = expression.sub(plain, text)
    text = " ".join(text.split()) if text.isascii() else _BLANKS.sub(lambda m: " " if m[0].isspace() else "-", text)
    return _degrees(text)


_MICRO = re.compile(r"(?<![\w.\-])b\s?=\s?(?=\d)")  # as Megatron's papers have it, beside B, t and p
_LETTERED = re.compile(r"(?<![\w.\-])(?:B|GBS|[tpd])\s?=\s?\d")
_RATE = re.compile(  # of a link, neither a global batch size nor many gigabytes
    r"(?<=\d)\s?(?:G[Bb]s\b|gbs\b(?=\s(?:infiniband|ib|ethernet|roce|efa|nics?|hcas?|ports?|links?|network|nvlink|per)\b))"
)
_BLANKS = re.compile(r"[\s\u2010-\u2014]+")
_OF_STATES = r"(?:param(?:eter)?s?|weights?|grad(?:ient)?s?|(?:optimi[sz]er )?states?|activations?|moment(?:um|s)?)"
_SHORT = r"vs|resp|sel|incl|excl|approx|ca|cf|e\.g|i\.e|fig|sec|tab|eq|dist|optim|seq|par"
_OF_A_BATCH = r"batch(?: size)?|bsz?|mbs|seqs?|sequences?|samples?"
_OF_TIME = r"(?=(?:\s?/\s?|\sper\s|-)(?:s|secs?|seconds?|min\w*|h|hours?|days?)\b)"
_RESPELT = (
    ("re-", re.compile(r"\bre-(?=mat|comput)"), "re"),
    ("lion", re.compile(r"\blion(?=\s(?:cluster|machine|supercomputer|system|hpc|partition|nodes?)\b)"), ""),
    (".", re.compile(rf"\b({_SHORT})\.(?=\s)"), r"\1"),
    ("/", re.compile(rf"\b({_OF_A_BATCH})\s?/\s?(?=(?:gpu|device|rank|chip)\b)"), r"\1 per "),
    (" per ", re.compile(rf"\b(?:{_OF_A_BATCH}) per (?:gpu|device|rank|chip){_OF_TIME}"), "rate"),
    # what is written away is nothing that is computed again
    ("async", re.compile(r"\basync\w*\scheckpoints?\b"), "saved model"),
    ("to", re.compile(r"\bcheckpoints?(?=\s(?:are\s)?(?:\w+ed\s)?to\s(?:disk|nfs|lustre|storage|s3)\b)"), "saves"),
    ("master", re.compile(r"\b(master)[\s-]+(?:parameters?|params?|weights?|copy|copies)\b"), r"\1s"),
    ("virtual", re.compile(r"(?<![\w.\-])(?:x\s?(\d+)|(\d+)x) virtual\b(?!\s(?:cpu|machine|node|core))"), r"vpp \1\2"),
    ("micro", re.compile(r"\b(?:b|bs|batch(?: size)?)\s?(?:=\s?)?(\d+) \(micro[\s\-\w]*\)"), r"micro batch size \1"),
    ("micro b", re.compile(r"\bmicro b\b"), "micro batch size"),
    ("megatron", re.compile(r"(?<=way )megatron[\w\-]*\s(?=(?:tensor|pipeline|context|sequence|expert|data)\b)"), ""),
    ("w/o", re.compile(r"\bw/o\b"), "without"),
    ("batches of", re.compile(r"\b(\d+ micro[\s-]?batches) of (?:size )?(?=\d)"), r"\1, micro batch size "),
    ("batches of", re.compile(r"\bmicro[\s-]?batches of (?:size )?(?=\d)"), "micro batch size "),
    ("-true", re.compile(r"\b(bf16|fp16|16)-true\b"), r"pure \1-bit"),  # K: Lightning's; `bf16: true` is another's
    ("--use", re.compile(r"--use-(?=[a-z])"), "--"),
    ("dim", re.compile(r"(?<=parallel) dim(?=\W+\d)"), " size"),
    ("tok", re.compile(r"\b(\d+ (?:sequences|samples)) \([^()]*tok[^()]*\)"), r"\1"),
    ("=", re.compile(r"\b(\d+) (?:seq(?:uence)?s|samples) =(?= ?\d)"), r"global batch size \1 ="),
    ("w/", re.compile(r"\bw/\s?(?=[a-z])"), "with "),
    ("tok", re.compile(r"(?<![\w.])(\d+)\s*x\s*\d[\d,]*k?[\s\-]tok(?:en)?s?\b"), r"\1 sequences"),  # each of so many
    ("k", re.compile(r"\b((?:gbs|batch size)\s*(?:[=:]|of)?\s*)([1-9]|[12]\d)k\b(?![\s\-]*tok)"), _in_full),
    # of several things that are in one place each is there
    (",", re.compile(rf"\b({_OF_STATES}),\s(?=(?:and\s)?{_OF_STATES}\b)"), r"\1 and "),
    # of a change the row has what it changed to
    ("from", re.compile(r"\b(?:increas|rais|chang|reduc|lower|switch|mov|extend)\w*\sfrom\s[\w.\-]+\sto\s(?=\S)"), ""),
)  # fmt: skip
"""What is spelt in another way: a sign of it, and how."""

_LETTERS = {
    "op": "tp",
    "mp": "tp",
    "replica": "replicate",
    "model": "tp",
    "mdl": "tp",
    "t": "tp",
    "p": "pp",
    "d": "dp",
    "c": "cp",
    "e": "ep",
    "v": "vpp",
}
_NAME = (
    r"(?:[tpdceom]p|vpp?|etp|edp|mbs|gbs|ga|micro(?:[ \-]?batch)?|acc(?:um[a-z]*)?|sp|h?sdp|fsdp\d?"
    r"|replica|model|mdl|[tpdcev]"
    r"|(?:tensor|pipe(?:line)?|data|context|expert|sequence)-?(?:[ \-]?(?:model[ \-]?)?parallel\w*)?)"
)
_AND = r"(?:\s*[,/x*\-|:]\s*(?:and\s)?|\sand\s)"
_NAMES = rf"(?<![\w\-])[(\[]?({_NAME}(?:{_AND}{_NAME}){{1,9}})[)\]]?(?![\w\-])"
_SIZES = rf"[(\[]?(?<![\w.\-])(\d+(?:{_AND}\d+){{1,9}})(?![\w.])[)\]]?"
_BETWEEN = (
    r"(?:\s*(?:parallel\w*|degrees?|sizes?|layout|mesh|config\w*|split|set|respectively|with|of|is|are|at|to|[=:]))*\s*"
)
_SEVERAL = re.compile(rf"(?<![\d.,])\d+{_AND}\d+(?![\d.x])|[(\[]\d+(?:,\d+)+[)\]]")
_LIST = re.compile(rf"{_NAMES}{_BETWEEN}{_SIZES}")
_REVERSED = re.compile(rf"{_SIZES}\s*(?:=|as|for|in|of|over)?\s*{_NAMES}")
_GLUED = re.compile(r"(?<![\w.])(?:\d+x)*((?:x?(?:[tpdce]p?|vpp?|mbs|gbs)\d+){2,})(?!\w)")
_SPACED = re.compile(  # T4/P4 are two accelerators
    r"(?<![\w.\-/])(?:(?:[tpdce]\d+,?\s){1,4}|(?:[tpdce]\d+\s?[\-/]\s?){2,4})[tpdce]\d+(?![\w.\-/])"
)
_TURNED = re.compile(
    r"(?<![\w.])\d+(?:[tpdce]p?|\s[tpdce]p)(?:\s*[x/,\-]\s*(?:and\s)?\d+(?:[tpdce]p?|\s[tpdce]p))+(?!\w)"
)
_FACTOR = r"\d+ \(?(?:[tpdce]p|mbs|ga|acc(?:um[a-z]*)?|micro(?:[ \-]?batch)?(?: size)?|data[ \-]parallel\w*)\)?"
_PRODUCT = re.compile(rf"(?<![\w.]){_FACTOR}(?:\s*[x*]\s*{_FACTOR})+(?!\w)")
_FORMULA = re.compile(r"(?<![\w.])([tpdcev])\s*=\s*(?=\d)")
_NAMED = re.compile(r"(?<![\w.\-])(tensor|pipeline|data|context|expert)\s*=\s*(?:dict\(size\s*=\s*)?(?=\d)")
_BARE = re.compile(
    r"(?<![\w.\-])(tensor|model|mdl|op|operator|pipe|pipeline|data|context|expert|sequence(?=\s\d{1,3}\b))(?:\sshards)?\s"
    r"(?=\d{1,4}\s?(?:[,;:)|.\]]|(?:and|x|with|within|in|inside|on|across)\b|$))"
)
_PARALLEL = re.compile(
    r"\b(?:tensor|pipeline|data|model|expert|context)[\s-]parallel\w*\s(?:degree\s|size\s|of\s)?\d{1,4}(?=,|\s(?:and|x|with)\b)"
)
_OF_MESH = re.compile(r"(?<![\w.\-])(model|mdl|mp|tensor)\s*=\s*(?=\d{1,3}\b)")
_IS_MESH = re.compile(r"\bmesh\b|(?<![\w.\-])(?:fsdp|data|replica)\s*=\s*-?\d")
_CHUNKS = re.compile(r"(?<![\w.])v\s*=\s*(?=\d)")
_COPIES = re.compile(r"(?<![\w.\-])data\s*=\s*(?=\d)")  # of what `fsdp` divides
_BARE_COPIES = re.compile(r"(?<![\w.\-])data\s(?=\d{1,4}\s?(?:[,;:)x]|$))")
_SHARDS = re.compile(r"\bfsdp\s\d")
_SUBSCRIPT = re.compile(r"\bd[ _](?=[stpdce]p\b\s*=)")
_PAIRS = re.compile(r"\b(tp|tensor[ \-]parallel\w*)\s(?:over |across |in )?pairs\b")


def _degrees(text: str) -> str:
    """Each degree beside its name: `TP/PP/DP = 8/4/2`, `8x4x2 (TP x PP x DP)`, `t8p4d2`, a paper's `t = 8, p = 4`."""
    text = _SPACED.sub(lambda found: _apart(found[0]) if {"t", "p"} <= {*found[0]} else found[0], text)
    text = _GLUED.sub(lambda found: _apart(found[1]), text)
    text = _TURNED.sub(_turned, text)
    text = _PRODUCT.sub(_factors, text)
    if not _SEVERAL.search(text):
        return _of_formulas(text)
    text = _LIST.sub(lambda found: _paired(found[0], found[1], found[2]), text)
    text = _REVERSED.sub(lambda found: _paired(found[0], found[2], found[1]), text)
    return _of_formulas(text)


def _of_formulas(text: str) -> str:
    if _SHARDS.search(text):  # data 2, fsdp 16, tensor 2
        text = _BARE_COPIES.sub("replicate ", text)
    bare = {found[1] for found in _BARE.finditer(text)}
    if len(bare) > 1 or (bare and _PARALLEL.search(text)):  # tensor 2, context 1, pipeline 2
        text = _BARE.sub(lambda found: f"{'t' if found[1][0] in 'mo' else found[1][0]}p ", text)
    if "pairs" in text:
        text = _PAIRS.sub(r"\1 2", text)
    if "=" not in text:
        return text
    if _IS_MESH.search(text):
        text = _COPIES.sub("replicate ", text) if "fsdp=" in text else text
        text = _OF_MESH.sub("tp=", text)
    text = _SUBSCRIPT.sub("", _NAMED.sub(lambda found: f"{found[1][0]}p=", text))
    if "interleav" in text or "virtual" in text:
        text = _CHUNKS.sub("vpp=", text)
    letters = {found[1] for found in _FORMULA.finditer(text)}
    are_degrees = "p" in letters and letters & {"t", "d"}
    return _FORMULA.sub(lambda found: f"{_LETTERS[found[1]]}=", text) if are_degrees else text


def _apart(glued: str) -> str:
    pairs = re.findall(r"x?([a-z]+)(\d+)", glued)
    if len({name for name, _ in pairs}) < len(pairs):  # 2D/3D parallelism, 1T-2T tokens
        return glued
    return f"; {'; '.join(f'{_LETTERS.get(name, name)} {size}' for name, size in pairs)}; "


def _turned(found: re.Match[str]) -> str:
    turned = re.sub(r"(\d+)\s?([a-z]+)", r"\2\1", found[0])
    apart = _apart(turned)
    return found[0] if apart == turned else apart


def _factors(found: re.Match[str]) -> str:
    """`8 dp x 4 mbs x 16 accumulation`, with or without brackets."""
    factors = re.findall(r"(\d+) \(?([a-z][a-z \-]*[a-z])", found[0].replace(" x ", " * "))
    return f"; {'; '.join(f'{_short(name)} {size}' for size, name in factors)}; "


def _short(name: str) -> str:
    if name.startswith(("micro", "acc")):
        return "mbs" if name[0] == "m" else "ga"
    return _LETTERS.get(name) or (f"{name[0]}p" if len(name) > 3 and name[0] in "tpdce" else name)


def _paired(whole: str, names: str, sizes: str) -> str:
    """`tp 8; pp 4`; what is divided by one, and not a size of its own, is not told."""
    names = re.sub(r"-(?=parallel|[,\s]|$)", " ", names)
    names = re.sub(r"\b(?:dp|data)\b", "replica", names) if "fsdp" in names else names  # of what is divided
    each, size_of = ([part.strip() for part in re.split(_AND, text)] for text in (names, sizes))
    if len(each) != len(size_of):
        return whole
    pairs = ((_short(name), size) for name, size in zip(each, size_of, strict=True))
    shared = ("sp", "fsdp", "hsdp", "sdp", "repl")
    told = (f"{name} {size}" for name, size in pairs if size != "1" or not name.startswith(shared))
    return f"; {'; '.join(told)}; "
