"""Which cluster of 125 million dollars trains 175B, 530B and 1T models fastest: how many accelerators, how much of which memory?

The design problem of Isaev et al. 2023 (Calculon, table 3) with its prices: accelerators of 20,000 USD, HBM and a
second memory by size, no price for the network, a second memory of 100 GB/s. Every legal plan of every cluster size
within the budget is evaluated, each memory as large as the plan needs; beside it the sixteen combinations of listed
sizes, by the same model. Shadow prices say what the next per cent of money, bytes and rates would buy.
"""

import csv
import dataclasses
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from costmodel.cluster import Cluster
from costmodel.plan import Plan
from costmodel.specs import load_cluster, load_workload
from costmodel.workload import Workload
from experiments._budget import answers, figures
from experiments._budget.prices import COMBINATIONS
from experiments._budget.space import Choice, cluster_of, cluster_sizes, search

MODELS = {"gpt3-175b": 2304, "mt-nlg-530b": 2520, "megatron-1t": 3072}
"""Global batches: near those of the study (about 2,320, 2,520 and 3,060, which vary with the cluster there)."""


@dataclass(frozen=True, kw_only=True)
class Config:
    """Settings of the `budget_125m` experiment."""

    budget_usd: float = 125e6
    """For accelerators with their memories; the network is left out."""
    second_memory_gb_per_s: float = 100.0
    """Of each accelerator, per direction."""
    least_accelerators: int = 1536
    """Smaller clusters are not looked at."""
    quick: bool = False
    """One model, clusters of 4,096 accelerators and more."""
    change: float = 0.02
    """The budget is also moved by so much each way, and everything searched again."""


def run(config: Config, folder: Path, say: Callable[[str], None]) -> dict[str, Any]:
    """Search, choose, differentiate, draw."""
    template = load_cluster("h100")
    rate = config.second_memory_gb_per_s * 1e9
    chip = dataclasses.replace(template.accelerator, second_memory_bytes_per_s=rate)
    template = dataclasses.replace(template, accelerator=chip, prices=None)
    names = list(MODELS)[:1] if config.quick else list(MODELS)
    models = {name: _model(name, template, config, say) for name in names}
    results = {"models": models, "second_memory_bytes_per_s": rate}
    say("figures")
    figures.draw(results, folder)
    _write_csv(results, folder / "designs.csv")
    return results


def _model(name: str, template: Cluster, config: Config, say: Callable[[str], None]) -> dict[str, Any]:
    """All answers for one model."""
    started, workload = time.perf_counter(), load_workload(name, batch=MODELS[name])
    free = {factor: Choice(factor * config.budget_usd) for factor in (1.0, 1 - config.change, 1 + config.change)}
    listed = [Choice(config.budget_usd, sizes) for sizes in COMBINATIONS]
    largest = (1 + config.change) * config.budget_usd
    counts = cluster_sizes(workload, largest, 4096 if config.quick else config.least_accelerators)
    found, evaluated = search(workload, template, counts, [*free.values(), *listed], say)
    chosen = {factor: answers.best(workload, template, found, choice) for factor, choice in free.items()}
    rows = [(choice.sizes, answers.best(workload, template, found, choice)) for choice in listed]
    best = chosen[1.0]
    return {
        "batch": MODELS[name],
        "cluster_sizes": len(counts),
        "evaluated": evaluated,
        "design": best,
        "moved_budget": {f"{factor:g}": answer for factor, answer in chosen.items() if factor != 1.0},
        "combinations": [{"hbm": s.hbm, "second": s.second, "usd": s.usd, "best": answer} for s, answer in rows if s],
        **(_examined(workload, template, best) if best else {}),
        "seconds": time.perf_counter() - started,
    }


def _examined(workload: Workload, template: Cluster, best: dict[str, Any]) -> dict[str, Any]:
    """The design's checks and shadow prices."""
    plan = Plan(**best["fields"])
    machine = cluster_of(template, plan.accelerators)
    return {
        "checks": answers.checked(workload, machine, plan),
        "shadow_prices": answers.shadow_prices(workload, machine, plan),
    }


def _designs(results: dict[str, Any]) -> Iterator[tuple[str, str, float | None, dict[str, Any] | None]]:
    """Model, sizes, price of an accelerator where listed, and the best design with them."""
    for name, model in results["models"].items():
        yield name, "as needed", None, model["design"]
        for row in model["combinations"]:
            yield name, f"{row['hbm']}/{row['second']}", row["usd"], row["best"]


def _write_csv(results: dict[str, Any], path: Path) -> None:
    columns = ("accelerators", "hbm_gib", "second_gib", "usd", "step_s", "samples_per_s", "mfu", "plan")
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(("model", "hbm/second", "usd_per_accelerator", *columns))
        for name, sizes, usd, best in _designs(results):
            writer.writerow((name, sizes, usd, *((best or {}).get(column) for column in columns)))


def tables(results: dict[str, Any]) -> Iterator[Any]:
    """Designs of each model, then the shadow prices."""
    from rich.table import Table

    for name, model in results["models"].items():
        title = f"{name}, batch {model['batch']:,}: {model['evaluated']:,} plans in {model['seconds']:.1f} s"
        table = Table("HBM/second GB", "bought", "used GiB", "M USD", "samples/s", "step s", "MFU", "plan", title=title)
        for _, sizes, _, best in (row for row in _designs(results) if row[0] == name):
            table.add_row(sizes, *(_cells(best) if best else ("no plan fits",)))
        yield table
    yield _shadow_table(results)


def _cells(best: dict[str, Any]) -> tuple[str, ...]:
    used = f"{best['hbm_gib']:.1f} + {best['second_gib']:.1f}"
    numbers = (f"{best['usd'] / 1e6:.1f}", f"{best['samples_per_s']:.1f}", f"{best['step_s']:.2f}")
    return (f"{best['accelerators']:,}", used, *numbers, f"{100 * best['mfu']:.1f} %", best["plan"])


_WORDS = {
    "budget": "budget",
    "hbm_bytes_needed": "HBM bytes, 1 % fewer needed",
    "second_bytes_needed": "second-memory bytes, 1 % fewer needed",
    "second_memory_bytes_per_s": "second-memory bandwidth",
    "hbm_bytes_per_s": "HBM bandwidth",
    "flop_per_s": "FLOP/s",
    "scale_up_bytes_per_s": "scale-up bandwidth",
    "scale_out_bytes_per_s": "scale-out bandwidth",
}


def _shadow_table(results: dict[str, Any]) -> Any:
    from rich.table import Table

    names = [name for name, model in results["models"].items() if "shadow_prices" in model]
    table = Table("one per cent more", *names, title="Buys so many per cent more samples/s", title_justify="left")
    for key, words in _WORDS.items():
        values = (results["models"][name]["shadow_prices"][key] for name in names)
        table.add_row(words, *map(_sides, values))
    for factor in next(iter(results["models"].values()))["moved_budget"]:
        moved = (_change(results["models"][name], factor) for name in names)
        table.add_row(f"budget times {factor}, searched again", *moved)
    return table


def _sides(value: float | list[float]) -> str:
    if not isinstance(value, list):
        return f"{value:.2f}"
    left, right = value
    return f"{right:.2f}" if abs(left - right) < 0.005 else f"{left:.2f} less, {right:.2f} more"


def _change(model: dict[str, Any], factor: str) -> str:
    moved = model["moved_budget"][factor]
    return (
        "no plan"
        if moved is None
        else f"{100 * (moved['samples_per_s'] / model['design']['samples_per_s'] - 1):+.1f} %"
    )
