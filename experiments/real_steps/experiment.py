"""How long do real training steps take here, and what was predicted from `equipoise measure` alone, and after three?

A small decoder is trained in plain JAX on one and on two processor devices, data- and tensor-parallel, with and without
recompute and accumulation. Steps run in processes of their own, which keep memory that they have had (`_ALLOCATOR`), as
frameworks' allocators do: fresh pages cost a processor 0.4 ns a byte. It needs a quiet machine: it says so where it
was not.
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from costmodel.inputs import Cluster
from costmodel.specs import load_cluster
from experiments.real_steps import figures
from experiments.real_steps.layouts import QUICK, Layout, layouts
from experiments.real_steps.prediction import after, kendall_tau, predicted, subsets

TARGETS = {"measure_alone": 0.25, "after_rows": 0.12, "tau": 0.7}
LOADED = 0.7
"""A load of the machine, before anything is run, from which the times are not those of a quiet one."""
_ALLOCATOR = {"MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": str(2**34), "MALLOC_ARENA_MAX": "1"}
_DEVICES = (1, 2)


def run(
    folder: Path,
    say: Any,
    *,
    measure_seconds: float = 60.0,
    step_seconds: float = 4.0,
    steps: int = 5,
    rows: int = 3,
    draws: int = 6,
    seed: int = 0,
    quick: bool = False,
) -> dict[str, Any]:
    """Measure the node, train, predict.

    Args:
        measure_seconds: of `equipoise measure`, for each number of devices
        step_seconds: of the steps of each layout, after compilation
        steps: at least
        rows: given to `calibrate`
        quick: a few small layouts and seconds: whether it runs, not how well
    """
    loads = [_load()]
    seconds, known = 1.0 if quick else measure_seconds, QUICK if quick else layouts()
    clusters = {devices: _measured(devices, seconds, folder, say) for devices in _DEVICES}
    order = {"quick": quick, "seconds": 0.1 if quick else step_seconds, "steps": 2 if quick else steps}
    trained = [answer for devices in _DEVICES for answer in _steps(known, devices, order, say)]
    loads.append(_load())
    measured = [_row(known[step["place"]], step, clusters) for step in trained]
    alone = _scored(measured, [row["predicted_s"] for row in measured])
    given = subsets(known, rows, 2 if quick else draws, seed)
    few = _after_rows(known, given, measured, clusters)
    results = {
        "rows": measured,
        "measure_alone": alone,
        "after_rows": few,
        "memory": float(np.median([abs(np.log(row["predicted_bytes"] / row["bytes"])) for row in measured])),
        "targets": TARGETS,
        "load": {"before": loads[0], "after": loads[1], "loaded": loads[0] > LOADED},
    }
    figures.draw(results, folder)
    figures.table(results, folder / "rows.csv")
    return results


def _load() -> float:
    return os.getloadavg()[0] if hasattr(os, "getloadavg") else 0.0


def _environment(devices: int) -> dict[str, str]:
    flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count={devices}".strip()
    return {**os.environ, **_ALLOCATOR, "XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu"}


def _measured(devices: int, seconds: float, folder: Path, say: Any) -> Cluster:
    """The cluster file of `equipoise measure`, read as every command reads it."""
    say(f"equipoise measure on {devices} devices")
    name = str(folder / f"node_{devices}")
    words = ["measure", "--seconds", str(seconds), "--out", f"{name}.toml", "--table", f"{name}.csv"]
    _finished([sys.executable, "-m", "optimize.cli", *words], devices)
    return load_cluster(f"{name}.toml")


def _finished(command: Sequence[str], devices: int) -> str:
    done = subprocess.run(command, capture_output=True, text=True, env=_environment(devices), check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command[1:3])} failed: {done.stderr.strip()[-2000:]}")
    return done.stdout


def _steps(known: Sequence[Layout], devices: int, order: Mapping[str, Any], say: Any) -> Iterator[dict[str, Any]]:
    """Each layout in a process of its own, so that none runs in memory that another has left."""
    for place, layout in enumerate(known):
        if layout.devices == devices:
            say(f"training {layout.name}")
            own = json.dumps({"layouts": [place], **order})
            out = _finished([sys.executable, "-m", "experiments.real_steps.worker", own], devices)
            yield json.loads(out.splitlines()[-1]) | {"load": _load()}


def _row(layout: Layout, step: Mapping[str, Any], clusters: Mapping[int, Cluster]) -> dict[str, Any]:
    step_s, tensor_bytes = predicted(layout, clusters[layout.devices])
    own = {"devices": layout.devices, "predicted_s": step_s, "predicted_bytes": tensor_bytes}
    return {**step, **own}


def _scored(rows: Sequence[Mapping[str, Any]], said: Sequence[float]) -> dict[str, float]:
    """Median error, the common factor, and the order: of all, and in the mean over models of each one's layouts."""
    errors = np.log([s / row["step_s"] for s, row in zip(said, rows, strict=True)])
    measured = [row["step_s"] for row in rows]
    return {
        "median": float(np.median(np.abs(errors))),
        "p90": float(np.quantile(np.abs(errors), 0.9)),
        "bias": float(np.median(errors)),
        "tau": kendall_tau(measured, said),
        "tau_within_models": _tau_within(rows, said),
    }


def _tau_within(rows: Sequence[Mapping[str, Any]], said: Sequence[float]) -> float:
    models: dict[str, list[int]] = {}
    for i, row in enumerate(rows):
        models.setdefault(row["layout"].split()[0], []).append(i)
    several = [places for places in models.values() if len(places) > 1]
    return float(
        np.mean([kendall_tau([rows[i]["step_s"] for i in at], [said[i] for i in at]) for at in several or [[]]])
    )


def _after_rows(
    layouts: Sequence[Layout],
    chosen: Iterable[Sequence[Layout]],
    rows: list[dict[str, Any]],
    clusters: Mapping[int, Cluster],
) -> dict[str, Any]:
    """What the others say after a few rows, in the mean over draws; each row keeps its mean prediction."""
    known = {layout.name: layout for layout in layouts}
    measured = {row["layout"]: row["step_s"] for row in rows}
    scores: list[dict[str, float]] = []
    said: dict[str, list[float]] = {row["layout"]: [] for row in rows}
    for given in chosen:
        moved, names = after(given, measured, clusters), {layout.name for layout in given}
        left = [row for row in rows if row["layout"] not in names]
        new = [predicted(known[row["layout"]], moved[row["devices"]])[0] for row in left]
        scores.append(_scored(left, new))
        for row, seconds in zip(left, new, strict=True):
            said[row["layout"]].append(seconds)
    for row in rows:
        own = said[row["layout"]]
        row["after_rows_s"] = float(np.exp(np.mean(np.log(own)))) if own else None
    return {name: float(np.mean([score[name] for score in scores])) for name in scores[0]} | {"draws": len(scores)}


def tables(results: Mapping[str, Any]) -> list[Any]:
    """What the terminal shows."""
    from rich.table import Table

    layouts_table = Table(
        "layout", "measured s", "predicted s", "error", "after rows s", "error", "XLA MB", "MB", box=None
    )
    for row in results["rows"]:
        layouts_table.add_row(row["layout"], f"{row['step_s']:.4g}", *_said(row), *_megabytes(row))
    scores = Table("", "median error", "p90", "bias", "tau", "tau within models", "target", box=None)
    for name, words in (("measure_alone", "measure alone"), ("after_rows", "after a few rows")):
        own = results[name]
        figures_of = (own["median"], own["p90"], own["bias"], own["tau"], own["tau_within_models"])
        scores.add_row(words, *(f"{figure:.2f}" for figure in figures_of), f"{TARGETS[name]:.2f}, tau {TARGETS['tau']}")
    load = results["load"]
    words = f"load of the machine {load['before']:.1f} before, {load['after']:.1f} after"
    warning = "; it was NOT quiet: these times are not its own" if load["loaded"] else ""
    return [layouts_table, scores, f"median error of the bytes {results['memory']:.2f}", words + warning]


def _said(row: Mapping[str, Any]) -> Iterator[str]:
    for name in ("predicted_s", "after_rows_s"):
        seconds = row[name]
        yield "" if seconds is None else f"{seconds:.4g}"
        yield "" if seconds is None else f"{seconds / row['step_s'] - 1:+.0%}"


def _megabytes(row: Mapping[str, Any]) -> Iterator[str]:
    for name in ("bytes", "predicted_bytes"):
        yield f"{row[name] / 1e6:.0f}"


def answer(results: Any) -> list[str]:
    """Three sentences."""
    alone, few, load = results["measure_alone"], results["after_rows"], results["load"]
    quiet = "a busy machine, which says little" if load["loaded"] else "a quiet machine"
    return [
        f"Of {len(results['rows'])} layouts on {quiet}, steps predicted from `equipoise measure` alone are off by "
        f"{alone['median']:.2f} in the median of |log(predicted / measured)|.",
        f"After three measured rows they are off by {few['median']:.2f}.",
        f"Memory is off by {results['memory']:.2f}.",
    ]
