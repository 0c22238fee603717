"""`equipoise calibrate`: a cluster and its stack, adapted to measured rows or collectives, as one file."""

import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from costmodel.inputs import Cluster
from costmodel.measured import Calibrated, Case, Unreadable, calibrate, fit_collectives, log_errors, read_cases, settle
from costmodel.specs import SpecError, is_nccl, load_cluster, plain, read_nccl
from optimize.cli.command import COMMAND_LINE, Command, Switch, Text, answered, needed


@dataclasses.dataclass(frozen=True, kw_only=True)
class Request:
    """The options of `equipoise calibrate`."""

    rows: Text = None
    """CSV file of measured runs, or output of nccl-tests; may stand first, without the flag"""
    out: Text = None
    """TOML file with the tables `cluster` and `stack`, which every command takes"""
    cluster: Text = None
    """name or file of the cluster it was measured on; default: as the rows say. nccl-tests: needed"""
    json: Switch = False
    """print one JSON object and nothing else"""


Answer = tuple[Cluster, dict[str, Any]]
"""The cluster with its new stack, and what a program may want to know before it opens the file. Errors are medians of
absolute logarithms; after: of rows, each predicted without itself; of collectives, of the fit."""


def ask(request: Request) -> Request:
    """The files, both of which must be named."""
    needed(request, {"rows": "my_rows.csv", "out": "--out my_cluster.toml"})
    return request


def run(request: Request) -> Answer:
    """Calibrate and write."""
    cluster, told = calibrated(str(request.rows), request.cluster)
    write(cluster, str(request.out))
    return cluster, told


def calibrated(rows: str, cluster: str | None) -> Answer:
    """The answer from a table of rows, or from what nccl-tests printed, which needs the cluster it was measured on."""
    if is_nccl(rows):
        if cluster is None:
            raise SpecError(f"{COMMAND_LINE}: `cluster` is missing; expected the cluster that the collectives ran on")
        return _collectives(rows, load_cluster(cluster))
    return _runs(rows, None if cluster is None else load_cluster(cluster))


def _runs(path: str, base: Cluster | None) -> Answer:
    read = read_cases(path)
    unreadable = tuple(f"row {i + 1}: {row.reason}" for i, row in enumerate(read) if isinstance(row, Unreadable))
    cases = [row for row in read if isinstance(row, Case)]
    if not cases:
        raise SpecError(
            f"rows ({plain(path)}): no row can be modelled; {unreadable[0] if unreadable else 'the table has none'}"
        )
    try:
        calibrated = calibrate(settle(cases))
    except ValueError as error:
        raise SpecError(f"rows ({plain(path)}): {error}") from None
    own = base if base is not None else _general(calibrated)
    problems = unreadable + calibrated.problems
    told = _told(len(read), len(calibrated.used), calibrated.before, calibrated.after, problems)
    return dataclasses.replace(own, stack=calibrated.stack), told


def _general(calibrated: Calibrated) -> Cluster:
    return dataclasses.replace(calibrated.case.cluster, name=f"calibrated {calibrated.case.cluster.name}")


def _told(
    rows: int, used: int, before: np.ndarray, after: np.ndarray, problems: tuple[str, ...] = ()
) -> dict[str, Any]:
    errors = {"error_before": float(np.median(before)), "error_after": float(np.median(after))}
    return {"rows": rows, "used": used} | errors | {"problems": list(problems)}


def _collectives(path: str, cluster: Cluster) -> Answer:
    rows = read_nccl(path)
    stack = fit_collectives(rows, cluster)
    before, after = (np.abs(log_errors(rows, cluster, each)) for each in (cluster.stack, stack))
    return dataclasses.replace(cluster, stack=stack), _told(len(rows), len(rows), before, after)


def as_toml(cluster: Cluster, by: str = "calibrate") -> str:
    """The tables `cluster` and `stack`, in SI units. The last tier has no size: it is as large as the cluster."""
    own = {"name": cluster.name, "accelerators": int(cluster.accelerators)}
    lines = [f"# Written by `equipoise {by}`.", "[cluster]", *_fields(own), "", "[cluster.accelerator]"]
    lines += _fields(_known(cluster.accelerator))
    for i, tier in enumerate(cluster.tiers):
        values = _known(tier)
        if i == len(cluster.tiers) - 1 and i > 0:
            values = {name: value for name, value in values.items() if name not in ("size", "usable_size")}
        lines += ["", "[[cluster.tiers]]", *_fields(values)]
    return "\n".join([*lines, "", "[stack]", *_fields(_known(cluster.stack))]) + "\n"


_COUNTS = ("size", "usable_size")


def _known(part: Any) -> dict[str, Any]:
    values = {f.name: getattr(part, f.name) for f in dataclasses.fields(part) if f.name != "habits"}
    return {k: int(v) if k in _COUNTS else v for k, v in values.items() if v is not None}


def _fields(values: Mapping[str, Any]) -> list[str]:
    return [f"{name} = {json.dumps(list(v) if isinstance(v, tuple) else v)}" for name, v in values.items()]


def write(cluster: Cluster, out: str) -> None:
    """The file, or a `SpecError` that says why it cannot be written."""
    try:
        Path(out).write_text(as_toml(cluster), encoding="utf-8")
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise SpecError(f"{COMMAND_LINE}: `out` is {plain(out)!r}, which cannot be written ({reason})") from None


def as_json(request: Request, answer: Answer) -> dict[str, Any]:
    """What a program may want to know before it opens the file."""
    inputs = {"rows": request.rows, "out": request.out, "cluster": request.cluster}
    cluster, told = answer
    return answered(inputs) | told | {"cluster": cluster.name}


def show(request: Request, answer: Answer) -> None:
    """How many rows were used, and what is wrong with the others."""
    _, told = answer
    print(f"{request.out}: {told['used']} of {told['rows']} rows used")
    print(f"median error {told['error_before']:.1%} before, {told['error_after']:.1%} after")
    for problem in told["problems"]:
        print(f"  {problem}")


CALIBRATE = Command(
    request=Request,
    about="A cluster file adapted to measured runs (three suffice), or to what nccl-tests printed.",
    examples="""
examples:
  equipoise calibrate my_rows.csv --out my_cluster.toml
  equipoise calibrate all_reduce_perf.txt --cluster h100 --out my_cluster.toml
  equipoise explain --model llama3-8b --cluster my_cluster.toml""",
    first="--rows",
    ask=ask,
    run=run,
    as_json=as_json,
    show=show,
)
