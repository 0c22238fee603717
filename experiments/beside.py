"""Published figures beside ours: each with its trust, ours, the ratio, and whether ours lies where it is allowed to.

A line is a dictionary, so that result.json holds it. Recollections of a paper's text are no lines: nothing that was not
read may be shown as published, still less gate.
"""

from collections.abc import Mapping, Sequence
from typing import Any

Line = dict[str, Any]

TRUST = {
    "P": "the paper's own abstract or figure, or its authors' code and data",
    "S": "another text that quotes the paper",
    "R": "reviews of the paper; no numbers",
    "O": "other public measurements of the same thing",
    "D": "derived here, by arithmetic from stated inputs",
    "C": "a third party's summary",
    "A": "read in the source itself: the paper's text, or its authors' code",
    "B": "computed here from definitions in the source",
    "ours": "nothing is published: what the model adds",
}
"""How far a figure is trusted; what stands for `published` is nothing under `ours`."""


def line(
    what: str,
    published: float | tuple[float, float] | str | None,
    trust: str,
    ours: float | str,
    *,
    allowed: tuple[float, float] | None = None,
    unit: str = "",
    note: str = "",
    explained: str = "",
) -> Line:
    """One comparison. `allowed` is the interval in which ours passes; without it nothing gates.

    `explained` says why ours is known to lie outside: the line then fails no run. The ratio is that of numbers.
    """
    if trust not in TRUST:
        raise ValueError(f"published figure {what!r}: trust is {trust!r}; expected one of {', '.join(TRUST)}")
    numbers = isinstance(published, int | float) and isinstance(ours, int | float) and published != 0
    inside = None if allowed is None or isinstance(ours, str) else allowed[0] <= ours <= allowed[1]
    return {
        "what": what,
        "published": list(published) if isinstance(published, tuple) else published,
        "trust": trust,
        "ours": ours,
        "ratio": ours / published if numbers else None,  # pyright: ignore[reportOperatorIssue]
        "allowed": None if allowed is None else list(allowed),
        "unit": unit,
        "verdict": {None: "", True: "holds", False: "explained" if explained else "fails"}[inside],
        "note": explained if inside is False and explained else note,
    }


def failed(lines: Sequence[Mapping[str, Any]]) -> str | None:
    """The lines outside what is allowed that nothing explains, in one sentence."""
    wrong = [f"{each['what']} is {shown(each['ours'])}" for each in lines if each["verdict"] == "fails"]
    return "; ".join(wrong) or None


def shown(value: Any) -> str:
    """A number with four digits that count, a range, or words as they are."""
    if value is None:
        return ""
    if isinstance(value, list | tuple):
        return " to ".join(dict.fromkeys(shown(each) for each in value))  # ends that are the same are one number
    return value if isinstance(value, str) else f"{value:,.4g}" if abs(value) < 1e4 else f"{value:,.0f}"


COLUMNS = ("", "published", "trust", "ours", "ratio", "allowed", "verdict", "note")
_ON_PAGES = ("allowed", "note")  # too wide for a terminal


def cells(each: Mapping[str, Any]) -> tuple[str, ...]:
    """A line as the cells of a table under `COLUMNS`."""
    ratio = "" if each["ratio"] is None else f"{each['ratio']:.3g}"
    what = f"{each['what']}, {each['unit']}" if each["unit"] else each["what"]
    values = shown(each["published"]), each["trust"], shown(each["ours"]), ratio, shown(each["allowed"])
    return (what, *values, each["verdict"], each["note"])


TITLE = "Published beside ours"


def trusts(lines: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """The meaning of each trust that occurs."""
    return {mark: words for mark, words in TRUST.items() if any(each["trust"] == mark for each in lines)}


def table(lines: Sequence[Mapping[str, Any]], title: str = TITLE) -> Any:
    """What the terminal shows of the lines, with the meaning of each trust that occurs below."""
    from rich.table import Table

    used = [f"{mark}: {words}" for mark, words in trusts(lines).items()]
    kept = [name for name in COLUMNS if name not in _ON_PAGES]
    made = Table(*kept, title=title, title_justify="left", caption="; ".join(used), caption_justify="left")
    for each in lines:
        made.add_row(*(text for name, text in zip(COLUMNS, cells(each), strict=True) if name not in _ON_PAGES))
    return made


def plain_table(columns: Sequence[str], rows: Sequence[Sequence[Any]], title: str) -> Any:
    """A table of numbers and words for the terminal."""
    from rich.table import Table

    made = Table(title=title, title_justify="left")
    for name in columns:
        made.add_column(name, overflow="fold")  # what is too wide goes on below, uncut
    for row in rows:
        made.add_row(*(shown(value) for value in row))
    return made
