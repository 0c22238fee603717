"""What every screen is made of: a console of a readable width, text that goes on under itself, tables without lines."""

import os
import sys
import textwrap
import time
from collections.abc import Callable, Sequence

from rich.console import Console
from rich.table import Table

from costmodel.inputs import Cluster
from costmodel.specs import chosen_software

_NARROWEST, _WIDEST = 80, 110  # columns: below, words are lost; beyond, eyes lose the row


def new_console() -> Console:
    """Colour on a terminal only; 100 columns where nobody says how many there are."""
    console = Console(highlight=False, emoji=False, markup=False, soft_wrap=False)
    if not console.is_terminal and "COLUMNS" not in os.environ:
        console.width = 100
    console.width = max(_NARROWEST, min(console.width, _WIDEST))
    return console


def say(console: Console, text: str, style: str | None = None) -> None:
    """Print text that goes on under itself, indented, where the line ends."""
    for line in textwrap.wrap(text, console.width, subsequent_indent="     ", drop_whitespace=True):
        console.print(line, style=style)


def software_line(cluster: Cluster) -> str:
    """The software whose habits and constants count, and why: named, or the accelerator's default."""
    software, (usual, reason) = cluster.stack.software, chosen_software(cluster.accelerator.name)
    return f"software {software} ({reason if software == usual else 'named'})"


def new_table(*headers: str, left: int = 1) -> Table:
    """Aligned columns without lines: the first `left` to the left, the others to the right."""
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    for index, header in enumerate(headers):
        table.add_column(header, justify="left" if index < left else "right", no_wrap=True, overflow="ellipsis")
    return table


def columns_for(
    names: Sequence[str], rows: Sequence[Sequence[str]], width: int, without: Sequence[str], gap: int = 1
) -> list[int]:
    """The places of the columns that fit into a width: `without` are left out one after another, as far as needed."""
    wide = [max(map(len, column)) + gap for column in zip(names, *rows, strict=True)]
    kept = list(range(len(names)))
    for name in without:
        if sum(wide[i] for i in kept) <= width:
            break
        kept = [i for i in kept if names[i] != name]
    return kept


def progress(command: str) -> Callable[[str], None]:
    """Print what a command is at on standard error, where that is a terminal and more than a second has passed."""
    start = time.monotonic()

    def say_where(words: str) -> None:
        if sys.stderr.isatty() and time.monotonic() > start + 1.0:
            print(f"equipoise {command}: {words}", file=sys.stderr)

    return say_where
