"""How many processors a process may keep busy: by its affinity, and by the quota of its control groups."""

import math
import os
from collections.abc import Iterator
from pathlib import Path


def usable(root: Path = Path("/")) -> int:
    """At least one. A container's quota of 1.5 is one: a second busy process would only be held up."""
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, math.floor(min((allowed, *_quotas(root)))))


def _quotas(root: Path) -> Iterator[float]:
    """Processors that the control groups of this process, and those around them, may use in the mean.

    Version 2 has quota and period in one file, version 1 in two; "max" and -1 are no limit. Inside a container the
    names of its groups are often those outside, which are not mounted: the files at the mount itself are its own then.
    """
    for folder in _groups(root):
        older = f"{_text(folder / 'cpu.cfs_quota_us')} {_text(folder / 'cpu.cfs_period_us')}"
        for text in (_text(folder / "cpu.max"), older):
            try:
                quota, period = map(float, text.split())
            except ValueError:
                continue
            if quota > 0 and period > 0:
                yield quota / period


def _groups(root: Path) -> Iterator[Path]:
    mounts = root / "sys" / "fs" / "cgroup"
    for line in _text(root / "proc" / "self" / "cgroup").splitlines():
        _, controllers, name = line.split(":", 2)
        if controllers and "cpu" not in controllers.split(","):
            continue
        mount = mounts / controllers
        own = mount / name.lstrip("/")
        yield from (folder for folder in (own, *own.parents) if folder.is_relative_to(mount))


def _text(file: Path) -> str:
    try:
        return file.read_text()
    except OSError:
        return ""
