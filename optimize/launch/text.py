"""The texts of launch files: flags of a command line, `name=value` overrides, flat YAML, Python assignments, JSON.

Each pair of functions is inverse to the other on what this package writes; what people write is read leniently
(comments, continued lines, `--name=value`, shell variables that the same file sets). No YAML or shell library: only
the flat subsets that launch files are made of.
"""

import json
import re
import shlex
from collections.abc import Iterable, Iterator
from typing import Any

from costmodel.specs import SpecError, show

Settings = dict[str, Any]
_WORDS = {"true": True, "false": False, "null": None, "none": None, "~": None}
_VARIABLE = re.compile(r"\$\{(\w+)(?::-[^}]*)?\}|\$(\w+)")
_SETS = re.compile(r"^\s*(?:export\s+)?(\w+)=([^\s#(]+)\s*(?:#.*)?$", re.MULTILINE)


def comments(lines: Iterable[str], mark: str = "#") -> str:
    """Lines that the launcher ignores."""
    return "".join(f"{mark} {line}\n" for line in lines)


def literal(text: str) -> Any:
    """A number, a truth value, nothing, a list of these, or the text itself, without its quotes."""
    text = text.strip()
    if text.lower() in _WORDS:
        return _WORDS[text.lower()]
    if len(text) > 1 and text[0] == text[-1] and text[0] in "'\"":
        return text[1:-1]
    if text.startswith("[") and text.endswith("]"):
        return [literal(part) for part in text[1:-1].split(",") if part.strip()]
    for kind in (int, float):
        try:
            return kind(text.replace("_", "") if kind is int and re.fullmatch(r"[\d_]+", text) else text)
        except ValueError:
            continue
    return text


def _words(text: str) -> list[str]:
    """Words as a shell would see them, with the variables that the text itself sets."""
    known = {name: value.strip("\"'") for name, value in _SETS.findall(text)}
    text = _VARIABLE.sub(lambda match: known.get(match[1] or match[2], match[0]), text)
    words = shlex.shlex(text, posix=True, punctuation_chars="()")
    words.whitespace_split, words.commenters = True, "#"
    try:
        return list(words)
    except ValueError as error:
        raise SpecError(f"not valid shell text: {error}") from None


def dump_flags(settings: Settings, notes: tuple[str, ...]) -> str:
    """`--name value`, one a line; True is a flag without a value."""
    lines = [f"--{name}" if value is True else f"--{name} {_shell(value)}" for name, value in settings.items()]
    return comments(notes) + " \\\n".join(lines) + "\n"


def _shell(value: Any) -> str:
    return " ".join(map(shlex.quote, map(str, value if isinstance(value, list) else [value])))


def parse_flags(text: str) -> Settings:
    """Every `--name`, with its values up to the next one: none is True, several are a list."""
    settings: Settings = {}
    name, values = "", []
    for word in (*_words(text.replace("\\\n", " ")), "--"):
        if not word.startswith("--") and word not in ("(", ")"):
            values.append(literal(word))
            continue
        if name:
            settings[name] = True if not values else values[0] if len(values) == 1 else values
        name, equals, value = word.strip("()").removeprefix("--").partition("=")
        name, values = name.replace("_", "-"), [literal(value)] if equals else []
    return settings


def dump_overrides(settings: Settings, notes: tuple[str, ...]) -> str:
    """`section.name=value`, one a line, to be put behind a command."""
    return comments(notes) + "".join(f"{name}={_plain(value)}\n" for name, value in settings.items())


def parse_overrides(text: str) -> Settings:
    """`section.name=value` words, or the nested YAML of an override file."""
    pairs = [word.lstrip("+-").partition("=") for word in _words(text.replace("\\\n", " ")) if "=" in word]
    settings = {name: literal(value) for name, _, value in pairs if re.fullmatch(r"\w+(\.\w+)+|mixed_precision", name)}
    return settings or parse_yaml(text)


def dump_yaml(settings: Settings, notes: tuple[str, ...]) -> str:
    """`name: value`, one a line."""
    return comments(notes) + "".join(f"{name}: {_plain(value)}\n" for name, value in settings.items())


def parse_yaml(text: str) -> Settings:
    """Nested or flat `name: value` as dotted names; also `name=value` words of a command line."""
    settings: Settings = {}
    path: list[tuple[int, str]] = []
    listed = re.search(r"^\s*- ", text, re.MULTILINE)  # items of a list repeat their names
    for number, line in enumerate(text.splitlines(), 1):
        matched = re.match(r"^(\s*)([\w.]+):(?:\s+(.*))?$", re.sub(r"(^|\s)#.*$", "", line).rstrip())
        if not matched:
            continue
        depth, name, value = len(matched[1]), matched[2], (matched[3] or "").strip()
        path = [(d, n) for d, n in path if d < depth]
        if value:
            name = ".".join([*(n for _, n in path), name])
            if not listed and settings.get(name, literal(value)) != literal(value):
                raise SpecError(f"line {number}: `{name}` is {show(settings[name])} and {value}; expected it once")
            settings[name] = literal(value)
        else:
            path.append((depth, name))
    return settings


def parse_pairs(text: str) -> Settings:
    """Flat YAML, or `name=value` words."""
    settings = parse_yaml(text)
    words = (word.partition("=") for word in _words(text.replace("\\\n", " ")) if re.match(r"^[a-z]\w*=", word))
    return settings | {name: literal(value) for name, _, value in words}


IMPORTS = {"FullActivationRematConfig": "torchtitan.distributed.activation_checkpoint"}
"""Modules of the objects of a configuration."""


class Name(str):
    """An expression of Python, written as it stands."""

    def __repr__(self) -> str:
        return str(self)


def dump_python(settings: Settings, notes: tuple[str, ...]) -> str:
    """A function that changes a configuration."""
    lines = [f"    config.{name} = {value!r}\n" for name, value in settings.items()]
    made = [re.match(r"\w+", value) for value in settings.values() if isinstance(value, Name)]
    imports = [f"    from {IMPORTS[match[0]]} import {match[0]}\n\n" for match in made if match and match[0] in IMPORTS]
    return comments(notes) + "def use_plan(config):\n" + "".join(imports + lines) + "    return config\n"


def parse_python(text: str) -> Settings:
    """`config.section.name = value` lines, or `--section.name value` words."""
    settings: Settings = {}
    for line in text.splitlines():
        matched = re.match(r"^\s*\w+\.([a-z_]+(?:\.\w+)*)\s*=\s*([^=].*)$", line)
        if matched:
            settings[matched[1]] = literal(re.sub(r"\s+#.*$", "", matched[2]))
    dotted = {name.replace("-", "_"): value for name, value in parse_flags(text).items() if "." in name}
    return settings or dotted


def dump_json(settings: Settings, notes: tuple[str, ...]) -> str:
    """Dotted names as nested objects. JSON has no comments: the notes are shown elsewhere."""
    nested: dict[str, Any] = {}
    for name, value in settings.items():
        *sections, last = name.split(".")
        inner = nested
        for section in sections:
            inner = inner.setdefault(section, {})
        inner[last] = value
    return json.dumps(nested, indent=2) + "\n"


def parse_json(text: str) -> Settings:
    """Nested objects as dotted names."""
    try:
        content = json.loads(text)
    except ValueError as error:
        raise SpecError(f"not valid JSON: {error}") from None
    return dict(_flat("", content))


def _flat(prefix: str, content: Any) -> Iterator[tuple[str, Any]]:
    for name, value in content.items():
        if isinstance(value, dict) and value:
            yield from _flat(f"{prefix}{name}.", value)
        else:
            yield f"{prefix}{name}", value


def _plain(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list | tuple):
        return "[" + ",".join(map(_plain, value)) + "]"
    return f"'{value}'" if isinstance(value, str) and not re.fullmatch(r"[\w./:-]+", value) else str(value)
