"""Variables of a shell script: what it sets, and words with them.

A variable that the script does not set stays as it is written (`$X`). One that is set in a branch that cannot be
decided is a tuple of what it may be, which is not resolved either; where options are among that, it becomes a word of
its own (`UNDECIDED`), so that it is refused and never guessed.
"""

import ast
import base64
import json
import operator
import re
from collections.abc import Callable, Iterator

from optimize.launch.shell.words import Piece

Value = str | list[str] | tuple[str, ...]
"""A text, an array, or (a tuple) the values that a variable may have, depending on what cannot be known."""
Values = dict[str, Value]
ARRAY = "("
"""How pieces that begin an array are quoted."""
MOST = 1_000_000
"""Letters that a value may grow to."""
UNDECIDED = "\0"
"""In front of a word that stands for a variable with options in one branch and others in another."""
_REFERENCE = re.compile(r"\$(?:\{([^{}]*(?:\$\{[^{}]*\}[^{}]*)*)\}|(\w+|[@*#?!$-]))")
_INNER = re.compile(r"^(\w+|[@*])(\[[@*]\])?(?:(:?[-=])(.*))?$", re.DOTALL)
_ARITHMETIC = re.compile(r"\$\(\(((?:[^()]|\([^()]*\))*)\)\)")


def words_of(value: Value) -> list[str]:
    """The words of a value, a list being several already."""
    return value.split() if isinstance(value, str) else list(value)


def _known(name: str, values: Values) -> str | None:
    """The text of a variable; None where it is not set, or not decided."""
    value = values.get(name)
    if isinstance(value, tuple):
        return None
    return " ".join(value) if isinstance(value, list) else value


def expanded(text: str, values: Values) -> str:
    """The text with its variables; those that are not known stand as they were written."""
    text = _ARITHMETIC.sub(lambda match: _computed(match, values), text)
    return _REFERENCE.sub(lambda match: _referred(match, values), text)[:MOST]


def _referred(match: re.Match[str], values: Values) -> str:
    inner = _INNER.match(match[1] if match[1] is not None else match[2])
    if inner is None:
        return match[0]
    if isinstance(among := values.get(inner[1]), tuple):
        return _undecided(inner[1], among)
    known = _known(inner[1], values)
    if inner[3] and inner[1] not in values or (inner[3] or "").startswith(":") and known == "":
        return expanded(inner[4].strip("'\""), values)
    return match[0] if known is None else known


def _computed(match: re.Match[str], values: Values) -> str:
    """Sums and products of integers."""
    names = re.sub(r"\$?\{?\b([A-Za-z_]\w*)\b\}?", lambda name: _known(name[1], values) or "?", match[1])
    try:
        return str(_integer(ast.parse(expanded(names, values).strip().replace("/", "//"), mode="eval").body))
    except (SyntaxError, ValueError, ZeroDivisionError, KeyError, RecursionError):
        return match[0]


_SUMS: dict[type, Callable[[int, int], int]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}  # fmt: skip


def _integer(node: ast.expr) -> int:
    if isinstance(node, ast.Constant) and isinstance(node.value, int):
        return node.value
    if isinstance(node, ast.BinOp):
        result = _SUMS[type(node.op)](_integer(node.left), _integer(node.right))
        if abs(result) < 10**18:
            return result
    raise ValueError(ast.dump(node))


def split(pieces: list[Piece], values: Values) -> list[str]:
    """The words that one word of the script becomes: variables out of quotes are split."""
    if len(pieces) == 1 and (whole := _whole(pieces[0][1], values)) is not None:
        return list(whole)
    words = [""]
    for quote, text in pieces:
        if quote == "'":
            words[-1] += text
            continue
        plain = _unescaped(text) if quote else text
        whole = expanded(plain, values)
        if quote or whole == plain:
            words[-1] += whole
            continue
        first, *others = re.split(r"\s+", whole)
        words[-1] += first
        words += others
    return [word for word in words if word] if not any(quote for quote, _ in pieces) else words


def _unescaped(text: str) -> str:
    """What stands in double quotes without its backslashes; a line that they continue goes on."""
    return re.sub(r"\\([$`\"\\\n])", lambda match: match[1].strip("\n"), text)


def _whole(text: str, values: Values) -> list[str] | None:
    """The words of an array that stands alone, in quotes or not."""
    match = re.fullmatch(r"\$\{?(\w+)(?:\[[@*]\])?\}?", text)
    value = values.get(match[1]) if match else None
    return value if isinstance(value, list) else None


def _undecided(name: str, among: tuple[str, ...]) -> str:
    """A word for a variable of which only what it may be is known; its name where that holds no options."""
    if not any("--" in each or re.search(r"\w=", each) for each in among):
        return f"${name}"
    told = base64.urlsafe_b64encode(json.dumps([name, *dict.fromkeys(among)]).encode()).decode()
    return UNDECIDED + (told if len(told) < MOST else base64.urlsafe_b64encode(json.dumps([name]).encode()).decode())


def candidates(word: str) -> tuple[str, list[str]]:
    """The name of an undecided variable, and what it may be."""
    name, *among = json.loads(base64.urlsafe_b64decode(word.removeprefix(UNDECIDED)))
    return name, among


def assign(match: re.Match[str], pieces: list[Piece], values: Values, decided: bool) -> None:
    """`X=...`, `X+=...`, `X=(...)`; where it is not decided whether it runs, the variable is not either."""
    name, adds = match[1], bool(match[2])
    rest: list[Piece] = [("", pieces[0][1][match.end() :]), *pieces[1:]]
    array = any(quote == ARRAY for quote, _ in rest)
    new: Value
    if array:
        new = [word for each in _between(rest) for word in split(each, values)]
    else:
        new = _text(rest, values)
    old = values.get(name, [] if array else "")
    if adds:
        new = _added(old, new)
    if not decided and new != values.get(name):
        new = (*_among(old), *_among(new))[-64:]
    values[name] = new


def _text(pieces: list[Piece], values: Values) -> str:
    """The text that is assigned."""
    plain = ((quote, _unescaped(text) if quote == '"' else text) for quote, text in pieces)
    return "".join(text if quote == "'" else expanded(text, values) for quote, text in plain)


def _among(value: Value) -> tuple[str, ...]:
    """What a variable may be, as texts."""
    return value if isinstance(value, tuple) else (value if isinstance(value, str) else " ".join(value),)


def _added(old: Value, new: Value) -> Value:
    if isinstance(old, tuple) or isinstance(new, tuple):
        return (*_among(old), *(first + more for first in _among(old) for more in _among(new)))[-64:]
    if isinstance(new, list) or isinstance(old, list):
        return [*words_of(old), *words_of(new)]
    return (old + new)[:MOST]


def _between(pieces: list[Piece]) -> Iterator[list[Piece]]:
    """The words of an array."""
    word: list[Piece] = []
    for quote, text in pieces:
        if quote in (" ", ARRAY):
            if word:
                yield word
            word = []
        elif text or quote:
            word.append((quote, text))
