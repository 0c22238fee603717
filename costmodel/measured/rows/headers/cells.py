"""What cells say of their own columns: units behind numbers (`12.4k tok/s`, `6.2 s/it`) under names that say little."""

import re

_SAYS_LITTLE = r"through ?put|speed|perf(?:ormance)?|rate|results?|iter(?:ation)?|steps?|time|tok(?:en)?s?|efficiency"
_GENERAL = re.compile(rf"(?:(?:train(?:ing)?|mean|avg|avg\.|average|overall|measured) )?(?:{_SAYS_LITTLE})")
_GENERAL_WITH_UNIT = re.compile(rf"({_GENERAL.pattern})\s*[(\[]\s*([^()\[\]]+?)\s*[)\]]")
_AMOUNT = re.compile(r"([~\u2248]?\s*\d[\d,]*(?:\.\d+)?(?:\s?[kKM](?=\s))?)\s*([A-Za-z%\u00b5][\w\s/%.\u00b7-]*)")
_OF_STEPS = re.compile(
    r"(s|secs?|seconds?|ms|msecs?|min)(?:\s*(?:/|per)\s*(?:it|iter(?:ation)?|step)s?)?", re.IGNORECASE
)
_OF_RUN = re.compile(r"[bt]|[bt]illions?|[bt]n", re.IGNORECASE)
_IS_RATE = re.compile(r"/|\bper\b|flops?|\b[mh]fu\b", re.IGNORECASE)

_FORMAT = re.compile(r"(?:use |enable |with )?(fp8|float8|mxfp8|nvfp4|bf16|fp16|int8)(?: training| enabled)?")
_YES = re.compile(r"1|true|yes|on|y|\u2713|enabled", re.IGNORECASE)


def _words(name: str) -> str:
    return " ".join(name.replace("_", " ").split()).lower()


def is_format(name: str) -> bool:
    """Whether a column is a flag of a format (`float8`)."""
    return _FORMAT.fullmatch(_words(name)) is not None


def of_format(name: str, cell: str) -> tuple[str, str] | None:
    """The column of a format that a flag of its own name sets (`float8: true`), or of a name that is also one of a time
    (`DT: FP8`), and the format; None of any other."""
    words = _words(name)
    if words == "dt" and cell[:1].isalpha():
        return "precision", cell
    found = _FORMAT.fullmatch(words)
    if found is None or not _YES.fullmatch(cell):
        return None
    return "precision" if found[1] in ("bf16", "fp16") else "quantization", found[1]


def unit_alone(name: str) -> str | None:
    """The unit of a name that says little beside it (`Perf (TFLOPS/GPU)`); None of any other."""
    found = _GENERAL_WITH_UNIT.fullmatch(_words(name))
    return found[2] if found else None


def heading(name: str, cell: str) -> tuple[str, str] | None:
    """The name that a column would have whose cells tell its unit, and the cell's number; None where a name says enough
    or a cell says nothing."""
    words = _words(name)
    found = _AMOUNT.fullmatch(cell.strip()) if _GENERAL.fullmatch(words) else None
    if found is None:
        return None
    number, unit = found[1].strip(), found[2].strip()
    of_step = _OF_STEPS.fullmatch(unit)
    if words.endswith(("s", "tok", "token")) and words.startswith("tok"):
        return (f"tokens ({unit})", cell) if _OF_RUN.fullmatch(unit) else None
    if unit.lower() == "min" and not re.search("step|iter", words):
        return None  # which may be those of a run
    if of_step:
        return (f"step time ({of_step[1].lower()})", number) if "tok" not in words else None
    return (unit, number) if _IS_RATE.search(unit) else None
