"""The console command `equipoise`: which command, its exit status, and errors in one line.

Exit status: 0 an answer, 2 wrong input, 3 no feasible answer, 4 time was up before there was one. With `--json`,
standard output holds one JSON object, whatever happens.
"""

import contextlib
import importlib
import os
import signal
import sys
import threading
import time
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Never

from costmodel.specs import SpecError, nearest, show
from optimize import report
from optimize.cli.own_files import run_file, taken_out
from optimize.status import CommandError, Status
from optimize.versions import SCHEMA, own_version, versions

INTERRUPTED, TERMINATED = 130, 143  # as shells say it
COMMANDS = {
    "explain": "explain",
    "plan": "plan",
    "predict": "predict",
    "calibrate": "calibrate",
    "measure": "measure",
    "design": "design",
    "models": "lists",
    "clusters": "lists",
}
"""The module of each command, which holds it under its name in capitals. Only the one that is asked is loaded."""
_USAGE = """usage: equipoise COMMAND [OPTIONS]

What a training step of a large neural network costs on a cluster, and why.

commands:
  explain    what a step costs under a plan: time by term, memory by stage, what it is sensitive to
  plan       the best plan of a model on a cluster
  predict    time, with an interval, and memory of every row of a table of runs
  calibrate  a cluster adapted to your measured runs or collectives, as a file
  measure    this node: its rates and overheads as a table, and as a cluster file
  design     the best cluster for a job within a budget and its plan, certified
  models     the models that are known by name
  clusters   the clusters that are known by name

every command takes --with FILE.py, which runs that file (Python) before anything else: models, schedules and
collectives of your own, which it registers, are then known by their names

examples:
  equipoise explain --model llama3-8b --cluster h100 --accelerators 64
  equipoise explain --help
  equipoise models --json

exit status: 0 an answer, 2 wrong input, 3 no feasible answer, 4 time was up before there was one"""


def main(words: Sequence[str] | None = None) -> Never:
    """Run one command and exit with its status."""
    words = sys.argv[1:] if words is None else list(words)
    _keep_compiled_programs()
    warnings.simplefilter("ignore", RuntimeWarning)  # of NumPy, of plans far from any answer
    terminated: list[int] = []

    def terminate(number: int, _: object) -> Never:
        """As for an interruption by the user: temporary files go, and searches answer with the best so far."""
        terminated.append(number)
        raise KeyboardInterrupt

    signal.signal(signal.SIGTERM, terminate)
    try:
        status = run(words)
        sys.stdout.flush()
    except KeyboardInterrupt:
        status = TERMINATED if terminated else INTERRUPTED
    except BrokenPipeError:  # `equipoise ... | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        status = 0
    compiler = sys.modules.get("costmodel.evaluators.machine_code")
    if compiler is not None and status in (TERMINATED, INTERRUPTED):
        compiler.end_compiling()
    _end_now(status)


def _end_now(status: int) -> Never:
    """Exit; where a thread still compiles what nobody waits for any more, without it (Python would wait)."""
    if all(thread.daemon for thread in threading.enumerate() if thread is not threading.main_thread()):
        sys.exit(status)
    with contextlib.suppress(OSError):
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(status)


def _keep_compiled_programs() -> None:
    """Have JAX keep what it compiles in the user's cache, small programs included (which it leaves out by default).

    Set before JAX is imported; what the user has set stays.
    """
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(Path(home) / "equipoise" / "jax"))
    os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
    os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES", "-1")


def run(words: Sequence[str]) -> int:
    """Answer, or say in one line why not; the exit status."""
    start = time.perf_counter()
    if not words or words[0] in ("-h", "--help", "--version"):
        print(f"equipoise {own_version()}" if "--version" in words else _USAGE)
        return Status.ok.exit_status
    try:
        return _answer_with(words, start)
    except SpecError as error:
        return _refuse(words, CommandError(Status.bad_input, str(error)), start)
    except CommandError as error:
        return _refuse(words, error, start)


def _answer_with(words: Sequence[str], start: float) -> int:
    """Run the files of `--with`, in this process and before anything else is loaded, and then the command."""
    files, words = taken_out(words)
    for file in files:
        run_file(file)
    if not words:
        raise SpecError(f"command line: the command is missing; expected one of {', '.join(COMMANDS)}")
    return _answer(words[0], words[1:], start)


def _answer(name: str, words: Sequence[str], start: float) -> int:
    """Read, check the directory of `--out`, answer, write, and print JSON or a screen; the exit status."""
    from optimize.cli.words import read  # which `--help` and `--version` do without

    if name not in COMMANDS:
        raise SpecError(f"command line: {show(name)} is not a command; {nearest(name, COMMANDS)}")
    command = getattr(importlib.import_module(f"optimize.cli.{COMMANDS[name]}"), name.upper())
    request = read(command, name, words)
    inputs = command.ask(request)
    files_of = command.files
    directory = None if files_of is None else inputs.out
    if directory is not None:
        report.check_directory(directory)
    answer = command.run(inputs)
    content = command.as_json(inputs, answer)
    if directory is not None and files_of is not None and (files := files_of(inputs, answer)) is not None:
        report.write(directory, content | _end(start), files)
    if request.json:
        report.print_json(content | _end(start))
    else:
        command.show(inputs, answer)
    return Status[content["status"]].exit_status


def _refuse(words: Sequence[str], error: CommandError, start: float) -> int:
    print(f"equipoise: {error.message}", file=sys.stderr)
    if "--json" in words:
        head = {"schema": SCHEMA, "status": error.status.name, "message": error.message}
        report.print_json(head | {"violations": list(error.violations)} | _end(start))
    return error.status.exit_status


def _end(start: float) -> dict[str, Any]:
    """The keys that every answer ends with."""
    return {"versions": versions(), "seconds": time.perf_counter() - start}
