"""Which cluster of 125 million dollars trains 175B, 530B and 1T models fastest: how many accelerators, which memories?

The design problem of Isaev et al. 2023 (Calculon, table 3) with its prices: accelerators of 20,000 USD, HBM and a
second memory by size, no price for the network, a second memory of 100 GB/s. For every cluster size within the budget
all plans over tensor, pipeline and data parallelism, schedules, microbatches, recompute, ZeRO 1 or 3 and what is
offloaded are evaluated, each memory as large as the plan needs; beside it the sixteen combinations of listed sizes, by
the same model. Shadow prices say what the next per cent of money, bytes and rates would buy.
"""

import dataclasses
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from costmodel.inputs import Cluster, Plan
from costmodel.specs import load_cluster, load_workload
from experiments.budget_125m import answers, figures
from experiments.budget_125m.prices import COMBINATIONS, listed_usd
from experiments.budget_125m.space import Choice, cluster_of, cluster_sizes, search
from experiments.runner import side_by_side, write_table

MODELS = {"gpt3-175b": (2304, 2310, 2340), "mt-nlg-530b": (2496, 2520, 2560), "megatron-1t": (3040, 3060, 3072)}
"""Global batches, within 2 % of one another: like those of the study, which follow the cluster (2,315 to 2,343, 2,520,
3,040 to 3,073), so that more cluster sizes divide one."""
COLUMNS = ("batch", "accelerators", "hbm_gib", "second_gib", "usd", "step_s", "samples_per_s", "mfu", "plan")


def run(
    folder: Path,
    say: Callable[[str], None],
    *,
    budget_usd: float = 125e6,
    second_memory_gb_per_s: float = 100.0,
    least_accelerators: int = 1536,
    quick: bool = False,
    change: float = 0.02,
) -> dict[str, Any]:
    """Search, choose, differentiate, draw.

    Args:
        budget_usd: For accelerators with their memories; the network is left out.
        second_memory_gb_per_s: Of each accelerator, per direction.
        least_accelerators: Smaller clusters are not looked at.
        quick: One model, clusters of 4,096 accelerators and more.
        change: The budget is also moved by so much each way, and everything searched again.
    """
    template = load_cluster("h100")
    rate = second_memory_gb_per_s * 1e9
    chip = dataclasses.replace(template.accelerator, second_memory_bytes_per_s=rate)
    template = dataclasses.replace(template, accelerator=chip, prices=None)
    choices: list[Choice] = [(factor * budget_usd, None) for factor in (1.0, 1 - change, 1 + change)]
    choices += [(budget_usd, sizes) for sizes in COMBINATIONS]
    first, least = (1, 4096) if quick else (None, least_accelerators)
    asked = {name: (MODELS[name][:first], template, choices, least) for name in list(MODELS)[:first]}
    models = side_by_side(_model, asked, "every plan of every cluster size", say)
    results = {"models": models, "second_memory_bytes_per_s": rate, "change": change}
    say("figures")
    figures.draw(results, folder)
    write_table(("model", "hbm/second", "usd_per_accelerator", *COLUMNS), _rows(results), folder / "designs.csv")
    return results


def _model(
    name: str,
    batches: Sequence[int],
    template: Cluster,
    choices: Sequence[Choice],
    least: int,
    say: Callable[[str], None],
) -> dict[str, Any]:
    """All answers for one model: of the choices the first is the budget, the next two are less and more."""
    started, evaluated, answered = time.perf_counter(), 0, []
    for batch in batches:
        workload = load_workload(name, batch=batch)
        counts = cluster_sizes(workload, max(budget_usd for budget_usd, _ in choices), least)
        plans, tried = search(workload, template, counts, choices, say)
        evaluated += tried
        answered.append([answers.best(workload, template, plans, choice) for choice in choices])
    best, less, more, *listed = (_fastest(column) for column in zip(*answered, strict=True))
    rows = zip(COMBINATIONS, listed, strict=True)
    return {
        "evaluated": evaluated,
        "design": best,
        "budget_less": less,
        "budget_more": more,
        "combinations": [
            {"hbm": sizes[0], "second": sizes[1], "usd": listed_usd(sizes), "best": answer} for sizes, answer in rows
        ],
        **(_examined(name, template, best) if best else {}),
        "seconds": time.perf_counter() - started,
    }


def _fastest(designs: Sequence[dict[str, Any] | None]) -> dict[str, Any] | None:
    """The most samples per second over the batches."""
    return max((answer for answer in designs if answer), key=lambda answer: answer["samples_per_s"], default=None)


def _examined(name: str, template: Cluster, best: dict[str, Any]) -> dict[str, Any]:
    """The design's checks and shadow prices."""
    plan, workload = Plan(**best["fields"]), load_workload(name, batch=best["batch"])
    machine = cluster_of(template, plan.accelerators)
    return {
        "checks": answers.checked(workload, machine, plan),
        "shadow_prices": answers.shadow_prices(workload, machine, plan),
        "enough_bytes_per_s": answers.enough_bandwidth(workload, machine, plan),
    }


def _designs(results: dict[str, Any]) -> Iterator[tuple[str, str, float | None, dict[str, Any] | None]]:
    """Model, sizes, price of an accelerator where listed, and the best design with them."""
    for name, model in results["models"].items():
        yield name, "as needed", None, model["design"]
        for row in model["combinations"]:
            yield name, f"{row['hbm']}/{row['second']}", row["usd"], row["best"]


def _rows(results: dict[str, Any]) -> Iterator[tuple[Any, ...]]:
    for name, sizes, usd, best in _designs(results):
        yield name, sizes, usd, *((best or {}).get(column) for column in COLUMNS)


def tables(results: dict[str, Any]) -> Iterator[Any]:
    """Designs of each model, then the shadow prices."""
    from rich.table import Table

    for name, model in results["models"].items():
        title = f"{name}: {model['evaluated']:,} plans in {model['seconds']:.1f} s"
        columns = ("GiB", "bought", "used GiB", "M USD", "samples/s", "MFU", "plan")
        table = Table(*columns, title=title, title_justify="left", caption=_PLANS, caption_justify="left")
        for _, sizes, _, best in (row for row in _designs(results) if row[0] == name):
            table.add_row(sizes, *(_cells(best) if best else ("no plan fits",)))
        yield table
    yield _shadow_table(results)


def _cells(best: dict[str, Any]) -> tuple[str, ...]:
    used, plan = f"{best['hbm_gib']:.1f} + {best['second_gib']:.1f}", best["fields"]
    degrees = {"t": "tensor", "p": "pipeline", "v": "virtual_stages", "d": "data", "b": "microbatch"}
    words = [f"{letter}{plan[field]}" for letter, field in degrees.items()]
    words += [plan["recompute"]] if plan["recompute"] != "none" else []
    words += [f"{part[0]}{plan[f'offload_{part}']:g}" for part in PARTS if plan[f"offload_{part}"]]
    numbers = (f"{best['usd'] / 1e6:.1f}", f"{best['samples_per_s']:.1f}", f"{100 * best['mfu']:.1f} %")
    return (f"{best['accelerators']:,}", used, *numbers, " ".join(words))


_PLANS = (
    "GiB, used GiB: HBM and second memory; plan: ranks that are t tensor, p pipeline, d data; v virtual stages, "
    "b sequences of a microbatch; share in the second memory of w weights, o optimizer states, a activations"
)
PARTS = ("weights", "optimizer", "activations")
_WORDS = {
    "budget": "budget",
    "hbm_bytes_needed": "HBM: 1 % fewer bytes needed",
    "second_bytes_needed": "second memory: 1 % fewer bytes",
    "second_memory_bytes_per_s": "second-memory bandwidth",
    "hbm_bytes_per_s": "HBM bandwidth",
    "flop_per_s": "FLOP/s",
    "scale_up_bytes_per_s": "scale-up bandwidth",
    "scale_out_bytes_per_s": "scale-out bandwidth",
}


def _shadow_table(results: dict[str, Any]) -> Any:
    from rich.table import Table

    models = {name: model for name, model in results["models"].items() if "shadow_prices" in model}
    table = Table("1 % more", *models, title="Shadow prices: per cent more samples/s", title_justify="left")
    for key, words in _WORDS.items():
        table.add_row(words, *(_sides(model["shadow_prices"][key]) for model in models.values()))
    for key, words in (("budget_less", "2 % less budget, searched again"), ("budget_more", "2 % more, searched again")):
        table.add_row(
            words.replace("2 %", f"{100 * results['change']:g} %"), *(_change(m, key) for m in models.values())
        )
    enough = (f"{model['enough_bytes_per_s'] / 1e9:.1f} GB/s" for model in models.values())
    table.add_row("second-memory bandwidth that is enough", *enough)
    return table


def _sides(value: float | list[float]) -> str:
    left, right = value if isinstance(value, list) else (value, value)
    left, right = (f"{abs(side) if abs(side) < 0.005 else side:.2f}" for side in (left, right))
    return right if left == right else f"{left} less, {right} more"


def _change(model: dict[str, Any], key: str) -> str:
    moved, best = model[key], model["design"]
    return "no plan" if moved is None else f"{100 * (moved['samples_per_s'] / best['samples_per_s'] - 1):+.1f} %"


def answer(results: dict[str, Any]) -> list[str]:
    """A sentence for each model."""
    told = []
    for name, model in results["models"].items():
        best = model["design"]
        if best is None:
            told.append(f"{name}: nothing is feasible.")
            continue
        told.append(
            f"{name}: {best['accelerators']:,} accelerators with {best['hbm_gib']:.0f} GiB of HBM and "
            f"{best['second_gib']:.0f} GiB beside it train {best['samples_per_s']:.1f} samples/s{_gained(model, best)}."
        )
    return told


def _gained(model: dict[str, Any], best: dict[str, Any]) -> str:
    """How much more that is than with the best of the listed sizes."""
    listed = _fastest([row["best"] for row in model["combinations"]])
    if listed is None:
        return ", where no listed sizes do"
    return f", {100 * (best['samples_per_s'] / listed['samples_per_s'] - 1):.0f} % more than the best listed sizes"
