"""One search over several processes, resumed where it was interrupted.

Process i of n evaluates the chunks whose number leaves i when divided by n; at the end all are told what each has found
best (`others`), so that all of them return the same answer, which is that of one process. Finished chunks are noted in
a file for each process (`checkpoint`); whoever starts again, in whatever number, leaves out what any holds.
"""

import contextlib
import os
import sys
from collections.abc import Iterator

from optimize.lattice import Lattice
from optimize.others import Others, Sharding
from optimize.plans import exhaustive
from optimize.plans.best import Best
from optimize.plans.checkpoint import Checkpoint, best_from, best_json
from optimize.plans.exhaustive import Looked, chunk_count
from optimize.plans.plan_values import PlanValue
from optimize.progress import bar
from optimize.status import CommandError, Status


def search_shared(
    lattice: Lattice,
    value: PlanValue,
    top: int,
    *,
    sharding: Sharding,
    others: Others | None = None,
    looked: Looked | None = None,
) -> Best:
    """The best of the whole lattice, with the `others`; without them, of the part of this process.

    Where the user interrupts one process alone: the best of what was evaluated. `looked` is told of every plan that
    this process evaluates. Without it, one process alone leaves out what bounds dismiss.
    """
    if looked is None and sharding == Sharding() and exhaustive.may_spare(lattice, value):
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
            if others is not None:
                others.check()

        try:
            best = exhaustive.search(lattice, value, top, left, own, done, looked)
        except KeyboardInterrupt:
            if not best.top or sharding.processes > 1:
                raise
        finally:
            checkpoint.write(best)
    if sharding.process == 0:
        best = best.merged(foreign, top)
    return best if others is None else joined(best, others, checkpoint.signature, top)


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


def joined(best: Best, others: Others, signature: str, top: int) -> Best:
    """The best of all processes, in all of them. Raises `CommandError` where they search for different things."""
    told = others.told([signature, best_json(best)])
    for number, (question, _) in enumerate(told):
        if question != told[0][0]:
            wrong = f"process {number} of {len(told)} searches something else than process 0"
            raise CommandError(Status.bad_input, f"command line: {wrong}; expected the same command for all of them")
    best_of_all = Best()
    for _, part in told:
        best_of_all = best_of_all.merged(best_from(part), top)
    return best_of_all


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
