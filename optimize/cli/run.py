"""One command from its words to its exit status: which it is, its answer written and shown, and errors in one line.

With `--json`, standard output holds one JSON object, whatever happens.
"""

import importlib
import sys
import time
from collections.abc import Sequence
from typing import Any

from costmodel.specs import SpecError, nearest, show
from optimize import report
from optimize.cli.own_files import run_file, taken_out
from optimize.cli.words import HELP, read
from optimize.status import CommandError, OthersLostError, Status
from optimize.time_limit import or_else
from optimize.versions import SCHEMA, own_version, versions

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

  equipoise --version            which one this is
  equipoise --completion bash    (or zsh) what completes commands and options in that shell

exit status: 0 an answer, 2 wrong input or an output that cannot be written, 3 no feasible answer, 4 time was up before
there was one, 130 interrupted (with the best so far where there is one), 143 ended by SIGTERM before there was one"""


def run(words: Sequence[str], start: float | None = None) -> int:
    """Answer, or say in one line why not; the exit status. `start`: when it was asked (`time.perf_counter`)."""
    start = time.perf_counter() if start is None else start
    if not words or words[0] in ("-h", "--help", "--version"):
        print(f"equipoise {own_version()}" if "--version" in words else _USAGE)
        return Status.ok.exit_status
    try:
        if words[0] == "--completion":
            return _complete(words[1:])
        return _answer_with(words, start)
    except SpecError as error:
        return _refuse(words, CommandError(Status.bad_input, str(error)), start)
    except OthersLostError as error:
        return _refuse(words, CommandError(Status.incomplete, error.message), start)
    except CommandError as error:
        return _refuse(words, error, start)


def _complete(words: Sequence[str]) -> int:
    """Print the completion of all commands for a shell."""
    from optimize.cli.help import SHELLS, completion

    if len(words) != 1 or words[0] not in SHELLS:
        raise SpecError(f"command line: `--completion` is {show(' '.join(words))}; expected one of {', '.join(SHELLS)}")
    print(completion(words[0], {name: _command(name) for name in COMMANDS}))
    return Status.ok.exit_status


def _help(name: str) -> int:
    from optimize.cli.help import show_help

    show_help(_command(name), name)
    return Status.ok.exit_status


def _command(name: str) -> Any:
    return getattr(importlib.import_module(f"optimize.cli.{COMMANDS[name]}"), name.upper())


def _answer_with(words: Sequence[str], start: float) -> int:
    """Run the files of `--with`, in this process and before anything else is loaded, and then the command."""
    files, words = taken_out(words)
    for file in files:
        run_file(file)
    if not words:
        raise SpecError(f"command line: the command is missing; expected one of {', '.join(COMMANDS)}")
    if words[0] in COMMANDS and not HELP.isdisjoint(words):
        return _help(words[0])
    return _answer(words[0], words[1:], start)


def _answer(name: str, words: Sequence[str], start: float) -> int:
    """Read, check the directory of `--out`, answer, write, and print JSON or a screen; the exit status."""
    if name not in COMMANDS:
        raise SpecError(f"command line: {show(name)} is not a command; {nearest(name, COMMANDS)}")
    command = _command(name)
    request = read(command, name, words)
    inputs = command.ask(request)
    files_of = command.files
    directory = None if files_of is None else command.directory(inputs)
    if directory is not None:
        report.check_directory(directory)
    answer = command.run(command.left(inputs, time.perf_counter() - start))
    content = command.as_json(inputs, answer)
    heard = list[bool]()
    if directory is not None and files_of is not None:

        def write() -> None:
            if (files := files_of(inputs, answer)) is not None:
                shown, whole = report.kept(lambda: command.show(inputs, answer)), content | _end(start)
                report.write(directory, whole, {**files, "index.html": report.page_of(name, whole, shown, files)})

        or_else(write, None, heard)
    if heard:
        print(f"equipoise: interrupted before the files in {directory} were written", file=sys.stderr)
        content |= {"status": Status.incomplete.name, "message": Status.incomplete.value}
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
