"""Entries under new names, that can be taken out again, and their refusal in one line."""

from contextlib import ExitStack
from typing import Any, Never

from costmodel.specs import SpecError, show


def entered(table: dict[str, Any], what: str, name: str, entry: Any) -> ExitStack:
    """Add an entry; the context that is returned takes it out where it ends, or with `close()`."""
    if name in table:
        raise SpecError(f"{what}: {show(name)} is there already; expected a new name")
    table[name], added = entry, ExitStack()
    added.callback(table.pop, name, None)
    return added


def identifier(what: str, name: Any) -> str:
    """The name, or a refusal of what is no name in Python."""
    if not isinstance(name, str) or not name.isidentifier():
        raise SpecError(f"{what}: the name is {show(name)}; expected an identifier, such as my_own")
    return name


def refuse(where: str, what: str, value: Any, expected: str) -> Never:
    """Raise the one line that says the case, the number (or words that stand for it) and what it should be."""
    told = value if isinstance(value, str) else number(value) if isinstance(value, float) else show(value)
    raise SpecError(f"{where}: {what} is {told}; expected {expected}")


def number(value: Any) -> str:
    """A number to six digits, as a message shows it."""
    return f"{value:.6g}"
