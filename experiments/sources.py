"""What a kept result depends on beside its settings: the code and the data that it was made with."""

import functools
from pathlib import Path

import costmodel
import experiments
import optimize
from costmodel.specs import digest_of_files

_READ = ("*.py", "*.toml", "*.json", "*.csv")


@functools.cache
def digest_of_sources() -> str:
    """A digest of every source and data file of the three packages."""
    packages = costmodel, experiments, optimize
    return " ".join(digest_of_files(Path(package.__path__[0]), _READ) for package in packages)
