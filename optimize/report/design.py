"""The screen of `equipoise design`: both answers side by side, and what stands behind them."""

import textwrap
from collections.abc import Callable, Mapping
from typing import Any

from rich.console import Console
from rich.table import Table

from optimize import units
from optimize.clusters import Answer, DesignInputs, DesignResult
from optimize.question import SECONDS_A_DAY, Objective
from optimize.report.screen import new_console, new_table, say, software_line


def show_design(inputs: DesignInputs, result: DesignResult) -> None:
    """Both answers side by side, and what stands behind them."""
    console = new_console()
    if result.target is not None:
        _show_target(console, result.target, result.objective)
    for job in inputs.jobs if result.target is None else ():
        often = "" if job.weight == 1 else f", {job.weight:g} times"
        console.print(f"{job.workload.name}: {units.scaled(job.tokens, units.COUNTS)} tokens{often}", style="bold")
    say(console, _limits(inputs))
    say(console, software_line(inputs.template))
    rented = inputs.limits.rent and result.objective.usd_power
    meaning = f"dollars of rent, as {result.objective.key}" if rented else result.objective.meaning
    say(console, f"best has the {'most' if result.objective.maximised else 'least'}: {meaning}")
    console.print()
    answers = [answer for answer in (result.continuous, result.catalogue) if answer is not None]
    console.print(_table(answers, result.objective, inputs.limits.rent))
    console.print()
    for answer in answers:
        for job in answer.jobs:
            of = f", {job.job.workload.name}" if len(answer.jobs) > 1 else ""
            say(console, f"{answer.name}{of}: {units.shorten_runs(str(job.plan))}")
            for message in job.validation.messages:
                say(console, f"note: {message}", style="dim")
    _show_shadow_prices(result, console)
    _show_frontier(result, console)
    for note in result.notes:
        say(console, note)


def _show_target(console: Console, target: Mapping[str, Any], objective: Objective) -> None:
    """The pair that was chosen, the tokens, and the prices of sooner and better."""
    size, tokens = (units.scaled(target[name], units.COUNTS) for name in ("parameters", "tokens"))
    told = f"loss {target['loss']:g} with probability {target['confidence']:g} ({target['law']})"
    say(console, f"{told}: {target['model']}, {size} parameters, {tokens} tokens", style="bold")
    sure = "with that probability it is reached in the days below"
    say(console, f"{target['batch']:,} sequences a step, {target['steps']:,.0f} steps; {sure}")
    if target["day_sooner_usd"] is not None:
        what = "purchase" if objective is Objective.time else "purchase written off and electricity"
        say(console, f"one day sooner costs {units.dollars(target['day_sooner_usd'])} more of {what}")
    if target["hundredth_of_loss_s"] is None:
        say(console, "one hundredth of loss less is not reached by this model")
        return
    days = units.significant(target["hundredth_of_loss_s"] / SECONDS_A_DAY)
    usd = target["hundredth_of_loss_usd"]
    money = "" if usd is None else f", {units.dollars(usd)} of purchase written off and electricity"
    say(console, f"one hundredth of loss less takes {days} days on this cluster{money}")


def _show_shadow_prices(result: DesignResult, console: Console) -> None:
    if result.continuous is None or not result.continuous.shadow_prices:
        return
    console.print()
    console.print("what more would buy (rates of any size, at this plan)", style="bold")
    for price in result.continuous.shadow_prices.values():
        say(console, f"  {price['words']}")


def _show_frontier(result: DesignResult, console: Console) -> None:
    """The objective over the limit that was swept."""
    if len(result.frontier) < 2:
        return
    limit = next(iter(result.frontier[0]))
    known = {"budget_usd": ("budget, M USD", 1e-6), "power_w": ("power, MW", 1e-6)}
    label, scale = (known | {"carbon_g": ("CO2, t", 1e-6)}).get(limit, (limit, 1.0))
    days = result.objective is Objective.time
    table = new_table(label, "days to train" if days else result.objective.key, "accelerators", "gap %")
    for point in result.frontier:
        if point["value"] is None:
            table.add_row(units.significant(scale * point[limit]), "nothing is feasible", "", "")
            continue
        value = point["value"] / (SECONDS_A_DAY if days else 1.0)
        own = [units.significant(value, 4), f"{point['accelerators']:,}", _gap(point["gap"])]
        table.add_row(units.significant(scale * point[limit]), *own)
    console.print()
    console.print(table)


def _gap(gap: float) -> str:
    """In per cent, with no more digits than say something."""
    return units.fixed(100 * gap, 3 if gap < 0.01 else 1)


def _days(seconds: float) -> str:
    return units.significant(seconds / SECONDS_A_DAY, 4)


def _limits(inputs: DesignInputs) -> str:
    limits, parts = inputs.limits, []
    rent = "rent while training" + {"low": ", reserved", "high": ", on demand"}.get(limits.rental, "")
    if limits.budget_usd is not None:
        kind = rent if limits.rent else "capital"
        parts.append(f"{units.dollars(limits.budget_usd)} ({kind})")
    if limits.power_w is not None:
        parts.append(f"{units.rate(limits.power_w, 'W')} at the meter")
    if limits.accelerators is not None:
        parts.append(f"{limits.accelerators:,} accelerators")
    if limits.deadline_s is not None:
        parts.append(f"{units.significant(limits.deadline_s / SECONDS_A_DAY)} days")
    if limits.carbon_g is not None:
        parts.append(f"{units.significant(limits.carbon_g / 1e6)} t of CO2")
    if limits.rent and limits.budget_usd is None:
        parts.append(f"dollars are {rent}")
    return "within " + ", ".join(parts) if parts else "without limits"


_NAME = 20  # characters of a line of an answer's name, which goes on below: nothing is cut at 80 columns


def _table(answers: list[Answer], objective: Objective, rented: bool) -> Table:
    table = new_table("", *("\n".join(textwrap.wrap(answer.name, _NAME)) for answer in answers))

    def row(label: str, text: Callable[[Answer], str]) -> None:
        table.add_row(label, *(text(answer) for answer in answers))

    row("accelerators bought", lambda a: f"{a.quantities.accelerators:,.0f}")
    if any(a.quantities.spares > 0 for a in answers):
        row("spares beside them", lambda a: f"{a.quantities.spares:,.0f}")
    row("16-bit FLOP/s each", lambda a: units.rate(a.hardware["flop_per_s"], ""))
    row("HBM each", lambda a: units.scaled(a.hardware["hbm_bytes"], units.BYTES))
    row("HBM bandwidth", lambda a: units.rate(a.hardware["hbm_bytes_per_s"], "B/s"))
    row("scale-up, domain", lambda a: f"{units.rate(a.hardware['scale_up_bytes_per_s'], 'B/s')} among {a.domain}")
    row("scale-out", lambda a: units.rate(a.hardware["scale_out_bytes_per_s"], "B/s"))
    if rented:
        row("rent", lambda a: units.dollars(a.quantities.usd_per_s * a.quantities.train_s))
    row("purchase", lambda a: units.dollars(a.quantities.capital_usd))
    row("power at the meter, as limited", lambda a: units.rate(a.quantities.usual_w, "W"))  # what a limit is of
    row("power at the meter, this plan", lambda a: units.rate(a.quantities.meter_w, "W"))
    row("CO2 of the electricity, t", lambda a: units.significant(a.quantities.carbon_g / 1e6))
    for i, first in enumerate(answers[0].jobs):
        of = f", {first.job.workload.name}" if len(answers[0].jobs) > 1 else ""
        row(f"step{of}", lambda a, i=i: units.scaled(a.jobs[i].step_s, units.SECONDS, 4))
        row(f"probability to fit{of}", lambda a, i=i: units.probability(a.jobs[i].validation.fits_probability))
        row(f"MFU{of}", lambda a, i=i: units.percent(a.jobs[i].mfu))
        if of:
            row(f"days{of}", lambda a, i=i: _days(a.jobs[i].train_s))
    row("goodput", lambda a: units.percent(min(job.goodput for job in a.jobs)))
    row("days to train", lambda a: _days(a.quantities.train_s))  # all jobs, each as often as it is asked for
    if objective not in (Objective.time, Objective.step):
        row(objective.key, lambda a: units.significant(a.value, 4))
    row("nothing is better by more than", lambda a: f"{_gap(a.gap)} %")
    return table
