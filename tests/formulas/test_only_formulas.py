"""Every file of `costmodel/formulas` is only a formula: no array library, and no branch on a value.

A condition asks for structure, which is there before any number is. Allowed are, recognised by what is declared:
- whether something is None, or how many there are (`len`);
- constants: literals, members of enumerations, words that a module defines;
- names of `static` fields, of properties and functions that return a `bool`, of arguments that are a `bool`, a `str` or
  an enumeration; and the loop variable over such a name;
- whether a field or an argument that is a tuple or a tree (and no `Scalar`) is there or empty.
Values are compared (whole numbers divided) in functions that return a `Verdict`, and nowhere else.
"""

import ast
import dataclasses
import enum
import importlib
import inspect
import pkgutil
import types
import typing
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from costmodel import formulas, inputs

FOLDER = Path(formulas.__file__).parent
FILES = sorted(FOLDER.rglob("*.py"))
PLAIN = {"collections", "costmodel", "dataclasses", "itertools", "typing"}  # what formulas may import
BUILTINS = {
    "max",
    "min",
    "abs",
    "round",
    "int",
    "float",
    "sum",
    "pow",
    "divmod",
    "bool",
    "sorted",
}  # `Semantics` has its own
WORDS = (bool, str)  # enumerations of words are `str` too


def names_of(path: Path) -> dict[str, Any]:
    """What names stand for in the module of a file."""
    parts = path.relative_to(FOLDER).with_suffix("").parts
    return vars(importlib.import_module(".".join(("costmodel.formulas", *parts)).removesuffix(".__init__")))


def is_word(hint: Any) -> bool:
    return isinstance(hint, type) and issubclass(hint, WORDS)


def is_tree(hint: Any) -> bool:
    """Whether a type is a tuple or a dataclass, or None: its truth is whether it is there."""
    choices = typing.get_args(hint) if isinstance(hint, types.UnionType) else (hint,)
    choices = [choice for choice in choices if choice is not types.NoneType]
    return all(typing.get_origin(choice) is tuple or dataclasses.is_dataclass(choice) for choice in choices)


def members() -> Iterator[tuple[str, bool, bool]]:
    """Fields and properties of all that formulas read and make: name, whether it is a word, whether it is a tree."""
    for room in (inputs, formulas):
        for module in pkgutil.walk_packages(room.__path__, f"{room.__name__}."):
            for cls in vars(importlib.import_module(module.name)).values():
                if dataclasses.is_dataclass(cls) and isinstance(cls, type):
                    hints = typing.get_type_hints(cls)
                    for field in dataclasses.fields(cls):
                        yield field.name, bool(field.metadata.get("static")), is_tree(hints[field.name])
                if isinstance(cls, type):
                    for name, own in inspect.getmembers(cls, lambda member: isinstance(member, property)):
                        hint = typing.get_type_hints(own.fget).get("return")
                        yield name, is_word(hint), is_tree(hint)


_MEMBERS = list(members())
STATIC = {name for name, word, _ in _MEMBERS if word} - {name for name, word, _ in _MEMBERS if not word}
TREES = {name for name, *_ in _MEMBERS} - {name for name, word, tree in _MEMBERS if not (word or tree)}


def test_structure_is_told_from_values():
    assert {"kind", "position", "split", "syncs", "exchanges"} <= STATIC
    assert {"saved", "offload", "blocks", "streams"} <= TREES
    assert not {"repeats", "trained", "parameters", "limit", "microbatches", "flop", "step_s", "usd"} & (STATIC | TREES)


class Structure:
    """What is known before any number is, in one function (or in a module's own lines)."""

    def __init__(self, scope: ast.AST, names: dict[str, Any]) -> None:
        self.names, nodes = names, list(ast.walk(scope))
        arguments = [node for node in nodes if isinstance(node, ast.arg)]
        stored = [node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)]
        self.local = {*stored, *(each.arg for each in arguments)}
        self.words, self.trees = (
            {each.arg for each in arguments}
            - {each.arg for each in arguments if not declares(self._hint(each))}
            - {*stored}
            for declares in (is_word, is_tree)
        )
        loops = [n for n in nodes if isinstance(n, ast.comprehension | ast.For) and isinstance(n.target, ast.Name)]
        over = Counter(typing.cast(ast.Name, loop.target).id for loop in loops if self.word(loop.iter))
        self.words |= {name for name, count in over.items() if stored.count(name) == count}

    def _hint(self, argument: ast.arg) -> Any:
        if argument.annotation is None:
            return Any
        hint = eval(ast.unparse(argument.annotation), dict(self.names))  # an annotation of the package
        return eval(hint, dict(self.names)) if isinstance(hint, str) else hint

    def _constant(self, name: str) -> bool:
        value = None if name in self.local else self.names.get(name)
        several = value if isinstance(value, tuple) else (value,)
        return all(isinstance(each, bool | str | enum.EnumType) for each in several)

    def word(self, node: ast.AST) -> bool:
        """Whether an expression is a word, a flag or a count of structure."""
        match node:
            case ast.Constant() | ast.Call(func=ast.Name(id="len")):
                return True
            case ast.Name(id=name):
                return name in self.words or self._constant(name)
            case ast.Attribute(value=ast.Name(id=base), attr=name):
                return name in STATIC or self._constant(base)
            case ast.Attribute(attr=name):
                return name in STATIC
            case ast.Tuple(elts=parts):
                return all(map(self.word, parts))
            case ast.BinOp(left=left, right=right):
                return self.word(left) and self.word(right)
        return False

    def told(self, node: ast.AST) -> bool:
        """Whether the truth of an expression is."""
        match node:
            case ast.BoolOp(values=parts):
                return all(map(self.told, parts))
            case ast.UnaryOp(op=ast.Not(), operand=one):
                return self.told(one)
            case ast.Call(func=ast.Name(id="any" | "all"), args=[ast.GeneratorExp(elt=one)]):
                return self.told(one)
            case ast.Compare(ops=[ast.Is() | ast.IsNot()], comparators=[ast.Constant(value=None)]):
                return True
            case ast.Compare(left=left, comparators=others):
                return all(map(self.word, (left, *others)))
        return self.word(node) or self._there(node)

    def _there(self, node: ast.AST) -> bool:
        """Whether something is there or not, or a function says so by its type."""
        match node:
            case ast.Name(id=name):
                return name in self.trees
            case ast.Attribute(attr=name):
                return name in TREES
            case ast.Call(func=ast.Name(id=name)) if name not in self.local:
                return getattr(self.names.get(name), "__annotations__", {}).get("return") in (bool, "bool")
        return False


def asked(scope: ast.AST) -> Iterator[ast.expr]:
    """What is tested for its truth, and every comparison."""
    for node in ast.walk(scope):
        match node:
            case ast.If(test=test) | ast.IfExp(test=test) | ast.While(test=test) | ast.Assert(test=test):
                yield test
            case ast.comprehension(ifs=tests):
                yield from tests
            case ast.BoolOp(values=[*tests, _]):  # the last is the result
                yield from tests
            case ast.UnaryOp(op=ast.Not(), operand=test) | ast.Match(subject=test):
                yield test
            case ast.Compare() | ast.Call(func=ast.Name(id="any" | "all")):
                yield node


def _is_verdict(node: ast.AST) -> bool:
    return isinstance(node, ast.FunctionDef) and ast.unparse(node.returns or ast.Constant(None)) == "Verdict"


def _is_whole_division(node: ast.AST) -> bool:
    return isinstance(node, ast.BinOp) and isinstance(node.op, ast.FloorDiv | ast.Mod)


def _scopes(tree: ast.AST) -> Iterator[ast.AST]:
    """Functions and methods, each with all inside it, and what is left."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.ClassDef):
            yield from _scopes(node)
        elif not _is_verdict(node):
            yield node


def faults(tree: ast.Module, names: dict[str, Any]) -> list[str]:
    """What no formula may say."""
    found = []
    for scope in _scopes(tree):
        known = Structure(scope, names)
        found += [f"asks {ast.unparse(test)}" for test in asked(scope) if not known.told(test)]
        found += [f"divides {ast.unparse(node)}" for node in ast.walk(scope) if _is_whole_division(node)]
    for node in ast.walk(tree):
        match node:
            case ast.Import(names=aliases):
                found += [f"imports {alias.name}" for alias in aliases if alias.name.split(".")[0] not in PLAIN]
            case ast.ImportFrom(module=module) if str(module).split(".")[0] not in PLAIN:
                found.append(f"imports {module}")
            case ast.Call(func=ast.Name(id=name)) if name in BUILTINS:
                found.append(f"calls {name}")
    return found


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(FOLDER)))
def test_a_formula_imports_no_array_library_and_branches_on_no_value(path):
    assert faults(ast.parse(path.read_text()), names_of(path)) == []


MUTANTS = {
    "import numpy": "imports numpy",
    "import jax.numpy as jnp": "imports jax.numpy",
    "from math import sqrt": "imports math",
    "if x > 0: pass": "asks x > 0",
    "if point.pipeline == 1: pass": "asks point.pipeline == 1",
    "while x: pass": "asks x",
    "assert x": "asks x",
    "y = 1.0 if x else 2.0": "asks x",
    "y = x or 1.0": "asks x",
    "y = not x": "asks x",
    "y = x * (x > point.tensor)": "asks x > point.tensor",
    "y = [each for each in xs if each]": "asks each",
    "y = [each for each in law.by_tier if each]": "asks each",
    "y = any(each > 1 for each in xs)": "asks each > 1",
    "if any(each for each in xs): pass": "asks any((each for each in xs))",
    "if block.repeats: pass": "asks block.repeats",
    "if block.exchanges == x: pass": "asks block.exchanges == x",
    "if total(xs): pass": "asks total(xs)",
    "if x.any(): pass": "asks x.any()",
    "y = any(xs)": "asks any(xs)",
    "tiers = x\n    if tiers: pass": "asks tiers",
    "y = {True: 1.0, False: x}[x > 0]": "asks x > 0",
    "y = max(x, 1.0)": "calls max",
    "y = int(x)": "calls int",
    "y = x // 2": "divides x // 2",
}


@pytest.mark.parametrize("path", [FOLDER / "placement.py", FOLDER / "traffic.py"], ids=lambda path: path.stem)
@pytest.mark.parametrize("planted", MUTANTS)
def test_a_planted_branch_or_library_is_caught(planted, path):
    head = "def planted(x: Scalar, xs: list[Scalar], tiers: tuple[Tier, ...], point: PlanPoint):"
    source = f"{path.read_text()}\n\n{head}\n    {planted}\n"
    names = {"PlanPoint": inputs.PlanPoint} | names_of(path)
    assert MUTANTS[planted] in faults(ast.parse(source), names)
