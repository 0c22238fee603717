"""What programs read: one JSON object on standard output, and the files of `--out`."""

import contextlib
import json
import os
import shutil
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from costmodel.specs import why_not
from optimize.status import CommandError, Status


def print_json(answer: Mapping[str, Any]) -> None:
    """One JSON object on standard output."""
    sys.stdout.write(_json(answer))


def _json(answer: Mapping[str, Any]) -> str:
    return json.dumps(answer, indent=2, allow_nan=False) + "\n"


def check_directory(directory: Path) -> None:
    """Raise where `--out` cannot be written, before anything is computed."""
    try:
        with contextlib.suppress(FileNotFoundError):
            os.stat(directory)  # raises for a link that leads to itself
        directory.parent.mkdir(parents=True, exist_ok=True)
        with _beside(directory):
            usable = not directory.exists() or (directory.is_dir() and os.access(directory, os.W_OK))
    except (OSError, ValueError) as error:
        raise _unwritable(directory, why_not(error)) from None
    if not usable:
        raise _unwritable(directory, "it is a file, or closed")


def _unwritable(directory: Path, reason: str) -> CommandError:
    message = f"command line: `out` is {ascii(str(directory))}; expected a directory that can be written ({reason})"
    return CommandError(Status.bad_input, message)


@contextlib.contextmanager
def _beside(directory: Path) -> Iterator[Path]:
    """A directory under a temporary name on the same file system, gone afterwards whatever happens."""
    temporary = directory.parent / f".{directory.name}.{os.getpid()}.tmp"
    temporary.mkdir()
    try:
        yield temporary
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def write(directory: Path, answer: Mapping[str, Any], files: Mapping[str, bytes]) -> None:
    """`result.json` and the files beside it: all written under a temporary name, then renamed, the result last."""
    content = {**files, "result.json": _json(answer).encode()}
    try:
        with _beside(Path(os.path.realpath(directory))) as temporary:
            for name, data in content.items():
                (temporary / name).write_bytes(data)
            if not directory.exists():
                temporary.rename(Path(os.path.realpath(directory)))
                return
            for name in content:
                os.replace(temporary / name, directory / name)
    except OSError as error:
        raise _unwritable(directory, why_not(error)) from None
