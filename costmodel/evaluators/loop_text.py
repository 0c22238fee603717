"""One loop over points as a module of StableHLO: a fusion of XLA's with all its outputs, as text."""

from collections.abc import Mapping, Sequence

import numpy as np

from costmodel.evaluators.numbering import FREE, Node, Program

_NAMES = {
    "add": "add",
    "add_any": "add",
    "sub": "subtract",
    "mul": "multiply",
    "div": "divide",
    "max": "maximum",
    "min": "minimum",
    "neg": "negate",
    "floor": "floor",
    "abs": "abs",
    "sign": "sign",
    "sqrt": "sqrt",
    "rsqrt": "rsqrt",
    "exp": "exponential",
    "log": "log",
    "log1p": "log_plus_one",
    "pow": "power",
    "and": "and",
    "or": "or",
    "not": "not",
}
_COMPARED = {"gt", "ge", "lt", "le", "eq", "ne"}
_LOGICAL = {"and", "or", "not"}


def is_verdict(node: Node) -> bool:
    """Whether a value is true or false, not a number."""
    return node.primitive in _COMPARED | _LOGICAL


class LoopText:
    """Writes one loop; `used` is then the arrays that it reads, which come before what other loops have made."""

    def __init__(
        self,
        program: Program,
        places: Mapping[int, tuple[int, int]],
        shapes: Sequence[tuple[int, ...]],
        points: int,
    ) -> None:
        self.used: dict[int, None] = {}
        self._program, self._places, self._points = program, places, points
        self._shapes = shapes
        self._arrays = [f"tensor<{'x'.join(map(str, shape))}xf32>" for shape in shapes]
        self._numbers, self._verdicts = f"tensor<1x{points}xf32>", f"tensor<1x{points}xi1>"
        self._names: dict[int, str] = {}
        self._lines: list[str] = []

    def of(self, part: Sequence[int], reads: Sequence[int], told: Sequence[int]) -> str:
        """The values of `part`: from arrays and from `reads`, which others made, those that are `told`."""
        self._names |= {number: f"%r{number}" for number in reads}
        for number in part:
            self._write(number)
        given = [(f"a{array}", self._arrays[array]) for array in self.used]
        given += [(f"r{number}", self._type(number)) for number in reads]
        results, types = [self._names[number] for number in told], ", ".join(map(self._type, told))
        outside, inside = (", ".join(f"%{mark}{name}: {kind}" for name, kind in given) for mark in ("o", ""))
        operands = ", ".join(f"%o{name}" for name, _ in given)
        several = len(told) > 1
        returned = ", ".join(f"%f#{place}" for place in range(len(told))) if several else "%f"
        return "\n".join(
            (
                f"module {{ func.func private @loop({outside}) -> ({types}) {{",
                f'%f{f":{len(told)}" if several else ""} = "mhlo.fusion"({operands})',
                f"<{{fusion_kind = #mhlo<fusion_kind kLoop>}}> ({{ ^bb0({inside}):",
                *self._lines,
                f"mhlo.return {', '.join(results)} : {types}",
                f"}}) {{output_operand_aliasing = []}} : ({', '.join(kind for _, kind in given)}) -> ({types})",
                f"return {returned} : {types} }} }}",
            )
        )

    def _type(self, number: int) -> str:
        return self._verdicts if is_verdict(self._program.nodes[number]) else self._numbers

    def _write(self, number: int) -> str:
        """The name of a value, after what it needs is written."""
        node = self._program.nodes[number]
        if number not in self._names:
            operands = [self._write(operand) for operand in node.operands]
            if node.primitive in FREE:
                self._names[number] = operands[0]
                return operands[0]
            line = self._operation(node, operands) if operands else self._leaf(number, node.constant)
            self._names[number] = f"%v{number}"
            self._lines.append(f"%v{number} = {line}")
        return self._names[number]

    def _leaf(self, number: int, constant: float | None) -> str:
        """A constant, or a row of an array; a number of the whole batch goes to all points."""
        if constant is not None:
            bits = np.float32(constant).view(np.uint32)
            return f"stablehlo.constant dense<0x{bits:08X}> : {self._numbers}"
        if number not in self._places:
            raise ValueError("a program holds an array of its own: costmodel/evaluators/loops.py takes arguments alone")
        array, row = self._places[number]
        kind, here = self._arrays[array], f"{row}:{row + 1}"
        self.used[array] = None
        if len(self._shapes[array]) == 2:  # a row for all points
            return f"stablehlo.slice %a{array} [{here}, 0:{self._points}] : ({kind}) -> {self._numbers}"
        self._lines.append(f"%s{number} = stablehlo.slice %a{array} [{here}] : ({kind}) -> tensor<1xf32>")
        return f"stablehlo.broadcast_in_dim %s{number}, dims = [0] : (tensor<1xf32>) -> {self._numbers}"

    def _operation(self, node: Node, names: list[str]) -> str:
        kind, given = self._type(node.operands[-1]), ", ".join(names)
        if node.primitive in _COMPARED:
            return f"stablehlo.compare {node.primitive.upper()}, {given}, FLOAT : ({kind}, {kind}) -> {self._verdicts}"
        if node.primitive == "select_n":  # which has the value where it does not hold first
            return f"stablehlo.select {names[0]}, {names[2]}, {names[1]} : {self._verdicts}, {kind}"
        if node.primitive == "square":
            return f"stablehlo.multiply {given}, {given} : {kind}"
        if node.primitive not in _NAMES:
            raise ValueError(f"operation `{node.primitive}` is not in costmodel/evaluators/loops.py")
        return f"stablehlo.{_NAMES[node.primitive]} {given} : {kind}"
