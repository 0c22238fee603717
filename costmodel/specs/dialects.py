"""Tables as programs and people write them: what parts their cells, how numbers are spelt, JSON and JSON lines."""

import csv
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

_PARTED_BY = (",", ";", "\t", "|")
_FEWEST = 4  # columns of a table that blanks part
_WORKBOOKS = (b"PK\x03\x04", b"\xd0\xcf\x11\xe0")  # what files of Excel and of its older versions begin with
_WIDE = (b"\xff\xfe", b"\xfe\xff")
_RULE = re.compile(r":?-{2,}:?")  # of a Markdown table, below its header
_DECIMAL_COMMA = re.compile(r"\d+,(?:\d{1,2}|\d{4,})|\d{1,3}(?:\.\d{3})+,\d+")
_DECIMAL_POINT = re.compile(r"\d+\.(?:\d{1,2}|\d{4,})")
_GROUPED = re.compile(r"\d{1,3}(?:[ \u00a0\u202f\u2009'\u2019]\d{3})+(?:[.,]\d+)?")  # 12 400, 1'024
_ANY_COMMA = re.compile(r"(\d{1,3}(?:\.\d{3})+|\d+(?=,))(?:,(\d+))?")


def is_workbook(content: bytes) -> bool:
    """Whether these are the bytes of a spreadsheet, which is no text."""
    return content.startswith(_WORKBOOKS)


def decoded(content: bytes) -> str:
    """The text in UTF-8, or as Excel saves it in UTF-16; what is neither becomes a mark."""
    encoding = "utf-16" if content.startswith(_WIDE) else "utf-8-sig"
    return content.decode(encoding, errors="replace").replace("\0", "\ufffd")


def parted_by(lines: Sequence[str]) -> tuple[str, int]:
    """What parts the cells of a table, and how many lines stand before its header: blank ones, remarks, `sep=;`."""
    for i, line in enumerate(lines):
        said = re.fullmatch(r"sep=(.)\s*", line)
        if said:
            return said[1], i + 1
        character = max(_PARTED_BY, key=line.count)
        is_remark = line.lstrip().startswith("#") and line.count(character) == 0
        if line.strip() and not is_remark:
            return character, i
    return ",", 0


def aligned(lines: Sequence[str]) -> list[str] | None:
    """Lines whose cells are parted by blanks alone, with tabs instead: two or more, or one where all lines have as many
    words; None of other tables."""
    told = [line.strip() for line in lines if line.strip()]
    if not told or any(character in told[0] for character in _PARTED_BY):
        return None
    parted = [re.split(r" {2,}", line) for line in told]
    if len(parted[0]) < _FEWEST:
        parted = [line.split() for line in told]
        if len(parted[0]) < _FEWEST or len({*map(len, parted)}) > 1:
            return None
    return ["\t".join(cells) + "\n" for cells in parted]


def plain_rows(rows: Iterator[list[str] | str], character: str) -> Iterator[list[str] | str]:
    """Rows without the border of a Markdown table, its rule, and what nothing stands in; a header without blanks."""
    width = None
    for row in rows:
        if isinstance(row, str):
            yield row
            continue
        cells = [cell.strip() for cell in row] if character == "|" or width is None else row
        if character == "|" and len(cells) > 1 and not cells[0] and not cells[-1]:
            cells = cells[1:-1]
        if not any(cell.strip() for cell in cells) or all(_RULE.fullmatch(cell) for cell in cells):
            continue
        while len(cells) > (width or 0) and not cells[-1].strip():
            cells = cells[:-1]
        width = width or len(cells)
        yield cells


def with_points(rows: Sequence[Mapping[str, str] | str], character: str) -> list[Mapping[str, str] | str]:
    """Rows with points in their numbers where the table has commas, as one that is parted by something else may: in all
    columns, or where some have decimal points in those that have commas alone. Semicolons leave commas to decimals."""
    joined: list[Mapping[str, str] | str] = [
        row if isinstance(row, str) else {name: _joined(cell) for name, cell in row.items()} for row in rows
    ]
    comma = _COMMA if character == ";" else _DECIMAL_COMMA
    points, commas = (_columns_with(found, joined) for found in (_DECIMAL_POINT, comma))
    if character == "," or not commas:
        return joined
    kept = commas - points if points else None
    return [row if isinstance(row, str) else _with_points(row, kept) for row in joined]


_COMMA = re.compile(rf"\d+,\d+|{_DECIMAL_COMMA.pattern}")


def _joined(cell: str) -> str:
    """A number without the blanks or apostrophes between its thousands."""
    return re.sub(r"[^\d.,]", "", cell) if _GROUPED.fullmatch(cell.strip()) else cell


def _columns_with(number: re.Pattern[str], rows: Sequence[Mapping[str, str] | str]) -> set[str]:
    cells = (each for row in rows if not isinstance(row, str) for each in row.items())
    return {name for name, cell in cells if number.fullmatch(cell.strip())}


def _with_points(row: Mapping[str, str], columns: set[str] | None) -> dict[str, str]:
    """The row with points in these columns, or in all."""
    return {name: _point(cell) if columns is None or name in columns else cell for name, cell in row.items()}


def _point(cell: str) -> str:
    found = _ANY_COMMA.fullmatch(cell.strip())
    return f"{found[1].replace('.', '')}.{found[2] or 0}" if found else cell


def objects(text: str) -> list[Mapping[str, str] | str] | None:
    """The rows of a JSON list, or of JSON lines; a text for one that is none; None where this is not JSON."""
    if not text.lstrip().startswith(("[{", "{", "[\n", "[ ", "[\r")):
        return None
    try:
        rows = _listed(json.loads(text))
    except ValueError:
        rows = [_object(line) for line in text.splitlines() if line.strip()]
    rows = [_flat(row) if isinstance(row, dict) else row for row in rows]
    names = dict.fromkeys(str(name) for row in rows if isinstance(row, dict) for name in row)
    return [
        dict.fromkeys(names, "") | {str(name): _cell(value) for name, value in row.items()}
        if isinstance(row, dict)
        else "not a row: expected a JSON object"
        for row in rows
    ]


def _listed(whole: Any) -> list[Any]:
    """The rows of a JSON text: a list, or the one list in an object (`{"runs": [...]}`), columns of lists or of
    numbered cells, as pandas writes them, or one row."""
    if not isinstance(whole, dict):
        return whole if isinstance(whole, list) else [whole]
    lists = [value for value in whole.values() if isinstance(value, list) and any(isinstance(x, dict) for x in value)]
    if len(lists) == 1:
        return lists[0]
    columns = list(whole.values())
    if columns and all(isinstance(column, dict) and {*column} == {*columns[0]} for column in columns):
        if all(str(key).isdigit() for key in columns[0]):
            return [{name: column[key] for name, column in whole.items()} for key in columns[0]]
    if len(columns) > 1 and all(isinstance(each, list) and len(each) == len(columns[0]) > 0 for each in columns):
        return [dict(zip(whole, cells, strict=True)) for cells in zip(*columns, strict=True)]
    return [whole]


def _flat(row: Mapping[str, Any], within: str = "") -> dict[str, Any]:
    """A row without sections: `{"parallel": {"tp": 2}}` as `parallel.tp`."""
    flat: dict[str, Any] = {}
    for name, value in row.items():
        flat |= _flat(value, f"{within}{name}.") if isinstance(value, dict) and value else {f"{within}{name}": value}
    return flat


def _object(line: str) -> Any:
    try:
        return json.loads(line)
    except ValueError:
        return None


def _cell(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(int(value))
    return value if isinstance(value, str) else json.dumps(value)


def reader(lines: Sequence[str], character: str) -> Any:
    """A reader of these lines."""
    return csv.reader(iter(lines), delimiter=character, skipinitialspace=character != "\t")
