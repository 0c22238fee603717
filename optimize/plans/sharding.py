"""How one search is divided over processes, and where it notes what is done."""

import dataclasses
from pathlib import Path

WAIT_S = 60.0
"""Seconds to wait for the other processes, once this one is done."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Sharding:
    """Which part of a search this process does, and where it notes what is done."""

    processes: int = 1
    process: int = 0
    coordinator: str | None = None  # host:port of process 0
    checkpoint: Path | None = None  # a directory
    wait_s: float = WAIT_S
