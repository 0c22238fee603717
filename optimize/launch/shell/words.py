"""Words and operators of a shell script: quotes, continued lines, comments, heredocs."""

import re
from collections.abc import Iterator

from costmodel.specs import SpecError

Piece = tuple[str, str]  # how it is quoted ("", ' or "), and the text
Token = tuple[int, str, list[Piece]]  # line, operator ("" for a word), the pieces of a word
_SIGN = re.compile(r";;|&&|\|\||<<<|<<-|<<|>>|&>|>&|<&|[;|&()<>\n]")
_BLANK = re.compile(r"(?:\\\n|[ \t\r])+")


def tokens(text: str) -> Iterator[Token]:
    """Words and operators, with the lines they begin on; comments left out, heredocs as operators << that hold them."""
    pieces: list[Piece] = []
    started = 1
    for line, kind, quote, piece in _parts(text):
        if kind == "piece":
            started = started if pieces else line
            pieces.append((quote, piece))
            continue
        if pieces:
            yield started, "", pieces
            pieces = []
        if kind == "sign":
            yield line, quote, [("", piece)] if piece else []
    if pieces:
        yield started, "", pieces
    yield text.count("\n") + 1, "\n", []


def _parts(text: str) -> Iterator[tuple[int, str, str, str]]:
    """Line, kind (blank, sign or piece), the sign or the quotation, the text of a piece or of a heredoc."""
    at, line, between = 0, 1, True
    ends: list[str] = []
    while at < len(text):
        before = at
        if blank := _BLANK.match(text, at):
            at, kind, quote, piece = blank.end(), "blank", "", ""
        elif text[at] == "#" and between:
            at, kind, quote, piece = _until(text, "\n", at), "blank", "", ""
        elif sign := _SIGN.match(text, at):
            kind, quote, piece = "sign", sign[0], ""
            at = sign.end()
            if quote in ("<<", "<<-") and (end := re.compile(r"\s*['\"]?(\w+)['\"]?").match(text, at)):
                ends, at, kind = [*ends, end[1]], end.end(), "blank"
        else:
            kind, (quote, piece, at) = "piece", _piece(text, at)
        yield line, kind, quote, piece
        line += text.count("\n", before, at)
        between = kind != "piece"
        while ends and kind == "sign" and quote == "\n":
            piece, at = _heredoc(text, at, ends.pop(0))
            yield line, "sign", "<<", piece
            line += piece.count("\n") + 1


def _piece(text: str, at: int) -> tuple[str, str, int]:
    """One piece of a word: how it is quoted, its text, and where it ends."""
    letter = text[at]
    if letter == "'":
        end = text.find("'", at + 1)
        if end < 0:
            raise SpecError("not valid shell text: a quotation that does not end")
        return "'", text[at + 1 : end], end + 1
    if letter == '"':
        end = _double(text, at + 1)
        return '"', text[at + 1 : end], end + 1
    if letter == "\\":
        return "'", text[at + 1 : at + 2], at + 2
    if letter == "`":
        end = _until(text, "`", at + 1)
        return "'", "$(" + text[at + 1 : end] + ")", end + 1
    if end := _nested(text, at):
        return "", text[at:end], end
    stop = re.compile(r"[\s;|&()<>'\"`\\]|\$[({]").search(text, at + 1)
    end = stop.start() if stop else len(text)
    return "", text[at:end], end


def _double(text: str, at: int) -> int:
    """Where a text in double quotes ends."""
    while at < len(text) and text[at] != '"':
        at = _nested(text, at) or at + (2 if text[at] == "\\" else 1)
    if at >= len(text):
        raise SpecError("not valid shell text: a quotation that does not end")
    return at


def _nested(text: str, at: int) -> int:
    """Where `$(...)` or `${...}` that begins here ends; 0 where none begins. Quotes inside do not count."""
    if not text.startswith(("$(", "${"), at):
        return 0
    opening, closing = ("(", ")") if text[at + 1] == "(" else ("{", "}")
    depth = 0
    for end in range(at + 1, len(text)):
        depth += (text[end] == opening) - (text[end] == closing)
        if not depth:
            return end + 1
    raise SpecError(f"not valid shell text: `{text[at : at + 20]}` does not end")


def _until(text: str, sign: str, at: int) -> int:
    end = text.find(sign, at)
    return len(text) if end < 0 else end


def _heredoc(text: str, at: int, end: str) -> tuple[str, int]:
    """The lines up to `end`."""
    found = re.compile(rf"^\s*{re.escape(end)}\s*$", re.MULTILINE).search(text, at)
    if not end or found is None:
        return text[at:], len(text)
    return text[at : found.start()], min(len(text), found.end() + 1)
