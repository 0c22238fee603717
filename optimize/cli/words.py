"""Words on the command line to a request, or why not, in one line."""

import dataclasses
import re
from collections.abc import Iterable, Sequence
from typing import Any, Literal, NamedTuple, get_args, get_origin, get_type_hints

from costmodel.specs import SpecError, alike, show
from optimize.cli.command import COMMAND_LINE, Command
from optimize.cli.own_files import FLAG

HELP = frozenset(("--help", "-h"))


class _Option(NamedTuple):
    """What a flag sets: a field, to a value of this type; a switch, which takes no value, to `switched`."""

    field: str
    kind: Any
    switched: bool | None = None


def read(command: Command[Any, Any], name: str, words: Sequence[str]) -> Any:
    """The request that the words make. Raises `SpecError`."""
    rest, options, given = list(words), _options(command.request), dict[str, Any]()
    if command.first is not None and rest and not rest[0].startswith("-"):
        rest.insert(0, command.first)
    while rest:
        word = rest.pop(0)
        flag, equals, value = word.partition("=")
        option = options.get(flag.replace("_", "-"))
        if option is None:
            raise SpecError(f"{COMMAND_LINE}: {_unknown(word, f'equipoise {name}', options)}")
        values = [value] if equals else _values(rest, option)
        given[option.field] = _converted(flag, option, values, rest)
    return _made(command.request, given)


def _options(request: type) -> dict[str, _Option]:
    """Every flag of a request and of its groups of options."""
    options: dict[str, _Option] = {}
    for name, hint in get_type_hints(request).items():
        flag, kind = name.replace("_", "-"), _without_none(hint)
        if dataclasses.is_dataclass(kind):
            options |= _options(kind)  # pyright: ignore[reportArgumentType]
        elif kind is bool:
            options[f"--{flag}"] = _Option(name, kind, True)
            if hint is not bool:
                options[f"--no-{flag}"] = _Option(name, kind, False)
        else:
            options[f"--{flag}"] = _Option(name, kind)
    return options


def _without_none(hint: Any) -> Any:
    return next((part for part in get_args(hint) if part is not type(None)), hint) if _optional(hint) else hint


def _optional(hint: Any) -> bool:
    return type(None) in get_args(hint)


def _values(rest: list[str], option: _Option) -> list[str]:
    """The values of an option, taken from the words that follow it."""
    values: list[str] = []
    most = 0 if option.switched is not None else len(rest) if _many(option.kind) else 1
    while rest and len(values) < most and not _is_flag(rest[0]):
        values.append(rest.pop(0))
    return values


def _is_flag(word: str) -> bool:
    """Whether a word cannot be a value: it begins as a flag does, and is no negative number."""
    return re.match(r"--|-(?!(inf|infinity|nan)\Z)[a-z]", word, re.IGNORECASE) is not None


def _many(kind: Any) -> bool:
    return get_origin(kind) is tuple


def _converted(flag: str, option: _Option, values: Sequence[str], rest: Sequence[str]) -> Any:
    """The value of an option, before the rest of the words. Raises `SpecError`."""
    if option.switched is not None:
        if values:
            raise SpecError(f"{COMMAND_LINE}: `{flag}` is {show(values[0])}; expected no value")
        return option.switched
    if not values:
        where = f" before {show(rest[0])}" if rest else ""
        raise SpecError(f"{COMMAND_LINE}: `{flag}` has no value{where}; expected {_expected(option.kind)}")
    found = tuple(_one(flag, option.kind, value) for value in values)
    return found if _many(option.kind) else found[0]


def _one(flag: str, kind: Any, value: str) -> Any:
    try:
        if get_origin(kind) is Literal:
            return {str(choice): choice for choice in get_args(kind)}[value]
        return (get_args(kind)[0] if _many(kind) else kind)(value)
    except (KeyError, ValueError):
        raise SpecError(f"{COMMAND_LINE}: `{flag}` is {show(value)}; expected {_expected(kind)}") from None


def _expected(kind: Any) -> str:
    if get_origin(kind) is Literal:
        return f"one of {', '.join(map(str, get_args(kind)))}"
    words = {int: "an integer", float: "a number", str: "text"}
    return "integers, one for each stage" if _many(kind) else words.get(kind, "a value")


def _unknown(word: str, program: str, flags: Iterable[str]) -> str:
    """Why a word is no option, and which one it may be."""
    asked = re.sub(r"\A[\u2012-\u2015\u2212]-?", "--", word).partition("=")[0]  # dashes as word processors write them
    if not asked.startswith("-"):
        return f"{show(word)} belongs to no option of {program}; expected --name value"
    close = alike(asked, [*flags, *HELP, FLAG], 0.7)
    hint = f"did you mean {' or '.join(close)}?" if close else f"{program} --help lists the options"
    return f"{show(word)} is not an option of {program}; {hint}"


def _made(request: type, given: dict[str, Any]) -> Any:
    """The request with these values; its groups of options have theirs."""
    fields: dict[str, Any] = {}
    for name, kind in get_type_hints(request).items():
        if dataclasses.is_dataclass(kind):
            fields[name] = _made(kind, given)  # pyright: ignore[reportArgumentType]
        elif name in given:
            fields[name] = given[name]
    return request(**fields)
