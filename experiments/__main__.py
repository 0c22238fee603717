"""`python -m experiments`: the commands of `experiments.commands`, as a process that hears signals from the start."""

import sys
from collections.abc import Sequence

from optimize.cli import as_process


def _run(words: Sequence[str]) -> int:
    from experiments.commands import main

    return main(words)


if __name__ == "__main__":
    as_process(_run, sys.argv[1:], "experiments")
