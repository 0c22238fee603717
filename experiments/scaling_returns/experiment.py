"""What do more accelerators return under fully sharded training, and when do tensor and pipeline ranks begin to win?

After Fernandez et al. (arXiv 2411.13055, TMLR 2025), of which the abstract and one figure could be read (P); a text
that quotes it gives four percentages without model or batch (S). Ours are runs of Llama 2 7B with 4,096 tokens a
sequence in the class of software `fsdp`, with one and with two sequences on each accelerator: the source says neither.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from experiments import beside
from experiments.runner import write_rows
from experiments.scaling_returns import all_reduces, comparisons, figures, training


def run(
    folder: Path,
    say: Callable[[str], None],
    *,
    model: str = "llama2-7b",
    models: tuple[str, ...] = ("1b", "llama2-7b", "llama2-13b", "llama2-70b"),
    clusters: tuple[str, ...] = ("v100", "a100-80gb", "h100", "b200"),
    degrees_on: str = "h100",
    counts: tuple[int, ...] = (8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192),
    sequence: int = 4096,
    local: int = 2,
    batch: int = 2048,
) -> dict[str, Any]:
    """Weak and strong scaling, degrees, returns of the next accelerator, the published figures, figures of ours.

    Args:
        models: Beside each other on the cluster of `degrees_on`.
        local: Sequences on each accelerator under weak scaling.
        batch: Sequences of all accelerators together under strong scaling.
    """
    say("weak scaling")
    pairs = dict.fromkeys([*((model, name) for name in clusters), *((each, degrees_on) for each in models)])
    weak = [row for pair in pairs for row in training.weak(*pair, counts, sequence, local)]
    say("strong scaling and degrees")
    within = [n for n in counts if n <= batch]
    common = (model, degrees_on)
    results: dict[str, Any] = {
        "degrees_on": degrees_on,
        "weak": weak,
        "strong": list(training.strong(*common, within, sequence, batch)),
        "degrees": [_degrees(n, training.degrees(*common, n, sequence, local)) for n in counts],
        "returns": {
            "weak": training.returns(*common, counts, sequence, float(local), 0.0),
            "strong": training.returns(*common, within, sequence, None, float(batch)),
        },
        "all_reduce": all_reduces.compared(),
        "published_runs": comparisons.published_runs(model, sequence),
        "open_runs": comparisons.open_runs(),
    }
    results["beside"] = list(comparisons.beside_published(results, local))
    write_rows(results["weak"], folder / "weak.csv")
    figures.draw(results, folder)
    return results


def _degrees(n: int, shapes: list[dict[str, Any]]) -> dict[str, Any]:
    plain = next((run for run in shapes if run["tensor"] * run["pipeline"] == 1), None)
    return {"accelerators": n, "shapes": shapes, "plain": plain}


def answer(results: Mapping[str, Any]) -> list[str]:
    """Three sentences."""
    last, strong = results["returns"]["weak"], results["returns"]["strong"]
    wins = [each for each in results["degrees"] if each["shapes"] and _ranks(each["shapes"][0]) > 1]
    runs = results["published_runs"]
    first = f"at {wins[0]['accelerators']:,} accelerators" if wins else "at none of the counts"
    shape = wins[0]["shapes"][0] if wins else {"tensor": 1, "pipeline": 1}
    return [
        f"From 128 to 2,048 H100 the throughput of each falls by {100 * runs['1']['loss']:.0f} % with one sequence on "
        f"each and by {100 * runs['2']['loss']:.0f} % with two (published 37 %, batch not given); without latencies by "
        f"{100 * runs['2']['loss_bandwidth_only']:.1f} %.",
        f"Tensor or pipeline ranks first win {first} (tensor {shape['tensor']}, pipeline {shape['pipeline']}).",
        f"The next accelerator is worth {100 * last['next_accelerator'][-1]:.0f} % of the mean one at "
        f"{last['accelerators'][-1]:,} under weak scaling, and {100 * strong['next_accelerator'][-1]:.0f} % at "
        f"{strong['accelerators'][-1]:,} under strong scaling.",
    ]


def _ranks(run: Mapping[str, Any]) -> int:
    """Model-parallel ranks."""
    return run["tensor"] * run["pipeline"]


def failure(results: Mapping[str, Any]) -> str | None:
    """Lines outside their tolerance that nothing explains."""
    return beside.failed(results["beside"])


def tables(results: Mapping[str, Any]) -> Iterator[Any]:
    """What the terminal shows."""
    yield beside.table(results["beside"])
    columns = ("run", "number", "tokens/s", "MFU, %", "exposed, %", "W", "tokens/J", "recompute")
    rows = [
        (
            f"{row['model']} {row['cluster']}", f"{row['accelerators']:,}", row["tokens_per_s_each"], 100 * row["mfu"],
            100 * row["exposed"], row["watts_each"], row["tokens_per_j"],
            row["recompute"] if row["fits"] else "does not fit",
        )
        for row in results["weak"]
        if row["accelerators"] in (8, 128, 2048, 8192)
    ]  # fmt: skip
    yield beside.plain_table(
        columns, rows, "Weak scaling, parameters sharded over all; tokens/s and W of each, tokens/J at the meter"
    )
    columns = ("accelerators", "fastest", "step, s", "sharding alone, s", "gain, %")
    yield beside.plain_table(columns, list(_fastest(results["degrees"])), "Tensor and pipeline degrees, same batch")
    yield _returns(results["returns"])


def _fastest(degrees: Sequence[Mapping[str, Any]]) -> Iterator[tuple[Any, ...]]:
    for each in degrees:
        if each["plain"] is None or not each["shapes"]:
            continue
        best, plain = each["shapes"][0], each["plain"]
        shape = f"tensor {best['tensor']}, pipeline {best['pipeline']}"
        gain = 100 * (plain["step_s"] / best["step_s"] - 1)
        yield f"{each['accelerators']:,}", shape, best["step_s"], plain["step_s"], gain


def _returns(found: Mapping[str, Any]) -> Any:
    columns = ("scaling", "accelerators", "next accelerator, %", "next watt, %", "next dollar, %")
    keys = ("next_accelerator", "next_watt", "next_usd")
    rows = [
        (name, f"{n:,}", *(100 * each[key][i] for key in keys))
        for name, each in found.items()
        for i, n in enumerate(each["accelerators"])
        if n >= 128
    ]
    return beside.plain_table(columns, rows, "Tokens/s that the next one brings, over the mean one, by gradient")
