"""The console command `equipoise`: which command, its exit status, and errors in one line.

Exit status: 0 an answer, 2 wrong input, 3 no feasible answer. With `--json`, standard output holds one JSON object,
whatever happens.
"""

import dataclasses
import os
import signal
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any, Never

from costmodel.specs import SpecError
from optimize.status import CommandError, Status

INTERRUPTED, TERMINATED = 130, 143  # as shells say it
_USAGE = """usage: equipoise COMMAND [OPTIONS]

What a training step of a large neural network costs on a cluster, and why.

commands:
  explain    what a step costs under a plan: time by term, memory by stage, what it is sensitive to
  plan       the best plan of a model on a cluster
  predict    time, with an interval, and memory of every row of a table of runs
  calibrate  a cluster adapted to your measured runs or collectives, as a file
  design     the best cluster for a job within a budget and its plan, certified
  models     the models that are known by name
  clusters   the clusters that are known by name

examples:
  equipoise explain --model llama3-8b --cluster h100 --accelerators 64
  equipoise explain --help
  equipoise models --json

exit status: 0 an answer, 2 wrong input, 3 no feasible answer"""


def main(words: Sequence[str] | None = None) -> Never:
    """Run one command and exit with its status."""
    from optimize.cli import cache as compile_cache

    words = sys.argv[1:] if words is None else list(words)
    compile_cache.keep()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(TERMINATED))  # so that temporary files go
    try:
        status = run(words)
        sys.stdout.flush()
    except KeyboardInterrupt:
        status = INTERRUPTED
    except BrokenPipeError:  # `equipoise ... | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        status = 0
    sys.exit(status)


def run(words: Sequence[str]) -> int:
    """Answer, or say in one line why not; the exit status."""
    start = time.perf_counter()
    try:
        _command(words)(words[1:], start)
    except SpecError as error:
        return _refuse(words, CommandError(Status.bad_input, str(error)), start)
    except CommandError as error:
        return _refuse(words, error, start)
    return Status.ok.exit_status


def _command(words: Sequence[str]) -> Callable[[Sequence[str], float], None]:
    if not words or words[0] in ("-h", "--help", "--version"):
        return lambda _, __: _about(words)
    if words[0] not in COMMANDS:
        from costmodel.specs import nearest, show

        raise SpecError(f"command line: {show(words[0])} is not a command; {nearest(words[0], COMMANDS)}")
    return COMMANDS[words[0]]


def _about(words: Sequence[str]) -> None:
    from optimize.versions import own_version

    print(f"equipoise {own_version()}" if "--version" in words else _USAGE)


def _explain(words: Sequence[str], start: float) -> None:
    from optimize.cli import requests
    from optimize.cli import words as command_line
    from optimize.cli.inputs import resolve
    from optimize.diagnosis import explain, explanation_json
    from optimize.report import report

    request = command_line.read(requests.Explain, "explain", words, requests.EXAMPLES["explain"])
    inputs = resolve(request.fields(), request.config)
    if inputs.out is not None:
        report.check_directory(inputs.out)
    explanation, other = explain(inputs), None
    answer = explanation_json(explanation)
    if request.against is not None:
        from optimize.cli.against import other_inputs
        from optimize.diagnosis import differences_json

        other = explain(other_inputs(inputs, request.against))
        answer["against"] = {"answer": explanation_json(other), "differences": differences_json(explanation, other)}
    if inputs.out is not None:
        from optimize.report import figures

        report.write(inputs.out, answer | _end(start), figures.draw(explanation))
    if request.json:
        report.print_json(answer | _end(start))
    elif other is not None:
        report.show_comparison(explanation, other)
    else:
        report.show_explanation(explanation)


def _plan(words: Sequence[str], start: float) -> None:
    from optimize.cli import launching, plan_layers, requests
    from optimize.cli import plan as plan_command
    from optimize.cli import words as command_line
    from optimize.report import report

    request = command_line.read(requests.FindPlan, "plan", words, requests.EXAMPLES["plan"])
    inputs = plan_command.resolve(request.fields(), request.config)
    if inputs.out is not None:
        report.check_directory(inputs.out)
    inputs.sharding.check()
    if inputs.sharding.processes > 1:
        sharding = dataclasses.replace(inputs.sharding, lost=lambda error: _refuse(["plan", *words], error, start))
        inputs = dataclasses.replace(inputs, sharding=sharding)
        sharding.connect()
    table = plan_command.table_for(inputs)
    result, only = launching.search(plan_command.with_table(inputs, table))
    answer = plan_command.as_json(inputs, result, table) | launching.as_json(inputs, result, only)
    layers = plan_layers.improve(inputs, result)
    answer |= plan_layers.as_json(layers)
    if inputs.out is not None and inputs.sharding.process == 0:
        from optimize.report import figures_plan

        files = figures_plan.draw(inputs, result) | launching.files(inputs, result)
        report.write(inputs.out, answer | _end(start), files | plan_command.table_file(table))
    if request.json:
        report.print_json(answer | _end(start))
    else:
        told = plan_layers.said(layers)
        launching.show(inputs, result, only, lambda: report.show_plans(inputs, result), told)
    if result.status is not Status.ok:
        sys.exit(result.status.exit_status)


def _predict(words: Sequence[str], start: float) -> None:
    from optimize.cli import requests
    from optimize.cli import words as command_line
    from optimize.diagnosis import predict_file, prediction_json
    from optimize.report import report

    words = command_line.first_as("--rows", words)
    request = command_line.read(requests.Predict, "predict", words, requests.EXAMPLES["predict"])
    if request.rows is None or request.out is None:
        missing, example = ("rows", "rows.csv") if request.rows is None else ("out", "--out predictions.csv")
        raise SpecError(f"command line: `{missing}` is missing; expected a file, such as {example}")
    content = prediction_json(predict_file(request.rows, request.out, request.stack))
    if request.json:
        inputs = {"rows": request.rows, "out": request.out, "stack": request.stack}
        told = {"schema": 1, "status": Status.ok.name, "message": Status.ok.value, "inputs": inputs}
        report.print_json(told | content | _end(start))
    else:
        print(f"{request.out}: {content['predicted']} of {content['rows']} rows predicted")


def _calibrate(words: Sequence[str], start: float) -> None:
    from optimize.cli import requests
    from optimize.cli import words as command_line
    from optimize.cli.calibrate import calibrated, write
    from optimize.report import report

    words = command_line.first_as("--rows", words)
    request = command_line.read(requests.Calibrate, "calibrate", words, requests.EXAMPLES["calibrate"])
    if request.rows is None or request.out is None:
        missing, example = ("rows", "my_rows.csv") if request.rows is None else ("out", "--out my_cluster.toml")
        raise SpecError(f"command line: `{missing}` is missing; expected a file, such as {example}")
    answer = calibrated(request.rows, request.cluster)
    write(answer, request.out)
    if request.json:
        inputs = {"rows": request.rows, "out": request.out, "cluster": request.cluster}
        told = {"schema": 1, "status": Status.ok.name, "message": Status.ok.value, "inputs": inputs}
        report.print_json(told | answer.as_json() | _end(start))
        return
    print(f"{request.out}: {answer.used} of {answer.rows} rows used")
    print(f"median error {answer.before:.1%} before, {answer.after:.1%} after")
    for problem in answer.problems:
        print(f"  {problem}")


def _design(words: Sequence[str], start: float) -> None:
    from optimize.cli import design as design_command
    from optimize.cli import requests
    from optimize.cli import words as command_line
    from optimize.clusters import design
    from optimize.report import report

    request = command_line.read(requests.Design, "design", words, requests.EXAMPLES["design"])
    inputs = design_command.resolve_design(request.fields(), request.config)
    if inputs.out is not None:
        report.check_directory(inputs.out)
    result = design(inputs.jobs, inputs.limits, **inputs.settings(), progress=report.progress("design"))
    answer = design_command.as_json(inputs, result)
    if inputs.out is not None:
        from optimize.report import figures_design

        report.write(inputs.out, answer | _end(start), figures_design.draw(result))
    if request.json:
        report.print_json(answer | _end(start))
    else:
        report.show_design(inputs, result)


def _models(words: Sequence[str], start: float) -> None:
    from optimize.cli import lists as catalogue
    from optimize.cli import requests
    from optimize.cli import words as command_line
    from optimize.report import report

    request = command_line.read(requests.Models, "models", words, requests.EXAMPLES["models"])
    _list(request.json, {"models": catalogue.models()}, report.show_models, start)


def _clusters(words: Sequence[str], start: float) -> None:
    from optimize.cli import lists as catalogue
    from optimize.cli import requests
    from optimize.cli import words as command_line
    from optimize.report import report

    request = command_line.read(requests.Clusters, "clusters", words, requests.EXAMPLES["clusters"])
    _list(request.json, {"clusters": catalogue.clusters()}, report.show_clusters, start)


def _list(as_json: bool, content: dict[str, Any], show: Callable[[list[dict[str, Any]]], None], start: float) -> None:
    from optimize.report import report

    if not as_json:
        show(next(iter(content.values())))
        return
    status = Status.ok
    report.print_json(
        {"schema": 1, "status": status.name, "message": status.value, "inputs": {}} | content | _end(start)
    )


COMMANDS: dict[str, Callable[[Sequence[str], float], None]] = {
    "explain": _explain,
    "plan": _plan,
    "predict": _predict,
    "calibrate": _calibrate,
    "design": _design,
    "models": _models,
    "clusters": _clusters,
}


def _refuse(words: Sequence[str], error: CommandError, start: float) -> int:
    print(f"equipoise: {error.message}", file=sys.stderr)
    if "--json" in words:
        from optimize.report import report

        told = {"schema": 1, "status": error.status.name, "message": error.message}
        report.print_json(told | {"violations": list(error.violations)} | _end(start))
    return error.status.exit_status


def _end(start: float) -> dict[str, Any]:
    from optimize.versions import versions

    return {"versions": versions(), "seconds": time.perf_counter() - start}
