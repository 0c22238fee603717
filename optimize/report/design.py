"""The answer of `equipoise design` as people read it."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from optimize import units
from optimize.question import SECONDS_A_DAY, Objective

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from optimize.clusters import Answer, DesignInputs, DesignResult


def show(
    inputs: "DesignInputs",
    result: "DesignResult",
    console: "Console",
    say: Callable[..., None],
    new_table: Callable[..., "Table"],
) -> None:
    """Both answers side by side, and what stands behind them."""
    for job in inputs.jobs:
        console.print(f"{job.workload.name}: {units.significant(job.tokens / 1e12)} T tokens", style="bold")
    say(console, _limits(inputs))
    say(console, f"best is the least (or most) of: {result.objective.meaning}")
    console.print()
    answers = [answer for answer in (result.continuous, result.catalogue) if answer is not None]
    console.print(_table(answers, result.objective, new_table))
    console.print()
    for answer in answers:
        for job in answer.jobs:
            say(console, f"{answer.name}: {units.shorten_runs(str(job.plan))}")
            for message in job.validation.messages:
                say(console, f"note: {message}", style="dim")
    _show_shadow_prices(result, console, say)
    _show_frontier(result, console, new_table)
    for note in result.notes:
        say(console, note)


def _show_shadow_prices(result: "DesignResult", console: "Console", say: Callable[..., None]) -> None:
    if result.continuous is None or not result.continuous.shadow_prices:
        return
    console.print()
    console.print("what more would buy (rates of any size, at this plan)", style="bold")
    for price in result.continuous.shadow_prices.values():
        say(console, f"  {price['words']}")


def _show_frontier(result: "DesignResult", console: "Console", new_table: Callable[..., "Table"]) -> None:
    """The objective over the limit that was swept."""
    if len(result.frontier) < 2:
        return
    limit = next(iter(result.frontier[0]))
    label, scale = {"budget_usd": ("budget, M USD", 1e-6), "power_w": ("power, MW", 1e-6)}.get(limit, (limit, 1.0))
    days = result.objective is Objective.time
    table = new_table(label, "days to train" if days else result.objective.key, "accelerators", "gap %")
    for point in result.frontier:
        if point["value"] is None:
            table.add_row(units.significant(scale * point[limit]), "nothing is feasible", "", "")
            continue
        value = point["value"] / (SECONDS_A_DAY if days else 1.0)
        own = [units.significant(value, 4), f"{point['accelerators']:,}", f"{100 * point['gap']:.3f}"]
        table.add_row(units.significant(scale * point[limit]), *own)
    console.print()
    console.print(table)


def _limits(inputs: "DesignInputs") -> str:
    limits, said = inputs.limits, []
    if limits.budget_usd is not None:
        kind = "rent while training" if limits.rent else "capital"
        said.append(f"{units.significant(limits.budget_usd / 1e6)} M USD ({kind})")
    if limits.power_w is not None:
        said.append(f"{units.rate(limits.power_w, 'W')} at the meter")
    if limits.accelerators is not None:
        said.append(f"{limits.accelerators:,} accelerators")
    if limits.deadline_s is not None:
        said.append(f"{units.significant(limits.deadline_s / SECONDS_A_DAY)} days")
    return "within " + ", ".join(said)


def _table(answers: list["Answer"], objective: Objective, new_table: Callable[..., "Table"]) -> "Table":
    table = new_table("", *(answer.name for answer in answers))

    def row(label: str, text: Callable[["Answer"], str]) -> None:
        table.add_row(label, *(text(answer) for answer in answers))

    row("accelerators bought", lambda a: f"{a.quantities.accelerators:,.0f}")
    row("16-bit FLOP/s each", lambda a: units.rate(a.hardware["flop_per_s"], ""))
    row("HBM each", lambda a: units.scaled(a.hardware["hbm_bytes"], units.BYTES))
    row("HBM bandwidth", lambda a: units.rate(a.hardware["hbm_bytes_per_s"], "B/s"))
    row("scale-up, domain", lambda a: f"{units.rate(a.hardware['scale_up_bytes_per_s'], 'B/s')} among {a.domain}")
    row("scale-out", lambda a: units.rate(a.hardware["scale_out_bytes_per_s"], "B/s"))
    row("purchase, M USD", lambda a: units.significant(a.quantities.capital_usd / 1e6))
    row("power at the meter", lambda a: units.rate(a.quantities.meter_w, "W"))
    for i, first in enumerate(answers[0].jobs):
        of = f", {first.job.workload.name}" if len(answers[0].jobs) > 1 else ""
        row(f"step{of}", lambda a, i=i: units.scaled(a.jobs[i].step_s, units.SECONDS, 4))
        row(f"MFU{of}", lambda a, i=i: units.percent(a.jobs[i].mfu))
    row("days to train", lambda a: units.significant(sum(job.train_s for job in a.jobs) / SECONDS_A_DAY, 4))
    if objective not in (Objective.time, Objective.step):
        row(objective.key, lambda a: units.significant(a.value, 4))
    row("nothing is better by more than", lambda a: f"{100 * a.gap:.3f} %")
    return table
