"""What `equipoise plan` says beside the best plan: other counts and batches, and which frameworks can launch what."""

from collections.abc import Mapping, Sequence
from typing import Any

from costmodel.inputs import Plan
from optimize import units
from optimize.launch import FRAMEWORKS, names_on, of_the_model
from optimize.plans import PlanInputs, PlanResult, launchers, refusals
from optimize.report.screen import new_console, new_table, say

Row = Mapping[str, Any]


def show_counts(inputs: PlanInputs, found: Mapping[str, Any]) -> None:
    """What was searched of a range of accelerators and batches, and the best of a few counts."""
    console = new_console()
    say(console, f"searched: {_searched(inputs, found)}")
    best = found["best"]
    behind = "time, times the best" if inputs.objective == "step_s" else f"{inputs.objective}, times the best"
    table = new_table("accelerators", "batch", "step s", "tokens/s", "USD/M tokens", behind, left=0)
    for row in found["curve"]:
        usd = row["usd_per_million_tokens"]
        cells = [f"{row['accelerators']:,}", f"{row['batch']:,}", units.significant(row["step_s"], 4)]
        cells += [units.significant(row["tokens_per_s"]), "-" if usd is None else units.significant(usd)]
        cells += [units.significant(row["compared"] / best["compared"])]
        table.add_row(*cells, style="bold" if row["accelerators"] == best["accelerators"] else None)
    console.print(table)
    console.print()


def _searched(inputs: PlanInputs, found: Mapping[str, Any]) -> str:
    """The honest words: how many pairs there are, and what became of them."""
    (low, high), (least, most) = inputs.counts or (0, 0), inputs.batches or (0, 0)
    counts = f"{low:,} to {high:,} accelerators" if low < high else f"{high:,} accelerators"
    batches = f"batches of {least:,} to {most:,}" if least < most else f"a batch of {most:,}"
    left = found["possible"] - found["found"] - found["no plan"] - found["no memory"]
    none = found["pairs"] - found["possible"] + found["no plan"]
    told = [f"{found['found']:,} evaluated to their best plan", f"{left:,} proved to be no better by lower bounds"]
    told += [f"{none:,} without a legal plan"] if none else []
    told += [f"{found['no memory']:,} that the model does not fit on"] if found["no memory"] else []
    what = "pairs" if low < high and least < most else "counts" if low < high else "batches"
    compared = ", compared by tokens per second" if least < most and inputs.objective == "step_s" else ""
    words = f"{counts} with {batches}{compared}; of {found['pairs']:,} {what} {', '.join(told)}"
    if inputs.fewest:
        late = "" if inputs.deadline_s is None else f" in {inputs.deadline_s / 86_400:g} days with failures"
        words = (
            f"the fewest of {counts} that do it{late}, with {batches}: none of the lesser counts has a plan that does"
        )
    nodes = "domains are used by more than half, and no more of them than the largest count fills"
    stopped = "" if found["complete"] else f"; interrupted: no more than {units.percent(found['gap'])} better is left"
    return f"{words}; {nodes}{stopped}"


def show_launchers(inputs: PlanInputs, result: PlanResult, each: Mapping[str, tuple[float, Plan]]) -> None:
    """Which frameworks can launch the best plan, and what the others can launch instead."""
    console, names = new_console(), launchers(result.plan, inputs.workload, inputs.cluster)
    console.print()
    console.print("what can launch it", style="bold")
    if names:
        say(console, f"  the best plan: {_titles(names)}; the file: --launch {names[0]}")
    else:
        say(console, "  the best plan: no framework has all of its abilities together")
        for name, why in refusals(result.plan, inputs.workload, inputs.cluster).items():
            say(console, f"  {FRAMEWORKS[name].title}: {why}")
    for words in of_the_model(inputs.workload):
        say(console, f"  not in a launch file: {words}")
    least = min((value for value, _ in each.values()), default=0.0)
    if others := [name for name in each if name not in names]:
        listed = [launchers(ranked.plan, inputs.workload, inputs.cluster) for ranked in result.plans]
        every = [name for name in names if all(name in own for own in listed)]
        of = f"what {_titles(every)} can launch" if every else "what one framework can launch"
        say(console, f"  the plans listed are {of}; the best of the others, which may be between them:")
    for name in sorted(others, key=lambda name: each[name][0]):
        value, plan = each[name]
        behind = units.percent(value / least - 1)
        say(console, f"  {FRAMEWORKS[name].title}: at most {behind} behind with {units.shorten_runs(str(plan))}")
    here = names_on(inputs.cluster)
    if each and (lacking := [name for name in here if name not in each]):
        say(console, f"  {_titles(lacking)}: none of their plans is legal here and fits")
    if absent := [name for name in FRAMEWORKS if name not in here]:
        say(console, f"  {_titles(absent)}: not made for {inputs.cluster.accelerator.name}")


def _titles(names: Any) -> str:
    return ", ".join(FRAMEWORKS[name].title for name in names)


def show_notes(lines: Sequence[str]) -> None:
    """Lines below an answer, each of which goes on under itself."""
    console = new_console()
    for line in lines:
        say(console, line)


def near_words(inputs: PlanInputs, near: tuple[Row | None, Row | None], result: PlanResult | None = None) -> list[str]:
    """Whether fewer accelerators, or a batch nearby, would be better, and by how much. Without a result: what works."""
    less, other = near
    count, batch, lines, flags = int(inputs.cluster.accelerators), int(inputs.workload.batch), list[str](), list[str]()
    if less is not None:
        beside = "" if result is None else "better on fewer: "
        told = f"{less['accelerators']:,} accelerators take {_at_most(less['step_s'])}{_than(less, result)}"
        lines.append(beside + told)
        flags.append(f"--at-most {count}")
    if other is not None:
        beside = "" if result is None else "better with another batch: "
        told = f"--batch {other['batch']} on {other['accelerators']:,} accelerators takes {_at_most(other['step_s'])}"
        rate = units.significant(other["batch"] * inputs.workload.sequence / other["step_s"])
        lines.append(f"{beside}{told} ({rate} tokens/s{_more(other, batch, result)})")
        flags.append(f"--batch {_around(batch, other['batch'])}")
    return [*lines, f"{' and '.join(flags)} searches all of them"] if lines else []


def _more(other: Row, batch: int, result: PlanResult | None) -> str:
    """How many times the tokens per second of the result another batch has."""
    if result is None:
        return ""
    ratio = result.plans[0].step_s / (other["step_s"] * batch / other["batch"])
    return f", {_times(ratio)} the tokens per second of {batch:,}"


def _around(batch: int, other: int) -> str:
    apart = abs(other - batch)
    return f"{batch - apart}:{batch + apart}"


def _at_most(seconds: float) -> str:
    return f"{units.scaled(seconds, units.SECONDS, 4)} a step or less"


def _than(row: Row, result: PlanResult | None) -> str:
    if result is None:
        return ""
    ratio = row["step_s"] / result.plans[0].step_s
    return f", {_times(ratio)} the time of all" if ratio > 1 else f", {units.percent(1 - ratio)} less than all"


def _times(ratio: float) -> str:
    return f"{units.significant(ratio)} times"
