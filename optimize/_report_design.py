"""The answer of `equipoise design` as people read it."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from optimize import units
from optimize.objective import SECONDS_A_DAY, Objective

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from optimize.design import Answer, DesignResult
    from optimize.design_command import DesignInputs


def show(
    inputs: "DesignInputs",
    result: "DesignResult",
    console: "Console",
    say: Callable[..., None],
    new_table: Callable[..., "Table"],
) -> None:
    """Both answers side by side, and what stands behind them."""
    workload = inputs.job.workload
    console.print(f"{workload.name}: {units.significant(inputs.job.tokens / 1e12)} T tokens", style="bold")
    say(console, _limits(inputs))
    say(console, f"best is the least (or most) of: {result.objective.value}")
    console.print()
    answers = [answer for answer in (result.continuous, result.catalogue) if answer is not None]
    console.print(_table(answers, result.objective, new_table))
    console.print()
    for answer in answers:
        for job in answer.jobs:
            say(console, f"{answer.name}: {units.shorten_runs(str(job.plan))}")
            for message in job.validation.messages:
                say(console, f"note: {message}", style="dim")
    for note in result.notes:
        say(console, note)


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
    row("step", lambda a: units.scaled(a.jobs[0].step_s, units.SECONDS, 4))
    row("MFU", lambda a: units.percent(a.jobs[0].mfu))
    row("days to train", lambda a: units.significant(a.quantities.train_s / SECONDS_A_DAY, 4))
    if objective not in (Objective.time_s, Objective.step_s):
        row(objective.name, lambda a: units.significant(a.value, 4))
    row("nothing is better by more than", lambda a: f"{100 * a.gap:.3f} %")
    return table
