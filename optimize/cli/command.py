"""What a command is: words to inputs, inputs to an answer, and the answer as programs and as people read it.

`main` drives them all: it reads the words, checks the directory of `--out`, answers, writes and prints.
"""

import dataclasses
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any, Generic, TypeVar

from costmodel.specs import LARGEST_NUMBER, POSITIVE, SpecError, plain
from optimize.status import Status
from optimize.versions import SCHEMA


@dataclasses.dataclass(frozen=True)
class Told:
    """What `--help` says of an option beside its name and the text below its field."""

    help: str | None = None
    default: str = ""
    values: str | None = None


Text = Annotated[str | None, Told()]
Count = Annotated[int | None, Told()]
Number = Annotated[float | None, Told()]
Switch = Annotated[bool, Told()]

_SOFTWARE = (
    "training software, whose habits and constants count: megatron-core, megatron-2022, fsdp, deepspeed, nanotron, "
    "xla, xla-gpu, or a framework's name; default: by the accelerator, and said"
)
Software = Annotated[str | None, Told(_SOFTWARE)]
"""Help that is longer than a line stands here: of a docstring tyro keeps the line's end."""

COMMAND_LINE = "command line"

AMOUNT = dataclasses.replace(POSITIVE, words=f"{POSITIVE.expected} and at most {LARGEST_NUMBER:.0e}")
"""Check of a number of things: tokens, dollars, seconds."""

Inputs = TypeVar("Inputs")
Answer = TypeVar("Answer")
T = TypeVar("T")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Command(Generic[Inputs, Answer]):
    """One command. `request` is the dataclass of its options, of which `json` is for `main`."""

    request: type
    about: str
    examples: str
    first: str | None = None  # the option whose value may stand first, without it
    ask: Callable[[Any], Inputs]  # the request, checked and completed; raises `SpecError` or `CommandError`
    left: Callable[[Inputs, float], Inputs] = lambda inputs, _: inputs
    """The inputs with what so many seconds, taken already, leave of the time that was given."""
    run: Callable[[Inputs], Answer]
    as_json: Callable[[Inputs, Answer], dict[str, Any]]
    show: Callable[[Inputs, Answer], None]
    files: Callable[[Inputs, Answer], Mapping[str, bytes] | None] | None = None
    """What stands beside result.json in the directory; None where another process writes it."""
    directory: Callable[[Inputs], Path | None] = lambda inputs: getattr(inputs, "out", None)
    """The directory of `--out`, where that is one."""


def given(request: Any, *left_out: str) -> dict[str, Any]:
    """The options of a request that were given, by field, without what belongs to the command line alone."""
    fields = {field.name: getattr(request, field.name) for field in dataclasses.fields(request)}
    ignored = ("config", "json", *left_out)
    return {k: v for k, v in fields.items() if k not in ignored and v is not None and v is not False}


def needed(request: Any, examples: Mapping[str, str]) -> None:
    """Raise where an option that has no default was not given."""
    for name, example in examples.items():
        if getattr(request, name) is None:
            raise SpecError(f"{COMMAND_LINE}: `{name}` is missing; expected a file, such as {example}")


def apart(request: Any, *names: str) -> None:
    """Raise where two options name one file, of which the second would overwrite the first."""
    first, second = (getattr(request, name) for name in names)
    if first is not None and second is not None and os.path.abspath(first) == os.path.abspath(second):
        raise SpecError(
            f"{COMMAND_LINE}: `{names[1]}` is {plain(second)!r}, the file of `{names[0]}`; expected another"
        )


def answered(inputs: Mapping[str, Any]) -> dict[str, Any]:
    """The keys that every answer starts with."""
    return {"schema": SCHEMA, "status": Status.ok.name, "message": Status.ok.value, "inputs": dict(inputs)}


def placed(place: str, field: str, load: Callable[..., T], *arguments: Any, **keywords: Any) -> T:
    """Call `load`; where its message names no field or no place, the field that was given, and where, go in front."""
    try:
        return load(*arguments, **keywords)
    except SpecError as error:
        message = str(error)
        if message.startswith("`"):
            raise SpecError(f"{place}: {message}") from None
        if "`" not in message:
            allowed = "" if "expected" in message else "; expected a TOML or JSON file"
            raise SpecError(f"{place}: `{field}`: {message}{allowed}") from None
        raise
