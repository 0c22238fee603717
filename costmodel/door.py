"""Doors: the `__init__` of a room lists what other rooms may use, and opening it loads nothing.

A room writes its names once, as imports that only a type checker executes, and then hands them over:

    if TYPE_CHECKING:
        from costmodel.inputs.plan import Plan as Plan

    door.hang(__name__)

A name is imported when it is first asked for. It wins over a module of the same name: `costmodel.formulas.cost` is the
function, whichever part of the room was loaded before.
"""

import ast
import sys
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any


class _Room(ModuleType):
    """A package that finds the names of its door by itself."""

    def __getattr__(self, name: str) -> Any:
        homes: dict[str, str] = self.__dict__["_homes"]
        if name not in homes:
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        home = homes[name]
        value = import_module(f"{home}.{name}") if home == self.__name__ else getattr(import_module(home), name)
        self.__dict__[name] = value
        return value

    def __setattr__(self, name: str, value: Any) -> None:
        """The import system announces each module of the room; a name of the door stays what the door says."""
        announced = isinstance(value, ModuleType) and value.__name__ == f"{self.__name__}.{name}"
        if not (announced and self._homes.get(name, self.__name__) != self.__name__):
            super().__setattr__(name, value)

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *self._homes})


def hang(room: str) -> None:
    """Make the package `room` find the names that its `__init__` lists."""
    module = sys.modules[room]
    homes = listed(Path(str(module.__file__)).read_text(encoding="utf-8"))
    module.__dict__.update(_homes=homes, __all__=sorted(homes))  # pyright: ignore[reportCallIssue]
    module.__class__ = _Room


def listed(source: str) -> dict[str, str]:
    """The names that a door lists, and the module of each."""
    checked = [node for node in ast.parse(source).body if isinstance(node, ast.If)]
    imports = [node for block in checked for node in block.body if isinstance(node, ast.ImportFrom)]
    return {name.name: str(node.module) for node in imports for name in node.names}
