"""Where do independent subnetworks beat data parallelism, and what does their theory promise?

The checks of the theory on quadratics, published beside ours, and the phase diagram of bandwidth, target and workers:
seconds of a step by the cost model times rounds by the theory. Beyond the paper: the bandwidth at which the two meet.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from costmodel import load_cluster, load_workload
from costmodel.inputs import Cluster, Workload
from costmodel.target import instance, phases, winners
from experiments import beside
from experiments.independent_subnets import figures
from experiments.independent_subnets.checks import INDEPENDENT, PAPER, rows
from experiments.runner import write_rows

TRUSTS = {PAPER: "A", INDEPENDENT: "B", "this package": "ours"}
"""Of each check, in the words that all experiments share."""


def run(
    folder: Path,
    say: Callable[[str], None],
    *,
    model: str = "llama3-8b",
    cluster: str = "h100",
    workers: tuple[int, ...] = (4, 8, 16, 32),
    batch: int = 64,
    sequence: int = 2048,
    dimension: int = 64,
    seeds: int = 500,
    points: int = 60,
    quick: bool = False,
) -> dict[str, Any]:
    """Check, then map.

    Args:
        model: Name or file: what each worker trains, whole or a part.
        workers: Divisors of `dimension`.
        batch: Sequences of a step.
        dimension: Of the quadratic whose rounds are counted.
        seeds: For what is played.
        points: Bandwidths, and half as many targets.
        quick: Two numbers of workers, 100 seeds, 24 bandwidths.
    """
    say("checks")
    checked = rows(100 if quick else seeds)
    workload, diagrams = load_workload(model, batch=batch, sequence=sequence), {}
    for count in workers[1:3] if quick else workers:
        say(f"{count} workers")
        problem, machine = instance(count, dimension), load_cluster(cluster, accelerators=count)
        diagrams[str(count)] = _diagram(workload, machine, problem, 24 if quick else points)
    say("figures")
    figures.draw(diagrams, folder)
    write_rows(checked, folder / "checks.csv")
    return {"checks": checked, "diagrams": diagrams, "beside": [_beside(row) for row in checked]}


def _beside(row: Mapping[str, Any]) -> beside.Line:
    """A check as pages show it."""
    trust = TRUSTS[row["trust"]]
    line = beside.line(row["what"], None if trust == "ours" else row["published"], trust, row["ours"])
    return line | {"verdict": "holds" if row["holds"] else "fails"}


def _diagram(workload: Workload, cluster: Cluster, problem: Mapping[str, Any], points: int) -> dict[str, Any]:
    bandwidths, targets = np.logspace(6, 12, points), np.logspace(-1, -8, points // 2)
    found = phases(workload, cluster, bandwidths, targets, problem)
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
        f"Subnetworks reach a relative error of 1e-2 sooner than data parallelism {where}.",
        f"Below their bias ({biases}) they win {'nowhere' if not below else f'at {below} targets, which is wrong'}: "
        "smaller steps lower their noise, not their bias.",
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
