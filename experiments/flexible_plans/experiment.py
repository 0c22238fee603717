"""What do flexible plans gain over the spaces that other systems search: orders, placements, resharding, four models?

After SuperScaler (arXiv 2301.08984), nnScaler (OSDI 2024) and Tessel (arXiv 2311.15269): their abstracts, and the
authors' code and measured tables (A), and what follows from these definitions (B). Co-shard and interlaced pipelines
are among the plans; where ours gain less than published, the tables say against which space and with which plan.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np

from experiments import beside
from experiments.flexible_plans import feasibility, figures, gpt_rows, orders, spaces
from experiments.flexible_plans.rates import RATES, switches
from experiments.runner import write_rows

Family = Literal["gpt 2k", "gpt 8k", "swin", "t5", "mbart", "alphafold2"]
Count = Literal[4, 8, 16, 32]
Named = Literal["V", "X", "M", "NN", "NN eager", "mllm", "K", "alphafold"]


def run(
    folder: Path,
    say: Callable[[str], None],
    *,
    cluster: str = "v100-16",
    families: tuple[Family, ...] = get_args(Family),
    counts: tuple[Count, ...] = get_args(Count),
    rates: bool = True,
    placements: tuple[Named, ...] = get_args(Named),
    search_seconds: float = 20.0,
) -> dict[str, Any]:
    """Play schedules, search orders, lay tensors out anew, predict the printed rows, compare spaces, draw.

    Args:
        cluster: Whose accelerators run the models.
        counts: Accelerators of each comparison; the models grow with them.
        rates: Whether to ask which rate would make a losing order win.
        search_seconds: For the order of each placement at most; they take less than one.
    """
    say("orders")
    drawn = orders.timelines()
    results: dict[str, Any] = {
        "schedules": orders.schedules(),
        "resharding": orders.resharding(),
        "orders": orders.found_orders(placements, search_seconds),
        "shared": orders.shared_blocks(),
        "recycling": orders.recycling(),
    }
    say("printed rows")
    results["rows"] = {words: _errors(rows) for words, rows in gpt_rows.classes().items()}
    say("what fits")
    results["feasibility"] = feasibility.table()
    results["embeddings"] = list(feasibility.embeddings())
    results["axial"] = spaces.axial(cluster)
    results["spaces"] = []
    for family in families:
        say(f"spaces of {family}")
        results["spaces"] += [spaces.compared(cluster, family, count) for count in counts]
    say("rates")
    results["rates"] = list(switches(cluster)) if rates else []
    results["beside"] = list(_beside(results))
    (folder / "timelines.json").write_text(json.dumps(drawn) + "\n")
    write_rows(list(_ratios(results["spaces"])), folder / "spaces.csv")
    figures.draw(results | {"timelines": drawn}, folder)
    return results


def _ratios(rows: list[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    """The table of gains: seconds of the best plan of each space over those of the best of all."""
    for row in rows:
        what = {"model": row["model"], "family": row["family"], "accelerators": row["accelerators"]}
        best = row["spaces"][spaces.ALL]
        fastest = {"step_s": best and best["step_s"], "plan": best and best["plan"]}
        yield what | {space: spaces.gain(row, space) for space in spaces.SPACES} | fastest


def _errors(rows: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Mean errors of printed rows."""
    times, memories = gpt_rows.errors(rows)
    return {"time": float(np.abs(times).mean()), "memory": float(np.abs(memories).mean()), "rows": len(times)}


def _beside(results: Mapping[str, Any]) -> Iterator[beside.Line]:
    for row in results["schedules"]:
        name = f"{row['name']}, {row['stages']} stages, {row['microbatches']} microbatches, b = {row['backward']}"
        for key, words in (("makespan", "makespan"), ("bubble", "idle")):
            published = row[f"published_{key}"]
            allowed = (published - 1e-9, published + 1e-9)
            yield beside.line(f"{name}: {words}", float(published), "B", float(row[key]), allowed=allowed)
    for name, (published, ours) in results["resharding"].items():
        yield beside.line(
            f"resharding, {name}", float(published), "B", ours, unit="elements", allowed=(published, published)
        )
    for name, row in results["orders"].items():
        published = float(row["published"])
        what = f"period of the order found for placement {name}"
        yield beside.line(what, published, "B", row["period"], allowed=(published, published))
    for row in results["shared"]:
        what = f"1F1B around shared blocks, placement {row['name']}"
        published = float(row["published"])
        yield beside.line(f"{what}: period", published, "B", row["period"], allowed=(published, published))
        allowed = (row["most"] - 1e-9, row["most"] + 1e-9)
        yield beside.line(f"{what}: over the found order", row["most"], "B", row["gain"], allowed=allowed)
    for row in results["recycling"]:
        published = 3.0 + row["backward"]
        what = f"3F1B, b = {row['backward']}: period"
        yield beside.line(what, published, "A", row["period"], allowed=(published, published))
    yield from _rows_beside(results["rows"])
    yield from _fits_beside(results)
    yield from _axial_beside(results["axial"])
    yield from _spaces_beside(results["spaces"])


def _axial_beside(rows: list[Mapping[str, Any]]) -> Iterator[beside.Line]:
    """How well ranks that divide the axes scale, and the time itself, whose gradient-free passes are not said."""
    for row in rows:
        one, published_one = row["ours_ms"][0], row["published_ms"][0]
        for ranks, ours, measured in zip((2, 4), row["ours_ms"][1:], row["published_ms"][1:], strict=True):
            what = f"{row['model']}: efficiency of {ranks} axial ranks"
            published = 100 * published_one / (ranks * measured)
            bounds = {"unit": "%", "allowed": (0.85 * published, 1.15 * published)}
            yield beside.line(what, published, "B", 100 * one / (ranks * ours), **bounds)
        note = "ours with two passes without gradient; the source does not say whether its times hold them"
        yield beside.line(f"{row['model']}: one V100", published_one, "A", one, unit="ms", note=note)


def _rows_beside(rows: Mapping[str, Mapping[str, float]]) -> Iterator[beside.Line]:
    why = (
        "without pipelines their system takes longer than Alpa with as many tensor ranks and the same microbatch on "
        "the same machine (69.6 against 55.2 s for 2.6B at 4), about a millisecond a layer and microbatch more; ours "
        "is within 4 % of Alpa. Microbatches of 1 take 3 to 4 ms a layer on 1 to 16 ranks, a host that issues kernels; "
        "ours takes the 2.1 ms of vTrain's A100s, and more kernels a layer would be 16 % too slow there"
    )
    own = [rows[words] for words in ("pipeline", "tensor")]
    mean = sum(each["rows"] * each["time"] for each in own) / sum(each["rows"] for each in own)
    what = f"GPT-3 on V100, all {sum(each['rows'] for each in own)} printed rows of their system: mean error of time"
    yield beside.line(what, 5.7, "B", 100 * mean, unit="%", allowed=(0.0, 5.7), explained=why)
    for words, each in rows.items():
        what = f"GPT-3 on V100, {each['rows']} printed rows ({words}): mean error of"
        target = gpt_rows.TARGETS[words]
        bounds = {"unit": "%", "allowed": (0.0, 100 * (target or 0.057)), "explained": why}
        yield beside.line(f"{what} time", target and 100 * target, "B", 100 * each["time"], **bounds)
        if target:  # what Alpa keeps in which types is not said
            note = "of the authors' model on all their rows; ours has other numbers of stages in some"
            published, ours = 100 * gpt_rows.MEMORY_TARGET, 100 * each["memory"]
            yield beside.line(f"{what} memory", published, "B", ours, unit="%", note=note)


def _fits_beside(results: Mapping[str, Any]) -> Iterator[beside.Line]:
    """What ran and what ran out of memory, and what those that ran needed: as the authors' script does it."""
    rows = results["feasibility"]
    ran = [row for row in rows if row["measured_gib"]]
    error = np.mean([abs(row["ours_gib"] / row["measured_gib"] - 1) for row in ran])
    what = f"GPT-3 whole and in pieces: wrong of {len(rows)} rows that ran or not"
    yield beside.line(what, 0.0, "A", float(feasibility.mistakes(rows)), unit="rows", allowed=(0.0, 2.0))
    note = "by the authors' script; one row, whose figure is that of another plan by our count, is 25 % off"
    what = f"the same: mean error of memory of {len(ran)} that ran"
    yield beside.line(what, 0.0, "A", 100 * float(error), unit="%", note=note)
    for row in results["embeddings"]:
        for key, expected in (("alone", row["hidden"] < 4096), ("shared", True)):
            what = f"{row['model']}, hidden {row['hidden']}: table {key}, fits (1) or not"
            published, ours = float(expected), float(row[f"{key}_fits"])
            yield beside.line(what, published, "B", ours, allowed=(published, published))


def _spaces_beside(rows: list[Mapping[str, Any]]) -> Iterator[beside.Line]:
    note = (
        "their models, implementations and baselines; ours compares spaces at the same costs, and ZeRO 3 with tensor "
        "ranks on one NVLink, which their baselines ran with offload to the host, is seldom beaten by much"
    )
    for row in rows:
        if spaces.AS_SET in row["spaces"]:
            what = f"gain over DeepSpeed on {row['model']} as the artifact sets it"
            one = spaces.gain(row, spaces.AS_SET)
            yield beside.line(what, "up to 3.5", "A", "does not fit" if one is None else one, note=note)
    for space in spaces.SPACES:
        gains = [best for row in rows for best in (spaces.gain(row, space),) if best is not None]
        if gains:
            yield beside.line(f"gain over the space of {space}, at most", 3.5, "A", max(gains), note=note)


def answer(results: Mapping[str, Any]) -> list[str]:
    """Three sentences."""
    most = {
        space: max((gain for row in results["spaces"] if (gain := spaces.gain(row, space)) is not None), default=1.0)
        for space in spaces.SPACES
    }
    told = ", ".join(f"{space} {gain:.2f}" for space, gain in most.items())
    rows, shared = results["rows"], {row["name"]: row["gain"] for row in results["shared"]}
    return [
        f"Searched orders leave no bubble on any of {len(results['orders'])} placements, 1F1B around shared blocks "
        f"takes {shared['M']:.2f} and {shared['NN']:.2f} times as long, as published.",
        f"Printed rows of GPT-3 on V100 are off by {100 * rows['pipeline']['time']:.1f} % in time with pipelines (the "
        f"authors' own model by 4.0), without by {100 * rows['tensor']['time']:.0f} % in their system (theirs by 6.8) "
        f"and {100 * rows['alpa']['time']:.1f} % in Alpa; {feasibility.mistakes(results['feasibility'])} of "
        f"{len(results['feasibility'])} plans are wrongly said to fit or not.",
        f"With co-shard and interlaced pipelines the best plan is at most so many times as fast as the best of "
        f"a space: {told}; published are up to 3.5.",
    ]


def failure(results: Mapping[str, Any]) -> str | None:
    """Lines outside their tolerance that nothing explains."""
    return beside.failed(results["beside"])


def _named(row: Mapping[str, Any]) -> str:
    """The model, and its tokens where its family has two lengths: gpt-15b 8k."""
    return " ".join((row["model"], *row["family"].split()[1:]))


def tables(results: Mapping[str, Any]) -> Iterator[Any]:
    """What the terminal shows."""
    yield beside.table(results["beside"])
    columns = ("model", "accelerators", *spaces.SPACES, "seconds", "fastest plan")
    rows = [
        (
            _named(row),
            row["accelerators"],
            *(row[s] or "nothing fits" for s in spaces.SPACES),
            row["step_s"],
            row["plan"],
        )
        for row in _ratios(results["spaces"])
    ]
    yield beside.plain_table(columns, rows, "Best plan of each space over the best of all (published: up to 3.5)")
    columns = ("model", "losing order", "behind by", *RATES, "least added price")
    rows = [
        (
            _named(row),
            row["loser"]["words"],
            row["behind"],
            *(row["factors"][r] or "never" for r in RATES),
            row["usd"],
        )
        for row in results["rates"]
    ]
    yield beside.plain_table(columns, rows, "How many times the rate must be for a losing order to win")
    rows = [
        (name, row["period"], row["least"], ", ".join(f"{held:g}" for held in row["held"]))
        for name, row in results["orders"].items()
    ]
    columns = ("placement", "period", "no order has less", "live microbatches by device")
    yield beside.plain_table(columns, rows, "Orders that were searched, four devices, forward 1, backward 3")
