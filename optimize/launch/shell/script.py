"""What a shell script would run: its commands as words.

Assignments, arrays, conditions on what is known, cases, functions as they are defined, heredocs of shells. Nothing is
executed. Branches that cannot be decided count as ones that may run.
"""

import operator
import re
from collections.abc import Iterator
from fnmatch import fnmatchcase
from itertools import islice

from costmodel.specs import SpecError
from optimize.launch.shell.values import ARRAY, MOST, Values, assign, expanded, split, words_of
from optimize.launch.shell.words import Piece, Token, tokens

_REDIRECTIONS = ("<<<", ">>", "&>", ">&", "<&", "<", ">")
_SET = re.compile(r"^([A-Za-z_]\w*)(\+?)=")
_DECLARES = ("export", "local", "declare", "readonly", "typeset")
_SHELLS = ("sbatch", "bash", "sh", "srun")
CASE = "\0case"
"""The first word of a command that is a pattern of a case."""
Branch = list  # whether it holds (None: not known), whether one before it was taken, the subject of a case
Command = tuple[int, list[list[Piece]], list[str]]  # line, words, heredocs


def commands(text: str) -> list[tuple[int, list[str]]]:
    """The line and the words of each command that may run, assignments left out."""
    return list(_run(_checked(text), {}))


def held(text: str) -> tuple[int, list[str]]:
    """The last line, and what the variables of a script hold at its end: for one that only sets them."""
    values: Values = {}
    list(_run(_checked(text), values))
    decided = (value for value in values.values() if not isinstance(value, tuple))
    return text.count("\n") + 1, [word for value in decided for word in words_of(value)]


def _checked(text: str) -> str:
    if len(text) > MOST:
        raise SpecError(f"it has more than {MOST:,} letters, which no launch file has")
    return text


def _run(text: str, values: Values) -> Iterator[tuple[int, list[str]]]:
    """Commands that may run, in their order; assignments change `values`."""
    branches: list[Branch] = []
    for line, pieces, heredocs in _commands(list(tokens(text))):
        while pieces and _plain(pieces[0]) in ("then", "do", "{", "}", "!", "time"):
            pieces = pieces[1:]
        keyword = _plain(pieces[0]) if pieces else ""
        if keyword in _KEYWORDS:
            _KEYWORDS[keyword](branches, pieces, values)
        elif all(branch[0] is not False for branch in branches):
            yield from _executed((line, pieces, heredocs), values, all(branch[0] for branch in branches))


def _opened(branches: list[Branch], pieces: list[list[Piece]], values: Values) -> None:
    """`if`, and loops, whose bodies may run."""
    tested = _plain(pieces[0]) == "if" and all(branch[0] is not False for branch in branches)
    holds = _holds(pieces[1:], values) if tested else None
    branches.append([holds, holds, None])
    if _plain(pieces[0]) in ("for", "select") and len(pieces) > 1:
        values[_plain(pieces[1])] = tuple(_plain(word) for word in islice(pieces, 3, 64))


def _cased(branches: list[Branch], pieces: list[list[Piece]], values: Values) -> None:
    subject = _tested(pieces[1], values) if len(pieces) > 1 else None
    branches.append([False, False, subject])


def _other(branches: list[Branch], pieces: list[list[Piece]], values: Values) -> None:
    """`elif`, `else`, a pattern of a case: taken where none before was."""
    if not branches:
        return
    branch, keyword = branches[-1], _plain(pieces[0])
    if keyword == CASE:
        holds = _matches([_plain(word) for word in pieces[1:]], branch[2])
    else:
        holds = _holds(pieces[1:], values) if keyword == "elif" else True
    branch[0] = False if branch[1] or holds is False else None if branch[1] is None or holds is None else True
    branch[1] = True if branch[1] or branch[0] else None if None in (branch[0], branch[1]) else False


def _closed(branches: list[Branch], pieces: list[list[Piece]], values: Values) -> None:
    if branches:
        branches.pop()


_KEYWORDS = {
    **dict.fromkeys(("if", "while", "until", "for", "select"), _opened),
    **dict.fromkeys(("elif", "else", CASE), _other),
    **dict.fromkeys(("fi", "done", "esac"), _closed),
    "case": _cased,
}


def _commands(found: list[Token]) -> Iterator[Command]:
    """Simple commands. Patterns of a case are commands whose first word is `CASE`."""
    words: list[list[Piece]] = []
    heredocs: list[str] = []
    cases, start, at = 0, 1, 0
    while at < len(found):
        line, sign, pieces = found[at]
        at += 1
        start = start if words else line
        if not sign:
            words.append(pieces)
        elif sign in _REDIRECTIONS:
            at += 1
        elif sign == "(" and words and _SET.fullmatch(_plain(words[-1])):
            at = _array(found, at, words)
        elif sign == "|" and words and cases and _is_pattern(found, at):
            continue
        else:
            heredocs = [text for _, text in _heredocs(found, at)] if sign == "\n" else []
            opens = bool(words) and _plain(words[0]) == "case"
            named = [[("", CASE)], *words] if sign == ")" and (cases or opens) else words
            cases += sum((_plain(word) == "case") - (_plain(word) == "esac") for word in words[:1])
            yield from _in_order(start, named, heredocs)
            words = []


def _array(found: list[Token], at: int, words: list[list[Piece]]) -> int:
    """Put the words of an array behind its name, with a piece between them; where it ends."""
    end = next((i for i in range(at, len(found)) if found[i][1] == ")"), len(found))
    inner = [piece for _, sign, pieces in found[at:end] if not sign for piece in (*pieces, (" ", ""))]
    words[-1] = [*words[-1], (ARRAY, ""), *inner]
    return end + 1


def _heredocs(found: list[Token], at: int) -> Iterator[Piece]:
    """Heredocs that follow the end of a line."""
    while at < len(found) and found[at][1] == "<<":
        yield from found[at][2]
        at += 1


def _is_pattern(found: list[Token], at: int) -> bool:
    """Whether a `|` stands between patterns of a case: words, then `)`."""
    following = next((sign for _, sign, _ in found[at:] if sign and sign != "|"), "")
    return following == ")"


def _in_order(line: int, words: list[list[Piece]], heredocs: list[str]) -> Iterator[Command]:
    """`case X in` ends a command where its first pattern begins."""
    names = [_plain(word) for word in words]
    if names[:1] == [CASE] and "case" in names and "in" in names:
        at = names.index("in")
        yield line, words[names.index("case") : at], []
        yield line, [words[0], *words[at + 1 :]], heredocs
    elif words:
        yield line, words, heredocs


def _plain(pieces: list[Piece]) -> str:
    return "".join(text for _, text in pieces)


def _executed(command: Command, values: Values, decided: bool) -> Iterator[tuple[int, list[str]]]:
    """Assignments in front, then the command, then what a shell reads from a heredoc."""
    line, rest, heredocs = command[0], list(command[1]), command[2]
    if rest and _plain(rest[0]) in _DECLARES:
        rest = [word for word in rest[1:] if _SET.match(_plain(word))]
    while rest and rest[0][0][0] == "" and (match := _SET.match(rest[0][0][1])):
        assign(match, rest.pop(0), values, decided)
    words = [word for each in rest for word in split(each, values)]
    if script := _handed(words):
        yield from ((line, inner) for _, inner in _run(script, dict(values)))
    elif words:
        yield line, words
    if words and words[0] in _SHELLS:
        for body in heredocs:
            yield from ((line + at, inner) for at, inner in _run(expanded(body, values), values))


def _handed(words: list[str]) -> str:
    """The script that a command hands to a shell: `srun bash -c '...'`."""
    pairs = zip(words, words[1:], words[2:], strict=False)
    return next((script for name, sign, script in pairs if name in _SHELLS and re.fullmatch(r"-\w*c", sign)), "")


def _holds(pieces: list[list[Piece]], values: Values) -> bool | None:
    """Whether a test holds, as far as the script says; None for anything else than one comparison of known texts."""
    words = [_tested(word, values) for word in pieces]
    if not words or words[0] not in ("[", "[[", "test"):
        return None
    inner = [word for word in words[1:] if word not in ("]", "]]")]
    if len(inner) == 2 and inner[0] in ("-z", "-n"):
        return (inner[1] in (None, "")) == (inner[0] == "-z")
    if len(inner) != 3 or None in inner:
        return None
    left, sign, right = (str(word) for word in inner)
    if sign in ("=", "==", "!="):
        return (left == right) == (sign != "!=")
    whole = all(re.fullmatch(r"-?\d{1,18}", word) for word in (left, right))
    return _ORDERS[sign](int(left), int(right)) if sign in _ORDERS and whole else None


_ORDERS = {f"-{name}": getattr(operator, name) for name in ("eq", "ne", "gt", "ge", "lt", "le")}


def _tested(pieces: list[Piece], values: Values) -> str | None:
    """A word of a test; None where a variable in it is not known."""
    text = "".join(text if quote == "'" else expanded(text, values) for quote, text in pieces)
    return None if any(quote != "'" for quote, _ in pieces) and re.search(r"\$[\w{(@*]", text) else text


def _matches(patterns: list[str], subject: str | None) -> bool | None:
    """Whether a subject of a case is one of its patterns."""
    return None if subject is None else any(fnmatchcase(subject, pattern) for pattern in patterns)
