"""`equipoise calibrate`: a cluster and its stack, adapted to measured rows or collectives, as one file."""

import dataclasses
import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from costmodel.inputs import Cluster
from costmodel.measured import (
    Calibrated,
    Case,
    Unreadable,
    as_deviations,
    calibrate,
    calibrate_kernels,
    collectives_of,
    deviated,
    fit_collectives,
    is_microbenchmarks,
    log_errors,
    own_kernels,
    read_cases,
    read_microbenchmarks,
    settle,
    timed_by_rate,
)
from costmodel.specs import (
    CollectiveRow,
    SpecError,
    constant_group,
    is_nccl,
    load_cluster,
    plain,
    read_nccl,
    write_file,
)
from optimize import units
from optimize.cli.command import COMMAND_LINE, Command, Switch, Text, answered, apart, needed
from optimize.diagnosis import constant_words
from optimize.report import constant_amount, show_notes


@dataclasses.dataclass(frozen=True, kw_only=True)
class Request:
    """The options of `equipoise calibrate`."""

    rows: Text = None
    """CSV file of runs, or of kernels and collectives (as of `measure`), or output of nccl-tests; may stand first"""
    out: Text = None
    """TOML file with the tables `cluster` and `stack`, which every command takes"""
    cluster: Text = None
    """name or file of the cluster it was measured on; default: as the rows say. Kernels, nccl-tests: needed"""
    json: Switch = False
    """print one JSON object and nothing else"""


Answer = tuple[Cluster, dict[str, Any], dict[str, Any]]
"""The cluster with its new stack, what a program may want to know before it opens the file, and deviations. Errors are
medians of absolute logarithms; after: of rows, each predicted without itself; of collectives, of the fit."""


def ask(request: Request) -> Request:
    """The files, both of which must be named."""
    needed(request, {"rows": "my_rows.csv", "out": "--out my_cluster.toml"})
    apart(request, "rows", "out")
    return request


def run(request: Request) -> Answer:
    """Calibrate and write."""
    cluster, told, deviations = calibrated(str(request.rows), request.cluster)
    write(cluster, str(request.out), deviations)
    return cluster, told, deviations


def calibrated(rows: str, cluster: str | None) -> Answer:
    """The answer from a table of rows, or from what nccl-tests printed, which needs the cluster it was measured on."""
    if is_nccl(rows):
        if cluster is None:
            raise SpecError(f"{COMMAND_LINE}: `cluster` is missing; expected the cluster that the collectives ran on")
        return _collectives(rows, load_cluster(cluster))
    if is_microbenchmarks(rows):
        if cluster is None:
            raise SpecError(
                f"{COMMAND_LINE}: `cluster` is missing; expected the cluster that the table was measured on"
            )
        return _kernels(rows, load_cluster(cluster))
    return _runs(rows, None if cluster is None else load_cluster(cluster))


def _runs(path: str, base: Cluster | None) -> Answer:
    read = read_cases(path)
    unreadable = tuple(f"row {i + 1}: {row.reason}" for i, row in enumerate(read) if isinstance(row, Unreadable))
    cases = [row for row in read if isinstance(row, Case)]
    if not cases:
        raise SpecError(
            f"rows ({plain(path)}): no row can be modelled; {unreadable[0] if unreadable else 'the table has none'}"
        )
    settled = [timed_by_rate(case) for case in settle(cases)]
    try:
        found = calibrate(settled)
    except ValueError as error:
        raise SpecError(f"rows ({plain(path)}): {error}") from None
    assert found.fitted is not None
    deviations = as_deviations(found.fitted, [settled[i] for i in found.used])
    told = _told(len(read), len(found.used), found.before, found.after, unreadable + found.problems) | _found(found)
    return _own(found, base, deviations), told, deviations


def _own(found: Calibrated, base: Cluster | None, deviations: Mapping[str, Any]) -> Cluster:
    """The named cluster, whose constants move by what was found, or that of the first row."""
    if base is None:
        cluster = dataclasses.replace(found.case.cluster, name=f"calibrated {found.case.cluster.name}")
        return dataclasses.replace(cluster, stack=found.stack)
    group = constant_group(base.accelerator.name, base.stack.software)
    return dataclasses.replace(base, stack=deviated(base.stack, deviations, group))


def _found(found: Calibrated) -> dict[str, Any]:
    moved = [{"constant": name, "before": before, "after": after} for name, before, after in found.moved]
    return {"common_factor": found.common, "moved": moved}


def _told(
    rows: int, used: int, before: np.ndarray, after: np.ndarray, problems: tuple[str, ...] = ()
) -> dict[str, Any]:
    errors = {"error_before": float(np.median(before)), "error_after": float(np.median(after))}
    return {"rows": rows, "used": used} | errors | {"problems": list(problems)}


def _kernels(path: str, cluster: Cluster) -> Answer:
    """From a table of products, attention, streams and collectives."""
    rows = read_microbenchmarks(path)
    calls, kernels = collectives_of(rows), own_kernels(rows, cluster)
    if not calls and not kernels:
        raise SpecError(f"rows ({plain(path)}): no row can be used; expected a gemm or attention in TFLOP/s, or others")
    before, after, deviations = [np.zeros(0)], [np.zeros(0)], {}
    if calls:
        cluster, first, last = _with_collectives(calls, cluster)
        before, after = [first], [last]
    if kernels:
        fitted, first, last = calibrate_kernels(kernels)
        before, after, deviations = [*before, first], [*after, last], as_deviations(fitted, [])
        group = constant_group(cluster.accelerator.name, cluster.stack.software)
        cluster = dataclasses.replace(cluster, stack=deviated(cluster.stack, deviations, group))
    told = _told(len(rows), len(calls) + len(kernels), np.concatenate(before), np.concatenate(after))
    return cluster, told, deviations


def _collectives(path: str, cluster: Cluster) -> Answer:
    rows = read_nccl(path)
    cluster, before, after = _with_collectives(rows, cluster)
    return cluster, _told(len(rows), len(rows), before, after), {}


def _with_collectives(rows: Sequence[CollectiveRow], cluster: Cluster) -> tuple[Cluster, np.ndarray, np.ndarray]:
    """The cluster with the laws fitted to its collectives, and absolute logarithmic errors before and after."""
    stack = fit_collectives(rows, cluster)
    before, after = (np.abs(log_errors(rows, cluster, each)) for each in (cluster.stack, stack))
    return dataclasses.replace(cluster, stack=stack), before, after


def as_toml(cluster: Cluster, by: str = "calibrate", deviations: Mapping[str, Any] | None = None) -> str:
    """The tables `cluster` and `stack`, in SI units, and deviations. The last tier has no size: it is as large as the
    cluster."""
    own = {"name": cluster.name, "accelerators": int(cluster.accelerators)}
    lines = [f"# Written by `equipoise {by}`.", "[cluster]", *_fields(own), "", "[cluster.accelerator]"]
    lines += _fields(_known(cluster.accelerator))
    for i, tier in enumerate(cluster.tiers):
        values = _known(tier)
        if i == len(cluster.tiers) - 1 and i > 0:
            values = {name: value for name, value in values.items() if name not in ("size", "usable_size")}
        lines += ["", "[[cluster.tiers]]", *_fields(values)]
    lines += ["", "[stack]", *_fields(_known(cluster.stack))]
    for level, table in (deviations or {}).items():
        members = {level: table} if level in ("shared", "log_sd") else {f"{level}.{k}": v for k, v in table.items()}
        for name, values in members.items():
            lines += ["", f"[deviations.{name}]", *_fields({key: round(value, 5) for key, value in values.items()})]
    return "\n".join(lines) + "\n"


_COUNTS = ("size", "usable_size")


def _known(part: Any) -> dict[str, Any]:
    values = {f.name: getattr(part, f.name) for f in dataclasses.fields(part) if f.name != "habits"}
    return {k: int(v) if k in _COUNTS else v for k, v in values.items() if v is not None}


def _fields(values: Mapping[str, Any]) -> list[str]:
    return [f"{name} = {json.dumps(list(v) if isinstance(v, tuple) else v)}" for name, v in values.items()]


def write(cluster: Cluster, out: str, deviations: Mapping[str, Any] | None = None) -> None:
    """The file, or a `SpecError` that says why it cannot be written."""
    write_file(out, as_toml(cluster, deviations=deviations).encode())


def as_json(request: Request, answer: Answer) -> dict[str, Any]:
    """What a program may want to know before it opens the file."""
    inputs = {"rows": request.rows, "out": request.out, "cluster": request.cluster}
    cluster, told, _ = answer
    return answered(inputs) | told | {"cluster": cluster.name}


def show(request: Request, answer: Answer) -> None:
    """How many rows were used, and what is wrong with the others."""
    _, told, _ = answer
    before, after = (units.percent(told[f"error_{when}"]) for when in ("before", "after"))
    apart = ", where each row is predicted without itself" if "common_factor" in told else ""
    lines = [f"{request.out}: {told['used']} of {told['rows']} rows used"]
    lines += [f"median error {before} before, {after} after{apart}"]
    if "common_factor" in told:
        lines += [f"all times x {told['common_factor']:.3g}; what moved most on the first row's accelerator:"]
    for one in told.get("moved", ()):
        name, *ends = one["constant"], one["before"], one["after"]
        first, last = (constant_amount(name, value) for value in ends)
        lines += [f"  {constant_words(name)}: {first} -> {last}"]
    show_notes((*lines, *(f"  {problem}" for problem in told["problems"])))


CALIBRATE = Command(
    request=Request,
    about="A cluster file adapted to measured runs (three suffice), to kernels, or to what nccl-tests printed.",
    examples="""
examples:
  equipoise calibrate my_rows.csv --out my_cluster.toml
  equipoise calibrate my_kernels.csv --cluster h100 --out my_cluster.toml
  equipoise calibrate all_reduce_perf.txt --cluster h100 --out my_cluster.toml
  equipoise explain --model llama3-8b --cluster my_cluster.toml""",
    first="--rows",
    ask=ask,
    run=run,
    as_json=as_json,
    show=show,
)
