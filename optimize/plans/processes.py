"""One search over several processes, resumed where it was interrupted.

Process i of n evaluates the chunks whose number leaves i when divided by n; one collective of `jax.distributed` joins
what each has found best, so that all of them return the same answer, which is that of one process. Finished chunks are
noted in a file for each process (`checkpoint`); whoever starts again, in whatever number, leaves out what any holds.
"""

import atexit
import contextlib
import json
import os
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from typing import TypeVar

import numpy as np

from optimize.lattice import Lattice
from optimize.plans import exhaustive
from optimize.plans.best import Best
from optimize.plans.checkpoint import Checkpoint, best_from, best_json
from optimize.plans.exhaustive import Looked, chunk_count
from optimize.plans.inputs import Sharding
from optimize.plans.plan_values import PlanValue
from optimize.progress import bar
from optimize.status import CommandError, Status

T = TypeVar("T")
CONNECTED: list[int] = []  # which process this is where others are met, for whom JAX's exit handler would wait


def search_shared(
    lattice: Lattice, value: PlanValue, top: int, *, sharding: Sharding, looked: Looked | None = None
) -> Best:
    """The best of the whole lattice. Where the user interrupts it: the best of what was evaluated.

    `looked` is told of every plan that this process evaluates. Without it, one process alone leaves out what bounds
    dismiss.
    """
    if looked is None and sharding == Sharding() and lattice.floor_s is not None and value.function is None:
        return _search_alone(lattice, value, top)
    checkpoint = Checkpoint(sharding, lattice, value, top, exhaustive.CHUNK)
    foreign, own, finished = checkpoint.read(top)
    numbers = range(sharding.process, chunk_count(lattice), sharding.processes)
    left = [number for number in numbers if number not in finished]
    best, count = own, 0
    with bar(f"{len(lattice):,} plans", len(left)) as step:

        def done(number: int, so_far: Best) -> None:
            nonlocal best, count
            best, count = so_far, count + 1
            checkpoint.add(number, best)
            step(count)

        try:
            best = exhaustive.search(lattice, value, top, left, own, done, looked)
        except KeyboardInterrupt:
            if not best.top or sharding.processes > 1:
                raise
        finally:
            checkpoint.write(best)
    if sharding.process == 0:
        best = best.merged(foreign, top)
    return best if sharding.processes == 1 else joined(best, sharding, lattice, top)


def _search_alone(lattice: Lattice, value: PlanValue, top: int) -> Best:
    """The same without a record of chunks."""
    best = Best()
    with bar(f"{len(lattice):,} plans", len(lattice.ends)) as step:

        def done(rows: int, so_far: Best) -> None:
            nonlocal best
            best = so_far
            step(rows)

        try:
            best = exhaustive.sparing(lattice, value, top, done=done)
        except KeyboardInterrupt:
            if not best.top:
                raise
    return best


def joined(best: Best, sharding: Sharding, lattice: Lattice, top: int) -> Best:
    """The best of all processes, in all of them."""
    from jax.experimental import multihost_utils

    content = json.dumps(best_json(best)).encode()
    longest = 64 * (2 * top + len(np.unique(exhaustive.cells_of_rows(lattice))) + 64)  # of any process
    padded = np.zeros(longest, np.uint8)
    padded[: len(content)] = np.frombuffer(content, np.uint8)
    with standard_output_for_errors():
        gathered = _within(sharding.wait_s, lambda: multihost_utils.process_allgather(padded), sharding, "at the end")
    best_of_all = Best()
    for part in np.asarray(gathered).reshape(sharding.processes, -1):
        best_of_all = best_of_all.merged(best_from(json.loads(part.tobytes().rstrip(b"\0"))), top)
    return best_of_all


def connect(sharding: Sharding) -> None:
    """Meet the other processes, before anything else is computed. JAX keeps the connection until the end."""
    import jax

    CONNECTED.append(sharding.process)
    never_s = 1_000_000  # instead of JAX's own limits, which end the process without a message of ours

    def initialize() -> None:
        jax.distributed.initialize(
            sharding.coordinator,
            num_processes=sharding.processes,
            process_id=sharding.process,
            initialization_timeout=never_s,
            heartbeat_timeout_seconds=never_s,
            shutdown_timeout_seconds=max(60, round(sharding.wait_s)),  # one draws figures while others have ended
        )
        jax.devices()  # those of all processes: this waits for the others once more

    _within(sharding.wait_s, initialize, sharding, "at the start")


def _within(seconds: float, wait: Callable[[], T], sharding: Sharding, when: str) -> T:
    """What `wait` returns; it waits for the others in C++, where no exception reaches, so a thread of its own does it.

    Raises `CommandError` where they take longer. The process then ends without JAX's own exit handler, which would wait
    for them once more and abort.
    """
    future: Future[T] = Future()

    def work() -> None:
        try:
            future.set_result(wait())
        except Exception as error:
            future.set_exception(error)

    threading.Thread(target=work, daemon=True).start()
    try:
        return future.result(seconds)
    except TimeoutError:
        if future.done():
            raise
    atexit.register(_leave)
    finished = "" if sharding.checkpoint is None else f"; what is finished is kept in {sharding.checkpoint}"
    message = (
        f"process {sharding.process + 1} of {sharding.processes} waited {seconds:.0f} s for the others {when}, and at "
        f"least one did not answer{finished}"
    )
    raise CommandError(Status.incomplete, message)


def _leave() -> None:
    """End the process before the exit handlers that were registered earlier."""
    sys.stdout.flush()
    os._exit(Status.incomplete.exit_status)


@contextlib.contextmanager
def standard_output_for_errors() -> Iterator[None]:
    """What the communication library prints goes to standard error."""
    sys.stdout.flush()
    output = os.dup(1)
    os.dup2(2, 1)
    try:
        yield
    finally:
        os.dup2(output, 1)
        os.close(output)
