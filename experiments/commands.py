"""`python -m experiments list | run NAME [--field value ...] | run all`."""

import sys
from collections.abc import Sequence
from typing import Any

from costmodel.specs import SpecError
from experiments import everything, pages, runner
from optimize.report import columns_for

USAGE = """usage: python -m experiments COMMAND

  list                        the experiments and their questions
  run NAME [--field value]    one experiment; its settings: run NAME --help
  run all                     every experiment, the longest ones in their quick forms

Results go into results/NAME: result.json, figures (PNG, SVG), tables (CSV) and index.html, a page of all of them. `run
all` also writes results/index.html, one page of everything; interrupted by Ctrl-C it keeps what has finished, and the
next `run all` goes on from there. Twice they give the same numbers, seconds apart; only speed, search_quality and
real_steps measure this machine, and differ as it does.

examples:
  python -m experiments run speed
  python -m experiments run speed --quick"""


def main(words: Sequence[str] | None = None) -> int:
    """The exit status: 0, 1 where an experiment refutes what it is about, 2 for wrong input, 130 when interrupted."""
    words = sys.argv[1:] if words is None else list(words)
    match words:
        case ["list"]:
            return _list()
        case ["run", "all"]:
            return everything.run_all(_run)
        case ["run", name, *fields] if not name.startswith("-"):
            try:
                return _run(name, fields)
            except SpecError as error:
                return _refuse(str(error))
            except KeyboardInterrupt:
                return _refuse("interrupted; nothing was written", everything.INTERRUPTED)
        case ["-h" | "--help", *_]:
            print(USAGE)
            return 0
        case _:
            return _refuse(f"expected `list`, `run NAME` or `run all`, not {' '.join(words)!r}; see --help")


def _refuse(message: str, status: int = 2) -> int:
    print(f"experiments: {message}", file=sys.stderr)
    return status


def _list() -> int:
    from rich.console import Console
    from rich.table import Table

    table = Table("experiment", "question", box=None, pad_edge=False)
    for name in runner.names():
        table.add_row(name, runner.question(runner.find(name)))
    Console().print(table)
    return 0


def _run(name: str, fields: Sequence[str]) -> int:
    """The exit status of one experiment, whose results are in its folder."""
    from rich.console import Console

    module = runner.find(name)
    result = runner.run(name, pages.of_one, **runner.asked(name, fields))
    console, folder = Console(), runner.RESULTS / name
    for sentence in pages.answer(module, result["results"]):
        console.print(sentence, highlight=False)
    for table in module.tables(result["results"]):
        console.print(_fitting(table, console))
    console.print(f"{folder}/index.html, result.json, {result['seconds']:.0f} s", highlight=False)
    wrong = module.failure(result["results"]) if hasattr(module, "failure") else None
    if wrong is None:
        return 0
    print(f"experiments: {name} failed: {wrong}", file=sys.stderr)
    return 1


def _fitting(table: Any, console: Any) -> Any:
    """The table without the last columns where it is wider than the screen; its caption names them."""
    from rich.table import Table

    if not isinstance(table, Table):
        return table
    line = table.box is not None  # beside each column, and one more
    wide = [_width(column, console) + line for column in table.columns]
    kept = len(columns_for(wide, console.width - line, reversed(range(2, len(wide)))))
    left_out = [str(column.header) for column in table.columns[kept:]]
    del table.columns[kept:]
    if left_out:
        own = f"{table.caption}; " if table.caption else ""
        table.caption, table.caption_justify = f"{own}too wide for this screen: {', '.join(left_out)}", "left"
    return table


def _width(column: Any, console: Any) -> int:
    """Characters that a column needs: of its longest cell, or of its longest word where cells go on below."""
    from rich.measure import Measurement

    needed = [Measurement.get(console, console.options, cell) for cell in (column.header, *column.cells)]
    return 2 + max(each.maximum if column.no_wrap else each.minimum for each in needed)
