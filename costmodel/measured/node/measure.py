"""What is measured on a node, in which order, and how much of the time each gets.

Sizes follow from the node's own speed, so that the whole fits in the time that the user gives: a first small product
tells how large the others may be. Everything that the constants need comes first; what time is left makes it surer.
"""

import dataclasses
import time
from collections.abc import Callable, Iterator

from costmodel.measured.node import programs
from costmodel.measured.node.devices import Devices, Loop
from costmodel.measured.node.table import LINEAR, Measured

Say = Callable[[str], None]

_OPS = ("all_reduce", "all_gather", "reduce_scatter", "alltoall", "sendrecv")
_LARGEST = 8192  # of a dimension of a product
_KERNELS = 16
_ARRAYS = 64  # that a step of a small model takes and returns
_LEAST_SHARE_S = 0.02
_BYTES = {"float32": 4, "bfloat16": 2}
_NAMES = {"float32": "fp32", "bfloat16": "bf16"}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Task:
    """One measurement: its program, and what it becomes when its seconds are known."""

    label: str
    loop: Callable[[], Loop]
    measured: Callable[[float], Measured]
    weight: float = 1.0
    needed: bool = False  # a constant rests on it: it is done however little time there is


def measure(devices: Devices, seconds: float, say: Say) -> list[Measured]:
    """All measurements, in about so many seconds where compilers are quick."""
    started = time.perf_counter()
    main = "float32" if devices.node.platform == "cpu" else "bfloat16"
    say(f"{devices.node.devices} x {devices.node.kind}, overhead")
    answer = [_overhead(devices)]
    probe = next(_products(128 if main == "float32" else 1024, (main,)))
    answer.append(_run(devices, probe, _LEAST_SHARE_S))
    tasks = sorted(_tasks(devices, main, answer[-1], seconds), key=lambda task: not task.needed)
    for i, task in enumerate(tasks):
        left_s = seconds - (time.perf_counter() - started)
        if not devices.agreed(int(task.needed or left_s > 0.0)):
            break
        share_s = max(left_s * task.weight / sum(other.weight for other in tasks[i:]), _LEAST_SHARE_S)
        say(f"{task.label} ({i + 1} of {len(tasks)})")
        answer.append(_run(devices, task, share_s))
    return answer


def _run(devices: Devices, task: Task, share_s: float) -> Measured:
    return task.measured(devices.seconds(task.loop(), share_s))


def _overhead(devices: Devices) -> Measured:
    return Measured(kind="overhead", op="call", sizes=(("arrays", _ARRAYS),), seconds=devices.call_s(_ARRAYS))


def _tasks(devices: Devices, main: str, probe: Measured, seconds: float) -> Iterator[Task]:
    """Everything else, from sizes of which one round takes some thousandths of the time."""
    flop = probe.work / probe.seconds * 0.004 * seconds
    largest = devices.agreed(_power_of_two((flop / 4.0) ** (1 / 3), 256, _LARGEST))
    yield from _kernels()
    yield dataclasses.replace(next(_products(largest, (main,))), needed=True)
    for size in (largest // 2, largest // 4):
        yield from _products(size, (main,))
    yield from _oblong(largest, main)
    for product in _products(largest // 2, tuple(other for other in _BYTES if other != main)):
        yield dataclasses.replace(product, needed=True)
    yield from _memory_tasks(devices, largest, main)
    yield from _attention(devices, largest, main)
    yield from _exchanges(devices, largest)


def _power_of_two(value: float, low: int, high: int) -> int:
    return int(2 ** max(low.bit_length() - 1, min(high.bit_length() - 1, int(max(value, 1.0)).bit_length() - 1)))


def _kernels() -> Iterator[Task]:
    yield Task(
        label="overhead of a kernel",
        loop=lambda: programs.kernels(_KERNELS),
        measured=lambda s: Measured(kind="overhead", op="kernel", seconds=s / _KERNELS),
        needed=True,
    )


def _products(size: int, dtypes: tuple[str, ...]) -> Iterator[Task]:
    for dtype in dtypes:
        yield _product(size, size, size, dtype)


def _oblong(largest: int, dtype: str) -> Iterator[Task]:
    """Linear layers forward and backward, in shapes of models: more rows than columns, and the other way round."""
    half, quarter, eighth = largest // 2, largest // 4, max(largest // 8, 64)
    yield dataclasses.replace(_linear(half, half, half, dtype), needed=True)
    yield dataclasses.replace(_linear(half, half, eighth, dtype), needed=True)
    yield _linear(half, eighth, half, dtype)
    yield _linear(largest, eighth, eighth, dtype)
    yield _linear(quarter, largest, half, dtype)
    yield _linear(largest, quarter, quarter, dtype)


def _linear(m: int, n: int, k: int, dtype: str) -> Task:
    sizes = (("m", m), ("n", n), ("k", k))
    return Task(
        label=f"linear layer {m} x {n} x {k} {_NAMES[dtype]}",
        loop=lambda: programs.linear(m, n, k, dtype),
        measured=lambda s: Measured(
            kind="gemm", op=LINEAR, dtype=_NAMES[dtype], sizes=sizes, seconds=s, work=6.0 * m * n * k
        ),
        weight=2.0,
    )


def _product(m: int, n: int, k: int, dtype: str) -> Task:
    sizes = (("m", m), ("n", n), ("k", k))
    return Task(
        label=f"matmul {m} x {n} x {k} {_NAMES[dtype]}",
        loop=lambda: programs.matmul(m, n, k, dtype),
        measured=lambda s: Measured(
            kind="gemm", op="jax matmul", dtype=_NAMES[dtype], sizes=sizes, seconds=s / 2, work=2.0 * m * n * k
        ),
        weight=2.0,
    )


def _memory_tasks(devices: Devices, largest: int, dtype: str) -> Iterator[Task]:
    """A stream far beyond the caches, and the operators of a layer that move more than they compute."""
    elements = devices.agreed(int(min(32 * largest**2, 0.02 * devices.node.memory_bytes / _BYTES[dtype])))
    yield Task(
        label="memory bandwidth",
        loop=lambda: programs.triad(elements, dtype),
        needed=True,
        measured=lambda s: Measured(
            kind="hbm", op="jax triad", dtype=_NAMES[dtype], seconds=s, work=3.0 * _BYTES[dtype] * elements
        ),
        weight=2.0,
    )
    rows, width = largest, largest
    for op, make in (("rms_norm", programs.norm), ("swiglu", programs.gate)):
        for tokens in (rows, rows // 4):
            task = _elementwise(op, lambda r=tokens, run=make: run(r, width, dtype), tokens, width, dtype)
            yield dataclasses.replace(task, needed=tokens == rows)
    yield _elementwise("gelu", lambda: programs.gelu(rows, width, dtype), rows, width, dtype)
    yield _elementwise("cross_entropy", lambda: programs.loss(rows // 2, 8 * width), rows // 2, 8 * width, "float32")
    updated = 4 * largest**2
    yield Task(
        label="optimizer",
        needed=True,
        loop=lambda: programs.adam(updated),
        measured=lambda s: Measured(
            kind="optimizer", op="adam", dtype="fp32", sizes=(("parameters", updated),), seconds=s
        ),
    )


def _elementwise(op: str, loop: Callable[[], Loop], rows: int, width: int, dtype: str) -> Task:
    sizes = (("rows", rows), ("width", width))
    return Task(
        label=op.replace("_", " "),
        loop=loop,
        measured=lambda s: Measured(
            kind="elementwise", op=f"{op} forward and backward", dtype=_NAMES[dtype], sizes=sizes, seconds=s, plain=True
        ),
    )


def _attention(devices: Devices, largest: int, dtype: str) -> Iterator[Task]:
    kernel = programs.attention_kernel(devices.node.platform)
    heads, head_size = (4, 64) if kernel == "plain" else (16, 128)
    for tokens in (largest // 2, largest // 4, largest // 8):
        batch = max(1, largest // (2 * tokens))
        for backward in (False, True):
            task = _one_attention((batch, tokens, heads, head_size), dtype, backward, kernel)
            yield dataclasses.replace(task, needed=backward and tokens == largest // 2)


def _one_attention(shape: tuple[int, ...], dtype: str, backward: bool, kernel: str) -> Task:
    names = ("batch", "seq", "heads", "headdim")
    op = f"{kernel} {'fwd+bwd' if backward else 'fwd'} causal"
    return Task(
        label=f"attention over {shape[1]} tokens",
        loop=lambda: programs.attention(shape, dtype, backward, kernel),
        measured=lambda s: Measured(
            kind="attention",
            op=op,
            dtype=_NAMES[dtype],
            sizes=tuple(zip(names, shape, strict=True)),
            seconds=s,
            plain=kernel != "cudnn",
        ),
    )


def _exchanges(devices: Devices, largest: int) -> Iterator[Task]:
    """Collectives by size over the devices of a node, and over those of all nodes."""
    node, top = devices.node, _power_of_two(largest**2, 2**16, 2**26)
    groups = {node.per_node: 1, node.devices: node.nodes}
    for ranks, nodes in groups.items():
        for elements in (top, top // 16, top // 256) if ranks > 1 else ():
            for op in _OPS:
                task = _exchange(op, max(elements // ranks, 1) * ranks, ranks, nodes)
                yield dataclasses.replace(task, needed=op == "all_reduce" and elements != top // 16)


def _exchange(op: str, elements: int, ranks: int, nodes: int) -> Task:
    return Task(
        label=f"{op} of {4 * elements} bytes over {ranks} devices",
        loop=lambda: programs.collective(op, elements, ranks, nodes),
        measured=lambda s: Measured(
            kind="collective", op=op, dtype="fp32", seconds=s, work=4.0 * elements, ranks=ranks, nodes=nodes
        ),
    )
