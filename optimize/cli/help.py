"""What `--help` shows, and what shells complete: the options of a command, as tyro prints them.

Only these two load tyro: when words were read with it too, `explain` took a third longer (docs/search.md).
"""

import contextlib
import dataclasses
import io
from collections.abc import Mapping
from typing import Annotated, Any, Union, get_type_hints

import tyro
from tyro.conf import DisallowNone, FlagCreatePairsOff, arg

from optimize.cli.command import Command, Told
from optimize.cli.own_files import FLAG, HELP

SHELLS = ("bash", "zsh")
_WITH = ("with_file", Annotated[str | None, Told(HELP, values="FILE.py")], FLAG.strip("-"))


def show_help(command: Command[Any, Any], name: str) -> None:
    """Print what the command is about, its options and its examples."""
    about = f"{command.about}\n{command.examples}"
    with contextlib.suppress(SystemExit):
        tyro.cli(_options(command.request), prog=f"equipoise {name}", args=["--help"], description=about)


def completion(shell: str, commands: Mapping[str, Command[Any, Any]]) -> str:
    """What that shell reads to complete the names of commands and of their options."""
    requests = (
        Annotated[_options(command.request), tyro.conf.subcommand(name=name, description=command.about)]
        for name, command in commands.items()
    )
    told = io.StringIO()
    with contextlib.redirect_stdout(told), contextlib.suppress(SystemExit):
        every: Any = Union[tuple(requests)]  # noqa: UP007 (of a tuple)
        tyro.cli(every, prog="equipoise", args=["--tyro-print-completion", shell])
    return told.getvalue().strip()


def _options(request: type, more: tuple[Any, ...] = (_WITH,)) -> type:
    """The request for tyro, and `--with`, which `run` takes out of the words of every command."""
    own = [(name, kind, None) for name, kind in get_type_hints(request, include_extras=True).items()]
    fields = [(name, *_field(kind, flag)) for name, kind, flag in (*own, *more)]
    return dataclasses.make_dataclass(request.__name__, fields, bases=(request,), frozen=True, kw_only=True)


def _field(kind: Any, flag: str | None) -> tuple[Any, Any]:
    """Type and default of one option; those of a group of options stand among the others."""
    if dataclasses.is_dataclass(kind):
        group = _options(kind, ())  # pyright: ignore[reportArgumentType]
        return Annotated[group, arg(name="")], dataclasses.field(default=group())
    plain, told = kind.__origin__, kind.__metadata__[0]
    settings = arg(name=flag, help=told.help, help_behavior_hint=told.default, metavar=told.values)
    switch = plain is bool
    return Annotated[plain, settings, FlagCreatePairsOff if switch else DisallowNone], False if switch else None
