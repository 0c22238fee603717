"""The house: a room imports only rooms above it, through their doors, and formulas are only formulas."""

import ast
import collections
import functools
import importlib
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

import costmodel
from costmodel import door

ROOT = Path(costmodel.__file__).parents[1]
ORDER = {  # from the top down
    "costmodel": (
        "door",
        "calls",
        "shown",
        "pytree",
        "semantics",
        "exact",
        "inputs",
        "models",
        "formulas",
        "graph",
        "specs",
    )
    + ("register", "evaluators", "measured", "convergence", "target"),
    "optimize": (
        "status",
        "time_limit",
        "cores",
        "beside",
        "progress",
        "others",
        "units",
        "versions",
        "question",
        "lattice",
        "diagnosis",
        "launch",
        "plans",
        "layers",
    )
    + ("hardware", "clusters", "targets", "report", "cli"),
    "experiments": (),  # each stands alone
}
MOST_FILES = 20
LONGEST_CHAIN = 17  # modules, from a command down to one that imports nothing: it may only fall
Import = tuple[Path, int, str, str]  # file, line, module, name


def _files(top: str) -> list[Path]:
    return sorted(path for path in (ROOT / top).rglob("*.py"))


def _imports(path: Path) -> Iterator[Import]:
    """Every name that a file imports from this project, at its head or inside a function."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno}: a relative import"
            if str(node.module).split(".")[0] in ORDER:
                yield from ((path, node.lineno, str(node.module), alias.name) for alias in node.names)
        elif isinstance(node, ast.Import):
            yield from (
                (path, node.lineno, alias.name, "")
                for alias in node.names
                if alias.name.split(".")[0] in ORDER and alias.name not in ORDER
            )


@functools.cache
def _all_imports() -> list[Import]:
    return [each for top in ORDER for path in _files(top) for each in _imports(path)]


def _told(each: Import) -> str:
    path, line, module, name = each
    return f"{path.relative_to(ROOT)}:{line}: from {module} import {name}"


@functools.cache
def _is_room(module: str) -> bool:
    return ROOT.joinpath(*module.split(".")).is_dir()


@functools.cache
def _listed(module: str) -> Mapping[str, str]:
    return door.listed((ROOT.joinpath(*module.split(".")) / "__init__.py").read_text())


def _room(path: Path) -> str:
    """The room of a file: its folder, or itself where it stands beside the rooms."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:2])


def _target(module: str, name: str) -> str:
    """The room that an import asks: `from costmodel import semantics` asks semantics."""
    parts = f"{module}.{name}".split(".") if "." not in module else module.split(".")
    return ".".join(parts[:2])


def test_a_room_imports_only_rooms_above_it():
    def misplaced(each: Import) -> bool:
        path, _, module, name = each
        own, asked = _room(path), _target(module, name)
        top, asked_top = own.split(".")[0], asked.split(".")[0]
        if path.name == "__init__.py" and len(path.relative_to(ROOT).parts) == 2 or own == asked:
            return False
        if top != asked_top:
            return list(ORDER).index(top) < list(ORDER).index(asked_top)
        order = ORDER[top]
        if not order:
            return asked.split(".")[-1] not in ("runner",) and _is_room(asked)
        return asked.split(".")[1] not in order or order.index(asked.split(".")[1]) > order.index(own.split(".")[1])

    assert [_told(each) for each in _all_imports() if misplaced(each)] == []


def test_nobody_imports_past_a_door():
    """From outside, a room gives only the names that its door lists; from inside, a smaller room does so too."""

    def past(each: Import) -> bool:
        path, _, module, name = each
        folder = ".".join(path.relative_to(ROOT).parent.parts)
        home = module if _is_room(module) else module.rpartition(".")[0]
        if folder == home or folder.startswith(f"{home}.") or path.name == "__init__.py":
            return False
        if home.split(".")[0] != folder.split(".")[0] or _room(path) != ".".join(home.split(".")[:2]):
            if home.count(".") > 1:
                return True  # deeper than a room's own door
        if not _is_room(module):
            return True
        return name not in _listed(module) and not _is_room(f"{module}.{name}")

    assert [_told(each) for each in _all_imports() if past(each)] == []


def test_nobody_imports_a_private_name():
    private = [each for each in _all_imports() if each[3].startswith("_") or "._" in each[2]]
    assert [_told(each) for each in private] == []


def test_no_folder_is_crowded():
    folders = {path.parent for top in ORDER for path in _files(top)}
    assert {str(f): n for f in folders if (n := len(list(f.glob("*.py")))) > MOST_FILES} == {}


def _home(module: str, name: str) -> str:
    """The module behind the doors that holds a name."""
    while _is_room(module):
        home = _listed(module).get(name, f"{module}.{name}")
        module = f"{module}.{name}" if home == module else home
    return module


@functools.cache
def _below() -> Mapping[str, set[str]]:
    """What each module imports; doors pass on, and hold nothing."""
    below: dict[str, set[str]] = collections.defaultdict(set)
    for path, _, module, name in _all_imports():
        if path.name != "__init__.py":
            below[".".join(path.relative_to(ROOT).with_suffix("").parts)].add(_home(module, name))
    return below


@functools.cache
def _longest(module: str) -> int:
    return 1 + max((_longest(each) for each in _below().get(module, ())), default=0)


def test_chains_of_imports_stay_short():
    """And no module imports itself by way of others, which would never end here."""
    commands = {name: _longest(name) for name in _below() if name.startswith("optimize.cli.")}
    assert max(commands.values()) <= LONGEST_CHAIN, commands


@pytest.mark.parametrize("path", [p for top in ORDER for p in _files(top) if p.name == "__init__.py"], ids=str)
def test_every_name_of_a_door_is_there(path):
    module = importlib.import_module(".".join(path.relative_to(ROOT).parent.parts))
    for name, home in door.listed(path.read_text()).items():
        value = getattr(module, name)
        assert value is getattr(importlib.import_module(home), name)
        assert getattr(value, "__doc__", None) or not callable(value), f"{name} has no docstring"


def test_a_name_of_a_door_wins_over_the_module_of_the_same_name():
    importlib.import_module("costmodel.formulas.cost")
    assert callable(importlib.import_module("costmodel.formulas").cost)
