"""`--with FILE.py`: runs a user's Python file before anything else; what it registers is then known by name."""

import importlib.util
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path

from costmodel.specs import SpecError, plain
from optimize.cli.command import COMMAND_LINE

FLAG = "--with"
HELP = "runs that file (Python) before anything else: its models, schedules and collectives have names then"


def taken_out(words: Sequence[str]) -> tuple[list[str], list[str]]:
    """The files of every `--with`, and the other words."""
    files, others, rest = [], [], list(words)
    while rest:
        flag, equals, value = (word := rest.pop(0)).partition("=")
        if flag != FLAG:
            others.append(word)
            continue
        if not equals and (not rest or rest[0].startswith("--")):
            raise SpecError(f"{COMMAND_LINE}: `{FLAG}` has no value; expected a Python file")
        files.append(value if equals else rest.pop(0))
    return files, others


def run_file(path: str) -> None:
    """Execute the file as a module of its own, which may import its neighbours. Errors say file and line."""
    where = f"{COMMAND_LINE}: `{FLAG}` ({plain(path)})"
    if not path.endswith(".py") or not Path(path).is_file():
        raise SpecError(f"{where}: no such file; expected a Python file, such as my_model.py")
    name = f"with_{len(sys.modules)}_{Path(path).stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise SpecError(f"{where}: cannot be imported; expected a Python file, such as my_model.py")
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    sys.path.append(str(Path(path).resolve().parent))
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        raise SpecError(f"{where}{_line(path, error)}: {_told(error)}") from error


def _line(path: str, error: BaseException) -> str:
    """The last line of the file itself that was running, or that is no Python."""
    if isinstance(error, SyntaxError) and error.lineno is not None:
        return f", line {error.lineno}"
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame.lineno for frame in frames if Path(frame.filename).resolve() == Path(path).resolve()]
    return f", line {own[-1]}" if own else ""


def _told(error: BaseException) -> str:
    if isinstance(error, SpecError):
        return str(error)
    message = error.msg if isinstance(error, SyntaxError) else str(error)
    return f"{type(error).__name__}: {' '.join(message.split())}"
