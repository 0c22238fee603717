"""Words on the command line to a request, and why not, in one line."""

import contextlib
import dataclasses
import difflib
import io
import types
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

import tyro
from tyro.conf import DisallowNone, arg

from costmodel.specs import SpecError, show
from optimize.cli.command import COMMAND_LINE, Command
from optimize.cli.own_files import FLAG, HELP


def read(command: Command[Any, Any], name: str, words: Sequence[str]) -> Any:
    """The request that the words make. Raises `SpecError`; prints and exits where they ask for help."""
    program, description = f"equipoise {name}", f"{command.about}\n{command.examples}"
    if command.first is not None and words and not words[0].startswith("-"):
        words = [command.first, *words]
    refusal = io.StringIO()
    try:
        with contextlib.redirect_stderr(refusal):
            return tyro.cli(_with_files(command.request), prog=program, args=list(words), description=description)
    except SystemExit as ending:
        if ending.code in (0, None):
            raise
    raise SpecError(_why(command.request, program, words) or _one_line(refusal.getvalue()))


SHELLS = ("bash", "zsh", "tcsh")


def completion(shell: str, commands: Mapping[str, Command[Any, Any]]) -> str:
    """What that shell reads to complete the names of commands and of their options."""
    requests = (
        Annotated[_with_files(command.request), tyro.conf.subcommand(name=name, description=command.about)]
        for name, command in commands.items()
    )
    told = io.StringIO()
    with contextlib.redirect_stdout(told), contextlib.suppress(SystemExit):
        every: Any = Union[tuple(requests)]  # noqa: UP007 (of a tuple)
        tyro.cli(every, prog="equipoise", args=["--tyro-print-completion", shell])
    return told.getvalue().strip()


def _with_files(request: type) -> type:
    """The options of a command and, for its help, `--with`, which `main` has taken out of the words."""
    settings = arg(name=FLAG.strip("-"), help=HELP, help_behavior_hint="", metavar="FILE.py")
    kind: Any = Union[None, str]  # noqa: UP007, RUF036 (as in `command`)
    field = ("with_file", Annotated[kind, settings, DisallowNone], dataclasses.field(default=None))
    return dataclasses.make_dataclass(request.__name__, [field], bases=(request,), frozen=True, kw_only=True)


def _why(request: type, program: str, words: Sequence[str]) -> str | None:
    """The first word that is wrong, found again: the parser's own messages have many lines."""
    flags, rest = _flags(request), list(words)
    while rest:
        word = rest.pop(0)
        flag, equals, value = word.partition("=")
        if flag.replace("_", "-") not in flags:
            return _unknown(word, program, flags)
        kind = flags[flag.replace("_", "-")]
        if kind is bool:
            continue
        values = [value] if equals else []
        while not equals and rest and not rest[0].startswith("--") and (not values or _many(kind)):
            values.append(rest.pop(0))
        if not values:
            return f"{COMMAND_LINE}: `{flag}` has no value; expected {_expected(kind)}"
        for value in values:
            if not _accepts(kind, value):
                return f"{COMMAND_LINE}: `{flag}` is {show(value)}; expected {_expected(kind)}"
    return None


def _unknown(word: str, program: str, flags: dict[str, Any]) -> str:
    if not word.startswith("-"):
        return f"{COMMAND_LINE}: {show(word)} belongs to no option of {program}; expected --name value"
    close = difflib.get_close_matches(word.partition("=")[0], flags, n=3, cutoff=0.7)
    hint = f"did you mean {' or '.join(close)}?" if close else f"{program} --help lists the options"
    return f"{COMMAND_LINE}: {show(word)} is not an option of {program}; {hint}"


def _flags(request: type) -> dict[str, Any]:
    """Every option and the type of its value; `bool` for switches."""
    flags: dict[str, Any] = {"--help": bool, FLAG: str}
    for field in dataclasses.fields(request):  # pyright: ignore[reportArgumentType]
        kind = get_type_hints(request)[field.name]
        if dataclasses.is_dataclass(kind):
            flags |= _flags(kind)  # pyright: ignore[reportArgumentType]
            continue
        kind = _without_none(kind)
        name = field.name.replace("_", "-")
        flags |= {f"--{name}": kind} | ({f"--no-{name}": kind} if kind is bool else {})
    return flags


def _without_none(kind: Any) -> Any:
    if get_origin(kind) in (Union, types.UnionType):
        return next(part for part in get_args(kind) if part is not type(None))
    return kind


def _many(kind: Any) -> bool:
    return get_origin(kind) is tuple


def _accepts(kind: Any, value: str) -> bool:
    if get_origin(kind) is Literal:
        return value in map(str, get_args(kind))
    try:
        (get_args(kind)[0] if _many(kind) else kind)(value)
    except ValueError:
        return False
    return True


def _expected(kind: Any) -> str:
    if get_origin(kind) is Literal:
        return f"one of {', '.join(map(str, get_args(kind)))}"
    words = {int: "an integer", float: "a number", str: "text"}
    return "integers, one for each stage" if _many(kind) else words.get(kind, "a value")


def _one_line(text: str) -> str:
    """A box of many lines, should the parser refuse what `_why` would take."""
    words = [word for word in text.split() if not set(word) <= set("╭╮╰╯│─")]
    return f"{COMMAND_LINE}: {' '.join(words)}"
