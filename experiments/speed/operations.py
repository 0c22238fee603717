"""The operations that a program needs: its jaxpr after folding, common sub-expressions and dead code are removed.

XLA's own operation count is no yardstick: it duplicates producers when it fuses. This count is of the mathematics as
written, so it bounds what any compiler that keeps the formulas could run.
"""

import operator
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

_PRIMITIVES = {
    "add_multiply": "add add_any sub mul neg square",
    "divide": "div",
    "max_min": "max min floor ceil abs sign select_n gt ge lt le eq ne and or not",
    "square_root": "sqrt rsqrt",
    "exp_log": "exp exp2 log log1p pow",
}
KINDS = {primitive: kind for kind, primitives in _PRIMITIVES.items() for primitive in primitives.split()}
"""Primitive to kind. One that is in none of these tables is an error, so that none is forgotten."""

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
    """Values by number: the same operation on the same operands is the same value."""

    def __init__(self) -> None:
        self.nodes: list[Node] = []
        self._numbers: dict[Any, int] = {}

    def leaf(self, size: int, constant: float | None = None) -> int:
        """A new input, or a constant (equal constants are one value)."""
        key = ("constant", constant) if constant is not None else ("input", len(self.nodes))
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
        if primitive == "div" and self._power_of_two(operands[1]):
            primitive = "mul"  # by the exact reciprocal, as every compiler does
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

    def _power_of_two(self, number: int) -> bool:
        constant = self.nodes[number].constant
        return constant is not None and constant != 0 and abs(constant).hex().split("p")[0] == "0x1.0000000000000"

    def _intern(self, key: Any, node: Node) -> int:
        if key not in self._numbers:
            self._numbers[key] = len(self.nodes)
            self.nodes.append(node)
        return self._numbers[key]

    def alive(self, outputs: list[int]) -> Iterator[Node]:
        """The values that the outputs depend on."""
        seen: set[int] = set()
        waiting = list(outputs)
        while waiting:
            number = waiting.pop()
            if number not in seen:
                seen.add(number)
                waiting.extend(self.nodes[number].operands)
                yield self.nodes[number]


def operations(function: Callable[..., Any], *arguments: Any) -> dict[str, float]:
    """Operations of each kind for one element of the largest result, each on arrays of its own size.

    What depends on scalars alone is done once for a batch and does not count; in a broadcast grid an operation on a
    shorter axis counts by its share.
    """
    import jax

    closed = jax.make_jaxpr(function)(*arguments)
    program = Program()
    inputs = [program.leaf(variable.aval.size) for variable in closed.jaxpr.invars]
    outputs = _walk(program, closed.jaxpr, closed.consts, inputs)
    largest = max(program.nodes[number].size for number in outputs)
    count: Counter[str] = Counter()
    for node in program.alive(outputs):
        if node.primitive in KINDS and node.size > 1:
            count[KINDS[node.primitive]] += node.size  # in whole elements: sums of shares would round
    return {kind: count[kind] / largest for kind in _PRIMITIVES}


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
    if name in FREE:
        return program.apply(name, operands[:1], size, str(equation.params))
    if name in KINDS:
        return program.apply(name, operands, size)
    raise ValueError(f"operation `{name}` has no kind in experiments/speed/operations.py")


def _number(value: Any) -> float | None:
    return float(value) if getattr(value, "size", 1) == 1 else None
