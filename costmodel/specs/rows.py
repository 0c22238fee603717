"""Reads and writes tables of measured rows (CSV). A malformed row costs that row alone.

A quoted cell may hold line breaks. Where such a cell does not end in a row of the header's width, its quote is taken
for a slip and the reading goes on at the next line, so that one stray quote does not swallow the rest of the file.
"""

import csv
import io
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from costmodel.specs.dialects import aligned, decoded, is_workbook, objects, parted_by, plain_rows, with_points
from costmodel.specs.dialects import reader as cells_of
from costmodel.specs.files import SpecError, plain, show, why_not, write_file

LARGEST_TABLE_BYTES = 256 * 2**20
_NEEDED = ("hardware", "gpus")
_TRIED = 50  # rows whose cells may tell what no column names
_MOST_NAMES = 200  # of columns, that may stand below each other


Translate = Callable[[Mapping[str, str]], Mapping[str, str]]
"""A row in the names and units of known columns, whatever its own."""


def read_rows(
    path: str | Path, needed: Sequence[str] = _NEEDED, translate: Translate = dict
) -> list[Mapping[str, str] | str]:
    """One entry for each row, in order: its cells by column, or why it cannot be read. A table whose first column
    names what is needed, while its first line does not, has a run in each column."""

    def names_all(header: Sequence[str], rows: Sequence[Sequence[str]] = ()) -> bool:
        if set(needed) <= set(translate(dict.fromkeys(header, "1"))):
            return True
        told = (translate(dict(zip(header, row, strict=False))) for row in rows[:_TRIED])  # `64x H100`
        return any(all(row.get(name) for name in needed) for row in told)

    where = f"rows ({plain(str(path))})"
    text = text_of(path, where)
    rows = objects(text)
    if rows is None:
        header, rows = _table(text, names_all)
    else:
        header = list(next((row for row in rows if not isinstance(row, str)), {}))
    if not names_all(header, [list(row.values()) for row in rows if not isinstance(row, str)]):
        raise SpecError(
            f"{where}: the first line is {show(header or None)}; expected column names with at least "
            f"{', '.join(needed)} (`equipoise predict --columns` lists them)"
        )
    twice = next((name for name in header if name and header.count(name) > 1), None)
    if twice is not None:
        raise SpecError(f"{where}: the column {show(twice)} stands twice in the header; expected it once")
    return [row if isinstance(row, str) else translate(row) for row in rows]


NamesAll = Callable[[Sequence[str], Sequence[Sequence[str]]], bool]
"""Whether a header names what is needed, or the first rows below it do."""


def _table(text: str, names_all: NamesAll) -> tuple[list[str], list[Mapping[str, str] | str]]:
    """The header of a table of cells, and its rows."""
    lines = text.splitlines(keepends=True)
    lines = aligned(lines) or lines
    character, before = parted_by(lines)
    rows = list(plain_rows(_rows(lines[before:], character), character))
    if not rows or isinstance(rows[0], str):
        return [], []
    if not names_all(rows[0], [row for row in rows[1:] if not isinstance(row, str)]):
        rows = _turned(rows, names_all)
    header = list(rows[0])
    return header, with_points([_cells(row, header) for row in rows[1:]], character)


def _turned(rows: list[list[str] | str], names_all: NamesAll) -> list[list[str] | str]:
    """The table with its columns as rows, where its first column is a header; as it is where it is none."""
    cells = [row for row in rows if not isinstance(row, str)]
    if len(cells) < len(rows) or len(rows) > _MOST_NAMES or len({len(row) for row in cells}) > 1 or len(cells[0]) < 2:
        return rows
    turned = [[cell.strip() for cell in column] for column in zip(*cells, strict=True)]
    return [*turned] if names_all(turned[0], turned[1:]) else rows


def write_table(path: str | Path, header: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """A CSV file of these rows, or a `SpecError` that says why it cannot be written."""
    write_file(path, as_table(header, rows))


def as_table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> bytes:
    """The content of a CSV file of these rows."""
    content = io.StringIO()
    writer = csv.writer(content, lineterminator="\n")
    writer.writerow(header)
    writer.writerows(rows)
    return content.getvalue().encode()


def _cells(row: list[str] | str, header: list[str]) -> Mapping[str, str] | str:
    if isinstance(row, str):
        return row
    if len(row) != len(header):
        return f"the row has {len(row)} cells; expected the header's {len(header)}"
    return dict(zip(header, row, strict=True))


def text_of(path: str | Path, where: str) -> str:
    """The text of a table; what is no UTF-8 becomes a mark. Raises `SpecError` for what is no file, or too large."""
    try:
        file = Path(path)
        if not file.is_file():
            raise SpecError(f"{where}: no such file")
        if file.stat().st_size > LARGEST_TABLE_BYTES:
            raise SpecError(f"{where}: {file.stat().st_size} bytes; expected at most {LARGEST_TABLE_BYTES}")
        content = file.read_bytes()
        if is_workbook(content):
            raise SpecError(f"{where}: a workbook of Excel; expected text: save the sheet as CSV")
        return decoded(content)
    except (OSError, ValueError) as error:
        if isinstance(error, SpecError):
            raise
        raise SpecError(f"{where}: cannot be read ({why_not(error)})") from None


def _rows(lines: list[str], character: str) -> Iterator[list[str] | str]:
    """Parsed rows; a text for one that is malformed. Lines without anything are no rows."""
    start, width, reader = 0, None, cells_of(lines, character)
    while True:
        before = reader.line_num
        try:
            row = next(reader, None)
        except csv.Error as error:
            row = f"not a row of a table ({error})"
        if row is None:
            return
        if row == []:
            continue
        width = width or len(row)
        several = reader.line_num - before > 1
        if isinstance(row, str) or (several and len(row) != width):
            yield row if isinstance(row, str) else "a quote opens a cell that does not end in this row"
            start, reader = start + before + 1, cells_of(lines[start + before + 1 :], character)
            continue
        yield row
