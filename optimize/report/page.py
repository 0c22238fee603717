"""One page for people: a self-contained HTML file of text, tables and figures, read on a phone as on a screen.

`page(title, sections)` is all: a section is a heading and its parts, and a part is a paragraph (text; with line breaks
it is shown as it stands, as a launch file is), a table (of rich, as terminals show it, or headers and rows), a figure
(the bytes of a PNG or SVG), or a figure with its caption.
"""

import base64
import json
import re
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from rich.style import Style
from rich.table import Table
from rich.text import Text

Part = str | bytes | Text | Table | tuple[str, bytes] | tuple[Sequence[str], Sequence[Sequence[Any]]]
"""Text, a figure, a table, a figure with its caption, or the headers and the rows of a table."""

_STYLE = """
:root{color-scheme:light dark;--line:#8884;--dim:#666;--accent:#0072B2}
@media(prefers-color-scheme:dark){:root{--dim:#aaa;--accent:#56B4E9}}
body{font:16px/1.5 system-ui,sans-serif;max-width:80rem;margin:0 auto;padding:1rem}p,figure{max-width:62rem}
h1{font-size:1.4rem;line-height:1.25}h2{font-size:1.1rem;margin-top:2rem;border-bottom:1px solid var(--line)}
p{margin:.35rem 0;overflow-wrap:anywhere}.dim{color:var(--dim);font-size:.9em}
.wide{overflow-x:auto;margin:.8rem 0}table{border-collapse:collapse;font-size:.875rem;font-variant-numeric:tabular-nums}
th,td{padding:.15rem .7rem .15rem 0;text-align:left;white-space:nowrap;vertical-align:top}
th{border-bottom:1px solid var(--line);white-space:normal;vertical-align:bottom}
td.text{white-space:normal;min-width:12rem;max-width:40rem}
.right{text-align:right}.bar{color:var(--accent);font-family:monospace;letter-spacing:-.05em}
figure{margin:.8rem 0;overflow-x:auto}figure img{background:#fff;border-radius:4px;max-width:100%;min-width:32rem}
figcaption{font-size:.875rem;color:var(--dim)}pre{overflow-x:auto;font-size:.8rem;line-height:1.35}
nav{display:flex;flex-wrap:wrap;gap:.2rem 1rem}
@media(max-width:40rem){body{padding:.6rem;font-size:15px}h1{font-size:1.15rem}table{font-size:.75rem}
td,th{padding-right:.45rem}td:first-child{white-space:normal}pre{white-space:pre-wrap}
figcaption::after{content:" (scrolls sideways)"}}
@media print{body{max-width:none;padding:0;font-size:10pt}nav{display:none}h2{break-after:avoid}
figure,tr{break-inside:avoid}.wide,figure,pre{overflow:visible}pre{white-space:pre-wrap}
figure img{min-width:0;max-height:20cm}
table{font-size:7pt}th,td{white-space:normal;padding-right:.3rem}}
"""
_BAR, _LONG = re.compile(r"[█▏▎▍▌▋▊▉#]+"), 48  # characters, beyond which a cell is broken into lines


def page(title: str, sections: Sequence[tuple[str, Sequence[Part]]]) -> bytes:
    """The file. Sections without parts are left out; text is text, never markup."""
    shown = [(heading, fragment(parts)) for heading, parts in sections if parts]
    links = "".join(f'<a href="#{n}">{escape(heading)}</a>' for n, (heading, _) in enumerate(shown))
    told = "".join(f'<h2 id="{n}">{escape(heading)}</h2>\n{html}' for n, (heading, html) in enumerate(shown))
    head = '<meta charset="utf-8"><meta name="viewport" content="width=device-width,initial-scale=1">'
    named = f"<title>{escape(title)}</title><style>{_STYLE}</style>"
    body = f"<h1>{escape(title)}</h1>\n<nav>{links}</nav>\n{told}"
    return f'<!doctype html>\n<html lang="en"><head>{head}{named}</head>\n<body>{body}</body></html>\n'.encode()


def page_of(command: str, answer: Mapping[str, Any], shown: Sequence[Part], files: Mapping[str, bytes]) -> bytes:
    """The page of a command's answer: what the terminal shows, the figures among the files, and what was asked."""
    title, *rest = shown or [command]
    made = Text(", ".join(f"{name} {version}" for name, version in answer.get("versions", {}).items()), "dim")
    drawn = {name.removesuffix(".png").replace("_", " "): file for name, file in files.items() if name.endswith(".png")}
    others = ", ".join(name for name in ("result.json", *files) if not name.endswith((".png", ".svg")))
    asked = [(name, _value(value)) for name, value in _flat("", answer.get("inputs", {})) if value is not None]
    sections = (
        ("Answer", rest),
        ("Figures", [*drawn.items()]),
        ("What was asked", [(("input", "value"), asked), f"Beside this page: {others}", made]),
    )
    return page(f"equipoise {command}: {title}", sections)


def _flat(prefix: str, value: Any) -> list[tuple[str, Any]]:
    """Fields of fields as `field.field`."""
    if not isinstance(value, Mapping):
        return [(prefix, value)]
    return [each for name, inner in value.items() for each in _flat(f"{prefix}.{name}".strip("."), inner)]


def _value(value: Any) -> str:
    return "" if value is None else json.dumps(value) if isinstance(value, bool | list | tuple) else str(value)


def fragment(parts: Sequence[Part]) -> str:
    """Parts as HTML that stands inside a page, or in the output of a notebook."""
    return "\n".join(_html(part) for part in parts)


def _html(part: Part) -> str:
    if isinstance(part, str | Text):
        return _paragraph(part)
    if isinstance(part, bytes):
        return _figure(part, "")
    if isinstance(part, Table):
        headers = [str(column.header) for column in part.columns]
        rows = list(zip(*(column.cells for column in part.columns), strict=True))
        bold = [_styles(row.style)[0] for row in part.rows]
        told = _table(headers, rows, [column.justify == "right" for column in part.columns], bold)
        return f"{told}\n{_paragraph(Text(str(part.caption), 'dim'))}" if part.caption else told
    first, second = part
    if isinstance(second, bytes):
        return _figure(second, str(first))
    return _table(first, second, [_is_figure(column) for column in zip(*second, strict=True)], [False] * len(second))


def _paragraph(text: str | Text) -> str:
    if "\n" in str(text):
        return f"<pre>{escape(str(text))}</pre>"
    bold, dim = _styles(text.style) if isinstance(text, Text) else (False, False)
    told = re.sub("`([^`]+)`", r"<code>\1</code>", escape(str(text).strip()))
    inner = f"<strong>{told}</strong>" if bold else told
    return f'<p class="dim">{inner}</p>' if dim else f"<p>{inner}</p>"


def _styles(style: str | Style | None) -> tuple[bool, bool]:
    """Whether it is bold, and whether dim."""
    words = str(style or "").split()
    return "bold" in words, "dim" in words


def _table(headers: Sequence[str], rows: Sequence[Sequence[Any]], right: Sequence[bool], bold: Sequence[bool]) -> str:
    """Columns of figures to the right; a table that is wider than the screen scrolls by itself."""
    sides = [*right, *[False] * (len(headers) - len(right))]
    head = "".join(_cell("th", name, to_right) for name, to_right in zip(headers, sides, strict=True))
    body = "".join(
        f"<tr{' style=font-weight:bold' * strong}>"
        + "".join(_cell("td", cell, to_right) for cell, to_right in zip(row, sides, strict=True))
        + "</tr>\n"
        for row, strong in zip(rows, bold, strict=True)
    )
    return f'<div class="wide"><table><thead><tr>{head}</tr></thead>\n<tbody>{body}</tbody></table></div>'


def _cell(tag: str, content: Any, to_right: bool) -> str:
    text = str(content)
    kinds = {"right": to_right, "bar": bool(_BAR.fullmatch(text)), "text": len(text) > _LONG}
    told = " ".join(kind for kind, is_so in kinds.items() if is_so)
    return f"<{tag}{f' class={chr(34)}{told}{chr(34)}' if told else ''}>{escape(text)}</{tag}>"


def _is_figure(cells: Sequence[Any]) -> bool:
    """Whether a column holds numbers alone."""
    return all(isinstance(cell, int | float) or re.fullmatch(r"[-+<>]?[\d.,]+(e-?\d+)?( ?%)?|", cell) for cell in cells)


def _figure(content: bytes, caption: str) -> str:
    kind = "png" if content.startswith(b"\x89PNG") else "svg+xml"
    data = base64.b64encode(content).decode()
    told = f"<figcaption>{escape(caption)}</figcaption>" if caption else ""
    return f'<figure><img alt="{escape(caption)}" src="data:image/{kind};base64,{data}">{told}</figure>'
