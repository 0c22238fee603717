"""What of a search is finished, in a file for each process: whoever starts again leaves out what any of them holds."""

import contextlib
import dataclasses
import hashlib
import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from costmodel.inputs import schedule_rows
from optimize.lattice import Lattice
from optimize.others import Sharding
from optimize.plans.best import Best, Entry
from optimize.plans.plan_values import PlanValue
from optimize.status import CommandError, Status

SAVE_EVERY_S = 2.0


def check_checkpoint(directory: Path | None) -> None:
    """Raise where the directory of the checkpoint cannot be written, before anything is computed."""
    if directory is None:
        return
    with contextlib.suppress(OSError, ValueError):
        directory.mkdir(parents=True, exist_ok=True)
    if not (directory.is_dir() and os.access(directory, os.W_OK)):
        wrong = f"`checkpoint` is {str(directory)!a}; expected a directory that can be written"
        raise CommandError(Status.bad_input, f"command line: {wrong}")


class Checkpoint:
    """What one process has finished, and what it reads in the files of others."""

    def __init__(self, sharding: Sharding, lattice: Lattice, value: PlanValue, top: int, chunk: int) -> None:
        signature = _signature(lattice, value, top, chunk)
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
            with contextlib.suppress(
                OSError, ValueError, KeyError, TypeError
            ):  # damaged, or of another version: evaluated again
                content = json.loads(path.read_text())
                yield path.name, best_from(content["best"]), set(content["chunks"])

    def add(self, number: int, best: Best) -> None:
        """Note a finished chunk; the file follows within seconds."""
        self.chunks.add(number)
        if time.perf_counter() - self.saved > SAVE_EVERY_S:
            self.write(best)

    def write(self, best: Best) -> None:
        """Write the file all at once: under another name, then renamed."""
        if self.folder is None or not self.chunks:
            return
        self.folder.mkdir(parents=True, exist_ok=True)
        temporary = self.folder / f".{self.name}.{os.getpid()}.tmp"
        temporary.write_text(json.dumps({"chunks": sorted(self.chunks), "best": best_json(best)}))
        os.replace(temporary, self.folder / self.name)
        self.saved = time.perf_counter()


def _signature(lattice: Lattice, value: PlanValue, top: int, chunk: int) -> str:
    """A name of the question: files of another one are not read."""
    question = (lattice.workload, lattice.cluster, sorted(map(_named, lattice.fixed.items())), len(lattice), top)
    named = (value.name, sorted(value.factors.items()), sorted(value.drawn.items()), chunk, schedule_rows())
    return hashlib.sha256(repr((question, named)).encode()).hexdigest()[:16]


def _named(field: tuple[str, Any]) -> str:
    """A fixed field in words that are the same in every process: sets have an order of their own in each."""
    name, value = field
    return f"{name}={sorted(map(str, value)) if isinstance(value, set | frozenset) else value}"


def best_json(best: Best) -> dict[str, Any]:
    """The best of a search as plain data."""
    return {
        "top": [dataclasses.astuple(entry) for entry in best.top],
        "cells": [(cell, *dataclasses.astuple(entry)) for cell, entry in best.cells.items()],
        "levels": [(level, *dataclasses.astuple(entry)) for level, entry in best.levels.items()],
        "counts": [best.evaluated, best.fitting],
    }


def best_from(content: dict[str, Any]) -> Best:
    """The best of a search from its plain data."""
    evaluated, fitting = content["counts"]
    return Best(
        top=tuple(Entry(*pair) for pair in content["top"]),
        cells={cell: Entry(*pair) for cell, *pair in content["cells"]},
        levels={level: Entry(*pair) for level, *pair in content["levels"]},
        evaluated=evaluated,
        fitting=fitting,
    )
