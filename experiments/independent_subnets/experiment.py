"""Where do independent subnetworks beat data parallelism, and what does their theory promise?

The checks of the theory on quadratics, published beside ours, and the phase diagram of bandwidth, target and workers:
seconds of a step by the cost model times rounds by the theory. Beyond the paper: the bandwidth at which the two meet.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from costmodel import load_cluster, load_workload
from costmodel.target import instance, phases, winners
from experiments import beside
from experiments.independent_subnets import figures
from experiments.independent_subnets.checks import INDEPENDENT, PAPER, rows
from experiments.runner import write_rows

TRUSTS = {PAPER: "A", INDEPENDENT: "B", "this package": "ours"}
"""Of each check, in the words that all experiments share."""


@dataclass(frozen=True, kw_only=True)
class Config:
    """Settings of the `independent_subnets` experiment."""

    model: str = "llama3-8b"
    """Name or file: what each worker trains, whole or a part."""
    cluster: str = "h100"
    workers: tuple[int, ...] = (4, 8, 16, 32)
    """Divisors of `dimension`."""
    batch: int = 64
    """Sequences of a step."""
    sequence: int = 2048
    dimension: int = 64
    """Of the quadratic whose rounds are counted."""
    seeds: int = 500
    """For what is played."""
    points: int = 60
    """Bandwidths, and half as many targets."""
    quick: bool = False
    """Two numbers of workers, 100 seeds, 24 bandwidths."""


def run(config: Config, folder: Path, say: Callable[[str], None]) -> dict[str, Any]:
    """Check, then map."""
    say("checks")
    checked = rows(100 if config.quick else config.seeds)
    diagrams = {}
    for workers in config.workers[1:3] if config.quick else config.workers:
        say(f"{workers} workers")
        diagrams[str(workers)] = _diagram(config, workers, 24 if config.quick else config.points)
    say("figures")
    figures.draw(diagrams, folder)
    write_rows(checked, folder / "checks.csv")
    return {"checks": checked, "diagrams": diagrams, "beside": [_beside(row) for row in checked]}


def _beside(row: Mapping[str, Any]) -> beside.Line:
    """A check as pages show it."""
    trust = TRUSTS[row["trust"]]
    line = beside.line(row["what"], None if trust == "ours" else row["published"], trust, row["ours"])
    return line | {"verdict": "holds" if row["holds"] else "fails"}


def _diagram(config: Config, workers: int, points: int) -> dict[str, Any]:
    workload = load_workload(config.model, batch=config.batch, sequence=config.sequence)
    problem = instance(workers, config.dimension)
    bandwidths, targets = np.logspace(6, 12, points), np.logspace(-1, -8, points // 2)
    found = phases(workload, load_cluster(config.cluster, accelerators=workers), bandwidths, targets, problem)
    return {
        "bandwidths": bandwidths.tolist(),
        "targets": targets.tolist(),
        "bias": problem["bias"],
        "soonest": winners(found).tolist(),
        "meeting_bytes_per_s": _meeting(found, bandwidths),
        "won_below_bias": int((winners(found)[targets < problem["bias"]] == "subnetworks").sum()),
    }


def _meeting(found: Mapping[str, np.ndarray], bandwidths: np.ndarray) -> list[float | None]:
    """For each target the bandwidth up to which subnetworks are sooner than data parallelism; None: never, infinite as
    the largest where always."""
    ahead = found["subnetworks"] < found["plain"]
    return [float(bandwidths[row].max()) if row.any() else None for row in ahead]


def tables(results: Mapping[str, Any]) -> list[Any]:
    """The checks, and where subnetworks and data parallelism meet."""
    from rich.table import Table

    meeting = Table("workers", "bias", "subnetworks sooner at 1e-2", "at 1e-3", "at 1e-4", box=None, pad_edge=False)
    for workers, diagram in results["diagrams"].items():
        told = [_up_to(diagram, target) for target in (1e-2, 1e-3, 1e-4)]
        meeting.add_row(workers, f"{diagram['bias']:.2g}", *told)
    return [beside.table(results["beside"]), meeting]


def answer(results: Mapping[str, Any]) -> list[str]:
    """Three sentences."""
    held, told = sum(row["holds"] for row in results["checks"]), results["diagrams"].items()
    where = "; ".join(f"with {workers} workers {_up_to(diagram, 1e-2)}" for workers, diagram in told)
    below = sum(diagram["won_below_bias"] for diagram in results["diagrams"].values())
    biases = ", ".join(f"{diagram['bias']:.2g}" for diagram in results["diagrams"].values())
    return [
        f"{held} of {len(results['checks'])} checks of the theory hold.",
        f"To a relative error of 1e-2 subnetworks are sooner than data parallelism {where}.",
        f"Below their bias ({biases}) they win {'nowhere' if not below else f'at {below} targets, which is wrong'}: "
        "there other methods, or a smaller step, are needed.",
    ]


def _up_to(diagram: Mapping[str, Any], target: float) -> str:
    at = int(np.abs(np.log(np.array(diagram["targets"]) / target)).argmin())
    most = diagram["meeting_bytes_per_s"][at]
    if most is None:
        return "never"
    return "at any bandwidth" if most >= diagram["bandwidths"][-1] else f"up to {most / 1e9:.3g} GB/s"


def failure(results: Mapping[str, Any]) -> str | None:
    """A check that does not hold, or subnetworks that win below their bias."""
    wrong = [row["what"] for row in results["checks"] if not row["holds"]]
    below = [workers for workers, diagram in results["diagrams"].items() if diagram["won_below_bias"]]
    if below:
        wrong.append(f"subnetworks win below their bias with {', '.join(below)} workers")
    return "; ".join(wrong) or None
