"""One column for the accelerators' name and number: `64x H100`, `8 x A100-80GB`, `16 nodes x 8 H100`, `H100 (64)`."""

import re

_NAME = r"(?P<name>[a-z][\w\-+./]*(?:[ \-_]+(?!nodes?\b|hosts?\b)[\w\-+.()]+)*?)"
_NODES = r"(?:nodes?|hosts?|servers?|machines?)"
_TIMES = r"\s*[x*\u00d7]\s*"
_BOTH = tuple(
    re.compile(pattern, re.IGNORECASE)
    for pattern in (
        rf"(?P<nodes>\d+)\s*{_NODES}?(?:{_TIMES}|\s*of\s*|\s+with\s+)(?P<each>\d+)(?:{_TIMES}|\s+){_NAME}s?",
        rf"(?P<each>\d+)(?:{_TIMES}|\s+){_NAME}(?:{_TIMES}|\s+on\s+|\s*,\s*)(?P<nodes>\d+)\s*{_NODES}?",
        rf"(?P<each>\d+)(?:{_TIMES}|\s+){_NAME}(?<!\ds)s?",
        rf"{_NAME}(?:{_TIMES}|\s*[(\[])(?P<each>\d+)\s*(?:gpus?|chips?|devices?)?[)\]]?",
    )
)
_NO_NAME = re.compile(rf"(?:{_NODES}|gpus?|chips?|devices?|accelerators?|[x\d\W]*)", re.IGNORECASE)
_HINTS = re.compile(r"[\u00d7#*]|\bx\b|nodes?|count|number|gpus|setup", re.IGNORECASE)


def may_count(header: str) -> bool:
    """Whether the name of a column of hardware says that its cells count it."""
    return _HINTS.search(header) is not None


def counted(cell: str) -> tuple[str, str] | None:
    """The name and the number of accelerators that one cell holds; None where it holds no number of them."""
    text = " ".join(cell.split())
    for pattern in _BOTH:
        found = pattern.fullmatch(text)
        if found and not _NO_NAME.fullmatch(found["name"]):
            return found["name"].strip(), str(int(found["each"]) * int(found.groupdict().get("nodes") or 1))
    return None


def of_slurm(cell: str) -> tuple[str, str] | None:
    """The name and the number of a node's accelerators as Slurm asks for them: `gpu:a100:8`."""
    found = re.fullmatch(r"gpu:([a-z][\w\-]*):(\d+)(?:\(.*\))?", cell.strip(), re.IGNORECASE)
    return (found[1], found[2]) if found else None
