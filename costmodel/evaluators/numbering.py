"""A program as numbered values: its jaxpr with calls opened, constants folded and common sub-expressions as one value.

Every operation is taken element by element: a shape matters only as a size, and what moves elements is a value of its
own where it may change one.
"""

import operator
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

FREE = {"broadcast_in_dim", "convert_element_type", "reshape", "squeeze", "copy", "stop_gradient"}  # moves at most
CALLS = {"jit", "pjit", "closed_call", "custom_jvp_call", "custom_vjp_call", "remat", "checkpoint"}
COMMUTATIVE = {"add", "mul", "max", "min", "and", "or", "eq", "ne"}
FOLDED: dict[str, Callable[..., float]] = {"add": operator.add, "sub": operator.sub, "mul": operator.mul}
NEUTRAL = {("add", 0.0), ("mul", 1.0)}  # on either side
NEUTRAL_RIGHT = NEUTRAL | {("sub", 0.0), ("div", 1.0)}


class Node(NamedTuple):
    """One value. `constant` is its number where it is known when the program is compiled."""

    primitive: str
    operands: tuple[int, ...]
    size: int
    constant: float | None


class Program:
    """Values by number, operands before what they make: the same operation on the same operands is the same value."""

    def __init__(self) -> None:
        self.nodes: list[Node] = []
        self._numbers: dict[Any, int] = {}

    def leaf(self, size: int, constant: float | None = None) -> int:
        """A new input, or a constant (equal constants are one value)."""
        key = ("constant", constant.hex()) if constant is not None else ("input", len(self.nodes))  # -0 is not 0
        return self._intern(key, Node("leaf", (), size, constant))

    def apply(self, primitive: str, operands: list[int], size: int, parameters: str = "") -> int:
        """The value of an operation: an operand where the operation is neutral, else numbered by what it computes."""
        if all(self.nodes[number].size == 1 for number in operands):
            size = 1  # a number, whatever shape it is broadcast to
            if primitive in FREE:
                return operands[0]
        kept = self._neutral(primitive, operands)
        if kept is not None:
            return kept
        folded = self._folded(primitive, operands)
        if folded is not None:
            return self.leaf(1, folded)
        exact = self._reciprocal(operands[1]) if primitive == "div" else None
        if exact is not None:  # as every compiler does
            primitive, operands = "mul", [operands[0], self.leaf(1, exact)]
        ordered = tuple(sorted(operands) if primitive in COMMUTATIVE else operands)
        return self._intern((primitive, ordered, parameters), Node(primitive, ordered, size, None))

    def _folded(self, primitive: str, operands: list[int]) -> float | None:
        """The result of simple arithmetic on constants."""
        constants = [self.nodes[number].constant for number in operands]
        if primitive not in FOLDED or None in constants:
            return None
        return FOLDED[primitive](*constants)

    def power(self, base: int, exponent: int, size: int) -> int:
        """A constant integer power, by squaring."""
        if exponent == 0:
            return self.leaf(1, 1.0)
        result = base
        for bit in bin(abs(exponent))[3:]:
            result = self.apply("mul", [result, result], size)
            result = self.apply("mul", [result, base], size) if bit == "1" else result
        return result if exponent > 0 else self.apply("div", [self.leaf(1, 1.0), result], size)

    def _neutral(self, primitive: str, operands: list[int]) -> int | None:
        if len(operands) != 2:
            return None
        left, right = operands
        if (primitive, self.nodes[right].constant) in NEUTRAL_RIGHT:
            return left
        return right if (primitive, self.nodes[left].constant) in NEUTRAL else None

    def _reciprocal(self, number: int) -> float | None:
        """That of a power of two."""
        constant = self.nodes[number].constant
        known = constant is not None and constant != 0 and abs(constant).hex().split("p")[0] == "0x1.0000000000000"
        return 1 / constant if known and constant else None

    def _intern(self, key: Any, node: Node) -> int:
        if key not in self._numbers:
            self._numbers[key] = len(self.nodes)
            self.nodes.append(node)
        return self._numbers[key]

    def alive(self, outputs: list[int]) -> list[int]:
        """The values that the outputs depend on, in order."""
        seen: set[int] = set()
        waiting = list(outputs)
        while waiting:
            number = waiting.pop()
            if number not in seen:
                seen.add(number)
                waiting.extend(self.nodes[number].operands)
        return sorted(seen)


def numbered(function: Callable[..., Any], *arguments: Any) -> tuple[Program, list[int], list[int]]:
    """The values of a function of trees of arrays: the program, its inputs (the leaves in order) and its outputs."""
    import jax

    closed = jax.make_jaxpr(function)(*arguments)
    program = Program()
    inputs = [program.leaf(variable.aval.size) for variable in closed.jaxpr.invars]
    return program, inputs, _walk(program, closed.jaxpr, closed.consts, inputs)


def _walk(program: Program, jaxpr: Any, constants: Any, inputs: list[int]) -> list[int]:
    """Number every value of a jaxpr, calls opened up; returns the numbers of its outputs."""
    numbers: dict[Any, int] = dict(zip(jaxpr.invars, inputs, strict=True))
    for variable, value in zip(jaxpr.constvars, constants, strict=True):
        numbers[variable] = program.leaf(variable.aval.size, _number(value))

    def number(atom: Any) -> int:
        if hasattr(atom, "val"):
            return program.leaf(atom.aval.size, _number(atom.val))
        return numbers[atom]

    for equation in jaxpr.eqns:
        operands = [number(atom) for atom in equation.invars]
        name = equation.primitive.name
        if name in CALLS:
            inner = next(equation.params[key] for key in ("jaxpr", "call_jaxpr", "fun_jaxpr") if key in equation.params)
            results = _walk(program, getattr(inner, "jaxpr", inner), getattr(inner, "consts", ()), operands)
        else:
            results = [_apply(program, equation, operands)]
        numbers.update(zip(equation.outvars, results, strict=True))
    return [number(atom) for atom in jaxpr.outvars]


def _apply(program: Program, equation: Any, operands: list[int]) -> int:
    name, size = equation.primitive.name, equation.outvars[0].aval.size
    if name == "integer_pow":
        return program.power(operands[0], equation.params["y"], size)
    if name == "pow" and program.nodes[operands[1]].constant in (0.5, -0.5):
        return program.apply("sqrt" if program.nodes[operands[1]].constant == 0.5 else "rsqrt", operands[:1], size)
    if name == "convert_element_type" and _rounds(equation.params["new_dtype"]):
        return program.apply(f"convert to {equation.params['new_dtype']}", operands, size)
    return program.apply(name, operands[:1] if name in FREE else operands, size, _parameters(equation))


def _rounds(kind: np.dtype) -> bool:
    """Whether a conversion may change a number: to integers, verdicts, or floats of fewer bits than 32."""
    return kind.kind != "f" or kind.itemsize < 4


def _parameters(equation: Any) -> str:
    return str(equation.params) if equation.primitive.name in FREE else ""


def _number(value: Any) -> float | None:
    return float(value) if getattr(value, "size", 1) == 1 else None
