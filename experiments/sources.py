"""What a kept result depends on beside its settings: the code and the data that it was made with."""

import functools
import hashlib
from pathlib import Path

import costmodel
import experiments
import optimize

_READ = ("*.py", "*.toml", "*.json", "*.csv")


@functools.cache
def digest_of_sources() -> str:
    """A digest of every source and data file of the three packages."""
    digest = hashlib.sha256()
    for package in (costmodel, experiments, optimize):
        root = Path(package.__path__[0])
        for path in sorted(path for kind in _READ for path in root.rglob(kind)):
            digest.update(f"{path.relative_to(root)}\n".encode() + path.read_bytes())
    return digest.hexdigest()
