"""A program of element by element operations as a few loops over all points, cut by us and not by the compiler.

XLA fuses into one output alone, so that what several outputs share is computed anew in each, or goes through memory.
Here the numbered values of a program (`numbering`) are cut in their order into groups, and each group is one fusion of
XLA's with all outputs that others read: nothing is computed twice, and few values pass through memory. The points go
through the groups a chunk at a time, so that what passes stays in the second cache.

Groups are as large as XLA still turns into one loop of vectors: beyond some 500 operations it leaves functions out of
line, a tenth as fast. Its fusion is a dialect's operation that no release promises; where it fails, `machine_code.py`
has other ways. Layouts are given, which its own pass would take from fusions: compile with `OPTIONS`.
"""

import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from costmodel.evaluators.loop_text import LoopText, is_verdict
from costmodel.evaluators.numbering import Program, numbered
from costmodel.evaluators.programs import COMPILER_OPTIONS

GROUP = 150  # operations in a loop
CHUNK = 256  # points: a thousand values that pass take 1 MB, of which half lives at a time
OPTIONS = {**COMPILER_OPTIONS["fused gradient"], "xla_disable_hlo_passes": "layout-assignment,fusion"}

Shapes = tuple[tuple[int, ...], ...]
"""Of each leaf, in order."""


class Cut(NamedTuple):
    """A program in groups: the values of each that it computes, those it reads of others, and those others read."""

    program: Program
    places: dict[int, tuple[int, int]]  # of an input: which array, which row
    groups: list[tuple[list[int], list[int], list[int]]]
    outputs: list[int]


def in_loops(program: Callable[..., Any], trees: Sequence[Any], shapes: Sequence[Shapes]) -> Callable[..., Any]:
    """`program` of trees as a function of their packed leaves (`machine_code.packed`), for `jax.jit`.

    Leaves are numbers, or arrays over the points. Raises a `ValueError` at what is no operation element by element.
    """
    import jax

    leaves = [jax.ShapeDtypeStruct(shape, "float32") for some in shapes for shape in some]
    points = max((shape[0] for some in shapes for shape in some if shape), default=0)
    structures = [jax.tree.structure(tree) for tree in trees]
    counts = [len(some) for some in shapes]
    results: list[tuple[Any, Shapes]] = []

    def of_leaves(*leaves: Any) -> Any:
        rest, grown = iter(leaves), []
        for structure, count in zip(structures, counts, strict=True):
            grown.append(jax.tree.unflatten(structure, [next(rest) for _ in range(count)]))
        flat, structure = jax.tree.flatten(program(*grown))
        results[:] = [(structure, tuple(np.shape(leaf) for leaf in flat))]
        return flat

    numbers, inputs, outputs = numbered(of_leaves, *leaves)
    cut = _cut(numbers, dict(zip(inputs, _places(shapes), strict=True)), outputs)
    chunk = _chunk(points)

    def of_arrays(*arrays: Any) -> Any:
        flat = [array for tree in arrays for array in tree]
        rows = _rows(cut, flat, points, chunk)
        structure, result_shapes = results[0]
        found = [rows[cut.outputs.index(number)] for number in outputs]
        own = [row if shape else row.ravel()[0] for row, shape in zip(found, result_shapes, strict=True)]
        return jax.tree.unflatten(structure, own)

    return of_arrays


def _places(shapes: Sequence[Shapes]) -> Iterator[tuple[int, int]]:
    """Of each leaf: its array among all of all trees, and its row there."""
    first = 0
    for some in shapes:
        kinds, filled = list(dict.fromkeys(some)), [0] * len(set(some))
        for shape in some:
            kind = kinds.index(shape)
            yield first + kind, filled[kind]
            filled[kind] += 1
        first += len(kinds)


def _chunk(points: int) -> int:
    """Points that go through all loops together: as many as divide a batch into equal parts, at most `CHUNK`."""
    parts = -(-points // CHUNK)
    return points // parts if parts and points % parts == 0 else points


def _cut(program: Program, places: dict[int, tuple[int, int]], outputs: list[int]) -> Cut:
    """Groups of `GROUP` values that differ by the point; numbers of the whole batch are computed where they are read.

    Where no value differs by the point (a batch of one), all are cut.
    """
    alive, wanted = program.alive(outputs), list(dict.fromkeys(outputs))
    most = max(program.nodes[number].size for number in alive)
    own = [number for number in alive if program.nodes[number].operands and program.nodes[number].size == most]
    parts = [own[start : start + GROUP] for start in range(0, len(own), GROUP)]
    of = {number: place for place, part in enumerate(parts) for number in part}
    parts.append([number for number in wanted if number not in of])  # what no group computes: inputs, constants
    read_by: dict[int, set[int]] = {number: {-1} for number in wanted}
    reads: list[list[int]] = [[] for _ in parts]
    for place, part in enumerate(parts):
        for number in _read(program, part, of):
            read_by.setdefault(number, set()).add(place)
            if of[number] != place:
                reads[place].append(number)
    told = [[number for number in part if read_by.get(number, set()) - {place}] for place, part in enumerate(parts)]
    return Cut(program, places, [group for group in zip(parts, reads, told, strict=True) if group[0]], wanted)


def _read(program: Program, part: list[int], of: dict[int, int]) -> list[int]:
    """The values of groups that a group reads, directly or through numbers of the whole batch."""
    found, waiting = dict[int, None](), [j for number in part for j in program.nodes[number].operands]
    while waiting:
        number = waiting.pop()
        if number in of:
            found[number] = None
        else:
            waiting.extend(program.nodes[number].operands)
    return list(found)


def _rows(cut: Cut, arrays: list[Any], points: int, chunk: int) -> list[Any]:
    """The outputs over all points, a chunk at a time."""
    import jax
    from jax import numpy as jnp

    if chunk == points:
        return [row[0] if points else row[0, 0] for row in _through(cut, arrays, max(points, 1))]

    def step(number: Any, results: Any) -> Any:
        part = [jax.lax.dynamic_slice_in_dim(a, number * chunk, chunk, 1) if a.ndim == 2 else a for a in arrays]
        rows = jnp.concatenate(_through(cut, part, chunk))
        return jax.lax.dynamic_update_slice(results, rows, (0, number * chunk))

    results = jnp.zeros((len(cut.outputs), points), jnp.float32)
    return list(jax.lax.fori_loop(0, points // chunk, step, results))


def _through(cut: Cut, arrays: list[Any], points: int) -> list[Any]:
    """The outputs of one chunk, each of shape (1, points)."""
    made: dict[int, Any] = {}
    for part, reads, told in cut.groups:
        text = LoopText(cut.program, cut.places, [array.shape for array in arrays], points)
        loop = text.of(part, reads, told)
        results = tuple("bool" if is_verdict(cut.program.nodes[number]) else "float32" for number in told)
        operands = [arrays[place] for place in text.used] + [made[number] for number in reads]
        made.update(zip(told, _primitive().bind(*operands, text=loop, results=results, points=points), strict=True))
    return [made[number] for number in cut.outputs]


@functools.cache
def _primitive() -> Any:
    """JAX's operation that is one loop: the function of a `LoopText`, called."""
    from jax.core import ShapedArray
    from jax.extend.core import Primitive
    from jax.interpreters import mlir
    from jaxlib.mlir import ir
    from jaxlib.mlir.dialects import func

    def shapes_of(*operands: Any, text: str, results: tuple[str, ...], points: int) -> list[Any]:
        return [ShapedArray((1, points), np.dtype(kind)) for kind in results]

    def lower(context: Any, *operands: Any, text: str, results: tuple[str, ...], points: int) -> Any:
        module = context.module_context
        parsed = ir.Module.parse(text, module.context)
        loop = parsed.body.operations[0].operation.clone(ip=ir.InsertionPoint(module.module.body))
        name = ir.StringAttr(module.symbol_table.insert(loop)).value
        types = ir.FunctionType(ir.TypeAttr(loop.attributes["function_type"]).value).results
        return func.CallOp(types, ir.FlatSymbolRefAttr.get(name), operands).results

    loop = Primitive("loop")
    loop.multiple_results = True
    loop.def_abstract_eval(shapes_of)
    mlir.register_lowering(loop, lower)
    return loop
