"""The devices that JAX finds here, and how to keep all of them busy with the same program at once.

Devices of one node share what they share in a training step (cores and memory of a processor, power, links), so
everything is measured on all of them together. JAX is imported when the devices are looked for.
"""

import dataclasses
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

NODE, DEVICE = "node", "device"
"""Axes of the mesh: processes of `jax.distributed`, and the devices of each."""
_SHORTEST_S = 5e-3  # of a timed call: far above the clock and the call itself
_MOST_REPEATS = 100_000
_CALLS = (3, 15)  # timed calls: at least, and at most however much time there is

Arrays = tuple[Any, ...]
Body = Callable[[Arrays, Arrays], Arrays]
Shape = tuple[int, ...]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Node:
    """What is known of the machine before anything is measured."""

    kind: str  # as JAX names the device
    platform: str  # cpu | gpu | tpu | ...
    devices: int  # of all processes
    nodes: int  # processes
    memory_bytes: float  # of one device

    @property
    def per_node(self) -> int:
        """Devices of one process."""
        return self.devices // self.nodes


@dataclasses.dataclass(frozen=True, kw_only=True)
class Loop:
    """A program for every device: the state becomes `body(state, constants)`, over and over inside one call."""

    state: tuple[Shape, ...]
    constants: tuple[Shape, ...] = ()
    body: Body
    dtype: str = "float32"
    deviation: float = 1.0  # of the normal random numbers at the start; of constants too
    donated: bool = True  # each call goes on where the last one ended, without a copy


class Devices:
    """All devices of all processes, as a mesh of nodes and their devices."""

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        import jax

        self.clock = clock  # another one where a machine is loaded: the processor's own time
        devices = sorted(jax.devices(), key=lambda device: (device.process_index, device.id))
        nodes, local = jax.process_count(), jax.local_devices()
        self.mesh = jax.sharding.Mesh(np.array(devices).reshape(nodes, -1), (NODE, DEVICE))
        self.first = jax.process_index() == 0
        self.node = Node(
            kind=_kind(devices[0]),
            platform=devices[0].platform,
            devices=len(devices),
            nodes=nodes,
            memory_bytes=_memory_bytes(local[0], len(local)),
        )

    def seconds(self, loop: Loop, share_s: float) -> float:
        """Median seconds of one round of the body, from calls that take about `share_s` in all."""
        started, call_s = time.perf_counter(), _running(self.mesh, loop, self.clock)
        call_s(1)  # compiles
        once_s = max(call_s(1), 1e-7)
        repeats = self.agreed(int(np.clip(np.ceil(_SHORTEST_S / once_s), 1, _MOST_REPEATS)))
        left_s = share_s - (time.perf_counter() - started)
        calls = self.agreed(int(np.clip(left_s / (repeats * once_s), *_CALLS)))
        return float(np.median([call_s(repeats) for _ in range(calls)])) / repeats

    def call_s(self, arrays: int, calls: int = 50) -> float:
        """Median seconds of a call that only passes so many small arrays in and out."""
        call_s = _running(self.mesh, Loop(state=((8,),) * arrays, body=lambda state, _: state), self.clock)
        return float(np.median([call_s(1) for _ in range(calls + 1)][1:]))

    def agreed(self, value: int) -> int:
        """What the first process says, in all of them: programs with collectives must do the same everywhere."""
        if self.node.nodes == 1:
            return value
        from jax.experimental import multihost_utils

        return int(multihost_utils.broadcast_one_to_all(np.int32(value)))


def _running(mesh: Any, loop: Loop, clock: Callable[[], float]) -> Callable[[int], float]:
    """A loop compiled for the mesh, one part of each array on every device: seconds of a call of so many rounds."""
    import jax
    from jax.sharding import NamedSharding, PartitionSpec

    each, states, random = PartitionSpec((NODE, DEVICE)), len(loop.state), np.random.default_rng(0)

    def array(shape: Shape) -> Any:
        normal = loop.deviation * random.standard_normal(shape, np.float32)
        own, whole = normal.astype(jax.numpy.dtype(loop.dtype))[None], (mesh.size, *shape)
        return jax.make_array_from_callback(whole, NamedSharding(mesh, each), lambda _: own)

    def on_one(repeats: Any, *parts: Any) -> Any:
        own = tuple(part[0] for part in parts)
        constants = own[states:]
        held = jax.lax.fori_loop(0, repeats, lambda _, held: loop.body(held, constants), own[:states])
        return tuple(x[None] for x in held)

    state, constants = (tuple(map(array, shapes)) for shapes in (loop.state, loop.constants))
    specs = (PartitionSpec(), *[each] * (states + len(constants)))
    mapped = jax.shard_map(on_one, mesh=mesh, in_specs=specs, out_specs=(each,) * states, check_vma=False)
    run = jax.jit(mapped, donate_argnums=tuple(range(1, 1 + states)) if loop.donated else ())

    def call_s(repeats: int) -> float:
        nonlocal state
        started = clock()
        after = jax.block_until_ready(run(np.int32(repeats), *state, *constants))
        seconds = clock() - started
        state = after if loop.donated else state
        return seconds

    return call_s


def _kind(device: Any) -> str:
    return "processor" if device.platform == "cpu" else str(device.device_kind)


def _memory_bytes(device: Any, devices: int) -> float:
    """Of one device: what JAX may use of an accelerator's memory; of a processor's, an equal share of the machine's."""
    stats = None if device.platform == "cpu" else device.memory_stats()
    if stats and stats.get("bytes_limit"):
        return float(stats["bytes_limit"])
    return _machine_bytes() / devices


def _machine_bytes() -> float:
    """MemTotal of /proc/meminfo; elsewhere the pages that the system counts."""
    try:
        line = next(x for x in Path("/proc/meminfo").read_text().splitlines() if x.startswith("MemTotal:"))
        return 1024.0 * float(line.split()[1])
    except (OSError, StopIteration):
        return float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
