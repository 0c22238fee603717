"""`equipoise measure`: the node one sits at, measured in about a minute, as a table and as a cluster file."""

import contextlib
import dataclasses
import os
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from costmodel.inputs import Cluster
from costmodel.measured import COLUMNS, Devices, Measured, Node, as_rows, fit_node, measure
from costmodel.specs import SpecError, plain, write_table
from optimize import units
from optimize.cli.calibrate import as_toml
from optimize.cli.command import COMMAND_LINE, Command, Count, Number, Switch, Text, answered, apart
from optimize.cli.main import ended_at_once
from optimize.plans import standard_output_for_errors
from optimize.progress import clock

_SECONDS = 60.0
_LONGEST_S = 86400.0


@dataclasses.dataclass(frozen=True, kw_only=True)
class Request:
    """The options of `equipoise measure`."""

    out: Text = None
    """TOML file with the tables `cluster` and `stack`, which every command takes as --cluster"""
    table: Text = None
    """CSV file of what was measured, in the columns of the published microbenchmarks"""
    seconds: Number = None
    """time to take, about; default 60. Compilation that takes longer is not cut short"""
    processes: Count = None
    """processes that measure together (`jax.distributed`), one on each node; default 1"""
    process: Count = None
    """number of this process, from 0"""
    coordinator: Text = None
    """address of process 0, host:port"""
    json: Switch = False
    """print one JSON object and nothing else"""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Answer:
    """What was measured, where, and the cluster that follows."""

    node: Node
    measured: tuple[Measured, ...]
    cluster: Cluster
    error: float  # median absolute logarithm of what the constants say over what was measured
    load: float | None  # of the machine before: processes that wanted a core
    writes: bool  # the first process does


def ask(request: Request) -> Request:
    """The options, if they make sense together and the files can be written."""
    seconds, together = request.seconds, (request.process, request.coordinator)
    if seconds is not None and not 0.0 < seconds <= _LONGEST_S:
        raise SpecError(f"{COMMAND_LINE}: `seconds` is {seconds:g}; expected above 0, at most {_LONGEST_S:g}")
    if (request.processes or 1) < 1:
        raise SpecError(f"{COMMAND_LINE}: `processes` is {request.processes}; expected 1 or more")
    if (request.processes or 1) > 1 and None in together:
        raise SpecError(f"{COMMAND_LINE}: `processes` needs --process and --coordinator HOST:PORT of process 0")
    if request.process is not None and not 0 <= request.process < (request.processes or 1):
        raise SpecError(f"{COMMAND_LINE}: `process` is {request.process}; expected 0 to {(request.processes or 1) - 1}")
    apart(request, "out", "table")
    for name in ("out", "table"):
        _check_file(name, getattr(request, name))
    return request


def _check_file(name: str, path: str | None) -> None:
    """Raise where a file cannot be written, before a minute is spent."""
    if path is None:
        return
    try:
        folder = Path(path).absolute().parent
        usable = folder.is_dir() and os.access(folder, os.W_OK) and not Path(path).is_dir()
    except (OSError, ValueError):
        usable = False
    if not usable:
        raise SpecError(f"{COMMAND_LINE}: `{name}` is {plain(path)!r}, which cannot be written")


def run(request: Request) -> Answer:
    """Measure, fit and write."""
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else None
    with ended_at_once(), standard_output_for_errors():  # what joins processes prints that it does
        if (request.processes or 1) > 1:
            _join(request)
        devices = Devices()
        with clock("measure", request.seconds or _SECONDS) as told:
            measured = measure(devices, request.seconds or _SECONDS, told)
    cluster, log_errors = fit_node(measured, devices.node)
    error, told = float(np.median(np.abs(log_errors))), tuple(measured)
    answer = Answer(node=devices.node, measured=told, cluster=cluster, error=error, load=load, writes=devices.first)
    if answer.writes:
        write(answer, request.out, request.table)
    return answer


def _join(request: Request) -> None:
    """Join the processes. JAX would otherwise take SIGTERM as notice of a preemption, and let nobody end it."""
    os.environ.setdefault("JAX_ENABLE_PREEMPTION_SERVICE", "0")
    import jax

    jax.distributed.initialize(request.coordinator, request.processes, request.process)


def write(answer: Answer, out: str | None, table: str | None) -> None:
    """Both files under names of their own first, so that nobody finds half of one."""
    with contextlib.ExitStack() as temporary:
        written = []
        if table is not None:
            own = _beside(table, temporary)
            write_table(own, COLUMNS, _rows(answer))
            written.append((own, table))
        if out is not None:
            own = _beside(out, temporary)
            own.write_text(as_toml(answer.cluster, by="measure"), encoding="utf-8")
            written.append((own, out))
        for own, name in written:
            os.replace(own, name)


def _beside(path: str, temporary: contextlib.ExitStack) -> Path:
    own = Path(path).absolute().parent / f".{Path(path).name}.{os.getpid()}.tmp"
    temporary.callback(own.unlink, missing_ok=True)
    return own


def _rows(answer: Answer) -> list[list[str]]:
    date = datetime.now(UTC).strftime("%Y-%m-%d")
    node = answer.node
    between = f"{node.per_node} devices of one process" + (f", {node.nodes} processes" if node.nodes > 1 else "")
    return as_rows(answer.measured, node.kind, between, date)


def as_json(request: Request, answer: Answer) -> dict[str, Any]:
    """Rates, constants, and how well they repeat what was measured."""
    inputs = {"out": request.out, "table": request.table, "seconds": request.seconds or _SECONDS}
    node, cluster = answer.node, answer.cluster
    return answered(inputs) | {
        "device": node.kind,
        "devices": node.devices,
        "processes": node.nodes,
        "measurements": len(answer.measured),
        "error": answer.error,
        "load": answer.load,
        "cluster": cluster.name,
        "accelerator": _rates(cluster),
        "stack": {name: getattr(cluster.stack, name) for name in _SHOWN},
    }


_SHOWN = (
    "matmul_ceiling", "matmul_size0", "attention_ceiling", "attention_size0", "hbm_ceiling", "unfused_touches",
    "update_passes", "kernel_s", "step_s", "collective_s", "link_ceiling",
)  # fmt: skip


def _rates(cluster: Cluster) -> Mapping[str, float]:
    chip, tier = cluster.accelerator, cluster.tiers[-1]
    return {
        "peak_32bit_flop_per_s": chip.peak_32bit_flop_per_s,
        "peak_16bit_flop_per_s": chip.peak_16bit_flop_per_s,
        "hbm_bytes": chip.hbm_bytes,
        "hbm_bytes_per_s": chip.hbm_bytes_per_s,
        "bandwidth_bytes_per_s": tier.bandwidth_bytes_per_s,
        "latency_s": tier.latency_s,
    }


def show(request: Request, answer: Answer) -> None:
    """The node's rates, the error of the fit, and where it stands now."""
    if not answer.writes:
        return
    node, chip, stack = answer.node, answer.cluster.accelerator, answer.cluster.stack
    print(f"{node.devices} x {node.kind}, {len(answer.measured)} measurements, all devices busy at once")
    products, attention = stack.matmul_ceiling, stack.attention_ceiling
    for width in ("32bit", "16bit"):
        peak = getattr(chip, f"peak_{width}_flop_per_s")
        shares = f"large products {_share(products)}, attention {_share(attention)}"
        print(f"  {width:6} {peak / 1e12:.4g} TFLOP/s at peak, {shares}")
    print(f"  memory {chip.hbm_bytes_per_s / 1e9:.4g} GB/s, streams {_share(stack.hbm_ceiling)}")
    print(f"  a call {1e6 * stack.step_s:.3g} us, a kernel {1e6 * stack.kernel_s:.3g} us")
    print(f"median error of the constants on what was measured: {units.percent(answer.error)}")
    if answer.load is not None and answer.load > 0.5 and node.platform == "cpu":
        print(f"the machine had a load of {answer.load:.1f}: the rates are those of what was left of it")
    for path in filter(None, (request.table, request.out)):
        print(f"written: {path}")


def _share(value: float) -> str:
    return f"{100 * value:.0f} %"


MEASURE = Command(
    request=Request,
    about="Measures this node with JAX (processor, GPU, TPU): a table of kernels and collectives, and a cluster file.",
    examples="""
examples:
  equipoise measure --out my_node.toml --table my_node.csv
  equipoise measure --seconds 300 --out my_node.toml
  equipoise measure --processes 2 --process 0 --coordinator host0:1234 --out my_nodes.toml
  equipoise plan --model llama3-8b --cluster my_node.toml""",
    ask=ask,
    run=run,
    as_json=as_json,
    show=show,
)
