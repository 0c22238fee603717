"""One search over several processes, resumed where it was interrupted.

Process i of n evaluates the chunks whose number leaves i when divided by n; one collective of `jax.distributed` joins
what each has kept, so that all of them return the same answer, which is that of one process. Finished chunks are noted
in a file for each process; whoever starts again, in whatever number, leaves out what any of the files holds.
"""

import contextlib
import dataclasses
import hashlib
import json
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from optimize.lattice import Lattice
from optimize.plans import exhaustive
from optimize.plans.exhaustive import Best, Entry, Looked, chunk_count
from optimize.plans.plan_values import PlanValue
from optimize.status import CommandError, Status

SAVE_EVERY_S = 2.0
WAIT_S = 60.0  # for the other processes, once this one is done


def _say(error: CommandError) -> None:
    print(error.message, file=sys.stderr)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Sharding:
    """Which part of a search this process does, and where it notes what is done."""

    processes: int = 1
    process: int = 0
    coordinator: str | None = None  # host:port of process 0
    checkpoint: Path | None = None  # a directory
    wait_s: float = WAIT_S
    looked: Looked | None = None  # is told of every plan that this process evaluates
    lost: Callable[[CommandError], object] = _say  # what to do with the message before the process ends

    def check(self) -> None:
        """Raise where the directory of the checkpoint cannot be written, before anything is computed."""
        if self.checkpoint is None:
            return
        with contextlib.suppress(OSError, ValueError):
            self.checkpoint.mkdir(parents=True, exist_ok=True)
        if not (self.checkpoint.is_dir() and os.access(self.checkpoint, os.W_OK)):
            told = f"`checkpoint` is {str(self.checkpoint)!a}; expected a directory that can be written"
            raise CommandError(Status.bad_input, f"command line: {told}")

    def search(self, lattice: Lattice, value: PlanValue, top: int) -> Best:
        """The best of the whole lattice. Where the user interrupts it: the best of what was evaluated."""
        start, notes = time.perf_counter(), _Notes(self, _signature(lattice, value, top))
        foreign, own, finished = notes.read(top)
        numbers = range(self.process, chunk_count(lattice), self.processes)
        best = self._search(lattice, value, top, [n for n in numbers if n not in finished], own, notes)
        if self.process == 0:
            best = best.merged(foreign, top)
        return best if self.processes == 1 else self._joined(best, lattice, top, time.perf_counter() - start)

    def _search(
        self, lattice: Lattice, value: PlanValue, top: int, numbers: list[int], own: Best, notes: "_Notes"
    ) -> Best:
        found, progress = [own], _Progress(len(numbers))

        def done(number: int, best: Best) -> None:
            found[0] = best
            notes.add(number, best)
            progress.show()

        try:
            found[0] = exhaustive.search(lattice, value, top, numbers, own, done, self.looked)
        except KeyboardInterrupt:
            if not found[0].top or self.processes > 1:
                raise
        finally:
            notes.write(found[0])
            progress.clear()
        return found[0]

    def _joined(self, best: Best, lattice: Lattice, top: int, searched_s: float) -> Best:
        """The best of all processes, in all of them."""
        from jax.experimental import multihost_utils

        content = json.dumps(_as_json(best)).encode()
        longest = 64 * (2 * top + len(np.unique(exhaustive.cells_of_rows(lattice))) + 64)  # of any process
        padded = np.zeros(longest, np.uint8)
        padded[: len(content)] = np.frombuffer(content, np.uint8)
        with _standard_output_for_errors() as kept, self._time_limit("at the end", self.wait_s + searched_s, kept):
            parts = np.asarray(multihost_utils.process_allgather(padded)).reshape(self.processes, -1)
        joined = Best()
        for part in parts:
            joined = joined.merged(_from_json(json.loads(part.tobytes().rstrip(b"\0"))), top)
        return joined

    def connect(self) -> None:
        """Meet the other processes, before anything else is computed. JAX keeps the connection until the end."""
        import jax

        never_s = 1_000_000  # instead of JAX's own limits, which end the process without a message of ours
        with self._time_limit("at the start", self.wait_s):
            jax.distributed.initialize(
                self.coordinator,
                num_processes=self.processes,
                process_id=self.process,
                initialization_timeout=never_s,
                heartbeat_timeout_seconds=never_s,
                shutdown_timeout_seconds=5,
            )

    @contextlib.contextmanager
    def _time_limit(self, when: str, seconds: float, standard_output: int = 1) -> Iterator[None]:
        """End the process, and say why, if what is inside takes longer: it waits in C++, where no exception reaches."""
        kept = "" if self.checkpoint is None else f"; what is finished is kept in {self.checkpoint}"
        message = (
            f"process {self.process + 1} of {self.processes} waited {seconds:.0f} s for the others {when}, and at "
            f"least one did not answer{kept}"
        )

        def give_up() -> None:
            os.dup2(standard_output, 1)
            self.lost(CommandError(Status.incomplete, message))
            sys.stdout.flush()
            os._exit(Status.incomplete.exit_status)

        timer = threading.Timer(seconds, give_up)
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()


@contextlib.contextmanager
def _standard_output_for_errors() -> Iterator[int]:
    """What the communication library prints goes to standard error. Gives the answer's output, which is kept for it."""
    sys.stdout.flush()
    kept = os.dup(1)
    os.dup2(2, 1)
    try:
        yield kept
    finally:
        os.dup2(kept, 1)
        os.close(kept)


class _Progress:
    """How far the search is, on a terminal, once it has taken a second."""

    def __init__(self, total: int) -> None:
        self.total, self.count, self.start, self.shown = total, 0, time.perf_counter(), False

    def show(self) -> None:
        self.count += 1
        if sys.stderr.isatty() and time.perf_counter() - self.start > 1:
            print(f"\r{self.count:,} of {self.total:,} batches of plans", end="", file=sys.stderr, flush=True)
            self.shown = True

    def clear(self) -> None:
        if self.shown:
            print("\r\033[K", end="", file=sys.stderr, flush=True)


class _Notes:
    """The checkpoint of one process, and what it finds in those of others."""

    def __init__(self, sharding: Sharding, signature: str) -> None:
        self.folder, self.signature, self.chunks, self.saved = sharding.checkpoint, signature, set[int](), 0.0
        self.name = f"plan-{signature}-{sharding.process}of{sharding.processes}.json"
        self.of_this_run = [f"plan-{signature}-{i}of{sharding.processes}.json" for i in range(sharding.processes)]

    def read(self, top: int) -> tuple[Best, Best, set[int]]:
        """What processes of earlier runs found, what this one found, and all chunks that are finished."""
        foreign, own, finished = Best(), Best(), set[int]()
        for name, best, chunks in self._files():
            finished |= chunks
            if name == self.name:
                own, self.chunks = best, chunks
            elif name not in self.of_this_run:
                foreign = foreign.merged(best, top)
        return foreign, own, finished

    def _files(self) -> Iterator[tuple[str, Best, set[int]]]:
        if self.folder is None:
            return
        for path in sorted(self.folder.glob(f"plan-{self.signature}-*.json")):
            with contextlib.suppress(OSError, ValueError, KeyError):  # of another version: evaluated again
                content = json.loads(path.read_text())
                yield path.name, _from_json(content["best"]), set(content["chunks"])

    def add(self, number: int, best: Best) -> None:
        """Note a finished chunk; the file follows within seconds."""
        self.chunks.add(number)
        if time.perf_counter() - self.saved > SAVE_EVERY_S:
            self.write(best)

    def write(self, best: Best) -> None:
        """All at once: another name, then renamed."""
        if self.folder is None or not self.chunks:
            return
        self.folder.mkdir(parents=True, exist_ok=True)
        temporary = self.folder / f".{self.name}.{os.getpid()}.tmp"
        temporary.write_text(json.dumps({"chunks": sorted(self.chunks), "best": _as_json(best)}))
        os.replace(temporary, self.folder / self.name)
        self.saved = time.perf_counter()


def _signature(lattice: Lattice, value: PlanValue, top: int) -> str:
    """Of the question: notes of another one are not read."""
    asked = (lattice.workload, lattice.cluster, sorted(map(_named, lattice.fixed.items())), len(lattice), top)
    named = (value.name, sorted(value.factors.items()), exhaustive.CHUNK)
    return hashlib.sha256(repr((asked, named)).encode()).hexdigest()[:16]


def _named(field: tuple[str, Any]) -> str:
    """A fixed field in words that are the same in every process: sets have an order of their own in each."""
    name, value = field
    return f"{name}={sorted(map(str, value)) if isinstance(value, set | frozenset) else value}"


def _as_json(best: Best) -> dict[str, Any]:
    memory = best.least_memory
    return {
        "top": [dataclasses.astuple(entry) for entry in best.top],
        "cells": [(cell, *dataclasses.astuple(entry)) for cell, entry in best.cells.items()],
        "levels": [(level, *dataclasses.astuple(entry)) for level, entry in best.levels.items()],
        "least_memory": None if memory is None else dataclasses.astuple(memory),
        "counts": [best.evaluated, best.fitting],
    }


def _from_json(content: dict[str, Any]) -> Best:
    memory, (evaluated, fitting) = content["least_memory"], content["counts"]
    return Best(
        top=tuple(Entry(*pair) for pair in content["top"]),
        cells={cell: Entry(*pair) for cell, *pair in content["cells"]},
        levels={level: Entry(*pair) for level, *pair in content["levels"]},
        least_memory=None if memory is None else Entry(*memory),
        evaluated=evaluated,
        fitting=fitting,
    )
