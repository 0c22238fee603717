"""One column for the accelerators' name and number: `64x H100`, `8 x A100-80GB`, `16 nodes x 8 H100`, `H100 (64)`."""

import re

_NAME = r"(?P<name>[a-z][\w\-+./]*(?:[ \-_]+(?!nodes?\b|hosts?\b)[\w\-+.()]+)*?)"
_NODES = r"(?:nodes?|hosts?|servers?|machines?)"
_TIMES = r"\s*(?:(?<!\b[rg]t)x|[*\u00d7])\s*"  # RTX and GTX are names
_BOTH = tuple(
    re.compile(pattern, re.IGNORECASE)
    for pattern in (
        rf"(?P<nodes>\d+)\s*{_NODES}?(?:{_TIMES}|\s*of\s*|\s+with\s+)(?P<each>\d+)(?:{_TIMES}|\s+){_NAME}s?",
        rf"(?P<each>\d+)(?:{_TIMES}|\s+){_NAME}(?:{_TIMES}|\s+on\s+|\s*,\s*)(?P<nodes>\d+)\s*{_NODES}?",
        rf"(?P<each>\d+)(?:{_TIMES}|\s+){_NAME}(?<!\ds)s?",
        rf"{_NAME}(?:{_TIMES}|\s*[(\[])(?P<each>\d+)\s*(?:gpus?|chips?|devices?)?[)\]]?",
    )
)
_BARE_BRACKET = re.compile(r"[(\[]\s*\d+\s*[)\]]$")  # of memory, unless its column counts
_RACKS = re.compile(r"nvl\d+$", re.IGNORECASE)  # of GB200 NVL36x2
_NO_NAME = re.compile(rf"(?:{_NODES}|gpus?|chips?|devices?|accelerators?|[x\d\W]*)", re.IGNORECASE)
_HINTS = re.compile(r"[\u00d7#*]|\bx\b|nodes?|count|number|gpus|setup", re.IGNORECASE)


def may_count(header: str) -> bool:
    """Whether the name of a column of hardware says that its cells count it."""
    return _HINTS.search(header) is not None


def counted(cell: str, sure: bool = False) -> tuple[str, str] | None:
    """The name and the number of accelerators that one cell holds; None where it holds no number of them, or where it
    is to be sure and the number may be another's."""
    text = " ".join(cell.split())
    if sure and _BARE_BRACKET.search(text):
        return None
    for pattern in _BOTH:
        found = pattern.fullmatch(text)
        if found and not _NO_NAME.fullmatch(found["name"]) and not _RACKS.search(found["name"]):
            return found["name"].strip(), str(int(found["each"]) * int(found.groupdict().get("nodes") or 1))
    return None


def of_slurm(cell: str) -> tuple[str, str] | None:
    """The name and the number of a node's accelerators as Slurm asks for them: `gpu:a100:8`."""
    found = re.fullmatch(r"gpu:([a-z][\w\-]*):(\d+)(?:\(.*\))?", cell.strip(), re.IGNORECASE)
    return (found[1], found[2]) if found else None


_HOSTS = (
    (r"\b[dh]gx[\s\-]*2\b", 16),
    (r"\b[dh]gx\b(?!.*(?:spark|station|gb\d))", 8),
    (r"\bp(?:3\.16|3dn\.24|4de?\.24|5(?:e|en)?\.48|6-b[23]00\.48)xlarge", 8),
    (r"\btrn(?:1n?\.32|2u?\.48)xlarge", 16),
    (r"\bg(?:5|6e?)\.48xlarge", 8),
    (r"\b(?:g(?:5|6e?)\.(?:12|24)|p3\.8)xlarge", 4),
    (r"\b(?:g(?:5|6e?)\.(?:2|4|8|16)|p3\.2|p5\.4)xlarge", 1),
    (r"\bnd(?:40|96)[a-z]+_?", 8),
    (r"\b(?:a2|a3|a4)-\w+gpu-(?P<each>\d+)g\b", 0),
    (r"\bbm\.gpu[\w.\-]*\.(?P<each>\d+)$", 0),
    (r"\bct\w+-\w+-(?P<each>\d+)t\b", 0),
    (r"\bgpu_(?P<each>\d+)x_", 0),
)  # as AWS, Azure, Google, Oracle and Lambda name their machines, and NVIDIA its own


def of_host(name: str) -> int | None:
    """How many accelerators a cloud's instance or a maker's box has, by its name; None of any other."""
    for pattern, each in _HOSTS:
        found = re.search(pattern, name.lower().replace("standard_", ""))
        if found:
            return each or int(found["each"])
    return None
