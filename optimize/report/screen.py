"""What every screen is made of: a console of a readable width, text that goes on under itself, tables without lines."""

import contextlib
import io
import os
import re
import textwrap
from collections.abc import Callable, Iterable, Sequence
from contextvars import ContextVar
from typing import Any, Never

from rich.console import Console
from rich.table import Table
from rich.text import Text

from costmodel.inputs import NEVER_MEASURED, Cluster, Plan
from costmodel.specs import chosen_software
from optimize.report.page import Part

_NARROWEST, _WIDEST = 80, 110  # columns: below, words are lost; beyond, eyes lose the row
_HELD, _UNIT = "\xa0", re.compile(r"(?<=\d) (?=(?:%|[kMGTP]?(?:USD|W|s|ms|us|B/s|FLOP/s)|[KMGT]iB)(?:\W|$))")
"""A space where no line ends, and where it stands: between a number and its unit."""
_KEPT: ContextVar[list[Part] | None] = ContextVar("kept", default=None)
_KEPT_WIDTH: ContextVar[int] = ContextVar("kept_width", default=_WIDEST)


def new_console() -> Console:
    """Colour on a terminal only; 100 columns where nobody says how many there are."""
    console = Console(highlight=False, emoji=False, markup=False, soft_wrap=False)
    if not console.is_terminal and "COLUMNS" not in os.environ:
        console.width = 100
    console.width = max(_NARROWEST, min(console.width, _WIDEST))
    console.on_broken_pipe = _broken_pipe
    if (kept := _KEPT.get()) is not None:
        console.width = _KEPT_WIDTH.get()
        setattr(console, "print", lambda *shown, style=None: kept.extend(_part(each, style) for each in shown))  # noqa: B010
    return console


def _broken_pipe() -> Never:
    """`equipoise ... | head`: for `main`, where rich would end the process with status 1."""
    raise BrokenPipeError


def _part(shown: Any, style: str | None) -> Part:
    return Text(shown, style or "") if isinstance(shown, str) else shown


def kept(show: Callable[[], None]) -> list[Part]:
    """What a screen shows, as the paragraphs and tables of a page; the terminal shows nothing."""
    parts: list[Part] = []
    token = _KEPT.set(parts)
    try:
        with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.redirect_stderr(out):
            show()
    finally:
        _KEPT.reset(token)
    return [*parts, *filter(None, (out.getvalue().strip("\n"),))]


def written(show_parts: Callable[[], Sequence[Part]]) -> str:
    """The paragraphs and tables of a page as lines of this terminal, without its figures."""
    lines = io.StringIO()
    console = new_console()
    console.file = lines
    token = _KEPT_WIDTH.set(console.width)
    try:
        parts = show_parts()
    finally:
        _KEPT_WIDTH.reset(token)
    for part in parts:
        if isinstance(part, str | Text):
            for line in str(part).splitlines():
                say(console, line)
        elif isinstance(part, Table):
            console.print("", part, "")
        elif not isinstance(part, bytes) and not isinstance(part[1], bytes):
            table = new_table(*part[0])
            for row in part[1]:
                table.add_row(*map(str, row))
            console.print("", table, "")
    return "\n".join(line.rstrip() for line in lines.getvalue().strip("\n").splitlines())


def say(console: Console, text: str, style: str | None = None) -> None:
    """Print text that goes on under itself, indented, where the line ends; on a page it ends by itself."""
    if _KEPT.get() is not None:
        console.print(text, style=style)
        return
    held = _UNIT.sub(_HELD, text)
    for line in textwrap.wrap(held, console.width, subsequent_indent="     ", drop_whitespace=True):
        console.print(line.replace(_HELD, " "), style=style)


def software_line(cluster: Cluster) -> str:
    """The software whose habits and constants count, and why: named, or the accelerator's default."""
    software, (usual, reason) = cluster.stack.software, chosen_software(cluster.accelerator.name)
    never = "; no run of it was measured" if software in NEVER_MEASURED else ""
    return f"software {software} ({reason if software == usual else 'named'}{never})"


def new_table(*headers: str, left: int = 1) -> Table:
    """Aligned columns without lines: the first `left` to the left, the others to the right."""
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    for index, header in enumerate(headers):
        table.add_column(header, justify="left" if index < left else "right", no_wrap=True, overflow="ellipsis")
    return table


def columns_for(wide: Sequence[int], width: int, without: Iterable[int]) -> list[int]:
    """The places of the columns that fit into a width: `without` are left out one after another, as far as needed."""
    left = list(range(len(wide)))
    for place in without:
        if sum(wide[i] for i in left) <= width:
            break
        left.remove(place)
    return left


def domain_words(cluster: Cluster, plan: Plan) -> str:
    """How much of every innermost domain a plan uses, where it says so, and what stands idle; else nothing."""
    inner, count = cluster.tiers[0], int(cluster.accelerators)
    if plan.domain is None or count <= plan.domain or plan.domain >= int(inner.size):
        return ""
    domains, size = count // plan.domain, int(inner.size)
    idle, least = domains * size - count, -(-count // size)
    fewer = f"; --fix domain={size} keeps to {least:,} of them" if least * size == count else ""
    told = f"{plan.domain} used of every {inner.name} domain of {size}: {domains:,} domains"
    return f"{told}, {idle:,} more stand idle{fewer}"
